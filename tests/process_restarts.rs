//! Processes that are killed and started again at the same address.

use homespun::endpoint::SendMsg;
use homespun::flags::OpFlags;
use homespun::{OperationError, Tag};

use homespun_suite::TransportKind::{self, Auto4, Shm4, Shm6, Tcp4, Tcp6};
use homespun_suite::payload::{marked_buffer, payload};
use homespun_suite::{Deadline, Net, Party, Setup, Turns};

homespun_suite::party_process_entry!();

const TRANSPORTS: [TransportKind; 6] = [Tcp4, Tcp6, Shm4, Shm6, Auto4, TransportKind::MIXED4];

/// Lengths of messages that use every protocol. Together they fit into the receiver's budget.
const LENS_BYTES: [usize; 6] = [10, 9000, 0, 100_000, 300_000, 8];

/// Kills a party, and opens another one at its address. Inserts the peer into the new party's vector.
fn kill_and_reopen(net: &Net, party: &Party, peer: &Party) -> Party {
    let address = party.endpoint.name().expect("an endpoint in service has a name");
    party.kill();
    let again = net.open_party_with(Setup { at: Some(address), ..Setup::default() });
    again.insert_address_of(peer);
    again
}

/// Posts a send of the message with this number, which is also its context.
#[track_caller]
fn post_numbered(from: &Party, context: u64, len_bytes: usize, flags: OpFlags) {
    let send = SendMsg { data: Some(context), ..from.message(context, len_bytes, flags) };
    from.endpoint.sendmsg(send).expect("room for a send");
}

#[track_caller]
fn receive_and_check(party: &Party, context: u64, len_bytes: usize) {
    let completion = party.receive_message(context, len_bytes, &payload(context, len_bytes));
    assert_eq!(completion.data, context);
}

/// Sends until a message is delivered, and returns its number.
#[track_caller]
fn send_until_delivered(from: &Party, first: u64) -> u64 {
    let deadline = Deadline::new();
    let mut context = first;
    loop {
        post_numbered(from, context, 64, OpFlags::DELIVERY_COMPLETE);
        match from.next_ended() {
            Ok((completion, _)) => {
                assert_eq!(completion.context, context);
                return context;
            }
            Err(failed) => {
                assert_eq!(failed.completion.context, context);
                assert!(matches!(failed.error, OperationError::Link(_)), "{failed:?}");
            }
        }
        context += 1;
        deadline.yield_or_panic("a message to a process that is there again");
    }
}

#[test]
fn messages_of_a_killed_process_and_its_successor_all_arrive() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let (alice, mut bob) = net.open_pair();
        let lives = 3;
        for life in 0..lives {
            for (context, len_bytes) in (100 * life..).zip(LENS_BYTES) {
                post_numbered(&bob, context, len_bytes, OpFlags::TRANSMIT_COMPLETE);
            }
            bob.next_completions_of_sends_and_others(LENS_BYTES.len());
            bob = kill_and_reopen(&net, &bob, &alice);
        }
        for life in 0..lives {
            for (context, len_bytes) in (100 * life..).zip(LENS_BYTES) {
                receive_and_check(&alice, context, len_bytes);
            }
        }
        // The link to the killed process does not carry messages to its successor.
        let delivered = send_until_delivered(&alice, 1000);
        receive_and_check(&bob, delivered, 64);
        alice.exchange_long_messages(&bob);
    }
}

#[test]
fn operations_on_a_killed_process_fail_once_and_miss_its_successor() {
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let (alice, bob) = net.open_pair();
        alice.exchange_long_messages(&bob);
        let levels = [
            OpFlags::MATCH_COMPLETE,
            OpFlags::FENCE | OpFlags::DELIVERY_COMPLETE,
            OpFlags::INJECT_COMPLETE,
            OpFlags::FENCE | OpFlags::MATCH_COMPLETE,
            OpFlags::DELIVERY_COMPLETE,
        ];
        for (context, flags) in (0..).zip(levels) {
            post_numbered(&alice, context, 64, flags);
        }
        alice.endpoint.recv(marked_buffer(64), alice.peer(), 10).expect("room for a receive");
        alice.endpoint.trecv(marked_buffer(64), alice.peer(), Tag(5), 11).expect("room for a receive");
        alice.post_receives([12], 64);
        alice.assert_no_completion();
        let bob = kill_and_reopen(&net, &bob, &alice);
        alice.expect_failures(&[0, 1, 2, 3, 4, 10, 11], |failed| {
            assert!(matches!(failed.error, OperationError::Link(_)), "{failed:?}");
        });
        let delivered = send_until_delivered(&alice, 1000);
        receive_and_check(&bob, delivered, 64);
        bob.post_receives([1], 64);
        bob.assert_no_completion();
        // A receive from any source stays posted, and matches a message of the next process at that address.
        post_numbered(&bob, 2, 64, OpFlags::MATCH_COMPLETE);
        let (completion, source) = alice.next_completion_with_source();
        assert_eq!((completion.context, completion.data, source), (12, 2, alice.peer()));
        assert_eq!(bob.next_completion().context, 2);
        alice.assert_no_completion();
    }
}

#[test]
fn sender_waiting_for_credit_survives_the_death_of_its_receiver() {
    const COUNT: u64 = 200;
    for transport in &TRANSPORTS {
        let net = Net::new(transport, Turns::Processes);
        let small = Setup { unexpected_bytes: 20_000, ..Setup::default() };
        let (alice, bob) = net.open_pair_with(Setup::default(), small);
        for context in 0..COUNT {
            post_numbered(&alice, context, 1000, OpFlags::MATCH_COMPLETE);
        }
        alice.assert_no_completion();
        let bob = kill_and_reopen(&net, &bob, &alice);
        alice.expect_failures(&Vec::from_iter(0..COUNT), |_| {});
        let delivered = send_until_delivered(&alice, 1000);
        receive_and_check(&bob, delivered, 64);
        alice.exchange_long_messages(&bob);
    }
}
