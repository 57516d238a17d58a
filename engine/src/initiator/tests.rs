//! Tests of an initiator alone, without endpoint, link and engine.

use bytes::Bytes;

use super::*;
use crate::buffer::Source;
use crate::completion::{FailedOperation, WorkEnd};
use crate::flags::CounterEvents;
use crate::link::RequestStage;
use crate::operation::{CancelKey, Signalled};
use crate::wire::{Message, Outcome};

const PEER: PeerId = PeerId(1);
const OTHER: PeerId = PeerId(0);

/// Records the effects. If `is_full`, has no room for completions.
#[derive(Debug, Default)]
struct EffectsRecorder {
    is_full: bool,
    /// The contexts of ended operations. A failed operation has an error.
    ended: Vec<(u64, Option<OperationError>)>,
    counted: Vec<CounterEvents>,
    errors_counted: usize,
    works: Vec<(u64, bool)>,
    reports_work: bool,
}

impl InitiatorEffects for EffectsRecorder {
    fn complete(&mut self, completion: EndedOperation) -> Result<(), EndedOperation> {
        if self.is_full {
            return Err(completion);
        }
        self.ended.push((completion.context, None));
        Ok(())
    }

    fn fail(&mut self, failure: FailedOperation) -> Result<(), FailedOperation> {
        if self.is_full {
            return Err(failure);
        }
        self.ended.push((failure.completion.context, Some(failure.error)));
        Ok(())
    }

    fn has_counters(&self) -> bool {
        true
    }

    fn count(&mut self, events: CounterEvents) {
        self.counted.push(events);
    }

    fn count_error(&mut self, _: CounterEvents) {
        self.errors_counted += 1;
    }

    fn record_deferred_work_end(&mut self, number: u64, has_succeeded: bool) -> WorkEnd {
        self.works.push((number, has_succeeded));
        WorkEnd { context: number + 100, is_reported: self.reports_work }
    }
}

fn message_send(context: u64) -> Send {
    let message = Message { awaits: AwaitedReply::Arrival, ..Message::of_len(1) };
    Send {
        source: Source::owned(Bytes::from_static(b"m")),
        message,
        context,
        signalled: Signalled::Yes,
        may_be_fetched: true,
        fence: false,
        turn: None,
        one_sided: None,
    }
}

#[test]
fn active_peers_are_served_round_robin() {
    let mut initiator = Initiator::new(false);
    for peer in [PEER, OTHER, PEER] {
        initiator.activate(peer);
    }
    assert_eq!((initiator.active_len(), initiator.pop_active()), (2, Some(PEER)));
    initiator.activate(PEER);
    assert_eq!(initiator.active_len(), 1, "it is being looked at");
    initiator.requeue(PEER);
    assert_eq!(initiator.pop_active(), Some(OTHER));
    initiator.deactivate(OTHER);
    initiator.activate(OTHER);
    assert_eq!([initiator.pop_active(), initiator.pop_active()], [Some(PEER), Some(OTHER)]);
}

#[test]
fn blocked_peer_becomes_active_by_events_and_operations() {
    let mut initiator = Initiator::new(false);
    let first = initiator.enqueue(PEER, message_send(1));
    for peer in [PEER, OTHER] {
        initiator.activate(peer);
        let active = initiator.pop_active().unwrap();
        initiator.block(active);
    }
    assert!(initiator.active_len() == 0 && initiator.has_blocked_peers() && initiator.has_listed_peers());
    initiator.unblock(PEER);
    initiator.unblock(PEER);
    assert_eq!((initiator.active_len(), initiator.pop_active()), (1, Some(PEER)));
    initiator.block(PEER);
    assert_eq!(initiator.first_queued(PEER), Some(first));
    initiator.enqueue(OTHER, message_send(2));
    assert_eq!(initiator.pop_active(), Some(OTHER), "it has another operation");
    initiator.block(OTHER);
    initiator.activate(PEER);
    assert_eq!(initiator.pop_active(), Some(PEER));
    initiator.deactivate(PEER);
    initiator.unblock(OTHER);
    assert_eq!(initiator.pop_active(), Some(OTHER));
    initiator.deactivate(OTHER);
    assert!(!initiator.has_listed_peers());
}

#[test]
fn operation_ends_once_and_is_counted() {
    let (mut initiator, mut asked) = (Initiator::new(false), EffectsRecorder::default());
    let send = initiator.insert(message_send(1));
    assert_eq!(initiator.awaited_reply(send), AwaitedReply::Arrival);
    initiator.end_with_success(send, &mut asked);
    initiator.end_with_success(send, &mut asked);
    initiator.fail_sends([send], None, &OperationError::Fault, &mut asked);
    assert_eq!((&asked.ended[..], &asked.counted[..]), (&[(1, None)][..], &[CounterEvents::SEND][..]));
    assert_eq!((initiator.outstanding_ops(), asked.errors_counted), (0, 0));
}

#[test]
fn deferred_work_end_is_recorded_and_reported_if_the_sink_asks() {
    for reports_work in [false, true] {
        for completes_in_order in [false, true] {
            let mut initiator = Initiator::new(completes_in_order);
            let mut asked = EffectsRecorder { reports_work, ..EffectsRecorder::default() };
            let mut work = |context| {
                let turn = initiator.assign_turn(PEER);
                initiator.insert(Send { signalled: Signalled::Deferred, turn, ..message_send(context) })
            };
            let [done, failed] = [work(1), work(2)];
            initiator.end_with_success(done, &mut asked);
            initiator.fail_sends([failed], None, &OperationError::Fault, &mut asked);
            assert_eq!(asked.works, [(1, true), (2, false)]);
            let failure = (102, Some(OperationError::Fault));
            let ended = if reports_work { vec![(101, None), failure] } else { vec![failure] };
            assert_eq!(asked.ended, ended, "failure is always reported");
            let counted = usize::from(reports_work);
            assert_eq!((asked.counted.len(), asked.errors_counted), (counted, counted));
        }
    }
}

#[test]
fn cancel_ends_only_queued_operations_with_its_context() {
    let (mut initiator, mut asked) = (Initiator::new(false), EffectsRecorder::default());
    let taken = initiator.insert(message_send(5));
    initiator.enqueue(PEER, message_send(4));
    initiator.enqueue(PEER, message_send(5));
    initiator.enqueue(PEER, message_send(5));
    initiator.activate(PEER);
    assert!(
        initiator.cancel(CancelKey::Context(5), &mut asked)
            && initiator.cancel(CancelKey::Context(5), &mut asked)
    );
    assert!(!initiator.cancel(CancelKey::Context(5), &mut asked), "a link has taken the other");
    assert_eq!(asked.ended, [(5, Some(OperationError::Cancelled)), (5, Some(OperationError::Cancelled))]);
    assert!(initiator.get(taken).is_some() && !initiator.has_none_queued(PEER));
}

#[test]
fn answer_to_an_access_is_invalid_for_a_message() {
    let mut initiator = Initiator::new(false);
    let send = initiator.insert(message_send(1));
    assert!(initiator.is_message(send) && initiator.needs_answer(send));
    assert!(!initiator.is_answer_allowed(send, RequestStage::Sent, Outcome::Done));
    let silent = Message { awaits: AwaitedReply::Nothing, ..message_send(2).message };
    let silent = initiator.insert(Send { message: silent, ..message_send(2) });
    assert!(!initiator.needs_answer(silent));
}
