//! Peeks, claims and multi-receive buffers as deferred work: `fi_trigger(3)`.

use super::prelude::*;
use super::triggered::{await_counts, defer, open_counter, open_triggering_pair};

const TAG: Tag = Tag(7);
const CONTEXT: u64 = 5;

#[over(one_process)]
fn deferred_claim_receives_the_message_that_a_deferred_peek_claimed(net: &Net) {
    let (peek, claim) = (OpFlags::PEEK, OpFlags::CLAIM);
    // These lengths use every protocol.
    for len_bytes in [0, 300, 100_000, 1 << 20] {
        let (alice, bob) = open_triggering_pair(net);
        let (trigger, done) = (open_counter(&alice), open_counter(&alice));
        let room = || vec![marked_buffer(len_bytes)];
        let steps = [peek, peek | claim, claim, peek | claim, claim | OpFlags::DISCARD, claim];
        for (threshold, flags) in (1..).zip(steps) {
            let buffers = if flags == claim { room() } else { vec![] };
            let (tagged, flags) = (Some(TAG.into()), flags | OpFlags::COMPLETION);
            let receive = RecvMsg { tagged, buffers, context: CONTEXT, flags, ..RecvMsg::default() };
            defer(&alice, (&trigger, threshold), Operation::Receive(receive), &done);
        }
        [1, 2].into_iter().for_each(|identity| bob.deliver_tagged(TAG.0, identity, len_bytes));
        for step in 1..=5 {
            alice.assert_no_completion();
            trigger.add(1);
            let completion = alice.next_completion();
            assert_eq!((completion.context, completion.tag), (CONTEXT, TAG), "step {step}");
            if step == 3 {
                assert!(received_bytes(&completion.buffer) == payload(1, len_bytes));
            }
            await_counts(&alice, &done, (step, 0));
        }
        // No message is claimed any more.
        alice.assert_no_completion();
        trigger.add(1);
        let failed = alice.next_failure();
        assert!(matches!(failed.error, OperationError::Deferred(_)), "{failed:?}");
        assert_eq!((failed.errno(), failed.completion.context), (Errno::ENOENT, CONTEXT));
        assert_eq!(failed.completion.buffer, Buffer::ReceivedVector(room()));
        await_counts(&alice, &done, (5, 1));
        // Of these works only the claims are receives, which the endpoint counts.
        alice.wait_for_exact_counts(&[(RECV, (1, 1))]);
    }
}

#[over(one_process)]
fn deferred_multi_receive_completes_at_the_release_of_its_buffer(net: &Net) {
    for flags in [OpFlags::COMPLETION, OpFlags::empty()] {
        let (alice, bob) = open_triggering_pair(net);
        let (trigger, done) = (open_counter(&alice), open_counter(&alice));
        let (buffers, flags) = (vec![marked_buffer(100)], flags | OpFlags::MULTI_RECV);
        alice.endpoint.set_min_multi_recv_bytes(30);
        let receive = RecvMsg { buffers, context: CONTEXT, flags, ..RecvMsg::default() };
        defer(&alice, (&trigger, 1), Operation::Receive(receive), &done);
        bob.deliver(1, 40);
        alice.assert_no_completion();
        trigger.add(1);
        bob.endpoint.send(payload(2, 40), bob.peer(), 2).unwrap();
        for identity in [1, 2] {
            let message = alice.next_completion();
            assert_eq!(message.context, CONTEXT);
            assert!(!message.flags.contains(CompletionFlags::MULTI_RECV), "{message:?}");
            assert_eq!(received_bytes(&message.buffer), payload(identity, 40));
        }
        await_counts(&alice, &done, (1, 0));
        if flags.contains(OpFlags::COMPLETION) {
            let release = alice.next_completion();
            assert_eq!((release.context, release.flags), (CONTEXT, CompletionFlags::MULTI_RECV));
            assert_eq!(release.buffer, Buffer::Unused(marked_buffer(20)));
        }
        alice.assert_no_completion();
        alice.wait_for_exact_counts(&[(RECV, (2, 0))]);
    }
}
