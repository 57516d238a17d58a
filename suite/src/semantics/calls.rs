//! Every call that sends, and every call that receives, with every size: `fi_msg(3)`, `fi_tagged(3)`.

use super::prelude::*;

/// A tag that no receive of these tests accepts.
const MARKER: u64 = 1 << 63;

/// Remote data that a swap of its bytes changes.
const DATA: u64 = 0xfedc_ba98_7654_3210;

/// A call that sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendCall {
    /// `fi_send`, `fi_senddata`, `fi_tsend`, `fi_tsenddata`.
    Single,
    /// `fi_sendv` or `fi_tsendv`. With remote data `fi_sendmsg`: no other call sends several buffers with
    /// remote data.
    Vector,
    /// `fi_sendmsg`, `fi_tsendmsg`.
    Message,
    /// Any of these, from raw memory.
    Raw,
    /// `fi_inject`, `fi_injectdata`, `fi_tinject`, `fi_tinjectdata`.
    Inject,
}

/// A call that receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReceiveCall {
    /// `fi_recv`, `fi_trecv`.
    Single,
    /// `fi_recvv`, `fi_trecvv`.
    Vector,
    /// `fi_recvmsg`, `fi_trecvmsg`.
    Message,
    /// Any of these, into raw memory.
    Raw,
}

/// A message as sent, which must arrive unchanged.
#[derive(Debug, Clone)]
struct Message {
    bytes: Bytes,
    tag: Option<u64>,
    data: Option<u64>,
}

/// The contexts of a send and a receive.
const SENT: u64 = 11;
const RECEIVED: u64 = 21;

const SEND_CALLS: [SendCall; 5] =
    [SendCall::Single, SendCall::Vector, SendCall::Message, SendCall::Raw, SendCall::Inject];

const RECEIVE_CALLS: [ReceiveCall; 4] =
    [ReceiveCall::Single, ReceiveCall::Vector, ReceiveCall::Message, ReceiveCall::Raw];

impl Message {
    fn send(&self, by: &Party, call: SendCall) {
        let Message { bytes, tag, data } = self.clone();
        let (endpoint, to, context, parts) = (&by.endpoint, by.peer(), SENT, split_unevenly(&bytes, 3));
        let message =
            |buffers| SendMsg { buffers, to, tag: tag.map(Tag), data, context, flags: OpFlags::empty() };
        let accepted = match (call, tag, data) {
            (SendCall::Single, None, None) => endpoint.send(bytes, to, context),
            (SendCall::Single, None, Some(data)) => endpoint.senddata(bytes, data, to, context),
            (SendCall::Single, Some(tag), None) => endpoint.tsend(bytes, to, Tag(tag), context),
            (SendCall::Single, Some(tag), Some(data)) => {
                endpoint.tsenddata(bytes, data, to, Tag(tag), context)
            }
            (SendCall::Vector, None, None) => endpoint.sendv(parts, to, context),
            (SendCall::Vector, Some(tag), None) => endpoint.tsendv(parts, to, Tag(tag), context),
            (SendCall::Vector, _, Some(_)) => endpoint.sendmsg(message(parts)),
            (SendCall::Message, ..) => endpoint.sendmsg(message(vec![bytes])),
            (SendCall::Raw, ..) => {
                endpoint.send_from_raw_memory(&parts, Post { peer: to, tag, data, context, flags: None })
            }
            (SendCall::Inject, ..) => endpoint.inject(&bytes, to, tag.map(Tag), data),
        };
        accepted.unwrap_or_else(|error| panic!("{call:?} of {} bytes: {error}", self.bytes.len()));
    }

    /// Posts a receive with room for the message and this many more bytes. Returns its raw memory if it has
    /// any.
    fn post_receive(&self, by: &Party, call: ReceiveCall, spare_bytes: usize) -> Option<ReceiveBuffer> {
        let (from, context, len_bytes) = (ANY, RECEIVED, self.bytes.len() + spare_bytes);
        let (whole, parts) = (marked_buffer(len_bytes), marked_buffers(len_bytes, 4));
        let endpoint = &by.endpoint;
        let mut raw = None;
        let accepted = match (call, self.tag) {
            (ReceiveCall::Single, None) => endpoint.recv(whole, from, context),
            (ReceiveCall::Single, Some(tag)) => endpoint.trecv(whole, from, Tag(tag), context),
            (ReceiveCall::Vector, None) => endpoint.recvv(parts, from, context),
            (ReceiveCall::Vector, Some(tag)) => endpoint.trecvv(parts, from, Tag(tag), context),
            (ReceiveCall::Message, tag) => {
                let (buffers, tagged) = (vec![whole], tag.map(|tag| Tag(tag).into()));
                endpoint.recvmsg(RecvMsg { buffers, from, tagged, context, flags: OpFlags::empty() })
            }
            (ReceiveCall::Raw, tag) => {
                let lens: Vec<usize> = parts.iter().map(BytesMut::len).collect();
                let post = Post { tag, context, ..Post::default() };
                endpoint.receive_into_raw_memory(&lens, 0, post).map(|room| raw = Some(room))
            }
        };
        accepted.unwrap_or_else(|error| panic!("{call:?} of {len_bytes} bytes: {error}"));
        raw
    }

    fn kind(&self) -> CompletionFlags {
        if self.tag.is_some() { CompletionFlags::TAGGED } else { CompletionFlags::MSG }
    }

    #[track_caller]
    fn check_sent(&self, by: &Party, call: SendCall) {
        let completion = by.next_completion();
        let buffer = match call {
            SendCall::Single => Buffer::Sent(self.bytes.clone()),
            SendCall::Message => Buffer::SentVector(vec![self.bytes.clone()]),
            SendCall::Vector => Buffer::SentVector(split_unevenly(&self.bytes, 3)),
            SendCall::Raw | SendCall::Inject => Buffer::None,
        };
        let (context, flags) = (SENT, CompletionFlags::SEND | self.kind());
        if by.is_homespun() {
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
    (send, receive): (SendCall, ReceiveCall),
    receive_first: bool,
    spare_bytes: usize,
) {
    let post_receive = || message.post_receive(bob, receive, spare_bytes);
    let mut raw = receive_first.then(post_receive).flatten();
    message.send(alice, send);
    // With another provider, a send may wait until the peer receives it.
    let is_reported = send != SendCall::Inject;
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
                let calls = (SendCall::Single, ReceiveCall::Single);
                exchange_and_check((&alice, &bob), &message, calls, receive_first, 0);
            }
        }
    }
    for call in SEND_CALLS {
        for len_bytes in [inject_size_bytes - 1, inject_size_bytes] {
            let message = Message { bytes: payload(9, len_bytes), tag: Some(4), data: None };
            exchange_and_check((&alice, &bob), &message, (call, ReceiveCall::Raw), true, 1);
        }
    }
}

/// Shows fi_cq/receive-completion-means-readable.
#[over(all)]
fn largest_messages_arrive(net: &Net) {
    let (alice, bob) = net.open_pair();
    for len_bytes in [1 << 20, (8 << 20) + 1] {
        for (calls, receive_first, data) in [
            ((SendCall::Single, ReceiveCall::Single), true, Some(DATA)),
            ((SendCall::Raw, ReceiveCall::Raw), true, Some(DATA)),
            ((SendCall::Vector, ReceiveCall::Vector), false, None),
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
