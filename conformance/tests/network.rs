//! Promises of the in-process network beyond the contract: its behaviour without faults, and the effect of
//! each fault.

use std::net::SocketAddr;

use homespun_conformance::transport::{
    Backend, Event, SIZES, TestEndpoint, drive_until, pseudo_random_payload,
};
use homespun_engine::address::{Address, AddressFormat};
use homespun_engine::errno::Errno;
use homespun_engine::loopback::{CAPACITY_MIN_BYTES, Faults, Network};
use homespun_engine::transport::{
    Close, FrameHandler, LinkError, LinkEvent, LinkId, Provider, Sent, Space, Transport,
};
use homespun_engine::wire::Header;

const RESET: LinkError = LinkError::System(Errno::ECONNRESET);

fn flawless_network() -> Network {
    Network::new(1, Faults::default())
}

fn parse_address(text: &str) -> Address {
    text.parse::<SocketAddr>().unwrap().into()
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
fn full_pipe_resumes_the_frame_where_it_stopped() {
    let network = flawless_network();
    network.set_faults(Faults { capacity_bytes: CAPACITY_MIN_BYTES, ..Faults::default() });
    let ([mut a, mut b], link, peer) = Backend::new(&network).open_linked_pair();
    let inline_max_bytes = a.transport.caps(link).inline_max_bytes;
    assert!(inline_max_bytes > 0 && inline_max_bytes < CAPACITY_MIN_BYTES as usize);
    a.post(link, pseudo_random_payload(1001, 1));
    for _ in 0..3 {
        a.transmit();
    }
    assert!(!a.has_sent_all());
    assert!(
        a.transport.send_inline(link, &Header::Ack { received: 7 }, &[]).is_err(),
        "a frame is unfinished"
    );
    assert_eq!(a.transport.send(link, &Header::Ack { received: 7 }, &[]), Sent::Full);
    assert_eq!(b.receive(1), 1);
    assert_eq!(
        a.transport.send(link, &Header::Ack { received: 7 }, &[]),
        Sent::Full,
        "a frame is unfinished, although there is room"
    );
    let mut turns = 1;
    while b.recorder.payloads_of(peer).is_empty() && turns < 10 {
        a.receive(9);
        a.transmit();
        b.receive(9);
        turns += 1;
    }
    assert_eq!(b.recorder.payloads_of(peer), [pseudo_random_payload(1001, 1)]);
    assert!(turns >= 1001 / CAPACITY_MIN_BYTES as usize);
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
fn equal_seeds_give_equal_traces() {
    let traces: Vec<_> = (0..6).map(trace_faulty_exchange).collect();
    assert_eq!(traces, (0..6).map(trace_faulty_exchange).collect::<Vec<_>>());
    for (at, one) in traces.iter().enumerate() {
        assert!(traces[..at].iter().all(|other| other != one), "two seeds gave the same trace");
    }
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
    assert!(
        errors.iter().all(|why| matches!(why, LinkError::System(_))),
        "no protocol was violated: {errors:?}"
    );
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
fn receive_budget_is_exact_and_shared_by_all_links() {
    let network = flawless_network();
    let mut b = TestEndpoint::open(&network, 22);
    let mut senders: Vec<_> = (0..4).map(|instance| TestEndpoint::open(&network, instance)).collect();
    for sender in &mut senders {
        let link = sender.connect(b.transport.address());
        sender.receive(1);
        for _ in 0..50 {
            sender.post(link, pseudo_random_payload(20, 1));
        }
        sender.transmit();
        assert!(sender.has_sent_all());
    }
    assert_eq!(b.receive(0), 0);
    assert_eq!(b.receive(4), 4);
    let ups: Vec<_> = b.recorder.up_events().into_iter().map(|(link, ..)| link).collect();
    assert_eq!((ups.len(), b.recorder.log().len()), (4, 4), "one event of each link");
    for round in 1..=25 {
        assert_eq!((b.receive(3), b.receive(5)), (3, 5));
        assert!(ups.iter().all(|&link| b.recorder.payloads_of(link).len() == 2 * round));
    }
    assert_eq!(b.receive(4), 0);
}

#[test]
fn drain_after_a_partly_taken_frame_resets_the_peer() {
    let network = Network::new(1, Faults { capacity_bytes: CAPACITY_MIN_BYTES, ..Faults::default() });
    let (mut endpoints, link, peer) = Backend::new(&network).open_linked_pair();
    endpoints[0].post(link, pseudo_random_payload(1001, 1));
    endpoints[0].transmit();
    endpoints[0].close(link, Close::Drain);
    drive_until(&mut endpoints, "the peer knows", |[_, b]| b.recorder.down_error(peer) == Some(&RESET));
}

#[test]
fn drain_flushes_unsent_frames() {
    let network = flawless_network();
    let ([mut a, mut b], link, peer) = Backend::new(&network).open_linked_pair();
    assert_eq!(a.transport.send_inline(link, &Header::Ack { received: 7 }, &[]), Ok(()));
    a.close(link, Close::Drain);
    assert_eq!(a.transport.draining_count(), 1);
    assert_eq!(b.receive(9), 2);
    assert_eq!(b.recorder.payloads_of(peer), [b""]);
    assert_eq!((b.recorder.down_error(peer), a.transport.draining_count()), (Some(&LinkError::Closed), 0));
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

#[test]
fn closed_link_frees_its_id() {
    let network = flawless_network();
    let ([mut a, b], link, _) = Backend::new(&network).open_linked_pair();
    a.close(link, Close::Drain);
    assert_eq!(a.connect(b.transport.address()), link);
    let mut endpoints = [a, b];
    drive_until(&mut endpoints, "the new link is up", |[a, _]| a.recorder.up_events().len() == 2);
}

#[test]
fn close_of_a_connecting_link_leaves_no_state() {
    for (how, receives) in [(Close::Drain, 0), (Close::Abort, 0), (Close::Drain, 1), (Close::Abort, 1)] {
        let network = flawless_network();
        let [mut a, mut b] = [TestEndpoint::open(&network, 11), TestEndpoint::open(&network, 22)];
        let link = a.connect(b.transport.address());
        for _ in 0..receives {
            a.receive(9);
        }
        a.close(link, how);
        assert_eq!(a.receive(9), 0);
        b.receive(9);
        assert_eq!(b.recorder.log().len(), 2 * receives, "up and down if the hello was out, nothing else");
        assert!(network.is_quiet());
        assert_eq!(a.transport.draining_count(), 0);
    }
}

#[test]
fn wildcard_bind_resolves_to_a_specific_address() {
    let network = flawless_network();
    let open = |text| network.open(parse_address(text), 1);
    let v4 = network.open(AddressFormat::SockaddrIn.wildcard(), 1).unwrap();
    let v6 = network.open(AddressFormat::SockaddrIn6.wildcard(), 1).unwrap();
    assert_eq!(v4.address(), parse_address("127.0.0.1:49152"));
    assert_eq!(v6.address(), parse_address("[::1]:49153"));
    assert_eq!(open("10.0.0.1:0").unwrap().address(), parse_address("10.0.0.1:49154"));
    let fixed = open("0.0.0.0:7").unwrap();
    assert_eq!(fixed.address(), parse_address("127.0.0.1:7"));
    assert_eq!(open("127.0.0.1:7").err(), Some(Errno::EADDRINUSE));
}

/// A frame handler that calls the network from its callbacks.
struct Killer(Network, Address);

impl FrameHandler for Killer {
    fn frame(&mut self, _: LinkId, _: &Header, _: &[u8]) {
        self.0.kill(self.1);
    }
    fn frame_begun(&mut self, _: LinkId, _: &Header) {}
    fn payload_space(&mut self, _: LinkId) -> Space<'_> {
        self.0.is_quiet();
        Space::new()
    }
    fn bytes_placed(&mut self, _: LinkId, _: usize) {}
    fn payload_arrived(&mut self, _: LinkId, _: &[u8]) {}
    fn link_event(&mut self, _: LinkId, _: LinkEvent) {}
    fn link_writable(&mut self, _: LinkId) {}
}

#[test]
fn frame_handler_may_call_the_network() {
    let network = flawless_network();
    let ([mut a, mut b], link, _) = Backend::new(&network).open_linked_pair();
    a.post(link, pseudo_random_payload(10, 1));
    a.post(link, pseudo_random_payload(20, 1));
    a.transmit();
    let mut killer = Killer(network.clone(), b.transport.address());
    assert_eq!(b.transport.receive(9, &mut killer), 1, "the first frame kills, the second is not reported");
    drive_until(&mut [a], "the link is down", |[a]| a.recorder.down_error(link) == Some(&RESET));
}
