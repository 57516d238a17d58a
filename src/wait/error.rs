//! Why a wait has ended without the event.

use homespun_engine::errno::Errno;

/// The reason why a wait has ended although the event has not happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WaitError {
    /// The timeout has passed.
    #[error("nothing has happened before the timeout")]
    TimedOut,
    /// A signal handler (`signal(7)`) has run in the waiting thread.
    #[error("a signal handler has run before anything happened")]
    Interrupted,
    /// The wait has no time limit and would never end: in the simulation nothing more happens.
    #[error("the wait would never end: nothing more happens in the simulation")]
    Deadlock,
}

impl WaitError {
    /// Returns the error number that a C caller gets, positive.
    pub fn errno(self) -> Errno {
        match self {
            WaitError::TimedOut => Errno::ETIMEDOUT,
            WaitError::Interrupted => Errno::EAGAIN,
            WaitError::Deadlock => Errno::EDEADLK,
        }
    }
}
