//! The writing side of a ring.

use std::hint;
use std::io::IoSlice;

use homespun_engine::transport::{Full, Sent};
use homespun_engine::wire::{Header, Message};

use crate::line::{self, FRONT_PIECE_MAX_BYTES, PIECE_MAX_BYTES, PIECE_MIN_BYTES, Payload, ROOM_MAX_BYTES};
use crate::ring::{INLINE_MAX_BYTES, PREFETCH_LINES, round_up_to_data_unit};
use crate::segment::{Area, DATA_UNIT_BYTES, DataArea, FRONT_BYTES, LINES, Segment};
use crate::sync::{Ordering, fence};
use crate::ways;

/// How often a producer looks for room in the front area before it writes to the main area: as long as a
/// consumer that is at work takes for a message.
const FRONT_LOOKS: u32 = if cfg!(loom) { 1 } else { 40 };

/// After looks for room in the front area have been in vain, so many messages go to the main area without
/// further looks; after each further time twice as many, up to the second number.
const FRONT_PAUSE_MESSAGES: [u32; 2] = [8, 1024];

/// Writes frames into a ring.
#[derive(Debug)]
pub(crate) struct Producer {
    segment: Segment,
    /// How many lines this side has published.
    lines: u64,
    /// How much of the main area this side has used, in whole units.
    bytes: u64,
    /// The limit of `lines`. To go beyond it, this side must read the consumer's progress again.
    lines_end: u64,
    /// The limit of `bytes`. To go beyond it, this side must read the consumer's progress again.
    bytes_end: u64,
    front: FrontRoom,
    /// How much payload of an unfinished frame is unwritten; 0 between frames.
    left_bytes: u64,
    /// How much payload of an unfinished frame is written.
    taken_bytes: u64,
    /// How much room in the main area the last refused write needed.
    wanted_bytes: usize,
    /// Whether this side has published anything since the last `take_wake_request`.
    has_published: bool,
    /// Whether the consumer has published impossible progress.
    is_broken: bool,
    /// The core that this side has published last.
    core: Option<u32>,
}

/// The room in the front area.
#[derive(Debug)]
struct FrontRoom {
    /// How much of the area this side has used, in whole units, and the known limit of that.
    bytes: u64,
    bytes_end: u64,
    /// How many messages go to the main area before the next looks for room.
    pause_messages: u32,
    /// The next pause.
    next_pause_messages: u32,
}

impl FrontRoom {
    fn starting_at(bytes: u64) -> FrontRoom {
        let [next_pause_messages, _] = FRONT_PAUSE_MESSAGES;
        FrontRoom { bytes, bytes_end: bytes + FRONT_BYTES as u64, pause_messages: 0, next_pause_messages }
    }

    #[inline(always)]
    fn has_known_room(&self, piece_bytes: usize) -> bool {
        round_up_to_data_unit(piece_bytes) <= self.bytes_end - self.bytes
    }

    /// Reads the consumer's progress. Returns false if it is impossible.
    #[inline]
    fn refresh(&mut self, segment: &Segment) -> bool {
        // SYNC POINT: front room
        let bytes = segment.consumed_front_bytes().load(Ordering::Acquire);
        let before = self.bytes_end - FRONT_BYTES as u64;
        let is_possible =
            (before..=self.bytes).contains(&bytes) && bytes.is_multiple_of(DATA_UNIT_BYTES as u64);
        if is_possible {
            self.bytes_end = bytes + FRONT_BYTES as u64;
        }
        is_possible
    }
}

impl Producer {
    /// The producer of a new ring.
    pub(crate) fn new(segment: Segment) -> Producer {
        Producer::starting_at(segment, 0, 0)
    }

    /// The producer of an empty ring that has been used before.
    pub(super) fn starting_at(segment: Segment, lines: u64, bytes: u64) -> Producer {
        let data_bytes = segment.data_area().bytes() as u64;
        Producer {
            segment,
            lines,
            bytes,
            lines_end: lines + LINES as u64,
            bytes_end: bytes + data_bytes,
            front: FrontRoom::starting_at(bytes),
            left_bytes: 0,
            taken_bytes: 0,
            wanted_bytes: 0,
            has_published: false,
            is_broken: false,
            core: None,
        }
    }

    /// How large the ring's main area is.
    pub(crate) fn data_area(&self) -> DataArea {
        self.segment.data_area()
    }

    /// Tells the consumer on which core this side runs. Writes to the ring only if the core has changed.
    pub(crate) fn publish_core(&mut self, core: u32) {
        if self.core != Some(core) {
            self.core = Some(core);
            self.segment.producer_core().store(core.wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Writes a frame with at most [`INLINE_MAX_BYTES`] of payload, whole or not at all.
    pub(crate) fn send_inline(&mut self, header: &Header, payload: &[u8]) -> Result<(), Full> {
        self.write_inline(header, payload)
    }

    /// As [`send_inline`](Self::send_inline), for a message. The compiler makes the layout of a message out
    /// of the general one.
    #[inline(always)]
    pub(crate) fn send_message(&mut self, message: &Message, payload: &[u8]) -> Result<(), Full> {
        self.write_inline(&Header::Message(*message), payload)
    }

    #[inline(always)]
    fn write_inline(&mut self, header: &Header, payload: &[u8]) -> Result<(), Full> {
        debug_assert!(payload.len() <= INLINE_MAX_BYTES && !self.is_mid_frame());
        if payload.len() <= line::inline_room_bytes(header) {
            if !self.try_find_room(0) {
                return Err(Full);
            }
            self.publish_header_line(header, Payload::Inline(payload));
            return Ok(());
        }
        let Some((area, position)) = self.find_area(payload.len()) else { return Err(Full) };
        self.segment.write(area, position, payload);
        self.publish_header_and_piece(header, area, payload.len());
        Ok(())
    }

    /// Finds room for a line, and for the whole payload of its frame. Returns the area and the position.
    #[inline(always)]
    fn find_area(&mut self, len_bytes: usize) -> Option<(Area, u64)> {
        if len_bytes <= FRONT_PIECE_MAX_BYTES && self.try_find_room(0) && self.try_find_front_room(len_bytes)
        {
            return Some((Area::Front, self.front.bytes));
        }
        self.try_find_room(len_bytes).then_some((Area::Main, self.bytes))
    }

    #[inline(always)]
    fn try_find_front_room(&mut self, len_bytes: usize) -> bool {
        self.front.has_known_room(len_bytes) || self.look_for_front_room(len_bytes)
    }

    /// Looks for room in the front area for a while, unless that was in vain lately: the consumer is then
    /// busy otherwise, asleep, or far away.
    #[inline(never)]
    fn look_for_front_room(&mut self, len_bytes: usize) -> bool {
        let front = &mut self.front;
        let [shortest, longest] = FRONT_PAUSE_MESSAGES;
        let is_pausing = front.pause_messages > 0;
        for _ in 0..if is_pausing { 1 } else { FRONT_LOOKS } {
            if !front.refresh(&self.segment) {
                self.is_broken = true;
                return false;
            }
            if front.has_known_room(len_bytes) {
                if !is_pausing {
                    front.next_pause_messages = shortest;
                }
                return true;
            }
            hint::spin_loop();
        }
        if is_pausing {
            front.pause_messages -= 1;
        } else {
            front.pause_messages = front.next_pause_messages;
            front.next_pause_messages = (2 * front.next_pause_messages).min(longest);
        }
        false
    }

    /// Prefetches the next line, for a frame that is likely to be sent soon.
    #[inline]
    pub(crate) fn prefetch_line(&self) {
        self.segment.prefetch_line_for_write(self.lines);
    }

    /// Writes as much of a frame as there is room for.
    pub(crate) fn send(&mut self, header: &Header, payload: &[IoSlice<'_>]) -> Sent {
        debug_assert!(!self.is_mid_frame());
        let len_bytes = payload_len_bytes(payload);
        debug_assert_eq!(len_bytes as u64, header.payload_len_bytes());
        let mut cursor = PayloadCursor::new(payload);
        if len_bytes <= line::inline_room_bytes(header) {
            let mut gathered = [0; ROOM_MAX_BYTES];
            let gathered = &mut gathered[..len_bytes];
            cursor.take_parts(len_bytes, |offset, part| {
                gathered[offset..offset + part.len()].copy_from_slice(part);
            });
            return self.send_inline(header, gathered).map_or(Sent::Full, |()| Sent::Whole);
        }
        if len_bytes <= FRONT_PIECE_MAX_BYTES
            && let Some((area, position)) = self.find_area(len_bytes)
        {
            self.copy_piece(&mut cursor, area, position, len_bytes);
            self.publish_header_and_piece(header, area, len_bytes);
            return Sent::Whole;
        }
        self.taken_bytes = 0;
        let Some(piece_bytes) = self.next_piece_bytes(len_bytes) else { return Sent::Full };
        self.taken_bytes = piece_bytes as u64;
        self.copy_piece(&mut cursor, Area::Main, self.bytes, piece_bytes);
        self.publish_header_and_piece(header, Area::Main, piece_bytes);
        self.left_bytes = (len_bytes - piece_bytes) as u64;
        self.publish_further_pieces(&mut cursor, len_bytes, piece_bytes)
    }

    /// Continues the unfinished frame.
    pub(crate) fn resume(&mut self, rest: &[IoSlice<'_>]) -> Sent {
        let len_bytes = payload_len_bytes(rest);
        debug_assert!(self.is_mid_frame() && len_bytes as u64 == self.left_bytes);
        self.publish_further_pieces(&mut PayloadCursor::new(rest), len_bytes, 0)
    }

    /// Whether the consumer would rather pull payload of this length than have it written into the ring.
    pub(crate) fn is_pulled(&self, len_bytes: u64) -> bool {
        ways::is_pulled(self.segment.pulled_classes().load(Ordering::Relaxed), len_bytes)
    }

    /// Whether the consumer would pull payload from memory that it can map.
    pub(crate) fn is_mapped_memory_pulled(&self) -> bool {
        ways::is_mapped_memory_pulled(self.segment.pulled_classes().load(Ordering::Relaxed))
    }

    /// Whether a frame is unfinished: the ring has taken a part of it.
    pub(crate) fn is_mid_frame(&self) -> bool {
        self.left_bytes > 0
    }

    /// Whether the consumer has published impossible progress. A broken ring never has room again.
    #[inline]
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Returns whether the consumer has asked to be woken, and clears the request. Returns false if this
    /// side has published nothing since the last call. At most one call returns true for each request.
    #[inline(always)]
    pub(crate) fn take_wake_request(&mut self) -> bool {
        if !std::mem::take(&mut self.has_published) {
            return false;
        }
        // SYNC POINT: doorbell
        fence(Ordering::SeqCst);
        let requested = self.segment.wake_requested();
        requested.load(Ordering::Relaxed) != 0 && requested.swap(0, Ordering::Relaxed) != 0
    }

    /// Asks the consumer to ring the doorbell when there is room. Returns true if the caller may sleep.
    /// Returns false if there is room already, or if the ring is broken.
    pub(crate) fn request_room_if_full(&mut self) -> bool {
        self.segment.room_requested().store(1, Ordering::Relaxed);
        // SYNC POINT: room requested
        fence(Ordering::SeqCst);
        // The caller must not sleep on a broken ring.
        !self.try_find_room(self.wanted_bytes) && !self.is_broken
    }

    /// Whether the last refused write would find room now. Also true if the ring is broken: the next write
    /// shows that.
    pub(crate) fn has_room_for_refused(&mut self) -> bool {
        self.try_find_room(self.wanted_bytes) || self.is_broken
    }

    /// Announces that no more frames follow. Must not be called inside an unfinished frame.
    pub(crate) fn finish(&mut self) {
        debug_assert!(!self.is_mid_frame());
        // SYNC POINT: finished
        self.segment.finished_at().store(self.lines + 1, Ordering::Release);
        self.has_published = true;
    }

    /// The segment, for tests that overwrite it.
    #[cfg(all(any(test, fuzzing), not(loom)))]
    pub(crate) fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Writes further pieces while there is room. The ring has already taken `taken_bytes` of `len_bytes`.
    fn publish_further_pieces(
        &mut self,
        cursor: &mut PayloadCursor<'_>,
        len_bytes: usize,
        mut taken_bytes: usize,
    ) -> Sent {
        while taken_bytes < len_bytes {
            let Some(piece_bytes) = self.next_piece_bytes(len_bytes - taken_bytes) else {
                return if taken_bytes > 0 { Sent::Partial(taken_bytes) } else { Sent::Full };
            };
            self.copy_piece(cursor, Area::Main, self.bytes, piece_bytes);
            self.publish_first_word(line::piece_line_word(line::sequence_at(self.lines), piece_bytes));
            self.bytes += round_up_to_data_unit(piece_bytes);
            taken_bytes += piece_bytes;
            self.taken_bytes += piece_bytes as u64;
            self.left_bytes = (len_bytes - taken_bytes) as u64;
        }
        Sent::Whole
    }

    /// The length of the next piece of the remaining payload. `None` if there is no room for a piece.
    fn next_piece_bytes(&mut self, left_bytes: usize) -> Option<usize> {
        let piece_bytes = wanted_piece_bytes(self.taken_bytes, left_bytes);
        if self.try_find_room(piece_bytes) {
            return Some(piece_bytes);
        }
        // A piece below the minimum is not worth a line unless it is the last piece.
        self.wanted_bytes = left_bytes.min(PIECE_MIN_BYTES);
        let free_bytes = (self.bytes_end - self.bytes) as usize;
        self.has_known_room(self.wanted_bytes).then_some(piece_bytes.min(free_bytes))
    }

    /// Returns whether there is room for a line, and for a piece in the main area. If the known room is too
    /// small, reads the consumer's progress.
    #[inline(always)]
    fn try_find_room(&mut self, piece_bytes: usize) -> bool {
        self.has_known_room(piece_bytes) || self.try_find_room_after_refresh(piece_bytes)
    }

    #[inline(always)]
    fn has_known_room(&self, piece_bytes: usize) -> bool {
        self.lines < self.lines_end && round_up_to_data_unit(piece_bytes) <= self.bytes_end - self.bytes
    }

    /// Reads the consumer's progress. Returns whether there is room now.
    #[cold]
    fn try_find_room_after_refresh(&mut self, piece_bytes: usize) -> bool {
        if self.is_broken {
            return false;
        }
        // SYNC POINT: room
        let lines = self.segment.consumed_lines().load(Ordering::Acquire);
        let bytes = self.segment.consumed_bytes().load(Ordering::Acquire);
        // Progress never decreases, and never exceeds what this side has published.
        let data_bytes = self.segment.data_area().bytes() as u64;
        let (lines_before, bytes_before) = (self.lines_end - LINES as u64, self.bytes_end - data_bytes);
        self.is_broken = !(lines_before..=self.lines).contains(&lines)
            || !(bytes_before..=self.bytes).contains(&bytes)
            || !bytes.is_multiple_of(DATA_UNIT_BYTES as u64);
        if self.is_broken {
            (self.lines_end, self.bytes_end) = (self.lines, self.bytes);
            return false;
        }
        (self.lines_end, self.bytes_end) = (lines + LINES as u64, bytes + data_bytes);
        self.wanted_bytes = piece_bytes;
        self.has_known_room(piece_bytes)
    }

    /// Copies the next piece to an area.
    fn copy_piece(&mut self, cursor: &mut PayloadCursor<'_>, area: Area, position: u64, piece_bytes: usize) {
        cursor
            .take_parts(piece_bytes, |offset, part| self.segment.write(area, position + offset as u64, part));
    }

    /// Publishes the first line of a frame whose first piece is in an area.
    #[inline(always)]
    fn publish_header_and_piece(&mut self, header: &Header, area: Area, piece_bytes: usize) {
        self.publish_header_line(header, Payload::Outside(area, piece_bytes));
        let used_bytes = round_up_to_data_unit(piece_bytes);
        match area {
            Area::Front => self.front.bytes += used_bytes,
            Area::Main => self.bytes += used_bytes,
        }
    }

    #[inline(always)]
    fn publish_header_line(&mut self, header: &Header, payload: Payload<'_>) {
        let position = self.lines;
        let line = self.segment.line(position);
        let put = |place: usize, word| line[place].store(word, Ordering::Relaxed);
        let first = line::emit_line_returning_first_word(line::sequence_at(position), header, payload, put);
        // SYNC POINT: line
        line[0].store(first, Ordering::Release);
        self.advance_line(position);
    }

    /// Publishes a line by writing its first word. All other words must already be written.
    #[inline(always)]
    fn publish_first_word(&mut self, first: u64) {
        let position = self.lines;
        // SYNC POINT: line
        self.segment.line(position)[0].store(first, Ordering::Release);
        self.advance_line(position);
    }

    /// Goes on to the line after the one at `position`, which is published.
    #[inline(always)]
    fn advance_line(&mut self, position: u64) {
        self.lines = position + 1;
        self.has_published = true;
        self.segment.prefetch_line_for_write(position + 1 + PREFETCH_LINES);
    }
}

/// The end of a link ends the exposure of this side's memory.
impl Drop for Producer {
    fn drop(&mut self) {
        self.segment.end_exposure();
    }
}

/// A position in the payload that is being written into the ring.
struct PayloadCursor<'a> {
    slices: &'a [IoSlice<'a>],
    /// How much of the first slice has been taken.
    taken_bytes: usize,
}

impl<'a> PayloadCursor<'a> {
    fn new(slices: &'a [IoSlice<'a>]) -> PayloadCursor<'a> {
        PayloadCursor { slices, taken_bytes: 0 }
    }

    /// Advances by up to `count_bytes` bytes. For each contiguous part of these bytes, calls `put` with the
    /// part's offset and the part. Offsets count from the first of these bytes.
    fn take_parts(&mut self, count_bytes: usize, mut put: impl FnMut(usize, &[u8])) {
        let mut done_bytes = 0;
        while done_bytes < count_bytes
            && let Some((first, others)) = self.slices.split_first()
        {
            let rest = &first[self.taken_bytes..];
            let part = &rest[..rest.len().min(count_bytes - done_bytes)];
            put(done_bytes, part);
            done_bytes += part.len();
            if part.len() == rest.len() {
                (self.slices, self.taken_bytes) = (others, 0);
            } else {
                self.taken_bytes += part.len();
            }
        }
    }
}

/// The length of the next piece if there is room. Pieces grow while the frame is young, so that the consumer
/// starts early, and shrink toward its end, so that the consumer has little left to copy when the producer
/// is done.
pub(super) fn wanted_piece_bytes(taken_bytes: u64, left_bytes: usize) -> usize {
    let grown_bytes = usize::try_from(taken_bytes).unwrap_or(PIECE_MAX_BYTES);
    let shrunk_bytes = (left_bytes / 2).next_multiple_of(PIECE_MIN_BYTES);
    grown_bytes.min(shrunk_bytes).clamp(PIECE_MIN_BYTES, PIECE_MAX_BYTES).min(left_bytes)
}

fn payload_len_bytes(slices: &[IoSlice<'_>]) -> usize {
    slices.iter().map(|slice| slice.len()).sum()
}
