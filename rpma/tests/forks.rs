//! Peers that are opened before a fork, and used after it.
//!
//! The test forks, so its binary has no other test.

use std::time::Duration;

use homespun_rpma::{
    Connection, ConnectionConfig, ConnectionEvent, ConnectionRequest, DomainName, Endpoint, LocalSlice,
    Operation, Peer, PeerAttr, Report, Status,
};
use homespun_suite::posix::run_in_forked_child;

/// Connects a peer with itself.
fn connect(peer: &Peer) -> (Connection, Connection) {
    let config = ConnectionConfig { timeout: Duration::from_secs(60), ..ConnectionConfig::default() };
    let endpoint = Endpoint::listen(peer, "127.0.0.1", 0).expect("an address of this host");
    let request = ConnectionRequest::new(peer, "127.0.0.1", endpoint.address().port(), Some(&config));
    let client = request.expect("an address").connect(b"").expect("a valid request");
    let request = endpoint.next_connection_request(None).expect("a request");
    request.recv(LocalSlice::EMPTY, 1).expect("room for a receive");
    let server = request.connect(b"").expect("a request that waits");
    assert_eq!(client.next_event(), Ok(ConnectionEvent::Established));
    (client, server)
}

fn send_a_message(client: &Connection, server: &Connection) {
    client.send(LocalSlice::EMPTY, Report::Always, 2).expect("room for a send");
    server.completion_queue().wait().expect("a message");
    let received = server.completion_queue().next().expect("the wait has ended");
    assert_eq!((received.op, received.status), (Operation::Recv, Status::Success));
    client.disconnect().expect("a connection");
    assert_eq!(client.next_event(), Ok(ConnectionEvent::Closed));
}

#[test]
fn peer_opened_before_a_fork_connects_in_both_processes() {
    for domain in [DomainName::Tcp, DomainName::Shm, DomainName::Auto] {
        let attr = PeerAttr { domain, ..PeerAttr::default() };
        let peer = Peer::open(&attr).expect("the domain is offered");
        let use_peer = || {
            let (client, server) = connect(&peer);
            send_a_message(&client, &server);
        };
        run_in_forked_child(use_peer);
        use_peer();
        // A peer that has a thread in the parent gets one in the child, too.
        run_in_forked_child(use_peer);
        use_peer();
    }
}
