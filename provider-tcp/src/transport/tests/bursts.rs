//! When the frames of posts leave.

use homespun_engine::transport::Transport;

use crate::TcpProvider;
use crate::testing::{Pair, make_message};

const PAYLOAD: &[u8] = b"payload.";

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

    /// Whether the kernel was asked to hold frames back, and was not asked to push them since.
    fn is_held(&mut self) -> bool {
        self.0.client.transport.holds_back(self.0.out)
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
