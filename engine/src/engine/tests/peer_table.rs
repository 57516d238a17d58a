//! Tests that the engine forgets peers that only links have introduced, but keeps a peer while any
//! part of the engine refers to it.

use super::durability::add_persistent_region;
use super::*;

/// The link of peers that come and go.
const PASSING_LINK: LinkId = LinkId(9);

/// Lets a peer at each of these ports connect and leave, one after the other. Returns the greatest
/// index of the peers' ids.
fn let_peers_come_and_go(node: &mut Node, ports: impl Iterator<Item = u16>) -> usize {
    let mut greatest = 0;
    let room = std::mem::take(&mut node.sink.room);
    for port in ports {
        node.link_up(PASSING_LINK, port, 1);
        greatest = greatest.max(node.engine.peers().find(address(port)).expect("it has a link").index());
        node.link_down(PASSING_LINK, LinkError::Closed);
    }
    node.sink.room = room;
    greatest
}

/// Returns the ports of enough peers for two sweeps. Ids of forgotten peers are then used again.
fn many_ports() -> impl Iterator<Item = u16> {
    10_000..10_000 + 3 * PEER_SWEEP_MIN_PEERS as u16
}

#[test]
fn ten_thousand_peers_that_come_and_go_leave_a_bounded_table() {
    let mut node = Node::new(untimed_config());
    let greatest = let_peers_come_and_go(&mut node, 10_000..20_000);
    let (len, bound) = (node.engine.peers().len(), 2 * PEER_SWEEP_MIN_PEERS);
    assert!(greatest < bound && len <= bound, "{greatest}, {len}");
}

#[test]
fn named_peer_keeps_its_id_without_a_link() {
    let (mut node, peer) = engine_with_peer();
    node.link_down(LINK, LinkError::Closed);
    let_peers_come_and_go(&mut node, many_ports());
    let peers = node.engine.peers();
    assert_eq!((peers.find(address(2)), peers.address_of(peer)), (Some(peer), address(2)));
}

/// Lets a peer connect, send a frame and leave. Then lets other peers come and go. Returns whether
/// the first peer keeps its id.
fn keeps_id_after_frame(prepare: impl FnOnce(&mut Node), header: &Header, payload: &[u8]) -> bool {
    let mut node = Node::new(untimed_config());
    let (_region, _device) = add_persistent_region(&node, KEY, 100);
    prepare(&mut node);
    node.link_up(LINK, 2, 1);
    node.frame(LINK, header, payload);
    let id = node.engine.peers().find(address(2)).expect("it has a link");
    node.link_down(LINK, LinkError::Closed);
    let_peers_come_and_go(&mut node, many_ports());
    node.engine.peers().find(address(2)) == Some(id)
}

fn write_with_data(data: Option<u64>) -> Header {
    let kind = RmaKind::Write { data };
    Header::Rma(Rma { op: 1, key: KEY, address: 1000, len_bytes: 1, kind, durable: Durable::Nothing })
}

#[test]
fn peer_is_kept_while_a_part_of_the_engine_refers_to_it() {
    let nothing = |_: &mut Node| ();
    let no_room = |node: &mut Node| node.sink.room = Some(0);
    let posted_without_room = |node: &mut Node| {
        node.sink.room = Some(0);
        node.post_receive(receive_request(8, 1));
    };
    let received = |node: &mut Node| node.post_receive(receive_request(8, 1));
    assert!(!keeps_id_after_frame(received, &untagged_header(1), b"a"), "the message was reported");
    assert!(keeps_id_after_frame(nothing, &untagged_header(1), b"a"), "the message is unexpected");
    assert!(keeps_id_after_frame(posted_without_room, &untagged_header(1), b"a"), "the report is held");
    // The state of persistent memory refers to the peers whose writes are not durable yet. So these
    // writes are empty.
    let empty = |data| match write_with_data(data) {
        Header::Rma(rma) => Header::Rma(Rma { len_bytes: 0, ..rma }),
        other => other,
    };
    assert!(!keeps_id_after_frame(nothing, &empty(Some(5)), b""), "the write was reported");
    assert!(keeps_id_after_frame(no_room, &empty(Some(5)), b""), "the report of the write is held");
    assert!(keeps_id_after_frame(nothing, &write_with_data(None), b"a"), "the write is not durable");
}

/// Lets a peer connect and vanish. Then lets `passing` other peers come and go, and posts a
/// directed receive from the first peer. Returns whether the endpoint connects to this peer.
fn connects_for_receive_from_lost_peer(passing: u16) -> bool {
    let mut node = Node::new(untimed_config());
    // The first sweep comes before the loss, or long after it.
    let_peers_come_and_go(&mut node, 40_000..40_000 + PEER_SWEEP_MIN_PEERS as u16 - 1);
    node.link_up(LINK, 2, 1);
    node.link_down(LINK, RESET);
    let_peers_come_and_go(&mut node, 10_000..10_000 + passing);
    let mut request = receive_request(8, 1);
    request.criteria.source = Some(node.engine.intern_peer(address(2)));
    node.post_receive(request);
    node.transmit();
    !node.transport.connected.is_empty()
}

#[test]
fn loss_of_a_peer_is_remembered_while_few_others_come() {
    let few = PEER_SWEEP_MIN_PEERS as u16;
    assert!(connects_for_receive_from_lost_peer(0));
    assert!(connects_for_receive_from_lost_peer(few));
    assert!(!connects_for_receive_from_lost_peer(3 * few), "no peer is forgotten");
}
