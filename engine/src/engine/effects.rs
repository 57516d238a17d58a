//! What carries out the effects of an engine's parts; here those of its receiver.

mod connecting;
mod initiating;
mod targeting;

use super::Engine;
use super::reception::Reception;
use crate::breach::Breach;
use crate::completion::{Completion, Failure, Sink, WorkEnd};
use crate::flags::CounterEvents;
use crate::link::Links;
use crate::peers::Peers;
use crate::receiver::{MemberId, ReceiverEffects};
use crate::transport::LinkId;
use crate::wire::Header;

/// The links of an engine and its sink, while its receiver is at work.
#[derive(Debug)]
pub(super) struct Carrier<'a, S> {
    links: &'a mut Links,
    peers: &'a Peers,
    sink: &'a mut S,
}

impl Engine {
    /// The receiver, and what carries out its effects.
    #[inline(always)]
    pub(super) fn receiving<'a, S: Sink>(
        &'a mut self,
        sink: &'a mut S,
    ) -> (&'a mut Reception, Carrier<'a, S>) {
        (&mut self.reception, Carrier { links: &mut self.links, peers: &self.peers, sink })
    }

    /// Ends a link if its peer has broken the protocol. Returns whether it has not.
    #[inline(always)]
    pub(super) fn enforce(&mut self, id: LinkId, outcome: Result<(), Breach>, sink: &mut impl Sink) -> bool {
        if let Err(Breach(reason)) = outcome {
            self.condemn(id, reason, sink);
        }
        outcome.is_ok()
    }
}

impl<S: Sink> ReceiverEffects for Carrier<'_, S> {
    #[inline(always)]
    fn complete(&mut self, completion: Completion, _: Option<MemberId>) -> Result<(), Completion> {
        self.sink.complete(completion, self.peers)
    }

    fn fail(&mut self, failure: Failure, _: Option<MemberId>) -> Result<(), Failure> {
        self.sink.fail(failure, self.peers)
    }

    #[inline(always)]
    fn count(&mut self, events: CounterEvents, _: MemberId) {
        if self.sink.counts() {
            self.sink.count(events);
        }
    }

    fn count_error(&mut self, events: CounterEvents, _: Option<MemberId>) {
        if self.sink.counts() {
            self.sink.count_error(events);
        }
    }

    #[cold]
    fn work_ended(&mut self, number: u64, has_succeeded: bool) -> WorkEnd {
        self.sink.work_ended(number, has_succeeded)
    }

    fn owe(&mut self, link: LinkId, header: Header) {
        self.links.owe(link, header);
    }

    fn owe_ack(&mut self, link: LinkId) {
        self.links.owe_ack(link);
    }

    fn owe_credit(&mut self, link: LinkId) {
        self.links.owe_credit(link);
    }
}
