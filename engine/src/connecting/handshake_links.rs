//! Handshake links: they make and end connections, and carry no messages.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::mem;

use crate::address::Address;
use crate::link_fault::NoMemory;
use crate::source_host::SourceHost;
use crate::transport::{AddressProof, LinkId, Sent};
use crate::wire::{HandshakeHeader, HandshakeStep, Header};

/// All handshake links.
#[derive(Debug, Default)]
pub(super) struct HandshakeLinks {
    by_id: BTreeMap<LinkId, HandshakeLink>,
    /// Links that have frames to send, or that must be closed. Each link is listed at most once.
    pending: Vec<LinkId>,
    /// How many links have come up.
    up_count: u64,
}

/// One handshake link.
#[derive(Debug, Default)]
struct HandshakeLink {
    /// The peer's address and instance, once the link is up.
    peer: Option<(Address, u64)>,
    /// How many links had come up when this one did.
    up_number: u64,
    /// Why this side believes that the peer has its address. `None` until the link is up, and for a link
    /// that has carried messages.
    proof: Option<AddressProof>,
    /// A handshake step that has arrived in part.
    incoming: Option<(HandshakeHeader, Vec<u8>)>,
    outgoing: VecDeque<Outgoing>,
    /// Whether to close the link once it has taken all its outgoing frames.
    is_parting: bool,
}

/// A frame to send.
#[derive(Debug)]
struct Outgoing {
    /// `None` if the link has taken the header. Then only data is left to send.
    header: Option<Header>,
    data: Box<[u8]>,
    /// How much of the data the link has taken; `None` if the link has taken nothing of the frame.
    taken_bytes: Option<usize>,
}

impl HandshakeLinks {
    /// Whether the next pass has frames to send or links to close.
    #[inline(always)]
    pub(super) fn have_output(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether a link that is up has frames to send. Links that are not up yet do not count.
    pub(super) fn have_unsent(&self) -> bool {
        let links = self.pending.iter().filter_map(|id| self.by_id.get(id));
        links.into_iter().any(|link| link.peer.is_some() && !link.outgoing.is_empty())
    }

    /// Whether a link is a handshake link.
    pub(super) fn contains(&self, id: LinkId) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Removes all links, and returns them.
    pub(super) fn take_ids(&mut self) -> Vec<LinkId> {
        self.pending.clear();
        mem::take(&mut self.by_id).into_keys().collect()
    }

    pub(super) fn add(&mut self, id: LinkId) {
        self.by_id.insert(id, HandshakeLink::default());
    }

    pub(super) fn remove(&mut self, id: LinkId) {
        self.by_id.remove(&id);
        self.pending.retain(|other| *other != id);
    }

    /// Returns the peer's address and instance, if the link is up.
    pub(super) fn peer(&self, id: LinkId) -> Option<(Address, u64)> {
        self.by_id.get(&id)?.peer
    }

    /// Whether a link is up and may still bring a frame.
    pub(super) fn has_live_peer(&self) -> bool {
        self.by_id.values().any(|link| link.peer.is_some() && !link.is_parting)
    }

    /// Whether a link has taken all its outgoing frames.
    pub(super) fn is_flushed(&self, id: LinkId) -> bool {
        self.by_id.get(&id).is_none_or(|link| link.outgoing.is_empty())
    }

    /// Records that a link is up.
    pub(super) fn mark_up(&mut self, id: LinkId, peer: Address, instance: u64) {
        self.up_count += 1;
        let link = self.by_id.entry(id).or_default();
        (link.peer, link.up_number) = (Some((peer, instance)), self.up_count);
    }

    /// Records why the peer of a link is believed to be at its address.
    pub(super) fn set_proof(&mut self, id: LinkId, proof: AddressProof) {
        self.by_id.entry(id).or_default().proof = Some(proof);
    }

    /// Returns why the peer of a link is believed to be at its address.
    pub(super) fn proof(&self, id: LinkId) -> Option<AddressProof> {
        self.by_id.get(&id)?.proof
    }

    /// Finds the link that ends if there are too many, other than `own`: of the host with the most links, the
    /// oldest one whose peer only claims its address, or else the oldest one.
    pub(super) fn find_surplus(&self, own: Option<LinkId>) -> Option<LinkId> {
        let mut counts: HashMap<SourceHost, usize> = HashMap::new();
        let mut others = Vec::new();
        for (id, link) in self.by_id.iter().filter(|(id, _)| Some(**id) != own) {
            let (Some((address, _)), Some(proof)) = (link.peer, link.proof) else { continue };
            let host = SourceHost::of(address);
            *counts.entry(host).or_default() += 1;
            others.push((*id, host, proof.is_claim(), Reverse(link.up_number)));
        }
        let surplus =
            others.into_iter().max_by_key(|(_, host, is_claim, age)| (counts[host], *is_claim, *age));
        surplus.map(|(id, ..)| id)
    }

    /// Queues a handshake step for the peer. The caller has checked the length of `data`.
    pub(super) fn queue_step(&mut self, id: LinkId, step: HandshakeStep, number: u64, data: &[u8]) {
        let Some(link) = self.by_id.get_mut(&id) else { return };
        let data_bytes = u16::try_from(data.len()).unwrap_or(u16::MAX);
        let handshake = HandshakeHeader { step, number, data_bytes };
        let header = Some(Header::Connection(handshake));
        link.outgoing.push_back(Outgoing { header, data: data.into(), taken_bytes: None });
        self.mark_pending(id);
    }

    /// Queues the rest of a frame on a link that has carried messages, before any other frame.
    pub(super) fn queue_rest_of_frame(&mut self, id: LinkId, rest: Box<[u8]>) {
        let Some(link) = self.by_id.get_mut(&id) else { return };
        link.outgoing.push_back(Outgoing { header: None, data: rest, taken_bytes: Some(0) });
        self.mark_pending(id);
    }

    /// Queues the answers to the peer's operations on a link that has carried messages, before any handshake
    /// step.
    pub(super) fn queue_answers(&mut self, id: LinkId, answers: Vec<Header>) {
        let Some(link) = self.by_id.get_mut(&id) else { return };
        let outgoing = |header| Outgoing { header: Some(header), data: Box::default(), taken_bytes: None };
        link.outgoing.extend(answers.into_iter().map(outgoing));
        self.mark_pending(id);
    }

    /// Closes a link once it has taken all its frames.
    pub(super) fn close_when_sent(&mut self, id: LinkId) {
        let Some(link) = self.by_id.get_mut(&id) else { return };
        link.is_parting = true;
        self.mark_pending(id);
    }

    /// Closes each link once it has taken all its frames.
    pub(super) fn close_all_when_sent(&mut self) {
        let ids: Vec<LinkId> = self.by_id.keys().copied().collect();
        ids.into_iter().for_each(|id| self.close_when_sent(id));
    }

    /// Records that a handshake step begins to arrive.
    pub(super) fn begin_incoming(&mut self, id: LinkId, handshake: HandshakeHeader) {
        if let Some(link) = self.by_id.get_mut(&id) {
            link.incoming = Some((handshake, Vec::new()));
        }
    }

    /// Adds the next bytes of the handshake step that is arriving. If these bytes complete the step, removes
    /// the step and returns it with its data.
    ///
    /// # Errors
    ///
    /// [`NoMemory`]
    pub(super) fn append_incoming(
        &mut self,
        id: LinkId,
        bytes: &[u8],
    ) -> Result<Option<(HandshakeHeader, Vec<u8>)>, NoMemory> {
        let Some(link) = self.by_id.get_mut(&id) else { return Ok(None) };
        let Some((handshake, data)) = &mut link.incoming else { return Ok(None) };
        let missing_bytes = usize::from(handshake.data_bytes).saturating_sub(data.len());
        let bytes = &bytes[..bytes.len().min(missing_bytes)];
        data.try_reserve(bytes.len())?;
        data.extend_from_slice(bytes);
        let is_whole = data.len() == usize::from(handshake.data_bytes);
        Ok(if is_whole { link.incoming.take() } else { None })
    }

    /// Sends the queued frames with `send`.
    /// [`Connection`](super::Connection::transmit_and_take_links_to_close) describes `send`. Returns the
    /// link that has taken an `Accept`, if any. Also removes and returns the links that the caller must
    /// close.
    pub(super) fn transmit_and_take_links_to_close(
        &mut self,
        send: &mut impl FnMut(LinkId, Option<&Header>, &[u8]) -> Sent,
    ) -> (Option<LinkId>, Vec<LinkId>) {
        let mut accepted = None;
        let mut served = Vec::new();
        for id in mem::take(&mut self.pending) {
            let Some(link) = self.by_id.get_mut(&id) else { continue };
            let is_done = link.try_transmit_all(id, send, |taken| {
                if let Header::Connection(HandshakeHeader { step: HandshakeStep::Accept, .. }) = taken {
                    accepted = Some(id);
                }
            });
            if !is_done {
                self.pending.push(id);
            } else if link.is_parting {
                self.by_id.remove(&id);
                served.push(id);
            }
        }
        (accepted, served)
    }

    fn mark_pending(&mut self, id: LinkId) {
        if !self.pending.contains(&id) {
            self.pending.push(id);
        }
    }
}

impl HandshakeLink {
    /// Sends the queued frames of one link. Calls `on_taken` with the header of each frame that the link has
    /// taken whole. Returns whether the link has taken all frames.
    fn try_transmit_all(
        &mut self,
        id: LinkId,
        send: &mut impl FnMut(LinkId, Option<&Header>, &[u8]) -> Sent,
        mut on_taken: impl FnMut(&Header),
    ) -> bool {
        while let Some(Outgoing { header, data, taken_bytes }) = self.outgoing.front_mut() {
            // The rest of a frame continues where the link has stopped.
            let unbegun = if taken_bytes.is_none() { header.as_ref() } else { None };
            let sent = send(id, unbegun, &data[taken_bytes.unwrap_or(0)..]);
            match sent {
                Sent::Full => return false,
                Sent::Partial(more_bytes) => {
                    *taken_bytes = Some(taken_bytes.unwrap_or(0) + more_bytes);
                    return false;
                }
                Sent::Whole => header.iter().for_each(&mut on_taken),
            }
            self.outgoing.pop_front();
        }
        true
    }
}
