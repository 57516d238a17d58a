//! Processes that leave in good order, or stand still for a while. Neither is a death: nothing is lost of what they have
//! sent, and nothing fails that can still be done.

#[allow(dead_code, unused_imports, reason = "each suite uses a part of it")]
mod suite;

use std::thread;

use homespun::FabricAddress;
use homespun::endpoint::Send;
use homespun::flags::OpFlags;

use crate::suite::payload::{payload, received, room};
use crate::suite::{Net, Party, Setup, Transport, Turns};

const ANY: FabricAddress = FabricAddress::UNSPECIFIED;

const TRANSPORTS: [Transport; 4] = [Transport::Tcp4, Transport::Tcp6, Transport::Shm4, Transport::Shm6];

/// Lengths of messages that need nothing of their receiver to be sent: they fit into what carries them.
const EAGER_LENS_BYTES: [usize; 6] = [0, 8, 100, 5000, 16_000, 1000];

/// Lengths of messages that wait for their receiver on some transport.
const LONG_LENS_BYTES: [usize; 4] = [16_384, 100_000, (5 << 20) + 1, 1 << 20];

/// How many times a party is driven while its peer stands still.
const STILL_ROUNDS: usize = 2000;

fn send_all(from: &Party, to: &Party, lens_bytes: &[usize], flags: OpFlags) {
    for (context, &len_bytes) in (0..).zip(lens_bytes) {
        let (buffers, to) = (vec![payload(context, len_bytes)], from.address_of(to));
        let send = Send { buffers, to, data: Some(context), context, flags, ..Send::default() };
        from.endpoint.sendmsg(send).expect("room for a send");
    }
}

/// Receives them in order, and nothing else.
#[track_caller]
fn receive_all(party: &Party, lens_bytes: &[usize]) {
    for (number, &len_bytes) in (0..).zip(lens_bytes) {
        party.endpoint.recv(room(len_bytes), ANY, number).expect("room for a receive");
        let completion = party.completion();
        assert_eq!((completion.data, completion.len_bytes), (number, len_bytes));
        assert!(received(&completion.buffer) == payload(number, len_bytes), "message {number}");
    }
    party.endpoint.recv(room(100_000), ANY, 99).expect("room for a receive");
    party.silence();
    party.endpoint.cancel(99).expect("the receive is posted as it was");
    party.failure();
}

/// A receiver that does nothing until it is asked to, one who is going to leave, and one who stays.
fn parties(net: &Net) -> [Party; 3] {
    let receiver = net.open(Setup { asleep: true, ..Setup::default() });
    let (leaver, stayer) = (net.party(), net.party());
    for party in [&leaver, &stayer] {
        party.meet(&receiver);
        receiver.meet(party);
    }
    [receiver, leaver, stayer]
}

#[test]
fn messages_arrive_from_a_process_that_has_ended_before_it_was_accepted() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let [receiver, leaver, stayer] = parties(&net);
        send_all(&leaver, &receiver, &EAGER_LENS_BYTES, OpFlags::INJECT_COMPLETE);
        // With its last handle the process ends, after it has closed its endpoint.
        drop(leaver);
        receive_all(&receiver, &EAGER_LENS_BYTES);
        net.wake(&receiver);
        receiver.exchange(&stayer);
    }
}

#[test]
fn messages_arrive_from_a_process_that_was_killed_before_it_was_accepted() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let [receiver, leaver, stayer] = parties(&net);
        send_all(&leaver, &receiver, &EAGER_LENS_BYTES, OpFlags::INJECT_COMPLETE);
        // Its memory is not needed any more.
        leaver.completions(EAGER_LENS_BYTES.len());
        leaver.kill();
        receive_all(&receiver, &EAGER_LENS_BYTES);
        net.wake(&receiver);
        receiver.exchange(&stayer);
    }
}

#[test]
fn a_process_that_leaves_stays_until_its_long_messages_were_fetched() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let [receiver, leaver, stayer] = parties(&net);
        send_all(&leaver, &receiver, &LONG_LENS_BYTES, OpFlags::INJECT_COMPLETE);
        thread::scope(|scope| {
            let leaving = scope.spawn(|| drop(leaver));
            receive_all(&receiver, &LONG_LENS_BYTES);
            leaving.join().expect("a process that ends in order");
        });
        net.wake(&receiver);
        receiver.exchange(&stayer);
    }
}

#[test]
fn a_process_that_stands_still_for_a_while_is_not_dead() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let (alice, bob) = net.pair();
        let carol = net.party();
        alice.meet(&carol);
        carol.meet(&alice);
        alice.exchange(&bob);
        let lens_bytes = [&EAGER_LENS_BYTES[..], &LONG_LENS_BYTES[..]].concat();
        bob.stop();
        send_all(&alice, &bob, &lens_bytes, OpFlags::DELIVERY_COMPLETE);
        for _ in 0..STILL_ROUNDS {
            let ended = alice.poll();
            assert!(ended.is_none(), "nobody has received anything, but {ended:?}");
        }
        // Nobody else is kept waiting.
        alice.exchange(&carol);
        bob.resume();
        receive_all(&bob, &lens_bytes);
        let (sent, _) = alice.completions(lens_bytes.len());
        assert_eq!(sent.len(), lens_bytes.len());
        alice.exchange(&bob);
        alice.silence();
    }
}
