//! Checks that closed endpoints return all their descriptors and mappings to the system.
//!
//! The test counts descriptors and mappings of the whole process, so its binary has no other test.

use std::time::Duration;

use homespun::wait::WaitError;
use homespun::{FabricAddress, Tag, WaitObject};

use homespun_suite::TransportKind::{self, Auto4, Shm4, Shm6, Tcp4, Tcp6};
use homespun_suite::connecting::{
    Side, ask, close_with_progress, next_completion_of_first_side, next_event_of_first_side,
};
use homespun_suite::payload::{marked_buffer, payload};
use homespun_suite::process_resources::ProcessResources;
use homespun_suite::sleeping::WAIT_OBJECTS;
use homespun_suite::{Net, Setup, Turns};

/// Connects endpoints in both directions, each also to itself and to an address without a listener. Some of
/// the messages are never received.
fn use_an_endpoint_briefly(transport: &TransportKind) {
    let net = Net::new(transport, Turns::Alternate);
    let unnamed = net.open_other_domain().endpoint(net.info()).expect("an endpoint");
    unnamed.name().expect("it has one, and never uses it");
    let vacancy = net.reserve_vacant_address();
    let parties: Vec<_> = (0..4).map(|_| net.open_party()).collect();
    for party in &parties {
        for other in &parties {
            party.insert_address_of(other);
        }
        let absent = party.insert(vacancy.address);
        for to in (0..parties.len() as u64).map(FabricAddress) {
            party.post_receives([1], 1000);
            party.endpoint.send(payload(1, 1000), to, 2).expect("room for a send");
            party.endpoint.tsend(payload(1, 50_000), to, Tag(3), 2).expect("room for a send");
        }
        party.endpoint.send(payload(1, 1000), absent, 4).expect("room for a send");
    }
    for party in &parties {
        let (mut completed, mut failed) = (0, 0);
        while completed < 12 || failed < 1 {
            match party.next_ended() {
                Ok(_) => completed += 1,
                Err(failure) => {
                    assert_eq!(failure.completion.context, 4, "{failure:?}");
                    failed += 1;
                }
            }
        }
    }
}

/// The number of connections at a time.
const CONNECTIONS: u64 = 20;

/// Opens connections. The client shuts down some, and the server rejects some requests or leaves them
/// unread.
fn use_connections_briefly(transport: &TransportKind) {
    let net = Net::new(transport, Turns::Alternate);
    let (client, server) = (Side::new(&net), Side::new(&net));
    for _ in 0..5 {
        let listener = server.open_listener(CONNECTIONS);
        let mut pairs = Vec::new();
        for number in 0..CONNECTIONS {
            let (connecting, request) = ask(&client, &server, &listener, b"may I?");
            match number % 4 {
                0 => request.reject(b"no").expect("an undecided request"),
                1 => drop(request),
                _ => {
                    let accepting = server.accept(&request, b"");
                    assert!(next_event_of_first_side(&[&server, &client]).is_ok());
                    assert!(next_event_of_first_side(&[&client, &server]).is_ok());
                    accepting.recv(marked_buffer(1000), FabricAddress::UNSPECIFIED, number).expect("room");
                    connecting.send(payload(number, 1000), FabricAddress::UNSPECIFIED, number).expect("room");
                    assert_eq!(next_completion_of_first_side(&[&server, &client]).context, number);
                    assert_eq!(next_completion_of_first_side(&[&client, &server]).context, number);
                    pairs.push((connecting, Some(accepting)));
                    continue;
                }
            }
            assert!(next_event_of_first_side(&[&client, &server]).is_err());
            pairs.push((connecting, None));
        }
        for (connecting, _) in pairs.iter().filter(|(_, accepting)| accepting.is_some()).step_by(2) {
            connecting.shutdown().expect("it is connected");
        }
        // The server does not read this request.
        let unheard = client.connect(0, &listener, b"hello?");
        close_with_progress((unheard, listener, pairs), &[&client, &server]);
    }
}

/// Sleeps on queues with each wait object, alone and in a wait set.
fn use_wait_objects_briefly(transport: &TransportKind) {
    let net = Net::new(transport, Turns::Alternate);
    let moment = Some(Duration::from_millis(1));
    for wait in WAIT_OBJECTS {
        let party = net.open_party_with(Setup { asleep: true, wait, ..Setup::default() });
        let cq = party.local_cq();
        assert_eq!(cq.sread(moment), Ok(None));
        assert_eq!(cq.wait_fd().is_some(), wait == WaitObject::Fd);
        assert_eq!(cq.wait_mutex_cond().expect("a thread").is_some(), wait == WaitObject::MutexCond);
        let set = net.fabric.open_wait_set(wait).expect("a wait set");
        let (wait, wait_set) = (WaitObject::Set, Some(set.clone()));
        let _member = net.open_party_with(Setup { asleep: true, wait, wait_set, ..Setup::default() });
        assert_eq!(set.wait(moment), Err(WaitError::TimedOut), "nothing has happened");
    }
}

/// Shows fi_cq/close-releases-resources.
#[test]
fn closed_endpoints_leave_no_descriptors_or_mappings() {
    let use_all_briefly = || {
        for transport in &[Tcp4, Tcp6, Shm4, Shm6, Auto4, TransportKind::MIXED4] {
            use_an_endpoint_briefly(transport);
            use_connections_briefly(transport);
            use_wait_objects_briefly(transport);
        }
    };
    // Resources that the process opens once and keeps are not counted.
    use_all_briefly();
    let before = ProcessResources::measure_now();
    (0..3).for_each(|_| use_all_briefly());
    assert_eq!(ProcessResources::measure_now(), before);
}
