//! Frame handlers that forward the reports of the two transports to the caller, with the caller's link ids.

use homespun_engine::transport::{FrameHandler, LinkEvent, LinkId, Space};
use homespun_engine::wire::{Header, Message};

use crate::carried_link::CarriedLink;
use crate::moved_links::MovedLinks;
use crate::proven_peers::ProvenPeers;

/// Forwards what shared memory reports, and records which peers are proven.
pub(crate) struct NearHandler<'a, R> {
    pub(crate) receiver: &'a mut R,
    pub(crate) proven: &'a mut ProvenPeers,
}

/// Forwards what TCP reports.
pub(crate) struct FarHandler<'a, R> {
    pub(crate) receiver: &'a mut R,
    pub(crate) moved: &'a mut MovedLinks,
}

impl<R> FarHandler<'_, R> {
    /// Returns the id by which the caller knows a link over TCP.
    #[inline]
    fn known_link_id(&self, far: LinkId) -> LinkId {
        self.moved.near_id_of(far).map_or(CarriedLink::Far(far), CarriedLink::Near).link_id()
    }
}

impl<R: FrameHandler> FrameHandler for NearHandler<'_, R> {
    #[inline(always)]
    fn take_message(&mut self, link: LinkId, message: &Message, read: impl FnOnce(&mut [u8])) -> bool {
        self.receiver.take_message(CarriedLink::Near(link).link_id(), message, read)
    }

    #[inline]
    fn frame(&mut self, link: LinkId, header: &Header, payload: &[u8]) {
        self.receiver.frame(CarriedLink::Near(link).link_id(), header, payload);
    }

    #[inline]
    fn frame_begun(&mut self, link: LinkId, header: &Header) {
        self.receiver.frame_begun(CarriedLink::Near(link).link_id(), header);
    }

    #[inline]
    fn payload_space(&mut self, link: LinkId) -> Space<'_> {
        self.receiver.payload_space(CarriedLink::Near(link).link_id())
    }

    #[inline]
    fn bytes_placed(&mut self, link: LinkId, count_bytes: usize) {
        self.receiver.bytes_placed(CarriedLink::Near(link).link_id(), count_bytes);
    }

    #[inline]
    fn payload_arrived(&mut self, link: LinkId, bytes: &[u8]) {
        self.receiver.payload_arrived(CarriedLink::Near(link).link_id(), bytes);
    }

    fn link_writable(&mut self, link: LinkId) {
        self.receiver.link_writable(CarriedLink::Near(link).link_id());
    }

    fn link_event(&mut self, link: LinkId, event: LinkEvent) {
        match &event {
            LinkEvent::Up { peer, .. } => self.proven.add_link(link, *peer),
            LinkEvent::Down(_) => self.proven.remove_link(link),
            LinkEvent::Confirmed => {}
        }
        self.receiver.link_event(CarriedLink::Near(link).link_id(), event);
    }
}

impl<R: FrameHandler> FrameHandler for FarHandler<'_, R> {
    #[inline]
    fn frame(&mut self, link: LinkId, header: &Header, payload: &[u8]) {
        self.receiver.frame(self.known_link_id(link), header, payload);
    }

    #[inline]
    fn frame_begun(&mut self, link: LinkId, header: &Header) {
        self.receiver.frame_begun(self.known_link_id(link), header);
    }

    #[inline]
    fn payload_space(&mut self, link: LinkId) -> Space<'_> {
        self.receiver.payload_space(self.known_link_id(link))
    }

    #[inline]
    fn bytes_placed(&mut self, link: LinkId, count_bytes: usize) {
        self.receiver.bytes_placed(self.known_link_id(link), count_bytes);
    }

    #[inline]
    fn payload_arrived(&mut self, link: LinkId, bytes: &[u8]) {
        self.receiver.payload_arrived(self.known_link_id(link), bytes);
    }

    fn link_writable(&mut self, link: LinkId) {
        self.receiver.link_writable(self.known_link_id(link));
    }

    fn link_event(&mut self, link: LinkId, event: LinkEvent) {
        let known = self.known_link_id(link);
        if let LinkEvent::Down(_) = event {
            self.moved.remove_ended(link);
        }
        self.receiver.link_event(known, event);
    }
}
