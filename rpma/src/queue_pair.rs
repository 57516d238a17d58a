//! Queue pairs: the native objects of one connection, from its request to its end.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homespun::flags::{BindFlags, CounterEvents, OpFlags};
use homespun::info::{Info, SHARED_CONTEXT};
use homespun::{Counter, CounterAttr, Endpoint, FabricAddress, RecvMsg, mutated};

use crate::channel::{Channel, Role, Sharing};
use crate::completion::Report;
use crate::completion_queue::CompletionQueue;
use crate::connection_config::ConnectionConfig;
use crate::error::{Error, Invalid};
use crate::events::Events;
use crate::memory_region::LocalSlice;
use crate::native_queue::NativeQueue;
use crate::peer::{Peer, set_writes_take_receives};
use crate::shared_receive_queue::SharedReceiveQueue;
use crate::usage::Usage;

/// How long a disconnect waits, at most, for the next of the posted sends and accesses to end.
const DRAIN_MAX: Duration = Duration::from_secs(2);

/// How often a disconnect looks at the counter before it sleeps between looks.
const DRAIN_LOOKS_WITHOUT_SLEEP: u32 = 50;

/// How long a disconnect sleeps between looks at the counter.
const DRAIN_SLEEP: Duration = Duration::from_millis(1);

/// How many reads in a row must find no completion before a queue pair closes. A read makes no pass while
/// another thread makes one. The first such pass may have begun before there was room in the native queue.
/// The second has moved the completions that wait, and the third read finds them.
const EMPTY_READS_BEFORE_CLOSE: u32 = 3;

/// The destination of a post. A connected endpoint ignores it.
pub(crate) const PEER: FabricAddress = FabricAddress::UNSPECIFIED;

/// A native endpoint with its queues.
#[derive(Debug)]
pub(crate) struct QueuePair {
    number: u32,
    endpoint: Endpoint,
    /// Dropped after the endpoint, so that no completion comes after the end of the queues.
    queues: Queues,
    events: Events,
    /// The number of sends and accesses that were posted.
    posted: AtomicU64,
    /// Counts the sends and accesses that have ended.
    ended: Counter,
}

/// The looks of a disconnect at the number of operations that have ended.
#[derive(Debug)]
struct DrainLooks {
    /// The number that the last look found.
    ended: u64,
    /// When the number last changed.
    changed_at: Instant,
    /// The number of looks since then.
    without_progress: u32,
}

/// What a disconnect does after a look at operations that have not all ended.
#[derive(Debug, PartialEq, Eq)]
enum DrainStep {
    Yield,
    Sleep,
    GiveUp,
}

impl DrainLooks {
    fn new(now: Instant) -> DrainLooks {
        DrainLooks { ended: 0, changed_at: now, without_progress: 0 }
    }

    /// Counts a look that has found this number.
    fn next_step(&mut self, ended: u64, now: Instant) -> DrainStep {
        if ended != self.ended {
            *self = DrainLooks { ended, ..DrainLooks::new(now) };
        }
        self.without_progress = self.without_progress.saturating_add(1);
        if now.saturating_duration_since(self.changed_at) >= DRAIN_MAX {
            DrainStep::GiveUp
        } else if self.without_progress <= DRAIN_LOOKS_WITHOUT_SLEEP {
            DrainStep::Yield
        } else {
            DrainStep::Sleep
        }
    }
}

/// The completion queues of a connection, and their native queues.
#[derive(Debug)]
struct Queues {
    channel: Arc<Channel>,
    /// The native queue with the completions of sends and accesses.
    transmit: Arc<NativeQueue>,
    /// The native queue with the completions of receives, if it is another one.
    receive: Option<Arc<NativeQueue>>,
    completion_queue: CompletionQueue,
    receive_completion_queue: Option<CompletionQueue>,
    /// The queue that has the receives, if they are shared.
    shared_receive_queue: Option<SharedReceiveQueue>,
    /// A post is refused while the shared channel keeps as many completions for the main queue.
    main_kept_max: usize,
    /// As `main_kept_max`, for posts of receives and the queue for receives.
    receive_kept_max: usize,
}

impl QueuePair {
    /// Opens a queue pair. `open` opens the native endpoint; its argument completes the info of the endpoint.
    ///
    /// # Errors
    ///
    /// [`Invalid::SharedChannel`]; the errors of `open`; the system's error: EMFILE, ENFILE, ENOMEM.
    pub(crate) fn open(
        peer: &Peer,
        config: &ConnectionConfig,
        open: impl FnOnce(&dyn Fn(Info) -> Info) -> Result<Endpoint, homespun::Error>,
    ) -> Result<QueuePair, Error> {
        static NUMBERS: AtomicU32 = AtomicU32::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let events = Events::new(peer)?;
        let endpoint = open(&|info| configured_info(info, config))?;
        let queue_pair = QueuePair {
            number,
            endpoint,
            queues: Queues::open(peer, config, number)?,
            events,
            posted: AtomicU64::new(0),
            ended: peer.domain().open_counter(&CounterAttr::default())?,
        };
        queue_pair.bind_objects()?;
        queue_pair.endpoint.set_ends_on_failure(true)?;
        queue_pair.endpoint.set_connect_timeout(Some(config.timeout));
        Ok(queue_pair)
    }

    /// Binds the queues and the counter to the endpoint.
    fn bind_objects(&self) -> Result<(), Error> {
        let QueuePair { endpoint, queues: Queues { transmit, receive, .. }, .. } = self;
        endpoint.bind_eq(self.events.queue(), 0)?;
        endpoint.bind_cq(transmit.queue(), BindFlags::TRANSMIT | BindFlags::SELECTIVE_COMPLETION)?;
        let collects_receives = mutated!("rpma_cq_get_completion/main-queue-without-recv")
            || mutated!("rpma_cq_get_completion/main-queue-without-recv-with-imm")
            || mutated!("rpma_cq_get_completion/main-queue-without-failed-receives")
            || mutated!("rpma_cq_get_wc/receives-in-receive-queue");
        let receives = receive.as_ref().filter(|_| !collects_receives).unwrap_or(transmit);
        if receive.is_some() || !mutated!("rpma_cq_get_completion/main-queue-has-all-alone") {
            endpoint.bind_cq(receives.queue(), BindFlags::RECV)?;
        }
        let counted = CounterEvents::SEND | CounterEvents::WRITE | CounterEvents::READ;
        endpoint.bind_counter(&self.ended, counted)?;
        if let Some(shared) = &self.queues.shared_receive_queue
            && !mutated!("rpma_srq_new/connections-share-receives")
        {
            endpoint.bind_shared_receive_context(shared.context())?;
            receive.iter().try_for_each(|receive| shared.add_queue(receive))?;
        }
        Ok(())
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) fn events(&self) -> &Events {
        &self.events
    }

    pub(crate) fn channel(&self) -> &Channel {
        &self.queues.channel
    }

    pub(crate) fn completion_queue(&self) -> &CompletionQueue {
        &self.queues.completion_queue
    }

    pub(crate) fn receive_completion_queue(&self) -> Option<&CompletionQueue> {
        self.queues.receive_completion_queue.as_ref()
    }

    /// Enables the endpoint, so that it can connect and receives can be posted.
    ///
    /// # Errors
    ///
    /// The system's error: EMFILE, ENFILE, ENOMEM, EAGAIN, EADDRNOTAVAIL.
    pub(crate) fn enable(&self) -> Result<(), Error> {
        self.endpoint.enable()?;
        self.queues.update_shared_receive_queue();
        Ok(())
    }

    /// Posts a receive into `dst`.
    pub(crate) fn recv(&self, dst: LocalSlice<'_>, op_context: u64) -> Result<(), Error> {
        if self.queues.shared_receive_queue.is_some() {
            return Err(Invalid::SharedReceives.into());
        }
        self.check_room(Role::Receive, self.queues.receive_kept_max)?;
        let receive = RecvMsg {
            buffers: &[dst.destination(Usage::RECV)?][..],
            from: PEER,
            context: op_context,
            flags: OpFlags::empty(),
            ..RecvMsg::default()
        };
        // SAFETY: the caller who registered the region has promised that its memory is there, and that
        // nothing else uses the slice, until the receive has ended.
        unsafe { self.endpoint.post_receive(&receive) }.map_err(Error::from)
    }

    /// Refuses a post if its completion may be one too many for the shared channel to keep.
    fn check_room(&self, role: Role, kept_max: usize) -> Result<(), Error> {
        if self.channel().keeps_fewer_than(kept_max, role) { Ok(()) } else { Err(Error::QueueFull) }
    }

    /// Posts a send or an access by `post`, which takes the flags for the report.
    pub(crate) fn post(
        &self,
        report: Report,
        post: impl FnOnce(&Endpoint, OpFlags) -> Result<(), homespun::Error>,
    ) -> Result<(), Error> {
        self.check_room(Role::Main, self.queues.main_kept_max)?;
        self.post_to_endpoint(report, post)
    }

    fn post_to_endpoint(
        &self,
        report: Report,
        post: impl FnOnce(&Endpoint, OpFlags) -> Result<(), homespun::Error>,
    ) -> Result<(), Error> {
        post(&self.endpoint, report_flags(report))?;
        self.posted.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// As [`post`](Self::post), for a send of `len_bytes`. Its completion will have this length.
    pub(crate) fn post_send(
        &self,
        len_bytes: usize,
        report: Report,
        post: impl FnOnce(&Endpoint, OpFlags) -> Result<(), homespun::Error>,
    ) -> Result<(), Error> {
        if report == Report::OnError {
            return self.post(report, post);
        }
        // This locks the channel, as a reader does before it locks the lengths.
        self.check_room(Role::Main, self.queues.main_kept_max)?;
        // Locked until the send is posted, so that the lengths have the order of the sends.
        let sent_bytes: &mut VecDeque<u32> = &mut self.queues.transmit.lock_sent_bytes();
        sent_bytes.push_back(u32::try_from(len_bytes).unwrap_or(u32::MAX));
        self.post_to_endpoint(report, post).inspect_err(|_| {
            sent_bytes.pop_back();
        })
    }

    /// Ends the connection, once the sends and accesses that were posted have ended.
    ///
    /// # Errors
    ///
    /// [`Error::NotConnected`] if there has not been a connection yet.
    pub(crate) fn disconnect(&self) -> Result<(), Error> {
        self.drain();
        Ok(self.endpoint.shutdown()?)
    }

    /// Waits until the sends and accesses that were posted have ended. Gives up once none has ended for
    /// [`DRAIN_MAX`].
    fn drain(&self) {
        let posted = self.posted.load(Ordering::SeqCst);
        let mut looks = DrainLooks::new(Instant::now());
        loop {
            let ended = self.ended.read() + self.ended.read_error();
            if ended >= posted {
                return;
            }
            // The counter has no wait object: it would take three descriptors from each connection.
            match looks.next_step(ended, Instant::now()) {
                DrainStep::Yield => thread::yield_now(),
                DrainStep::Sleep => thread::sleep(DRAIN_SLEEP),
                DrainStep::GiveUp => return,
            }
        }
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // Receives that are posted complete as flushed, for threads that wait for them. Without a connection
        // there is nothing to end.
        let _ = self.disconnect();
        // The endpoint forgets completions for which its native queues have no room when it closes.
        let mut empty_reads = 0;
        while empty_reads < EMPTY_READS_BEFORE_CLOSE {
            if self.queues.keep_completions() > 0 {
                empty_reads = 0;
                continue;
            }
            empty_reads += 1;
            // Waits until the pass of another thread has ended. The connection has ended before.
            let _ = self.endpoint.shutdown();
        }
    }
}

impl Drop for Queues {
    fn drop(&mut self) {
        // What completed until the endpoint closed is kept before the native queues end and are removed.
        while self.keep_completions() > 0 {}
        self.transmit.end();
        self.receive.iter().for_each(|receive| receive.end());
        self.update_shared_receive_queue();
    }
}

impl Queues {
    fn open(peer: &Peer, config: &ConnectionConfig, number: u32) -> Result<Queues, Error> {
        let shared_queue = match &config.shared_receive_queue {
            Some(shared)
                if config.shared_completion_channel
                    && shared.completion_queue().is_some()
                    && !mutated!("rpma_srq_new/shared-channel-is-refused") =>
            {
                return Err(Invalid::SharedChannel.into());
            }
            Some(shared) => shared.open_queue(peer, number)?,
            None => None,
        };
        let (main_size, receive_size) =
            (config.completion_queue_size as usize, config.receive_completion_queue_size as usize);
        let has_receive_queue = receive_size > 0 && shared_queue.is_none();
        let sharing = match (config.shared_completion_channel, has_receive_queue) {
            (false, _) => Sharing::Own,
            (true, false) => Sharing::MainAlone,
            (true, true) => Sharing::MainAndReceive,
        };
        let size_entries =
            if sharing == Sharing::MainAndReceive { main_size + receive_size } else { main_size };
        let transmit = NativeQueue::open(peer, size_entries.max(1), number)?;
        let kept_receives = config.shared_receive_queue.as_ref().map(SharedReceiveQueue::kept_receives);
        let channel = Channel::new(sharing, kept_receives.clone());
        channel.add_queue(&transmit)?;
        let completion_queue = CompletionQueue::new(&channel, Role::Main);
        let mut queues = Queues {
            channel,
            transmit,
            receive: shared_queue,
            completion_queue,
            receive_completion_queue: None,
            shared_receive_queue: config.shared_receive_queue.clone(),
            // A queue with a channel of its own has no more: its entries, and the outstanding operations.
            main_kept_max: main_size.max(1) + config.send_queue_size.max(1) as usize,
            receive_kept_max: receive_size + config.receive_queue_size.max(1) as usize,
        };
        if has_receive_queue && sharing == Sharing::Own {
            let receive = NativeQueue::open(peer, receive_size, number)?;
            let own_channel = Channel::new(Sharing::Own, kept_receives);
            if !mutated!("rpma_cq_get_completion/receive-queue-collects-receives") {
                own_channel.add_queue(&receive)?;
            }
            queues.receive = Some(receive);
            queues.receive_completion_queue = Some(CompletionQueue::new(&own_channel, Role::Main));
        } else if has_receive_queue {
            queues.receive_completion_queue = Some(CompletionQueue::new(&queues.channel, Role::Receive));
        }
        Ok(queues)
    }

    /// Moves the completions of the native queues to their channels. Returns their number.
    fn keep_completions(&self) -> usize {
        self.channel.keep_completions(&self.transmit) + self.keep_receives()
    }

    /// As [`keep_completions`](Self::keep_completions), once, for the native queue of receives. Returns the
    /// number of completions.
    fn keep_receives(&self) -> usize {
        let Some(receive) = &self.receive else { return 0 };
        let shared = self.shared_receive_queue.as_ref().and_then(SharedReceiveQueue::completion_queue);
        let queue = shared.or(self.receive_completion_queue.as_ref());
        queue.map_or(0, |queue| queue.channel().keep_completions(receive))
    }

    fn update_shared_receive_queue(&self) {
        if let Some(shared) = &self.shared_receive_queue {
            shared.update_connections();
        }
    }
}

/// Returns the info of an endpoint with this configuration.
fn configured_info(mut info: Info, config: &ConnectionConfig) -> Info {
    set_writes_take_receives(&mut info);
    info.tx.size_ops = config.send_queue_size.max(1) as usize;
    info.rx.size_ops = config.receive_queue_size.max(1) as usize;
    if config.shared_receive_queue.is_some() {
        info.ep.rx_ctx_cnt = SHARED_CONTEXT;
    }
    info
}

/// Returns the flags of a post. It succeeds once the peer has it, so that the end of a connection cannot make
/// a success untrue.
fn report_flags(report: Report) -> OpFlags {
    match report {
        Report::Always if mutated!("rpma_cq_get_completion/always-completes-on-success") => {
            OpFlags::TRANSMIT_COMPLETE
        }
        Report::Always => OpFlags::TRANSMIT_COMPLETE | OpFlags::COMPLETION,
        Report::OnError if mutated!("rpma_cq_get_completion/on-error-hides-success") => {
            OpFlags::TRANSMIT_COMPLETE | OpFlags::COMPLETION
        }
        Report::OnError => OpFlags::TRANSMIT_COMPLETE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drain_waits_while_operations_end() {
        let mut now = Instant::now();
        let mut looks = DrainLooks::new(now);
        // In sum longer than the wait without progress.
        for ended in 1..10 {
            now += DRAIN_MAX - DRAIN_SLEEP;
            assert_eq!(looks.next_step(ended, now), DrainStep::Yield);
        }
        now += DRAIN_MAX - DRAIN_SLEEP;
        assert_ne!(looks.next_step(9, now), DrainStep::GiveUp);
        assert_eq!(looks.next_step(9, now + DRAIN_SLEEP), DrainStep::GiveUp);
    }

    #[test]
    fn drain_sleeps_between_looks_without_progress() {
        let now = Instant::now();
        let mut looks = DrainLooks::new(now);
        for ended in [0, 1] {
            for _ in 0..DRAIN_LOOKS_WITHOUT_SLEEP {
                assert_eq!(looks.next_step(ended, now), DrainStep::Yield);
            }
            assert_eq!(looks.next_step(ended, now), DrainStep::Sleep);
        }
    }
}
