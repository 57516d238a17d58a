//! Posts operations to the engine, and reports operations that complete at post time.

use homespun_engine::completion::{EndedOperation, WorkEnd};
use homespun_engine::engine::{Attempt, Engine};
use homespun_engine::error::Error;
use homespun_engine::flags::CounterEvents;
use homespun_engine::matching::Criteria;
use homespun_engine::operation::{RmaLocal, Signalled, TransmitOp, TransmitRequest};
use homespun_engine::peer_id::PeerId;
use homespun_engine::transport::Transport;

use super::BoundObjects;
use crate::av::FabricAddress;
use crate::mutated;
use crate::post::{Post, ReceiveKind, ReceivePost};
use crate::tag::TagMatch;

impl BoundObjects {
    /// Passes an operation to the engine. The engine carries it out at once, or after earlier operations.
    #[inline(always)]
    pub(super) fn post(
        &mut self,
        post: &mut Post,
        engine: &mut Engine,
        transport: &mut impl Transport,
    ) -> Result<(), Error> {
        let to = match self.peer_cache.peer_of_address(post.peer, &self.bindings.av, engine) {
            Ok(to) => to,
            Err(_) if mutated!("fi_tagged/tagged-send-needs-connection") => return Ok(()),
            Err(_) if mutated!("fi_cm/no-send-before-connected") && engine.connected_peer().is_some() => {
                return Ok(());
            }
            Err(refusal) => {
                let sink = &mut self.queues_without_reader();
                return engine.flush_late_post(&mut post.request, refusal, sink);
            }
        };
        let TransmitRequest { op, options, context } = &mut post.request;
        let TransmitOp::Rma { local, memory } = op else {
            return engine.post(to, &mut post.request, transport, &mut self.queues_without_reader());
        };
        match engine.try_access_at_once(to, local, *memory, options.level, options.fence) {
            Attempt::Done => {
                self.report_access_at_post_time(local, *context, options.signalled, engine);
                Ok(())
            }
            attempt => {
                self.post_access_behind_earlier_operations(attempt, to, &mut post.request, engine, transport)
            }
        }
    }

    /// Passes an access to the engine after an attempt to carry it out at once. The engine carries it out
    /// after earlier operations.
    // Not inlined, since that would make the path of other accesses longer.
    #[inline(never)]
    fn post_access_behind_earlier_operations(
        &mut self,
        attempt: Attempt,
        to: PeerId,
        request: &mut TransmitRequest,
        engine: &mut Engine,
        transport: &mut impl Transport,
    ) -> Result<(), Error> {
        engine.post_after_attempt(attempt, to, request, transport, &mut self.queues_without_reader())
    }

    /// Counts and reports an access that completed while it was posted.
    #[inline(always)]
    fn report_access_at_post_time(
        &mut self,
        local: &mut RmaLocal,
        context: u64,
        signalled: Signalled,
        engine: &mut Engine,
    ) {
        if signalled == Signalled::Deferred {
            return self.report_deferred_access_at_post_time(local, context, engine);
        }
        if !self.bindings.counters.is_empty() {
            let events = CounterEvents::of_completion(local.completion_flags());
            self.bindings.counters.count_success(events);
        }
        self.report_at_post_time(signalled, || EndedOperation::of_rma(context, local), engine);
    }

    /// Reports deferred work that has completed at post time.
    #[cold]
    fn report_deferred_access_at_post_time(
        &mut self,
        local: &mut RmaLocal,
        number: u64,
        engine: &mut Engine,
    ) {
        let WorkEnd { context, is_reported } = self.bindings.finish_deferred_work(number, true);
        if is_reported {
            self.report_access_at_post_time(local, context, Signalled::Yes, engine);
        } else {
            drop(local.take_buffer());
        }
    }

    /// Reports an operation that completed while it was posted, if it is signalled. If the queue has no room,
    /// the engine reports the operation later. `end` makes the completion, and takes the memory out of the
    /// operation: an accepted post must not keep it.
    #[inline(always)]
    fn report_at_post_time(
        &mut self,
        signalled: Signalled,
        end: impl FnOnce() -> EndedOperation,
        engine: &mut Engine,
    ) {
        let Some(cq) = self.bindings.transmit_cq.as_ref().filter(|_| signalled == Signalled::Yes) else {
            return drop(end());
        };
        let mut ring = cq.lock_ring();
        if !ring.has_room() {
            drop(ring);
            return self.let_engine_report(end(), engine);
        }
        ring.push_completed(end(), cq.format(), FabricAddress::UNSPECIFIED);
    }

    #[cold]
    pub(super) fn let_engine_report(&mut self, ended: EndedOperation, engine: &mut Engine) {
        engine.report_end_at_post_time(ended, &mut self.queues_without_reader());
    }

    /// Returns the criteria for messages that a receive accepts. A receive of a claimed message ignores the
    /// source, since its context names the message.
    #[inline(always)]
    pub(super) fn match_criteria(
        &mut self,
        post: &ReceivePost,
        engine: &mut Engine,
    ) -> Result<Criteria, Error> {
        let source = match post.from {
            Some(from) if post.kind != ReceiveKind::Claimed => {
                Some(self.peer_cache.peer_of_address(from, &self.bindings.av, engine)?)
            }
            _ => None,
        };
        let TagMatch { tag, ignore } = post.tagged.unwrap_or(TagMatch::ANY);
        Ok(Criteria { source, tag, ignore })
    }
}
