//! Accesses to regions of peers on their way to the engine, and the report of those that are over at once.

use homespun_engine::completion;
use homespun_engine::engine::{Attempt, Engine};
use homespun_engine::error::Error;
use homespun_engine::flags::CounterEvents;
use homespun_engine::operation::{Level, RmaLocal, RmaRequest};
use homespun_engine::peer_id::PeerId;
use homespun_engine::transport::Transport;

use super::Wired;
use super::queues::Queues;
use crate::av::FabricAddress;
use crate::cq::Completion;

/// An access to a region as an endpoint posts it.
pub(crate) struct RmaPost {
    pub(crate) to: FabricAddress,
    pub(crate) local: RmaLocal,
    pub(crate) key: u64,
    pub(crate) address: u64,
    pub(crate) context: u64,
    pub(crate) level: Level,
    pub(crate) signalled: bool,
    pub(crate) inject: bool,
    /// As [`SendPost::fence`].
    pub(crate) fence: bool,
    /// As [`SendPost::more`].
    pub(crate) more: bool,
}

impl RmaPost {
    /// Has the engine do it in its turn, after an attempt to do it at once.
    #[inline(never)]
    pub(super) fn go(
        &mut self,
        attempt: Attempt,
        to: PeerId,
        engine: &mut Engine,
        transport: &mut impl Transport,
        queues: &mut Queues<'_, '_>,
    ) -> Result<(), Error> {
        let RmaPost { key, address, context, level, signalled, inject, fence, .. } = *self;
        let local = self.local.take();
        let request = RmaRequest { to, local, key, address, context, level, signalled, inject, fence };
        engine.post_rma_after(attempt, request, transport, queues).map_err(|rejected| {
            self.local = rejected.buffer;
            rejected.error
        })
    }
}

impl Wired {
    /// An access is over that was just posted, and nothing is to be told of before it: what [`Queues`] would make of that,
    /// without the detours of what comes at another time.
    #[inline(always)]
    pub(super) fn accessed(&mut self, post: &mut RmaPost, engine: &mut Engine) {
        let flags = post.local.flags();
        if !self.wiring.counters.is_empty() {
            self.wiring.counters.count(CounterEvents::of(flags));
        }
        let Some(cq) = self.wiring.transmit_cq.as_ref().filter(|_| post.signalled) else { return };
        let mut ring = cq.lock();
        if !ring.has_room() {
            drop(ring);
            return self.report_later(post, engine);
        }
        let buffer = post.local.take_buffer();
        let mut entry = Completion { context: post.context, flags, len_bytes: 0, data: 0, tag: 0, buffer };
        cq.format().trim(&mut entry);
        ring.push_completed(entry, FabricAddress::UNSPECIFIED);
    }

    /// There is no room to report an access that is over.
    #[cold]
    fn report_later(&mut self, post: &mut RmaPost, engine: &mut Engine) {
        let (flags, buffer) = (post.local.flags(), post.local.take_buffer());
        let context = post.context;
        let completion =
            completion::Completion { context, flags, len_bytes: 0, data: 0, tag: 0, source: None, buffer };
        engine.report_access(completion, &mut self.queues());
    }
}
