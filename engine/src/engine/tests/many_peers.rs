//! An endpoint with many idle or blocked peers on the simulated network: what it does for one active peer
//! does not depend on how many others there are.

use super::*;

/// A peer without an engine. It ignores what it receives.
struct IdlePeer;

impl FrameHandler for IdlePeer {
    fn frame(&mut self, _: LinkId, _: &Header, _: &[u8]) {}
    fn frame_begun(&mut self, _: LinkId, _: &Header) {}
    fn payload_space(&mut self, _: LinkId) -> Space<'_> {
        Space::new()
    }
    fn bytes_placed(&mut self, _: LinkId, _: usize) {}
    fn payload_arrived(&mut self, _: LinkId, _: &[u8]) {}
    fn link_event(&mut self, _: LinkId, _: LinkEvent) {}
    fn link_writable(&mut self, _: LinkId) {}
}

type Node = super::Node<LoopbackTransport>;

fn open(network: &Network, instance: u64) -> Node {
    Node::open(network, instance, untimed_config())
}

/// More frames and events than arrive for one pass of most tests.
const FRAMES_MAX: u32 = 256;

fn send_message(node: &mut Node, to: Address, message: &'static [u8]) {
    node.send(to, message, 1, Level::Inject);
}

/// Makes passes of both endpoints until nothing more arrives.
fn settle(hub: &mut Node, other: &mut Node) {
    while hub.progress(FRAMES_MAX) + other.progress(FRAMES_MAX) > 0 {}
}

/// How many links and peers the engine visits in each of these calls.
#[derive(Debug, PartialEq, Eq)]
struct Visits {
    idle_pass: u64,
    send: u64,
    pass_with_message: u64,
    pass_with_end: u64,
    check_for_unsent: u64,
}

/// Counts the visits of an endpoint that has one active peer and this many idle ones.
fn count_visits(idle_peers: u64) -> Visits {
    let network = Network::new(3, Faults::default());
    let (mut hub, mut active) = (open(&network, 1), open(&network, 2));
    let (hub_address, active_address) = (hub.transport.address(), active.transport.address());
    send_message(&mut active, hub_address, b"active");
    settle(&mut hub, &mut active);
    let mut idle: Vec<LoopbackTransport> = Vec::new();
    for number in 0..idle_peers {
        let mut peer = network.open(address(0), 3 + number).unwrap();
        peer.connect(hub_address);
        peer.receive(8, &mut IdlePeer);
        idle.push(peer);
    }
    settle(&mut hub, &mut active);
    assert_eq!(hub.engine.peers().len() as u64, 1 + idle_peers);

    let idle_pass = count_visits_during(|| assert_eq!(hub.progress(FRAMES_MAX), 0));
    let send = count_visits_during(|| send_message(&mut hub, active_address, b"active"));
    settle(&mut hub, &mut active);
    hub.post_receives(8, 2..=3);
    send_message(&mut active, hub_address, b"active");
    let before = hub.sink.ended.len();
    let pass_with_message = count_visits_during(|| assert_eq!(hub.progress(FRAMES_MAX), 1));
    assert_eq!(hub.sink.ended.len(), before + 1, "the message has arrived");
    settle(&mut hub, &mut active);
    drop(idle.pop());
    let pass_with_end = count_visits_during(|| assert_eq!(hub.progress(FRAMES_MAX), 1));
    let check_for_unsent = count_visits_during(|| assert!(!hub.engine.has_unsent()));
    Visits { idle_pass, send, pass_with_message, pass_with_end, check_for_unsent }
}

#[test]
fn engine_with_10_000_idle_peers_visits_no_more_of_them_than_with_10() {
    let few = count_visits(10);
    assert!(few.send > 0 && few.pass_with_message > 0 && few.pass_with_end > 0, "{few:?}");
    assert_eq!((few.idle_pass, few.check_for_unsent), (0, 0));
    assert_eq!(count_visits(10_000), few);
}

/// A message that is longer than a link holds on a network with the least capacity.
const LONG: &[u8] = &[7; 2 * CAPACITY_MIN_BYTES as usize];

/// Counts the visits of an endpoint with an unfinished send to each of this many peers, whose links are full.
/// Returns those in a pass in which nothing happens, and in a pass in which one link becomes writable.
fn count_visits_with_blocked(blocked_peers: u64) -> [u64; 2] {
    let network = Network::new(3, Faults { capacity_bytes: CAPACITY_MIN_BYTES, ..Faults::default() });
    let mut hub = open(&network, 1);
    let mut peers: Vec<LoopbackTransport> = Vec::new();
    for number in 0..blocked_peers {
        let peer = network.open(address(0), 2 + number).unwrap();
        send_message(&mut hub, peer.address(), LONG);
        peers.push(peer);
    }
    // The first passes make the connections, and the last one finds the links full.
    for _ in 0..3 {
        hub.progress(FRAMES_MAX);
    }
    let pass = count_visits_during(|| assert_eq!(hub.progress(FRAMES_MAX), 0));
    assert!(hub.engine.has_unsent());
    let reader = peers.last_mut().unwrap();
    let mut pass_with_writable_link = 0;
    while hub.sink.ended.is_empty() {
        reader.receive(8, &mut IdlePeer);
        pass_with_writable_link = count_visits_during(|| assert!(hub.progress(FRAMES_MAX) > 0));
    }
    [pass, pass_with_writable_link]
}

#[test]
fn engine_with_10_000_blocked_peers_visits_no_more_of_them_than_with_10() {
    let few = count_visits_with_blocked(10);
    assert!(few[0] == 0 && few[1] > 0, "{few:?}");
    assert_eq!(count_visits_with_blocked(10_000), few);
}

#[test]
fn peer_without_credit_is_not_visited_until_credit_arrives() {
    const MESSAGES: usize = 1000;
    let network = Network::new(3, Faults::default());
    let (mut hub, mut reader) = (open(&network, 1), open(&network, 2));
    send_message(&mut hub, reader.address(), b"active");
    settle(&mut hub, &mut reader);
    for _ in 0..MESSAGES {
        send_message(&mut hub, reader.transport.address(), LONG);
    }
    hub.progress(FRAMES_MAX);
    assert_eq!(count_visits_during(|| assert_eq!(hub.progress(FRAMES_MAX), 0)), 0);
    assert!(hub.sink.ended.len() < MESSAGES);
    reader.post_receives(LONG.len(), 0..=MESSAGES as u64);
    settle(&mut hub, &mut reader);
    assert_eq!(hub.sink.ended.len(), 1 + MESSAGES);
}
