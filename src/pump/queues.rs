//! The completion queues and counters of an endpoint as the engine's sink.

use std::sync::Arc;

use homespun_engine::completion;
use homespun_engine::completion::{Sink, WorkEnd};
use homespun_engine::connection::ConnectionReport;
use homespun_engine::error::OperationError;
use homespun_engine::flags::{CompletionFlags, CounterEvents};
use homespun_engine::peers::Peers;

use super::address_cache::AddressCache;
use crate::av::FabricAddress;
use crate::cq::{CompletionError, CqShared, Reader, RingGuard};
use crate::endpoint_pump::Bindings;
use crate::mutated;

impl Bindings {
    /// Records that deferred work has ended, and counts the end. Returns the work's context, and whether the
    /// endpoint, too, must count and report the end.
    pub(super) fn finish_deferred_work(&self, number: u64, has_succeeded: bool) -> WorkEnd {
        self.works.finish_deferred_work(number, has_succeeded, |counter, events| {
            self.counters.has_counter_for(counter, events)
        })
    }
}

/// The completion queues and counters of an endpoint as the engine's sink.
///
/// A ring stays locked from its first use until the pass ends or the other ring is used. If the endpoint
/// shares its receiver, a ring is unlocked after each use. The two rings are never locked at once: two
/// endpoints that use the same two queues in opposite roles would deadlock.
pub(super) struct Queues<'a, 'r> {
    bindings: &'a Bindings,
    address_cache: &'a mut AddressCache,
    transmit: Option<RingGuard<'a>>,
    receive: Option<RingGuard<'a>>,
    /// The reader that drives the endpoint, if there is one.
    reader: Option<&'a mut Reader<'r>>,
}

impl<'a, 'r> Queues<'a, 'r> {
    pub(super) fn new(
        bindings: &'a Bindings,
        address_cache: &'a mut AddressCache,
        reader: Option<&'a mut Reader<'r>>,
    ) -> Self {
        Queues { bindings, address_cache, transmit: None, receive: None, reader }
    }

    /// Whether both directions report to the same queue. Its ring must not be locked twice.
    fn is_single_queue(&self) -> bool {
        match (&self.bindings.transmit_cq, &self.bindings.receive_cq) {
            (Some(transmit), Some(receive)) => Arc::ptr_eq(transmit, receive),
            _ => false,
        }
    }

    fn lock_transmit_ring(&mut self) -> Option<&mut RingGuard<'a>> {
        let cq = self.bindings.transmit_cq.as_ref()?;
        self.receive = None;
        Some(self.transmit.get_or_insert_with(|| cq.lock_ring()))
    }

    fn lock_receive_ring(&mut self) -> Option<&mut RingGuard<'a>> {
        let cq = self.bindings.receive_cq.as_ref()?;
        self.transmit = None;
        Some(self.receive.get_or_insert_with(|| cq.lock_ring()))
    }

    /// Returns the queue that reports operations of this kind.
    #[inline(always)]
    fn cq_for(&self, flags: CompletionFlags) -> Option<&'a CqShared> {
        let is_send = flags.intersects(CompletionFlags::TRANSMITTED);
        let cq = if is_send { &self.bindings.transmit_cq } else { &self.bindings.receive_cq };
        cq.as_deref()
    }

    /// Locks the ring of the queue for these flags, to write an entry.
    fn lock_ring_for_write(&mut self, flags: CompletionFlags) -> Option<&mut RingGuard<'a>> {
        if let (Some(cq), Some(reader)) = (self.cq_for(flags), &mut self.reader) {
            reader.forbid_hand_over_from(cq.unread_entries());
        }
        if flags.intersects(CompletionFlags::TRANSMITTED) || self.is_single_queue() {
            self.lock_transmit_ring()
        } else {
            self.lock_receive_ring()
        }
    }

    #[inline(always)]
    fn source_address_of(&mut self, completion: &completion::EndedOperation, peers: &Peers) -> FabricAddress {
        match completion.source {
            Some(peer) if self.bindings.wants_source && !mutated!("fi_cq/readfrom-tells-sources") => {
                self.address_cache.address_of_peer(peer, &self.bindings.av, peers)
            }
            _ if mutated!("fi_cq/source-notavail") => FabricAddress(0),
            _ => FabricAddress::UNSPECIFIED,
        }
    }

    /// Reports a completion whose source is not in the address vector as an error with the source's address.
    /// If the queue has no room, returns the completion unchanged: the vector may have the source by the
    /// time there is room.
    #[cold]
    fn report_unknown_source(
        &mut self,
        mut completion: completion::EndedOperation,
        peers: &Peers,
    ) -> Result<(), completion::EndedOperation> {
        if mutated!("fi_cq/eaddrnotavail-data-arrived") {
            completion.len_bytes = 0;
        }
        let failure =
            completion::FailedOperation { completion, error: OperationError::UnknownSource, target: None };
        self.report_failure(failure, FabricAddress::UNSPECIFIED, peers).map_err(|failure| failure.completion)
    }

    fn report_failure(
        &mut self,
        failure: completion::FailedOperation,
        source: FabricAddress,
        peers: &Peers,
    ) -> Result<(), completion::FailedOperation> {
        let Some(cq) = self.cq_for(failure.completion.flags) else { return Ok(()) };
        let Some(ring) = self.lock_ring_for_write(failure.completion.flags) else { return Ok(()) };
        if !ring.has_room() {
            let is_protected = cq.is_overrun_protected();
            if !is_protected {
                ring.mark_overrun();
            }
            self.unlock_rings_if_receiver_shared();
            return if is_protected { Err(failure) } else { Ok(()) };
        }
        let peer = failure.peer().map(|peer| Box::new(peers.address_of(peer)));
        let completion::FailedOperation { mut completion, error, .. } = failure;
        if mutated!("fi_cq/error-context-may-be-null") && completion.context == 0 {
            completion.context = 1;
        }
        if mutated!("fi_cq/unknown-fields-are-zero") && completion.data == 0 {
            completion.data = 1;
        }
        if mutated!("fi_cq/readerr-describes-failure") {
            (completion.context, completion.flags) = (0, CompletionFlags::empty());
        }
        ring.push_failed(CompletionError { completion: completion.into(), error, source, peer });
        self.unlock_rings_if_receiver_shared();
        Ok(())
    }

    /// Unlocks the rings if the receiver is shared. The endpoint may lock the receiver again in this pass,
    /// and a thread must lock the receiver before a ring.
    #[inline(always)]
    fn unlock_rings_if_receiver_shared(&mut self) {
        if self.bindings.shares_receiver {
            (self.transmit, self.receive) = (None, None);
        }
    }
}

impl Sink for Queues<'_, '_> {
    #[inline(always)]
    fn complete(
        &mut self,
        completion: completion::EndedOperation,
        peers: &Peers,
    ) -> Result<(), completion::EndedOperation> {
        let source = self.source_address_of(&completion, peers);
        if self.bindings.reports_unknown_sources
            && (source == FabricAddress::UNSPECIFIED || mutated!("fi_cq/eaddrnotavail-means-unknown-source"))
            && completion.source.is_some()
        {
            // A copy, so that the call does not force the completion into memory on the way below.
            let completion::EndedOperation { context, flags, len_bytes, data, tag, source, buffer } =
                completion;
            let unknown = completion::EndedOperation { context, flags, len_bytes, data, tag, source, buffer };
            return self.report_unknown_source(unknown, peers);
        }
        let source = match completion.source {
            Some(_)
                if mutated!("fi_cq/unknown-source-notavail")
                    && self.bindings.wants_source
                    && source == FabricAddress::UNSPECIFIED =>
            {
                FabricAddress(0)
            }
            _ => source,
        };
        // A direction without a queue has no completions to report.
        let Some(cq) = self.cq_for(completion.flags) else { return Ok(()) };
        if let Some(reader) = &mut self.reader
            && reader.can_hand_over_from(cq.unread_entries())
        {
            reader.hand_over_completion(completion, cq.format(), source);
            return Ok(());
        }
        let Some(ring) = self.lock_ring_for_write(completion.flags) else { return Ok(()) };
        if !ring.has_room() {
            let is_protected = cq.is_overrun_protected();
            if !is_protected {
                ring.mark_overrun();
            }
            self.unlock_rings_if_receiver_shared();
            return if is_protected { Err(completion) } else { Ok(()) };
        }
        ring.push_completed(completion, cq.format(), source);
        self.unlock_rings_if_receiver_shared();
        Ok(())
    }

    fn fail(
        &mut self,
        failure: completion::FailedOperation,
        peers: &Peers,
    ) -> Result<(), completion::FailedOperation> {
        let source = self.source_address_of(&failure.completion, peers);
        self.report_failure(failure, source, peers)
    }

    #[inline(always)]
    fn has_counters(&self) -> bool {
        !self.bindings.counters.is_empty()
    }

    fn count(&mut self, events: CounterEvents) {
        self.bindings.counters.count_success(events);
    }

    fn count_error(&mut self, events: CounterEvents) {
        self.bindings.counters.count_error(events);
    }

    #[cold]
    fn record_deferred_work_end(&mut self, number: u64, has_succeeded: bool) -> WorkEnd {
        self.bindings.finish_deferred_work(number, has_succeeded)
    }

    #[cold]
    fn clear_peer_cache(&mut self) {
        self.address_cache.clear();
    }

    #[cold]
    fn report_connection_event(&mut self, event: ConnectionReport) {
        if let Some(reporter) = &self.bindings.reporter {
            reporter.report(event);
        }
    }
}

/// The queues, for passes without a reader. The type makes the compiler generate separate code for these
/// passes, so the code for readers remains small.
pub(super) struct WithoutReader<'a>(pub(super) Queues<'a, 'static>);

impl Sink for WithoutReader<'_> {
    fn complete(
        &mut self,
        completion: completion::EndedOperation,
        peers: &Peers,
    ) -> Result<(), completion::EndedOperation> {
        self.0.complete(completion, peers)
    }

    fn fail(
        &mut self,
        failure: completion::FailedOperation,
        peers: &Peers,
    ) -> Result<(), completion::FailedOperation> {
        self.0.fail(failure, peers)
    }

    #[inline]
    fn has_counters(&self) -> bool {
        self.0.has_counters()
    }

    fn count(&mut self, events: CounterEvents) {
        self.0.count(events);
    }

    fn count_error(&mut self, events: CounterEvents) {
        self.0.count_error(events);
    }

    fn record_deferred_work_end(&mut self, number: u64, has_succeeded: bool) -> WorkEnd {
        self.0.record_deferred_work_end(number, has_succeeded)
    }

    fn clear_peer_cache(&mut self) {
        self.0.clear_peer_cache();
    }

    fn report_connection_event(&mut self, event: ConnectionReport) {
        self.0.report_connection_event(event);
    }
}

/// The sink of an endpoint that is being closed. It reports nothing.
pub(super) struct NullSink;

impl Sink for NullSink {
    #[inline(always)]
    fn complete(
        &mut self,
        _: completion::EndedOperation,
        _: &Peers,
    ) -> Result<(), completion::EndedOperation> {
        Ok(())
    }

    fn fail(&mut self, _: completion::FailedOperation, _: &Peers) -> Result<(), completion::FailedOperation> {
        Ok(())
    }
}
