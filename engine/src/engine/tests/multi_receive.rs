//! Tests of multi-receive buffers.

use super::*;

/// The context of most buffers in these tests.
const BUFFER: u64 = 100;

fn deliver_message(node: &mut Node, message: &[u8]) {
    node.frame(LINK, &untagged_header(message.len() as u64), message);
}

/// Returns an engine with a posted buffer of 64 bytes. The sink is full, so the engine holds back
/// a completion.
fn engine_with_held_completion() -> (Node, PeerId) {
    let (mut node, peer) = engine_with_peer();
    node.post_multi_receive(receive_request(64, BUFFER), 1);
    node.sink.room = Some(0);
    deliver_message(&mut node, b"held");
    (node, peer)
}

/// Makes room for this many completions, and delivers completions that were held.
fn make_room(node: &mut Node, count: usize) {
    node.sink.room = Some(node.sink.ended.len() + count);
    node.deliver_held();
}

#[test]
fn tagged_messages_do_not_wait_for_held_untagged_ones() {
    let (mut node, _) = engine_with_held_completion();
    deliver_message(&mut node, b"aside");
    let tagged = Header::Message(Message { tag: Some(5), awaits: AwaitedReply::Match, ..Message::of_len(3) });
    node.post_receive(ReceiveRequest { tagged: true, ..receive_request(8, 1) });
    node.pass_with_frame(LINK, &tagged, b"tag");
    assert_eq!(node.transport.sent.last().unwrap().1, Header::Matched { number: 3 });
    assert_eq!((node.engine.receive_side.held_len(), node.unexpected_len()), (2, 1));
}

#[test]
fn cancelled_stalled_buffer_leaves_held_messages_to_other_receives() {
    let (mut node, _) = engine_with_held_completion();
    deliver_message(&mut node, b"aside");
    node.post_receive(receive_request(8, 1));
    node.cancel(BUFFER).unwrap();
    deliver_message(&mut node, b"later");
    assert_eq!(node.unexpected_len(), 2);
    make_room(&mut node, 9);
    let [held, Err(released), aside] = &node.sink.ended[..] else { panic!("{:?}", node.sink.ended) };
    assert_eq!(released.error, OperationError::Cancelled);
    assert!(matches!(&released.completion.buffer, Buffer::Unused(rest) if rest.len() == 60), "{released:?}");
    assert_eq!(node.ended_contexts(), [BUFFER, BUFFER, 1]);
    assert_eq!((received_bytes(held), received_bytes(aside)), (&b"held"[..], &b"aside"[..]));
    assert_eq!(node.unexpected_len(), 1);
    // From here on, no message is kept aside.
    node.post_receive(receive_request(8, 2));
    assert_eq!((node.ended_contexts()[3], received_bytes(&node.sink.ended[3])), (2, &b"later"[..]));
}

#[test]
fn owned_message_outlives_its_buffer() {
    let (mut node, _) = engine_with_peer();
    node.post_multi_receive(receive_request(32, BUFFER), 1);
    deliver_message(&mut node, b"kept");
    deliver_message(&mut node, b"dropped");
    drop(node.engine);
    let mut ended = node.sink.take_ended();
    drop(ended.remove(1));
    let Ok(EndedOperation { buffer: Buffer::Received(mut bytes), .. }) = ended.remove(0) else { panic!() };
    bytes.extend_from_slice(&[b'!'; 100]);
    assert!(bytes.starts_with(b"kept!"));
}
