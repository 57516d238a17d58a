//! Connections.

#[expect(unsafe_code, reason = "accesses take the memory of registered regions")]
mod access;
mod flush;
#[expect(unsafe_code, reason = "messages take the memory of registered regions")]
mod message;

use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use homespun::eq::Event;
use homespun::mutated;
use parking_lot::Mutex;

pub use self::flush::FlushType;
use crate::channel::Role;
use crate::completion_queue::CompletionQueue;
use crate::connection_event::ConnectionEvent;
use crate::error::Error;
use crate::peer_config::PeerConfig;
use crate::queue_pair::QueuePair;

/// How long the drop of a connection that this side has accepted waits, at most, for its answer to leave.
const ACCEPT_MAX: Duration = Duration::from_secs(2);

/// A connection to a peer: `rpma_conn_req_connect(3)`.
///
/// Operations take effect at the peer, and complete, in the order of posting. So the completion of an
/// operation tells that all earlier ones that were posted with [`Report::OnError`](crate::Report::OnError)
/// have succeeded, too. The first operation that fails ends the connection, and all others complete with
/// [`Status::Flushed`](crate::Status::Flushed), or with
/// [`Status::RetryExceeded`](crate::Status::RetryExceeded) if the peer was lost.
///
/// Progress needs no call: the peer's thread serves the accesses and messages of the other side.
///
/// A message, or a write with immediate data, waits for a receive of the other side for as long as the
/// connection lasts.
///
/// Any thread may use a connection at any time. Dropping it disconnects and closes it
/// (`rpma_conn_delete(3)`). If the peer takes nothing of what was sent, that lasts up to 4 seconds.
///
/// With a [shared channel](crate::ConnectionConfig::shared_completion_channel), posts fail with
/// [`Error::QueueFull`] while too many completions of a queue are unread.
#[derive(Debug)]
pub struct Connection {
    queue_pair: QueuePair,
    private_data: OnceLock<Box<[u8]>>,
    has_direct_write_to_pmem: AtomicBool,
    /// Whether this side has accepted the connection, and the application has read no event yet.
    is_being_accepted: AtomicBool,
    /// Whether the application has read the last event.
    has_ended: AtomicBool,
    /// Held while a thread reads or awaits an event. After the last event none follows that would wake
    /// another thread.
    event_turn: Mutex<()>,
}

/// The queue that [`Connection::wait`] has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadyQueue<'a> {
    /// The [main queue](Connection::completion_queue).
    Main(&'a CompletionQueue),
    /// The [queue for receives](Connection::receive_completion_queue).
    Receive(&'a CompletionQueue),
}

impl Connection {
    pub(crate) fn new(queue_pair: QueuePair, private_data: Option<Box<[u8]>>) -> Connection {
        Connection {
            queue_pair,
            is_being_accepted: AtomicBool::new(private_data.is_some()),
            private_data: private_data.map(OnceLock::from).unwrap_or_default(),
            has_direct_write_to_pmem: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            event_turn: Mutex::new(()),
        }
    }

    /// Returns the next event: `rpma_conn_next_event(3)`. Waits for it, unless the application has set
    /// `O_NONBLOCK` on the [descriptor](Self::event_fd).
    ///
    /// # Errors
    ///
    /// - [`Error::NoEvent`] if there is none and the call does not wait, and after the last event of the
    ///   connection.
    /// - [`Error::Interrupted`] if a signal handler without `SA_RESTART` has run in this thread.
    pub fn next_event(&self) -> Result<ConnectionEvent, Error> {
        let events = self.queue_pair.events();
        let turn = if events.may_block() { Some(self.event_turn.lock()) } else { self.event_turn.try_lock() };
        let Some(_turn) = turn else { return Err(Error::NoEvent) };
        loop {
            if self.has_ended.load(Ordering::SeqCst) {
                return Err(Error::NoEvent);
            }
            let event = match events.next()? {
                Ok(Event::Connection(homespun::ConnectionEvent::Connected { data, .. })) => {
                    // The accepting side has the data of the request.
                    self.private_data.get_or_init(|| data);
                    ConnectionEvent::Established
                }
                Ok(Event::Connection(homespun::ConnectionEvent::Shutdown { end, .. })) => {
                    ConnectionEvent::from_end(&end)
                }
                Ok(_) => continue,
                Err(failure) => ConnectionEvent::from_failed_attempt(&failure),
            };
            self.is_being_accepted.store(false, Ordering::SeqCst);
            if event != ConnectionEvent::Established {
                self.has_ended.store(true, Ordering::SeqCst);
            }
            return Ok(event);
        }
    }

    /// Returns a descriptor that is readable while there is an event: `rpma_conn_get_event_fd(3)`. It fits
    /// `poll(2)` and `epoll(7)`. The application must not read from it. If it sets `O_NONBLOCK` with
    /// `fcntl(2)`, then [`next_event`](Self::next_event) does not wait.
    pub fn event_fd(&self) -> BorrowedFd<'_> {
        self.queue_pair.events().descriptor()
    }

    /// Returns the private data of the peer: `rpma_conn_get_private_data(3)`. If this side has asked for the
    /// connection, it is empty until [`next_event`](Self::next_event) has returned
    /// [`ConnectionEvent::Established`].
    pub fn private_data(&self) -> &[u8] {
        self.private_data.get().map_or(&[], |data| data)
    }

    /// Applies what the peer tells about itself: `rpma_conn_apply_remote_peer_cfg(3)`. Without this call the
    /// peer has the default configuration.
    pub fn apply_remote_peer_config(&self, config: PeerConfig) {
        self.has_direct_write_to_pmem.store(config.direct_write_to_pmem, Ordering::SeqCst);
    }

    /// Returns the number that names the connection in its [completions](crate::Completion::qp_number):
    /// `rpma_conn_get_qp_num(3)`. No two connections of a process have the same number, up to 2^32 of them.
    pub fn qp_number(&self) -> u32 {
        self.queue_pair.number()
    }

    /// Returns the main queue: `rpma_conn_get_cq(3)`. It has the completions of all sends and accesses, and
    /// those of receives if there is no other queue for them.
    pub fn completion_queue(&self) -> &CompletionQueue {
        self.queue_pair.completion_queue()
    }

    /// Returns the queue for receives: `rpma_conn_get_rcq(3)`. `None` if the
    /// [configuration](crate::ConnectionConfig::receive_completion_queue_size) asks for none, and if receives
    /// complete in the queue of a [`SharedReceiveQueue`](crate::SharedReceiveQueue).
    pub fn receive_completion_queue(&self) -> Option<&CompletionQueue> {
        self.queue_pair.receive_completion_queue()
    }

    /// Waits until the main queue or the queue for receives has a completion: `rpma_conn_wait(3)`. Returns
    /// the queue that has the oldest one. It stays in the queue.
    ///
    /// # Errors
    ///
    /// - [`Error::NotSharedChannel`] unless the
    ///   [configuration](crate::ConnectionConfig::shared_completion_channel) asks for a shared channel.
    /// - [`Error::NoCompletion`] if there is no completion, and the application has set `O_NONBLOCK` on the
    ///   [descriptor](Self::completion_fd).
    /// - [`Error::Interrupted`] if a signal handler without `SA_RESTART` has run in this thread.
    /// - [`Error::Fabric`]: EMFILE, ENFILE or ENOMEM, from the first call.
    pub fn wait(&self) -> Result<ReadyQueue<'_>, Error> {
        self.check_channel_shared()?;
        let role = self.queue_pair.channel().wait()?;
        Ok(match (role, self.receive_completion_queue()) {
            (Role::Receive, Some(queue)) if !mutated!("rpma_conn_wait/wait-names-queue") => {
                ReadyQueue::Receive(queue)
            }
            _ => ReadyQueue::Main(self.completion_queue()),
        })
    }

    /// Returns the descriptor of the shared completion channel: `rpma_conn_get_compl_fd(3)`. It is readable
    /// while one of the queues has a completion: see [`CompletionQueue::fd`].
    ///
    /// # Errors
    ///
    /// As [`wait`](Self::wait), but never [`Error::NoCompletion`].
    pub fn completion_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.check_channel_shared()?;
        self.queue_pair.channel().descriptor()
    }

    /// Ends the connection: `rpma_conn_disconnect(3)`. Sends and accesses that were posted are carried out
    /// first: the call waits until none has ended for 2 seconds. So one that takes longer by itself, such as
    /// a persistent flush of gigabytes, is cut off. Receives that are posted complete with
    /// [`Status::Flushed`](crate::Status::Flushed). Both sides get [`ConnectionEvent::Closed`].
    ///
    /// Succeeds without an effect if the connection has ended, also if the peer is gone.
    ///
    /// # Errors
    ///
    /// [`Error::NotConnected`] if the connection was not established yet.
    pub fn disconnect(&self) -> Result<(), Error> {
        self.queue_pair.disconnect()
    }

    fn check_channel_shared(&self) -> Result<(), Error> {
        if self.queue_pair.channel().is_shared() {
            Ok(())
        } else if mutated!("rpma_conn_wait/not-shared-channel") {
            Err(Error::SharedChannel)
        } else {
            Err(Error::NotSharedChannel)
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // The requester learns that this side has accepted, and then of the end. A native endpoint that
        // closes before that takes its answer back, and so rejects the request.
        if *self.is_being_accepted.get_mut() {
            self.queue_pair.events().wait_for_one(ACCEPT_MAX);
        }
    }
}
