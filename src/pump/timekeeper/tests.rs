//! Tests of a requester over shared memory. The requester has asked a passive endpoint for a connection, and
//! the passive endpoint is gone. The requester's link to a third, silent endpoint is up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use homespun_engine::connection::EndpointRole;
use homespun_engine::engine::Config;
use homespun_engine::limits::{REQUESTER_WAIT_MAX_MS, TIMEOUT_GRACE_MS};
use homespun_engine::transport::{FrameHandler, LinkEvent, LinkId, Provider, Space, Transport};
use homespun_engine::wire::Header;
use homespun_shm::{ShmProvider, ShmTransport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::WaitObject;
use crate::clock::SimulatedClock;
use crate::domain_id::DomainId;
use crate::doorbell::Doorbell;
use crate::drive::WatchResult;
use crate::endpoint_pump::{Bindings, EndpointPump, as_drive};
use crate::eq::{EqAttr, EqReadError, EventQueue, ReportedEndpoint, Reporter};
use crate::lock::Locking;
use crate::open_pump::OpenPump;
use crate::pump::tests::{loopback, make_bindings};

/// The time after which a test fails. No test depends on how soon an event comes.
const PATIENCE: Duration = Duration::from_secs(60);

const LIMIT: Duration = Duration::from_millis(REQUESTER_WAIT_MAX_MS);
const GRACE: Duration = Duration::from_millis(TIMEOUT_GRACE_MS);
const TICK: Duration = Duration::from_millis(1);

/// A transport without an engine, and a record of whether any link of it was up.
struct EnginelessTransport {
    transport: ShmTransport,
    link_up: LinkUpFlag,
}

#[derive(Default)]
struct LinkUpFlag(bool);

impl FrameHandler for LinkUpFlag {
    fn frame(&mut self, _: LinkId, _: &Header, _: &[u8]) {}
    fn frame_begun(&mut self, _: LinkId, _: &Header) {}
    fn payload_space(&mut self, _: LinkId) -> Space<'_> {
        Space::new()
    }
    fn bytes_placed(&mut self, _: LinkId, _: usize) {}
    fn payload_arrived(&mut self, _: LinkId, _: &[u8]) {}
    fn link_event(&mut self, _: LinkId, event: LinkEvent) {
        self.0 |= matches!(event, LinkEvent::Up { .. });
    }
    fn link_writable(&mut self, _: LinkId) {}
}

impl EnginelessTransport {
    fn open(instance: u64) -> EnginelessTransport {
        let transport = ShmProvider::new().open(loopback(), instance).expect("a transport");
        EnginelessTransport { transport, link_up: LinkUpFlag::default() }
    }

    fn receive_and_check_link_up(&mut self) -> bool {
        self.transport.receive(16, &mut self.link_up);
        self.transport.flush();
        self.link_up.0
    }
}

/// An endpoint, and what a test that plays its threads needs.
struct Requester {
    pump: Arc<dyn EndpointPump>,
    clock: SimulatedClock,
    eq: EventQueue,
    /// The doorbell of a progress thread that the test plays. Nothing rings it if there is no such thread.
    doorbell: Arc<Doorbell>,
}

impl Requester {
    /// Opens a requester that has not asked for a connection yet.
    fn open_unasked(has_thread: bool) -> Requester {
        let clock = SimulatedClock::new();
        let config = Config { role: EndpointRole::Connected, ..Config::default() };
        let (locking, read) = (Locking::Taken, Clock::Simulated(clock.clone()));
        let provider = ShmProvider::new();
        let pump = OpenPump::open_pump(&provider, loopback(), None, config, Arc::default(), locking, &read);
        let pump = pump.expect("an endpoint");
        let attr = EqAttr { wait: WaitObject::Unspec, ..EqAttr::default() };
        let eq = EventQueue::open(&attr, &read).expect("a queue");
        let doorbell = Arc::new(Doorbell::new().expect("a descriptor"));
        let bindings = Bindings {
            reporter: Some(Arc::new(Reporter::new(&eq, 7, ReportedEndpoint::Endpoint))),
            ..make_bindings(DomainId::allocate(), has_thread.then_some(&doorbell))
        };
        pump.enable(bindings).expect("it is enabled for the first time");
        eq.shared().add_endpoint(&as_drive(&pump));
        Requester { pump, clock, eq, doorbell }
    }

    /// Opens a requester that has asked the first of the returned transports for a connection. The links of
    /// both transports to the requester are up.
    fn open(has_thread: bool) -> (Requester, [EnginelessTransport; 2]) {
        let requester = Requester::open_unasked(has_thread);
        let pump = &requester.pump;
        let [mut asked, mut stranger] = [1, 2].map(EnginelessTransport::open);
        pump.connect(asked.transport.address(), 99, b"", None).expect("the first request");
        stranger.transport.connect(pump.address());
        let deadline = Instant::now() + PATIENCE;
        while !(asked.receive_and_check_link_up() & stranger.receive_and_check_link_up()) {
            assert!(Instant::now() < deadline, "the links are not up");
            pump.progress_without_reader();
        }
        // The peers' first frames have arrived. The pump checks its links only every few passes, so make
        // many.
        requester.poll(100);
        (requester, [asked, stranger])
    }

    /// Opens a requester whose passive endpoint is gone. Waits until the requester has noticed and has
    /// started its timeout. Then arms the requester's transport for a thread that would sleep. Returns the
    /// requester, the transport of the stranger, and the result of the arming.
    fn open_and_await_timeout_start() -> (Requester, EnginelessTransport, Armed) {
        let (requester, [asked, stranger]) = Requester::open(false);
        drop(asked);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let armed = requester.make_pass_and_arm();
            if let Armed::Asleep { look_again_after: Some(_) } = armed {
                return (requester, stranger, armed);
            }
            assert!(Instant::now() < deadline, "no time-out has begun");
        }
    }

    /// Plays a thread that wakes, makes a pass, and sleeps again.
    fn make_pass_and_arm(&self) -> Armed {
        self.pump.progress_without_reader();
        self.pump.arm()
    }

    /// Plays a progress thread until it rests.
    fn make_rounds_until_rest(&self) -> Option<Armed> {
        self.doorbell.arm();
        (0..9).find_map(|_| match self.pump.progress_for_progress_thread() {
            WatchResult::Resting(armed) => Some(armed),
            _ => None,
        })
    }

    fn poll(&self, passes: u32) {
        (0..passes).for_each(|_| self.pump.progress_without_reader());
    }

    fn has_failed(&self) -> bool {
        match self.eq.peek() {
            Ok(None) => false,
            Err(EqReadError::ErrorAvailable) => true,
            other => panic!("{other:?}"),
        }
    }
}

fn asleep_for(time: Duration) -> Armed {
    Armed::Asleep { look_again_after: Some(time) }
}

#[test]
fn sleeper_wakes_for_due_timeout_and_next_pass_ends_it() {
    let (requester, _stranger, armed) = Requester::open_and_await_timeout_start();
    assert_eq!(armed, asleep_for(LIMIT));
    requester.clock.advance(LIMIT - TICK);
    assert_eq!(requester.make_pass_and_arm(), asleep_for(TICK));
    requester.clock.advance(TICK);
    assert_eq!(requester.make_pass_and_arm(), asleep_for(GRACE), "what came meanwhile is received first");
    assert_eq!(requester.make_pass_and_arm(), asleep_for(GRACE), "looks that follow at once are one");
    assert!(!requester.has_failed());
    requester.clock.advance(GRACE);
    let armed = requester.make_pass_and_arm();
    assert!(requester.has_failed());
    assert!(!matches!(armed, Armed::Asleep { look_again_after: Some(_) }), "{armed:?}");
}

#[test]
fn timeout_expires_by_the_clock_not_by_the_number_of_polls() {
    let (requester, _stranger, _) = Requester::open_and_await_timeout_start();
    requester.clock.advance(LIMIT - TICK);
    requester.poll(1000 * PASSES_PER_LOOK);
    assert!(!requester.has_failed());
    requester.clock.advance(TICK);
    requester.poll(1000 * PASSES_PER_LOOK);
    assert!(!requester.has_failed(), "what came meanwhile is received first");
    requester.clock.advance(GRACE);
    requester.poll(PASSES_PER_LOOK);
    assert!(requester.has_failed());
}

/// Waits until the transport's descriptor is readable. Returns false if that takes longer than [`PATIENCE`].
fn wait_until_readable(pump: &dyn EndpointPump) -> bool {
    let mut is_readable = false;
    pump.with_wake_fd(&mut |fd| {
        let patience = Timespec::try_from(PATIENCE).expect("a time");
        let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&patience));
        is_readable = ready.expect("a descriptor that can be polled") > 0;
    });
    is_readable
}

#[test]
fn only_the_poll_that_starts_a_timeout_wakes_sleepers() {
    let (requester, [asked, _stranger]) = Requester::open(true);
    assert_eq!(requester.make_rounds_until_rest(), Some(Armed::Asleep { look_again_after: None }));
    drop(asked);
    assert!(wait_until_readable(&*requester.pump));
    requester.poll(1);
    assert!(!requester.doorbell.is_armed(), "the thread does not know of the time-out");
    assert_eq!(requester.make_rounds_until_rest(), Some(asleep_for(LIMIT)));
    requester.poll(1);
    assert!(requester.doorbell.is_armed(), "the thread wakes in time by itself");
}

#[test]
fn connect_with_a_timeout_wakes_sleepers_that_would_oversleep_it() {
    let requester = Requester::open_unasked(true);
    let silent = EnginelessTransport::open(1);
    let quiet = Some(Armed::Asleep { look_again_after: None });
    assert_eq!(requester.make_rounds_until_rest(), quiet);
    let to = silent.transport.address();
    requester.pump.connect(to, 99, b"", Some(LIMIT)).expect("the first request");
    assert!(!requester.doorbell.is_armed(), "the thread does not know of the time-out");
    assert_eq!(requester.make_rounds_until_rest(), Some(asleep_for(LIMIT)), "the time runs from the call");
    requester.clock.advance(LIMIT);
    assert_eq!(requester.make_rounds_until_rest(), Some(asleep_for(GRACE)));
    requester.clock.advance(GRACE);
    assert_eq!(requester.make_rounds_until_rest(), quiet);
    assert!(requester.has_failed());
}
