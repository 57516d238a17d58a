//! Tests of sends that wait for credit, and of receivers that grant it.

use super::*;

/// The number of empty messages that the initial credit allows.
const FIRST_MESSAGES: u64 = CREDIT_INITIAL_BYTES / MESSAGE_COST_BYTES;

/// Returns an engine with this budget for unexpected messages, and with a peer on link 7.
fn engine_with_budget(unexpected_budget_bytes: usize) -> Node {
    engine_with_config(Config { unexpected_budget_bytes, ..untimed_config() }).0
}

#[test]
fn message_beyond_credit_is_offered() {
    let (mut node, peer) = engine_with_peer();
    static LONG: [u8; CREDIT_INITIAL_BYTES as usize] = [7; CREDIT_INITIAL_BYTES as usize];
    node.post(send_request(peer, &LONG, 1));
    node.post(send_request(peer, b"short", 2));
    let [Header::Request { message, .. }, Header::Message(_)] = node.sent_since(0)[..] else {
        panic!("{:?}", node.sent_since(0));
    };
    assert_eq!(message.len_bytes, CREDIT_INITIAL_BYTES);
    assert_eq!(node.ended_contexts(), [2]);
}

#[test]
fn link_gets_a_sixteenth_of_the_budget_and_more_after_receives() {
    let budget_bytes = 64 * CREDIT_INITIAL_BYTES;
    let mut node = engine_with_budget(budget_bytes as usize);
    let (mut granted, mut spent, mut kept) = (CREDIT_INITIAL_BYTES, 0, 0);
    while spent + MESSAGE_COST_BYTES + 8 <= granted {
        node.frame(LINK, &untagged_header(8), b"unwanted");
        (spent, kept) = (spent + MESSAGE_COST_BYTES + 8, kept + 1);
        node.transmit();
        if let Some((_, Header::Credit { granted_bytes }, _)) = node.transport.sent.last() {
            granted = *granted_bytes;
        }
    }
    assert_eq!(granted, budget_bytes / 16, "one link does not get all");
    assert_eq!(node.unexpected_len(), kept);

    node.post_receives(8, 0..kept as u64);
    node.transmit();
    let Some((_, Header::Credit { granted_bytes }, _)) = node.transport.sent.last() else {
        panic!("no credit")
    };
    assert!(*granted_bytes > granted);
}

fn request_header(op: u64, len_bytes: u64, awaits: AwaitedReply) -> Header {
    let message = Message { awaits, ..Message::of_len(len_bytes) };
    Header::Request { message, op, remote_bytes: 0 }
}

#[test]
fn large_offer_without_room_does_not_block_smaller_ones() {
    let mut node = engine_with_budget(200_000);
    node.link_up(LinkId(8), 3, 1);
    node.frame(LINK, &request_header(1, 199_999, AwaitedReply::Arrival), b"");
    node.pass_with_frame(LinkId(8), &request_header(1, 100, AwaitedReply::Arrival), b"");
    let clear = Header::Clear { op: 1, cannot_pull: false };
    assert_eq!(node.transport.sent, [(LinkId(8), clear, Vec::new())]);
}

#[test]
fn peer_that_reads_no_answers_is_disconnected_at_a_limit() {
    let (mut node, _) = engine_with_peer();
    let awaiting = Message { awaits: AwaitedReply::Match, ..Message::of_len(0) };
    let mut most_pending = 0;
    for context in 0..200_000 {
        node.post_receive(receive_request(0, context));
        node.frame(LINK, &Header::Message(awaiting), b"");
        node.take_ended();
        node.transport.answers = [Sent::Full; 4].into();
        node.transmit();
        let Some(link) = node.engine.links.get(LINK) else { break };
        most_pending = most_pending.max(link.tx.pending_replies().headers_len());
    }
    assert_eq!(node.transport.closed, [(LINK, Close::Abort)]);
    assert!(most_pending < 20_000, "{most_pending}");
}

#[test]
fn discarded_offer_costs_credit_until_its_data_arrives() {
    let mut node = engine_with_budget(100_000);
    for op in 0..10_000 {
        node.pass_with_frame(LINK, &request_header(op, 10, AwaitedReply::Nothing), b"");
        node.engine.discard_all_unexpected(&mut node.sink);
        if node.engine.links.get(LINK).is_none() {
            break;
        }
    }
    assert!(node.engine.fetches_len() < 200, "{} are expected", node.engine.fetches_len());
    let is_free = node.engine.receive_side.try_reserve_budget(100_000);
    assert!(is_free, "all of it is free once the link has ended");
}

#[test]
fn claimed_length_reserves_no_memory_with_unlimited_budget() {
    let mut node = engine_with_budget(UNEXPECTED_BUDGET_MAX_BYTES);
    for _ in 0..FIRST_MESSAGES / 2 {
        node.frame(LINK, &untagged_header(0), b"");
    }
    node.pass_with_frame(LINK, &request_header(1, MESSAGE_MAX_BYTES, AwaitedReply::Nothing), b"");
    node.frame_begun(LINK, &untagged_header(MESSAGE_MAX_BYTES));
    node.payload_arrived(LINK, b"a beginning");
    node.link_down(LINK, RESET);
    assert_eq!(node.unexpected_len() as u64, FIRST_MESSAGES / 2);
}

#[test]
fn link_keeps_its_credit_despite_leftovers_of_ended_links() {
    let mut node = engine_with_budget(4 * CREDIT_INITIAL_BYTES as usize);
    for instance in 0..10 {
        node.link_up(LinkId(8), 3, instance);
        for _ in 0..FIRST_MESSAGES {
            node.frame(LinkId(8), &untagged_header(0), b"");
        }
        node.link_down(LinkId(8), LinkError::Closed);
        node.transmit();
    }
    node.pass_with_frame(LINK, &untagged_header(4), b"mine");
    assert!(!node.transport.closed.contains(&(LINK, Close::Abort)), "it had the credit");
}

#[test]
fn peer_that_writes_remote_data_beyond_its_credit_is_disconnected() {
    let config = Config { remote_data_takes_receives: true, ..untimed_config() };
    let (mut node, _) = engine_with_config(config);
    // Reserves so much that the budget has no more credit to grant.
    let budget_bytes = untimed_config().unexpected_budget_bytes as u64;
    node.engine.receive_side.try_reserve_budget(budget_bytes - CREDIT_INITIAL_BYTES);
    let count = CREDIT_INITIAL_BYTES / MESSAGE_COST_BYTES;
    for op in 0..=count {
        assert!(node.engine.condemned.is_empty(), "credit covers the notice");
        let kind = RmaKind::Write { data: Some(op) };
        node.pass_with_frame(LINK, &rma_header(op, 0, 0, kind), b"");
    }
    assert_eq!(node.transport.closed, [(LINK, Close::Abort)]);
    assert_eq!(node.unexpected_len() as u64, count);
}
