//! A process overwrites the memory that two endpoints share, while they use it.

#[allow(dead_code, reason = "each test uses a part of it")]
mod raw;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fastrand::Rng;
use homespun_conformance::transport::{
    BUDGET_FRAMES, Backend, Event, SIZES, TestEndpoint, drive_until, pseudo_random_payload,
};
use homespun_engine::transport::{Armed, Close, LinkId, Transport};
use homespun_shm::{ShmProvider, ShmTransport};
use rustix::io::{pread, pwrite};

use crate::raw::{RawMessage, RawSocket, SEGMENT_BYTES, listen_at, try_accept, vacant_address};

type Endpoints = [TestEndpoint<ShmTransport>; 2];

/// How many links the test spoils.
const LINKS: u64 = 30;

/// After this many passes the test closes a link that has not ended.
const PASSES: usize = 200;

/// The offsets in a segment at which the counters and the lines end.
const COUNTERS_END: u64 = 192;
const LINES_END: u64 = COUNTERS_END + 512 * 64;

/// Stops the scribbling thread, even if the test panics.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Stands between two endpoints: forwards their greetings over these sockets, and keeps their rings.
struct Interceptor {
    sockets: [RawSocket; 2],
    rings: Vec<OwnedFd>,
}

impl Interceptor {
    /// Forwards a greeting from one side to the other.
    fn forward_greeting(&mut self, from: usize) {
        let [from, to] = [&self.sockets[from], &self.sockets[1 - from]];
        if let Some(RawMessage { bytes, descriptors }) = from.try_receive()
            && !bytes.is_empty()
        {
            let handed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            to.send(&bytes, &handed);
            self.rings.extend(descriptors.into_iter().next());
        }
    }
}

/// Connects two endpoints through an interceptor. Returns the link's number at the connector, its number at
/// the acceptor, and the interceptor.
fn connect_intercepted(endpoints: &mut Endpoints) -> (LinkId, LinkId, Interceptor) {
    let address = vacant_address();
    let listener = listen_at(address, 8);
    let seen = [0, 1].map(|at: usize| endpoints[at].recorder.log().len());
    let link = endpoints[0].connect(address);
    let mut interceptor = None;
    drive_until(endpoints, "an intercepted link", |[a, b]| {
        match &mut interceptor {
            None => {
                interceptor = try_accept(&listener).map(|left| {
                    let right = RawSocket::connect(b.address());
                    Interceptor { sockets: [left, right], rings: Vec::new() }
                });
            }
            Some(interceptor) => [0, 1].into_iter().for_each(|from| interceptor.forward_greeting(from)),
        }
        a.recorder.log().len() > seen[0] && b.recorder.log().len() > seen[1]
    });
    let (peer, event) = &endpoints[1].recorder.log()[seen[1]];
    assert!(matches!(event, Event::Up(..)), "{event:?}");
    (link, *peer, interceptor.expect("the link is up"))
}

/// Overwrites a word of a ring, or up to 200 bytes.
fn scribble_on_ring(rng: &mut Rng, ring: &OwnedFd) {
    let place = match rng.u8(..8) {
        0..2 => rng.u64(..COUNTERS_END),
        2..7 => rng.u64(COUNTERS_END..LINES_END),
        _ => rng.u64(LINES_END..SEGMENT_BYTES),
    };
    let word = place / 8 * 8;
    let mut bytes = [0; 8];
    pread(ring, &mut bytes, word).expect("it is memory");
    match rng.u8(..6) {
        // The first four changes are plausible: one bit is flipped, the value is a little more or less, or
        // the word comes from another line.
        0 => bytes[(place % 8) as usize] ^= 1 << rng.u8(..8),
        1 => bytes = u64::from_le_bytes(bytes).wrapping_add(rng.u64(..3)).to_le_bytes(),
        2 => bytes = u64::from_le_bytes(bytes).wrapping_sub(1).to_le_bytes(),
        3 => drop(pread(ring, &mut bytes, rng.u64(COUNTERS_END..LINES_END) / 8 * 8)),
        4 => bytes = [rng.u8(..); 8],
        _ => {
            let junk: Vec<u8> = (0..rng.usize(..200)).map(|_| rng.u8(..)).collect();
            let room = (SEGMENT_BYTES - place) as usize;
            pwrite(ring, &junk[..junk.len().min(room)], place).expect("it is memory");
            return;
        }
    }
    pwrite(ring, &bytes, word).expect("it is memory");
}

/// Lets both sides send frames until either side reports the link as down, for at most [`PASSES`] passes.
fn exchange_frames_until_down(rng: &mut Rng, endpoints: &mut Endpoints, links: [LinkId; 2]) {
    let seen = [0, 1].map(|at: usize| endpoints[at].recorder.log().len());
    let is_down = |endpoint: &TestEndpoint<ShmTransport>, seen: usize| {
        endpoint.recorder.log()[seen..].iter().any(|(_, event)| matches!(event, Event::Down(_)))
    };
    for _ in 0..PASSES {
        for at in [0, 1] {
            if is_down(&endpoints[at], seen[at]) {
                return;
            }
            let endpoint = &mut endpoints[at];
            if endpoint.queued_frame_count(links[at]) < 4 {
                let size_bytes = *rng.choice(&SIZES).expect("there are some");
                endpoint.post(links[at], pseudo_random_payload(size_bytes, 1));
            }
            endpoint.transmit();
            // Receive frame by frame, with many changes in between; or receive all frames at once.
            let (times, budget_frames) = if rng.bool() { (BUDGET_FRAMES, 1) } else { (1, BUDGET_FRAMES) };
            for _ in 0..times {
                endpoint.receive(budget_frames);
            }
            if rng.u8(..4) == 0 {
                // Arming checks the ring as well.
                let (Armed::Ready | Armed::Asleep { .. }) = endpoint.transport.arm();
            }
        }
    }
}

#[test]
fn scribbled_ring_ends_its_own_link_only() {
    let rng = &mut Rng::with_seed(7);
    let provider = ShmProvider::new();
    let (mut endpoints, sound, sound_peer) = Backend::new(&provider).open_linked_pair();

    for round in 0..LINKS {
        let (link, peer, interceptor) = connect_intercepted(&mut endpoints);
        let seen = [0, 1].map(|at: usize| endpoints[at].recorder.log().len());
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let (rings, is_over) = (&interceptor.rings, &is_over);
            let mut scribbler = rng.fork();
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // Overwrite the first ring in one round, the second ring in the next, and a random ring
                    // in the third.
                    let at = [0, 1, scribbler.usize(..2)][(round % 3) as usize];
                    scribble_on_ring(&mut scribbler, &rings[at]);
                    if round % 4 < 2 {
                        thread::yield_now();
                    }
                }
            });
            let _ending = StopOnDrop(is_over);
            exchange_frames_until_down(rng, &mut endpoints, [link, peer]);
        });
        drop(interceptor);
        for (at, link) in [link, peer].into_iter().enumerate() {
            let news = &endpoints[at].recorder.log()[seen[at]..];
            if !news.iter().any(|(_, event)| matches!(event, Event::Down(_))) {
                endpoints[at].close(link, Close::Drain);
            }
        }
        let before = endpoints[1].recorder.frame_count(sound_peer);
        endpoints[0].post(sound, pseudo_random_payload(5000, 1));
        drive_until(&mut endpoints, "a frame of the other link", |[_, b]| {
            b.recorder.frame_count(sound_peer) > before
        });
    }
}
