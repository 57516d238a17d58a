//! Fences: `FI_FENCE` of `fi_endpoint(3)`. A fenced send, and all that follow it to the same peer, wait for those before
//! it.

use std::collections::BTreeSet;

use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::flags::{CompletionFlags, OpFlags};
use homespun::{FabricAddress, OperationError};

use crate::suite::payload::{payload, received, room};
use crate::suite::{Net, Party, Setup};

const ANY: FabricAddress = FabricAddress::UNSPECIFIED;

const LEVELS: [OpFlags; 4] = [
    OpFlags::INJECT_COMPLETE,
    OpFlags::TRANSMIT_COMPLETE,
    OpFlags::DELIVERY_COMPLETE,
    OpFlags::MATCH_COMPLETE,
];

/// Sends a message of `len_bytes` bytes whose tag is its context.
fn send_long(party: &Party, to: FabricAddress, context: u64, len_bytes: usize, flags: OpFlags) {
    let buffers = vec![payload(context, len_bytes)];
    party
        .endpoint
        .sendmsg(SendMsg { buffers, to, tag: Some(context), context, flags, ..SendMsg::default() })
        .unwrap();
}

fn send(party: &Party, context: u64, flags: OpFlags) {
    send_long(party, party.peer(), context, 64, flags);
}

fn fenced(level: OpFlags) -> OpFlags {
    level | OpFlags::FENCE
}

/// Posts a receive for the message with this tag.
fn post(party: &Party, tag: u64, len_bytes: usize) {
    party.endpoint.trecv(room(len_bytes), ANY, tag, 0, tag).unwrap();
}

/// The next completion must be that of the message with this tag.
#[track_caller]
fn expect(party: &Party, tag: u64, len_bytes: usize) {
    let completion = party.completion();
    assert!(completion.flags.contains(CompletionFlags::RECV), "{completion:?}");
    assert_eq!((completion.context, completion.tag), (tag, tag));
    assert!(received(&completion.buffer) == payload(tag, len_bytes));
}

/// Makes sure that no message with this tag is there, received or not.
#[track_caller]
fn is_not_there(party: &Party, tag: u64) {
    let receive =
        RecvMsg { tagged: Some((tag, 0)), context: 999, flags: OpFlags::PEEK, ..RecvMsg::default() };
    party.endpoint.recvmsg(receive).unwrap();
    let failed = party.failure();
    assert_eq!((failed.completion.context, failed.error), (999, OperationError::NoMessage));
}

pub(crate) fn a_fenced_match_waits_until_all_before_it_are_matched(net: &Net) {
    let (alice, bob) = net.pair();
    // Whether or not their own level says so.
    for earlier in LEVELS {
        send(&alice, 1, earlier);
        send(&alice, 2, earlier);
        send(&alice, 3, fenced(OpFlags::MATCH_COMPLETE));
        let early = if earlier == OpFlags::MATCH_COMPLETE { 0 } else { 2 };
        let (sends, _) = alice.completions(early);
        assert!(sends.iter().all(|send| [1, 2].contains(&send.context)));
        alice.silence();
        is_not_there(&bob, 3);
        post(&bob, 3, 64);
        bob.silence();
        post(&bob, 2, 64);
        expect(&bob, 2, 64);
        bob.silence();
        post(&bob, 1, 64);
        expect(&bob, 1, 64);
        expect(&bob, 3, 64);
        let (sends, _) = alice.completions(3 - early);
        assert_eq!(sends.last().unwrap().context, 3);
        alice.silence();
    }
}

pub(crate) fn a_fence_counts_what_is_silent_or_injected(net: &Net) {
    let (alice, bob) = net.pair_of(Setup { selective: true, ..Setup::default() }, Setup::default());
    alice.endpoint.inject(&payload(1, 64), alice.peer(), Some(1), None).unwrap();
    send(&alice, 2, OpFlags::INJECT_COMPLETE);
    send(&alice, 3, OpFlags::MATCH_COMPLETE);
    send(&alice, 4, OpFlags::INJECT);
    send(&alice, 5, fenced(OpFlags::MATCH_COMPLETE | OpFlags::COMPLETION));
    post(&bob, 5, 64);
    for tag in [4, 2, 1, 3] {
        bob.silence();
        is_not_there(&bob, 5);
        post(&bob, tag, 64);
        expect(&bob, tag, 64);
    }
    expect(&bob, 5, 64);
    assert_eq!(alice.completion().context, 5);
    alice.silence();
}

pub(crate) fn a_fence_may_be_silent_or_injected_itself(net: &Net) {
    let (alice, bob) = net.pair_of(Setup { selective: true, ..Setup::default() }, Setup::default());
    for flags in [OpFlags::FENCE, OpFlags::FENCE | OpFlags::INJECT] {
        send(&alice, 1, OpFlags::MATCH_COMPLETE);
        send(&alice, 2, flags);
        send(&alice, 3, OpFlags::COMPLETION);
        alice.silence();
        post(&bob, 2, 64);
        bob.silence();
        post(&bob, 1, 64);
        expect(&bob, 1, 64);
        expect(&bob, 2, 64);
        post(&bob, 3, 64);
        expect(&bob, 3, 64);
        assert_eq!(alice.completion().context, 3);
    }
    alice.silence();
}

pub(crate) fn the_weakest_fence_waits_for_the_completion_of_those_before_it(net: &Net) {
    let (alice, bob) = net.pair_of(Setup::default(), Setup { asleep: true, ..Setup::default() });
    send(&alice, 1, OpFlags::DELIVERY_COMPLETE);
    send(&alice, 2, fenced(OpFlags::INJECT_COMPLETE));
    // It is not behind the fence by its own choice.
    send(&alice, 3, OpFlags::INJECT_COMPLETE);
    alice.silence();
    net.wake(&bob);
    let (sends, _) = alice.completions(3);
    assert_eq!(sends[0].context, 1);
    alice.silence();
    for tag in 1..=3 {
        post(&bob, tag, 64);
        expect(&bob, tag, 64);
    }
}

pub(crate) fn fences_of_every_level_end_and_keep_the_order(net: &Net) {
    let (alice, bob) = net.pair();
    let lens_bytes = [64, 300_000, 0, 9000];
    let mut messages = Vec::new();
    for fence in LEVELS {
        for level in LEVELS {
            for flags in [level, level, fenced(fence)] {
                messages.push((flags, lens_bytes[messages.len() % lens_bytes.len()]));
            }
        }
    }
    for (n, &(flags, len_bytes)) in (1..).zip(&messages) {
        let buffers = vec![payload(n, len_bytes)];
        let send =
            SendMsg { buffers, to: alice.peer(), data: Some(n), context: n, flags, ..SendMsg::default() };
        alice.endpoint.sendmsg(send).unwrap();
    }
    for (n, &(_, len_bytes)) in (1..).zip(&messages) {
        bob.endpoint.recv(room(300_000), ANY, n).unwrap();
        let completion = bob.completion();
        assert_eq!((completion.context, completion.data), (n, n));
        assert!(received(&completion.buffer) == payload(n, len_bytes));
    }
    let (sends, _) = alice.completions(messages.len());
    let contexts: Vec<u64> = sends.iter().map(|send| send.context).collect();
    assert_eq!(contexts.iter().collect::<BTreeSet<_>>().len(), messages.len());
    // What is fenced completes after all that was before it.
    for (n, _) in (1..).zip(&messages).filter(|(_, (flags, _))| flags.contains(OpFlags::FENCE)) {
        let place = contexts.iter().position(|&context| context == n).unwrap();
        assert!((1..n).all(|before| contexts[..place].contains(&before)), "{n} in {contexts:?}");
    }
    alice.silence();
}

pub(crate) fn a_fence_holds_up_nothing_to_another_peer(net: &Net) {
    let (alice, bob) = net.pair();
    let carol = net.party();
    let to_carol = alice.meet(&carol);
    carol.meet(&alice);
    send(&alice, 1, OpFlags::MATCH_COMPLETE);
    send(&alice, 2, fenced(OpFlags::MATCH_COMPLETE));
    for (context, len_bytes) in [(3, 64), (4, 300_000), (5, 0)] {
        send_long(&alice, to_carol, context, len_bytes, OpFlags::DELIVERY_COMPLETE);
        assert_eq!(alice.completion().context, context);
        post(&carol, context, len_bytes);
        expect(&carol, context, len_bytes);
    }
    send_long(&alice, to_carol, 6, 64, fenced(OpFlags::DELIVERY_COMPLETE));
    assert_eq!(alice.completion().context, 6);
    // Nor what bob sends.
    post(&alice, 7, 64);
    send(&bob, 7, fenced(OpFlags::MATCH_COMPLETE));
    expect(&alice, 7, 64);
    assert_eq!(bob.completion().context, 7);
    alice.silence();
    for tag in [1, 2] {
        post(&bob, tag, 64);
        expect(&bob, tag, 64);
        assert_eq!(alice.completion().context, tag);
    }
}

pub(crate) fn what_follows_a_fence_stays_behind_it(net: &Net) {
    let (alice, bob) = net.pair();
    let everything = 2..=7_u64;
    for tag in everything.clone() {
        post(&bob, tag, 300_000);
    }
    send(&alice, 1, OpFlags::MATCH_COMPLETE);
    send(&alice, 2, fenced(OpFlags::INJECT_COMPLETE));
    alice.endpoint.inject(&payload(3, 64), alice.peer(), Some(3), None).unwrap();
    send_long(&alice, alice.peer(), 4, 300_000, OpFlags::INJECT_COMPLETE);
    send(&alice, 5, fenced(OpFlags::MATCH_COMPLETE));
    send(&alice, 6, OpFlags::DELIVERY_COMPLETE);
    send_long(&alice, alice.peer(), 7, 0, fenced(OpFlags::INJECT_COMPLETE));
    alice.silence();
    bob.silence();
    post(&bob, 1, 64);
    expect(&bob, 1, 64);
    let mut taken: Vec<u64> = everything.clone().map(|_| bob.completion().tag).collect();
    // A long one may be there later than one that began later.
    assert_eq!(taken[0], 2);
    assert!(taken.iter().position(|&tag| tag == 5) > taken.iter().position(|&tag| tag == 4), "{taken:?}");
    taken.sort_unstable();
    assert_eq!(taken, everything.collect::<Vec<_>>());
    let (sends, _) = alice.completions(6);
    let contexts: Vec<u64> = sends.iter().map(|send| send.context).collect();
    assert_eq!(contexts.iter().copied().collect::<BTreeSet<_>>(), [1, 2, 4, 5, 6, 7].into());
    assert_eq!((contexts[0], contexts[5]), (1, 7), "{contexts:?}");
    alice.silence();
}

pub(crate) fn a_fence_with_nothing_before_it_is_no_obstacle(net: &Net) {
    let (alice, bob) = net.pair();
    for (context, level) in (1..).zip([LEVELS, LEVELS].concat()) {
        post(&bob, context, 64);
        send(&alice, context, fenced(level));
        assert_eq!(alice.completion().context, context);
        expect(&bob, context, 64);
    }
}

pub(crate) fn messages_to_oneself_are_fenced_too(net: &Net) {
    let narcissus = net.party();
    narcissus.meet(&narcissus);
    send(&narcissus, 1, OpFlags::INJECT_COMPLETE);
    assert_eq!(narcissus.completion().context, 1);
    narcissus.endpoint.trecv(room(64), ANY, 2, 0, 102).unwrap();
    send(&narcissus, 2, fenced(OpFlags::MATCH_COMPLETE));
    narcissus.silence();
    narcissus.endpoint.trecv(room(64), ANY, 1, 0, 101).unwrap();
    let (sends, receives) = narcissus.completions(3);
    assert_eq!(sends[0].context, 2);
    assert_eq!([receives[0].context, receives[1].context], [101, 102]);
    narcissus.silence();
}

pub(crate) fn a_fenced_send_is_taken_back(net: &Net) {
    let (alice, bob) = net.pair();
    send(&alice, 1, OpFlags::MATCH_COMPLETE);
    send(&alice, 2, fenced(OpFlags::MATCH_COMPLETE));
    send(&alice, 3, OpFlags::INJECT_COMPLETE);
    alice.silence();
    alice.endpoint.cancel(2).unwrap();
    assert_eq!(alice.failure().error, OperationError::Cancelled);
    post(&bob, 1, 64);
    expect(&bob, 1, 64);
    post(&bob, 3, 64);
    expect(&bob, 3, 64);
    let (sends, _) = alice.completions(2);
    assert_eq!(sends.iter().map(|send| send.context).collect::<BTreeSet<_>>(), [1, 3].into());
    is_not_there(&bob, 2);
    alice.silence();
}

pub(crate) fn what_was_asked_for_a_fence_that_is_gone_is_asked_again(net: &Net) {
    let (alice, bob) = net.pair();
    send(&alice, 1, OpFlags::INJECT_COMPLETE);
    assert_eq!(alice.completion().context, 1);
    // Alice has nothing more to hear of the first, so she asks bob whether it was matched.
    send(&alice, 2, fenced(OpFlags::MATCH_COMPLETE));
    alice.silence();
    alice.endpoint.cancel(2).unwrap();
    assert_eq!(alice.failure().error, OperationError::Cancelled);
    // This waits for nothing, and the next fence waits for this.
    send(&alice, 3, OpFlags::INJECT_COMPLETE);
    send(&alice, 4, fenced(OpFlags::MATCH_COMPLETE));
    send(&alice, 5, OpFlags::INJECT_COMPLETE);
    post(&bob, 4, 64);
    bob.silence();
    post(&bob, 1, 64);
    expect(&bob, 1, 64);
    bob.silence();
    is_not_there(&bob, 4);
    post(&bob, 3, 64);
    expect(&bob, 3, 64);
    expect(&bob, 4, 64);
    post(&bob, 5, 64);
    expect(&bob, 5, 64);
    let (sends, _) = alice.completions(3);
    assert_eq!(sends.iter().map(|send| send.context).collect::<BTreeSet<_>>(), [3, 4, 5].into());
    alice.silence();
}

pub(crate) fn everything_behind_a_fence_ends_when_the_peer_does(net: &Net) {
    let (alice, bob) = net.pair();
    let stayer = net.party();
    let to_stayer = alice.meet(&stayer);
    send(&alice, 1, OpFlags::MATCH_COMPLETE);
    send(&alice, 2, fenced(OpFlags::MATCH_COMPLETE));
    send(&alice, 3, OpFlags::INJECT_COMPLETE);
    send(&alice, 4, fenced(OpFlags::DELIVERY_COMPLETE));
    alice.silence();
    drop(bob);
    let failed: BTreeSet<u64> = (0..4)
        .map(|_| {
            let failed = alice.failure();
            assert!(matches!(failed.error, OperationError::Link(_)), "{failed:?}");
            failed.completion.context
        })
        .collect();
    assert_eq!(failed, [1, 2, 3, 4].into());
    send_long(&alice, to_stayer, 5, 64, fenced(OpFlags::DELIVERY_COMPLETE));
    assert_eq!(alice.completion().context, 5);
    alice.silence();
}
