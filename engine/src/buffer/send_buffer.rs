//! Send buffers in memory that peers can map.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::{fmt, slice};

use bytes::Bytes;

use crate::errno::Errno;
use crate::transport::{Provider, SharedMemory};

/// A send buffer that near peers can map, if the provider has such memory. From mapped memory a peer copies
/// a long message once, without a system call.
///
/// [`bytes`](Self::bytes) is the payload of a send. While a send or its completion has it,
/// [`get_mut`](Self::get_mut) returns `None`.
pub struct SendBuffer {
    memory: Arc<Memory>,
}

/// Memory that this process reads and writes as bytes.
struct Memory {
    words: Words,
    len_bytes: usize,
}

enum Words {
    Owned(Box<[AtomicU64]>),
    /// Retired when the memory is dropped.
    Shared(Arc<dyn SharedMemory>),
}

const WORD_BYTES: usize = size_of::<AtomicU64>();

impl SendBuffer {
    /// Allocates a buffer of zeros.
    ///
    /// # Errors
    ///
    /// The system's error, such as ENOMEM or EMFILE.
    pub fn allocate<P: Provider>(provider: &P, len_bytes: usize) -> Result<SendBuffer, Errno> {
        let shared = if len_bytes > 0 { provider.allocate_shareable(len_bytes)? } else { None };
        let words = match shared {
            Some(memory) => Words::Shared(memory),
            None => {
                let (mut words, count) = (Vec::new(), len_bytes.div_ceil(WORD_BYTES));
                words.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
                words.resize_with(count, AtomicU64::default);
                Words::Owned(words.into())
            }
        };
        Ok(SendBuffer { memory: Arc::new(Memory { words, len_bytes }) })
    }

    /// Whether near peers can map the buffer.
    pub fn is_shareable(&self) -> bool {
        matches!(self.memory.words, Words::Shared(_))
    }

    /// Returns the buffer to write to. Returns `None` while anything has [bytes](Self::bytes) of it, such as
    /// a send that has not ended, or its completion.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        let memory = Arc::get_mut(&mut self.memory)?;
        let start = memory.start().cast_mut();
        // SAFETY: `start` has `len_bytes` bytes, which are initialised and live as long as `memory`. Nothing
        // else in this process accesses them, as a provider promises, except for the `Bytes` of this buffer,
        // of which there are none now. The words are atomics, so memory behind a shared reference may be
        // written. No region uses the memory, so peers only read it.
        Some(unsafe { slice::from_raw_parts_mut(start, memory.len_bytes) })
    }

    /// Returns the whole buffer as the payload of a send. Copies nothing.
    pub fn bytes(&self) -> Bytes {
        Bytes::from_owner(Owner(self.memory.clone()))
    }
}

impl Deref for SendBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.as_bytes()
    }
}

impl fmt::Debug for SendBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendBuffer({} bytes)", self.memory.len_bytes)
    }
}

impl Memory {
    /// The start of at least `len_bytes` bytes.
    fn start(&self) -> *const u8 {
        let words = match &self.words {
            Words::Owned(words) => words,
            Words::Shared(memory) => memory.words(),
        };
        words[..self.len_bytes.div_ceil(WORD_BYTES)].as_ptr().cast()
    }

    fn as_bytes(&self) -> &[u8] {
        // SAFETY: as in `get_mut`, which returns the bytes for writing only while there are no `Bytes`. The
        // buffer itself is then borrowed exclusively.
        unsafe { slice::from_raw_parts(self.start(), self.len_bytes) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Words::Shared(memory) = &self.words {
            memory.retire();
        }
    }
}

/// What `Bytes` of the buffer keep.
struct Owner(Arc<Memory>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback::{Faults, Network};

    fn allocate(len_bytes: usize) -> SendBuffer {
        SendBuffer::allocate(&Network::new(0, Faults::default()), len_bytes).unwrap()
    }

    #[test]
    fn buffer_is_writable_while_no_bytes_of_it_exist() {
        let mut buffer = allocate(100);
        assert!(buffer.is_shareable());
        buffer.get_mut().unwrap()[99] = 5;
        let bytes = buffer.bytes();
        let part = bytes.slice(99..);
        drop(bytes);
        assert!(buffer.get_mut().is_none());
        assert_eq!((&part[..], buffer[99], buffer.len()), (&[5][..], 5, 100));
        drop(part);
        buffer.get_mut().unwrap()[99] = 6;
        assert_eq!(buffer.bytes()[99], 6);
    }

    #[test]
    fn memory_is_retired_with_the_last_bytes() {
        let buffer = allocate(8);
        let Words::Shared(memory) = &buffer.memory.words else { panic!("this provider has such memory") };
        let (memory, bytes) = (memory.clone(), buffer.bytes());
        drop(buffer);
        assert!(!memory.is_retired());
        drop(bytes);
        assert!(memory.is_retired());
    }

    #[test]
    fn empty_buffer_is_not_shareable() {
        let mut buffer = allocate(0);
        assert!(!buffer.is_shareable() && buffer.is_empty() && buffer.bytes().is_empty());
        assert_eq!(buffer.get_mut(), Some(&mut [][..]));
    }
}
