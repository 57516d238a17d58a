//! Tests of connections over links that cut and delay bytes and break, and of endpoints that die.

use super::*;

/// If a connection has not ended after this many passes, something hangs.
const PASSES_MAX: usize = 200_000;

type Node = crate::engine::tests::Node<LoopbackTransport>;

fn open(network: &Network, instance: u64, role: EndpointRole) -> Node {
    Node::open(network, instance, Config { role, ..untimed_config() })
}

#[test]
fn connecting_under_faults_ends_with_both_sides_or_neither_connected() {
    let mut connections = 0;
    for seed in 0..300 {
        let network = Network::new(seed, Faults::nasty());
        let mut listener = open(&network, 1, EndpointRole::Passive);
        let mut requester = open(&network, 2, EndpointRole::Connected);
        let mut acceptor = open(&network, 3, EndpointRole::Connected);
        listener.engine.listen(Some(1)).unwrap();
        let Node { engine, transport, sink } = &mut requester;
        engine.connect(listener.address(), seed, &[seed as u8; 200], None, transport, sink).unwrap();
        transport.flush();
        let mut request = None;
        let mut connected = [false; 2];
        let mut ended = [false; 2];
        for _ in 0..PASSES_MAX {
            for node in [&mut listener, &mut requester, &mut acceptor] {
                node.progress(16);
            }
            if let Some(ConnectionReport::Requested(asked)) = listener.sink.events.pop() {
                listener.engine.mark_request_being_accepted(asked.id);
                acceptor.engine.accept(asked.from, b"welcome", &mut acceptor.transport).unwrap();
                request = Some(asked);
            }
            for (n, node) in [&mut requester, &mut acceptor].into_iter().enumerate() {
                for event in node.sink.events.drain(..) {
                    match event {
                        ConnectionReport::Connected { .. } => connected[n] = true,
                        ConnectionReport::Failed(_) | ConnectionReport::Shutdown(_) => ended[n] = true,
                        ConnectionReport::Confirmed => assert!(n == 1 && connected[1]),
                        ConnectionReport::Requested(_) | ConnectionReport::Withdrawn(_) => {
                            panic!("only the listener gets requests")
                        }
                    }
                }
            }
            // End the request once the acceptor is connected, or has failed.
            if (connected[1] || ended[1])
                && let Some(request) = request.take()
            {
                listener.engine.end_accepted_request(request.id, &mut listener.transport, &mut listener.sink);
            }
            let acceptor_is_fresh = !connected[1] && !ended[1];
            if ended[0] && (ended[1] || acceptor_is_fresh && request.is_none()) {
                break;
            }
            if connected == [true; 2] && ended == [false; 2] {
                connections += 1;
                network.break_links_between(requester.transport.address(), acceptor.transport.address());
                network.set_faults(Faults::default());
            }
        }
        assert!(ended[0], "seed {seed}: {connected:?} {ended:?}");
        assert!(!connected[1] || ended[1], "seed {seed}: {connected:?} {ended:?}");
    }
    assert!(connections > 100, "{connections}");
}
