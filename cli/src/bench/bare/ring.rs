//! A ring in shared memory. A slot consists of consecutive cache lines, and carries a sequence number
//! and payload.

use std::sync::atomic::{AtomicU64, Ordering};

use super::memory::{BareMemory, LINE_BYTES, RING_BYTES, SharedNumber};
use super::poller::BarePoller;
use super::signal::SignalCounts;
use super::{Buffers, Loop};
use crate::bench::step::Step;
use crate::exchange::measure;
use crate::failure::CommandFailure;

/// The length of the sequence number, which precedes the payload of each slot.
const SEQUENCE_BYTES: usize = size_of::<u64>();

/// The largest payload of a slot in a ring that is not pipelined.
pub(in crate::bench) const SLOT_MAX_BYTES: usize = 32 * 1024;

/// How often the receiver returns credits in one lap of the ring. Credits allow the sender to fill slots
/// again. The number is so small that the cost is negligible.
const CREDITS_PER_LAP: usize = 4;

/// One end of a pair of rings, one for each direction. It polls for messages.
///
/// Every slot begins with a sequence number: the number of slots that the sender has filled, including
/// this slot. The receiver polls the sequence number. It shares a cache line with the first bytes of the
/// payload, so polling it fetches no additional line.
#[derive(Debug)]
pub(super) struct BareRing<'a> {
    memory: &'a BareMemory,
    poller: &'a BarePoller,
    size_bytes: usize,
    chunk_bytes: usize,
    slots: usize,
    stride_bytes: usize,
    source: Vec<u8>,
    buffers: Buffers,
    signals: SignalCounts,
    /// The next slot to fill, and the number of slots filled so far.
    head: Cursor,
    /// The value of `head.count` at which the sender must read the receiver's count again.
    limit: u64,
    /// The next slot to read, and the number of slots read so far.
    tail: Cursor,
}

/// A position in a ring.
#[derive(Debug, Default)]
struct Cursor {
    slot: usize,
    count: u64,
}

impl<'a> BareRing<'a> {
    /// An end that sends a message in one slot if it fits into [`SLOT_MAX_BYTES`].
    pub(super) fn new(memory: &'a BareMemory, poller: &'a BarePoller, step: &Step) -> BareRing<'a> {
        BareRing::new_chunked(memory, poller, step, SLOT_MAX_BYTES)
    }

    /// An end whose slots have at most `chunk_max_bytes` of payload. A long message takes several slots,
    /// so the receiver copies from one slot while the sender fills the next.
    pub(super) fn new_chunked(
        memory: &'a BareMemory,
        poller: &'a BarePoller,
        step: &Step,
        chunk_max_bytes: usize,
    ) -> BareRing<'a> {
        let size_bytes = step.run.size_bytes;
        let chunk_bytes = size_bytes.min(chunk_max_bytes);
        let stride_bytes = (SEQUENCE_BYTES + chunk_bytes).next_multiple_of(LINE_BYTES);
        let slots = RING_BYTES / stride_bytes;
        BareRing {
            memory,
            poller,
            size_bytes,
            chunk_bytes,
            slots,
            stride_bytes,
            source: vec![1; size_bytes],
            buffers: Buffers::new(size_bytes, measure::receive_depth(step.metric, &step.run)),
            signals: SignalCounts::default(),
            head: Cursor::default(),
            limit: slots as u64,
            tail: Cursor::default(),
        }
    }

    /// Waits until the next slot is free.
    #[inline]
    fn await_free_slot(&mut self) -> Result<(), CommandFailure> {
        if self.head.count == self.limit {
            let (taken, slots) = (self.memory.number_of_other_side(SharedNumber::Taken), self.slots as u64);
            let full = self.limit;
            self.limit = self.poller.poll_until_some(|| {
                let limit = taken.load(Ordering::Acquire) + slots;
                Ok((limit != full).then_some(limit))
            })?;
        }
        Ok(())
    }
}

impl Cursor {
    /// The offset of the slot, in a ring that begins at `base`.
    #[inline]
    fn slot_offset(&self, base: usize, stride_bytes: usize) -> usize {
        base + self.slot * stride_bytes
    }

    #[inline]
    fn advance(&mut self, slots: usize) {
        self.count += 1;
        self.slot = if self.slot + 1 == slots { 0 } else { self.slot + 1 };
    }
}

impl Loop for BareRing<'_> {
    #[inline]
    fn send(&mut self) -> Result<(), CommandFailure> {
        let mut sent_bytes = 0;
        loop {
            self.await_free_slot()?;
            let offset = self.head.slot_offset(self.memory.outgoing_ring_offset(), self.stride_bytes);
            let end = self.size_bytes.min(sent_bytes + self.chunk_bytes);
            let segment = self.memory.segment();
            segment.write(offset + SEQUENCE_BYTES, &self.source[sent_bytes..end]);
            self.head.advance(self.slots);
            segment.atomic_at(offset).store(self.head.count, Ordering::Release);
            sent_bytes = end;
            if sent_bytes == self.size_bytes {
                return Ok(());
            }
        }
    }

    #[inline]
    fn receive(&mut self) -> Result<(), CommandFailure> {
        let buffer = self.buffers.next_buffer();
        let mut received_bytes = 0;
        loop {
            let offset = self.tail.slot_offset(self.memory.incoming_ring_offset(), self.stride_bytes);
            let segment = self.memory.segment();
            let sequence: &AtomicU64 = segment.atomic_at(offset);
            self.tail.advance(self.slots);
            let awaited = self.tail.count;
            self.poller
                .poll_until_some(|| Ok((sequence.load(Ordering::Acquire) == awaited).then_some(())))?;
            let end = self.size_bytes.min(received_bytes + self.chunk_bytes);
            segment.read(offset + SEQUENCE_BYTES, &mut buffer[received_bytes..end]);
            if self.tail.slot.is_multiple_of((self.slots / CREDITS_PER_LAP).max(1)) {
                self.memory.number_of_own_side(SharedNumber::Taken).store(self.tail.count, Ordering::Release);
            }
            received_bytes = end;
            if received_bytes == self.size_bytes {
                return Ok(());
            }
        }
    }

    fn send_signal(&mut self) -> Result<(), CommandFailure> {
        self.signals.send_signal(self.memory);
        Ok(())
    }

    fn await_signal(&mut self) -> Result<(), CommandFailure> {
        self.signals.await_signal(self.memory, self.poller)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;
    use crate::bench::step::Way;
    use crate::exchange::measure::Metric;
    use crate::exchange::run::Run;

    fn make_one_way_step(size_bytes: usize) -> Step {
        Step { way: Way::Ring, metric: Metric::Bandwidth, run: Run::new(size_bytes, Some(1)) }
    }

    #[test]
    fn messages_arrive_whole_and_in_order_over_many_laps() {
        let poller = BarePoller::new(Arc::new(AtomicBool::new(false)), Duration::from_secs(30), false);
        for size_bytes in [1, 8, 56, 57, 1000, 32 * 1024, 32 * 1024 + 1, 100_000] {
            let leading = BareMemory::create().unwrap();
            let following = BareMemory::open(leading.proc_fd_path().as_ref()).unwrap();
            let step = make_one_way_step(size_bytes);
            let mut sender = BareRing::new(&leading, &poller, &step);
            let mut receiver = BareRing::new(&following, &poller, &step);
            // Send bursts of messages that fill at most a quarter of the ring, but at least one message.
            let burst = (RING_BYTES / 4 / (size_bytes + LINE_BYTES)).max(1).min(step.run.window as usize);
            for message in 0..3 * RING_BYTES / (size_bytes * burst).max(LINE_BYTES) {
                let first = message as u8 & 0x7f;
                for place in 0..burst {
                    sender.source.fill(first ^ place as u8 & 0x7f);
                    sender.send().unwrap();
                }
                for place in 0..burst {
                    let buffer = receiver.buffers.next;
                    receiver.receive().unwrap();
                    let expected = first ^ place as u8 & 0x7f;
                    let received = &receiver.buffers.buffers[buffer];
                    assert!(received.iter().all(|byte| *byte == expected), "{size_bytes} {message} {place}");
                }
            }
        }
    }

    #[test]
    fn full_ring_waits_for_its_receiver() {
        let poller = BarePoller::new(Arc::new(AtomicBool::new(false)), Duration::ZERO, true);
        let memory = BareMemory::create().unwrap();
        let mut sender = BareRing::new(&memory, &poller, &make_one_way_step(8));
        for _ in 0..RING_BYTES / LINE_BYTES {
            sender.send().unwrap();
        }
        assert!(matches!(sender.send(), Err(CommandFailure::PeerSilent { .. })));
    }
}
