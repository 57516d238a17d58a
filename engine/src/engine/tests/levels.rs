//! Tests of when sends of each level complete.

use super::*;

fn matched_header(number: u64) -> Header {
    Header::Matched { number }
}

fn message_awaiting_match(len_bytes: u64) -> Header {
    Header::Message(Message { awaits: AwaitedReply::Match, ..Message::of_len(len_bytes) })
}

#[test]
fn match_is_reported_when_payload_is_in_place() {
    let (mut node, _) = engine_with_peer();
    node.post_receive(receive_request(4, 1));
    node.frame_begun(LINK, &message_awaiting_match(4));
    node.payload_arrived(LINK, b"pos");
    node.transmit();
    assert!(node.transport.sent.is_empty());
    node.payload_arrived(LINK, b"t");
    node.transmit();
    assert_eq!(node.sent_since(0), [matched_header(1)]);

    node.frame(LINK, &message_awaiting_match(5), b"early");
    node.frame(LINK, &untagged_header(1), b"x");
    node.frame_begun(LINK, &message_awaiting_match(4));
    node.transmit();
    assert_eq!(node.transport.sent.len(), 1);
    node.post_receives(5, 2..=4);
    node.transmit();
    assert_eq!(node.sent_since(1), [matched_header(2)], "the last one is still on its way");
    node.payload_arrived(LINK, b"late");
    node.transmit();
    assert_eq!(node.sent_since(2), [matched_header(4)]);
}
