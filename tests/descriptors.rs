//! Endpoints give everything back that they had of the system.
//!
//! The descriptors and mappings of the whole process are counted, so this is the only test of its binary.

#[allow(dead_code, unused_imports, reason = "each suite uses a part of it")]
mod suite;

use homespun::FabricAddress;

use crate::suite::connecting::{Side, close, completion, hear, request};
use crate::suite::payload::{payload, room};
use crate::suite::possessions::Possessions;
use crate::suite::{Net, Transport, Turns};

/// Connections in both directions, to itself and to nobody; messages that arrive, wait and are left over.
fn live_a_little(transport: &Transport) {
    let net = Net::new(transport, Turns::Alternate);
    let unnamed = net.domain().endpoint(&net.info).expect("an endpoint");
    unnamed.name().expect("it has one, and never uses it");
    let vacancy = net.vacancy();
    let parties: Vec<_> = (0..4).map(|_| net.party()).collect();
    for party in &parties {
        for other in &parties {
            party.meet(other);
        }
        let nobody = party.av.insert(&[vacancy.address]).remove(0).expect("an address like any other");
        for to in 0..parties.len() {
            party.endpoint.recv(room(1000), FabricAddress::UNSPECIFIED, 1).expect("room for a receive");
            party.endpoint.send(payload(1, 1000), FabricAddress(to as u64), 2).expect("room for a send");
            party
                .endpoint
                .tsend(payload(1, 50_000), FabricAddress(to as u64), 3, 2)
                .expect("room for a send");
        }
        party.endpoint.send(payload(1, 1000), nobody, 4).expect("room for a send");
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

/// Connections that are used and ended by either side, and requests that are rejected, or that nobody decides.
fn connect_a_little(transport: &Transport) {
    let net = Net::new(transport, Turns::Alternate);
    let (client, server) = (Side::new(&net), Side::new(&net));
    for _ in 0..5 {
        let listener = server.listener(CONNECTIONS);
        let name = listener.name().expect("it listens");
        let mut pairs = Vec::new();
        for number in 0..CONNECTIONS {
            let connecting = client.endpoint(number);
            connecting.connect(name, b"may I?").expect("nobody was asked before");
            let request = request(&[&server, &client]);
            match number % 4 {
                0 => request.reject(b"no").expect("nobody has decided"),
                1 => drop(request),
                _ => {
                    let accepting = server.endpoint_for(&request, number);
                    accepting.accept(b"").expect("nobody has decided");
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
        // One that nobody hears of.
        let unheard = client.endpoint(0);
        unheard.connect(name, b"hello?").expect("nobody was asked before");
        close((unheard, listener, pairs), &[&client, &server]);
    }
}

#[test]
fn everything_is_given_back() {
    let transports = [Transport::Tcp4, Transport::Tcp6, Transport::Shm4, Transport::Shm6];
    // What the process opens once and keeps is not counted.
    transports.iter().for_each(live_a_little);
    transports.iter().for_each(connect_a_little);
    let before = Possessions::now();
    for _ in 0..3 {
        transports.iter().for_each(live_a_little);
        transports.iter().for_each(connect_a_little);
    }
    assert_eq!(Possessions::now(), before);
}
