//! Regions that peers map: [`homespun::MrAttr::shareable`].

use super::prelude::*;

/// Writes one byte over the link. After this, the initiator has mapped the region if the transport can map
/// it.
#[track_caller]
fn write_over_link_first(party: &Party, region: &Region) {
    party.endpoint.rma(make_access(RmaBy::Write, party, region, 1, 0, 1)).unwrap();
    assert_eq!(party.next_completion().context, 1);
}

#[over(all)]
fn mapped_region_is_written_and_read_correctly(net: &Net) {
    const LEN_BYTES: usize = 300_001;
    let (alice, bob) = net.open_pair();
    let region = bob.open_region(LEN_BYTES, MemoryKind::Shareable, 5);
    write_over_link_first(&alice, &region);
    let mut expected = region.content();
    let perform = |call: RmaCall| {
        let context = call.context;
        alice.endpoint.rma(call).unwrap();
        let completion = alice.next_completion();
        assert_eq!(completion.context, context);
        completion
    };
    let places =
        [(0, 8), (3, 1), (9, 3), (5, 100), (7, 0), (LEN_BYTES - 5, 5), (1, LEN_BYTES - 1), (0, LEN_BYTES)];
    for (context, (at, len_bytes)) in (2..).zip(places) {
        let written = perform(make_access(RmaBy::Write, &alice, &region, context, at, len_bytes));
        assert_eq!(written.flags, CompletionFlags::RMA | CompletionFlags::WRITE);
        expected[at..at + len_bytes].copy_from_slice(&payload(context, len_bytes));
        assert!(region.content() == expected, "{len_bytes} bytes at {at}");
        let read = perform(make_access(RmaBy::Read, &alice, &region, context, at, len_bytes));
        assert_eq!(read.flags, CompletionFlags::RMA | CompletionFlags::READ);
        assert!(received_bytes(&read.buffer) == expected[at..at + len_bytes], "{len_bytes} bytes at {at}");
    }
    let (at, len_bytes) = (3, 1000);
    let in_pieces = |by, context| {
        let whole = make_access(by, &alice, &region, context, at, len_bytes);
        RmaCall { buffers: split_unevenly(&whole.buffers[0], 3), ..whole }
    };
    perform(in_pieces(RmaBy::Writev, 20));
    expected[at..at + len_bytes].copy_from_slice(&payload(20, len_bytes));
    assert!(region.content() == expected, "in pieces");
    let read = perform(in_pieces(RmaBy::Readv, 21));
    assert!(received_bytes(&read.buffer) == expected[at..at + len_bytes], "into pieces");
}

#[over(all)]
fn immediate_completions_overrun_an_unprotected_queue(net: &Net) {
    const DEPTH_ENTRIES: usize = 2;
    for format in [CqFormat::Context, CqFormat::Msg] {
        let setup = Setup {
            cq_depth_entries: DEPTH_ENTRIES,
            cq_format: Some(format),
            resource_mgmt: Some(ResourceManagement::Disabled),
            counts: true,
            ..Setup::default()
        };
        let (alice, bob) = net.open_pair_with(setup, Setup::default());
        let region = bob.open_region(64, MemoryKind::Shareable, 5);
        write_over_link_first(&alice, &region);
        let accesses = DEPTH_ENTRIES as u64 + 1;
        for context in 2..2 + accesses {
            alice.endpoint.rma(make_access(RmaBy::Write, &alice, &region, context, 0, 8)).unwrap();
        }
        let deadline = Deadline::new();
        while alice.read_counter(CounterEvents::WRITE) != (1 + accesses, 0) {
            bob.cq.progress();
            deadline.yield_or_panic("writes to be counted");
        }
        let mut contexts = Vec::new();
        loop {
            match alice.cq.read_from() {
                Ok(Some((completion, _))) => {
                    let (is_told, flags) = (format == CqFormat::Msg, completion.flags);
                    let write = CompletionFlags::RMA | CompletionFlags::WRITE;
                    assert_eq!(flags, if is_told { write } else { CompletionFlags::empty() });
                    assert_eq!(
                        completion.buffer,
                        Buffer::Sent(payload(completion.context, 8)),
                        "it comes back"
                    );
                    contexts.push(completion.context);
                }
                // The last access is counted shortly before it is reported.
                Ok(None) => deadline.yield_or_panic("the end of a queue that is overrun"),
                Err(error) => break assert_eq!(error, ReadError::Overrun),
            }
        }
        assert_eq!(contexts.len(), DEPTH_ENTRIES);
    }
}

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
        if let Some(ending) = alice.poll_completion() {
            contexts.push(ending.unwrap().0.context);
        }
        deadline.yield_or_panic("accesses");
    }
    assert!(refused > 0);
    if !net.maps_peer_memory() {
        contexts.sort_unstable();
    }
    assert_eq!(contexts, (2..END).collect::<Vec<_>>());
    assert!(region.content() == expected);
}

#[over(all)]
fn accesses_to_a_mapped_region_are_counted_though_unreported(net: &Net) {
    let (alice, bob) =
        net.open_pair_with(Setup { counts: true, selective: true, ..Setup::default() }, Setup::default());
    let region = bob.open_region(16, MemoryKind::Shareable, 5);
    let told = |by, context| RmaCall {
        flags: OpFlags::COMPLETION,
        ..make_access(by, &alice, &region, context, 0, 8)
    };
    for round in 1..=3 {
        for _ in 0..4 {
            alice.endpoint.rma(make_access(RmaBy::Write, &alice, &region, 1000, 8, 8)).unwrap();
        }
        alice.endpoint.rma(make_access(RmaBy::Read, &alice, &region, 1000, 8, 8)).unwrap();
        alice.endpoint.rma(told(RmaBy::Writemsg, 2 * round)).unwrap();
        assert_eq!(alice.next_completion().context, 2 * round);
        alice.endpoint.rma(told(RmaBy::Readmsg, 2 * round + 1)).unwrap();
        assert_eq!(alice.next_completion().context, 2 * round + 1);
        alice.wait_for_exact_counts(&[
            (CounterEvents::WRITE, (5 * round, 0)),
            (CounterEvents::READ, (2 * round, 0)),
        ]);
        assert!(alice.poll_completion().is_none(), "the others are not told of");
    }
    assert!(region.content() == [payload(6, 8), payload(1000, 8)].concat());
}

/// Stops the process of the owner, if the owner is in another process. The transport must map memory.
#[over(driven, mapped_memory)]
fn mapped_region_is_accessed_while_its_owner_is_stopped(net: &Net) {
    assert!(net.maps_peer_memory(), "the test is about memory that the initiator maps");
    let (alice, bob) = net.open_pair();
    let region = bob.open_region(100, MemoryKind::Shareable, 5);
    write_over_link_first(&alice, &region);
    if net.turns == Turns::Processes {
        bob.stop();
    }
    alice.endpoint.rma(make_access(RmaBy::Write, &alice, &region, 2, 10, 20)).unwrap();
    assert_eq!(alice.poll_completion().expect("it is over").unwrap().0.context, 2);
    alice.endpoint.rma(make_access(RmaBy::Read, &alice, &region, 3, 10, 20)).unwrap();
    assert!(
        received_bytes(&alice.poll_completion().expect("it is over").unwrap().0.buffer) == payload(2, 20)
    );
    if net.turns == Turns::Processes {
        bob.resume();
    }
    assert!(region.content()[10..30] == payload(2, 20));
}

/// Shows fi_mr/access-rights.
#[over(all)]
fn rights_and_bounds_hold_for_a_mapped_region(net: &Net) {
    let (alice, bob) = net.open_pair();
    let readable = bob
        .register(RegionSpec {
            access: MrAccess::REMOTE_READ,
            ..RegionSpec::new(100, MemoryKind::Shareable, 1)
        })
        .unwrap();
    let writable = bob
        .register(RegionSpec {
            access: MrAccess::REMOTE_WRITE,
            ..RegionSpec::new(100, MemoryKind::Shareable, 2)
        })
        .unwrap();
    alice.endpoint.rma(make_access(RmaBy::Read, &alice, &readable, 1, 0, 1)).unwrap();
    alice.next_completion();
    write_over_link_first(&alice, &writable);
    let fails = |call: RmaCall, refusal: Refusal| {
        let context = call.context;
        alice.endpoint.rma(call).unwrap();
        let failure = alice.next_failure();
        assert_eq!((failure.completion.context, failure.error), (context, OperationError::Refused(refusal)));
    };
    fails(make_access(RmaBy::Write, &alice, &readable, 2, 0, 1), Refusal::Access);
    fails(make_access(RmaBy::Read, &alice, &writable, 3, 0, 1), Refusal::Access);
    fails(make_access(RmaBy::Write, &alice, &writable, 4, 100, 1), Refusal::Range);
    fails(make_access(RmaBy::Write, &alice, &writable, 5, 1, 100), Refusal::Range);
    fails(
        RmaCall { address: u64::MAX, ..make_access(RmaBy::Read, &alice, &readable, 6, 0, 2) },
        Refusal::Range,
    );
    assert!(readable.content() == marked_buffer(100));
}

#[over(all)]
fn shareable_region_of_a_read_only_target_refuses_writes(net: &Net) {
    let alice = net.open_party();
    let bob =
        net.open_party_with(Setup { caps: Caps::MSG | Caps::RMA | Caps::REMOTE_READ, ..Setup::default() });
    let peer = alice.insert_address_of(&bob);
    let region = bob.open_region(100, MemoryKind::Shareable, 5);
    let to_bob =
        |by, context| RmaCall { peer, ..RmaCall::new(by, payload(context, 10), peer, &region, context) };
    for context in 1..4 {
        alice.endpoint.rma(to_bob(RmaBy::Read, context)).unwrap();
        alice.next_completion();
        alice.endpoint.rma(to_bob(RmaBy::Write, context)).unwrap();
        assert_eq!(alice.next_failure().error, OperationError::Refused(Refusal::Access));
    }
}

/// Shows fi_mr/closed-region-is-not-accessed.
#[over(all)]
fn access_to_a_closed_shareable_region_fails(net: &Net) {
    let (alice, bob) = net.open_pair();
    for round in 0..4 {
        let first = bob.open_region(1000, MemoryKind::Shareable, 5);
        write_over_link_first(&alice, &first);
        alice.endpoint.rma(make_access(RmaBy::Write, &alice, &first, 2, 0, 1000)).unwrap();
        alice.next_completion();
        let late = make_access(RmaBy::Write, &alice, &first, 3, 0, 10);
        drop(first);
        alice.endpoint.rma(late.clone()).unwrap();
        let failure = alice.next_failure();
        assert_eq!((failure.completion.context, failure.error.errno()), (3, Errno::EKEYREJECTED), "{round}");
        // Another region has the key now, and none of the first region's bytes.
        let second = bob.open_region(50, MemoryKind::Shareable, 5);
        alice.endpoint.rma(late).unwrap();
        alice.next_completion();
        assert!(second.content() == [&payload(3, 10)[..], &marked_buffer(40)].concat());
    }
}

#[over(all)]
fn regions_beyond_the_mapping_limit_are_accessed(net: &Net) {
    const COUNT: u64 = homespun::limits::MAPPED_LINK_MAX_REGIONS as u64 + 6;
    let (alice, bob) = net.open_pair();
    let regions: Vec<Region> =
        (0..COUNT).map(|key| bob.open_region(16, MemoryKind::Shareable, key)).collect();
    for round in 0..3 {
        for (number, region) in (0..).zip(&regions) {
            let context = round * COUNT + number;
            alice.endpoint.rma(make_access(RmaBy::Write, &alice, region, context, 0, 16)).unwrap();
            assert_eq!(alice.next_completion().context, context);
            assert!(region.content() == payload(context, 16));
        }
    }
}

#[over(all)]
fn write_with_remote_data_to_a_mapped_region_notifies_its_owner(net: &Net) {
    let (alice, bob) = net.open_pair();
    let region = bob.open_region(16, MemoryKind::Shareable, 5);
    write_over_link_first(&alice, &region);
    let write = RmaCall { data: Some(77), ..make_access(RmaBy::Write, &alice, &region, 2, 0, 16) };
    alice.endpoint.rma(write).unwrap();
    assert_eq!(alice.next_completion().context, 2);
    let completion = bob.next_completion();
    assert_eq!((completion.data, completion.len_bytes), (77, 16));
    assert!(completion.flags.contains(CompletionFlags::REMOTE_WRITE));
    // A fence orders accesses to mapped regions, too.
    bob.endpoint.recv(marked_buffer(8), ANY, 3).unwrap();
    alice
        .endpoint
        .sendmsg(SendMsg {
            buffers: vec![payload(0, 8)],
            to: alice.peer(),
            context: 3,
            flags: OpFlags::MATCH_COMPLETE | OpFlags::COMPLETION,
            ..SendMsg::default()
        })
        .unwrap();
    let fenced = RmaCall { flags: OpFlags::FENCE, ..make_access(RmaBy::Writemsg, &alice, &region, 4, 0, 16) };
    alice.endpoint.rma(fenced).unwrap();
    alice.expect_in_order([3, 4]);
    bob.next_completion();
    assert!(region.content() == payload(4, 16));
}

#[over(all)]
fn access_to_a_mapped_region_fails_when_its_owner_closes(net: &Net) {
    let (alice, bob) = net.open_pair();
    let region = bob.open_region(16, MemoryKind::Shareable, 5);
    write_over_link_first(&alice, &region);
    let write = make_access(RmaBy::Write, &alice, &region, 2, 0, 16);
    drop((region, bob));
    // The region closed before its owner.
    alice.endpoint.rma(write).unwrap();
    alice.next_failure();
}
