mod pulling;

use std::time::Duration;

use crate::address::AddressFormat;
use crate::errno::Errno;
use crate::loopback::{Faults, LoopbackTransport, Network};
use crate::transport::{Close, FrameHandler, LinkError, LinkEvent, LinkId, Provider, Space, Transport};
use crate::wire::Header;

/// Records the events of links. Accepts no frames.
#[derive(Default)]
struct Events(Vec<(LinkId, LinkEvent)>);

impl FrameHandler for Events {
    fn frame(&mut self, _: LinkId, header: &Header, _: &[u8]) {
        panic!("no peer has sent {header:?}");
    }
    fn frame_begun(&mut self, _: LinkId, header: &Header) {
        panic!("no peer has sent {header:?}");
    }
    fn payload_space(&mut self, _: LinkId) -> Space<'_> {
        Space::new()
    }
    fn bytes_placed(&mut self, _: LinkId, _: usize) {}
    fn payload_arrived(&mut self, _: LinkId, _: &[u8]) {}
    fn link_event(&mut self, link: LinkId, event: LinkEvent) {
        self.0.push((link, event));
    }
    fn link_writable(&mut self, _: LinkId) {}
}

/// Receives all link events of a transport that must have nothing else to report.
fn drain_link_events(transport: &mut LoopbackTransport) -> Vec<(LinkId, LinkEvent)> {
    let mut events = Events::default();
    while transport.receive(9, &mut events) > 0 {}
    events.0
}

fn open_pair(network: &Network) -> [LoopbackTransport; 2] {
    [11, 22].map(|instance| {
        network.open(AddressFormat::SockaddrIn.wildcard(), instance).expect("there are free ports")
    })
}

#[test]
fn invalid_frame_ends_the_link() {
    let network = Network::new(1, Faults::default());
    let [mut a, mut b] = open_pair(&network);
    let link = a.connect(b.address());
    assert_eq!(drain_link_events(&mut a), [], "the connection is made, and the peer has said nothing");
    let up = drain_link_events(&mut b);
    let [(peer, LinkEvent::Up { instance: 11, .. })] = up[..] else { panic!("{up:?}") };
    assert_eq!(drain_link_events(&mut a), [(link, LinkEvent::up(b.address(), 22))]);

    let end = a.end_key_of_link(link).expect("linked");
    network.lock().send(end, b"no header starts like this", &[], true);
    a.flush();
    let down = drain_link_events(&mut b);
    assert!(matches!(down[..], [(at, LinkEvent::Down(LinkError::Protocol(_)))] if at == peer), "{down:?}");
    let reset = LinkEvent::Down(LinkError::System(Errno::ECONNRESET));
    assert_eq!(drain_link_events(&mut a), [(link, reset)]);
    assert!(network.is_quiet());
}

#[test]
fn network_counts_only_reported_events() {
    let network = Network::new(1, Faults::default());
    let [mut a, mut b] = open_pair(&network);
    a.connect(b.address());
    assert_eq!((drain_link_events(&mut a).len(), network.received_count()), (0, 0));
    assert_eq!((drain_link_events(&mut b).len(), network.received_count()), (1, 1));
    assert_eq!((drain_link_events(&mut a).len(), network.received_count()), (1, 2));
    assert_eq!(
        (drain_link_events(&mut a).len(), drain_link_events(&mut b).len(), network.received_count()),
        (0, 0, 2)
    );
}

#[test]
fn connection_takes_the_latency_of_each_direction() {
    let ms = Duration::from_millis;
    let network = Network::new(1, Faults { latency_min: ms(3), ..Faults::default() });
    network.track_due();
    let [mut a, mut b] = open_pair(&network);
    let link = a.connect(b.address());
    assert_eq!(drain_link_events(&mut a), []);
    assert_eq!((network.take_due(), network.next_arrival()), (vec![], Some(ms(3))), "the request");
    network.advance_to(ms(3));
    assert_eq!((drain_link_events(&mut a), drain_link_events(&mut b)), (vec![], vec![]));
    assert_eq!(network.take_due(), [a.address(), b.address()]);
    assert_eq!(network.next_arrival(), Some(ms(6)), "the hello of the connector");
    network.advance_to(ms(6));
    assert_eq!((network.take_due(), drain_link_events(&mut b).len()), (vec![b.address()], 1));
    network.advance_to(ms(8));
    assert_eq!(drain_link_events(&mut a), [], "the hello of the acceptor is under way");
    network.advance_to(ms(9));
    assert_eq!(drain_link_events(&mut a), [(link, LinkEvent::up(b.address(), 22))]);
    a.close(link, Close::Drain);
    network.advance_to(ms(11));
    assert_eq!(network.take_due(), [a.address()], "for the hello");
    assert_eq!((drain_link_events(&mut b), network.next_arrival()), (vec![], Some(ms(12))));
    network.advance_to(ms(12));
    assert!(matches!(drain_link_events(&mut b)[..], [(_, LinkEvent::Down(LinkError::Closed))]));
    network.advance_to(ms(1));
    assert_eq!(network.elapsed(), ms(12), "time does not go back");
}

#[test]
fn partition_holds_connections_bytes_and_ends() {
    let network = Network::new(1, Faults::default());
    network.record_trace();
    network.track_due();
    let [mut a, mut b] = open_pair(&network);
    let groups = [[a.address()], [b.address()]];
    let partition = || network.partition(&[&groups[0], &groups[1]]);
    partition();
    let link = a.connect(b.address());
    let pass = |a: &mut LoopbackTransport, b: &mut LoopbackTransport| {
        let events = [drain_link_events(a), drain_link_events(b), drain_link_events(a)];
        events.into_iter().flatten().map(|(_, event)| event).collect::<Vec<_>>()
    };
    network.take_due();
    assert_eq!((pass(&mut a, &mut b), network.take_due()), (vec![], vec![]));
    network.heal();
    assert_eq!(network.take_due(), [a.address(), b.address()]);
    assert_eq!(pass(&mut a, &mut b).len(), 2, "the link is up on both sides");

    partition();
    a.close(link, Close::Abort);
    network.take_due();
    assert_eq!((pass(&mut a, &mut b), network.take_due()), (vec![], vec![]));
    network.partition(&[&[groups[0][0], groups[1][0]]]);
    let down = LinkEvent::Down(LinkError::System(Errno::ECONNRESET));
    assert_eq!(pass(&mut a, &mut b), [down], "both are in one group");
    let (from, to) = (a.address(), b.address());
    let lines: Vec<String> = network.take_trace().iter().map(ToString::to_string).collect();
    assert_eq!(lines.first(), Some(&format!("0.000000 {from} -> {to} connects")));
    assert!(lines.last().is_some_and(|line| line.contains(" has ended: ")), "{lines:#?}");
}
