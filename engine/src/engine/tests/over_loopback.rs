//! Tests of engines over the loopback network, which cuts and delays bytes, breaks links and kills
//! endpoints.

use super::*;

/// If an operation has not ended after this many passes, something hangs.
pub(super) const PASSES_MAX: usize = 200_000;

type Node = super::Node<LoopbackTransport>;

fn open(network: &Network, instance: u64) -> Node {
    let mut node = Node::open(network, instance, untimed_config());
    // Large messages are pulled in many steps.
    node.engine.set_pull_step_max_bytes(7000);
    node
}

/// Makes passes over all nodes, one after the other, until `done` returns true.
fn progress_until(nodes: &mut [&mut Node], mut done: impl FnMut(&[&mut Node]) -> bool) {
    for _ in 0..PASSES_MAX {
        if done(nodes) {
            return;
        }
        for node in nodes.iter_mut() {
            node.progress(16);
        }
    }
    panic!("no end in sight");
}

pub(super) fn pattern(seed: u64, len_bytes: usize) -> Vec<u8> {
    (0..len_bytes as u64).map(|i| (i.wrapping_mul(31) ^ seed.wrapping_mul(131)) as u8).collect()
}

pub(super) const SIZES: [usize; 9] = [0, 1, 8, 100, 1000, 4096, 20_000, 65_537, 300_000];

/// Checks that whole messages were matched in the order of sending. They may have completed in
/// another order. The bytes of a message encode its number.
fn assert_no_message_overtook_another(node: &Node, seed: u64) {
    let mut completions: Vec<_> = node.sink.ended.iter().flatten().collect();
    completions.sort_unstable_by_key(|completion| completion.context);
    let mut last = None;
    for completion in completions {
        let Buffer::Received(bytes) = &completion.buffer else { panic!("an owned buffer") };
        if bytes.len() < 2 {
            continue;
        }
        let number = (0..30).filter(|n| [7, 8].iter().any(|kinds| SIZES[*n as usize % kinds] == bytes.len()));
        let number = number.into_iter().find(|n| pattern(*n, bytes.len()) == bytes[..]);
        let number = number.unwrap_or_else(|| panic!("seed {seed}: bytes that no endpoint sent"));
        assert!(last < Some(number), "seed {seed}: {number} came after {last:?}");
        last = Some(number);
    }
}

#[test]
fn kill_fails_sends_to_the_peer_and_its_successor_is_reached() {
    for seed in 0..50 {
        let network = Network::new(seed, Faults::choppy());
        let (mut a, mut b) = (open(&network, 1), open(&network, 2));
        let address = b.address();
        a.send(address, pattern(0, 10), 0, Level::Delivery);
        progress_until(&mut [&mut a, &mut b], |nodes| nodes[0].sink.ended.len() == 1);
        for context in 1..6 {
            a.send(address, pattern(context, 30_000), context, Level::Delivery);
        }
        for _ in 0..seed {
            a.progress(16);
            b.progress(16);
        }
        network.kill(address);
        progress_until(&mut [&mut a], |nodes| {
            network.is_quiet() && nodes[0].engine.outstanding_transmits() == 0
        });
        let mut contexts = a.sink.ended_contexts();
        contexts.sort_unstable();
        assert_eq!(contexts, [0, 1, 2, 3, 4, 5]);

        a.send(address, pattern(6, 10), 6, Level::Delivery);
        progress_until(&mut [&mut a], |nodes| nodes[0].engine.outstanding_transmits() == 0);
        let refused = a.sink.ended.last().unwrap().as_ref().unwrap_err();
        assert_eq!(refused.error.errno(), Errno::ECONNREFUSED, "seed {seed}");

        let mut again = Node {
            engine: Engine::new(untimed_config()),
            transport: network.open(address, 3).unwrap(),
            sink: Recorder::default(),
        };
        again.post_receive(receive_request(10, 1));
        a.send(address, pattern(7, 10), 7, Level::Delivery);
        progress_until(&mut [&mut a, &mut again], |nodes| nodes[0].engine.outstanding_transmits() == 0);
        assert!(a.sink.ended.last().unwrap().is_ok(), "seed {seed}");
        assert_eq!(again.sink.ended_contexts(), [1]);
    }
}

#[test]
fn sends_completed_before_orderly_close_arrive() {
    for seed in 0..50 {
        let network = Network::new(seed, Faults { prefer_send_per_mille: 300, ..Faults::choppy() });
        let (mut a, mut b) = (open(&network, 1), open(&network, 2));
        for context in 0..10 {
            a.send(b.address(), pattern(context, 3000), context, Level::Inject);
        }
        progress_until(&mut [&mut a, &mut b], |nodes| !nodes[0].engine.has_unsent());
        a.engine.close_links(&mut a.transport);
        b.post_receives(3000, 0..10);
        let Node { transport, .. } = &mut a;
        let (mut engine, mut sink) = (Engine::new(untimed_config()), Recorder::default());
        for _ in 0..PASSES_MAX {
            transport.flush();
            transport.receive(16, &mut engine.arrivals(&mut sink));
            b.progress(16);
            if transport.draining_count() == 0 && b.sink.ended.len() == 10 {
                break;
            }
        }
        // A message that is pulled may end after the next one.
        let mut received: Vec<_> = b.sink.ended.iter().flatten().collect();
        received.sort_unstable_by_key(|completion| completion.context);
        assert_eq!(received.len(), 10, "seed {seed}");
        for (context, completion) in (0..).zip(received) {
            let Buffer::Received(bytes) = &completion.buffer else { panic!("an owned buffer") };
            assert!(*bytes == pattern(context, 3000)[..], "seed {seed}: message {context}");
        }
    }
}

#[test]
fn unreadable_memory_fails_both_sides_and_no_other_operation() {
    for seed in 0..20 {
        let faults = Faults { refuse_pull_per_mille: 0, fault_pull_per_mille: 100, ..Faults::choppy() };
        let network = Network::new(seed, faults);
        let (mut a, mut b) = (open(&network, 1), open(&network, 2));
        let count = 30;
        for context in 0..count {
            b.post_receive(receive_request(65_537, context));
            a.send(b.address(), pattern(context, SIZES[context as usize % 8]), context, Level::Delivery);
        }
        progress_until(&mut [&mut a, &mut b], |nodes| nodes.iter().all(|node| node.sink.ended.len() == 30));
        let failed = |node: &Node| {
            let failures = node.sink.ended.iter().filter_map(|ended| ended.as_ref().err());
            let mut failed: Vec<_> =
                failures.map(|failure| (failure.completion.context, failure.error.clone())).collect();
            failed.sort_unstable_by_key(|(context, _)| *context);
            failed
        };
        assert_eq!(failed(&a), failed(&b), "seed {seed}");
        assert!(failed(&a).iter().all(|(_, error)| error.errno() == Errno::EFAULT), "seed {seed}");
        assert_no_message_overtook_another(&b, seed);
    }
}

#[test]
fn large_messages_arrive_with_and_without_pull() {
    let faults = |pull_min_bytes, refuse_pull_per_mille| Faults {
        pull_min_bytes,
        refuse_pull_per_mille,
        capacity_bytes: 4096,
        ..Faults::default()
    };
    let mut passes = Vec::new();
    for faults in [faults(Some(1000), 0), faults(Some(1000), 1000), faults(None, 0)] {
        let network = Network::new(1, faults);
        let (mut a, mut b) = (open(&network, 1), open(&network, 2));
        for context in 0..3 {
            b.post_receive(receive_request(300_000, context));
            a.send(b.address(), pattern(context, 300_000), context, Level::Inject);
        }
        let mut count = 0;
        progress_until(&mut [&mut a, &mut b], |nodes| {
            count += 1;
            nodes.iter().all(|node| node.sink.ended.len() == 3)
        });
        for (context, completion) in (0..).zip(b.sink.ended.iter().flatten()) {
            let Buffer::Received(bytes) = &completion.buffer else { panic!("an owned buffer") };
            assert!(*bytes == pattern(context, 300_000)[..]);
        }
        passes.push(count);
    }
    // In the first case, the three messages are pulled at once, 7000 bytes of each in a pass. In the other
    // two, the payload goes through a pipe that holds 4096 bytes.
    assert!(passes[0] < 60 && passes[1] > 200 && passes[2] > 200, "{passes:?}");
}
