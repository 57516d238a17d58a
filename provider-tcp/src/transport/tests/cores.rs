//! Which peers are found on the core of a waiting thread.

use homespun_engine::transport::Transport;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::TcpProvider;
use crate::testing::{Pair, Sending, drive_until, make_message, make_payload};

fn move_to(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(None, &cores).expect("the core is allowed");
}

/// Two cores that this thread may use, or twice the same if there is only one.
fn two_cores() -> [usize; 2] {
    let allowed = sched_getaffinity(None).expect("the allowed cores");
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    let first = cores.next().expect("a core");
    [first, cores.next().unwrap_or(first)]
}

#[test]
fn peer_is_found_on_the_core_from_which_it_has_sent() {
    const LEN_BYTES: usize = 64;
    /// The kernel acknowledges so many bytes at once.
    const ANSWER_BYTES: usize = 200_000;
    let [there, here] = two_cores();
    let mut pair = Pair::open_connected(&TcpProvider::new(), "127.0.0.1:0");
    let (out, into) = (pair.out, pair.into);
    let found = |pair: &mut Pair, core: usize| {
        pair.server.transport.publish_core_and_find_peer(u32::try_from(core).expect("a small number"))
    };
    for seed in 1..=3 {
        let sending = |len_bytes| Sending::new(make_message(len_bytes, seed), make_payload(len_bytes, seed));
        assert_eq!(found(&mut pair, there), seed > 1, "the peer has sent nothing before");
        move_to(there);
        let answers = seed as usize - 1;
        drive_until("the last answer", &mut [&mut pair.client], |sides| {
            sides[0].received_frames(out).len() == answers
        });
        assert!(sending(LEN_BYTES).advance(&mut pair.client.transport, out), "the kernel has room");
        pair.client.transport.flush();
        move_to(here);
        drive_until("the frame", &mut [&mut pair.server], |sides| {
            sides[0].received_frames(into).len() as u64 == seed
        });
        // Its acknowledgement arrives on this core.
        assert!(sending(ANSWER_BYTES).advance(&mut pair.server.transport, into), "the kernel has room");
        pair.server.transport.flush();
        assert!(found(&mut pair, there));
        assert_eq!(found(&mut pair, here), here == there);
    }
}
