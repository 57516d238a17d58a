//! Atomics, fences and mutexes of the handshake between those who sleep and those who wake them: those of the standard
//! library and of parking_lot, or of loom.
//!
//! Where two sides meet, both carry a comment `SYNC POINT` with the same name:
//!
//! | name | one side | the other side |
//! | --- | --- | --- |
//! | sleep | who is about to sleep arms the doorbell, fence, looks | who brings something about does it, fence, looks whether the doorbell is armed |
//! | bed | who joins a sleeper looks under the lock that the sleeper has armed under | who brings something about, as above |
//!
//! At least one side sees what the other has done, so that nobody sleeps through it. Where the look takes a lock under which
//! things are brought about, that lock does what the fences do.

#[cfg(all(test, loom))]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(all(test, loom))]
pub(crate) use loom::thread::yield_now;
#[cfg(not(all(test, loom)))]
pub(crate) use parking_lot::Mutex;
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
#[cfg(not(all(test, loom)))]
pub(crate) use std::thread::yield_now;

#[cfg(all(test, loom))]
pub(crate) use self::modelled::Mutex;

#[cfg(all(test, loom))]
mod modelled {
    use loom::sync::MutexGuard;

    /// Loom's mutex, to be used as that of parking_lot is.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a model ends with the first panic")
        }
    }
}
