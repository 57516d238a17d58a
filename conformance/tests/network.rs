//! Promises of the in-process network beyond the contract: its behaviour without faults, and the effect of
//! each fault.

use homespun_conformance::transport::{
    Backend, Event, SIZES, TestEndpoint, drive_until, pseudo_random_payload,
};
use homespun_engine::errno::Errno;
use homespun_engine::loopback::{Faults, Network};
use homespun_engine::transport::{Close, LinkError, LinkId, Provider, Sent, Transport};
use homespun_engine::wire::Header;

const RESET: LinkError = LinkError::System(Errno::ECONNRESET);

fn flawless_network() -> Network {
    Network::new(1, Faults::default())
}

#[test]
fn flushed_frame_arrives_at_the_next_receive() {
    let network = flawless_network();
    let [mut a, mut b] = [TestEndpoint::open(&network, 11), TestEndpoint::open(&network, 22)];
    let link = a.connect(b.transport.address());
    a.post(link, pseudo_random_payload(10, 1));
    a.transmit();
    assert_eq!((a.has_sent_all(), b.receive(9)), (false, 0), "full until connected");
    assert_eq!(a.receive(9), 1, "the connection is made: the link takes frames");
    a.transmit();
    assert!(a.has_sent_all());
    assert_eq!(b.receive(9), 2, "up, and the frame");
    assert_eq!(a.receive(9), 1, "up");
    assert!(network.is_quiet());
}

#[test]
fn unflushed_frame_does_not_arrive() {
    let network = flawless_network();
    let ([mut a, mut b], link, _) = Backend::new(&network).open_linked_pair();
    assert_eq!(a.transport.send_inline(link, &Header::Ack { received: 7 }, &[]), Ok(()));
    assert_eq!(b.receive(9), 0);
    assert!(!network.is_quiet());
    a.transport.flush();
    assert_eq!(b.receive(9), 1);
    assert!(network.is_quiet());
}

#[test]
fn choppy_network_uses_spaces_chunks_and_refusals() {
    let network = Network::new(5, Faults::choppy());
    let ([a, b], link, peer) = Backend::new(&network).open_linked_pair();
    let mut endpoints = [a, b];
    for size in SIZES {
        endpoints[0].post(link, pseudo_random_payload(size, 1));
    }
    drive_until(&mut endpoints, "all arrived", |[_, b]| b.recorder.payloads_of(peer).len() == SIZES.len());
    let (placed, chunks) = endpoints[1].recorder.placed_and_chunk_counts();
    assert!(placed > 10 && chunks > 10);
    assert!(endpoints[0].refusal_count() > 10);
}

/// Returns the events of two endpoints that communicate over a network with all faults.
fn trace_faulty_exchange(seed: u64) -> Vec<(usize, LinkId, Event)> {
    let network = Network::new(seed, Faults::nasty());
    let mut endpoints = [TestEndpoint::open(&network, 11), TestEndpoint::open(&network, 22)];
    let addresses = [endpoints[0].transport.address(), endpoints[1].transport.address()];
    let mut seen = [0, 0];
    let mut trace = Vec::new();
    let mut links = [None, None];
    for round in 0..300 {
        for (at, endpoint) in endpoints.iter_mut().enumerate() {
            let link = *links[at].get_or_insert_with(|| endpoint.connect(addresses[1 - at]));
            endpoint.post(link, pseudo_random_payload(round * 7 % 900, seed));
            endpoint.transmit();
            endpoint.receive(16);
            for (id, event) in &endpoint.recorder.log()[seen[at]..] {
                if *id == link && matches!(event, Event::Down(_)) {
                    links[at] = None;
                }
                trace.push((at, *id, event.clone()));
            }
            seen[at] = endpoint.recorder.log().len();
        }
    }
    trace
}

#[test]
fn nasty_network_fails_links_and_corrupts_no_frame() {
    let mut errors = Vec::new();
    for seed in 0..20 {
        for (_, _, event) in trace_faulty_exchange(seed) {
            match event {
                Event::Down(why) => errors.push(why),
                Event::Frame(header, bytes) => {
                    assert_eq!(bytes, pseudo_random_payload(bytes.len(), seed));
                    assert_eq!(header.payload_len_bytes(), bytes.len() as u64);
                }
                Event::Up(..) => {}
            }
        }
    }
    assert!(errors.contains(&RESET) && errors.contains(&LinkError::System(Errno::ECONNREFUSED)));
    let is_of_system = |why: &LinkError| matches!(why, LinkError::System(_));
    assert!(errors.iter().all(is_of_system), "no protocol was violated: {errors:?}");
}

#[test]
fn broken_link_delivers_frames_in_flight_before_link_down() {
    let network = flawless_network();
    let (mut endpoints, link, peer) = Backend::new(&network).open_linked_pair();
    let addresses = [endpoints[0].transport.address(), endpoints[1].transport.address()];
    endpoints[0].post(link, pseudo_random_payload(40, 1));
    endpoints[0].transmit();
    assert_eq!(network.break_links_between(addresses[1], addresses[0]), 1);
    assert_eq!(network.break_links_between(addresses[0], addresses[1]), 0, "the link was already broken");
    drive_until(&mut endpoints, "both know", |[a, b]| {
        a.recorder.down_error(link) == Some(&RESET) && b.recorder.down_error(peer) == Some(&RESET)
    });
    assert_eq!(endpoints[1].recorder.payloads_of(peer), [pseudo_random_payload(40, 1)]);
    assert!(network.is_quiet());
}

#[test]
fn abort_with_loss_fault_drops_frames_in_flight() {
    let mut arrived = Vec::new();
    for seed in 0..40 {
        let network = Network::new(seed, Faults { lose_per_mille: 1000, ..Faults::default() });
        let (mut endpoints, link, peer) = Backend::new(&network).open_linked_pair();
        for _ in 0..3 {
            endpoints[0].post(link, pseudo_random_payload(100, 1));
        }
        endpoints[0].transmit();
        endpoints[0].close(link, Close::Abort);
        drive_until(&mut endpoints, "the peer knows", |[_, b]| b.recorder.down_error(peer) == Some(&RESET));
        arrived.push(endpoints[1].recorder.payloads_of(peer).len());
    }
    assert!((0..3).all(|count| arrived.contains(&count)), "{arrived:?}");
}

#[test]
fn killed_endpoint_resets_its_links_and_frees_its_address() {
    let network = flawless_network();
    let ([mut a, mut b], link, peer) = Backend::new(&network).open_linked_pair();
    let address = b.transport.address();
    b.post(peer, pseudo_random_payload(40, 2));
    b.transmit();
    assert!(network.kill(address));
    assert!(!network.kill(address));
    assert_eq!((b.receive(9), b.transport.draining_count(), b.transport.address()), (0, 0, address));
    assert_eq!(b.transport.send(peer, &Header::Ack { received: 1 }, &[]), Sent::Full);
    b.connect(a.transport.address());
    assert_eq!(b.receive(9), 0);

    let late = a.connect(address);
    assert_eq!(a.receive(9), 3);
    assert_eq!(a.recorder.payloads_of(link), [pseudo_random_payload(40, 2)]);
    assert_eq!(a.recorder.down_error(link), Some(&RESET));
    assert_eq!(a.recorder.down_error(late), Some(&LinkError::System(Errno::ECONNREFUSED)));

    let successor = network.open(address, 33).expect("the address is free");
    drop(b);
    assert_eq!(successor.address(), address);
    assert!(network.kill(address), "dropping the dead transport closed its successor");
    assert!(network.is_quiet());
}

#[test]
fn refuse_fault_refuses_connects_at_random() {
    let network = Network::new(2, Faults { refuse_per_mille: 500, ..Faults::default() });
    let [mut a, b] = [TestEndpoint::open(&network, 11), TestEndpoint::open(&network, 22)];
    let links: Vec<_> = (0..40).map(|_| a.connect(b.transport.address())).collect();
    a.receive(100);
    let refused = links.iter().filter(|&&link| a.recorder.down_error(link).is_some()).count();
    assert!((10..30).contains(&refused), "{refused} of 40");
}

#[test]
fn delay_fault_holds_frames_for_one_to_max_calls() {
    let faults = Faults { delay_per_mille: 1000, delay_max_calls: 4, ..Faults::default() };
    let network = Network::new(2, faults);
    let ([mut a, mut b], link, peer) = Backend::new(&network).open_linked_pair();
    let mut waits = Vec::new();
    for size in 1..30 {
        a.post(link, pseudo_random_payload(size, 1));
        a.transmit();
        let wait = (0..9).find(|_| b.receive(9) > 0).expect("it arrives");
        waits.push(wait);
    }
    assert_eq!(b.recorder.payloads_of(peer).len(), 29);
    assert!((1..=4).all(|calls| waits.contains(&calls)), "{waits:?}");
    assert!(waits.iter().all(|wait| (1..=4).contains(wait)), "{waits:?}");
}

#[test]
fn break_of_a_draining_link_ends_the_drain_and_resets_the_peer() {
    let network = flawless_network();
    let ([mut a, mut b], link, peer) = Backend::new(&network).open_linked_pair();
    a.close(link, Close::Drain);
    assert_eq!(a.transport.draining_count(), 1);
    assert_eq!(network.break_links_between(a.transport.address(), b.transport.address()), 1);
    assert_eq!(a.transport.draining_count(), 0);
    assert_eq!(b.receive(9), 1);
    assert_eq!(b.recorder.down_error(peer), Some(&RESET));
}

#[test]
fn link_lost_inside_its_hello_is_not_reported() {
    let mut events = Vec::new();
    for seed in 0..40 {
        let network = Network::new(seed, Faults { lose_per_mille: 500, ..Faults::default() });
        let [mut a, mut b] = [TestEndpoint::open(&network, 11), TestEndpoint::open(&network, 22)];
        let link = a.connect(b.transport.address());
        a.receive(9);
        a.close(link, Close::Abort);
        b.receive(9);
        assert!(network.is_quiet());
        events.push(b.recorder.log().len());
    }
    assert!(events.contains(&0) && events.contains(&2) && !events.contains(&1), "{events:?}");
}
