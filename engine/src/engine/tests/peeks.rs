//! Tests of peeks that look at, claim and discard unexpected messages.

use super::*;

fn peek_request(context: u64, then: PeekAction) -> PeekRequest {
    PeekRequest {
        tagged: true,
        criteria: Criteria { source: None, tag: 5, ignore: 0 },
        context,
        work: None,
        then,
    }
}

fn tagged_header(tag: u64, len_bytes: u64, awaits: AwaitedReply) -> Header {
    Header::Message(Message { tag: Some(tag), data: Some(77), awaits, ..Message::of_len(len_bytes) })
}

fn tagged_receive_request(tag: u64, context: u64) -> ReceiveRequest {
    ReceiveRequest {
        tagged: true,
        criteria: Criteria { source: None, tag, ignore: 0 },
        ..receive_request(100, context)
    }
}

fn take_errors(sink: &mut Recorder) -> Vec<(u64, OperationError)> {
    let failure = |ended: Result<EndedOperation, FailedOperation>| {
        ended.err().map(|failure| (failure.completion.context, failure.error))
    };
    sink.take_ended().into_iter().filter_map(failure).collect()
}

#[test]
fn peek_reports_message_and_leaves_it() {
    let (mut node, peer) = engine_with_peer();
    node.frame(LINK, &tagged_header(4, 1, AwaitedReply::Nothing), b"x");
    node.frame_begun(LINK, &tagged_header(5, 50, AwaitedReply::Nothing));
    for context in [1, 2] {
        node.engine.peek(peek_request(context, PeekAction::Keep), &mut node.sink).unwrap();
        let Some(Ok(seen)) = node.take_ended().pop() else { panic!("not found") };
        let told = (seen.context, seen.len_bytes, seen.tag, seen.data, seen.source);
        assert_eq!(told, (context, 50, 5, 77, Some(peer)), "it need not be there in whole");
        let flags = CompletionFlags::RECV | CompletionFlags::TAGGED | CompletionFlags::REMOTE_CQ_DATA;
        assert_eq!((seen.flags, seen.buffer), (flags, Buffer::None));
    }
    assert_eq!(node.unexpected_len(), 2);
}

#[test]
fn peek_without_a_message_fails_at_once() {
    let (mut node, _) = engine_with_peer();
    for (context, then) in [(1, PeekAction::Keep), (2, PeekAction::Claim), (3, PeekAction::Discard)] {
        node.engine.peek(peek_request(context, then), &mut node.sink).unwrap();
        assert_eq!(take_errors(&mut node.sink), [(context, OperationError::NoMessage)]);
        assert!(node.cancel(context).is_err(), "it has ended");
    }
    assert_eq!(node.outstanding_receives(), 0);
    assert!(!node.has_work_without_arrivals());

    node.pass_with_frame(LINK, &tagged_header(5, 1, AwaitedReply::Nothing), b"x");
    assert!(node.sink.ended.is_empty(), "no peek waits for it");
    node.engine.peek(peek_request(4, PeekAction::Keep), &mut node.sink).unwrap();
    assert_eq!(node.ended_contexts(), [4]);
}

#[test]
fn peek_misses_what_came_behind_the_end_of_a_receive_until_the_next_pass() {
    let quiet = AwaitedReply::Nothing;
    for then in [PeekAction::Keep, PeekAction::Claim, PeekAction::Discard] {
        let (mut node, _) = engine_with_peer();
        node.post_receive(tagged_receive_request(4, 1));
        let mut pass = node.arrivals();
        pass.frame(LINK, &tagged_header(4, 1, quiet), b"x");
        pass.frame(LINK, &tagged_header(5, 1, quiet), b"x");
        assert_eq!(node.ended_contexts(), [1]);
        node.engine.peek(peek_request(2, then), &mut node.sink).unwrap();
        assert_eq!(take_errors(&mut node.sink), [(2, OperationError::NoMessage)], "{then:?}");
        // The next pass, which receives nothing.
        node.arrivals();
        node.engine.peek(peek_request(3, then), &mut node.sink).unwrap();
        assert_eq!(node.ended_contexts(), [3], "{then:?}");
    }
}

/// Returns an engine whose latest pass has received a message with tag 5 behind the end of a receive, and
/// then what `later` passes to it. A receive for tag 4 was still posted.
fn engine_with_hidden_message(later: &dyn Fn(&mut Arrivals<'_, Recorder>)) -> Node {
    let (mut node, _) = engine_with_peer();
    for context in [1, 2] {
        node.post_receive(tagged_receive_request(4, context));
    }
    let mut pass = node.arrivals();
    for tag in [4, 5] {
        pass.frame(LINK, &tagged_header(tag, 1, AwaitedReply::Nothing), b"x");
    }
    later(&mut pass);
    node
}

/// Whether a peek finds a message with tag 5.
fn finds(node: &mut Node) -> bool {
    node.take_ended();
    node.engine.peek(peek_request(3, PeekAction::Keep), &mut node.sink).unwrap();
    take_errors(&mut node.sink).is_empty()
}

#[test]
fn peek_finds_what_has_arrived_before_something_that_was_seen() {
    let quiet = |tag| tagged_header(tag, 1, AwaitedReply::Nothing);
    let later_in_the_pass = |act: &dyn Fn(&mut Arrivals<'_, Recorder>)| {
        let mut node = engine_with_hidden_message(act);
        finds(&mut node)
    };
    assert!(!later_in_the_pass(&|pass| pass.frame(LINK, &quiet(6), b"x")));
    assert!(later_in_the_pass(&|pass| pass.frame(LINK, &quiet(4), b"x")), "the end of a receive");
    let acknowledged = tagged_header(6, 1, AwaitedReply::Arrival);
    assert!(later_in_the_pass(&|pass| pass.frame(LINK, &acknowledged, b"x")), "its sender learns of it");
    assert!(later_in_the_pass(&|pass| pass.frame(LINK, &Header::Fence { matched: false }, b"")), "a fence");
    assert!(later_in_the_pass(&|pass| pass.link_event(LINK, LinkEvent::Down(RESET))), "the end of the link");
}

#[test]
fn peek_finds_what_is_hidden_after_a_later_message_was_received() {
    let later = tagged_header(6, 1, AwaitedReply::Nothing);
    let mut node = engine_with_hidden_message(&|pass| pass.frame(LINK, &later, b"x"));
    node.post_receive(tagged_receive_request(6, 3));
    assert!(finds(&mut node));
}

#[test]
fn peek_that_is_not_repeated_finds_all_messages() {
    let mut node = engine_with_hidden_message(&|_| ());
    node.engine.show_all_to_peeks();
    assert!(finds(&mut node));
}

#[test]
fn peek_that_misses_a_message_owes_one_more_look() {
    let mut node = engine_with_hidden_message(&|_| ());
    assert!(!node.engine.take_owed_look(), "there was no peek");
    assert!(!finds(&mut node));
    assert!(node.engine.take_owed_look());
    assert!(!node.engine.take_owed_look(), "once for a peek");
    node.arrivals();
    assert!(finds(&mut node));
    assert!(!node.engine.take_owed_look());
}

#[test]
fn message_that_arrives_after_a_peek_in_vain_owes_one_more_look() {
    let (mut node, _) = engine_with_peer();
    assert!(!finds(&mut node));
    assert!(!node.engine.take_owed_look(), "nothing has arrived");
    node.frame(LINK, &tagged_header(5, 1, AwaitedReply::Nothing), b"x");
    assert!(node.engine.take_owed_look());
    node.frame(LINK, &tagged_header(5, 1, AwaitedReply::Nothing), b"x");
    assert!(!node.engine.take_owed_look(), "once for a peek");
}

#[test]
fn claimed_message_is_received_only_with_its_claim_context() {
    let (mut node, _) = engine_with_peer();
    node.frame(LINK, &tagged_header(5, 5, AwaitedReply::Match), b"first");
    node.frame(LINK, &tagged_header(5, 6, AwaitedReply::Match), b"second");
    node.engine.peek(peek_request(1, PeekAction::Claim), &mut node.sink).unwrap();
    assert!(matches!(
        node.engine.peek(peek_request(1, PeekAction::Claim), &mut node.sink),
        Err(Error::Misuse(Misuse::Invalid(_)))
    ));
    node.post_receive(tagged_receive_request(5, 2));
    assert_eq!(received_bytes(&node.sink.ended[1]), b"second");
    node.transmit();
    assert_eq!(node.sent_since(0), [Header::Matched { number: 2 }]);

    let untagged = ReceiveRequest { tagged: false, ..tagged_receive_request(0, 1) };
    let refused = node.engine.receive_claimed(untagged, 1, &mut node.sink).unwrap_err();
    assert!(matches!(refused.error, Error::Misuse(Misuse::NotFound(_))));
    node.engine.receive_claimed(tagged_receive_request(0, 1), 1, &mut node.sink).unwrap();
    assert_eq!(received_bytes(&node.sink.ended[2]), b"first");
    node.transmit();
    assert_eq!(node.sent_since(1), [Header::Matched { number: 1 }]);
    assert!(node.engine.receive_claimed(tagged_receive_request(0, 1), 1, &mut node.sink).is_err(), "once");
}

#[test]
fn discard_drops_message_in_any_state() {
    let (mut node, _) = engine_with_peer();
    node.frame(LINK, &tagged_header(5, 5, AwaitedReply::Match), b"whole");
    let message = Message { tag: Some(5), ..Message::of_len(10) };
    let request = Header::Request { message, op: 1, remote_bytes: REMOTE.len() as u8 };
    node.frame(LINK, &request, REMOTE);
    node.frame_begun(LINK, &tagged_header(5, 4, AwaitedReply::Match));
    node.payload_arrived(LINK, b"ha");
    for context in 1..=3 {
        node.engine.peek(peek_request(context, PeekAction::Discard), &mut node.sink).unwrap();
    }
    assert_eq!((node.ended_contexts(), node.unexpected_len()), (vec![1, 2, 3], 0));
    node.transmit();
    let told = [Header::Matched { number: 1 }, Header::Done { op: 1, fault: false }];
    assert_eq!(node.sent_since(0), told);
    assert!(node.transport.pulled.is_empty());
    node.payload_arrived(LINK, b"lf");
    node.transmit();
    assert_eq!(node.sent_since(2), [Header::Matched { number: 2 }]);
    assert_eq!(node.sink.ended.len(), 3);
}

#[test]
fn claimed_message_can_be_discarded() {
    let (mut node, _) = engine_with_peer();
    node.frame(LINK, &tagged_header(5, 5, AwaitedReply::Match), b"whole");
    node.engine.peek(peek_request(1, PeekAction::Claim), &mut node.sink).unwrap();
    node.engine.discard_claimed(true, 1, None, &mut node.sink).unwrap();
    node.transmit();
    assert_eq!(node.sent_since(0), [Header::Matched { number: 1 }]);
    assert_eq!(node.ended_contexts(), [1, 1]);
    assert!(node.engine.discard_claimed(true, 1, None, &mut node.sink).is_err());
    assert!(!node.engine.receive_side.has_claimed());
}

#[test]
fn incomplete_claimed_message_fails_when_received() {
    let (mut node, _) = engine_with_peer();
    let mut arrivals = node.arrivals();
    arrivals.frame(LINK, &tagged_header(5, 5, AwaitedReply::Nothing), b"whole");
    arrivals.frame_begun(LINK, &tagged_header(5, 4, AwaitedReply::Nothing));
    for context in [1, 2] {
        node.engine.peek(peek_request(context, PeekAction::Claim), &mut node.sink).unwrap();
    }
    node.link_down(LINK, RESET);
    node.take_ended();
    node.engine.receive_claimed(tagged_receive_request(0, 1), 1, &mut node.sink).unwrap();
    assert_eq!(received_bytes(&node.sink.ended[0]), b"whole", "its sender's death does not matter");
    node.engine.receive_claimed(tagged_receive_request(0, 2), 2, &mut node.sink).unwrap();
    assert_eq!(take_errors(&mut node.sink), [(2, OperationError::Link(RESET))]);
}

#[test]
fn peeks_are_bounded_by_the_depth() {
    let (mut node, _) = engine_with_peer();
    node.engine.receive_side.set_depth_ops(1);
    node.sink.room = 0;
    node.engine.peek(peek_request(1, PeekAction::Keep), &mut node.sink).unwrap();
    assert_eq!(node.outstanding_receives(), 1, "its end waits for room in the queue");
    assert_eq!(
        node.engine.peek(peek_request(2, PeekAction::Keep), &mut node.sink),
        Err(Again::QueueFull.into())
    );
    assert_eq!(
        node.engine.post_receive(receive_request(1, 3), &mut node.sink).unwrap_err().error,
        Again::QueueFull.into()
    );
    node.sink.room = 1;
    node.deliver_held();
    assert_eq!(take_errors(&mut node.sink), [(1, OperationError::NoMessage)]);
    node.engine.peek(peek_request(2, PeekAction::Keep), &mut node.sink).unwrap();
    assert_eq!(take_errors(&mut node.sink), [(2, OperationError::NoMessage)]);
    // The posted receive uses up the depth. A peek is still accepted, since this receive may never
    // end.
    node.post_receive(receive_request(1, 3));
    node.engine.peek(peek_request(4, PeekAction::Keep), &mut node.sink).unwrap();
    assert_eq!(take_errors(&mut node.sink), [(4, OperationError::NoMessage)]);
}
