//! Endpoints give all their file descriptors back.
//!
//! The descriptors of the whole process are counted, so this is the only test of its binary.

#[allow(dead_code, unused_imports, reason = "each suite uses a part of it")]
mod suite;

use std::collections::BTreeSet;
use std::fs;

use homespun::FabricAddress;

use crate::suite::payload::{payload, room};
use crate::suite::{Net, Transport, Turns};

/// The descriptors that are open, apart from the one that finds this out.
fn open_descriptors() -> BTreeSet<String> {
    let listed = fs::read_dir("/proc/self/fd").expect("Linux lists them");
    let entries = listed.map(|entry| entry.expect("an entry").path());
    let targets = entries.filter_map(|path| {
        let target = fs::read_link(&path).ok()?;
        Some(format!("{} -> {}", path.display(), target.display()))
    });
    targets.filter(|entry| !entry.ends_with("/fd")).collect()
}

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

#[test]
fn all_descriptors_are_given_back() {
    let transports = [Transport::Tcp4, Transport::Tcp6];
    // What the process opens once and keeps is not counted.
    transports.iter().for_each(live_a_little);
    let before = open_descriptors();
    for _ in 0..3 {
        transports.iter().for_each(live_a_little);
    }
    assert_eq!(open_descriptors(), before);
}
