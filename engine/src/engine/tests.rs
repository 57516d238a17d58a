//! The engine between a transport that does as it is told and a sink that remembers.
//!
//! What happens over links that behave like real ones is tested in `over_loopback`.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};

use super::*;
use crate::buffer::{Buffer, Destination, Segment, Source};
use crate::completion::{Completion, Failure};
use crate::errno::Errno;
use crate::flags::CompletionFlags;
use crate::operation::{Level, ReceiveRequest, SendRequest};
use crate::transport::{Full, LinkCaps, LinkError, LinkEvent, Receiver, Sent};
use crate::wire::{Header, Message};

mod over_loopback;

/// Answers what the test has put into `answers`, and `Whole` when that is used up.
#[derive(Default)]
struct Scripted {
    answers: VecDeque<Sent>,
    sent: Vec<(LinkId, Header, Vec<u8>)>,
    connected: Vec<Address>,
    closed: Vec<(LinkId, Close)>,
}

impl Scripted {
    fn answer(&mut self, payload: &[IoSlice<'_>]) -> (Sent, Vec<u8>) {
        let bytes: Vec<u8> = payload.iter().flat_map(|slice| slice.iter().copied()).collect();
        match self.answers.pop_front().unwrap_or(Sent::Whole) {
            Sent::Partial(count) => (Sent::Partial(count), bytes[..count].to_vec()),
            answer => (answer, bytes),
        }
    }
}

impl Transport for Scripted {
    fn address(&self) -> Address {
        address(1)
    }

    fn caps(&self, _: LinkId) -> LinkCaps {
        LinkCaps { inline_max_bytes: 8, pull_min_bytes: usize::MAX }
    }

    fn connect(&mut self, to: Address) -> LinkId {
        self.connected.push(to);
        LinkId(self.connected.len() as u32 - 1)
    }

    fn send_inline(&mut self, link: LinkId, header: &Header, payload: &[u8]) -> Result<(), Full> {
        match self.send(link, header, &[IoSlice::new(payload)]) {
            Sent::Whole => Ok(()),
            _ => Err(Full),
        }
    }

    fn send(&mut self, link: LinkId, header: &Header, payload: &[IoSlice<'_>]) -> Sent {
        let (answer, bytes) = self.answer(payload);
        if answer != Sent::Full {
            self.sent.push((link, *header, bytes));
        }
        answer
    }

    fn resume(&mut self, link: LinkId, rest: &[IoSlice<'_>]) -> Sent {
        let (answer, bytes) = self.answer(rest);
        if answer != Sent::Full {
            let frame = self.sent.iter_mut().rfind(|(on, ..)| *on == link).expect("a frame to resume");
            frame.2.extend(bytes);
        }
        answer
    }

    fn flush(&mut self) {}

    fn receive(&mut self, _: u32, _: &mut impl Receiver) -> u32 {
        0
    }

    fn close(&mut self, link: LinkId, how: Close) {
        self.closed.push((link, how));
    }

    fn stop_accepting(&mut self) {}

    fn draining(&self) -> usize {
        0
    }
}

/// Remembers what it is given, and has room for so much only.
struct Recorder {
    room: usize,
    ended: Vec<Result<Completion, Failure>>,
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder { room: usize::MAX, ended: Vec::new() }
    }
}

impl Recorder {
    fn contexts(&self) -> Vec<u64> {
        self.ended
            .iter()
            .map(|ended| match ended {
                Ok(completion) => completion.context,
                Err(failure) => failure.completion.context,
            })
            .collect()
    }

    fn take(&mut self) -> Vec<Result<Completion, Failure>> {
        std::mem::take(&mut self.ended)
    }
}

impl Sink for Recorder {
    fn complete(&mut self, completion: Completion, _: &Peers) -> Result<(), Completion> {
        if self.ended.len() >= self.room && !completion.reserved {
            return Err(completion);
        }
        self.ended.push(Ok(completion));
        Ok(())
    }

    fn fail(&mut self, failure: Failure, _: &Peers) -> Result<(), Failure> {
        if self.ended.len() >= self.room && !failure.completion.reserved {
            return Err(failure);
        }
        self.ended.push(Err(failure));
        Ok(())
    }
}

fn address(port: u16) -> Address {
    SocketAddr::from(([127, 0, 0, 1], port)).into()
}

fn send_to(to: PeerId, message: &'static [u8], context: u64) -> SendRequest {
    SendRequest {
        to,
        source: Source::owned(Bytes::from_static(message)),
        tag: None,
        data: None,
        context,
        level: Level::Inject,
        signalled: true,
        inject: false,
    }
}

fn receive(len_bytes: usize, context: u64) -> ReceiveRequest {
    ReceiveRequest {
        destination: Destination::owned(BytesMut::zeroed(len_bytes)),
        tagged: false,
        criteria: Criteria::any(),
        context,
        signalled: true,
    }
}

fn untagged(len_bytes: u64) -> Header {
    Header::Message(Message { len_bytes, tag: None, data: None, wants_ack: false })
}

/// An engine with a peer whose link 7 is up, accepted.
fn engine_with_peer() -> (Engine, PeerId, Scripted, Recorder) {
    let mut engine = Engine::new(Config::default());
    let mut sink = Recorder::default();
    engine.arrivals(&mut sink).link(LinkId(7), LinkEvent::Up { peer: address(2), instance: 1 });
    let peer = engine.peer(address(2));
    (engine, peer, Scripted::default(), sink)
}

fn received(ended: &Result<Completion, Failure>) -> &[u8] {
    let completion = match ended {
        Ok(completion) => completion,
        Err(failure) => &failure.completion,
    };
    match &completion.buffer {
        Buffer::Received(bytes) => bytes,
        other => panic!("not a received buffer: {other:?}"),
    }
}

#[test]
fn a_message_fills_the_posted_receive_and_reports_all_of_it() {
    let (mut engine, peer, _, mut sink) = engine_with_peer();
    let request = ReceiveRequest {
        tagged: true,
        criteria: Criteria { source: Some(peer), tag: 0xf0, ignore: 0xf },
        ..receive(8, 5)
    };
    engine.post_receive(request, &mut sink).unwrap();
    let message = Message { len_bytes: 3, tag: Some(0xf7), data: Some(99), wants_ack: false };
    engine.arrivals(&mut sink).frame(LinkId(7), &Header::Message(message), b"abc");
    assert_eq!(
        sink.take(),
        [Ok(Completion {
            context: 5,
            flags: CompletionFlags::RECV | CompletionFlags::TAGGED | CompletionFlags::REMOTE_CQ_DATA,
            len_bytes: 3,
            data: 99,
            tag: 0xf7,
            source: Some(peer),
            buffer: Buffer::Received(BytesMut::from(&b"abc"[..])),
            reserved: false,
        })]
    );
    assert_eq!(engine.outstanding_receives(), 0);
}

#[test]
fn tagged_and_untagged_messages_never_match_each_other() {
    let (mut engine, _, _, mut sink) = engine_with_peer();
    engine.post_receive(receive(8, 1), &mut sink).unwrap();
    let tagged = Message { len_bytes: 1, tag: Some(0), data: None, wants_ack: false };
    engine.arrivals(&mut sink).frame(LinkId(7), &Header::Message(tagged), b"t");
    assert!(sink.ended.is_empty());
    engine.post_receive(ReceiveRequest { tagged: true, ..receive(8, 2) }, &mut sink).unwrap();
    engine.arrivals(&mut sink).frame(LinkId(7), &untagged(1), b"u");
    assert_eq!(sink.contexts(), [2, 1]);
}

#[test]
fn a_receive_takes_over_a_message_that_has_arrived_in_part() {
    let (mut engine, _, _, mut sink) = engine_with_peer();
    engine.arrivals(&mut sink).begin(LinkId(7), &untagged(6));
    engine.arrivals(&mut sink).chunk(LinkId(7), b"ab");
    assert!(engine.arrivals(&mut sink).space(LinkId(7)).is_empty());
    engine.post_receive(receive(6, 1), &mut sink).unwrap();
    let mut arrivals = engine.arrivals(&mut sink);
    let mut space = arrivals.space(LinkId(7));
    assert_eq!(space.iter().map(|piece| piece.len()).sum::<usize>(), 4);
    space[0][..3].copy_from_slice(b"cde");
    drop(space);
    arrivals.placed(LinkId(7), 3);
    arrivals.chunk(LinkId(7), b"f");
    assert_eq!(received(&sink.ended[0]), b"abcdef");
}

#[test]
fn truncation_is_reported_with_what_did_not_fit_however_the_message_comes() {
    let (mut engine, _, _, mut sink) = engine_with_peer();
    for way in 0..3 {
        let post = |engine: &mut Engine, sink: &mut Recorder| {
            engine.post_receive(receive(4, way), sink).unwrap();
        };
        match way {
            0 => {
                post(&mut engine, &mut sink);
                engine.arrivals(&mut sink).frame(LinkId(7), &untagged(6), b"abcdef");
            }
            1 => {
                post(&mut engine, &mut sink);
                let mut arrivals = engine.arrivals(&mut sink);
                arrivals.begin(LinkId(7), &untagged(6));
                arrivals.chunk(LinkId(7), b"abcde");
                assert!(arrivals.space(LinkId(7)).is_empty());
                arrivals.chunk(LinkId(7), b"f");
            }
            _ => {
                engine.arrivals(&mut sink).frame(LinkId(7), &untagged(6), b"abcdef");
                post(&mut engine, &mut sink);
            }
        }
        let ended = sink.take();
        assert_eq!(received(&ended[0]), b"abcd");
        let Err(failure) = &ended[0] else { panic!("truncation is an error") };
        assert_eq!(failure.error, OperationError::Truncated { overflow_bytes: 2 });
        assert_eq!((failure.completion.context, failure.completion.len_bytes), (way, 4));
    }
}

#[test]
fn sends_are_queued_behind_what_the_link_does_not_take_and_keep_their_order() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    transport.answers = [Sent::Partial(3), Sent::Full, Sent::Partial(2)].into();
    engine.post_send(send_to(peer, b"0123456789", 1), &mut transport, &mut sink).unwrap();
    engine.post_send(send_to(peer, b"x", 2), &mut transport, &mut sink).unwrap();
    assert!(sink.ended.is_empty() && engine.has_unsent());
    engine.transmit(&mut transport, &mut sink);
    engine.transmit(&mut transport, &mut sink);
    assert!(sink.ended.is_empty());
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sink.contexts(), [1, 2]);
    let payloads: Vec<&[u8]> = transport.sent.iter().map(|(_, _, payload)| &payload[..]).collect();
    assert_eq!(payloads, [&b"0123456789"[..], b"x"]);
    assert!(!engine.has_unsent());
    assert!(transport.connected.is_empty(), "the peer's own link is used");
}

#[test]
fn an_injected_message_is_copied_when_the_link_does_not_take_it() {
    for answer in [Sent::Full, Sent::Partial(4)] {
        let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
        let mut message = *b"injected message";
        let segment = Segment { address: message.as_ptr(), len_bytes: message.len() };
        #[expect(unsafe_code, reason = "the raw tier is what injection is about")]
        // SAFETY: the engine copies an injected message before `post_send` returns.
        let source = unsafe { Source::raw(&[segment]) }.unwrap();
        transport.answers = [answer].into();
        let request = SendRequest { source, inject: true, signalled: false, ..send_to(peer, b"", 0) };
        engine.post_send(request, &mut transport, &mut sink).unwrap();
        message.fill(0);
        engine.transmit(&mut transport, &mut sink);
        assert_eq!(transport.sent[0].2, b"injected message");
        assert!(sink.ended.is_empty());
    }
}

#[test]
fn a_send_that_awaits_an_acknowledgement_completes_with_it_and_not_before() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    engine.post_send(send_to(peer, b"a", 1), &mut transport, &mut sink).unwrap();
    let acked = |context| SendRequest { level: Level::Transmit, ..send_to(peer, b"b", context) };
    engine.post_send(acked(2), &mut transport, &mut sink).unwrap();
    engine.post_send(acked(3), &mut transport, &mut sink).unwrap();
    assert_eq!(sink.contexts(), [1]);
    engine.arrivals(&mut sink).frame(LinkId(7), &Header::Ack { received: 1 }, b"");
    assert_eq!(sink.contexts(), [1]);
    engine.arrivals(&mut sink).frame(LinkId(7), &Header::Ack { received: 2 }, b"");
    assert_eq!(sink.contexts(), [1, 2]);
    engine.arrivals(&mut sink).frame(LinkId(7), &Header::Ack { received: 3 }, b"");
    assert_eq!(sink.contexts(), [1, 2, 3]);
}

#[test]
fn arrivals_are_acknowledged_once_a_pass_and_only_when_asked() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    engine.arrivals(&mut sink).frame(LinkId(7), &untagged(0), b"");
    engine.transmit(&mut transport, &mut sink);
    assert!(transport.sent.is_empty());
    let asking = Header::Message(Message { len_bytes: 0, tag: None, data: None, wants_ack: true });
    engine.arrivals(&mut sink).frame(LinkId(7), &asking, b"");
    engine.arrivals(&mut sink).frame(LinkId(7), &asking, b"");
    transport.answers = [Sent::Full].into();
    engine.transmit(&mut transport, &mut sink);
    assert!(transport.sent.is_empty() && engine.has_unsent());
    engine.transmit(&mut transport, &mut sink);
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.sent, [(LinkId(7), Header::Ack { received: 3 }, Vec::new())]);
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_ends_the_link() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    let request = SendRequest { level: Level::Delivery, ..send_to(peer, b"a", 1) };
    engine.post_send(request, &mut transport, &mut sink).unwrap();
    engine.arrivals(&mut sink).frame(LinkId(7), &Header::Ack { received: 2 }, b"");
    let Err(failure) = &sink.ended[0] else { panic!("the send failed") };
    assert_eq!(failure.error.errno(), Errno::EPROTO);
    engine.arrivals(&mut sink).frame(LinkId(7), &untagged(1), b"ignored");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.closed, [(LinkId(7), Close::Abort)]);
}

#[test]
fn a_link_that_goes_down_by_itself_is_not_closed_again() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.frame(LinkId(7), &Header::Ack { received: 2 }, b"");
    arrivals.link(LinkId(7), LinkEvent::Down(LinkError::Closed));
    arrivals.link(LinkId(7), LinkEvent::Up { peer: address(3), instance: 1 });
    engine.transmit(&mut transport, &mut sink);
    assert!(transport.closed.is_empty());
}

#[test]
fn a_link_failure_ends_everything_that_hangs_on_the_link_once() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    let acked = SendRequest { level: Level::Transmit, ..send_to(peer, b"acked", 1) };
    engine.post_send(acked, &mut transport, &mut sink).unwrap();
    transport.answers = [Sent::Partial(1)].into();
    engine.post_send(send_to(peer, b"partly written", 2), &mut transport, &mut sink).unwrap();
    let silent = SendRequest { signalled: false, ..send_to(peer, b"queued, silent", 3) };
    engine.post_send(silent, &mut transport, &mut sink).unwrap();
    engine.post_receive(receive(10, 4), &mut sink).unwrap();
    engine.post_receive(receive(10, 5), &mut sink).unwrap();
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.begin(LinkId(7), &untagged(9));
    arrivals.chunk(LinkId(7), b"abc");
    arrivals.link(LinkId(7), LinkEvent::Down(LinkError::System(Errno::ECONNRESET)));
    arrivals.link(LinkId(7), LinkEvent::Down(LinkError::System(Errno::ECONNRESET)));

    assert_eq!(sink.contexts(), [1, 2, 3, 4], "the receive that nothing matched stays posted");
    for ended in &sink.ended {
        let Err(failure) = ended else { panic!("all of them failed") };
        assert_eq!(failure.error, OperationError::Link(LinkError::System(Errno::ECONNRESET)));
    }
    assert_eq!(received(&sink.ended[3]), b"abc");
    assert_eq!((engine.outstanding_sends(), engine.outstanding_receives()), (0, 1));
    sink.take();

    engine.post_send(send_to(peer, b"again", 6), &mut transport, &mut sink).unwrap();
    assert_eq!(transport.connected, [address(2)], "the next send connects anew");
    assert_eq!(sink.contexts(), [6]);
}

#[test]
fn the_beginning_of_an_unexpected_message_vanishes_with_its_link() {
    let (mut engine, _, _, mut sink) = engine_with_peer();
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.frame(LinkId(7), &untagged(5), b"whole");
    arrivals.begin(LinkId(7), &untagged(5));
    arrivals.chunk(LinkId(7), b"pa");
    arrivals.link(LinkId(7), LinkEvent::Down(LinkError::Closed));
    engine.post_receive(receive(9, 1), &mut sink).unwrap();
    engine.post_receive(receive(9, 2), &mut sink).unwrap();
    assert_eq!(sink.contexts(), [1]);
    assert_eq!(received(&sink.ended[0]), b"whole");
}

#[test]
fn another_instance_at_the_same_address_ends_the_former_one() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    let acked = SendRequest { level: Level::Transmit, ..send_to(peer, b"to the first", 1) };
    engine.post_send(acked, &mut transport, &mut sink).unwrap();
    engine.arrivals(&mut sink).link(LinkId(8), LinkEvent::Up { peer: address(2), instance: 2 });
    assert_eq!(sink.contexts(), [1]);
    engine.post_send(send_to(peer, b"second", 2), &mut transport, &mut sink).unwrap();
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.closed, [(LinkId(7), Close::Abort)]);
    assert_eq!(transport.sent.last().unwrap().0, LinkId(8));
}

#[test]
fn a_simultaneous_connect_keeps_both_links_and_each_side_its_own() {
    let mut engine = Engine::new(Config::default());
    let (mut transport, mut sink) = (Scripted::default(), Recorder::default());
    let peer = engine.peer(address(2));
    engine.post_send(send_to(peer, b"first", 1), &mut transport, &mut sink).unwrap();
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.link(LinkId(5), LinkEvent::Up { peer: address(2), instance: 1 });
    arrivals.link(LinkId(0), LinkEvent::Up { peer: address(2), instance: 1 });
    arrivals.frame(LinkId(5), &untagged(2), b"hi");
    engine.post_send(send_to(peer, b"second", 2), &mut transport, &mut sink).unwrap();
    assert!(transport.sent.iter().all(|(link, ..)| *link == LinkId(0)));
    engine.arrivals(&mut sink).link(LinkId(5), LinkEvent::Down(LinkError::Closed));
    engine.post_send(send_to(peer, b"third", 3), &mut transport, &mut sink).unwrap();
    assert_eq!(sink.contexts(), [1, 2, 3]);
    assert_eq!(transport.connected, [address(2)]);
}

#[test]
fn what_the_sink_has_no_room_for_is_held_in_order_and_counts_as_outstanding() {
    let (mut engine, peer, mut transport, _) = engine_with_peer();
    let mut engine_sink = Recorder { room: 1, ..Recorder::default() };
    engine.config.rx_depth_ops = 3;
    for context in 1..=3 {
        engine.post_receive(receive(4, context), &mut engine_sink).unwrap();
    }
    for _ in 0..3 {
        engine.arrivals(&mut engine_sink).frame(LinkId(7), &untagged(1), b"m");
    }
    assert_eq!(engine_sink.contexts(), [1]);
    assert_eq!(engine.outstanding_receives(), 2);
    engine.post_receive(receive(4, 4), &mut engine_sink).unwrap();
    let full = engine.post_receive(receive(4, 5), &mut engine_sink);
    assert_eq!(full, Err(Again::QueueFull.into()));
    engine.post_send(send_to(peer, b"reserved", 9), &mut transport, &mut engine_sink).unwrap();
    assert_eq!(engine_sink.contexts(), [1, 9], "a reserved place is always there");
    engine_sink.take();
    engine.deliver_held(&mut engine_sink);
    assert_eq!(engine_sink.contexts(), [2]);
    engine_sink.room = 10;
    engine.arrivals(&mut engine_sink).frame(LinkId(7), &untagged(1), b"m");
    assert_eq!(engine_sink.contexts(), [2], "a later completion does not overtake a held one");
    engine.deliver_held(&mut engine_sink);
    assert_eq!(engine_sink.contexts(), [2, 3, 4]);
}

#[test]
fn depths_and_the_message_limit_are_kept() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    engine.config = Config { tx_depth_ops: 1, rx_depth_ops: 1, message_max_bytes: 4 };
    let too_long = engine.post_send(send_to(peer, b"12345", 0), &mut transport, &mut sink);
    assert_eq!(too_long, Err(Misuse::TooLong { len_bytes: 5, max_bytes: 4 }.into()));
    transport.answers = [Sent::Full].into();
    engine.post_send(send_to(peer, b"1", 1), &mut transport, &mut sink).unwrap();
    let full = engine.post_send(send_to(peer, b"2", 2), &mut transport, &mut sink);
    assert_eq!(full, Err(Again::QueueFull.into()));
    engine.transmit(&mut transport, &mut sink);
    engine.post_send(send_to(peer, b"3", 3), &mut transport, &mut sink).unwrap();
    assert_eq!(sink.contexts(), [1, 3]);
}

#[test]
fn cancel_takes_back_what_has_not_begun_and_nothing_else() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    transport.answers = [Sent::Partial(1)].into();
    engine.post_send(send_to(peer, b"begun before", 1), &mut transport, &mut sink).unwrap();
    engine.post_send(send_to(peer, b"queued", 2), &mut transport, &mut sink).unwrap();
    engine.post_receive(receive(4, 3), &mut sink).unwrap();
    engine.post_receive(ReceiveRequest { tagged: true, ..receive(4, 4) }, &mut sink).unwrap();
    engine.arrivals(&mut sink).begin(LinkId(7), &untagged(2));

    assert!(engine.cancel(1, &mut sink).is_err(), "a link has begun it");
    assert!(engine.cancel(3, &mut sink).is_err(), "a message has matched it");
    engine.cancel(2, &mut sink).unwrap();
    engine.cancel(4, &mut sink).unwrap();
    assert!(engine.cancel(4, &mut sink).is_err());
    assert_eq!(sink.contexts(), [2, 4]);
    for ended in sink.take() {
        assert_eq!(ended.unwrap_err().error, OperationError::Cancelled);
    }
    engine.arrivals(&mut sink).chunk(LinkId(7), b"ab");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sink.contexts(), [3, 1]);
}

#[test]
fn a_silent_receive_reports_nothing_but_its_failure() {
    let (mut engine, _, _, mut sink) = engine_with_peer();
    let silent = |context| ReceiveRequest { signalled: false, ..receive(2, context) };
    engine.post_receive(silent(1), &mut sink).unwrap();
    engine.post_receive(silent(2), &mut sink).unwrap();
    engine.arrivals(&mut sink).frame(LinkId(7), &untagged(2), b"ok");
    assert!(sink.ended.is_empty());
    engine.arrivals(&mut sink).frame(LinkId(7), &untagged(3), b"not");
    assert_eq!(sink.contexts(), [2]);
    assert!(sink.ended[0].is_err());
}

#[test]
fn frames_of_links_that_are_not_up_are_ignored() {
    let mut engine = Engine::new(Config::default());
    let mut sink = Recorder::default();
    engine.post_receive(receive(4, 1), &mut sink).unwrap();
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.frame(LinkId(3), &untagged(1), b"x");
    arrivals.begin(LinkId(3), &untagged(9));
    arrivals.chunk(LinkId(3), b"x");
    arrivals.placed(LinkId(3), 1);
    assert!(arrivals.space(LinkId(3)).is_empty());
    arrivals.link(LinkId(3), LinkEvent::Down(LinkError::Closed));
    assert!(sink.ended.is_empty());
}

#[test]
fn a_link_to_a_former_instance_that_comes_up_late_does_not_end_the_present_one() {
    let mut engine = Engine::new(Config::default());
    let (mut transport, mut sink) = (Scripted::default(), Recorder::default());
    let peer = engine.peer(address(2));
    engine.post_send(send_to(peer, b"to the former", 1), &mut transport, &mut sink).unwrap();
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.link(LinkId(7), LinkEvent::Up { peer: address(2), instance: 2 });
    arrivals.link(LinkId(0), LinkEvent::Up { peer: address(2), instance: 1 });
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.closed, [(LinkId(0), Close::Abort)]);
    engine.post_send(send_to(peer, b"to the present", 2), &mut transport, &mut sink).unwrap();
    assert_eq!(transport.sent.last().unwrap().0, LinkId(7));
}

#[test]
fn a_link_of_the_peer_that_is_up_is_used_before_one_that_is_still_being_made() {
    let mut engine = Engine::new(Config::default());
    let (mut transport, mut sink) = (Scripted::default(), Recorder::default());
    let peer = engine.peer(address(2));
    transport.answers = [Sent::Full, Sent::Full].into();
    engine.post_send(send_to(peer, b"waits", 1), &mut transport, &mut sink).unwrap();
    engine.transmit(&mut transport, &mut sink);
    assert!(transport.sent.is_empty());
    engine.arrivals(&mut sink).link(LinkId(7), LinkEvent::Up { peer: address(2), instance: 1 });
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.sent[0].0, LinkId(7));
    let refused = LinkEvent::Down(LinkError::System(Errno::ECONNREFUSED));
    engine.arrivals(&mut sink).link(LinkId(0), refused);
    assert!(sink.ended.iter().all(Result::is_ok));
    assert_eq!(sink.contexts(), [1]);
}

#[test]
fn a_message_that_is_still_being_written_cannot_be_acknowledged() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    transport.answers = [Sent::Partial(2)].into();
    let request = SendRequest { level: Level::Delivery, ..send_to(peer, b"half of it", 1) };
    engine.post_send(request, &mut transport, &mut sink).unwrap();
    engine.arrivals(&mut sink).frame(LinkId(7), &Header::Ack { received: 1 }, b"");
    assert_eq!(sink.ended[0].as_ref().unwrap_err().error.errno(), Errno::EPROTO);
}

#[test]
fn an_injected_send_hands_back_what_was_ours_and_forgets_what_was_not() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    let injected =
        |source| SendRequest { source, inject: true, level: Level::Transmit, ..send_to(peer, b"", 1) };
    let pieces = vec![Bytes::from_static(b"in "), Bytes::from_static(b"pieces")];
    for answer in [Sent::Whole, Sent::Full] {
        transport.answers = [answer].into();
        let owned = Source::owned_vector(pieces.clone()).unwrap();
        engine.post_send(injected(owned), &mut transport, &mut sink).unwrap();
        let raw = [Segment { address: b"raw".as_ptr(), len_bytes: 3 }];
        #[expect(unsafe_code, reason = "the raw tier is what injection is about")]
        // SAFETY: the bytes are static.
        let raw = unsafe { Source::raw(&raw) }.unwrap();
        engine.post_send(injected(raw), &mut transport, &mut sink).unwrap();
        engine.transmit(&mut transport, &mut sink);
    }
    engine.arrivals(&mut sink).frame(LinkId(7), &Header::Ack { received: 4 }, b"");
    let buffers: Vec<Buffer> = sink.take().into_iter().map(|ended| ended.unwrap().buffer).collect();
    let whole = Buffer::SentVector(pieces);
    assert_eq!(buffers, [whole.clone(), Buffer::None, whole, Buffer::None]);
    let payloads: Vec<&[u8]> = transport.sent.iter().map(|(_, _, payload)| &payload[..]).collect();
    assert_eq!(payloads, [&b"in pieces"[..], b"raw", b"in pieces", b"raw"]);
}

#[test]
fn links_to_one_peer_that_break_do_so_together_but_close_one_by_one() {
    let broken = LinkError::System(Errno::ECONNRESET);
    for (error, others_closed) in [(broken, &[(LinkId(7), Close::Abort)][..]), (LinkError::Closed, &[])] {
        let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
        let acked = SendRequest { level: Level::Transmit, ..send_to(peer, b"on the first", 1) };
        engine.post_send(acked, &mut transport, &mut sink).unwrap();
        let mut arrivals = engine.arrivals(&mut sink);
        arrivals.link(LinkId(8), LinkEvent::Up { peer: address(2), instance: 1 });
        arrivals.link(LinkId(8), LinkEvent::Down(error));
        engine.transmit(&mut transport, &mut sink);
        assert_eq!(transport.closed, others_closed);
        assert_eq!(sink.ended.len(), others_closed.len());
    }
}
