//! Tests of deferred work. When the operation of a work ends, the sink gets the work's number.

use super::*;

/// The difference between a work's number and the application's context.
const CONTEXTS: u64 = 100;

/// A sink that remembers which works have ended, and whether they have succeeded.
#[derive(Default)]
struct WorkSink {
    recorder: Recorder,
    works: Vec<(u64, bool)>,
    /// Whether works are also reported like other operations.
    reports: bool,
}

impl Sink for WorkSink {
    fn complete(&mut self, completion: EndedOperation, peers: &Peers) -> Result<(), EndedOperation> {
        self.recorder.complete(completion, peers)
    }

    fn fail(&mut self, failure: FailedOperation, peers: &Peers) -> Result<(), FailedOperation> {
        self.recorder.fail(failure, peers)
    }

    fn has_counters(&self) -> bool {
        true
    }

    fn count(&mut self, events: CounterEvents) {
        self.recorder.count(events);
    }

    fn count_error(&mut self, events: CounterEvents) {
        self.recorder.count_error(events);
    }

    fn record_deferred_work_end(&mut self, number: u64, has_succeeded: bool) -> WorkEnd {
        self.works.push((number, has_succeeded));
        WorkEnd { context: number + CONTEXTS, is_reported: self.reports }
    }
}

fn deferred_send_request(to: PeerId, number: u64) -> AddressedRequest {
    send_request(to, b"work", number).signalled(Signalled::Deferred)
}

#[test]
fn deferred_send_can_also_complete_with_its_context() {
    let (Node { mut engine, mut transport, .. }, peer) = engine_with_peer();
    let mut sink = WorkSink { reports: true, ..WorkSink::default() };
    engine.post_request(deferred_send_request(peer, 7), &mut transport, &mut sink).unwrap();
    assert_eq!(sink.works, [(7, true)]);
    assert_eq!(sink.recorder.ended_contexts(), [7 + CONTEXTS]);
    assert_eq!(sink.recorder.counted, [(CounterEvents::SEND, true)]);
}

#[test]
fn deferred_receive_is_cancelled_by_work_number() {
    let mut engine = Engine::new(untimed_config());
    let mut sink = WorkSink::default();
    let work = ReceiveRequest { signalled: Signalled::Deferred, ..receive_request(8, 7) };
    engine.post_receive(work, &mut sink).unwrap();
    assert!(engine.cancel(7, &mut sink).is_err(), "no operation has this context");
    engine.post_receive(receive_request(8, 7), &mut sink).unwrap();
    engine.post_receive(receive_request(8, 8), &mut sink).unwrap();
    assert!(engine.cancel_work(8, &mut sink).is_err(), "no work has this number");
    engine.cancel_work(7, &mut sink).unwrap();
    assert_eq!(
        (sink.works.as_slice(), sink.recorder.ended_contexts()),
        (&[(7, false)][..], vec![7 + CONTEXTS])
    );
    engine.cancel(7, &mut sink).unwrap();
    assert_eq!(sink.recorder.ended_contexts(), [7 + CONTEXTS, 7]);
}
