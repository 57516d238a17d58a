//! The owned tier of posting: memory is handed over, and comes back with the completion, or with a refusal.

use bytes::{Bytes, BytesMut};
use homespun_engine::buffer::{Buffer, Destination, ReusableBuffer, Source};
use homespun_engine::rejected::Rejected;

/// Memory of the owned tier: one buffer, or several.
pub(crate) trait Owned: Sized {
    /// The form in which the engine takes it.
    type Lent;

    /// Hands it to the engine.
    fn lend(self) -> Result<Self::Lent, Rejected<Self>>;

    /// The memory as it is handed back.
    fn into_buffer(self) -> Buffer;

    /// Takes back what the engine has handed back.
    fn from_buffer(buffer: Buffer) -> Self;
}

impl Owned for Bytes {
    type Lent = Source;

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
