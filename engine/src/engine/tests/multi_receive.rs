//! Tests of multi-receive buffers.

use super::*;

mod random;

const RELEASED: CompletionFlags = CompletionFlags::MULTI_RECV;

/// The context of most buffers in these tests.
const BUFFER: u64 = 100;

/// Posts a buffer of this length. The engine releases the buffer when less than `min_free_bytes`
/// are free.
fn post_buffer(node: &mut Node, len_bytes: usize, min_free_bytes: usize) {
    node.post_multi_receive(receive_request(len_bytes, BUFFER), min_free_bytes);
}

fn deliver_message(node: &mut Node, message: &[u8]) {
    node.frame(LINK, &untagged_header(message.len() as u64), message);
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

fn no_flags() -> CompletionFlags {
    CompletionFlags::empty()
}

#[test]
fn message_longer_than_an_empty_buffer_is_truncated() {
    let (mut node, _) = engine_with_peer();
    node.transport.memory = b"0123456789".to_vec();
    for is_pulled in [false, true] {
        // With a minimum of 0, the buffer could still take empty messages.
        post_buffer(&mut node, 4, 0);
        if is_pulled {
            node.pass_with_frame(LINK, &offer_header(1, 10, REMOTE), REMOTE);
        } else {
            deliver_message(&mut node, b"0123456789");
        }
        assert_eq!(
            all_ended_fields(&node.sink),
            [(BUFFER, no_flags(), &b"0123"[..]), (BUFFER, RELEASED, b"")]
        );
        assert_eq!(*ended_error(&node.sink.ended[0]), OperationError::Truncated { overflow_bytes: 6 });
        assert!(node.take_ended()[1].is_ok());
    }
}

#[test]
fn failed_message_leaves_buffer_usable() {
    let (mut node, _) = engine_with_peer();
    post_buffer(&mut node, 16, 1);
    node.frame_begun(LINK, &untagged_header(8));
    node.payload_arrived(LINK, b"half");
    node.link_down(LINK, RESET);
    assert_eq!(all_ended_fields(&node.sink), [(BUFFER, no_flags(), &b"half"[..])]);
    assert_eq!(*ended_error(&node.take_ended()[0]), OperationError::Link(RESET));

    node.link_up(LINK, 2, 2);
    node.frame_begun(LINK, &untagged_header(8));
    node.link_down(LINK, RESET);
    assert_eq!(all_ended_fields(&node.sink), [(BUFFER, no_flags(), &b""[..]), (BUFFER, RELEASED, b"")]);
    assert!(node.sink.ended[0].is_err() && node.sink.ended[1].is_ok(), "the last message has failed");
}

#[test]
fn cancelled_buffer_is_released_after_arriving_messages() {
    let (mut node, _) = engine_with_peer();
    post_buffer(&mut node, 16, 1);
    node.cancel(BUFFER).unwrap();
    let released = CompletionFlags::RECV | CompletionFlags::MSG | RELEASED;
    let Err(FailedOperation { completion, error, .. }) = node.take_ended().remove(0) else {
        panic!("cancelled")
    };
    assert_eq!((completion.flags, error), (released, OperationError::Cancelled));
    assert_eq!(completion.buffer, Buffer::Unused(BytesMut::zeroed(16)));

    post_buffer(&mut node, 16, 1);
    node.frame_begun(LINK, &untagged_header(4));
    node.cancel(BUFFER).unwrap();
    assert!(node.cancel(BUFFER).is_err(), "once");
    assert!(node.sink.ended.is_empty());
    node.payload_arrived(LINK, b"last");
    deliver_message(&mut node, b"later");
    assert_eq!(
        all_ended_fields(&node.sink),
        [(BUFFER, no_flags(), &b"last"[..]), (BUFFER, RELEASED, &[0; 12])]
    );
    assert_eq!(*ended_error(&node.sink.ended[1]), OperationError::Cancelled);
    assert_eq!((node.outstanding_receives(), node.unexpected_len()), (0, 1));
}

#[test]
fn directed_multi_receive_buffer_ends_with_its_peer() {
    let (mut node, peer) = engine_with_peer();
    let criteria = Criteria { source: Some(peer), ..Criteria::any() };
    node.post_multi_receive(ReceiveRequest { criteria, ..receive_request(16, BUFFER) }, 1);
    deliver_message(&mut node, b"whole");
    node.frame_begun(LINK, &untagged_header(4));
    node.link_down(LINK, RESET);
    let bytes: [&[u8]; 3] = [b"whole", b"", &[0; 4]];
    let flags = [no_flags(), no_flags(), RELEASED];
    let expected: Vec<_> =
        flags.into_iter().zip(bytes).map(|(flags, bytes)| (BUFFER, flags, bytes)).collect();
    assert_eq!(all_ended_fields(&node.sink), expected);
    for ended in &node.sink.ended[1..] {
        assert_eq!(*ended_error(ended), OperationError::Link(RESET));
    }
}

#[test]
fn unsignalled_buffer_reports_only_release_and_errors() {
    let (mut node, _) = engine_with_peer();
    let request = || ReceiveRequest { signalled: Signalled::No, ..receive_request(16, BUFFER) };
    node.post_multi_receive(request(), 8);
    deliver_message(&mut node, b"one");
    assert!(node.sink.ended.is_empty());
    deliver_message(&mut node, b"two");
    assert_eq!(all_ended_fields(&node.sink), [(BUFFER, RELEASED, &[0; 5][..])]);
    assert_eq!(node.take_ended()[0].as_ref().unwrap().flags, RELEASED);

    node.post_multi_receive(request(), 8);
    deliver_message(&mut node, &[1; 20]);
    assert_eq!(all_ended_fields(&node.sink), [(BUFFER, no_flags(), &[1; 16][..]), (BUFFER, RELEASED, &[])]);
}

#[test]
fn multi_receive_that_is_tagged_or_vectored_or_too_deep_is_refused() {
    let (mut node, _) = engine_with_peer();
    let mut refusal =
        |request| node.engine.post_multi_receive(request, 1, None, &mut node.sink).unwrap_err().error;
    let tagged = ReceiveRequest { tagged: true, ..receive_request(1, 1) };
    assert_eq!(refusal(tagged), Error::Misuse(Misuse::Flags(1 << 16)));
    let pieces = Destination::owned_vector(vec![BytesMut::zeroed(1); 2]).unwrap();
    let refused = refusal(ReceiveRequest { destination: pieces, ..receive_request(1, 1) });
    assert_eq!(refused, Error::Misuse(Misuse::TooManySegments { count: 2, max: 1 }));
    node.engine.receive_side.set_depth_ops(1);
    post_buffer(&mut node, 8, 1);
    let refused = node.engine.post_multi_receive(receive_request(8, 1), 1, None, &mut node.sink).unwrap_err();
    assert_eq!((refused.error, refused.returned.len_bytes()), (Again::QueueFull.into(), 8));
}

/// Returns an engine with a posted buffer of 64 bytes. The sink is full, so the engine holds back
/// a completion.
fn engine_with_held_completion() -> (Node, PeerId) {
    let (mut node, peer) = engine_with_peer();
    post_buffer(&mut node, 64, 1);
    node.sink.room = 0;
    deliver_message(&mut node, b"held");
    (node, peer)
}

/// Makes room for this many completions, and delivers completions that were held.
fn make_room(node: &mut Node, count: usize) {
    node.sink.room = node.sink.ended.len() + count;
    node.deliver_held();
}

#[test]
fn buffer_takes_no_message_while_completions_are_held() {
    let (mut node, _) = engine_with_held_completion();
    for _ in 0..1000 {
        deliver_message(&mut node, b"");
        node.deliver_held();
    }
    assert_eq!((node.engine.receive_side.held_len(), node.unexpected_len()), (1, 1000));
    make_room(&mut node, 3);
    assert_eq!((node.ended_contexts(), node.unexpected_len()), (vec![BUFFER; 3], 997));
    assert_eq!(node.engine.receive_side.held_len(), 1, "that is how it finds out that there is no room");
    make_room(&mut node, 2000);
    assert_eq!((node.sink.ended.len(), node.unexpected_len()), (1001, 0));
    deliver_message(&mut node, b"");
    assert_eq!(node.outstanding_receives(), 1);
}

#[test]
fn later_messages_do_not_overtake_held_ones() {
    let (mut node, peer) = engine_with_held_completion();
    // The first message goes to the buffer. The second does not fit, so it goes to a later receive.
    // The third goes to the next buffer.
    deliver_message(&mut node, b"first");
    deliver_message(&mut node, &[2; 60]);
    deliver_message(&mut node, b"third");
    node.post_receive(receive_request(60, 1));
    node.post_multi_receive(receive_request(16, 2), 12);
    // Until the queue has room, it is undecided which of these messages a peek may find.
    assert_eq!(node.engine.peek(untagged_claiming_peek(3), &mut node.sink), Err(Again::QueueFull.into()));
    node.post_receive(receive_request(8, 4));
    deliver_message(&mut node, b"fourth");
    node.transmit();
    assert_eq!(node.engine.receive_side.held_len(), 1);
    assert!(!node.has_work_without_arrivals(), "a pass would move nothing on before there is room");
    let from_another = Criteria { source: Some(node.engine.intern_peer(address(9))), ..Criteria::any() };
    node.post_receive(ReceiveRequest { criteria: from_another, ..receive_request(8, 5) });

    for _ in 0..10 {
        make_room(&mut node, 1);
    }
    node.engine.peek(untagged_claiming_peek(3), &mut node.sink).unwrap();
    make_room(&mut node, 1);
    let bytes: [&[u8]; 6] = [b"held", b"first", &[0; 51], &[2; 60], b"third", b"fourth"];
    let flags = [no_flags(), no_flags(), RELEASED, no_flags(), RELEASED, no_flags()];
    let contexts = [BUFFER, BUFFER, BUFFER, 1, 2, 4];
    for (at, ended) in node.sink.ended[..6].iter().enumerate() {
        assert_eq!(describe_ended(ended), (contexts[at], flags[at], bytes[at]));
    }
    assert_eq!(*ended_error(&node.sink.ended[6]), OperationError::NoMessage);
    assert_eq!((node.sink.ended.len(), node.outstanding_receives()), (7, 1));
    assert_eq!(node.sink.ended[0].as_ref().unwrap().source, Some(peer));
}

fn untagged_claiming_peek(context: u64) -> PeekRequest {
    PeekRequest { tagged: false, criteria: Criteria::any(), context, work: None, then: PeekAction::Claim }
}

#[test]
fn tagged_messages_do_not_wait_for_held_untagged_ones() {
    let (mut node, _) = engine_with_held_completion();
    deliver_message(&mut node, b"aside");
    let tagged = Header::Message(Message { tag: Some(5), awaits: AwaitedReply::Match, ..Message::of_len(3) });
    node.post_receive(ReceiveRequest { tagged: true, ..receive_request(8, 1) });
    node.pass_with_frame(LINK, &tagged, b"tag");
    assert_eq!(node.transport.sent.last().unwrap().1, Header::Matched { number: 3 });
    assert_eq!((node.engine.receive_side.held_len(), node.unexpected_len()), (2, 1));
}

#[test]
fn cancelled_stalled_buffer_leaves_held_messages_to_other_receives() {
    let (mut node, _) = engine_with_held_completion();
    deliver_message(&mut node, b"aside");
    node.post_receive(receive_request(8, 1));
    node.cancel(BUFFER).unwrap();
    deliver_message(&mut node, b"later");
    assert_eq!(node.unexpected_len(), 2);
    make_room(&mut node, 9);
    let bytes: [&[u8]; 3] = [b"held", &[0; 56], b"aside"];
    assert_eq!(all_ended_fields(&node.sink).iter().map(|told| told.2.len()).collect::<Vec<_>>(), [4, 60, 5]);
    assert_eq!(
        (describe_ended(&node.sink.ended[0]).2, describe_ended(&node.sink.ended[2])),
        (bytes[0], (1, no_flags(), bytes[2]))
    );
    assert_eq!(*ended_error(&node.sink.ended[1]), OperationError::Cancelled);
    assert_eq!(node.unexpected_len(), 1);
    // From here on, no message is kept aside.
    node.post_receive(receive_request(8, 2));
    assert_eq!(describe_ended(&node.sink.ended[3]), (2, no_flags(), &b"later"[..]));
}

#[test]
fn directed_buffer_takes_held_messages_before_failing_with_its_peer() {
    let (mut node, peer) = engine_with_peer();
    let criteria = Criteria { source: Some(peer), ..Criteria::any() };
    let directed = |context| ReceiveRequest { criteria, ..receive_request(32, context) };
    node.post_multi_receive(directed(BUFFER), 1);
    node.post_receive(directed(1));
    node.sink.room = 0;
    deliver_message(&mut node, b"held");
    deliver_message(&mut node, b"aside");
    node.link_down(LINK, RESET);
    node.post_receive(directed(2));
    make_room(&mut node, 9);
    assert_eq!(node.ended_contexts(), [BUFFER, BUFFER, BUFFER, 1]);
    assert_eq!(describe_ended(&node.sink.ended[1]).2, b"aside");
    assert_eq!(describe_ended(&node.sink.ended[2]).1, RELEASED);
    assert_eq!(*ended_error(&node.sink.ended[3]), OperationError::Link(RESET));
    assert_eq!(node.outstanding_receives(), 1, "what was posted after the peer's end stays");
}

#[test]
fn buffer_acknowledges_match_once_message_is_placed() {
    let (mut node, _) = engine_with_held_completion();
    let header =
        Header::Message(Message { data: Some(9), awaits: AwaitedReply::Match, ..Message::of_len(5) });
    node.pass_with_frame(LINK, &header, b"aside");
    assert!(node.transport.sent.is_empty());
    make_room(&mut node, 2);
    node.transmit();
    assert_eq!(node.transport.sent[0].1, Header::Matched { number: 2 });
    let completion = node.sink.ended[1].as_ref().unwrap();
    assert_eq!(
        (completion.data, describe_ended(&node.sink.ended[1]).1),
        (9, CompletionFlags::REMOTE_CQ_DATA)
    );
}

#[test]
fn owned_message_outlives_its_buffer() {
    let (mut node, _) = engine_with_peer();
    post_buffer(&mut node, 32, 1);
    deliver_message(&mut node, b"kept");
    deliver_message(&mut node, b"dropped");
    drop(node.engine);
    let mut ended = node.sink.take_ended();
    drop(ended.remove(1));
    let Ok(EndedOperation { buffer: Buffer::Received(mut bytes), .. }) = ended.remove(0) else { panic!() };
    bytes.extend_from_slice(&[b'!'; 100]);
    assert!(bytes.starts_with(b"kept!"));
}
