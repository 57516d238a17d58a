//! Fences: `FI_FENCE` of `fi_endpoint(3)`. A fenced operation waits for all earlier operations to the same
//! peer. All later operations to this peer wait for the fenced one.

use super::failures::assert_link_ended;
use super::prelude::*;

/// Sends a message of `len_bytes` bytes whose tag is its context.
fn send_tagged(party: &Party, to: FabricAddress, context: u64, len_bytes: usize, flags: OpFlags) {
    let send = party.message(context, len_bytes, flags);
    party.endpoint.sendmsg(SendMsg { to, tag: Some(Tag(context)), ..send }).unwrap();
}

fn with_fence(level: OpFlags) -> OpFlags {
    level | OpFlags::FENCE
}

/// Posts a receive for the short message with this tag.
fn post_tagged_receive(party: &Party, tag: u64) {
    party.post_receive(tag, 64, Some(Tag(tag)), OpFlags::empty());
}

/// Checks that no message with this tag has arrived.
#[track_caller]
fn assert_not_arrived(party: &Party, tag: u64) {
    party.post_receive(999, 0, Some(Tag(tag)), OpFlags::PEEK);
    let failed = party.next_failure();
    assert_eq!((failed.completion.context, failed.error), (999, OperationError::NoMessage));
}

/// Shows fi_cq/fence-completion-covers-earlier, fi_cq/fence-raises-lower-levels,
/// fi_cq/fence-leaves-earlier-completions.
#[over(all)]
fn match_fence_waits_until_preceding_sends_are_matched(net: &Net) {
    let (alice, bob) = net.open_pair();
    // The earlier sends may have any level.
    for earlier in LEVELS {
        alice.post_tagged(1, 64, earlier);
        alice.post_tagged(2, 64, earlier);
        alice.post_tagged(3, 64, with_fence(OpFlags::MATCH_COMPLETE));
        let early = if earlier == OpFlags::MATCH_COMPLETE { 0 } else { 2 };
        let (sends, _) = alice.next_completions_of_sends_and_others(early);
        assert!(sends.iter().all(|send| [1, 2].contains(&send.context)));
        alice.assert_no_completion();
        assert_not_arrived(&bob, 3);
        post_tagged_receive(&bob, 3);
        bob.assert_no_completion();
        bob.receive_tagged(2, 64);
        bob.assert_no_completion();
        bob.receive_tagged(1, 64);
        bob.expect_message(3, &payload(3, 64));
        let (sends, _) = alice.next_completions_of_sends_and_others(3 - early);
        assert_eq!(sends.last().unwrap().context, 3);
        alice.assert_no_completion();
    }
}

/// Shows fi_cq/fence-raises-lower-levels.
#[over(all)]
fn fence_waits_for_unreported_and_injected_sends(net: &Net) {
    let (alice, bob) = net.open_pair_with(Setup::selective(), Setup::default());
    alice.endpoint.inject(&payload(1, 64), alice.peer(), Some(Tag(1)), None).unwrap();
    alice.post_tagged(2, 64, OpFlags::INJECT_COMPLETE);
    alice.post_tagged(3, 64, OpFlags::MATCH_COMPLETE);
    alice.post_tagged(4, 64, OpFlags::INJECT);
    alice.post_tagged(5, 64, with_fence(OpFlags::MATCH_COMPLETE | OpFlags::COMPLETION));
    post_tagged_receive(&bob, 5);
    for tag in [4, 2, 1, 3] {
        bob.assert_no_completion();
        assert_not_arrived(&bob, 5);
        bob.receive_tagged(tag, 64);
    }
    bob.expect_message(5, &payload(5, 64));
    assert_eq!(alice.next_completion().context, 5);
    alice.assert_no_completion();
}

/// Shows fi_cq/fence-completion-covers-earlier.
#[over(all)]
fn fences_of_every_level_complete_in_order(net: &Net) {
    let (alice, bob) = net.open_pair();
    let levels = LEVELS.into_iter().flat_map(|fence| LEVELS.map(|level| [level, level, with_fence(fence)]));
    let lens_bytes = [64, 300_000, 0, 9000].into_iter().cycle();
    let messages: Vec<(OpFlags, usize)> = levels.flatten().zip(lens_bytes).collect();
    for (n, &(flags, len_bytes)) in (1..).zip(&messages) {
        let send = alice.message(n, len_bytes, flags);
        alice.endpoint.sendmsg(SendMsg { data: Some(n), ..send }).unwrap();
    }
    for (n, &(_, len_bytes)) in (1..).zip(&messages) {
        assert_eq!(bob.receive_message(n, 300_000, &payload(n, len_bytes)).data, n);
    }
    let (sends, _) = alice.next_completions_of_sends_and_others(messages.len());
    let contexts: Vec<u64> = sends.iter().map(|send| send.context).collect();
    assert_eq!(contexts.iter().collect::<BTreeSet<_>>().len(), messages.len());
    // A fenced send completes after all sends before it.
    for (n, _) in (1..).zip(&messages).filter(|(_, (flags, _))| flags.contains(OpFlags::FENCE)) {
        let place = contexts.iter().position(|&context| context == n).unwrap();
        assert!((1..n).all(|before| contexts[..place].contains(&before)), "{n} in {contexts:?}");
    }
    alice.assert_no_completion();
}

/// Shows fi_cq/fence-delays.
#[over(all)]
fn fence_delays_no_send_to_another_peer(net: &Net) {
    let (alice, bob) = net.open_pair();
    let carol = net.open_party();
    let to_carol = alice.meet(&carol);
    alice.post_tagged(1, 64, OpFlags::MATCH_COMPLETE);
    alice.post_tagged(2, 64, with_fence(OpFlags::MATCH_COMPLETE));
    for (context, len_bytes) in [(3, 64), (4, 300_000), (5, 0)] {
        send_tagged(&alice, to_carol, context, len_bytes, OpFlags::DELIVERY_COMPLETE);
        assert_eq!(alice.next_completion().context, context);
        carol.receive_tagged(context, len_bytes);
    }
    send_tagged(&alice, to_carol, 6, 64, with_fence(OpFlags::DELIVERY_COMPLETE));
    assert_eq!(alice.next_completion().context, 6);
    // The fence does not delay bob's sends either.
    post_tagged_receive(&alice, 7);
    bob.post_tagged(7, 64, with_fence(OpFlags::MATCH_COMPLETE));
    alice.expect_message(7, &payload(7, 64));
    assert_eq!(bob.next_completion().context, 7);
    alice.assert_no_completion();
    for tag in [1, 2] {
        bob.receive_tagged(tag, 64);
        assert_eq!(alice.next_completion().context, tag);
    }
}

#[over(all)]
fn operations_behind_a_fence_fail_when_the_peer_closes(net: &Net) {
    let (alice, bob) = net.open_pair();
    let stayer = net.open_party();
    let to_stayer = alice.insert_address_of(&stayer);
    alice.post_tagged(1, 64, OpFlags::MATCH_COMPLETE);
    alice.post_tagged(2, 64, with_fence(OpFlags::MATCH_COMPLETE));
    alice.post_tagged(3, 64, OpFlags::INJECT_COMPLETE);
    alice.post_tagged(4, 64, with_fence(OpFlags::DELIVERY_COMPLETE));
    alice.assert_no_completion();
    drop(bob);
    alice.expect_failures(&[1, 2, 3, 4], assert_link_ended);
    send_tagged(&alice, to_stayer, 5, 64, with_fence(OpFlags::DELIVERY_COMPLETE));
    assert_eq!(alice.next_completion().context, 5);
    alice.assert_no_completion();
}

/// The length of an access for which the target needs several passes, in every protocol.
const LONG_BYTES: usize = PULL_STEP_MAX_BYTES + 100_000;

/// The offset of the last bytes of a long access.
const END: usize = LONG_BYTES - 64;

/// The operations that can be fenced, or can come before a fence. Atomic operations replace the first 8 bytes
/// of the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpKind {
    /// With a tag.
    Send,
    /// Without a tag.
    InjectedSend,
    Write,
    InjectedWrite,
    Read,
    Atomic(AtomicKind),
}

const OP_KINDS: [OpKind; 5] =
    [OpKind::Send, OpKind::InjectedSend, OpKind::Write, OpKind::InjectedWrite, OpKind::Read];

/// The atomic operations for which `AtomicOp::Write` is valid.
const ATOMIC_KINDS: [OpKind; 2] = [OpKind::Atomic(AtomicKind::Base), OpKind::Atomic(AtomicKind::Fetch)];

/// Makes the memory that an operation with this context accesses differ from the operation's payload.
fn prepare_memory(region: &Region, content: &[u8]) {
    region.write_at(0, &content[..8]);
    region.write_at(END, content);
}

/// Receives the message of a send with this context.
#[track_caller]
fn receive_sent(kind: OpKind, peer: &Party, context: u64) {
    if kind == OpKind::Send {
        peer.receive_tagged(context, 64);
    } else {
        peer.receive_message(context, 64, &payload(context, 64));
    }
}

/// Checks the effect of a completed operation with this context. A read must have found `before`.
#[track_caller]
fn check_effect(kind: OpKind, peer: &Party, region: &Region, completion: &Completion, before: &[u8]) {
    let context = completion.context;
    match kind {
        OpKind::Send | OpKind::InjectedSend => receive_sent(kind, peer, context),
        OpKind::Write | OpKind::InjectedWrite => {
            assert!(region.read_at(END, 64) == payload(context, 64), "{kind:?}");
        }
        OpKind::Read => assert!(received_bytes(&completion.buffer) == before, "{kind:?}"),
        OpKind::Atomic(_) => assert!(region.read_at(0, 8) == payload(context, 8), "{kind:?}"),
    }
}

/// Posts an operation with this context. `place` and `len_bytes` apply to an access. A message has 64 bytes,
/// and its context as its tag.
fn post_operation(
    kind: OpKind,
    party: &Party,
    region: &Region,
    context: u64,
    (place, len_bytes): (usize, usize),
    flags: OpFlags,
) {
    let is_injected = [OpKind::InjectedSend, OpKind::InjectedWrite].contains(&kind);
    let flags = if is_injected { flags | OpFlags::INJECT } else { flags };
    let by = match kind {
        OpKind::Send => return party.post_tagged(context, 64, flags),
        OpKind::InjectedSend => return party.post_send(context, 64, flags),
        OpKind::Write | OpKind::InjectedWrite => RmaBy::Writemsg,
        OpKind::Read => RmaBy::Readmsg,
        OpKind::Atomic(kind) => {
            let what = (AtomicOp::Write, Datatype::Uint64);
            let call = AtomicCall::new(kind, what, payload(context, 8), party.peer(), region, context);
            let call = AtomicCall { by: AtomicBy::Message, flags: flags - OpFlags::LEVELS, ..call };
            party.endpoint.atomic(call).unwrap();
            return;
        }
    };
    let call = make_access(by, party, region, context, place, len_bytes);
    party.endpoint.rma(RmaCall { flags, ..call }).unwrap();
}

/// Waits for the completions of the operations 1 and 2. Panics if they come in another order.
#[track_caller]
fn expect_completions_1_then_2(party: &Party) -> (Completion, Completion) {
    let (first, second) = (party.next_completion(), party.next_completion());
    assert_eq!((first.context, second.context), (1, 2));
    (first, second)
}

/// Shows fi_cq/fence-delays, fi_msg/fence-defers, fi_tagged/tagged-fence-defers,
/// fi_atomic/atomic-fence-defers.
#[over(all)]
fn every_fenced_operation_and_the_next_wait_for_a_match(net: &Net) {
    let is_tested = |memory: &MemoryKind| [MemoryKind::Raw, MemoryKind::Shareable].contains(memory);
    for memory in net.memory_kinds().filter(is_tested) {
        let (alice, bob) = net.open_pair();
        let region = bob.open_region(LONG_BYTES, memory, 7);
        // After this write the peer may have mapped shareable memory.
        post_operation(OpKind::Write, &alice, &region, 9, (0, 64), OpFlags::DELIVERY_COMPLETE);
        assert_eq!(alice.next_completion().context, 9);
        let kinds = OP_KINDS.into_iter().chain(ATOMIC_KINDS);
        for (kind, is_fenced) in kinds.flat_map(|kind| [(kind, true), (kind, false)]) {
            prepare_memory(&region, &marked_buffer(64));
            alice.post_tagged(1, 64, OpFlags::MATCH_COMPLETE);
            if is_fenced {
                post_operation(kind, &alice, &region, 2, (END, 64), with_fence(OpFlags::INJECT_COMPLETE));
            } else {
                alice.post_tagged(3, 64, with_fence(OpFlags::INJECT_COMPLETE));
                post_operation(kind, &alice, &region, 2, (END, 64), OpFlags::empty());
            }
            alice.assert_no_completion();
            let content = [region.read_at(0, 8), region.read_at(END, 64)].concat();
            assert!(content == marked_buffer(72), "{memory:?}, {kind:?}, {is_fenced}");
            prepare_memory(&region, &payload(5, 64));
            bob.receive_tagged(1, 64);
            let second = if is_fenced {
                expect_completions_1_then_2(&alice).1
            } else {
                bob.receive_tagged(3, 64);
                let ended = [(); 3].map(|()| alice.next_completion());
                ended.into_iter().find(|ended| ended.context == 2).expect("it has ended")
            };
            check_effect(kind, &bob, &region, &second, &payload(5, 64));
        }
    }
}

/// Shows fi_cq/fence-delays, fi_cq/fence-replaces-order, fi_msg/fence-shows-earlier-results,
/// fi_rma/rma-fence-defers.
#[over(all)]
fn every_fenced_operation_follows_an_access(net: &Net) {
    let (alice, bob) = net.open_pair();
    let region = bob.open_region(LONG_BYTES, MemoryKind::Raw, 7);
    let mut earlier = vec![(OpKind::Write, LONG_BYTES), (OpKind::Read, LONG_BYTES), (OpKind::Read, 64)];
    // A short write of another provider may complete before it is visible.
    if alice.is_homespun() {
        earlier.extend([(OpKind::Write, 64), (OpKind::InjectedWrite, 64)]);
    }
    for (before, len_bytes) in earlier {
        for kind in OP_KINDS {
            let what = format!("{kind:?} behind {before:?} of {len_bytes} bytes");
            region.write_at(END, &payload(5, 64));
            let range = (LONG_BYTES - len_bytes, len_bytes);
            post_operation(before, &alice, &region, 1, range, OpFlags::empty());
            post_operation(kind, &alice, &region, 2, (END, 64), with_fence(OpFlags::INJECT_COMPLETE));
            let is_write = before != OpKind::Read;
            let written = payload(1, len_bytes).slice(len_bytes - 64..);
            let expected = if is_write { written } else { payload(5, 64) };
            let is_send = [OpKind::Send, OpKind::InjectedSend].contains(&kind);
            if is_send {
                receive_sent(kind, &bob, 2);
                assert!(region.read_at(END, 64) == expected, "{what}");
                // The read has found the earlier bytes.
                region.write_at(END, &payload(6, 64));
            }
            let (first, second) = expect_completions_1_then_2(&alice);
            assert!(is_write || received_bytes(&first.buffer)[len_bytes - 64..] == expected, "{what}");
            if !is_send {
                check_effect(kind, &bob, &region, &second, &expected);
            }
        }
    }
}

#[over(all)]
fn fenced_operation_completes_after_a_failed_access(net: &Net) {
    let (alice, bob) = net.open_pair();
    let region = bob.open_region(LONG_BYTES, MemoryKind::Raw, 7);
    for kind in OP_KINDS {
        for before in [OpKind::Write, OpKind::Read, OpKind::InjectedWrite] {
            // The earlier access ends one byte beyond the region.
            post_operation(before, &alice, &region, 1, (END + 1, 64), OpFlags::empty());
            post_operation(kind, &alice, &region, 2, (END, 64), with_fence(OpFlags::DELIVERY_COMPLETE));
            assert_eq!(alice.next_failure().completion.context, 1);
            assert_eq!(alice.next_completion().context, 2);
            if [OpKind::Send, OpKind::InjectedSend].contains(&kind) {
                receive_sent(kind, &bob, 2);
            }
        }
    }
}
