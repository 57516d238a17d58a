//! Tests of injected writes, which the target answers by count, from both sides.

use super::*;

const MEMORY: RemoteMemory = RemoteMemory { key: KEY, address: 3 };
const WRITTEN: (CounterEvents, bool) = (CounterEvents::WRITE, true);
const NOT_WRITTEN: (CounterEvents, bool) = (CounterEvents::WRITE, false);

/// Injects a write to the peer, as the pump does.
fn inject(node: &mut Node, peer: PeerId, bytes: &[u8], data: Option<u64>) -> Result<InjectedWrite, Again> {
    node.engine.try_inject_write(peer, bytes, MEMORY, data, &mut node.transport)
}

/// Returns an engine that has injected this many writes, and whose peer has answered none.
fn engine_with_injected(ops: u64) -> (Node, PeerId) {
    let (mut node, peer) = engine_with_peer();
    for _ in 0..ops {
        assert_eq!(inject(&mut node, peer, b"x", None), Ok(InjectedWrite::Sent));
    }
    (node, peer)
}

fn counted_write_header(key: u64, address: u64, len_bytes: u64) -> Header {
    Header::CountedWrite(CountedWrite { key, address, len_bytes, data: None })
}

fn written(count: u64) -> Header {
    Header::Written { count, outcome: Outcome::Done }
}

fn refused(count: u64, refusal: Refusal) -> Header {
    Header::Written { count, outcome: Outcome::Refused(refusal) }
}

fn take_counted(sink: &mut Recorder) -> Vec<(CounterEvents, bool)> {
    std::mem::take(&mut sink.counted)
}

#[test]
fn refused_write_is_reported_and_others_succeed() {
    let (mut node, peer) = engine_with_injected(4);
    node.frame(LINK, &refused(3, Refusal::Range), b"");
    assert_eq!(take_counted(&mut node.sink), [WRITTEN, WRITTEN, NOT_WRITTEN]);
    node.frame(LINK, &written(4), b"");
    assert_eq!((node.outstanding_transmits(), take_counted(&mut node.sink)), (0, vec![WRITTEN]));
    let [Err(failure)] = &node.sink.ended[..] else { panic!("{:?}", node.sink.ended) };
    assert_eq!(failure.error, OperationError::Refused(Refusal::Range));
    assert_eq!((failure.target, failure.completion.context), (Some(peer), 0));
    assert_eq!(failure.completion.flags, CompletionFlags::RMA | CompletionFlags::WRITE);
}

#[test]
fn answer_to_unsent_or_answered_writes_ends_the_link() {
    for header in [written(3), refused(3, Refusal::Key), refused(1, Refusal::Key), written(0)] {
        let (mut node, _) = engine_with_injected(2);
        node.frame(LINK, &written(1), b"");
        node.pass_with_frame(LINK, &header, b"");
        assert_eq!(node.transport.closed, [(LINK, Close::Abort)], "{header:?}");
        assert_eq!(take_counted(&mut node.sink), [WRITTEN, NOT_WRITTEN], "{header:?}");
    }
}

#[test]
fn lost_link_fails_unanswered_writes() {
    let (mut node, peer) = engine_with_injected(3);
    node.frame(LINK, &written(1), b"");
    node.link_down(LINK, RESET);
    assert_eq!(take_counted(&mut node.sink), [WRITTEN, NOT_WRITTEN, NOT_WRITTEN]);
    let ended = node.take_ended().into_iter().map(|ended| ended.expect_err("its link is lost"));
    let errors: Vec<_> = ended.map(|failure| (failure.error, failure.target)).collect();
    assert_eq!(errors, vec![(OperationError::Link(RESET), Some(peer)); 2]);
    assert_eq!(node.outstanding_transmits(), 0);
}

/// Returns the request for an injected write that goes through the queue.
fn inject_request(peer: PeerId, context: u64) -> AddressedRequest {
    let AddressedRequest { to, request } = rma_request(peer, write_local(b"inject"), context);
    let options = TransmitOptions::INJECTED;
    AddressedRequest { to, request: TransmitRequest { options, ..request } }
}

#[test]
fn write_that_cannot_be_counted_or_sent_now_is_declined() {
    let (mut node, peer) = engine_with_injected(0);
    let long = vec![0; COUNTED_WRITE_MAX_BYTES + 1];
    assert_eq!(inject(&mut node, peer, &long, None), Ok(InjectedWrite::Declined));
    let stranger = node.engine.intern_peer(address(99));
    assert_eq!(inject(&mut node, stranger, b"x", None), Ok(InjectedWrite::Declined));
    node.engine.config.completes_in_order = true;
    assert_eq!(inject(&mut node, peer, b"x", None), Ok(InjectedWrite::Declined));
    node.engine.config.completes_in_order = false;
    // A link in the middle of another frame.
    node.transport.answers = [Sent::Partial(2), Sent::Full].into();
    node.post(send_request(peer, b"message", 1));
    assert_eq!(inject(&mut node, peer, b"x", None), Ok(InjectedWrite::Declined));
}

#[test]
fn unanswered_counted_writes_are_limited() {
    let (mut node, peer) = engine_with_injected(COUNTED_WRITES_LINK_MAX_OPS);
    assert_eq!(inject(&mut node, peer, b"x", None), Ok(InjectedWrite::Declined));
    node.frame(LINK, &written(1), b"");
    assert_eq!(inject(&mut node, peer, b"x", None), Ok(InjectedWrite::Sent));
}

#[test]
fn injected_writes_queue_up_to_a_limit() {
    let (mut node, peer) = engine_with_peer();
    node.transport.answers = vec![Sent::Full; 2 * INJECT_QUEUE_MAX_OPS].into();
    node.post(send_request(peer, b"first", 0));
    for context in 1..INJECT_QUEUE_MAX_OPS as u64 {
        assert_eq!(inject(&mut node, peer, b"x", None), Ok(InjectedWrite::Declined));
        node.post(inject_request(peer, context));
    }
    assert_eq!(inject(&mut node, peer, b"x", None), Err(Again::QueueFull));
    let refused = node.try_post(inject_request(peer, 99)).unwrap_err();
    assert_eq!(refused.error, Again::QueueFull.into());
    node.post(rma_request(peer, write_local(b"other"), 1));
}

#[test]
fn write_with_data_costs_credit() {
    let (mut node, peer) = engine_with_injected(0);
    for _ in 0..CREDIT_INITIAL_BYTES / MESSAGE_COST_BYTES {
        assert_eq!(inject(&mut node, peer, b"x", Some(5)), Ok(InjectedWrite::Sent));
    }
    assert_eq!(inject(&mut node, peer, b"x", Some(5)), Ok(InjectedWrite::Declined));
    assert_eq!(inject(&mut node, peer, b"x", None), Ok(InjectedWrite::Sent));
}

#[test]
fn counted_write_does_not_overtake_an_offered_write() {
    for (order, expected) in [
        (Order::WAW, Ok(InjectedWrite::Declined)),
        (Order::RMA_WAW, Ok(InjectedWrite::Declined)),
        (Order::empty(), Ok(InjectedWrite::Sent)),
    ] {
        let (mut node, peer) = engine_with_peer();
        node.engine.config.transmit_order = order;
        node.transport.pull_min_bytes = Some(4);
        node.post(rma_request(peer, write_local(b"long"), 1));
        let [Header::Rma(Rma { op, kind: RmaKind::Offer { .. }, .. })] = node.sent_since(0)[..] else {
            panic!("no offer: {:?}", node.transport.sent)
        };
        assert_eq!(inject(&mut node, peer, b"x", None), expected, "{order:?}");
        node.answer(LINK, op, Outcome::Done);
        assert_eq!(inject(&mut node, peer, b"x", None), Ok(InjectedWrite::Sent));
    }
}

#[test]
fn target_answers_all_writes_of_a_pass_at_once() {
    let (mut node, _) = engine_with_peer();
    let mut memory = vec![0; 10];
    let region = node.add_region(raw_region(&mut memory, ATTR));
    node.frame(LINK, &counted_write_header(KEY, 0, 1), b"a");
    node.frame(LINK, &counted_write_header(KEY, 9, 1), b"z");
    node.frame_begun(LINK, &counted_write_header(KEY, 2, 4));
    node.arrivals().payload_space(LINK)[0][..2].copy_from_slice(b"in");
    node.arrivals().bytes_placed(LINK, 2);
    node.transmit();
    assert_eq!(node.sent_since(0), [written(2)], "the third has not arrived whole");
    node.payload_arrived(LINK, b"to");
    node.transmit();
    node.transmit();
    assert_eq!(node.sent_since(1), [written(3)]);
    node.engine.target.regions().close(&region);
    node.pass_with_frame(LINK, &counted_write_header(KEY, 0, 1), b"!");
    assert_eq!(node.sent_since(2), [refused(4, Refusal::Key)]);
    assert_eq!(memory, b"a\0into\0\0\0z");
}

/// Returns an engine that counts no accesses of peers. So it copies a counted write straight into the region
/// of the one before.
fn engine_that_remembers_regions() -> Node {
    engine_with_config(Config { rma_events: false, ..untimed_config() }).0
}

/// Takes the first half of a counted write of four bytes to address 2.
fn receive_half_a_write(node: &mut Node, data: Option<u64>) {
    let write = CountedWrite { key: KEY, address: 2, len_bytes: 4, data };
    node.frame_begun(LINK, &Header::CountedWrite(write));
    node.arrivals().payload_space(LINK)[0][..2].copy_from_slice(b"in");
    node.arrivals().bytes_placed(LINK, 2);
}

#[test]
fn half_a_counted_write_is_neither_counted_nor_completed() {
    for data in [None, Some(5)] {
        let (mut node, _) = engine_with_peer();
        let mut memory = *b"..........";
        let region = node.add_region(raw_region(&mut memory, ATTR));
        node.frame(LINK, &counted_write_header(KEY, 0, 1), b"a");
        receive_half_a_write(&mut node, data);
        node.link_down(LINK, RESET);
        node.transmit();
        assert_eq!(node.transport.sent.len(), 0, "no answer goes to a link that is down");
        assert_eq!(take_counted(&mut node.sink), [(CounterEvents::REMOTE_WRITE, true)], "the whole write");
        assert!(node.sink.ended.is_empty(), "{:?}", node.sink.ended);

        // The next link counts from the beginning.
        node.link_up(LINK, 2, 1);
        node.pass_with_frame(LINK, &counted_write_header(KEY, 9, 1), b"z");
        assert_eq!(node.sent_since(0), [written(1)]);
        node.engine.target.regions().close(&region);
        assert_eq!(&memory, b"a.in.....z", "the rest of the half is untouched");
    }
}

#[test]
fn counted_write_after_its_region_was_replaced_reaches_the_new_one() {
    let mut node = engine_that_remembers_regions();
    let (mut first, mut second) = (*b"....", *b"....");
    let old = node.add_region(raw_region(&mut first, ATTR));
    node.frame(LINK, &counted_write_header(KEY, 0, 2), b"ab");
    node.frame(LINK, &counted_write_header(KEY, 2, 2), b"cd");
    node.engine.target.regions().close(&old);
    let new = node.add_region(raw_region(&mut second, ATTR));
    node.frame(LINK, &counted_write_header(KEY, 0, 2), b"ef");
    node.frame(LINK, &counted_write_header(KEY, 2, 2), b"gh");
    node.engine.target.regions().close(&new);
    node.pass_with_frame(LINK, &counted_write_header(KEY, 0, 2), b"ij");
    assert_eq!(node.sent_since(0), [refused(5, Refusal::Key), written(5)]);
    assert_eq!((&first, &second), (b"abcd", b"efgh"));
}

#[test]
fn region_that_replaces_one_amid_a_counted_write_gets_nothing_of_it() {
    let mut node = engine_that_remembers_regions();
    let (mut first, mut second) = (*b"......", *b"......");
    let old = node.add_region(raw_region(&mut first, ATTR));
    node.frame(LINK, &counted_write_header(KEY, 0, 1), b"a");
    receive_half_a_write(&mut node, None);
    node.engine.target.regions().close(&old);
    let new = node.add_region(raw_region(&mut second, ATTR));
    assert!(node.arrivals().payload_space(LINK).is_empty());
    node.payload_arrived(LINK, b"to");
    node.pass_with_frame(LINK, &counted_write_header(KEY, 0, 1), b"b");
    assert_eq!(node.sent_since(0), [refused(2, Refusal::Key), written(3)]);
    node.engine.target.regions().close(&new);
    assert_eq!((&first, &second), (b"a.in..", b"b....."));
}

#[test]
fn target_names_each_write_that_it_refuses() {
    let (mut node, _) = engine_with_peer();
    let mut memory = vec![0; 10];
    let region = node.add_region(raw_region(&mut memory, ATTR));
    let read_only = RegionAttr { key: 1, access: MrAccess::REMOTE_READ, base_address: 0 };
    node.add_region(Region::owned(10, read_only));
    node.frame(LINK, &counted_write_header(KEY, 0, 2), b"ok");
    node.frame(LINK, &counted_write_header(KEY, 9, 2), b"no");
    node.frame(LINK, &counted_write_header(KEY + 1, 0, 2), b"no");
    node.frame(LINK, &counted_write_header(1, 0, 2), b"no");
    node.frame(LINK, &counted_write_header(KEY + 1, 0, 0), b"");
    node.pass_with_frame(LINK, &counted_write_header(KEY, 8, 2), b"ok");
    let answers =
        [refused(2, Refusal::Range), refused(3, Refusal::Key), refused(4, Refusal::Access), written(6)];
    assert_eq!(node.sent_since(0), answers);
    node.engine.target.regions().close(&region);
    assert_eq!(memory, b"ok\0\0\0\0\0\0ok");
}

#[test]
fn peer_with_too_many_unanswered_counted_writes_loses_its_link() {
    let (mut node, _) = engine_with_peer();
    for _ in 0..COUNTED_WRITES_LINK_MAX_OPS {
        node.frame(LINK, &counted_write_header(KEY, 0, 1), b"x");
    }
    assert!(node.engine.condemned.is_empty());
    node.pass_with_frame(LINK, &counted_write_header(KEY, 0, 1), b"x");
    assert_eq!(node.transport.closed, [(LINK, Close::Abort)]);
}

#[test]
fn answered_access_behind_counted_writes_lets_messages_before_them_count_as_arrived() {
    let (mut node, peer) = engine_with_peer();
    node.post(send_request(peer, b"message", 1));
    assert_eq!(inject(&mut node, peer, b"x", None), Ok(InjectedWrite::Sent));
    let link = node.engine.links.get(LINK).unwrap();
    assert!(!link.tx.all_messages_have_arrived() && !link.tx.has_no_unanswered_accesses());
    node.frame(LINK, &written(1), b"");
    let link = node.engine.links.get(LINK).unwrap();
    assert!(link.tx.all_messages_have_arrived() && link.tx.has_no_unanswered_accesses());
    // An ordinary access still has an answer of its own.
    node.frame(LINK, &rma_header(1, 0, 1, RmaKind::Read), b"");
}
