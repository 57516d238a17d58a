//! Tests of sends that travel eagerly, and of their acknowledgement.

use super::*;

#[test]
fn sends_to_full_link_are_queued_in_order() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    transport.answers = [Sent::Partial(3), Sent::Full, Sent::Partial(2)].into();
    engine.post_request(send_request(peer, b"0123456789", 1), &mut transport, &mut sink).unwrap();
    engine.post_request(send_request(peer, b"x", 2), &mut transport, &mut sink).unwrap();
    assert!(sink.ended.is_empty() && engine.has_unsent());
    engine.transmit(&mut transport, &mut sink);
    engine.transmit(&mut transport, &mut sink);
    assert!(sink.ended.is_empty());
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(sink.ended_contexts(), [1, 2]);
    let payloads: Vec<&[u8]> = transport.sent.iter().map(|(_, _, payload)| &payload[..]).collect();
    assert_eq!(payloads, [&b"0123456789"[..], b"x"]);
    assert!(!engine.has_unsent());
    assert!(transport.connected.is_empty(), "the peer's own link is used");
}

#[test]
fn injected_message_is_copied_if_link_is_full() {
    for answer in [Sent::Full, Sent::Partial(4)] {
        let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
        let mut message = *b"injected message";
        let segment = Segment { address: message.as_ptr(), len_bytes: message.len() };
        #[expect(unsafe_code, reason = "the raw tier is what injection is about")]
        // SAFETY: the engine copies an injected message before `post_request` returns.
        let source = unsafe { Source::raw(&[segment]) }.unwrap();
        transport.answers = [answer].into();
        let request = send_request(peer, b"", 0).source(source).inject(true).signalled(Signalled::No);
        engine.post_request(request, &mut transport, &mut sink).unwrap();
        message.fill(0);
        engine.transmit(&mut transport, &mut sink);
        assert_eq!(transport.sent[0].2, b"injected message");
        assert!(sink.ended.is_empty());
    }
}

#[test]
fn delivery_send_completes_with_its_acknowledgement() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    engine.post_request(send_request(peer, b"a", 1), &mut transport, &mut sink).unwrap();
    let acked = |context| send_request(peer, b"b", context).level(Level::Transmit);
    engine.post_request(acked(2), &mut transport, &mut sink).unwrap();
    engine.post_request(acked(3), &mut transport, &mut sink).unwrap();
    assert_eq!(sink.ended_contexts(), [1]);
    engine.arrivals(&mut sink).frame(LinkId(7), &Header::Ack { received: 1 }, b"");
    assert_eq!(sink.ended_contexts(), [1]);
    engine.arrivals(&mut sink).frame(LinkId(7), &Header::Ack { received: 2 }, b"");
    assert_eq!(sink.ended_contexts(), [1, 2]);
    engine.arrivals(&mut sink).frame(LinkId(7), &Header::Ack { received: 3 }, b"");
    assert_eq!(sink.ended_contexts(), [1, 2, 3]);
}

#[test]
fn arrivals_are_acknowledged_once_per_pass_on_request() {
    let (mut engine, _, mut transport, mut sink) = engine_with_peer();
    engine.arrivals(&mut sink).frame(LinkId(7), &untagged_header(0), b"");
    engine.transmit(&mut transport, &mut sink);
    assert!(transport.sent.is_empty());
    let asking = Header::Message(Message { awaits: AwaitedReply::Arrival, ..Message::of_len(0) });
    engine.arrivals(&mut sink).frame(LinkId(7), &asking, b"");
    engine.arrivals(&mut sink).frame(LinkId(7), &asking, b"");
    transport.answers = [Sent::Full].into();
    engine.transmit(&mut transport, &mut sink);
    assert!(transport.sent.is_empty() && engine.has_unsent());
    engine.transmit(&mut transport, &mut sink);
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.sent, [(LinkId(7), Header::Ack { received: 3 }, Vec::new())]);
}

#[test]
fn ack_beyond_sent_messages_ends_the_link() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    let request = send_request(peer, b"a", 1).level(Level::Delivery);
    engine.post_request(request, &mut transport, &mut sink).unwrap();
    engine.arrivals(&mut sink).frame(LinkId(7), &Header::Ack { received: 2 }, b"");
    let Err(failure) = &sink.ended[0] else { panic!("the send failed") };
    assert_eq!(failure.error.errno(), Errno::EPROTO);
    engine.arrivals(&mut sink).frame(LinkId(7), &untagged_header(1), b"ignored");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(transport.closed, [(LinkId(7), Close::Abort)]);
}

#[test]
fn ack_of_partly_sent_message_ends_the_link() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    transport.answers = [Sent::Partial(2)].into();
    let request = send_request(peer, b"half of it", 1).level(Level::Delivery);
    engine.post_request(request, &mut transport, &mut sink).unwrap();
    engine.arrivals(&mut sink).frame(LinkId(7), &Header::Ack { received: 1 }, b"");
    assert_eq!(sink.ended[0].as_ref().unwrap_err().error.errno(), Errno::EPROTO);
}

#[test]
fn injected_send_returns_owned_buffers_and_forgets_raw_ones() {
    let (mut engine, peer, mut transport, mut sink) = engine_with_peer();
    let injected = |source| send_request(peer, b"", 1).source(source).inject(true).level(Level::Transmit);
    let pieces = vec![Bytes::from_static(b"in "), Bytes::from_static(b"pieces")];
    for answer in [Sent::Whole, Sent::Full] {
        transport.answers = [answer].into();
        let owned = Source::owned_vector(pieces.clone()).unwrap();
        engine.post_request(injected(owned), &mut transport, &mut sink).unwrap();
        let raw = [Segment { address: b"raw".as_ptr(), len_bytes: 3 }];
        #[expect(unsafe_code, reason = "the raw tier is what injection is about")]
        // SAFETY: the bytes are static.
        let raw = unsafe { Source::raw(&raw) }.unwrap();
        engine.post_request(injected(raw), &mut transport, &mut sink).unwrap();
        engine.transmit(&mut transport, &mut sink);
    }
    engine.arrivals(&mut sink).frame(LinkId(7), &Header::Ack { received: 4 }, b"");
    let buffers: Vec<Buffer> = sink.take_ended().into_iter().map(|ended| ended.unwrap().buffer).collect();
    let whole = Buffer::SentVector(pieces);
    assert_eq!(buffers, [whole.clone(), Buffer::None, whole, Buffer::None]);
    let payloads: Vec<&[u8]> = transport.sent.iter().map(|(_, _, payload)| &payload[..]).collect();
    assert_eq!(payloads, [&b"in pieces"[..], b"raw", b"in pieces", b"raw"]);
}
