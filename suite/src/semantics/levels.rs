//! Completion levels, which say when a send may complete: `fi_cq(3)`.

use super::failures::assert_link_ended;
use super::prelude::*;

/// Lengths of messages that use every protocol. Together they fit into the receiver's budget.
const LENS_BYTES: [usize; 6] = [0, 100, 9000, 100_000, 300_000, 1 << 20];

/// Opens a sender, and a receiver that makes no progress yet.
fn open_pair_with_sleeping_receiver(net: &Net, tx_op_flags: OpFlags) -> (Party, Party) {
    net.open_pair_with(Setup { tx_op_flags, ..Setup::default() }, Setup::asleep())
}

/// The sender posts bursts and then makes no call, as an application does that computes, or that blocks in
/// a system call.
#[over(in_turns, room)]
fn injected_bursts_arrive_without_further_calls_of_the_sender(net: &Net) {
    let (alice, bob) = net.open_pair_with(Setup::asleep(), Setup::default());
    bob.endpoint.trecv(marked_buffer(50), ANY, Tag(0), 0).unwrap();
    alice.endpoint.inject(&payload(0, 50), alice.peer(), Some(Tag(0)), None).unwrap();
    let first = poll_until("the first message", || {
        // The link may not be up yet.
        alice.cq.progress();
        bob.poll_completion()
    });
    first.expect("it arrives");
    for burst in [1..3, 3..23] {
        for tag in burst.clone() {
            alice.endpoint.inject(&payload(tag, 50), alice.peer(), Some(Tag(tag)), None).unwrap();
        }
        burst.for_each(|tag| bob.receive_tagged(tag, 50));
    }
}

/// The receiver closes before it has made progress, so the message is lost. The sender gets no error.
/// Shows fi_cq/inject-promises-no-more.
#[over(driven, own)]
fn inject_complete_message_is_lost_without_error_when_the_receiver_closes(net: &Net) {
    let (alice, bob) = open_pair_with_sleeping_receiver(net, OpFlags::empty());
    alice.post_send(1, 100, OpFlags::INJECT_COMPLETE);
    assert_eq!(alice.next_completion().context, 1);
    alice.post_send(2, 100, OpFlags::TRANSMIT_COMPLETE);
    drop(bob);
    let failed = alice.next_failure();
    assert_eq!(failed.completion.context, 2, "it would have been transmitted behind the first");
    assert_link_ended(&failed);
    alice.assert_no_completion();
}

/// Shows fi_cq/inject-is-fastest, fi_cq/level-is-a-minimum, fi_cq/transmit-of-reliable-endpoint,
/// fi_cq/delivery-means-processed.
#[over(driven, own)]
fn transmit_and_delivery_levels_wait_for_the_receiver(net: &Net) {
    for flags in [OpFlags::TRANSMIT_COMPLETE, OpFlags::DELIVERY_COMPLETE] {
        let (alice, bob) = open_pair_with_sleeping_receiver(net, OpFlags::empty());
        alice.post_send(1, 100, flags);
        alice.assert_no_completion();
        // Later small sends that need no more than a free buffer complete before this one.
        let early = [OpFlags::empty(), OpFlags::INJECT_COMPLETE, OpFlags::INJECT];
        for (context, flags) in (2..).zip(early) {
            alice.post_send(context, 100, flags);
            assert_eq!(alice.next_completion().context, context);
        }
        alice.assert_no_completion();
        net.start_driving(&bob);
        assert_eq!(alice.next_completion().context, 1);
        alice.assert_no_completion();
        // Neither level needs a receive.
        for (context, len_bytes) in (5..).zip(LENS_BYTES) {
            alice.post_send(context, len_bytes, flags);
            assert_eq!(alice.next_completion().context, context);
        }
        bob.assert_no_completion();
    }
}

/// Shows fi_endpoint/set-op-flags, fi_endpoint/default-flags.
#[over(driven, own)]
fn default_level_comes_from_the_endpoint(net: &Net) {
    let (alice, bob) = open_pair_with_sleeping_receiver(net, OpFlags::DELIVERY_COMPLETE);
    assert_eq!(alice.endpoint.tx_op_flags(), OpFlags::DELIVERY_COMPLETE);
    alice.endpoint.send(payload(1, 8), alice.peer(), 1).unwrap();
    // Flags without a level keep the default level.
    alice.post_send(2, 100, OpFlags::COMPLETION);
    alice.assert_no_completion();
    alice.post_send(3, 100, OpFlags::INJECT_COMPLETE);
    assert_eq!(alice.next_completion().context, 3);
    alice.endpoint.set_tx_op_flags(OpFlags::empty()).unwrap();
    alice.send(4, payload(4, 8));
    alice.assert_no_completion();
    net.start_driving(&bob);
    alice.expect_in_order([1, 2]);
}

/// Shows fi_cq/match-may-be-missing, fi_endpoint/default-flags.
#[over(all)]
fn match_may_be_the_default_level(net: &Net) {
    let tx_op_flags = OpFlags::MATCH_COMPLETE;
    let (alice, bob) = net.open_pair_with(Setup { tx_op_flags, ..Setup::default() }, Setup::default());
    assert_eq!(alice.endpoint.tx_op_flags(), OpFlags::MATCH_COMPLETE);
    alice.endpoint.tsend(payload(1, 8), alice.peer(), Tag(1), 1).unwrap();
    alice.assert_no_completion();
    alice.post_tagged(2, 8, OpFlags::DELIVERY_COMPLETE);
    assert_eq!(alice.next_completion().context, 2);
    alice.assert_no_completion();
    bob.receive_tagged(1, 8);
    assert_eq!(alice.next_completion().context, 1);
}

/// Of several levels, the strongest applies.
/// Shows fi_cq/level-is-a-minimum, fi_cq/match-means-matched, fi_tagged/tagged-match-or-discard.
#[over(all)]
fn match_level_needs_a_posted_receive(net: &Net) {
    let (alice, bob) = net.open_pair();
    let several = OpFlags::LEVELS - OpFlags::COMMIT_COMPLETE;
    for (tag, len_bytes) in (1..).zip(LENS_BYTES.into_iter().chain([(5 << 20) + 1])) {
        alice.post_tagged(tag, len_bytes, if tag % 2 == 0 { several } else { OpFlags::MATCH_COMPLETE });
        alice.assert_no_completion();
        bob.receive_tagged(tag, len_bytes);
        assert_eq!(alice.next_completion().context, tag);
        // The same holds if the receive is posted first.
        bob.endpoint.recv(marked_buffer(len_bytes), ANY, tag).unwrap();
        alice.post_send(tag, len_bytes, OpFlags::MATCH_COMPLETE);
        assert_eq!(alice.next_completion().context, tag);
        assert!(received_bytes(&bob.next_completion().buffer) == payload(tag, len_bytes));
    }
    alice.assert_no_completion();
}

/// Shows fi_cq/match-depends-on-receiver.
#[over(all)]
fn unmatched_send_delays_no_later_match(net: &Net) {
    let (alice, bob) = net.open_pair();
    let messages: Vec<(u64, usize)> = (1..).zip([LENS_BYTES, LENS_BYTES].concat()).collect();
    messages.iter().for_each(|&(tag, len_bytes)| alice.post_tagged(tag, len_bytes, OpFlags::MATCH_COMPLETE));
    // The waiting sends do not delay a send of another level either.
    alice.endpoint.tsend(payload(99, 8), alice.peer(), Tag(99), 99).unwrap();
    assert_eq!(alice.next_completion().context, 99);
    bob.receive_tagged(99, 8);
    alice.assert_no_completion();
    for &(tag, len_bytes) in messages.iter().rev() {
        bob.receive_tagged(tag, len_bytes);
        assert_eq!(alice.next_completion().context, tag);
    }
    alice.assert_no_completion();
}

/// The receive may have any level, too.
/// Shows fi_cq/inject-level-is-not-inject-call, fi_cq/visible-means-delivered,
/// fi_cq/receive-completion-means-readable, fi_cq/receive-level-delays-flush,
/// fi_msg/receive-level-may-be-lower.
#[over(all)]
fn every_kind_of_message_completes_at_every_level(net: &Net) {
    let (alice, bob) = net.open_pair();
    let mut context = 0;
    for flags in LEVELS_AND_NONE {
        for len_bytes in LENS_BYTES {
            for (tag, data) in [(None, None), (Some(Tag(7)), None), (None, Some(8)), (Some(Tag(0)), Some(0))]
            {
                context += 1;
                let send = alice.message(context, len_bytes, flags);
                alice.endpoint.sendmsg(SendMsg { tag, data, ..send }).unwrap();
                // The next message of the same kind has another level.
                let of_receive = LEVELS_AND_NONE[(context / 4 % 4) as usize];
                bob.post_receive(context, len_bytes, tag, of_receive);
                let completion = bob.expect_message(context, &payload(context, len_bytes));
                let kind = if tag.is_some() { CompletionFlags::TAGGED } else { CompletionFlags::MSG };
                let mut expected = CompletionFlags::RECV | kind;
                expected.set(CompletionFlags::REMOTE_CQ_DATA, data.is_some());
                assert_eq!(completion.flags, expected);
                assert_eq!((completion.tag, completion.data), (tag.unwrap_or(Tag(0)), data.unwrap_or(0)));
                assert_eq!(alice.next_completion().context, context);
            }
        }
    }
    alice.assert_no_completion();
}

#[over(all)]
fn messages_to_own_endpoint_complete_at_every_level(net: &Net) {
    let narcissus = net.open_party();
    let own = narcissus.insert_address_of(&narcissus);
    for (n, level) in (0..).zip(LEVELS_AND_NONE) {
        for (tag, len_bytes) in (10 * n..).zip(LENS_BYTES) {
            narcissus.post_tagged(tag, len_bytes, level);
            let needs_a_receive = level == OpFlags::MATCH_COMPLETE;
            // Another provider may complete a send of any level as late as its match.
            let completes_early = !needs_a_receive && narcissus.is_homespun();
            if completes_early {
                assert_eq!(narcissus.next_completion().context, tag);
            } else if needs_a_receive {
                narcissus.assert_no_completion();
            }
            narcissus.endpoint.trecv(marked_buffer(len_bytes), own, Tag(tag), 1000 + tag).unwrap();
            let (sends, receives) =
                narcissus.next_completions_of_sends_and_others(1 + usize::from(!completes_early));
            assert!(sends.iter().all(|send| send.context == tag));
            assert_eq!(receives[0].context, 1000 + tag);
            assert!(received_bytes(&receives[0].buffer) == payload(tag, len_bytes));
        }
    }
    narcissus.assert_no_completion();
}
