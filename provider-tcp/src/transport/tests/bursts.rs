//! When the frames of posts leave.

use std::time::Duration;

use homespun_engine::transport::Transport;
use homespun_engine::wire::frame::{self, HEADER_MAX_BYTES};
use rustix::io::ioctl_fionread;

use crate::TcpProvider;
use crate::clock::Clock;
use crate::limits::BURST_GAP_US;
use crate::testing::{Pair, make_message};

const PAYLOAD: &[u8] = b"payload.";

/// The kernel may send what it holds back at any time. So a test that looks at arrivals tries again.
const TRIES: usize = 50;

/// A pair whose client makes posts while the client's clock stands still.
struct Burst(Pair);

impl Burst {
    fn new() -> Burst {
        let mut pair = Pair::open_connected(&TcpProvider::new(), "127.0.0.1:0");
        pair.client.transport.stop_burst_clock();
        Burst(pair)
    }

    /// Makes a post without `FI_MORE`.
    fn post(&mut self) {
        let client = &mut self.0.client.transport;
        client.send_inline(self.0.out, &make_message(PAYLOAD.len(), 0), PAYLOAD).unwrap();
        client.hand_over();
    }

    fn pass_time(&mut self, time: Duration) {
        let clock = &mut self.0.client.transport.burst_clock;
        *clock = Clock::Stopped(clock.now() + time);
    }

    /// Whether the kernel was asked to hold frames back, and was not asked to push them since.
    fn is_held(&mut self) -> bool {
        self.0.client.transport.holds_back(self.0.out)
    }

    /// Counts the frames that have arrived at the server's socket. Reads none: the kernel would acknowledge
    /// them, and then send what it holds back.
    fn count_arrived(&mut self) -> usize {
        let link = self.0.server.transport.links.link_mut(self.0.into).unwrap();
        let arrived_bytes = ioctl_fionread(&*link.stream).unwrap();
        let header_bytes = frame::emit(&make_message(PAYLOAD.len(), 0), &mut [0; HEADER_MAX_BYTES]);
        usize::try_from(arrived_bytes).unwrap() / (header_bytes + PAYLOAD.len())
    }

    /// The client's half of a pass that finds nothing to read.
    fn receive(&mut self) {
        self.0.client.transport.receive(1, &mut self.0.client.recorder);
    }
}

#[test]
fn lone_post_leaves_at_once() {
    let mut burst = Burst::new();
    for _ in 0..10 {
        burst.post();
        assert!(!burst.is_held());
        burst.receive();
    }
    burst.0.drive_until("the frames", |_, server| {
        server.only_link().is_some_and(|link| server.received_frames(link).len() == 10)
    });
}

#[test]
fn third_post_between_two_passes_is_held_and_the_next_pass_pushes_it() {
    let mut burst = Burst::new();
    for _ in 0..10 {
        let held = [(); 4].map(|()| {
            burst.post();
            burst.is_held()
        });
        assert_eq!(held, [false, false, true, true]);
        burst.receive();
        assert!(!burst.is_held());
    }
}

#[test]
fn flush_and_arming_push_held_posts() {
    let ways_to_push = [
        |burst: &mut Burst| burst.0.client.transport.flush(),
        |burst: &mut Burst| {
            burst.0.client.transport.arm();
        },
    ];
    for push in ways_to_push {
        let mut burst = Burst::new();
        (0..3).for_each(|_| burst.post());
        assert!(burst.is_held());
        push(&mut burst);
        assert!(!burst.is_held());
    }
}

#[test]
fn post_after_a_pause_leaves_at_once() {
    let mut burst = Burst::new();
    (0..3).for_each(|_| burst.post());
    assert!(burst.is_held());
    burst.pass_time(Duration::from_micros(BURST_GAP_US));
    burst.post();
    assert!(!burst.is_held());
}

#[test]
fn kernel_keeps_held_posts_until_it_is_asked_to_push() {
    let is_seen = (0..TRIES).any(|_| {
        let mut burst = Burst::new();
        (0..3).for_each(|_| burst.post());
        let before = burst.count_arrived();
        burst.receive();
        (before, burst.count_arrived()) == (2, 3)
    });
    assert!(is_seen, "the third frame never waited for the pass, or never left in it");
}
