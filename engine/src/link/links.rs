//! All links of an endpoint.

use super::{Debts, LinkRx, LinkTx};
use crate::peer_id::PeerId;
use crate::transport::LinkId;
use crate::wire::Header;

/// What the coordinator keeps of one link.
#[derive(Debug)]
pub(crate) struct Link {
    /// What is being written.
    pub(crate) tx: LinkTx,
    /// What is being read.
    pub(crate) rx: LinkRx,
    peer: PeerId,
    is_up: bool,
    is_replaced: bool,
    begun_at: u64,
}

impl Link {
    /// Where it leads.
    #[inline(always)]
    pub(crate) fn peer(&self) -> PeerId {
        self.peer
    }

    /// Its peer is there.
    pub(crate) fn mark_up(&mut self) {
        self.is_up = true;
    }

    /// Whether the endpoint that it leads to was replaced.
    pub(crate) fn is_replaced(&self) -> bool {
        self.is_replaced
    }

    /// The endpoint that it leads to was replaced.
    pub(crate) fn set_replaced(&mut self) {
        self.is_replaced = true;
    }

    /// Whether it is up and leads to the endpoint that is at its peer's address now.
    pub(crate) fn is_current(&self) -> bool {
        self.is_up && !self.is_replaced
    }

    /// Whether it is still being made, and has taken nothing.
    pub(crate) fn is_unused_connecting(&self) -> bool {
        !self.is_up && !self.tx.has_taken_frames()
    }

    /// The moment when the engine got to know it, by the count of such moments. Unlike its number,
    /// no later link has it.
    pub(crate) fn begun_at(&self) -> u64 {
        self.begun_at
    }
}

/// All links, by the numbers that the transport gives them, which are small.
#[derive(Debug, Default)]
pub(crate) struct Links {
    by_id: Vec<Option<Link>>,
    /// Links whose peer waits to hear something. Each is listed once.
    owing: Vec<LinkId>,
    /// How many links there have been: what serves as time here.
    count: u64,
}

impl Links {
    #[inline]
    pub(crate) fn get_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        self.by_id.get_mut(id.0 as usize)?.as_mut()
    }

    #[inline]
    pub(crate) fn get(&self, id: LinkId) -> Option<&Link> {
        self.by_id.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.by_id.iter_mut().flatten()
    }

    pub(crate) fn ids(&self) -> Vec<LinkId> {
        let present = self.by_id.iter().enumerate().filter(|(_, link)| link.is_some());
        present.map(|(id, _)| LinkId(id as u32)).collect()
    }

    /// How many links there have been.
    pub(crate) fn created_count(&self) -> u64 {
        self.count
    }

    /// Whether a peer still needs a send where it is.
    pub(crate) fn have_unfetched_sends(&self) -> bool {
        self.by_id.iter().flatten().any(|link| !link.is_replaced && link.tx.has_unfetched())
    }

    pub(crate) fn insert(&mut self, id: LinkId, peer: PeerId) {
        let place = id.0 as usize;
        if self.by_id.len() <= place {
            self.by_id.resize_with(place + 1, || None);
        }
        self.count += 1;
        self.by_id[place] = Some(Link {
            tx: LinkTx::default(),
            rx: LinkRx::default(),
            peer,
            is_up: false,
            is_replaced: false,
            begun_at: self.count,
        });
    }

    pub(crate) fn remove(&mut self, id: LinkId) -> Option<Link> {
        let link = self.by_id.get_mut(id.0 as usize)?.take()?;
        if !link.tx.debts().are_paid() {
            self.owing.retain(|other| *other != id);
        }
        Some(link)
    }

    /// The peer is to hear this: it is sent when the link has room, after what was owed before.
    pub(crate) fn owe(&mut self, id: LinkId, header: Header) {
        self.add_debt(id, |debts| debts.add_header(header));
    }

    /// The peer is to hear how many eager messages have arrived.
    pub(crate) fn owe_ack(&mut self, id: LinkId) {
        self.add_debt(id, Debts::add_ack);
    }

    /// The peer is to hear how much credit it was granted.
    pub(crate) fn owe_credit(&mut self, id: LinkId) {
        self.add_debt(id, Debts::add_credit);
    }

    /// The peer is to be sent what it reads.
    pub(crate) fn owe_read(&mut self, id: LinkId) {
        self.add_debt(id, Debts::add_reads);
    }

    /// Lists a link that owes its peer something from now on.
    #[inline(always)]
    fn add_debt(&mut self, id: LinkId, add: impl FnOnce(&mut Debts)) {
        let Some(Some(link)) = self.by_id.get_mut(id.0 as usize) else { return };
        let debts = link.tx.debts_mut();
        if debts.are_paid() {
            self.owing.push(id);
        }
        add(debts);
    }

    #[inline(always)]
    pub(crate) fn have_debts(&self) -> bool {
        !self.owing.is_empty()
    }

    /// Whether a link could send more of what its peer reads.
    pub(crate) fn has_paused_reads(&self) -> bool {
        self.owing.iter().any(|id| self.get(*id).is_some_and(|link| link.tx.debts().has_paused_reads()))
    }

    /// Has the debts of all links paid, as far as `pay` does that.
    #[inline(always)]
    pub(crate) fn pay_debts(&mut self, mut pay: impl FnMut(LinkId, &mut LinkTx)) {
        let Links { by_id, owing, .. } = self;
        owing.retain(|id| {
            let Some(Some(link)) = by_id.get_mut(id.0 as usize) else { return false };
            pay(*id, &mut link.tx);
            !link.tx.debts().are_paid()
        });
    }

    /// As [`pay_debts`](Self::pay_debts), on one link. Returns whether it is free for the next frame.
    #[inline]
    pub(crate) fn pay_debts_of(&mut self, id: LinkId, pay: impl FnOnce(LinkId, &mut LinkTx)) -> bool {
        let Some(Some(link)) = self.by_id.get_mut(id.0 as usize) else { return true };
        if link.tx.debts().are_paid() {
            return true;
        }
        pay(id, &mut link.tx);
        let debts = link.tx.debts();
        if debts.are_paid() {
            self.owing.retain(|other| *other != id);
            return true;
        }
        // What the peer reads lets others have their turn.
        debts.are_only_reads() && link.tx.is_idle()
    }
}
