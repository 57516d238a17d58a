//! The check whether an application may sleep by itself: `fi_trywait(3)`.

use std::os::fd::BorrowedFd;

use homespun_engine::error::Error;

use super::{MutexCond, WaitObject, WaitSet};
use crate::counter::Counter;
use crate::cq::CompletionQueue;
use crate::eq::EventQueue;
use crate::fabric::Fabric;

/// An object on which an application can sleep by itself: a [`CompletionQueue`], a [`Counter`], an
/// [`EventQueue`] or a [`WaitSet`], opened with a wait object.
pub trait Waitable: sealed::Sealed {
    /// Prepares to sleep on the wait object: `fi_trywait(3)`. Returns `true` if the application may sleep.
    /// Returns `false` if there may be an event, or if the application must poll. The application must call
    /// this before each sleep.
    ///
    /// # Errors
    ///
    /// [`Misuse::Invalid`](crate::Misuse::Invalid) if the object has no wait object.
    fn try_wait(&self) -> Result<bool, Error>;

    /// Returns the descriptor to sleep on: `FI_GETWAIT`. Returns `None` unless the object was opened with
    /// [`WaitObject::Fd`].
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the mutex and the condition variable to sleep on: `FI_GETWAIT`. Returns `None` unless the
    /// object was opened with [`WaitObject::MutexCond`].
    ///
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM, EAGAIN.
    fn wait_mutex_cond(&self) -> Result<Option<MutexCond>, Error>;

    /// Returns the wait object that the object was opened with.
    fn wait_object(&self) -> WaitObject;
}

/// Implements the trait by methods of the same names, so that callers need not import the trait.
macro_rules! waitable {
    ($($type:ty)*) => {
        $(impl Waitable for $type {
            fn try_wait(&self) -> Result<bool, Error> {
                self.try_wait()
            }

            fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
                self.wait_fd()
            }

            fn wait_mutex_cond(&self) -> Result<Option<MutexCond>, Error> {
                self.wait_mutex_cond()
            }

            fn wait_object(&self) -> WaitObject {
                self.wait_object()
            }
        }

        impl sealed::Sealed for $type {})*
    };
}

waitable! { CompletionQueue Counter EventQueue WaitSet }

impl Fabric {
    /// Prepares to sleep until one of these objects has an event: `fi_trywait(3)`. Returns whether the
    /// application may sleep. This calls the `try_wait` of each object in turn, and stops when a call
    /// returns `false`.
    ///
    /// # Errors
    ///
    /// [`Misuse::Invalid`](crate::Misuse::Invalid) if an object has no wait object.
    pub fn try_wait(&self, objects: &[&dyn Waitable]) -> Result<bool, Error> {
        for object in objects {
            if !object.try_wait()? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Only this library implements the trait.
mod sealed {
    pub trait Sealed {}
}
