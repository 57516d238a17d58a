//! Tests of peeks that look at, claim and discard unexpected messages.

use super::*;

fn peek_request(context: u64, then: PeekAction) -> PeekRequest {
    let criteria = Criteria { source: None, tag: 5, ignore: 0 };
    PeekRequest { tagged: true, criteria, context, work: None, then }
}

fn tagged_header(tag: u64, len_bytes: u64, awaits: AwaitedReply) -> Header {
    Header::Message(Message { tag: Some(tag), data: Some(77), awaits, ..Message::of_len(len_bytes) })
}

fn tagged_receive_request(tag: u64, context: u64) -> ReceiveRequest {
    let criteria = Criteria { source: None, tag, ignore: 0 };
    ReceiveRequest { tagged: true, criteria, ..receive_request(100, context) }
}

fn take_errors(sink: &mut Recorder) -> Vec<(u64, OperationError)> {
    let failure = |ended: Result<EndedOperation, FailedOperation>| {
        ended.err().map(|failure| (failure.completion.context, failure.error))
    };
    sink.take_ended().into_iter().filter_map(failure).collect()
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
