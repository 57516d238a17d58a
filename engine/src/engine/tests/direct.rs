//! Tests of mapped regions, at the initiator and at the target.

use super::atomics::{atomic_request, fetch_local};
use super::durability::Device;
use super::flushes::flush_request;
use std::sync::atomic::Ordering::Relaxed;

use super::*;

/// Returns an offer of a region of 100 bytes, which the engine may read and write.
fn mappable_region_header(key: u64) -> Header {
    let (access, remote_bytes) = (ATTR.access.bits(), REMOTE.len() as u8);
    Header::MappableRegion(MappableRegion { key, address: 0, len_bytes: 100, access, remote_bytes })
}

/// Makes the engine map a region.
fn map_region(node: &mut Node) {
    node.frame(LINK, &mappable_region_header(KEY), REMOTE);
    map_offered(node, KEY);
}

/// Makes the engine map an offered region without an access.
fn map_offered(node: &mut Node, key: u64) {
    let peer = node.engine.links.get(LINK).unwrap().peer();
    assert!(node.engine.map_region_if_offered(peer, key, &mut node.transport));
}

fn hello_write() -> RmaLocal {
    RmaLocal::Write { source: Source::owned(Bytes::from_static(b"hello")), data: None }
}

/// Creates a region of 100 bytes that peers can map.
fn shareable_region() -> Result<Region, Misuse> {
    Region::shareable(shareable_memory(100), 100, RegionAttr { access: MrAccess::all(), ..ATTR })
}

/// If the sink has no room for a completion, the engine holds it, and later completions do not overtake it.
#[test]
fn access_behind_a_held_completion_is_not_made_at_once() {
    let (mut node, peer) = engine_with_peer();
    map_region(&mut node);
    let place = RemoteMemory { key: KEY, address: 3 };
    node.sink.room = Some(0);
    let completion =
        EndedOperation::of_transmit(8, CompletionFlags::of_access(false, false), hello_write().into_buffer());
    node.engine.report_end_at_post_time(completion, &mut node.sink);
    assert_eq!((node.outstanding_transmits(), node.ended_contexts()), (1, vec![]));
    let attempt = node.engine.try_access_at_once(peer, &mut hello_write(), place, Level::Inject, false);
    assert_eq!(attempt, Attempt::NotMade);
    node.sink.room = Some(2);
    node.post(rma_request(peer, hello_write(), 9));
    node.deliver_held();
    assert_eq!((node.transport.sent.len(), node.ended_contexts()), (0, vec![8, 9]));
}

#[test]
fn access_that_must_wait_or_involve_the_target_is_not_direct() {
    let (mut node, peer) = engine_with_peer();
    map_region(&mut node);
    let memory = node.engine.links.get_mut(LINK).unwrap().tx.mapped_regions().memory_of(KEY);
    let place = RemoteMemory { key: KEY, address: 0 };
    let try_access = |node: &mut Node, mut local: RmaLocal, place, level, fence| {
        let is_done = node.engine.try_access_at_once(peer, &mut local, place, level, fence) == Attempt::Done;
        assert_eq!(local.len_bytes(), 5, "it is left as it is");
        is_done
    };
    let goes = |node: &mut Node| try_access(node, hello_write(), place, Level::Inject, false);
    let data = RmaLocal::Write { source: Source::owned(Bytes::from_static(b"12345")), data: Some(1) };
    let elsewhere = RemoteMemory { key: KEY + 1, ..place };
    let too_far = |address| RemoteMemory { address, ..place };
    for (local, place, level, fence, why) in [
        (data, place, Level::Inject, false, "its target is to see it"),
        (hello_write(), place, Level::Commit, false, "its target is to make it durable"),
        (hello_write(), place, Level::Inject, true, "it is fenced"),
        (hello_write(), elsewhere, Level::Inject, false, "it is not mapped"),
        (hello_write(), too_far(96), Level::Inject, false, "it is too long"),
        (hello_write(), too_far(u64::MAX), Level::Inject, false, "it is too long"),
    ] {
        assert!(!try_access(&mut node, local, place, level, fence), "{why}");
    }
    let config = node.engine.config.clone();
    node.engine.config.message_max_bytes = 4;
    assert!(!goes(&mut node), "it is longer than anything may be");
    node.engine.config = Config { tx_depth_ops: 0, ..config.clone() };
    assert!(!goes(&mut node), "there are too many");
    node.engine.config = config;
    node.engine.initiator.set_completes_in_order(true);
    assert!(!goes(&mut node), "it has its turn");
    node.engine.initiator.set_completes_in_order(false);
    node.post(rma_request(peer, hello_write(), 1).key(KEY + 1));
    assert!(!goes(&mut node), "one before it has not ended");
    assert_eq!((memory.words()[0].load(Relaxed), node.sink.ended.len()), (0, 0));
    memory.retire();
    assert!(!goes(&mut node));
    assert_eq!(mapped_and_offered_counts(&mut node), (0, 0), "it has ended");
}

#[test]
fn visibility_flush_of_mapped_region_needs_no_frame() {
    let (mut node, peer) = engine_with_peer();
    map_region(&mut node);
    let memory = node.engine.links.get_mut(LINK).unwrap().tx.mapped_regions().memory_of(KEY);
    node.post(rma_request(peer, hello_write(), 1));
    assert!(node.engine.has_unseen_stores);
    // The region has 100 bytes, and the range begins at the fourth.
    let flush = |len_bytes| flush_request(peer, FlushKind::Visibility, len_bytes, 2);
    node.post(flush(97));
    assert_eq!((node.transport.sent.len(), node.ended_contexts()), (0, vec![1, 2]));
    assert_eq!(node.take_ended().remove(1), Ok(EndedOperation::of_flush(2, 97)));
    assert!(!node.engine.has_unseen_stores);
    node.post(flush(5).signalled(Signalled::No));
    assert_eq!((node.transport.sent.len(), node.sink.ended.len(), node.sink.counted.len()), (0, 0, 3));

    // The target has to judge these, or to do something.
    let by_frame = [
        flush(98),
        flush(5).key(KEY + 1),
        flush(5).fence(true),
        flush_request(peer, FlushKind::Persistent, 5, 2),
    ];
    for (sent, request) in (1..).zip(by_frame) {
        node.post(request);
        assert_eq!((node.transport.sent.len(), node.sink.ended.len()), (sent, 0));
        node.answer(LINK, node.last_op(), Outcome::Refused(Refusal::Range));
        assert!(node.take_ended().remove(0).is_err());
    }

    // An earlier write is under way, by frame, to another region.
    node.post(rma_request(peer, hello_write(), 3).key(KEY + 1));
    node.post(flush(5));
    assert_eq!((node.transport.sent.len(), node.sink.ended.len()), (6, 0));
    for at in [4, 5] {
        node.answer(LINK, node.op_at(at), Outcome::Done);
    }
    assert_eq!(node.take_ended().len(), 2);

    // The target has closed the region.
    memory.retire();
    node.post(flush(5));
    assert_eq!((node.transport.sent.len(), node.sink.ended.len()), (7, 0));
    assert_eq!(mapped_and_offered_counts(&mut node), (0, 0));
}

/// Returns how many regions an engine has mapped, and how many others it may map.
fn mapped_and_offered_counts(node: &mut Node) -> (usize, usize) {
    let direct = node.engine.links.get(LINK).unwrap().tx.mapped_regions();
    (direct.mapped_count(), direct.offer_count())
}

#[test]
fn mapped_regions_are_limited() {
    let (mut node, _) = engine_with_peer();
    for key in 0..MAPPED_LINK_MAX_REGIONS as u64 {
        node.frame(LINK, &mappable_region_header(key), REMOTE);
        map_offered(&mut node, key);
    }
    // A second offer with the same key replaces the first region.
    node.frame(LINK, &mappable_region_header(3), REMOTE);
    assert_eq!(mapped_and_offered_counts(&mut node), (MAPPED_LINK_MAX_REGIONS - 1, 1));
    map_offered(&mut node, 3);
    node.frame(LINK, &mappable_region_header(1000), REMOTE);
    assert_eq!(mapped_and_offered_counts(&mut node), (MAPPED_LINK_MAX_REGIONS, 0), "there are frames");
    assert!(node.engine.condemned.is_empty());
}

#[test]
fn oldest_offered_region_gives_way_at_the_limit() {
    let (mut node, peer) = engine_with_peer();
    let last = 3 * MAPPED_LINK_MAX_REGIONS as u64;
    for key in (0..=last).flat_map(|key| [key, key]) {
        node.frame(LINK, &mappable_region_header(key), REMOTE);
        assert!(mapped_and_offered_counts(&mut node).1 <= MAPPED_LINK_MAX_REGIONS);
    }
    assert!(node.engine.condemned.is_empty(), "all of them but the last may have ended");
    assert_eq!(mapped_and_offered_counts(&mut node), (0, MAPPED_LINK_MAX_REGIONS));
    node.post(rma_request(peer, hello_write(), 1).key(last));
    assert!(node.transport.sent.is_empty(), "the last one is mapped");
}

#[test]
fn region_is_offered_once_to_a_peer_that_accessed_it() {
    let (mut node, _) = engine_with_peer();
    let region = node.add_region(shareable_region());
    let read = |op| rma_header(op, 0, 0, RmaKind::Read);
    for op in 1..3 {
        node.pass_with_frame(LINK, &read(op), b"");
    }
    let showings = |transport: &Scripted| {
        let headers = transport.headers_since(0).into_iter();
        headers.filter(|header| matches!(header, Header::MappableRegion(_))).count()
    };
    assert_eq!(showings(&node.transport), 1);
    let (_, Header::MappableRegion(shown), remote) = &node.transport.sent[0] else {
        panic!("it is shown before the answer")
    };
    assert_eq!((shown.key, shown.len_bytes, shown.access), (KEY, 100, 0x3000));
    assert_eq!(remote.len(), usize::from(shown.remote_bytes));
    // No region that has ended is offered.
    node.engine.target.regions().close(&region);
    let next = node.add_region(shareable_region());
    node.frame(LINK, &read(3), b"");
    node.engine.target.regions().close(&next);
    node.transmit();
    assert_eq!(showings(&node.transport), 1);
    assert!(!node.has_unsent());
}

#[test]
fn direct_read_makes_earlier_direct_writes_visible() {
    let (mut node, peer) = engine_with_peer();
    map_region(&mut node);
    let mut post = |local, level| {
        node.post(rma_request(peer, local, 1).level(level));
        assert!(node.transport.sent.is_empty());
        node.engine.has_unseen_stores
    };
    assert!(post(hello_write(), Level::Inject), "a write waits for nothing");
    assert!(!post(read_local(5), Level::Inject));
    assert!(!post(hello_write(), Level::Delivery), "it is there");
    assert!(post(hello_write(), Level::Transmit) && post(hello_write(), Level::Inject));
    assert!(!post(read_local(5), Level::Delivery));
    assert_eq!(node.sink.ended.len(), 6);
}

/// Returns an engine that has mapped a region, and whose accesses must not overtake messages.
fn engine_with_access_order() -> (Node, PeerId) {
    let transmit_order = Order::WAS | Order::RAS;
    let (mut node, peer) = engine_with_config(Config { transmit_order, ..untimed_config() });
    map_region(&mut node);
    (node, peer)
}

/// Posts a write. Returns whether the engine made the write directly. If the write went as a frame,
/// delivers the peer's answer.
fn post_write_returning_if_direct(node: &mut Node, peer: PeerId) -> bool {
    let before = node.transport.sent.len();
    node.post(rma_request(peer, hello_write(), 1));
    let is_direct = node.transport.sent.len() == before;
    if !is_direct {
        node.answer(LINK, node.op_at(before), Outcome::Done);
    }
    is_direct
}

#[test]
fn answered_access_proves_arrival_of_earlier_messages() {
    let (mut node, peer) = engine_with_access_order();
    assert!(post_write_returning_if_direct(&mut node, peer));
    for _ in 0..3 {
        node.post(send_request(peer, b"m", 9));
        assert!(node.engine.try_send_at_once(peer, None, None, b"m", &mut node.transport));
        assert!(!post_write_returning_if_direct(&mut node, peer), "messages are under way");
        assert!(post_write_returning_if_direct(&mut node, peer), "it was answered");
    }
    // The results of an atomic operation prove arrival, too.
    assert!(node.engine.try_send_at_once(peer, None, None, b"m", &mut node.transport));
    node.post(atomic_request(peer, fetch_local(&[1]), AtomicOp::Sum, 9));
    let fetched = Header::ReadData { op: node.last_op(), len_bytes: 1 };
    node.frame(LINK, &fetched, &[0]);
    assert!(post_write_returning_if_direct(&mut node, peer));
    assert!(node.engine.condemned.is_empty());
}

#[test]
fn visibility_flush_after_an_unanswered_message_needs_no_frame() {
    let (mut node, peer) = engine_with_access_order();
    node.post(send_request(peer, b"m", 1));
    node.post(flush_request(peer, FlushKind::Visibility, 5, 2));
    assert_eq!((node.transport.sent.len(), node.ended_contexts()), (1, vec![1, 2]), "it follows no write");
    // A write that may not overtake the message goes by a frame, and a flush follows it.
    node.post(rma_request(peer, hello_write(), 3));
    node.post(flush_request(peer, FlushKind::Visibility, 5, 4));
    assert_eq!((node.transport.sent.len(), node.sink.ended.len()), (3, 2));
}

#[test]
fn direct_access_does_not_overtake_requested_payload() {
    let (mut node, peer) = engine_with_access_order();
    node.post(send_request(peer, &[0; EAGER_MAX_BYTES + 1], 9));
    let op = node.last_op();
    node.pass_with_frame(LINK, &Header::Clear { op, cannot_pull: false }, b"");
    assert!(matches!(node.transport.sent.last().unwrap().1, Header::Data { .. }));
    assert_eq!(node.take_ended().len(), 1, "the link has all of it");
    assert!(!post_write_returning_if_direct(&mut node, peer), "the peer may not have it");
    assert!(post_write_returning_if_direct(&mut node, peer));
}

#[test]
fn ended_mapping_is_released_by_next_access_or_sweep() {
    let (mut node, peer) = engine_with_peer();
    let memory = shareable_memory(100);
    node.transport.mapped = Some(memory.clone());
    map_region(&mut node);
    assert_eq!(Arc::strong_count(&memory), 3);
    memory.retire();
    // The next access releases the mapping.
    node.post(rma_request(peer, hello_write(), 1));
    assert_eq!((Arc::strong_count(&memory), node.transport.sent.len()), (2, 1), "it went by a frame");
    // Without an access, a sweep releases the mapping.
    let next = shareable_memory(100);
    node.transport.mapped = Some(next.clone());
    map_region(&mut node);
    node.transmit_times(2 * MAPPED_SWEEP_PASSES as usize);
    assert_eq!(Arc::strong_count(&next), 3, "it has not ended");
    next.retire();
    node.transmit_times(MAPPED_SWEEP_PASSES as usize);
    assert_eq!(Arc::strong_count(&next), 2);
    assert_eq!(node.engine.passes_to_sweep, 0);
}

#[test]
fn persistent_region_is_not_offered_for_mapping() {
    let (mut node, _) = engine_with_peer();
    let device = Arc::new(Device::default());
    node.add_region(shareable_region().map(|region| region.with_persistence(Box::new(device))));
    node.pass_with_frame(LINK, &rma_header(1, 0, 0, RmaKind::Read), b"");
    assert_eq!(node.sent_since(0), [Header::Answer { op: 1, outcome: Outcome::Done }]);
}

#[test]
fn region_offered_in_several_pieces_is_kept() {
    let (mut node, _) = engine_with_peer();
    node.frame_begun(LINK, &mappable_region_header(KEY));
    for byte in REMOTE {
        node.payload_arrived(LINK, &[*byte]);
    }
    map_offered(&mut node, KEY);
}
