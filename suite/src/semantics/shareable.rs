//! Regions that peers map: [`homespun::MrAttr::shareable`].

use super::flush::{FLUSH, flush_call};
use super::prelude::*;

#[over(all)]
fn immediate_completions_wait_for_room_in_the_queue(net: &Net) {
    const DEPTH_ENTRIES: usize = 3;
    const TX_DEPTH_OPS: usize = 4;
    const END: u64 = 60;
    let setup = Setup { cq_depth_entries: DEPTH_ENTRIES, tx_depth_ops: TX_DEPTH_OPS, ..Setup::default() };
    let (alice, bob) = net.open_pair_with(setup, Setup::default());
    let region = bob.open_region(8 * END as usize, MemoryKind::Shareable, 5);
    write_over_link_first(&alice, &region);
    let mut expected = region.content();
    let (mut posted, mut refused, mut contexts) = (2, 0, Vec::new());
    let deadline = Deadline::new();
    while contexts.len() as u64 + 2 < END {
        while posted < END {
            let by = [RmaBy::Write, RmaBy::WriteRaw, RmaBy::Read][posted as usize % 3];
            let (at, is_write) = (8 * posted as usize, matches!(by, RmaBy::Write | RmaBy::WriteRaw));
            match alice.endpoint.rma(make_access(by, &alice, &region, posted, at, 8)) {
                Ok(()) if is_write => expected[at..at + 8].copy_from_slice(&payload(posted, 8)),
                Ok(()) => {}
                full => {
                    assert_eq!(full, Err(Again::QueueFull.into()));
                    let waiting = posted as usize - 2 - contexts.len();
                    assert!((TX_DEPTH_OPS..=TX_DEPTH_OPS + DEPTH_ENTRIES).contains(&waiting), "{waiting}");
                    if refused == 0 && net.maps_peer_memory() {
                        assert_eq!(waiting, TX_DEPTH_OPS + DEPTH_ENTRIES, "all of it is over");
                    }
                    refused += 1;
                    break;
                }
            }
            posted += 1;
        }
        bob.cq.progress();
        contexts.extend(alice.poll_completion().map(|ended| ended.unwrap().0.context));
        deadline.yield_or_panic("accesses");
    }
    assert!(refused > 0);
    if !net.maps_peer_memory() {
        contexts.sort_unstable();
    }
    assert_eq!(contexts, (2..END).collect::<Vec<_>>());
    assert!(region.content() == expected);
}

/// Stops the process of the owner, if the owner is in another process. The transport must map memory.
#[over(driven, mapped_memory)]
fn mapped_region_is_accessed_and_flushed_while_its_owner_is_stopped(net: &Net) {
    assert!(net.maps_peer_memory(), "the test is about memory that the initiator maps");
    let (alice, bob) = net.open_pair();
    let region = bob.open_region(100, MemoryKind::Shareable, 5);
    write_over_link_first(&alice, &region);
    if net.turns == Turns::Processes {
        bob.stop();
    }
    let expect_end = || alice.poll_completion().expect("it is over").unwrap().0;
    post_access(RmaBy::Write, &alice, &region, 2, 10, 20);
    assert_eq!(expect_end().context, 2);
    post_access(RmaBy::Read, &alice, &region, 3, 10, 20);
    assert!(received_bytes(&expect_end().buffer) == payload(2, 20));
    post_access(RmaBy::InjectWrite, &alice, &region, 4, 50, 20);
    alice.endpoint.flush(flush_call(&alice, &region, 5, 0, 100)).unwrap();
    let flushed = expect_end();
    assert_eq!((flushed.context, flushed.flags, flushed.len_bytes), (5, FLUSH, 100));
    if net.turns == Turns::Processes {
        bob.resume();
    }
    assert!(region.content()[10..30] == payload(2, 20) && region.content()[50..70] == payload(4, 20));
}

/// Shows fi_mr/closed-region-is-not-accessed.
#[over(all)]
fn access_to_a_closed_shareable_region_fails(net: &Net) {
    let (alice, bob) = net.open_pair();
    for _ in 0..4 {
        let first = bob.open_region(1000, MemoryKind::Shareable, 5);
        write_over_link_first(&alice, &first);
        alice.access(make_access(RmaBy::Write, &alice, &first, 2, 0, 1000));
        let late = make_access(RmaBy::Write, &alice, &first, 3, 0, 10);
        drop(first);
        alice.endpoint.rma(late.clone()).unwrap();
        alice.expect_failure(3, Errno::EKEYREJECTED);
        // Another region has the key now, and none of the first region's bytes.
        let second = bob.open_region(50, MemoryKind::Shareable, 5);
        alice.access(late);
        assert!(second.content() == [&payload(3, 10)[..], &marked_buffer(40)].concat());
    }
}
