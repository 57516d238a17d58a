//! How the transport says that it knows the peer of a link.

mod side;

use std::io::Write;
use std::net::{TcpListener, TcpStream};

use homespun_engine::transport::{AddressProof, LinkId, Transport};
use homespun_engine::wire::hello::Hello;
use homespun_tcp::TcpProvider;

use side::{Side, drive_until};

fn connect(from: &mut Side, to: &Side) -> LinkId {
    from.transport.connect(to.transport.address())
}

/// The proofs in order, without the links.
fn proofs(side: &Side) -> Vec<Option<AddressProof>> {
    side.events.proofs.iter().map(|(_, proof)| *proof).collect()
}

#[test]
fn connected_link_is_reached_and_accepted_link_is_confirmed_after_it_is_up() {
    let (mut client, mut server) = (Side::open(&TcpProvider::new()), Side::open(&TcpProvider::new()));
    let link = connect(&mut client, &server);
    drive_until("the proof", &mut [&mut client, &mut server], |sides| sides[1].events.proofs.len() == 2);
    assert_eq!(client.events.proofs, [(link, Some(AddressProof::Reached))]);
    assert_eq!(proofs(&server), [Some(AddressProof::Claimed), None]);
    let accepted = server.events.proofs[0].0;
    assert_eq!(server.events.proofs[1].0, accepted);
}

#[test]
fn link_that_was_held_is_confirmed_when_it_comes_up() {
    let mut sides = [Side::open(&TcpProvider::new()), Side::open(&TcpProvider::new())];
    let [a, b] = &mut sides;
    let links = [connect(a, b), connect(b, a)];
    drive_until("both links on both sides", &mut [a, b], |sides| {
        sides.iter().all(|side| side.events.proofs.len() == 2)
    });
    for (side, own) in sides.iter().zip(links) {
        for (link, proof) in &side.events.proofs {
            let expected = if *link == own { AddressProof::Reached } else { AddressProof::Confirmed };
            assert_eq!(*proof, Some(expected));
        }
    }
}

#[test]
fn link_that_claims_a_vacant_address_is_never_confirmed() {
    let mut side = Side::open(&TcpProvider::new());
    let vacant = TcpListener::bind("127.77.0.2:0").unwrap().local_addr().unwrap();
    let mut stranger = TcpStream::connect(side.transport.address().socket_addr()).unwrap();
    stranger.write_all(&Hello { address: vacant.into(), instance: 3 }.to_bytes()).unwrap();
    // A claim that was checked in vain leaves nothing to do.
    drive_until("the check", &mut [&mut side], |sides| {
        !sides[0].events.proofs.is_empty() && !sides[0].transport.has_timed_work()
    });
    drop(stranger);
    drive_until("the end", &mut [&mut side], |sides| !sides[0].events.down.is_empty());
    assert_eq!(proofs(&side), [Some(AddressProof::Claimed)]);
}
