//! What a receiver keeps of each link: its member, the peer's credit, and the message being read.

use super::MemberId;
use super::credit::{Budget, Grant};
use super::payload_destination::PayloadDestination;
use crate::operation::FetchId;
use crate::peer_id::PeerId;
use crate::reassembly::Reassembly;
use crate::transport::LinkId;
use crate::wire::Message;

/// A link that messages arrive on.
#[derive(Debug)]
pub(super) struct ReceiverLink {
    pub(super) peer: PeerId,
    /// The member that owns the link.
    pub(super) member: MemberId,
    /// The moment when the receiver got to know the link, by the count of such moments. Unlike its number, no
    /// later link has it.
    pub(super) begun_at: u64,
    /// What the peer may send.
    pub(super) grant: Grant,
    /// Whether the peer was granted credit that it does not know of.
    pub(super) owes_credit: bool,
    /// How many eager messages have arrived in whole.
    pub(super) received_messages: u64,
    /// The message whose payload is being read.
    pub(super) reading: Option<IncomingMessage>,
    /// How many messages of the link are kept because no receive has taken them.
    pub(super) unmatched_messages: u64,
    /// How many fences the peer has sent.
    pub(super) received_fences: u64,
    /// How many of the messages that are kept came before the last of these, if the peer waits to hear when
    /// there are none.
    pub(super) fenced_messages: u64,
}

/// A message of which a part has been read.
#[derive(Debug)]
pub(super) enum IncomingMessage {
    /// An eager one, and its number among those of the link.
    Eager { filling: Reassembly<Arriving>, number: u64 },
    /// A message that was requested from its sender.
    AskedFor(FetchId),
}

/// A message on its way to its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arriving {
    pub(super) message: Message,
    pub(super) place: PayloadDestination,
    /// The credit that it holds because it was thrown away while its sender is asked for it: else a peer that
    /// never sends it could offer more without end.
    pub(super) held_bytes: u64,
}

impl Arriving {
    /// A message of which nothing has arrived.
    pub(super) fn new_reassembly(place: PayloadDestination, message: &Message) -> Reassembly<Arriving> {
        Reassembly::new(message.len_bytes, Arriving { message: *message, place, held_bytes: 0 })
    }
}

/// A message of a link, or what it has cost there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MessageOrigin {
    pub(super) link: LinkId,
    pub(super) member: MemberId,
    /// Distinguishes the link from later links with its number.
    pub(super) begun_at: u64,
}

impl ReceiverLink {
    /// A message of the link, which has this number.
    pub(super) fn message_origin(&self, id: LinkId) -> MessageOrigin {
        MessageOrigin { link: id, member: self.member, begun_at: self.begun_at }
    }
}

/// All links, by the numbers that the transport gives them, which are small.
#[derive(Debug, Default)]
pub(super) struct ReceiverLinks {
    by_id: Vec<Option<ReceiverLink>>,
    /// How many links there have been: what serves as time here.
    count: u64,
}

impl ReceiverLinks {
    #[inline]
    pub(super) fn get_mut(&mut self, id: LinkId) -> Option<&mut ReceiverLink> {
        self.by_id.get_mut(id.0 as usize)?.as_mut()
    }

    #[inline]
    pub(super) fn get(&self, id: LinkId) -> Option<&ReceiverLink> {
        self.by_id.get(id.0 as usize)?.as_ref()
    }

    /// The link that something came from, if it has not ended.
    pub(super) fn link_of_origin(&mut self, origin: MessageOrigin) -> Option<&mut ReceiverLink> {
        self.get_mut(origin.link).filter(|link| link.begun_at == origin.begun_at)
    }

    pub(super) fn has_link_to(&self, peer: PeerId) -> bool {
        self.linked_peers().any(|other| other == peer)
    }

    /// The peers that links lead to.
    pub(super) fn linked_peers(&self) -> impl Iterator<Item = PeerId> {
        self.by_id.iter().flatten().map(|link| link.peer)
    }

    pub(super) fn insert(&mut self, id: LinkId, peer: PeerId, member: MemberId, budget: &mut Budget) {
        let place = id.0 as usize;
        if self.by_id.len() <= place {
            self.by_id.resize_with(place + 1, || None);
        }
        self.count += 1;
        self.by_id[place] = Some(ReceiverLink {
            peer,
            member,
            begun_at: self.count,
            grant: Grant::initial(budget),
            owes_credit: false,
            received_messages: 0,
            reading: None,
            unmatched_messages: 0,
            received_fences: 0,
            fenced_messages: 0,
        });
    }

    pub(super) fn remove(&mut self, id: LinkId) -> Option<ReceiverLink> {
        self.by_id.get_mut(id.0 as usize)?.take()
    }
}
