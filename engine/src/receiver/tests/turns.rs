//! Tests of the receives of a connection, which complete in the order in which they match.

use super::*;

/// Gives the receiver the payload of all offers that it asks for.
fn pull_all(receiver: &mut Receiver, asked: &mut EffectsRecorder) {
    receiver.pull_payloads(|_| true, make_pull_from(&fetched_payload(16)), asked);
}

fn fetched_payload(len_bytes: usize) -> Vec<u8> {
    vec![b'f'; len_bytes]
}

#[test]
fn short_message_behind_a_fetch_completes_after_it() {
    let (mut receiver, mut asked) = receiver_in_order();
    post_all(&mut receiver, 1..=3, &mut asked);
    deliver_message(&mut receiver, LINK, b"before", &mut asked);
    deliver_offer(&mut receiver, 7, 5, &mut asked);
    receiver.message_arrived(LINK, &make_message(6, AwaitedReply::Match), b"behind", &mut asked).unwrap();
    assert_eq!(asked.take_ended(), [(1, Ok(b"before".to_vec()))]);
    let counts = (asked.counted.len(), receiver.outstanding_receives());
    assert_eq!(counts, (1, 2), "what waits is outstanding and not counted");
    assert_eq!(asked.queued, [(LINK, Header::Matched { number: 2 })], "its sender need not wait");
    pull_all(&mut receiver, &mut asked);
    assert_eq!(asked.take_ended(), [(2, Ok(fetched_payload(5))), (3, Ok(b"behind".to_vec()))]);
    assert_eq!((asked.counted.len(), receiver.outstanding_receives()), (3, 0));
    assert!(!receiver.has_special_cases, "the next message takes the short way again");
}

#[test]
fn receives_complete_as_their_payload_arrives_unless_order_is_kept() {
    let (mut receiver, mut asked) = receiver_with_link();
    post_all(&mut receiver, 1..=2, &mut asked);
    deliver_offer(&mut receiver, 7, 5, &mut asked);
    deliver_message(&mut receiver, LINK, b"behind", &mut asked);
    assert_eq!(asked.take_ended(), [(2, Ok(b"behind".to_vec()))]);
    pull_all(&mut receiver, &mut asked);
    assert_eq!(asked.take_ended(), [(1, Ok(fetched_payload(5)))]);
}

#[test]
fn claimed_message_has_its_turn_when_it_is_received() {
    let (mut receiver, mut asked) = receiver_in_order();
    deliver_message(&mut receiver, LINK, b"claimed", &mut asked);
    receiver.peek(peek_request(2, PeekAction::Claim), &mut asked).unwrap();
    assert_eq!(asked.take_ended().len(), 1);
    post_all(&mut receiver, [1], &mut asked);
    deliver_offer(&mut receiver, 7, 5, &mut asked);
    receiver.receive_claimed(receive_request(8, 2), 2, &mut asked).unwrap();
    assert!(asked.ended.is_empty());
    pull_all(&mut receiver, &mut asked);
    assert_eq!(asked.take_ended(), [(1, Ok(fetched_payload(5))), (2, Ok(b"claimed".to_vec()))]);
}

#[test]
fn tagged_unsignalled_deferred_and_truncated_receives_keep_their_turn() {
    let (mut receiver, mut asked) = receiver_in_order();
    post_all(&mut receiver, [1], &mut asked);
    for request in [
        ReceiveRequest { tagged: true, ..receive_request(8, 2) },
        ReceiveRequest { signalled: Signalled::No, ..receive_request(8, 3) },
        ReceiveRequest { signalled: Signalled::Deferred, ..receive_request(8, 4) },
        receive_request(2, 5),
    ] {
        receiver.post(request, &mut asked).unwrap();
    }
    deliver_offer(&mut receiver, 7, 5, &mut asked);
    let tagged = Message { tag: Some(9), ..make_message(6, AwaitedReply::Nothing) };
    receiver.message_arrived(LINK, &tagged, b"tagged", &mut asked).unwrap();
    for bytes in [&b"silent"[..], b"work", b"too long"] {
        deliver_message(&mut receiver, LINK, bytes, &mut asked);
    }
    assert!(asked.ended.is_empty() && asked.counted.is_empty() && asked.works.is_empty());
    pull_all(&mut receiver, &mut asked);
    let cut = OperationError::Truncated { overflow_bytes: 6 };
    assert_eq!(asked.take_ended(), [(1, Ok(fetched_payload(5))), (2, Ok(b"tagged".to_vec())), (5, Err(cut))]);
    let counted: Vec<bool> = asked.counted.iter().map(|(_, is_success)| *is_success).collect();
    assert_eq!((&counted[..], &asked.works[..]), (&[true, true, true, false][..], &[(4, true)][..]));
}

#[test]
fn buffer_takes_no_more_messages_than_may_wait_for_their_turn() {
    const DEPTH_OPS: usize = 4;
    const MESSAGES: u64 = 20;
    let (mut receiver, mut asked) = receiver_in_order();
    receiver.depth_ops = DEPTH_OPS;
    receiver.post_multi_receive(receive_request(40, 1), 0, None, &mut asked).unwrap();
    deliver_offer(&mut receiver, 7, 16, &mut asked);
    // Empty messages use no memory of the buffer, so the buffer could take any number of them.
    for number in 0..MESSAGES {
        let message =
            |len_bytes| Message { data: Some(number), ..make_message(len_bytes, AwaitedReply::Nothing) };
        if number == 5 {
            // Messages behind this one wait once more.
            receiver.message_offered(LINK, &message(16), 8, REMOTE, &mut asked).unwrap();
        } else {
            receiver.message_arrived(LINK, &message(0), b"", &mut asked).unwrap();
        }
    }
    assert!(asked.ended.is_empty());
    assert_eq!(receiver.unexpected_len(), MESSAGES as usize + 1 - DEPTH_OPS);
    pull_all(&mut receiver, &mut asked);
    pull_all(&mut receiver, &mut asked);
    let data: Vec<u64> = asked.ended.iter().map(|ended| ended.as_ref().unwrap().data).collect();
    assert_eq!(data[1..], (0..MESSAGES).collect::<Vec<_>>());
    assert_eq!(receiver.unexpected_len(), 0);
}

#[test]
fn receive_posted_after_the_link_ended_takes_messages_kept_aside() {
    let (mut receiver, mut asked) = receiver_in_order();
    receiver.depth_ops = 2;
    receiver.post_multi_receive(receive_request(40, 1), 0, None, &mut asked).unwrap();
    deliver_offer(&mut receiver, 7, 5, &mut asked);
    deliver_message(&mut receiver, LINK, b"ab", &mut asked);
    deliver_offer(&mut receiver, 8, 5, &mut asked);
    assert!(receiver.has_kept_aside());
    // The buffer ends. The next receive takes the offer that was kept aside for the buffer.
    assert!(receiver.cancel(CancelKey::Context(1), &mut asked));
    receiver.fail_all_and_close(Some(PEER), &RESET, &mut asked);
    receiver.depth_ops = 5;
    post_all(&mut receiver, 2..=3, &mut asked);
    for _ in 0..2 {
        pull_all(&mut receiver, &mut asked);
    }
    let ended = [
        (1, Ok(fetched_payload(5))),
        (1, Ok(b"ab".to_vec())),
        (1, Err(OperationError::Cancelled)),
        (3, Err(RESET)),
        (2, Ok(fetched_payload(5))),
    ];
    assert_eq!(asked.take_ended(), ended);
    assert_eq!(receiver.outstanding_receives(), 0);
}
