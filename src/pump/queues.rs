//! The completion queues and counters of an endpoint as the engine's sink.

use std::sync::Arc;

use homespun_engine::completion;
use homespun_engine::completion::{Sink, WorkEnd};
use homespun_engine::connection::ConnectionEvent;
use homespun_engine::error::OperationError;
use homespun_engine::flags::{CompletionFlags, CounterEvents};
use homespun_engine::peers::Peers;

use super::names::AddressCache;
use crate::av::FabricAddress;
use crate::cq::{Completion, CompletionError, CqShared, Reader, RingGuard};
use crate::endpoint_pump::Wiring;

impl Wiring {
    /// Deferred work has ended. Returns whether the endpoint counts and reports it too.
    pub(super) fn work_ended(&self, number: u64, has_succeeded: bool) -> WorkEnd {
        self.works.ended(number, has_succeeded, |counter, events| self.counters.count_by(counter, events))
    }
}

/// The completion queues and counters of an endpoint as the engine's sink.
///
/// A ring stays locked from its first use until the other one is used or the pass ends; at an
/// endpoint that shares its receiver no longer than for that use. Never are both locked: two
/// endpoints that share their queues crosswise would wait for each other.
pub(super) struct Queues<'a, 'r> {
    wiring: &'a Wiring,
    address_cache: &'a mut AddressCache,
    transmit: Option<RingGuard<'a>>,
    receive: Option<RingGuard<'a>>,
    /// The reader that drives the queues, if one does.
    reader: Option<&'a mut Reader<'r>>,
}

impl<'a, 'r> Queues<'a, 'r> {
    pub(super) fn new(
        wiring: &'a Wiring,
        address_cache: &'a mut AddressCache,
        reader: Option<&'a mut Reader<'r>>,
    ) -> Self {
        Queues { wiring, address_cache, transmit: None, receive: None, reader }
    }

    /// Whether both directions report to the same queue, which must not be locked twice.
    fn are_one(&self) -> bool {
        match (&self.wiring.transmit_cq, &self.wiring.receive_cq) {
            (Some(transmit), Some(receive)) => Arc::ptr_eq(transmit, receive),
            _ => false,
        }
    }

    fn transmit_ring(&mut self) -> Option<&mut RingGuard<'a>> {
        let cq = self.wiring.transmit_cq.as_ref()?;
        self.receive = None;
        Some(self.transmit.get_or_insert_with(|| cq.lock()))
    }

    fn receive_ring(&mut self) -> Option<&mut RingGuard<'a>> {
        let cq = self.wiring.receive_cq.as_ref()?;
        self.transmit = None;
        Some(self.receive.get_or_insert_with(|| cq.lock()))
    }

    /// The queue that reports operations of this kind.
    #[inline(always)]
    fn cq_for(&self, flags: CompletionFlags) -> Option<&'a CqShared> {
        let is_send = flags.intersects(CompletionFlags::TRANSMITTED);
        let cq = if is_send { &self.wiring.transmit_cq } else { &self.wiring.receive_cq };
        cq.as_deref()
    }

    /// That queue's ring, in which something is about to be put.
    fn ring_for(&mut self, flags: CompletionFlags) -> Option<&mut RingGuard<'a>> {
        if let (Some(cq), Some(reader)) = (self.cq_for(flags), &mut self.reader) {
            reader.overtaken(cq.unread());
        }
        if flags.intersects(CompletionFlags::TRANSMITTED) || self.are_one() {
            self.transmit_ring()
        } else {
            self.receive_ring()
        }
    }

    #[inline(always)]
    fn source(&mut self, completion: &completion::Completion, peers: &Peers) -> FabricAddress {
        match completion.source {
            Some(peer) if self.wiring.wants_source => {
                self.address_cache.address(peer, &self.wiring.av, peers)
            }
            _ => FabricAddress::UNSPECIFIED,
        }
    }

    /// Reports a completion whose source is not in the address vector as an error with the source's
    /// address. If there is no room the completion is handed back unchanged: when there is room,
    /// the vector may hold the source.
    #[cold]
    fn report_unknown_source(
        &mut self,
        completion: completion::Completion,
        peers: &Peers,
    ) -> Result<(), completion::Completion> {
        let failure = completion::Failure { completion, error: OperationError::UnknownSource, target: None };
        self.report(failure, FabricAddress::UNSPECIFIED, peers).map_err(|failure| failure.completion)
    }

    fn report(
        &mut self,
        failure: completion::Failure,
        source: FabricAddress,
        peers: &Peers,
    ) -> Result<(), completion::Failure> {
        let Some(cq) = self.cq_for(failure.completion.flags) else { return Ok(()) };
        let Some(ring) = self.ring_for(failure.completion.flags) else { return Ok(()) };
        if !ring.has_room() {
            let is_protected = cq.is_protected();
            if !is_protected {
                ring.overrun();
            }
            self.unlock_if_shared();
            return if is_protected { Err(failure) } else { Ok(()) };
        }
        let peer = failure.peer().map(|peer| Box::new(peers.address(peer)));
        let completion::Failure { completion, error, .. } = failure;
        ring.push_failed(CompletionError { completion: completion.into(), error, source, peer });
        self.unlock_if_shared();
        Ok(())
    }

    /// Keeps no ring locked where the receiver is shared: its lock is taken before that of a ring,
    /// by endpoints that report to the same queue too.
    #[inline(always)]
    fn unlock_if_shared(&mut self) {
        if self.wiring.shares_receiver {
            (self.transmit, self.receive) = (None, None);
        }
    }
}

impl Sink for Queues<'_, '_> {
    #[inline(always)]
    fn complete(
        &mut self,
        completion: completion::Completion,
        peers: &Peers,
    ) -> Result<(), completion::Completion> {
        let source = self.source(&completion, peers);
        if self.wiring.reports_unknown_sources
            && source == FabricAddress::UNSPECIFIED
            && completion.source.is_some()
        {
            return self.report_unknown_source(completion, peers);
        }
        // A direction without a queue reports nothing.
        let Some(cq) = self.cq_for(completion.flags) else { return Ok(()) };
        let entry = |completion| {
            let mut entry = Completion::from(completion);
            cq.format().trim(&mut entry);
            entry
        };
        if let Some(reader) = &mut self.reader
            && reader.takes_from(cq.unread())
        {
            reader.hand_over(entry(completion), source);
            return Ok(());
        }
        let Some(ring) = self.ring_for(completion.flags) else { return Ok(()) };
        if !ring.has_room() {
            let is_protected = cq.is_protected();
            if !is_protected {
                ring.overrun();
            }
            self.unlock_if_shared();
            return if is_protected { Err(completion) } else { Ok(()) };
        }
        ring.push_completed(entry(completion), source);
        self.unlock_if_shared();
        Ok(())
    }

    fn fail(&mut self, failure: completion::Failure, peers: &Peers) -> Result<(), completion::Failure> {
        let source = self.source(&failure.completion, peers);
        self.report(failure, source, peers)
    }

    #[inline(always)]
    fn counts(&self) -> bool {
        !self.wiring.counters.is_empty()
    }

    fn count(&mut self, events: CounterEvents) {
        self.wiring.counters.count(events);
    }

    fn count_error(&mut self, events: CounterEvents) {
        self.wiring.counters.count_error(events);
    }

    #[cold]
    fn work_ended(&mut self, number: u64, has_succeeded: bool) -> WorkEnd {
        self.wiring.work_ended(number, has_succeeded)
    }

    #[cold]
    fn connection(&mut self, event: ConnectionEvent) {
        if let Some(reporter) = &self.wiring.reporter {
            reporter.report(event);
        }
    }
}

/// The queues, for progress without a reader. A type of its own, so that the compiler makes
/// separate copies of the engine and the transport for it, and keeps the copies that readers run
/// small.
pub(super) struct WithoutReader<'a>(pub(super) Queues<'a, 'static>);

impl Sink for WithoutReader<'_> {
    fn complete(
        &mut self,
        completion: completion::Completion,
        peers: &Peers,
    ) -> Result<(), completion::Completion> {
        self.0.complete(completion, peers)
    }

    fn fail(&mut self, failure: completion::Failure, peers: &Peers) -> Result<(), completion::Failure> {
        self.0.fail(failure, peers)
    }

    #[inline]
    fn counts(&self) -> bool {
        self.0.counts()
    }

    fn count(&mut self, events: CounterEvents) {
        self.0.count(events);
    }

    fn count_error(&mut self, events: CounterEvents) {
        self.0.count_error(events);
    }

    fn work_ended(&mut self, number: u64, has_succeeded: bool) -> WorkEnd {
        self.0.work_ended(number, has_succeeded)
    }

    fn connection(&mut self, event: ConnectionEvent) {
        self.0.connection(event);
    }
}

/// The sink of an endpoint that is being closed: its operations end unheard.
pub(super) struct NullSink;

impl Sink for NullSink {
    #[inline(always)]
    fn complete(&mut self, _: completion::Completion, _: &Peers) -> Result<(), completion::Completion> {
        Ok(())
    }

    fn fail(&mut self, _: completion::Failure, _: &Peers) -> Result<(), completion::Failure> {
        Ok(())
    }
}
