//! Binding queues and counters to an endpoint, and enabling the endpoint: `fi_ep_bind` and `fi_enable` of
//! `fi_endpoint(3)`.
//!
//! Before an endpoint is enabled, it needs an address vector or an event queue, and a completion queue or a
//! counter for each kind of operation. More queues and counters may be bound at any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use bitflags::bitflags;
use homespun_engine::address::Address;
use homespun_engine::error::{Argument, Direction, Error, InUse, Misuse, ObjectState};
use homespun_engine::flags::{BindFlags, Caps, CounterEvents, OpFlags};
use homespun_engine::operation::Signalled;

use super::shared_receive::BoundReceiveContext;
use super::{Endpoint, EndpointOrigin, EndpointShared};
use crate::av::{AddressVector, AvAttr};
use crate::counter::{BoundCounters, Counter, DriveReason};
use crate::cq::CompletionQueue;
use crate::doorbell::Doorbell;
use crate::drive::Drive;
use crate::endpoint_pump::{Bindings, EndpointPump, as_drive};
use crate::eq::{EventQueue, Reporter};
use crate::info::SHARED_CONTEXT;
use crate::mutated;
use crate::op_flags::signalled_from_flags;
use crate::progress_thread::ProgressThread;
use crate::shared_transmit_context::SharedTransmitContext;
use crate::works::domain::WorkDomain;

/// The objects that are bound to an endpoint.
#[derive(Default)]
pub(super) struct Setup {
    /// The address to bind to, or `None` for the source address of the info.
    pub(super) name: Option<Address>,
    transmit_cq: Option<CompletionQueue>,
    receive_cq: Option<CompletionQueue>,
    counters: BoundCounters,
    pub(super) av: Option<AddressVector>,
    transmit_context: Option<SharedTransmitContext>,
    /// The queue, and the number by which its events name the endpoint.
    eq: Option<(EventQueue, u64)>,
    /// Whether the connection ends with the first operation that fails.
    ends_on_failure: bool,
    pub(super) receive_context: Option<BoundReceiveContext>,
}

bitflags! {
    /// The part of an endpoint's set-up that each operation reads.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) struct ServiceFlags: u8 {
        /// The endpoint is enabled.
        const ENABLED = 1 << 0;
        /// Only operations with `FI_COMPLETION` are reported to the transmit queue.
        const SELECTIVE_TRANSMIT = 1 << 1;
        /// Only receives with `FI_COMPLETION` are reported to the receive queue.
        const SELECTIVE_RECEIVE = 1 << 2;
    }
}

impl ServiceFlags {
    /// Returns whether the success of a transmit operation with these flags goes to the queue.
    #[inline(always)]
    pub(super) fn signalled_for_transmit(self, flags: OpFlags) -> Signalled {
        signalled_from_flags(self.contains(ServiceFlags::SELECTIVE_TRANSMIT), flags)
    }

    /// Returns whether the success of a receive with these flags goes to the queue.
    #[inline(always)]
    pub(super) fn signalled_for_receive(self, flags: OpFlags) -> Signalled {
        signalled_from_flags(self.contains(ServiceFlags::SELECTIVE_RECEIVE), flags)
    }
}

/// The [`ServiceFlags`] of an endpoint. Binding and enabling set them, with the [`Setup`] locked.
#[derive(Debug, Default)]
pub(super) struct Service(AtomicU8);

impl Service {
    #[inline(always)]
    pub(super) fn flags(&self) -> ServiceFlags {
        ServiceFlags::from_bits_retain(self.0.load(Ordering::Acquire))
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.flags().contains(ServiceFlags::ENABLED)
    }

    fn add_flags(&self, flags: ServiceFlags) {
        self.0.fetch_or(flags.bits(), Ordering::Release);
    }
}

impl Endpoint {
    /// Binds a completion queue for one direction or both: `fi_ep_bind`. A direction without a queue may
    /// get one at any time. The queue gets no completions of operations that have completed before. Without
    /// a direction, the call has no effect.
    ///
    /// # Errors
    ///
    /// - [`Misuse::Flags`] for unknown flags.
    /// - [`Misuse::Busy`] if the direction has a queue already.
    /// - [`Misuse::OtherDomain`] for a queue of another domain.
    /// - [`Error::System`] if the endpoint is enabled, and lacks descriptors or memory to wake the queue's
    ///   sleepers.
    pub fn bind_cq(&self, cq: &CompletionQueue, flags: BindFlags) -> Result<(), Error> {
        let setup = &mut *self.shared.setup.lock();
        if cq.shared().domain() != self.shared.domain.id() && !mutated!("fi_cq/open-belongs-to-domain") {
            return Err(Misuse::OtherDomain.into());
        }
        let transmits = flags.contains(BindFlags::TRANSMIT);
        let receives = flags.contains(BindFlags::RECV);
        let unknown = flags - BindFlags::all();
        if !unknown.is_empty() {
            return Err(Misuse::Flags(unknown.bits()).into());
        }
        let is_bound = transmits && setup.transmit_cq.is_some() || receives && setup.receive_cq.is_some();
        if is_bound && !mutated!("fi_endpoint/one-queue-per-operation") {
            return Err(Misuse::Busy(InUse::CompletionQueueBound).into());
        }
        let pump = self.shared.pump_if_enabled();
        let is_new = (transmits || receives)
            && !setup.bound_cqs().any(|bound| Arc::ptr_eq(bound.shared(), cq.shared()));
        if let Some(pump) = pump.filter(|_| is_new && self.shared.progress_thread().is_none()) {
            cq.shared().add_wake_source(&as_drive(pump))?;
        }
        let selective = flags.contains(BindFlags::SELECTIVE_COMPLETION);
        let places = [
            (transmits, &mut setup.transmit_cq, ServiceFlags::SELECTIVE_TRANSMIT),
            (receives, &mut setup.receive_cq, ServiceFlags::SELECTIVE_RECEIVE),
        ];
        for (_, place, is_selective) in places.into_iter().filter(|(is_meant, ..)| *is_meant) {
            cq.shared().add_binding();
            *place = Some(cq.clone());
            if selective {
                self.shared.service.add_flags(is_selective);
            }
        }
        if let Some(context) = setup.receive_context.as_ref().filter(|_| receives && selective) {
            context.set_selective_completion();
        }
        if let Some(pump) = pump {
            setup.rebind_pump(pump);
            if is_new {
                cq.shared().add_endpoint(&as_drive(pump));
            }
        }
        Ok(())
    }

    /// Binds a counter: `fi_ep_bind`. From now on, it counts these events of the endpoint. Each kind of
    /// event may have one counter, and one counter may count several kinds. A counter that is bound for no
    /// event still drives the endpoint.
    ///
    /// Once a counter for accesses by peers is bound, peers access regions through this endpoint only by
    /// frames, since the endpoint can count only frames. A region that a peer has mapped through this
    /// endpoint ([`MrAttr::shareable`](crate::MrAttr::shareable)) is then no longer shareable.
    ///
    /// # Errors
    ///
    /// - [`Misuse::Flags`] for unknown events.
    /// - [`Misuse::NoCapability`] for accesses by peers if the endpoint lacks [`Caps::RMA_EVENT`].
    /// - [`Misuse::Busy`] if an event has a counter already.
    /// - [`Misuse::OtherDomain`] for a counter of another domain.
    /// - [`Error::System`] if the endpoint is enabled, and lacks descriptors or memory to wake the
    ///   counter's sleepers.
    pub fn bind_counter(&self, counter: &Counter, events: CounterEvents) -> Result<(), Error> {
        let setup = &mut *self.shared.setup.lock();
        if counter.shared().domain() != self.shared.domain.id() {
            return Err(Misuse::OtherDomain.into());
        }
        let unknown = events - CounterEvents::all();
        if !unknown.is_empty() {
            return Err(Misuse::Flags(unknown.bits()).into());
        }
        if events.intersects(CounterEvents::OF_REGION) && !self.shared.info.caps.contains(Caps::RMA_EVENT) {
            return Err(Misuse::NoCapability(Caps::RMA_EVENT).into());
        }
        setup.counters.check_events_uncounted(events)?;
        let pump = self.shared.pump_if_enabled();
        if let Some(pump) = pump {
            let has_progress_thread = self.shared.progress_thread().is_some();
            counter.shared().add_wake_source(&as_drive(pump), DriveReason::BOUND, has_progress_thread)?;
        }
        setup.counters.bind(counter, events)?;
        if let Some(pump) = pump {
            setup.rebind_pump(pump);
            counter.shared().add_endpoint(&as_drive(pump));
        }
        Ok(())
    }

    /// Binds the address vector: `fi_ep_bind`. Connected endpoints do not use one.
    ///
    /// # Errors
    ///
    /// [`Misuse::Busy`] if the endpoint has a vector already. [`Misuse::OtherDomain`] for a vector of
    /// another domain.
    pub fn bind_av(&self, av: &AddressVector) -> Result<(), Error> {
        let mut setup = self.shared.setup.lock();
        if av.domain() != self.shared.domain.id() {
            return Err(Misuse::OtherDomain.into());
        }
        if setup.av.is_some() {
            return Err(Misuse::Busy(InUse::AddressVectorBound).into());
        }
        av.add_binding();
        setup.av = Some(av.clone());
        Ok(())
    }

    /// Binds a transmit context that the endpoint shares with others: `fi_ep_bind`. An endpoint whose info
    /// has [`SHARED_CONTEXT`] as [`EpAttr::tx_ctx_cnt`](crate::info::EpAttr::tx_ctx_cnt) needs one before it
    /// is enabled. Any other endpoint may get one at any time.
    ///
    /// # Errors
    ///
    /// - [`Misuse::OtherDomain`] for a context of another domain.
    /// - [`Misuse::Busy`] if a context is bound already.
    pub fn bind_shared_transmit_context(&self, context: &SharedTransmitContext) -> Result<(), Error> {
        let mut setup = self.shared.setup.lock();
        if context.domain() != self.shared.domain.id() {
            return Err(Misuse::OtherDomain.into());
        }
        if setup.transmit_context.is_some() || mutated!("fi_endpoint/shared-transmits") {
            return Err(Misuse::Busy(InUse::TransmitContextBound).into());
        }
        setup.transmit_context = Some(context.clone());
        Ok(())
    }

    /// Binds the event queue for the events of the endpoint's connection: `fi_ep_bind`. The events name the
    /// endpoint by `object`. Unconnected endpoints report no events. Binding the same queue again has no
    /// effect.
    ///
    /// # Errors
    ///
    /// [`Misuse::Busy`] if the endpoint has another queue already.
    pub fn bind_eq(&self, eq: &EventQueue, object: u64) -> Result<(), Error> {
        let mut setup = self.shared.setup.lock();
        if let Some((bound, _)) = &setup.eq {
            let is_same = Arc::ptr_eq(bound.shared(), eq.shared());
            return if is_same { Ok(()) } else { Err(Misuse::Busy(InUse::EventQueueBound).into()) };
        }
        eq.shared().add_binding();
        setup.eq = Some((eq.clone(), object));
        Ok(())
    }

    /// Sets the address to bind the endpoint to: `fi_setname`.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] once the endpoint is enabled or its [`name`](Self::name) was asked for, or if it
    /// was opened for a request or from a passive endpoint. [`Misuse::Invalid`] for an address of another
    /// format than the domain's.
    pub fn set_name(&self, name: Address) -> Result<(), Error> {
        let mut setup = self.shared.setup.lock();
        let has_name = matches!(self.shared.origin, EndpointOrigin::Request(_));
        if has_name || self.shared.pump.get().is_some() {
            return Err(Misuse::State(ObjectState::AddressAssigned).into());
        }
        if name.format() != self.shared.domain.format() && !mutated!("fi_cm/setname-format") {
            return Err(
                Misuse::Invalid(Argument::AddressFormat { accepted: self.shared.domain.format() }).into()
            );
        }
        if name.port() == 0 && mutated!("fi_cm/setname-without-service") {
            return Err(Misuse::Invalid(Argument::PeerWithoutPort).into());
        }
        setup.name = Some(name).filter(|_| !mutated!("fi_cm/setname"));
        Ok(())
    }

    /// Sets whether the connection ends with the first operation that fails, as a queue pair of verbs turns
    /// to error. The default is `false`: a failed operation ends alone.
    ///
    /// With `true`, once an operation of this endpoint has ended with an error:
    ///
    /// - All its other operations end with
    ///   [`OperationError::Flushed`](crate::OperationError::Flushed), ECANCELED, each with one completion,
    ///   even if it asked for none.
    ///   Posted receives end in the order of posting; sends and accesses do so if the transmit attributes ask
    ///   for `FI_ORDER_STRICT` completions. Messages that no receive has taken are dropped. Receives of a
    ///   shared context stay posted, and may still take messages that had arrived.
    /// - [`ConnectionEvent::Shutdown`](crate::ConnectionEvent::Shutdown) follows, with
    ///   [`ConnectionEnd::OperationFailed`](crate::ConnectionEnd::OperationFailed). The peer's connection is
    ///   [lost](crate::ConnectionEnd::Lost).
    /// - Operations that are posted later are accepted and end with `Flushed`, too, as those that were posted
    ///   before the failure was found. Once this side has [shut the connection down](Self::shutdown), posts
    ///   fail with ENOTCONN, as after every other end of a connection.
    ///
    /// Every error counts: an access that the target refuses, a receive that is too short, payload that
    /// cannot be read or made durable, deferred work that is refused when it is due. An operation that the
    /// application cancels does not count, nor does a peek that finds nothing, nor an access of the peer to
    /// memory of this side. Deferred work that is due before the connection is up fails alone. C programs
    /// cannot set this.
    ///
    /// # Errors
    ///
    /// [`Misuse::State`] once the endpoint is enabled. [`Misuse::NotSupported`] for an unconnected endpoint.
    pub fn set_ends_on_failure(&self, ends_on_failure: bool) -> Result<(), Error> {
        self.shared.check_connection_oriented()?;
        let mut setup = self.shared.setup.lock();
        if self.shared.service.is_enabled() {
            return Err(Misuse::State(ObjectState::EndpointEnabled).into());
        }
        setup.ends_on_failure = ends_on_failure;
        Ok(())
    }

    /// Returns whether the connection [ends](Self::set_ends_on_failure) with the first operation that fails.
    pub fn ends_on_failure(&self) -> bool {
        self.shared.setup.lock().ends_on_failure
    }

    /// Enables the endpoint: `fi_enable`. Does nothing if it is enabled already.
    ///
    /// The application must be able to notice the end of every operation. So each direction needs a
    /// completion queue, or a counter for each kind of operation that the capabilities allow.
    ///
    /// # Errors
    ///
    /// - [`Misuse::NoAddressVector`], [`Misuse::NoEventQueue`] or [`Misuse::NoCompletionQueue`] if the
    ///   endpoint needs an object of this kind and none is bound.
    /// - [`Misuse::State`] if the endpoint needs a shared context and none is bound.
    /// - [`Error::System`] if the system lacks descriptors or memory to wake the sleepers of a queue, or to
    ///   start a thread.
    /// - The errors of [`name`](Self::name).
    pub fn enable(&self) -> Result<(), Error> {
        let setup = &mut *self.shared.setup.lock();
        if self.shared.service.is_enabled() {
            return Ok(());
        }
        let shared = &self.shared;
        let av = shared.bound_or_empty_av(setup)?;
        if shared.shares_transmit_context() && setup.transmit_context.is_none() {
            return Err(Misuse::State(ObjectState::NoTransmitContext).into());
        }
        if shared.shares_transmit_context() != shared.shares_receive_context()
            && mutated!("fi_endpoint/one-shared-direction")
        {
            return Err(Misuse::State(ObjectState::NoTransmitContext).into());
        }
        let reporter = shared.init_reporter_if_connection_oriented(setup.eq.as_ref())?;
        // A shared receive context gives the endpoint receives, whatever its capabilities.
        let receives = if setup.receive_context().is_some() { Caps::RECV } else { Caps::empty() };
        if !mutated!("fi_endpoint/enable-needs-bindings") {
            setup.check_completions_reported(shared.info.caps | receives)?;
        }
        shared.check_receive_context_bound(setup)?;
        let pump = shared.pump_or_open(setup.name)?;
        let driven = &as_drive(pump);
        let progress_doorbell = shared.progress_thread().map(ProgressThread::start).transpose()?;
        // Take the steps that may fail first. Also, the endpoint must wake readers of its queues before the
        // queues drive it.
        shared.add_wake_source_to_readers(driven, setup, reporter.as_deref())?;
        let bindings = shared.make_bindings(av, setup, reporter.clone(), progress_doorbell);
        shared.join_receive_context(setup, pump)?;
        let enabled = match bindings.domain_counters.clone() {
            Some(counters) => {
                let has_progress_thread = shared.progress_thread().is_some();
                counters.enable_and_add_endpoint(driven, has_progress_thread, || pump.enable(bindings))
            }
            None => pump.enable(bindings),
        };
        if enabled.is_err() {
            shared.leave_receive_context(setup, pump);
        }
        enabled?;
        shared.add_endpoint_to_readers(driven, setup, reporter.as_deref());
        shared.service.add_flags(ServiceFlags::ENABLED);
        Ok(())
    }
}

impl EndpointShared {
    /// Returns the address vector in which the endpoint looks up peers. A connected endpoint looks up no
    /// peers, and gets an empty vector.
    fn bound_or_empty_av(&self, setup: &Setup) -> Result<AddressVector, Error> {
        if self.is_connection_oriented() {
            return AddressVector::open(&AvAttr::default(), self.domain.format(), self.domain.id());
        }
        setup.av.clone().ok_or(Misuse::NoAddressVector.into())
    }

    /// Makes events of the endpoint wake the progress thread. If there is none, they wake the sleepers of
    /// the queues and counters. Also records at each counter that the endpoint is bound to it.
    fn add_wake_source_to_readers(
        &self,
        driven: &Arc<dyn Drive>,
        setup: &Setup,
        reporter: Option<&Reporter>,
    ) -> Result<(), Error> {
        let progress_thread = self.progress_thread();
        match progress_thread {
            Some(progress_thread) => progress_thread.add_wake_source(driven)?,
            None => {
                setup.bound_cqs().try_for_each(|cq| cq.shared().add_wake_source(driven))?;
                reporter.iter().try_for_each(|reporter| reporter.eq().add_wake_source(driven))?;
            }
        }
        let has_progress_thread = progress_thread.is_some();
        setup
            .counters
            .iter()
            .try_for_each(|counter| counter.add_wake_source(driven, DriveReason::BOUND, has_progress_thread))
    }

    /// Makes the queues, the counters and the progress thread drive the endpoint.
    fn add_endpoint_to_readers(&self, driven: &Arc<dyn Drive>, setup: &Setup, reporter: Option<&Reporter>) {
        setup.bound_cqs().for_each(|cq| cq.shared().add_endpoint(driven));
        setup.counters.iter().for_each(|counter| counter.add_endpoint(driven));
        if let Some(reporter) = reporter {
            reporter.eq().add_endpoint(driven);
        }
        if let Some(progress_thread) = self.progress_thread() {
            progress_thread.add_endpoint(driven);
        }
    }

    /// Returns the objects that the pump uses from the moment when it is enabled.
    fn make_bindings(
        &self,
        av: AddressVector,
        setup: &Setup,
        reporter: Option<Arc<Reporter>>,
        progress_doorbell: Option<Arc<Doorbell>>,
    ) -> Bindings {
        let caps = self.info.caps;
        Bindings {
            av,
            transmit_cq: setup.transmit_cq.as_ref().map(|cq| cq.shared().clone()),
            receive_cq: match mutated!("fi_endpoint/separate-queues") {
                true => setup.transmit_cq.as_ref().map(|cq| cq.shared().clone()),
                false => setup.receive_cq.as_ref().map(|cq| cq.shared().clone()),
            },
            counters: setup.counters.clone(),
            domain_counters: self
                .is_driven_by_domain_counters()
                .then(|| self.domain.domain_counters().clone()),
            reporter,
            wants_source: caps.contains(Caps::SOURCE) || mutated!("fi_cq/source-needs-capability"),
            reports_unknown_sources: caps.contains(Caps::SOURCE | Caps::SOURCE_ERR)
                && !mutated!("fi_cq/source-err-eavail"),
            shares_receiver: setup.receive_context().is_some(),
            ends_on_failure: setup.ends_on_failure,
            progress_doorbell,
            works: self.domain.work_queue().clone(),
        }
    }

    /// Returns the endpoint's pump, once the endpoint is enabled.
    fn pump_if_enabled(&self) -> Option<&Arc<dyn EndpointPump>> {
        self.pump.get().filter(|_| self.service.is_enabled())
    }

    /// Whether the endpoint needs a transmit context that it shares with others.
    fn shares_transmit_context(&self) -> bool {
        self.info.ep.tx_ctx_cnt == SHARED_CONTEXT
    }

    /// Whether the [`DomainCounters`](crate::counter::DomainCounters) drive the endpoint: it counts
    /// accesses to regions (`RMA_EVENT`), or may have works (`TRIGGER`).
    pub(super) fn is_driven_by_domain_counters(&self) -> bool {
        self.info.caps.intersects(Caps::RMA_EVENT | Caps::TRIGGER)
    }

    /// Returns the progress thread that drives the endpoint, if there is one.
    pub(super) fn progress_thread(&self) -> Option<&ProgressThread> {
        self.domain.progress_thread(self.is_connection_oriented())
    }
}

impl Setup {
    /// Returns the bound queues, each once.
    pub(super) fn bound_cqs(&self) -> impl Iterator<Item = &CompletionQueue> {
        let second = self.receive_cq.as_ref().filter(|receive| {
            self.transmit_cq.as_ref().is_none_or(|transmit| !Arc::ptr_eq(transmit.shared(), receive.shared()))
        });
        self.transmit_cq.iter().chain(second)
    }

    /// Checks that queues and counters notice the end of every operation that the capabilities allow.
    pub(super) fn check_completions_reported(&self, caps: Caps) -> Result<(), Misuse> {
        // The capability for a kind of operation has the same bit as the event that counts the ends of
        // these operations.
        let begun = CounterEvents::from_bits_truncate(caps.bits()) - CounterEvents::OF_REGION;
        let uncounted = begun - self.counters.counted_events();
        if !(uncounted - CounterEvents::RECV).is_empty() && self.transmit_cq.is_none() {
            return Err(Misuse::NoCompletionQueue(Direction::Transmit));
        }
        if uncounted.contains(CounterEvents::RECV) && self.receive_cq.is_none() {
            return Err(Misuse::NoCompletionQueue(Direction::Receive));
        }
        Ok(())
    }

    /// Makes the pump of an enabled endpoint report to all queues and counters that are bound now.
    fn rebind_pump(&self, pump: &Arc<dyn EndpointPump>) {
        let shared = |cq: &CompletionQueue| cq.shared().clone();
        pump.rebind_queues_and_counters(
            self.transmit_cq.as_ref().map(shared),
            self.receive_cq.as_ref().map(shared),
            self.counters.clone(),
        );
    }

    /// Removes the endpoint from all queues and counters that drive it.
    pub(super) fn stop_driving_endpoint(&self, endpoint: &Arc<dyn Drive>) {
        self.bound_cqs().for_each(|cq| cq.shared().remove_endpoint(endpoint));
        self.counters.iter().for_each(|counter| counter.remove_drive_reason(endpoint, DriveReason::BOUND));
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        if let Some((eq, _)) = &self.eq {
            eq.shared().remove_binding();
        }
        for cq in self.transmit_cq.iter().chain(&self.receive_cq) {
            cq.shared().remove_binding();
        }
        self.counters.iter().for_each(|counter| counter.remove_binding());
        if let Some(av) = &self.av {
            av.remove_binding();
        }
        if let Some(context) = self.receive_context() {
            context.remove_binding();
        }
    }
}
