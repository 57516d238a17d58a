//! Tests of injected writes, which the target answers by count, from both sides.

use super::rma::{KEY, raw_region, read_region, rma_header, rma_request, write_local};
use super::*;
use crate::flags::MrAccess;
use crate::limits::{COUNTED_WRITE_MAX_BYTES, COUNTED_WRITES_LINK_MAX_OPS, INJECT_QUEUE_MAX_OPS};
use crate::region::{Region, RegionAttr};
use crate::wire::{CountedWrite, Outcome, Refusal, Rma, RmaKind};

const LINK: LinkId = LinkId(7);
const MEMORY: RemoteMemory = RemoteMemory { key: KEY, address: 3 };
const ATTR: RegionAttr = RegionAttr { key: KEY, access: MrAccess::REMOTE_WRITE, base_address: 0 };
const WRITTEN: (CounterEvents, bool) = (CounterEvents::WRITE, true);
const NOT_WRITTEN: (CounterEvents, bool) = (CounterEvents::WRITE, false);

/// Injects a write to the peer, as the pump does.
fn inject(
    engine: &mut Engine,
    peer: PeerId,
    bytes: &[u8],
    data: Option<u64>,
    transport: &mut Scripted,
) -> Result<InjectedWrite, Again> {
    engine.try_inject_write(peer, bytes, MEMORY, data, transport)
}

/// Returns an engine that has injected this many writes, and whose peer has answered none.
fn engine_with_injected(ops: u64) -> (Engine, PeerId, Scripted, Recorder) {
    let (mut engine, peer, mut transport, sink) = engine_with_peer();
    for _ in 0..ops {
        assert_eq!(inject(&mut engine, peer, b"x", None, &mut transport), Ok(InjectedWrite::Sent));
    }
    (engine, peer, transport, sink)
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
fn one_answer_ends_many_writes() {
    let (mut engine, peer, transport, mut sink) = engine_with_injected(3);
    let write = CountedWrite { key: KEY, address: 3, len_bytes: 1, data: None };
    assert_eq!(sent_headers_since(&transport, 0), [Header::CountedWrite(write); 3]);
    assert_eq!(engine.outstanding_transmits(), 3);
    engine.arrivals(&mut sink).frame(LINK, &written(2), b"");
    assert_eq!((engine.outstanding_transmits(), take_counted(&mut sink)), (1, vec![WRITTEN; 2]));
    engine.arrivals(&mut sink).frame(LINK, &written(2), b"");
    engine.arrivals(&mut sink).frame(LINK, &written(3), b"");
    assert_eq!((engine.outstanding_transmits(), take_counted(&mut sink)), (0, vec![WRITTEN]));
    assert!(sink.ended.is_empty(), "an injected write reports no success");
    assert!(engine.initiator.has_none_queued(peer));
}

#[test]
fn refused_write_is_reported_and_others_succeed() {
    let (mut engine, peer, _, mut sink) = engine_with_injected(4);
    engine.arrivals(&mut sink).frame(LINK, &refused(3, Refusal::Range), b"");
    assert_eq!(take_counted(&mut sink), [WRITTEN, WRITTEN, NOT_WRITTEN]);
    engine.arrivals(&mut sink).frame(LINK, &written(4), b"");
    assert_eq!((engine.outstanding_transmits(), take_counted(&mut sink)), (0, vec![WRITTEN]));
    let [Err(failure)] = &sink.ended[..] else { panic!("{:?}", sink.ended) };
    assert_eq!(failure.error, OperationError::Refused(Refusal::Range));
    assert_eq!((failure.target, failure.completion.context), (Some(peer), 0));
    assert_eq!(failure.completion.flags, CompletionFlags::RMA | CompletionFlags::WRITE);
}

#[test]
fn answer_to_unsent_or_answered_writes_ends_the_link() {
    for header in [written(3), refused(3, Refusal::Key), refused(1, Refusal::Key), written(0)] {
        let (mut engine, _, mut transport, mut sink) = engine_with_injected(2);
        engine.arrivals(&mut sink).frame(LINK, &written(1), b"");
        engine.arrivals(&mut sink).frame(LINK, &header, b"");
        engine.transmit(&mut transport, &mut sink);
        assert_eq!(transport.closed, [(LINK, Close::Abort)], "{header:?}");
        assert_eq!(take_counted(&mut sink), [WRITTEN, NOT_WRITTEN], "{header:?}");
    }
}

#[test]
fn lost_link_fails_unanswered_writes() {
    let (mut engine, peer, _, mut sink) = engine_with_injected(3);
    engine.arrivals(&mut sink).frame(LINK, &written(1), b"");
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::Down(RESET));
    assert_eq!(take_counted(&mut sink), [WRITTEN, NOT_WRITTEN, NOT_WRITTEN]);
    let is_reset = |ended: &Result<EndedOperation, FailedOperation>| match ended {
        Err(failure) => failure.error == OperationError::Link(RESET) && failure.target == Some(peer),
        Ok(_) => false,
    };
    assert!(sink.ended.len() == 2 && sink.ended.iter().all(is_reset), "{:?}", sink.ended);
    assert_eq!(engine.outstanding_transmits(), 0);
}

/// Returns the request for an injected write that goes through the queue.
fn inject_request(peer: PeerId, context: u64) -> AddressedRequest {
    let AddressedRequest { to, request } = rma_request(peer, write_local(b"inject"), context);
    let options = TransmitOptions::INJECTED;
    AddressedRequest { to, request: TransmitRequest { options, ..request } }
}

#[test]
fn one_write_waits_for_room_and_later_ones_are_refused() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_injected(0);
    transport.answers = [Sent::Full, Sent::Full, Sent::Full].into();
    assert_eq!(inject(&mut engine, peer, b"x", None, &mut transport), Ok(InjectedWrite::Declined));
    engine.post_request(inject_request(peer, 1), &mut transport, &mut sink).unwrap();
    for _ in 0..2 {
        assert_eq!(inject(&mut engine, peer, b"x", None, &mut transport), Err(Again::QueueFull));
        assert_eq!(engine.outstanding_transmits(), 1);
        engine.transmit(&mut transport, &mut sink);
    }
    assert_eq!(inject(&mut engine, peer, b"x", None, &mut transport), Ok(InjectedWrite::Sent));
    assert_eq!(transport.sent.len(), 2);
}

#[test]
fn write_that_cannot_be_counted_or_sent_now_is_declined() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_injected(0);
    let long = vec![0; COUNTED_WRITE_MAX_BYTES + 1];
    assert_eq!(inject(&mut engine, peer, &long, None, &mut transport), Ok(InjectedWrite::Declined));
    let stranger = engine.intern_peer(address(99));
    assert_eq!(inject(&mut engine, stranger, b"x", None, &mut transport), Ok(InjectedWrite::Declined));
    engine.config.completes_in_order = true;
    assert_eq!(inject(&mut engine, peer, b"x", None, &mut transport), Ok(InjectedWrite::Declined));
    engine.config.completes_in_order = false;
    // A link in the middle of another frame.
    transport.answers = [Sent::Partial(2), Sent::Full].into();
    engine.post_request(send_request(peer, b"message", 1), &mut transport, &mut sink).unwrap();
    assert_eq!(inject(&mut engine, peer, b"x", None, &mut transport), Ok(InjectedWrite::Declined));
}

#[test]
fn unanswered_counted_writes_are_limited() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_injected(COUNTED_WRITES_LINK_MAX_OPS);
    assert_eq!(inject(&mut engine, peer, b"x", None, &mut transport), Ok(InjectedWrite::Declined));
    engine.arrivals(&mut sink).frame(LINK, &written(1), b"");
    assert_eq!(inject(&mut engine, peer, b"x", None, &mut transport), Ok(InjectedWrite::Sent));
}

#[test]
fn injected_writes_queue_up_to_a_limit() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    transport.answers = vec![Sent::Full; 2 * INJECT_QUEUE_MAX_OPS].into();
    engine.post_request(send_request(peer, b"first", 0), &mut transport, &mut sink).unwrap();
    for context in 1..INJECT_QUEUE_MAX_OPS as u64 {
        assert_eq!(inject(&mut engine, peer, b"x", None, &mut transport), Ok(InjectedWrite::Declined));
        engine.post_request(inject_request(peer, context), &mut transport, &mut sink).unwrap();
    }
    assert_eq!(inject(&mut engine, peer, b"x", None, &mut transport), Err(Again::QueueFull));
    let refused = engine.post_request(inject_request(peer, 99), &mut transport, &mut sink).unwrap_err();
    assert_eq!(refused.error, Again::QueueFull.into());
    engine.post_request(rma_request(peer, write_local(b"other"), 1), &mut transport, &mut sink).unwrap();
}

#[test]
fn write_with_data_costs_credit() {
    let (mut engine, peer, mut transport, _) = engine_with_injected(0);
    for _ in 0..CREDIT_INITIAL_BYTES / MESSAGE_COST_BYTES {
        assert_eq!(inject(&mut engine, peer, b"x", Some(5), &mut transport), Ok(InjectedWrite::Sent));
    }
    assert_eq!(inject(&mut engine, peer, b"x", Some(5), &mut transport), Ok(InjectedWrite::Declined));
    assert_eq!(inject(&mut engine, peer, b"x", None, &mut transport), Ok(InjectedWrite::Sent));
}

#[test]
fn fence_waits_for_answer_to_counted_writes() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_injected(2);
    let fenced = send_request(peer, b"after", 1).fence(true);
    engine.post_request(fenced, &mut transport, &mut sink).unwrap();
    assert_eq!(inject(&mut engine, peer, b"x", None, &mut transport), Ok(InjectedWrite::Declined));
    engine.arrivals(&mut sink).frame(LINK, &written(1), b"");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.sent.len(), 2);
    engine.arrivals(&mut sink).frame(LINK, &written(2), b"");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.sent.len(), 3);
}

#[test]
fn counted_write_does_not_overtake_an_offered_write() {
    for (order, expected) in [
        (Order::WAW, Ok(InjectedWrite::Declined)),
        (Order::RMA_WAW, Ok(InjectedWrite::Declined)),
        (Order::empty(), Ok(InjectedWrite::Sent)),
    ] {
        let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
        engine.config.transmit_order = order;
        transport.pull_min_bytes = Some(4);
        engine.post_request(rma_request(peer, write_local(b"long"), 1), &mut transport, &mut sink).unwrap();
        let [Header::Rma(Rma { op, kind: RmaKind::Offer { .. }, .. })] =
            sent_headers_since(&transport, 0)[..]
        else {
            panic!("no offer: {:?}", transport.sent)
        };
        assert_eq!(inject(&mut engine, peer, b"x", None, &mut transport), expected, "{order:?}");
        engine.arrivals(&mut sink).frame(LINK, &Header::Answer { op, outcome: Outcome::Done }, b"");
        assert_eq!(inject(&mut engine, peer, b"x", None, &mut transport), Ok(InjectedWrite::Sent));
    }
}

#[test]
fn target_answers_all_writes_of_a_pass_at_once() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    let mut memory = vec![0; 10];
    let region = engine.target.regions().add(raw_region(&mut memory, ATTR).unwrap()).unwrap();
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.frame(LINK, &counted_write_header(KEY, 0, 1), b"a");
    arrivals.frame(LINK, &counted_write_header(KEY, 9, 1), b"z");
    arrivals.frame_begun(LINK, &counted_write_header(KEY, 2, 4));
    arrivals.payload_space(LINK)[0][..2].copy_from_slice(b"in");
    arrivals.bytes_placed(LINK, 2);
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sent_headers_since(&transport, 0), [written(2)], "the third has not arrived whole");
    engine.arrivals(&mut sink).payload_arrived(LINK, b"to");
    engine.transmit(&mut transport, &mut sink);
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sent_headers_since(&transport, 1), [written(3)]);
    engine.target.regions().close(&region);
    engine.arrivals(&mut sink).frame(LINK, &counted_write_header(KEY, 0, 1), b"!");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sent_headers_since(&transport, 2), [refused(4, Refusal::Key)]);
    assert_eq!(memory, b"a\0into\0\0\0z");
}

/// Returns an engine that counts no accesses of peers. So it copies a counted write straight into the region
/// of the one before.
fn engine_that_remembers_regions() -> (Engine, Scripted, Recorder) {
    let mut engine = Engine::new(Config { rma_events: false, ..untimed_config() });
    let mut sink = Recorder::default();
    engine.arrivals(&mut sink).link_event(LINK, LinkEvent::up(address(2), 1));
    (engine, Scripted::default(), sink)
}

/// Takes the first half of a counted write of four bytes to address 2.
fn receive_half_a_write(engine: &mut Engine, data: Option<u64>, sink: &mut Recorder) {
    let write = CountedWrite { key: KEY, address: 2, len_bytes: 4, data };
    let mut arrivals = engine.arrivals(sink);
    arrivals.frame_begun(LINK, &Header::CountedWrite(write));
    arrivals.payload_space(LINK)[0][..2].copy_from_slice(b"in");
    arrivals.bytes_placed(LINK, 2);
}

#[test]
fn half_a_counted_write_is_neither_counted_nor_completed() {
    for data in [None, Some(5)] {
        for error in [RESET, LinkError::Closed] {
            let (mut engine, _, mut transport, mut sink) = engine_with_peer();
            let mut memory = *b"..........";
            let region = engine.target.regions().add(raw_region(&mut memory, ATTR).unwrap()).unwrap();
            engine.arrivals(&mut sink).frame(LINK, &counted_write_header(KEY, 0, 1), b"a");
            receive_half_a_write(&mut engine, data, &mut sink);
            engine.arrivals(&mut sink).link_event(LINK, LinkEvent::Down(error));
            engine.transmit(&mut transport, &mut sink);
            assert_eq!(transport.sent.len(), 0, "no answer goes to a link that is down");
            assert_eq!(take_counted(&mut sink), [(CounterEvents::REMOTE_WRITE, true)], "the whole write");
            assert!(sink.ended.is_empty(), "{:?}", sink.ended);

            // The next link counts from the beginning.
            engine.arrivals(&mut sink).link_event(LINK, LinkEvent::up(address(2), 1));
            engine.arrivals(&mut sink).frame(LINK, &counted_write_header(KEY, 9, 1), b"z");
            engine.transmit(&mut transport, &mut sink);
            assert_eq!(sent_headers_since(&transport, 0), [written(1)]);
            engine.target.regions().close(&region);
            assert_eq!(&memory, b"a.in.....z", "the rest of the half is untouched");
        }
    }
}

#[test]
fn counted_write_after_its_region_was_replaced_reaches_the_new_one() {
    for (keeps_first, keeps_second) in [(true, true), (true, false), (false, true)] {
        let (mut engine, mut transport, mut sink) = engine_that_remembers_regions();
        let (mut first, mut second) = (*b"....", *b"....");
        let make_region = |memory: &mut [u8], is_raw: bool| {
            let region = if is_raw { raw_region(memory, ATTR) } else { Region::owned(4, ATTR) };
            region.unwrap()
        };
        let old = engine.target.regions().add(make_region(&mut first, keeps_first)).unwrap();
        let mut arrivals = engine.arrivals(&mut sink);
        arrivals.frame(LINK, &counted_write_header(KEY, 0, 2), b"ab");
        arrivals.frame(LINK, &counted_write_header(KEY, 2, 2), b"cd");
        engine.target.regions().close(&old);
        let new = engine.target.regions().add(make_region(&mut second, keeps_second)).unwrap();
        engine.arrivals(&mut sink).frame(LINK, &counted_write_header(KEY, 0, 2), b"ef");
        engine.arrivals(&mut sink).frame(LINK, &counted_write_header(KEY, 2, 2), b"gh");
        engine.target.regions().close(&new);
        engine.arrivals(&mut sink).frame(LINK, &counted_write_header(KEY, 0, 2), b"ij");
        engine.transmit(&mut transport, &mut sink);
        assert_eq!(sent_headers_since(&transport, 0), [refused(5, Refusal::Key), written(5)]);
        let content = |region: &Region, memory: [u8; 4], is_raw: bool| {
            if is_raw { memory.to_vec() } else { read_region(region) }
        };
        assert_eq!(content(&old, first, keeps_first), b"abcd");
        assert_eq!(content(&new, second, keeps_second), b"efgh");
    }
}

#[test]
fn region_that_replaces_one_amid_a_counted_write_gets_nothing_of_it() {
    let (mut engine, mut transport, mut sink) = engine_that_remembers_regions();
    let (mut first, mut second) = (*b"......", *b"......");
    let old = engine.target.regions().add(raw_region(&mut first, ATTR).unwrap()).unwrap();
    engine.arrivals(&mut sink).frame(LINK, &counted_write_header(KEY, 0, 1), b"a");
    receive_half_a_write(&mut engine, None, &mut sink);
    engine.target.regions().close(&old);
    let new = engine.target.regions().add(raw_region(&mut second, ATTR).unwrap()).unwrap();
    assert!(engine.arrivals(&mut sink).payload_space(LINK).is_empty());
    engine.arrivals(&mut sink).payload_arrived(LINK, b"to");
    engine.arrivals(&mut sink).frame(LINK, &counted_write_header(KEY, 0, 1), b"b");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sent_headers_since(&transport, 0), [refused(2, Refusal::Key), written(3)]);
    engine.target.regions().close(&new);
    assert_eq!((&first, &second), (b"a.in..", b"b....."));
}

#[test]
fn target_names_each_write_that_it_refuses() {
    for is_raw in [false, true] {
        let (mut engine, _, mut transport, mut sink) = engine_with_peer();
        let mut memory = vec![0; 10];
        let region =
            if is_raw { raw_region(&mut memory, ATTR).unwrap() } else { Region::owned(10, ATTR).unwrap() };
        let region = engine.target.regions().add(region).unwrap();
        let read_only = RegionAttr { key: 1, access: MrAccess::REMOTE_READ, base_address: 0 };
        engine.target.regions().add(Region::owned(10, read_only).unwrap()).unwrap();
        let mut arrivals = engine.arrivals(&mut sink);
        arrivals.frame(LINK, &counted_write_header(KEY, 0, 2), b"ok");
        arrivals.frame(LINK, &counted_write_header(KEY, 9, 2), b"no");
        arrivals.frame(LINK, &counted_write_header(KEY + 1, 0, 2), b"no");
        arrivals.frame(LINK, &counted_write_header(1, 0, 2), b"no");
        arrivals.frame(LINK, &counted_write_header(KEY + 1, 0, 0), b"");
        arrivals.frame(LINK, &counted_write_header(KEY, 8, 2), b"ok");
        engine.transmit(&mut transport, &mut sink);
        let answers =
            [refused(2, Refusal::Range), refused(3, Refusal::Key), refused(4, Refusal::Access), written(6)];
        assert_eq!(sent_headers_since(&transport, 0), answers, "{is_raw}");
        let bytes = if is_raw { memory.clone() } else { read_region(&region) };
        assert_eq!(bytes, b"ok\0\0\0\0\0\0ok", "{is_raw}");
    }
}

#[test]
fn full_link_delays_the_count() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    engine.target.regions().add(Region::owned(10, ATTR).unwrap()).unwrap();
    transport.answers = [Sent::Full].into();
    engine.arrivals(&mut sink).frame(LINK, &counted_write_header(KEY, 0, 2), b"ok");
    engine.transmit(&mut transport, &mut sink);
    assert!(transport.sent.is_empty() && engine.has_unsent());
    engine.arrivals(&mut sink).frame(LINK, &counted_write_header(KEY, 0, 2), b"ok");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!((sent_headers_since(&transport, 0), engine.has_unsent()), (vec![written(2)], false));
}

#[test]
fn peer_with_too_many_unanswered_counted_writes_loses_its_link() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    for _ in 0..COUNTED_WRITES_LINK_MAX_OPS {
        engine.arrivals(&mut sink).frame(LINK, &counted_write_header(KEY, 0, 1), b"x");
    }
    assert!(engine.condemned.is_empty());
    engine.arrivals(&mut sink).frame(LINK, &counted_write_header(KEY, 0, 1), b"x");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.closed, [(LINK, Close::Abort)]);
}

#[test]
fn counted_write_with_data_completes_at_the_target() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    engine.target.regions().add(Region::owned(10, ATTR).unwrap()).unwrap();
    let write = |address, data| CountedWrite { key: KEY, address, len_bytes: 2, data: Some(data) };
    let mut arrivals = engine.arrivals(&mut sink);
    arrivals.frame(LINK, &Header::CountedWrite(write(0, 5)), b"ok");
    arrivals.frame(LINK, &Header::CountedWrite(write(9, 6)), b"no");
    let [Ok(completion)] = &sink.ended[..] else { panic!("{:?}", sink.ended) };
    assert_eq!((completion.data, completion.len_bytes, completion.source), (5, 2, Some(peer)));
    assert!(completion.flags.contains(CompletionFlags::REMOTE_WRITE | CompletionFlags::REMOTE_CQ_DATA));
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sent_headers_since(&transport, 0)[0], refused(2, Refusal::Range));
}

#[test]
fn answered_access_behind_counted_writes_lets_messages_before_them_count_as_arrived() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    engine.post_request(send_request(peer, b"message", 1), &mut transport, &mut sink).unwrap();
    assert_eq!(inject(&mut engine, peer, b"x", None, &mut transport), Ok(InjectedWrite::Sent));
    let link = engine.links.get(LINK).unwrap();
    assert!(!link.tx.all_messages_have_arrived() && !link.tx.has_no_unanswered_accesses());
    engine.arrivals(&mut sink).frame(LINK, &written(1), b"");
    let link = engine.links.get(LINK).unwrap();
    assert!(link.tx.all_messages_have_arrived() && link.tx.has_no_unanswered_accesses());
    // An ordinary access still has an answer of its own.
    engine.arrivals(&mut sink).frame(LINK, &rma_header(1, 0, 1, RmaKind::Read), b"");
}
