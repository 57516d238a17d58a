//! A receiver's state of each link: its member, the peer's credit, and the message being read.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::MemberId;
use super::credit::{Budget, Grant};
use super::leftovers::UnprovenMessages;
use super::payload_destination::PayloadDestination;
use crate::operation::FetchId;
use crate::peer_id::PeerId;
use crate::reassembly::Reassembly;
use crate::transport::LinkId;
use crate::visits::record_visit;
use crate::wire::Message;

/// A link that messages arrive on.
#[derive(Debug)]
pub(super) struct ReceiverLink {
    pub(super) peer: PeerId,
    /// The member that owns the link.
    pub(super) member: MemberId,
    /// The number that the link got when it was added. Unlike the link's id, it is never used
    /// again.
    pub(super) creation_number: u64,
    /// The peer's credit.
    pub(super) grant: Grant,
    /// Whether a grant of credit is queued, which the link has not taken yet.
    pub(super) is_grant_queued: bool,
    /// How many eager messages have arrived whole.
    pub(super) received_messages: u64,
    /// The message whose payload is being read.
    pub(super) reading: Option<IncomingMessage>,
    /// How many messages of the link are kept because no receive has taken them.
    pub(super) unmatched_messages: u64,
    /// How much of the budget those of them use that no peek has claimed.
    pub(super) unclaimed_bytes: u64,
    /// How many fences the peer has sent.
    pub(super) received_fences: u64,
    /// How many messages before the unanswered fence are still unmatched. The fence is answered
    /// when this reaches 0. It is 0 if no fence is unanswered.
    pub(super) fenced_messages: u64,
    /// The kept messages of a peer that is not proven; `None` if the peer is proven.
    pub(super) unproven_messages: Option<Box<UnprovenMessages>>,
}

/// A message that has arrived in part.
#[derive(Debug)]
pub(super) enum IncomingMessage {
    /// An eager message, and its number among the eager messages of the link.
    Eager { filling: Reassembly<Arriving>, number: u64 },
    /// A message whose payload was requested from its sender.
    Requested(FetchId),
}

/// A message that is arriving, with its destination.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arriving {
    pub(super) message: Message,
    pub(super) destination: PayloadDestination,
    /// The credit that a discarded message holds until its requested payload arrives. Without this,
    /// a peer that never sends the payloads could make offers without end.
    pub(super) held_bytes: u64,
}

impl Arriving {
    /// Creates the reassembly of a message of which no byte has arrived.
    pub(super) fn new_reassembly(destination: PayloadDestination, message: &Message) -> Reassembly<Arriving> {
        Reassembly::new(message.len_bytes, Arriving { message: *message, destination, held_bytes: 0 })
    }
}

/// The link and member that a message came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MessageOrigin {
    pub(super) link: LinkId,
    pub(super) member: MemberId,
    /// The link's creation number, which tells it from later links with the same `link`.
    pub(super) creation_number: u64,
}

impl ReceiverLink {
    /// Returns the origin of messages on this link, whose number is `id`.
    pub(super) fn message_origin(&self, id: LinkId) -> MessageOrigin {
        MessageOrigin { link: id, member: self.member, creation_number: self.creation_number }
    }
}

/// All links, by their ids. The transport assigns small ids, so a vector suffices.
#[derive(Debug, Default)]
pub(super) struct ReceiverLinks {
    by_id: Vec<Option<ReceiverLink>>,
    /// How many links lead to each peer to which any leads. With a shared receiver, a directed
    /// receive and the loss of a peer ask for one peer.
    counts: HashMap<PeerId, u32>,
    /// How many links were ever added: the creation number of the newest link.
    count: u64,
}

impl ReceiverLinks {
    #[inline]
    pub(super) fn get_mut(&mut self, id: LinkId) -> Option<&mut ReceiverLink> {
        record_visit();
        self.by_id.get_mut(id.0 as usize)?.as_mut()
    }

    #[inline]
    pub(super) fn get(&self, id: LinkId) -> Option<&ReceiverLink> {
        record_visit();
        self.by_id.get(id.0 as usize)?.as_ref()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut ReceiverLink> {
        self.by_id.iter_mut().flatten()
    }

    /// Returns the link that a message came from, if it has not ended.
    pub(super) fn link_of_origin(&mut self, origin: MessageOrigin) -> Option<&mut ReceiverLink> {
        self.get_mut(origin.link).filter(|link| link.creation_number == origin.creation_number)
    }

    pub(super) fn has_link_to(&self, peer: PeerId) -> bool {
        record_visit();
        self.counts.contains_key(&peer)
    }

    /// Returns the peers to which links lead.
    pub(super) fn linked_peers(&self) -> impl Iterator<Item = PeerId> {
        self.by_id.iter().flatten().inspect(|_| record_visit()).map(|link| link.peer)
    }

    pub(super) fn insert(&mut self, id: LinkId, peer: PeerId, member: MemberId, budget: &mut Budget) {
        let place = id.0 as usize;
        if self.by_id.len() <= place {
            self.by_id.resize_with(place + 1, || None);
        }
        self.count += 1;
        *self.counts.entry(peer).or_default() += 1;
        self.by_id[place] = Some(ReceiverLink {
            peer,
            member,
            creation_number: self.count,
            grant: Grant::initial(budget),
            is_grant_queued: false,
            received_messages: 0,
            reading: None,
            unmatched_messages: 0,
            unclaimed_bytes: 0,
            received_fences: 0,
            fenced_messages: 0,
            unproven_messages: None,
        });
    }

    pub(super) fn remove(&mut self, id: LinkId) -> Option<ReceiverLink> {
        let link = self.by_id.get_mut(id.0 as usize)?.take()?;
        if let Entry::Occupied(mut count) = self.counts.entry(link.peer) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        Some(link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::visits::count_visits_during;

    #[test]
    fn peer_is_linked_until_its_last_link_is_removed() {
        let (mut links, mut budget) = (ReceiverLinks::default(), Budget::new(1 << 20));
        let (peer, other) = (PeerId(4), PeerId(9));
        links.insert(LinkId(1), peer, MemberId::ONLY, &mut budget);
        links.insert(LinkId(0), other, MemberId::ONLY, &mut budget);
        links.insert(LinkId(2), peer, MemberId::ONLY, &mut budget);
        assert!(links.remove(LinkId(1)).is_some() && links.remove(LinkId(1)).is_none());
        assert!(links.has_link_to(peer) && links.has_link_to(other));
        assert!(links.remove(LinkId(2)).is_some());
        assert!(!links.has_link_to(peer) && links.has_link_to(other));
    }

    #[test]
    fn search_for_a_peer_visits_no_other_link() {
        let (mut links, mut budget) = (ReceiverLinks::default(), Budget::new(1 << 20));
        for number in 0..1_000 {
            links.insert(LinkId(number), PeerId(number), MemberId::ONLY, &mut budget);
        }
        assert_eq!(count_visits_during(|| assert!(!links.has_link_to(PeerId(1_000)))), 1);
        assert_eq!(count_visits_during(|| assert!(links.has_link_to(PeerId(999)))), 1);
    }
}
