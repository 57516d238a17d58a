//! Tests of sends that wait for credit, and of receivers that grant it.

use super::*;

const LINK: LinkId = LinkId(7);

/// The number of empty messages that the initial credit allows.
const FIRST_MESSAGES: u64 = CREDIT_INITIAL_BYTES / MESSAGE_COST_BYTES;

fn credit_header(granted_bytes: u64) -> Header {
    Header::Credit { granted_bytes }
}

#[test]
fn sends_wait_for_credit_and_keep_their_order() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    for context in 0..FIRST_MESSAGES + 2 {
        engine.post_request(send_request(peer, b"", context), &mut transport, &mut sink).unwrap();
    }
    assert_eq!(sink.ended_contexts(), (0..FIRST_MESSAGES).collect::<Vec<_>>());
    assert!(!engine.try_inject(peer, None, None, b"", &mut transport));
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.sent.len() as u64, FIRST_MESSAGES);
    assert!(engine.has_unsent());
    engine.arrivals(&mut sink).frame(LINK, &credit_header(CREDIT_INITIAL_BYTES + MESSAGE_COST_BYTES), b"");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.sent.len() as u64, FIRST_MESSAGES + 1);
    engine.arrivals(&mut sink).frame(LINK, &credit_header(2 * CREDIT_INITIAL_BYTES), b"");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sink.ended_contexts(), (0..FIRST_MESSAGES + 2).collect::<Vec<_>>());
}

#[test]
fn acks_and_requested_payload_need_no_credit() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    engine.config.eager_max_bytes = 4;
    for context in 0..FIRST_MESSAGES {
        engine.post_request(send_request(peer, b"large", context), &mut transport, &mut sink).unwrap();
    }
    engine.post_request(send_request(peer, b"", 99), &mut transport, &mut sink).unwrap();
    let before = transport.sent.len();
    assert_eq!(before as u64, FIRST_MESSAGES);
    let Header::Request { op, remote_bytes: 0, .. } = transport.sent[0].1 else { panic!("not a request") };
    let asking = Message { awaits: AwaitedReply::Arrival, ..Message::of_len(0) };
    engine.arrivals(&mut sink).frame(LINK, &Header::Message(asking), b"");
    engine.arrivals(&mut sink).frame(LINK, &Header::Clear { op, cannot_pull: false }, b"");
    engine.transmit(&mut transport, &mut sink);
    let sent = [Header::Ack { received: 1 }, Header::Data { op, len_bytes: 5 }];
    assert_eq!(sent_headers_since(&transport, before), sent);
    assert_eq!(sink.ended_contexts(), [0]);
}

#[test]
fn message_beyond_credit_is_offered() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    static LONG: [u8; CREDIT_INITIAL_BYTES as usize] = [7; CREDIT_INITIAL_BYTES as usize];
    engine.post_request(send_request(peer, &LONG, 1), &mut transport, &mut sink).unwrap();
    engine.post_request(send_request(peer, b"short", 2), &mut transport, &mut sink).unwrap();
    let [Header::Request { message, .. }, Header::Message(_)] = sent_headers_since(&transport, 0)[..] else {
        panic!("{:?}", sent_headers_since(&transport, 0));
    };
    assert_eq!(message.len_bytes, CREDIT_INITIAL_BYTES);
    assert_eq!(sink.ended_contexts(), [2]);
}

#[test]
fn link_gets_a_sixteenth_of_the_budget_and_more_after_receives() {
    let (_, peer, mut transport, mut sink) = engine_with_peer();
    let budget_bytes = 64 * CREDIT_INITIAL_BYTES;
    let mut engine =
        Engine::new(Config { unexpected_budget_bytes: budget_bytes as usize, ..untimed_config() });
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::up(address(2), 1));
    assert_eq!(engine.intern_peer(address(2)), peer);
    let (mut granted, mut spent, mut kept) = (CREDIT_INITIAL_BYTES, 0, 0);
    while spent + MESSAGE_COST_BYTES + 8 <= granted {
        engine.arrivals(&mut sink).frame(LINK, &untagged_header(8), b"unwanted");
        (spent, kept) = (spent + MESSAGE_COST_BYTES + 8, kept + 1);
        engine.transmit(&mut transport, &mut sink);
        if let Some((_, Header::Credit { granted_bytes }, _)) = transport.sent.last() {
            granted = *granted_bytes;
        }
    }
    assert_eq!(granted, budget_bytes / 16, "one link does not get all");
    assert_eq!(engine.receive_side.unexpected_len(), kept);

    for context in 0..kept as u64 {
        engine.post_receive(receive_request(8, context), &mut sink).unwrap();
    }
    engine.transmit(&mut transport, &mut sink);
    let Some((_, Header::Credit { granted_bytes }, _)) = transport.sent.last() else { panic!("no credit") };
    assert!(*granted_bytes > granted);
}

#[test]
fn message_beyond_granted_credit_ends_the_link() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.frame_begun(LINK, &untagged_header(CREDIT_INITIAL_BYTES));
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.closed, [(LINK, Close::Abort)]);
    assert_eq!(engine.receive_side.unexpected_len(), 0);
}

#[test]
fn offers_beyond_budget_wait_for_receive_or_room() {
    let (_, _, mut transport, mut sink) = engine_with_peer();
    let mut engine = Engine::new(Config { unexpected_budget_bytes: 56_000, ..untimed_config() });
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::up(address(2), 1));
    transport.memory = vec![7; 60_000];
    for (op, len_bytes) in [(1, 20_000), (2, 20_000), (3, 60_000)] {
        let message = Message::of_len(len_bytes);
        let request = Header::Request { message, op, remote_bytes: REMOTE.len() as u8 };
        engine.arrivals(&mut sink).frame(LINK, &request, REMOTE);
    }
    engine.transmit(&mut transport, &mut sink);
    let dones = |transport: &Scripted| -> Vec<u64> {
        let op = |header: &Header| match header {
            Header::Done { op, .. } => Some(*op),
            _ => None,
        };
        sent_headers_since(transport, 0).iter().filter_map(op).collect()
    };
    assert_eq!(dones(&transport), [1]);
    engine.post_receive(receive_request(20_000, 1), &mut sink).unwrap();
    engine.transmit(&mut transport, &mut sink);
    assert_eq!((dones(&transport), sink.ended_contexts()), (vec![1, 2], vec![1]));
    engine.post_receive(receive_request(20_000, 2), &mut sink).unwrap();
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(dones(&transport), [1, 2], "no room will ever be large enough");
    engine.post_receive(receive_request(60_000, 3), &mut sink).unwrap();
    engine.transmit(&mut transport, &mut sink);
    assert_eq!((dones(&transport), sink.ended_contexts()), (vec![1, 2, 3], vec![1, 2, 3]));
}

#[test]
fn link_down_returns_its_credit_to_the_budget() {
    let (_, _, mut transport, mut sink) = engine_with_peer();
    let mut engine = Engine::new(Config { unexpected_budget_bytes: 56_000, ..untimed_config() });
    transport.memory = vec![7; 20_000];
    for round in 0..10 {
        let mut arrivals = engine.arrivals(&mut sink);
        arrivals.link_event(LINK, LinkEvent::up(address(2), round));
        arrivals.frame(LINK, &untagged_header(3), b"one");
        let message = Message::of_len(20_000);
        let request = Header::Request { message, op: round, remote_bytes: REMOTE.len() as u8 };
        arrivals.frame(LINK, &request, REMOTE);
        engine.transmit(&mut transport, &mut sink);
        engine.arrivals(&mut sink).frame_begun(LINK, &untagged_header(100));
        engine.arrivals(&mut sink).link_event(LINK, LinkEvent::Down(RESET));
        // Whole messages stay, and use the budget until receives take them.
        assert_eq!(engine.receive_side.unexpected_len(), 2, "round {round}");
        engine.post_receive(receive_request(3, 1), &mut sink).unwrap();
        engine.post_receive(receive_request(20_000, 2), &mut sink).unwrap();
        assert_eq!(sink.take_ended().iter().filter(|ended| ended.is_ok()).count(), 2);
    }
    assert!(engine.receive_side.try_reserve_budget(56_000), "all of it is free");
}

#[test]
fn leftovers_of_ended_links_stay_within_the_budget() {
    let (_, _, mut transport, mut sink) = engine_with_peer();
    let mut engine = Engine::new(Config { unexpected_budget_bytes: 100_000, ..untimed_config() });
    let mut kept_bytes = 0;
    for instance in 0..20 {
        let mut arrivals = engine.arrivals(&mut sink);
        arrivals.link_event(LINK, LinkEvent::up(address(2), instance));
        arrivals.frame(LINK, &untagged_header(30_000), &[7; 30_000]);
        engine.transmit(&mut transport, &mut sink);
        engine.arrivals(&mut sink).link_event(LINK, LinkEvent::Down(RESET));
        kept_bytes = engine.receive_side.unexpected_len() * 30_000;
    }
    assert!(kept_bytes <= 100_000 + CREDIT_INITIAL_BYTES as usize, "{kept_bytes}");
    assert!(transport.closed.len() > 10, "a link that brings more ends");

    // Once receives have taken some messages, the budget has room again.
    engine.post_receive(receive_request(30_000, 1), &mut sink).unwrap();
    engine.post_receive(receive_request(30_000, 2), &mut sink).unwrap();
    let before = (engine.receive_side.unexpected_len(), transport.closed.len());
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::up(address(2), 99));
    engine.arrivals(&mut sink).frame(LINK, &untagged_header(8), b"welcome!");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!((engine.receive_side.unexpected_len(), transport.closed.len()), (before.0 + 1, before.1));
}

/// Brings up a link, lets messages arrive on it, and ends it. Returns whether the engine had kept
/// the link until then.
fn visit(engine: &mut Engine, instance: u64, events: &[LinkEvent], transport: &mut Scripted) -> bool {
    let (link, mut sink) = (LinkId(20), Recorder::default());
    let mut arrivals = engine.arrivals(&mut sink);
    let (peer, proof) = (address(5), AddressProof::Claimed);
    arrivals.link_event(link, LinkEvent::Up { peer, instance, proof });
    for event in events {
        arrivals.link_event(link, event.clone());
    }
    for _ in 0..FIRST_MESSAGES {
        arrivals.frame(link, &untagged_header(0), b"");
    }
    engine.transmit(transport, &mut sink);
    let is_admitted = engine.links.get(link).is_some();
    engine.arrivals(&mut sink).link_event(link, LinkEvent::Down(LinkError::Closed));
    is_admitted
}

#[test]
fn messages_of_confirmed_peers_are_kept_and_others_make_room() {
    let (_, _, mut transport, _) = engine_with_peer();
    let budget_bytes = 8 * CREDIT_INITIAL_BYTES;
    let config = || Config { unexpected_budget_bytes: budget_bytes as usize, ..untimed_config() };
    let mut engine = Engine::new(config());
    let is_admitted = |admitted: &bool| *admitted;
    let claimed: Vec<bool> =
        (0..20).map(|instance| visit(&mut engine, instance, &[], &mut transport)).collect();
    assert!(claimed.iter().all(is_admitted), "{claimed:?}");
    assert!(engine.receive_side.unexpected_len() as u64 <= 8 * FIRST_MESSAGES);

    let mut engine = Engine::new(config());
    let confirmed: Vec<bool> = (0..20)
        .map(|instance| visit(&mut engine, instance, &[LinkEvent::Confirmed], &mut transport))
        .collect();
    let count = confirmed.iter().take_while(|admitted| **admitted).count();
    assert!((6..8).contains(&count) && !confirmed[count..].iter().any(is_admitted), "{confirmed:?}");
    assert_eq!(engine.receive_side.unexpected_len() as u64, count as u64 * FIRST_MESSAGES);
}

fn request_header(op: u64, len_bytes: u64, awaits: AwaitedReply) -> Header {
    let message = Message { awaits, ..Message::of_len(len_bytes) };
    Header::Request { message, op, remote_bytes: 0 }
}

#[test]
fn large_offer_without_room_does_not_block_smaller_ones() {
    let (_, _, mut transport, mut sink) = engine_with_peer();
    let mut engine = Engine::new(Config { unexpected_budget_bytes: 200_000, ..untimed_config() });
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::up(address(2), 1));
    engine.arrivals(&mut sink).link_event(LinkId(8), LinkEvent::up(address(3), 1));
    engine.arrivals(&mut sink).frame(LINK, &request_header(1, 199_999, AwaitedReply::Arrival), b"");
    engine.arrivals(&mut sink).frame(LinkId(8), &request_header(1, 100, AwaitedReply::Arrival), b"");
    engine.transmit(&mut transport, &mut sink);
    let clear = Header::Clear { op: 1, cannot_pull: false };
    assert_eq!(transport.sent, [(LinkId(8), clear, Vec::new())]);
}

#[test]
fn starved_link_gets_credit_when_others_return_some() {
    let (_, _, mut transport, mut sink) = engine_with_peer();
    let other = LinkId(8);
    let mut engine = Engine::new(untimed_config());
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::up(address(2), 1));
    engine.arrivals(&mut sink).link_event(other, LinkEvent::up(address(3), 1));
    let free_bytes = untimed_config().unexpected_budget_bytes as u64 - 2 * CREDIT_INITIAL_BYTES;
    engine.arrivals(&mut sink).frame(other, &request_header(1, free_bytes, AwaitedReply::Nothing), b"");
    engine.transmit(&mut transport, &mut sink);
    // The application posts no receive for these messages yet: it waits for a later message.
    for _ in 0..FIRST_MESSAGES {
        engine.arrivals(&mut sink).frame(LINK, &untagged_header(0), b"");
    }
    engine.transmit(&mut transport, &mut sink);
    let has_credit = |transport: &Scripted| {
        transport
            .sent
            .iter()
            .any(|(link, header, _)| *link == LINK && matches!(header, Header::Credit { .. }))
    };
    assert!(!has_credit(&transport));
    let from_other = Criteria { source: Some(engine.intern_peer(address(3))), ..Criteria::any() };
    engine.post_receive(ReceiveRequest { criteria: from_other, ..receive_request(1, 1) }, &mut sink).unwrap();
    engine.transmit(&mut transport, &mut sink);
    assert!(has_credit(&transport));
}

#[test]
fn peer_that_reads_no_answers_is_disconnected_at_a_limit() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    let awaiting = Message { awaits: AwaitedReply::Match, ..Message::of_len(0) };
    let mut most_pending = 0;
    for context in 0..200_000 {
        engine.post_receive(receive_request(0, context), &mut sink).unwrap();
        engine.arrivals(&mut sink).frame(LINK, &Header::Message(awaiting), b"");
        sink.take_ended();
        transport.answers = [Sent::Full; 4].into();
        engine.transmit(&mut transport, &mut sink);
        let Some(link) = engine.links.get(LINK) else { break };
        most_pending = most_pending.max(link.tx.pending_replies().headers_len());
    }
    assert_eq!(transport.closed, [(LINK, Close::Abort)]);
    assert!(most_pending < 20_000, "{most_pending}");
}

#[test]
fn discarded_offer_costs_credit_until_its_data_arrives() {
    let (_, _, mut transport, mut sink) = engine_with_peer();
    let mut engine = Engine::new(Config { unexpected_budget_bytes: 100_000, ..untimed_config() });
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::up(address(2), 1));
    for op in 0..10_000 {
        engine.arrivals(&mut sink).frame(LINK, &request_header(op, 10, AwaitedReply::Nothing), b"");
        engine.transmit(&mut transport, &mut sink);
        engine.discard_all_unexpected(&mut sink);
        if engine.links.get(LINK).is_none() {
            break;
        }
    }
    assert!(engine.fetches_len() < 200, "{} are expected", engine.fetches_len());
    assert!(engine.receive_side.try_reserve_budget(100_000), "all of it is free once the link has ended");
}

#[test]
fn claimed_length_reserves_no_memory_with_unlimited_budget() {
    let (_, _, mut transport, mut sink) = engine_with_peer();
    let budget_bytes = crate::limits::UNEXPECTED_BUDGET_MAX_BYTES;
    let mut engine = Engine::new(Config { unexpected_budget_bytes: budget_bytes, ..untimed_config() });
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::up(address(2), 1));
    for _ in 0..FIRST_MESSAGES / 2 {
        engine.arrivals(&mut sink).frame(LINK, &untagged_header(0), b"");
    }
    let len_bytes = crate::limits::MESSAGE_MAX_BYTES;
    engine.arrivals(&mut sink).frame(LINK, &request_header(1, len_bytes, AwaitedReply::Nothing), b"");
    engine.transmit(&mut transport, &mut sink);
    engine.arrivals(&mut sink).frame_begun(LINK, &untagged_header(len_bytes));
    engine.arrivals(&mut sink).payload_arrived(LINK, b"a beginning");
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::Down(RESET));
    assert_eq!(engine.receive_side.unexpected_len() as u64, FIRST_MESSAGES / 2);
}

#[test]
fn link_keeps_its_credit_despite_leftovers_of_ended_links() {
    let (_, _, mut transport, mut sink) = engine_with_peer();
    let budget_bytes = 4 * CREDIT_INITIAL_BYTES;
    let mut engine =
        Engine::new(Config { unexpected_budget_bytes: budget_bytes as usize, ..untimed_config() });
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::up(address(2), 1));
    for instance in 0..10 {
        let mut arrivals = engine.arrivals(&mut sink);
        arrivals.link_event(LinkId(8), LinkEvent::up(address(3), instance));
        for _ in 0..FIRST_MESSAGES {
            arrivals.frame(LinkId(8), &untagged_header(0), b"");
        }
        arrivals.link_event(LinkId(8), LinkEvent::Down(LinkError::Closed));
        engine.transmit(&mut transport, &mut sink);
    }
    engine.arrivals(&mut sink).frame(LINK, &untagged_header(4), b"mine");
    engine.transmit(&mut transport, &mut sink);
    assert!(!transport.closed.contains(&(LINK, Close::Abort)), "it had the credit");
}
