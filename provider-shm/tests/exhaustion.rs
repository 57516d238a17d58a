//! Endpoints in a process that runs out of descriptors.
//!
//! The test uses up all descriptors of the process, so it is the only test in its binary.

use std::fs;
use std::os::fd::OwnedFd;

use homespun_conformance::transport::{
    BUDGET_FRAMES, Event, TestEndpoint, drive_until, pseudo_random_payload,
};
use homespun_engine::address::AddressFormat;
use homespun_engine::errno::Errno;
use homespun_engine::transport::{Close, Denial, LinkError, LinkId, Provider};
use homespun_shm::{ShmProvider, ShmTransport};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

type Endpoints = [TestEndpoint<ShmTransport>; 2];

/// The limit of descriptors during the test. A low limit is soon reached.
const LIMIT_FDS: u64 = 128;

/// More descriptors than a link within a process needs.
const PLENTY_FDS: usize = 10;

fn limit_fds(count: u64) {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum })
        .expect("the process may lower its limit");
}

/// Takes all free descriptors of the process except a given number.
fn leave_free_fds(free: usize) -> Vec<OwnedFd> {
    let mut held = vec![OwnedFd::from(fs::File::open("/dev/null").expect("a descriptor is free"))];
    while let Ok(another) = held[0].try_clone() {
        held.push(another);
    }
    held.truncate(held.len() - free);
    held
}

/// The phase of connecting in which descriptors are short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The connector opens its socket and creates its ring.
    Connecting,
    /// The acceptor accepts the connection, receives the connector's ring, and creates its own ring.
    Accepting,
    /// The connector receives the acceptor's ring.
    Answered,
}

fn count_open_fds() -> usize {
    fs::read_dir("/proc/self/fd").expect("this is Linux").count()
}

/// Connects while only `free` descriptors are left in `phase`. Returns the link, and its error if it failed.
fn connect_with_few_descriptors(
    endpoints: &mut Endpoints,
    phase: Phase,
    free: usize,
) -> (LinkId, Option<LinkError>) {
    let shortage = |at| (phase == at).then(|| leave_free_fds(free));
    let [a, b] = endpoints;
    let (downs, ups) = (count_link_down_events(a), a.recorder.live_link_count());

    let short = shortage(Phase::Connecting);
    let link = a.connect(b.address());
    a.transmit();
    drop(short);

    let short = shortage(Phase::Accepting);
    for _ in 0..100 {
        b.receive(BUDGET_FRAMES);
    }
    drop(short);

    let short = shortage(Phase::Answered);
    for _ in 0..100 {
        a.receive(BUDGET_FRAMES);
    }
    drop(short);

    drive_until(endpoints, "a link that is up or down", |[a, _]| {
        count_link_down_events(a) > downs || a.recorder.live_link_count() > ups
    });
    (link, endpoints[0].recorder.down_error(link).cloned())
}

fn count_link_down_events(endpoint: &TestEndpoint<ShmTransport>) -> usize {
    endpoint.recorder.log().iter().filter(|(_, event)| matches!(event, Event::Down(_))).count()
}

/// Sends frames on a link that is up, and closes it.
fn send_frames_and_close(endpoints: &mut Endpoints, link: LinkId) {
    let before = endpoints[1].recorder.log().len();
    for size in [10, 100_000] {
        endpoints[0].post(link, pseudo_random_payload(size, 1));
    }
    drive_until(endpoints, "frames", |[a, _]| a.has_sent_all());
    endpoints[0].close(link, Close::Drain);
    drive_until(endpoints, "the end of the link", |[_, b]| b.recorder.live_link_count() == 0);
    let news = &endpoints[1].recorder.log()[before..];
    assert_eq!(news.iter().filter(|(_, event)| matches!(event, Event::Frame(..))).count(), 2);
}

/// The kernel lets a user (other than root) have only as many descriptors in flight as one process may have
/// open. The descriptors of unread greetings are in flight. Further links wait until the peer reads
/// greetings.
fn unread_rings_delay_further_links(provider: &ShmProvider) {
    let mut endpoints = [TestEndpoint::open(provider, 11), TestEndpoint::open(provider, 22)];
    let to = endpoints[1].address();
    for _ in 0..LIMIT_FDS {
        let link = endpoints[0].connect(to);
        endpoints[0].post(link, pseudo_random_payload(10, 1));
        endpoints[0].transmit();
        endpoints[0].receive(BUDGET_FRAMES);
        if endpoints[0].queued_frame_count(link) == 0 {
            endpoints[0].close(link, Close::Drain);
        }
        assert_eq!(count_link_down_events(&endpoints[0]), 0);
    }
    // Both sides are in this process, which needs descriptors for all links at once.
    limit_fds(8 * LIMIT_FDS);
    drive_until(&mut endpoints, "all that was sent", |[_, b]| {
        let is_frame = |(_, event): &&(LinkId, Event)| matches!(event, Event::Frame(..));
        b.recorder.log().iter().filter(is_frame).count() as u64 == LIMIT_FDS
    });
    assert_eq!(count_link_down_events(&endpoints[0]), 0);
    limit_fds(LIMIT_FDS);
}

/// A connection that has waited too long is refused, even if no descriptor is left. The next one is taken.
fn lasting_shortage_refuses_connections(provider: &ShmProvider, free: usize) {
    let mut endpoints = [TestEndpoint::open(provider, 11), TestEndpoint::open(provider, 22)];
    let to = endpoints[1].address();
    let link = endpoints[0].connect(to);
    endpoints[0].post(link, pseudo_random_payload(10, 1));
    endpoints[0].transmit();
    let short = leave_free_fds(free);
    drive_until(&mut endpoints, "the refusal", |[a, _]| a.recorder.down_error(link).is_some());
    // Both sides are in this process. Without a descriptor the connector does not read the refusal.
    let refused =
        if free == 0 { LinkError::System(Errno::EMFILE) } else { LinkError::Denied(Denial::NoDescriptors) };
    assert_eq!(endpoints[0].recorder.down_error(link), Some(&refused));
    assert_eq!(LinkError::Denied(Denial::NoDescriptors).errno(), Errno::ECONNREFUSED);
    drop(short);
    let link = endpoints[0].connect(to);
    drive_until(&mut endpoints, "a link", |[_, b]| b.recorder.live_link_count() == 1);
    send_frames_and_close(&mut endpoints, link);
}

#[test]
fn descriptor_exhaustion_fails_one_link_only() {
    limit_fds(LIMIT_FDS);
    let provider = ShmProvider::new();

    for free in 0..PLENTY_FDS {
        let before = count_open_fds();
        let short = leave_free_fds(free);
        let opened = provider.open(AddressFormat::SockaddrIn.wildcard(), 7);
        drop(short);
        match (free, &opened) {
            (0..4, Err(errno)) => assert_eq!(*errno, Errno::EMFILE),
            (4.., Ok(_)) => {}
            _ => panic!("with {free} descriptors: {opened:?}"),
        }
        drop(opened);
        assert_eq!(count_open_fds(), before);
    }

    unread_rings_delay_further_links(&provider);
    [0, 3].into_iter().for_each(|free| lasting_shortage_refuses_connections(&provider, free));

    // A connector that lacks descriptors fails at once, before it has taken a frame. Once it is connected,
    // the link waits for descriptors.
    for (phase, failing) in [(Phase::Connecting, 0..9), (Phase::Accepting, 0..0), (Phase::Answered, 0..0)] {
        let mut endpoints = [TestEndpoint::open(&provider, 11), TestEndpoint::open(&provider, 22)];
        let before = count_open_fds();
        for free in 0..=PLENTY_FDS {
            let (link, failure) = connect_with_few_descriptors(&mut endpoints, phase, free);
            let expected = failing.contains(&free).then_some(LinkError::System(Errno::EMFILE));
            assert_eq!(failure, expected, "{phase:?} with {free} descriptors");
            if failure.is_none() {
                send_frames_and_close(&mut endpoints, link);
            }
            let (link, failure) = connect_with_few_descriptors(&mut endpoints, phase, PLENTY_FDS);
            assert_eq!(failure, None, "{phase:?}, after a link with {free} descriptors");
            send_frames_and_close(&mut endpoints, link);
            drive_until(&mut endpoints, "all descriptors to be closed", |_| count_open_fds() == before);
        }
    }
}
