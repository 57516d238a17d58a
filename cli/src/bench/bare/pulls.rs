//! Messages that the receiver copies from the sender's memory: by `process_vm_readv(2)`, or from memory that
//! both processes map.

use std::path::Path;
use std::sync::atomic::Ordering;

use super::memory::{BareMemory, SharedNumber};
use super::poller::BarePoller;
use super::signal::SignalCounts;
use super::sys::{self, BareSegment};
use super::{Buffers, Loop};
use crate::bench::step::{Step, Way};
use crate::exchange::measure;
use crate::failure::CommandFailure;

/// One end of a message exchange. A message stays in the sender's memory until the receiver fetches it.
/// Counters in shared memory count the messages that each process has offered and fetched.
#[derive(Debug)]
pub(super) struct Pulls<'a> {
    memory: &'a BareMemory,
    poller: &'a BarePoller,
    other_pid: i32,
    /// The message. The other process reads it, so it must stay alive.
    _source: Source,
    /// The message of the other process, once this process has mapped it.
    mapped: Option<BareSegment>,
    is_mapped: bool,
    buffers: Buffers,
    signals: SignalCounts,
    offered: u64,
    fetched: u64,
    window: u64,
}

/// A message.
#[derive(Debug)]
enum Source {
    /// The other process reads it at its address.
    Private(#[expect(dead_code, reason = "the other process reads it")] Vec<u8>),
    /// The other process maps it, and finds it by its descriptor.
    Shared(#[expect(dead_code, reason = "the other process reads it")] BareSegment),
}

impl<'a> Pulls<'a> {
    pub(super) fn new(
        memory: &'a BareMemory,
        poller: &'a BarePoller,
        other_pid: i32,
        step: &Step,
    ) -> Result<Pulls<'a>, CommandFailure> {
        let run = &step.run;
        let content = vec![1; run.size_bytes];
        let is_mapped = step.way == Way::Memcpy;
        let (source, address) = if is_mapped {
            let segment = BareSegment::create(run.size_bytes.max(1))
                .map_err(|error| CommandFailure::Bare { doing: "making shared memory", error })?;
            segment.write(0, &content);
            let descriptor = segment.descriptor();
            (Source::Shared(segment), u64::from(descriptor.unsigned_abs()))
        } else {
            let address = content.as_ptr() as u64;
            (Source::Private(content), address)
        };
        memory.number_of_own_side(SharedNumber::Address).store(address, Ordering::Release);
        Ok(Pulls {
            memory,
            poller,
            other_pid,
            _source: source,
            mapped: None,
            is_mapped,
            buffers: Buffers::new(run.size_bytes, measure::receive_depth(step.metric, run)),
            signals: SignalCounts::default(),
            offered: 0,
            fetched: 0,
            window: u64::from(run.window),
        })
    }

    /// Copies the message at an address, or in the segment with a descriptor, to the next buffer.
    fn copy_message(&mut self, address: u64) -> std::io::Result<()> {
        let buffer = self.buffers.next_buffer();
        if !self.is_mapped {
            return sys::read_process_memory(self.other_pid, address, buffer);
        }
        let segment = match &self.mapped {
            Some(segment) => segment,
            None => {
                let path = format!("/proc/{}/fd/{address}", self.other_pid);
                let opened = BareSegment::open(Path::new(&path), buffer.len().max(1))?;
                self.mapped.insert(opened)
            }
        };
        segment.read(0, buffer);
        Ok(())
    }
}

impl Loop for Pulls<'_> {
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
        self.copy_message(address).map_err(|error| CommandFailure::Bare {
            doing: "reading the memory of the other process",
            error,
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
