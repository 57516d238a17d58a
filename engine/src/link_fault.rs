//! The errors for which the engine ends a link, and values on the heap whose making may fail.

use std::collections::TryReserveError;
use std::ops::{Deref, DerefMut};

use smallvec::CollectionAllocErr;

use crate::errno::Errno;
use crate::protocol_violation::ProtocolViolation;
use crate::transport::LinkError;

/// Why the engine ends a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkFault {
    /// The peer has broken the protocol.
    Violation(ProtocolViolation),
    /// The peer has done nothing wrong, but this host has no memory for what the peer sends.
    NoMemory,
}

/// This process cannot get more memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoMemory;

impl LinkFault {
    /// What the log says.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            LinkFault::Violation(ProtocolViolation(reason)) => reason,
            LinkFault::NoMemory => "there is no memory for what the peer sends",
        }
    }

    /// The error of the operations that end with the link.
    pub(crate) fn link_error(self) -> LinkError {
        match self {
            LinkFault::Violation(ProtocolViolation(reason)) => LinkError::Protocol(reason),
            LinkFault::NoMemory => LinkError::System(Errno::ENOMEM),
        }
    }
}

impl From<ProtocolViolation> for LinkFault {
    fn from(violation: ProtocolViolation) -> LinkFault {
        LinkFault::Violation(violation)
    }
}

impl From<NoMemory> for LinkFault {
    fn from(_: NoMemory) -> LinkFault {
        LinkFault::NoMemory
    }
}

impl From<TryReserveError> for LinkFault {
    fn from(_: TryReserveError) -> LinkFault {
        LinkFault::NoMemory
    }
}

impl From<TryReserveError> for NoMemory {
    fn from(_: TryReserveError) -> NoMemory {
        NoMemory
    }
}

impl From<CollectionAllocErr> for NoMemory {
    fn from(_: CollectionAllocErr) -> NoMemory {
        NoMemory
    }
}

/// A value on the heap. Unlike `Box::new`, making it may fail, so peers may cause it.
#[derive(Debug)]
pub(crate) struct TryBox<T>(Box<[T; 1]>);

/// Memory on the heap for one value.
#[derive(Debug)]
pub(crate) struct Room<T>(Vec<T>);

impl<T> Room<T> {
    /// # Errors
    ///
    /// [`NoMemory`]
    pub(crate) fn try_new() -> Result<Room<T>, NoMemory> {
        let mut room = Vec::new();
        room.try_reserve_exact(1)?;
        Ok(Room(room))
    }

    pub(crate) fn fill(mut self, value: T) -> TryBox<T> {
        self.0.push(value);
        let one = self.0.into_boxed_slice().try_into();
        TryBox(one.unwrap_or_else(|_| unreachable!("the room had nothing in it")))
    }
}

impl<T> TryBox<T> {
    /// # Errors
    ///
    /// [`NoMemory`], which drops the value.
    pub(crate) fn try_new(value: T) -> Result<TryBox<T>, NoMemory> {
        Ok(Room::try_new()?.fill(value))
    }

    pub(crate) fn into_inner(self) -> T {
        let [value] = *self.0;
        value
    }
}

impl<T> Deref for TryBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        let [value] = &*self.0;
        value
    }
}

impl<T> DerefMut for TryBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        let [value] = &mut *self.0;
        value
    }
}
