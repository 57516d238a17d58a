//! Peeks at unexpected messages, claims and discards: `FI_PEEK`, `FI_CLAIM` and `FI_DISCARD` of
//! `fi_tagged(3)`.

use super::prelude::*;

/// Lengths of messages that use every protocol.
const LENS_BYTES: [usize; 5] = [0, 100, 100_000, 300_000, 1 << 20];

/// The smallest unexpected budget of a receiver.
const SMALL_BUDGET_BYTES: usize = 20_000;

/// A length beyond that budget.
const LONG_BYTES: usize = 100_000;

/// The lengths of messages of which several wait at a receiver. No page says how many long messages another
/// provider buffers.
fn lens_of_several_bytes(party: &Party) -> &'static [usize] {
    if party.is_homespun() { &LENS_BYTES } else { &LENS_BYTES[..2] }
}

/// Makes a tagged message with the payload and the remote data `identity`.
fn make_message(from: &Party, tag: u64, identity: u64, len_bytes: usize) -> SendMsg {
    let (buffers, data) = (vec![payload(identity, len_bytes)], Some(identity));
    SendMsg { buffers, to: from.peer(), tag: Some(Tag(tag)), data, ..SendMsg::default() }
}

/// Sends a [message](make_message) as [`Party::send_unexpected`] does.
fn deliver(from: &Party, tag: u64, identity: u64, len_bytes: usize) {
    from.send_unexpected(make_message(from, tag, identity, len_bytes));
}

/// Sends a [message](make_message) at a level, and does not wait. Its tag is 5, and its context its identity.
fn send_at_level(from: &Party, identity: u64, len_bytes: usize, flags: OpFlags) {
    let message = make_message(from, 5, identity, len_bytes);
    from.endpoint.sendmsg(SendMsg { context: identity, flags, ..message }).unwrap();
}

fn send_match_complete(from: &Party, identity: u64, len_bytes: usize) {
    send_at_level(from, identity, len_bytes, OpFlags::MATCH_COMPLETE);
}

/// Posts a peek, a claim or a discard without a buffer, and waits for its end.
#[track_caller]
fn post_peek_or_claim_and_wait(
    party: &Party,
    tagged: TagMatch,
    from: FabricAddress,
    context: u64,
    flags: OpFlags,
) -> Ended {
    let receive = RecvMsg { tagged: Some(tagged), from, context, flags, ..RecvMsg::default() };
    party.endpoint.recvmsg(receive).unwrap();
    let ended = party.next_ended();
    let completion = match &ended {
        Ok((completion, _)) => completion,
        Err(failed) => &failed.completion,
    };
    assert_eq!(completion.context, context, "{ended:?}");
    assert!(completion.flags.contains(CompletionFlags::RECV | CompletionFlags::TAGGED), "{ended:?}");
    ended
}

/// Peeks until a message is found.
#[track_caller]
fn peek_repeatedly(
    party: &Party,
    tagged: TagMatch,
    from: FabricAddress,
    context: u64,
    then: OpFlags,
) -> (Completion, FabricAddress) {
    let deadline = Deadline::new();
    loop {
        match post_peek_or_claim_and_wait(party, tagged, from, context, OpFlags::PEEK | then) {
            Ok(found) => return found,
            Err(failed) => assert_eq!(failed.error, OperationError::NoMessage),
        }
        party.progress_all();
        deadline.yield_or_panic("a message to peek at");
    }
}

/// Peeks at a message that has been [delivered](deliver). The first peek of homespun finds it. Another
/// provider may need progress before.
#[track_caller]
fn peek_at_delivered(
    party: &Party,
    tagged: TagMatch,
    from: FabricAddress,
    context: u64,
    then: OpFlags,
) -> (Completion, FabricAddress) {
    if party.is_homespun() {
        return post_peek_or_claim_and_wait(party, tagged, from, context, OpFlags::PEEK | then).unwrap();
    }
    peek_repeatedly(party, tagged, from, context, then)
}

/// [Peeks](peek_at_delivered) at a message from any source. Returns its identity.
#[track_caller]
fn peek_identity(party: &Party, tagged: TagMatch, context: u64, then: OpFlags) -> u64 {
    peek_at_delivered(party, tagged, ANY, context, then).0.data
}

/// Peeks until the message is found. At that time only a part of it may have arrived.
#[track_caller]
fn peek_until_found(party: &Party, tag: u64, context: u64, then: OpFlags) -> Completion {
    peek_repeatedly(party, Tag(tag).into(), ANY, context, then).0
}

#[track_caller]
fn assert_peek_finds_nothing(party: &Party, tagged: TagMatch) {
    let failed = post_peek_or_claim_and_wait(party, tagged, ANY, 77, OpFlags::PEEK).unwrap_err();
    assert_eq!((failed.error.clone(), failed.errno()), (OperationError::NoMessage, Errno::ENOMSG));
    assert_eq!((failed.completion.len_bytes, failed.overflow_bytes()), (0, 0));
}

/// Posts a claim. The context names the message, and homespun ignores the tag of the claim. `fi_tagged(3)`
/// leaves open whether another provider does.
fn post_claim(party: &Party, context: u64, tag: u64, len_bytes: usize) -> Result<(), Error> {
    let tagged = Some(Tag(if party.is_homespun() { 0 } else { tag }).into());
    let (buffers, flags) = (vec![marked_buffer(len_bytes)], OpFlags::CLAIM);
    party.endpoint.recvmsg(RecvMsg { buffers, tagged, context, flags, ..RecvMsg::default() })
}

/// Receives the message claimed with this context.
#[track_caller]
fn claim_and_check(party: &Party, context: u64, tag: u64, identity: u64, len_bytes: usize) {
    post_claim(party, context, tag, len_bytes).unwrap();
    expect_message(party, context, tag, identity, len_bytes);
}

#[track_caller]
fn expect_message(party: &Party, context: u64, tag: u64, identity: u64, len_bytes: usize) {
    let completion = party.next_completion();
    assert_eq!((completion.context, completion.tag.0, completion.data), (context, tag, identity));
    let flags = CompletionFlags::RECV | CompletionFlags::TAGGED | CompletionFlags::REMOTE_CQ_DATA;
    assert_eq!((completion.flags, completion.len_bytes), (flags, len_bytes));
    assert!(received_bytes(&completion.buffer) == payload(identity, len_bytes));
}

#[track_caller]
fn receive_and_check(party: &Party, tag: u64, identity: u64, len_bytes: usize) {
    party.endpoint.trecv(marked_buffer(len_bytes), ANY, Tag(tag), 88).unwrap();
    expect_message(party, 88, tag, identity, len_bytes);
}

/// Shows fi_tagged/peek-is-not-queued, fi_tagged/peek-reports-in-queue, fi_tagged/peek-may-return-no-data,
/// fi_tagged/peek-reports-metadata, fi_tagged/peek-len-is-message-size.
#[over(all)]
fn peek_reports_a_message_and_leaves_it(net: &Net) {
    let (alice, bob) = net.open_pair();
    for (identity, len_bytes) in (1..).zip(LENS_BYTES) {
        deliver(&alice, 5, identity, len_bytes);
        for context in 1..=3 {
            let (completion, source) = peek_at_delivered(&bob, Tag(5).into(), ANY, context, OpFlags::empty());
            let flags = CompletionFlags::RECV | CompletionFlags::TAGGED | CompletionFlags::REMOTE_CQ_DATA;
            assert_eq!(completion.flags, flags);
            assert!(completion.buffer == Buffer::None || !bob.is_native());
            assert_eq!((completion.len_bytes, completion.tag.0, completion.data), (len_bytes, 5, identity));
            assert_eq!(source, bob.peer());
        }
        receive_and_check(&bob, 5, identity, len_bytes);
        assert_peek_finds_nothing(&bob, Tag(5).into());
    }
    // A message without remote data reports none.
    alice.send_unexpected(SendMsg { to: alice.peer(), tag: Some(Tag(6)), ..SendMsg::default() });
    let (completion, _) = peek_at_delivered(&bob, Tag(6).into(), ANY, 1, OpFlags::empty());
    assert_eq!(completion.flags, CompletionFlags::RECV | CompletionFlags::TAGGED);
    assert_eq!(completion.len_bytes, 0);
    // Without its flag, the field has no meaning.
    assert!(completion.data == 0 || !bob.is_homespun(), "{completion:?}");
    bob.assert_no_completion();
    if bob.is_homespun() {
        // `fi_msg(3)` has no peeks.
        alice.send_unexpected(SendMsg { tag: None, ..make_message(&alice, 0, 7, 50) });
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
    assert_peek_finds_nothing(&bob, Tag(5).into());
    for then in [OpFlags::CLAIM, OpFlags::DISCARD] {
        let failed =
            post_peek_or_claim_and_wait(&bob, Tag(5).into(), ANY, 1, OpFlags::PEEK | then).unwrap_err();
        assert_eq!(failed.error, OperationError::NoMessage);
    }
    if bob.is_homespun() {
        assert_eq!(expect_errno(bob.endpoint.cancel(77)), Errno::ENOENT, "it has ended");
    }
    deliver(&alice, 5, 1, 100);
    assert_peek_finds_nothing(&bob, Tag(6).into());
    assert_peek_finds_nothing(&bob, Tag(4).ignoring(2));
    // Tagged peeks do not find untagged messages either.
    alice.send_unexpected(alice.message(2, 8, OpFlags::empty()));
    receive_and_check(&bob, 5, 1, 100);
    assert_peek_finds_nothing(&bob, Tag(5).ignoring(u64::MAX));
    bob.assert_no_completion();
}

#[over(all, own)]
fn peek_misses_messages_that_progress_has_not_received(net: &Net) {
    let (alice, bob) = net.open_pair_with(Setup::default(), Setup::asleep());
    // The first message brings up the link.
    bob.endpoint.trecv(marked_buffer(8), ANY, Tag(1), 88).unwrap();
    alice.endpoint.tsenddata(payload(1, 8), 1, alice.peer(), Tag(1), 99).unwrap();
    expect_message(&bob, 88, 1, 1, 8);
    assert_eq!(alice.next_completion().context, 99);
    for then in [OpFlags::empty(), OpFlags::CLAIM, OpFlags::DISCARD] {
        send_at_level(&alice, 2, 8, OpFlags::INJECT_COMPLETE);
        assert_eq!(alice.next_completion().context, 2);
        for _ in 0..100 {
            alice.progress_all();
        }
        let first = post_peek_or_claim_and_wait(&bob, Tag(5).into(), ANY, 11, OpFlags::PEEK | then);
        // A progress thread may have received the message.
        if net.turns != Turns::Automatic {
            assert_eq!(first.clone().unwrap_err().error, OperationError::NoMessage);
        }
        if first.is_err() {
            assert_eq!(peek_until_found(&bob, 5, 11, then).data, 2);
        }
        match then {
            OpFlags::CLAIM => claim_and_check(&bob, 11, 5, 2, 8),
            OpFlags::DISCARD => {}
            _ => receive_and_check(&bob, 5, 2, 8),
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
    let peek = |party: &Party, tag, context, flags| {
        let tagged = Some(Tag(tag).into());
        party.endpoint.recvmsg(RecvMsg { tagged, context, flags, ..RecvMsg::default() })
    };
    // The first message brings up the link.
    for (identity, len_bytes) in (1..).zip(LENS_BYTES) {
        send_match_complete(&alice, identity, len_bytes);
        let (deadline, mut peeks) = (Deadline::new(), 0);
        // A claimed message has the context of its peek, and the library refuses this context for another
        // peek. So a refusal shows, without a read, that a peek has found the message.
        while peek(&bob, 5, 11, OpFlags::PEEK | OpFlags::CLAIM).is_ok() {
            peek(&alice, 77, 77, OpFlags::PEEK).unwrap();
            peeks += 1;
            if peeks > EAGER_PEEKS {
                thread::sleep(Duration::from_millis(1));
            }
            deadline.yield_or_panic("a message to claim");
        }
        expect_error(peek(&bob, 5, 11, OpFlags::PEEK | OpFlags::CLAIM), Errno::EINVAL);
        // Only calls of the parties drive them, so from here on they take turns.
        let mut is_claimed = false;
        let [mut found, mut received, mut sent] = [None, None, None];
        while received.is_none() || sent.is_none() {
            sent = sent.or(poll_success(&alice));
            if is_claimed {
                received = received.or(poll_success(&bob));
            } else if let Some(completion) = poll_success(&bob) {
                found = Some(completion);
                post_claim(&bob, 11, 5, len_bytes).unwrap();
                is_claimed = true;
            }
            deadline.yield_or_panic("the end of a claim and a send");
        }
        let fields = |completion: Option<Completion>| {
            completion.map(|completion| (completion.context, completion.data, completion.len_bytes))
        };
        assert_eq!(fields(found), Some((11, identity, len_bytes)));
        assert_eq!(fields(received), Some((11, identity, len_bytes)));
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
        deliver(sender, 5, identity, 16);
    }
    for (from, identity) in [(FabricAddress(1), 2), (FabricAddress(0), 1)] {
        let (completion, source) = peek_at_delivered(&bob, Tag(5).into(), from, 9, OpFlags::DISCARD);
        assert_eq!((completion.data, source), (identity, from));
        let missed = post_peek_or_claim_and_wait(&bob, Tag(5).into(), from, 9, OpFlags::PEEK).unwrap_err();
        assert_eq!(missed.error, OperationError::NoMessage);
    }
}

/// Shows fi_tagged/claim-reserves-message.
#[over(all)]
fn claimed_message_is_received_only_by_its_claim(net: &Net) {
    let (alice, bob) = net.open_equal_pair(Setup { order: Order::SAS, ..Setup::default() });
    for &len_bytes in lens_of_several_bytes(&bob) {
        for identity in 1..=3 {
            deliver(&alice, 5, identity, len_bytes);
        }
        assert_eq!(peek_identity(&bob, Tag(5).into(), 11, OpFlags::CLAIM), 1);
        assert_eq!(peek_identity(&bob, Tag(5).into(), 12, OpFlags::CLAIM), 2);
        receive_and_check(&bob, 5, 3, len_bytes);
        assert_peek_finds_nothing(&bob, Tag(5).into());
        bob.endpoint.trecv(marked_buffer(len_bytes), ANY, Tag(5), 13).unwrap();
        bob.assert_no_completion();
        // Claims may be used in any order.
        claim_and_check(&bob, 12, 5, 2, len_bytes);
        claim_and_check(&bob, 11, 5, 1, len_bytes);
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
        for identity in 1..=4 {
            send_match_complete(&alice, identity, len_bytes);
        }
        deliver(&alice, 6, 5, 8);
        alice.assert_no_completion();
        // A peek discards one message. A second peek claims another message, which a later call discards.
        assert_eq!(peek_identity(&bob, Tag(5).into(), 11, OpFlags::DISCARD), 1);
        assert_eq!(alice.next_completion().context, 1);
        assert_eq!(peek_identity(&bob, Tag(5).into(), 12, OpFlags::CLAIM), 2);
        alice.assert_no_completion();
        post_peek_or_claim_and_wait(&bob, Tag(5).into(), ANY, 12, OpFlags::CLAIM | OpFlags::DISCARD).unwrap();
        assert_eq!(alice.next_completion().context, 2);
        receive_and_check(&bob, 5, 3, len_bytes);
        assert_eq!(alice.next_completion().context, 3);
        assert_eq!(peek_identity(&bob, Tag(5).into(), 11, OpFlags::DISCARD), 4);
        assert_eq!(alice.next_completion().context, 4);
        assert_peek_finds_nothing(&bob, Tag(5).into());
        receive_and_check(&bob, 6, 5, 8);
        bob.assert_no_completion();
    }
}

/// Shows fi_tagged/claim-uses-context-of-peek.
#[over(all, own)]
fn claim_of_an_unclaimed_or_received_message_fails(net: &Net) {
    let (alice, bob) = net.open_pair();
    deliver(&alice, 5, 1, 16);
    deliver(&alice, 5, 2, 16);
    expect_error(post_claim(&bob, 11, 5, 16), Errno::ENOENT);
    assert_eq!(peek_identity(&bob, Tag(5).into(), 11, OpFlags::CLAIM), 1);
    expect_error(post_claim(&bob, 12, 5, 16), Errno::ENOENT);
    // A claim cannot be cancelled.
    expect_error(bob.endpoint.cancel(11), Errno::ENOENT);
    claim_and_check(&bob, 11, 5, 1, 16);
    expect_error(post_claim(&bob, 11, 5, 16), Errno::ENOENT);
    receive_and_check(&bob, 5, 2, 16);
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
            send_match_complete(&alice, number, len_bytes);
            if !way.is_empty() {
                let then = if way == claim_and_discard { OpFlags::CLAIM } else { way };
                let seen = peek_until_found(&bob, 5, 11, then);
                assert!(
                    way != OpFlags::PEEK || (seen.len_bytes, seen.data) == (len_bytes, number),
                    "{seen:?}"
                );
            }
            if way == OpFlags::CLAIM {
                claim_and_check(&bob, 11, 5, number, len_bytes);
            } else if way == claim_and_discard {
                post_peek_or_claim_and_wait(&bob, Tag(5).into(), ANY, 11, way).unwrap();
            } else if way != OpFlags::DISCARD {
                receive_and_check(&bob, 5, number, len_bytes);
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
        let seen = peek_until_found(&bob, 5, 11, OpFlags::empty());
        assert_eq!((seen.len_bytes, seen.data), (LONG_BYTES, 1));
        alice.assert_no_completion();
        receive_and_check(&bob, 5, 1, LONG_BYTES);
        assert_eq!(alice.next_completion().context, 1);
        peek_until_found(&bob, 5, 11, OpFlags::CLAIM);
        peek_until_found(&bob, 5, 12, OpFlags::CLAIM);
        peek_until_found(&bob, 5, 13, OpFlags::DISCARD);
        assert_eq!(alice.next_completion().context, 4);
        alice.assert_no_completion();
        claim_and_check(&bob, 12, 5, 3, LONG_BYTES);
        assert_eq!(alice.next_completion().context, 3);
        post_peek_or_claim_and_wait(&bob, Tag(5).into(), ANY, 11, OpFlags::CLAIM | OpFlags::DISCARD).unwrap();
        assert_eq!(alice.next_completion().context, 2);
        assert_peek_finds_nothing(&bob, Tag(5).into());
    }
}

#[over(all, own)]
fn claimed_message_outlives_its_sender(net: &Net) {
    for len_bytes in LENS_BYTES {
        let (alice, bob) = net.open_pair();
        deliver(&alice, 5, 1, len_bytes);
        deliver(&alice, 5, 2, len_bytes);
        assert_eq!(peek_identity(&bob, Tag(5).into(), 11, OpFlags::CLAIM), 1);
        drop(alice);
        bob.assert_no_completion();
        let carol = net.open_party();
        bob.meet(&carol);
        deliver(&carol, 5, 3, 8);
        claim_and_check(&bob, 11, 5, 1, len_bytes);
        receive_and_check(&bob, 5, 2, len_bytes);
        receive_and_check(&bob, 5, 3, 8);
    }
}

#[over(all, own)]
fn peek_needs_no_room_among_posted_receives(net: &Net) {
    let (alice, bob) = net.open_pair_with(Setup::default(), Setup { rx_depth_ops: 2, ..Setup::default() });
    bob.endpoint.trecv(marked_buffer(16), ANY, Tag(1), 1).unwrap();
    deliver(&alice, 5, 1, 16);
    deliver(&alice, 5, 2, 16);
    assert_eq!(peek_identity(&bob, Tag(5).into(), 11, OpFlags::empty()), 1);
    assert_eq!(peek_identity(&bob, Tag(5).into(), 11, OpFlags::DISCARD), 1);
    assert_eq!(peek_identity(&bob, Tag(5).into(), 11, OpFlags::CLAIM), 2);
    for _ in 0..5 {
        assert_peek_finds_nothing(&bob, Tag(5).into());
    }
    // The claimed message takes no room among the receives.
    bob.endpoint.trecv(marked_buffer(16), ANY, Tag(2), 2).unwrap();
    assert_peek_finds_nothing(&bob, Tag(5).into());
    expect_error(post_claim(&bob, 11, 5, 16), Errno::EAGAIN);
    deliver(&alice, 1, 3, 16);
    expect_message(&bob, 1, 1, 3, 16);
    claim_and_check(&bob, 11, 5, 2, 16);
}
