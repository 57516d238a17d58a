//! A target's state of each link.

use std::collections::VecDeque;
use std::sync::Weak;

use super::partial_flush::PartialFlush;
use super::reads::OutgoingRead;
use super::writes::IncomingWrite;
use crate::peer_id::PeerId;
use crate::region::Region;
use crate::transport::LinkId;
use crate::visits::record_visit;

/// A link on which accesses arrive.
#[derive(Debug)]
pub(super) struct TargetLink {
    pub(super) peer: PeerId,
    /// How many accesses of the peer this side has not answered yet.
    pub(super) unanswered_ops: usize,
    /// How many accesses of the peer have arrived, without counted writes.
    pub(super) arrived_ops: u64,
    /// How many counted writes of the peer have ended.
    pub(super) ended_counted_ops: u64,
    /// How many counted writes of the peer were answered.
    pub(super) answered_counted_ops: u64,
    /// How many bytes of results of atomic operations this side has yet to send.
    pub(super) unanswered_bytes: usize,
    /// The write whose payload is arriving.
    pub(super) writing: Option<IncomingWrite>,
    /// The peer's reads, in the order of its requests.
    pub(super) reads: VecDeque<OutgoingRead>,
    /// How many of the reads are copied only when they are sent.
    pub(super) uncopied_reads: usize,
    /// The peer's flushes that are carried out in parts, in the order of its requests.
    pub(super) flushes: VecDeque<PartialFlush>,
    /// The regions that this side has offered the peer for mapping.
    pub(super) offered_regions: Vec<Weak<Region>>,
}

impl TargetLink {
    /// Returns how many counted writes of the peer have ended and were not answered.
    #[inline(always)]
    pub(super) fn unanswered_counted_ops(&self) -> u64 {
        self.ended_counted_ops - self.answered_counted_ops
    }
}

/// All links, by the transport's numbers. These are small, so a vector serves.
#[derive(Debug, Default)]
pub(super) struct TargetLinks {
    by_id: Vec<Option<TargetLink>>,
}

impl TargetLinks {
    #[inline]
    pub(super) fn get_mut(&mut self, id: LinkId) -> Option<&mut TargetLink> {
        record_visit();
        self.by_id.get_mut(id.0 as usize)?.as_mut()
    }

    #[inline]
    pub(super) fn get(&self, id: LinkId) -> Option<&TargetLink> {
        record_visit();
        self.by_id.get(id.0 as usize)?.as_ref()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut TargetLink> {
        self.by_id.iter_mut().flatten().inspect(|_| record_visit())
    }

    /// Returns the peers to which links lead. A peer may occur several times.
    pub(super) fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.by_id.iter().flatten().inspect(|_| record_visit()).map(|link| link.peer)
    }

    pub(super) fn insert(&mut self, id: LinkId, peer: PeerId) {
        let place = id.0 as usize;
        if self.by_id.len() <= place {
            self.by_id.resize_with(place + 1, || None);
        }
        self.by_id[place] = Some(TargetLink {
            peer,
            unanswered_ops: 0,
            arrived_ops: 0,
            ended_counted_ops: 0,
            answered_counted_ops: 0,
            unanswered_bytes: 0,
            writing: None,
            reads: VecDeque::new(),
            uncopied_reads: 0,
            flushes: VecDeque::new(),
            offered_regions: Vec::new(),
        });
    }

    pub(super) fn remove(&mut self, id: LinkId) -> Option<TargetLink> {
        self.by_id.get_mut(id.0 as usize)?.take()
    }
}
