//! All links of an endpoint.

use super::{LinkRx, LinkTx, PendingReplies};
use crate::peer_id::PeerId;
use crate::transport::LinkId;
use crate::visits::record_visit;
use crate::wire::Header;

/// Whether a link leads to the endpoint that is now at the peer's address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Current,
    /// The link had ended when it came up, or a new endpoint has replaced the one that it leads to.
    Replaced,
    /// The link leads to the endpoint with the number `instance`. A new endpoint seems to have replaced it,
    /// but it may be the other way round.
    Doubtful {
        instance: u64,
    },
}

/// The engine's state of one link.
#[derive(Debug)]
pub(crate) struct Link {
    /// The sending half.
    pub(crate) tx: LinkTx,
    /// The receiving half.
    pub(crate) rx: LinkRx,
    peer: PeerId,
    is_up: bool,
    standing: Standing,
    /// Whether only the peer itself says that it is at its address.
    is_claim: bool,
    creation_number: u64,
}

impl Link {
    /// Returns the peer that the link leads to.
    #[inline(always)]
    pub(crate) fn peer(&self) -> PeerId {
        self.peer
    }

    /// Records that the link is up. `is_claim` says whether only the peer itself says that it is at its
    /// address.
    pub(crate) fn mark_up(&mut self, is_claim: bool) {
        (self.is_up, self.is_claim) = (true, is_claim);
    }

    /// Records that the address of the peer is proven.
    pub(crate) fn mark_proven(&mut self) {
        self.is_claim = false;
    }

    /// Whether only the peer itself says that it is at its address.
    pub(crate) fn is_claim(&self) -> bool {
        self.is_claim
    }

    /// Whether the link is, or was, up.
    pub(crate) fn has_come_up(&self) -> bool {
        self.is_up
    }

    pub(crate) fn set_standing(&mut self, standing: Standing) {
        self.standing = standing;
    }

    /// Whether a new endpoint has replaced the endpoint that the link leads to, or seems to.
    pub(crate) fn is_replaced(&self) -> bool {
        self.standing != Standing::Current
    }

    /// Returns the endpoint that the link leads to, if it only seems to be replaced.
    pub(crate) fn doubtful_instance(&self) -> Option<u64> {
        match self.standing {
            Standing::Doubtful { instance } => Some(instance),
            Standing::Current | Standing::Replaced => None,
        }
    }

    /// Whether the link is up and leads to the endpoint that is now at the peer's address.
    pub(crate) fn is_current(&self) -> bool {
        self.is_up && !self.is_replaced()
    }

    /// Whether the link is still connecting, and has taken no message or access.
    pub(crate) fn is_unused_connecting(&self) -> bool {
        !self.is_up && !self.tx.has_taken_frames()
    }

    /// Returns the number that this link got at its creation. A later link may get the same id, but
    /// never the same creation number.
    pub(crate) fn creation_number(&self) -> u64 {
        self.creation_number
    }
}

/// All links, by their ids. The transport assigns small ids, so a vector suffices.
#[derive(Debug, Default)]
pub(crate) struct Links {
    by_id: Vec<Option<Link>>,
    /// Links with pending replies. Each is listed once.
    with_replies: Vec<LinkId>,
    /// How many links were ever created, which is the creation number of the newest link.
    count: u64,
}

impl Links {
    #[inline]
    pub(crate) fn get_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        record_visit();
        self.by_id.get_mut(id.0 as usize)?.as_mut()
    }

    #[inline]
    pub(crate) fn get(&self, id: LinkId) -> Option<&Link> {
        record_visit();
        self.by_id.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Link> {
        self.by_id.iter_mut().flatten().inspect(|_| record_visit())
    }

    pub(crate) fn ids(&self) -> Vec<LinkId> {
        let present = self.by_id.iter().enumerate().filter(|(_, link)| link.is_some());
        let present = present.inspect(|_| record_visit());
        present.map(|(id, _)| LinkId(id as u32)).collect()
    }

    fn iter(&self) -> impl Iterator<Item = &Link> {
        self.by_id.iter().flatten().inspect(|_| record_visit())
    }

    /// Returns the peers to which links lead. A peer may occur several times.
    pub(crate) fn peers(&self) -> impl Iterator<Item = PeerId> {
        self.iter().map(Link::peer)
    }

    /// Returns how many links were ever created.
    pub(crate) fn created_count(&self) -> u64 {
        self.count
    }

    /// Whether a peer has yet to fetch the payload of an offered send. Visits all links.
    pub(crate) fn have_unfetched_sends(&self) -> bool {
        self.iter().any(|link| !link.is_replaced() && link.tx.has_unfetched_payload())
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
            standing: Standing::Current,
            is_claim: false,
            creation_number: self.count,
        });
    }

    pub(crate) fn remove(&mut self, id: LinkId) -> Option<Link> {
        let link = self.by_id.get_mut(id.0 as usize)?.take()?;
        if !link.tx.pending_replies().is_empty() {
            self.with_replies.retain(|other| *other != id);
        }
        Some(link)
    }

    /// Queues a header for the peer. The link takes the header when it has room, after earlier
    /// headers.
    pub(crate) fn queue_header(&mut self, id: LinkId, header: Header) {
        self.add_reply(id, |replies| replies.add_header(header));
    }

    /// Queues an acknowledgement of the eager messages that have arrived.
    pub(crate) fn queue_ack(&mut self, id: LinkId) {
        self.add_reply(id, PendingReplies::add_ack);
    }

    /// Queues the count of the counted writes that this side has carried out.
    #[inline(always)]
    pub(crate) fn queue_written_count(&mut self, id: LinkId) {
        self.add_reply(id, PendingReplies::add_written);
    }

    /// Queues a grant of credit.
    pub(crate) fn queue_credit_grant(&mut self, id: LinkId) {
        self.add_reply(id, PendingReplies::mark_credit_grant_pending);
    }

    /// Queues the data of the peer's reads.
    pub(crate) fn queue_read_data(&mut self, id: LinkId) {
        self.add_reply(id, PendingReplies::add_read_data);
    }

    /// Adds a pending reply, and lists the link if it had none.
    #[inline(always)]
    fn add_reply(&mut self, id: LinkId, add: impl FnOnce(&mut PendingReplies)) {
        record_visit();
        let Some(Some(link)) = self.by_id.get_mut(id.0 as usize) else { return };
        let replies = link.tx.pending_replies_mut();
        if replies.is_empty() {
            self.with_replies.push(id);
        }
        add(replies);
    }

    #[inline(always)]
    pub(crate) fn have_pending_replies(&self) -> bool {
        !self.with_replies.is_empty()
    }

    /// Whether a link has paused read data.
    pub(crate) fn has_paused_reads(&self) -> bool {
        self.with_replies
            .iter()
            .any(|id| self.get(*id).is_some_and(|link| link.tx.pending_replies().has_paused_reads()))
    }

    /// Calls `send` for each link with pending replies. `send` sends as much as the link takes.
    #[inline(always)]
    pub(crate) fn send_pending_replies(&mut self, mut send: impl FnMut(LinkId, &mut LinkTx)) {
        let Links { by_id, with_replies, .. } = self;
        with_replies.retain(|id| {
            record_visit();
            let Some(Some(link)) = by_id.get_mut(id.0 as usize) else { return false };
            send(*id, &mut link.tx);
            !link.tx.pending_replies().is_empty()
        });
    }

    /// As [`send_pending_replies`](Self::send_pending_replies), for one link. Returns whether the
    /// link can take another frame.
    #[inline]
    pub(crate) fn try_send_pending_replies_of(
        &mut self,
        id: LinkId,
        send: impl FnOnce(LinkId, &mut LinkTx),
    ) -> bool {
        record_visit();
        let Some(Some(link)) = self.by_id.get_mut(id.0 as usize) else { return true };
        if link.tx.pending_replies().is_empty() {
            return true;
        }
        send(id, &mut link.tx);
        let replies = link.tx.pending_replies();
        if replies.is_empty() {
            self.with_replies.retain(|other| *other != id);
            return true;
        }
        // Read data gives way to other frames.
        replies.has_only_read_data() && link.tx.is_between_frames()
    }
}
