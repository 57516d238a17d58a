//! Tests of an initiator alone, without endpoint, link and engine.

use bytes::Bytes;

use super::*;
use crate::buffer::Source;
use crate::operation::Signalled;
use crate::wire::Message;

const PEER: PeerId = PeerId(1);
const OTHER: PeerId = PeerId(0);

fn message_send(context: u64) -> Send {
    let message = Message { awaits: AwaitedReply::Arrival, ..Message::of_len(1) };
    Send {
        source: Source::owned(Bytes::from_static(b"m")),
        message,
        context,
        signalled: Signalled::Yes,
        may_be_fetched: true,
        fence: false,
        turn: None,
        one_sided: None,
    }
}

#[test]
fn active_peers_are_served_round_robin() {
    let mut initiator = Initiator::new(false);
    for peer in [PEER, OTHER, PEER] {
        initiator.activate(peer);
    }
    assert_eq!((initiator.active_len(), initiator.pop_active()), (2, Some(PEER)));
    initiator.activate(PEER);
    assert_eq!(initiator.active_len(), 1, "it is being looked at");
    initiator.requeue(PEER);
    assert_eq!(initiator.pop_active(), Some(OTHER));
    initiator.deactivate(OTHER);
    initiator.activate(OTHER);
    assert_eq!([initiator.pop_active(), initiator.pop_active()], [Some(PEER), Some(OTHER)]);
}

#[test]
fn blocked_peer_becomes_active_by_events_and_operations() {
    let mut initiator = Initiator::new(false);
    let first = initiator.enqueue(PEER, message_send(1));
    for peer in [PEER, OTHER] {
        initiator.activate(peer);
        let active = initiator.pop_active().unwrap();
        initiator.block(active);
    }
    assert!(initiator.active_len() == 0 && initiator.has_blocked_peers() && initiator.has_listed_peers());
    initiator.unblock(PEER);
    initiator.unblock(PEER);
    assert_eq!((initiator.active_len(), initiator.pop_active()), (1, Some(PEER)));
    initiator.block(PEER);
    assert_eq!(initiator.first_queued(PEER), Some(first));
    initiator.enqueue(OTHER, message_send(2));
    assert_eq!(initiator.pop_active(), Some(OTHER), "it has another operation");
    initiator.block(OTHER);
    initiator.activate(PEER);
    assert_eq!(initiator.pop_active(), Some(PEER));
    initiator.deactivate(PEER);
    initiator.unblock(OTHER);
    assert_eq!(initiator.pop_active(), Some(OTHER));
    initiator.deactivate(OTHER);
    assert!(!initiator.has_listed_peers());
}
