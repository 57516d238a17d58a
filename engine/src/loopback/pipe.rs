//! One direction of a link.

use std::collections::VecDeque;
use std::time::Duration;

use crate::transport::LinkError;

/// When bytes or a connection arrive, or how far the reader is: a number of `receive` calls of the
/// reader, and a time of the network. What is under way arrives once the reader has reached both.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    pub(super) call: u64,
    pub(super) time: Duration,
}

impl Due {
    pub(super) fn is_reached_at(self, now: Due) -> bool {
        self.call <= now.call && self.time <= now.time
    }
}

/// A bounded queue of bytes between a writer and a reader.
///
/// A byte is first *written*. When the writer flushes, the byte is *under way*. When the reader
/// makes a `receive` call at which the flush is due, the byte has *arrived* and can be read.
pub(super) struct Pipe {
    bytes: VecDeque<u8>,
    capacity_bytes: usize,
    arrived_bytes: usize,
    /// The bytes under way. Each entry has the number of bytes of a flush, and when they arrive.
    under_way: VecDeque<(usize, Due)>,
    written_bytes: usize,
    /// Why the pipe ended, if no more bytes follow those in the queue, and the time at which the
    /// reader learns it.
    end: Option<(LinkError, Duration)>,
    /// Whether the reader has left. If so, written bytes are dropped.
    reader_has_left: bool,
}

impl Pipe {
    pub(super) fn new(capacity_bytes: usize) -> Self {
        Pipe {
            bytes: VecDeque::new(),
            capacity_bytes,
            arrived_bytes: 0,
            under_way: VecDeque::new(),
            written_bytes: 0,
            end: None,
            reader_has_left: false,
        }
    }

    pub(super) fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    pub(super) fn room_bytes(&self) -> usize {
        self.capacity_bytes.saturating_sub(self.bytes.len())
    }

    /// Whether bytes wait to be flushed.
    pub(super) fn has_unflushed_bytes(&self) -> bool {
        self.written_bytes > 0
    }

    /// Whether the reader has something to read, now or after a delay: bytes, or the end of the
    /// pipe.
    pub(super) fn has_input(&self) -> bool {
        self.bytes.len() > self.written_bytes || self.end.is_some()
    }

    /// Whether the pipe has no bytes and no end.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.end.is_none()
    }

    /// Appends bytes. If the reader has left, drops the bytes. Does not check the capacity: see
    /// [`room_bytes`](Self::room_bytes).
    pub(super) fn append(&mut self, bytes: &[u8]) {
        if !self.reader_has_left {
            self.bytes.extend(bytes);
            self.written_bytes += bytes.len();
        }
    }

    /// Puts the written bytes under way. Returns their number.
    pub(super) fn flush(&mut self, arrival: Due) -> usize {
        let count_bytes = std::mem::take(&mut self.written_bytes);
        if count_bytes > 0 {
            self.under_way.push_back((count_bytes, arrival));
        }
        count_bytes
    }

    /// Marks the bytes as arrived that are due now. Returns their number.
    pub(super) fn deliver_due_bytes(&mut self, now: Due) -> usize {
        let before_bytes = self.arrived_bytes;
        while let Some(&(count_bytes, arrival)) = self.under_way.front()
            && arrival.is_reached_at(now)
        {
            self.arrived_bytes += count_bytes;
            self.under_way.pop_front();
        }
        self.arrived_bytes - before_bytes
    }

    /// Returns how many bytes can be read.
    pub(super) fn arrived_bytes(&self) -> usize {
        self.arrived_bytes
    }

    /// Returns when the reader can next read something: bytes, or the end of the pipe. Returns `None`
    /// if nothing is under way. The time has passed if the reader can read something now, or after
    /// some more calls.
    pub(super) fn next_arrival(&self) -> Option<Duration> {
        if self.arrived_bytes > 0 {
            return Some(Duration::ZERO);
        }
        let bytes = self.under_way.front().map(|(_, arrival)| arrival.time);
        bytes.or_else(|| self.end.as_ref().map(|(_, time)| *time))
    }

    /// Returns the bytes that have arrived, in order, and leaves them in the pipe.
    pub(super) fn peek_arrived(&self) -> impl Iterator<Item = u8> + '_ {
        self.bytes.iter().copied().take(self.arrived_bytes)
    }

    /// Moves up to `count_bytes` arrived bytes to the end of `into`.
    pub(super) fn read(&mut self, count_bytes: usize, into: &mut Vec<u8>) {
        let count_bytes = count_bytes.min(self.arrived_bytes);
        let (front, back) = self.bytes.as_slices();
        let of_front = count_bytes.min(front.len());
        into.extend_from_slice(&front[..of_front]);
        into.extend_from_slice(&back[..count_bytes - of_front]);
        self.bytes.drain(..count_bytes);
        self.arrived_bytes -= count_bytes;
    }

    /// Returns why the pipe has ended. Returns `None` if the pipe has not ended, if it still holds
    /// bytes, or if its end is under way.
    pub(super) fn end_reason(&self, now: Duration) -> Option<&LinkError> {
        let (why, _) = self.end.as_ref().filter(|(_, time)| self.bytes.is_empty() && *time <= now)?;
        Some(why)
    }

    /// Ends the pipe after the flushed bytes, and drops unflushed bytes. The reader learns the end at
    /// this time. Replaces an earlier reason.
    pub(super) fn finish(&mut self, why: LinkError, time: Duration) {
        self.truncate(self.flushed_bytes());
        self.end = Some((why, time));
    }

    /// Returns how many bytes are under way or have arrived.
    pub(super) fn flushed_bytes(&self) -> usize {
        self.bytes.len() - self.written_bytes
    }

    /// Drops all bytes but the first `keep_bytes`.
    pub(super) fn truncate(&mut self, keep_bytes: usize) {
        if keep_bytes >= self.bytes.len() {
            return;
        }
        self.bytes.truncate(keep_bytes);
        self.arrived_bytes = self.arrived_bytes.min(keep_bytes);
        let mut left = keep_bytes - self.arrived_bytes;
        self.under_way.retain_mut(|(count_bytes, _)| {
            *count_bytes = left.min(*count_bytes);
            left -= *count_bytes;
            *count_bytes > 0
        });
        self.written_bytes = left;
    }

    /// Records that the reader has left. Drops all bytes in the pipe and all later bytes.
    pub(super) fn detach_reader(&mut self) {
        self.truncate(0);
        self.reader_has_left = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_TIME: Duration = Duration::ZERO;

    fn call(call: u64) -> Due {
        Due { call, time: NO_TIME }
    }

    fn read_all_at(pipe: &mut Pipe, now: Due) -> Vec<u8> {
        let mut bytes = Vec::new();
        pipe.deliver_due_bytes(now);
        pipe.read(pipe.arrived_bytes(), &mut bytes);
        bytes
    }

    fn read_all(pipe: &mut Pipe, at_call: u64) -> Vec<u8> {
        read_all_at(pipe, call(at_call))
    }

    #[test]
    fn bytes_arrive_in_order_after_their_flush() {
        let mut pipe = Pipe::new(16);
        pipe.append(b"abc");
        assert_eq!(
            (pipe.deliver_due_bytes(call(9)), pipe.has_unflushed_bytes(), pipe.has_input()),
            (0, true, false)
        );
        assert_eq!(pipe.flush(call(3)), 3);
        pipe.append(b"de");
        assert_eq!(pipe.flush(call(1)), 2);
        assert_eq!(pipe.room_bytes(), 11);
        assert_eq!(read_all(&mut pipe, 2), b"");
        assert_eq!(read_all(&mut pipe, 3), b"abcde");
        assert!(pipe.is_empty());
    }

    #[test]
    fn bytes_and_end_arrive_at_their_times() {
        let ms = Duration::from_millis;
        let mut pipe = Pipe::new(16);
        pipe.append(b"abc");
        pipe.flush(Due { call: 1, time: ms(5) });
        pipe.finish(LinkError::Closed, ms(7));
        assert_eq!(pipe.next_arrival(), Some(ms(5)));
        assert_eq!(read_all_at(&mut pipe, Due { call: 9, time: ms(4) }), b"");
        assert_eq!(read_all_at(&mut pipe, Due { call: 0, time: ms(6) }), b"");
        assert_eq!(read_all_at(&mut pipe, Due { call: 1, time: ms(5) }), b"abc");
        assert_eq!((pipe.next_arrival(), pipe.end_reason(ms(6))), (Some(ms(7)), None));
        assert_eq!(pipe.end_reason(ms(7)), Some(&LinkError::Closed));
    }

    #[test]
    fn pipe_end_follows_flushed_bytes_and_drops_unflushed_ones() {
        let mut pipe = Pipe::new(16);
        pipe.append(b"ab");
        pipe.flush(call(0));
        pipe.append(b"cd");
        pipe.finish(LinkError::Closed, NO_TIME);
        assert_eq!(pipe.end_reason(NO_TIME), None);
        assert_eq!(read_all(&mut pipe, 0), b"ab");
        assert_eq!(pipe.end_reason(NO_TIME), Some(&LinkError::Closed));
    }

    #[test]
    fn truncation_cuts_arrived_travelling_and_unflushed_bytes() {
        for keep_bytes in 0..=7 {
            let mut pipe = Pipe::new(16);
            pipe.append(b"ab");
            pipe.flush(call(0));
            pipe.deliver_due_bytes(call(0));
            pipe.append(b"cde");
            pipe.flush(call(1));
            pipe.append(b"fg");
            pipe.truncate(keep_bytes);
            pipe.flush(call(2));
            let mut seen = read_all(&mut pipe, 0);
            assert_eq!(seen, &b"ab"[..keep_bytes.min(2)]);
            seen.extend(read_all(&mut pipe, 1));
            assert_eq!(seen, &b"abcde"[..keep_bytes.min(5)]);
            seen.extend(read_all(&mut pipe, 2));
            assert_eq!(seen, &b"abcdefg"[..keep_bytes]);
        }
    }

    #[test]
    fn abandoned_pipe_discards_what_is_written() {
        let mut pipe = Pipe::new(16);
        pipe.append(b"ab");
        pipe.detach_reader();
        pipe.append(b"cd");
        pipe.flush(call(0));
        pipe.deliver_due_bytes(call(0));
        assert_eq!((pipe.arrived_bytes(), pipe.room_bytes(), pipe.is_empty()), (0, 16, true));
    }
}
