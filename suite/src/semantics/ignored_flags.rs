//! Flags that have no meaning for an operation. The operation ignores most of these flags, and refuses some:
//! `fi_msg(3)`, `fi_trigger(3)`.

use super::prelude::*;

/// `FI_TRIGGER` and `FI_XPU_TRIGGER`.
const TRIGGERS: [OpFlags; 2] = [OpFlags::from_bits_retain(1 << 20), OpFlags::from_bits_retain(1 << 44)];
const TRIGGER: OpFlags = TRIGGERS[0].union(TRIGGERS[1]);
const MULTICAST: OpFlags = OpFlags::from_bits_retain(1 << 5);

/// The flags that have a meaning for sends, or are refused.
const OF_SENDS: OpFlags = OpFlags::COMPLETION
    .union(OpFlags::INJECT)
    .union(OpFlags::MORE)
    .union(OpFlags::FENCE)
    .union(OpFlags::REMOTE_CQ_DATA)
    .union(OpFlags::LEVELS);

/// Returns the flags outside `others`: each one alone, and all together.
fn flags_outside(others: OpFlags) -> impl Iterator<Item = OpFlags> {
    let all = OpFlags::from_bits_retain(!(others | TRIGGER).bits());
    let single = (0..u64::BITS).map(|bit| OpFlags::from_bits_retain(1 << bit));
    single.filter(move |flag| all.contains(*flag)).chain([all])
}

/// Shows fi_msg/completion-flag.
#[over(all, own)]
fn send_with_meaningless_flags_arrives(net: &Net) {
    let (alice, bob) = net.open_pair();
    for (context, flags) in (1..).zip(flags_outside(OF_SENDS | MULTICAST)) {
        for tag in [None, Some(Tag(7))] {
            alice.endpoint.sendmsg(SendMsg { tag, ..alice.message(context, 8, flags) }).unwrap();
            bob.post_receive(0, 8, tag, OpFlags::empty());
            assert_eq!(alice.next_completion().context, context, "{flags:?}");
            assert_eq!(received_bytes(&bob.next_completion().buffer), payload(context, 8), "{flags:?}");
        }
    }
    alice.assert_no_completion();
}

#[over(all, own)]
fn receive_with_meaningless_flags_takes_its_message(net: &Net) {
    let (alice, bob) = net.open_pair();
    let levels = OpFlags::LEVELS - OpFlags::MATCH_COMPLETE;
    let of_receives = OpFlags::COMPLETION | OpFlags::MORE | OpFlags::PEEK | OpFlags::CLAIM | levels;
    for tag in [None, Some(Tag(7))] {
        // Tagged receives ignore the multi-receive flag.
        let many = if tag.is_none() { OpFlags::MULTI_RECV } else { OpFlags::empty() };
        for (context, flags) in (1..).zip(flags_outside(of_receives | many)) {
            let later = context + 1000;
            bob.post_receive(context, 8, tag, flags);
            let (tag_bits, flags) = (tag.map(|tag| tag.0), Some(flags));
            let post = Post { peer: ANY, tag: tag_bits, data: None, context: later, flags };
            let raw = bob.endpoint.receive_into_raw_memory(&[8], 0, post).unwrap();
            for identity in [1, 2] {
                let message = alice.message(identity, 8, OpFlags::empty());
                alice.send_and_wait_for_delivery(SendMsg { tag, ..message });
            }
            let (first, second) = (bob.next_completion(), bob.next_completion());
            assert_eq!((first.context, second.context), (context, later), "{flags:?}");
            assert!(!first.flags.contains(CompletionFlags::MULTI_RECV), "{flags:?}");
            assert_eq!(received_bytes(&first.buffer), payload(1, 8), "{flags:?}");
            assert_eq!(raw.into_message(&second), payload(2, 8), "{flags:?}");
        }
    }
    bob.assert_no_completion();
}

#[over(all, own)]
fn access_with_meaningless_flags_takes_effect(net: &Net) {
    let (alice, bob) = net.open_pair();
    let of_reads = OF_SENDS - OpFlags::INJECT - OpFlags::REMOTE_CQ_DATA;
    for kind in [MemoryKind::Owned, MemoryKind::Shareable] {
        let region = bob.open_region(8, kind, 1);
        for (context, flags) in (1..).zip(flags_outside(OF_SENDS | MULTICAST)) {
            for (by, context) in [(RmaBy::Writemsg, context), (RmaBy::WriteRaw, context + 1000)] {
                let call = RmaCall::new(by, payload(context, 8), alice.peer(), &region, context);
                alice.access(RmaCall { flags, ..call });
                assert_eq!(region.content(), payload(context, 8), "{flags:?}");
            }
        }
        for (context, flags) in (1..).zip(flags_outside(of_reads | MULTICAST)) {
            let call = RmaCall::new(RmaBy::Readmsg, payload(0, 8), alice.peer(), &region, context);
            let read = alice.access(RmaCall { flags, ..call });
            assert_eq!(received_bytes(&read.buffer), region.content(), "{flags:?}");
        }
    }
    alice.assert_no_completion();
    bob.assert_no_completion();
}

/// Shows fi_cq/flag-multicast, fi_cq/commit-means-durable, fi_msg/multicast-transfers.
#[over(all, own)]
fn trigger_multicast_and_commit_flags_are_refused(net: &Net) {
    let (alice, bob) = net.open_pair();
    let region = bob.open_region(8, MemoryKind::Owned, 1);
    let commit = OpFlags::COMMIT_COMPLETE;
    for flags in [TRIGGERS[0], TRIGGERS[1], MULTICAST, TRIGGER | MULTICAST, commit] {
        for tag in [None, Some(Tag(7))] {
            // A fence makes nothing durable, either.
            let send = alice.message(1, 8, flags | OpFlags::PEEK | OpFlags::FENCE);
            expect_error(alice.endpoint.sendmsg(SendMsg { tag, ..send }), Errno::EBADFLAGS);
        }
        let all = [RmaBy::Readmsg, RmaBy::Writemsg, RmaBy::WriteRaw];
        for by in if flags == commit { &all[..1] } else { &all } {
            let call = RmaCall::new(*by, payload(1, 8), alice.peer(), &region, 1);
            let refused = alice.endpoint.rma(RmaCall { flags, ..call });
            assert_eq!(expect_errno(refused), Errno::EBADFLAGS, "{by:?}");
        }
    }
    for flags in [TRIGGERS[0], TRIGGERS[1], MULTICAST, commit] {
        for kind in AtomicKind::ALL {
            let op = if kind == AtomicKind::Compare { AtomicOp::Cswap } else { AtomicOp::Sum };
            let what = (op, Datatype::Uint64);
            let call = AtomicCall::new(kind, what, payload(1, 8), alice.peer(), &region, 1);
            let refused = alice.endpoint.atomic(AtomicCall { by: AtomicBy::Message, flags, ..call });
            assert_eq!(expect_errno(refused), Errno::EBADFLAGS, "{kind}");
        }
    }
    let many = OpFlags::MULTI_RECV;
    for kind in [OpFlags::empty(), OpFlags::PEEK, OpFlags::CLAIM, many] {
        for tagged in [None, Some(Tag(7).into())] {
            for refused in [TRIGGER, commit] {
                let (buffers, flags) = (vec![marked_buffer(8)], refused | kind);
                let receive = RecvMsg { buffers, tagged, flags, ..RecvMsg::default() };
                assert_eq!(expect_errno(bob.endpoint.recvmsg(receive)), Errno::EBADFLAGS, "{kind:?}");
            }
        }
    }
    assert_eq!(region.content(), marked_buffer(8));
    // None of these calls posted anything.
    alice.exchange_long_messages(&bob);
    alice.assert_no_completion();
    bob.assert_no_completion();
}
