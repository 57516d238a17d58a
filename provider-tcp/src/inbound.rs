//! The receiving half of a link.

use std::io::{self, IoSliceMut, Read};

use homespun_engine::errno::Errno;
use homespun_engine::transport::{FrameHandler, LinkError, LinkId};
use homespun_engine::wire::WireError;
use homespun_engine::wire::hello::Hello;
use homespun_engine::wire::stream::Decoder;
use mio::net::TcpStream;

use crate::hello::HelloReader;
use crate::limits::{LARGE_FRAME_BYTES, READ_AHEAD_BYTES};
use crate::socket;

/// The error of a link whose peer did not end its stream in order.
const RESET: LinkError = LinkError::System(Errno::ECONNRESET);

/// The receiving half of a link: the state of the peer's stream.
#[derive(Debug)]
pub(crate) struct Inbound {
    state: StreamState,
    /// The kernel has reported the end of the stream or an error, so even after a short read there is
    /// something left to read.
    hung_up: bool,
    /// The last frame that took more than one read was large, so the next frame may be large, too.
    expects_large: bool,
}

#[derive(Debug)]
enum StreamState {
    /// The hello has not yet arrived in full.
    Hello(HelloReader),
    /// Frames follow.
    Frames(Decoder),
    /// This side has closed the link and drops all bytes that still arrive.
    Discard,
}

/// The outcome of one read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// Nothing to read at the moment.
    Blocked,
    /// Something was read.
    Progress {
        /// How many frames and events were reported.
        reported: u32,
        /// The socket is empty, as far as is known.
        drained: bool,
    },
    /// The stream ended between two frames.
    Closed,
    /// The stream broke.
    Broken(LinkError),
}

impl Inbound {
    pub(crate) fn new() -> Inbound {
        Inbound { state: StreamState::Hello(HelloReader::new()), hung_up: false, expects_large: false }
    }

    /// Whether the peer's hello has arrived.
    pub(crate) fn has_received_hello(&self) -> bool {
        !matches!(self.state, StreamState::Hello(_))
    }

    /// Notes that the end of the peer's stream, or an error, follows the bytes that can be read.
    pub(crate) fn mark_hung_up(&mut self) {
        self.hung_up = true;
    }

    /// Drops all bytes that arrive from now on.
    pub(crate) fn start_discarding(&mut self) {
        self.state = StreamState::Discard;
    }

    /// Reads once. When the peer's hello is complete, calls `on_hello` with it and the receiver, before
    /// reporting the first frame. If `on_hello` refuses the peer, the stream breaks with that error, as if
    /// there had been no hello.
    pub(crate) fn read<R: FrameHandler>(
        &mut self,
        id: LinkId,
        stream: &TcpStream,
        buffer: &mut [u8],
        receiver: &mut R,
        on_hello: impl FnOnce(&Hello, &mut R) -> Result<(), LinkError>,
    ) -> ReadOutcome {
        let read_ahead_bytes =
            if self.expects_large { READ_AHEAD_BYTES.min(buffer.len()) } else { buffer.len() };
        let read = match &self.state {
            StreamState::Frames(decoder) if decoder.payload_left() > 0 => {
                read_payload(id, stream, buffer, read_ahead_bytes, receiver)
            }
            _ => read_some(stream, &mut buffer[..read_ahead_bytes]).map(|read_bytes| Filled {
                placed_bytes: 0,
                buffered_bytes: read_bytes,
                is_short: read_bytes < read_ahead_bytes,
            }),
        };
        let filled = match read {
            Ok(filled) => filled,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return ReadOutcome::Blocked,
            Err(error) => return ReadOutcome::Broken(LinkError::System(socket::to_errno(&error))),
        };
        if filled.placed_bytes + filled.buffered_bytes == 0 {
            return self.end_of_stream_outcome();
        }
        match self.feed(id, filled.placed_bytes, &buffer[..filled.buffered_bytes], receiver, on_hello) {
            Ok(reported) => ReadOutcome::Progress { reported, drained: filled.is_short && !self.hung_up },
            Err(error) => ReadOutcome::Broken(error),
        }
    }

    fn feed<R: FrameHandler>(
        &mut self,
        id: LinkId,
        placed_bytes: usize,
        mut bytes: &[u8],
        receiver: &mut R,
        on_hello: impl FnOnce(&Hello, &mut R) -> Result<(), LinkError>,
    ) -> Result<u32, LinkError> {
        let violation = |reason: WireError| LinkError::Protocol(reason.reason());
        let mut reported = 0;
        if let StreamState::Hello(reader) = &mut self.state {
            let Some((hello, rest)) = reader.feed(bytes).map_err(violation)? else { return Ok(0) };
            on_hello(&hello, receiver)?;
            reported += 1;
            bytes = rest;
            self.state = StreamState::Frames(Decoder::new());
        }
        if let StreamState::Frames(decoder) = &mut self.state {
            if placed_bytes > 0 {
                reported += u32::from(decoder.placed(id, placed_bytes, receiver));
            }
            reported += decoder.feed(id, bytes, receiver).map_err(violation)?;
            let left_bytes = decoder.payload_left();
            if left_bytes >= LARGE_FRAME_BYTES {
                self.expects_large = true;
            } else if left_bytes == 0 && placed_bytes == 0 {
                self.expects_large = false;
            }
            // Part of a payload counts as one frame, even if it completes none.
            reported = reported.max(1);
        }
        Ok(reported)
    }

    fn end_of_stream_outcome(&self) -> ReadOutcome {
        match &self.state {
            StreamState::Frames(decoder) if decoder.is_reading_frame() => ReadOutcome::Broken(RESET),
            StreamState::Frames(_) | StreamState::Discard => ReadOutcome::Closed,
            // A peer that ends in order has sent its hello before.
            StreamState::Hello(_) => ReadOutcome::Broken(RESET),
        }
    }
}

/// How many bytes one read has placed in the receiver's space and in the buffer.
struct Filled {
    placed_bytes: usize,
    buffered_bytes: usize,
    /// The read has returned fewer bytes than there was space for.
    is_short: bool,
}

/// Reads payload into the receiver's space, and the bytes that follow it into the buffer, in one system call.
fn read_payload(
    id: LinkId,
    stream: &TcpStream,
    buffer: &mut [u8],
    read_ahead_bytes: usize,
    receiver: &mut impl FrameHandler,
) -> io::Result<Filled> {
    let mut space = receiver.payload_space(id);
    let direct_bytes: usize = space.iter().map(|slice| slice.len()).sum();
    // If the receiver has no space for the payload, read it into the whole buffer.
    let buffer_bytes = if direct_bytes == 0 { buffer.len() } else { read_ahead_bytes };
    space.push(IoSliceMut::new(&mut buffer[..buffer_bytes]));
    let read_bytes = retry_interrupted(|| (&*stream).read_vectored(&mut space))?;
    let placed_bytes = read_bytes.min(direct_bytes);
    Ok(Filled {
        placed_bytes,
        buffered_bytes: read_bytes - placed_bytes,
        is_short: read_bytes < direct_bytes + buffer_bytes,
    })
}

fn read_some(stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    retry_interrupted(|| (&*stream).read(buffer))
}

fn retry_interrupted(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
