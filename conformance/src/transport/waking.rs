//! Sleeping on a transport, and waking.
//!
//! These tests apply only to transports that have a [`wake_fd`](Transport::wake_fd). A transport may wake
//! its caller without cause, but not for ever. A transport must not lose a wakeup.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homespun_engine::transport::{Armed, Close, LinkId, Provider, Transport};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use crate::transport::features::has_wake_fd;
use crate::transport::room::fill_link;
use crate::transport::{BUDGET_FRAMES, Backend, SIZES, TestEndpoint, drive_until, pseudo_random_payload};

/// How long at most a test waits on a descriptor if it also drives another endpoint.
const LOOK_MS: u64 = 5;

/// How many times the tests arm a transport that has something to report.
const ARMS: usize = 3;

/// The sleep of an armed transport whose descriptor is not readable.
#[derive(Debug)]
struct Sleep {
    /// The time at which the transport asks for a pass even without a wakeup.
    retry_at: Option<Instant>,
}

impl Sleep {
    /// Drives an endpoint until it has nothing to do, and arms its transport.
    #[track_caller]
    fn start_when_idle<T: Transport>(endpoint: &mut TestEndpoint<T>) -> Sleep {
        let deadline = endpoint.deadline_from_now();
        loop {
            endpoint.transmit();
            while endpoint.receive(BUDGET_FRAMES) > 0 {
                deadline.yield_or_panic("a transport to have reported everything");
            }
            if let Armed::Asleep { look_again_after } = endpoint.transport.arm()
                && !poll_readable(expect_wake_fd(&endpoint.transport), Duration::ZERO)
            {
                return Sleep { retry_at: look_again_after.map(|after| Instant::now() + after) };
            }
            deadline.yield_or_panic("an idle transport to fall asleep");
        }
    }

    /// Arms an endpoint's transport in its present state. If the transport stays awake, the sleep ends at
    /// once.
    fn arm<T: Transport>(endpoint: &mut TestEndpoint<T>) -> Sleep {
        let after = match endpoint.transport.arm() {
            Armed::Ready => Some(Duration::ZERO),
            Armed::Asleep { look_again_after } => look_again_after,
        };
        Sleep { retry_at: after.map(|after| Instant::now() + after) }
    }

    /// Waits until the transport is woken, or until its retry time. Makes no call of the transport. Calls
    /// `meanwhile` in a loop.
    #[track_caller]
    fn wait_until_woken<T: Transport>(
        &self,
        endpoint: &TestEndpoint<T>,
        what: &str,
        mut meanwhile: impl FnMut(),
    ) {
        let deadline = endpoint.deadline_from_now();
        while self.retry_at.is_none_or(|retry_at| Instant::now() < retry_at)
            && !poll_readable(expect_wake_fd(&endpoint.transport), Duration::from_millis(LOOK_MS))
        {
            meanwhile();
            deadline.yield_or_panic(what);
        }
    }

    /// Waits until the transport has a frame or a link event to report: it is woken, and stays awake
    /// although it is armed several times. If it was woken without cause and falls asleep again, the wait
    /// continues.
    #[track_caller]
    fn wait_until_event<T: Transport>(
        mut self,
        endpoint: &mut TestEndpoint<T>,
        what: &str,
        mut meanwhile: impl FnMut(),
    ) {
        let deadline = endpoint.deadline_from_now();
        loop {
            self.wait_until_woken(endpoint, what, &mut meanwhile);
            if (0..ARMS).all(|_| arm_and_check_awake(endpoint)) {
                return;
            }
            self = Sleep::arm(endpoint);
            deadline.yield_or_panic(what);
        }
    }
}

/// Arms a transport. Returns whether the transport asks for another pass, even if nothing more happens.
fn arm_and_check_awake<T: Transport>(endpoint: &mut TestEndpoint<T>) -> bool {
    let sleep = Sleep::arm(endpoint);
    sleep.retry_at.is_some() || poll_readable(expect_wake_fd(&endpoint.transport), Duration::ZERO)
}

fn expect_wake_fd(transport: &impl Transport) -> BorrowedFd<'_> {
    transport.wake_fd().expect("a transport either has a descriptor or has none")
}

fn poll_readable(descriptor: impl AsFd, wait: Duration) -> bool {
    let mut asked = [PollFd::new(&descriptor, PollFlags::IN)];
    let wait = Timespec::try_from(wait).expect("a timeout of at most a minute");
    // Treat an interruption by a signal as a time-out.
    poll(&mut asked, Some(&wait)).is_ok_and(|ready| ready > 0)
}

/// Drives an endpoint until `done` returns true. The endpoint sleeps whenever it can. `done` may post
/// answers to received frames.
#[track_caller]
fn drive_sleeping_until<T: Transport>(
    endpoint: &mut TestEndpoint<T>,
    what: &str,
    mut done: impl FnMut(&mut TestEndpoint<T>) -> bool,
) {
    let deadline = endpoint.deadline_from_now();
    loop {
        if done(endpoint) {
            return;
        }
        // `done` may have posted frames. They must be transmitted before the endpoint sleeps.
        endpoint.transmit();
        if done(endpoint) {
            return;
        }
        if endpoint.receive(BUDGET_FRAMES) == 0
            && let Armed::Asleep { look_again_after } = endpoint.transport.arm()
        {
            let left = deadline.time_left();
            let wait = look_again_after.map_or(left, |after| after.min(left));
            poll_readable(expect_wake_fd(&endpoint.transport), wait);
        }
        deadline.yield_or_panic(what);
    }
}

/// The caller of an idle transport can sleep: [`arm`](Transport::arm) allows the sleep, and the descriptor
/// is not readable. This holds without a link, with an unused link, and after many frames.
pub fn idle_transport_arms_and_sleeps<P: Provider>(backend: Backend<'_, P>) {
    let (mut endpoints, link, peer) = backend.open_linked_pair();
    Sleep::start_when_idle(&mut backend.open_endpoint(33));
    for endpoint in &mut endpoints {
        Sleep::start_when_idle(endpoint);
    }
    for size in SIZES {
        endpoints[0].post(link, pseudo_random_payload(size, 1));
    }
    drive_until(&mut endpoints, "all frames", |[_, b]| b.recorder.frame_count(peer) == SIZES.len());
    for endpoint in &mut endpoints {
        Sleep::start_when_idle(endpoint);
    }
}

/// A connect wakes the sleeping acceptor.
pub fn incoming_connect_wakes_the_acceptor<P: Provider>(backend: Backend<'_, P>) {
    let [mut a, mut b] = [11, 22].map(|instance| backend.open_endpoint(instance));
    let sleep = Sleep::start_when_idle(&mut b);
    a.connect(b.address());
    sleep.wait_until_event(&mut b, "a connect to wake the peer", || a.make_progress());
    drive_until(&mut [a, b], "the link", |[a, b]| {
        a.recorder.live_link_count() == 1 && b.recorder.live_link_count() == 1
    });
}

/// The acceptor's answer wakes the sleeping connector.
pub fn accepted_connect_wakes_the_connector<P: Provider>(backend: Backend<'_, P>) {
    let [mut a, mut b] = [11, 22].map(|instance| backend.open_endpoint(instance));
    a.connect(b.address());
    let sleep = Sleep::start_when_idle(&mut a);
    if a.recorder.live_link_count() == 0 {
        sleep.wait_until_event(&mut a, "the peer's answer to wake", || b.make_progress());
    }
    let answer = |a: &mut TestEndpoint<P::Transport>| a.recorder.live_link_count() == 1;
    thread::scope(|scope| {
        let answering = scope.spawn(|| {
            drive_sleeping_until(&mut b, "the link", |b| b.recorder.live_link_count() == 1);
        });
        drive_sleeping_until(&mut a, "the peer's answer", answer);
        answering.join().expect("the peer has the link too");
    });
}

/// A refused connect wakes the sleeping connector, even if the refusal comes before the transport is armed.
pub fn refused_connect_wakes_the_connector<P: Provider>(backend: Backend<'_, P>) {
    let [mut a, vacant] = [11, 22].map(|instance| backend.open_endpoint(instance));
    let address = vacant.address();
    drop(vacant);
    Sleep::start_when_idle(&mut a);
    let link = a.connect(address);
    Sleep::arm(&mut a).wait_until_event(&mut a, "the refusal to wake the connector", || {});
    drive_sleeping_until(&mut a, "the end of the link", |a| a.recorder.down_error(link).is_some());
}

/// A frame wakes the sleeping receiver, each time that it sleeps.
pub fn frame_wakes_the_receiver<P: Provider>(backend: Backend<'_, P>) {
    let ([mut a, mut b], link, peer) = backend.open_linked_pair();
    for round in 1..=50 {
        let sleep = Sleep::start_when_idle(&mut b);
        a.post(link, pseudo_random_payload(SIZES[round % 12], 1));
        sleep.wait_until_event(&mut b, "a frame to wake its receiver", || a.make_progress());
        drive_sleeping_until(&mut b, "the frame", |b| b.recorder.frame_count(peer) == round);
    }
}

/// A transport does not sleep while it has frames that an earlier budget was too small to report.
pub fn arm_with_unreported_frames_stays_awake<P: Provider>(backend: Backend<'_, P>) {
    for (frames, len_bytes) in [(100, 40), (20, 20_000)] {
        let ([mut a, mut b], link, peer) = backend.open_linked_pair();
        for _ in 0..frames {
            a.post(link, pseudo_random_payload(len_bytes, 1));
        }
        for _ in 0..10 {
            a.make_progress();
        }
        while b.recorder.frame_count(peer) < frames {
            let sleep = Sleep::arm(&mut b);
            sleep.wait_until_woken(&b, "frames that arrived before", || a.make_progress());
            b.receive(1);
        }
    }
}

/// Room on a full link wakes the sleeping sender.
pub fn free_room_wakes_the_sender<P: Provider>(backend: Backend<'_, P>) {
    for len_bytes in [500, 256 * 1024] {
        let ([mut a, mut b], link, peer) = backend.open_linked_pair();
        let frames = fill_link(&mut a, link, len_bytes);
        let sleep = Sleep::start_when_idle(&mut a);
        sleep.wait_until_woken(&a, "room to wake the sender", || b.make_progress());
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                drive_sleeping_until(&mut b, "all frames", |b| b.recorder.frame_count(peer) == frames);
                is_done.store(true, Ordering::Relaxed);
            });
            drive_sleeping_until(&mut a, "room for everything", |a| a.has_sent_all());
            // The last frames may need further calls of their sender.
            let deadline = backend.deadline_from_now();
            while !is_done.load(Ordering::Relaxed) {
                a.make_progress();
                deadline.yield_or_panic("everything to arrive");
            }
        });
    }
}

/// [`Close::Drain`] wakes the sleeping peer.
pub fn drain_wakes_the_peer<P: Provider>(backend: Backend<'_, P>) {
    close_wakes_the_peer(backend, Close::Drain);
}

/// [`Close::Abort`] wakes the sleeping peer.
pub fn abort_wakes_the_peer<P: Provider>(backend: Backend<'_, P>) {
    close_wakes_the_peer(backend, Close::Abort);
}

fn close_wakes_the_peer<P: Provider>(backend: Backend<'_, P>, how: Close) {
    let ([mut a, mut b], link, peer) = backend.open_linked_pair();
    let sleep = Sleep::start_when_idle(&mut b);
    a.close(link, how);
    sleep.wait_until_event(&mut b, "the end of the link to wake", || a.make_progress());
    drive_sleeping_until(&mut b, "the end of the link", |b| b.recorder.down_error(peer).is_some());
}

/// Dropping a transport wakes the sleeping peer.
pub fn dropped_transport_wakes_the_peer<P: Provider>(backend: Backend<'_, P>) {
    let ([a, mut b], _, peer) = backend.open_linked_pair();
    let sleep = Sleep::start_when_idle(&mut b);
    drop(a);
    sleep.wait_until_event(&mut b, "the end of the peer to wake", || {});
    drive_sleeping_until(&mut b, "the end of the link", |b| b.recorder.down_error(peer).is_some());
}

/// A transport does not sleep if a connect, a frame, or the end of a link has come since its last pass.
pub fn arm_after_an_unreported_event_stays_awake<P: Provider>(backend: Backend<'_, P>) {
    let [mut a, mut b] = [backend.open_endpoint(11), backend.open_endpoint(22)];
    a.connect(b.address());
    a.make_progress();
    Sleep::arm(&mut b).wait_until_event(&mut b, "an earlier connect", || a.make_progress());

    for (what, close) in [
        ("an earlier frame", None),
        ("an earlier drain", Some(Close::Drain)),
        ("an earlier abort", Some(Close::Abort)),
    ] {
        let ([mut a, mut b], link, _) = backend.open_linked_pair();
        match close {
            None => a.post(link, pseudo_random_payload(40, 1)),
            Some(how) => a.close(link, how),
        }
        a.make_progress();
        Sleep::arm(&mut b).wait_until_event(&mut b, what, || a.make_progress());
        drive_sleeping_until(&mut b, what, |b| b.recorder.log().len() == 2);
    }

    let ([a, mut b], _, peer) = backend.open_linked_pair();
    drop(a);
    Sleep::arm(&mut b).wait_until_event(&mut b, "an earlier end of the peer", || {});
    drive_sleeping_until(&mut b, "the end of the link", |b| b.recorder.down_error(peer).is_some());
}

/// A sender does not sleep if a full link has got room since its last pass.
pub fn arm_after_room_was_freed_stays_awake<P: Provider>(backend: Backend<'_, P>) {
    let ([mut a, mut b], link, peer) = backend.open_linked_pair();
    let frames = fill_link(&mut a, link, 500);
    // The peer reads most or all of the arrived frames.
    for _ in 0..1000 {
        b.receive(BUDGET_FRAMES);
    }
    let sleep = Sleep::arm(&mut a);
    sleep.wait_until_woken(&a, "room that was freed before", || b.make_progress());
    drive_until(&mut [a, b], "all frames", |[_, b]| b.recorder.frame_count(peer) == frames);
}

/// Once a transport is ready because of free room, it stays ready until it has reported the link as writable.
pub fn room_keeps_the_transport_ready_until_it_is_reported<P: Provider>(backend: Backend<'_, P>) {
    let ([mut a, mut b], link, _) = backend.open_linked_pair();
    if !a.transport.reports_writable_links() {
        return;
    }
    fill_link(&mut a, link, 500);
    let deadline = a.deadline_from_now();
    while a.transport.arm() != Armed::Ready {
        b.receive(BUDGET_FRAMES);
        deadline.yield_or_panic("room on the link");
    }
    for _ in 0..3 {
        assert_eq!(a.transport.arm(), Armed::Ready, "the transport has forgotten that it found room");
    }
}

/// A connect succeeds even if other connects have filled the acceptor's backlog and the connector sleeps.
/// The connector's transport sets a retry time, because no descriptor announces room in the backlog. Needs
/// the feature `backlog`.
pub fn connector_at_a_full_backlog_sets_a_retry_time_and_connects<P: Provider>(backend: Backend<'_, P>) {
    let [mut a, mut b, mut c] = connect_to_filled_backlog(backend);
    let waiting = Sleep::start_when_idle(&mut a);
    assert!(waiting.retry_at.is_some(), "the connector sets no time to retry for a place in the backlog");
    let deadline = a.deadline_from_now();
    loop {
        let sleep = Sleep::start_when_idle(&mut a);
        if a.recorder.live_link_count() == 1 {
            break;
        }
        // The acceptor makes passes only once the connector is asleep. Otherwise the connector could find
        // room in the backlog without a wakeup.
        let mut progress = || [&mut b, &mut c].into_iter().for_each(TestEndpoint::make_progress);
        sleep.wait_until_woken(&a, "a place in the backlog", &mut progress);
        progress();
        deadline.yield_or_panic("a place in the backlog");
    }
}

/// Returns three endpoints. The third has connected to the second many times. After that, the first has
/// connected to the second. The second endpoint makes no call.
fn connect_to_filled_backlog<P: Provider>(backend: Backend<'_, P>) -> [TestEndpoint<P::Transport>; 3] {
    const OTHERS: usize = 32;
    let [mut a, b, mut c] = [11, 22, 33].map(|instance| backend.open_endpoint(instance));
    for _ in 0..OTHERS {
        c.connect(b.address());
        c.make_progress();
    }
    a.connect(b.address());
    [a, b, c]
}

/// Finds out whether a connect waits for a place in the backlog of an idle acceptor.
pub(super) fn probe_backlog<P: Provider>(backend: Backend<'_, P>) -> bool {
    let [mut a, _acceptor, _other] = connect_to_filled_backlog(backend);
    has_wake_fd(&a) && Sleep::start_when_idle(&mut a).retry_at.is_some()
}

/// A full link drains, although its endpoint sleeps whenever it can and the peer reads only about one frame
/// at a time.
pub fn drain_completes_while_the_endpoint_sleeps<P: Provider>(backend: Backend<'_, P>) {
    let ([mut a, mut b], link, peer) = backend.open_linked_pair();
    let taken = fill_link(&mut a, link, 100) - 1;
    a.close(link, Close::Drain);
    loop {
        let sleep = Sleep::start_when_idle(&mut a);
        if a.transport.draining_count() == 0 {
            break;
        }
        sleep.wait_until_woken(&a, "the link to drain", || {
            if b.recorder.frame_count(peer) < taken {
                b.receive(1);
            }
        });
    }
    b.drive_until("the frames", |b| b.recorder.frame_count(peer) == taken);
}

/// The caller may nest the descriptor in its own `epoll(7)` instance. A frame then makes the descriptor of
/// that instance readable.
pub fn wake_fd_works_inside_another_epoll<P: Provider>(backend: Backend<'_, P>) {
    let ([mut a, mut b], link, peer) = backend.open_linked_pair();
    let nest = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
    let anything = epoll::EventData::new_u64(0);
    epoll::add(&nest, expect_wake_fd(&b.transport), anything, epoll::EventFlags::IN)
        .expect("it can be nested");
    for round in 1..=3 {
        let sleep = Sleep::start_when_idle(&mut b);
        assert!(!poll_readable(&nest, Duration::ZERO), "the outer epoll of a sleeping transport is readable");
        a.post(link, pseudo_random_payload(40, 1));
        let deadline = backend.deadline_from_now();
        while !poll_readable(&nest, Duration::from_millis(LOOK_MS))
            && sleep.retry_at.is_none_or(|retry_at| Instant::now() < retry_at)
        {
            a.make_progress();
            deadline.yield_or_panic("a frame to wake its receiver through the outer epoll");
        }
        drive_sleeping_until(&mut b, "the frame", |b| b.recorder.frame_count(peer) == round);
    }
}

/// Two endpoints in two threads exchange messages without a lost wakeup. Each sleeps whenever it has nothing
/// to do. First they send single messages in turn. Then both send many large messages at once and wait for
/// room.
pub fn sleeping_endpoints_miss_no_wakeup<P: Provider>(backend: Backend<'_, P>) {
    const TURNS: usize = 1000;
    const FLOOD: usize = 3 * SIZES.len();
    let ([mut a, mut b], link, peer) = backend.open_linked_pair();
    let finished = AtomicUsize::new(0);
    let run = |endpoint: &mut TestEndpoint<P::Transport>, link: LinkId, begins: bool| {
        let mut answered = 0;
        if begins {
            endpoint.post(link, pseudo_random_payload(1, 0));
        }
        drive_sleeping_until(endpoint, "the other's turn", |endpoint| {
            let seen = endpoint.recorder.log().len() - 1;
            while answered < seen.min(TURNS) {
                answered += 1;
                // The side that has begun does not answer the last message.
                if !begins || answered < TURNS {
                    endpoint.post(link, pseudo_random_payload(SIZES[answered % 8], 0));
                }
            }
            seen >= TURNS && endpoint.has_sent_all()
        });
        for n in 0..FLOOD {
            endpoint.post(link, pseudo_random_payload(SIZES[n % SIZES.len()], 1));
        }
        drive_sleeping_until(endpoint, "everything", |endpoint| {
            endpoint.has_sent_all() && endpoint.recorder.log().len() == 1 + TURNS + FLOOD
        });
        finished.fetch_add(1, Ordering::Relaxed);
        // The last frames may need further calls of their sender.
        let deadline = backend.deadline_from_now();
        while finished.load(Ordering::Relaxed) < 2 {
            endpoint.make_progress();
            deadline.yield_or_panic("the other to have everything");
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| run(&mut a, link, true));
        scope.spawn(|| run(&mut b, peer, false));
    });
}
