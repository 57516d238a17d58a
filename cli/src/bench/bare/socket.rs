//! A non-blocking TCP socket, polled.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use super::poller::BarePoller;
use super::{BLANK, Loop};
use crate::bench::step::Step;
use crate::exchange::measure;
use crate::failure::CommandFailure;

/// While more messages follow, each write offers the kernel at least this many bytes. So small one-way
/// messages share a write.
const WRITE_MIN_BYTES: usize = 64 * 1024;

/// One end of a connection. It polls for messages.
#[derive(Debug)]
pub(super) struct Socket<'a> {
    stream: &'a TcpStream,
    poller: &'a BarePoller,
    size_bytes: usize,
    source: Vec<u8>,
    /// The receive buffer, filled from the start again once it is full.
    buffer: Vec<u8>,
    at: usize,
}

/// Prepares a connection: sets TCP_NODELAY, and makes the socket non-blocking.
pub(super) fn set_nodelay_and_nonblocking(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)
}

impl<'a> Socket<'a> {
    pub(super) fn new(stream: &'a TcpStream, poller: &'a BarePoller, step: &Step) -> Socket<'a> {
        let run = &step.run;
        // A stream does not transfer empty messages, so send at least one byte.
        let size_bytes = run.size_bytes.max(1);
        let source = vec![1; size_bytes.max(WRITE_MIN_BYTES)];
        let window_bytes = size_bytes * measure::receive_depth(step.metric, run) as usize;
        let buffer = vec![BLANK; window_bytes.max(WRITE_MIN_BYTES)];
        Socket { stream, poller, size_bytes, source, buffer, at: 0 }
    }

    fn write(&mut self, mut count_bytes: u64) -> Result<(), CommandFailure> {
        let Socket { mut stream, poller, ref source, .. } = *self;
        while count_bytes > 0 {
            let piece = &source[..clamped_len(source.len(), count_bytes)];
            count_bytes -= poller.poll_until_some(|| bytes_unless_would_block(stream.write(piece)))? as u64;
        }
        Ok(())
    }

    fn read(&mut self, mut count_bytes: u64) -> Result<(), CommandFailure> {
        while count_bytes > 0 {
            if self.at == self.buffer.len() {
                self.at = 0;
            }
            let room = &mut self.buffer[self.at..];
            let len_bytes = clamped_len(room.len(), count_bytes);
            let mut stream = self.stream;
            let read = self
                .poller
                .poll_until_some(|| bytes_unless_would_block(stream.read(&mut room[..len_bytes])))?;
            self.at += read;
            count_bytes -= read as u64;
        }
        Ok(())
    }

    fn total_bytes_of_messages(&self, count: u32) -> u64 {
        self.size_bytes as u64 * u64::from(count)
    }
}

impl Loop for Socket<'_> {
    fn send(&mut self) -> Result<(), CommandFailure> {
        self.write(self.total_bytes_of_messages(1))
    }

    fn receive(&mut self) -> Result<(), CommandFailure> {
        self.read(self.total_bytes_of_messages(1))
    }

    fn send_many(&mut self, count: u32) -> Result<(), CommandFailure> {
        self.write(self.total_bytes_of_messages(count))
    }

    fn receive_many(&mut self, count: u32) -> Result<(), CommandFailure> {
        self.read(self.total_bytes_of_messages(count))
    }

    fn send_signal(&mut self) -> Result<(), CommandFailure> {
        self.write(1)
    }

    fn await_signal(&mut self) -> Result<(), CommandFailure> {
        self.read(1)
    }
}

fn clamped_len(len_bytes: usize, count_bytes: u64) -> usize {
    usize::try_from(count_bytes).map_or(len_bytes, |count_bytes| count_bytes.min(len_bytes))
}

/// The number of bytes that a call read or wrote. `None` if the call would block.
fn bytes_unless_would_block(result: io::Result<usize>) -> Result<Option<usize>, CommandFailure> {
    match result {
        Ok(0) => Err(CommandFailure::PeerGone),
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(CommandFailure::Bare { doing: "using a socket", error }),
    }
}
