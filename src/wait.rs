//! Waiting: wait objects, and sleeping until a queue or a counter, or any member of a set of them, has
//! something to report. `fi_poll(3)`.
//!
//! Completion queues, event queues, counters and wait sets wait by a `Waiter`, and say by `Awaited` what
//! for. `Waiter::wait` is the only loop in which a thread of the application sleeps inside this library.
//!
//! A waiter has an `epoll(7)` set of everything that can bring about what is awaited: the descriptors of its
//! endpoints' transports, a doorbell, and a timer. Going to sleep takes these steps, in this order, and
//! whatever happens meanwhile is found by a later one or wakes the sleeper:
//!
//! 1. arm the doorbell: from now on a thread rings it that inserts an entry, counts, or has the endpoints
//!    make progress;
//! 2. arm each endpoint, whose transport looks once more for frames;
//! 3. carry out the works that have become due by that, with no lock of the sleepers held;
//! 4. look once more at the ring of entries, or at the counter;
//! 5. sleep on the set.
//!
//! Arming the doorbell silences it, which must not happen while it rings for sleepers that have not
//! woken yet. A thread that comes when others sleep joins them if it finds the doorbell armed; if
//! it was rung, the thread waits until they have woken. An application that sleeps by itself says
//! nothing when it wakes, so it has an epoll set and a doorbell of its own, which calls of this
//! library leave alone.

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
pub(crate) use self::set::Member;
pub use self::set::WaitSet;
pub use self::trywait::Waitable;
pub(crate) use self::waiter::Waiter;
pub use self::watcher::MutexCond;
