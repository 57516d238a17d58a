//! Signals between the two processes through shared memory, separate from messages.

use std::sync::atomic::Ordering;

use super::memory::{Memory, Number};
use super::poller::Poller;
use crate::failure::Failure;

/// How many signals this process has sent and received.
#[derive(Debug, Default)]
pub(super) struct Signals {
    given: u64,
    taken: u64,
}

impl Signals {
    pub(super) fn send_signal(&mut self, memory: &Memory) {
        self.given += 1;
        memory.own_number(Number::Signals).store(self.given, Ordering::Release);
    }

    pub(super) fn await_signal(&mut self, memory: &Memory, poller: &Poller) -> Result<(), Failure> {
        self.taken += 1;
        let given = memory.other_number(Number::Signals);
        poller.poll_until_some(|| Ok((given.load(Ordering::Acquire) >= self.taken).then_some(())))
    }
}
