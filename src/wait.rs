//! Wait objects, and how threads sleep until a queue, a counter, or any member of a wait set has an event:
//! `fi_poll(3)`.
//!
//! A completion queue, event queue, counter or wait set has a `Waiter` for the threads that wait for it. An
//! implementation of `Awaited` tells the waiter what the event is. Threads of the application sleep inside
//! this library only in the loop of `Waiter::wait`.
//!
//! The descriptors of the endpoints' transports, a doorbell and a timer can wake a sleeper. A waiter has an
//! `epoll(7)` set of all of them. A thread goes to sleep in five steps. If an event comes during a step, a
//! later step finds the event, or the event wakes the sleeper:
//!
//! 1. arm the doorbell: from now on each thread that inserts an entry, counts, or makes a pass rings it;
//! 2. arm each endpoint: its transport checks once more for frames;
//! 3. carry out the works that arming has made due, without any lock of the sleepers;
//! 4. check the ring of entries, or the counter, once more;
//! 5. sleep on the set.
//!
//! Arming a doorbell that has rung silences it, so no thread may arm it before all its sleepers have woken.
//! A thread that wants to sleep joins the sleepers if the doorbell is armed. If the doorbell has rung, the
//! thread first waits until all sleepers have woken.
//!
//! An application that sleeps by itself, outside this library, does not report when it wakes. So a queue or
//! a counter has a second epoll set and doorbell for the application. Blocking calls do not arm this second
//! doorbell.

mod awaited;
mod brief_poll;
mod deadline;
mod epoll_set;
mod error;
#[cfg(all(test, loom))]
mod loom_tests;
mod object;
mod set;
#[cfg(feature = "simulator")]
mod simulated;
mod sleepers;
mod trywait;
mod waiter;
#[expect(unsafe_code, reason = "a mutex of the C library is used by its own functions; see watcher.rs")]
mod watcher;

pub(crate) use self::awaited::Awaited;
pub(crate) use self::epoll_set::EpollSet;
pub use self::error::WaitError;
pub use self::object::WaitObject;
pub use self::set::WaitSet;
pub(crate) use self::set::WaitSetMember;
pub use self::trywait::Waitable;
pub(crate) use self::waiter::Waiter;
pub use self::watcher::MutexCond;
