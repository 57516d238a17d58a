//! Signals between the two processes. They are numbers in shared memory, separate from messages.

use std::sync::atomic::Ordering;

use super::memory::{BareMemory, SharedNumber};
use super::poller::BarePoller;
use crate::failure::CommandFailure;

/// How many signals this process has sent and received.
#[derive(Debug, Default)]
pub(super) struct SignalCounts {
    sent: u64,
    received: u64,
}

impl SignalCounts {
    pub(super) fn send_signal(&mut self, memory: &BareMemory) {
        self.sent += 1;
        memory.number_of_own_side(SharedNumber::Signals).store(self.sent, Ordering::Release);
    }

    pub(super) fn await_signal(
        &mut self,
        memory: &BareMemory,
        poller: &BarePoller,
    ) -> Result<(), CommandFailure> {
        self.received += 1;
        let sent = memory.number_of_other_side(SharedNumber::Signals);
        poller.poll_until_some(|| Ok((sent.load(Ordering::Acquire) >= self.received).then_some(())))
    }
}
