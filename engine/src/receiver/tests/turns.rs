//! Receives of a connection, which complete in the order in which they are given their messages.

use super::*;

mod random;

const SERVED: [MemberId; 2] = [MemberId(1), MemberId(2)];

/// A receiver whose only member keeps the order.
fn receiver_in_order() -> (Receiver, EffectsRecorder) {
    let (mut receiver, asked) = receiver_with_link();
    receiver.keep_order(MemberId::ONLY);
    (receiver, asked)
}

fn offer(receiver: &mut Receiver, link: LinkId, op: u64, len_bytes: usize, asked: &mut EffectsRecorder) {
    receiver.offered(link, &message(len_bytes, Awaits::Nothing), op, REMOTE, asked).unwrap();
}

fn send(receiver: &mut Receiver, link: LinkId, bytes: &[u8], asked: &mut EffectsRecorder) {
    arrive(receiver, link, bytes, Awaits::Nothing, asked).unwrap();
}

fn post_all(receiver: &mut Receiver, contexts: impl IntoIterator<Item = u64>, asked: &mut EffectsRecorder) {
    contexts.into_iter().for_each(|context| receiver.post(receive(8, context), asked).unwrap());
}

fn pull(receiver: &mut Receiver, outcome: Pull, asked: &mut EffectsRecorder) {
    let give = |_, _: &Remote, _, into: &mut [IoSliceMut<'_>]| {
        into.iter_mut().for_each(|place| place.fill(b'f'));
        outcome
    };
    receiver.pull(|_| true, give, asked);
}

fn fetched(len_bytes: usize) -> Vec<u8> {
    vec![b'f'; len_bytes]
}

#[test]
fn short_message_behind_a_fetch_completes_after_it() {
    let (mut receiver, mut asked) = receiver_in_order();
    post_all(&mut receiver, 1..=3, &mut asked);
    send(&mut receiver, LINK, b"before", &mut asked);
    offer(&mut receiver, LINK, 7, 5, &mut asked);
    arrive(&mut receiver, LINK, b"behind", Awaits::Match, &mut asked).unwrap();
    assert_eq!(asked.take_ended(), [(1, Ok(b"before".to_vec()))]);
    assert_eq!(
        (asked.counted.len(), receiver.outstanding()),
        (1, 2),
        "what waits is outstanding and not counted"
    );
    assert_eq!(asked.owed, [(LINK, Header::Matched { number: 2 })], "its sender need not wait");
    pull(&mut receiver, Pull::Done, &mut asked);
    assert_eq!(asked.take_ended(), [(2, Ok(fetched(5))), (3, Ok(b"behind".to_vec()))]);
    assert_eq!((asked.counted.len(), receiver.outstanding()), (3, 0));
    assert!(!receiver.has_special_cases, "the next message takes the short way again");
}

#[test]
fn receives_without_an_order_complete_as_they_end() {
    let (mut receiver, mut asked) = receiver_with_link();
    post_all(&mut receiver, 1..=2, &mut asked);
    offer(&mut receiver, LINK, 7, 5, &mut asked);
    send(&mut receiver, LINK, b"behind", &mut asked);
    assert_eq!(asked.take_ended(), [(2, Ok(b"behind".to_vec()))]);
    pull(&mut receiver, Pull::Done, &mut asked);
    assert_eq!(asked.take_ended(), [(1, Ok(fetched(5)))]);
}

#[test]
fn fetches_that_end_in_another_order_complete_in_theirs() {
    let (mut receiver, mut asked) = receiver_in_order();
    post_all(&mut receiver, 1..=2, &mut asked);
    offer(&mut receiver, LINK, 7, 5, &mut asked);
    offer(&mut receiver, LINK, 8, 4, &mut asked);
    pull(&mut receiver, Pull::Refused, &mut asked);
    for (op, bytes) in [(8, &b"late"[..]), (7, b"first")] {
        assert!(asked.ended.is_empty());
        assert!(receiver.begin_data(LINK, op, bytes.len() as u64));
        receiver.put(LINK, bytes, &mut asked);
    }
    assert_eq!(asked.take_ended(), [(1, Ok(b"first".to_vec())), (2, Ok(b"late".to_vec()))]);
}

#[test]
fn receives_posted_late_complete_in_order() {
    let (mut receiver, mut asked) = receiver_in_order();
    offer(&mut receiver, LINK, 7, 5, &mut asked);
    send(&mut receiver, LINK, b"whole", &mut asked);
    receiver.begin_message(LINK, &message(5, Awaits::Nothing), &mut asked).unwrap();
    receiver.put(LINK, b"in ", &mut asked);
    post_all(&mut receiver, 1..=3, &mut asked);
    receiver.put(LINK, b"on", &mut asked);
    assert!(asked.ended.is_empty());
    pull(&mut receiver, Pull::Done, &mut asked);
    let ended = [(1, Ok(fetched(5))), (2, Ok(b"whole".to_vec())), (3, Ok(b"in on".to_vec()))];
    assert_eq!(asked.take_ended(), ended);
}

#[test]
fn claimed_message_has_its_turn_when_it_is_received() {
    let (mut receiver, mut asked) = receiver_in_order();
    send(&mut receiver, LINK, b"claimed", &mut asked);
    let peek = PeekRequest { tagged: false, criteria: Criteria::any(), context: 2, then: PeekAction::Claim };
    receiver.peek(peek, &mut asked).unwrap();
    assert_eq!(asked.take_ended().len(), 1);
    post_all(&mut receiver, [1], &mut asked);
    offer(&mut receiver, LINK, 7, 5, &mut asked);
    receiver.receive_claimed(receive(8, 2), &mut asked).unwrap();
    assert!(asked.ended.is_empty());
    pull(&mut receiver, Pull::Done, &mut asked);
    assert_eq!(asked.take_ended(), [(1, Ok(fetched(5))), (2, Ok(b"claimed".to_vec()))]);
}

#[test]
fn tagged_silent_deferred_and_cut_receives_have_turns() {
    let (mut receiver, mut asked) = receiver_in_order();
    post_all(&mut receiver, [1], &mut asked);
    for request in [
        ReceiveRequest { tagged: true, ..receive(8, 2) },
        ReceiveRequest { signalled: Signalled::No, ..receive(8, 3) },
        ReceiveRequest { signalled: Signalled::Deferred, ..receive(8, 4) },
        receive(2, 5),
    ] {
        receiver.post(request, &mut asked).unwrap();
    }
    offer(&mut receiver, LINK, 7, 5, &mut asked);
    let tagged = Message { tag: Some(9), ..message(6, Awaits::Nothing) };
    receiver.message(LINK, &tagged, b"tagged", &mut asked).unwrap();
    for bytes in [&b"silent"[..], b"work", b"too long"] {
        send(&mut receiver, LINK, bytes, &mut asked);
    }
    assert!(asked.ended.is_empty() && asked.counted.is_empty() && asked.works.is_empty());
    pull(&mut receiver, Pull::Done, &mut asked);
    let cut = OperationError::Truncated { overflow_bytes: 6 };
    assert_eq!(asked.take_ended(), [(1, Ok(fetched(5))), (2, Ok(b"tagged".to_vec())), (5, Err(cut))]);
    let counted: Vec<bool> = asked.counted.iter().map(|(_, is_success)| *is_success).collect();
    assert_eq!((&counted[..], &asked.works[..]), (&[true, true, true, false][..], &[(4, true)][..]));
}

#[test]
fn link_end_fails_fetches_and_completes_received_messages_in_order() {
    let (mut receiver, mut asked) = receiver_in_order();
    post_all(&mut receiver, 1..=6, &mut asked);
    for (op, bytes) in [(7, &b"one"[..]), (8, b"two")] {
        offer(&mut receiver, LINK, op, 5, &mut asked);
        send(&mut receiver, LINK, bytes, &mut asked);
    }
    receiver.begin_message(LINK, &message(5, Awaits::Nothing), &mut asked).unwrap();
    receiver.put(LINK, b"half", &mut asked);
    assert!(receiver.cancel(Cancellable::Context(6), &mut asked), "nothing has matched it");
    assert_eq!(asked.take_ended(), [(6, Err(OperationError::Cancelled))]);
    assert!(!receiver.cancel(Cancellable::Context(2), &mut asked), "it has its message");
    receiver.link_ended(LINK, &RESET, &mut asked);
    let ended = [
        (1, Err(RESET)),
        (2, Ok(b"one".to_vec())),
        (3, Err(RESET)),
        (4, Ok(b"two".to_vec())),
        (5, Err(RESET)),
    ];
    assert_eq!(asked.take_ended(), ended);
    assert_eq!((receiver.outstanding(), receiver.has_special_cases), (0, false));
}

#[test]
fn fetch_that_faults_fails_in_its_turn() {
    let (mut receiver, mut asked) = receiver_in_order();
    post_all(&mut receiver, 1..=3, &mut asked);
    offer(&mut receiver, LINK, 7, 5, &mut asked);
    offer(&mut receiver, LINK, 8, 5, &mut asked);
    send(&mut receiver, LINK, b"behind", &mut asked);
    receiver.set_pull_step_max_bytes(1);
    // The second one is found to be unreadable first.
    let mut is_first = true;
    let give = |_, _: &Remote, _, into: &mut [IoSliceMut<'_>]| {
        into[0].fill(b'f');
        if std::mem::take(&mut is_first) { Pull::Done } else { Pull::Fault }
    };
    receiver.pull(|_| true, give, &mut asked);
    assert_eq!((asked.ended.len(), receiver.fetches_len()), (0, 1));
    for _ in 1..5 {
        assert!(asked.ended.is_empty());
        pull(&mut receiver, Pull::Done, &mut asked);
    }
    let ended = [(1, Ok(fetched(5))), (2, Err(OperationError::Fault)), (3, Ok(b"behind".to_vec()))];
    assert_eq!(asked.take_ended(), ended);
}

#[test]
fn members_of_a_shared_receiver_have_turns_of_their_own() {
    let mut receiver = Receiver::new(64, BUDGET_BYTES);
    let mut asked = EffectsRecorder::default();
    for (link, member) in [LINK, OTHER].into_iter().zip(SERVED) {
        receiver.keep_order(member);
        receiver.link_added(link, PEER, member);
    }
    post_all(&mut receiver, 1..=5, &mut asked);
    offer(&mut receiver, LINK, 7, 5, &mut asked);
    send(&mut receiver, LINK, b"waits", &mut asked);
    send(&mut receiver, OTHER, b"goes on", &mut asked);
    assert_eq!(asked.take_ended(), [(3, Ok(b"goes on".to_vec()))]);
    offer(&mut receiver, OTHER, 7, 5, &mut asked);
    send(&mut receiver, OTHER, b"waits too", &mut asked);
    receiver.pull(|link| link == OTHER, pull_from(b"other"), &mut asked);
    let cut = OperationError::Truncated { overflow_bytes: 1 };
    assert_eq!(asked.take_ended(), [(4, Ok(b"other".to_vec())), (5, Err(cut))]);
    receiver.link_ended(LINK, &RESET, &mut asked);
    assert_eq!(asked.take_ended(), [(1, Err(RESET)), (2, Ok(b"waits".to_vec()))]);
    assert_eq!(receiver.outstanding(), 0);
}

#[test]
fn buffer_is_released_by_its_last_message_in_order() {
    let (mut receiver, mut asked) = receiver_in_order();
    receiver.post_multi_receive(receive(40, 1), 16, &mut asked).unwrap();
    offer(&mut receiver, LINK, 7, 16, &mut asked);
    send(&mut receiver, LINK, b"fills the buffer", &mut asked);
    assert!(asked.ended.is_empty());
    pull(&mut receiver, Pull::Done, &mut asked);
    let flags: Vec<CompletionFlags> = asked.ended.iter().map(|ended| ended.as_ref().unwrap().flags).collect();
    assert_eq!(flags.len(), 2);
    assert!(
        !flags[0].contains(CompletionFlags::MULTI_RECV) && flags[1].contains(CompletionFlags::MULTI_RECV)
    );
    assert_eq!(receiver.outstanding(), 0);
}

#[test]
fn buffer_takes_no_more_messages_than_may_wait_for_their_turn() {
    const DEPTH_OPS: usize = 4;
    const MESSAGES: u64 = 20;
    let (mut receiver, mut asked) = receiver_in_order();
    receiver.set_depth_ops(DEPTH_OPS);
    receiver.post_multi_receive(receive(40, 1), 0, &mut asked).unwrap();
    offer(&mut receiver, LINK, 7, 16, &mut asked);
    // Empty messages take nothing of the buffer, so it could take any number of them.
    for number in 0..MESSAGES {
        let empty = Message { data: Some(number), ..message(0, Awaits::Nothing) };
        receiver.message(LINK, &empty, b"", &mut asked).unwrap();
    }
    assert!(asked.ended.is_empty());
    assert_eq!(receiver.unexpected_len(), MESSAGES as usize + 1 - DEPTH_OPS);
    pull(&mut receiver, Pull::Done, &mut asked);
    let data: Vec<u64> = asked.ended.iter().map(|ended| ended.as_ref().unwrap().data).collect();
    assert_eq!(data[1..], (0..MESSAGES).collect::<Vec<_>>());
    assert_eq!(receiver.unexpected_len(), 0);
}

/// A buffer whose receives have all the turns that there may be, and an offer that is kept aside for it.
fn offer_kept_aside() -> (Receiver, EffectsRecorder) {
    let (mut receiver, mut asked) = receiver_in_order();
    receiver.set_depth_ops(2);
    receiver.post_multi_receive(receive(40, 1), 0, &mut asked).unwrap();
    offer(&mut receiver, LINK, 7, 5, &mut asked);
    send(&mut receiver, LINK, b"ab", &mut asked);
    offer(&mut receiver, LINK, 8, 5, &mut asked);
    assert!(receiver.keeps_aside());
    (receiver, asked)
}

#[test]
fn offer_kept_aside_fails_in_its_turn_as_the_link_ends() {
    let (mut receiver, mut asked) = offer_kept_aside();
    send(&mut receiver, LINK, b"cd", &mut asked);
    receiver.link_ended(LINK, &RESET, &mut asked);
    let ended = [(1, Err(RESET)), (1, Ok(b"ab".to_vec())), (1, Err(RESET)), (1, Ok(b"cd".to_vec()))];
    assert_eq!(asked.take_ended(), ended);
    receiver.end_all(Some(PEER), &RESET, &mut asked);
    assert_eq!(asked.take_ended(), [(1, Err(RESET))], "the buffer is released");
    assert_eq!((receiver.outstanding(), receiver.fetches_len(), receiver.unexpected_len()), (0, 0, 0));
    assert!(!receiver.turns.are_pending() && receiver.take_budget(BUDGET_BYTES as u64));
}

#[test]
fn buffer_takes_what_is_kept_aside_before_the_end_of_all_releases_it() {
    let (mut receiver, mut asked) = offer_kept_aside();
    receiver.end_all(Some(PEER), &RESET, &mut asked);
    assert!(asked.ended.is_empty());
    pull(&mut receiver, Pull::Done, &mut asked);
    pull(&mut receiver, Pull::Done, &mut asked);
    let ended = [(1, Ok(fetched(5))), (1, Ok(b"ab".to_vec())), (1, Ok(fetched(5))), (1, Err(RESET))];
    assert_eq!(asked.take_ended(), ended);
    assert_eq!(receiver.outstanding(), 0);
}

#[test]
fn receive_posted_after_the_end_takes_what_is_kept_aside() {
    let (mut receiver, mut asked) = offer_kept_aside();
    // The buffer goes, and what is kept aside for it is left to the next receive.
    assert!(receiver.cancel(Cancellable::Context(1), &mut asked));
    receiver.end_all(Some(PEER), &RESET, &mut asked);
    receiver.set_depth_ops(5);
    post_all(&mut receiver, 2..=3, &mut asked);
    for _ in 0..2 {
        pull(&mut receiver, Pull::Done, &mut asked);
    }
    let ended = [
        (1, Ok(fetched(5))),
        (1, Ok(b"ab".to_vec())),
        (1, Err(OperationError::Cancelled)),
        (3, Err(RESET)),
        (2, Ok(fetched(5))),
    ];
    assert_eq!(asked.take_ended(), ended);
    assert_eq!(receiver.outstanding(), 0);
}
