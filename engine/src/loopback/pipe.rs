//! One direction of a link.

use std::collections::VecDeque;

use crate::transport::LinkError;

/// A bounded queue of bytes between a writer and a reader.
///
/// A byte is first *written*. When the writer flushes, the byte is *under way*. When the reader
/// makes the `receive` call at which the flush is due, the byte has *arrived* and can be read.
pub(super) struct Pipe {
    bytes: VecDeque<u8>,
    capacity_bytes: usize,
    arrived_bytes: usize,
    /// The bytes under way. Each entry has the number of bytes of a flush, and the number of the
    /// reader's `receive` call at which the bytes arrive.
    under_way: VecDeque<(usize, u64)>,
    written_bytes: usize,
    /// Why the pipe ended, if no more bytes follow those in the queue.
    end: Option<LinkError>,
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

    /// Puts the written bytes under way. They arrive at the reader's `receive` call with this
    /// number.
    pub(super) fn flush(&mut self, arrival_call: u64) {
        if self.written_bytes > 0 {
            self.under_way.push_back((self.written_bytes, arrival_call));
            self.written_bytes = 0;
        }
    }

    /// Marks the bytes as arrived that are due at the reader's `receive` call with this number.
    /// Returns how many bytes can be read.
    pub(super) fn deliver_due_bytes(&mut self, call: u64) -> usize {
        while let Some(&(count_bytes, arrival_call)) = self.under_way.front()
            && arrival_call <= call
        {
            self.arrived_bytes += count_bytes;
            self.under_way.pop_front();
        }
        self.arrived_bytes
    }

    /// Returns the bytes that have arrived, in order, and leaves them in the pipe.
    pub(super) fn peek_arrived(&self) -> impl Iterator<Item = u8> + '_ {
        self.bytes.iter().copied().take(self.arrived_bytes)
    }

    /// Moves up to `count_bytes` arrived bytes to the end of `into`.
    pub(super) fn read(&mut self, count_bytes: usize, into: &mut Vec<u8>) {
        let count_bytes = count_bytes.min(self.arrived_bytes);
        into.extend(self.bytes.drain(..count_bytes));
        self.arrived_bytes -= count_bytes;
    }

    /// Returns why the pipe has ended. Returns `None` if the pipe has not ended, or still holds bytes.
    pub(super) fn end_reason(&self) -> Option<&LinkError> {
        self.end.as_ref().filter(|_| self.bytes.is_empty())
    }

    /// Ends the pipe after the flushed bytes, and drops unflushed bytes. Replaces an earlier
    /// reason.
    pub(super) fn finish(&mut self, why: LinkError) {
        self.truncate(self.flushed_bytes());
        self.end = Some(why);
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

    fn read_all(pipe: &mut Pipe, call: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let count_bytes = pipe.deliver_due_bytes(call);
        pipe.read(count_bytes, &mut bytes);
        bytes
    }

    #[test]
    fn bytes_arrive_in_order_after_their_flush() {
        let mut pipe = Pipe::new(16);
        pipe.append(b"abc");
        assert_eq!(
            (pipe.deliver_due_bytes(9), pipe.has_unflushed_bytes(), pipe.has_input()),
            (0, true, false)
        );
        pipe.flush(3);
        pipe.append(b"de");
        pipe.flush(1);
        assert_eq!(pipe.room_bytes(), 11);
        assert_eq!(read_all(&mut pipe, 2), b"");
        assert_eq!(read_all(&mut pipe, 3), b"abcde");
        assert!(pipe.is_empty());
    }

    #[test]
    fn pipe_end_follows_flushed_bytes_and_drops_unflushed_ones() {
        let mut pipe = Pipe::new(16);
        pipe.append(b"ab");
        pipe.flush(0);
        pipe.append(b"cd");
        pipe.finish(LinkError::Closed);
        assert_eq!(pipe.end_reason(), None);
        assert_eq!(read_all(&mut pipe, 0), b"ab");
        assert_eq!(pipe.end_reason(), Some(&LinkError::Closed));
    }

    #[test]
    fn truncation_cuts_arrived_travelling_and_unflushed_bytes() {
        for keep_bytes in 0..=7 {
            let mut pipe = Pipe::new(16);
            pipe.append(b"ab");
            pipe.flush(0);
            pipe.deliver_due_bytes(0);
            pipe.append(b"cde");
            pipe.flush(1);
            pipe.append(b"fg");
            pipe.truncate(keep_bytes);
            pipe.flush(2);
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
        pipe.flush(0);
        assert_eq!((pipe.deliver_due_bytes(0), pipe.room_bytes(), pipe.is_empty()), (0, 16, true));
    }
}
