//! One peer: the links to it, and the instance that answers on them.

use std::mem;

use smallvec::SmallVec;

use crate::address::Address;
use crate::limits::CONNECT_RETRIES_MAX;
use crate::transport::LinkId;

/// The state of one peer. The engine records here what happens to the links that lead to the peer.
#[derive(Debug)]
pub(crate) struct Peer {
    address: Address,
    /// The endpoint at the address. Known from the moment a first link comes up until no link is up or
    /// connecting.
    instance: Option<Instance>,
    /// The link that carries messages to the peer. There is only one, so that messages keep their order.
    transmit_link: Option<LinkId>,
    /// All links that are up or connecting.
    links: SmallVec<[LinkId; 2]>,
    /// How many attempts to connect in a row were cut short and retried.
    connect_retries: u32,
    /// Whether the last link has ended or could not be made, and no link has come up since.
    is_lost: bool,
    /// Whether the application has named the peer. A named peer is never forgotten.
    is_named: bool,
    /// Whether the peer was unused at the last sweep, and no link has begun since.
    was_unused: bool,
}

/// The endpoint that answers at a peer's address. Another endpoint may take the address later.
#[derive(Debug, Clone, Copy)]
struct Instance {
    /// The number in its hello.
    number: u64,
    /// How many links the engine had created when the endpoint's first link came up. 0 once its links have
    /// ended: whatever comes up next leads to its successor.
    since: u64,
}

/// Which endpoint a link leads to, once the link has come up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerLinkUp {
    /// The endpoint that is known at the address, or the first one there.
    Current,
    /// A new endpoint at the address. Older links to the peer lead to the previous endpoint.
    Successor,
    /// The endpoint that had the address before the endpoint that is known now. When the first link to the
    /// known endpoint came up, the engine had already created this link and at least one later link.
    Predecessor,
}

/// What the end of a link means for the peer that the link led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerLinkEnd {
    /// No other link to the peer is up or connecting.
    pub(crate) was_last: bool,
    /// Since the peer last had no link, this link or another one has come up.
    pub(crate) was_met: bool,
    /// The link carried the messages to the peer. Now none does.
    pub(crate) carried_sends: bool,
}

impl Peer {
    pub(super) fn at(address: Address) -> Peer {
        Peer {
            address,
            instance: None,
            transmit_link: None,
            links: SmallVec::new(),
            connect_retries: 0,
            is_lost: false,
            is_named: false,
            was_unused: false,
        }
    }

    pub(super) fn is_named(&self) -> bool {
        self.is_named
    }

    /// Records that the application has named the peer.
    pub(super) fn mark_named(&mut self) {
        self.is_named = true;
    }

    /// Records at a sweep whether the peer is in use. Returns whether the table keeps the peer.
    pub(super) fn note_sweep(&mut self, is_used: bool) -> bool {
        let was_unused = mem::replace(&mut self.was_unused, !is_used);
        is_used || !was_unused
    }

    pub(crate) fn address(&self) -> Address {
        self.address
    }

    /// Returns the peer's instance, if it is known: from the moment a first link comes up until no link is
    /// up or connecting.
    pub(crate) fn instance(&self) -> Option<u64> {
        self.instance.map(|instance| instance.number)
    }

    /// Returns the link that carries messages to the peer, if there is one.
    #[inline(always)]
    pub(crate) fn transmit_link(&self) -> Option<LinkId> {
        self.transmit_link
    }

    /// Returns all links that are up or connecting.
    #[inline(always)]
    pub(crate) fn links(&self) -> &SmallVec<[LinkId; 2]> {
        &self.links
    }

    /// Whether the last link has ended or could not be made, and no link has come up since.
    #[inline(always)]
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Records that either side has begun a link to the peer.
    pub(crate) fn link_begun(&mut self, link: LinkId) {
        self.was_unused = false;
        self.links.push(link);
    }

    /// Records that a link came up, and returns which endpoint it leads to. `instance` comes from that
    /// endpoint's hello. The engine has created `created_count` links so far, and this link was number
    /// `creation_number`.
    pub(crate) fn link_up(&mut self, instance: u64, creation_number: u64, created_count: u64) -> PeerLinkUp {
        (self.connect_retries, self.is_lost) = (0, false);
        match self.instance {
            Some(known) if known.number == instance => PeerLinkUp::Current,
            Some(known) if creation_number < known.since => PeerLinkUp::Predecessor,
            known => {
                self.instance = Some(Instance { number: instance, since: created_count });
                if known.is_some() { PeerLinkUp::Successor } else { PeerLinkUp::Current }
            }
        }
    }

    /// Records that a link has ended or could not be made. Returns what this means for the peer.
    pub(crate) fn link_ended(&mut self, link: LinkId) -> PeerLinkEnd {
        self.links.retain(|other| *other != link);
        let end = PeerLinkEnd {
            was_last: self.links.is_empty(),
            was_met: self.instance.is_some(),
            carried_sends: self.transmit_link.take_if(|carrier| *carrier == link).is_some(),
        };
        if end.was_last {
            self.instance = None;
        }
        end
    }

    /// Makes sends travel on this link from now on.
    pub(crate) fn set_transmit_link(&mut self, link: LinkId) {
        self.transmit_link = Some(link);
    }

    /// Records that no link leads to the known endpoint any more, but links to another one are up or
    /// connecting: to `other`, if one of them has said so.
    pub(crate) fn instance_left(&mut self, other: Option<u64>) {
        let known = self.instance.map(|instance| instance.number);
        self.instance = other.or(known).map(|number| Instance { number, since: 0 });
    }

    /// Forgets which link carries the messages, and resets the number of retries.
    pub(crate) fn clear_transmit_link(&mut self) {
        (self.transmit_link, self.connect_retries) = (None, 0);
    }

    /// Counts a retry of an attempt to connect that was cut short. After too many retries in a row, returns
    /// false and counts nothing.
    pub(crate) fn try_count_connect_retry(&mut self) -> bool {
        let is_allowed = self.connect_retries < CONNECT_RETRIES_MAX;
        self.connect_retries += u32::from(is_allowed);
        is_allowed
    }

    /// Whether the last attempt to connect was cut short, and the next one repeats it.
    pub(crate) fn is_retrying_connect(&self) -> bool {
        self.connect_retries > 0
    }

    /// Records that the peer counts as gone until a link to it comes up.
    pub(crate) fn mark_lost(&mut self) {
        self.is_lost = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a peer whose links are the first links of an engine. The engine numbers links from 1.
    fn make_peer_with_links(count: u32) -> Peer {
        let mut peer = Peer::at("127.0.0.1:4711".parse().unwrap());
        (1..=count).for_each(|number| peer.link_begun(LinkId(number)));
        peer
    }

    #[test]
    fn link_begun_before_the_present_instance_leads_to_its_predecessor() {
        let mut peer = make_peer_with_links(3);
        assert_eq!(peer.link_up(11, 1, 3), PeerLinkUp::Current);
        assert_eq!(peer.link_up(22, 2, 3), PeerLinkUp::Predecessor, "begun before the first was up");
        assert_eq!(peer.link_up(22, 3, 3), PeerLinkUp::Successor, "begun last before the first was up");
        let mut peer = make_peer_with_links(3);
        peer.link_up(11, 1, 3);
        assert_eq!((peer.link_up(22, 4, 4), peer.instance()), (PeerLinkUp::Successor, Some(22)));
        assert_eq!(peer.link_up(11, 3, 5), PeerLinkUp::Predecessor);
        assert_eq!(peer.link_up(22, 1, 5), PeerLinkUp::Current, "an old link may lead to it, too");
    }

    #[test]
    fn instance_is_forgotten_with_the_last_link() {
        let mut peer = make_peer_with_links(2);
        peer.link_up(11, 1, 2);
        peer.set_transmit_link(LinkId(2));
        let end = peer.link_ended(LinkId(1));
        assert_eq!(end, PeerLinkEnd { was_last: false, was_met: true, carried_sends: false });
        assert_eq!((peer.instance(), peer.transmit_link()), (Some(11), Some(LinkId(2))));
        let end = peer.link_ended(LinkId(2));
        assert_eq!(end, PeerLinkEnd { was_last: true, was_met: true, carried_sends: true });
        assert_eq!((peer.instance(), peer.transmit_link()), (None, None));
        assert_eq!(peer.link_up(22, 1, 9), PeerLinkUp::Current, "it replaces none");
    }

    #[test]
    fn retries_begin_anew_when_a_link_comes_up() {
        let mut peer = make_peer_with_links(1);
        for _ in 0..2 {
            let allowed = (0..9).filter(|_| peer.try_count_connect_retry()).count();
            assert_eq!(allowed, CONNECT_RETRIES_MAX as usize);
            peer.mark_lost();
            peer.link_up(11, 1, 1);
            assert!(!peer.is_lost());
        }
    }
}
