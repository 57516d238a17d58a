//! Unexpected messages take no more of the receiver's memory than its budget: `total_buffered_recv` of
//! `fi_endpoint(3)`. Messages beyond the budget wait at their sender, and none is lost. Other peers need not
//! wait.

use std::iter;

use super::failures::assert_link_ended;
use super::prelude::*;

/// The receivers' budget for unexpected messages.
const BUDGET_BYTES: usize = 40_000;

/// An upper bound of the bytes that a sender sends by its initial credit.
const CREDIT_BEFORE_ANY_BYTES: usize = 32 << 10;

/// The number of sends that may be outstanding.
const TX_DEPTH: usize = 8;

/// The length of an ordinary message.
const LEN_BYTES: usize = 1000;

/// After this many refusals in a row, a test assumes that only a receive of the peer makes room.
const REFUSED_ROUNDS: usize = 600;

/// The largest number of sends that an endpoint can accept while the peer posts no receives.
const ACCEPTED_MAX: usize = TX_DEPTH + (BUDGET_BYTES + CREDIT_BEFORE_ANY_BYTES) / LEN_BYTES;

fn make_receiver_setup() -> Setup {
    Setup { unexpected_bytes: BUDGET_BYTES, ..Setup::default() }
}

fn sender_setup() -> Setup {
    Setup { tx_depth_ops: TX_DEPTH, ..Setup::default() }
}

/// Returns the length of a message. Neighbouring messages differ in length, so that none is mistaken for
/// another.
fn message_len_bytes(number: u64) -> usize {
    LEN_BYTES + number as usize % 50
}

/// Sends the message of this number. Returns false if the queue is full.
fn try_send(from: &Party, number: u64, flags: OpFlags) -> bool {
    let send = from.message(number, message_len_bytes(number), flags);
    let sent = from.endpoint.sendmsg(SendMsg { data: Some(number), ..send });
    sent.map_err(|error| assert_eq!(error.errno(), Errno::EAGAIN, "message {number}")).is_ok()
}

/// Opens a sender and a receiver, and sends until no more sends are accepted. Returns both, how many were
/// accepted, and which of them completed.
fn open_pair_and_flood(net: &Net, flags: OpFlags) -> (Party, Party, u64, Vec<u64>) {
    let (from, at) = net.open_pair_with(sender_setup(), make_receiver_setup());
    let (mut accepted, mut refused_rounds) = (0, 0);
    let mut ended = Vec::new();
    while refused_rounds < REFUSED_ROUNDS {
        if try_send(&from, accepted, flags) {
            accepted += 1;
            refused_rounds = 0;
            assert!(accepted <= ACCEPTED_MAX as u64, "a flood without end");
        } else {
            refused_rounds += 1;
        }
        from.progress_all();
        ended.extend(iter::from_fn(|| from.poll_completion()).map(|ended| ended.unwrap().0.context));
    }
    (from, at, accepted, ended)
}

/// Receives the next message, which must have this number.
#[track_caller]
fn receive_and_check(party: &Party, number: u64) {
    let message = payload(number, message_len_bytes(number));
    assert_eq!(party.receive_message(number, 2 * LEN_BYTES, &message).data, number);
}

/// Checks that each of `count` sends that has not `ended` ends once.
#[track_caller]
fn check_all_sends_end(party: &Party, mut ended: Vec<u64>, count: u64) {
    while ended.len() < count as usize {
        let completion = party.next_completion();
        assert!(completion.flags.contains(CompletionFlags::SEND));
        ended.push(completion.context);
    }
    ended.sort_unstable();
    assert_eq!(ended, (0..count).collect::<Vec<_>>());
    party.assert_no_completion();
}

/// Shows fi_msg/eagain-may-be-retried.
#[over(driven)]
fn unexpected_messages_beyond_the_budget_wait_at_the_sender(net: &Net) {
    for level in LEVELS {
        let (alice, bob, accepted, ended) = open_pair_and_flood(net, level);
        if level == OpFlags::MATCH_COMPLETE {
            assert_eq!((accepted, ended.len()), (TX_DEPTH as u64, 0));
        }
        bob.assert_no_completion();
        (0..accepted).for_each(|number| receive_and_check(&bob, number));
        check_all_sends_end(&alice, ended, accepted);
        bob.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
        bob.assert_no_completion();
    }
}

#[over(driven)]
fn flood_by_one_peer_delays_no_other_peer(net: &Net) {
    let (alice, bob, accepted, ended) = open_pair_and_flood(net, OpFlags::INJECT_COMPLETE);
    let carol = net.open_party();
    let to = carol.meet(&bob);
    carol.meet(&alice);
    // Carol's messages to bob arrive, with or without a posted receive, ...
    for (tag, len_bytes) in (1..).zip([0, 100, 5000, 300_000, 1 << 20]) {
        let send = carol.message(tag, len_bytes, OpFlags::MATCH_COMPLETE);
        carol.endpoint.sendmsg(SendMsg { to, tag: Some(Tag(tag)), ..send }).unwrap();
        bob.receive_tagged(tag, len_bytes);
        assert_eq!(carol.next_completion().context, tag);
    }
    carol.send_and_wait_for_delivery(SendMsg { to, tag: Some(Tag(50)), ..SendMsg::default() });
    // ... and so do bob's own messages and their acknowledgements, ...
    for len_bytes in [0, 100, 5000, 300_000, 1 << 20] {
        bob.deliver_tagged(7, 7, len_bytes);
        alice.receive_tagged(7, len_bytes);
    }
    // ... and bob receives the messages of the flood that have arrived. Then the others arrive.
    (0..accepted).for_each(|number| receive_and_check(&bob, number));
    check_all_sends_end(&alice, ended, accepted);
    bob.endpoint.trecv(marked_buffer(8), ANY, Tag(50), 50).unwrap();
    assert_eq!(bob.next_completion().context, 50);
    alice.exchange_long_messages(&carol);
}

#[over(driven)]
fn messages_beyond_the_whole_budget_arrive_when_received(net: &Net) {
    let (alice, bob) = net.open_pair_with(Setup::default(), make_receiver_setup());
    let lens_bytes = [BUDGET_BYTES + 1, 100, 100_000, 0, 300_000, (5 << 20) + 1, 19_000, 8];
    for level in LEVELS {
        for (number, len_bytes) in (0..).zip(lens_bytes) {
            let send = alice.message(number, len_bytes, level);
            alice.endpoint.sendmsg(SendMsg { data: Some(number), ..send }).unwrap();
        }
        // The short messages fit into the budget, and may complete.
        let mut ended: Vec<u64> = Vec::new();
        for _ in 0..REFUSED_ROUNDS {
            alice.progress_all();
            ended.extend(alice.poll_completion().map(|ending| ending.unwrap().0.context));
        }
        for &number in &ended {
            let is_short = lens_bytes[number as usize] <= BUDGET_BYTES;
            assert!(is_short && level != OpFlags::MATCH_COMPLETE, "message {number} at {level:?}");
        }
        bob.assert_no_completion();
        for (number, len_bytes) in (0..).zip(lens_bytes) {
            assert_eq!(bob.receive_message(number, len_bytes, &payload(number, len_bytes)).data, number);
        }
        check_all_sends_end(&alice, ended, lens_bytes.len() as u64);
    }
}

#[over(driven)]
fn send_waiting_for_credit_may_be_cancelled(net: &Net) {
    // Injected messages wait at the sender, even if the receiver could fetch other messages from their
    // buffers.
    let flags = OpFlags::INJECT | OpFlags::INJECT_COMPLETE;
    let (alice, bob, accepted, ended) = open_pair_and_flood(net, flags);
    let last = accepted - 1;
    let waiting: Vec<u64> = (0..accepted).filter(|number| !ended.contains(number)).collect();
    assert!(waiting.contains(&last), "{waiting:?}");
    let mut cancelled = Vec::new();
    for &number in waiting.iter().rev().step_by(2) {
        if alice.endpoint.cancel(number).is_ok() {
            let failed = alice.next_failure();
            assert_eq!((failed.completion.context, failed.error), (number, OperationError::Cancelled));
            cancelled.push(number);
        } else {
            assert_ne!(number, last, "the last one cannot have been requested");
        }
    }
    // The cancelled sends make room.
    assert!(try_send(&alice, accepted, flags));
    for number in (0..=accepted).filter(|number| !cancelled.contains(number)) {
        receive_and_check(&bob, number);
    }
    check_all_sends_end(&alice, [ended, cancelled].concat(), accepted + 1);
    bob.assert_no_completion();
}

/// Shows fi_msg/eagain-may-be-retried.
#[over(all)]
fn discarded_messages_return_credit(net: &Net) {
    let (alice, bob) = net.open_pair_with(sender_setup(), make_receiver_setup());
    let count = 100;
    let (mut sent, mut seen) = (0, 0);
    let deadline = Deadline::new();
    while seen < count {
        if sent < count {
            let send = alice.message(sent, message_len_bytes(sent), OpFlags::empty());
            sent += u64::from(alice.endpoint.sendmsg(SendMsg { tag: Some(Tag(sent)), ..send }).is_ok());
        }
        let (tagged, flags) = (Some(TagMatch::ANY), OpFlags::PEEK | OpFlags::DISCARD);
        bob.endpoint.recvmsg(RecvMsg { tagged, flags, ..RecvMsg::default() }).unwrap();
        match bob.next_ended() {
            Ok((completion, _)) => {
                assert_eq!((completion.tag.0, completion.len_bytes), (seen, message_len_bytes(seen)));
                seen += 1;
            }
            Err(failed) => assert_eq!(failed.error, OperationError::NoMessage),
        }
        if let Some(ending) = alice.poll_completion() {
            ending.unwrap();
        }
        deadline.yield_or_panic("messages to throw away");
    }
    assert_eq!(sent, count);
}

#[over(driven)]
fn sends_waiting_for_credit_fail_when_the_receiver_closes(net: &Net) {
    let (alice, bob, accepted, mut ended) = open_pair_and_flood(net, OpFlags::INJECT_COMPLETE);
    drop(bob);
    while ended.len() < accepted as usize {
        let failed = alice.next_failure();
        assert_link_ended(&failed);
        ended.push(failed.completion.context);
    }
    check_all_sends_end(&alice, ended, accepted);
}

#[over(driven)]
fn closing_sender_waits_for_credit(net: &Net) {
    let (alice, bob, accepted, _ended) = open_pair_and_flood(net, OpFlags::INJECT_COMPLETE);
    thread::scope(|scope| {
        let closing = scope.spawn(move || drop(alice));
        (0..accepted).for_each(|number| receive_and_check(&bob, number));
        closing.join().unwrap();
    });
    bob.assert_no_completion();
}
