//! The target's side of access to regions: `fi_rma(3)`.
//!
//! ```text
//!  Write --> all there --> owes Answer
//!
//!  Offer --> is fetched like a message that was matched --> owes Answer
//!
//!  Read  --> ReadData, piece by piece --> Answer
//! ```
//!
//! The results of [atomic operations](super::atomic_targets) leave with what is read; they are answered by it.
//!
//! A key that is unknown, a right that is missing or a range that is too long is answered, and what comes of the payload goes
//! nowhere. The same becomes of an access whose region is closed in the middle of it.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};

use slotmap::SlotMap;
use smallvec::{SmallVec, smallvec};

use super::Engine;
use super::incoming::{Accessed, Described, Incoming, PartialDescription};
use super::links::{Frame, Link, Writing};
use super::ordering::copies_reads;
use crate::completion::Sink;
use crate::fetches::{Memory, Step};
use crate::filling::{Filling, clamp};
use crate::flags::{CounterEvents, MrAccess};
use crate::limits::{
    IOV_LIMIT, MESSAGE_COST_BYTES, PULL_PASS_MAX_BYTES, READ_COPIED_MAX_BYTES, READ_PIECE_MAX_BYTES,
    RMA_LINK_MAX_OPS,
};
use crate::operation::{InboundId, SendId};
use crate::region::Window;
use crate::transport::{LinkId, Pull, Remote, Sent, Space, Transport};
use crate::wire::{Durable, Header, Outcome, Refusal, Rma, RmaKind};

/// What a link has to do with access to regions.
#[derive(Debug, Default)]
pub(super) struct RmaOfLink {
    /// How many accesses of this side the peer has not answered.
    pub(super) outstanding_ops: usize,
    /// How much of the peer's memory those of them that are atomic operations fetch.
    pub(super) outstanding_bytes: usize,
    /// How many accesses of the peer this side has not answered.
    pub(super) unanswered_ops: usize,
    /// How much of this side's memory atomic operations have fetched that the link has not taken.
    pub(super) unanswered_bytes: usize,
    /// What the peer reads, in the order in which it has asked.
    reads: VecDeque<Reading>,
    /// Whether more of that could have been sent, but it was the turn of others.
    has_paused: bool,
}

/// What a peer writes to a region.
#[derive(Debug)]
pub(super) struct Inbound {
    op: u64,
    data: Option<u64>,
    durable: Durable,
    /// Where it goes, or the answer if it goes nowhere.
    window: Result<Window, Outcome>,
    /// What is pulled and cannot be put into place by that, a step of it at a time.
    pulled: Vec<u8>,
}

/// What a peer reads from a region.
#[derive(Debug)]
pub(super) struct Reading {
    op: u64,
    len_bytes: u64,
    /// How much of it the link has, in whole pieces.
    sent_bytes: u64,
    /// Where it is, or why no more of it is sent. `None` for what an atomic operation has fetched, which is one piece.
    window: Option<Result<Window, Refusal>>,
    /// The payload of the piece that is being sent, if that is not the region's memory.
    copy: Vec<u8>,
    /// Whether all of it was copied when it was asked for.
    is_copied: bool,
}

impl RmaOfLink {
    pub(super) fn is_owing(&self) -> bool {
        !self.reads.is_empty()
    }

    /// The peer reads this, behind what it has asked for before.
    pub(super) fn read(&mut self, reading: Reading) {
        self.reads.push_back(reading);
    }

    /// What is left of a piece that the link has taken in part.
    pub(super) fn rest_of_piece(&mut self, taken_bytes: usize) -> Option<SmallVec<[IoSlice<'_>; IOV_LIMIT]>> {
        Some(self.reads.front_mut()?.piece(taken_bytes))
    }
}

impl Engine {
    /// An access to a region begins to arrive. Returns whether it may.
    fn admit_rma(&mut self, id: LinkId, rma: &Rma, sink: &mut impl Sink) -> bool {
        let Some(link) = self.links.of(id) else { return false };
        if link.rma.unanswered_ops >= RMA_LINK_MAX_OPS {
            self.condemn(id, "has more accesses under way than it may", sink);
            return false;
        }
        link.rma.unanswered_ops += 1;
        if rma.kind.data().is_none() {
            return true;
        }
        let outcome = self.receiver.spend_credit(id, MESSAGE_COST_BYTES);
        self.enforce(id, outcome, sink)
    }

    /// The part of a region that a peer names, if it may access it so through this endpoint.
    fn window(&mut self, id: LinkId, rma: &Rma, access: MrAccess) -> Result<Window, Refusal> {
        if !self.config.remote_access.contains(access) {
            return Err(Refusal::Access);
        }
        let Rma { key, address, len_bytes, durable, .. } = *rma;
        // Of no bytes, too, it matters on which device earlier ones are to be durable.
        let window = if durable == Durable::Nothing {
            self.regions.window_or_empty(key, address, len_bytes, access)?
        } else {
            self.regions.window(key, address, len_bytes, access)?
        };
        if durable != Durable::Nothing && !window.region().is_persistent() {
            return Err(Refusal::Volatile);
        }
        self.show(id, &window);
        Ok(window)
    }

    /// The part of a region that a peer writes to, if it may be written to now.
    fn window_to_write(&mut self, id: LinkId, rma: &Rma) -> Result<Window, Outcome> {
        let window = self.window(id, rma, MrAccess::REMOTE_WRITE).map_err(Outcome::Refused)?;
        if self.persist_before(id, rma.durable) { Ok(window) } else { Err(Outcome::NotDurable) }
    }

    /// A whole frame that accesses a region has arrived.
    pub(super) fn rma_arrived(&mut self, id: LinkId, rma: &Rma, payload: &[u8], sink: &mut impl Sink) {
        match rma.kind {
            RmaKind::Read => self.read_asked(id, rma, sink),
            RmaKind::Offer { .. } => self.write_offered(id, rma, payload, sink),
            RmaKind::Write { data } => {
                if self.admit_rma(id, rma, sink) {
                    let mut window = self.window_to_write(id, rma);
                    put(&mut window, 0, payload);
                    let inbound =
                        Inbound { op: rma.op, data, durable: rma.durable, window, pulled: Vec::new() };
                    self.written(id, inbound, rma.len_bytes, sink);
                }
            }
        }
    }

    /// A frame that accesses a region begins to arrive.
    pub(super) fn begin_rma(&mut self, id: LinkId, rma: &Rma, sink: &mut impl Sink) {
        match rma.kind {
            RmaKind::Read => {}
            RmaKind::Offer { remote_bytes, .. } => {
                self.begin_description(id, Described::Offer(*rma), remote_bytes);
            }
            RmaKind::Write { data } => {
                if self.admit_rma(id, rma, sink) {
                    let inbound = self.inbound(id, rma, data);
                    if let Some(link) = self.links.of(id) {
                        let filling = Filling::new(rma.len_bytes, Accessed::Region(inbound));
                        link.incoming = Some(Incoming::Access(filling));
                    }
                }
            }
        }
    }

    /// A description of memory begins to arrive.
    pub(super) fn begin_description(&mut self, id: LinkId, of: Described, remote_bytes: u8) {
        if let Some(link) = self.links.of(id) {
            let partial = PartialDescription { of, remote_bytes, remote: SmallVec::new() };
            link.incoming = Some(Incoming::Described(Box::new(partial)));
        }
    }

    /// Makes a place for what a peer writes.
    fn inbound(&mut self, id: LinkId, rma: &Rma, data: Option<u64>) -> InboundId {
        let window = self.window_to_write(id, rma);
        let inbound = Inbound { op: rma.op, data, durable: rma.durable, window, pulled: Vec::new() };
        self.inbounds.insert(Box::new(inbound))
    }

    /// A peer offers to have fetched what it writes.
    pub(super) fn write_offered(&mut self, id: LinkId, rma: &Rma, remote: &[u8], sink: &mut impl Sink) {
        if self.receiver.has_offer(id, rma.op) || self.write_fetches.has_offer(id, rma.op) {
            return self.condemn(id, "offers two payloads under one number", sink);
        }
        let Some(remote) = Remote::new(remote) else {
            return self.condemn(id, "describes its payload at too great a length", sink);
        };
        if !self.admit_rma(id, rma, sink) {
            return;
        }
        let inbound = self.inbound(id, rma, rma.kind.data());
        let filling = Filling::new(rma.len_bytes, inbound);
        let fetch = self.write_fetches.add(id, rma.op, filling, remote);
        self.write_fetches.begin(fetch);
    }

    /// Goes a step further with everything that peers have offered to write, as far as one pass goes.
    pub(super) fn pull_writes(&mut self, transport: &mut impl Transport, sink: &mut impl Sink) {
        let mut pulled_bytes = 0;
        for _ in 0..self.write_fetches.pulling_len() {
            if pulled_bytes >= PULL_PASS_MAX_BYTES {
                return;
            }
            let step = self.write_fetches.step(&mut self.inbounds, &mut |link, from, at_bytes, into| {
                transport.pull(link, from, at_bytes, into)
            });
            pulled_bytes += step.pulled_bytes();
            match step {
                Step::Pulled(_) => {}
                Step::Ended { fetch, .. } => {
                    let Filling { len_bytes, place, .. } = fetch.filling;
                    self.inbound_ended(fetch.link, place, len_bytes, false, sink);
                }
                Step::Faulted(fetch) => {
                    let Filling { len_bytes, place, .. } = fetch.filling;
                    self.inbound_ended(fetch.link, place, len_bytes, true, sink);
                }
                Step::Asked { link, op, cannot_pull } => {
                    self.links.owe(link, Header::Clear { op, cannot_pull });
                }
            }
        }
    }

    /// Puts what a peer writes where it belongs.
    pub(super) fn put_inbound(&mut self, id: InboundId, at_bytes: u64, bytes: &[u8]) {
        if let Some(inbound) = self.inbounds.get_mut(id) {
            put(&mut inbound.window, at_bytes, bytes);
        }
    }

    /// Where the next bytes of what a peer writes belong.
    pub(super) fn inbound_space(&mut self, id: InboundId, at_bytes: u64, len_bytes: u64) -> Space<'_> {
        match self.inbounds.get_mut(id).map(|inbound| &mut inbound.window) {
            Some(Ok(window)) => window.space(clamp(at_bytes), clamp(len_bytes)),
            _ => Space::new(),
        }
    }

    /// What a peer writes is all there, or will not come.
    pub(super) fn inbound_ended(
        &mut self,
        link: LinkId,
        id: InboundId,
        len_bytes: u64,
        fault: bool,
        sink: &mut impl Sink,
    ) {
        let Some(inbound) = self.inbounds.remove(id) else { return };
        if fault {
            self.rma_ended(link, inbound.op, Outcome::Fault);
            return self.event_spared(link, inbound.data, sink);
        }
        self.written(link, *inbound, len_bytes, sink);
    }

    /// The peer that was writing is gone.
    pub(super) fn inbound_lost(&mut self, id: InboundId) {
        self.inbounds.remove(id);
    }

    fn written(&mut self, id: LinkId, inbound: Inbound, len_bytes: u64, sink: &mut impl Sink) {
        let Inbound { op, data, durable, window, .. } = inbound;
        if let Ok(window) = &window
            && !self.persisted(id, window, durable, len_bytes)
        {
            self.rma_ended(id, op, Outcome::NotDurable);
            return self.event_spared(id, data, sink);
        }
        match window {
            Ok(window) => {
                let event = CounterEvents::REMOTE_WRITE;
                accessed(&window, event, event, self.config.rma_events, sink);
                self.rma_ended(id, op, Outcome::Done);
                if let Some(data) = data {
                    self.remotely_written(id, data, clamp(len_bytes), sink);
                }
            }
            Err(outcome) => {
                self.rma_ended(id, op, outcome);
                self.event_spared(id, data, sink);
            }
        }
    }

    /// There will be no completion of a write whose sender had to have credit for one.
    fn event_spared(&mut self, id: LinkId, data: Option<u64>, sink: &mut impl Sink) {
        if data.is_some() {
            self.return_credit(id, MESSAGE_COST_BYTES, sink);
        }
    }

    pub(super) fn rma_ended(&mut self, id: LinkId, op: u64, outcome: Outcome) {
        self.links.owe(id, Header::Answer { op, outcome });
    }

    /// An atomic operation has fetched something, which is to be sent.
    pub(super) fn results_fetched(&mut self, id: LinkId, op: u64, results: Vec<u8>) {
        if let Some(link) = self.links.of(id) {
            link.rma.unanswered_bytes += results.len();
        }
        let len_bytes = results.len() as u64;
        let reading = Reading { op, len_bytes, sent_bytes: 0, window: None, copy: results, is_copied: true };
        self.links.owe_reading(id, reading);
    }

    fn read_asked(&mut self, id: LinkId, rma: &Rma, sink: &mut impl Sink) {
        if !self.admit_rma(id, rma, sink) {
            return;
        }
        let window = Some(self.window(id, rma, MrAccess::REMOTE_READ));
        let is_to_be_copied = copies_reads(self.config.receive_order);
        let Some(link) = self.links.of(id) else { return };
        let Rma { op, len_bytes, .. } = *rma;
        let mut reading =
            Reading { op, len_bytes, sent_bytes: 0, window, copy: Vec::new(), is_copied: false };
        // Nor may it be read before what comes before it.
        let is_next = link.rma.reads.back().is_none_or(|before| before.is_copied);
        if is_to_be_copied && is_next && len_bytes <= READ_COPIED_MAX_BYTES as u64 {
            reading.copy_all();
        }
        self.links.owe_reading(id, reading);
    }
}

impl Memory<InboundId> for SlotMap<InboundId, Box<Inbound>> {
    fn wanted_bytes(&mut self, filling: &Filling<InboundId>) -> u64 {
        let is_wanted = self.get_mut(filling.place).is_some_and(|inbound| inbound.is_wanted());
        if is_wanted { filling.len_bytes } else { 0 }
    }

    fn pull(
        &mut self,
        filling: &Filling<InboundId>,
        step_bytes: usize,
        copy: impl FnOnce(&mut [IoSliceMut<'_>]) -> Pull,
    ) -> Pull {
        let inbound = self.get_mut(filling.place);
        inbound.map_or(Pull::Gone, |inbound| inbound.pull(filling.arrived_bytes, step_bytes, copy))
    }

    // The region keeps what was pulled, and gets it once more.
    fn forget(&mut self, _: &InboundId) {}
}

impl Inbound {
    /// Whether what comes goes anywhere.
    fn is_wanted(&mut self) -> bool {
        if self.window.as_ref().is_ok_and(|window| !window.is_open()) {
            self.window = Err(Outcome::Refused(Refusal::Key));
        }
        self.window.is_ok()
    }

    /// Pulls the next bytes into the region, which is there.
    fn pull(
        &mut self,
        at_bytes: u64,
        step_bytes: usize,
        copy: impl FnOnce(&mut [IoSliceMut<'_>]) -> Pull,
    ) -> Pull {
        let Ok(window) = &mut self.window else { return Pull::Gone };
        if window.is_sliceable() {
            let mut space = window.space(clamp(at_bytes), step_bytes);
            return copy(&mut space);
        }
        self.pulled.resize(step_bytes, 0);
        let pulled = copy(&mut [IoSliceMut::new(&mut self.pulled)]);
        if pulled == Pull::Done {
            window.copy_in(clamp(at_bytes), &self.pulled);
        }
        pulled
    }
}

impl Link {
    /// Whether there is more of what the peer reads, and the link may have room for it.
    pub(super) fn has_paused(&self) -> bool {
        self.rma.has_paused
    }

    /// Sends what the peer reads, and the answers: as much as makes a piece at most, so that others have their turn, or no
    /// more than the rest of a piece that the link has taken in part. The link is not in the middle of another frame.
    pub(super) fn answer_reads(
        &mut self,
        id: LinkId,
        transport: &mut impl Transport,
        rma_events: bool,
        sink: &mut impl Sink,
    ) {
        let mut left_bytes = READ_PIECE_MAX_BYTES as u64;
        self.rma.has_paused = false;
        while let Some(reading) = self.rma.reads.front_mut() {
            if let Some(Writing { taken_bytes, .. }) = &mut self.writing {
                left_bytes = 0;
                let sent = transport.resume(id, &reading.piece(*taken_bytes));
                match sent {
                    Sent::Full => return,
                    Sent::Partial(more_bytes) => {
                        *taken_bytes += more_bytes;
                        return;
                    }
                    Sent::Whole => {
                        self.writing = None;
                        reading.piece_sent();
                    }
                }
            }
            if !reading.is_to_go_on() {
                if let Some(outcome) = reading.outcome() {
                    let answer = Header::Answer { op: reading.op, outcome };
                    if transport.send_inline(id, &answer, &[]).is_err() {
                        return;
                    }
                } else {
                    self.rma.unanswered_bytes -= clamp(reading.len_bytes);
                }
                if let Some(Ok(window)) = &reading.window {
                    let event = CounterEvents::REMOTE_READ;
                    accessed(window, event, event, rma_events, sink);
                }
                self.rma.reads.pop_front();
                self.rma.unanswered_ops -= 1;
                continue;
            }
            let piece_bytes = reading.piece_bytes();
            if piece_bytes > left_bytes {
                self.rma.has_paused = true;
                return;
            }
            left_bytes -= piece_bytes;
            reading.begin_piece();
            let header = Header::ReadData { op: reading.op, len_bytes: piece_bytes };
            let sent = transport.send(id, &header, &reading.piece(0));
            match sent {
                Sent::Full => return,
                Sent::Whole => reading.piece_sent(),
                Sent::Partial(taken_bytes) => {
                    let frame = Frame::ReadData;
                    self.writing = Some(Writing { frame, send: SendId::default(), taken_bytes });
                    return;
                }
            }
        }
    }
}

impl Reading {
    fn piece_bytes(&self) -> u64 {
        (self.len_bytes - self.sent_bytes).min(READ_PIECE_MAX_BYTES as u64)
    }

    /// Whether there is another piece to be sent.
    fn is_to_go_on(&mut self) -> bool {
        let is_left = self.sent_bytes < self.len_bytes;
        if is_left {
            self.look_for_region();
        }
        is_left && !matches!(self.window, Some(Err(_)))
    }

    /// Finds out whether the region is still there.
    fn look_for_region(&mut self) {
        if let Some(Ok(window)) = &self.window
            && !window.is_open()
        {
            self.window = Some(Err(Refusal::Key));
        }
    }

    /// Takes all of it, which is no more than a piece.
    fn copy_all(&mut self) {
        self.is_copied = true;
        if let Some(Ok(window)) = &self.window {
            self.copy.resize(clamp(self.len_bytes), 0);
            window.copy_out(0, &mut self.copy);
        }
    }

    /// Takes what cannot be sent from where it is, once: the link may have had no room for it.
    fn begin_piece(&mut self) {
        if let Some(Ok(window)) = &self.window
            && self.copy.is_empty()
            && !window.is_sliceable()
        {
            self.copy.resize(clamp(self.piece_bytes()), 0);
            window.copy_out(clamp(self.sent_bytes), &mut self.copy);
        }
    }

    /// The rest of the piece that is being sent. If the region is no longer there it is zeros, which the answer will take
    /// back: what was begun has to be ended.
    fn piece(&mut self, taken_bytes: usize) -> SmallVec<[IoSlice<'_>; IOV_LIMIT]> {
        let piece_bytes = clamp(self.piece_bytes());
        if self.copy.is_empty() {
            self.look_for_region();
        }
        match &self.window {
            Some(Ok(window)) if self.copy.is_empty() => {
                window.slices(clamp(self.sent_bytes) + taken_bytes, piece_bytes - taken_bytes)
            }
            _ => {
                self.copy.resize(piece_bytes, 0);
                smallvec![IoSlice::new(&self.copy[taken_bytes..])]
            }
        }
    }

    fn piece_sent(&mut self) {
        self.sent_bytes += self.piece_bytes();
        self.copy.clear();
    }

    /// The answer to it, if it has one beside what was sent.
    fn outcome(&self) -> Option<Outcome> {
        self.window.as_ref().map(|window| match window {
            Ok(_) => Outcome::Done,
            Err(refusal) => Outcome::Refused(*refusal),
        })
    }
}

/// An access by a peer has succeeded. An endpoint with `FI_RMA_EVENT` counts it as one event, `of_endpoint`,
/// and so does the region, which distinguishes by what happened to its memory: `of_region`. A refused access
/// is no event.
pub(super) fn accessed(
    window: &Window,
    of_endpoint: CounterEvents,
    of_region: CounterEvents,
    rma_events: bool,
    sink: &mut impl Sink,
) {
    if rma_events {
        if sink.counts() {
            sink.count(of_endpoint);
        }
        window.count(of_region);
    }
}

/// Copies bytes to a place in a region, if that is still there.
fn put(window: &mut Result<Window, Outcome>, at_bytes: u64, bytes: &[u8]) {
    if let Ok(open) = window
        && !open.copy_in(clamp(at_bytes), bytes)
    {
        *window = Err(Outcome::Refused(Refusal::Key));
    }
}
