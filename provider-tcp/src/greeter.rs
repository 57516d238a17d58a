//! What an endpoint does with the hello of a peer.

use std::time::Instant;

use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::transport::{FrameHandler, LinkError, LinkEvent, LinkId};
use homespun_engine::wire::hello::{Hello, Question};

use crate::claims::{Admission, Claims};
use crate::hello::{Greeting, believed_address};
use crate::limits::QUESTIONS_MAX;
use crate::link::{NO_ROOM, Origin};
use crate::local_addresses::LocalAddresses;

/// Judges what arrives on a connection before its first frame.
#[derive(Debug)]
pub(crate) struct Greeter<'a> {
    pub(crate) id: LinkId,
    pub(crate) origin: Origin,
    /// Whether the endpoint may have another accepted link.
    pub(crate) has_room: bool,
    pub(crate) claims: &'a mut Claims,
    pub(crate) local: &'a mut LocalAddresses,
    /// The claim of an accepted link, if its hello has arrived in this read.
    pub(crate) claimed: Option<Claimed>,
    /// The token that the acceptor has given, if it has arrived in this read.
    pub(crate) given_token: Option<u64>,
    /// The questions that have arrived in this read.
    pub(crate) questions: Vec<Question>,
}

/// The claim of an accepted link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Claimed {
    /// The address that the peer is believed to have.
    pub(crate) address: Address,
    pub(crate) instance: u64,
    /// The token that this side gives to the link.
    pub(crate) token: u64,
}

impl Greeter<'_> {
    /// Takes the hello of a peer that has connected. Returns whether the link is held.
    pub(crate) fn take_hello(
        &mut self,
        hello: &Hello,
        receiver: &mut impl FrameHandler,
    ) -> Result<bool, LinkError> {
        if !self.has_room {
            return Err(NO_ROOM);
        }
        let Origin::Accepted { remote, .. } = self.origin else { return Ok(false) };
        let local = &mut *self.local;
        let address = believed_address(hello.address, remote, |ip| local.contains(ip));
        let token = getrandom::u64().map_err(|error| {
            tracing::debug!(%error, "no random number");
            LinkError::System(Errno::EIO)
        })?;
        let admission = self.claims.accepted(self.id, address, token, Instant::now());
        tracing::debug!(link = self.id.0, peer = %address, claimed = %hello.address, ?admission, "hello");
        let is_held = match admission {
            Admission::Refused(reason) => return Err(LinkError::Protocol(reason)),
            Admission::Held => true,
            Admission::Open => false,
        };
        self.claimed = Some(Claimed { address, instance: hello.instance, token });
        if !is_held {
            let up = LinkEvent::Up { peer: address, instance: hello.instance };
            receiver.link_event(self.id, up);
        }
        Ok(is_held)
    }

    /// Takes a part of an acceptor's greeting. Returns whether the link is up.
    pub(crate) fn take_greeting(&mut self, greeting: &Greeting, receiver: &mut impl FrameHandler) -> bool {
        let Origin::Connected(to) = self.origin else { return false };
        match *greeting {
            Greeting::Held { token } => {
                tracing::debug!(link = self.id.0, peer = %to, "held by its acceptor");
                self.note_token(to, token);
                false
            }
            Greeting::Up { hello, token } => {
                tracing::debug!(link = self.id.0, peer = %to, claimed = %hello.address, "up");
                self.note_token(to, token);
                self.claims.dialled_up(self.id, to);
                receiver.link_event(self.id, LinkEvent::Up { peer: to, instance: hello.instance });
                true
            }
        }
    }

    /// Takes a question of a peer that has connected to ask.
    pub(crate) fn take_question(&mut self, question: Question, count: usize) -> Result<(), LinkError> {
        if count > QUESTIONS_MAX {
            return Err(LinkError::Protocol("too many questions"));
        }
        self.questions.push(question);
        Ok(())
    }

    fn note_token(&mut self, to: Address, token: u64) {
        self.claims.token_given(self.id, to, token);
        self.given_token = Some(token);
    }
}
