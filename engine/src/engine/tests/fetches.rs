//! Tests of the receiver's side of a rendezvous.

use super::*;

/// Returns an engine that pulls 4 bytes at a time. Its peer on link 7 exposes `memory`.
fn engine_and_memory(memory: &[u8]) -> Node {
    configured_engine_and_memory(untimed_config(), memory)
}

fn configured_engine_and_memory(config: Config, memory: &[u8]) -> Node {
    let (mut node, _) = engine_with_config(config);
    node.engine.set_pull_step_max_bytes(4);
    node.transport.memory = memory.to_vec();
    node
}

fn offer_header(op: u64, len_bytes: u64) -> Header {
    let Header::Message(message) = untagged_header(len_bytes) else { unreachable!("it is a message") };
    Header::Request { message, op, remote_bytes: REMOTE.len() as u8 }
}

/// Returns an offer whose payload cannot be pulled, only requested. The sender waits for an
/// acknowledgement.
fn unpullable_offer(op: u64, len_bytes: u64) -> Header {
    let message = Message { awaits: AwaitedReply::Arrival, ..Message::of_len(len_bytes) };
    Header::Request { message, op, remote_bytes: 0 }
}

fn done_header(op: u64) -> Header {
    Header::Done { op, fault: false }
}

fn clear_header(op: u64, cannot_pull: bool) -> Header {
    Header::Clear { op, cannot_pull }
}

/// Returns the offset and the length of each pull.
fn pulled_ranges(transport: &Scripted) -> Vec<(u64, usize)> {
    transport.pulled.iter().map(|(_, offset_bytes, count_bytes)| (*offset_bytes, *count_bytes)).collect()
}

fn ended_error(sink: &Recorder, at: usize) -> &OperationError {
    &sink.ended[at].as_ref().expect_err("it failed").error
}

#[test]
fn offer_may_arrive_in_pieces() {
    let mut node = engine_and_memory(b"abcd");
    node.post_receive(receive_request(4, 1));
    node.frame_begun(LINK, &offer_header(11, 4));
    assert!(node.arrivals().payload_space(LINK).is_empty());
    node.payload_arrived(LINK, &REMOTE[..1]);
    node.payload_arrived(LINK, &REMOTE[1..]);
    node.pass_with_frame(LINK, &untagged_header(1), b"x");
    assert_eq!(node.transport.pulled, [(RemotePayload::new(REMOTE).unwrap(), 0, 4)]);
    assert_eq!(received_bytes(&node.sink.ended[0]), b"abcd");
    node.post_receive(receive_request(4, 2));
    assert_eq!(received_bytes(&node.sink.ended[1]), b"x", "what follows is a frame of its own");
}

#[test]
fn concurrent_pulls_alternate_by_steps() {
    let mut node = engine_and_memory(b"0123456789");
    node.post_receives(10, 1..=2);
    node.frame(LINK, &offer_header(1, 10), REMOTE);
    node.frame(LINK, &offer_header(2, 6), REMOTE);
    let mut ended = Vec::new();
    for _ in 0..4 {
        node.transmit();
        ended.push(node.sink.ended.len());
    }
    assert_eq!(pulled_ranges(&node.transport), [(0, 4), (0, 4), (4, 4), (4, 2), (8, 2)]);
    assert_eq!((ended, node.sent_since(0)), (vec![0, 1, 2, 2], vec![done_header(2), done_header(1)]));
    let payloads: Vec<_> = node.sink.ended.iter().map(received_bytes).collect();
    assert_eq!(payloads, [&b"012345"[..], b"0123456789"]);
}

#[test]
fn one_pass_pulls_a_limited_amount() {
    let step_bytes = PULL_PASS_MAX_BYTES / 2;
    let mut node = engine_and_memory(&vec![7; step_bytes]);
    node.engine.set_pull_step_max_bytes(step_bytes);
    for op in 1..=3 {
        node.post_receive(receive_request(step_bytes, op));
        node.frame(LINK, &offer_header(op, step_bytes as u64), REMOTE);
    }
    node.transmit();
    assert_eq!(node.ended_contexts(), [1, 2]);
    node.transmit();
    assert_eq!(node.ended_contexts(), [1, 2, 3]);
}

/// As [`engine_and_memory`], but the engine delays the pulls of unmatched offers.
fn delaying_engine_and_memory(memory: &[u8]) -> Node {
    configured_engine_and_memory(Config::default(), memory)
}

/// Makes a pass at this time.
fn pass_at(node: &mut Node, ms: u64) {
    if node.awaits_timeout() {
        node.advance_time(Moment::from_ms(ms));
    }
    node.transmit();
}

#[test]
fn delayed_message_is_pulled_into_the_buffer_of_its_receive() {
    let mut node = delaying_engine_and_memory(b"0123");
    node.frame(LINK, &offer_header(9, 4), REMOTE);
    for ms in 0..FETCH_DELAY_MS {
        assert!(node.engine.awaits_short_timeout());
        pass_at(&mut node, ms);
    }
    assert_eq!((node.transport.pulled.len(), node.sent_since(0)), (0, vec![]));
    assert_eq!(node.next_deadline(), Some(Moment::from_ms(FETCH_DELAY_MS)));
    node.post_receive(receive_request(4, 1));
    pass_at(&mut node, FETCH_DELAY_MS - 1);
    assert_eq!(received_bytes(&node.sink.ended[0]), b"0123");
    assert_eq!((pulled_ranges(&node.transport), node.sent_since(0)), (vec![(0, 4)], vec![done_header(9)]));
    assert!(!node.awaits_timeout() && !node.has_work_without_arrivals(), "nothing else waits");
}

#[test]
fn delayed_message_is_pulled_at_last_if_no_receive_matches() {
    let mut node = delaying_engine_and_memory(b"0123");
    node.frame(LINK, &offer_header(9, 4), REMOTE);
    for ms in 0..=FETCH_DELAY_MS {
        assert_eq!(node.sent_since(0), [], "before {ms} ms");
        pass_at(&mut node, ms);
    }
    assert_eq!(node.sent_since(0), [done_header(9)]);
    assert!(!node.engine.awaits_short_timeout());
}

#[test]
fn delayed_messages_are_pulled_before_a_thread_sleeps() {
    let mut node = delaying_engine_and_memory(b"0123");
    for op in 1..=2 {
        node.frame(LINK, &offer_header(op, 4), REMOTE);
        pass_at(&mut node, 0);
    }
    node.engine.end_fetch_delays();
    assert!(node.has_work_without_arrivals(), "the thread must make a pass first");
    node.transmit();
    assert_eq!(node.sent_since(0), [done_header(1), done_header(2)]);
    assert!(!node.engine.awaits_short_timeout() && !node.has_work_without_arrivals());
}

#[test]
fn delayed_messages_wait_for_room_in_the_budget() {
    let mut node = delaying_engine_and_memory(b"0123");
    let budget_bytes = UNEXPECTED_BUDGET_DEFAULT_BYTES as u64;
    node.engine.receive_side.try_reserve_budget(budget_bytes - CREDIT_INITIAL_BYTES - 4);
    for op in 1..=2 {
        node.frame(LINK, &offer_header(op, 4), REMOTE);
    }
    for ms in [0, FETCH_DELAY_MS] {
        pass_at(&mut node, ms);
    }
    assert_eq!(node.sent_since(0), [done_header(1)]);
    assert!(!node.has_work_without_arrivals(), "the other one has no room");
    node.post_receive(receive_request(4, 1));
    node.transmit();
    assert_eq!(node.sent_since(0), [done_header(1), done_header(2)]);
}

#[test]
fn empty_and_requested_messages_are_not_delayed() {
    let mut node = delaying_engine_and_memory(b"");
    node.frame(LINK, &offer_header(1, 0), REMOTE);
    node.pass_with_frame(LINK, &unpullable_offer(2, 10), &[]);
    assert_eq!(node.sent_since(0), [done_header(1), clear_header(2, false)]);
}

#[test]
fn receive_takes_over_message_that_is_being_pulled() {
    for (room, steps_before) in
        [(10, 0), (5, 0), (3, 0), (0, 0), (10, 1), (10, 2), (6, 1), (6, 2), (4, 1), (4, 2), (3, 1), (0, 2)]
    {
        let mut node = engine_and_memory(b"0123456789");
        node.frame(LINK, &offer_header(9, 10), REMOTE);
        node.transmit_times(steps_before);
        node.post_receive(receive_request(room, 1));
        assert!(node.cancel(1).is_err() && node.sink.ended.is_empty());
        node.transmit_times(3);
        let received = received_bytes(&node.sink.ended[0]);
        assert_eq!(received, &b"0123456789"[..room], "room for {room}, after {steps_before}");
        assert_eq!(node.sink.ended[0].is_ok(), room == 10, "room for {room}, after {steps_before}");
        let count_bytes: usize = pulled_ranges(&node.transport).iter().map(|(_, count)| count).sum();
        assert_eq!(count_bytes, room.max(4 * steps_before), "nothing is pulled twice, or in vain");
        assert_eq!((node.sent_since(0), node.unexpected_len()), (vec![done_header(9)], 0));
    }
}

#[test]
fn after_refused_pull_the_payload_is_requested_and_the_link_never_pulls_again() {
    for refused_after in 0..3 {
        let mut node = engine_and_memory(b"xxxxxxxxxx");
        node.transport.pulls =
            VecDeque::from_iter([Pull::Done, Pull::Done, Pull::Refused].into_iter().skip(2 - refused_after));
        node.post_receives(10, 1..=3);
        node.frame(LINK, &offer_header(1, 10), REMOTE);
        node.transmit_times(refused_after + 1);
        node.pass_with_frame(LINK, &offer_header(2, 10), REMOTE);
        assert_eq!(node.sent_since(0), [clear_header(1, true), clear_header(2, true)]);
        assert_eq!((node.transport.pulled.len(), node.sink.ended.len()), (refused_after + 1, 0));

        // The requested payloads arrive whole or in pieces, in any order.
        node.frame(LINK, &Header::Data { op: 2, len_bytes: 10 }, b"9876543210");
        node.frame_begun(LINK, &Header::Data { op: 1, len_bytes: 10 });
        assert_eq!(node.arrivals().payload_space(LINK)[0].len(), 10, "all of it comes again");
        node.arrivals().payload_space(LINK)[0][..3].copy_from_slice(b"012");
        node.arrivals().bytes_placed(LINK, 3);
        node.payload_arrived(LINK, b"3456789");
        node.pass_with_frame(LINK, &untagged_header(5), b"eager");
        let payloads: Vec<&[u8]> = node.sink.ended.iter().map(received_bytes).collect();
        assert_eq!(payloads, [&b"9876543210"[..], b"0123456789", b"eager"]);
        assert_eq!((node.transport.sent.len(), node.engine.fetches_len()), (2, 0), "no answer is awaited");
    }
}

#[test]
fn refused_pull_on_one_link_does_not_affect_another() {
    let mut node = engine_and_memory(b"abcd");
    node.link_up(LinkId(8), 3, 3);
    node.transport.pulls = [Pull::Refused].into();
    node.frame(LINK, &offer_header(1, 4), REMOTE);
    node.pass_with_frame(LinkId(8), &offer_header(1, 4), REMOTE);
    let answers = [(LINK, clear_header(1, true), Vec::new()), (LinkId(8), done_header(1), Vec::new())];
    assert_eq!(node.transport.sent, answers, "the same number on two links is two operations");
}

#[test]
fn declined_pull_does_not_affect_later_offers() {
    let mut node = engine_and_memory(b"abcd");
    node.transport.pulls = [Pull::Declined].into();
    node.pass_with_frame(LINK, &offer_header(1, 4), REMOTE);
    node.pass_with_frame(LINK, &offer_header(2, 4), REMOTE);
    assert_eq!(node.sent_since(0), [clear_header(1, false), done_header(2)]);
}

#[test]
fn faulting_pull_fails_receive_and_informs_sender() {
    let mut node = engine_and_memory(b"0123456789");
    node.transport.pulls = [Pull::Done, Pull::Fault].into();
    node.post_receive(receive_request(10, 1));
    node.pass_with_frame(LINK, &offer_header(1, 10), REMOTE);
    node.transmit();
    assert_eq!(ended_error(&node.sink, 0), &OperationError::Fault);
    assert_eq!(received_bytes(&node.sink.ended[0]), b"0123");
    assert_eq!(node.sent_since(0), [Header::Done { op: 1, fault: true }]);

    // No receive has matched this message. So no receive fails, and the message is dropped.
    node.transport.pulls = [Pull::Fault].into();
    node.pass_with_frame(LINK, &offer_header(2, 4), REMOTE);
    assert_eq!(node.sent_since(0)[1..], [Header::Done { op: 2, fault: true }]);
    node.post_receive(receive_request(10, 2));
    node.frame(LINK, &untagged_header(4), b"next");
    assert_eq!(received_bytes(&node.sink.ended[1]), b"next");
    node.transmit();
    assert!(node.transport.closed.is_empty() && node.unexpected_len() == 0);
}

#[test]
fn pull_from_gone_sender_is_not_retried_and_link_end_fails_its_receives() {
    let mut node = engine_and_memory(b"0123456789");
    node.transport.pulls = [Pull::Gone, Pull::Gone].into();
    node.post_receive(receive_request(10, 1));
    node.frame(LINK, &offer_header(1, 10), REMOTE);
    node.frame(LINK, &offer_header(2, 10), REMOTE);
    node.transmit_times(3);
    assert_eq!((node.transport.pulled.len(), node.transport.sent.len(), node.sink.ended.len()), (2, 0, 0));
    node.link_down(LINK, RESET);
    assert_eq!(ended_error(&node.sink, 0).errno(), Errno::ECONNRESET);
    assert_eq!((node.outstanding_receives(), node.unexpected_len(), node.engine.fetches_len()), (0, 0, 0));
}

#[test]
fn invalid_offer_or_data_ends_the_link() {
    type Frames = Vec<(Header, &'static [u8])>;
    let data = |op, len_bytes| Header::Data { op, len_bytes };
    let too_long = [0; REMOTE_MAX_BYTES + 1].as_slice();
    // On this link, payload 1 is being pulled and payload 2 was requested. Payload 3 was requested
    // on another link.
    let cases: [(&str, Frames); 9] = [
        ("offers two under one number", vec![(offer_header(1, 4), REMOTE)]),
        ("offers again what was asked for", vec![(offer_header(2, 4), REMOTE)]),
        ("offers two at once", vec![(offer_header(8, 4), REMOTE), (offer_header(8, 4), REMOTE)]),
        ("sends what was not asked for", vec![(data(1, 10), b"0123456789")]),
        ("sends what was not offered", vec![(data(9, 4), b"0123")]),
        ("sends what was offered elsewhere", vec![(data(3, 10), b"0123456789")]),
        ("sends less than was offered", vec![(data(2, 9), b"012345678")]),
        ("sends twice", vec![(data(2, 10), b"0123456789"), (data(2, 10), b"0123456789")]),
        ("describes at length", vec![(offer_header(8, 4), Box::leak(too_long.into()))]),
    ];
    for (what, frames) in cases {
        for in_pieces in [false, true] {
            let mut node = engine_and_memory(b"0123456789");
            node.link_up(LinkId(8), 3, 3);
            node.frame(LINK, &offer_header(1, 10), REMOTE);
            node.frame(LINK, &unpullable_offer(2, 10), b"");
            node.pass_with_frame(LinkId(8), &unpullable_offer(3, 10), b"");
            for (header, payload) in &frames {
                if in_pieces && payload.len() <= REMOTE_MAX_BYTES {
                    node.frame_begun(LINK, header);
                    for byte in payload.chunks(1) {
                        node.payload_arrived(LINK, byte);
                    }
                } else {
                    node.frame(LINK, header, payload);
                }
            }
            node.transmit();
            assert_eq!(node.transport.closed, [(LINK, Close::Abort)], "{what}");
            let unexpected = if what == "sends twice" { 2 } else { 1 };
            assert_eq!((node.engine.fetches_len(), node.unexpected_len()), (1, unexpected), "{what}");
        }
    }
}
