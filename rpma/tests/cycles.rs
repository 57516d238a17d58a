//! Ten thousand connections that are made and ended: they leave no descriptor, no mapping and no memory
//! behind.
//!
//! The test counts the resources of the whole process, so its binary has no other test.

use std::thread;
use std::time::Duration;

use homespun_rpma::{
    Connection, ConnectionConfig, ConnectionEvent, ConnectionRequest, DomainName, Endpoint, LocalSlice, Peer,
    PeerAttr, Report, Status,
};
use homespun_suite::process_resources::{MemoryUsage, ProcessResources};

/// The number of connections over each transport. The kernel keeps the ports of several sockets of a
/// connection over TCP for a minute, so there are fewer: other tests need ports, too.
const CYCLES: [(DomainName, u64); 2] = [(DomainName::Shm, 9000), (DomainName::Tcp, 1000)];

/// The number of connections before the first measurement. They fill caches.
const FIRST_CYCLES: u64 = 200;

/// The most that the memory of the process may grow.
const GROWTH_MAX_BYTES: u64 = 4096;

/// Runs the cycles in threads of their own: the C library counts what it caches for a thread as used, until
/// the thread ends.
fn run_cycles(domain: DomainName, cycles: u64) {
    thread::spawn(move || make_and_end_connections(domain, cycles)).join().expect("no cycle fails");
}

/// Makes and ends connections, by both sides in turn.
fn make_and_end_connections(domain: DomainName, cycles: u64) {
    let open = || Peer::open(&PeerAttr { domain, ..PeerAttr::default() }).expect("the domain is offered");
    // The machine may be busy.
    let config = ConnectionConfig { timeout: Duration::from_secs(60), ..ConnectionConfig::default() };
    let (client_peer, server_peer) = (open(), open());
    let endpoint = Endpoint::listen(&server_peer, "127.0.0.1", 0).expect("an address of this host");
    let port = endpoint.address().port();
    thread::scope(|scope| {
        scope.spawn(|| {
            for cycle in 0..cycles {
                let request = endpoint.next_connection_request(None).expect("a request");
                request.recv(LocalSlice::EMPTY, cycle).expect("room for a receive");
                let server = request.connect(b"welcome").expect("a request that waits");
                run_connection(&server, cycle, cycle % 2 == 0);
            }
        });
        for cycle in 0..cycles {
            let request = ConnectionRequest::new(&client_peer, "127.0.0.1", port, Some(&config));
            let request = request.expect("an address");
            request.recv(LocalSlice::EMPTY, cycle).expect("room for a receive");
            let client = request.connect(b"hello").expect("a valid request");
            run_connection(&client, cycle, cycle % 2 == 1);
        }
    });
}

fn run_connection(connection: &Connection, cycle: u64, ends_first: bool) {
    assert_eq!(connection.next_event(), Ok(ConnectionEvent::Established), "{cycle}");
    connection.send(LocalSlice::EMPTY, Report::Always, cycle).expect("a connection");
    // The send and the receive, in any order.
    for _ in 0..2 {
        connection.completion_queue().wait().expect("neither is lost");
        let ended = connection.completion_queue().next().expect("the wait has ended");
        assert_eq!((ended.op_context, ended.status), (cycle, Status::Success));
    }
    if ends_first {
        connection.disconnect().expect("a connection");
    }
    assert_eq!(connection.next_event(), Ok(ConnectionEvent::Closed), "{cycle}");
}

#[test]
fn ten_thousand_connections_leave_nothing_behind() {
    for (domain, cycles) in CYCLES {
        run_cycles(domain, FIRST_CYCLES);
        let (resources, memory) = (ProcessResources::measure_now(), MemoryUsage::measure_now());
        run_cycles(domain, cycles);
        assert_eq!(ProcessResources::measure_now(), resources, "{domain:?}");
        let grown = MemoryUsage::measure_now().heap_bytes.saturating_sub(memory.heap_bytes);
        assert!(grown <= GROWTH_MAX_BYTES, "{domain:?}: the heap has grown by {grown} bytes");
    }
}
