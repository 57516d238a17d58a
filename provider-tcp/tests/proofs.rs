//! How the transport says that it knows the peer of a link.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use homespun_engine::transport::{AddressProof, FrameHandler, LinkEvent, LinkId, Provider, Space, Transport};
use homespun_engine::wire::Header;
use homespun_engine::wire::hello::Hello;
use homespun_tcp::{TcpProvider, TcpTransport};

/// How long a test waits for an event before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Records the proofs of links, in order. A confirmation has none.
#[derive(Default)]
struct Proofs {
    seen: Vec<(LinkId, Option<AddressProof>)>,
    down: Vec<LinkId>,
}

impl FrameHandler for Proofs {
    fn frame(&mut self, _: LinkId, _: &Header, _: &[u8]) {}
    fn frame_begun(&mut self, _: LinkId, _: &Header) {}
    fn payload_space(&mut self, _: LinkId) -> Space<'_> {
        Space::new()
    }
    fn bytes_placed(&mut self, _: LinkId, _: usize) {}
    fn payload_arrived(&mut self, _: LinkId, _: &[u8]) {}
    fn link_event(&mut self, link: LinkId, event: LinkEvent) {
        match event {
            LinkEvent::Up { proof, .. } => self.seen.push((link, Some(proof))),
            LinkEvent::Confirmed => self.seen.push((link, None)),
            LinkEvent::Down(_) => self.down.push(link),
        }
    }
}

struct Side {
    transport: TcpTransport,
    proofs: Proofs,
}

impl Side {
    fn open(instance: u64) -> Side {
        let bind: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let transport = TcpProvider::new().open(bind.into(), instance).unwrap();
        Side { transport, proofs: Proofs::default() }
    }

    fn connect(&mut self, to: &Side) -> LinkId {
        self.transport.connect(to.transport.address())
    }

    /// The proofs in order, without the links.
    fn proofs(&self) -> Vec<Option<AddressProof>> {
        self.proofs.seen.iter().map(|(_, proof)| *proof).collect()
    }
}

fn drive_until(what: &str, sides: &mut [&mut Side], done: impl Fn(&[&mut Side]) -> bool) {
    let begin = Instant::now();
    while !done(sides) {
        for side in sides.iter_mut() {
            side.transport.receive(64, &mut side.proofs);
            side.transport.flush();
        }
        assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}");
    }
}

#[test]
fn connected_link_is_reached_and_accepted_link_is_confirmed_after_it_is_up() {
    let (mut client, mut server) = (Side::open(1), Side::open(2));
    let link = client.connect(&server);
    drive_until("the proof", &mut [&mut client, &mut server], |sides| sides[1].proofs.seen.len() == 2);
    assert_eq!(client.proofs.seen, [(link, Some(AddressProof::Reached))]);
    assert_eq!(server.proofs(), [Some(AddressProof::Claimed), None]);
    let accepted = server.proofs.seen[0].0;
    assert_eq!(server.proofs.seen[1].0, accepted);
}

#[test]
fn link_that_was_held_is_confirmed_when_it_comes_up() {
    let mut sides = [Side::open(1), Side::open(2)];
    let [a, b] = &mut sides;
    let links = [a.connect(b), b.connect(a)];
    drive_until("both links on both sides", &mut [a, b], |sides| {
        sides.iter().all(|side| side.proofs.seen.len() == 2)
    });
    for (side, own) in sides.iter().zip(links) {
        for (link, proof) in &side.proofs.seen {
            let expected = if *link == own { AddressProof::Reached } else { AddressProof::Confirmed };
            assert_eq!(*proof, Some(expected));
        }
    }
}

#[test]
fn link_that_claims_a_vacant_address_is_never_confirmed() {
    let mut side = Side::open(1);
    let vacant = TcpListener::bind("127.77.0.2:0").unwrap().local_addr().unwrap();
    let mut stranger = TcpStream::connect(side.transport.address().socket_addr()).unwrap();
    stranger.write_all(&Hello { address: vacant.into(), instance: 3 }.to_bytes()).unwrap();
    // A claim that was checked in vain leaves nothing to do.
    drive_until("the check", &mut [&mut side], |sides| {
        !sides[0].proofs.seen.is_empty() && !sides[0].transport.has_timed_work()
    });
    drop(stranger);
    drive_until("the end", &mut [&mut side], |sides| !sides[0].proofs.down.is_empty());
    assert_eq!(side.proofs(), [Some(AddressProof::Claimed)]);
}
