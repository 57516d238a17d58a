//! Tests of the notices of writes that take posted receives.

use super::*;

/// The length of the write of every notice. Longer than any receive here.
const WRITTEN_BYTES: usize = 100;

/// Delivers the notice of a write with this remote data.
fn deliver_notice(receiver: &mut Receiver, link: LinkId, data: u64, asked: &mut EffectsRecorder) {
    receiver.spend_credit(link, MESSAGE_COST_BYTES).unwrap();
    receiver.write_notice_arrived(link, WriteNotice { data, len_bytes: WRITTEN_BYTES }, asked).unwrap();
}

fn deliver_bytes(receiver: &mut Receiver, bytes: &[u8], asked: &mut EffectsRecorder) {
    deliver_message(receiver, LINK, bytes, AwaitedReply::Nothing, asked).unwrap();
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
fn notice_takes_the_earliest_untagged_receive_of_its_peer() {
    let (mut receiver, mut asked) = receiver_with_link();
    let of_other = Criteria { source: Some(PeerId(6)), ..Criteria::any() };
    let of_peer = Criteria { source: Some(PEER), ..Criteria::any() };
    receiver.post(ReceiveRequest { tagged: true, ..receive_request(8, 1) }, &mut asked).unwrap();
    receiver.post(ReceiveRequest { criteria: of_other, ..receive_request(8, 2) }, &mut asked).unwrap();
    receiver.post(receive_request(8, 3), &mut asked).unwrap();
    receiver.post(ReceiveRequest { criteria: of_peer, ..receive_request(8, 4) }, &mut asked).unwrap();
    deliver_notice(&mut receiver, LINK, 70, &mut asked);
    let ended = asked.ended[0].clone().unwrap();
    let expected = EndedOperation {
        context: 3,
        flags: CompletionFlags::RMA | CompletionFlags::REMOTE_WRITE | CompletionFlags::REMOTE_CQ_DATA,
        len_bytes: WRITTEN_BYTES,
        data: 70,
        tag: 0,
        source: Some(PEER),
        buffer: Buffer::Received(BytesMut::new()),
    };
    assert_eq!(ended, expected);
    deliver_notice(&mut receiver, LINK, 71, &mut asked);
    assert_eq!(take_contexts_and_data(&mut asked), [(3, Some(70)), (4, Some(71))]);
    assert_eq!(asked.counted, [(CounterEvents::RECV, true); 2]);
    assert_eq!(receiver.outstanding_receives(), 2, "the tagged one, and that of the other peer");
    receiver.link_ended(LINK, &RESET, &mut asked);
    assert!(receiver.try_reserve_budget(BUDGET_BYTES as u64), "the notices hold no credit");
}

#[test]
fn kept_notices_and_messages_take_receives_in_order_of_arrival() {
    let (mut receiver, mut asked) = receiver_with_link();
    deliver_bytes(&mut receiver, b"first", &mut asked);
    deliver_notice(&mut receiver, LINK, 70, &mut asked);
    deliver_bytes(&mut receiver, b"second", &mut asked);
    deliver_notice(&mut receiver, LINK, 71, &mut asked);
    assert!(asked.ended.is_empty() && receiver.unexpected_len() == 4);
    receiver.post(ReceiveRequest { tagged: true, ..receive_request(8, 9) }, &mut asked).unwrap();
    assert!(asked.ended.is_empty(), "a tagged receive takes none");
    for context in 1..=4 {
        receiver.post(receive_request(8, context), &mut asked).unwrap();
    }
    assert_eq!(take_contexts_and_data(&mut asked), [(1, None), (2, Some(70)), (3, None), (4, Some(71))]);
}

#[test]
fn kept_notice_holds_the_credit_of_an_empty_message() {
    let (mut receiver, mut asked) = receiver_with_link();
    receiver.try_reserve_budget(BUDGET_BYTES as u64 - CREDIT_INITIAL_BYTES);
    for data in 0..CREDIT_INITIAL_BYTES / MESSAGE_COST_BYTES {
        deliver_notice(&mut receiver, LINK, data, &mut asked);
    }
    assert!(receiver.spend_credit(LINK, MESSAGE_COST_BYTES).is_err(), "the peer has no credit left");
    let granted_bytes = receiver.granted_bytes(LINK);
    receiver.post(receive_request(8, 1), &mut asked).unwrap();
    receiver.grant_credit_to_starved_links(&mut asked);
    while receiver.granted_bytes(LINK) == granted_bytes {
        receiver.post(receive_request(8, 1), &mut asked).unwrap();
        receiver.grant_credit_to_starved_links(&mut asked);
    }
    receiver.spend_credit(LINK, MESSAGE_COST_BYTES).expect("receives have returned credit");
}

#[test]
fn notice_outlives_its_link() {
    let (mut receiver, mut asked) = receiver_with_link();
    deliver_notice(&mut receiver, LINK, 70, &mut asked);
    receiver.link_ended(LINK, &RESET, &mut asked);
    receiver.post(receive_request(8, 1), &mut asked).unwrap();
    assert_eq!(take_contexts_and_data(&mut asked), [(1, Some(70))]);
    assert!(receiver.try_reserve_budget(BUDGET_BYTES as u64), "all of it is free");
}

#[test]
fn notice_uses_no_byte_of_a_multi_receive_buffer() {
    for posted_first in [true, false] {
        let (mut receiver, mut asked) = receiver_with_link();
        let post = |receiver: &mut Receiver, asked: &mut EffectsRecorder| {
            receiver.post_multi_receive(receive_request(16, 9), 8, None, asked).unwrap();
        };
        if posted_first {
            post(&mut receiver, &mut asked);
        }
        for data in [70, 71] {
            deliver_notice(&mut receiver, LINK, data, &mut asked);
        }
        deliver_bytes(&mut receiver, b"the whole buffer", &mut asked);
        if !posted_first {
            post(&mut receiver, &mut asked);
        }
        let last_flags = asked.ended.last().unwrap().as_ref().unwrap().flags;
        assert!(last_flags.contains(CompletionFlags::MULTI_RECV), "the message has released it");
        assert_eq!(take_contexts_and_data(&mut asked), [(9, Some(70)), (9, Some(71)), (9, None)]);
        assert_eq!(asked.counted, [(CounterEvents::RECV, true); 3]);
        assert_eq!(receiver.outstanding_receives(), 0);
    }
}

#[test]
fn notice_releases_a_multi_receive_buffer_with_too_little_room() {
    let (mut receiver, mut asked) = receiver_with_link();
    receiver.post_multi_receive(receive_request(4, 9), 8, None, &mut asked).unwrap();
    deliver_notice(&mut receiver, LINK, 70, &mut asked);
    let ended = asked.ended[0].as_ref().unwrap();
    assert_eq!(ended.flags, WriteNotice::FLAGS | CompletionFlags::MULTI_RECV);
    assert!(matches!(&ended.buffer, Buffer::ReceivedLast(last) if last.unused.len() == 4));
    assert_eq!(receiver.outstanding_receives(), 0);
}

#[test]
fn notice_behind_a_fetch_completes_after_it() {
    for posted_first in [true, false] {
        let (mut receiver, mut asked) = receiver_with_link();
        receiver.keep_completion_order(MemberId::ONLY);
        let post = |receiver: &mut Receiver, asked: &mut EffectsRecorder| {
            for context in [1, 2] {
                receiver.post(receive_request(8, context), asked).unwrap();
            }
        };
        if posted_first {
            post(&mut receiver, &mut asked);
        }
        let message = make_message(5, AwaitedReply::Nothing);
        receiver.message_offered(LINK, &message, 7, REMOTE, &mut asked).unwrap();
        deliver_notice(&mut receiver, LINK, 70, &mut asked);
        if !posted_first {
            post(&mut receiver, &mut asked);
        }
        assert!(asked.ended.is_empty());
        receiver.pull_payloads(|_| true, make_pull_from(b"fetch"), &mut asked);
        assert_eq!(take_contexts_and_data(&mut asked), [(1, None), (2, Some(70))]);
        assert_eq!(receiver.outstanding_receives(), 0);
    }
}

#[test]
fn notice_that_waits_for_its_turn_fails_with_its_leaving_member() {
    let (mut receiver, mut asked) = receiver_with_link();
    receiver.keep_completion_order(MemberId::ONLY);
    for context in [1, 2] {
        receiver.post(receive_request(8, context), &mut asked).unwrap();
    }
    let message = make_message(5, AwaitedReply::Nothing);
    receiver.message_offered(LINK, &message, 7, REMOTE, &mut asked).unwrap();
    deliver_notice(&mut receiver, LINK, 70, &mut asked);
    receiver.drop_messages_of_member(MemberId::ONLY, &RESET, &mut asked);
    receiver.link_ended(LINK, &RESET, &mut asked);
    assert_eq!(asked.take_ended(), [(1, Err(RESET)), (2, Err(RESET))]);
}

#[test]
fn peek_reports_a_notice_and_its_claim_receives_it() {
    let (mut receiver, mut asked) = receiver_with_link();
    for data in [70, 71] {
        deliver_notice(&mut receiver, LINK, data, &mut asked);
    }
    let peek =
        |context, then| PeekRequest { tagged: false, criteria: Criteria::any(), context, work: None, then };
    receiver.peek(peek(1, PeekAction::Keep), &mut asked).unwrap();
    receiver.peek(peek(2, PeekAction::Claim), &mut asked).unwrap();
    receiver.peek(peek(3, PeekAction::Claim), &mut asked).unwrap();
    receiver.receive_claimed(receive_request(8, 2), 2, &mut asked).unwrap();
    receiver.discard_claimed(false, 3, None, &mut asked).unwrap();
    assert_eq!(
        take_contexts_and_data(&mut asked),
        [(1, Some(70)), (2, Some(70)), (3, Some(71)), (2, Some(70)), (3, Some(71))]
    );
    assert_eq!((receiver.unexpected_len(), receiver.has_claimed()), (0, false));
}

#[test]
fn unsignalled_receive_of_a_notice_is_counted_and_not_reported() {
    for posted_first in [true, false] {
        let (mut receiver, mut asked) = receiver_with_link();
        let unsignalled = ReceiveRequest { signalled: Signalled::No, ..receive_request(8, 1) };
        if posted_first {
            receiver.post(unsignalled, &mut asked).unwrap();
            deliver_notice(&mut receiver, LINK, 70, &mut asked);
        } else {
            deliver_notice(&mut receiver, LINK, 70, &mut asked);
            receiver.post(unsignalled, &mut asked).unwrap();
        }
        assert!(asked.ended.is_empty());
        assert_eq!(asked.counted, [(CounterEvents::RECV, true)]);
        assert_eq!(receiver.outstanding_receives(), 0);
    }
}

#[test]
fn deferred_receive_ends_with_a_notice() {
    let (mut receiver, mut asked) = receiver_with_link();
    asked.reports_work = true;
    let deferred = ReceiveRequest { signalled: Signalled::Deferred, ..receive_request(8, 1) };
    receiver.post(deferred, &mut asked).unwrap();
    deliver_notice(&mut receiver, LINK, 70, &mut asked);
    assert_eq!(asked.works, [(1, true)]);
    assert_eq!(asked.counted, [(CounterEvents::RECV, true)]);
    assert_eq!(take_contexts_and_data(&mut asked), [(101, Some(70))]);
}

#[test]
fn match_fence_waits_for_a_kept_notice() {
    let (mut receiver, mut asked) = receiver_with_link();
    deliver_notice(&mut receiver, LINK, 70, &mut asked);
    receiver.fence_asked(LINK, true, &mut asked).unwrap();
    assert!(asked.queued.is_empty());
    receiver.post(receive_request(8, 1), &mut asked).unwrap();
    assert_eq!(asked.queued, [(LINK, Header::Fenced)]);
}
