//! Several threads that wait for the events of one connection.

use std::thread;
use std::time::Duration;

use homespun_rpma::{
    ConnectionConfig, ConnectionEvent, ConnectionRequest, DomainName, Endpoint, Error, Peer, PeerAttr,
};

#[test]
fn last_event_ends_the_waits_of_all_threads() {
    let config = ConnectionConfig { timeout: Duration::from_secs(60), ..ConnectionConfig::default() };
    for domain in [DomainName::Tcp, DomainName::Shm, DomainName::Auto] {
        let open = || Peer::open(&PeerAttr { domain, ..PeerAttr::default() }).expect("the domain is offered");
        let (client_peer, server_peer) = (open(), open());
        let endpoint = Endpoint::listen(&server_peer, "127.0.0.1", 0).expect("an address of this host");
        let port = endpoint.address().port();
        let request =
            ConnectionRequest::new(&client_peer, "127.0.0.1", port, Some(&config)).expect("an address");
        let client = request.connect(b"").expect("a valid request");
        let request = endpoint.next_connection_request(None).expect("a request");
        let server = request.connect(b"").expect("a request that waits");
        for connection in [&client, &server] {
            assert_eq!(connection.next_event(), Ok(ConnectionEvent::Established), "{domain:?}");
        }
        let mut events = thread::scope(|scope| {
            let waits = [(); 3].map(|()| scope.spawn(|| client.next_event()));
            server.disconnect().expect("a connection");
            waits.map(|wait| wait.join().expect("a thread without a panic"))
        });
        events.sort_by_key(Result::is_err);
        let none = Err(Error::NoEvent);
        assert_eq!(events, [Ok(ConnectionEvent::Closed), none.clone(), none], "{domain:?}");
    }
}
