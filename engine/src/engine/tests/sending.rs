//! Tests of sends that travel eagerly, and of their acknowledgement.

use super::atomics::atomic_request;
use super::rma::{read_local, rma_request};
use super::*;

/// Shows fi_msg/length-up-to-max-msg-size, fi_rma/rma-length-up-to-max-msg-size.
#[test]
fn operations_of_the_maximal_length_are_posted() {
    let (mut node, peer) = engine_with_peer();
    node.engine.config = Config { message_max_bytes: 4, ..untimed_config() };
    node.post(send_request(peer, b"1234", 1));
    node.post(rma_request(peer, read_local(4), 2));
    let too_long = node.try_post(rma_request(peer, read_local(5), 3)).unwrap_err();
    assert_eq!(too_long.error, Misuse::TooLong { len_bytes: 5, max_bytes: 4 }.into());
}

#[test]
fn message_beyond_a_limit_is_not_sent_at_once() {
    let is_sent = |config: Config, pull_min_bytes: Option<usize>, message: &[u8]| {
        let (mut node, peer) = engine_with_config(config);
        node.transport.pull_min_bytes = pull_min_bytes;
        node.engine.try_send_at_once(peer, None, None, message, &mut node.transport)
    };
    let any = untimed_config;
    assert!(is_sent(any(), None, b"12345678") && !is_sent(any(), None, b"123456789"), "inline");
    for config in [
        || Config { eager_max_bytes: 4, ..untimed_config() },
        || Config { message_max_bytes: 4, ..untimed_config() },
    ] {
        assert!(is_sent(config(), None, b"1234") && !is_sent(config(), None, b"12345"), "{:?}", config());
    }
    assert!(is_sent(any(), Some(5), b"1234") && !is_sent(any(), Some(5), b"12345"), "the peer pulls it");
    assert!(!is_sent(Config { tx_depth_ops: 0, ..any() }, None, b"1"), "no operation may be outstanding");
}

#[test]
fn posts_beyond_depth_or_message_limit_are_refused() {
    let (mut node, peer) = engine_with_peer();
    node.engine.config = Config { tx_depth_ops: 1, message_max_bytes: 4, ..untimed_config() };
    let too_long = node.try_post(send_request(peer, b"12345", 0)).unwrap_err();
    assert_eq!(too_long.error, Misuse::TooLong { len_bytes: 5, max_bytes: 4 }.into());
    assert_eq!(too_long.returned.into_sent().unwrap().len(), 5);
    node.transport.answers = [Sent::Full].into();
    node.post(send_request(peer, b"1", 1));
    let full = node.try_post(send_request(peer, b"2", 2)).unwrap_err();
    assert_eq!(full.error, Again::QueueFull.into());
    node.transmit();
    node.post(send_request(peer, b"3", 3));
    assert_eq!(node.ended_contexts(), [1, 3]);
}

#[test]
fn injected_operation_is_copied_if_link_has_no_room_for_all() {
    for (kind, answer) in ["message", "write", "atomic"]
        .into_iter()
        .flat_map(|kind| [Sent::Full, Sent::Partial(4)].map(|answer| (kind, answer)))
    {
        let (mut node, peer) = engine_with_peer();
        let mut bytes = *b"injected memory!";
        let segments = [0..7, 7..16]
            .map(|part| Segment { address: bytes[part.clone()].as_ptr(), len_bytes: part.len() });
        #[expect(unsafe_code, reason = "the raw tier is what injection is about")]
        // SAFETY: the engine copies injected memory before `post_request` returns.
        let source = || unsafe { Source::raw(&segments) }.unwrap();
        let request = match kind {
            "message" => send_request(peer, b"", 1).source(source()),
            "write" => rma_request(peer, RmaLocal::Write { source: source(), data: None }, 1),
            _ => {
                let result = Destination::owned(BytesMut::zeroed(bytes.len()));
                let local = AtomicLocal::Compare { operand: source(), compare: source(), result };
                atomic_request(peer, local, AtomicOp::Cswap, 1)
            }
        };
        node.transport.answers = [answer].into();
        node.post(request.inject(true).signalled(Signalled::No));
        bytes.fill(0);
        node.transmit();
        let sent = b"injected memory!".repeat(if kind == "atomic" { 2 } else { 1 });
        assert_eq!(node.transport.sent[0].2, sent, "{kind}, {answer:?}");
        assert!(node.sink.ended.is_empty(), "{kind}, {answer:?}");
    }
}

#[test]
fn injected_send_returns_owned_buffers_and_forgets_raw_ones() {
    let (mut node, peer) = engine_with_peer();
    let injected = |source| send_request(peer, b"", 1).source(source).inject(true).level(Level::Transmit);
    let pieces = vec![Bytes::from_static(b"in "), Bytes::from_static(b"pieces")];
    for answer in [Sent::Whole, Sent::Full] {
        node.transport.answers = [answer].into();
        let owned = Source::owned_vector(pieces.clone()).unwrap();
        node.post(injected(owned));
        let raw = [Segment { address: b"raw".as_ptr(), len_bytes: 3 }];
        #[expect(unsafe_code, reason = "the raw tier is what injection is about")]
        // SAFETY: the bytes are static.
        let raw = unsafe { Source::raw(&raw) }.unwrap();
        node.post(injected(raw));
        node.transmit();
    }
    node.frame(LINK, &Header::Ack { received: 4 }, b"");
    let buffers: Vec<Buffer> = node.take_ended().into_iter().map(|ended| ended.unwrap().buffer).collect();
    let whole = Buffer::SentVector(pieces);
    assert_eq!(buffers, [whole.clone(), Buffer::None, whole, Buffer::None]);
    let payloads: Vec<&[u8]> = node.transport.sent.iter().map(|(_, _, payload)| &payload[..]).collect();
    assert_eq!(payloads, [&b"in pieces"[..], b"raw", b"in pieces", b"raw"]);
}
