//! Tests of messages that arrive, and of the receives that take them.

use super::*;

#[test]
fn message_completes_posted_receive_with_all_fields() {
    let (mut node, peer) = engine_with_peer();
    let request = ReceiveRequest {
        tagged: true,
        criteria: Criteria { source: Some(peer), tag: 0xf0, ignore: 0xf },
        ..receive_request(8, 5)
    };
    node.post_receive(request);
    let message = Message { tag: Some(0xf7), data: Some(99), ..Message::of_len(3) };
    node.frame(LINK, &Header::Message(message), b"abc");
    assert_eq!(
        node.take_ended(),
        [Ok(EndedOperation {
            context: 5,
            flags: CompletionFlags::RECV | CompletionFlags::TAGGED | CompletionFlags::REMOTE_CQ_DATA,
            len_bytes: 3,
            data: 99,
            tag: 0xf7,
            source: Some(peer),
            buffer: Buffer::Received(BytesMut::from(&b"abc"[..])),
        })]
    );
    assert_eq!(node.outstanding_receives(), 0);
}

#[test]
fn truncation_reports_overflow_of_whole_chunked_and_unexpected_messages() {
    let (mut node, _) = engine_with_peer();
    for way in 0..3 {
        let post = |node: &mut Node| {
            node.post_receive(receive_request(4, way));
        };
        match way {
            0 => {
                post(&mut node);
                node.frame(LINK, &untagged_header(6), b"abcdef");
            }
            1 => {
                post(&mut node);
                node.frame_begun(LINK, &untagged_header(6));
                node.payload_arrived(LINK, b"abcde");
                assert!(node.arrivals().payload_space(LINK).is_empty());
                node.payload_arrived(LINK, b"f");
            }
            _ => {
                node.frame(LINK, &untagged_header(6), b"abcdef");
                post(&mut node);
            }
        }
        let ended = node.take_ended();
        assert_eq!(received_bytes(&ended[0]), b"abcd");
        let Err(failure) = &ended[0] else { panic!("truncation is an error") };
        assert_eq!(failure.error, OperationError::Truncated { overflow_bytes: 2 });
        assert_eq!((failure.completion.context, failure.completion.len_bytes), (way, 4));
    }
}
