//! Links that come up, and connects that fail.

use std::array;

use homespun_engine::errno::Errno;
use homespun_engine::transport::{Close, LinkError, LinkId, Provider, Transport};

use crate::transport::{
    BUDGET_FRAMES, Backend, Event, TestEndpoint, drive_all_until, drive_until, pseudo_random_payload,
};

/// On both sides, [`LinkEvent::Up`](homespun_engine::transport::LinkEvent::Up) names the peer's address and
/// the peer's instance.
pub fn link_up_names_address_and_instance_of_the_peer<P: Provider>(backend: Backend<'_, P>) {
    let ([a, b], link, peer) = backend.open_linked_pair();
    assert_eq!(a.recorder.log(), [(link, Event::Up(b.address(), 22))]);
    assert_eq!(b.recorder.log(), [(peer, Event::Up(a.address(), 11))]);
}

/// Endpoints reach each other with every address format of the provider, from wildcard binds and from
/// specific binds.
pub fn endpoints_of_each_address_format_exchange_frames<P: Provider>(backend: Backend<'_, P>) {
    for format in backend.provider().attr().formats {
        let a = backend.open_endpoint_at(format.wildcard(), 11);
        let b = backend.open_endpoint_at(a.address().with_port(0), 22);
        let mut endpoints = [a, b];
        let addresses = endpoints.each_ref().map(TestEndpoint::address);
        for (from, to) in [(0, 1), (1, 0)] {
            let link = endpoints[from].connect(addresses[to]);
            endpoints[from].post(link, pseudo_random_payload(77, 1));
        }
        drive_until(&mut endpoints, "a frame each way", |endpoints| {
            endpoints.iter().all(|endpoint| endpoint.recorder.log().len() == 3)
        });
        for (endpoint, other) in endpoints.iter().zip([addresses[1], addresses[0]]) {
            assert!(endpoint.recorder.up_events().iter().all(|&(_, peer, _)| peer == other));
        }
    }
}

/// If two endpoints connect to each other at the same moment, both links come up and carry frames.
pub fn simultaneous_connects_make_two_links<P: Provider>(backend: Backend<'_, P>) {
    let mut endpoints = [backend.open_endpoint(11), backend.open_endpoint(22)];
    let addresses = endpoints.each_ref().map(TestEndpoint::address);
    let links = [endpoints[0].connect(addresses[1]), endpoints[1].connect(addresses[0])];
    for (endpoint, link) in endpoints.iter_mut().zip(links) {
        endpoint.post(link, pseudo_random_payload(3000, 1));
    }
    drive_until(&mut endpoints, "two links on both sides, and a frame each way", |endpoints| {
        endpoints.iter().all(|endpoint| endpoint.recorder.log().len() == 3)
    });
    for (endpoint, expected) in endpoints.iter().zip([(addresses[1], 22), (addresses[0], 11)]) {
        let ups = endpoint.recorder.up_events();
        assert!(ups.len() == 2 && ups.iter().all(|&(_, peer, instance)| (peer, instance) == expected));
    }
}

/// Each [`connect`](Transport::connect) makes a new link.
pub fn two_connects_to_one_peer_make_two_links<P: Provider>(backend: Backend<'_, P>) {
    let mut endpoints = [backend.open_endpoint(11), backend.open_endpoint(22)];
    let address = endpoints[1].address();
    let links = [endpoints[0].connect(address), endpoints[0].connect(address)];
    for (len_bytes, link) in [300, 400].into_iter().zip(links) {
        endpoints[0].post(link, pseudo_random_payload(len_bytes, 1));
    }
    drive_until(&mut endpoints, "both links, and a frame on each", |[a, b]| {
        a.recorder.live_link_count() == 2 && b.recorder.log().len() == 4
    });
    let [mut a, b] = endpoints;
    let frames = b.recorder.up_events().into_iter().map(|(link, ..)| b.recorder.payloads_of(link));
    let mut frames: Vec<Vec<&[u8]>> = frames.collect();
    frames.sort_by_key(|frames| frames[0].len());
    assert_eq!(frames, [[pseudo_random_payload(300, 1)], [pseudo_random_payload(400, 1)]]);

    a.close(links[0], Close::Drain);
    a.post(links[1], pseudo_random_payload(500, 1));
    drive_until(&mut [a, b], "the end of one link, and a frame on the other", |[a, b]| {
        b.recorder.log().len() == 6 && a.recorder.live_link_count() == 1
    });
}

/// An endpoint may connect to itself. Then each end of the link has a link number of its own.
pub fn endpoint_connects_to_itself<P: Provider>(backend: Backend<'_, P>) {
    let mut a = backend.open_endpoint(11);
    let address = a.address();
    let link = a.connect(address);
    a.post(link, pseudo_random_payload(9000, 1));
    a.drive_until("the frame", |a| a.recorder.log().len() == 3);
    let ups = a.recorder.up_events();
    assert_eq!(ups.len(), 2);
    assert!(ups.iter().all(|&(_, peer, instance)| (peer, instance) == (address, 11)));
    let other = ups.into_iter().map(|(id, ..)| id).find(|&id| id != link).expect("two numbers");
    assert_eq!(a.recorder.payloads_of(other), [pseudo_random_payload(9000, 1)]);
    a.close(link, Close::Drain);
    a.drive_until_down(other);
    assert_eq!(a.recorder.down_error(other), Some(&LinkError::Closed));
}

/// A connect to an address without an endpoint fails with ECONNREFUSED: [`receive`](Transport::receive)
/// reports the error. Until then, the caller may use the link. The link never comes up.
pub fn connect_to_a_vacant_address_fails_with_econnrefused<P: Provider>(backend: Backend<'_, P>) {
    let mut a = backend.open_endpoint(11);
    let vacant = backend.open_endpoint(22).address();
    let link = a.connect(vacant);
    a.post(link, pseudo_random_payload(10, 1));
    a.transmit();
    assert_eq!(a.recorder.log(), [], "reported by another call than receive");
    a.drive_until_down(link);
    let log = a.recorder.log();
    let [(ended, Event::Down(error))] = log else { panic!("not down once, or it was up: {log:?}") };
    assert_eq!((*ended, error.errno()), (link, Errno::ECONNREFUSED));
}

/// A new endpoint may open at the address of a closed endpoint, and accepts connects. Its instance
/// distinguishes it from the closed endpoint.
pub fn endpoint_reopened_at_an_address_has_its_own_instance<P: Provider>(backend: Backend<'_, P>) {
    let ([a, b], link, _) = backend.open_linked_pair();
    let address = b.address();
    drop(b);
    let mut endpoints = [a, backend.open_endpoint_at(address, 33)];
    drive_until(&mut endpoints, "the end of the first link", |[a, _]| a.recorder.down_error(link).is_some());
    let link = endpoints[0].connect(address);
    drive_until(&mut endpoints, "a link to the successor", |[a, b]| {
        a.recorder.live_link_count() == 1 && b.recorder.live_link_count() == 1
    });
    assert_eq!(endpoints[0].recorder.up_events().last(), Some(&(link, address, 33)));
}

/// A link of a closed endpoint comes up before the links to its successor at the same address, or as a link
/// that has [ended](homespun_engine::transport::LinkEvent::Up). Otherwise the engine would take the closed
/// endpoint for the later one.
pub fn link_of_a_closed_endpoint_comes_up_before_its_successors_or_ended<P: Provider>(
    backend: Backend<'_, P>,
) {
    /// So many passes complete whatever one side can do alone.
    const PASSES: usize = 100;
    let mut came_up = 0;
    for round in 0..20 {
        let [mut former, mut b] = [11, 22].map(|instance| backend.open_endpoint(instance));
        let address = former.address();
        former.connect(b.address());
        (0..PASSES).for_each(|_| former.make_progress());
        drop(former);
        let mut successor = backend.open_endpoint_at(address, 33);
        if round % 2 == 0 {
            b.connect(address);
        } else {
            successor.connect(b.address());
        }
        (0..PASSES).for_each(|_| successor.make_progress());
        let mut endpoints = [b, successor];
        drive_until(&mut endpoints, "no link but the successor's", |[b, successor]| {
            b.recorder.live_link_count() == 1 && successor.recorder.live_link_count() == 1
        });
        let [mut b, _successor] = endpoints;
        (0..PASSES).for_each(|_| b.make_progress());
        let instances = b.recorder.up_events().into_iter().map(|(.., instance)| instance);
        let (ended, current): (Vec<u64>, Vec<u64>) =
            instances.partition(|instance| b.recorder.has_come_up_ended(*instance));
        assert!(matches!(current[..], [11, 33] | [33]), "{current:?} came up in round {round}");
        came_up += usize::from(current.len() + ended.len() == 2);
    }
    assert!(came_up > 0, "no link of a closed endpoint has come up");
}

/// After [`stop_accepting`](Transport::stop_accepting) all connects to the endpoint fail, including
/// unfinished ones. Existing links continue. The method may be called twice.
pub fn stop_accepting_refuses_new_links_and_keeps_old_ones<P: Provider>(backend: Backend<'_, P>) {
    let (mut endpoints, link, peer) = backend.open_linked_pair();
    let address = endpoints[1].address();
    let waiting = endpoints[0].connect(address);
    endpoints[1].transport.stop_accepting();
    endpoints[1].transport.stop_accepting();
    let late = endpoints[0].connect(address);
    endpoints[0].post(link, pseudo_random_payload(5001, 1));
    drive_until(&mut endpoints, "two refusals, and a frame on the old link", |[a, b]| {
        [waiting, late].into_iter().all(|link| a.recorder.down_error(link).is_some())
            && b.recorder.frame_count(peer) == 1
    });
    let [a, b] = endpoints;
    assert_eq!((a.recorder.events_of(waiting).len(), a.recorder.events_of(late).len()), (1, 1), "never up");
    assert_eq!((a.recorder.down_error(link), b.recorder.up_events().len()), (None, 1));
    assert_eq!(b.address(), address);
}

/// If the acceptor never reports a link as up, the connector must not report it either, even if the acceptor
/// [stops accepting](Transport::stop_accepting) in between. Otherwise the connector's engine would see the
/// link break. The engine would then give up its other links to that endpoint, although the endpoint may
/// still close them in order.
pub fn link_unreported_by_the_acceptor_never_comes_up<P: Provider>(backend: Backend<'_, P>) {
    for passes in 0..4 {
        let mut endpoints = [backend.open_endpoint(11), backend.open_endpoint(22)];
        let address = endpoints[1].address();
        let link = endpoints[0].connect(address);
        endpoints[0].post(link, pseudo_random_payload(50, 1));
        let [a, b] = &mut endpoints;
        // The acceptor makes some passes before the connector's first pass, and no pass after that.
        for _ in 0..passes {
            b.receive(BUDGET_FRAMES);
            b.transmit();
        }
        for _ in 0..4 {
            a.receive(BUDGET_FRAMES);
            a.transmit();
        }
        b.transport.stop_accepting();
        let is_reported = b.recorder.live_link_count() == 1;
        drive_until(&mut endpoints, "the link to be up, or its end", |[a, _]| {
            !a.recorder.events_of(link).is_empty()
        });
        let events = endpoints[0].recorder.events_of(link);
        if is_reported {
            assert_eq!(events, [&Event::Up(address, 22)], "after {passes} passes");
        } else {
            assert!(matches!(events[..], [Event::Down(_)]), "{events:?} after {passes} passes");
        }
    }
}

/// A link that is connecting when its connector [stops accepting](Transport::stop_accepting) comes up: an
/// endpoint that accepts a connection begins a link to the requester, and takes no others from then on.
pub fn connecting_link_comes_up_after_stop_accepting<P: Provider>(backend: Backend<'_, P>) {
    let [mut a, b] = [backend.open_endpoint(11), backend.open_endpoint(22)];
    let link = a.connect(b.address());
    a.transport.stop_accepting();
    expect_link_and_frame([a, b], link);
}

/// After [`stop_accepting`](Transport::stop_accepting) an endpoint can still connect to others: it may have
/// messages for new peers while it is being closed.
pub fn connect_after_stop_accepting_succeeds<P: Provider>(backend: Backend<'_, P>) {
    let [mut a, b] = [backend.open_endpoint(11), backend.open_endpoint(22)];
    a.transport.stop_accepting();
    let link = a.connect(b.address());
    expect_link_and_frame([a, b], link);
}

/// Waits until the first endpoint's link is up, and a frame on it has arrived.
#[track_caller]
fn expect_link_and_frame<T: Transport>(mut endpoints: [TestEndpoint<T>; 2], link: LinkId) {
    endpoints[0].post(link, pseudo_random_payload(500, 1));
    drive_until(&mut endpoints, "the frame", |[a, b]| {
        b.recorder.log().len() == 2 && a.recorder.live_link_count() == 1
    });
}

/// Several endpoints with many links between them exchange frames in both directions. Every frame arrives on
/// its own link.
pub fn links_between_many_endpoints_carry_their_own_frames<P: Provider>(backend: Backend<'_, P>) {
    const CLIENTS: usize = 5;
    const LINKS_EACH: usize = 10;
    const ROUNDS: usize = 4;
    let mut endpoints: Vec<_> =
        (0..=CLIENTS).map(|instance| backend.open_endpoint(instance as u64)).collect();
    let address = endpoints[0].address();
    let mut links: Vec<(usize, LinkId)> = Vec::new();
    for (n, client) in endpoints.iter_mut().enumerate().skip(1) {
        links.extend((0..LINKS_EACH).map(|_| (n, client.connect(address))));
    }
    drive_all_until(&mut endpoints, "all links", |endpoints| {
        endpoints[0].recorder.live_link_count() == links.len()
            && endpoints[1..].iter().all(|client| client.recorder.live_link_count() == LINKS_EACH)
    });
    let ups = endpoints[0].recorder.up_events().into_iter();
    let accepted: Vec<_> = ups.map(|(link, _, instance)| (link, instance as usize)).collect();
    for round in 0..ROUNDS {
        for &(n, link) in &links {
            endpoints[n].post(link, pseudo_random_payload(10 + round * 700 + n, n as u64));
        }
        for &(link, n) in &accepted {
            endpoints[0].post(link, pseudo_random_payload(11 + round * 500 + n, n as u64));
        }
    }
    drive_all_until(&mut endpoints, "all frames", |endpoints| {
        accepted.iter().all(|&(link, _)| endpoints[0].recorder.frame_count(link) == ROUNDS)
            && links.iter().all(|&(n, link)| endpoints[n].recorder.frame_count(link) == ROUNDS)
    });
    let sent = |first_bytes: usize, step_bytes: usize, n: usize| -> [Vec<u8>; ROUNDS] {
        array::from_fn(|round| pseudo_random_payload(first_bytes + round * step_bytes + n, n as u64))
    };
    for &(link, n) in &accepted {
        assert_eq!(endpoints[0].recorder.payloads_of(link), sent(10, 700, n));
    }
    for &(n, link) in &links {
        assert_eq!(endpoints[n].recorder.payloads_of(link), sent(11, 500, n));
    }
}
