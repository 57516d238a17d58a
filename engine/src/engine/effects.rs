//! Carries out the effects that the receiver of an engine asks for. The submodules do the same for
//! the other parts.

mod connecting;
mod initiating;
mod targeting;

use super::Engine;
use super::receive_side::ReceiveSide;
use crate::completion::{EndedOperation, FailedOperation, Received, Sink};
use crate::flags::CounterEvents;
use crate::link::Links;
use crate::link_fault::LinkFault;
use crate::peers::Peers;
use crate::receiver::{EndedWork, MemberId, ReceiverEffects, UnrecordedEnd};
use crate::transport::LinkId;
use crate::wire::Header;

/// An engine's links and sink, which carry out the effects of its receiver.
#[derive(Debug)]
pub(super) struct LinksAndSink<'a, S> {
    pub(super) links: &'a mut Links,
    pub(super) peers: &'a Peers,
    pub(super) sink: &'a mut S,
}

impl Engine {
    /// Returns the receiver, and the value that carries out its effects.
    #[inline(always)]
    pub(super) fn receive_side_and_effects<'a, S: Sink>(
        &'a mut self,
        sink: &'a mut S,
    ) -> (&'a mut ReceiveSide, LinksAndSink<'a, S>) {
        (&mut self.receive_side, LinksAndSink { links: &mut self.links, peers: &self.peers, sink })
    }

    /// If `outcome` is a fault, ends the link and returns false. Otherwise returns true.
    #[inline(always)]
    pub(super) fn abort_link_on_fault(
        &mut self,
        id: LinkId,
        outcome: Result<(), impl Into<LinkFault>>,
        sink: &mut impl Sink,
    ) -> bool {
        match outcome {
            Ok(()) => true,
            Err(fault) => {
                self.abort_faulty_link(id, fault.into(), sink);
                false
            }
        }
    }
}

impl<S: Sink> ReceiverEffects for LinksAndSink<'_, S> {
    #[inline(always)]
    fn complete(&mut self, completion: EndedOperation, _: Option<MemberId>) -> Result<(), EndedOperation> {
        self.sink.complete(completion, self.peers)
    }

    #[inline(always)]
    fn complete_receive(&mut self, received: Received) -> bool {
        self.sink.complete_receive(received, self.peers)
    }

    fn fail(&mut self, failure: FailedOperation, _: Option<MemberId>) -> Result<(), FailedOperation> {
        self.sink.fail(failure, self.peers)
    }

    #[inline(always)]
    fn count(&mut self, events: CounterEvents, _: MemberId) {
        if self.sink.has_counters() {
            self.sink.count(events);
        }
    }

    fn count_error(&mut self, events: CounterEvents, _: Option<MemberId>) {
        if self.sink.has_counters() {
            self.sink.count_error(events);
        }
    }

    #[cold]
    fn record_work_end(&mut self, end: UnrecordedEnd, _: Option<MemberId>) -> Option<EndedWork> {
        Some(EndedWork::record(end, |number, has_succeeded| {
            self.sink.record_deferred_work_end(number, has_succeeded)
        }))
    }

    fn queue_header(&mut self, link: LinkId, header: Header) {
        self.links.queue_header(link, header);
    }

    fn queue_ack(&mut self, link: LinkId) {
        self.links.queue_ack(link);
    }

    fn queue_credit_grant(&mut self, link: LinkId) {
        self.links.queue_credit_grant(link);
    }
}
