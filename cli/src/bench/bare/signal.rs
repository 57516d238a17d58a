//! Signals between the two processes. They are numbers in shared memory, separate from messages.

use std::sync::atomic::Ordering;

use super::memory::{Memory, Number};
use super::poller::Poller;
use crate::failure::Failure;

/// How many signals this process has sent and received.
#[derive(Debug, Default)]
pub(super) struct Signals {
    sent: u64,
    received: u64,
}

impl Signals {
    pub(super) fn send_signal(&mut self, memory: &Memory) {
        self.sent += 1;
        memory.number_of_own_side(Number::Signals).store(self.sent, Ordering::Release);
    }

    pub(super) fn await_signal(&mut self, memory: &Memory, poller: &Poller) -> Result<(), Failure> {
        self.received += 1;
        let sent = memory.number_of_other_side(Number::Signals);
        poller.poll_until_some(|| Ok((sent.load(Ordering::Acquire) >= self.received).then_some(())))
    }
}
