//! Processes on a system that forbids copies between processes. Shared memory works without such copies.

use homespun::Tag;
use homespun::endpoint::SendMsg;
use homespun::flags::{CompletionFlags, OpFlags};

use homespun_suite::payload::{payload, received_bytes};
use homespun_suite::{Ended, Net, Party, TransportKind, Turns};

homespun_suite::party_process_entry!();

/// The error numbers of a forbidden copy: of a container's filter, and of a kernel without the system call.
const REFUSALS: [i32; 2] = [libc::EPERM, libc::ENOSYS];

/// Message lengths on both sides of every limit between protocols. The longest message is copied in several
/// steps.
const LENS_BYTES: [usize; 8] = [0, 100, 5000, 16_384, 70_000, 1 << 20, 300_000, (5 << 20) + 1];

/// Exchanges messages of all lengths in both directions at once. Some receives are posted late, and some are
/// too short.
#[track_caller]
fn exchange_all_lengths(alice: &Party, bob: &Party) {
    let count = LENS_BYTES.len() as u64;
    let len_bytes = |n: u64| LENS_BYTES[n as usize];
    for n in 0..count {
        for party in [alice, bob] {
            if n % 2 == 0 {
                party.post_receive(n, len_bytes(n), Some(Tag(n)), OpFlags::empty());
            }
            let flags = if n % 3 == 0 { OpFlags::DELIVERY_COMPLETE } else { OpFlags::TRANSMIT_COMPLETE };
            let message = party.message(n, len_bytes(n), flags);
            let send = SendMsg { tag: Some(Tag(n)), context: 100 + n, ..message };
            party.endpoint.sendmsg(send).expect("room for a send");
        }
    }
    for n in (1..count).step_by(2) {
        for party in [alice, bob] {
            party.post_receive(n, len_bytes(n) / 2, Some(Tag(n)), OpFlags::empty());
        }
    }
    for party in [alice, bob] {
        for _ in 0..2 * count {
            check_end(&party.next_ended());
        }
        party.assert_no_completion();
    }
}

/// Checks the end of an operation of [`exchange_all_lengths`]. A receive with an odd number has room for
/// half of its message.
#[track_caller]
fn check_end(ended: &Ended) {
    match ended {
        Ok((completion, _)) if completion.flags.contains(CompletionFlags::SEND) => {
            assert!(completion.context >= 100);
        }
        Ok((completion, _)) => {
            let n = completion.context;
            assert!(n % 2 == 0, "message {n} was to be cut");
            assert!(received_bytes(&completion.buffer) == payload(n, LENS_BYTES[n as usize]), "message {n}");
        }
        Err(failed) => {
            let n = failed.completion.context;
            let sent_bytes = LENS_BYTES[n as usize];
            let len_bytes = sent_bytes / 2;
            assert_eq!(failed.overflow_bytes(), (sent_bytes - len_bytes) as u64, "{}", failed.error);
            assert!(received_bytes(&failed.completion.buffer) == payload(n, len_bytes), "message {n}");
        }
    }
}

fn open_process_pair() -> (Party, Party) {
    Net::new(&TransportKind::Shm4, Turns::Processes).open_pair()
}

/// Opens a pair that sends long messages from memory that the peer maps.
fn open_process_pair_with_send_buffers() -> (Party, Party) {
    Net::new(&TransportKind::Shm4, Turns::Processes).sending_from_buffers().open_pair()
}

#[test]
fn messages_from_send_buffers_arrive_when_one_process_cannot_copy() {
    for errno in REFUSALS {
        let (alice, bob) = open_process_pair_with_send_buffers();
        for _ in 0..2 {
            exchange_all_lengths(&alice, &bob);
        }
        bob.fail_process_copies_with(errno);
        for _ in 0..2 {
            exchange_all_lengths(&alice, &bob);
        }
    }
}

#[test]
fn messages_arrive_when_one_or_both_processes_cannot_copy() {
    for (errno, are_both) in REFUSALS.into_iter().flat_map(|errno| [(errno, false), (errno, true)]) {
        let (alice, bob) = open_process_pair();
        if are_both {
            alice.fail_process_copies_with(errno);
        }
        bob.fail_process_copies_with(errno);
        for _ in 0..2 {
            exchange_all_lengths(&alice, &bob);
        }
    }
}

#[test]
fn messages_arrive_when_copies_fail_after_connecting() {
    for errno in REFUSALS {
        let (alice, bob) = open_process_pair();
        exchange_all_lengths(&alice, &bob);
        alice.fail_process_copies_with(errno);
        exchange_all_lengths(&alice, &bob);
        bob.fail_process_copies_with(errno);
        exchange_all_lengths(&alice, &bob);
    }
}
