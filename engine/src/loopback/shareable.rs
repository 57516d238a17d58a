//! Memory that the endpoints of a network share. All endpoints are in one process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::errno::Errno;
use crate::transport::{RemotePayload, SharedMemory};

/// The allocated memories, by the number in their descriptions.
#[derive(Debug, Default)]
pub(super) struct SharedMemories(Mutex<Vec<Weak<Memory>>>);

#[derive(Debug)]
struct Memory {
    number: u64,
    words: Box<[AtomicU64]>,
    is_retired: AtomicBool,
}

impl SharedMemories {
    pub(super) fn allocate(&self, len_bytes: usize) -> Result<Arc<dyn SharedMemory>, Errno> {
        let count = len_bytes.div_ceil(size_of::<u64>());
        let mut words = Vec::new();
        words.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
        words.resize_with(count, AtomicU64::default);
        let mut memories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = memories.len() as u64;
        let memory = Arc::new(Memory { number, words: words.into(), is_retired: AtomicBool::new(false) });
        memories.push(Arc::downgrade(&memory));
        Ok(memory)
    }

    pub(super) fn map(&self, from: &RemotePayload, len_bytes: u64) -> Option<Arc<dyn SharedMemory>> {
        let number = u64::from_le_bytes(from.as_bytes().try_into().ok()?);
        let memories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = memories.get(usize::try_from(number).ok()?)?.upgrade()?;
        (memory.words.len() as u64 == len_bytes.div_ceil(size_of::<u64>() as u64)).then_some(memory as _)
    }
}

impl SharedMemory for Memory {
    fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    fn describe(&self) -> Option<RemotePayload> {
        RemotePayload::new(&self.number.to_le_bytes())
    }

    fn retire(&self) {
        self.is_retired.store(true, Ordering::Release);
    }

    fn is_retired(&self) -> bool {
        self.is_retired.load(Ordering::Acquire)
    }
}
