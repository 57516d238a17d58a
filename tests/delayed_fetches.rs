//! Long messages that no receive has matched, and that their receiver could copy from the sender's memory.
//! docs/decisions/delayed-fetches.md says when the receiver copies them.

use std::time::Duration;

use homespun::limits::FETCH_DELAY_MS;
use homespun::{Bytes, BytesMut, Fabric, FabricAddress, Hints, OpenEndpoint, SimulatedClock};
use homespun_suite::Deadline;

const LEN_BYTES: usize = 64 << 10;

/// Two endpoints with a link, of which one has sent a long message.
struct Linked {
    sender: OpenEndpoint,
    receiver: OpenEndpoint,
    to: FabricAddress,
    clock: SimulatedClock,
}

impl Linked {
    fn open() -> Linked {
        let hints = Hints::new().node("127.0.0.1").source().domain("shm");
        let clock = SimulatedClock::new();
        let open = || Fabric::new().with_clock(&clock).open_endpoint(&hints).expect("an endpoint");
        let (sender, receiver) = (open(), open());
        let to = sender.av.insert_one(receiver.endpoint.name().expect("a name")).expect("room");
        receiver.endpoint.recv(BytesMut::zeroed(8), FabricAddress::UNSPECIFIED, 1).expect("room");
        sender.endpoint.send(Bytes::from_static(b"first"), to, 1).expect("room");
        let (mut is_sent, mut is_received) = (false, false);
        let deadline = Deadline::new();
        while !(is_sent && is_received) {
            is_sent |= sender.cq.read().expect("a success").is_some();
            is_received |= receiver.cq.read().expect("a success").is_some();
            deadline.yield_or_panic("the first message");
        }
        Linked { sender, receiver, to, clock }
    }

    /// Sends a message from memory that the receiver can map. So the receiver always copies it from there.
    fn send_long_message(&self) {
        let mut buffer = self.sender.domain.allocate_send_buffer(LEN_BYTES).expect("memory");
        buffer.get_mut().expect("no message uses it").fill(7);
        self.sender.endpoint.send(buffer.bytes(), self.to, 2).expect("room");
    }

    fn is_sent(&self) -> bool {
        (0..100).any(|_| self.sender.cq.read().expect("a success").is_some())
    }

    fn poll_receiver(&self) {
        assert!(self.receiver.cq.read().expect("no failure").is_none(), "no receive is posted");
    }

    fn assert_message_is_received(&self) {
        let room = BytesMut::zeroed(LEN_BYTES);
        self.receiver.endpoint.recv(room, FabricAddress::UNSPECIFIED, 3).expect("room");
        let deadline = Deadline::new();
        let received = loop {
            if let Some(completion) = self.receiver.cq.read().expect("a success") {
                break completion.buffer.into_received();
            }
            deadline.yield_or_panic("the message");
        };
        let is_whole = |bytes: BytesMut| bytes.len() == LEN_BYTES && bytes.iter().all(|byte| *byte == 7);
        assert!(received.is_some_and(is_whole));
    }
}

#[test]
fn send_ends_by_two_rare_polls_of_its_receiver() {
    let linked = Linked::open();
    linked.send_long_message();
    linked.poll_receiver();
    linked.clock.advance(Duration::from_millis(FETCH_DELAY_MS));
    linked.poll_receiver();
    assert!(linked.is_sent());
    linked.assert_message_is_received();
}

#[test]
fn send_ends_before_its_receiver_sleeps() {
    let linked = Linked::open();
    linked.send_long_message();
    let slept = linked.receiver.cq.sread(Some(Duration::from_millis(1))).expect("no failure");
    assert!(slept.is_none() && linked.is_sent());
    linked.assert_message_is_received();
}

#[test]
fn send_ends_when_a_receive_matches() {
    let linked = Linked::open();
    linked.send_long_message();
    linked.poll_receiver();
    assert!(!linked.is_sent(), "the receiver waits for a receive");
    linked.assert_message_is_received();
    assert!(linked.is_sent());
}
