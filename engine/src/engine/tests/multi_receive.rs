//! Tests of multi-receive buffers.

use super::*;
use crate::error::{Error, OperationError};
use crate::limits::MULTI_RECV_ALIGN_BYTES;
use crate::operation::{PeekAction, PeekRequest};

mod random;

const LINK: LinkId = LinkId(7);
const RELEASED: CompletionFlags = CompletionFlags::MULTI_RECV;

/// The context of most buffers in these tests.
const BUFFER: u64 = 100;

/// Posts a buffer of this length. The engine releases the buffer when less than `min_free_bytes`
/// are free.
fn post_buffer(engine: &mut Engine, sink: &mut Recorder, len_bytes: usize, min_free_bytes: usize) {
    engine.post_multi_receive(receive_request(len_bytes, BUFFER), min_free_bytes, None, sink).unwrap();
}

fn deliver_message(engine: &mut Engine, sink: &mut Recorder, message: &[u8]) {
    engine.arrivals(sink).frame(LINK, &untagged_header(message.len() as u64), message);
}

fn offer_header(op: u64, len_bytes: u64, remote: &[u8]) -> Header {
    let message = Message::of_len(len_bytes);
    Header::Request { message, op, remote_bytes: remote.len() as u8 }
}

/// Returns the context of a completion, its flags except those of every receive, and its memory.
fn describe_ended(ended: &Result<EndedOperation, FailedOperation>) -> (u64, CompletionFlags, &[u8]) {
    let completion = match ended {
        Ok(completion) => completion,
        Err(failure) => &failure.completion,
    };
    let bytes: &[u8] = match &completion.buffer {
        Buffer::Received(bytes) | Buffer::Unused(bytes) => bytes,
        Buffer::ReceivedLast(last) => &last.message,
        other => panic!("not of a buffer: {other:?}"),
    };
    (completion.context, completion.flags - (CompletionFlags::RECV | CompletionFlags::MSG), bytes)
}

fn all_ended_fields(sink: &Recorder) -> Vec<(u64, CompletionFlags, &[u8])> {
    sink.ended.iter().map(describe_ended).collect()
}

fn ended_error(ended: &Result<EndedOperation, FailedOperation>) -> &OperationError {
    &ended.as_ref().expect_err("it failed").error
}

fn unused_len(ended: &Result<EndedOperation, FailedOperation>) -> usize {
    let (Ok(EndedOperation { buffer, .. })
    | Err(FailedOperation { completion: EndedOperation { buffer, .. }, .. })) = ended;
    match buffer {
        Buffer::Unused(unused) => unused.len(),
        Buffer::ReceivedLast(last) => last.unused.len(),
        other => panic!("not a release: {other:?}"),
    }
}

fn no_flags() -> CompletionFlags {
    CompletionFlags::empty()
}

#[test]
fn buffer_packs_messages_until_little_room_is_left() {
    let (mut engine, peer, _, mut sink) = engine_with_peer();
    post_buffer(&mut engine, &mut sink, 32, 8);
    for message in [&b"first"[..], b"", b"and second", b"3"] {
        deliver_message(&mut engine, &mut sink, message);
    }
    let expected =
        [(no_flags(), &b"first"[..]), (no_flags(), b""), (no_flags(), b"and second"), (RELEASED, b"3")];
    assert_eq!(all_ended_fields(&sink), expected.map(|(flags, bytes)| (BUFFER, flags, bytes)));
    let first = sink.ended[0].as_ref().unwrap();
    assert_eq!((first.len_bytes, first.source), (5, Some(peer)));
    assert_eq!(unused_len(&sink.ended[3]), 7);
    for ended in &sink.ended[1..] {
        assert_eq!(describe_ended(ended).2.as_ptr().addr() % MULTI_RECV_ALIGN_BYTES, 0);
    }
    assert_eq!(engine.outstanding_receives(), 0);
    deliver_message(&mut engine, &mut sink, b"unmatched!");
    assert_eq!((sink.ended.len(), engine.receive_side.unexpected_len()), (4, 1));
}

#[test]
fn message_that_does_not_fit_goes_to_the_next_receive() {
    let (mut engine, _, _, mut sink) = engine_with_peer();
    post_buffer(&mut engine, &mut sink, 16, 1);
    engine.post_receive(receive_request(9, 1), &mut sink).unwrap();
    deliver_message(&mut engine, &mut sink, b"12345678");
    deliver_message(&mut engine, &mut sink, b"123456789");
    let expected: [(u64, CompletionFlags, &[u8]); 3] =
        [(BUFFER, no_flags(), b"12345678"), (BUFFER, RELEASED, &[0; 8]), (1, no_flags(), b"123456789")];
    assert_eq!(all_ended_fields(&sink), expected);
    let release = sink.ended[1].as_ref().unwrap();
    assert_eq!((release.flags, release.len_bytes, release.source), (RELEASED, 0, None));

    sink.take_ended();
    post_buffer(&mut engine, &mut sink, 16, 1);
    deliver_message(&mut engine, &mut sink, b"12345678");
    deliver_message(&mut engine, &mut sink, b"123456789");
    assert_eq!((sink.take_ended().len(), engine.receive_side.unexpected_len()), (2, 1), "it waits");
    engine.post_receive(receive_request(9, 2), &mut sink).unwrap();
    assert_eq!(describe_ended(&sink.ended[0]), (2, no_flags(), &b"123456789"[..]));
}

#[test]
fn message_longer_than_an_empty_buffer_is_truncated() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    transport.memory = b"0123456789".to_vec();
    for is_pulled in [false, true] {
        // With a minimum of 0, the buffer could still take empty messages.
        post_buffer(&mut engine, &mut sink, 4, 0);
        if is_pulled {
            engine.arrivals(&mut sink).frame(LINK, &offer_header(1, 10, REMOTE), REMOTE);
            engine.transmit(&mut transport, &mut sink);
        } else {
            deliver_message(&mut engine, &mut sink, b"0123456789");
        }
        assert_eq!(all_ended_fields(&sink), [(BUFFER, no_flags(), &b"0123"[..]), (BUFFER, RELEASED, b"")]);
        assert_eq!(*ended_error(&sink.ended[0]), OperationError::Truncated { overflow_bytes: 6 });
        assert!(sink.take_ended()[1].is_ok());
    }
}

#[test]
fn message_begins_unaligned_only_if_it_would_not_fit_aligned() {
    let (mut engine, _, _, mut sink) = engine_with_peer();
    let mut buffer = BytesMut::zeroed(40);
    let odd = buffer.as_ptr().addr() % MULTI_RECV_ALIGN_BYTES;
    let buffer = buffer.split_off((9 - odd) % MULTI_RECV_ALIGN_BYTES);
    let (start, len) = (buffer.as_ptr().addr(), buffer.len());
    assert_eq!(start % MULTI_RECV_ALIGN_BYTES, 1);
    let request = ReceiveRequest { destination: Destination::owned(buffer), ..receive_request(0, BUFFER) };
    engine.post_multi_receive(request, 0, None, &mut sink).unwrap();
    let rest = vec![b'r'; len - 7 - 5];
    deliver_message(&mut engine, &mut sink, b"where");
    deliver_message(&mut engine, &mut sink, &rest);
    let places: Vec<usize> =
        all_ended_fields(&sink).iter().map(|told| told.2.as_ptr().addr() - start).collect();
    assert_eq!(places, [7, 12]);
}

#[test]
fn unexpected_messages_go_into_a_posted_buffer() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    transport.memory = b"pulled".to_vec();
    let other = LinkId(8);
    engine.arrivals(&mut sink).link_event(other, LinkEvent::up(address(3), 1));
    deliver_message(&mut engine, &mut sink, b"whole");
    engine.arrivals(&mut sink).frame(other, &untagged_header(5), b"other");
    engine.arrivals(&mut sink).frame(LINK, &offer_header(1, 6, b""), b"");
    engine.arrivals(&mut sink).frame_begun(LINK, &untagged_header(4));
    engine.arrivals(&mut sink).payload_arrived(LINK, b"in");
    receive_message_on_link(&mut engine, &mut sink, other);
    let directed = Criteria { source: Some(peer), ..Criteria::any() };
    let request = ReceiveRequest { criteria: directed, ..receive_request(28, BUFFER) };
    engine.post_multi_receive(request, 9, None, &mut sink).unwrap();
    // The buffer has taken three messages. Two of them are still arriving. 8 bytes are left.
    assert_eq!(all_ended_fields(&sink), [(BUFFER, no_flags(), &b"whole"[..])]);
    assert_eq!(engine.receive_side.unexpected_len(), 2);
    engine.arrivals(&mut sink).payload_arrived(LINK, b"to");
    engine.transmit(&mut transport, &mut sink);
    engine.arrivals(&mut sink).frame(LINK, &Header::Data { op: 1, len_bytes: 6 }, b"pulled");
    let expected = [(no_flags(), &b"whole"[..]), (no_flags(), b"into"), (RELEASED, b"pulled")];
    assert_eq!(all_ended_fields(&sink), expected.map(|(flags, bytes)| (BUFFER, flags, bytes)));
}

fn receive_message_on_link(engine: &mut Engine, sink: &mut Recorder, other: LinkId) {
    engine.arrivals(sink).frame(other, &untagged_header(1), b"x");
}

#[test]
fn release_waits_for_arriving_messages() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    transport.memory = b"pulled..".to_vec();
    let other = LinkId(8);
    engine.arrivals(&mut sink).link_event(other, LinkEvent::up(address(3), 1));
    post_buffer(&mut engine, &mut sink, 32, 1);
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.frame(LINK, &offer_header(1, 8, b""), b"");
    arrivals.frame(LINK, &offer_header(2, 8, REMOTE), REMOTE);
    arrivals.frame_begun(LINK, &untagged_header(8));
    arrivals.frame_begun(other, &untagged_header(8));
    for (link, bytes) in [(LINK, b"pie"), (other, b"PIE"), (LINK, b"ces")] {
        arrivals.payload_arrived(link, bytes);
    }
    let mut space = arrivals.payload_space(other);
    space[0].copy_from_slice(b"CES!!");
    drop(space);
    arrivals.bytes_placed(other, 5);
    assert_eq!(all_ended_fields(&sink), [(BUFFER, no_flags(), &b"PIECES!!"[..])]);
    assert!(engine.cancel(BUFFER, &mut sink).is_err(), "it takes no more in any case");
    engine.transmit(&mut transport, &mut sink);
    engine.arrivals(&mut sink).payload_arrived(LINK, b"..");
    assert_eq!(sink.ended.len(), 3);
    engine.arrivals(&mut sink).frame(LINK, &Header::Data { op: 1, len_bytes: 8 }, b"asked...");
    let bytes: [&[u8]; 4] = [b"PIECES!!", b"pulled..", b"pieces..", b"asked..."];
    let flags = [no_flags(), no_flags(), no_flags(), RELEASED];
    let expected: Vec<_> =
        flags.into_iter().zip(bytes).map(|(flags, bytes)| (BUFFER, flags, bytes)).collect();
    assert_eq!(all_ended_fields(&sink), expected);
}

#[test]
fn failed_message_leaves_buffer_usable() {
    let (mut engine, _, _, mut sink) = engine_with_peer();
    post_buffer(&mut engine, &mut sink, 16, 1);
    engine.arrivals(&mut sink).frame_begun(LINK, &untagged_header(8));
    engine.arrivals(&mut sink).payload_arrived(LINK, b"half");
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::Down(RESET));
    assert_eq!(all_ended_fields(&sink), [(BUFFER, no_flags(), &b"half"[..])]);
    assert_eq!(*ended_error(&sink.take_ended()[0]), OperationError::Link(RESET));

    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::up(address(2), 2));
    engine.arrivals(&mut sink).frame_begun(LINK, &untagged_header(8));
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::Down(RESET));
    assert_eq!(all_ended_fields(&sink), [(BUFFER, no_flags(), &b""[..]), (BUFFER, RELEASED, b"")]);
    assert!(sink.ended[0].is_err() && sink.ended[1].is_ok(), "the last message has failed");
}

#[test]
fn cancelled_buffer_is_released_after_arriving_messages() {
    let (mut engine, _, _, mut sink) = engine_with_peer();
    post_buffer(&mut engine, &mut sink, 16, 1);
    engine.cancel(BUFFER, &mut sink).unwrap();
    let released = CompletionFlags::RECV | CompletionFlags::MSG | RELEASED;
    let Err(FailedOperation { completion, error, .. }) = sink.take_ended().remove(0) else {
        panic!("cancelled")
    };
    assert_eq!((completion.flags, error), (released, OperationError::Cancelled));
    assert_eq!(completion.buffer, Buffer::Unused(BytesMut::zeroed(16)));

    post_buffer(&mut engine, &mut sink, 16, 1);
    engine.arrivals(&mut sink).frame_begun(LINK, &untagged_header(4));
    engine.cancel(BUFFER, &mut sink).unwrap();
    assert!(engine.cancel(BUFFER, &mut sink).is_err(), "once");
    assert!(sink.ended.is_empty());
    engine.arrivals(&mut sink).payload_arrived(LINK, b"last");
    deliver_message(&mut engine, &mut sink, b"later");
    assert_eq!(all_ended_fields(&sink), [(BUFFER, no_flags(), &b"last"[..]), (BUFFER, RELEASED, &[0; 12])]);
    assert_eq!(*ended_error(&sink.ended[1]), OperationError::Cancelled);
    assert_eq!((engine.outstanding_receives(), engine.receive_side.unexpected_len()), (0, 1));
}

#[test]
fn directed_multi_receive_buffer_ends_with_its_peer() {
    let (mut engine, peer, _, mut sink) = engine_with_peer();
    let criteria = Criteria { source: Some(peer), ..Criteria::any() };
    engine
        .post_multi_receive(ReceiveRequest { criteria, ..receive_request(16, BUFFER) }, 1, None, &mut sink)
        .unwrap();
    deliver_message(&mut engine, &mut sink, b"whole");
    engine.arrivals(&mut sink).frame_begun(LINK, &untagged_header(4));
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::Down(RESET));
    let bytes: [&[u8]; 3] = [b"whole", b"", &[0; 4]];
    let flags = [no_flags(), no_flags(), RELEASED];
    let expected: Vec<_> =
        flags.into_iter().zip(bytes).map(|(flags, bytes)| (BUFFER, flags, bytes)).collect();
    assert_eq!(all_ended_fields(&sink), expected);
    for ended in &sink.ended[1..] {
        assert_eq!(*ended_error(ended), OperationError::Link(RESET));
    }
}

#[test]
fn unsignalled_buffer_reports_only_release_and_errors() {
    let (mut engine, _, _, mut sink) = engine_with_peer();
    let request = || ReceiveRequest { signalled: Signalled::No, ..receive_request(16, BUFFER) };
    engine.post_multi_receive(request(), 8, None, &mut sink).unwrap();
    deliver_message(&mut engine, &mut sink, b"one");
    assert!(sink.ended.is_empty());
    deliver_message(&mut engine, &mut sink, b"two");
    assert_eq!(all_ended_fields(&sink), [(BUFFER, RELEASED, &[0; 5][..])]);
    assert_eq!(sink.take_ended()[0].as_ref().unwrap().flags, RELEASED);

    engine.post_multi_receive(request(), 8, None, &mut sink).unwrap();
    deliver_message(&mut engine, &mut sink, &[1; 20]);
    assert_eq!(all_ended_fields(&sink), [(BUFFER, no_flags(), &[1; 16][..]), (BUFFER, RELEASED, &[])]);
}

#[test]
fn multi_receive_that_is_tagged_or_vectored_or_too_deep_is_refused() {
    let (mut engine, _, _, mut sink) = engine_with_peer();
    let mut refusal = |request| engine.post_multi_receive(request, 1, None, &mut sink).unwrap_err().error;
    let tagged = ReceiveRequest { tagged: true, ..receive_request(1, 1) };
    assert_eq!(refusal(tagged), Error::Misuse(Misuse::Flags(1 << 16)));
    let pieces = Destination::owned_vector(vec![BytesMut::zeroed(1); 2]).unwrap();
    let refused = refusal(ReceiveRequest { destination: pieces, ..receive_request(1, 1) });
    assert_eq!(refused, Error::Misuse(Misuse::TooManySegments { count: 2, max: 1 }));
    engine.receive_side.set_depth_ops(1);
    post_buffer(&mut engine, &mut sink, 8, 1);
    let refused = engine.post_multi_receive(receive_request(8, 1), 1, None, &mut sink).unwrap_err();
    assert_eq!((refused.error, refused.returned.len_bytes()), (Again::QueueFull.into(), 8));
}

/// Returns an engine with a posted buffer of 64 bytes. The sink is full, so the engine holds back
/// a completion.
fn engine_with_held_completion() -> (Engine, PeerId, Scripted, Recorder) {
    let (mut engine, peer, transport, mut sink) = engine_with_peer();
    post_buffer(&mut engine, &mut sink, 64, 1);
    sink.room = 0;
    deliver_message(&mut engine, &mut sink, b"held");
    (engine, peer, transport, sink)
}

/// Makes room for this many completions, and delivers completions that were held.
fn make_room(engine: &mut Engine, sink: &mut Recorder, count: usize) {
    sink.room = sink.ended.len() + count;
    engine.deliver_held(sink);
}

#[test]
fn buffer_takes_no_message_while_completions_are_held() {
    let (mut engine, _, _, mut sink) = engine_with_held_completion();
    for _ in 0..1000 {
        deliver_message(&mut engine, &mut sink, b"");
        engine.deliver_held(&mut sink);
    }
    assert_eq!((engine.receive_side.held_len(), engine.receive_side.unexpected_len()), (1, 1000));
    make_room(&mut engine, &mut sink, 3);
    assert_eq!((sink.ended_contexts(), engine.receive_side.unexpected_len()), (vec![BUFFER; 3], 997));
    assert_eq!(engine.receive_side.held_len(), 1, "that is how it finds out that there is no room");
    make_room(&mut engine, &mut sink, 2000);
    assert_eq!((sink.ended.len(), engine.receive_side.unexpected_len()), (1001, 0));
    deliver_message(&mut engine, &mut sink, b"");
    assert_eq!(engine.outstanding_receives(), 1);
}

#[test]
fn later_messages_do_not_overtake_held_ones() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_held_completion();
    // The first message goes to the buffer. The second does not fit, so it goes to a later receive.
    // The third goes to the next buffer.
    deliver_message(&mut engine, &mut sink, b"first");
    deliver_message(&mut engine, &mut sink, &[2; 60]);
    deliver_message(&mut engine, &mut sink, b"third");
    engine.post_receive(receive_request(60, 1), &mut sink).unwrap();
    engine.post_multi_receive(receive_request(16, 2), 12, None, &mut sink).unwrap();
    // Until the queue has room, it is undecided which of these messages a peek may find.
    assert_eq!(engine.peek(untagged_claiming_peek(3), &mut sink), Err(Again::QueueFull.into()));
    engine.post_receive(receive_request(8, 4), &mut sink).unwrap();
    deliver_message(&mut engine, &mut sink, b"fourth");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(engine.receive_side.held_len(), 1);
    assert!(!engine.has_work_without_arrivals(), "a pass would move nothing on before there is room");
    let from_another = Criteria { source: Some(engine.intern_peer(address(9))), ..Criteria::any() };
    engine
        .post_receive(ReceiveRequest { criteria: from_another, ..receive_request(8, 5) }, &mut sink)
        .unwrap();

    for _ in 0..10 {
        make_room(&mut engine, &mut sink, 1);
    }
    engine.peek(untagged_claiming_peek(3), &mut sink).unwrap();
    make_room(&mut engine, &mut sink, 1);
    let bytes: [&[u8]; 6] = [b"held", b"first", &[0; 51], &[2; 60], b"third", b"fourth"];
    let flags = [no_flags(), no_flags(), RELEASED, no_flags(), RELEASED, no_flags()];
    let contexts = [BUFFER, BUFFER, BUFFER, 1, 2, 4];
    for (at, ended) in sink.ended[..6].iter().enumerate() {
        assert_eq!(describe_ended(ended), (contexts[at], flags[at], bytes[at]));
    }
    assert_eq!(*ended_error(&sink.ended[6]), OperationError::NoMessage);
    assert_eq!((sink.ended.len(), engine.outstanding_receives()), (7, 1));
    assert_eq!(sink.ended[0].as_ref().unwrap().source, Some(peer));
}

fn untagged_claiming_peek(context: u64) -> PeekRequest {
    PeekRequest { tagged: false, criteria: Criteria::any(), context, work: None, then: PeekAction::Claim }
}

#[test]
fn tagged_messages_do_not_wait_for_held_untagged_ones() {
    let (mut engine, _, mut transport, mut sink) = engine_with_held_completion();
    deliver_message(&mut engine, &mut sink, b"aside");
    let tagged = Header::Message(Message { tag: Some(5), awaits: AwaitedReply::Match, ..Message::of_len(3) });
    engine.post_receive(ReceiveRequest { tagged: true, ..receive_request(8, 1) }, &mut sink).unwrap();
    engine.arrivals(&mut sink).frame(LINK, &tagged, b"tag");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.sent.last().unwrap().1, Header::Matched { number: 3 });
    assert_eq!((engine.receive_side.held_len(), engine.receive_side.unexpected_len()), (2, 1));
}

#[test]
fn cancelled_stalled_buffer_leaves_held_messages_to_other_receives() {
    let (mut engine, _, _, mut sink) = engine_with_held_completion();
    deliver_message(&mut engine, &mut sink, b"aside");
    engine.post_receive(receive_request(8, 1), &mut sink).unwrap();
    engine.cancel(BUFFER, &mut sink).unwrap();
    deliver_message(&mut engine, &mut sink, b"later");
    assert_eq!(engine.receive_side.unexpected_len(), 2);
    make_room(&mut engine, &mut sink, 9);
    let bytes: [&[u8]; 3] = [b"held", &[0; 56], b"aside"];
    assert_eq!(all_ended_fields(&sink).iter().map(|told| told.2.len()).collect::<Vec<_>>(), [4, 60, 5]);
    assert_eq!(
        (describe_ended(&sink.ended[0]).2, describe_ended(&sink.ended[2])),
        (bytes[0], (1, no_flags(), bytes[2]))
    );
    assert_eq!(*ended_error(&sink.ended[1]), OperationError::Cancelled);
    assert_eq!(engine.receive_side.unexpected_len(), 1);
    // From here on, no message is kept aside.
    engine.post_receive(receive_request(8, 2), &mut sink).unwrap();
    assert_eq!(describe_ended(&sink.ended[3]), (2, no_flags(), &b"later"[..]));
}

#[test]
fn directed_buffer_takes_held_messages_before_failing_with_its_peer() {
    let (mut engine, peer, _, mut sink) = engine_with_peer();
    let criteria = Criteria { source: Some(peer), ..Criteria::any() };
    let directed = |context| ReceiveRequest { criteria, ..receive_request(32, context) };
    engine.post_multi_receive(directed(BUFFER), 1, None, &mut sink).unwrap();
    engine.post_receive(directed(1), &mut sink).unwrap();
    sink.room = 0;
    deliver_message(&mut engine, &mut sink, b"held");
    deliver_message(&mut engine, &mut sink, b"aside");
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::Down(RESET));
    engine.post_receive(directed(2), &mut sink).unwrap();
    make_room(&mut engine, &mut sink, 9);
    assert_eq!(sink.ended_contexts(), [BUFFER, BUFFER, BUFFER, 1]);
    assert_eq!(describe_ended(&sink.ended[1]).2, b"aside");
    assert_eq!(describe_ended(&sink.ended[2]).1, RELEASED);
    assert_eq!(*ended_error(&sink.ended[3]), OperationError::Link(RESET));
    assert_eq!(engine.outstanding_receives(), 1, "what was posted after the peer's end stays");
}

#[test]
fn buffer_acknowledges_match_once_message_is_placed() {
    let (mut engine, _, mut transport, mut sink) = engine_with_held_completion();
    let header =
        Header::Message(Message { data: Some(9), awaits: AwaitedReply::Match, ..Message::of_len(5) });
    engine.arrivals(&mut sink).frame(LINK, &header, b"aside");
    engine.transmit(&mut transport, &mut sink);
    assert!(transport.sent.is_empty());
    make_room(&mut engine, &mut sink, 2);
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.sent[0].1, Header::Matched { number: 2 });
    let completion = sink.ended[1].as_ref().unwrap();
    assert_eq!((completion.data, describe_ended(&sink.ended[1]).1), (9, CompletionFlags::REMOTE_CQ_DATA));
}

#[test]
fn owned_message_outlives_its_buffer() {
    let (mut engine, _, _, mut sink) = engine_with_peer();
    post_buffer(&mut engine, &mut sink, 32, 1);
    deliver_message(&mut engine, &mut sink, b"kept");
    deliver_message(&mut engine, &mut sink, b"dropped");
    drop(engine);
    let mut ended = sink.take_ended();
    drop(ended.remove(1));
    let Ok(EndedOperation { buffer: Buffer::Received(mut bytes), .. }) = ended.remove(0) else { panic!() };
    bytes.extend_from_slice(&[b'!'; 100]);
    assert!(bytes.starts_with(b"kept!"));
}
