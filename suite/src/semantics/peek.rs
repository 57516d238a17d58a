//! Peeks at unexpected messages, claims and discards: `FI_PEEK`, `FI_CLAIM` and `FI_DISCARD` of
//! `fi_tagged(3)`.

use super::prelude::*;

/// Lengths of messages that use every protocol.
const LENS_BYTES: [usize; 5] = [0, 100, 100_000, 300_000, 1 << 20];

/// The smallest unexpected budget of a receiver.
const SMALL_BUDGET_BYTES: usize = 20_000;

/// A length beyond that budget.
const LONG_BYTES: usize = 100_000;

/// The tag of most messages, and of all claims.
const TAG: Tag = Tag(5);

/// The flags of the completions of messages with remote data.
const FLAGS: CompletionFlags =
    CompletionFlags::RECV.union(CompletionFlags::TAGGED).union(CompletionFlags::REMOTE_CQ_DATA);

/// Makes a tagged message with the payload and the remote data `identity`.
fn make_message(from: &Party, tag: Tag, identity: u64, len_bytes: usize) -> SendMsg {
    let (buffers, data) = (vec![payload(identity, len_bytes)], Some(identity));
    SendMsg { buffers, to: from.peer(), tag: Some(tag), data, ..SendMsg::default() }
}

/// Sends a [message](make_message) as [`Party::send_unexpected`] does.
fn deliver(from: &Party, tag: Tag, identity: u64, len_bytes: usize) {
    from.send_unexpected(make_message(from, tag, identity, len_bytes));
}

/// Sends a [message](make_message) at a level, and does not wait. Its context is its identity.
fn send_at_level(from: &Party, identity: u64, len_bytes: usize, flags: OpFlags) {
    let message = make_message(from, TAG, identity, len_bytes);
    from.endpoint.sendmsg(SendMsg { context: identity, flags, ..message }).unwrap();
}

/// Makes a peek. It also claims or discards the message, if `then` says so.
fn make_peek(tagged: impl Into<TagMatch>, context: u64, then: OpFlags) -> RecvMsg {
    let (tagged, flags) = (Some(tagged.into()), OpFlags::PEEK | then);
    RecvMsg { tagged, context, flags, ..RecvMsg::default() }
}

/// Posts a peek or a discard, and waits for its end.
#[track_caller]
fn post_and_wait(party: &Party, receive: RecvMsg) -> Ended {
    let context = receive.context;
    party.endpoint.recvmsg(receive).unwrap();
    let ended = party.next_ended();
    let completion = ended.as_ref().map_or_else(|failed| &failed.completion, |(completion, _)| completion);
    assert_eq!(completion.context, context, "{ended:?}");
    assert!(completion.flags.contains(CompletionFlags::RECV | CompletionFlags::TAGGED), "{ended:?}");
    ended
}

/// Peeks until a message is found. At that time only a part of it may have arrived.
#[track_caller]
fn peek_repeatedly(party: &Party, peek: &RecvMsg) -> (Completion, FabricAddress) {
    poll_until("a message to peek at", || match post_and_wait(party, peek.clone()) {
        Ok(found) => Some(found),
        Err(missed) => {
            assert_eq!(missed.error, OperationError::NoMessage);
            party.progress_all();
            None
        }
    })
}

/// Peeks at a message that has been [delivered](deliver). The first peek of homespun finds it. Another
/// provider may need progress before.
#[track_caller]
fn peek_at_delivered(party: &Party, peek: &RecvMsg) -> (Completion, FabricAddress) {
    if party.is_homespun() {
        return post_and_wait(party, peek.clone()).unwrap();
    }
    peek_repeatedly(party, peek)
}

/// [Peeks](peek_at_delivered) at a message from any source. Returns its identity.
#[track_caller]
fn peek_identity(party: &Party, context: u64, then: OpFlags) -> u64 {
    peek_at_delivered(party, &make_peek(TAG, context, then)).0.data
}

/// [Peeks](peek_repeatedly) until the message is found.
#[track_caller]
fn peek_until_found(party: &Party, context: u64, then: OpFlags) -> Completion {
    peek_repeatedly(party, &make_peek(TAG, context, then)).0
}

#[track_caller]
fn assert_peek_finds_nothing(party: &Party, tagged: impl Into<TagMatch>) {
    let failed = post_and_wait(party, make_peek(tagged, 77, OpFlags::empty())).unwrap_err();
    assert_eq!((failed.error.clone(), failed.errno()), (OperationError::NoMessage, Errno::ENOMSG));
    assert_eq!((failed.completion.len_bytes, failed.overflow_bytes()), (0, 0));
}

/// Posts a claim. The context names the message, and homespun ignores the tag of the claim. `fi_tagged(3)`
/// leaves open whether another provider does.
fn post_claim(party: &Party, context: u64, len_bytes: usize) -> Result<(), Error> {
    let tag = if party.is_homespun() { Tag(0) } else { TAG };
    let (buffers, tagged, flags) = (vec![marked_buffer(len_bytes)], Some(tag.into()), OpFlags::CLAIM);
    party.endpoint.recvmsg(RecvMsg { buffers, tagged, context, flags, ..RecvMsg::default() })
}

/// Receives the message claimed with this context.
#[track_caller]
fn claim_and_check(party: &Party, context: u64, identity: u64, len_bytes: usize) {
    post_claim(party, context, len_bytes).unwrap();
    expect_message(party, context, TAG, identity, len_bytes);
}

/// Discards the message claimed with this context.
#[track_caller]
fn discard_claimed(party: &Party, context: u64) {
    let flags = OpFlags::CLAIM | OpFlags::DISCARD;
    let discard = RecvMsg { tagged: Some(TAG.into()), context, flags, ..RecvMsg::default() };
    post_and_wait(party, discard).unwrap();
}

#[track_caller]
fn expect_message(party: &Party, context: u64, tag: Tag, identity: u64, len_bytes: usize) {
    let completion = party.expect_message(context, &payload(identity, len_bytes));
    assert_eq!((completion.tag, completion.data), (tag, identity));
    assert_eq!((completion.flags, completion.len_bytes), (FLAGS, len_bytes));
}

#[track_caller]
fn receive_and_check(party: &Party, tag: Tag, identity: u64, len_bytes: usize) {
    party.endpoint.trecv(marked_buffer(len_bytes), ANY, tag, 88).unwrap();
    expect_message(party, 88, tag, identity, len_bytes);
}

/// Shows fi_tagged/peek-is-not-queued, fi_tagged/peek-reports-in-queue, fi_tagged/peek-may-return-no-data,
/// fi_tagged/peek-reports-metadata, fi_tagged/peek-len-is-message-size.
#[over(all)]
fn peek_reports_a_message_and_leaves_it(net: &Net) {
    let (alice, bob) = net.open_pair();
    for (identity, len_bytes) in (1..).zip(LENS_BYTES) {
        deliver(&alice, TAG, identity, len_bytes);
        for context in 1..=3 {
            let (completion, source) = peek_at_delivered(&bob, &make_peek(TAG, context, OpFlags::empty()));
            assert_eq!(completion.flags, FLAGS);
            assert!(completion.buffer == Buffer::None || !bob.is_native());
            assert_eq!((completion.len_bytes, completion.tag, completion.data), (len_bytes, TAG, identity));
            assert_eq!(source, bob.peer());
        }
        receive_and_check(&bob, TAG, identity, len_bytes);
        assert_peek_finds_nothing(&bob, TAG);
    }
    // A message without remote data reports none.
    alice.send_unexpected(SendMsg { to: alice.peer(), tag: Some(Tag(6)), ..SendMsg::default() });
    let (completion, _) = peek_at_delivered(&bob, &make_peek(Tag(6), 1, OpFlags::empty()));
    assert_eq!(completion.flags, CompletionFlags::RECV | CompletionFlags::TAGGED);
    assert_eq!(completion.len_bytes, 0);
    // Without its flag, the field has no meaning.
    assert!(completion.data == 0 || !bob.is_homespun(), "{completion:?}");
    bob.assert_no_completion();
    if bob.is_homespun() {
        // `fi_msg(3)` has no peeks.
        alice.send_unexpected(SendMsg { tag: None, ..make_message(&alice, TAG, 7, 50) });
        for flags in [OpFlags::PEEK, OpFlags::PEEK | OpFlags::DISCARD] {
            bob.post_receive(2, 0, None, flags);
            let told = bob.next_completion();
            let flags = CompletionFlags::RECV | CompletionFlags::MSG | CompletionFlags::REMOTE_CQ_DATA;
            assert_eq!((told.context, told.flags, told.len_bytes, told.data), (2, flags, 50, 7));
        }
    }
}

/// Shows fi_tagged/peek-is-not-queued, fi_tagged/peek-without-message-fails.
#[over(all)]
fn peek_without_a_message_fails_and_leaves_nothing_posted(net: &Net) {
    let (alice, bob) = net.open_pair();
    assert_peek_finds_nothing(&bob, TAG);
    for then in [OpFlags::CLAIM, OpFlags::DISCARD] {
        let failed = post_and_wait(&bob, make_peek(TAG, 1, then)).unwrap_err();
        assert_eq!(failed.error, OperationError::NoMessage);
    }
    if bob.is_homespun() {
        assert_eq!(expect_errno(bob.endpoint.cancel(77)), Errno::ENOENT, "it has ended");
    }
    deliver(&alice, TAG, 1, 100);
    assert_peek_finds_nothing(&bob, Tag(6));
    assert_peek_finds_nothing(&bob, Tag(4).ignoring(2));
    // Tagged peeks do not find untagged messages either.
    alice.send_unexpected(alice.message(2, 8, OpFlags::empty()));
    receive_and_check(&bob, TAG, 1, 100);
    assert_peek_finds_nothing(&bob, TAG.ignoring(u64::MAX));
    bob.assert_no_completion();
}

#[over(all, own)]
fn peek_misses_messages_that_progress_has_not_received(net: &Net) {
    let (alice, bob) = net.open_pair_with(Setup::default(), Setup::asleep());
    // The first message brings up the link.
    bob.endpoint.trecv(marked_buffer(8), ANY, Tag(1), 88).unwrap();
    alice.endpoint.tsenddata(payload(1, 8), 1, alice.peer(), Tag(1), 99).unwrap();
    expect_message(&bob, 88, Tag(1), 1, 8);
    assert_eq!(alice.next_completion().context, 99);
    for then in [OpFlags::empty(), OpFlags::CLAIM, OpFlags::DISCARD] {
        send_at_level(&alice, 2, 8, OpFlags::INJECT_COMPLETE);
        assert_eq!(alice.next_completion().context, 2);
        (0..100).for_each(|_| alice.progress_all());
        match post_and_wait(&bob, make_peek(TAG, 11, then)) {
            Ok(_) => assert_eq!(net.turns, Turns::Automatic, "a progress thread may have received it"),
            Err(failed) => {
                assert_eq!(failed.error, OperationError::NoMessage);
                assert_eq!(peek_until_found(&bob, 11, then).data, 2);
            }
        }
        match then {
            OpFlags::CLAIM => claim_and_check(&bob, 11, 2, 8),
            OpFlags::DISCARD => {}
            _ => receive_and_check(&bob, TAG, 2, 8),
        }
    }
}

/// The number of peeks after which a party sleeps between peeks.
const EAGER_PEEKS: u32 = 1000;

/// The depth of the queues. A queue has room for the completions of all peeks, which the parties do not
/// read.
const PEEKS_MAX: usize = 1 << 17;

#[over(all, native)]
fn peeks_that_read_no_queue_make_progress(net: &Net) {
    let (alice, bob) =
        net.open_equal_pair(Setup { asleep: true, cq_depth_entries: PEEKS_MAX, ..Setup::default() });
    let claim = || bob.endpoint.recvmsg(make_peek(TAG, 11, OpFlags::CLAIM));
    // The first message brings up the link.
    for (identity, len_bytes) in (1..).zip(LENS_BYTES) {
        send_at_level(&alice, identity, len_bytes, OpFlags::MATCH_COMPLETE);
        let (deadline, mut peeks) = (Deadline::new(), 0);
        // A claimed message has the context of its peek, and the library refuses this context for another
        // peek. So a refusal shows, without a read, that a peek has found the message.
        while claim().is_ok() {
            alice.endpoint.recvmsg(make_peek(Tag(77), 77, OpFlags::empty())).unwrap();
            peeks += 1;
            if peeks > EAGER_PEEKS {
                thread::sleep(Duration::from_millis(1));
            }
            deadline.yield_or_panic("a message to claim");
        }
        expect_error(claim(), Errno::EINVAL);
        // Only calls of the parties drive them, so from here on they take turns. Bob's peek ends first, and
        // then his claim.
        let (mut ends, mut sent) = (0, None);
        while ends < 2 || sent.is_none() {
            sent = sent.or(poll_success(&alice));
            if let Some(end) = poll_success(&bob) {
                assert_eq!((end.context, end.data, end.len_bytes), (11, identity, len_bytes));
                if ends == 0 {
                    post_claim(&bob, 11, len_bytes).unwrap();
                }
                ends += 1;
            }
            deadline.yield_or_panic("the end of a claim and a send");
        }
        assert_eq!(sent.map(|completion| completion.context), Some(identity));
    }
}

/// Reads until an operation has succeeded or the queue is empty. Panics if an operation has failed, unless
/// it is a peek that found no message.
#[track_caller]
fn poll_success(party: &Party) -> Option<Completion> {
    loop {
        match party.poll_completion()? {
            Ok((completion, _)) => return Some(completion),
            Err(failed) => assert_eq!(failed.error, OperationError::NoMessage),
        }
    }
}

#[over(all)]
fn peek_with_a_source_finds_only_its_messages(net: &Net) {
    let bob = net.open_party();
    let senders = [net.open_party(), net.open_party()];
    for (identity, sender) in (1..).zip(&senders) {
        bob.meet(sender);
        deliver(sender, TAG, identity, 16);
    }
    for (from, identity) in [(FabricAddress(1), 2), (FabricAddress(0), 1)] {
        let discard = RecvMsg { from, ..make_peek(TAG, 9, OpFlags::DISCARD) };
        let (completion, source) = peek_at_delivered(&bob, &discard);
        assert_eq!((completion.data, source), (identity, from));
        assert_eq!(post_and_wait(&bob, discard).unwrap_err().error, OperationError::NoMessage);
    }
}

/// Shows fi_tagged/claim-reserves-message.
#[over(all)]
fn claimed_message_is_received_only_by_its_claim(net: &Net) {
    let (alice, bob) = net.open_equal_pair(Setup { order: Order::SAS, ..Setup::default() });
    // No page says how many long messages another provider buffers.
    let count = if bob.is_homespun() { LENS_BYTES.len() } else { 2 };
    for len_bytes in LENS_BYTES.into_iter().take(count) {
        (1..=3).for_each(|identity| deliver(&alice, TAG, identity, len_bytes));
        assert_eq!(peek_identity(&bob, 11, OpFlags::CLAIM), 1);
        assert_eq!(peek_identity(&bob, 12, OpFlags::CLAIM), 2);
        receive_and_check(&bob, TAG, 3, len_bytes);
        assert_peek_finds_nothing(&bob, TAG);
        bob.endpoint.trecv(marked_buffer(len_bytes), ANY, TAG, 13).unwrap();
        bob.assert_no_completion();
        // Claims may be used in any order.
        claim_and_check(&bob, 12, 2, len_bytes);
        claim_and_check(&bob, 11, 1, len_bytes);
        bob.assert_no_completion();
        bob.endpoint.cancel(13).unwrap();
        assert_eq!(bob.next_failure().error, OperationError::Cancelled);
    }
}

/// Shows fi_tagged/tagged-match-or-discard, fi_tagged/discard-with-peek.
#[over(all)]
fn discarded_message_is_never_received(net: &Net) {
    let (alice, bob) = net.open_pair();
    for len_bytes in LENS_BYTES {
        (1..=4).for_each(|identity| send_at_level(&alice, identity, len_bytes, OpFlags::MATCH_COMPLETE));
        deliver(&alice, Tag(6), 5, 8);
        alice.assert_no_completion();
        // A peek discards one message. A second peek claims another message, which a later call discards.
        assert_eq!(peek_identity(&bob, 11, OpFlags::DISCARD), 1);
        assert_eq!(alice.next_completion().context, 1);
        assert_eq!(peek_identity(&bob, 12, OpFlags::CLAIM), 2);
        alice.assert_no_completion();
        discard_claimed(&bob, 12);
        assert_eq!(alice.next_completion().context, 2);
        receive_and_check(&bob, TAG, 3, len_bytes);
        assert_eq!(alice.next_completion().context, 3);
        assert_eq!(peek_identity(&bob, 11, OpFlags::DISCARD), 4);
        assert_eq!(alice.next_completion().context, 4);
        assert_peek_finds_nothing(&bob, TAG);
        receive_and_check(&bob, Tag(6), 5, 8);
        bob.assert_no_completion();
    }
}

/// Shows fi_tagged/claim-uses-context-of-peek.
#[over(all, own)]
fn claim_of_an_unclaimed_or_received_message_fails(net: &Net) {
    let (alice, bob) = net.open_pair();
    deliver(&alice, TAG, 1, 16);
    deliver(&alice, TAG, 2, 16);
    expect_error(post_claim(&bob, 11, 16), Errno::ENOENT);
    assert_eq!(peek_identity(&bob, 11, OpFlags::CLAIM), 1);
    expect_error(post_claim(&bob, 12, 16), Errno::ENOENT);
    // A claim cannot be cancelled.
    expect_error(bob.endpoint.cancel(11), Errno::ENOENT);
    claim_and_check(&bob, 11, 1, 16);
    expect_error(post_claim(&bob, 11, 16), Errno::ENOENT);
    receive_and_check(&bob, TAG, 2, 16);
    bob.assert_no_completion();
}

/// Peeks at a long message while it arrives.
/// Shows fi_tagged/discard-with-claim.
#[over(all)]
fn arriving_message_may_be_peeked_claimed_and_discarded(net: &Net) {
    let (alice, bob) = net.open_pair();
    // The longest message exceeds the buffers of the system. The loopback network has no buffers, and its
    // pieces are small.
    let longest_bytes = if net.network.is_none() { 12 << 20 } else { 2 << 20 };
    let claim_and_discard = OpFlags::CLAIM | OpFlags::DISCARD;
    for len_bytes in [200_000, 1 << 20, longest_bytes] {
        // The last message arrives whole.
        let ways = [OpFlags::PEEK, OpFlags::DISCARD, OpFlags::CLAIM, claim_and_discard, OpFlags::empty()];
        for (number, way) in (1..).zip(ways) {
            send_at_level(&alice, number, len_bytes, OpFlags::MATCH_COMPLETE);
            if !way.is_empty() {
                let then = if way == claim_and_discard { OpFlags::CLAIM } else { way };
                let seen = peek_until_found(&bob, 11, then);
                if way == OpFlags::PEEK {
                    assert_eq!((seen.len_bytes, seen.data), (len_bytes, number));
                }
            }
            if way == OpFlags::CLAIM {
                claim_and_check(&bob, 11, number, len_bytes);
            } else if way == claim_and_discard {
                discard_claimed(&bob, 11);
            } else if way != OpFlags::DISCARD {
                receive_and_check(&bob, TAG, number, len_bytes);
            }
            assert_eq!(alice.next_completion().context, number, "{way:?}");
        }
    }
    alice.assert_no_completion();
    bob.assert_no_completion();
}

/// Shows fi_tagged/discard-with-claim.
#[over(all, own)]
fn message_held_by_its_sender_may_be_peeked_claimed_and_discarded(net: &Net) {
    let small = Setup { unexpected_bytes: SMALL_BUDGET_BYTES, ..Setup::default() };
    let (alice, bob) = net.open_pair_with(Setup::default(), small);
    for flags in [OpFlags::INJECT_COMPLETE, OpFlags::DELIVERY_COMPLETE, OpFlags::MATCH_COMPLETE] {
        (1..=4).for_each(|identity| send_at_level(&alice, identity, LONG_BYTES, flags));
        let seen = peek_until_found(&bob, 11, OpFlags::empty());
        assert_eq!((seen.len_bytes, seen.data), (LONG_BYTES, 1));
        alice.assert_no_completion();
        receive_and_check(&bob, TAG, 1, LONG_BYTES);
        assert_eq!(alice.next_completion().context, 1);
        peek_until_found(&bob, 11, OpFlags::CLAIM);
        peek_until_found(&bob, 12, OpFlags::CLAIM);
        peek_until_found(&bob, 13, OpFlags::DISCARD);
        assert_eq!(alice.next_completion().context, 4);
        alice.assert_no_completion();
        claim_and_check(&bob, 12, 3, LONG_BYTES);
        assert_eq!(alice.next_completion().context, 3);
        discard_claimed(&bob, 11);
        assert_eq!(alice.next_completion().context, 2);
        assert_peek_finds_nothing(&bob, TAG);
    }
}

#[over(all, own)]
fn claimed_message_outlives_its_sender(net: &Net) {
    for len_bytes in LENS_BYTES {
        let (alice, bob) = net.open_pair();
        deliver(&alice, TAG, 1, len_bytes);
        deliver(&alice, TAG, 2, len_bytes);
        assert_eq!(peek_identity(&bob, 11, OpFlags::CLAIM), 1);
        drop(alice);
        bob.assert_no_completion();
        let carol = net.open_party();
        bob.meet(&carol);
        deliver(&carol, TAG, 3, 8);
        claim_and_check(&bob, 11, 1, len_bytes);
        receive_and_check(&bob, TAG, 2, len_bytes);
        receive_and_check(&bob, TAG, 3, 8);
    }
}

#[over(all, own)]
fn peek_needs_no_room_among_posted_receives(net: &Net) {
    let (alice, bob) = net.open_pair_with(Setup::default(), Setup { rx_depth_ops: 2, ..Setup::default() });
    bob.endpoint.trecv(marked_buffer(16), ANY, Tag(1), 1).unwrap();
    deliver(&alice, TAG, 1, 16);
    deliver(&alice, TAG, 2, 16);
    assert_eq!(peek_identity(&bob, 11, OpFlags::empty()), 1);
    assert_eq!(peek_identity(&bob, 11, OpFlags::DISCARD), 1);
    assert_eq!(peek_identity(&bob, 11, OpFlags::CLAIM), 2);
    for _ in 0..5 {
        assert_peek_finds_nothing(&bob, TAG);
    }
    // The claimed message takes no room among the receives.
    bob.endpoint.trecv(marked_buffer(16), ANY, Tag(2), 2).unwrap();
    assert_peek_finds_nothing(&bob, TAG);
    expect_error(post_claim(&bob, 11, 16), Errno::EAGAIN);
    deliver(&alice, Tag(1), 3, 16);
    expect_message(&bob, 1, Tag(1), 3, 16);
    claim_and_check(&bob, 11, 2, 16);
}
