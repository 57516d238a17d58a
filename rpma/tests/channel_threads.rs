//! Threads that post and read at the same time.

use std::thread;
use std::time::Duration;

use homespun_rpma::{
    ConnectionConfig, ConnectionEvent, ConnectionRequest, DomainName, Endpoint, Error, LocalSlice, Operation,
    Peer, PeerAttr, Report,
};

/// The peer posts no receive, so all messages wait at it.
const SENDS: u64 = 2_000;

#[test]
fn sends_are_posted_while_another_thread_reads_a_shared_channel() {
    let config = ConnectionConfig {
        timeout: Duration::from_secs(60),
        receive_completion_queue_size: 10,
        shared_completion_channel: true,
        ..ConnectionConfig::default()
    };
    let open = || {
        let attr = PeerAttr { domain: DomainName::Shm, ..PeerAttr::default() };
        Peer::open(&attr).expect("the domain is offered")
    };
    let (client_peer, server_peer) = (open(), open());
    let endpoint = Endpoint::listen(&server_peer, "127.0.0.1", 0).expect("an address of this host");
    let port = endpoint.address().port();
    let request = ConnectionRequest::new(&client_peer, "127.0.0.1", port, Some(&config)).expect("an address");
    let client = request.connect(b"").expect("a valid request");
    let _server = endpoint.next_connection_request(None).expect("a request").connect(b"").expect("it waits");
    assert_eq!(client.next_event(), Ok(ConnectionEvent::Established));
    thread::scope(|scope| {
        scope.spawn(|| {
            for context in 0..SENDS {
                while client.send(LocalSlice::EMPTY, Report::Always, context) == Err(Error::QueueFull) {
                    thread::yield_now();
                }
            }
        });
        for context in 0..SENDS {
            let sent = loop {
                match client.completion_queue().next() {
                    Err(Error::NoCompletion) => thread::yield_now(),
                    other => break other.expect("a completion"),
                }
            };
            assert_eq!((sent.op, sent.op_context), (Operation::Send, context));
        }
    });
}
