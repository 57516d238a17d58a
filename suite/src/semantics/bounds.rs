//! Completion queues are bounded, and no completion is lost: `FI_RM_ENABLED` of `fi_domain(3)`.

use super::prelude::*;

/// Sends a message that completes only when the receiver has it.
pub(crate) fn post_delivery_complete_send(party: &Party, context: u64) -> Result<(), Error> {
    party.endpoint.sendmsg(party.message(context, 24, OpFlags::DELIVERY_COMPLETE))
}

/// Shows fi_msg/eagain-for-full-queue.
#[over(all, own)]
fn sends_stay_outstanding_until_the_queue_has_room(net: &Net) {
    let (depth, tx_depth_ops, count) = (4, 10, 60);
    let setup = Setup { cq_depth_entries: depth, tx_depth_ops, ..Setup::default() };
    let (alice, bob) = net.open_pair_with(setup, Setup::default());
    assert_eq!(alice.cq.depth_entries(), depth);
    bob.post_receives(0..count, 10_000);
    let len_bytes = |n: u64| n as usize * 150;
    let (mut sent, mut refused) = (0, 0);
    // Completions come in any order.
    let mut contexts = Vec::new();
    let deadline = Deadline::new();
    while contexts.len() < count as usize {
        // Keep the queue full. Some of these sends complete at post time, and others later.
        while sent < count {
            if let Err(full) = alice.endpoint.send(payload(sent, len_bytes(sent)), alice.peer(), sent) {
                assert_eq!(full.errno(), Errno::EAGAIN);
                let left = sent as usize - contexts.len();
                assert!(left >= tx_depth_ops, "what waits is outstanding");
                assert!(left <= tx_depth_ops + depth, "what is in the queue is not");
                refused += 1;
                break;
            }
            sent += 1;
        }
        bob.cq.progress();
        contexts.extend(alice.poll_completion().map(|ended| ended.unwrap().0.context));
        deadline.yield_or_panic("sends");
    }
    assert!(refused > 0);
    contexts.sort_unstable();
    assert_eq!(contexts, (0..count).collect::<Vec<_>>());
    let taken = (0..count).map(|_| bob.next_completion());
    let taken = taken.map(|taken| (taken.context, received_bytes(&taken.buffer))).collect::<BTreeMap<_, _>>();
    let expected = (0..count).map(|n| (n, payload(n, len_bytes(n)).to_vec())).collect::<BTreeMap<_, _>>();
    assert!(taken == expected, "each message arrives once, whole");
    bob.assert_no_completion();
    alice.assert_no_completion();
}

#[over(all)]
fn received_messages_wait_for_room_in_the_completion_queue(net: &Net) {
    let depth = 3;
    let (alice, bob) =
        net.open_pair_with(Setup::default(), Setup { cq_depth_entries: depth, ..Setup::default() });
    let count = 20;
    for n in 0..count {
        // Every fourth message is truncated: errors wait for room like successes.
        bob.endpoint.recv(marked_buffer(if n % 4 == 3 { 10 } else { 24 }), ANY, n).unwrap();
    }
    (0..count).for_each(|n| post_delivery_complete_send(&alice, n).unwrap());
    if alice.is_homespun() {
        // The full queue does not delay any link.
        alice.await_completions(count as usize);
    }
    let mut ended: Vec<(u64, bool)> = (0..count)
        .map(|_| match bob.next_ended() {
            Ok((completion, _)) => (completion.context, true),
            Err(failed) => (failed.completion.context, false),
        })
        .collect();
    if !bob.is_homespun() {
        // Other providers may report errors apart from successes, and in any order (`fi_cq(3)`).
        ended.sort_unstable();
    }
    assert_eq!(ended, (0..count).map(|n| (n, n % 4 != 3)).collect::<Vec<_>>());
    bob.assert_no_completion();
    if !alice.is_homespun() {
        // The man pages do not say whether the send of a truncated message succeeds.
        (0..count).for_each(|_| _ = alice.next_ended());
    }
}

/// Shows fi_cq/events-of-endpoints-and-regions.
#[over(one_process)]
fn operations_of_endpoints_sharing_a_full_queue_all_complete(net: &Net) {
    const COUNT: u64 = 10;
    let first = net.open_party_with(Setup { cq_depth_entries: 4, ..Setup::default() });
    let shares_cq = Some(first.local_cq().clone());
    let second = net.open_party_with(Setup { shares_cq, ..Setup::default() });
    let peer = net.open_party();
    peer.post_receives(0..2 * COUNT, 64);
    // The peer also sends to one endpoint. So the common queue has completions of receives and of sends.
    first.post_receives(2000..2000 + COUNT, 64);
    for (begin, party) in [(0, &first), (1000, &second)] {
        party.meet(&peer);
        (begin..begin + COUNT).for_each(|context| post_delivery_complete_send(party, context).unwrap());
    }
    for n in 0..COUNT {
        peer.endpoint.send(payload(n, 64), peer.fabric_address_of(&first), 3000 + n).unwrap();
    }
    let mut ended = [(); 3].map(|()| Vec::new());
    for _ in 0..3 * COUNT {
        let (completion, source) = first.next_completion_with_source();
        let kind = completion.context as usize / 1000;
        assert!(kind < 2 || source == first.peer(), "{completion:?}");
        ended[kind].push(completion.context % 1000);
    }
    assert_eq!(ended, [(); 3].map(|()| (0..COUNT).collect::<Vec<_>>()));
    let (sends, receives) = peer.next_completions_of_sends_and_others(3 * COUNT as usize);
    assert_eq!((sends.len(), receives.len()), (COUNT as usize, 2 * COUNT as usize));
    let messages: BTreeSet<Vec<u8>> = receives.iter().map(|entry| received_bytes(&entry.buffer)).collect();
    assert_eq!(messages.len(), receives.len(), "no message came twice");
    first.assert_no_completion();
}

/// Shows fi_msg/eagain-for-full-queue, fi_msg/eagain-may-be-retried.
#[over(driven, own)]
fn sends_beyond_the_transmit_depth_are_refused(net: &Net) {
    let alice = net.open_party_with(Setup { tx_depth_ops: 3, ..Setup::default() });
    let bob = net.open_party_with(Setup::asleep());
    alice.insert_address_of(&bob);
    (0..3).for_each(|context| post_delivery_complete_send(&alice, context).unwrap());
    expect_error(post_delivery_complete_send(&alice, 3), Errno::EAGAIN);
    expect_error(alice.endpoint.inject(b"", alice.peer(), None, None), Errno::EAGAIN);
    alice.assert_no_completion();
    net.start_driving(&bob);
    alice.expect_in_order(0..3);
    (0..100).for_each(|context| alice.deliver(context, 24));
}

/// Shows fi_msg/eagain-for-full-queue.
#[over(all, own)]
fn receives_beyond_the_receive_depth_are_refused(net: &Net) {
    let (alice, bob) = net.open_pair_with(Setup::default(), Setup { rx_depth_ops: 3, ..Setup::default() });
    (0..3).for_each(|context| bob.endpoint.trecv(marked_buffer(24), ANY, Tag(context), context).unwrap());
    // Both kinds count.
    expect_error(bob.endpoint.trecv(marked_buffer(24), ANY, Tag(9), 9), Errno::EAGAIN);
    expect_error(bob.endpoint.recv(marked_buffer(24), ANY, 9), Errno::EAGAIN);
    for round in 0..20 {
        let tag = round % 3;
        alice.endpoint.tsend(payload(tag, 24), alice.peer(), Tag(tag), 1).unwrap();
        assert_eq!(bob.next_completion().context, tag);
        alice.next_completion();
        bob.endpoint.trecv(marked_buffer(24), ANY, Tag(tag), tag).unwrap();
        expect_error(bob.endpoint.recv(marked_buffer(24), ANY, 9), Errno::EAGAIN);
    }
    bob.endpoint.cancel(0).unwrap();
    bob.next_failure();
    bob.endpoint.recv(marked_buffer(24), ANY, 9).unwrap();
}
