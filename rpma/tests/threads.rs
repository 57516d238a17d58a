//! The thread of a peer: when it starts and ends.
//!
//! The test counts the threads of the whole process, so its binary has no other test.

use std::fs;
use std::time::{Duration, Instant};

use homespun_rpma::{
    ConnectionConfig, ConnectionEvent, ConnectionRequest, DomainName, Endpoint, Peer, PeerAttr,
};

fn count_threads() -> usize {
    fs::read_dir("/proc/self/task").expect("Linux has it").count()
}

#[test]
fn peer_has_no_thread_before_its_first_connection_and_after_its_end() {
    let config = ConnectionConfig { timeout: Duration::from_secs(60), ..ConnectionConfig::default() };
    let others = count_threads();
    for domain in [DomainName::Tcp, DomainName::Shm, DomainName::Auto] {
        let open = || Peer::open(&PeerAttr { domain, ..PeerAttr::default() }).expect("the domain is offered");
        let (client_peer, server_peer) = (open(), open());
        let endpoint = Endpoint::listen(&server_peer, "127.0.0.1", 0).expect("an address of this host");
        let port = endpoint.address().port();
        let prepared =
            ConnectionRequest::new(&client_peer, "127.0.0.1", port, Some(&config)).expect("an address");
        assert_eq!(count_threads(), others, "{domain:?}");
        let client = prepared.connect(b"").expect("a valid request");
        assert_eq!(count_threads(), others + 1, "{domain:?}");
        let request = endpoint.next_connection_request(None).expect("a request");
        let server = request.connect(b"").expect("a request that waits");
        assert_eq!(count_threads(), others + 2, "{domain:?}");
        assert_eq!(client.next_event(), Ok(ConnectionEvent::Established));
        drop((client, server, client_peer, server_peer, endpoint));
        // The kernel may show a thread that was joined for a moment longer.
        let deadline = Instant::now() + Duration::from_secs(60);
        while count_threads() > others {
            assert!(Instant::now() < deadline, "{domain:?}: a thread is left");
            std::thread::yield_now();
        }
    }
}
