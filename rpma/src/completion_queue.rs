//! Completion queues, as applications read them.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use homespun::mutated;

use crate::channel::{Channel, Role};
use crate::completion::Completion;
use crate::error::Error;

/// The completions of a connection, or of a shared receive queue: `rpma_cq_get_completion(3)`.
///
/// A connection has a main queue ([`Connection::completion_queue`]) and, if its
/// [configuration](crate::ConnectionConfig::receive_completion_queue_size) asks for it, a queue for its
/// receives ([`Connection::receive_completion_queue`]). Then the main queue never has a receive.
///
/// Every operation that fails reports that, and every operation that was posted with
/// [`Report::Always`](crate::Report::Always), and every receive, also reports success. The operations of one
/// connection complete in the order of posting, and so do its receives.
///
/// Clones are handles to the same queue. Any thread may use a queue at any time. Completions of a connection
/// that is dropped can still be read.
///
/// [`Connection::completion_queue`]: crate::Connection::completion_queue
/// [`Connection::receive_completion_queue`]: crate::Connection::receive_completion_queue
///
/// ```
/// use homespun_rpma::{Completion, CompletionQueue, Error};
///
/// /// Waits for the next completion.
/// fn next(queue: &CompletionQueue) -> Result<Completion, Error> {
///     loop {
///         match queue.next() {
///             Err(Error::NoCompletion) => queue.wait()?,
///             other => return other,
///         }
///     }
/// }
/// ```
#[derive(Clone)]
pub struct CompletionQueue {
    channel: Arc<Channel>,
    role: Role,
}

impl CompletionQueue {
    pub(crate) fn new(channel: &Arc<Channel>, role: Role) -> CompletionQueue {
        CompletionQueue { channel: channel.clone(), role }
    }

    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Returns the next completion: `rpma_cq_get_completion(3)`. Does not wait.
    ///
    /// # Errors
    ///
    /// [`Error::NoCompletion`] if there is none.
    pub fn next(&self) -> Result<Completion, Error> {
        if mutated!("rpma_cq_get_completion/returns-next-completion") {
            self.channel.next(self.role);
        }
        let is_other_error = mutated!("rpma_cq_get_completion/no-completion");
        let missing = if is_other_error { Error::NoEvent } else { Error::NoCompletion };
        self.channel.next(self.role).ok_or(missing)
    }

    /// Passes up to `max` completions to `take`, the oldest first: `rpma_cq_get_wc(3)`. Returns their number.
    /// Does not wait.
    ///
    /// # Errors
    ///
    /// [`Error::NoCompletion`] if there is none.
    pub fn next_each(&self, max: usize, mut take: impl FnMut(Completion)) -> Result<usize, Error> {
        let mut count = 0;
        while count < max
            && let Some(completion) = self.channel.next(self.role)
        {
            take(completion);
            count += 1;
        }
        if count == 0 && !mutated!("rpma_cq_get_wc/no-completion") {
            Err(Error::NoCompletion)
        } else {
            Ok(count)
        }
    }

    /// Waits until there is a completion: `rpma_cq_wait(3)`. It stays in the queue. The end of the connection
    /// ends the wait, since receives that are posted then complete with
    /// [`Status::Flushed`](crate::Status::Flushed).
    ///
    /// # Errors
    ///
    /// - [`Error::SharedChannel`] if the [configuration](crate::ConnectionConfig::shared_completion_channel)
    ///   asks for a channel that is shared: [`Connection::wait`](crate::Connection::wait) waits for it.
    /// - [`Error::NoCompletion`] if there is none, and the application has set `O_NONBLOCK` on the
    ///   [descriptor](Self::fd), or has dropped the connection.
    /// - [`Error::Interrupted`] if a signal handler without `SA_RESTART` has run in this thread.
    /// - [`Error::Fabric`]: EMFILE, ENFILE or ENOMEM, from the first call.
    pub fn wait(&self) -> Result<(), Error> {
        if self.channel.is_shared() {
            let is_broken = mutated!("rpma_cq_wait/shared-channel");
            return Err(if is_broken { Error::NotSharedChannel } else { Error::SharedChannel });
        }
        self.channel.wait().map(|_| ())
    }

    /// Returns the descriptor of the completion channel: `rpma_cq_get_fd(3)`. It is readable while there is a
    /// completion, and once the connection is dropped, so it fits `poll(2)` and `epoll(7)`. The application
    /// must not read from it. If it sets `O_NONBLOCK` with `fcntl(2)`, then [`wait`](Self::wait) does not
    /// wait.
    ///
    /// During a call of [`next`](Self::next) the descriptor is readable for a moment even if there is no
    /// completion. So another thread that waits for it may wake and find nothing.
    ///
    /// Queues with a shared channel have the same descriptor. Until the first call, no read of the queue
    /// makes a system call for it. After it, each [`next`](Self::next) that leaves the queue empty makes two.
    ///
    /// # Errors
    ///
    /// [`Error::Fabric`]: EMFILE, ENFILE or ENOMEM, from the first call.
    pub fn fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.channel.descriptor()
    }

    /// Whether both are handles to the same queue.
    fn is_same(&self, other: &CompletionQueue) -> bool {
        Arc::ptr_eq(&self.channel, &other.channel) && self.role == other.role
    }
}

/// Two handles are equal if they are of the same queue.
impl PartialEq for CompletionQueue {
    fn eq(&self, other: &CompletionQueue) -> bool {
        self.is_same(other)
    }
}

impl Eq for CompletionQueue {}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").field("role", &self.role).finish_non_exhaustive()
    }
}
