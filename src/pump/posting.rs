//! Posts operations and receives to the engine, and reports operations that complete at post time.

use homespun_engine::buffer::Destination;
use homespun_engine::completion::{EndedOperation, WorkEnd};
use homespun_engine::engine::{Attempt, Engine};
use homespun_engine::error::Error;
use homespun_engine::flags::CounterEvents;
use homespun_engine::matching::Criteria;
use homespun_engine::operation::{
    PeekAction, PeekRequest, ReceiveRequest, RmaLocal, Signalled, TransmitOp, TransmitRequest,
};
use homespun_engine::peer_id::PeerId;
use homespun_engine::rejected::Rejected;
use homespun_engine::transport::Transport;

use super::duties::Purpose;
use super::queues::Queues;
use super::{BoundObjects, Pump, State, not_enabled_error};
use crate::av::FabricAddress;
use crate::mutated;
use crate::post::{Post, ReceiveKind, ReceivePost, mark_as_deferred_work};
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

impl<T: Transport> State<T> {
    /// Looks for a message among those that earlier passes have received: see [`Engine::peek`].
    fn peek(&mut self, post: &ReceivePost, then: PeekAction) -> Result<(), Error> {
        let State { engine, bound, .. } = self;
        let bound = bound.as_mut().ok_or_else(not_enabled_error)?;
        let criteria = bound.match_criteria(post, engine)?;
        let ReceivePost { tagged, context, work, .. } = *post;
        let request = PeekRequest { tagged: tagged.is_some(), criteria, context, work, then };
        if work.is_some() || bound.has_progress_thread() {
            engine.show_all_to_peeks();
        }
        engine.peek(request, &mut bound.queues_without_reader())
    }
}

impl<T: Transport> Pump<T> {
    /// Posts a receive to the engine, by calling `receive`.
    #[inline(always)]
    pub(super) fn post_receive_with(
        &self,
        post: &mut ReceivePost,
        receive: impl FnOnce(
            &mut Engine,
            ReceiveRequest,
            &mut Queues<'_, '_>,
        ) -> Result<(), Rejected<Destination>>,
    ) -> Result<(), Error> {
        let mut endpoint = self.lock_for_call();
        let (engine, _, bound) = endpoint.enabled_parts()?;
        let request = post.take_receive_request(bound.match_criteria(post, engine)?);
        let received = receive(engine, request, &mut bound.queues_without_reader());
        received.map_err(|rejected| post.put_back_rejected_memory(rejected))
    }

    /// Carries out every post that is not [plain](ReceivePost::is_plain_single_receive): deferred work,
    /// multi-receive buffers, peeks, and receives and discards of claimed messages.
    #[inline(never)]
    pub(super) fn post_special_receive(&self, post: &mut ReceivePost) -> Result<(), Error> {
        let ReceivePost { context, work, .. } = *post;
        match post.kind {
            ReceiveKind::Single => self.post_receive_with(post, |engine, request, queues| {
                engine.post_receive(mark_as_deferred_work(request, work), queues)
            }),
            ReceiveKind::Multi { min_free_bytes } => self
                .post_receive_with(post, |engine, request, queues| {
                    engine.post_multi_receive(request, min_free_bytes, work, queues)
                }),
            ReceiveKind::Claimed => self.post_receive_with(post, |engine, request, queues| {
                engine.receive_claimed(mark_as_deferred_work(request, work), context, queues)
            }),
            ReceiveKind::Peek(then) => self.peek_and_pass(post, then),
            ReceiveKind::Discard => self.discard_claimed(post),
        }
    }

    /// Makes a peek, then a pass.
    fn peek_and_pass(&self, post: &ReceivePost, then: PeekAction) -> Result<(), Error> {
        let mut endpoint = self.lock_for_purpose(Purpose::Poll);
        let state = endpoint.guard.as_mut().ok_or_else(not_enabled_error)?;
        let answered = state.peek(post, then);
        // The pass must come after the peek: see docs/design/messages.md.
        state.count_poll_and_pass();
        answered
    }

    fn discard_claimed(&self, post: &ReceivePost) -> Result<(), Error> {
        let mut endpoint = self.lock_for_call();
        let (engine, _, bound) = endpoint.enabled_parts()?;
        engine.discard_claimed(
            post.tagged.is_some(),
            post.context,
            post.work,
            &mut bound.queues_without_reader(),
        )
    }
}
