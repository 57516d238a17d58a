//! Carries out the effects that an engine's target asks for.

use super::super::Engine;
use super::super::receive_side::ReceiveSide;
use super::LinksAndSink;
use crate::completion::{EndedOperation, Sink};
use crate::flags::CounterEvents;
use crate::link_fault::NoMemory;
use crate::receiver::{HeldCredit, MemberId, ReceiverEffects, WriteNotice};
use crate::target::{Target, TargetEffects};
use crate::transport::LinkId;
use crate::wire::Header;

/// An engine's links, sink and receiver, which carry out the effects of its target. Credit that the
/// target returns, and notices for receives, go to the receiver.
#[derive(Debug)]
pub(in super::super) struct TargetCarrier<'a, S> {
    receive_side: &'a mut ReceiveSide,
    carrier: LinksAndSink<'a, S>,
}

impl Engine {
    /// Returns the target, and the value that carries out its effects.
    #[inline(always)]
    pub(in super::super) fn target_and_effects<'a, S: Sink>(
        &'a mut self,
        sink: &'a mut S,
    ) -> (&'a mut Target, TargetCarrier<'a, S>) {
        let carrier = LinksAndSink { links: &mut self.links, peers: &self.peers, sink };
        (&mut self.target, TargetCarrier { receive_side: &mut self.receive_side, carrier })
    }
}

impl<S: Sink> TargetEffects for TargetCarrier<'_, S> {
    fn complete(&mut self, completion: EndedOperation) -> Result<(), EndedOperation> {
        self.carrier.complete(completion, None)
    }

    fn give_to_receive(&mut self, link: LinkId, notice: WriteNotice) -> Result<(), NoMemory> {
        self.receive_side.write_notice_arrived(link, notice, &mut self.carrier)
    }

    #[inline(always)]
    fn count(&mut self, events: CounterEvents) {
        self.carrier.count(events, MemberId::ONLY);
    }

    fn queue_header(&mut self, link: LinkId, header: Header) {
        self.carrier.links.queue_header(link, header);
    }

    #[inline(always)]
    fn queue_written_count(&mut self, link: LinkId) {
        self.carrier.links.queue_written_count(link);
    }

    fn queue_read_data(&mut self, link: LinkId) {
        self.carrier.links.queue_read_data(link);
    }

    fn return_credit(&mut self, link: LinkId, cost_bytes: u64) {
        self.receive_side.return_credit(link, cost_bytes, &mut self.carrier);
    }

    fn hold_credit(&mut self, link: LinkId, cost_bytes: u64) -> Option<HeldCredit> {
        self.receive_side.hold_credit(link, cost_bytes)
    }

    fn return_held_credit(&mut self, held: HeldCredit) {
        self.receive_side.return_held_credit(held, &mut self.carrier);
    }
}
