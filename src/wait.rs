//! Wait objects, and the sleep of threads until a queue, a counter, or any member of a wait set has an
//! event: `fi_poll(3)`.
//!
//! A completion queue, event queue, counter or wait set has a `Waiter` for the threads that wait for it. An
//! implementation of `Awaited` tells the waiter what the awaited event is. `Waiter::wait` is the only loop
//! in which a thread of the application sleeps inside this library.
//!
//! The sources of an awaited event are the descriptors of its endpoints' transports, a doorbell, and a
//! timer. A waiter has an `epoll(7)` set of all of them. A thread goes to sleep by these steps, in this
//! order. A later step finds an event that comes during an earlier one, or the event wakes the sleeper:
//!
//! 1. arm the doorbell: from now on each thread that inserts an entry, counts, or drives progress of the
//!    endpoints rings the doorbell;
//! 2. arm each endpoint, whose transport checks once more for frames;
//! 3. carry out the works that arming has made due, without any lock of the sleepers;
//! 4. check the ring of entries, or the counter, once more;
//! 5. sleep on the set.
//!
//! Arming the doorbell silences it. So a thread must not arm a rung doorbell before all its sleepers have
//! woken. A thread that wants to sleep while other threads sleep joins them if the doorbell is armed. If the
//! doorbell was rung, the thread first waits until all sleepers have woken. An application that sleeps by
//! itself, outside this library, does not report when it wakes. So a queue or a counter has a second epoll
//! set and doorbell for the application, which blocking calls on that object do not arm.

mod awaited;
mod deadline;
mod epoll_set;
#[cfg(all(test, loom))]
mod loom_tests;
mod object;
mod set;
mod sleepers;
mod trywait;
mod waiter;
#[expect(unsafe_code, reason = "a mutex of the C library is used by its own functions; see watcher.rs")]
mod watcher;

pub(crate) use self::awaited::Awaited;
pub(crate) use self::epoll_set::EpollSet;
pub use self::object::WaitObject;
pub use self::set::WaitSet;
pub(crate) use self::set::WaitSetMember;
pub use self::trywait::Waitable;
pub(crate) use self::waiter::Waiter;
pub use self::watcher::MutexCond;
