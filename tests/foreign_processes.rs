//! Processes that may not use an endpoint: forked children of the process that opened it. Over shared
//! memory, also the processes of another user.

use std::panic::resume_unwind;
use std::thread;

use homespun::endpoint::SendMsg;
use homespun::flags::OpFlags;
use homespun::{Errno, FabricAddress, OperationError, Tag};

use homespun_suite::TransportKind::{self, Auto4, Shm4, Shm6, Tcp4};
use homespun_suite::payload::{marked_buffer, payload};
use homespun_suite::posix;
use homespun_suite::prerequisites::{Prerequisite, probe_user_change_or_skip};
use homespun_suite::{MemoryKind, Net, Party, Region, RmaBy, RmaCall, Setup, Turns};

homespun_suite::party_process_entry!();

const ANY: FabricAddress = FabricAddress::UNSPECIFIED;

/// The user id of `nobody`, which owns no files.
const ANOTHER_USER: u32 = 65_534;

const TRANSPORTS: [TransportKind; 5] = [Shm4, Shm6, Tcp4, Auto4, TransportKind::MIXED4];

#[track_caller]
fn expect_sends_refused(from: &Party, to: &Party) {
    let to = from.fabric_address_of(to);
    for (context, len_bytes) in [(1, 8), (2, 100_000)] {
        let send = SendMsg { to, ..from.message(context, len_bytes, OpFlags::DELIVERY_COMPLETE) };
        from.endpoint.sendmsg(send).expect("room for a send");
        let failed = from.expect_failure(context, Errno::EACCES);
        assert!(matches!(failed.error, OperationError::Link(_)), "{:?}", failed.error);
        assert_eq!(failed.error.to_string(), "refused: the other process belongs to another user");
    }
}

/// Writes to a region of its peer, and waits for the completion.
#[track_caller]
fn write_and_wait(party: &Party, region: &Region, identity: u64) {
    party.access(RmaCall::new(RmaBy::Write, payload(identity, 8), party.peer(), region, identity));
}

#[test]
fn process_of_another_user_is_refused_by_either_side() {
    if !probe_user_change_or_skip(ANOTHER_USER) {
        return;
    }
    for transport in &[Shm4, Shm6] {
        let net = Net::new(transport, Turns::Processes);
        let (alice, bob) = net.open_pair();
        let stranger = net.open_party_with(Setup { user: Some(ANOTHER_USER), ..Setup::default() });
        for party in [&alice, &bob] {
            party.meet(&stranger);
            party.post_receives([100], 100_000);
        }
        stranger.post_receives([100], 100_000);
        // Try before another peer has connected, and again afterwards.
        expect_sends_refused(&stranger, &alice);
        expect_sends_refused(&alice, &stranger);
        expect_sends_refused(&stranger, &bob);
        expect_sends_refused(&bob, &stranger);
        // No message of the stranger has arrived, and every party still works.
        for party in [&alice, &bob, &stranger] {
            party.assert_no_completion();
            party.endpoint.cancel(100).expect("the receive is posted as it was");
            party.expect_failure(100, Errno::ECANCELED);
        }
        alice.exchange_long_messages(&bob);
    }
}

#[test]
fn process_of_another_user_is_reached_over_tcp_by_either_side() {
    if !probe_user_change_or_skip(ANOTHER_USER) {
        return;
    }
    // The stranger connects to alice, and bob connects to the stranger. Alice and bob share memory.
    let net = Net::new(&Auto4, Turns::Processes);
    let (alice, bob) = net.open_pair();
    let stranger = net.open_party_with(Setup { user: Some(ANOTHER_USER), ..Setup::default() });
    for (from, to) in [(&stranger, &alice), (&bob, &stranger)] {
        from.meet(to);
    }
    let exchange = |from: &Party, to: &Party, identity: u64| {
        let message = payload(identity, 100_000);
        to.post_receives([identity], message.len());
        from.endpoint.send(message.clone(), from.fabric_address_of(to), identity).expect("room for a send");
        to.expect_message(identity, &message);
        assert_eq!(from.next_completion().context, identity);
    };
    for round in 0..3 {
        exchange(&stranger, &alice, 10 * round);
        exchange(&alice, &stranger, 10 * round + 1);
        exchange(&bob, &stranger, 10 * round + 2);
        exchange(&stranger, &bob, 10 * round + 3);
        exchange(&alice, &bob, 10 * round + 4);
    }
}

/// Alice's process has no process id in bob's namespace. So bob cannot use one to copy or map alice's
/// memory, nor to wait until her process exits.
#[test]
fn process_of_another_pid_namespace_is_reached_without_process_copies() {
    for transport in [Shm4, Auto4] {
        // A thread that has made such a namespace cannot start threads. So this thread runs only the test.
        let tested = thread::spawn(move || {
            let net = Net::new(&transport, Turns::Processes);
            let alice = net.open_party();
            if let Err(error) = posix::put_children_into_pid_namespace() {
                return Prerequisite::PID_NAMESPACES.report_skipped(error);
            }
            let bob = net.open_party();
            alice.meet(&bob);
            let regions = [&alice, &bob].map(|party| party.open_region(8, MemoryKind::Shareable, 7));
            for round in 0..3 {
                alice.exchange_long_messages(&bob);
                write_and_wait(&bob, &regions[0], 20 + round);
                write_and_wait(&alice, &regions[1], 30 + round);
                assert!(regions[0].content() == payload(20 + round, 8));
                assert!(regions[1].content() == payload(30 + round, 8));
            }
            // A peer notices the end of a process all the same.
            bob.post_receives([1], 8);
            bob.kill();
            alice.post_send(2, 100_000, OpFlags::DELIVERY_COMPLETE);
            assert_eq!(alice.next_failure().completion.context, 2);
        });
        if let Err(panic) = tested.join() {
            resume_unwind(panic);
        }
    }
}

#[test]
fn exit_of_a_forked_child_leaves_the_parent_working() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let (alice, bob) = net.open_pair();
        alice.fork_idle_child(false);
        alice.exchange_long_messages(&bob);
        alice.fork_idle_child(false);
        bob.fork_idle_child(false);
        alice.exchange_long_messages(&bob);
        alice.assert_no_completion();
        bob.assert_no_completion();
    }
}

#[test]
fn death_of_a_parent_is_noticed_despite_its_forked_child() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let (alice, bob) = net.open_pair();
        alice.exchange_long_messages(&bob);
        bob.fork_idle_child(true);
        alice.exchange_long_messages(&bob);
        // Bob dies before the third send, and never answers it.
        for context in 0..3 {
            bob.post_receives([50 + context], 8);
            if context == 2 {
                bob.kill();
            }
            alice.post_send(context, 100_000, OpFlags::TRANSMIT_COMPLETE);
        }
        let endings: Vec<_> = (0..3).map(|_| alice.next_ended()).collect();
        let failed = endings.last().expect("three sends").as_ref().expect_err("its receiver is dead");
        assert_eq!(failed.completion.context, 2);
        assert_ne!(failed.errno(), Errno::EACCES);
        alice.assert_no_completion();
        // The child is still alive, but is not the peer.
        alice.post_send(9, 100_000, OpFlags::empty());
        alice.expect_failure(9, Errno::ECONNREFUSED);
    }
}

#[test]
fn forked_child_cannot_use_inherited_endpoints() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let (alice, bob) = net.open_pair();
        alice.exchange_long_messages(&bob);
        // Each party has mapped a region of the other.
        let [region, of_bob] = [&alice, &bob].map(|party| party.open_region(8, MemoryKind::Shareable, 7));
        write_and_wait(&bob, &region, 20);
        write_and_wait(&alice, &of_bob, 20);
        // Operations that are outstanding while the child lives belong to the parent.
        bob.endpoint.trecv(marked_buffer(100_000), ANY, Tag(7), 3).expect("room for a receive");
        bob.endpoint.tsend(payload(4, 300_000), bob.peer(), Tag(7), 4).expect("room for a send");
        // The child sends a message over an endpoint of its own.
        let message = payload(5, 5000);
        alice.post_receives([5], message.len());
        bob.fork_child_that_fails_on_inherited_endpoint_and_sends_from_its_own(&alice, &region, &message);
        alice.expect_message(5, &message);
        assert!(region.content() == payload(20, 8));
        let is_mapped = net.maps_peer_memory();
        if is_mapped {
            bob.stop();
        }
        write_and_wait(&alice, &of_bob, 21);
        if is_mapped {
            bob.resume();
        }
        assert!(of_bob.content() == payload(21, 8));

        alice.endpoint.trecv(marked_buffer(300_000), ANY, Tag(7), 6).expect("room for a receive");
        alice.expect_message(6, &payload(4, 300_000));
        assert_eq!(bob.next_completion().context, 4);
        alice.endpoint.tsend(payload(3, 100_000), alice.peer(), Tag(7), 8).expect("room for a send");
        bob.expect_message(3, &payload(3, 100_000));
        assert_eq!(alice.next_completion().context, 8);
        alice.exchange_long_messages(&bob);
        alice.assert_no_completion();
        bob.assert_no_completion();
    }
}
