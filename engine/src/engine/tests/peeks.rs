//! Tests of peeks that look at, claim and discard unexpected messages.

use super::*;
use crate::error::{Error, OperationError};
use crate::operation::{PeekAction, PeekRequest};

const LINK: LinkId = LinkId(7);

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
    let (mut engine, peer, _, mut sink) = engine_with_peer();
    engine.arrivals(&mut sink).frame(LINK, &tagged_header(4, 1, AwaitedReply::Nothing), b"x");
    engine.arrivals(&mut sink).frame_begun(LINK, &tagged_header(5, 50, AwaitedReply::Nothing));
    for context in [1, 2] {
        engine.peek(peek_request(context, PeekAction::Keep), &mut sink).unwrap();
        let Some(Ok(seen)) = sink.take_ended().pop() else { panic!("not found") };
        let told = (seen.context, seen.len_bytes, seen.tag, seen.data, seen.source);
        assert_eq!(told, (context, 50, 5, 77, Some(peer)), "it need not be there in whole");
        let flags = CompletionFlags::RECV | CompletionFlags::TAGGED | CompletionFlags::REMOTE_CQ_DATA;
        assert_eq!((seen.flags, seen.buffer), (flags, Buffer::None));
    }
    assert_eq!(engine.receive_side.unexpected_len(), 2);
}

#[test]
fn peek_without_a_message_fails_at_once() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    for (context, then) in [(1, PeekAction::Keep), (2, PeekAction::Claim), (3, PeekAction::Discard)] {
        engine.peek(peek_request(context, then), &mut sink).unwrap();
        assert_eq!(take_errors(&mut sink), [(context, OperationError::NoMessage)]);
        assert!(engine.cancel(context, &mut sink).is_err(), "it has ended");
    }
    assert_eq!(engine.outstanding_receives(), 0);
    assert!(!engine.has_work_without_arrivals());

    engine.arrivals(&mut sink).frame(LINK, &tagged_header(5, 1, AwaitedReply::Nothing), b"x");
    engine.transmit(&mut transport, &mut sink);
    assert!(sink.ended.is_empty(), "no peek waits for it");
    engine.peek(peek_request(4, PeekAction::Keep), &mut sink).unwrap();
    assert_eq!(sink.ended_contexts(), [4]);
}

#[test]
fn peek_misses_what_came_behind_the_end_of_a_receive_until_the_next_pass() {
    let quiet = AwaitedReply::Nothing;
    for then in [PeekAction::Keep, PeekAction::Claim, PeekAction::Discard] {
        let (mut engine, _, _, mut sink) = engine_with_peer();
        engine.post_receive(tagged_receive_request(4, 1), &mut sink).unwrap();
        let mut pass = engine.arrivals(&mut sink);
        pass.frame(LINK, &tagged_header(4, 1, quiet), b"x");
        pass.frame(LINK, &tagged_header(5, 1, quiet), b"x");
        assert_eq!(sink.ended_contexts(), [1]);
        engine.peek(peek_request(2, then), &mut sink).unwrap();
        assert_eq!(take_errors(&mut sink), [(2, OperationError::NoMessage)], "{then:?}");
        // The next pass, which receives nothing.
        engine.arrivals(&mut sink);
        engine.peek(peek_request(3, then), &mut sink).unwrap();
        assert_eq!(sink.ended_contexts(), [3], "{then:?}");
    }
}

/// Returns an engine whose latest pass has received a message with tag 5 behind the end of a receive, and
/// then what `later` passes to it. A receive for tag 4 was still posted.
fn engine_with_hidden_message(later: &dyn Fn(&mut Arrivals<'_, Recorder>)) -> (Engine, Recorder) {
    let (mut engine, _, _, mut sink) = engine_with_peer();
    for context in [1, 2] {
        engine.post_receive(tagged_receive_request(4, context), &mut sink).unwrap();
    }
    let mut pass = engine.arrivals(&mut sink);
    for tag in [4, 5] {
        pass.frame(LINK, &tagged_header(tag, 1, AwaitedReply::Nothing), b"x");
    }
    later(&mut pass);
    (engine, sink)
}

/// Whether a peek finds a message with tag 5.
fn finds(engine: &mut Engine, sink: &mut Recorder) -> bool {
    sink.take_ended();
    engine.peek(peek_request(3, PeekAction::Keep), sink).unwrap();
    take_errors(sink).is_empty()
}

#[test]
fn peek_finds_what_has_arrived_before_something_that_was_seen() {
    let quiet = |tag| tagged_header(tag, 1, AwaitedReply::Nothing);
    let later_in_the_pass = |act: &dyn Fn(&mut Arrivals<'_, Recorder>)| {
        let (mut engine, mut sink) = engine_with_hidden_message(act);
        finds(&mut engine, &mut sink)
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
    let (mut engine, mut sink) = engine_with_hidden_message(&|pass| pass.frame(LINK, &later, b"x"));
    engine.post_receive(tagged_receive_request(6, 3), &mut sink).unwrap();
    assert!(finds(&mut engine, &mut sink));
}

#[test]
fn peek_that_is_not_repeated_finds_all_messages() {
    let (mut engine, mut sink) = engine_with_hidden_message(&|_| ());
    engine.show_all_to_peeks();
    assert!(finds(&mut engine, &mut sink));
}

#[test]
fn peek_that_misses_a_message_owes_one_more_look() {
    let (mut engine, mut sink) = engine_with_hidden_message(&|_| ());
    assert!(!engine.take_owed_look(), "there was no peek");
    assert!(!finds(&mut engine, &mut sink));
    assert!(engine.take_owed_look());
    assert!(!engine.take_owed_look(), "once for a peek");
    engine.arrivals(&mut sink);
    assert!(finds(&mut engine, &mut sink));
    assert!(!engine.take_owed_look());
}

#[test]
fn message_that_arrives_after_a_peek_in_vain_owes_one_more_look() {
    let (mut engine, _, _, mut sink) = engine_with_peer();
    assert!(!finds(&mut engine, &mut sink));
    assert!(!engine.take_owed_look(), "nothing has arrived");
    engine.arrivals(&mut sink).frame(LINK, &tagged_header(5, 1, AwaitedReply::Nothing), b"x");
    assert!(engine.take_owed_look());
    engine.arrivals(&mut sink).frame(LINK, &tagged_header(5, 1, AwaitedReply::Nothing), b"x");
    assert!(!engine.take_owed_look(), "once for a peek");
}

#[test]
fn claimed_message_is_received_only_with_its_claim_context() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    engine.arrivals(&mut sink).frame(LINK, &tagged_header(5, 5, AwaitedReply::Match), b"first");
    engine.arrivals(&mut sink).frame(LINK, &tagged_header(5, 6, AwaitedReply::Match), b"second");
    engine.peek(peek_request(1, PeekAction::Claim), &mut sink).unwrap();
    assert!(matches!(
        engine.peek(peek_request(1, PeekAction::Claim), &mut sink),
        Err(Error::Misuse(Misuse::Invalid(_)))
    ));
    engine.post_receive(tagged_receive_request(5, 2), &mut sink).unwrap();
    assert_eq!(received_bytes(&sink.ended[1]), b"second");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sent_headers_since(&transport, 0), [Header::Matched { number: 2 }]);

    let untagged = ReceiveRequest { tagged: false, ..tagged_receive_request(0, 1) };
    let refused = engine.receive_claimed(untagged, 1, &mut sink).unwrap_err();
    assert!(matches!(refused.error, Error::Misuse(Misuse::NotFound(_))));
    engine.receive_claimed(tagged_receive_request(0, 1), 1, &mut sink).unwrap();
    assert_eq!(received_bytes(&sink.ended[2]), b"first");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sent_headers_since(&transport, 1), [Header::Matched { number: 1 }]);
    assert!(engine.receive_claimed(tagged_receive_request(0, 1), 1, &mut sink).is_err(), "once");
}

#[test]
fn discard_drops_message_in_any_state() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    engine.arrivals(&mut sink).frame(LINK, &tagged_header(5, 5, AwaitedReply::Match), b"whole");
    let message = Message { tag: Some(5), ..Message::of_len(10) };
    let request = Header::Request { message, op: 1, remote_bytes: REMOTE.len() as u8 };
    engine.arrivals(&mut sink).frame(LINK, &request, REMOTE);
    engine.arrivals(&mut sink).frame_begun(LINK, &tagged_header(5, 4, AwaitedReply::Match));
    engine.arrivals(&mut sink).payload_arrived(LINK, b"ha");
    for context in 1..=3 {
        engine.peek(peek_request(context, PeekAction::Discard), &mut sink).unwrap();
    }
    assert_eq!((sink.ended_contexts(), engine.receive_side.unexpected_len()), (vec![1, 2, 3], 0));
    engine.transmit(&mut transport, &mut sink);
    let told = [Header::Matched { number: 1 }, Header::Done { op: 1, fault: false }];
    assert_eq!(sent_headers_since(&transport, 0), told);
    assert!(transport.pulled.is_empty());
    engine.arrivals(&mut sink).payload_arrived(LINK, b"lf");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sent_headers_since(&transport, 2), [Header::Matched { number: 2 }]);
    assert_eq!(sink.ended.len(), 3);
}

#[test]
fn claimed_message_can_be_discarded() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    engine.arrivals(&mut sink).frame(LINK, &tagged_header(5, 5, AwaitedReply::Match), b"whole");
    engine.peek(peek_request(1, PeekAction::Claim), &mut sink).unwrap();
    engine.discard_claimed(true, 1, None, &mut sink).unwrap();
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sent_headers_since(&transport, 0), [Header::Matched { number: 1 }]);
    assert_eq!(sink.ended_contexts(), [1, 1]);
    assert!(engine.discard_claimed(true, 1, None, &mut sink).is_err());
    assert!(!engine.receive_side.has_claimed());
}

#[test]
fn incomplete_claimed_message_fails_when_received() {
    let (mut engine, _, _, mut sink) = engine_with_peer();
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.frame(LINK, &tagged_header(5, 5, AwaitedReply::Nothing), b"whole");
    arrivals.frame_begun(LINK, &tagged_header(5, 4, AwaitedReply::Nothing));
    for context in [1, 2] {
        engine.peek(peek_request(context, PeekAction::Claim), &mut sink).unwrap();
    }
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::Down(RESET));
    sink.take_ended();
    engine.receive_claimed(tagged_receive_request(0, 1), 1, &mut sink).unwrap();
    assert_eq!(received_bytes(&sink.ended[0]), b"whole", "its sender's death does not matter");
    engine.receive_claimed(tagged_receive_request(0, 2), 2, &mut sink).unwrap();
    assert_eq!(take_errors(&mut sink), [(2, OperationError::Link(RESET))]);
}

#[test]
fn peeks_are_bounded_by_the_depth() {
    let (mut engine, _, _, mut sink) = engine_with_peer();
    engine.receive_side.set_depth_ops(1);
    sink.room = 0;
    engine.peek(peek_request(1, PeekAction::Keep), &mut sink).unwrap();
    assert_eq!(engine.outstanding_receives(), 1, "its end waits for room in the queue");
    assert_eq!(engine.peek(peek_request(2, PeekAction::Keep), &mut sink), Err(Again::QueueFull.into()));
    assert_eq!(
        engine.post_receive(receive_request(1, 3), &mut sink).unwrap_err().error,
        Again::QueueFull.into()
    );
    sink.room = 1;
    engine.deliver_held(&mut sink);
    assert_eq!(take_errors(&mut sink), [(1, OperationError::NoMessage)]);
    engine.peek(peek_request(2, PeekAction::Keep), &mut sink).unwrap();
    assert_eq!(take_errors(&mut sink), [(2, OperationError::NoMessage)]);
    // The posted receive uses up the depth. A peek is still accepted, since this receive may never
    // end.
    engine.post_receive(receive_request(1, 3), &mut sink).unwrap();
    engine.peek(peek_request(4, PeekAction::Keep), &mut sink).unwrap();
    assert_eq!(take_errors(&mut sink), [(4, OperationError::NoMessage)]);
}
