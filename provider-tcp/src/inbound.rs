//! The receiving half of a link.

use std::io::{self, IoSliceMut, Read};

use homespun_engine::errno::Errno;
use homespun_engine::transport::{FrameHandler, LinkError, LinkId};
use homespun_engine::wire::WireError;
use homespun_engine::wire::hello::Opening;
use homespun_engine::wire::stream::Decoder;
use mio::net::TcpStream;

use crate::greeter::Greeter;
use crate::hello::{GreetingReader, OpeningReader};
use crate::limits::{LARGE_EXPECTED_READS, LARGE_FRAME_BYTES, READ_AHEAD_BYTES};
use crate::socket;

/// The error of a link whose peer did not end its stream in order.
const RESET: LinkError = LinkError::System(Errno::ECONNRESET);

/// The receiving half of a link: the state of the peer's stream.
#[derive(Debug)]
pub(crate) struct Inbound {
    state: StreamState,
    /// After the bytes that can be read comes the end of the stream, or an error. So even after a short
    /// read, something is left to read.
    hung_up: bool,
    /// For how many more reads without a large frame the link expects one.
    large_expected_reads: u32,
}

#[derive(Debug)]
enum StreamState {
    /// A peer has connected. Its hello or first question has not yet arrived in full.
    Opening(OpeningReader),
    /// A peer has connected to ask questions. The number says how many have arrived.
    Questions(OpeningReader, usize),
    /// The claim of the peer's hello is contested, so nothing is read.
    Held,
    /// The acceptor's greeting has not yet arrived in full.
    Greeting(Box<GreetingReader>),
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
    pub(crate) fn new(is_accepted: bool) -> Inbound {
        let state = if is_accepted {
            StreamState::Opening(OpeningReader::new())
        } else {
            StreamState::Greeting(Box::new(GreetingReader::new()))
        };
        Inbound { state, hung_up: false, large_expected_reads: 0 }
    }

    /// Whether a peer has connected and not said hello.
    pub(crate) fn awaits_hello(&self) -> bool {
        matches!(self.state, StreamState::Opening(_) | StreamState::Questions(..))
    }

    pub(crate) fn is_within_payload(&self) -> bool {
        matches!(&self.state, StreamState::Frames(decoder) if decoder.payload_left() > 0)
    }

    /// Whether the link reads frames: the peer's hello or greeting is complete, and the link is neither held
    /// nor being closed.
    #[inline]
    pub(crate) fn carries_frames(&self) -> bool {
        matches!(self.state, StreamState::Frames(_))
    }

    /// Whether this side holds the link.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state, StreamState::Held)
    }

    /// Makes a connected link take no frames before the acceptor's greeting.
    pub(crate) fn hold_frames_until_greeting(&mut self) {
        if let StreamState::Greeting(reader) = &mut self.state {
            reader.hold_frames();
        }
    }

    /// Whether the link takes no frames before the acceptor says so.
    pub(crate) fn is_held_by_acceptor(&self) -> bool {
        matches!(&self.state, StreamState::Greeting(reader) if reader.is_held())
    }

    /// Whether the peer's stream ends, or has an error, after the bytes that can be read.
    pub(crate) fn is_hung_up(&self) -> bool {
        self.hung_up
    }

    /// The first bytes of the peer's stream, until they are a valid hello or question.
    pub(crate) fn opening_bytes(&self) -> &[u8] {
        match &self.state {
            StreamState::Opening(reader) => reader.arrived(),
            _ => &[],
        }
    }

    /// Lets a held link be read.
    pub(crate) fn start_reading_frames(&mut self) {
        self.state = StreamState::Frames(Decoder::new());
    }

    /// Records that the peer's stream ends, or has an error, after the bytes that can be read.
    pub(crate) fn mark_hung_up(&mut self) {
        self.hung_up = true;
    }

    /// Drops all bytes that arrive from now on.
    pub(crate) fn start_discarding(&mut self) {
        self.state = StreamState::Discard;
    }

    /// Reads once. Passes what precedes the frames to the `greeter`. If the greeter refuses the peer, the
    /// outcome is [`Broken`](ReadOutcome::Broken) with the greeter's error. On an accepted connection, reads
    /// nothing beyond the peer's hello until the hello is complete: the link may have to be held.
    pub(crate) fn read<R: FrameHandler>(
        &mut self,
        id: LinkId,
        stream: &TcpStream,
        buffer: &mut [u8],
        receiver: &mut R,
        greeter: Option<&mut Greeter<'_>>,
    ) -> ReadOutcome {
        let max_bytes = match &self.state {
            StreamState::Opening(reader) => reader.missing_bytes(),
            _ if self.large_expected_reads > 0 => READ_AHEAD_BYTES,
            _ => buffer.len(),
        };
        let read_ahead_bytes = max_bytes.min(buffer.len());
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
        match self.feed(id, filled.placed_bytes, &buffer[..filled.buffered_bytes], receiver, greeter) {
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
        greeter: Option<&mut Greeter<'_>>,
    ) -> Result<u32, LinkError> {
        let mut reported = 0;
        if let Some(greeter) = greeter {
            (reported, bytes) = self.feed_before_frames(bytes, receiver, greeter)?;
        }
        if let StreamState::Frames(decoder) = &mut self.state {
            if placed_bytes > 0 {
                reported += u32::from(decoder.report_placed_bytes(id, placed_bytes, receiver));
            }
            let frames = decoder.feed(id, bytes, receiver)?;
            reported += frames;
            let left_bytes = decoder.payload_left();
            let begun = frames + u32::from(left_bytes > 0);
            let bytes_per_frame = (left_bytes + bytes.len() as u64) / u64::from(begun.max(1));
            if bytes_per_frame >= LARGE_FRAME_BYTES {
                self.large_expected_reads = LARGE_EXPECTED_READS;
            } else if left_bytes == 0 && placed_bytes == 0 {
                self.large_expected_reads = self.large_expected_reads.saturating_sub(1);
            }
            // Part of a payload counts as one frame, even if no frame is complete.
            reported = reported.max(1);
        }
        Ok(reported)
    }

    /// Handles bytes that precede the frames. Returns how many events it has reported, and the bytes that
    /// follow.
    fn feed_before_frames<'a, R: FrameHandler>(
        &mut self,
        mut bytes: &'a [u8],
        receiver: &mut R,
        greeter: &mut Greeter<'_>,
    ) -> Result<(u32, &'a [u8]), LinkError> {
        loop {
            match &mut self.state {
                StreamState::Opening(reader) => {
                    let Some((opening, rest)) = reader.feed(bytes)? else { break };
                    bytes = rest;
                    match opening {
                        Opening::Hello(hello) if greeter.handle_hello(&hello, receiver)? => {
                            self.state = StreamState::Held;
                            break;
                        }
                        Opening::Hello(_) => {
                            self.state = StreamState::Frames(Decoder::new());
                            return Ok((1, bytes));
                        }
                        Opening::Question(question) => {
                            greeter.handle_question(question, 1)?;
                            self.state = StreamState::Questions(OpeningReader::new(), 1);
                        }
                    }
                }
                StreamState::Questions(reader, count) => {
                    let Some((opening, rest)) = reader.feed(bytes)? else { break };
                    bytes = rest;
                    let Opening::Question(question) = opening else {
                        return Err(WireError::OutOfTurn.into());
                    };
                    *count += 1;
                    greeter.handle_question(question, *count)?;
                }
                StreamState::Greeting(reader) => {
                    let Some((greeting, rest)) = reader.feed(bytes)? else { break };
                    bytes = rest;
                    if greeter.handle_greeting(&greeting, receiver)? {
                        self.state = StreamState::Frames(Decoder::new());
                        return Ok((1, bytes));
                    }
                }
                StreamState::Held | StreamState::Frames(_) | StreamState::Discard => break,
            }
        }
        Ok((0, bytes))
    }

    fn end_of_stream_outcome(&self) -> ReadOutcome {
        match &self.state {
            StreamState::Frames(decoder) if decoder.is_reading_frame() => ReadOutcome::Broken(RESET),
            StreamState::Frames(_) | StreamState::Discard => ReadOutcome::Closed,
            // An end is orderly only after the peer's hello. If this side has connected the link, an end is
            // orderly only after the acceptor has admitted the link.
            StreamState::Opening(_) | StreamState::Held | StreamState::Greeting(_) => {
                ReadOutcome::Broken(RESET)
            }
            StreamState::Questions(..) => ReadOutcome::Closed,
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

/// In one system call, reads payload into the receiver's space and the bytes after it into the buffer.
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
