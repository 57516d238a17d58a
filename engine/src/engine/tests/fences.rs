//! Fenced sends, and what they wait for.

use super::*;

const LINK: LinkId = LinkId(7);

fn at(level: Level, to: PeerId, context: u64) -> SendRequest {
    SendRequest { level, ..send_to(to, b"x", context) }
}

fn fenced(level: Level, to: PeerId, context: u64) -> SendRequest {
    SendRequest { fence: true, ..at(level, to, context) }
}

fn messages(transport: &Scripted) -> usize {
    transport.sent.iter().filter(|(_, header, _)| matches!(header, Header::Message(_))).count()
}

#[test]
fn a_fence_with_nothing_before_it_holds_nothing() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    for level in [Level::Inject, Level::Transmit, Level::Match] {
        let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
        engine.post_send(fenced(level, peer, 1), &mut transport, &mut sink).unwrap();
        assert_eq!(messages(&transport), 1);
    }
    // What the link has taken has reached the level of injection.
    engine.post_send(at(Level::Inject, peer, 1), &mut transport, &mut sink).unwrap();
    engine.post_send(fenced(Level::Inject, peer, 2), &mut transport, &mut sink).unwrap();
    assert_eq!((messages(&transport), sink.contexts()), (2, vec![1, 2]));
}

#[test]
fn silent_messages_before_a_fence_are_asked_for() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    let other = engine.peer(address(3));
    let silent = SendRequest { signalled: false, ..at(Level::Inject, peer, 1) };
    engine.post_send(silent, &mut transport, &mut sink).unwrap();
    engine.post_send(fenced(Level::Delivery, peer, 2), &mut transport, &mut sink).unwrap();
    engine.post_send(at(Level::Inject, peer, 3), &mut transport, &mut sink).unwrap();
    assert!(!engine.inject(peer, None, None, b"x", &mut transport));
    assert_eq!(headers_from(&transport, 1), [Header::Fence { matched: false }]);
    engine.post_send(at(Level::Inject, other, 4), &mut transport, &mut sink).unwrap();
    assert_eq!(sink.contexts(), [4], "others do not wait");

    let before = transport.sent.len();
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.sent.len(), before, "it is asked for once");
    engine.arrivals(&mut sink).frame(LINK, &Header::Fenced, b"");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(headers_from(&transport, before).len(), 2);
    assert_eq!(sink.contexts(), [4, 3]);
}

#[test]
fn a_fence_waits_for_all_that_has_not_completed() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    engine.post_send(at(Level::Transmit, peer, 1), &mut transport, &mut sink).unwrap();
    engine.post_send(at(Level::Match, peer, 2), &mut transport, &mut sink).unwrap();
    engine.post_send(fenced(Level::Inject, peer, 3), &mut transport, &mut sink).unwrap();
    engine.arrivals(&mut sink).frame(LINK, &Header::Ack { received: 2 }, b"");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sink.contexts(), [1]);
    engine.arrivals(&mut sink).frame(LINK, &Header::Matched { number: 2 }, b"");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sink.contexts(), [1, 2, 3]);
    assert_eq!(messages(&transport), transport.sent.len(), "there was nothing to ask");
}

#[test]
fn a_fence_at_a_higher_level_asks_again() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    engine.post_send(at(Level::Inject, peer, 1), &mut transport, &mut sink).unwrap();
    engine.post_send(fenced(Level::Transmit, peer, 2), &mut transport, &mut sink).unwrap();
    engine.arrivals(&mut sink).frame(LINK, &Header::Fenced, b"");
    engine.transmit(&mut transport, &mut sink);
    engine.arrivals(&mut sink).frame(LINK, &Header::Ack { received: 2 }, b"");
    let before = transport.sent.len();
    engine.post_send(fenced(Level::Match, peer, 3), &mut transport, &mut sink).unwrap();
    assert_eq!(headers_from(&transport, before), [Header::Fence { matched: true }]);
}

#[test]
fn a_fence_is_answered_when_everything_before_it_is_matched() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.frame(LINK, &untagged(1), b"a");
    arrivals.frame(LINK, &untagged(1), b"b");
    arrivals.frame(LINK, &Header::Fence { matched: false }, b"");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(headers_from(&transport, 0), [Header::Fenced]);
    engine.arrivals(&mut sink).frame(LINK, &Header::Fence { matched: true }, b"");
    engine.post_receive(receive(1, 1), &mut sink).unwrap();
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.sent.len(), 1);
    engine.post_receive(receive(1, 2), &mut sink).unwrap();
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(headers_from(&transport, 1), [Header::Fenced]);
}

#[test]
fn a_fenced_send_that_waits_can_be_cancelled_and_fails_with_its_link() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    engine.post_send(at(Level::Match, peer, 1), &mut transport, &mut sink).unwrap();
    for context in [2, 3] {
        engine.post_send(fenced(Level::Inject, peer, context), &mut transport, &mut sink).unwrap();
    }
    engine.cancel(2, &mut sink).unwrap();
    assert_eq!(sink.contexts(), [2]);
    engine.arrivals(&mut sink).link(LINK, LinkEvent::Down(RESET));
    assert_eq!(sink.contexts(), [2, 1, 3]);
}
