//! The pump: the only code that sees both an endpoint's engine and its transport.
//!
//! A pump is generic over the transport. A post or a pass costs one virtual call, and a frame costs none. A
//! thread that needs the lock of a pump and the lock of a completion queue takes the pump's first.

mod address_cache;
mod backoff;
mod connections;
mod duties;
mod posting;
mod queues;
mod receive_context;
mod receive_lane;
mod send_lane;
#[cfg(feature = "simulator")]
mod simulated;
mod sleepers;
mod timekeeper;

use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use homespun_engine::address::Address;
use homespun_engine::buffer::{Destination, SegmentMut};
use homespun_engine::completion::{EndedOperation, FailedOperation, Sink};
use homespun_engine::engine::{Config, Engine, InjectedWrite};
use homespun_engine::error::{Error, Misuse, ObjectState};
use homespun_engine::flags::CounterEvents;
use homespun_engine::operation::Signalled;
use homespun_engine::region::Regions;
use homespun_engine::remote_memory::RemoteMemory;
use homespun_engine::shared_receiver::MemberId;
use homespun_engine::transport::{Armed, Glance, Transport};

use crate::av::FabricAddress;
use crate::clock::Clock;
use crate::counter::BoundCounters;
use crate::cq::{CqShared, Reader};
use crate::drive::{Drive, WatchResult};
use crate::endpoint_pump::{Bindings, EndpointPump};
use crate::lock::{Lock, LockGuard, Locking, has_sleepers, lock_for_poll};
use crate::mutated;
use crate::post::{Post, ReceivePost};
use crate::poster::{Poster, RefusedPost};
use crate::pump::address_cache::{AddressCache, PeerCache};
use crate::pump::backoff::Backoff;
use crate::pump::duties::{Duties, Purpose};
use crate::pump::queues::{NullSink, Queues, WithoutReader};
use crate::pump::timekeeper::Timekeeper;
use crate::send_msg::SendMsg;
use crate::shared_receive_context::ReceiveContext;
use crate::tag::TagMatch;
use crate::wait::EpollSet;
use crate::works::queue::WorkQueue;

/// The largest number of frames that one pass receives. More frames would delay the application's
/// completions.
const RECEIVE_BUDGET_FRAMES: u32 = 256;

/// If the application polls more often than this between two visits of the progress thread, the thread mutes
/// the endpoint. An application that sleeps polls only once or twice before it sleeps.
const CHANCE_POLLS_MAX: u32 = 4;

/// An endpoint's engine and transport, and the objects that it reports to.
pub(crate) struct Pump<T> {
    address: Address,
    /// `None` once the endpoint is closed.
    state: Lock<Option<State<T>>>,
    /// Held during each pass of a closing endpoint. At that time `state` is `None`, and this has the memory
    /// that was withdrawn from receives and may still be theirs.
    closing: Lock<Option<Vec<SegmentMut>>>,
    /// The work queue of the domain. Set once this endpoint may make works due.
    works: OnceLock<Arc<WorkQueue>>,
}

struct State<T> {
    /// Must be dropped before the engine: the engine has lent memory to the transport, and peers may read
    /// the memory until their links have ended.
    transport: T,
    engine: Engine,
    bound: Option<BoundObjects>,
    timekeeper: Timekeeper,
    receive_context: Option<Arc<ReceiveContext>>,
    duties: Duties,
    /// The number of polls by the application since the progress thread last visited or a reader last
    /// blocked.
    polls: u32,
    /// Whether a pass has nothing to do but to receive. Only a pass sets this, and each use of the engine
    /// ends it, except by the lanes.
    is_quiet: bool,
}

impl<T: Transport> State<T> {
    /// Makes a pass for a poll that reads no completion queue. Counts the poll.
    fn count_poll_and_pass(&mut self) {
        self.pass_without_reader();
        self.polls = self.polls.wrapping_add(1);
    }

    /// Makes a pass that does not serve a read of a completion queue. Returns the number of frames received.
    fn pass_without_reader(&mut self) -> u32 {
        let State { engine, transport, bound: Some(bound), timekeeper, .. } = self else { return 0 };
        let mut queues = WithoutReader(bound.queues_without_reader());
        let received = pass(engine, transport, timekeeper, &mut queues);
        drop(queues);
        self.is_quiet = engine.is_quiet();
        received
    }

    /// Makes a pass for a reader of a completion queue.
    #[inline(never)]
    fn pass_for_reader(&mut self, reader: &mut Reader<'_>) {
        let State { engine, transport, bound: Some(bound), timekeeper, .. } = self else { return };
        {
            let mut queues = bound.queues_for_reader(reader);
            pass(engine, transport, timekeeper, &mut queues);
            // The queues are dropped in place here: a call of `drop` would move them.
        }
        self.is_quiet = engine.is_quiet();
    }

    /// Makes all progress for which no frame must arrive first, such as telling a peer that its message has
    /// matched. Then arms the transport. Returns whether a thread may sleep until the transport wakes the
    /// thread. A thread that posts no receive before it wakes ends the delays of fetches first.
    fn transmit_and_arm_transport(&mut self) -> Armed {
        let State { engine, transport, bound: Some(bound), .. } = self else { return AT_REST };
        let mut queues = bound.queues_without_reader();
        engine.deliver_held(&mut queues);
        engine.transmit(transport, &mut queues);
        transport.flush();
        drop(queues);
        if engine.has_work_without_arrivals() { Armed::Ready } else { transport.arm() }
    }

    /// Advances the engine's time and arms the transport, for a thread that is about to sleep after a pass.
    /// Returns whether the thread may sleep, and after what time it must check again.
    fn prepare_sleep(&mut self) -> Armed {
        let State { engine, bound, timekeeper, .. } = self;
        if engine.awaits_timeout()
            && let Some(bound) = bound
        {
            timekeeper.advance_engine_time(engine, &mut bound.queues_without_reader());
        }
        let armed = self.transmit_and_arm_transport();
        self.timekeeper.limit_sleep_to_next_timeout(armed, &self.engine)
    }

    /// Arms the transport again, or wakes the sleepers. Runs after a call that used the endpoint while a
    /// thread may sleep on it: the call may have disarmed the transport.
    #[cold]
    fn rearm_transport_or_wake_sleepers(&mut self) {
        let has_sleepers = self.bound.as_ref().is_some_and(|bound| bound.bindings.has_sleepers());
        if has_sleepers {
            self.engine.end_fetch_delays();
        }
        let is_armed = has_sleepers
            && self.transmit_and_arm_transport() == AT_REST
            && self.timekeeper.will_sleepers_check_before_timeout(&self.engine);
        self.duties.set(Duties::WATCH, is_armed);
        if !is_armed && let Some(bound) = &self.bound {
            bound.bindings.wake_sleepers();
        }
    }

    /// Runs after the application has polled while the progress thread may be asleep. After few polls, arms
    /// the transport again or wakes the thread. After more than [`CHANCE_POLLS_MAX`], makes the thread mute
    /// the endpoint: otherwise each poll would cost several system calls.
    #[cold]
    fn rearm_transport_or_mute_endpoint(&mut self) {
        match self.bound.as_ref().and_then(|bound| bound.bindings.progress_doorbell.as_ref()) {
            Some(progress_doorbell) if self.polls > CHANCE_POLLS_MAX => {
                self.duties.remove(Duties::WATCH);
                progress_doorbell.ring();
            }
            _ => self.rearm_transport_or_wake_sleepers(),
        }
    }
}

/// Makes a pass: delivers completions that waited for room, receives, and transmits. Returns the number of
/// frames received.
#[inline(always)]
fn pass(
    engine: &mut Engine,
    transport: &mut impl Transport,
    timekeeper: &mut Timekeeper,
    queues: &mut impl Sink,
) -> u32 {
    engine.deliver_held(queues);
    let received = transport.receive(RECEIVE_BUDGET_FRAMES, &mut engine.arrivals(queues));
    if engine.awaits_timeout() {
        timekeeper.count_pass_or_advance_time(engine, queues);
    }
    engine.transmit(transport, queues);
    transport.flush();
    received
}

/// The result of arming a transport that will wake a thread when it needs a pass.
const AT_REST: Armed = Armed::Asleep { look_again_after: None };

/// A number that no other queue has while this one exists.
fn number_of_queue(queue: &Arc<CqShared>) -> u64 {
    Arc::as_ptr(queue).addr() as u64
}

struct BoundObjects {
    bindings: Bindings,
    peer_cache: PeerCache,
    address_cache: AddressCache,
}

impl BoundObjects {
    /// Whether a thread of the domain makes passes, too: automatic progress.
    fn has_progress_thread(&self) -> bool {
        self.bindings.progress_doorbell.is_some()
    }

    fn queues_without_reader(&mut self) -> Queues<'_, 'static> {
        Queues::new(&self.bindings, &mut self.address_cache, None)
    }

    fn queues_for_reader<'a, 'r>(&'a mut self, reader: &'a mut Reader<'r>) -> Queues<'a, 'r> {
        Queues::new(&self.bindings, &mut self.address_cache, Some(reader))
    }
}

impl<T: Transport> Pump<T> {
    pub(crate) fn new(
        transport: T,
        config: Config,
        regions: Arc<Regions>,
        locking: Locking,
        clock: Clock,
    ) -> Self {
        let address = transport.address();
        Pump {
            address,
            state: locking.new_lock(Some(State {
                engine: Engine::with_regions(config, regions),
                transport,
                bound: None,
                timekeeper: Timekeeper::new(clock),
                receive_context: None,
                duties: Duties::empty(),
                polls: 0,
                is_quiet: false,
            })),
            closing: locking.new_lock(None),
            works: OnceLock::new(),
        }
    }

    /// Begins a pass of an endpoint that is closing.
    fn lock_closing_pass(&self, engine: &mut Engine) -> LockGuard<'_, Option<Vec<SegmentMut>>> {
        let mut pass = self.closing.lock();
        for memory in pass.iter_mut().flat_map(|withdrawn| withdrawn.drain(..)) {
            engine.cancel_receives_into(&memory, &mut NullSink);
        }
        pass
    }

    /// Makes a pass for the progress thread, unless the application polls.
    fn pass_for_progress_thread(&self) -> WatchResult {
        let mut guard = self.state.lock();
        let Some(state) = guard.as_mut().filter(|state| state.bound.is_some()) else {
            return WatchResult::Resting(AT_REST);
        };
        state.duties.remove(Duties::WATCH);
        if mem::take(&mut state.polls) > CHANCE_POLLS_MAX {
            return WatchResult::Polled;
        }
        state.timekeeper.make_next_pass_read_clock();
        let received = state.pass_without_reader();
        state.engine.end_fetch_delays();
        if state.engine.has_mail_for_others() {
            receive_context::deliver_mail_to_others(&mut guard);
            return WatchResult::Moving;
        }
        if received > 0 || state.engine.has_work_without_arrivals() {
            return WatchResult::Moving;
        }
        let armed = state.transport.arm();
        let armed = state.timekeeper.limit_sleep_to_next_timeout(armed, &state.engine);
        state.duties.set(Duties::WATCH, armed != Armed::Ready);
        WatchResult::Resting(armed)
    }
}

impl<T: Transport> Poster for Pump<T> {
    fn post(&self, post: &mut Post) -> Result<(), Error> {
        if post.more && mutated!("fi_msg/more-is-a-hint") {
            return Ok(());
        }
        let mut endpoint = self.lock_for_call();
        let (engine, transport, bound) = endpoint.enabled_parts()?;
        bound.post(post, engine, transport)?;
        if !post.more {
            transport.hand_over();
        }
        Ok(())
    }

    fn post_receive(&self, post: &mut ReceivePost) -> Result<(), Error> {
        if !post.is_plain_single_receive() {
            return self.post_special_receive(post);
        }
        self.post_receive_with(post, |engine, request, queues| engine.post_receive(request, queues))
    }

    fn cancel(&self, context: u64) -> Result<(), Error> {
        let mut endpoint = self.lock_for_call();
        let (engine, _, bound) = endpoint.enabled_parts()?;
        engine.cancel(context, &mut bound.queues_without_reader())
    }

    fn cancel_work(&self, number: u64) -> Result<(), Error> {
        let mut endpoint = self.lock_for_call();
        let (engine, _, bound) = endpoint.enabled_parts()?;
        engine.cancel_work(number, &mut bound.queues_without_reader())
    }

    fn cancel_receives_into(&self, memory: &SegmentMut) {
        let mut endpoint = self.lock_for_call();
        let Ok((engine, _, bound)) = endpoint.enabled_parts() else {
            // Without an enabled endpoint there are no receives, unless it is closing.
            if let Some(withdrawn) = &mut *self.closing.lock() {
                withdrawn.push(*memory);
            }
            return;
        };
        engine.cancel_receives_into(memory, &mut bound.queues_without_reader());
    }

    fn wake_sleepers(&self) {
        if let Some(State { bound: Some(bound), .. }) = &*self.state.lock() {
            bound.bindings.wake_sleepers();
        }
    }

    fn report_refused_post(&self, refused: RefusedPost) {
        let RefusedPost { mut context, flags, events, error, buffer, is_work } = refused;
        let mut endpoint = self.lock_for_call();
        let Ok((engine, _, bound)) = endpoint.enabled_parts() else { return };
        let bindings = &bound.bindings;
        let mut is_counted = true;
        if is_work {
            let end = bindings.finish_deferred_work(context, false);
            (context, is_counted) = (end.context, end.is_reported);
        }
        if is_counted {
            bindings.counters.count_error(events);
        }
        let completion =
            EndedOperation { context, flags, len_bytes: 0, data: 0, tag: 0, source: None, buffer };
        engine.report_refused_operation(
            FailedOperation { completion, error, target: None },
            &mut bound.queues_without_reader(),
        );
    }
}

impl<T: Transport> EndpointPump for Pump<T> {
    fn address(&self) -> Address {
        self.address
    }

    fn enable(&self, bindings: Bindings) -> Result<(), Error> {
        let mut guard = self.state.lock();
        let state = guard.as_mut().ok_or_else(not_enabled_error)?;
        if state.bound.is_some() {
            return Err(Misuse::State(ObjectState::EndpointEnabled).into());
        }
        if bindings.counters.counted_events().intersects(CounterEvents::OF_REGION) {
            state.engine.disable_direct_access();
        }
        if bindings.ends_on_failure {
            state.engine.end_connection_on_failure();
        }
        state.engine.set_receive_queue(bindings.receive_cq.as_ref().map(number_of_queue));
        state.bound = Some(BoundObjects {
            bindings,
            peer_cache: PeerCache::default(),
            address_cache: AddressCache::default(),
        });
        #[cfg(feature = "simulator")]
        state.tell_simulation();
        Ok(())
    }

    fn rebind_queues_and_counters(
        &self,
        transmit_cq: Option<Arc<CqShared>>,
        receive_cq: Option<Arc<CqShared>>,
        counters: BoundCounters,
    ) {
        let mut endpoint = self.lock_for_call();
        let Ok((engine, _, BoundObjects { bindings, .. })) = endpoint.enabled_parts() else { return };
        if counters.counted_events().intersects(CounterEvents::OF_REGION) {
            engine.disable_direct_access();
        }
        engine.set_receive_queue(receive_cq.as_ref().map(number_of_queue));
        (bindings.transmit_cq, bindings.receive_cq, bindings.counters) = (transmit_cq, receive_cq, counters);
    }

    fn try_send_at_once(
        &self,
        send: &SendMsg<&[u8]>,
        signalled: Signalled,
        owned: Option<&mut Bytes>,
    ) -> bool {
        let mut endpoint = self.lock_for_call();
        let Some(State { engine, transport, bound: Some(bound), is_quiet, .. }) = &mut *endpoint.guard else {
            return false;
        };
        bound.try_send_at_once(send, signalled, owned, engine, transport, is_quiet)
    }

    fn try_post_waiting_receive(
        &self,
        from: FabricAddress,
        tagged: Option<&TagMatch>,
        context: u64,
        signalled: Signalled,
        destination: &mut Destination,
    ) -> bool {
        let mut endpoint = self.lock_for_call();
        let Some(State { engine, bound: Some(bound), .. }) = &mut *endpoint.guard else { return false };
        bound.try_post_waiting_receive(from, tagged, context, signalled, destination, engine)
    }

    fn try_inject_write(
        &self,
        to: FabricAddress,
        bytes: &[u8],
        memory: RemoteMemory,
        data: Option<u64>,
    ) -> Result<bool, Error> {
        let mut endpoint = self.lock_for_call();
        let (engine, transport, bound) = endpoint.enabled_parts()?;
        let to = bound.peer_cache.peer_of_address(to, &bound.bindings.av, engine)?;
        let injected = engine.try_inject_write(to, bytes, memory, data, transport)?;
        match injected {
            InjectedWrite::Sent => transport.hand_over(),
            InjectedWrite::Ended if !bound.bindings.counters.is_empty() => {
                bound.bindings.counters.count_success(CounterEvents::WRITE);
            }
            InjectedWrite::Ended | InjectedWrite::Declined => {}
        }
        Ok(injected != InjectedWrite::Declined)
    }

    fn join_shared_receiver(
        &self,
        context: &Arc<ReceiveContext>,
        is_selective: bool,
    ) -> Result<MemberId, Error> {
        let mut guard = self.state.lock();
        let state = guard.as_mut().ok_or_else(not_enabled_error)?;
        state.receive_context = Some(context.clone());
        state.duties.insert(Duties::NOTIFY_OTHERS);
        Ok(state.engine.join_shared_receiver(context.receiver(), is_selective))
    }

    fn leave_shared_receiver(&self) {
        let mut guard = self.state.lock();
        let Some(state) = guard.as_mut() else { return };
        let context = state.receive_context.take();
        state.engine.leave_shared_receiver(&mut NullSink);
        drop(guard);
        // Another endpoint of the context takes over the duties left to this one.
        context.into_iter().for_each(|context| context.deliver_mail_and_fire());
    }

    fn process_mail(&self) {
        let mut endpoint = self.lock_for_purpose(Purpose::Mail);
        let Ok((engine, transport, bound)) = endpoint.enabled_parts() else { return };
        let mut queues = WithoutReader(bound.queues_without_reader());
        engine.deliver_held(&mut queues);
        engine.transmit(transport, &mut queues);
        transport.flush();
    }

    fn attach_work_queue(&self, works: &Arc<WorkQueue>) {
        self.works.get_or_init(|| works.clone());
        if let Some(state) = &mut *self.state.lock() {
            state.duties.insert(Duties::FIRE);
        }
    }

    fn close(&self, linger: Duration) {
        let mut guard = self.state.lock();
        // Free the memory and the descriptors even if other objects still hold the pump.
        let Some(state) = guard.take() else { return };
        *self.closing.lock() = Some(Vec::new());
        drop(guard);
        let State { mut engine, mut transport, mut timekeeper, receive_context, .. } = state;
        if let Some(context) = receive_context {
            engine.leave_shared_receiver(&mut NullSink);
            context.deliver_mail_and_fire();
        }
        // Held but for the pauses: each call of the engine may use the memory of regions and receives.
        let mut guard = self.lock_closing_pass(&mut engine);
        transport.stop_accepting();
        let clock = timekeeper.clock().clone();
        let deadline = clock.now() + linger;
        let (mut sink, mut patience) = (NullSink, Backoff::default());
        // Twice: the shutdown follows what was posted before, and must itself leave. See
        // docs/decisions/connection-ends.md.
        for is_shut_down in [false, true] {
            if is_shut_down {
                let _is_connected = engine.shutdown(&mut transport, &mut sink);
            }
            while engine.has_unsent() && clock.now() < deadline {
                engine.end_fetch_delays();
                pass(&mut engine, &mut transport, &mut timekeeper, &mut sink);
                drop(guard);
                patience.pause(&clock, deadline);
                guard = self.lock_closing_pass(&mut engine);
            }
        }
        engine.close_links(&mut transport);
        transport.flush();
        while transport.draining_count() > 0 && clock.now() < deadline {
            transport.receive(RECEIVE_BUDGET_FRAMES, &mut engine.arrivals(&mut sink));
            transport.flush();
            drop(guard);
            patience.pause(&clock, deadline);
            guard = self.lock_closing_pass(&mut engine);
        }
        *guard = None;
        drop(guard);
        // Meanwhile, peers may have made accesses that a counter counts.
        self.fire_due_works();
    }
}

impl<T: Transport> Drive for Pump<T> {
    fn progress(&self, reader: &mut Reader<'_>) {
        let Some(mut guard) = lock_for_poll(&self.state) else { return };
        let Some(state) = guard.as_mut() else { return };
        state.polls = state.polls.wrapping_add(1);
        let may_glance = state.is_quiet && state.duties.is_empty();
        let glance = if may_glance { state.transport.glance() } else { Glance::Pass };
        if glance == Glance::Nothing {
            state.engine.show_all_to_peeks();
            return;
        }
        self.progress_after_glance(guard, glance, reader);
    }

    fn progress_without_reader(&self) {
        let Some(mut endpoint) = self.try_lock_for_poll() else { return };
        if let Some(state) = endpoint.guard.as_mut() {
            state.count_poll_and_pass();
        }
    }

    fn arm(&self) -> Armed {
        let mut guard = self.state.lock();
        let Some(state) = guard.as_mut() else { return AT_REST };
        if let Some(BoundObjects { bindings: Bindings { progress_doorbell: Some(doorbell), .. }, .. }) =
            &state.bound
        {
            state.polls = 0;
            if !state.duties.contains(Duties::WATCH) {
                doorbell.ring();
            }
            return AT_REST;
        }
        if state.engine.take_owed_look() {
            return Armed::Ready;
        }
        state.duties.insert(Duties::WATCH);
        state.engine.end_fetch_delays();
        let armed = state.prepare_sleep();
        receive_context::deliver_mail_to_others(&mut guard);
        armed
    }

    fn arm_for_short_sleep(&self, sources: &EpollSet) -> Armed {
        let Some(mut guard) = lock_for_poll(&self.state) else { return Armed::Ready };
        let Some(state) = guard.as_mut() else { return AT_REST };
        let has_progress_thread = state.bound.as_ref().is_some_and(BoundObjects::has_progress_thread);
        // Another thread sleeps until the transport, as it is armed now, wakes that thread.
        if has_progress_thread || state.duties.contains(Duties::WATCH) {
            return Armed::Ready;
        }
        if state.transport.wake_fd().is_none_or(|fd| sources.add(fd).is_err()) {
            return Armed::Ready;
        }
        let armed = state.prepare_sleep();
        let has_works = self.works.get().is_some_and(|works| works.is_due());
        if state.engine.has_mail_for_others() {
            receive_context::deliver_mail_to_others(&mut guard);
            return Armed::Ready;
        }
        if has_works { Armed::Ready } else { armed }
    }

    fn progress_for_progress_thread(&self) -> WatchResult {
        let found = self.pass_for_progress_thread();
        self.fire_due_works();
        found
    }

    #[inline]
    fn fire_due_works(&self) {
        if let Some(works) = self.works.get() {
            works.fire_due_works();
        }
    }

    fn with_wake_fd(&self, show: &mut dyn FnMut(BorrowedFd<'_>)) {
        if let Some(fd) = self.state.lock().as_ref().and_then(|state| state.transport.wake_fd()) {
            show(fd);
        }
    }

    fn publish_core_and_check_shared(&self, core: u32) -> bool {
        let Some(mut guard) = lock_for_poll(&self.state) else { return true };
        let has_peer = guard.as_mut().is_some_and(|state| state.transport.publish_core_and_find_peer(core));
        // A thread that has been woken to use this endpoint may need the core.
        has_peer || has_sleepers(&self.state)
    }

    fn wait_for_running_pass(&self) {
        drop(self.state.lock());
        drop(self.closing.lock());
    }
}

/// Returns the error of a call at an endpoint that is not enabled. A function creates the error only when it
/// is needed.
#[cold]
fn not_enabled_error() -> Error {
    Misuse::State(ObjectState::EndpointNotEnabled).into()
}

#[cfg(test)]
mod tests;
