//! Reads, writes and atomic writes of a peer's memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::prelude::*;

const LENS_BYTES: [usize; 6] = [1, 8, 5000, 100_000, 300_000, (1 << 20) + 1];

/// Shows rpma_cq_get_completion/always-completes-on-success, rpma_cq_get_completion/context-of-read,
/// rpma_cq_get_completion/byte-len-of-access, rpma_cq_get_completion/op-read.
pub(crate) fn read_copies_the_memory_of_the_peer(net: &Net) {
    let Pair { client, server: _server, client_peer, server_peer } = Pair::connect(net);
    for (context, len_bytes) in (1..).zip(LENS_BYTES) {
        let content = payload(context, len_bytes + 3);
        let there = Memory::with(&server_peer, &content, Usage::READ_SRC);
        let here = Memory::zeroed(&client_peer, len_bytes + 2, Usage::READ_DST);
        client.read(here.slice(1, len_bytes), there.remote().at(3), Report::Always, context).unwrap();
        let read = expect_success(client.completion_queue(), Operation::Read, context);
        assert_eq!((read.byte_len as usize, read.flags), (len_bytes, CompletionFlags::empty()));
        assert!(here.read(1, len_bytes) == content[3..]);
        assert_eq!((here.read(0, 1), here.read(len_bytes + 1, 1)), (vec![0], vec![0]));
    }
}

/// Shows rpma_cq_get_completion/always-completes-on-success, rpma_cq_get_completion/context-of-write,
/// rpma_cq_get_completion/byte-len-of-access, rpma_cq_get_completion/op-write.
pub(crate) fn write_changes_the_memory_of_the_peer(net: &Net) {
    let Pair { client, server, client_peer, server_peer } = Pair::connect(net);
    for (context, len_bytes) in (1..).zip(LENS_BYTES) {
        let content = payload(context, len_bytes);
        let here = Memory::with(&client_peer, &content, Usage::WRITE_SRC);
        let there = Memory::zeroed(&server_peer, len_bytes + 4, Usage::WRITE_DST);
        client.write(there.remote().at(2), here.all(), Report::Always, context).unwrap();
        let write = expect_success(client.completion_queue(), Operation::Write, context);
        assert_eq!((write.byte_len as usize, write.flags), (len_bytes, CompletionFlags::empty()));
        assert!(there.read(2, len_bytes) == content);
        assert_eq!((there.read(0, 2), there.read(len_bytes + 2, 2)), (vec![0; 2], vec![0; 2]));
    }
    // The target learns nothing.
    expect_no_completion(server.completion_queue());
}

/// Shows rpma_cq_get_completion/context-of-write, rpma_cq_get_completion/byte-len-of-taken-receive,
/// rpma_cq_get_completion/flags-of-verbs, rpma_cq_get_completion/imm-in-host-order,
/// rpma_cq_get_completion/op-write, rpma_cq_get_completion/op-recv-with-imm.
pub(crate) fn write_with_immediate_data_takes_a_receive(net: &Net) {
    let Pair { client, server, client_peer, server_peer } = Pair::connect(net);
    let marker = Memory::with(&server_peer, &[7; 4], Usage::RECV);
    for (context, len_bytes) in (1..).zip(LENS_BYTES) {
        let content = payload(context, len_bytes);
        let here = Memory::with(&client_peer, &content, Usage::WRITE_SRC);
        let there = Memory::zeroed(&server_peer, len_bytes, Usage::WRITE_DST);
        server.recv(marker.all(), 100 + context).unwrap();
        let imm = 0x8000_0000 + context as u32;
        client.write_with_imm(there.remote().at(0), here.all(), Report::Always, imm, context).unwrap();
        let received = expect_success(server.completion_queue(), Operation::RecvRdmaWithImm, 100 + context);
        assert_eq!((received.flags, received.imm), (CompletionFlags::WITH_IMM, imm));
        assert_eq!(received.byte_len as usize, len_bytes);
        // The bytes are there, and the memory of the receive is as it was.
        assert!(there.read(0, len_bytes) == content);
        assert_eq!(marker.read(0, 4), [7; 4]);
        let write = expect_success(client.completion_queue(), Operation::Write, context);
        assert_eq!((write.byte_len as usize, write.flags), (len_bytes, CompletionFlags::empty()));
    }
}

/// A thread of the target sees the atomic writes, and what was written before each.
/// Shows rpma_cq_get_completion/always-completes-on-success, rpma_cq_get_completion/context-of-write,
/// rpma_cq_get_completion/byte-len-of-access, rpma_cq_get_completion/op-write.
pub(crate) fn atomic_write_follows_earlier_writes(net: &Net) {
    const ROUNDS: u64 = 50;
    const LEN_BYTES: usize = 100_000;
    let Pair { client, server: _server, client_peer, server_peer } = Pair::connect_deep(net);
    let here = Memory::zeroed(&client_peer, LEN_BYTES, Usage::WRITE_SRC);
    let there = Memory::zeroed(&server_peer, 8 + LEN_BYTES, Usage::WRITE_DST);
    // SAFETY: the memory stays, is aligned to 8 bytes, and is accessed atomically by both sides.
    let flag = unsafe { AtomicU64::from_ptr(there.region().as_ptr().cast()) };
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut last = 0;
            while !is_done.load(Ordering::Relaxed) || last < ROUNDS {
                let seen = u64::from_le(flag.load(Ordering::Acquire));
                assert!(seen >= last && seen <= ROUNDS, "{seen} after {last}");
                last = seen;
                if seen > 0 {
                    // The first and the last byte of the round that was seen, or of a later one.
                    for place in [8, 8 + LEN_BYTES - 1] {
                        assert!(u64::from(there.read(place, 1)[0]) >= seen, "a write is missing");
                    }
                }
                thread::yield_now();
            }
        });
        for round in 1..=ROUNDS {
            here.write(0, &vec![round as u8; LEN_BYTES]);
            client.write(there.remote().at(8), here.all(), Report::OnError, round).unwrap();
            let number = round.to_le_bytes();
            client.atomic_write(there.remote().at(0), number, Report::Always, round).unwrap();
            let written = expect_success(client.completion_queue(), Operation::Write, round);
            assert_eq!((written.byte_len, written.flags), (8, CompletionFlags::empty()));
        }
        is_done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    let place = there.remote().at(4);
    let refused = client.atomic_write(place, [0; 8], Report::Always, 1);
    assert_eq!(refused, Err(Error::Invalid(Invalid::Misaligned)));
    let refused = client.atomic_write(RemotePlace::NONE, [0; 8], Report::Always, 1);
    assert_eq!(refused, Err(Error::Invalid(Invalid::MissingMemory)));
}

pub(crate) fn operations_need_regions_with_their_usage(net: &Net) {
    let Pair { client, client_peer, server_peer, server: _server } = Pair::connect(net);
    let [reads, writes, sends, receives] = [Usage::READ_DST, Usage::WRITE_SRC, Usage::SEND, Usage::RECV]
        .map(|usage| Memory::zeroed(&client_peer, 8, usage));
    let there = Memory::zeroed(&server_peer, 8, Usage::WRITE_DST | Usage::READ_SRC).remote().at(0);
    for (posted, needed) in [
        (client.read(writes.all(), there, Report::Always, 1), Usage::READ_DST),
        (client.write(there, reads.all(), Report::Always, 1), Usage::WRITE_SRC),
        (client.write_with_imm(there, reads.all(), Report::Always, 1, 1), Usage::WRITE_SRC),
        (client.send(receives.all(), Report::Always, 1), Usage::SEND),
        (client.send_with_imm(receives.all(), Report::Always, 1, 1), Usage::SEND),
        (client.recv(sends.all(), 1), Usage::RECV),
    ] {
        assert_eq!(posted, Err(Error::Invalid(Invalid::LocalUsage { needed })));
    }
}
