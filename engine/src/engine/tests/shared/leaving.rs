//! Tests of members that leave, and of the messages that they have received.

use super::*;

/// A payload that leaves room for four links in the budget.
const LARGE_BYTES: u64 = BUDGET_BYTES as u64 - 4 * CREDIT_INITIAL_BYTES;

#[test]
fn leaving_member_ends_directed_receives_that_it_alone_could_serve() {
    let (shared, mut first, second) = two_members();
    let only = Some(address(2));
    shared.post_receive(only, receive_request(8, 1)).unwrap();
    first.link_down(LINK, RESET);
    drop(second);
    assert_eq!(shared.take_members_with_mail(), [first.id()]);
    first.progress();
    assert_eq!(first.take_results(), [(1, Err(OperationError::Link(RESET)))]);
}

#[test]
fn member_that_lost_the_source_connects_when_the_last_linked_member_leaves() {
    let (shared, mut first, mut second) = two_members();
    first.link_down(LINK, RESET);
    second.link_down(LINK, RESET);
    second.link_up(LINK, 2, 1);
    shared.post_receive(Some(address(2)), receive_request(8, 1)).unwrap();
    first.progress();
    assert!(first.transport.connected.is_empty(), "the other member has a link");
    drop(second);
    assert_eq!(shared.take_members_with_mail(), [first.id()]);
    first.progress();
    assert_eq!(first.transport.connected, [address(2)]);
}

#[test]
fn engine_that_has_left_shared_receiver_discards_messages_and_keeps_link() {
    let (shared, _, mut second) = two_members();
    second.transport.pulls.push_back(Pull::Refused);
    shared.post_receive(None, receive_request(64, 1)).unwrap();
    second.receive_offer(3, 10);
    second.frame(LINK, &message_header(1, AwaitedReply::Arrival), b"x");
    second.transmit();
    assert!(second.transport.headers_since(0).contains(&Header::Clear { op: 3, cannot_pull: true }));
    second.frame(LINK, &message_header(1, AwaitedReply::Arrival), b"y");
    second.leave();
    // The requested data still arrives. A message arrives too, but the engine will not acknowledge
    // it.
    second.frame(LINK, &Header::Data { op: 3, len_bytes: 10 }, b"0123456789");
    second.frame(LINK, &message_header(1, AwaitedReply::Arrival), b"z");
    second.progress();
    assert!(second.transport.closed.is_empty());
    let told = second.transport.headers_since(0);
    let acks: Vec<_> = told.iter().filter(|header| matches!(header, Header::Ack { .. })).collect();
    assert_eq!(acks, [&Header::Ack { received: 1 }, &Header::Ack { received: 2 }]);
}

#[test]
fn budget_of_leaving_member_goes_to_other_members() {
    let (shared, mut first, mut second) = two_members();
    first.receive_offer(3, LARGE_BYTES);
    // The budget has no room for the payload of this offer. When the link is due a grant of credit,
    // the budget has no room for the grant either.
    second.receive_offer(3, 4 * CREDIT_INITIAL_BYTES);
    let half = vec![0; CREDIT_INITIAL_BYTES as usize / 2];
    second.frame(LINK, &untagged_header(half.len() as u64), &half);
    for member in [&mut first, &mut second] {
        member.transport.memory = vec![7; BUDGET_BYTES];
        member.progress();
    }
    shared.take_members_with_mail();
    assert!(second.transport.pulled.is_empty() && second.transport.sent.is_empty());
    first.leave();
    assert_eq!(shared.take_members_with_mail(), [second.id()], "it may be asleep");
    second.progress();
    assert!(!second.transport.pulled.is_empty());
    let told = second.transport.headers_since(0);
    assert!(told.iter().any(|header| matches!(header, Header::Credit { .. })), "{told:?}");
}

#[test]
fn budget_of_leaving_member_reaches_offer_behind_many_too_large_ones() {
    let (shared, mut first, mut second) = two_members();
    first.receive_offer(3, LARGE_BYTES);
    // The budget never has room for these offers.
    for op in 0..2 * DEFERRED_STEP_MAX_FETCHES as u64 {
        second.receive_offer(op, BUDGET_BYTES as u64);
    }
    second.receive_offer(100, LARGE_BYTES);
    shared.take_members_with_mail();
    first.leave();
    assert_eq!(shared.take_members_with_mail(), [second.id()]);
    second.transport.memory = vec![7; BUDGET_BYTES];
    second.progress();
    assert!(!second.transport.pulled.is_empty());
}

#[test]
fn post_that_takes_a_fetched_message_frees_budget_for_other_members() {
    let (shared, mut first, mut second) = two_members();
    for member in [&mut first, &mut second] {
        member.transport.memory = vec![7; BUDGET_BYTES];
    }
    first.receive_offer(3, LARGE_BYTES);
    while first.has_work_without_arrivals() {
        first.progress();
    }
    let pulled_bytes: usize = first.transport.pulled.iter().map(|(_, _, len_bytes)| len_bytes).sum();
    assert_eq!(pulled_bytes, LARGE_BYTES as usize);
    // The budget has no room for the payload of this offer.
    second.receive_offer(3, 4 * CREDIT_INITIAL_BYTES);
    second.progress();
    shared.take_members_with_mail();
    assert!(second.transport.pulled.is_empty());
    shared.post_receive(None, receive_request(LARGE_BYTES as usize, 1)).unwrap();
    assert!(shared.take_members_with_mail().contains(&second.id()), "it may be asleep");
    second.progress();
    assert!(!second.transport.pulled.is_empty());
}

#[test]
fn peer_is_forgotten_with_the_last_member_that_knows_it() {
    let (shared, mut first, mut second) = two_members();
    second.link_up(LinkId(8), 9, 1);
    shared.post_receive(Some(address(4)), receive_request(8, 1)).unwrap();
    assert_eq!(shared.peers_len(), 3);
    second.leave();
    assert_eq!(shared.peers_len(), 2, "the one that both know, and the one that a receive names");
    first.leave();
    assert_eq!(shared.peers_len(), 1);
    assert!(shared.cancel(1));
    drop(Member::unlinked(&shared));
    assert_eq!(shared.peers_len(), 0);
}

#[test]
fn peers_without_links_are_forgotten_while_their_member_stays() {
    const PEERS_MAX: usize = 128;
    let (shared, mut first, mut second) = two_members();
    // The second member keeps a report for which its queue has no room. The first member keeps a
    // message that no receive has taken.
    second.sink.room = Some(0);
    shared.post_receive(None, receive_request(8, 1)).unwrap();
    second.frame(LINK, &untagged_header(3), b"two");
    first.frame(LINK, &untagged_header(3), b"old");
    first.link_down(LINK, RESET);
    second.link_down(LINK, RESET);
    for port in 1000..2000 {
        first.link_up(LinkId(8), port, 1);
        first.link_down(LinkId(8), RESET);
        shared.post_receive(Some(address(port + 1000)), receive_request(8, 9)).unwrap();
        assert!(shared.cancel(9));
        first.progress();
        first.take_ended();
        assert!(shared.peers_len() <= PEERS_MAX, "{}", shared.peers_len());
    }
    second.sink.room = None;
    shared.post_receive(Some(address(2)), receive_request(8, 2)).unwrap();
    for (member, message) in [(&mut first, b"old"), (&mut second, b"two")] {
        member.progress();
        let ended = member.take_ended();
        let completion = ended[0].as_ref().unwrap();
        assert_eq!(received_bytes(&ended[0]), message);
        assert_eq!(completion.source, Some(member.engine.intern_peer(address(2))));
    }
}
