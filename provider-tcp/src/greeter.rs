//! What an endpoint does with the hello of a peer.

use std::time::Instant;

use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::source_host::SourceHost;
use homespun_engine::transport::{AddressProof, FrameHandler, LinkError, LinkEvent, LinkId};
use homespun_engine::wire::address_claim::LACKS_DESCRIPTORS;
use homespun_engine::wire::hello::{Hello, Question};

use crate::address_claims::{AddressClaims, Admission, NewClaim};
use crate::hello::{Greeting, believed_address};
use crate::limits::QUESTIONS_MAX;
use crate::link::{LACKED_DESCRIPTORS, NO_ROOM, NOT_ACCEPTING, Origin};
use crate::local_address_cache::LocalAddressCache;

/// Judges what arrives on a connection before its first frame.
#[derive(Debug)]
pub(crate) struct Greeter<'a> {
    pub(crate) id: LinkId,
    pub(crate) origin: Origin,
    /// When the bytes that are being read have arrived.
    pub(crate) arrived_at: Instant,
    /// Whether the endpoint still accepts links.
    pub(crate) is_accepting: bool,
    /// Whether the endpoint may have another accepted link.
    pub(crate) has_room: bool,
    pub(crate) claims: &'a mut AddressClaims,
    pub(crate) local: &'a mut LocalAddressCache,
    /// The claim of an accepted link, if its hello has arrived in this read.
    pub(crate) address_claim: Option<AddressClaim>,
    /// The token that the acceptor has given, if it has arrived in this read.
    pub(crate) given_token: Option<u64>,
    /// The questions that have arrived in this read.
    pub(crate) questions: Vec<Question>,
}

/// The claim of an accepted link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddressClaim {
    /// The address that the peer is believed to have.
    pub(crate) address: Address,
    pub(crate) instance: u64,
    /// The token that this side gives to the link.
    pub(crate) token: u64,
}

impl Greeter<'_> {
    /// Handles the hello of a peer that has connected. Returns whether the link is held. Fails if the
    /// endpoint takes no new links, or if the claim is refused.
    pub(crate) fn handle_hello(
        &mut self,
        hello: &Hello,
        receiver: &mut impl FrameHandler,
    ) -> Result<bool, LinkError> {
        if !self.is_accepting {
            return Err(NOT_ACCEPTING);
        }
        if !self.has_room {
            return Err(NO_ROOM);
        }
        let Origin::Accepted { remote, serial } = self.origin else { return Ok(false) };
        let local = &mut *self.local;
        let address = believed_address(hello.address, remote, |ip| local.contains(ip));
        let token = getrandom::u64().map_err(|error| {
            tracing::debug!(%error, "no random number");
            LinkError::System(Errno::EIO)
        })?;
        let from = SourceHost::of(remote.into());
        let (serial, arrived_at) = (Some(serial), self.arrived_at);
        let claim = NewClaim { address, token, from, serial, arrived_at };
        let admission = self.claims.add_accepted(self.id, claim, Instant::now());
        tracing::debug!(link = self.id.0, peer = %address, claimed = %hello.address, ?admission, "hello");
        let is_held = match admission {
            // Not a protocol error: the peer speaks the protocol.
            Admission::Refused(_) => return Err(LinkError::System(Errno::ECONNREFUSED)),
            Admission::Held => true,
            Admission::Open => false,
        };
        self.address_claim = Some(AddressClaim { address, instance: hello.instance, token });
        if !is_held {
            let (instance, proof) = (hello.instance, AddressProof::Claimed);
            receiver.link_event(self.id, LinkEvent::Up { peer: address, instance, proof, has_ended: false });
        }
        Ok(is_held)
    }

    /// Handles a part of an acceptor's greeting. Returns whether the link is up. Fails if the acceptor does
    /// not take the link.
    pub(crate) fn handle_greeting(
        &mut self,
        greeting: &Greeting,
        receiver: &mut impl FrameHandler,
    ) -> Result<bool, LinkError> {
        let Origin::Connected(to) = self.origin else { return Ok(false) };
        match *greeting {
            Greeting::Held { token } => {
                tracing::debug!(link = self.id.0, peer = %to, "held by its acceptor");
                self.record_token(to, token);
                Ok(false)
            }
            Greeting::Up { hello, token } => {
                tracing::debug!(link = self.id.0, peer = %to, claimed = %hello.address, "up");
                self.record_token(to, token);
                self.claims.record_connected(self.id, to);
                let (instance, proof) = (hello.instance, AddressProof::Reached);
                receiver.link_event(self.id, LinkEvent::Up { peer: to, instance, proof, has_ended: false });
                Ok(true)
            }
            Greeting::Refused { token: LACKS_DESCRIPTORS } => Err(LACKED_DESCRIPTORS),
            Greeting::Refused { .. } => Err(NOT_ACCEPTING),
        }
    }

    /// Records a question of a peer that has connected to ask. Fails if the connection carries too many
    /// questions.
    pub(crate) fn handle_question(&mut self, question: Question, count: usize) -> Result<(), LinkError> {
        if count > QUESTIONS_MAX {
            return Err(LinkError::System(Errno::ECONNREFUSED));
        }
        self.questions.push(question);
        Ok(())
    }

    fn record_token(&mut self, to: Address, token: u64) {
        self.claims.record_given_token(self.id, to, token);
        self.given_token = Some(token);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use homespun_engine::transport::Space;
    use homespun_engine::wire::Header;

    use super::*;

    /// Records the links that come up.
    #[derive(Default)]
    struct Ups(Vec<(Address, u64)>);

    impl FrameHandler for Ups {
        fn frame(&mut self, _: LinkId, _: &Header, _: &[u8]) {}
        fn frame_begun(&mut self, _: LinkId, _: &Header) {}
        fn payload_space(&mut self, _: LinkId) -> Space<'_> {
            Space::new()
        }
        fn bytes_placed(&mut self, _: LinkId, _: usize) {}
        fn payload_arrived(&mut self, _: LinkId, _: &[u8]) {}
        fn link_event(&mut self, _: LinkId, event: LinkEvent) {
            if let LinkEvent::Up { peer, instance, .. } = event {
                self.0.push((peer, instance));
            }
        }
        fn link_writable(&mut self, _: LinkId) {}
    }

    fn address(port: u16) -> Address {
        SocketAddr::from(([127, 0, 0, 1], port)).into()
    }

    fn greet<T>(
        claims: &mut AddressClaims,
        id: u32,
        origin: Origin,
        [is_accepting, has_room]: [bool; 2],
        act: impl FnOnce(&mut Greeter<'_>) -> T,
    ) -> T {
        let local = &mut LocalAddressCache::default();
        let mut greeter = Greeter {
            id: LinkId(id),
            origin,
            arrived_at: Instant::now(),
            is_accepting,
            has_room,
            claims,
            local,
            address_claim: None,
            given_token: None,
            questions: Vec::new(),
        };
        act(&mut greeter)
    }

    #[test]
    fn hello_is_admitted_held_or_refused() {
        let (mut claims, mut ups) = (AddressClaims::new(Duration::MAX), Ups::default());
        let accepted = Origin::Accepted { remote: address(5).socket_addr(), serial: 0 };
        let mut say_hello = |claims: &mut AddressClaims, id: u32, accepting| {
            let hello = Hello { address: address(1), instance: id.into() };
            greet(claims, id, accepted, accepting, |greeter| {
                let is_held = greeter.handle_hello(&hello, &mut ups);
                (is_held, greeter.address_claim.map(|claimed| (claimed.address, claimed.instance)))
            })
        };
        assert_eq!(say_hello(&mut claims, 1, [false, true]), (Err(NOT_ACCEPTING), None));
        assert_eq!(say_hello(&mut claims, 1, [true, false]), (Err(NO_ROOM), None));
        assert_eq!(say_hello(&mut claims, 1, [true, true]), (Ok(false), Some((address(1), 1))));
        assert_eq!(say_hello(&mut claims, 2, [true, true]), (Ok(true), Some((address(1), 2))));
        assert_eq!(ups.0, [(address(1), 1)]);
    }

    #[test]
    fn each_accepted_link_gets_another_token() {
        let (mut claims, mut ups) = (AddressClaims::new(Duration::MAX), Ups::default());
        let accepted = Origin::Accepted { remote: address(5).socket_addr(), serial: 0 };
        let mut tokens: Vec<u64> = (0..100)
            .map(|id| {
                let hello = Hello { address: address(100 + id as u16), instance: 1 };
                greet(&mut claims, id, accepted, [true, true], |greeter| {
                    greeter.handle_hello(&hello, &mut ups).unwrap();
                    greeter.address_claim.unwrap().token
                })
            })
            .collect();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), 100);
    }

    #[test]
    fn greeting_of_an_acceptor_names_the_connected_address() {
        let (mut claims, mut ups) = (AddressClaims::new(Duration::MAX), Ups::default());
        claims.add_connecting(LinkId(1), address(1), Instant::now());
        let hello = Hello { address: address(2), instance: 9 };
        let mut take = |greeting| {
            greet(&mut claims, 1, Origin::Connected(address(1)), [true, true], |greeter| {
                greeter.handle_greeting(&greeting, &mut ups)
            })
        };
        assert_eq!(take(Greeting::Refused { token: 0 }), Err(NOT_ACCEPTING));
        assert_eq!(take(Greeting::Refused { token: LACKS_DESCRIPTORS }), Err(LACKED_DESCRIPTORS));
        assert_eq!(take(Greeting::Held { token: 5 }), Ok(false));
        assert_eq!(take(Greeting::Up { hello, token: 5 }), Ok(true));
        assert_eq!((ups.0, claims.address_of_token(5)), (vec![(address(1), 9)], Some(address(1))));
    }
}
