//! Tests of well-formed frames that no correct peer sends. Each frame ends its link, and no other
//! link.

use super::*;

const OTHER: LinkId = LinkId(8);

/// Returns an engine with an operation in every state on link 7. The engine has sent three
/// messages. One awaits an acknowledgement, one awaits its match, and one is offered. The engine
/// has also received an offer.
fn engine_with_operations_in_flight() -> (Node, u64) {
    let (mut node, peer) = engine_with_peer();
    node.link_up(OTHER, 3, 1);
    node.engine.config.eager_max_bytes = 4;
    for (context, level, text) in
        [(1, Level::Transmit, &b"x"[..]), (2, Level::Match, b"x"), (3, Level::Inject, b"offered")]
    {
        node.post(send_request(peer, text, context).level(level));
    }
    let op = node.last_op();
    let message = Message { awaits: AwaitedReply::Match, ..Message::of_len(10) };
    node.frame(LINK, &Header::Request { message, op: 1, remote_bytes: REMOTE.len() as u8 }, REMOTE);
    (node, op)
}

#[test]
fn invalid_frame_ends_only_its_link() {
    let (.., op) = engine_with_operations_in_flight();
    let cases = [
        Header::Ack { received: 3 },
        Header::Ack { received: u64::MAX },
        Header::Matched { number: 0 },
        Header::Matched { number: 1 },
        Header::Matched { number: 3 },
        Header::Matched { number: u64::MAX },
        Header::Clear { op: op ^ 1, cannot_pull: false },
        Header::Clear { op: 0, cannot_pull: true },
        Header::Done { op: op ^ 1, fault: false },
        Header::Done { op: u64::MAX, fault: true },
        Header::Data { op: 1, len_bytes: 0 },
        Header::Data { op: 9, len_bytes: 0 },
        Header::Credit { granted_bytes: 0 },
        Header::Credit { granted_bytes: CREDIT_INITIAL_BYTES - 1 },
        Header::Fenced,
        Header::Written { count: 1, outcome: Outcome::Done },
        Header::Written { count: 0, outcome: Outcome::Refused(Refusal::Key) },
        Header::Message(Message::of_len(MESSAGE_MAX_BYTES)),
        Header::Request { message: Message::of_len(1), op: 1, remote_bytes: 0 },
    ];
    for header in cases {
        let (mut node, _) = engine_with_operations_in_flight();
        if header.payload_len_bytes() > 0 {
            node.frame_begun(LINK, &header);
        } else {
            node.frame(LINK, &header, b"");
        }
        node.transmit();
        assert_eq!(node.transport.closed, [(LINK, Close::Abort)], "{header:?}");
        let errnos = node.take_ended().into_iter().map(|ended| ended.unwrap_err().error.errno());
        assert_eq!(errnos.collect::<Vec<_>>(), [Errno::EPROTO; 3], "{header:?}");
        assert_eq!((node.outstanding_transmits(), node.unexpected_len()), (0, 0), "{header:?}");
        node.post_receive(receive_request(5, 9));
        node.frame(OTHER, &untagged_header(5), b"other");
        assert_eq!(received_bytes(node.sink.ended.last().unwrap()), b"other", "{header:?}");
    }
}

#[test]
fn second_unanswered_fence_ends_the_link() {
    let (mut node, _) = engine_with_operations_in_flight();
    node.pass_with_frame(LINK, &Header::Fence { matched: true }, b"");
    assert!(node.transport.closed.is_empty());
    node.pass_with_frame(LINK, &Header::Fence { matched: false }, b"");
    assert_eq!(node.transport.closed, [(LINK, Close::Abort)]);
}
