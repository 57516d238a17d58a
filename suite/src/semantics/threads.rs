//! Endpoints that each have a thread of their own, and endpoints that several threads share.

use super::prelude::*;

#[over(all)]
fn two_threads_flood_each_other(net: &Net) {
    let count = 400;
    let window = 16;
    let len_bytes = |n: u64| (n as usize * 37) % 300 * if n.is_multiple_of(16) { 300 } else { 1 };
    let (alice, bob) = net.open_equal_pair(Setup::asleep());
    let flood = |party: Party| {
        let (mut posted, mut sent, mut taken) = (0, 0, 0);
        let mut sends_ended = 0;
        let mut seen = BTreeSet::new();
        let deadline = Deadline::new();
        while taken < count || sends_ended < count {
            while posted < count && posted - taken < window {
                party.endpoint.recv(marked_buffer(90_000), ANY, posted).unwrap();
                posted += 1;
            }
            while sent < count && sent - sends_ended < window {
                party.endpoint.send(payload(sent, len_bytes(sent)), party.peer(), sent).unwrap();
                sent += 1;
            }
            match party.poll_completion() {
                Some(ended) => {
                    let (completion, _) = ended.expect("no operation fails");
                    if completion.flags.contains(CompletionFlags::SEND) {
                        sends_ended += 1;
                    } else {
                        // Receives match in order, but may complete in another order.
                        let n = completion.context;
                        assert!(n < posted && seen.insert(n), "a receive that was not posted, or has ended");
                        assert!(received_bytes(&completion.buffer) == payload(n, len_bytes(n)));
                        taken += 1;
                    }
                }
                None => deadline.yield_or_panic("the flood"),
            }
        }
        party
    };
    thread::scope(|scope| {
        let threads = [alice, bob].map(|party| scope.spawn(|| flood(party)));
        // Each party runs until it has received everything, and stays open until both have.
        let [alice, bob] = threads.map(|thread| thread.join().expect("the flood was checked"));
        start_driving_both(net, [&alice, &bob]);
    });
}

/// Each endpoint's transmit queue is the other endpoint's receive queue. Two threads drive the queues. A
/// thread must not hold one queue while it waits for the other.
#[over(one_process)]
fn queues_shared_crosswise_do_not_deadlock(net: &Net) {
    let domain = net.open_other_domain();
    let [one, other] = [(); 2].map(|()| domain.open_cq(&CqAttr::default()).unwrap());
    let open = |transmit: &CompletionQueue, receive: &CompletionQueue| {
        let cqs = [(transmit, BindFlags::TRANSMIT), (receive, BindFlags::RECV)];
        let opened = open_endpoint_with_queues(&domain, net.info(), &cqs);
        opened.0.enable().unwrap();
        opened
    };
    let (alice, alice_av) = open(&one, &other);
    let (bob, bob_av) = open(&other, &one);
    let to_bob = alice_av.insert_one(bob.name().unwrap()).unwrap();
    let to_alice = bob_av.insert_one(alice.name().unwrap()).unwrap();
    let messages = 300;
    let (deadline, ended) = (Deadline::new(), AtomicUsize::new(0));
    let play = |endpoint: &Endpoint, to: FabricAddress, cq: &CompletionQueue| {
        let mut posted = 0;
        while posted < messages || ended.load(Ordering::Relaxed) < 4 * messages {
            if posted < messages {
                endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
                let buffers = vec![payload(posted as u64, 8)];
                let flags = OpFlags::DELIVERY_COMPLETE;
                endpoint.sendmsg(SendMsg { buffers, to, context: 2, flags, ..SendMsg::default() }).unwrap();
                posted += 1;
            }
            if cq.read().unwrap().is_some() {
                ended.fetch_add(1, Ordering::Relaxed);
            }
            deadline.yield_or_panic("operations that report to crossed queues");
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| play(&alice, to_bob, &one));
        play(&bob, to_alice, &other);
    });
}
