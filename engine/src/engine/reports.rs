//! The way of completions to the sink, and their waiting room when the sink is full.

use std::collections::VecDeque;

use crate::completion::{Completion, Failure, Sink};
use crate::error::OperationError;
use crate::flags::CompletionFlags;
use crate::operation::Send;
use crate::peers::Peers;

/// Keeps what the sink had no room for, in order, so that nothing is lost and no link has to wait.
///
/// Sends and receives wait apart, since they may report to different queues. Both are bounded by the depths of the
/// endpoint: what waits here still counts as outstanding.
#[derive(Debug, Default)]
pub(super) struct Reports {
    held_sends: VecDeque<Outcome>,
    held_receives: VecDeque<Outcome>,
}

type Outcome = Result<Completion, Box<Failure>>;

impl Reports {
    pub(super) fn held_sends(&self) -> usize {
        self.held_sends.len()
    }

    pub(super) fn held_receives(&self) -> usize {
        self.held_receives.len()
    }

    #[inline(always)]
    pub(super) fn completed(&mut self, completion: Completion, peers: &Peers, sink: &mut impl Sink) {
        let held = self.held_for(&completion);
        if held.is_empty() {
            if let Err(refused) = sink.complete(completion, peers) {
                held.push_back(Ok(refused));
            }
        } else {
            held.push_back(Ok(completion));
        }
    }

    pub(super) fn failed(&mut self, failure: Failure, peers: &Peers, sink: &mut impl Sink) {
        let held = self.held_for(&failure.completion);
        if held.is_empty() {
            if let Err(refused) = sink.fail(failure, peers) {
                held.push_back(Err(Box::new(refused)));
            }
        } else {
            held.push_back(Err(Box::new(failure)));
        }
    }

    pub(super) fn send_failed(
        &mut self,
        send: Send,
        error: OperationError,
        peers: &Peers,
        sink: &mut impl Sink,
    ) {
        self.failed(Failure { completion: send.completion(), error }, peers, sink);
    }

    #[inline]
    pub(super) fn are_held(&self) -> bool {
        !(self.held_sends.is_empty() && self.held_receives.is_empty())
    }

    #[cold]
    pub(super) fn deliver_held(&mut self, peers: &Peers, sink: &mut impl Sink) {
        for held in [&mut self.held_sends, &mut self.held_receives] {
            while let Some(outcome) = held.pop_front() {
                let refused = match outcome {
                    Ok(completion) => sink.complete(completion, peers).map_err(Ok),
                    Err(failure) => sink.fail(*failure, peers).map_err(|failure| Err(Box::new(failure))),
                };
                if let Err(outcome) = refused {
                    held.push_front(outcome);
                    break;
                }
            }
        }
    }

    #[inline(always)]
    fn held_for(&mut self, completion: &Completion) -> &mut VecDeque<Outcome> {
        if completion.flags.intersects(CompletionFlags::TRANSMITTED) {
            &mut self.held_sends
        } else {
            &mut self.held_receives
        }
    }
}
