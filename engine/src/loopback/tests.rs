use crate::address::AddressFormat;
use crate::errno::Errno;
use crate::loopback::{Faults, LoopbackTransport, Network};
use crate::transport::{FrameHandler, LinkError, LinkEvent, LinkId, Provider, Space, Transport};
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
    assert!(drain_link_events(&mut a).is_empty() && drain_link_events(&mut b).is_empty());
    assert_eq!(network.received_count(), 2);
}
