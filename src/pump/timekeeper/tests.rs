//! Tests of a requester over shared memory. The requester has asked a passive endpoint for a connection, and
//! the passive endpoint is gone. The requester's link to a third, silent endpoint is up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use homespun_engine::address::Address;
use homespun_engine::connection::EndpointRole;
use homespun_engine::engine::Config;
use homespun_engine::flags::InfoFlags;
use homespun_engine::limits::{REQUESTER_WAIT_MAX_MS, TIMEOUT_GRACE_MS};
use homespun_engine::transport::{FrameHandler, LinkEvent, LinkId, Provider, Space, Transport};
use homespun_engine::wire::Header;
use homespun_shm::{ShmProvider, ShmTransport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::clock::SimulatedClock;
use crate::counter::BoundCounters;
use crate::domain_id::DomainId;
use crate::doorbell::Doorbell;
use crate::drive::WatchResult;
use crate::endpoint_pump::{Bindings, EndpointPump, as_drive};
use crate::eq::{EqAttr, EqReadError, EventQueue, ReportedEndpoint, Reporter};
use crate::fabric::Fabric;
use crate::lock::Locking;
use crate::open_pump::OpenPump;
use crate::{AddressFormat, AddressVector, AvAttr, WaitObject};

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
    fn open(bind: Address, instance: u64) -> EnginelessTransport {
        EnginelessTransport {
            transport: ShmProvider::new().open(bind, instance).expect("a transport"),
            link_up: LinkUpFlag::default(),
        }
    }

    fn receive_and_check_link_up(&mut self) -> bool {
        self.transport.receive(16, &mut self.link_up);
        self.transport.flush();
        self.link_up.0
    }
}

struct Requester {
    pump: Arc<dyn EndpointPump>,
    clock: SimulatedClock,
    eq: EventQueue,
    /// The doorbell of a progress thread that the test plays. `None` in a test without one.
    doorbell: Option<Arc<Doorbell>>,
    asked: EnginelessTransport,
    _stranger: EnginelessTransport,
}

/// An endpoint that has not asked for a connection yet.
struct Unasked {
    pump: Arc<dyn EndpointPump>,
    clock: SimulatedClock,
    eq: EventQueue,
    doorbell: Option<Arc<Doorbell>>,
    bind: Address,
}

impl Unasked {
    fn open(has_thread: bool) -> Unasked {
        let info = Fabric::new().getinfo(Some("127.0.0.1"), None, InfoFlags::SOURCE, None);
        let bind = info.expect("an address")[0].src_addr.expect("a source was asked for");
        let clock = SimulatedClock::new();
        let config = Config { role: EndpointRole::Connected, ..Config::default() };
        let (locking, read) = (Locking::Taken, Clock::Simulated(clock.clone()));
        let pump =
            OpenPump::open_pump(&ShmProvider::new(), bind, None, config, Arc::default(), locking, &read);
        let pump = pump.expect("an endpoint");
        let eq = EventQueue::open(&EqAttr { wait: WaitObject::Unspec, ..EqAttr::default() }, &read)
            .expect("a queue");
        let doorbell = has_thread.then(|| Arc::new(Doorbell::new().expect("a descriptor")));
        let av = AddressVector::open(&AvAttr::default(), AddressFormat::SockaddrIn, DomainId::allocate());
        let bindings = Bindings {
            av: av.expect("a vector"),
            transmit_cq: None,
            receive_cq: None,
            counters: BoundCounters::default(),
            domain_counters: None,
            reporter: Some(Arc::new(Reporter::new(&eq, 7, ReportedEndpoint::Endpoint))),
            wants_source: false,
            reports_unknown_sources: false,
            shares_receiver: false,
            ends_on_failure: false,
            progress_doorbell: doorbell.clone(),
            works: Arc::default(),
        };
        pump.enable(bindings).expect("it is enabled for the first time");
        eq.shared().add_endpoint(&as_drive(&pump));

        Unasked { pump, clock, eq, doorbell, bind }
    }
}

impl Requester {
    /// Opens a requester that has asked `asked` for a connection. The links of `asked` and of `_stranger` to
    /// the requester are up.
    fn open(has_thread: bool) -> Requester {
        let Unasked { pump, clock, eq, doorbell, bind } = Unasked::open(has_thread);
        let (mut asked, mut stranger) =
            (EnginelessTransport::open(bind, 1), EnginelessTransport::open(bind, 2));
        pump.connect(asked.transport.address(), 99, b"", None).expect("the first request");
        stranger.transport.connect(pump.address());
        let deadline = Instant::now() + PATIENCE;
        while !(asked.receive_and_check_link_up() & stranger.receive_and_check_link_up()) {
            assert!(Instant::now() < deadline, "the links are not up");
            pump.progress_without_reader();
        }
        // The peers' first frames have arrived. The pump checks its links only every few passes, so make
        // many.
        (0..100).for_each(|_| pump.progress_without_reader());
        Requester { pump, clock, eq, doorbell, asked, _stranger: stranger }
    }

    /// Drops the passive endpoint's transport. Waits until the requester has noticed and has started its
    /// timeout. Then arms the requester's transport for a thread that would sleep, and returns the result.
    fn drop_listener_and_await_timeout_start(self) -> (Abandoned, Armed) {
        let Requester { pump, clock, eq, asked, _stranger, .. } = self;
        drop(asked);
        let deadline = Instant::now() + PATIENCE;
        loop {
            pump.progress_without_reader();
            let armed = pump.arm();
            if let Armed::Asleep { look_again_after: Some(_) } = armed {
                return (Abandoned { pump, clock, eq, _stranger }, armed);
            }
            assert!(Instant::now() < deadline, "no time-out has begun");
        }
    }
}

struct Abandoned {
    pump: Arc<dyn EndpointPump>,
    clock: SimulatedClock,
    eq: EventQueue,
    _stranger: EnginelessTransport,
}

impl Abandoned {
    /// Plays a thread that wakes, makes a pass, and sleeps again.
    fn make_pass_and_arm(&self) -> Armed {
        self.pump.progress_without_reader();
        self.pump.arm()
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
    let (requester, armed) = Requester::open(false).drop_listener_and_await_timeout_start();
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
    let (requester, _) = Requester::open(false).drop_listener_and_await_timeout_start();
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
    let requester = Requester::open(true);
    let doorbell = requester.doorbell.as_ref().expect("there is to be a thread");
    let rest = || {
        doorbell.arm();
        (0..9).find_map(|_| match requester.pump.progress_for_progress_thread() {
            WatchResult::Resting(armed) => Some(armed),
            _ => None,
        })
    };
    assert_eq!(rest(), Some(Armed::Asleep { look_again_after: None }));
    drop(requester.asked);
    assert!(wait_until_readable(&*requester.pump));
    requester.pump.progress_without_reader();
    assert!(!doorbell.is_armed(), "the thread does not know of the time-out");
    assert_eq!(rest(), Some(asleep_for(LIMIT)));
    requester.pump.progress_without_reader();
    assert!(doorbell.is_armed(), "the thread wakes in time by itself");
}

#[test]
fn connect_with_a_timeout_wakes_sleepers_that_would_oversleep_it() {
    let Unasked { pump, clock, eq, doorbell, bind } = Unasked::open(true);
    let silent = EnginelessTransport::open(bind, 1);
    let doorbell = doorbell.expect("there is to be a thread");
    let rest = || {
        doorbell.arm();
        (0..9).find_map(|_| match pump.progress_for_progress_thread() {
            WatchResult::Resting(armed) => Some(armed),
            _ => None,
        })
    };
    assert_eq!(rest(), Some(Armed::Asleep { look_again_after: None }));
    pump.connect(silent.transport.address(), 99, b"", Some(LIMIT)).expect("the first request");
    assert!(!doorbell.is_armed(), "the thread does not know of the time-out");
    assert_eq!(rest(), Some(asleep_for(LIMIT)), "the time runs from the call");
    clock.advance(LIMIT);
    assert_eq!(rest(), Some(asleep_for(GRACE)));
    clock.advance(GRACE);
    assert_eq!(rest(), Some(Armed::Asleep { look_again_after: None }));
    assert_eq!(eq.peek(), Err(EqReadError::ErrorAvailable));
}
