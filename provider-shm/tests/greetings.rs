//! Peers of the same user that are no endpoints, or bad ones: whatever they say first, their own link ends and nothing else.
//!
//! The descriptors of the process are counted, so this is the only test of its binary.

#[allow(dead_code, reason = "each test uses a part of it")]
mod raw;

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use homespun_conformance::transport::{BUDGET_FRAMES, Deadline, Event, Party, drive, payload};
use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::transport::{Close, LinkError, LinkId};
use homespun_shm::limits::HALF_OPEN_MAX_LINKS;
use homespun_shm::{ShmProvider, ShmTransport};
use rustix::event::epoll;
use rustix::fs::SealFlags;

use crate::raw::{Raw, SEGMENT_BYTES, doorbell, greeting, listen_at, memory, ring, vacant};

type Parties = [Party<ShmTransport>; 2];

fn open_fds() -> usize {
    fs::read_dir("/proc/self/fd").expect("this is Linux").count()
}

/// What somebody says first who is no endpoint, or a bad one.
struct Said {
    what: &'static str,
    bytes: Vec<u8>,
    descriptors: Vec<OwnedFd>,
}

impl Said {
    fn by(&self, raw: &Raw) {
        let descriptors: Vec<BorrowedFd<'_>> = self.descriptors.iter().map(AsFd::as_fd).collect();
        raw.say(&self.bytes, &descriptors);
    }
}

/// Greetings that no endpoint takes for one.
fn bad_greetings(from: Address) -> Vec<Said> {
    let good = greeting(from, 5);
    let changed = |place: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[place] = byte;
        bytes
    };
    let mut all = Vec::new();
    let mut add = |what, bytes: &[u8], descriptors| {
        all.push(Said { what, bytes: bytes.to_vec(), descriptors });
    };
    let pair = || vec![ring(), doorbell()];

    add("nothing, and yet a message", &[], pair());
    add("one byte", &good[..1], pair());
    add("a byte less", &good[..good.len() - 1], pair());
    add("a byte more", &[good.as_slice(), &[0]].concat(), pair());
    add("far too much", &[7; 10_000], pair());
    add("zeros", &vec![0; good.len()], pair());
    add("another protocol", &changed(0, b'H'), pair());
    add("another version", &changed(8, 77), pair());
    add("an address of no form", &changed(10, 5), pair());
    add("a reserved byte", &changed(11, 1), pair());

    let other_format: SocketAddr = ([0, 0, 0, 0, 0, 0, 0, 1], from.port()).into();
    add("an address of another format", &greeting(other_format.into(), 5), pair());

    add("no descriptors", &good, vec![]);
    add("one descriptor", &good, vec![ring()]);
    add("three descriptors", &good, vec![ring(), doorbell(), doorbell()]);
    add("many descriptors", &good, (0..16).map(|_| ring()).collect());
    add("the wrong way round", &good, vec![doorbell(), ring()]);

    let file = |path| OwnedFd::from(File::open(path).expect("it is everywhere"));
    let (both, none) = (SealFlags::SHRINK | SealFlags::GROW, SealFlags::empty());
    let pipe = || OwnedFd::from(std::io::pipe().expect("descriptors").0);
    let read_only = {
        let memory = ring();
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        OwnedFd::from(File::open(path).expect("its own"))
    };
    for (what, no_ring) in [
        ("a directory for a ring", file("/")),
        ("a device for a ring", file("/dev/zero")),
        ("a file for a ring", file("/proc/self/exe")),
        ("a pipe for a ring", pipe()),
        ("memory that can be truncated", memory(SEGMENT_BYTES, none)),
        ("memory that can shrink", memory(SEGMENT_BYTES, SealFlags::GROW)),
        ("memory that is too short", memory(SEGMENT_BYTES - 1, both)),
        ("memory that is too long", memory(SEGMENT_BYTES + 4096, both)),
        ("no memory", memory(0, both)),
        ("memory that nobody may write to", memory(SEGMENT_BYTES, both | SealFlags::WRITE)),
        ("memory that this side may not write to", read_only),
    ] {
        add(what, &good, vec![no_ring, doorbell()]);
    }
    for (what, no_doorbell) in [
        ("a directory for a doorbell", file("/")),
        ("a file for a doorbell", file("/proc/self/exe")),
        ("memory for a doorbell", ring()),
    ] {
        add(what, &good, vec![ring(), no_doorbell]);
    }
    all
}

/// Doorbells that are none, but do no harm: nothing is ever read from them.
fn odd_doorbells() -> Vec<OwnedFd> {
    let (reader, writer) = std::io::pipe().expect("descriptors");
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor");
    epoll::add(&epoll, &reader, epoll::EventData::new_u64(0), epoll::EventFlags::IN).expect("it is a pipe");
    vec![reader.into(), writer.into(), epoll]
}

/// Lets everybody go on until something is the case.
#[track_caller]
fn until(parties: &mut Parties, what: &str, mut done: impl FnMut(&Parties) -> bool) {
    drive(parties, what, |parties| done(parties));
}

/// The parties have a link, and what they send on it arrives.
fn assert_well(parties: &mut Parties, link: LinkId, after: &str) {
    let peer = parties[1].recorder.ups()[0].0;
    let before = parties[1].recorder.frame_count(peer);
    parties[0].post(link, payload(100, 1));
    until(parties, after, |[_, b]| b.recorder.frame_count(peer) > before);
}

#[test]
fn whatever_a_stranger_says_ends_its_own_link_only() {
    let provider = ShmProvider::new();
    let mut parties = [Party::open(&provider, 11), Party::open(&provider, 22)];
    let link = parties[0].connect(parties[1].address());
    until(&mut parties, "a link", |[_, b]| b.recorder.up_count() == 1);
    assert_well(&mut parties, link, "the first link");
    let here = vacant();
    let before = open_fds();

    // Those who connect are not mentioned.
    let all = bad_greetings(here);
    let mut expected = open_fds();
    for said in all {
        let raw = Raw::connect(parties[1].address());
        said.by(&raw);
        expected -= said.descriptors.len();
        drop(said.descriptors);
        until(&mut parties, said.what, |_| raw.is_over());
        drop(raw);
        assert_eq!(parties[1].recorder.up_count(), 1, "{}", said.what);
        assert_well(&mut parties, link, said.what);
        assert_eq!(open_fds(), expected, "{}", said.what);
    }
    assert_eq!(open_fds(), before);

    // Those who are connected to are reported to be down.
    let listener = listen_at(here, 8);
    for said in bad_greetings(here) {
        let heard = parties[0].recorder.log().len();
        let refused = parties[0].connect(here);
        let mut raw = None;
        until(&mut parties, said.what, |[a, _]| {
            if raw.is_none() {
                raw = raw::accept(&listener);
                raw.iter().for_each(|raw| said.by(raw));
            }
            a.recorder.log().len() > heard
        });
        drop((raw, said.descriptors));
        let why = parties[0].recorder.down(refused);
        // An empty message cannot be told from the end of the connection.
        let is_named = match why {
            Some(LinkError::System(Errno::ECONNRESET)) => said.bytes.is_empty(),
            why => matches!(why, Some(LinkError::Protocol(_))),
        };
        assert!(is_named, "{}: {why:?}", said.what);
        assert_well(&mut parties, link, said.what);
    }
    drop(listener);
    assert_eq!(open_fds(), before);

    odd_doorbells_are_borne(&mut parties, link);
    assert_eq!(open_fds(), before);
    those_who_say_more_are_ended(&mut parties, link);
    assert_eq!(open_fds(), before);
    those_who_say_nothing_are_borne(&mut parties, link);
    assert_eq!(open_fds(), before);
}

fn odd_doorbells_are_borne(parties: &mut Parties, link: LinkId) {
    for odd in odd_doorbells() {
        let raw = Raw::connect(parties[1].address());
        raw.say(&greeting(vacant(), 5), &[ring().as_fd(), odd.as_fd()]);
        until(parties, "a link with an odd doorbell", |[_, b]| b.recorder.up_count() == 2);
        assert_well(parties, link, "an odd doorbell");
        drop(raw);
        until(parties, "the end of it", |[_, b]| b.recorder.up_count() == 1);
    }
}

fn those_who_say_more_are_ended(parties: &mut Parties, link: LinkId) {
    let raw = Raw::connect(parties[1].address());
    let greeting = greeting(vacant(), 5);
    let say = || raw.say(&greeting, &[ring().as_fd(), doorbell().as_fd()]);
    say();
    until(parties, "a link", |[_, b]| b.recorder.up_count() == 2);
    say();
    until(parties, "the end of it", |[_, b]| b.recorder.up_count() == 1);
    let why = parties[1].recorder.log().iter().rev().find_map(|(_, event)| match event {
        Event::Down(why) => Some(why),
        _ => None,
    });
    assert_eq!(why, Some(&LinkError::Protocol("a second hello")));
    assert_well(parties, link, "a second hello");
}

/// Hundreds connect and say nothing. Others connect all the same.
fn those_who_say_nothing_are_borne(parties: &mut Parties, link: LinkId) {
    const SILENT: usize = 300;
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        silent.push(Raw::connect(parties[1].address()));
        // They are taken in now and then, as it happens.
        if silent.len() % 100 == 0 {
            parties[1].receive(BUDGET_FRAMES);
        }
    }
    let another = parties[0].connect(parties[1].address());
    until(parties, "a link beside those that are not", |[_, b]| b.recorder.up_count() == 2);
    assert_well(parties, link, "silence");
    parties[0].close(another, Close::Drain);
    let before = open_fds();
    drop(silent);
    let deadline = Deadline::new();
    // Of those that were accepted, the endpoint bears so many.
    while open_fds() > before - SILENT - SILENT.min(HALF_OPEN_MAX_LINKS) {
        parties[1].receive(BUDGET_FRAMES);
        deadline.pause("the silent ones to be forgotten");
    }
    until(parties, "the end of the other link", |[_, b]| b.recorder.up_count() == 1);
}
