//! Reads of a completion queue that return the oldest entry, be it a success or a failure.

use std::time::{Duration, Instant};

use homespun_engine::address::Address;

use super::{Completion, CompletionError, CompletionQueue, ReadError};
use crate::av::FabricAddress;

/// An entry of a completion queue, as [`CompletionQueue::read_entry`] returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// An operation has succeeded. The address is its source: see
    /// [`read_from`](CompletionQueue::read_from).
    Completed(Completion, FabricAddress),
    /// A receive has succeeded, but the address vector does not hold the sender. The address is the
    /// sender's. Only endpoints with [`Caps::SOURCE_ERR`](crate::flags::Caps::SOURCE_ERR) report such an
    /// entry. A C application reads it as an error (`FI_EADDRNOTAVAIL`).
    UnknownSource(Completion, Address),
    /// An operation has failed.
    Failed(CompletionError),
}

impl Entry {
    /// Returns the completion of an operation that has succeeded, without its source.
    ///
    /// # Errors
    ///
    /// The failure, if the entry is [`Failed`](Self::Failed).
    pub fn into_result(self) -> Result<Completion, CompletionError> {
        match self {
            Entry::Completed(completion, _) | Entry::UnknownSource(completion, _) => Ok(completion),
            Entry::Failed(failed) => Err(failed),
        }
    }
}

impl From<CompletionError> for Entry {
    fn from(error: CompletionError) -> Entry {
        match error.unknown_source() {
            Some(sender) => Entry::UnknownSource(error.completion, sender),
            None => Entry::Failed(error),
        }
    }
}

impl CompletionQueue {
    /// Reads the oldest entry, be it a success or a failure. Returns `None` if the queue is empty. Combines
    /// [`read_from`](Self::read_from) and [`read_error`](Self::read_error).
    ///
    /// A server that answers clients whose addresses it does not know:
    ///
    /// ```
    /// use homespun::{AddressVector, CompletionQueue, Entry};
    ///
    /// fn next_client(cq: &CompletionQueue, av: &AddressVector) -> Result<(), Box<dyn std::error::Error>> {
    ///     let (received, client) = match cq.read_entry()? {
    ///         None => return Ok(()),
    ///         Some(Entry::Completed(completion, client)) => (completion, client),
    ///         Some(Entry::UnknownSource(completion, address)) => (completion, av.insert_one(address)?),
    ///         Some(Entry::Failed(failed)) => return Err(failed.into()),
    ///     };
    ///     println!("{} bytes from {client:?}", received.len_bytes);
    ///     Ok(())
    /// }
    /// # let fabric = homespun::Fabric::new();
    /// # let domain = fabric.domain(&fabric.info(&homespun::Hints::new())?)?;
    /// # let cq = domain.open_cq(&Default::default())?;
    /// # next_client(&cq, &domain.open_av(&Default::default())?).expect("an empty queue");
    /// # Ok::<(), homespun::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ReadError::Overrun`].
    pub fn read_entry(&self) -> Result<Option<Entry>, ReadError> {
        self.read_entry_by(|| self.read_from())
    }

    /// As [`read_entry`](Self::read_entry), but waits for an entry as [`sread`](Self::sread) does.
    ///
    /// # Errors
    ///
    /// [`ReadError::Overrun`], [`ReadError::NoWaitObject`].
    pub fn sread_entry(&self, timeout: Option<Duration>) -> Result<Option<Entry>, ReadError> {
        let begin = Instant::now();
        self.read_entry_by(|| self.sread_from(timeout.map(|timeout| timeout.saturating_sub(begin.elapsed()))))
    }

    fn read_entry_by(
        &self,
        read: impl Fn() -> Result<Option<(Completion, FabricAddress)>, ReadError>,
    ) -> Result<Option<Entry>, ReadError> {
        loop {
            match read() {
                Ok(read) => return Ok(read.map(|(completion, source)| Entry::Completed(completion, source))),
                Err(ReadError::ErrorAvailable) => {}
                Err(error) => return Err(error),
            }
            // If another thread has read the failure meanwhile, read again.
            if let Some(error) = self.read_error()? {
                return Ok(Some(error.into()));
            }
        }
    }
}
