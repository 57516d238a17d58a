//! The reading side of a ring.

use std::{hint, mem};

use homespun_engine::transport::{FrameHandler, LinkId};
use homespun_engine::wire::{Header, WireError};

use crate::line::{self, Found, FoundMessage, Parsed, ROOM_MAX_BYTES};
use crate::ring::{
    FRAME_MAX_BYTES, PREFETCH_LINES, PUBLISH_FRONT_BYTES, PUBLISH_LINES, publish_bytes, round_up_to_data_unit,
};
use crate::segment::{Area, Segment};
use crate::sync::{Ordering, fence};
use crate::ways::Ways;

/// The size of the [staging buffer](Staging). The buffer fits into the first-level cache.
const STAGING_BYTES: usize = 4096;

/// How often [`receive_staged`](Consumer::receive_staged) polls for the next piece after it has read a
/// piece: for some microseconds.
const PIECE_SPIN_POLLS: u32 = if cfg!(loom) { 0 } else { 64 };

const _: () = assert!(FRAME_MAX_BYTES <= STAGING_BYTES);

/// The staging buffer. It holds short payload, and payload for which the frame handler has no space. All
/// rings of an endpoint share one buffer, so an idle peer needs none.
#[derive(Debug)]
pub(crate) struct Staging(Box<[u8; STAGING_BYTES]>);

impl Staging {
    pub(crate) fn new() -> Staging {
        Staging(Box::new([0; STAGING_BYTES]))
    }
}

/// Reads frames out of a ring.
#[derive(Debug)]
pub(crate) struct Consumer {
    segment: Segment,
    /// How many lines this side has consumed, and how many consumed lines it has published.
    lines: u64,
    published_lines: u64,
    /// How many bytes of the main area this side has consumed, and how many consumed bytes it has published.
    bytes: u64,
    published_bytes: u64,
    /// The same of the front area.
    front_bytes: u64,
    published_front_bytes: u64,
    /// How much payload of an unfinished frame is still to come; 0 between frames.
    left_bytes: u64,
    /// Whether this side has published progress since the last `take_room_request`.
    has_published: bool,
    /// By which way large payload comes in.
    ways: Ways,
    /// Whether this side writes the lines of the unfinished frame's payload back when it has read them.
    writes_back: bool,
    /// The inline payload of the current line.
    payload: [u8; ROOM_MAX_BYTES],
}

/// How a ring ends, once the consumer has read all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RingEnd {
    /// The ring ends between frames, but the producer has not announced the end.
    Open,
    /// The producer has announced the end of the ring.
    Finished,
    /// The ring ends inside a frame, or at another place than the producer has announced.
    Cut,
}

impl Consumer {
    /// The consumer of a new ring.
    pub(crate) fn new(segment: Segment, ways: Ways) -> Consumer {
        Consumer::starting_at(segment, ways, 0, 0)
    }

    /// The consumer of an empty ring that has been used before.
    pub(super) fn starting_at(segment: Segment, ways: Ways, lines: u64, bytes: u64) -> Consumer {
        Consumer {
            segment,
            lines,
            published_lines: lines,
            bytes,
            published_bytes: bytes,
            front_bytes: bytes,
            published_front_bytes: bytes,
            left_bytes: 0,
            has_published: false,
            ways,
            writes_back: false,
            payload: [0; ROOM_MAX_BYTES],
        }
    }

    /// Reports up to `budget_frames` lines, and returns their number. Each line is a frame or a further
    /// piece of a frame.
    ///
    /// # Errors
    ///
    /// The next line is malformed. The caller must not read the ring any more.
    #[inline]
    pub(crate) fn receive_staged(
        &mut self,
        staging: &mut Staging,
        link: LinkId,
        budget_frames: u32,
        receiver: &mut impl FrameHandler,
    ) -> Result<u32, WireError> {
        let mut count = 0;
        while count < budget_frames {
            let mut first = self.first_word();
            if !self.is_next_line(first) {
                // Between two pieces, a further pass would take longer than the producer.
                let may_spin = count > 0 && self.left_bytes > 0;
                let Some(piece) = may_spin.then(|| self.spin_for_piece()).flatten() else { break };
                first = piece;
            }
            match self.parse_and_report_line(first, staging, link, receiver) {
                Ok(()) => {}
                Err(reason) if count == 0 => return Err(reason),
                // Report the preceding frames first. The next call finds the error again.
                Err(_) => break,
            }
            self.advance_line();
            count += 1;
        }
        Ok(count)
    }

    /// Offers the next frame to the handler, if the ring has one and it is a message whose payload has
    /// arrived whole. Returns whether the handler has taken it. If not, the line is for
    /// [`receive_staged`](Self::receive_staged).
    #[inline(always)]
    pub(crate) fn offer_message(&mut self, link: LinkId, receiver: &mut impl FrameHandler) -> bool {
        let first = self.first_word();
        if !self.is_next_line(first) {
            return false;
        }
        let line = self.segment.line(self.lines);
        let word = |word: usize| line[word].load(Ordering::Relaxed);
        let Some((message, found)) = line::parse_plain_message_line(first, word) else {
            return false;
        };
        let segment = &self.segment;
        let position_in = |area| self.position_in(area);
        let is_taken = self.left_bytes == 0
            && receiver.take_message(link, &message, |into| match found {
                FoundMessage::Inline { place } => line::copy_out_inline(place, word, into),
                FoundMessage::Outside(area) => read_outside(segment, area, position_in(area), into),
            });
        if !is_taken {
            return false;
        }
        if let FoundMessage::Outside(area) = found {
            self.advance_area(area, message.len_bytes as usize);
        }
        self.advance_line();
        true
    }

    /// Goes on behind a piece in an area.
    #[inline(always)]
    fn advance_area(&mut self, area: Area, piece_bytes: usize) {
        let used_bytes = round_up_to_data_unit(piece_bytes);
        match area {
            Area::Main => self.bytes += used_bytes,
            Area::Front => {
                self.front_bytes += used_bytes;
                // The producer does not sleep until there is room here, so nothing else is to be done.
                if self.front_bytes - self.published_front_bytes >= PUBLISH_FRONT_BYTES {
                    self.published_front_bytes = self.front_bytes;
                    // SYNC POINT: front room
                    self.segment.consumed_front_bytes().store(self.front_bytes, Ordering::Release);
                }
            }
        }
    }

    /// Goes on to the next line.
    #[inline(always)]
    fn advance_line(&mut self) {
        self.lines += 1;
        self.segment.prefetch_line_for_read(self.lines + PREFETCH_LINES);
        if self.lines - self.published_lines >= PUBLISH_LINES
            || self.bytes - self.published_bytes >= publish_bytes(self.segment.data_area())
        {
            self.publish_progress();
        }
    }

    /// Whether the ring holds no unread line at the moment.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        !self.is_next_line(self.first_word())
    }

    /// Whether this is the first word of the next line.
    #[inline(always)]
    fn is_next_line(&self, first: u64) -> bool {
        line::sequence_in_first_word(first) == line::sequence_at(self.lines)
    }

    /// Waits a little for the next piece of an unfinished frame. Returns the first word of its line. The
    /// caller must not read the word again: a faulty peer may have changed it.
    fn spin_for_piece(&self) -> Option<u64> {
        (0..PIECE_SPIN_POLLS).find_map(|_| {
            hint::spin_loop();
            let first = self.first_word();
            self.is_next_line(first).then_some(first)
        })
    }

    /// Asks the producer to ring the doorbell when it publishes the next line. Returns true if the ring is
    /// empty; the caller may then stop polling. If there is a line to read, withdraws the request and
    /// returns false.
    ///
    /// # Errors
    ///
    /// The ring is malformed: the place of the next line holds neither that line nor the line of the
    /// previous lap. `receive_staged` does not check this, to save time.
    pub(crate) fn request_wake_if_empty(&mut self) -> Result<bool, WireError> {
        self.segment.wake_requested().store(1, Ordering::Relaxed);
        // SYNC POINT: doorbell
        fence(Ordering::SeqCst);
        let first = self.first_word();
        let is_empty = line::sequence_in_first_word(first) != line::sequence_at(self.lines);
        if !is_empty {
            self.cancel_wake_request();
        } else if !line::is_from_previous_lap(first, self.lines) {
            return Err(WireError::OutOfSequence);
        }
        Ok(is_empty)
    }

    /// Withdraws the request to ring the doorbell, because the caller polls the ring again.
    pub(crate) fn cancel_wake_request(&mut self) {
        self.segment.wake_requested().store(0, Ordering::Relaxed);
    }

    /// Publishes progress to the producer. Receiving also publishes, often enough that the producer
    /// finds room once the consumer has read the whole ring.
    #[cold]
    pub(crate) fn publish_progress(&mut self) {
        if self.lines == self.published_lines {
            return;
        }
        (self.published_lines, self.published_bytes) = (self.lines, self.bytes);
        // SYNC POINT: room
        self.segment.consumed_lines().store(self.lines, Ordering::Release);
        self.segment.consumed_bytes().store(self.bytes, Ordering::Release);
        self.has_published = true;
    }

    /// Returns whether the producer has asked for room, and clears the request. Returns false at no cost if
    /// this side has published nothing since the last call. At most one call returns true for each request.
    #[inline]
    pub(crate) fn take_room_request(&mut self) -> bool {
        if !mem::take(&mut self.has_published) {
            return false;
        }
        // SYNC POINT: room requested
        fence(Ordering::SeqCst);
        let requested = self.segment.room_requested();
        requested.load(Ordering::Relaxed) != 0 && requested.swap(0, Ordering::Relaxed) != 0
    }

    /// The ways by which large payload comes in, and the choice among them.
    pub(crate) fn ways_mut(&mut self) -> &mut Ways {
        &mut self.ways
    }

    /// Tells the producer for which payload this side wants to pull, if that has changed.
    pub(crate) fn publish_pulled_classes_if_changed(&mut self) {
        if let Some(classes) = self.ways.take_changed_pulled_classes() {
            self.segment.pulled_classes().store(classes, Ordering::Relaxed);
        }
    }

    /// Whether the peer's memory is no longer exposed. If not, everything that the caller has read from that
    /// memory before the call was exposed.
    pub(crate) fn has_exposure_ended(&self) -> bool {
        self.segment.has_exposure_ended()
    }

    /// How the ring ends. Valid once the producer is gone and the consumer has read everything.
    pub(crate) fn ring_end(&self) -> RingEnd {
        // SYNC POINT: finished
        let finished_at = self.segment.finished_at().load(Ordering::Acquire);
        match finished_at.checked_sub(1) {
            _ if self.left_bytes > 0 => RingEnd::Cut,
            None => RingEnd::Open,
            Some(lines) if lines == self.lines => RingEnd::Finished,
            Some(_) => RingEnd::Cut,
        }
    }

    /// The core on which the producer ran when it last waited.
    pub(crate) fn producer_core(&self) -> Option<u32> {
        self.segment.producer_core().load(Ordering::Relaxed).checked_sub(1)
    }

    #[inline(always)]
    fn first_word(&self) -> u64 {
        // SYNC POINT: line
        self.segment.line(self.lines)[0].load(Ordering::Acquire)
    }

    /// Parses and reports the line whose first word is `first`. Reports nothing of a malformed line.
    #[inline]
    fn parse_and_report_line(
        &mut self,
        first: u64,
        staging: &mut Staging,
        link: LinkId,
        receiver: &mut impl FrameHandler,
    ) -> Result<(), WireError> {
        let line = self.segment.line(self.lines);
        // Each word is read once, and only checked values are used.
        match line::parse_line(first, |word| line[word].load(Ordering::Relaxed), &mut self.payload)? {
            Parsed::Frame(..) if self.left_bytes > 0 => return Err(WireError::UnknownKind),
            Parsed::Frame(header, Found::Inline(len_bytes)) => {
                if matches!(header, Header::Data { .. }) {
                    self.ways.short_payload_arrived();
                }
                receiver.frame(link, &header, &self.payload[..len_bytes]);
            }
            Parsed::Frame(header, Found::Outside(area, piece_bytes)) => {
                self.deliver_header_and_first_piece(staging, link, &header, (area, piece_bytes), receiver);
            }
            Parsed::Piece(piece_bytes) => {
                self.check_and_deliver_piece(staging, link, piece_bytes, receiver)?;
            }
        }
        Ok(())
    }

    /// Whether the ring has a large data area.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn is_data_area_large(&self) -> bool {
        self.segment.data_area() == crate::segment::DataArea::LARGE
    }

    /// How many lines were consumed since the ring was created.
    #[cfg(all(any(test, fuzzing), not(loom)))]
    pub(crate) fn line_position(&self) -> u64 {
        self.lines
    }

    /// Reports a frame's header and the first piece of its payload. The piece may be the whole payload.
    fn deliver_header_and_first_piece(
        &mut self,
        staging: &mut Staging,
        link: LinkId,
        header: &Header,
        (area, piece_bytes): (Area, usize),
        receiver: &mut impl FrameHandler,
    ) {
        let len_bytes = header.payload_len_bytes();
        if len_bytes == piece_bytes as u64 && piece_bytes <= FRAME_MAX_BYTES {
            if matches!(header, Header::Data { .. }) {
                self.ways.short_payload_arrived();
            }
            let payload = &mut staging.0[..piece_bytes];
            self.segment.read(area, self.position_in(area), payload);
            receiver.frame(link, header, payload);
            self.advance_area(area, piece_bytes);
        } else {
            receiver.frame_begun(link, header);
            self.left_bytes = len_bytes;
            self.writes_back = self.ways.frame_begun(len_bytes, matches!(header, Header::Data { .. }));
            self.deliver_piece(staging, link, (area, piece_bytes), receiver);
        }
    }

    /// The position of the next piece in an area.
    #[inline]
    fn position_in(&self, area: Area) -> u64 {
        match area {
            Area::Front => self.front_bytes,
            Area::Main => self.bytes,
        }
    }

    /// Checks the length of a further piece of the unfinished frame's payload, and reports the piece.
    fn check_and_deliver_piece(
        &mut self,
        staging: &mut Staging,
        link: LinkId,
        piece_bytes: usize,
        receiver: &mut impl FrameHandler,
    ) -> Result<(), WireError> {
        if self.left_bytes == 0 {
            return Err(WireError::UnknownKind);
        }
        if !line::is_valid_piece_len(piece_bytes, self.left_bytes) {
            return Err(WireError::ImpossibleLength);
        }
        self.deliver_piece(staging, link, (Area::Main, piece_bytes), receiver);
        Ok(())
    }

    /// Copies a piece into the frame handler's space, or through the staging buffer.
    fn deliver_piece(
        &mut self,
        staging: &mut Staging,
        link: LinkId,
        (area, piece_bytes): (Area, usize),
        receiver: &mut impl FrameHandler,
    ) {
        let mut done_bytes = 0;
        let writes_back = self.writes_back && area == Area::Main;
        while done_bytes < piece_bytes {
            let start = self.position_in(area) + done_bytes as u64;
            let left_bytes = piece_bytes - done_bytes;
            let mut placed_bytes = 0;
            for slice in &mut receiver.payload_space(link) {
                let len_bytes = slice.len().min(left_bytes - placed_bytes);
                let place = &mut slice[..len_bytes];
                read_payload(&self.segment, writes_back, area, start + placed_bytes as u64, place);
                placed_bytes += len_bytes;
            }
            if placed_bytes > 0 {
                receiver.bytes_placed(link, placed_bytes);
            } else {
                placed_bytes = left_bytes.min(STAGING_BYTES);
                self.ways.payload_unplaced();
                let bytes = &mut staging.0[..placed_bytes];
                read_payload(&self.segment, writes_back, area, start, bytes);
                receiver.payload_arrived(link, bytes);
            }
            done_bytes += placed_bytes;
        }
        self.advance_area(area, piece_bytes);
        self.left_bytes -= piece_bytes as u64;
        if self.left_bytes == 0 {
            self.ways.frame_ended();
            self.publish_pulled_classes_if_changed();
        }
    }
}

// Not inlined, since that would make the path of shorter messages longer.
#[inline(never)]
fn read_outside(segment: &Segment, area: Area, position: u64, into: &mut [u8]) {
    segment.read(area, position, into);
}

fn read_payload(segment: &Segment, writes_back: bool, area: Area, position: u64, into: &mut [u8]) {
    if writes_back {
        segment.read_and_write_back(position, into);
    } else {
        segment.read(area, position, into);
    }
}
