//! How large the rings of an endpoint are.

use homespun_conformance::transport::{TestEndpoint, drive_until};
use homespun_engine::transport::{Close, LinkId};

use crate::ShmProvider;
use crate::limits::LARGE_RINGS_MAX;
use crate::link::Slot;
use crate::transport::ShmTransport;

/// Whether the ring of a link has a large data area: this side's ring, and the peer's.
fn are_rings_large(transport: &ShmTransport, id: LinkId) -> [bool; 2] {
    let Some(Slot::Made(link)) = transport.links.get(id) else { panic!("{id:?} is no link") };
    let (outgoing, incoming) = (link.outgoing.as_ref().unwrap(), link.incoming.as_ref().unwrap());
    [outgoing.is_ring_large(), incoming.ring.is_data_area_large()]
}

#[test]
fn further_rings_are_small_until_a_large_one_ends() {
    let provider = ShmProvider::new();
    let mut endpoints = [TestEndpoint::open(&provider, 1), TestEndpoint::open(&provider, 2)];
    let address = endpoints[1].address();
    let links: Vec<LinkId> = (0..LARGE_RINGS_MAX + 2).map(|_| endpoints[0].connect(address)).collect();
    let await_links = |endpoints: &mut [TestEndpoint<ShmTransport>; 2], count: usize| {
        drive_until(endpoints, "the links", |endpoints| {
            endpoints.iter().all(|endpoint| endpoint.recorder.live_link_count() == count)
        });
    };
    await_links(&mut endpoints, links.len());
    let mut found = links.iter().map(|id| are_rings_large(&endpoints[0].transport, *id));
    assert!(found.by_ref().take(LARGE_RINGS_MAX).all(|[own, _]| own));
    assert!(found.all(|[own, _]| !own));
    let peers = links.iter().filter(|id| are_rings_large(&endpoints[0].transport, **id)[1]);
    assert_eq!(peers.count(), LARGE_RINGS_MAX, "the peer sizes its own rings");

    endpoints[0].close(links[0], Close::Abort);
    let next = [(); 2].map(|()| endpoints[0].connect(address));
    await_links(&mut endpoints, links.len() + 1);
    let [first, second] = next.map(|id| are_rings_large(&endpoints[0].transport, id)[0]);
    assert!(first && !second, "one large ring has ended");
}
