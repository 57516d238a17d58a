//! Completion order: `comp_order` of `fi_endpoint(3)`. Sends and accesses to one peer complete in posting
//! order.

use super::prelude::*;

fn in_order_setup() -> Setup {
    Setup { completes_in_order: true, ..Setup::default() }
}

/// Shows fi_endpoint/completion-order.
#[over(all)]
fn sends_and_accesses_complete_in_posting_order(net: &Net) {
    const COUNT: u64 = 60;
    let (alice, bob, carol) = (net.open_party_with(in_order_setup()), net.open_party(), net.open_party());
    let peers = [(&bob, alice.insert_address_of(&bob)), (&carol, alice.insert_address_of(&carol))];
    let regions =
        [bob.open_region(100_000, MemoryKind::Raw, 1), carol.open_region(100_000, MemoryKind::Shareable, 2)];
    let mut messages = [0, 0];
    for context in 0..COUNT {
        let whom = (context % 2) as usize;
        let (to, region) = (peers[whom].1, &regions[whom]);
        let len_bytes = [8, 60_000, 3000][context as usize % 3];
        let (by, flags) = [
            (Some(RmaBy::Write), OpFlags::empty()),
            (None, OpFlags::INJECT_COMPLETE),
            (None, OpFlags::MATCH_COMPLETE),
            (Some(RmaBy::Read), OpFlags::empty()),
            (None, OpFlags::DELIVERY_COMPLETE),
            (None, OpFlags::INJECT_COMPLETE),
        ][context as usize / 2 % 6];
        if let Some(by) = by {
            let bytes = payload(context, len_bytes);
            alice.endpoint.rma(RmaCall::new(by, bytes, to, region, context)).unwrap();
        } else {
            alice.endpoint.sendmsg(SendMsg { to, ..alice.message(context, len_bytes, flags) }).unwrap();
            messages[whom] += 1;
        }
    }
    // Bob receives all his messages before carol posts her first receive.
    for ((party, _), count) in peers.iter().zip(messages) {
        party.post_receives(0..count, 60_000);
        party.await_completions(count as usize);
    }
    let completed = (0..COUNT).map(|_| alice.next_completion().context);
    let (of_bob, of_carol): (Vec<u64>, Vec<u64>) = completed.partition(|context| context % 2 == 0);
    assert_eq!([of_bob, of_carol], [0, 1].map(|first| (first..COUNT).step_by(2).collect::<Vec<_>>()));
    alice.assert_no_completion();
}

#[over(all)]
fn failed_access_completes_in_posting_order(net: &Net) {
    let (alice, bob) = net.open_pair_with(in_order_setup(), Setup::default());
    let region = bob.open_region(100_000, MemoryKind::Owned, 1);
    let call = RmaCall::new(RmaBy::Write, payload(1, 8), alice.peer(), &region, 1);
    alice.endpoint.rma(RmaCall { key: 99, ..call }).unwrap();
    alice.post_send(2, 8, OpFlags::INJECT_COMPLETE);
    bob.receive(3, 8);
    alice.expect_failure(1, Errno::EKEYREJECTED);
    assert_eq!(alice.next_completion().context, 2);
}

#[over(driven)]
fn operation_awaiting_earlier_completions_counts_towards_the_depth(net: &Net) {
    let (alice, bob) = net.open_pair_with(Setup { tx_depth_ops: 3, ..in_order_setup() }, Setup::asleep());
    alice.post_send(1, 8, OpFlags::DELIVERY_COMPLETE);
    alice.post_send(2, 8, OpFlags::INJECT_COMPLETE);
    alice.post_send(3, 8, OpFlags::INJECT_COMPLETE);
    alice.assert_no_completion();
    expect_error(alice.endpoint.send(payload(4, 8), alice.peer(), 4), Errno::EAGAIN);
    net.start_driving(&bob);
    alice.expect_in_order(1..=3);
}
