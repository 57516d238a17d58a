//! How a transport sleeps and is woken.
//!
//! Demanded only of transports that have a [`wake_fd`](Transport::wake_fd). They may be woken for nothing, but not for
//! ever, and never sleep through anything that there is to do.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homespun_engine::transport::{Armed, Close, LinkId, Provider, Transport};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use crate::transport::room::fill;
use crate::transport::{BUDGET_FRAMES, Deadline, SIZES, TestEndpoint, drive, linked, payload};

/// How long a look at a descriptor takes at most, where something else is to be looked at as well.
const LOOK_MS: u64 = 5;

/// Whether endpoints of this provider can be slept on: whether they have a [`wake_fd`](Transport::wake_fd).
pub fn wakes<P: Provider>(provider: &P) -> bool {
    TestEndpoint::open(provider, 11).transport.wake_fd().is_some()
}

/// Two endpoints and the number that each has for the link between them.
type Linked<T> = ([TestEndpoint<T>; 2], LinkId, LinkId);

/// Two endpoints with a link, if they can be slept on.
fn linked_sleepers<P: Provider>(provider: &P) -> Option<Linked<P::Transport>> {
    wakes(provider).then(|| linked(provider))
}

/// An armed transport that has been seen asleep.
#[derive(Debug)]
struct Sleep {
    /// When it wants to look again by itself.
    retry_at: Option<Instant>,
}

impl Sleep {
    /// Lets a transport do everything that there is to do, until it sleeps.
    #[track_caller]
    fn start<T: Transport>(endpoint: &mut TestEndpoint<T>) -> Sleep {
        let deadline = Deadline::new();
        loop {
            endpoint.transmit();
            while endpoint.receive(BUDGET_FRAMES) > 0 {
                deadline.pause("a transport to have reported everything");
            }
            if let Armed::Asleep { look_again_after } = endpoint.transport.arm()
                && !is_readable(descriptor(&endpoint.transport), Duration::ZERO)
            {
                return Sleep { retry_at: look_again_after.map(|after| Instant::now() + after) };
            }
            deadline.pause("an idle transport to fall asleep");
        }
    }

    /// Waits until the transport is woken, without a call to it, while somebody else does something.
    #[track_caller]
    fn until_woken<T: Transport>(&self, endpoint: &TestEndpoint<T>, what: &str, mut meanwhile: impl FnMut()) {
        let deadline = Deadline::new();
        while !is_readable(descriptor(&endpoint.transport), Duration::from_millis(LOOK_MS))
            && self.retry_at.is_none_or(|retry_at| Instant::now() < retry_at)
        {
            meanwhile();
            deadline.pause(what);
        }
    }
}

fn descriptor(transport: &impl Transport) -> BorrowedFd<'_> {
    transport.wake_fd().expect("a transport either has a descriptor or has none")
}

fn is_readable(descriptor: impl AsFd, wait: Duration) -> bool {
    let mut asked = [PollFd::new(&descriptor, PollFlags::IN)];
    let wait = Timespec::try_from(wait).expect("no more than a minute");
    // A signal is as good as the end of the time.
    poll(&mut asked, Some(&wait)).is_ok_and(|ready| ready > 0)
}

/// Lets an endpoint sleep whenever it can, until something is the case. `done` may post what follows from what
/// was received.
#[track_caller]
fn sleep_until<T: Transport>(
    endpoint: &mut TestEndpoint<T>,
    budget_frames: u32,
    what: &str,
    mut done: impl FnMut(&mut TestEndpoint<T>) -> bool,
) {
    let deadline = Deadline::new();
    while !is_done(endpoint, &mut done) {
        if endpoint.receive(budget_frames) == 0
            && let Armed::Asleep { look_again_after } = endpoint.transport.arm()
        {
            let left = deadline.left();
            let wait = look_again_after.map_or(left, |after| after.min(left));
            is_readable(descriptor(&endpoint.transport), wait);
        }
        deadline.pause(what);
    }
}

/// Whether it is the case; if not at once, then when what was posted has been offered to the transport. Whoever waits for that
/// would sleep on it otherwise.
fn is_done<T: Transport>(
    endpoint: &mut TestEndpoint<T>,
    done: &mut impl FnMut(&mut TestEndpoint<T>) -> bool,
) -> bool {
    done(endpoint) || {
        endpoint.transmit();
        done(endpoint)
    }
}

/// An endpoint with nothing to do comes to rest: [`arm`](Transport::arm) says that it sleeps, and its descriptor is not
/// readable. With no link, with a link on which nothing was sent, and after much was sent.
pub fn idle_transport_arms_and_sleeps<P: Provider>(provider: &P) {
    let Some((mut endpoints, link, peer)) = linked_sleepers(provider) else { return };
    Sleep::start(&mut TestEndpoint::open(provider, 33));
    for endpoint in &mut endpoints {
        Sleep::start(endpoint);
    }
    for size in SIZES {
        endpoints[0].post(link, payload(size, 1));
    }
    drive(&mut endpoints, "all frames", |[_, b]| b.recorder.frame_count(peer) == SIZES.len());
    for endpoint in &mut endpoints {
        Sleep::start(endpoint);
    }
}

/// An endpoint that sleeps is woken by somebody who connects.
pub fn incoming_connect_wakes_the_acceptor<P: Provider>(provider: &P) {
    if !wakes(provider) {
        return;
    }
    let [mut a, mut b] = [11, 22].map(|instance| TestEndpoint::open(provider, instance));
    let sleep = Sleep::start(&mut b);
    a.connect(b.address());
    sleep.until_woken(&b, "a connect to wake the peer", || make_progress(&mut a));
    drive(&mut [a, b], "the link", |[a, b]| a.recorder.up_count() == 1 && b.recorder.up_count() == 1);
}

/// An endpoint that has connected, and sleeps, is woken when the peer has accepted and says who it is.
pub fn accepted_connect_wakes_the_connector<P: Provider>(provider: &P) {
    if !wakes(provider) {
        return;
    }
    let [mut a, mut b] = [11, 22].map(|instance| TestEndpoint::open(provider, instance));
    a.connect(b.address());
    let sleep = Sleep::start(&mut a);
    if a.recorder.up_count() == 0 {
        sleep.until_woken(&a, "the peer's answer to wake", || make_progress(&mut b));
    }
    let answer = |a: &mut TestEndpoint<P::Transport>| a.recorder.up_count() == 1;
    thread::scope(|scope| {
        let answering =
            scope.spawn(|| sleep_until(&mut b, BUDGET_FRAMES, "the link", |b| b.recorder.up_count() == 1));
        sleep_until(&mut a, BUDGET_FRAMES, "the peer's answer", answer);
        answering.join().expect("the peer has the link too");
    });
}

/// An endpoint that has connected to nobody, and sleeps, is woken to report it.
pub fn refused_connect_wakes_the_connector<P: Provider>(provider: &P) {
    if !wakes(provider) {
        return;
    }
    let [mut a, nobody] = [11, 22].map(|instance| TestEndpoint::open(provider, instance));
    let address = nobody.address();
    drop(nobody);
    Sleep::start(&mut a);
    let link = a.connect(address);
    sleep_until(&mut a, BUDGET_FRAMES, "the end of the link", |a| a.recorder.down(link).is_some());
}

/// An endpoint that sleeps is woken by a frame, however often it has fallen asleep again.
pub fn frame_wakes_the_receiver<P: Provider>(provider: &P) {
    let Some(([mut a, mut b], link, peer)) = linked_sleepers(provider) else { return };
    for round in 1..=50 {
        let sleep = Sleep::start(&mut b);
        a.post(link, payload(SIZES[round % 12], 1));
        sleep.until_woken(&b, "a frame to wake its receiver", || make_progress(&mut a));
        sleep_until(&mut b, BUDGET_FRAMES, "the frame", |b| b.recorder.frame_count(peer) == round);
    }
}

/// A transport does not sleep on what has arrived and was not reported, because the budget was too small.
pub fn arm_with_unreported_frames_stays_awake<P: Provider>(provider: &P) {
    const FRAMES: usize = 100;
    let Some(([mut a, mut b], link, peer)) = linked_sleepers(provider) else { return };
    for _ in 0..FRAMES {
        a.post(link, payload(40, 1));
    }
    drive(std::array::from_mut(&mut a), "the frames to be taken", |[a]| a.is_posted());
    sleep_until(&mut b, 1, "all frames", |b| b.recorder.frame_count(peer) == FRAMES);
}

/// An endpoint that sleeps while it has something to send on a link that is full is woken when there is room.
pub fn free_room_wakes_the_sender<P: Provider>(provider: &P) {
    for len_bytes in [500, 256 * 1024] {
        let Some(([mut a, mut b], link, peer)) = linked_sleepers(provider) else { return };
        let frames = fill(&mut a, link, len_bytes);
        let sleep = Sleep::start(&mut a);
        sleep.until_woken(&a, "room to wake the sender", || make_progress(&mut b));
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                sleep_until(&mut b, BUDGET_FRAMES, "all frames", |b| b.recorder.frame_count(peer) == frames);
                is_done.store(true, Ordering::Relaxed);
            });
            sleep_until(&mut a, BUDGET_FRAMES, "room for everything", |a| a.is_posted());
            // What was taken last may need another call to get out.
            let deadline = Deadline::new();
            while !is_done.load(Ordering::Relaxed) {
                make_progress(&mut a);
                deadline.pause("everything to arrive");
            }
        });
    }
}

/// An endpoint that sleeps is woken when its peer drains the link.
pub fn drain_wakes_the_peer<P: Provider>(provider: &P) {
    close_wakes_the_peer(provider, Close::Drain);
}

/// An endpoint that sleeps is woken when its peer aborts the link.
pub fn abort_wakes_the_peer<P: Provider>(provider: &P) {
    close_wakes_the_peer(provider, Close::Abort);
}

fn close_wakes_the_peer<P: Provider>(provider: &P, how: Close) {
    let Some(([mut a, mut b], link, peer)) = linked_sleepers(provider) else { return };
    let sleep = Sleep::start(&mut b);
    a.close(link, how);
    sleep.until_woken(&b, "the end of the link to wake", || make_progress(&mut a));
    sleep_until(&mut b, BUDGET_FRAMES, "the end of the link", |b| b.recorder.down(peer).is_some());
}

/// An endpoint that sleeps is woken when its peer's transport is dropped.
pub fn dropped_transport_wakes_the_peer<P: Provider>(provider: &P) {
    let Some(([a, mut b], _, peer)) = linked_sleepers(provider) else { return };
    let sleep = Sleep::start(&mut b);
    drop(a);
    sleep.until_woken(&b, "the end of the peer to wake", || {});
    sleep_until(&mut b, BUDGET_FRAMES, "the end of the link", |b| b.recorder.down(peer).is_some());
}

/// The descriptor may be watched by an `epoll(7)` of somebody else's, which becomes readable itself.
pub fn wake_fd_works_inside_another_epoll<P: Provider>(provider: &P) {
    let Some(([mut a, mut b], link, peer)) = linked_sleepers(provider) else { return };
    let nest = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll");
    let anything = epoll::EventData::new_u64(0);
    epoll::add(&nest, descriptor(&b.transport), anything, epoll::EventFlags::IN).expect("it can be nested");
    for round in 1..=3 {
        let sleep = Sleep::start(&mut b);
        assert!(!is_readable(&nest, Duration::ZERO), "it sleeps, and its nest does not");
        a.post(link, payload(40, 1));
        let deadline = Deadline::new();
        while !is_readable(&nest, Duration::from_millis(LOOK_MS))
            && sleep.retry_at.is_none_or(|retry_at| Instant::now() < retry_at)
        {
            make_progress(&mut a);
            deadline.pause("a frame to wake its receiver through a nest");
        }
        sleep_until(&mut b, BUDGET_FRAMES, "the frame", |b| b.recorder.frame_count(peer) == round);
    }
}

/// Two endpoints in two threads, each asleep whenever it has nothing to do, exchange everything that they have: one message
/// at a time in turn, where each wake counts, and then many large ones at once, where both wait for room.
pub fn sleeping_endpoints_miss_no_wakeup<P: Provider>(provider: &P) {
    const TURNS: usize = 1000;
    const FLOOD: usize = 3 * SIZES.len();
    let Some(([mut a, mut b], link, peer)) = linked_sleepers(provider) else { return };
    let finished = AtomicUsize::new(0);
    let run = |endpoint: &mut TestEndpoint<P::Transport>, link: LinkId, begins: bool| {
        let mut answered = 0;
        if begins {
            endpoint.post(link, payload(1, 0));
        }
        sleep_until(endpoint, BUDGET_FRAMES, "the other's turn", |endpoint| {
            let heard = endpoint.recorder.log().len() - 1;
            while answered < heard.min(TURNS) {
                answered += 1;
                // Who has begun does not answer to the last.
                if !begins || answered < TURNS {
                    endpoint.post(link, payload(SIZES[answered % 8], 0));
                }
            }
            heard >= TURNS && endpoint.is_posted()
        });
        for n in 0..FLOOD {
            endpoint.post(link, payload(SIZES[n % SIZES.len()], 1));
        }
        sleep_until(endpoint, BUDGET_FRAMES, "everything", |endpoint| {
            endpoint.is_posted() && endpoint.recorder.log().len() == 1 + TURNS + FLOOD
        });
        finished.fetch_add(1, Ordering::Relaxed);
        // What was taken last may need another call to get out.
        let deadline = Deadline::new();
        while finished.load(Ordering::Relaxed) < 2 {
            make_progress(endpoint);
            deadline.pause("the other to have everything");
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| run(&mut a, link, true));
        scope.spawn(|| run(&mut b, peer, false));
    });
}

fn make_progress<T: Transport>(endpoint: &mut TestEndpoint<T>) {
    endpoint.transmit();
    endpoint.receive(BUDGET_FRAMES);
}
