//! Atomics, fences and mutexes of the handshake between threads that sleep and threads that wake them: those
//! of the standard library and of parking_lot, or of loom.
//!
//! Where two sides meet, both carry a comment `SYNC POINT` with the same name:
//!
//! | name | one side | the other side |
//! | --- | --- | --- |
//! | sleep | a thread about to sleep arms the doorbell, fence, looks | a thread that changes something does so, fence, looks whether the doorbell is armed |
//! | join | a thread that joins sleepers reads the doorbell under the lock under which they have armed it | a thread that changes something, as above |
//!
//! At least one side sees what the other has done, so that no thread sleeps through it. Where the look takes
//! the lock under which the change was made, that lock does what the fences do.

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
