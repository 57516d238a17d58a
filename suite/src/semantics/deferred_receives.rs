//! Peeks, claims and multi-receive buffers as deferred work: `fi_trigger(3)`.

use super::prelude::*;
use super::triggered::{
    await_counts, make_post_work, open_counter, open_triggering_pair, queue_work, trigger_at,
};

const TAG: Tag = Tag(7);
const CONTEXT: u64 = 5;

/// Lengths of messages that use every protocol.
const LENS_BYTES: [usize; 4] = [0, 300, 100_000, 1 << 20];

/// A party that defers receives until `trigger` reaches a threshold. `done` counts the receives that have
/// ended.
struct Deferring {
    party: Party,
    trigger: Counter,
    done: Counter,
}

impl Deferring {
    fn new(party: Party) -> Deferring {
        let (trigger, done) = (open_counter(&party), open_counter(&party));
        Deferring { party, trigger, done }
    }

    /// Defers a receive, peek, claim or discard until the counter has reached a threshold.
    fn defer(&self, threshold: u64, receive: RecvMsg) {
        let trigger = trigger_at(&self.trigger, threshold);
        queue_work(
            &self.party,
            make_post_work(trigger, &self.party, Operation::Receive(receive), &self.done),
        );
    }

    fn defer_tagged(&self, threshold: u64, buffers: Vec<BytesMut>, flags: OpFlags) {
        let tagged = Some(TAG.into());
        self.defer(threshold, RecvMsg { tagged, buffers, context: CONTEXT, flags, ..RecvMsg::default() });
    }

    fn trigger_next(&self) {
        self.party.assert_no_completion();
        self.trigger.add(1);
    }
}

#[over(one_process)]
fn deferred_claim_receives_the_message_that_a_deferred_peek_claimed(net: &Net) {
    for len_bytes in LENS_BYTES {
        let (alice, bob) = open_triggering_pair(net);
        let alice = Deferring::new(alice);
        let flags = OpFlags::COMPLETION;
        let room = || vec![marked_buffer(len_bytes)];
        alice.defer_tagged(1, vec![], flags | OpFlags::PEEK);
        alice.defer_tagged(2, vec![], flags | OpFlags::PEEK | OpFlags::CLAIM);
        alice.defer_tagged(3, room(), flags | OpFlags::CLAIM);
        alice.defer_tagged(4, vec![], flags | OpFlags::PEEK | OpFlags::CLAIM);
        alice.defer_tagged(5, vec![], flags | OpFlags::CLAIM | OpFlags::DISCARD);
        alice.defer_tagged(6, room(), flags | OpFlags::CLAIM);
        for identity in [1, 2] {
            bob.deliver_tagged(TAG.0, identity, len_bytes);
        }
        for step in 1..=5 {
            alice.trigger_next();
            let completion = alice.party.next_completion();
            assert_eq!((completion.context, completion.tag), (CONTEXT, TAG), "step {step}");
            if step == 3 {
                assert!(received_bytes(&completion.buffer) == payload(1, len_bytes));
            }
            await_counts(&alice.party, &alice.done, (step, 0));
        }
        // No message is claimed any more.
        alice.trigger_next();
        let failed = alice.party.next_failure();
        assert!(matches!(failed.error, OperationError::Deferred(_)), "{failed:?}");
        assert_eq!((failed.errno(), failed.completion.context), (Errno::ENOENT, CONTEXT));
        assert_eq!(failed.completion.buffer, Buffer::ReceivedVector(room()));
        await_counts(&alice.party, &alice.done, (5, 1));
        // Of these works only the claims are receives, which the endpoint counts.
        alice.party.wait_for_exact_counts(&[(RECV, (1, 1))]);
    }
}

#[over(one_process)]
fn deferred_peeks_and_claims_are_counted_but_not_reported_by_default(net: &Net) {
    let (alice, bob) = open_triggering_pair(net);
    let alice = Deferring::new(alice);
    alice.defer_tagged(1, vec![], OpFlags::PEEK | OpFlags::CLAIM);
    alice.defer_tagged(2, vec![marked_buffer(8)], OpFlags::CLAIM);
    alice.defer_tagged(3, vec![], OpFlags::PEEK);
    bob.deliver_tagged(TAG.0, 1, 8);
    for step in 1..=2 {
        alice.trigger_next();
        await_counts(&alice.party, &alice.done, (step, 0));
    }
    // A failure is reported in any case.
    alice.trigger_next();
    let failed = alice.party.next_failure();
    assert_eq!((failed.error, failed.completion.context), (OperationError::NoMessage, CONTEXT));
    await_counts(&alice.party, &alice.done, (2, 1));
    alice.party.assert_no_completion();
    alice.party.wait_for_exact_counts(&[]);
}

#[over(one_process)]
fn application_receives_what_a_deferred_peek_claimed(net: &Net) {
    let (alice, bob) = open_triggering_pair(net);
    let alice = Deferring::new(alice);
    alice.defer_tagged(0, vec![], OpFlags::PEEK | OpFlags::CLAIM | OpFlags::COMPLETION);
    assert_eq!(alice.party.next_failure().error, OperationError::NoMessage);
    bob.deliver_tagged(TAG.0, 1, 300);
    alice.defer_tagged(0, vec![], OpFlags::PEEK | OpFlags::CLAIM | OpFlags::COMPLETION);
    assert_eq!(alice.party.next_completion().context, CONTEXT);
    let claim = RecvMsg {
        tagged: Some(TAG.into()),
        buffers: vec![marked_buffer(300)],
        context: CONTEXT,
        flags: OpFlags::CLAIM,
        ..RecvMsg::default()
    };
    alice.party.endpoint.recvmsg(claim).unwrap();
    let received = alice.party.next_completion();
    assert_eq!((received.context, received_bytes(&received.buffer)), (CONTEXT, payload(1, 300).to_vec()));
    await_counts(&alice.party, &alice.done, (1, 1));
}

#[over(one_process)]
fn deferred_multi_receive_completes_at_the_release_of_its_buffer(net: &Net) {
    for flags in [OpFlags::COMPLETION, OpFlags::empty()] {
        let (alice, bob) = open_triggering_pair(net);
        let alice = Deferring::new(alice);
        let flags = flags | OpFlags::MULTI_RECV;
        let buffers = vec![marked_buffer(100)];
        alice.party.endpoint.set_min_multi_recv_bytes(30);
        alice.defer(1, RecvMsg { buffers, context: CONTEXT, flags, ..RecvMsg::default() });
        bob.deliver(1, 40);
        alice.trigger_next();
        bob.endpoint.send(payload(2, 40), bob.peer(), 2).unwrap();
        for identity in [1, 2] {
            let message = alice.party.next_completion();
            assert_eq!(message.context, CONTEXT);
            assert!(!message.flags.contains(CompletionFlags::MULTI_RECV), "{message:?}");
            assert_eq!(received_bytes(&message.buffer), payload(identity, 40));
        }
        await_counts(&alice.party, &alice.done, (1, 0));
        if flags.contains(OpFlags::COMPLETION) {
            let release = alice.party.next_completion();
            assert_eq!((release.context, release.flags), (CONTEXT, CompletionFlags::MULTI_RECV));
            assert_eq!(release.buffer, Buffer::Unused(marked_buffer(20)));
        }
        alice.party.assert_no_completion();
        alice.party.wait_for_exact_counts(&[(RECV, (2, 0))]);
    }
}

#[over(one_process)]
fn deferred_multi_receive_buffer_is_cancelled_by_its_context(net: &Net) {
    let (alice, _bob) = open_triggering_pair(net);
    let alice = Deferring::new(alice);
    let (buffers, flags) = (vec![marked_buffer(100)], OpFlags::MULTI_RECV);
    alice.defer(0, RecvMsg { buffers, context: CONTEXT, flags, ..RecvMsg::default() });
    assert_eq!(alice.done.read(), 0);
    alice.party.endpoint.cancel(CONTEXT).unwrap();
    let failed = alice.party.next_failure();
    assert_eq!((failed.error, failed.completion.context), (OperationError::Cancelled, CONTEXT));
    assert_eq!(failed.completion.buffer, Buffer::Unused(marked_buffer(100)));
    await_counts(&alice.party, &alice.done, (0, 1));
    alice.party.wait_for_exact_counts(&[]);
}
