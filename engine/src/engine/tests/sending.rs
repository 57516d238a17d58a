//! Tests of sends that travel eagerly, and of their acknowledgement.

use super::*;

#[test]
fn sends_to_full_link_are_queued_in_order() {
    let (mut node, peer) = engine_with_peer();
    node.transport.answers = [Sent::Partial(3), Sent::Full, Sent::Partial(2)].into();
    node.post(send_request(peer, b"0123456789", 1));
    node.post(send_request(peer, b"x", 2));
    assert!(node.sink.ended.is_empty() && node.has_unsent());
    node.transmit();
    node.transmit();
    assert!(node.sink.ended.is_empty());
    node.transmit();
    assert_eq!(node.ended_contexts(), [1, 2]);
    let payloads: Vec<&[u8]> = node.transport.sent.iter().map(|(_, _, payload)| &payload[..]).collect();
    assert_eq!(payloads, [&b"0123456789"[..], b"x"]);
    assert!(!node.has_unsent());
    assert!(node.transport.connected.is_empty(), "the peer's own link is used");
}

#[test]
fn injected_message_is_copied_if_link_is_full() {
    for answer in [Sent::Full, Sent::Partial(4)] {
        let (mut node, peer) = engine_with_peer();
        let mut message = *b"injected message";
        let segment = Segment { address: message.as_ptr(), len_bytes: message.len() };
        #[expect(unsafe_code, reason = "the raw tier is what injection is about")]
        // SAFETY: the engine copies an injected message before `post_request` returns.
        let source = unsafe { Source::raw(&[segment]) }.unwrap();
        node.transport.answers = [answer].into();
        node.post(send_request(peer, b"", 0).source(source).inject(true).signalled(Signalled::No));
        message.fill(0);
        node.transmit();
        assert_eq!(node.transport.sent[0].2, b"injected message");
        assert!(node.sink.ended.is_empty());
    }
}

#[test]
fn arrivals_are_acknowledged_once_per_pass_on_request() {
    let (mut node, _) = engine_with_peer();
    node.pass_with_frame(LINK, &untagged_header(0), b"");
    assert!(node.transport.sent.is_empty());
    let asking = Header::Message(Message { awaits: AwaitedReply::Arrival, ..Message::of_len(0) });
    node.frame(LINK, &asking, b"");
    node.frame(LINK, &asking, b"");
    node.transport.answers = [Sent::Full].into();
    node.transmit();
    assert!(node.transport.sent.is_empty() && node.has_unsent());
    node.transmit();
    node.transmit();
    assert_eq!(node.transport.sent, [(LINK, Header::Ack { received: 3 }, Vec::new())]);
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
