//! When a pump lets the transport hold frames of posts back, and when it makes them leave. The first call
//! after a post decides: `hand_over` permits it, the calls of a pass and `arm` end it.

use super::recording::{Call, Calls, RecordingProvider};
use super::*;

/// An endpoint with a link to another one, and the calls of its transport.
struct RecordedEndpoint {
    endpoint: EndpointWithoutThread,
    peer: EndpointWithoutThread,
    to: FabricAddress,
    calls: Arc<Calls>,
}

impl RecordedEndpoint {
    fn new() -> RecordedEndpoint {
        let provider = RecordingProvider::default();
        let (endpoint, peer) = (EndpointWithoutThread::open(&provider), EndpointWithoutThread::new());
        let to = endpoint.av.insert(&[peer.pump.address()]).remove(0).expect("an address");
        let recorded = RecordedEndpoint { endpoint, peer, to, calls: provider.calls };
        let deadline = Instant::now() + PATIENCE;
        // The first message brings the link up.
        while !recorded.inject() {
            assert!(Instant::now() < deadline, "the link does not come up");
            recorded.endpoint.poll(1);
            recorded.peer.poll(1);
        }
        recorded.endpoint.poll(1);
        recorded.calls.take();
        recorded
    }

    /// Injects a message by the shortest path. Returns whether the link has taken the message.
    fn inject(&self) -> bool {
        let message = SendMsg { buffers: &b"inject"[..], to: self.to, ..SendMsg::default() };
        let is_sent = self.endpoint.pump.try_send_at_once(&message, Signalled::No, None);
        if !is_sent {
            // The path of all other posts connects.
            self.post(false);
        }
        is_sent
    }

    fn post(&self, more: bool) {
        let message = Source::owned(Bytes::from_static(b"message"));
        let mut send = Post::new(self.to, TransmitOp::Send { source: message, tag: None, data: None }, 2);
        send.more = more;
        self.endpoint.pump.post(&mut send).expect("room for a send");
    }
}

#[test]
fn post_hands_its_frames_over_and_the_next_pass_flushes() {
    let recorded = RecordedEndpoint::new();
    for _ in 0..3 {
        recorded.post(false);
        assert_eq!(recorded.calls.take(), [Call::HandOver]);
        assert!(recorded.inject());
        assert_eq!(recorded.calls.take(), [Call::HandOver]);
    }
    recorded.endpoint.poll(1);
    assert_eq!(recorded.calls.take(), [Call::Receive, Call::Flush]);
    recorded.post(false);
    recorded.endpoint.pump.progress_without_reader();
    assert_eq!(recorded.calls.take(), [Call::HandOver, Call::Receive, Call::Flush]);
}

#[test]
fn post_with_more_hands_nothing_over_before_the_next_post() {
    let recorded = RecordedEndpoint::new();
    recorded.post(true);
    assert_eq!(recorded.calls.take(), []);
    recorded.post(false);
    assert_eq!(recorded.calls.take(), [Call::HandOver]);
}

#[test]
fn each_post_arms_the_transport_again_while_the_progress_thread_sleeps() {
    let recorded = RecordedEndpoint::new();
    // The peer must answer all messages before a thread can sleep.
    let deadline = Instant::now() + PATIENCE;
    while !recorded.endpoint.make_rounds_and_check_sleep() {
        assert!(Instant::now() < deadline, "the thread does not sleep");
        recorded.peer.poll(1);
    }
    for post in [RecordedEndpoint::inject as fn(&RecordedEndpoint) -> bool, |recorded| {
        recorded.post(false);
        true
    }] {
        recorded.calls.take();
        assert!(post(&recorded));
        let calls = recorded.calls.take();
        assert_eq!(calls[0], Call::HandOver);
        assert_eq!(calls.last(), Some(&Call::Arm), "{calls:?}");
        if recorded.endpoint.is_woken() {
            // The post has left something to do, so the thread makes a pass at once.
            recorded.endpoint.make_rounds_and_check_sleep();
        }
    }
}
