//! Limits and policies of a host. No process dies or hangs of one, and no message is lost without an error.

use homespun::{CompletionError, Errno, FabricAddress};
use homespun_engine::transport::{Denial, LinkError};

use homespun::error::OperationError;
use homespun_suite::payload::{marked_buffer, payload, received_bytes};
use homespun_suite::{HostLimit, Net, Party, TransportKind, Turns};

homespun_suite::party_process_entry!();

const TRANSPORTS: [TransportKind; 3] = [TransportKind::Tcp4, TransportKind::Shm4, TransportKind::Auto4];

/// The transports that share memory.
const NEAR: [TransportKind; 2] = [TransportKind::Shm4, TransportKind::Auto4];

const MESSAGES: u64 = 5;
const LEN_BYTES: usize = 64;

/// Two processes that have not met yet.
fn open_processes(transport: &TransportKind) -> (Party, Party) {
    Net::new(transport, Turns::Processes).open_pair()
}

fn post_receives(party: &Party) {
    for n in 0..MESSAGES {
        let buffer = marked_buffer(LEN_BYTES);
        party.endpoint.recv(buffer, FabricAddress::UNSPECIFIED, n).expect("room for a receive");
    }
}

/// Sends, at the weakest level.
fn post_sends(party: &Party) {
    for n in 0..MESSAGES {
        party.endpoint.send(payload(n, LEN_BYTES), party.peer(), 100 + n).expect("room for a send");
    }
}

#[track_caller]
fn check_all_arrive(from: &Party, to: &Party) {
    for n in 0..MESSAGES {
        let received = to.next_completion();
        assert_eq!(received.context, n);
        assert!(received_bytes(&received.buffer) == payload(n, LEN_BYTES), "message {n}");
    }
    for _ in 0..MESSAGES {
        from.next_completion();
    }
}

#[track_caller]
fn next_link_error(party: &Party) -> LinkError {
    let CompletionError { error, .. } = party.next_failure();
    let OperationError::Link(error) = error else { panic!("{error}") };
    error
}

#[test]
fn first_messages_to_a_process_without_descriptors_arrive_once_it_has_some() {
    for transport in TRANSPORTS {
        for spare in 0..=6 {
            let (sender, receiver) = open_processes(&transport);
            post_receives(&receiver);
            receiver.impose(HostLimit::SpareDescriptors(Some(spare)));
            post_sends(&sender);
            for _ in 0..200 {
                sender.progress_all();
                receiver.progress_all();
            }
            receiver.impose(HostLimit::SpareDescriptors(None));
            check_all_arrive(&sender, &receiver);
        }
    }
}

#[test]
fn messages_to_a_process_that_stays_without_descriptors_fail() {
    for transport in NEAR {
        let (sender, receiver) = open_processes(&transport);
        post_receives(&receiver);
        receiver.impose(HostLimit::SpareDescriptors(Some(3)));
        post_sends(&sender);
        for _ in 0..MESSAGES {
            assert_eq!(next_link_error(&sender), LinkError::Denied(Denial::NoDescriptors));
        }
        receiver.impose(HostLimit::SpareDescriptors(None));
        post_sends(&sender);
        check_all_arrive(&sender, &receiver);
    }
}

/// Limits that forbid a ring, with the error of the system call.
const FORBIDDING: [(HostLimit, i32); 3] = [
    (HostLimit::MemoryFiles { errno: libc::EPERM }, libc::EPERM),
    (HostLimit::MemoryFiles { errno: libc::ENOSYS }, libc::ENOSYS),
    (HostLimit::FileBytes(64 << 10), libc::EFBIG),
];

#[test]
fn process_that_may_not_share_memory_sends_over_tcp_or_fails() {
    for (limit, errno) in FORBIDDING {
        for transport in TRANSPORTS {
            let (sender, receiver) = open_processes(&transport);
            sender.impose(limit);
            post_receives(&receiver);
            post_sends(&sender);
            if transport == TransportKind::Shm4 {
                for _ in 0..MESSAGES {
                    assert_eq!(next_link_error(&sender), LinkError::System(Errno::new(errno)));
                }
            } else {
                check_all_arrive(&sender, &receiver);
            }
        }
    }
}

#[test]
fn process_that_may_not_share_memory_refuses_links_and_has_tcp() {
    for (limit, _) in FORBIDDING {
        for transport in NEAR {
            let (sender, receiver) = open_processes(&transport);
            receiver.impose(limit);
            post_receives(&receiver);
            post_sends(&sender);
            for _ in 0..MESSAGES {
                assert_eq!(next_link_error(&sender), LinkError::Denied(Denial::NoMemoryFiles));
            }
            if transport == TransportKind::Auto4 {
                post_sends(&sender);
                check_all_arrive(&sender, &receiver);
            }
        }
    }
}
