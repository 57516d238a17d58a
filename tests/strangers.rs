//! Processes that an endpoint over shared memory has nothing to do with: those of another user, and its own process's
//! children.

#[allow(dead_code, unused_imports, reason = "each suite uses a part of it")]
mod suite;

use homespun::endpoint::Send;
use homespun::flags::OpFlags;
use homespun::{Errno, FabricAddress, OperationError};

use crate::suite::payload::{payload, received, room};
use crate::suite::{Net, Party, Setup, Transport, Turns};

const ANY: FabricAddress = FabricAddress::UNSPECIFIED;

/// "nobody", who has nothing.
const ANOTHER_USER: u32 = 65_534;

const TRANSPORTS: [Transport; 2] = [Transport::Shm4, Transport::Shm6];

/// One message each way, too long for any shortcut.
#[track_caller]
fn exchange(alice: &Party, bob: &Party) {
    for (from, to) in [(alice, bob), (bob, alice)] {
        to.endpoint.recv(room(100_000), ANY, 1).expect("room for a receive");
        from.endpoint.send(payload(1, 100_000), from.address_of(to), 2).expect("room for a send");
        assert!(received(&to.completion().buffer) == payload(1, 100_000));
        assert_eq!(from.completion().context, 2);
    }
}

#[track_caller]
fn expect_refusal(from: &Party, to: &Party) {
    let to = from.address_of(to);
    for (context, len_bytes) in [(1, 8), (2, 100_000)] {
        let (buffers, flags) = (vec![payload(context, len_bytes)], OpFlags::DELIVERY_COMPLETE);
        let send = Send { buffers, to, context, flags, ..Send::default() };
        from.endpoint.sendmsg(send).expect("room for a send");
        let failed = from.failure();
        assert_eq!((failed.completion.context, failed.errno()), (context, Errno::EACCES));
        assert!(matches!(failed.error, OperationError::Link(_)), "{:?}", failed.error);
        assert_eq!(failed.error.to_string(), "refused: the other process belongs to another user");
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "a test that was not run says so")]
fn a_process_of_another_user_is_refused_on_both_sides() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only the superuser can start a process of another user");
        return;
    }
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let (alice, bob) = net.pair();
        let stranger = net.open(Setup { user: Some(ANOTHER_USER), ..Setup::default() });
        for party in [&alice, &bob] {
            party.meet(&stranger);
            stranger.meet(party);
            party.endpoint.recv(room(100_000), ANY, 100).expect("room for a receive");
        }
        stranger.endpoint.recv(room(100_000), ANY, 100).expect("room for a receive");
        // Before anybody else was there, and afterwards.
        expect_refusal(&stranger, &alice);
        expect_refusal(&alice, &stranger);
        expect_refusal(&stranger, &bob);
        expect_refusal(&bob, &stranger);
        // Nothing of it has reached anybody, and everybody lives on.
        for party in [&alice, &bob, &stranger] {
            party.silence();
            party.endpoint.cancel(100).expect("the receive is posted as it was");
            assert_eq!(party.failure().errno(), Errno::ECANCELED);
        }
        exchange(&alice, &bob);
    }
}

#[test]
fn a_forked_child_that_ends_takes_nothing_with_it() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let (alice, bob) = net.pair();
        alice.fork(false);
        exchange(&alice, &bob);
        alice.fork(false);
        bob.fork(false);
        exchange(&alice, &bob);
        alice.silence();
        bob.silence();
    }
}

#[test]
fn a_forked_child_does_not_hide_its_parents_death() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let (alice, bob) = net.pair();
        exchange(&alice, &bob);
        bob.fork(true);
        exchange(&alice, &bob);
        // What bob will never answer.
        for context in 0..3 {
            let (buffers, flags) = (vec![payload(context, 100_000)], OpFlags::TRANSMIT_COMPLETE);
            let send = Send { buffers, to: alice.peer(), context, flags, ..Send::default() };
            bob.endpoint.recv(room(8), ANY, 50 + context).expect("room for a receive");
            if context == 2 {
                bob.kill();
            }
            alice.endpoint.sendmsg(send).expect("room for a send");
        }
        let endings: Vec<_> = (0..3).map(|_| alice.next()).collect();
        let failed = endings.last().expect("three sends").as_ref().expect_err("its receiver is dead");
        assert_eq!(failed.completion.context, 2);
        assert_ne!(failed.errno(), Errno::EACCES);
        alice.silence();
        // The child still lives, and is nobody to talk to.
        alice.endpoint.send(payload(9, 100_000), alice.peer(), 9).expect("room for a send");
        assert_eq!(alice.failure().errno(), Errno::ECONNREFUSED);
    }
}
