//! When a doorbell is noticed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use homespun_conformance::transport::{BUDGET_FRAMES, Deadline, TestEndpoint, drive_until};
use homespun_engine::transport::Transport;

use crate::ShmProvider;
use crate::clock::{Clock, ManualTime};
use crate::limits::{CROWDED_PASS_NS, IDLE_POLLS_PER_CLOCK_READ, SLOW_POLLS_PER_KERNEL_POLL};
use crate::transport::ShmTransport;
use crate::transport::pace::Pace;

#[test]
fn doorbell_is_noticed_between_frames_of_another_peer() {
    let provider = ShmProvider::new();
    let mut endpoints = [1, 2, 3].map(|instance| TestEndpoint::open(&provider, instance));
    let address = endpoints[0].address();
    let [chatty_link, quiet_link] = [1, 2].map(|at| endpoints[at].connect(address));
    drive_until(&mut endpoints, "the links", |endpoints| endpoints[0].recorder.live_link_count() == 2);
    let links_of = |reader: &TestEndpoint<ShmTransport>, instance: u64| {
        let up = reader.recorder.up_events();
        up.into_iter().find(|(_, _, of)| *of == instance).map(|(link, ..)| link).expect("a link")
    };
    let [from_chatty, from_quiet] = [2, 3].map(|instance| links_of(&endpoints[0], instance));

    // Only the ring of the chatty peer is hot.
    let deadline = Deadline::new();
    while !endpoints[0].transport.hot.is_empty() {
        endpoints[0].receive(BUDGET_FRAMES);
        endpoints[0].transport.arm();
        deadline.yield_or_panic("the rings to become cold");
    }
    endpoints[1].post(chatty_link, vec![1]);
    drive_until(&mut endpoints, "a frame", |endpoints| endpoints[0].recorder.frame_count(from_chatty) == 1);
    assert_eq!(endpoints[0].transport.hot, [from_chatty]);

    let time = Arc::new(ManualTime::default());
    endpoints[0].transport.pace = Pace::new(Clock::Manual(time.clone()));
    endpoints[2].post(quiet_link, vec![2]);
    endpoints[2].transmit();
    endpoints[2].transport.flush();
    let [reader, chatty, _] = &mut endpoints;
    for _ in 0..2 * IDLE_POLLS_PER_CLOCK_READ + SLOW_POLLS_PER_KERNEL_POLL {
        chatty.post(chatty_link, vec![1]);
        chatty.transmit();
        assert_eq!(reader.receive(BUDGET_FRAMES), 1);
        time.now_ns.fetch_add(CROWDED_PASS_NS, Ordering::Relaxed);
        time.forced_switches.fetch_add(1, Ordering::Relaxed);
        reader.receive(BUDGET_FRAMES);
        if reader.recorder.frame_count(from_quiet) == 1 {
            return;
        }
    }
    panic!("the doorbell was not noticed");
}
