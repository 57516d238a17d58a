//! Operations on owned memory. The application hands over memory, and gets it back with the completion, or
//! with the error of a refused call.

use bytes::{Bytes, BytesMut};
use homespun_engine::buffer::{Buffer, Destination, ReusableBuffer, Source};
use homespun_engine::rejected::Rejected;

/// Memory that an application hands over: one buffer, or several.
pub(crate) trait Owned: Sized {
    /// The engine's form of the memory.
    type Lent;

    /// Returns the memory if it is one buffer to send.
    #[inline(always)]
    fn as_single_bytes(&mut self) -> Option<&mut Bytes> {
        None
    }

    /// Hands the memory to the engine.
    fn lend(self) -> Result<Self::Lent, Rejected<Self>>;

    /// Returns the memory in the form in which it is handed back.
    fn into_buffer(self) -> Buffer;

    /// Returns the memory that the engine has handed back.
    fn from_buffer(buffer: Buffer) -> Self;
}

impl Owned for Bytes {
    type Lent = Source;

    #[inline(always)]
    fn as_single_bytes(&mut self) -> Option<&mut Bytes> {
        Some(self)
    }

    fn lend(self) -> Result<Source, Rejected<Bytes>> {
        Ok(Source::owned(self))
    }

    fn into_buffer(self) -> Buffer {
        Buffer::Sent(self)
    }

    fn from_buffer(buffer: Buffer) -> Bytes {
        buffer.into_sent().unwrap_or_default()
    }
}

impl Owned for Vec<Bytes> {
    type Lent = Source;

    fn lend(self) -> Result<Source, Rejected<Vec<Bytes>>> {
        Source::owned_vector(self)
    }

    fn into_buffer(self) -> Buffer {
        Buffer::SentVector(self)
    }

    fn from_buffer(buffer: Buffer) -> Vec<Bytes> {
        buffer.into_sent_vector().unwrap_or_default()
    }
}

impl Owned for BytesMut {
    type Lent = Destination;

    fn lend(self) -> Result<Destination, Rejected<BytesMut>> {
        Ok(Destination::owned(self))
    }

    fn into_buffer(self) -> Buffer {
        Buffer::Received(self)
    }

    fn from_buffer(buffer: Buffer) -> BytesMut {
        buffer.into_received().unwrap_or_default()
    }
}

impl Owned for ReusableBuffer {
    type Lent = Destination;

    fn lend(self) -> Result<Destination, Rejected<ReusableBuffer>> {
        Ok(Destination::reusable(self))
    }

    fn into_buffer(self) -> Buffer {
        Buffer::Reusable(self)
    }

    fn from_buffer(buffer: Buffer) -> ReusableBuffer {
        let mut unused = buffer.into_reusable().unwrap_or_default();
        unused.clear();
        unused
    }
}

impl Owned for Vec<BytesMut> {
    type Lent = Destination;

    fn lend(self) -> Result<Destination, Rejected<Vec<BytesMut>>> {
        Destination::owned_vector(self)
    }

    fn into_buffer(self) -> Buffer {
        Buffer::ReceivedVector(self)
    }

    fn from_buffer(buffer: Buffer) -> Vec<BytesMut> {
        buffer.into_received_vector().unwrap_or_default()
    }
}
