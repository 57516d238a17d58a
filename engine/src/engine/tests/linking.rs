//! Tests of links that come up and go down, and of the operations that depend on them.

use super::*;

#[test]
fn link_failure_ends_each_of_its_operations_once() {
    let (mut node, peer) = engine_with_peer();
    node.post(send_request(peer, b"acked", 1).level(Level::Transmit));
    node.transport.answers = [Sent::Partial(1)].into();
    node.post(send_request(peer, b"partly written", 2));
    node.post(send_request(peer, b"queued, silent", 3).signalled(Signalled::No));
    node.post_receive(receive_request(10, 4));
    node.post_receive(receive_request(10, 5));
    node.frame_begun(LINK, &untagged_header(9));
    node.payload_arrived(LINK, b"abc");
    node.link_down(LINK, RESET);
    node.link_down(LINK, RESET);

    assert_eq!(node.ended_contexts(), [4, 1, 2, 3], "the receive that nothing matched stays posted");
    assert_eq!(received_bytes(&node.sink.ended[0]), b"abc");
    assert_eq!((node.outstanding_transmits(), node.outstanding_receives()), (0, 1));
    for ended in node.take_ended() {
        assert_eq!(ended.expect_err("all of them failed").error, OperationError::Link(RESET));
    }

    node.post(send_request(peer, b"again", 6));
    assert_eq!(node.transport.connected, [address(2)], "the next send connects anew");
    assert_eq!(node.ended_contexts(), [6]);
}

/// This side has connected a link, on which a peer has sent a message before it closed. The peer's
/// successor connects before this side reads that link.
#[test]
fn link_to_a_former_instance_is_read_though_it_comes_up_last() {
    let mut node = Node::new(untimed_config());
    let peer = node.engine.intern_peer(address(2));
    node.transport.answers = [Sent::Full].into();
    node.post(send_request(peer, b"to the new one", 1));
    node.link_up(LinkId(8), 2, 2);
    node.link_up(LinkId(0), 2, 1);
    node.frame(LinkId(0), &untagged_header(4), b"last");
    node.link_down(LinkId(0), LinkError::Closed);
    node.post_receive(receive_request(9, 2));
    assert_eq!(node.ended_contexts(), [2]);
    assert_eq!(received_bytes(&node.sink.ended[0]), b"last");
    node.transmit();
    assert_eq!(node.transport.sent.last().unwrap().0, LinkId(8));
    assert!(node.transport.closed.is_empty());
}

/// A peer has connected and closed, and this side has begun a link to its successor, before this side reads
/// the link that the peer has made.
#[test]
fn link_to_a_successor_is_used_in_whatever_order_links_are_reported() {
    const BEGUN: LinkId = LinkId(0);
    const OF_FORMER: LinkId = LinkId(8);
    const OF_SUCCESSOR: LinkId = LinkId(9);
    let up = |link, instance| (link, LinkEvent::up(address(2), instance));
    let down = |link, error| (link, LinkEvent::Down(error));
    let begins = || up(OF_FORMER, 1);
    let orders = [
        [begins(), down(OF_FORMER, LinkError::Closed), up(BEGUN, 2), up(OF_SUCCESSOR, 2)],
        [begins(), up(BEGUN, 2), down(OF_FORMER, LinkError::Closed), up(OF_SUCCESSOR, 2)],
        [begins(), up(BEGUN, 2), down(OF_FORMER, RESET), up(OF_SUCCESSOR, 2)],
        [begins(), up(BEGUN, 2), up(OF_SUCCESSOR, 2), down(OF_FORMER, LinkError::Closed)],
    ];
    let ways = [(BEGUN, false), (BEGUN, true), (OF_SUCCESSOR, false)];
    for (order, (clear_follows, has_other_send)) in
        orders.iter().flat_map(|order| ways.map(|way| (order, way)))
    {
        let mut node = Node::new(untimed_config());
        node.engine.config.eager_max_bytes = 4;
        let peer = node.engine.intern_peer(address(2));
        node.post(send_request(peer, b"large", 1));
        node.transmit();
        let op = node.op_at(0);
        for (link, event) in order.clone() {
            let is_up = matches!(event, LinkEvent::Up { .. });
            node.link_event(link, event);
            if is_up && link == clear_follows {
                node.frame(BEGUN, &Header::Clear { op, cannot_pull: false }, b"");
            }
            if is_up && link == BEGUN && has_other_send {
                node.post(send_request(peer, b"s", 2));
            }
            node.transmit();
        }
        let payload = (BEGUN, Header::Data { op, len_bytes: 5 }, b"large".to_vec());
        assert!(node.transport.sent.contains(&payload), "{order:?}: {:?}", node.transport.sent);
        assert!(node.sink.ended.iter().any(|ended| matches!(ended, Ok(ended) if ended.context == 1)));
        node.post(send_request(peer, b"s", 3));
        node.transmit();
        assert_eq!(node.transport.sent.last().unwrap().0, BEGUN, "sends keep their order");
        assert!(node.transport.closed.is_empty());
    }
}

#[test]
fn link_that_has_ended_when_it_comes_up_replaces_no_link() {
    for proof in [AddressProof::Claimed, AddressProof::Credentials] {
        let (mut node, peer) = engine_with_peer();
        let up = LinkEvent::Up { peer: address(2), instance: 7, proof, has_ended: true };
        node.link_event(LinkId(8), up);
        node.frame(LinkId(8), &untagged_header(4), b"last");
        node.post(send_request(peer, b"to the present", 1));
        assert_eq!(node.transport.sent.last().unwrap().0, LINK, "{proof:?}");
        node.link_down(LinkId(8), LinkError::Closed);
        node.post_receive(receive_request(9, 2));
        assert_eq!((received_bytes(&node.sink.ended[1]), node.ended_contexts()), (&b"last"[..], vec![1, 2]));
        node.transmit();
        node.post(send_request(peer, b"and again", 3));
        assert_eq!(node.transport.sent.last().unwrap().0, LINK, "{proof:?}");
    }
}

#[test]
fn link_that_has_ended_when_it_comes_up_takes_no_send() {
    for proof in [AddressProof::Claimed, AddressProof::Credentials] {
        let mut node = Node::new(untimed_config());
        let peer = node.engine.intern_peer(address(2));
        node.transport.answers = [Sent::Full].into();
        node.post(send_request(peer, b"to the new one", 1));
        let ended = |instance| LinkEvent::Up { peer: address(2), instance, proof, has_ended: true };
        node.link_event(LinkId(8), ended(1));
        node.frame(LinkId(8), &untagged_header(4), b"last");
        node.link_down(LinkId(8), LinkError::Closed);
        node.link_up(LinkId(0), 2, 3);
        node.link_event(LinkId(9), ended(2));
        node.link_down(LinkId(9), LinkError::Closed);
        node.transmit();
        assert_eq!((node.transport.sent.last().unwrap().0, node.ended_contexts()), (LinkId(0), vec![1]));
        node.post_receive(receive_request(9, 2));
        assert_eq!(received_bytes(&node.sink.ended[1]), b"last");
    }
}

/// A stranger that says the instance of a peer has made the first link.
#[test]
fn end_of_a_claimed_link_leaves_proven_links_up() {
    let mut node = Node::new(untimed_config());
    let peer = node.engine.intern_peer(address(2));
    let up = |proof| LinkEvent::Up { peer: address(2), instance: 1, proof, has_ended: false };
    for (id, proof) in [(3, AddressProof::Claimed), (4, AddressProof::Confirmed)] {
        node.link_event(LinkId(id), up(proof));
    }
    node.link_down(LinkId(3), RESET);
    node.transmit();
    assert!(node.transport.closed.is_empty());
    node.post(send_request(peer, b"still there", 1));
    assert_eq!(node.transport.sent.last().unwrap().0, LinkId(4));
    // Once the claim of a link is confirmed, its end may mean that messages are missing.
    node.link_event(LinkId(5), up(AddressProof::Claimed));
    node.link_event(LinkId(5), LinkEvent::Confirmed);
    node.link_down(LinkId(5), RESET);
    node.transmit();
    assert_eq!(node.transport.closed, [(LinkId(4), Close::Abort)]);
}

#[test]
fn silent_former_link_times_out() {
    let (mut node, _) = engine_with_peer();
    node.post_receive(receive_request(9, 1));
    node.frame_begun(LINK, &untagged_header(6));
    node.link_up(LinkId(8), 2, 2);
    assert!(node.awaits_timeout() && !node.has_work_without_arrivals());
    let pass_at = |ms, node: &mut Node| {
        node.advance_time(Moment::from_ms(ms));
        node.transmit();
        node.transport.closed.clone()
    };
    let begin_ms = 70_000;
    for ms in [0, 1, REPLACED_LINK_IDLE_MAX_MS - 1] {
        assert_eq!(pass_at(begin_ms + ms, &mut node), []);
        assert_eq!(node.next_deadline(), Some(Moment::from_ms(begin_ms + REPLACED_LINK_IDLE_MAX_MS)));
    }
    node.payload_arrived(LINK, b"slow");
    let again_ms = begin_ms + REPLACED_LINK_IDLE_MAX_MS;
    let first_ms = again_ms + REPLACED_LINK_IDLE_MAX_MS;
    let last_ms = first_ms + TIMEOUT_GRACE_MS;
    let looks = [(again_ms, first_ms), (first_ms - 1, first_ms), (first_ms, last_ms), (last_ms - 1, last_ms)];
    for (now_ms, deadline_ms) in looks {
        assert_eq!(pass_at(now_ms, &mut node), []);
        assert_eq!(node.next_deadline(), Some(Moment::from_ms(deadline_ms)));
    }
    assert!(node.awaits_timeout() && node.sink.ended.is_empty());
    let closed = pass_at(last_ms, &mut node);
    assert_eq!(closed, [(LINK, Close::Abort)]);
    assert_eq!(node.ended_contexts(), [1]);
    assert!(!node.awaits_timeout() && node.next_deadline().is_none());
}

/// The application makes no pass for hours, and frames arrive in the meantime. The next passes must
/// receive these frames before the link times out.
#[test]
fn former_link_is_read_before_timeout_after_long_pause() {
    const HOURS_MS: u64 = 10_000_000;
    let (mut node, _) = engine_with_peer();
    node.post_receive(receive_request(9, 1));
    node.frame_begun(LINK, &untagged_header(6));
    node.link_up(LinkId(8), 2, 2);
    node.advance_time(Moment::from_ms(0));
    node.advance_time(Moment::from_ms(HOURS_MS));
    node.payload_arrived(LINK, b"for");
    node.advance_time(Moment::from_ms(HOURS_MS));
    node.advance_time(Moment::from_ms(2 * HOURS_MS));
    node.payload_arrived(LINK, b"mer");
    node.transmit();
    assert!(node.transport.closed.is_empty());
    assert_eq!(received_bytes(&node.sink.ended[0]), b"former");
}

#[test]
fn reset_connect_attempt_is_retried_a_few_times() {
    let mut node = Node::new(untimed_config());
    node.transport.answers = [Sent::Full; 5].into();
    let peer = node.engine.intern_peer(address(2));
    node.post(send_request(peer, b"patient", 1));
    for attempt in 0..=CONNECT_RETRIES_MAX {
        assert_eq!((node.transport.connected.len() as u32, node.sink.ended.len()), (attempt + 1, 0));
        node.link_down(LinkId(attempt), RESET);
        node.transmit();
    }
    assert_eq!((node.ended_contexts(), node.transport.connected_again), (vec![1], CONNECT_RETRIES_MAX));

    // If no endpoint listens at the address, the engine does not try again.
    node.transport.answers = [Sent::Full].into();
    node.post(send_request(peer, b"refused", 2));
    let link = LinkId(node.transport.connected.len() as u32 - 1);
    node.link_down(link, REFUSED);
    assert_eq!((node.ended_contexts(), node.transport.connected_again), (vec![1, 2], CONNECT_RETRIES_MAX));
}

#[test]
fn frames_of_links_that_are_not_up_are_ignored() {
    let mut node = Node::new(untimed_config());
    node.post_receive(receive_request(4, 1));
    node.frame(LinkId(3), &untagged_header(1), b"x");
    node.frame_begun(LinkId(3), &untagged_header(9));
    node.payload_arrived(LinkId(3), b"x");
    node.arrivals().bytes_placed(LinkId(3), 1);
    assert!(node.arrivals().payload_space(LinkId(3)).is_empty());
    node.link_down(LinkId(3), LinkError::Closed);
    assert!(node.sink.ended.is_empty());
}

#[test]
fn link_that_is_up_is_used_before_one_that_is_still_connecting() {
    let mut node = Node::new(untimed_config());
    let peer = node.engine.intern_peer(address(2));
    node.transport.answers = [Sent::Full, Sent::Full].into();
    node.post(send_request(peer, b"waits", 1));
    node.transmit();
    assert!(node.transport.sent.is_empty());
    node.link_up(LINK, 2, 1);
    node.transmit();
    assert_eq!(node.transport.sent[0].0, LINK);
    node.link_down(LinkId(0), REFUSED);
    assert!(node.sink.ended.iter().all(Result::is_ok));
    assert_eq!(node.ended_contexts(), [1]);
}

#[test]
fn reset_of_one_link_breaks_others_to_the_peer_and_close_does_not() {
    for (error, others_closed) in [(RESET, &[(LINK, Close::Abort)][..]), (LinkError::Closed, &[])] {
        let (mut node, peer) = engine_with_peer();
        node.post(send_request(peer, b"on the first", 1).level(Level::Transmit));
        node.link_up(LinkId(8), 2, 1);
        node.link_down(LinkId(8), error);
        node.transmit();
        assert_eq!(node.transport.closed, others_closed);
        assert_eq!(node.sink.ended.len(), others_closed.len());
    }
}

#[test]
fn directed_receive_reconnects_after_waiting_send_is_cancelled() {
    let mut node = Node::new(untimed_config());
    node.transport.answers = [Sent::Full].into();
    // The engine never had a link to this peer.
    let peer = node.engine.intern_peer(address(2));
    let criteria = Criteria { source: Some(peer), ..Criteria::any() };
    node.post_receive(ReceiveRequest { criteria, ..receive_request(1, 1) });
    node.post(send_request(peer, b"waits", 2));
    node.link_down(LinkId(0), RESET);
    node.cancel(2).unwrap();
    assert!(node.has_work_without_arrivals());
    node.transmit();
    assert_eq!((node.ended_contexts(), node.transport.connected.len()), (vec![2], 2));
    node.link_down(LinkId(1), REFUSED);
    assert_eq!(node.ended_contexts(), [2, 1]);
}

#[test]
fn frames_keep_a_former_link_alive() {
    type Deliver = fn(&mut Node, u64);
    const DATA: &str = "pieces of requested payload";
    let cases: [(&str, Deliver); 4] = [
        ("writes", |node, round| {
            node.frame(LINK, &rma_header(round, 0, 1, RmaKind::Write { data: None }), b"x");
        }),
        ("reads", |node, round| node.frame(LINK, &rma_header(round, 0, 1, RmaKind::Read), b"")),
        ("counted writes", |node, _| {
            let write = CountedWrite { key: KEY, address: 0, len_bytes: 1, data: None };
            node.frame(LINK, &Header::CountedWrite(write), b"x");
        }),
        (DATA, |node, _| node.payload_arrived(LINK, b"x")),
    ];
    for (case, deliver) in cases {
        let (mut node, _) = engine_with_peer();
        if case == DATA {
            let request = Header::Request { message: Message::of_len(5), op: 1, remote_bytes: 0 };
            node.pass_with_frame(LINK, &request, b"");
            node.frame_begun(LINK, &Header::Data { op: 1, len_bytes: 5 });
        }
        node.link_up(LinkId(8), 2, 2);
        for round in 0..3 {
            deliver(&mut node, round);
            for ms in [0, REPLACED_LINK_IDLE_MAX_MS - 1] {
                node.advance_time(Moment::from_ms(round * REPLACED_LINK_IDLE_MAX_MS + ms));
                node.transmit();
            }
        }
        assert!(node.transport.closed.is_empty(), "{case}");
    }
}

/// Returns an engine that has lost the peer at address 2: the peer has closed its link.
fn engine_with_lost_peer() -> (Node, Criteria) {
    let (mut node, peer) = engine_with_peer();
    node.link_down(LINK, LinkError::Closed);
    (node, Criteria { source: Some(peer), ..Criteria::any() })
}

#[test]
fn receive_from_lost_peer_connects_once_and_fails_if_that_fails() {
    let (mut node, criteria) = engine_with_lost_peer();
    for context in [1, 2] {
        node.post_receive(ReceiveRequest { criteria, ..receive_request(1, context) });
    }
    assert!(node.has_work_without_arrivals());
    node.transmit();
    assert!(!node.has_work_without_arrivals());
    assert_eq!(node.transport.connected, [address(2)]);
    node.post_receive(ReceiveRequest { criteria, ..receive_request(1, 3) });
    node.transmit();
    assert_eq!(node.transport.connected.len(), 1, "the attempt is still under way");
    node.link_down(LinkId(0), REFUSED);
    assert_eq!(node.ended_contexts(), [1, 2, 3]);
    for ended in node.take_ended() {
        assert_eq!(ended.unwrap_err().error, OperationError::Link(REFUSED));
    }
}

#[test]
fn connect_retries_for_a_receive_do_not_use_up_those_for_a_send() {
    let (mut node, criteria) = engine_with_lost_peer();
    let mut links = (0..).map(LinkId);
    let mut cut_attempts_short = |node: &mut Node| {
        for attempt in 0..=CONNECT_RETRIES_MAX {
            assert!(node.sink.ended.is_empty(), "attempt {attempt} is repeated");
            node.transmit();
            node.link_down(links.next().unwrap(), RESET);
        }
    };
    node.post_receive(ReceiveRequest { criteria, ..receive_request(1, 1) });
    cut_attempts_short(&mut node);
    assert_eq!(node.ended_contexts(), [1]);
    assert_eq!(node.transport.connected.len() as u32, CONNECT_RETRIES_MAX + 1);
    node.take_ended();
    node.transport.answers = [Sent::Full; 9].into();
    let peer = criteria.source.unwrap();
    node.post(send_request(peer, b"waits", 2));
    cut_attempts_short(&mut node);
    assert_eq!(node.ended_contexts(), [2]);
}

#[test]
fn receive_from_lost_peer_cancelled_before_the_pass_opens_no_link() {
    let (mut node, criteria) = engine_with_lost_peer();
    node.post_receive(ReceiveRequest { criteria, ..receive_request(1, 1) });
    node.cancel(1).unwrap();
    node.transmit();
    node.post_receive(receive_request(1, 2));
    node.transmit();
    assert!(node.transport.connected.is_empty() && !node.has_work_without_arrivals());
}

#[test]
fn receive_from_peer_that_has_come_back_waits_without_connecting() {
    let (mut node, criteria) = engine_with_lost_peer();
    node.link_up(LinkId(9), 2, 2);
    node.post_receive(ReceiveRequest { criteria, ..receive_request(1, 1) });
    node.transmit();
    assert!(node.transport.connected.is_empty() && node.sink.ended.is_empty());
}
