//! Wait objects: `enum fi_wait_obj`.

/// How an application may wait on a queue or a counter: `enum fi_wait_obj`.
///
/// A wait takes no processor time, except with [`Yield`](Self::Yield) and for transports that must be
/// polled. A queue or a counter with a wait object to sleep on costs three file descriptors, and two more if
/// the application can sleep by itself. [`MutexCond`](Self::MutexCond) costs another two and a thread, once
/// the application has asked for the mutex and the condition variable. A member of a [set](Self::Set) costs
/// five descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "SCREAMING_SNAKE_CASE")
)]
pub enum WaitObject {
    /// The application does not wait: it polls.
    #[default]
    None,
    /// The application waits in blocking calls. The library chooses how the calls wait.
    Unspec,
    /// The application waits for a [`WaitSet`](crate::WaitSet), and so for all of its members.
    Set,
    /// The application sleeps on a file descriptor, one thread at a time. It may also wait in blocking
    /// calls.
    Fd,
    /// The application sleeps on a condition variable with a mutex, one thread at a time. It may also wait
    /// in blocking calls.
    MutexCond,
    /// The application waits in blocking calls, which poll, and yield the processor between polls.
    Yield,
    /// The application waits for a set of file descriptors. Not supported.
    PollFd,
}
