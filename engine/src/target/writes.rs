//! Writes of peers to regions.

use std::io::IoSliceMut;

use slotmap::SlotMap;

use super::links::TargetLink;
use super::{TOO_MANY, Target, TargetEffects, queue_answer};
use crate::buffer::Buffer;
use crate::completion::EndedOperation;
use crate::fetches::{FetchMemory, FetchStep};
use crate::flags::{CounterEvents, MrAccess};
use crate::limits::{COUNTED_WRITES_LINK_MAX_OPS, MESSAGE_COST_BYTES, PULL_PASS_MAX_BYTES};
use crate::link_fault::{LinkFault, NoMemory, Room, TryBox};
use crate::mutated;
use crate::operation::{FetchId, PeerWriteId};
use crate::protocol_violation::ProtocolViolation;
use crate::reassembly::{Arrived, Reassembly, clamp_to_usize};
use crate::receiver::WriteNotice;
use crate::region::Window;
use crate::remote_memory::RemoteMemory;
use crate::transport::{LinkId, Pull, RemotePayload, Space};
use crate::wire::{CountedWrite, Durable, Header, Outcome, Refusal, Rma};

/// A peer's write to a region.
#[derive(Debug)]
pub(super) struct PeerWrite {
    answering: Answering,
    data: Option<u64>,
    durable: Durable,
    /// The part of the region to write to, or the answer if the write is refused.
    window: Result<Window, Outcome>,
    /// A buffer for one step of a pull that cannot place bytes straight into the region.
    pulled: Vec<u8>,
}

/// How a write is answered.
#[derive(Debug, Clone, Copy)]
enum Answering {
    /// Alone, under the initiator's number of the operation.
    Numbered(u64),
    /// By the count of the counted writes of its link.
    Counted,
}

/// A write whose payload is arriving.
#[derive(Debug)]
pub(super) enum IncomingWrite {
    /// The payload follows the header.
    Sent(Reassembly<PeerWriteId>),
    /// The payload was requested from the peer.
    Requested(FetchId),
}

impl Target {
    /// Handles a write that has arrived whole. If the write has remote data, the caller has already
    /// charged the credit.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if the peer has too many accesses without an answer; [`LinkFault::NoMemory`].
    pub(crate) fn write_arrived(
        &mut self,
        id: LinkId,
        rma: &Rma,
        payload: &[u8],
        effects: &mut impl TargetEffects,
    ) -> Result<(), LinkFault> {
        self.admit_access(id)?;
        let mut inbound = self.make_peer_write(id, rma, effects);
        let payload =
            if mutated!("fi_rma/writes-reach-memory") { &payload[..payload.len() / 2] } else { payload };
        if !mutated!("fi_cq/silent-access-as-initiator-level") {
            copy_into_window(&mut inbound.window, 0, payload);
        }
        Ok(self.complete_write(id, inbound, rma.len_bytes, effects)?)
    }

    /// Begins a write. At least one byte of its payload follows.
    ///
    /// # Errors
    ///
    /// As [`write_arrived`](Self::write_arrived).
    pub(crate) fn begin_write(
        &mut self,
        id: LinkId,
        rma: &Rma,
        effects: &mut impl TargetEffects,
    ) -> Result<(), LinkFault> {
        self.admit_access(id)?;
        let room = self.try_reserve_inbound()?;
        let inbound = self.make_peer_write(id, rma, effects);
        self.await_payload(id, room.fill(inbound), rma.len_bytes);
        Ok(())
    }

    /// Checks a peer's write, and returns its state.
    fn make_peer_write(&mut self, id: LinkId, rma: &Rma, effects: &mut impl TargetEffects) -> PeerWrite {
        let window = self.check_write_and_persist_earlier(id, rma, effects);
        let answering = Answering::Numbered(rma.op);
        PeerWrite { answering, data: rma.kind.data(), durable: rma.durable, window, pulled: Vec::new() }
    }

    /// Handles a counted write that has arrived whole. If the write has remote data, the caller has
    /// already charged the credit.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if the peer has too many counted writes without an answer;
    /// [`LinkFault::NoMemory`].
    #[inline]
    pub(crate) fn counted_write_arrived(
        &mut self,
        id: LinkId,
        write: &CountedWrite,
        payload: &[u8],
        effects: &mut impl TargetEffects,
    ) -> Result<(), LinkFault> {
        self.check_room_for_counted_write(id)?;
        if self.try_write_to_last_region(write, payload, effects) {
            self.answer_write(id, Answering::Counted, Outcome::Done, effects);
            return Ok(());
        }
        let mut inbound = self.make_counted_write(id, write, effects);
        copy_into_window(&mut inbound.window, 0, payload);
        Ok(self.complete_write(id, inbound, write.len_bytes, effects)?)
    }

    /// Begins a counted write. At least one byte of its payload follows.
    ///
    /// # Errors
    ///
    /// As [`counted_write_arrived`](Self::counted_write_arrived).
    pub(crate) fn begin_counted_write(
        &mut self,
        id: LinkId,
        write: &CountedWrite,
        effects: &mut impl TargetEffects,
    ) -> Result<(), LinkFault> {
        self.check_room_for_counted_write(id)?;
        let room = self.try_reserve_inbound()?;
        let inbound = self.make_counted_write(id, write, effects);
        self.await_payload(id, room.fill(inbound), write.len_bytes);
        Ok(())
    }

    /// Checks that the peer may make another counted write.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if the peer has too many counted writes without an answer.
    #[inline(always)]
    fn check_room_for_counted_write(&self, id: LinkId) -> Result<(), ProtocolViolation> {
        let unanswered_ops = self.links.get(id).map_or(0, TargetLink::unanswered_counted_ops);
        if unanswered_ops < COUNTED_WRITES_LINK_MAX_OPS { Ok(()) } else { Err(TOO_MANY) }
    }

    /// Carries out a counted write to the region of the last one, if the write needs nothing but a copy and a
    /// count. Returns whether it was carried out. If not, nothing has changed.
    #[inline]
    fn try_write_to_last_region(
        &self,
        write: &CountedWrite,
        payload: &[u8],
        effects: &mut impl TargetEffects,
    ) -> bool {
        let CountedWrite { key, address, len_bytes, data } = *write;
        let Some(region) = self.last_region_with_key(key) else { return false };
        let is_plain_copy =
            data.is_none() && !region.is_persistent() && self.access.contains(MrAccess::REMOTE_WRITE);
        let is_written = is_plain_copy && region.try_write_for_peer(address, len_bytes, payload);
        if is_written {
            let event = CounterEvents::REMOTE_WRITE;
            self.count_access_if_enabled(region, event, event, effects);
        }
        is_written
    }

    /// Checks a peer's counted write, and returns its state.
    fn make_counted_write(
        &mut self,
        id: LinkId,
        write: &CountedWrite,
        effects: &mut impl TargetEffects,
    ) -> PeerWrite {
        let CountedWrite { key, address, len_bytes, data } = *write;
        let (memory, durable) = (RemoteMemory { key, address }, Durable::Nothing);
        let window = self
            .check_window_and_offer_mapping(id, memory, len_bytes, durable, MrAccess::REMOTE_WRITE, effects)
            .map_err(Outcome::Refused);
        PeerWrite { answering: Answering::Counted, data, durable, window, pulled: Vec::new() }
    }

    /// Makes room for one more write that is kept.
    fn try_reserve_inbound(&mut self) -> Result<Room<PeerWrite>, NoMemory> {
        self.inbounds.try_reserve(1)?;
        Room::try_new()
    }

    /// Keeps a write until its payload has arrived, which follows on the link.
    fn await_payload(&mut self, id: LinkId, inbound: TryBox<PeerWrite>, len_bytes: u64) {
        let inbound = self.inbounds.insert(inbound);
        if let Some(link) = self.links.get_mut(id) {
            link.writing = Some(IncomingWrite::Sent(Reassembly::new(len_bytes, inbound)));
        }
    }

    /// Returns how many counted writes of the link's peer have ended.
    #[inline]
    pub(crate) fn written_count(&self, id: LinkId) -> u64 {
        self.links.get(id).map_or(0, |link| link.ended_counted_ops)
    }

    /// Records that the link has taken the answer to the counted writes up to this number.
    #[inline]
    pub(crate) fn written_count_sent(&mut self, id: LinkId, count: u64) {
        if let Some(link) = self.links.get_mut(id) {
            link.answered_counted_ops = count;
        }
    }

    /// Queues the answer to a write that has ended.
    #[inline]
    fn answer_write(
        &mut self,
        id: LinkId,
        answering: Answering,
        outcome: Outcome,
        effects: &mut impl TargetEffects,
    ) {
        let op = match answering {
            Answering::Numbered(op) => op,
            Answering::Counted => {
                let Some(link) = self.links.get_mut(id) else { return };
                link.ended_counted_ops += 1;
                return match outcome {
                    Outcome::Done => effects.queue_written_count(id),
                    _ => effects.queue_header(id, Header::Written { count: link.ended_counted_ops, outcome }),
                };
            }
        };
        queue_answer(id, op, outcome, effects);
    }

    /// Returns the part of a region that a peer writes to, or the answer that refuses the write. If
    /// the write demands it, first makes the peer's earlier writes durable.
    fn check_write_and_persist_earlier(
        &mut self,
        id: LinkId,
        rma: &Rma,
        effects: &mut impl TargetEffects,
    ) -> Result<Window, Outcome> {
        let window = self
            .check_rma_window_and_offer_mapping(id, rma, MrAccess::REMOTE_WRITE, effects)
            .or_else(|refusal| match refusal {
                Refusal::Key if mutated!("fi_mr/access-to-closed-region-fails") => Ok(Window::empty()),
                refusal => Err(Outcome::Refused(refusal)),
            })?;
        if self.persist_earlier_writes_if_asked(id, rma.durable) {
            Ok(window)
        } else {
            Err(Outcome::NotDurable)
        }
    }

    /// Whether a link's peer has offered a write with this number.
    pub(crate) fn has_offer(&self, id: LinkId, op: u64) -> bool {
        self.fetches.has_offer(id, op)
    }

    /// Handles a peer's offer of a write. This side will fetch the payload.
    ///
    /// # Errors
    ///
    /// A [`ProtocolViolation`] if another offer of the peer has this number, if the description of
    /// the payload is too long, or if the peer has too many accesses without an answer;
    /// [`LinkFault::NoMemory`].
    pub(crate) fn write_offered(
        &mut self,
        id: LinkId,
        rma: &Rma,
        remote: &[u8],
        effects: &mut impl TargetEffects,
    ) -> Result<(), LinkFault> {
        if self.has_offer(id, rma.op) {
            return Err(ProtocolViolation("offers two payloads under one number").into());
        }
        let remote = RemotePayload::new(remote)
            .ok_or(ProtocolViolation("describes its payload at too great a length"))?;
        self.admit_access(id)?;
        let (offer_room, room) = (self.fetches.try_reserve_offer(id)?, self.try_reserve_inbound()?);
        let inbound = self.make_peer_write(id, rma, effects);
        let filling = Reassembly::new(rma.len_bytes, self.inbounds.insert(room.fill(inbound)));
        let fetch = self.fetches.add_offer(offer_room, (id, rma.op), filling, remote, true);
        self.fetches.begin_fetch(fetch);
        Ok(())
    }

    /// Returns how many payloads are being pulled.
    #[inline(always)]
    pub(crate) fn pulling_len(&self) -> usize {
        self.fetches.pulling_len()
    }

    /// Whether a payload is being pulled.
    #[inline]
    pub(crate) fn is_pulling(&self) -> bool {
        self.pulling_len() > 0
    }

    /// Pulls one step of every offered write, up to the limit of one pass. `pull` copies bytes from
    /// the memory of a link's peer.
    ///
    /// # Errors
    ///
    /// [`NoMemory`] to report a write of this link.
    pub(crate) fn pull_payloads(
        &mut self,
        mut pull: impl FnMut(LinkId, &RemotePayload, u64, &mut [IoSliceMut<'_>]) -> Pull,
        effects: &mut impl TargetEffects,
    ) -> Result<(), (LinkId, NoMemory)> {
        let mut pulled_bytes = 0;
        for _ in 0..self.fetches.pulling_len() {
            if pulled_bytes >= PULL_PASS_MAX_BYTES {
                break;
            }
            let step = self.fetches.pull_next_piece(&mut self.inbounds, &mut pull);
            pulled_bytes += step.pulled_bytes();
            match step {
                FetchStep::Pulled(_) => {}
                FetchStep::Ended { fetch, .. } => {
                    self.finish_arrived_write(fetch.link, &fetch.filling, effects)
                        .map_err(|error| (fetch.link, error))?;
                }
                FetchStep::Faulted(fetch) => {
                    if let Some(inbound) = self.inbounds.remove(fetch.filling.owner) {
                        self.answer_write(fetch.link, inbound.answering, Outcome::Fault, effects);
                        return_credit_if_remote_data(fetch.link, inbound.data, effects);
                    }
                }
                FetchStep::Asked { link, op, cannot_pull } => {
                    effects.queue_header(link, Header::Clear { op, cannot_pull });
                }
            }
        }
        Ok(())
    }

    /// Begins to read the payload of an offered write. Returns false and changes nothing if this
    /// side has not asked the peer for a payload with this number and length.
    pub(crate) fn begin_data_if_requested(&mut self, id: LinkId, op: u64, len_bytes: u64) -> bool {
        match (self.fetches.cleared_fetch(id, op, len_bytes), self.links.get_mut(id)) {
            (Some(fetch), Some(link)) => {
                link.writing = Some(IncomingWrite::Requested(fetch));
                true
            }
            _ => false,
        }
    }

    /// Whether the payload of a write is arriving on a link.
    #[inline]
    pub(crate) fn is_write_arriving(&self, id: LinkId) -> bool {
        self.links.get(id).is_some_and(|link| link.writing.is_some())
    }

    /// Places the next bytes of the write that is being read on a link.
    ///
    /// # Errors
    ///
    /// As [`bytes_placed`](Self::bytes_placed).
    pub(crate) fn put_payload(
        &mut self,
        id: LinkId,
        bytes: &[u8],
        effects: &mut impl TargetEffects,
    ) -> Result<(), NoMemory> {
        let Some(filling) = self.reassembly_mut(id).copied() else { return Ok(()) };
        let bytes = filling.clip_bytes(bytes);
        if let Some(inbound) = self.inbounds.get_mut(filling.owner) {
            copy_into_window(&mut inbound.window, filling.arrived_bytes, bytes);
        }
        self.bytes_placed(id, bytes.len(), effects)
    }

    /// Returns the space for the next bytes of the write that is arriving on a link.
    pub(crate) fn payload_space(&mut self, id: LinkId) -> Space<'_> {
        let Some(filling) = self.reassembly_mut(id).copied() else { return Space::new() };
        match self.inbounds.get_mut(filling.owner).map(|inbound| &mut inbound.window) {
            Some(Ok(window)) => window.open().map_or_else(Space::new, |open| {
                open.slices_mut(clamp_to_usize(filling.arrived_bytes), clamp_to_usize(filling.left_bytes()))
            }),
            _ => Space::new(),
        }
    }

    /// Records that the next bytes of the write that is arriving on a link are in place. The last
    /// byte ends the write.
    ///
    /// # Errors
    ///
    /// [`NoMemory`] to report the write.
    pub(crate) fn bytes_placed(
        &mut self,
        id: LinkId,
        count_bytes: usize,
        effects: &mut impl TargetEffects,
    ) -> Result<(), NoMemory> {
        let Some(filling) = self.reassembly_mut(id) else { return Ok(()) };
        if filling.advance(count_bytes) == Arrived::Partly {
            return Ok(());
        }
        match self.links.get_mut(id).and_then(|link| link.writing.take()) {
            Some(IncomingWrite::Sent(filling)) => self.finish_arrived_write(id, &filling, effects),
            Some(IncomingWrite::Requested(fetch)) => match self.fetches.remove(fetch) {
                Some(fetch) => self.finish_arrived_write(id, &fetch.filling, effects),
                None => Ok(()),
            },
            None => Ok(()),
        }
    }

    fn reassembly_mut(&mut self, id: LinkId) -> Option<&mut Reassembly<PeerWriteId>> {
        match self.links.get_mut(id)?.writing.as_mut()? {
            IncomingWrite::Sent(filling) => Some(filling),
            IncomingWrite::Requested(fetch) => self.fetches.reassembly_mut(*fetch),
        }
    }

    /// Ends a write whose payload is whole.
    fn finish_arrived_write(
        &mut self,
        id: LinkId,
        filling: &Reassembly<PeerWriteId>,
        effects: &mut impl TargetEffects,
    ) -> Result<(), NoMemory> {
        match self.inbounds.remove(filling.owner) {
            Some(inbound) => self.complete_write(id, inbound.into_inner(), filling.len_bytes, effects),
            None => Ok(()),
        }
    }

    #[inline]
    fn complete_write(
        &mut self,
        id: LinkId,
        inbound: PeerWrite,
        len_bytes: u64,
        effects: &mut impl TargetEffects,
    ) -> Result<(), NoMemory> {
        let PeerWrite { answering, data, durable, mut window, .. } = inbound;
        if let Ok(window) = &mut window
            && !self.persist_or_note_write(id, window, durable, len_bytes)
        {
            self.answer_write(id, answering, Outcome::NotDurable, effects);
            return_credit_if_remote_data(id, data, effects);
            return Ok(());
        }
        match window {
            Ok(window) => {
                let event = CounterEvents::REMOTE_WRITE;
                self.count_access_if_enabled(window.region(), event, event, effects);
                self.answer_write(id, answering, Outcome::Done, effects);
                let is_broken = mutated!("fi_cq/messages-complete-at-target")
                    || mutated!("fi_rma/access-is-silent-at-target");
                if data.is_none() && is_broken {
                    let event = EndedOperation::of_transmit(0, WriteNotice::FLAGS, Buffer::None);
                    let _is_refused = effects.complete(event).is_err();
                }
                if let Some(data) = data {
                    self.report_write_with_remote_data(id, data, clamp_to_usize(len_bytes), effects)?;
                }
            }
            Err(outcome) => {
                self.answer_write(id, answering, outcome, effects);
                return_credit_if_remote_data(id, data, effects);
            }
        }
        Ok(())
    }
}

impl FetchMemory<PeerWriteId> for SlotMap<PeerWriteId, TryBox<PeerWrite>> {
    fn wanted_bytes(&mut self, filling: &Reassembly<PeerWriteId>) -> u64 {
        let is_refused = self.get(filling.owner).is_none_or(|inbound| inbound.window.is_err());
        if is_refused { 0 } else { filling.len_bytes }
    }

    fn pull(
        &mut self,
        filling: &Reassembly<PeerWriteId>,
        step_bytes: usize,
        copy: impl FnOnce(&mut [IoSliceMut<'_>]) -> Pull,
    ) -> Pull {
        let inbound = self.get_mut(filling.owner);
        inbound
            .map_or(Pull::Gone, |inbound| inbound.pull_into_region(filling.arrived_bytes, step_bytes, copy))
    }

    // Nothing to discard: the requested payload overwrites the pulled bytes in the region.
    fn discard_pulled(&mut self, _: &PeerWriteId) {}
}

impl PeerWrite {
    /// Pulls the next bytes into the region. If the region has closed, refuses the write instead, which then
    /// takes no more bytes.
    fn pull_into_region(
        &mut self,
        at_bytes: u64,
        step_bytes: usize,
        copy: impl FnOnce(&mut [IoSliceMut<'_>]) -> Pull,
    ) -> Pull {
        let Ok(window) = &mut self.window else { return Pull::Gone };
        let is_sliceable = window.is_sliceable();
        let Some(open) = window.open() else {
            self.window = Err(Outcome::Refused(Refusal::Key));
            return Pull::Done;
        };
        if is_sliceable {
            return copy(&mut open.slices_mut(clamp_to_usize(at_bytes), step_bytes));
        }
        // Without memory, the peer is asked to send the payload, which then needs no buffer.
        if self.pulled.try_reserve_exact(step_bytes.saturating_sub(self.pulled.len())).is_err() {
            return Pull::Declined;
        }
        self.pulled.resize(step_bytes, 0);
        let pulled = copy(&mut [IoSliceMut::new(&mut self.pulled)]);
        if pulled == Pull::Done {
            open.copy_in(clamp_to_usize(at_bytes), &self.pulled);
        }
        pulled
    }
}

/// Returns credit to the link's peer for a write with remote data that gets no completion.
fn return_credit_if_remote_data(id: LinkId, data: Option<u64>, effects: &mut impl TargetEffects) {
    if data.is_some() {
        effects.return_credit(id, MESSAGE_COST_BYTES);
    }
}

/// Copies bytes into a region. If the region has closed, refuses the write instead.
fn copy_into_window(window: &mut Result<Window, Outcome>, at_bytes: u64, bytes: &[u8]) {
    let Ok(open) = window.as_mut().map(Window::open) else { return };
    match open {
        Some(open) => open.copy_in(clamp_to_usize(at_bytes), bytes),
        None => *window = Err(Outcome::Refused(Refusal::Key)),
    }
}
