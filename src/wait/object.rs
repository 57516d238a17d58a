//! Wait objects: `enum fi_wait_obj`.

/// How an application may wait on a queue or a counter: `enum fi_wait_obj`.
///
/// A wait takes no processor time, except with [`Yield`](Self::Yield) and for transports that must be
/// polled. The file descriptors of a queue or a counter:
///
/// - [`None`](Self::None) and [`Yield`](Self::Yield) take none;
/// - [`Unspec`](Self::Unspec) takes three;
/// - [`Fd`](Self::Fd), [`MutexCond`](Self::MutexCond) and membership in a [set](Self::Set) take five;
/// - [`MutexCond`](Self::MutexCond) takes two more and a thread, once the application has asked for the
///   mutex and the condition variable.
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
    /// The application waits in blocking calls. homespun chooses how the calls wait.
    Unspec,
    /// The application waits for a [`WaitSet`](crate::WaitSet): an event of any member ends the wait.
    Set,
    /// The application sleeps on a file descriptor, one thread at a time. It may also make blocking calls.
    Fd,
    /// The application sleeps on a condition variable with a mutex, one thread at a time. It may also make
    /// blocking calls.
    MutexCond,
    /// The application waits in blocking calls. The calls poll, and yield the processor between polls.
    Yield,
    /// The application waits for a set of file descriptors. Not supported.
    PollFd,
}
