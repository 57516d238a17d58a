//! The decoder that splits the byte stream of a link into frames.

use crate::transport::{FrameHandler, LinkId};
use crate::wire::error::WireError;
use crate::wire::frame::{self, HEADER_MAX_BYTES};
use crate::wire::header::Header;

/// Splits the bytes after the hello of one link into frames, and reports the frames to a [`FrameHandler`].
///
/// The caller passes bytes to [`feed`](Self::feed), in pieces of any size. While
/// [`payload_left`](Self::payload_left) is not zero, the caller may instead read the next bytes straight
/// into [`FrameHandler::payload_space`], and then call [`report_placed_bytes`](Self::report_placed_bytes).
///
/// The decoder keeps the start of an incomplete header, at most [`HEADER_MAX_BYTES`], and never any payload.
#[derive(Debug)]
pub struct Decoder {
    state: State,
}

#[derive(Debug)]
enum State {
    /// Inside a header, or between frames if the partial header is empty.
    Header(PartialHeader),
    /// Inside a payload, of which at least one byte is left.
    Payload { left_bytes: u64 },
    /// The peer broke the protocol.
    Refused(WireError),
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// Returns a decoder at the start of a stream of frames.
    pub fn new() -> Decoder {
        Decoder { state: State::Header(PartialHeader::EMPTY) }
    }

    /// Consumes `bytes`, the next part of the stream. Returns how many frames these bytes complete.
    ///
    /// If all payload of a frame lies in `bytes`, the frame goes to [`FrameHandler::frame`], without a copy.
    /// Otherwise the header goes to [`FrameHandler::frame_begun`], and the payload to
    /// [`FrameHandler::payload_arrived`]. This call never uses [`FrameHandler::payload_space`].
    ///
    /// # Errors
    ///
    /// The peer broke the protocol. The decoder has reported all earlier frames, and reports nothing more.
    /// Every later call with bytes returns the same error.
    pub fn feed(
        &mut self,
        link: LinkId,
        mut bytes: &[u8],
        receiver: &mut impl FrameHandler,
    ) -> Result<u32, WireError> {
        let mut frames = 0;
        while !bytes.is_empty() {
            match &mut self.state {
                State::Header(partial) => {
                    let (header, rest) = match partial.try_complete(bytes) {
                        Ok(Some(complete)) => complete,
                        Ok(None) => break,
                        Err(reason) => {
                            self.state = State::Refused(reason);
                            return Err(reason);
                        }
                    };
                    bytes = rest;
                    let len_bytes = header.payload_len_bytes();
                    if let Some((payload, rest)) = split_at_u64(bytes, len_bytes) {
                        receiver.frame(link, &header, payload);
                        bytes = rest;
                        frames += 1;
                    } else {
                        receiver.frame_begun(link, &header);
                        self.state = State::Payload { left_bytes: len_bytes };
                    }
                }
                State::Payload { left_bytes } => {
                    let (chunk, rest) = split_at_u64(bytes, *left_bytes).unwrap_or((bytes, &[]));
                    receiver.payload_arrived(link, chunk);
                    bytes = rest;
                    frames += u32::from(self.advance_payload_and_check_end(chunk.len()));
                }
                State::Refused(reason) => return Err(*reason),
            }
        }
        Ok(frames)
    }

    /// Returns how many payload bytes the unfinished frame still lacks; 0 outside a payload.
    pub fn payload_left(&self) -> u64 {
        match self.state {
            State::Payload { left_bytes } => left_bytes,
            State::Header(_) | State::Refused(_) => 0,
        }
    }

    /// Reports that the caller has put the next `count_bytes` of the stream at the start of
    /// [`FrameHandler::payload_space`]. All of these bytes must be payload of the unfinished frame. Returns
    /// whether the frame is now complete.
    pub fn report_placed_bytes(
        &mut self,
        link: LinkId,
        count_bytes: usize,
        receiver: &mut impl FrameHandler,
    ) -> bool {
        receiver.bytes_placed(link, count_bytes);
        self.advance_payload_and_check_end(count_bytes)
    }

    /// Whether a frame is incomplete. A stream that ends now has been cut.
    pub fn is_reading_frame(&self) -> bool {
        match &self.state {
            State::Header(partial) => partial.len_bytes > 0,
            State::Payload { .. } => true,
            State::Refused(_) => false,
        }
    }

    /// Subtracts arrived payload bytes from the bytes that the frame still lacks. Returns whether the frame
    /// is now complete.
    fn advance_payload_and_check_end(&mut self, count_bytes: usize) -> bool {
        let count_bytes = count_bytes as u64;
        debug_assert!(count_bytes <= self.payload_left(), "more bytes than the frame has left");
        match &mut self.state {
            State::Payload { left_bytes } if *left_bytes > count_bytes => {
                *left_bytes -= count_bytes;
                false
            }
            State::Payload { .. } => {
                self.state = State::Header(PartialHeader::EMPTY);
                true
            }
            State::Header(_) | State::Refused(_) => false,
        }
    }
}

/// The start of a header whose end has not arrived yet.
#[derive(Debug)]
struct PartialHeader {
    start: [u8; HEADER_MAX_BYTES],
    len_bytes: usize,
}

impl PartialHeader {
    const EMPTY: PartialHeader = PartialHeader { start: [0; HEADER_MAX_BYTES], len_bytes: 0 };

    /// Adds `bytes`. If the header is now complete, returns the header and the bytes after it, and becomes
    /// empty. Otherwise keeps the bytes and returns `None`.
    fn try_complete<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Header, &'a [u8])>, WireError> {
        if self.len_bytes == 0
            && let Some((header, len_bytes)) = frame::parse(bytes)?
        {
            return Ok(Some((header, &bytes[len_bytes..])));
        }
        let free = &mut self.start[self.len_bytes..];
        let kept_bytes = free.len().min(bytes.len());
        free[..kept_bytes].copy_from_slice(&bytes[..kept_bytes]);
        let known = &self.start[..self.len_bytes + kept_bytes];
        if let Some((header, len_bytes)) = frame::parse(known)? {
            let rest = &bytes[len_bytes - self.len_bytes..];
            self.len_bytes = 0;
            return Ok(Some((header, rest)));
        }
        self.len_bytes = known.len();
        Ok(None)
    }
}

/// Returns the first `at` bytes and the rest, or `None` if there are fewer.
fn split_at_u64(bytes: &[u8], at: u64) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(usize::try_from(at).ok()?)
}

#[cfg(test)]
mod tests;
