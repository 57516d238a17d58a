//! The sending half of a link.

use std::io::{self, IoSlice};

use homespun_engine::errno::Errno;
use homespun_engine::limits::IOV_LIMIT;
use homespun_engine::transport::{Full, Sent};
use homespun_engine::wire::Header;
use homespun_engine::wire::frame::{self, HEADER_MAX_BYTES};
use smallvec::SmallVec;

use crate::limits::INLINE_MAX_BYTES;
use crate::socket::{self, SendSocket};
use crate::staging::{SpareBuffers, Staging};

/// Staging (which may wrap), header and payload, in the order in which they leave.
type Slices<'a> = SmallVec<[IoSlice<'a>; IOV_LIMIT + 3]>;

/// What is on its way to the peer, and whether more can be.
#[derive(Debug)]
pub(crate) struct Outbound {
    staging: Staging,
    /// A frame was taken whose payload is not finished; nothing else may come between.
    unfinished: bool,
    write_state: WriteState,
}

/// Whether a write is worth a system call.
#[derive(Debug)]
enum WriteState {
    /// The connection is being made.
    Connecting,
    /// As far as is known there is room in the kernel's buffer.
    Writable,
    /// There was none; the kernel reports when there is again.
    Blocked,
    /// A write failed with this error; none is attempted again.
    Failed(Errno),
}

impl Outbound {
    /// The sending half of a new link.
    pub(crate) fn new(connected: bool) -> Outbound {
        let write_state = if connected { WriteState::Writable } else { WriteState::Connecting };
        Outbound { staging: Staging::default(), unfinished: false, write_state }
    }

    /// Stages the hello, which comes before all frames.
    pub(crate) fn greet(&mut self, hello: &[u8], spare: &mut SpareBuffers) {
        self.staging.append(hello, spare);
    }

    /// Notes that the connection was made, or that the kernel reported the socket writable or broken: the next write
    /// will tell.
    pub(crate) fn mark_writable(&mut self) {
        if self.failure().is_none() {
            self.write_state = WriteState::Writable;
        }
    }

    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self.write_state, WriteState::Connecting)
    }

    /// Why nothing can be written any more.
    pub(crate) fn failure(&self) -> Option<Errno> {
        match self.write_state {
            WriteState::Failed(errno) => Some(errno),
            _ => None,
        }
    }

    /// Gives up with an error that was found otherwise than by a write.
    pub(crate) fn fail(&mut self, errno: Errno) {
        self.write_state = WriteState::Failed(errno);
    }

    /// Whether something is staged.
    pub(crate) fn has_staged(&self) -> bool {
        !self.staging.is_empty()
    }

    /// Whether the stream can end here without the peer missing anything.
    pub(crate) fn is_complete(&self) -> bool {
        self.staging.is_empty() && !self.unfinished
    }

    /// Copies a frame in whole, or takes nothing of it. Writes only to make room.
    pub(crate) fn stage(
        &mut self,
        socket: &impl SendSocket,
        header: &Header,
        payload: &[IoSlice<'_>],
        spare: &mut SpareBuffers,
    ) -> Result<(), Full> {
        // While the connection is being made nothing is taken: what was taken could fail in silence.
        if self.unfinished || self.is_connecting() || self.failure().is_some() {
            return Err(Full);
        }
        let mut head = [0; HEADER_MAX_BYTES];
        let head_bytes = frame::emit(header, &mut head);
        let frame_bytes = head_bytes + total_bytes(payload);
        if !self.staging.has_room(frame_bytes) {
            self.flush(socket, spare);
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

    /// Copies a small frame, or writes a larger one from where it lies, behind what is staged.
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
            return match self.stage(socket, header, payload, spare) {
                Ok(()) => Sent::Whole,
                Err(Full) => Sent::Full,
            };
        }
        if self.unfinished {
            return Sent::Full;
        }
        let mut head = [0; HEADER_MAX_BYTES];
        let head_bytes = frame::emit(header, &mut head);
        let beyond_staged = self.write(socket, &head[..head_bytes], payload, spare);
        if beyond_staged == 0 {
            return Sent::Full;
        }
        let Some(taken) = beyond_staged.checked_sub(head_bytes) else {
            // Part of the header is with the kernel, so the frame is begun and the rest must follow.
            self.staging.append(&head[beyond_staged..head_bytes], spare);
            self.unfinished = true;
            return Sent::Partial(0);
        };
        self.unfinished = taken < payload_bytes;
        if self.unfinished { Sent::Partial(taken) } else { Sent::Whole }
    }

    /// Goes on with the unfinished frame.
    pub(crate) fn resume(
        &mut self,
        socket: &impl SendSocket,
        rest: &[IoSlice<'_>],
        spare: &mut SpareBuffers,
    ) -> Sent {
        debug_assert!(self.unfinished, "no frame to go on with");
        let rest_bytes = total_bytes(rest);
        let taken = self.write(socket, &[], rest, spare);
        if taken == rest_bytes {
            self.unfinished = false;
            Sent::Whole
        } else if taken > 0 {
            Sent::Partial(taken)
        } else {
            Sent::Full
        }
    }

    /// Writes what is staged, as far as it goes.
    pub(crate) fn flush(&mut self, socket: &impl SendSocket, spare: &mut SpareBuffers) {
        while !self.staging.is_empty() && self.may_write() {
            self.write(socket, &[], &[], spare);
        }
    }

    /// Whether a write is worth a system call.
    pub(crate) fn may_write(&self) -> bool {
        matches!(self.write_state, WriteState::Writable)
    }

    /// Writes staging, header and payload in one system call, if one is worth it, and returns how many bytes beyond
    /// the staged ones left.
    fn write(
        &mut self,
        socket: &impl SendSocket,
        head: &[u8],
        payload: &[IoSlice<'_>],
        spare: &mut SpareBuffers,
    ) -> usize {
        if !self.may_write() {
            return 0;
        }
        let staged_bytes = self.staging.len_bytes();
        let written = {
            let staged = self.staging.slices();
            let own = staged.into_iter().chain([IoSlice::new(head)]);
            let slices: Slices<'_> =
                own.chain(payload.iter().copied()).filter(|slice| !slice.is_empty()).collect();
            let offered_bytes = total_bytes(&slices);
            self.write_state.write(socket, &slices, offered_bytes)
        };
        let from_staging = written.min(staged_bytes);
        self.staging.consume(from_staging, spare);
        written - from_staging
    }
}

impl WriteState {
    /// Writes, and learns from how it went.
    fn write(&mut self, socket: &impl SendSocket, slices: &[IoSlice<'_>], offered_bytes: usize) -> usize {
        loop {
            return match socket.send(slices) {
                Ok(written) => {
                    // The kernel takes less than it is offered only when its buffer is full, and reports room later.
                    *self = if written < offered_bytes { WriteState::Blocked } else { WriteState::Writable };
                    written
                }
                Err(error) => {
                    match error.kind() {
                        io::ErrorKind::Interrupted => continue,
                        io::ErrorKind::WouldBlock => *self = WriteState::Blocked,
                        _ => *self = WriteState::Failed(socket::errno(&error)),
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
