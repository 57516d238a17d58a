//! Peers of the same user send bad greetings. A bad greeting ends the link on which it arrives, and no other
//! link.
//!
//! The test counts the descriptors of the process, so it is the only test in its binary.

#[allow(dead_code, reason = "each test uses a part of it")]
mod raw;

use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use homespun_conformance::transport::{
    BUDGET_FRAMES, Backend, Deadline, Event, TestEndpoint, drive_until, pseudo_random_payload,
};
use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::transport::{Close, LinkError, LinkId};
use homespun_shm::limits::HALF_OPEN_MAX_LINKS;
use homespun_shm::{ShmProvider, ShmTransport};
use rustix::event::epoll;
use rustix::fs::SealFlags;

use crate::raw::{
    RawSocket, SEGMENT_BYTES, encode_greeting, listen_at, make_doorbell, make_memfd, make_ring_memfd,
    vacant_address,
};

type Endpoints = [TestEndpoint<ShmTransport>; 2];

fn count_open_fds() -> usize {
    fs::read_dir("/proc/self/fd").expect("this is Linux").count()
}

/// A thread of the endpoint closes unknown descriptors, so the test waits.
#[track_caller]
fn wait_for_open_fds(expected: usize, after: &str) {
    let deadline = Deadline::new();
    while count_open_fds() != expected {
        deadline.yield_or_panic(after);
    }
}

const OTHER_VERSION: &str = "another version";

/// A first message that is not a correct greeting, and the descriptors that come with it.
struct BadGreeting {
    what: &'static str,
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl BadGreeting {
    fn send_on(&self, raw: &RawSocket) {
        let descriptors: Vec<BorrowedFd<'_>> = self.descriptors.iter().map(AsFd::as_fd).collect();
        raw.send(&self.bytes, &descriptors);
    }
}

/// Messages that an endpoint must not accept as a greeting.
fn make_bad_greetings(from: Address) -> Vec<BadGreeting> {
    let good = encode_greeting(from, 5);
    let changed = |place: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[place] = byte;
        bytes
    };
    let mut all = Vec::new();
    let mut add = |what, bytes: &[u8], descriptors| {
        all.push(BadGreeting { what, bytes: bytes.to_vec(), descriptors });
    };
    let pair = || vec![make_ring_memfd(), make_doorbell()];

    add("an empty message", &[], pair());
    add("one byte too short", &good[..good.len() - 1], pair());
    add("one byte too long", &[good.as_slice(), &[0]].concat(), pair());
    add("far too much", &[7; 10_000], pair());
    add(OTHER_VERSION, &changed(8, 77), pair());
    add("no descriptors", &good, vec![]);
    add("one descriptor", &good, vec![make_ring_memfd()]);
    add("three descriptors", &good, vec![make_ring_memfd(), make_doorbell(), make_doorbell()]);
    add("many descriptors", &good, (0..16).map(|_| make_ring_memfd()).collect());
    add("ring and doorbell swapped", &good, vec![make_doorbell(), make_ring_memfd()]);

    let pipe = || OwnedFd::from(std::io::pipe().expect("descriptors").0);
    let unsealed = make_memfd(SEGMENT_BYTES, SealFlags::empty());
    for (what, no_ring) in [("a pipe for a ring", pipe()), ("memory that can be truncated", unsealed)] {
        add(what, &good, vec![no_ring, make_doorbell()]);
    }
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor");
    for (what, no_doorbell) in [("a pipe for a doorbell", pipe()), ("an epoll for a doorbell", epoll)] {
        add(what, &good, vec![make_ring_memfd(), no_doorbell]);
    }
    all
}

/// Asserts that a frame on the link arrives.
fn assert_link_works(endpoints: &mut Endpoints, link: LinkId, after: &str) {
    let peer = endpoints[1].recorder.up_events()[0].0;
    let before = endpoints[1].recorder.frame_count(peer);
    endpoints[0].post(link, pseudo_random_payload(100, 1));
    drive_until(endpoints, after, |[_, b]| b.recorder.frame_count(peer) > before);
}

#[test]
fn bad_greeting_ends_its_own_link_only() {
    let provider = ShmProvider::new();
    let (mut endpoints, link, _) = Backend::new(&provider).open_linked_pair();
    assert_link_works(&mut endpoints, link, "the first link");
    let here = vacant_address();
    let before = count_open_fds();

    // An endpoint that accepts a connection with a bad greeting never reports the link.
    let all = make_bad_greetings(here);
    let mut expected = count_open_fds();
    for bad in all {
        let raw = RawSocket::connect(endpoints[1].address());
        bad.send_on(&raw);
        expected -= bad.descriptors.len();
        drop(bad.descriptors);
        let mut answers = Vec::new();
        drive_until(&mut endpoints, bad.what, |_| match raw.try_receive() {
            Some(message) if message.bytes.is_empty() => true,
            message => {
                answers.extend(message.map(|message| message.bytes));
                false
            }
        });
        drop(raw);
        // A peer of another version learns which version this side speaks.
        let versions: Vec<&[u8]> = answers.iter().map(|bytes| &bytes[..10]).collect();
        let own = &encode_greeting(here, 5)[..10];
        let told = if bad.what == OTHER_VERSION { vec![own] } else { Vec::new() };
        assert_eq!(versions, told, "{}", bad.what);
        assert_eq!(endpoints[1].recorder.live_link_count(), 1, "{}", bad.what);
        assert_link_works(&mut endpoints, link, bad.what);
        wait_for_open_fds(expected, bad.what);
    }
    wait_for_open_fds(before, "all bad greetings");

    // An endpoint that connects to a peer with a bad greeting reports the link as down.
    let listener = listen_at(here, 8);
    for bad in make_bad_greetings(here) {
        let seen = endpoints[0].recorder.log().len();
        let refused = endpoints[0].connect(here);
        let mut raw = None;
        drive_until(&mut endpoints, bad.what, |[a, _]| {
            if raw.is_none() {
                raw = raw::try_accept(&listener);
                raw.iter().for_each(|raw| bad.send_on(raw));
            }
            a.recorder.log().len() > seen
        });
        drop((raw, bad.descriptors));
        let why = endpoints[0].recorder.down_error(refused);
        // The endpoint cannot distinguish an empty message from the end of the connection.
        let is_named = match why {
            Some(LinkError::System(Errno::ECONNRESET)) => bad.bytes.is_empty(),
            Some(LinkError::OtherVersion { theirs: 77 }) => bad.what == OTHER_VERSION,
            why => matches!(why, Some(LinkError::Protocol(_))) && bad.what != OTHER_VERSION,
        };
        assert!(is_named, "{}: {why:?}", bad.what);
        assert_link_works(&mut endpoints, link, bad.what);
    }
    drop(listener);
    wait_for_open_fds(before, "bad answers");

    second_greeting_ends_its_link(&mut endpoints, link);
    assert_eq!(count_open_fds(), before);
    silent_connections_are_tolerated(&mut endpoints, link);
    assert_eq!(count_open_fds(), before);
}

fn second_greeting_ends_its_link(endpoints: &mut Endpoints, link: LinkId) {
    let raw = RawSocket::connect(endpoints[1].address());
    let greeting = encode_greeting(vacant_address(), 5);
    let send_greeting = || raw.send(&greeting, &[make_ring_memfd().as_fd(), make_doorbell().as_fd()]);
    send_greeting();
    drive_until(endpoints, "a link", |[_, b]| b.recorder.live_link_count() == 2);
    send_greeting();
    drive_until(endpoints, "the end of it", |[_, b]| b.recorder.live_link_count() == 1);
    let (_, end) = endpoints[1].recorder.log().last().expect("events of the link");
    assert_eq!(*end, Event::Down(LinkError::Protocol("a second greeting")));
    assert_link_works(endpoints, link, "a second greeting");
}

/// Hundreds of connections without a greeting do not keep another endpoint from connecting.
fn silent_connections_are_tolerated(endpoints: &mut Endpoints, link: LinkId) {
    const SILENT: usize = 300;
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        silent.push(RawSocket::connect(endpoints[1].address()));
        // Let the endpoint accept the waiting connections now and then.
        if silent.len() % 100 == 0 {
            endpoints[1].receive(BUDGET_FRAMES);
        }
    }
    let another = endpoints[0].connect(endpoints[1].address());
    drive_until(endpoints, "a link beside the silent connections", |[_, b]| {
        b.recorder.live_link_count() == 2
    });
    assert_link_works(endpoints, link, "silent connections");
    endpoints[0].close(another, Close::Drain);
    let before = count_open_fds();
    drop(silent);
    let deadline = Deadline::new();
    // The endpoint keeps no more than `HALF_OPEN_MAX_LINKS` of the accepted connections.
    while count_open_fds() > before - SILENT - SILENT.min(HALF_OPEN_MAX_LINKS) {
        endpoints[1].receive(BUDGET_FRAMES);
        deadline.yield_or_panic("the silent connections to be closed");
    }
    drive_until(endpoints, "the end of the other link", |[_, b]| b.recorder.live_link_count() == 1);
}
