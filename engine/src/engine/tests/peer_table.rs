//! Tests that the engine forgets peers that only links have introduced, but keeps a peer while any
//! part of the engine refers to it.

use std::collections::HashMap;

use super::durability::add_persistent_region;
use super::*;

/// The link of peers that come and go.
const PASSING_LINK: LinkId = LinkId(9);

/// Lets a peer at each of these ports connect and leave, one after the other. Returns the greatest
/// index of the peers' ids.
fn let_peers_come_and_go(
    engine: &mut Engine,
    sink: &mut Recorder,
    ports: impl Iterator<Item = u16>,
) -> usize {
    let mut greatest = 0;
    let room = std::mem::replace(&mut sink.room, usize::MAX);
    for port in ports {
        let up = LinkEvent::up(address(port), 1);
        engine.arrivals(sink).link_event(PASSING_LINK, up);
        greatest = greatest.max(engine.peers().find(address(port)).expect("it has a link").index());
        engine.arrivals(sink).link_event(PASSING_LINK, LinkEvent::Down(LinkError::Closed));
    }
    sink.room = room;
    greatest
}

/// Returns the ports of enough peers for two sweeps. Ids of forgotten peers are then used again.
fn many_ports() -> impl Iterator<Item = u16> {
    10_000..10_000 + 3 * PEER_SWEEP_MIN_PEERS as u16
}

#[test]
fn ten_thousand_peers_that_come_and_go_leave_a_bounded_table() {
    let (mut engine, mut sink) = (Engine::new(untimed_config()), Recorder::default());
    let greatest = let_peers_come_and_go(&mut engine, &mut sink, 10_000..20_000);
    let bound = 2 * PEER_SWEEP_MIN_PEERS;
    assert!(greatest < bound && engine.peers().len() <= bound, "{greatest}, {}", engine.peers().len());
}

#[test]
fn named_peer_keeps_its_id_without_a_link() {
    let (Node { mut engine, mut sink, .. }, peer) = engine_with_peer();
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::Down(LinkError::Closed));
    let_peers_come_and_go(&mut engine, &mut sink, many_ports());
    assert_eq!((engine.peers().find(address(2)), engine.peers().address_of(peer)), (Some(peer), address(2)));
}

/// Lets a peer connect, send a frame and leave. Then lets other peers come and go. Returns whether
/// the first peer keeps its id.
fn keeps_id_after_frame(
    prepare: impl FnOnce(&mut Engine, &mut Recorder),
    header: &Header,
    payload: &[u8],
) -> bool {
    let (mut engine, mut sink) = (Engine::new(untimed_config()), Recorder::default());
    let (_region, _device) = add_persistent_region(&engine, KEY);
    prepare(&mut engine, &mut sink);
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::up(address(2), 1));
    engine.arrivals(&mut sink).frame(LINK, header, payload);
    let id = engine.peers().find(address(2)).expect("it has a link");
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::Down(LinkError::Closed));
    let_peers_come_and_go(&mut engine, &mut sink, many_ports());
    engine.peers().find(address(2)) == Some(id)
}

fn write_with_data(data: Option<u64>) -> Header {
    let kind = RmaKind::Write { data };
    Header::Rma(Rma { op: 1, key: KEY, address: 1000, len_bytes: 1, kind, durable: Durable::Nothing })
}

#[test]
fn peer_is_kept_while_a_part_of_the_engine_refers_to_it() {
    let nothing = |_: &mut Engine, _: &mut Recorder| ();
    let no_room = |_: &mut Engine, sink: &mut Recorder| sink.room = 0;
    let posted_without_room = |engine: &mut Engine, sink: &mut Recorder| {
        sink.room = 0;
        engine.post_receive(receive_request(8, 1), sink).unwrap();
    };
    let received = |engine: &mut Engine, sink: &mut Recorder| {
        engine.post_receive(receive_request(8, 1), sink).unwrap();
    };
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
    let (mut engine, mut sink, mut transport) =
        (Engine::new(untimed_config()), Recorder::default(), Scripted::default());
    // The first sweep comes before the loss, or long after it.
    let_peers_come_and_go(&mut engine, &mut sink, 40_000..40_000 + PEER_SWEEP_MIN_PEERS as u16 - 1);
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::up(address(2), 1));
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::Down(RESET));
    let_peers_come_and_go(&mut engine, &mut sink, 10_000..10_000 + passing);
    let mut request = receive_request(8, 1);
    request.criteria.source = Some(engine.intern_peer(address(2)));
    engine.post_receive(request, &mut sink).unwrap();
    engine.transmit(&mut transport, &mut sink);
    !transport.connected.is_empty()
}

#[test]
fn loss_of_a_peer_is_remembered_while_few_others_come() {
    let few = PEER_SWEEP_MIN_PEERS as u16;
    assert!(connects_for_receive_from_lost_peer(0));
    assert!(connects_for_receive_from_lost_peer(few));
    assert!(!connects_for_receive_from_lost_peer(3 * few), "no peer is forgotten");
}

/// A sink that caches the address of each peer, like the pump.
#[derive(Default)]
struct CachingSink {
    addresses: HashMap<PeerId, Address>,
    sources: Vec<Address>,
}

impl Sink for CachingSink {
    fn complete(&mut self, completion: EndedOperation, peers: &Peers) -> Result<(), EndedOperation> {
        let source = completion.source.expect("a message has a source");
        self.sources.push(*self.addresses.entry(source).or_insert_with(|| peers.address_of(source)));
        Ok(())
    }

    fn fail(&mut self, failure: FailedOperation, _: &Peers) -> Result<(), FailedOperation> {
        panic!("{failure:?}");
    }

    fn clear_peer_cache(&mut self) {
        self.addresses.clear();
    }
}

#[test]
fn report_of_a_peer_with_the_id_of_a_forgotten_one_names_it() {
    let (mut engine, mut sink) = (Engine::new(untimed_config()), CachingSink::default());
    for port in many_ports() {
        engine.post_receive(receive_request(0, 1), &mut sink).unwrap();
        let mut arrivals = engine.arrivals(&mut sink);
        arrivals.link_event(PASSING_LINK, LinkEvent::up(address(port), 1));
        arrivals.frame(PASSING_LINK, &untagged_header(0), b"");
        arrivals.link_event(PASSING_LINK, LinkEvent::Down(LinkError::Closed));
    }
    assert_eq!(sink.sources, many_ports().map(address).collect::<Vec<_>>());
    assert!(engine.peers().len() < many_ports().count(), "ids are used again");
}
