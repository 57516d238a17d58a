//! The sending half of a link.

use std::io::{self, IoSlice};
use std::mem;

use homespun_engine::errno::Errno;
use homespun_engine::limits::IOV_LIMIT;
use homespun_engine::transport::{Full, Sent};
use homespun_engine::wire::Header;
use homespun_engine::wire::frame::{self, HEADER_MAX_BYTES};
use smallvec::SmallVec;

use crate::limits::INLINE_MAX_BYTES;
use crate::socket::{self, Departure, SendSocket};
use crate::staging::{SpareBuffers, Staging};

/// The slices of one write, in order: staging (up to two slices, since the buffer may wrap), header,
/// payload.
type Slices<'a> = SmallVec<[IoSlice<'a>; IOV_LIMIT + 3]>;

/// The sending half of a link: staged bytes, and whether more can be written.
#[derive(Debug)]
pub(crate) struct Outbound {
    staging: Staging,
    /// The link has taken a part of a frame. The rest must be written before any other frame.
    unfinished: bool,
    /// The kernel may hold back bytes that the link has written.
    may_hold_back: bool,
    write_state: WriteState,
}

/// Whether a write is worth a system call.
#[derive(Debug)]
enum WriteState {
    /// The connection is being made.
    Connecting,
    /// The kernel's buffer has room, as far as is known.
    Writable,
    /// The kernel's buffer is full. The kernel reports when the buffer has room again.
    Blocked,
    /// A write, the connect or the shutdown has failed with this error. No write follows.
    Failed(Errno),
}

impl Outbound {
    /// The sending half of a new link.
    pub(crate) fn new(is_connected: bool) -> Outbound {
        let write_state = if is_connected { WriteState::Writable } else { WriteState::Connecting };
        Outbound { staging: Staging::default(), unfinished: false, may_hold_back: false, write_state }
    }

    /// Stages bytes that precede all frames.
    pub(crate) fn stage_bytes(&mut self, bytes: &[u8], spare: &mut SpareBuffers) {
        self.staging.append(bytes, spare);
    }

    /// Allows writes again. Called when the connection is made, or when the kernel reports that the socket
    /// is writable or broken. If the socket is broken, the next write shows that.
    pub(crate) fn mark_writable(&mut self) {
        if self.failure().is_none() {
            self.write_state = WriteState::Writable;
        }
    }

    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self.write_state, WriteState::Connecting)
    }

    /// The error after which nothing can be written any more, if there was one.
    pub(crate) fn failure(&self) -> Option<Errno> {
        match self.write_state {
            WriteState::Failed(errno) => Some(errno),
            _ => None,
        }
    }

    /// Stops writing because of an error that did not come from a write.
    pub(crate) fn mark_failed(&mut self, errno: Errno) {
        self.write_state = WriteState::Failed(errno);
    }

    /// Whether staging holds any bytes.
    pub(crate) fn has_staged(&self) -> bool {
        !self.staging.is_empty()
    }

    /// Whether the stream can end here without a loss of frames that the link has taken.
    pub(crate) fn can_end_stream(&self) -> bool {
        self.staging.is_empty() && !self.unfinished
    }

    /// Copies a frame to staging, whole or not at all. Writes to the socket only to make room in staging.
    pub(crate) fn stage_frame(
        &mut self,
        socket: &impl SendSocket,
        header: &Header,
        payload: &[IoSlice<'_>],
        spare: &mut SpareBuffers,
    ) -> Result<(), Full> {
        // Take nothing before the connection is made: if the connect failed, the frame would be lost.
        if self.unfinished || self.is_connecting() || self.failure().is_some() {
            return Err(Full);
        }
        let mut head = [0; HEADER_MAX_BYTES];
        let head_bytes = frame::emit(header, &mut head);
        let frame_bytes = head_bytes + total_bytes(payload);
        if !self.staging.has_room(frame_bytes) {
            self.flush(socket, Departure::Now, spare);
            if !self.staging.has_room(frame_bytes) || self.failure().is_some() {
                return Err(Full);
            }
        }
        self.staging.append(&head[..head_bytes], spare);
        for slice in payload {
            self.staging.append(slice, spare);
        }
        Ok(())
    }

    /// Sends a frame after the staged bytes. Copies a small frame to staging, and writes a larger frame
    /// without a copy.
    pub(crate) fn send(
        &mut self,
        socket: &impl SendSocket,
        header: &Header,
        payload: &[IoSlice<'_>],
        spare: &mut SpareBuffers,
    ) -> Sent {
        let payload_bytes = total_bytes(payload);
        debug_assert_eq!(payload_bytes as u64, header.payload_len_bytes(), "a payload of another length");
        if payload_bytes <= INLINE_MAX_BYTES {
            return match self.stage_frame(socket, header, payload, spare) {
                Ok(()) => Sent::Whole,
                Err(Full) => Sent::Full,
            };
        }
        if self.unfinished {
            return Sent::Full;
        }
        let mut head = [0; HEADER_MAX_BYTES];
        let head_bytes = frame::emit(header, &mut head);
        let beyond_staged =
            self.write_behind_staged(socket, &head[..head_bytes], payload, Departure::Now, spare);
        if beyond_staged == 0 {
            return Sent::Full;
        }
        let Some(taken) = beyond_staged.checked_sub(head_bytes) else {
            // The kernel has taken only a part of the header. The rest goes to staging, so the link has
            // taken the header, and the payload must follow.
            self.staging.append(&head[beyond_staged..head_bytes], spare);
            self.unfinished = true;
            return Sent::Partial(0);
        };
        self.unfinished = taken < payload_bytes;
        if self.unfinished { Sent::Partial(taken) } else { Sent::Whole }
    }

    /// Continues the unfinished frame.
    pub(crate) fn resume(
        &mut self,
        socket: &impl SendSocket,
        rest: &[IoSlice<'_>],
        spare: &mut SpareBuffers,
    ) -> Sent {
        debug_assert!(self.unfinished, "no frame to go on with");
        let rest_bytes = total_bytes(rest);
        let taken = self.write_behind_staged(socket, &[], rest, Departure::Now, spare);
        if taken == rest_bytes {
            self.unfinished = false;
            Sent::Whole
        } else if taken > 0 {
            Sent::Partial(taken)
        } else {
            Sent::Full
        }
    }

    /// Writes staged bytes until the kernel's buffer is full.
    pub(crate) fn flush(&mut self, socket: &impl SendSocket, departure: Departure, spare: &mut SpareBuffers) {
        while !self.staging.is_empty() && self.can_write() {
            self.write_behind_staged(socket, &[], &[], departure, spare);
        }
    }

    /// Makes the kernel send the bytes that it holds back.
    pub(crate) fn push_held(&mut self, socket: &impl SendSocket) {
        if mem::take(&mut self.may_hold_back)
            && self.failure().is_none()
            && let Err(error) = socket.push()
        {
            // The kernel sends the bytes later. If the connection is broken, the next read shows that.
            tracing::trace!(%error, "held bytes were not pushed");
        }
    }

    /// Whether the kernel may hold back bytes that the link has written.
    pub(crate) fn may_hold_back(&self) -> bool {
        self.may_hold_back
    }

    /// How many bytes are staged.
    pub(crate) fn staged_bytes(&self) -> usize {
        self.staging.len_bytes()
    }

    /// Whether a write is worth a system call.
    pub(crate) fn can_write(&self) -> bool {
        matches!(self.write_state, WriteState::Writable)
    }

    /// If `can_write`, writes staging, header and payload in one system call. Returns how many bytes of
    /// header and payload the kernel has taken.
    fn write_behind_staged(
        &mut self,
        socket: &impl SendSocket,
        head: &[u8],
        payload: &[IoSlice<'_>],
        departure: Departure,
        spare: &mut SpareBuffers,
    ) -> usize {
        if !self.can_write() {
            return 0;
        }
        let staged_bytes = self.staging.len_bytes();
        let written = {
            let staged = self.staging.as_slices();
            let own = staged.into_iter().chain([IoSlice::new(head)]);
            let slices: Slices<'_> =
                own.chain(payload.iter().copied()).filter(|slice| !slice.is_empty()).collect();
            let offered_bytes = total_bytes(&slices);
            self.write_state.write_and_update(socket, &slices, offered_bytes, departure)
        };
        if written > 0 {
            self.may_hold_back = departure == Departure::WithNext;
        }
        let from_staging = written.min(staged_bytes);
        self.staging.consume(from_staging, spare);
        written - from_staging
    }
}

impl WriteState {
    /// Writes to the socket, and updates the state. Returns how many bytes the kernel has taken.
    fn write_and_update(
        &mut self,
        socket: &impl SendSocket,
        slices: &[IoSlice<'_>],
        offered_bytes: usize,
        departure: Departure,
    ) -> usize {
        loop {
            return match socket.send(slices, departure) {
                Ok(written) => {
                    // The kernel takes fewer bytes only if its buffer is full. It later reports when there
                    // is room.
                    *self = if written < offered_bytes { WriteState::Blocked } else { WriteState::Writable };
                    written
                }
                Err(error) => {
                    match error.kind() {
                        io::ErrorKind::Interrupted => continue,
                        io::ErrorKind::WouldBlock => *self = WriteState::Blocked,
                        _ => *self = WriteState::Failed(socket::to_errno(&error)),
                    }
                    0
                }
            };
        }
    }
}

fn total_bytes(slices: &[IoSlice<'_>]) -> usize {
    slices.iter().map(|slice| slice.len()).sum()
}

#[cfg(test)]
mod tests;
