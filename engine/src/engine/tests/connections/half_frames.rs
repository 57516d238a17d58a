//! Tests of connections that are shut down while a link is in the middle of a frame.

use super::*;
use crate::engine::tests::rma::{KEY, read_local, read_region, rma_header, rma_request, write_local};
use crate::flags::MrAccess;
use crate::region::{Region, RegionAttr};
use crate::wire::RmaKind;

#[test]
fn shutdown_during_message_sends_the_rest_before_ack_and_shutdown() {
    let asks = Header::Message(Message { awaits: AwaitedReply::Arrival, ..Message::of_len(1) });
    // What the link takes after the shutdown.
    let rooms: [&[Sent]; 3] =
        [&[], &[Sent::Full, Sent::Partial(3), Sent::Full], &[Sent::Partial(8), Sent::Whole, Sent::Full]];
    for answers in rooms {
        let (mut engine, peer, mut transport, mut sink) = connected_engine();
        engine.post_receive(receive_request(8, 1), &mut sink).unwrap();
        transport.answers = [Sent::Partial(1), Sent::Full].into();
        engine.post_request(send_request(peer, b"half of a message", 2), &mut transport, &mut sink).unwrap();
        receive_frame(&mut engine, &mut sink, OTHER, asks, b"x");
        engine.transmit(&mut transport, &mut sink);
        assert_eq!(received_bytes(&sink.take_ended()[0]), b"x");
        transport.answers = answers.iter().copied().collect();
        engine.shutdown(&mut transport, &mut sink).unwrap();
        assert_eq!(sink.ended_contexts(), [2], "its memory is the application's again");
        while engine.has_unsent() {
            engine.transmit(&mut transport, &mut sink);
        }
        let told = [
            untagged_header(17),
            Header::Ack { received: 1 },
            handshake_header(HandshakeStep::Shutdown, NUMBER, b""),
        ];
        assert_eq!(sent_headers_since(&transport, 0), told, "{answers:?}");
        assert_eq!(transport.sent[0].2, b"half of a message", "{answers:?}");
        assert!(transport.closed.is_empty() && sink.events.is_empty());
    }
}

#[test]
fn shutdown_during_read_answer_sends_the_rest_first() {
    let (mut engine, _, mut transport, mut sink) = connected_engine();
    let attr = RegionAttr { key: KEY, access: MrAccess::REMOTE_READ, base_address: 0 };
    let region = engine.target.regions().add(Region::owned(5000, attr).unwrap()).unwrap();
    region.write_at(4990, b"the end").unwrap();
    receive_frame(&mut engine, &mut sink, OTHER, rma_header(5, 0, 5000, RmaKind::Read), b"");
    transport.answers = [Sent::Partial(10)].into();
    engine.transmit(&mut transport, &mut sink);
    engine.shutdown(&mut transport, &mut sink).unwrap();
    let told =
        [Header::ReadData { op: 5, len_bytes: 5000 }, handshake_header(HandshakeStep::Shutdown, NUMBER, b"")];
    assert_eq!(sent_headers_since(&transport, 0), told);
    assert_eq!(transport.sent[0].2, read_region(&region));
    assert!(transport.closed.is_empty() && !engine.has_unsent());
}

/// This side shuts down in the middle of a write. The peer still gets the whole write.
#[test]
fn shutdown_during_write_sends_the_rest_first() {
    let (mut engine, peer, mut transport, mut sink) = connected_engine();
    engine.post_receive(receive_request(8, 1), &mut sink).unwrap();
    engine.post_request(rma_request(peer, read_local(8), 2), &mut transport, &mut sink).unwrap();
    engine
        .post_request(rma_request(peer, write_local(b"a whole one"), 3), &mut transport, &mut sink)
        .unwrap();
    transport.answers = [Sent::Partial(1), Sent::Full].into();
    let bytes: &[u8] = &[7; 10_000];
    engine.post_request(rma_request(peer, write_local(bytes), 4), &mut transport, &mut sink).unwrap();
    let asks = Header::Message(Message { awaits: AwaitedReply::Arrival, ..Message::of_len(1) });
    receive_frame(&mut engine, &mut sink, OTHER, asks, b"x");
    engine.transmit(&mut transport, &mut sink);
    assert_eq!(received_bytes(&sink.take_ended()[0]), b"x");
    engine.shutdown(&mut transport, &mut sink).unwrap();
    let mut cancelled = sink.ended_contexts();
    cancelled.sort_unstable();
    assert_eq!(cancelled, [2, 3, 4]);
    while engine.has_unsent() {
        engine.transmit(&mut transport, &mut sink);
    }
    let headers = sent_headers_since(&transport, 0);
    let told = [Header::Ack { received: 1 }, handshake_header(HandshakeStep::Shutdown, NUMBER, b"")];
    assert_eq!(headers[3..], told, "{headers:?}");
    assert_eq!(transport.sent[2].2, bytes);
    assert!(transport.closed.is_empty());
}

#[test]
fn shutdown_during_long_write_closes_the_link_at_once() {
    let (mut engine, peer, mut transport, mut sink) = connected_engine();
    transport.answers = [Sent::Partial(1), Sent::Full].into();
    static LONG: [u8; EAGER_MAX_BYTES + 2] = [7; EAGER_MAX_BYTES + 2];
    engine.post_request(rma_request(peer, write_local(&LONG), 2), &mut transport, &mut sink).unwrap();
    engine.shutdown(&mut transport, &mut sink).unwrap();
    assert_eq!(sink.ended_contexts(), [2]);
    assert_eq!(transport.closed.len(), 1, "the link ends there");
}

#[test]
fn shutdown_does_not_wait_for_peer_to_request_offered_payload() {
    let (mut engine, peer, mut transport, mut sink) = connected_engine();
    static LONG: [u8; EAGER_MAX_BYTES + 1] = [7; EAGER_MAX_BYTES + 1];
    engine.post_request(send_request(peer, &LONG, 2), &mut transport, &mut sink).unwrap();
    let Header::Request { op, .. } = transport.sent[0].1 else { panic!("too long to be sent at once") };
    engine.shutdown(&mut transport, &mut sink).unwrap();
    assert_eq!(sink.ended_contexts(), [2]);
    assert_eq!(sent_headers_since(&transport, 1), [handshake_header(HandshakeStep::Shutdown, NUMBER, b"")]);
    // The peer asks for the payload after the shutdown: the engine ignores this.
    receive_frame(&mut engine, &mut sink, OTHER, Header::Clear { op, cannot_pull: false }, b"");
    assert!(transport.closed.is_empty() && sink.events.is_empty());
}
