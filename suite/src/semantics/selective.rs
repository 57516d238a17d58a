//! Selective completion: `FI_SELECTIVE_COMPLETION` of `fi_endpoint(3)`.

use super::prelude::*;

/// Shows fi_endpoint/selective-completion, fi_msg/context-without-completion-is-ignored,
/// fi_msg/completion-flag.
#[over(all)]
fn success_is_reported_only_with_the_completion_flag(net: &Net) {
    let (alice, bob) = net.open_equal_pair(Setup::selective());
    bob.post_receives([1], 64);
    bob.post_receive(2, 64, None, OpFlags::COMPLETION);
    bob.post_receives([3], 64);
    alice.endpoint.send(payload(1, 64), alice.peer(), 1).unwrap();
    alice.post_send(2, 64, OpFlags::empty());
    alice.post_send(3, 64, OpFlags::COMPLETION);
    assert_eq!(alice.next_completion().context, 3);
    bob.expect_message(2, &payload(2, 64));
    alice.assert_no_completion();
    bob.assert_no_completion();
    let has_ended = bob.endpoint.cancel(3).is_err();
    assert!(has_ended || !bob.is_homespun(), "the third has taken the third message");
}

/// A level decides when a completion may appear. It does not request a completion.
/// Shows fi_cq/level-requests-no-completion.
#[over(all)]
fn completion_level_alone_requests_no_completion(net: &Net) {
    let (alice, bob) = net.open_equal_pair(Setup::selective());
    for (context, level) in (1..).zip(LEVELS) {
        // Send once with a level of the call, and once with a default level.
        alice.post_send(context, 64, level);
        alice.endpoint.set_tx_op_flags(level).unwrap();
        alice.endpoint.send(payload(context, 64), alice.peer(), context).unwrap();
        for _ in 0..2 {
            bob.post_receive(context, 64, None, OpFlags::COMPLETION);
            assert_eq!(received_bytes(&bob.next_completion().buffer), payload(context, 64));
        }
        alice.assert_no_completion();
        bob.post_receive(10, 64, None, OpFlags::empty());
        alice.post_send(context, 64, level | OpFlags::COMPLETION);
        assert_eq!(alice.next_completion().context, context, "{level:?} with a completion");
    }
    // A level does not request a completion for receives either.
    bob.post_receive(0, 64, None, OpFlags::DELIVERY_COMPLETE);
    alice.endpoint.send(payload(1, 64), alice.peer(), 1).unwrap();
    bob.assert_no_completion();
    alice.assert_no_completion();
}

/// Shows fi_msg/call-flags-replace-defaults, fi_tagged/tagged-flags-replace-defaults.
#[over(all)]
fn flags_of_a_call_replace_the_default_flags(net: &Net) {
    let (alice, bob) = net.open_equal_pair(Setup::selective());
    alice.endpoint.set_tx_op_flags(OpFlags::COMPLETION).unwrap();
    bob.endpoint.set_rx_op_flags(OpFlags::COMPLETION).unwrap();
    let (to, tag) = (alice.peer(), Tag(7));
    for (context, tag) in [(1, None), (3, Some(tag))] {
        bob.post_receive(context, 64, tag, OpFlags::empty());
        let send = alice.message(context, 64, OpFlags::empty());
        alice.endpoint.sendmsg(SendMsg { tag, ..send }).unwrap();
    }
    bob.endpoint.recv(marked_buffer(64), ANY, 2).unwrap();
    bob.endpoint.trecv(marked_buffer(64), ANY, tag, 4).unwrap();
    alice.endpoint.send(payload(2, 64), to, 2).unwrap();
    alice.endpoint.tsend(payload(4, 64), to, tag, 4).unwrap();
    for party in [&alice, &bob] {
        party.expect_in_order([2, 4]);
        party.assert_no_completion();
    }
}

/// Shows fi_cq/inject-level-is-not-inject-call, fi_msg/inject-frees-and-hides,
/// fi_tagged/tinject-frees-and-hides.
#[over(all)]
fn inject_call_reports_no_success(net: &Net) {
    let (alice, bob) = net.open_equal_pair(Setup::selective());
    // Injecting ignores both flags: it reports no completion.
    alice.endpoint.set_tx_op_flags(OpFlags::COMPLETION | OpFlags::INJECT_COMPLETE).unwrap();
    for tag in [None, Some(Tag(7))] {
        bob.post_receive(1, 64, tag, OpFlags::COMPLETION);
        alice.endpoint.inject(&payload(1, 64), alice.peer(), tag, None).unwrap();
        assert_eq!(bob.next_completion().context, 1);
        alice.assert_no_completion();
    }
    // `FI_INJECT` concerns only the buffer.
    bob.post_receive(2, 64, None, OpFlags::COMPLETION);
    alice.post_send(2, 64, OpFlags::INJECT | OpFlags::COMPLETION);
    assert_eq!(alice.next_completion().context, 2);
    assert_eq!(bob.next_completion().context, 2);
}

/// Shows fi_cq/errors-are-always-reported, fi_endpoint/failure-is-reported.
#[over(all)]
fn failure_is_always_reported(net: &Net) {
    let (alice, _bob) = net.open_equal_pair(Setup::selective());
    if alice.is_homespun() {
        let (_vacancy, absent) = net.insert_vacant_address(&alice);
        alice.endpoint.send(payload(1, 64), absent, 1).unwrap();
        alice.expect_failure(1, Errno::ECONNREFUSED);
    }
    alice.endpoint.recv(marked_buffer(8), ANY, 2).unwrap();
    alice.endpoint.cancel(2).unwrap();
    assert_eq!(alice.next_failure().errno(), Errno::ECANCELED);
}
