//! Every call that sends, and every call that receives, with every size: `fi_msg(3)`, `fi_tagged(3)`.

use super::prelude::*;
use crate::call::{EndpointCall, ReceiveBy, RemoteReceive, RemoteSend, SendBy};

/// A tag that no receive of these tests accepts.
const MARKER: u64 = 1 << 63;

/// Remote data that a swap of its bytes changes.
const DATA: u64 = 0xfedc_ba98_7654_3210;

/// A message as sent, which must arrive unchanged.
#[derive(Debug)]
struct Message {
    bytes: Bytes,
    tag: Option<u64>,
    data: Option<u64>,
}

/// The contexts of a send and a receive.
const SENT: u64 = 11;
const RECEIVED: u64 = 21;

const SEND_CALLS: [SendBy; 5] =
    [SendBy::Single, SendBy::Vector, SendBy::Message, SendBy::Raw, SendBy::Inject];

/// Any of the calls that receive, into raw memory.
const RAW: Option<ReceiveBy> = None;

const RECEIVE_CALLS: [Option<ReceiveBy>; 4] =
    [Some(ReceiveBy::Single), Some(ReceiveBy::Vector), Some(ReceiveBy::Message), RAW];

impl Message {
    /// The buffers of a send.
    fn pieces(&self, by: SendBy) -> Vec<Bytes> {
        let count = if matches!(by, SendBy::Vector | SendBy::Raw) { 3 } else { 1 };
        split_unevenly(&self.bytes, count)
    }

    fn send(&self, from: &Party, by: SendBy) {
        let (tag, data, buffers) = (self.tag, self.data, self.pieces(by));
        let post = Post { peer: from.peer(), tag, data, context: SENT, flags: None };
        // No other call than `fi_sendmsg` sends several buffers with remote data.
        let call = match (by, data) {
            (SendBy::Vector, Some(_)) => SendBy::Message,
            _ => by,
        };
        let sent = from.endpoint.post(EndpointCall::Send(RemoteSend { by: call, buffers, post })).map(drop);
        sent.unwrap_or_else(|error| panic!("{by:?} of {} bytes: {error}", self.bytes.len()));
    }

    /// Posts a receive with room for the message and this many more bytes. Returns its raw memory if it has
    /// any.
    fn post_receive(&self, at: &Party, by: Option<ReceiveBy>, spare_bytes: usize) -> Option<ReceiveBuffer> {
        let (context, len_bytes) = (RECEIVED, self.bytes.len() + spare_bytes);
        let count = if by.is_none_or(|by| by == ReceiveBy::Vector) { 4 } else { 1 };
        let buffers = marked_buffers(len_bytes, count);
        let call = if let Some(by) = by {
            let (from, tagged, flags) = (ANY, self.tag.map(|tag| Tag(tag).into()), OpFlags::empty());
            EndpointCall::Receive(RemoteReceive { by, buffers, from, tagged, context, flags })
        } else {
            let lens_bytes = buffers.iter().map(BytesMut::len).collect();
            let post = Post { tag: self.tag, context, ..Post::default() };
            EndpointCall::ReceiveRaw { lens_bytes, ignore: 0, post }
        };
        let posted = at.endpoint.post(call);
        posted.unwrap_or_else(|error| panic!("{by:?} of {len_bytes} bytes: {error}"))
    }

    fn kind(&self) -> CompletionFlags {
        if self.tag.is_some() { CompletionFlags::TAGGED } else { CompletionFlags::MSG }
    }

    #[track_caller]
    fn check_sent(&self, from: &Party, by: SendBy) {
        let completion = from.next_completion();
        let buffer = match by {
            SendBy::Single => Buffer::Sent(self.bytes.clone()),
            SendBy::Message | SendBy::Vector => Buffer::SentVector(self.pieces(by)),
            SendBy::Raw | SendBy::Inject => Buffer::None,
        };
        let (context, flags) = (SENT, CompletionFlags::SEND | self.kind());
        if from.is_homespun() {
            assert_eq!(completion, Completion { context, flags, buffer, ..Completion::default() });
        } else {
            // `fi_cq(3)` gives the other fields no meaning at the sender.
            assert!(completion.flags.contains(flags), "{completion:?}");
            assert_eq!((completion.context, completion.buffer), (context, buffer));
        }
    }

    #[track_caller]
    fn check_received(&self, at: &Party, raw: Option<ReceiveBuffer>) {
        let completion = at.next_completion();
        let mut flags = CompletionFlags::RECV | self.kind();
        flags.set(CompletionFlags::REMOTE_CQ_DATA, self.data.is_some());
        assert_eq!(completion.context, RECEIVED);
        if at.is_homespun() {
            assert_eq!(completion.flags, flags);
            assert_eq!((completion.tag.0, completion.data), (self.tag.unwrap_or(0), self.data.unwrap_or(0)));
        } else {
            // `fi_cq(3)` allows more flags, and gives an absent tag and absent data no meaning.
            assert!(completion.flags.contains(flags), "{completion:?}");
            assert!(self.tag.is_none_or(|tag| completion.tag == tag));
            assert!(self.data.is_none_or(|data| completion.data == data));
        }
        assert_eq!(completion.len_bytes, self.bytes.len());
        assert_eq!(raw.is_some(), completion.buffer == Buffer::None);
        let bytes = match raw {
            Some(raw) => raw.into_message(&completion),
            None => received_bytes(&completion.buffer),
        };
        assert!(bytes == self.bytes, "other bytes than those sent, of {} bytes", self.bytes.len());
    }
}

/// Sends one message, and receives it. Posts the receive before the send if `receive_first`, otherwise after
/// the arrival. Checks all entries.
#[track_caller]
fn exchange_and_check(
    (alice, bob): (&Party, &Party),
    message: &Message,
    (send, receive): (SendBy, Option<ReceiveBy>),
    receive_first: bool,
    spare_bytes: usize,
) {
    let post_receive = || message.post_receive(bob, receive, spare_bytes);
    let mut raw = receive_first.then(post_receive).flatten();
    message.send(alice, send);
    // With another provider, a send may wait until the peer receives it.
    let is_reported = !matches!(send, SendBy::Inject);
    if is_reported && alice.is_homespun() {
        message.check_sent(alice, send);
    }
    if !receive_first {
        if alice.is_homespun() {
            // The peer acknowledges this second message only after all of the first one has arrived.
            alice.deliver_tagged(MARKER, 0, 0);
        } else {
            alice.progress_all();
        }
        raw = post_receive();
    }
    message.check_received(bob, raw);
    if is_reported && !alice.is_homespun() {
        message.check_sent(alice, send);
    }
}

/// Shows fi_cq/reports-ends-of-transfers, fi_cq/context-of-operation, fi_cq/context-is-always-there,
/// fi_cq/flags-field, fi_cq/len-field, fi_cq/data-field, fi_cq/tag-field, fi_cq/tag-host-order,
/// fi_cq/flag-send, fi_cq/flag-recv, fi_cq/flag-msg, fi_cq/flag-tagged, fi_cq/flag-remote-data,
/// fi_cq/messages-complete-at-target, fi_cq/notify-flags-only, fi_cq-1.4/context-of-all-completions,
/// fi_cq/data-host-order, fi_msg/every-send-meets-every-receive, fi_msg/context-comes-back,
/// fi_msg/remote-data-arrives, fi_tagged/tagged-sends-meet-tagged-receives, fi_tagged/tagged-remote-data,
/// fi_mr/local-buffers-need-no-registration.
#[over(all)]
fn every_send_call_reaches_every_receive_call(net: &Net) {
    let (alice, bob) = net.open_pair();
    let mut identity = 0;
    for send in SEND_CALLS {
        for receive in RECEIVE_CALLS {
            for tag in [None, Some(0), Some(u64::MAX >> 1)] {
                for data in [None, Some(0), Some(DATA)] {
                    for receive_first in [false, true] {
                        for len_bytes in [0, 1, 7, 8, 900] {
                            identity += 1;
                            let message = Message { bytes: payload(identity, len_bytes), tag, data };
                            let calls = (send, receive);
                            exchange_and_check((&alice, &bob), &message, calls, receive_first, 5);
                        }
                    }
                }
            }
        }
    }
}

/// Shows fi_cq/len-field, fi_cq/visible-means-delivered, fi_cq/receive-completion-means-readable,
/// fi_msg/message-boundaries, fi_tagged/tagged-message-boundaries.
#[over(all)]
fn messages_of_every_size_arrive(net: &Net) {
    let (alice, bob) = net.open_pair();
    let inject_size_bytes = alice.endpoint.info().tx.inject_size_bytes;
    for boundary in [4096_usize, 8192, 65_536] {
        for len_bytes in boundary - 40..=boundary + 40 {
            // Try every length near the boundary, since a header adds to the length. Of the others, try
            // every fourth.
            if len_bytes.abs_diff(boundary) > 3 && len_bytes % 4 != 0 {
                continue;
            }
            for (receive_first, data) in [(false, Some(0)), (true, Some(DATA))] {
                let message = Message { bytes: payload(len_bytes as u64, len_bytes), tag: None, data };
                let calls = (SendBy::Single, Some(ReceiveBy::Single));
                exchange_and_check((&alice, &bob), &message, calls, receive_first, 0);
            }
        }
    }
    for call in SEND_CALLS {
        for len_bytes in [inject_size_bytes - 1, inject_size_bytes] {
            let message = Message { bytes: payload(9, len_bytes), tag: Some(4), data: None };
            exchange_and_check((&alice, &bob), &message, (call, RAW), true, 1);
        }
    }
}

/// Shows fi_cq/receive-completion-means-readable.
#[over(all)]
fn largest_messages_arrive(net: &Net) {
    let (alice, bob) = net.open_pair();
    for len_bytes in [1 << 20, (8 << 20) + 1] {
        for (calls, receive_first, data) in [
            ((SendBy::Single, Some(ReceiveBy::Single)), true, Some(DATA)),
            ((SendBy::Raw, RAW), true, Some(DATA)),
            ((SendBy::Vector, Some(ReceiveBy::Vector)), false, None),
        ] {
            let message = Message { bytes: payload(3, len_bytes), tag: Some(1), data };
            exchange_and_check((&alice, &bob), &message, calls, receive_first, 0);
        }
    }
}

/// Shows fi_msg/vector-is-one-message, fi_tagged/tagged-vector-is-one-message, fi_endpoint/limits-hold.
#[over(all)]
fn vectors_gather_and_scatter_messages(net: &Net) {
    let (alice, bob) = net.open_pair();
    let message = payload(77, 20_000);
    let cuts: [&[usize]; 5] =
        [&[], &[20_000], &[0, 0, 20_000], &[1, 19_998, 1, 0], &[5000, 5000, 5000, 5000]];
    for (context, sent) in (1..).zip(cuts) {
        let len_bytes = sent.iter().sum::<usize>();
        for taken in cuts.into_iter().filter(|taken| taken.iter().sum::<usize>() >= len_bytes) {
            let mut rest = message.clone();
            let buffers: Vec<Bytes> = sent.iter().map(|&len_bytes| rest.split_to(len_bytes)).collect();
            let rooms: Vec<_> = taken.iter().map(|&len_bytes| marked_buffer(len_bytes)).collect();
            if context % 2 == 0 {
                bob.endpoint.recvv(rooms, ANY, context).unwrap();
                alice.endpoint.sendv(buffers, alice.peer(), context).unwrap();
            } else {
                let (tag, tagged, to) = (Some(Tag(7)), Some(Tag(7).into()), alice.peer());
                let receive = RecvMsg { buffers: rooms, tagged, context, ..RecvMsg::default() };
                bob.endpoint.recvmsg(receive).unwrap();
                let send = SendMsg { buffers, to, tag, context, ..SendMsg::default() };
                alice.endpoint.sendmsg(send).unwrap();
            }
            let completion = bob.next_completion();
            assert_eq!(completion.len_bytes, len_bytes);
            assert!(received_bytes(&completion.buffer) == message[..len_bytes]);
            let Buffer::ReceivedVector(filled) = completion.buffer else { panic!("posted as a vector") };
            let mut left = len_bytes;
            for (filled, &room_bytes) in filled.iter().zip(taken) {
                assert_eq!(filled.len(), room_bytes.min(left), "buffers are filled in order");
                left -= filled.len();
            }
            alice.next_completion();
        }
    }
}

#[over(all)]
fn raw_buffer_is_not_written_beyond_its_end(net: &Net) {
    let (alice, bob) = net.open_pair();
    for (context, len_bytes) in (1..).zip([0, 1, 100, 5000, 9000, 100_000]) {
        // The network decides whether the receive matches before, while or after the message arrives.
        alice.endpoint.send(payload(context, len_bytes + 3000), alice.peer(), context).unwrap();
        bob.cq.progress();
        let lens = [len_bytes / 3, len_bytes - len_bytes / 3];
        let post = Post { context, ..Post::default() };
        let raw = bob.endpoint.receive_into_raw_memory(&lens, 0, post).unwrap();
        let failed = bob.next_failure();
        assert_eq!(failed.completion.len_bytes, len_bytes);
        assert_eq!(failed.overflow_bytes(), 3000);
        assert!(raw.into_message(&failed.completion) == payload(context, len_bytes));
        alice.next_completion();
    }
}

/// Shows fi_msg/more-is-a-hint.
#[over(all)]
fn sends_flagged_more_arrive_without_a_following_post(net: &Net) {
    let (alice, bob) = net.open_pair();
    bob.post_receives(1..=5, 100);
    (1..=5).for_each(|context| alice.post_send(context, 100, OpFlags::MORE));
    for context in 1..=5 {
        bob.expect_message(context, &payload(context, 100));
        assert_eq!(alice.next_completion().context, context);
    }
}
