//! The configuration of connections.

use std::time::Duration;

use crate::shared_receive_queue::SharedReceiveQueue;

/// The configuration of a connection: `rpma_conn_cfg_new(3)`.
///
/// ```
/// use homespun_rpma::ConnectionConfig;
///
/// let config = ConnectionConfig { receive_completion_queue_size: 20, ..ConnectionConfig::default() };
/// assert_eq!((config.send_queue_size, config.timeout.as_millis()), (10, 1000));
/// ```
#[derive(Debug, Clone)]
pub struct ConnectionConfig {
    /// How long a connect waits for its answer, at most: `rpma_conn_cfg_set_timeout(3)`. 1000 ms by default.
    /// Then the event is [`Unreachable`](crate::ConnectionEvent::Unreachable). The accepting side has no such
    /// limit.
    pub timeout: Duration,
    /// The number of completions that the main queue holds: `rpma_conn_cfg_set_cq_size(3)`. 10 by default.
    /// Further completions are not lost. They wait, and their operations count as outstanding.
    pub completion_queue_size: u32,
    /// The number of completions that the queue for receives holds: `rpma_conn_cfg_set_rcq_size(3)`. With 0,
    /// the default, the connection has no such queue, and receives complete in the main queue. Ignored with a
    /// shared receive queue that has a completion queue.
    pub receive_completion_queue_size: u32,
    /// The number of sends and accesses that may be outstanding: `rpma_conn_cfg_set_sq_size(3)`. 10 by
    /// default. 0 counts as 1.
    pub send_queue_size: u32,
    /// The number of receives that may be posted: `rpma_conn_cfg_set_rq_size(3)`. 10 by default. 0 counts as
    /// 1. Ignored with a shared receive queue.
    pub receive_queue_size: u32,
    /// Whether the main queue and the queue for receives share a completion channel, so that one thread can
    /// [wait](crate::Connection::wait) for both: `rpma_conn_cfg_set_compl_channel(3)`. `false` by default.
    ///
    /// A read of one queue sets the completions of the other one aside. It never stops for them, so that a
    /// program may read the queues in any order. Instead, a post fails with
    /// [`Error::QueueFull`](crate::Error::QueueFull) while too many completions of its queue are set aside:
    /// the size of the completion queue plus that of the send queue, or of the receive queue. Receives of a
    /// [shared receive queue](Self::shared_receive_queue) have no such limit, so a program that uses one must
    /// read both queues.
    pub shared_completion_channel: bool,
    /// The queue from which the connection takes its receives: `rpma_conn_cfg_set_srq(3)`. None by default:
    /// the connection has receives of its own.
    pub shared_receive_queue: Option<SharedReceiveQueue>,
}

impl Default for ConnectionConfig {
    fn default() -> ConnectionConfig {
        ConnectionConfig {
            timeout: Duration::from_millis(1000),
            completion_queue_size: 10,
            receive_completion_queue_size: 0,
            send_queue_size: 10,
            receive_queue_size: 10,
            shared_completion_channel: false,
            shared_receive_queue: None,
        }
    }
}
