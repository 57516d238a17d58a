//! Processes close in order, are killed after their messages were transmitted, or stop for a while. No
//! message of such a process is lost. An operation fails only if it can no longer complete.

use std::thread;

use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::flags::OpFlags;
use homespun::{OperationError, Tag};

use homespun_suite::TransportKind::{self, Auto4, Shm4, Shm6, Tcp4, Tcp6};
use homespun_suite::payload::{payload, received_bytes};
use homespun_suite::{Net, Party, Setup, Turns};

homespun_suite::party_process_entry!();

const TRANSPORTS: [TransportKind; 6] = [Tcp4, Tcp6, Shm4, Shm6, Auto4, TransportKind::MIXED4];

/// Lengths of messages that a link takes although the receiver makes no progress.
const EAGER_LENS_BYTES: [usize; 6] = [0, 8, 100, 5000, 16_000, 1000];

/// Lengths of messages that wait for their receiver on some transport.
const LONG_LENS_BYTES: [usize; 4] = [16_384, 100_000, (5 << 20) + 1, 1 << 20];

/// Lengths of messages that use every protocol. Together they fit into the receiver's budget.
const KEPT_LENS_BYTES: [usize; 8] = [0, 8, 100, 5000, 100_000, 300_000, 1 << 20, (5 << 20) + 1];

/// The unexpected budget of the smallest receivers.
const SMALL_BUDGET_BYTES: usize = 20_000;

/// The number of passes over a party while its peer is stopped.
const STILL_ROUNDS: usize = 2000;

/// Sends the message with this number to the peer. The number is also the context and the remote data.
#[track_caller]
fn post_numbered(from: &Party, number: u64, len_bytes: usize, flags: OpFlags) {
    let send = SendMsg { data: Some(number), ..from.message(number, len_bytes, flags) };
    from.endpoint.sendmsg(send).expect("room for a send");
}

#[track_caller]
fn send_all(from: &Party, lens_bytes: &[usize], flags: OpFlags) {
    for (number, &len_bytes) in (0..).zip(lens_bytes) {
        post_numbered(from, number, len_bytes, flags);
    }
}

#[track_caller]
fn receive_numbered(party: &Party, number: u64, len_bytes: usize) {
    let completion = party.receive_message(number, len_bytes, &payload(number, len_bytes));
    assert_eq!((completion.data, completion.len_bytes), (number, len_bytes));
}

/// Receives these messages in order, and checks that no others arrive.
#[track_caller]
fn receive_exactly(party: &Party, lens_bytes: &[usize]) {
    for (number, &len_bytes) in (0..).zip(lens_bytes) {
        receive_numbered(party, number, len_bytes);
    }
    party.post_receives([99], 100_000);
    party.assert_no_completion();
    party.endpoint.cancel(99).expect("the receive is posted as it was");
    party.next_failure();
}

/// Opens a receiver that makes no progress until the test drives it, and two senders. The first sender will
/// leave.
fn open_receiver_and_two_senders(net: &Net) -> [Party; 3] {
    let receiver = net.open_party_with(Setup { asleep: true, ..Setup::default() });
    let (leaver, stayer) = (net.open_party(), net.open_party());
    for party in [&leaver, &stayer] {
        party.meet(&receiver);
    }
    [receiver, leaver, stayer]
}

#[test]
fn messages_of_a_process_that_ended_or_was_killed_before_accept_arrive() {
    for (transport, is_killed) in TRANSPORTS.iter().flat_map(|of| [(of, false), (of, true)]) {
        let net = Net::new(transport, Turns::Processes);
        let [receiver, leaver, stayer] = open_receiver_and_two_senders(&net);
        send_all(&leaver, &EAGER_LENS_BYTES, OpFlags::INJECT_COMPLETE);
        if is_killed {
            // The messages no longer need the sender's memory.
            leaver.next_completions_of_sends_and_others(EAGER_LENS_BYTES.len());
            leaver.kill();
        } else {
            // Dropping the last handle closes the endpoint and ends the process.
            drop(leaver);
        }
        receive_exactly(&receiver, &EAGER_LENS_BYTES);
        net.start_driving(&receiver);
        receiver.exchange_long_messages(&stayer);
    }
}

/// Shows fi_cq/transmit-of-reliable-endpoint.
#[test]
fn transmitted_messages_of_a_killed_sender_arrive() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        for level in [OpFlags::TRANSMIT_COMPLETE, OpFlags::DELIVERY_COMPLETE] {
            let (receiver, leaver) = net.open_pair();
            send_all(&leaver, &KEPT_LENS_BYTES, level);
            leaver.next_completions_of_sends_and_others(KEPT_LENS_BYTES.len());
            leaver.kill();
            receive_exactly(&receiver, &KEPT_LENS_BYTES);
        }
        // Kill each sender as soon as its send has completed.
        for (number, len_bytes) in (0..).zip(KEPT_LENS_BYTES) {
            let (receiver, leaver) = net.open_pair();
            post_numbered(&leaver, number, len_bytes, OpFlags::TRANSMIT_COMPLETE);
            leaver.next_completion();
            leaver.kill();
            receive_numbered(&receiver, number, len_bytes);
        }
    }
}

/// Shows fi_cq/fence-completion-covers-earlier, fi_cq/levels-as-initiator-sees.
#[test]
fn messages_before_a_completed_fence_of_a_killed_sender_arrive() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let (receiver, leaver) = net.open_pair();
        // These sends complete before their messages arrive. The fenced send completes after their messages
        // have arrived.
        send_all(&leaver, &KEPT_LENS_BYTES[..7], OpFlags::INJECT_COMPLETE);
        post_numbered(&leaver, 7, 8, OpFlags::FENCE | OpFlags::TRANSMIT_COMPLETE);
        while leaver.next_completion().context != 7 {}
        leaver.kill();
        receive_exactly(&receiver, &[&KEPT_LENS_BYTES[..7], &[8]].concat());
    }
}

#[test]
fn claimed_complete_message_outlives_its_killed_sender() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let small = Setup { unexpected_bytes: SMALL_BUDGET_BYTES, ..Setup::default() };
        let (receiver, leaver) = net.open_pair_with(small, Setup::default());
        let (kept_bytes, left_bytes) = (1000, 5 * SMALL_BUDGET_BYTES);
        for (tag, len_bytes) in [(1, kept_bytes), (2, left_bytes), (3, kept_bytes)] {
            leaver.post_tagged(tag, len_bytes, OpFlags::empty());
        }
        // Messages keep their order, so all have arrived when the last one has.
        for (tag, then) in [(3, OpFlags::empty()), (1, OpFlags::CLAIM), (2, OpFlags::CLAIM)] {
            let (tagged, flags) = (Some(Tag(tag).into()), OpFlags::PEEK | then);
            let peek = RecvMsg { tagged, context: tag, flags, ..RecvMsg::default() };
            receiver.endpoint.recvmsg(peek.clone()).expect("room for a look");
            while let Err(failed) = receiver.next_ended() {
                assert_eq!(failed.error, OperationError::NoMessage);
                receiver.endpoint.recvmsg(peek.clone()).expect("room for a look");
            }
        }
        leaver.kill();
        receiver.assert_no_completion();
        for (tag, len_bytes) in [(1, kept_bytes), (2, left_bytes)] {
            receiver.post_receive(tag, len_bytes, Some(Tag(tag)), OpFlags::CLAIM);
            match receiver.next_ended() {
                Ok((completion, _)) => {
                    assert_eq!((tag, completion.context), (1, 1));
                    assert!(received_bytes(&completion.buffer) == payload(tag, len_bytes));
                }
                Err(failed) => {
                    assert_eq!((tag, failed.completion.context), (2, 2));
                    assert!(matches!(failed.error, OperationError::Link(_)), "{failed:?}");
                }
            }
        }
        receiver.receive_tagged(3, kept_bytes);
    }
}

#[test]
fn closing_process_stays_until_its_long_messages_are_fetched() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let [receiver, leaver, stayer] = open_receiver_and_two_senders(&net);
        send_all(&leaver, &LONG_LENS_BYTES, OpFlags::INJECT_COMPLETE);
        thread::scope(|scope| {
            let leaving = scope.spawn(|| drop(leaver));
            receive_exactly(&receiver, &LONG_LENS_BYTES);
            leaving.join().expect("a process that ends in order");
        });
        net.start_driving(&receiver);
        receiver.exchange_long_messages(&stayer);
    }
}

#[test]
fn stopped_process_is_not_taken_for_dead() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let (alice, bob) = net.open_pair();
        let carol = net.open_party();
        alice.meet(&carol);
        alice.exchange_long_messages(&bob);
        let lens_bytes = [&EAGER_LENS_BYTES[..], &LONG_LENS_BYTES[..]].concat();
        bob.stop();
        send_all(&alice, &lens_bytes, OpFlags::DELIVERY_COMPLETE);
        for _ in 0..STILL_ROUNDS {
            let ended = alice.poll_completion();
            assert!(ended.is_none(), "no message was received, but {ended:?}");
        }
        // Operations with other peers need not wait.
        alice.exchange_long_messages(&carol);
        bob.resume();
        receive_exactly(&bob, &lens_bytes);
        let (sent, _) = alice.next_completions_of_sends_and_others(lens_bytes.len());
        assert_eq!(sent.len(), lens_bytes.len());
        alice.exchange_long_messages(&bob);
        alice.assert_no_completion();
    }
}
