//! Tests of the notices of writes that take posted receives.

use super::*;

/// The length of the write of every notice. Longer than any receive here.
const WRITTEN_BYTES: usize = 100;

/// Delivers the notice of a write with this remote data.
fn deliver_notice(receiver: &mut Receiver, data: u64, asked: &mut EffectsRecorder) {
    receiver.spend_credit(LINK, MESSAGE_COST_BYTES).unwrap();
    receiver.write_notice_arrived(LINK, WriteNotice { data, len_bytes: WRITTEN_BYTES }, asked).unwrap();
}

/// Removes the recorded completions. Returns the context of each, and the remote data of notices.
#[track_caller]
fn take_contexts_and_data(asked: &mut EffectsRecorder) -> Vec<(u64, Option<u64>)> {
    let ended = asked.ended.drain(..).map(|ended| ended.expect("no receive fails"));
    let of_write = |ended: &EndedOperation| {
        let flags = ended.flags - CompletionFlags::MULTI_RECV;
        (flags == WriteNotice::FLAGS && ended.len_bytes == WRITTEN_BYTES).then_some(ended.data)
    };
    ended.map(|ended| (ended.context, of_write(&ended))).collect()
}

#[test]
fn kept_notice_holds_the_credit_of_an_empty_message() {
    let (mut receiver, mut asked) = receiver_with_link();
    receiver.try_reserve_budget(BUDGET_BYTES as u64 - CREDIT_INITIAL_BYTES);
    for data in 0..CREDIT_INITIAL_BYTES / MESSAGE_COST_BYTES {
        deliver_notice(&mut receiver, data, &mut asked);
    }
    assert!(receiver.spend_credit(LINK, MESSAGE_COST_BYTES).is_err(), "the peer has no credit left");
    let granted_bytes = receiver.granted_bytes(LINK);
    while receiver.granted_bytes(LINK) == granted_bytes {
        receiver.post(receive_request(8, 1), &mut asked).unwrap();
        receiver.grant_credit_to_starved_links(&mut asked);
    }
    receiver.spend_credit(LINK, MESSAGE_COST_BYTES).expect("receives have returned credit");
}

#[test]
fn notice_releases_a_multi_receive_buffer_with_too_little_room() {
    let (mut receiver, mut asked) = receiver_with_link();
    receiver.post_multi_receive(receive_request(4, 9), 8, None, &mut asked).unwrap();
    deliver_notice(&mut receiver, 70, &mut asked);
    let ended = asked.ended[0].as_ref().unwrap();
    assert_eq!(ended.flags, WriteNotice::FLAGS | CompletionFlags::MULTI_RECV);
    assert!(matches!(&ended.buffer, Buffer::ReceivedLast(last) if last.unused.len() == 4));
    assert_eq!(receiver.outstanding_receives(), 0);
}

#[test]
fn notice_behind_a_fetch_completes_after_it() {
    for posted_first in [true, false] {
        let (mut receiver, mut asked) = receiver_in_order();
        if posted_first {
            post_all(&mut receiver, 1..=2, &mut asked);
        }
        deliver_offer(&mut receiver, 7, 5, &mut asked);
        deliver_notice(&mut receiver, 70, &mut asked);
        if !posted_first {
            post_all(&mut receiver, 1..=2, &mut asked);
        }
        assert!(asked.ended.is_empty());
        receiver.pull_payloads(|_| true, make_pull_from(b"fetch"), &mut asked);
        assert_eq!(take_contexts_and_data(&mut asked), [(1, None), (2, Some(70))]);
        assert_eq!(receiver.outstanding_receives(), 0);
    }
}

#[test]
fn notice_that_waits_for_its_turn_fails_with_its_leaving_member() {
    let (mut receiver, mut asked) = receiver_in_order();
    post_all(&mut receiver, 1..=2, &mut asked);
    deliver_offer(&mut receiver, 7, 5, &mut asked);
    deliver_notice(&mut receiver, 70, &mut asked);
    receiver.drop_messages_of_member(MemberId::ONLY, &RESET, &mut asked);
    receiver.link_ended(LINK, &RESET, &mut asked);
    assert_eq!(asked.take_ended(), [(1, Err(RESET)), (2, Err(RESET))]);
}

#[test]
fn peek_reports_a_notice_and_its_claim_receives_it() {
    let (mut receiver, mut asked) = receiver_with_link();
    for data in [70, 71] {
        deliver_notice(&mut receiver, data, &mut asked);
    }
    for (context, then) in [(1, PeekAction::Keep), (2, PeekAction::Claim), (3, PeekAction::Claim)] {
        receiver.peek(peek_request(context, then), &mut asked).unwrap();
    }
    receiver.receive_claimed(receive_request(8, 2), 2, &mut asked).unwrap();
    receiver.discard_claimed(false, 3, None, &mut asked).unwrap();
    assert_eq!(
        take_contexts_and_data(&mut asked),
        [(1, Some(70)), (2, Some(70)), (3, Some(71)), (2, Some(70)), (3, Some(71))]
    );
    assert!(receiver.unexpected_len() == 0 && receiver.claimed.is_empty());
}

#[test]
fn match_fence_waits_for_a_kept_notice() {
    let (mut receiver, mut asked) = receiver_with_link();
    deliver_notice(&mut receiver, 70, &mut asked);
    receiver.fence_asked(LINK, true, &mut asked).unwrap();
    assert!(asked.queued.is_empty());
    receiver.post(receive_request(8, 1), &mut asked).unwrap();
    assert_eq!(asked.queued, [(LINK, Header::Fenced)]);
}
