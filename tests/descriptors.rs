//! Closed endpoints return all their descriptors and mappings to the system.
//!
//! The descriptors and mappings of the whole process are counted, so this is the only test of its binary.

use homespun::FabricAddress;

use homespun_suite::connecting::{Side, close, completion, hear, request};
use homespun_suite::payload::{payload, room};
use homespun_suite::possessions::ProcessResources;
use homespun_suite::{Net, Transport, Turns};

/// Connects endpoints in both directions, to themselves and to an address without a listener; some
/// messages arrive, some wait, some are never received.
fn use_an_endpoint_briefly(transport: &Transport) {
    let net = Net::new(transport, Turns::Alternate);
    let unnamed = net.domain().endpoint(&net.info).expect("an endpoint");
    unnamed.name().expect("it has one, and never uses it");
    let vacancy = net.vacancy();
    let parties: Vec<_> = (0..4).map(|_| net.party()).collect();
    for party in &parties {
        for other in &parties {
            party.meet(other);
        }
        let absent = party.av.insert(&[vacancy.address]).remove(0).expect("an address like any other");
        for to in 0..parties.len() {
            party.endpoint.recv(room(1000), FabricAddress::UNSPECIFIED, 1).expect("room for a receive");
            party.endpoint.send(payload(1, 1000), FabricAddress(to as u64), 2).expect("room for a send");
            party
                .endpoint
                .tsend(payload(1, 50_000), FabricAddress(to as u64), 3, 2)
                .expect("room for a send");
        }
        party.endpoint.send(payload(1, 1000), absent, 4).expect("room for a send");
    }
    for party in &parties {
        let (mut completed, mut failed) = (0, 0);
        while completed < 12 || failed < 1 {
            match party.next() {
                Ok(_) => completed += 1,
                Err(failure) => {
                    assert_eq!(failure.completion.context, 4, "{failure:?}");
                    failed += 1;
                }
            }
        }
    }
}

/// How many connections there are at a time.
const CONNECTIONS: u64 = 20;

/// Uses connections and ends them from either side; some requests are rejected, some never decided.
fn use_connections_briefly(transport: &Transport) {
    let net = Net::new(transport, Turns::Alternate);
    let (client, server) = (Side::new(&net), Side::new(&net));
    for _ in 0..5 {
        let listener = server.listener(CONNECTIONS);
        let name = listener.name().expect("it listens");
        let mut pairs = Vec::new();
        for number in 0..CONNECTIONS {
            let connecting = client.endpoint(number);
            connecting.connect(name, b"may I?").expect("a first request");
            let request = request(&[&server, &client]);
            match number % 4 {
                0 => request.reject(b"no").expect("an undecided request"),
                1 => drop(request),
                _ => {
                    let accepting = server.endpoint_for(&request, number);
                    accepting.accept(b"").expect("an undecided request");
                    assert!(hear(&[&server, &client]).is_ok());
                    assert!(hear(&[&client, &server]).is_ok());
                    accepting.recv(room(1000), FabricAddress::UNSPECIFIED, number).expect("room");
                    connecting.send(payload(number, 1000), FabricAddress::UNSPECIFIED, number).expect("room");
                    assert_eq!(completion(&[&server, &client]).context, number);
                    assert_eq!(completion(&[&client, &server]).context, number);
                    pairs.push((connecting, Some(accepting)));
                    continue;
                }
            }
            assert!(hear(&[&client, &server]).is_err());
            pairs.push((connecting, None));
        }
        for (connecting, _) in pairs.iter().filter(|(_, accepting)| accepting.is_some()).step_by(2) {
            connecting.shutdown().expect("it is connected");
        }
        // The server never reads this request.
        let unheard = client.endpoint(0);
        unheard.connect(name, b"hello?").expect("a first request");
        close((unheard, listener, pairs), &[&client, &server]);
    }
}

#[test]
fn closed_endpoints_leave_no_descriptors_or_mappings() {
    let transports = [Transport::Tcp4, Transport::Tcp6, Transport::Shm4, Transport::Shm6];
    // Resources that the process opens once and keeps do not count.
    transports.iter().for_each(use_an_endpoint_briefly);
    transports.iter().for_each(use_connections_briefly);
    let before = ProcessResources::now();
    for _ in 0..3 {
        transports.iter().for_each(use_an_endpoint_briefly);
        transports.iter().for_each(use_connections_briefly);
    }
    assert_eq!(ProcessResources::now(), before);
}
