//! Atomic operations on one 64-bit word of a peer's memory, with numbers instead of buffers.

#![expect(clippy::host_endian_bytes, reason = "elements are as numbers lie in memory: fi_atomic(3)")]

use bytes::{Bytes, BytesMut};
use homespun_engine::atomic::{AtomicOp, Datatype};
use homespun_engine::buffer::Buffer;
use homespun_engine::error::Error;
use homespun_engine::remote_memory::RemoteMemory;

use super::Endpoint;
use super::atomic::AtomicTarget;
use crate::av::FabricAddress;
use crate::cq::Completion;

/// Atomic operations on one word, in the byte order of the host.
impl Endpoint {
    /// Adds to a `u64` in a peer's memory, modulo 2^64, and fetches the previous value:
    /// `fi_fetch_atomic(3)` with `FI_SUM` and `FI_UINT64`. [`Completion::fetched_u64`] returns the previous
    /// value.
    ///
    /// ```
    /// use homespun::flags::MrAccess;
    /// use homespun::{Fabric, Hints, MrAttr, OpenEndpoint};
    ///
    /// let hints = Hints::new().node("127.0.0.1").source();
    /// let OpenEndpoint { endpoint, cq, av, domain } = Fabric::new().open_endpoint(&hints)?;
    /// let own = av.insert_one(endpoint.name()?)?;
    /// // A number that any number of peers may add to; here the endpoint itself does so.
    /// let attr = MrAttr::granting(MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE);
    /// let region = domain.register(8, &attr)?;
    /// region.write_at(0, &40_u64.to_ne_bytes())?;
    ///
    /// endpoint.fetch_add_u64(2, own, region.remote(), 1)?;
    /// let completion = cq.sread(None).expect("no failure").expect("no timeout");
    /// assert_eq!(completion.fetched_u64(), Some(40));
    /// let mut sum = [0; 8];
    /// region.read_at(0, &mut sum)?;
    /// assert_eq!(u64::from_ne_bytes(sum), 42);
    /// # Ok::<(), homespun::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`post_send`](Self::post_send).
    pub fn fetch_add_u64(
        &self,
        addend: u64,
        peer: FabricAddress,
        memory: RemoteMemory,
        context: u64,
    ) -> Result<(), Error> {
        let target = AtomicTarget { peer, memory, datatype: Datatype::Uint64, op: AtomicOp::Sum };
        Ok(self.fetch_atomic(word_to_bytes(addend), BytesMut::zeroed(8), target, context)?)
    }

    /// Sets a `u64` in a peer's memory to `new` if it equals `expected`, and fetches the previous value:
    /// `fi_compare_atomic(3)` with `FI_CSWAP` and `FI_UINT64`. [`Completion::fetched_u64`] returns the
    /// previous value. If the previous value equals `expected`, the word was set.
    ///
    /// # Errors
    ///
    /// As [`post_send`](Self::post_send).
    pub fn compare_swap_u64(
        &self,
        expected: u64,
        new: u64,
        peer: FabricAddress,
        memory: RemoteMemory,
        context: u64,
    ) -> Result<(), Error> {
        let target = AtomicTarget { peer, memory, datatype: Datatype::Uint64, op: AtomicOp::Cswap };
        Ok(self.compare_atomic(
            word_to_bytes(new),
            word_to_bytes(expected),
            BytesMut::zeroed(8),
            target,
            context,
        )?)
    }
}

impl Completion {
    /// Returns the 8 bytes that an atomic operation has fetched, as a number in the byte order of the host.
    /// Returns `None` if the operation fetched nothing, another number of bytes, or into several buffers.
    pub fn fetched_u64(&self) -> Option<u64> {
        let Buffer::Fetched(fetched) = &self.buffer else { return None };
        let Buffer::Received(word) = &fetched.result else { return None };
        <[u8; 8]>::try_from(&word[..]).ok().map(u64::from_ne_bytes)
    }
}

/// Returns a word as a buffer.
fn word_to_bytes(word: u64) -> Bytes {
    Bytes::copy_from_slice(&word.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fabric, Hints, MrAttr, OpenEndpoint};
    use homespun_engine::flags::MrAccess;

    #[test]
    fn compare_swap_sets_a_word_that_is_as_expected() {
        let hints = Hints::new().node("127.0.0.1").source();
        let OpenEndpoint { endpoint, cq, av, domain } =
            Fabric::new().open_endpoint(&hints).expect("an endpoint");
        let own = av.insert_one(endpoint.name().expect("a name")).expect("an address");
        let attr = MrAttr::granting(MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE);
        let region = domain.register(16, &attr).expect("a region");
        let memory = region.remote().offset(8);
        let fetched = || cq.sread(None).expect("no failure").expect("no timeout").fetched_u64();
        for (expected, new, before) in [(0, 7, 0), (0, 8, 7), (7, 9, 7)] {
            endpoint.compare_swap_u64(expected, new, own, memory, 1).expect("room");
            assert_eq!(fetched(), Some(before));
        }
        endpoint.fetch_add_u64(u64::MAX, own, memory, 1).expect("room");
        assert_eq!(fetched(), Some(9));
        let mut word = [0; 8];
        region.read_at(8, &mut word).expect("it is within");
        assert_eq!(u64::from_ne_bytes(word), 8, "9 plus 2^64 - 1");
        endpoint.write(Bytes::from_static(b"written"), own, memory, 1).expect("room");
        assert_eq!(fetched(), None, "a write fetches nothing");
    }
}
