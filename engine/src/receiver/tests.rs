//! Tests of a receiver alone, without endpoint, link and engine: events go in, effects come out.

use std::io::IoSliceMut;

use bytes::BytesMut;

use super::*;
use crate::buffer::Buffer;
use crate::completion::{EndedOperation, FailedOperation, WorkEnd};
use crate::errno::Errno;
use crate::flags::{CompletionFlags, CounterEvents};
use crate::limits::{CREDIT_INITIAL_BYTES, MESSAGE_COST_BYTES};
use crate::link_fault::LinkFault;
use crate::operation::{CancelKey, PeekAction, PeekRequest, Signalled};
use crate::transport::{LinkError, Pull, RemotePayload};
use crate::wire::{AwaitedReply, Header, Message};

mod abandoned;
mod cancels;
mod leftovers;
mod notices;
mod turns;

const LINK: LinkId = LinkId(3);
const OTHER: LinkId = LinkId(0);
const PEER: PeerId = PeerId(5);
const REMOTE: &[u8] = b"over there";
const BUDGET_BYTES: usize = 1 << 20;
const RESET: OperationError = OperationError::Link(LinkError::System(Errno::ECONNRESET));

/// What the tests of engines need of a receiver.
impl Receiver {
    pub(crate) fn unexpected_len(&self) -> usize {
        self.unexpected.len()
    }

    pub(crate) fn fetches_len(&self) -> usize {
        self.fetches.len()
    }

    pub(crate) fn held_len(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn try_reserve_budget(&mut self, bytes: u64) -> bool {
        self.budget.try_reserve(bytes)
    }

    pub(crate) fn set_pull_step_max_bytes(&mut self, step_max_bytes: usize) {
        self.fetches.set_step_max_bytes(step_max_bytes);
    }

    pub(crate) fn discard_all_unexpected(&mut self, effects: &mut impl ReceiverEffects) {
        for id in self.unexpected.keys().collect::<Vec<_>>() {
            let unexpected = &self.unexpected[id];
            let (message, place) = (unexpected.message, unexpected.place.expect("none is kept aside"));
            self.matching_of(&message).remove_unexpected(place, id);
            self.discard_unexpected(id, effects);
        }
    }
}

/// Records the effects.
#[derive(Debug, Default)]
struct EffectsRecorder {
    /// Whether there is no room for reports.
    is_full: bool,
    ended: Vec<Result<EndedOperation, FailedOperation>>,
    counted: Vec<(CounterEvents, bool)>,
    works: Vec<(u64, bool)>,
    queued: Vec<(LinkId, Header)>,
    acks: Vec<LinkId>,
    credits: Vec<LinkId>,
}

impl ReceiverEffects for EffectsRecorder {
    fn complete(&mut self, completion: EndedOperation, _: Option<MemberId>) -> Result<(), EndedOperation> {
        if self.is_full {
            return Err(completion);
        }
        self.ended.push(Ok(completion));
        Ok(())
    }

    fn fail(&mut self, failure: FailedOperation, _: Option<MemberId>) -> Result<(), FailedOperation> {
        if self.is_full {
            return Err(failure);
        }
        self.ended.push(Err(failure));
        Ok(())
    }

    fn count(&mut self, events: CounterEvents, _: MemberId) {
        self.counted.push((events, true));
    }

    fn count_error(&mut self, events: CounterEvents, _: Option<MemberId>) {
        self.counted.push((events, false));
    }

    fn record_work_end(&mut self, end: UnrecordedEnd, _: Option<MemberId>) -> Option<EndedWork> {
        Some(EndedWork::record(end, |number, has_succeeded| {
            self.works.push((number, has_succeeded));
            WorkEnd { context: number + 100, is_reported: false }
        }))
    }

    fn queue_header(&mut self, link: LinkId, header: Header) {
        self.queued.push((link, header));
    }

    fn queue_ack(&mut self, link: LinkId) {
        self.acks.push(link);
    }

    fn queue_credit_grant(&mut self, link: LinkId) {
        self.credits.push(link);
    }
}

impl EffectsRecorder {
    /// Removes and returns the recorded ended operations: their contexts, each with the bytes in
    /// its buffer or its error.
    fn take_ended(&mut self) -> Vec<(u64, Result<Vec<u8>, OperationError>)> {
        let bytes = |buffer: Buffer| match buffer {
            Buffer::Received(bytes) => bytes.to_vec(),
            _ => Vec::new(),
        };
        self.ended
            .drain(..)
            .map(|ended| match ended {
                Ok(completion) => (completion.context, Ok(bytes(completion.buffer))),
                Err(failure) => (failure.completion.context, Err(failure.error)),
            })
            .collect()
    }
}

fn receiver_with_link() -> (Receiver, EffectsRecorder) {
    let mut receiver = Receiver::new(64, BUDGET_BYTES);
    receiver.link_added(LINK, PEER, MemberId::ONLY);
    (receiver, EffectsRecorder::default())
}

/// Returns a receiver whose only member keeps the order of completions.
fn receiver_in_order() -> (Receiver, EffectsRecorder) {
    let (mut receiver, asked) = receiver_with_link();
    receiver.keep_completion_order(MemberId::ONLY);
    (receiver, asked)
}

fn receive_request(len_bytes: usize, context: u64) -> ReceiveRequest {
    ReceiveRequest {
        destination: Destination::owned(BytesMut::zeroed(len_bytes)),
        tagged: false,
        criteria: Criteria::any(),
        context,
        signalled: Signalled::Yes,
    }
}

fn make_message(len_bytes: usize, awaits: AwaitedReply) -> Message {
    Message { awaits, ..Message::of_len(len_bytes as u64) }
}

/// Delivers a whole message whose sender awaits no reply.
#[track_caller]
fn deliver_message(receiver: &mut Receiver, link: LinkId, bytes: &[u8], asked: &mut EffectsRecorder) {
    let message = make_message(bytes.len(), AwaitedReply::Nothing);
    receiver.message_arrived(link, &message, bytes, asked).unwrap();
}

/// Offers a message whose sender awaits no reply.
#[track_caller]
fn deliver_offer(receiver: &mut Receiver, op: u64, len_bytes: usize, asked: &mut EffectsRecorder) {
    let message = make_message(len_bytes, AwaitedReply::Nothing);
    receiver.message_offered(LINK, &message, op, REMOTE, asked).unwrap();
}

/// Posts receives of 8 bytes.
#[track_caller]
fn post_all(receiver: &mut Receiver, contexts: impl IntoIterator<Item = u64>, asked: &mut EffectsRecorder) {
    for context in contexts {
        receiver.post(receive_request(8, context), asked).unwrap();
    }
}

/// Returns a peek at any untagged message.
fn peek_request(context: u64, then: PeekAction) -> PeekRequest {
    PeekRequest { tagged: false, criteria: Criteria::any(), context, work: None, then }
}

fn make_pull_from(memory: &[u8]) -> impl FnMut(LinkId, &RemotePayload, u64, &mut [IoSliceMut<'_>]) -> Pull {
    move |_, remote, at_bytes, into| {
        assert_eq!(remote.as_bytes(), REMOTE);
        let mut at = at_bytes as usize;
        for place in into {
            let end = at + place.len();
            place.copy_from_slice(&memory[at..end]);
            at = end;
        }
        Pull::Done
    }
}

#[test]
fn message_beyond_credit_is_a_protocol_violation() {
    let (mut receiver, mut asked) = receiver_with_link();
    receiver.try_reserve_budget(BUDGET_BYTES as u64 - CREDIT_INITIAL_BYTES);
    for _ in 0..CREDIT_INITIAL_BYTES / MESSAGE_COST_BYTES {
        deliver_message(&mut receiver, LINK, b"", &mut asked);
    }
    let breach: Result<(), LinkFault> = Err(ProtocolViolation("sends more than it was granted").into());
    let [empty, short] = [0, 1].map(|len_bytes| make_message(len_bytes, AwaitedReply::Nothing));
    assert_eq!(receiver.message_arrived(LINK, &empty, b"", &mut asked), breach);
    assert_eq!(receiver.begin_message(LINK, &short, &mut asked), breach);
    assert_eq!(receiver.message_offered(LINK, &short, 1, REMOTE, &mut asked), breach);
}

#[test]
fn link_end_fails_partial_messages_and_keeps_whole_ones() {
    let (mut receiver, mut asked) = receiver_with_link();
    receiver.message_arrived(LINK, &make_message(5, AwaitedReply::Match), b"whole", &mut asked).unwrap();
    receiver.begin_message(LINK, &make_message(6, AwaitedReply::Nothing), &mut asked).unwrap();
    receiver.put_payload(LINK, b"lost", &mut asked);
    receiver.message_offered(LINK, &make_message(9, AwaitedReply::Match), 1, REMOTE, &mut asked).unwrap();
    assert_eq!(receiver.unexpected_len(), 3);
    receiver.link_ended(LINK, &RESET, &mut asked);
    assert_eq!((receiver.unexpected_len(), receiver.fetches_len()), (1, 0));

    // A new link gets the id of the first link. It must not get what the first link has left
    // behind.
    receiver.link_added(LINK, PeerId(6), MemberId::ONLY);
    receiver.post(receive_request(5, 1), &mut asked).unwrap();
    assert_eq!(asked.take_ended(), [(1, Ok(b"whole".to_vec()))]);
    assert!(asked.queued.is_empty(), "the peer that waits to hear of it is gone");
    receiver.post(receive_request(6, 2), &mut asked).unwrap();
    receiver.begin_message(LINK, &make_message(6, AwaitedReply::Nothing), &mut asked).unwrap();
    receiver.put_payload(LINK, b"half", &mut asked);
    receiver.link_ended(LINK, &RESET, &mut asked);
    assert_eq!(asked.ended[0].as_ref().unwrap_err().completion.len_bytes, 4);
    assert_eq!(asked.take_ended(), [(2, Err(RESET))]);
    assert!(receiver.try_reserve_budget(BUDGET_BYTES as u64), "all of it is free");
}
