//! Fences: `FI_FENCE` of `fi_endpoint(3)`. A fenced operation, and all later ones to the same peer, wait for
//! the operations before it.

use std::collections::BTreeSet;

use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::flags::{CompletionFlags, MrAccess, OpFlags};
use homespun::limits::PULL_STEP_MAX_BYTES;
use homespun::{Completion, FabricAddress, OperationError, Tag};

use homespun_suite::payload::{payload, received, room};
use homespun_suite::{Kind as MemoryKind, Net, Party, Region, RegionSpec, RmaBy, RmaCall, Setup};

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

/// Checks that no message with this tag has arrived.
#[track_caller]
fn assert_not_arrived(party: &Party, tag: u64) {
    let receive =
        RecvMsg { tagged: Some(Tag(tag).into()), context: 999, flags: OpFlags::PEEK, ..RecvMsg::default() };
    party.endpoint.recvmsg(receive).unwrap();
    let failed = party.failure();
    assert_eq!((failed.completion.context, failed.error), (999, OperationError::NoMessage));
}

pub(crate) fn match_fence_waits_until_preceding_sends_are_matched(net: &Net) {
    let (alice, bob) = net.pair();
    // Of any level.
    for earlier in LEVELS {
        send(&alice, 1, earlier);
        send(&alice, 2, earlier);
        send(&alice, 3, fenced(OpFlags::MATCH_COMPLETE));
        let early = if earlier == OpFlags::MATCH_COMPLETE { 0 } else { 2 };
        let (sends, _) = alice.completions(early);
        assert!(sends.iter().all(|send| [1, 2].contains(&send.context)));
        alice.silence();
        assert_not_arrived(&bob, 3);
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

pub(crate) fn fence_waits_for_unreported_and_injected_sends(net: &Net) {
    let (alice, bob) = net.pair_of(Setup { selective: true, ..Setup::default() }, Setup::default());
    alice.endpoint.inject(&payload(1, 64), alice.peer(), Some(1), None).unwrap();
    send(&alice, 2, OpFlags::INJECT_COMPLETE);
    send(&alice, 3, OpFlags::MATCH_COMPLETE);
    send(&alice, 4, OpFlags::INJECT);
    send(&alice, 5, fenced(OpFlags::MATCH_COMPLETE | OpFlags::COMPLETION));
    post(&bob, 5, 64);
    for tag in [4, 2, 1, 3] {
        bob.silence();
        assert_not_arrived(&bob, 5);
        post(&bob, tag, 64);
        expect(&bob, tag, 64);
    }
    expect(&bob, 5, 64);
    assert_eq!(alice.completion().context, 5);
    alice.silence();
}

pub(crate) fn fenced_send_may_be_unreported_or_injected(net: &Net) {
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

pub(crate) fn inject_fence_waits_for_completion_of_preceding_sends(net: &Net) {
    let (alice, bob) = net.pair_of(Setup::default(), Setup { asleep: true, ..Setup::default() });
    send(&alice, 1, OpFlags::DELIVERY_COMPLETE);
    send(&alice, 2, fenced(OpFlags::INJECT_COMPLETE));
    // Without a fence flag of its own it still stays behind the fence.
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

pub(crate) fn fences_of_every_level_complete_in_order(net: &Net) {
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
    // A fenced send completes after all sends before it.
    for (n, _) in (1..).zip(&messages).filter(|(_, (flags, _))| flags.contains(OpFlags::FENCE)) {
        let place = contexts.iter().position(|&context| context == n).unwrap();
        assert!((1..n).all(|before| contexts[..place].contains(&before)), "{n} in {contexts:?}");
    }
    alice.silence();
}

pub(crate) fn fence_delays_no_send_to_another_peer(net: &Net) {
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
    // Nor sends of bob's.
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

pub(crate) fn operations_after_a_fence_do_not_pass_it(net: &Net) {
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
    // A long message may arrive after one that was sent later.
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

pub(crate) fn fence_with_nothing_before_it_completes(net: &Net) {
    let (alice, bob) = net.pair();
    for (context, level) in (1..).zip([LEVELS, LEVELS].concat()) {
        post(&bob, context, 64);
        send(&alice, context, fenced(level));
        assert_eq!(alice.completion().context, context);
        expect(&bob, context, 64);
    }
}

pub(crate) fn fence_orders_messages_to_own_endpoint(net: &Net) {
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

pub(crate) fn fenced_send_may_be_cancelled(net: &Net) {
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
    assert_not_arrived(&bob, 2);
    alice.silence();
}

pub(crate) fn fence_after_a_cancelled_fence_asks_for_matches_anew(net: &Net) {
    let (alice, bob) = net.pair();
    send(&alice, 1, OpFlags::INJECT_COMPLETE);
    assert_eq!(alice.completion().context, 1);
    // The first send is complete for alice, so she asks bob whether it was matched.
    send(&alice, 2, fenced(OpFlags::MATCH_COMPLETE));
    alice.silence();
    alice.endpoint.cancel(2).unwrap();
    assert_eq!(alice.failure().error, OperationError::Cancelled);
    // This send waits for none, and the next fence waits for it.
    send(&alice, 3, OpFlags::INJECT_COMPLETE);
    send(&alice, 4, fenced(OpFlags::MATCH_COMPLETE));
    send(&alice, 5, OpFlags::INJECT_COMPLETE);
    post(&bob, 4, 64);
    bob.silence();
    post(&bob, 1, 64);
    expect(&bob, 1, 64);
    bob.silence();
    assert_not_arrived(&bob, 4);
    post(&bob, 3, 64);
    expect(&bob, 3, 64);
    expect(&bob, 4, 64);
    post(&bob, 5, 64);
    expect(&bob, 5, 64);
    let (sends, _) = alice.completions(3);
    assert_eq!(sends.iter().map(|send| send.context).collect::<BTreeSet<_>>(), [3, 4, 5].into());
    alice.silence();
}

pub(crate) fn operations_behind_a_fence_fail_when_the_peer_closes(net: &Net) {
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

/// The length of an access that takes the target several passes in every protocol.
const LONG_BYTES: usize = PULL_STEP_MAX_BYTES + 100_000;

/// The offset of the last bytes of a long access.
const END: usize = LONG_BYTES - 64;

/// The operations that can be fenced, or precede a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    InjectedSend,
    Write,
    InjectedWrite,
    Read,
}

const KINDS: [Kind; 5] = [Kind::Send, Kind::InjectedSend, Kind::Write, Kind::InjectedWrite, Kind::Read];

fn long_region(party: &Party) -> Region {
    let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    party
        .register(RegionSpec {
            len_bytes: LONG_BYTES,
            kind: MemoryKind::Raw,
            access,
            key: 7,
            is_counted: false,
        })
        .unwrap()
}

/// Posts an operation with this context. An access has this offset and length in the region; a message has
/// 64 bytes, and its context as its tag.
fn post_of(
    kind: Kind,
    party: &Party,
    region: &Region,
    context: u64,
    (place, len_bytes): (usize, usize),
    flags: OpFlags,
) {
    let is_injected = [Kind::InjectedSend, Kind::InjectedWrite].contains(&kind);
    let flags = if is_injected { flags | OpFlags::INJECT } else { flags };
    let by = match kind {
        Kind::Send | Kind::InjectedSend => return send(party, context, flags),
        Kind::Write | Kind::InjectedWrite => RmaBy::Writemsg,
        Kind::Read => RmaBy::Readmsg,
    };
    let call = RmaCall::new(by, payload(context, len_bytes), party.peer(), region, context);
    party.endpoint.rma(RmaCall { address: region.at(place), flags, ..call }).unwrap();
}

/// Posts the fenced operation, with the context 2, at the end of the region.
fn post_fenced(kind: Kind, party: &Party, region: &Region, level: OpFlags) {
    post_of(kind, party, region, 2, (END, 64), fenced(level));
}

/// The completions of the operations with the contexts 1 and 2, which come in this order.
#[track_caller]
fn both(party: &Party) -> (Completion, Completion) {
    let (first, second) = (party.completion(), party.completion());
    assert_eq!((first.context, second.context), (1, 2));
    (first, second)
}

pub(crate) fn every_fenced_operation_waits_for_a_match(net: &Net) {
    let (alice, bob) = net.pair();
    let region = long_region(&bob);
    for kind in KINDS {
        region.put(END, &room(64));
        send(&alice, 1, OpFlags::MATCH_COMPLETE);
        post_fenced(kind, &alice, &region, OpFlags::INJECT_COMPLETE);
        alice.silence();
        assert!(region.part(END, 64) == room(64), "{kind:?}");
        region.put(END, &payload(5, 64));
        post(&bob, 1, 64);
        expect(&bob, 1, 64);
        let (_, second) = both(&alice);
        match kind {
            Kind::Send | Kind::InjectedSend => {
                post(&bob, 2, 64);
                expect(&bob, 2, 64);
            }
            Kind::Write | Kind::InjectedWrite => assert!(region.part(END, 64) == payload(2, 64)),
            Kind::Read => assert!(received(&second.buffer) == payload(5, 64)),
        }
    }
}

pub(crate) fn fenced_access_waits_for_matches_of_injected_messages(net: &Net) {
    let (alice, bob) = net.pair_of(Setup { selective: true, ..Setup::default() }, Setup::default());
    let region = long_region(&bob);
    for kind in [Kind::Write, Kind::InjectedWrite, Kind::Read] {
        region.put(END, &room(64));
        // Both sends are complete for alice.
        alice.endpoint.inject(&payload(11, 64), alice.peer(), Some(11), None).unwrap();
        send(&alice, 12, OpFlags::INJECT_COMPLETE);
        post_fenced(kind, &alice, &region, OpFlags::MATCH_COMPLETE | OpFlags::COMPLETION);
        for tag in [12, 11] {
            alice.silence();
            assert!(region.part(END, 64) == room(64), "{kind:?}");
            post(&bob, tag, 64);
            expect(&bob, tag, 64);
        }
        assert_eq!(alice.completion().context, 2);
        let is_write = kind != Kind::Read;
        assert_eq!(region.part(END, 64) == payload(2, 64), is_write);
    }
}

pub(crate) fn every_fenced_operation_follows_a_long_write(net: &Net) {
    let (alice, bob) = net.pair();
    let region = long_region(&bob);
    for kind in KINDS {
        region.put(END, &room(64));
        post_of(Kind::Write, &alice, &region, 1, (0, LONG_BYTES), OpFlags::empty());
        post_fenced(kind, &alice, &region, OpFlags::INJECT_COMPLETE);
        let is_message = [Kind::Send, Kind::InjectedSend].contains(&kind);
        if is_message {
            post(&bob, 2, 64);
            expect(&bob, 2, 64);
        }
        let written = &payload(1, LONG_BYTES)[END..];
        if is_message {
            assert!(region.part(END, 64) == written, "{kind:?}");
        }
        let (_, second) = both(&alice);
        match kind {
            Kind::Read => assert!(received(&second.buffer) == written),
            Kind::Write | Kind::InjectedWrite => assert!(region.part(END, 64) == payload(2, 64), "{kind:?}"),
            Kind::Send | Kind::InjectedSend => {}
        }
    }
}

pub(crate) fn every_fenced_operation_follows_a_long_read(net: &Net) {
    let (alice, bob) = net.pair();
    let region = long_region(&bob);
    for (kind, read_bytes) in KINDS.into_iter().flat_map(|kind| [(kind, LONG_BYTES), (kind, 64)]) {
        region.put(END, &payload(5, 64));
        post_of(Kind::Read, &alice, &region, 1, (LONG_BYTES - read_bytes, read_bytes), OpFlags::empty());
        post_fenced(kind, &alice, &region, OpFlags::INJECT_COMPLETE);
        if [Kind::Send, Kind::InjectedSend].contains(&kind) {
            post(&bob, 2, 64);
            expect(&bob, 2, 64);
            region.put(END, &payload(6, 64));
        }
        let (first, _) = both(&alice);
        assert!(received(&first.buffer)[read_bytes - 64..] == payload(5, 64), "{kind:?}, {read_bytes} bytes");
    }
}

pub(crate) fn every_fenced_operation_follows_a_failed_one(net: &Net) {
    let (alice, bob) = net.pair();
    let region = long_region(&bob);
    for kind in KINDS {
        for before in [Kind::Write, Kind::Read, Kind::InjectedWrite] {
            // One byte beyond the region.
            post_of(before, &alice, &region, 1, (END + 1, 64), OpFlags::empty());
            post_fenced(kind, &alice, &region, OpFlags::DELIVERY_COMPLETE);
            assert_eq!(alice.failure().completion.context, 1);
            assert_eq!(alice.completion().context, 2);
            if [Kind::Send, Kind::InjectedSend].contains(&kind) {
                post(&bob, 2, 64);
                expect(&bob, 2, 64);
            }
        }
    }
}

pub(crate) fn fenced_message_waits_for_responses_to_preceding_accesses(net: &Net) {
    for before in [Kind::Write, Kind::InjectedWrite, Kind::Read] {
        for kind in [Kind::Send, Kind::InjectedSend] {
            let (alice, bob) = net.pair_of(Setup::default(), Setup { asleep: true, ..Setup::default() });
            let region = long_region(&bob);
            post_of(before, &alice, &region, 1, (END, 64), OpFlags::empty());
            post_fenced(kind, &alice, &region, OpFlags::INJECT_COMPLETE);
            // Without a fence flag of its own it still stays behind the fence.
            send(&alice, 3, OpFlags::INJECT_COMPLETE);
            alice.silence();
            net.wake(&bob);
            both(&alice);
            assert_eq!(alice.completion().context, 3);
            for tag in [2, 3] {
                post(&bob, tag, 64);
                expect(&bob, tag, 64);
            }
        }
    }
}
