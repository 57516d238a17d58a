//! Frame handlers that give links the numbers that the caller knows.

use homespun_engine::transport::{FrameHandler, LinkEvent, LinkId, Space};
use homespun_engine::wire::Header;

use crate::moved_links::MovedLinks;
use crate::number::Carried;
use crate::proven_peers::ProvenPeers;

/// Hands on what shared memory reports.
pub(crate) struct NearHandler<'a, R> {
    pub(crate) receiver: &'a mut R,
    pub(crate) proven: &'a mut ProvenPeers,
}

/// Hands on what TCP reports.
pub(crate) struct FarHandler<'a, R> {
    pub(crate) receiver: &'a mut R,
    pub(crate) moved: &'a mut MovedLinks,
}

impl<R> FarHandler<'_, R> {
    #[inline]
    fn number(&self, far: LinkId) -> LinkId {
        self.moved.near_of(far).map_or(Carried::Far(far), Carried::Near).number()
    }
}

impl<R: FrameHandler> FrameHandler for NearHandler<'_, R> {
    #[inline]
    fn frame(&mut self, link: LinkId, header: &Header, payload: &[u8]) {
        self.receiver.frame(Carried::Near(link).number(), header, payload);
    }

    #[inline]
    fn frame_begun(&mut self, link: LinkId, header: &Header) {
        self.receiver.frame_begun(Carried::Near(link).number(), header);
    }

    #[inline]
    fn payload_space(&mut self, link: LinkId) -> Space<'_> {
        self.receiver.payload_space(Carried::Near(link).number())
    }

    #[inline]
    fn bytes_placed(&mut self, link: LinkId, count_bytes: usize) {
        self.receiver.bytes_placed(Carried::Near(link).number(), count_bytes);
    }

    #[inline]
    fn payload_arrived(&mut self, link: LinkId, bytes: &[u8]) {
        self.receiver.payload_arrived(Carried::Near(link).number(), bytes);
    }

    fn link_event(&mut self, link: LinkId, event: LinkEvent) {
        match &event {
            LinkEvent::Up { peer, .. } => self.proven.link_begun(link, *peer),
            LinkEvent::Down(_) => self.proven.link_ended(link),
            LinkEvent::Confirmed => {}
        }
        self.receiver.link_event(Carried::Near(link).number(), event);
    }
}

impl<R: FrameHandler> FrameHandler for FarHandler<'_, R> {
    #[inline]
    fn frame(&mut self, link: LinkId, header: &Header, payload: &[u8]) {
        self.receiver.frame(self.number(link), header, payload);
    }

    #[inline]
    fn frame_begun(&mut self, link: LinkId, header: &Header) {
        self.receiver.frame_begun(self.number(link), header);
    }

    #[inline]
    fn payload_space(&mut self, link: LinkId) -> Space<'_> {
        self.receiver.payload_space(self.number(link))
    }

    #[inline]
    fn bytes_placed(&mut self, link: LinkId, count_bytes: usize) {
        self.receiver.bytes_placed(self.number(link), count_bytes);
    }

    #[inline]
    fn payload_arrived(&mut self, link: LinkId, bytes: &[u8]) {
        self.receiver.payload_arrived(self.number(link), bytes);
    }

    fn link_event(&mut self, link: LinkId, event: LinkEvent) {
        let number = self.number(link);
        if let LinkEvent::Down(_) = event {
            self.moved.end(link);
        }
        self.receiver.link_event(number, event);
    }
}
