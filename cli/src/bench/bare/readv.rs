//! Messages over `process_vm_readv(2)`: the receiver copies each message from the sender's memory.

use std::sync::atomic::Ordering;

use super::memory::{BareMemory, SharedNumber};
use super::poller::BarePoller;
use super::signal::SignalCounts;
use super::sys;
use super::{Buffers, Loop};
use crate::bench::step::Step;
use crate::exchange::measure;
use crate::failure::CommandFailure;

/// One end of a message exchange. A message stays in the sender's memory until the receiver fetches it.
/// Counters in shared memory count the messages that each process has offered and fetched.
#[derive(Debug)]
pub(super) struct Readv<'a> {
    memory: &'a BareMemory,
    poller: &'a BarePoller,
    other_pid: i32,
    /// The message. The other process reads it at its address, so it must stay alive.
    _source: Vec<u8>,
    buffers: Buffers,
    signals: SignalCounts,
    offered: u64,
    fetched: u64,
    window: u64,
}

impl<'a> Readv<'a> {
    pub(super) fn new(
        memory: &'a BareMemory,
        poller: &'a BarePoller,
        other_pid: i32,
        step: &Step,
    ) -> Readv<'a> {
        let run = &step.run;
        let source = vec![1; run.size_bytes];
        memory.number_of_own_side(SharedNumber::Address).store(source.as_ptr() as u64, Ordering::Release);
        Readv {
            memory,
            poller,
            other_pid,
            _source: source,
            buffers: Buffers::new(run.size_bytes, measure::receive_depth(step.metric, run)),
            signals: SignalCounts::default(),
            offered: 0,
            fetched: 0,
            window: u64::from(run.window),
        }
    }
}

impl Loop for Readv<'_> {
    fn send(&mut self) -> Result<(), CommandFailure> {
        let taken = self.memory.number_of_other_side(SharedNumber::Taken);
        let full = self.offered.checked_sub(self.window);
        self.poller.poll_until_some(|| {
            Ok(full.is_none_or(|full| taken.load(Ordering::Acquire) > full).then_some(()))
        })?;
        self.offered += 1;
        self.memory.number_of_own_side(SharedNumber::Offered).store(self.offered, Ordering::Release);
        Ok(())
    }

    fn receive(&mut self) -> Result<(), CommandFailure> {
        let offered = self.memory.number_of_other_side(SharedNumber::Offered);
        self.fetched += 1;
        self.poller
            .poll_until_some(|| Ok((offered.load(Ordering::Acquire) >= self.fetched).then_some(())))?;
        let address = self.memory.number_of_other_side(SharedNumber::Address).load(Ordering::Acquire);
        sys::read_process_memory(self.other_pid, address, self.buffers.next_buffer()).map_err(|error| {
            CommandFailure::Bare { doing: "reading the memory of the other process", error }
        })?;
        self.memory.number_of_own_side(SharedNumber::Taken).store(self.fetched, Ordering::Release);
        Ok(())
    }

    fn await_peer_done(&mut self) -> Result<(), CommandFailure> {
        // Dropping this end frees the message. So wait until the receiver has fetched the message for
        // the last time.
        let (taken, offered) = (self.memory.number_of_other_side(SharedNumber::Taken), self.offered);
        self.poller.poll_until_some(|| Ok((taken.load(Ordering::Acquire) >= offered).then_some(())))
    }

    fn send_signal(&mut self) -> Result<(), CommandFailure> {
        self.signals.send_signal(self.memory);
        Ok(())
    }

    fn await_signal(&mut self) -> Result<(), CommandFailure> {
        self.signals.await_signal(self.memory, self.poller)
    }
}
