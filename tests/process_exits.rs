//! Processes that close in order, are killed after their messages were transmitted, or are stopped for a
//! while: none of their messages is lost, and no operation fails that can still complete.

use std::thread;

use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::flags::OpFlags;
use homespun::{FabricAddress, OperationError, Tag};

use homespun_suite::payload::{payload, received, room};
use homespun_suite::{Net, Party, Setup, Transport, Turns};

homespun_suite::party_process_entry!();

const ANY: FabricAddress = FabricAddress::UNSPECIFIED;

const TRANSPORTS: [Transport; 4] = [Transport::Tcp4, Transport::Tcp6, Transport::Shm4, Transport::Shm6];

/// Lengths of messages that fit into the link without progress of the receiver.
const EAGER_LENS_BYTES: [usize; 6] = [0, 8, 100, 5000, 16_000, 1000];

/// Lengths of messages that wait for their receiver on some transport.
const LONG_LENS_BYTES: [usize; 4] = [16_384, 100_000, (5 << 20) + 1, 1 << 20];

/// Lengths of messages that use every protocol. All of them fit into the receiver's unexpected budget.
const KEPT_LENS_BYTES: [usize; 8] = [0, 8, 100, 5000, 100_000, 300_000, 1 << 20, (5 << 20) + 1];

/// The unexpected budget of the smallest receivers.
const SMALL_BUDGET_BYTES: usize = 20_000;

/// How many times a party is driven while its peer is stopped.
const STILL_ROUNDS: usize = 2000;

fn send_all(from: &Party, to: &Party, lens_bytes: &[usize], flags: OpFlags) {
    for (context, &len_bytes) in (0..).zip(lens_bytes) {
        let (buffers, to) = (vec![payload(context, len_bytes)], from.address_of(to));
        let send = SendMsg { buffers, to, data: Some(context), context, flags, ..SendMsg::default() };
        from.endpoint.sendmsg(send).expect("room for a send");
    }
}

/// Receives these messages in order, and no others.
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

/// A receiver that makes no progress until it is woken, a sender that will leave, and one that stays.
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
fn messages_of_a_process_that_ended_before_accept_arrive() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let [receiver, leaver, stayer] = parties(&net);
        send_all(&leaver, &receiver, &EAGER_LENS_BYTES, OpFlags::INJECT_COMPLETE);
        // Dropping the last handle closes the endpoint and ends the process.
        drop(leaver);
        receive_all(&receiver, &EAGER_LENS_BYTES);
        net.wake(&receiver);
        receiver.exchange(&stayer);
    }
}

#[test]
fn messages_of_a_process_killed_before_accept_arrive() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let [receiver, leaver, stayer] = parties(&net);
        send_all(&leaver, &receiver, &EAGER_LENS_BYTES, OpFlags::INJECT_COMPLETE);
        // The messages no longer need the sender's memory.
        leaver.completions(EAGER_LENS_BYTES.len());
        leaver.kill();
        receive_all(&receiver, &EAGER_LENS_BYTES);
        net.wake(&receiver);
        receiver.exchange(&stayer);
    }
}

#[test]
fn transmitted_messages_of_a_killed_sender_arrive() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        for level in [OpFlags::TRANSMIT_COMPLETE, OpFlags::DELIVERY_COMPLETE] {
            let (receiver, leaver) = net.pair();
            send_all(&leaver, &receiver, &KEPT_LENS_BYTES, level);
            leaver.completions(KEPT_LENS_BYTES.len());
            leaver.kill();
            receive_all(&receiver, &KEPT_LENS_BYTES);
        }
        // Each sender was killed at the moment of its last completion.
        for (number, len_bytes) in (0..).zip(KEPT_LENS_BYTES) {
            let (receiver, leaver) = net.pair();
            let (buffers, flags) = (vec![payload(number, len_bytes)], OpFlags::TRANSMIT_COMPLETE);
            let send =
                SendMsg { buffers, to: leaver.peer(), data: Some(number), flags, ..SendMsg::default() };
            leaver.endpoint.sendmsg(send).expect("room for a send");
            leaver.completion();
            leaver.kill();
            receiver.endpoint.recv(room(len_bytes), ANY, number).expect("room for a receive");
            let completion = receiver.completion();
            assert_eq!((completion.context, completion.data), (number, number));
            assert!(received(&completion.buffer) == payload(number, len_bytes), "message {number}");
        }
    }
}

#[test]
fn messages_before_a_passed_fence_of_a_killed_sender_arrive() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let (receiver, leaver) = net.pair();
        // These sends complete before they arrive; the fenced one does not.
        send_all(&leaver, &receiver, &KEPT_LENS_BYTES[..7], OpFlags::INJECT_COMPLETE);
        let context = 7;
        let (buffers, flags) = (vec![payload(context, 8)], OpFlags::FENCE | OpFlags::TRANSMIT_COMPLETE);
        let send =
            SendMsg { buffers, to: leaver.peer(), data: Some(context), context, flags, ..SendMsg::default() };
        leaver.endpoint.sendmsg(send).expect("room for a send");
        while leaver.completion().context != context {}
        leaver.kill();
        receive_all(&receiver, &[&KEPT_LENS_BYTES[..7], &[8]].concat());
    }
}

#[test]
fn claimed_complete_message_outlives_its_killed_sender() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let small = Setup { unexpected_bytes: SMALL_BUDGET_BYTES, ..Setup::default() };
        let (receiver, leaver) = net.pair_of(small, Setup::default());
        let (kept_bytes, left_bytes) = (1000, 5 * SMALL_BUDGET_BYTES);
        for (tag, len_bytes) in [(1, kept_bytes), (2, left_bytes), (3, kept_bytes)] {
            let (buffers, to) = (vec![payload(tag, len_bytes)], leaver.peer());
            leaver
                .endpoint
                .sendmsg(SendMsg { buffers, to, tag: Some(tag), context: tag, ..SendMsg::default() })
                .expect("room for a send");
        }
        // Messages keep their order, so all have arrived when the last one has.
        for (tag, then) in [(3, OpFlags::empty()), (1, OpFlags::CLAIM), (2, OpFlags::CLAIM)] {
            let receive = RecvMsg {
                tagged: Some(Tag(tag).into()),
                context: tag,
                flags: OpFlags::PEEK | then,
                ..RecvMsg::default()
            };
            receiver.endpoint.recvmsg(receive.clone()).expect("room for a look");
            while let Err(failed) = receiver.next() {
                assert_eq!(failed.error, OperationError::NoMessage);
                receiver.endpoint.recvmsg(receive.clone()).expect("room for a look");
            }
        }
        leaver.kill();
        receiver.silence();
        for (tag, len_bytes) in [(1, kept_bytes), (2, left_bytes)] {
            let receive = RecvMsg {
                buffers: vec![room(len_bytes)],
                tagged: Some(Tag(tag).into()),
                context: tag,
                flags: OpFlags::CLAIM,
                ..RecvMsg::default()
            };
            receiver.endpoint.recvmsg(receive).expect("it was claimed");
            match receiver.next() {
                Ok((completion, _)) => {
                    assert_eq!((tag, completion.context), (1, 1));
                    assert!(received(&completion.buffer) == payload(tag, len_bytes));
                }
                Err(failed) => {
                    assert_eq!((tag, failed.completion.context), (2, 2));
                    assert!(matches!(failed.error, OperationError::Link(_)), "{failed:?}");
                }
            }
        }
        receiver.endpoint.trecv(room(kept_bytes), ANY, 3, 0, 3).expect("room for a receive");
        assert!(received(&receiver.completion().buffer) == payload(3, kept_bytes));
    }
}

#[test]
fn closing_process_stays_until_its_long_messages_are_fetched() {
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
fn stopped_process_is_not_taken_for_dead() {
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
            assert!(ended.is_none(), "no message was received, but {ended:?}");
        }
        // Other peers do not wait.
        alice.exchange(&carol);
        bob.resume();
        receive_all(&bob, &lens_bytes);
        let (sent, _) = alice.completions(lens_bytes.len());
        assert_eq!(sent.len(), lens_bytes.len());
        alice.exchange(&bob);
        alice.silence();
    }
}
