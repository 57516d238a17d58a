//! The protocol engine of one endpoint.

mod arrival;
mod atomics;
mod awaited_sources;
mod connections;
mod direct;
mod effects;
mod failures;
mod fences;
mod injected_writes;
mod links;
mod peer_sweep;
mod posting;
mod receive_lane;
mod receive_side;
mod rendezvous;
mod replaced_links;
mod replies;
mod rma;
mod send_lane;
#[cfg(test)]
mod tests;
mod timers;
mod transmit;

use std::collections::VecDeque;
use std::sync::Arc;

pub use self::arrival::Arrivals;
pub use self::direct::Attempt;
pub use self::injected_writes::InjectedWrite;
use self::links::ClosingLink;
use self::receive_side::ReceiveSide;
use self::replaced_links::ReplacedLinks;
use crate::address::Address;
use crate::buffer::{Buffer, Destination, SegmentMut};
use crate::completion::{EndedOperation, FailedOperation, Sink};
use crate::connecting::Connection;
use crate::connection::EndpointRole;
use crate::error::{Error, Missing, Misuse, OperationError};
use crate::flags::{CompletionFlags, MrAccess, Order};
use crate::initiator::Initiator;
use crate::limits;
use crate::link::Links;
use crate::mutated;
use crate::operation::{CancelKey, PeekRequest, ReceiveRequest};
use crate::peer_id::PeerId;
use crate::peers::Peers;
use crate::receiver::{MemberId, PostedReceive, Receiver};
use crate::region::Regions;
use crate::rejected::Rejected;
use crate::target::Target;
use crate::transport::{Close, Transport};

/// The limits and attributes of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// How many sends may be outstanding.
    pub tx_depth_ops: usize,
    /// How many receives may be outstanding.
    pub rx_depth_ops: usize,
    /// The largest length of a message, a read or a write.
    pub message_max_bytes: u64,
    /// The budget: how much memory the unexpected messages of all links may take together. Each
    /// link may exceed the budget by [`CREDIT_INITIAL_BYTES`](limits::CREDIT_INITIAL_BYTES).
    pub unexpected_budget_bytes: usize,
    /// The largest message that travels eagerly.
    pub eager_max_bytes: usize,
    /// Which accesses peers may make to regions through this endpoint. Only
    /// [`MrAccess::REMOTE_READ`] and [`MrAccess::REMOTE_WRITE`] matter. A region may allow less.
    pub remote_access: MrAccess,
    /// As `remote_access`, for atomic operations.
    pub remote_atomics: MrAccess,
    /// Whether this endpoint counts the accesses that peers make through it (`FI_RMA_EVENT`).
    pub rma_events: bool,
    /// Whether a peer's write with remote data takes a posted receive, or waits for one like a message
    /// (`FI_RX_CQ_DATA`). If not, the write completes without a receive.
    pub remote_data_takes_receives: bool,
    /// Whether the pull of an offer that no receive matches waits for a while
    /// ([`FETCH_DELAY_PASSES`](limits::FETCH_DELAY_PASSES), [`FETCH_DELAY_MS`](limits::FETCH_DELAY_MS)),
    /// since the application may be about to post the receive. The caller then tells the engine the time.
    pub delays_unmatched_fetches: bool,
    /// Which pairs of operations a peer carries out in the order of posting, for example a read
    /// after a write. Messages always keep their order among each other. So do reads.
    pub transmit_order: Order,
    /// Whether the completions of sends and accesses to one peer keep the order of posting.
    pub completes_in_order: bool,
    /// Which pairs of operations from one peer this endpoint carries out in the order of arrival.
    pub receive_order: Order,
    /// Which peers the endpoint talks to.
    pub role: EndpointRole,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            tx_depth_ops: limits::TX_DEPTH_DEFAULT_OPS,
            rx_depth_ops: limits::RX_DEPTH_DEFAULT_OPS,
            message_max_bytes: limits::MESSAGE_MAX_BYTES,
            unexpected_budget_bytes: limits::UNEXPECTED_BUDGET_DEFAULT_BYTES,
            eager_max_bytes: limits::EAGER_MAX_BYTES,
            remote_access: MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE,
            remote_atomics: MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE,
            rma_events: true,
            remote_data_takes_receives: false,
            delays_unmatched_fetches: true,
            transmit_order: Order::SAS,
            completes_in_order: false,
            receive_order: Order::SAS,
            role: EndpointRole::Unconnected,
        }
    }
}

/// An endpoint, without its sockets and its completion queues.
///
/// The engine does no I/O, reads no clock and has no thread. Its methods are of five kinds:
///
/// - getters;
/// - commands of the application: [`intern_peer`](Self::intern_peer), [`post`](Self::post),
///   [`post_receive`](Self::post_receive), [`post_multi_receive`](Self::post_multi_receive),
///   [`peek`](Self::peek), [`cancel`](Self::cancel); for connections [`connect`](Self::connect),
///   [`listen`](Self::listen), [`accept`](Self::accept), [`reject`](Self::reject),
///   [`shutdown`](Self::shutdown);
/// - input: a transport reports to [`arrivals`](Self::arrivals);
/// - time: [`advance_time`](Self::advance_time), while [`awaits_timeout`](Self::awaits_timeout)
///   is true;
/// - output: [`transmit`](Self::transmit) hands frames to a transport. A method that may end
///   operations puts their completions into a [`Sink`].
///
/// A pass makes these calls, in this order:
///
/// ```
/// use homespun_engine::{Config, Engine};
/// # use homespun_engine::completion::Sink;
/// # use homespun_engine::moment::Moment;
/// # use homespun_engine::transport::Transport;
/// fn pass(
///     engine: &mut Engine,
///     transport: &mut impl Transport,
///     clock: impl Fn() -> Moment,
///     sink: &mut impl Sink,
/// ) {
///     engine.deliver_held(sink);
///     transport.receive(64, &mut engine.arrivals(sink));
///     if engine.awaits_timeout() {
///         engine.advance_time(clock(), sink);
///     }
///     engine.transmit(transport, sink);
///     transport.flush();
/// }
/// ```
#[derive(Debug)]
pub struct Engine {
    config: Config,
    peers: Peers,
    links: Links,
    initiator: Initiator,
    receive_side: ReceiveSide,
    target: Target,
    /// Whether this side has stored to mapped memory of peers without executing a memory fence
    /// afterwards. A later load could overtake these stores.
    has_unseen_stores: bool,
    /// Whether a peer may have offered regions that this side has not mapped. Still true after the link
    /// of the last such peer has ended.
    has_offered_regions: bool,
    /// How many passes remain until the engine unmaps regions that peers have closed. While it is
    /// 0, no region is mapped.
    passes_to_sweep: u32,
    /// Links that the engine has ended but has not closed at the transport yet.
    condemned: VecDeque<ClosingLink>,
    /// Links to endpoints that were replaced. The engine reads these links to their end.
    replaced: ReplacedLinks,
    /// Peers that the next pass connects to, since posted receives may wait for them. See
    /// [`add_awaited_source`](Self::add_awaited_source).
    awaited_sources: Vec<PeerId>,
    /// Whether any timeout runs.
    has_timeouts: bool,
    connection: Connection,
    /// Whether the connection ends with the first operation that fails.
    ends_on_failure: bool,
    /// The peer of a connection that has ended with a failure, until this side shuts the connection down.
    /// Posts of the application end as flushed meanwhile.
    late_posts_to: Option<PeerId>,
}

impl Engine {
    /// Creates an engine without peers, and without memory that peers may access.
    pub fn new(config: Config) -> Engine {
        Engine::with_regions(config, Arc::default())
    }

    /// Creates an engine without peers. Peers that connect to it may access `regions`.
    pub fn with_regions(config: Config, regions: Arc<Regions>) -> Engine {
        let mut receiver = Receiver::new(config.rx_depth_ops, config.unexpected_budget_bytes);
        if config.delays_unmatched_fetches {
            receiver.delay_unmatched_fetches();
        }
        if config.role == EndpointRole::Connected {
            receiver.keep_completion_order(MemberId::ONLY);
        }
        let mut target = Target::new(
            regions,
            config.remote_access,
            config.remote_atomics,
            config.receive_order,
            config.rma_events,
        );
        if config.remote_data_takes_receives {
            target.give_remote_data_to_receives();
        }
        Engine {
            receive_side: ReceiveSide::Own(receiver),
            target,
            initiator: Initiator::new(config.completes_in_order),
            connection: Connection::new(config.role),
            config,
            peers: Peers::default(),
            links: Links::default(),
            has_unseen_stores: false,
            has_offered_regions: false,
            passes_to_sweep: 0,
            // Links can end without memory, too.
            condemned: VecDeque::with_capacity(limits::CONDEMNED_ROOM_LINKS),
            replaced: ReplacedLinks::default(),
            awaited_sources: Vec::new(),
            has_timeouts: false,
            ends_on_failure: false,
            late_posts_to: None,
        }
    }

    /// Returns the endpoints that this one knows.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Makes peers access all regions by frames from now on, so that this endpoint can count every
    /// access. Peers must unmap the regions that this endpoint has offered for mapping. No endpoint
    /// offers these regions for mapping again.
    pub fn disable_direct_access(&mut self) {
        self.target.disable_direct_access();
    }

    /// Whether anything is unsent: queued operations, pending replies, handshake frames for links
    /// that are up, or sends whose payload a peer has yet to fetch.
    pub fn has_unsent(&self) -> bool {
        self.initiator.has_listed_peers()
            || self.links.have_pending_replies()
            || self.initiator.has_operations() && self.links.have_unfetched_sends()
            || self.connection.has_unsent()
    }

    /// Whether the next pass has work even if no frame arrives. Check this after a pass, before
    /// sleeping. Operations that wait for a link or a peer do not count: the transport wakes the
    /// caller for them.
    pub fn has_work_without_arrivals(&self) -> bool {
        self.receive_side.has_work_without_arrivals()
            || self.target.has_work_without_arrivals()
            || !self.condemned.is_empty()
            || !self.awaited_sources.is_empty()
            || self.links.has_paused_reads()
            || self.initiator.has_watched_failure()
    }

    /// Returns how many sends and accesses have not ended, or have not been reported.
    #[inline(always)]
    pub fn outstanding_transmits(&self) -> usize {
        self.initiator.outstanding_ops()
    }

    /// Returns how many receives have not ended, or have not been reported. Always 0 if the engine
    /// has joined a shared receiver.
    #[inline(always)]
    pub fn outstanding_receives(&self) -> usize {
        self.receive_side.outstanding_receives()
    }

    /// Returns the id of the peer at `address`, which the application names. The id stays valid for
    /// the life of the engine.
    pub fn intern_peer(&mut self, address: Address) -> PeerId {
        self.peers.intern_named(address)
    }

    /// Posts a receive. If unexpected messages match, the receive takes the earliest of them at
    /// once. If the receive names a lost peer as its only source, the next pass connects to this
    /// peer. If that attempt fails, the receive fails.
    ///
    /// # Errors
    ///
    /// [`Again::QueueFull`] when [`Config::rx_depth_ops`] receives are outstanding.
    /// [`Misuse::NotConnected`] if the connection has ended and no message that arrived before
    /// matches the receive. [`Misuse::NotSupported`] if the engine has joined a shared receiver.
    /// Each error hands back the destination.
    ///
    /// [`Again::QueueFull`]: crate::error::Again::QueueFull
    #[inline(always)]
    pub fn post_receive(
        &mut self,
        request: ReceiveRequest,
        sink: &mut impl Sink,
    ) -> Result<(), Rejected<Destination>> {
        let needs_connection = match request.tagged {
            true => mutated!("fi_tagged/tagged-receives-before-connect"),
            false => mutated!("fi_msg/receives-before-connect"),
        };
        if needs_connection && matches!(self.connected_peer(), Some(Err(_))) {
            return Err(Rejected { error: Misuse::NotConnected.into(), returned: request.destination });
        }
        let source = request.criteria.source;
        let (receiver, mut effects) = self.receive_side_and_effects(sink);
        let posted = receiver.post(request, &mut effects)?;
        if let Some(source) = source {
            self.add_awaited_source_if_lost(source);
        }
        if posted == PostedReceive::Matched && self.receive_side.has_watched_failure() {
            self.end_connection_after_failure(sink);
        }
        Ok(())
    }

    /// Posts a receive that takes many messages into one buffer. The receive ends when less than
    /// `min_free_bytes` of the buffer are free, or when a message does not fit. If the first
    /// message does not fit, it is truncated. If a later message does not fit, it goes to the next
    /// receive.
    ///
    /// Each message completes with the context of the buffer. The completion says where the message
    /// lies ([`Buffer::Within`], [`Buffer::Received`]). While completions of receives wait for room
    /// in their queue, the buffer takes no messages.
    ///
    /// When the engine releases the buffer, one completion has the flag
    /// [`CompletionFlags::MULTI_RECV`]: the completion of the last message, or a completion without
    /// a message. From then on the engine writes nothing to the buffer. A completion without a
    /// message is an error if the buffer was cancelled or its only source was lost.
    ///
    /// If the call is deferred work, `work` is its number. The work ends when the engine releases
    /// the buffer. The flag is then always on a completion without a message.
    ///
    /// # Errors
    ///
    /// [`Again::QueueFull`] and [`Misuse::NotSupported`] as for
    /// [`post_receive`](Self::post_receive). [`Misuse::Flags`] for a tagged receive, which
    /// `fi_tagged(3)` does not allow here. [`Misuse::TooManySegments`] or [`Misuse::Memory`] if the
    /// memory is not one segment. Each error hands back the destination.
    ///
    /// [`Again::QueueFull`]: crate::error::Again::QueueFull
    /// [`Buffer::Within`]: crate::buffer::Buffer::Within
    /// [`Buffer::Received`]: crate::buffer::Buffer::Received
    /// [`CompletionFlags::MULTI_RECV`]: crate::flags::CompletionFlags::MULTI_RECV
    pub fn post_multi_receive(
        &mut self,
        request: ReceiveRequest,
        min_free_bytes: usize,
        work: Option<u64>,
        sink: &mut impl Sink,
    ) -> Result<(), Rejected<Destination>> {
        self.end_connection_if_failed(sink);
        let source = request.criteria.source;
        let (receiver, mut effects) = self.receive_side_and_effects(sink);
        receiver.post_multi_receive(request, min_free_bytes, work, &mut effects)?;
        if let Some(source) = source {
            self.add_awaited_source_if_lost(source);
        }
        self.end_connection_if_failed(sink);
        Ok(())
    }

    /// Looks for an unexpected message among those that earlier passes have received. Reports the
    /// message, or [`OperationError::NoMessage`], at once. A peek reads no frames, so a caller that
    /// peeks in a loop makes a pass after each peek. A message that the latest pass has received behind the
    /// last receive that it ended is found after the next pass, or after
    /// [`show_all_to_peeks`](Self::show_all_to_peeks).
    ///
    /// # Errors
    ///
    /// [`Again::QueueFull`] in two cases. First, reports of receives wait for room in their queue,
    /// and [`Config::rx_depth_ops`] receives are outstanding. Second, the peek is for untagged
    /// messages, and some of these are kept aside for a multi-receive buffer.
    ///
    /// [`Misuse::Invalid`] for a claim if another message is already claimed with the same context.
    /// [`Misuse::NotSupported`] if the engine has joined a shared receiver.
    ///
    /// [`Again::QueueFull`]: crate::error::Again::QueueFull
    /// [`OperationError::NoMessage`]: crate::error::OperationError::NoMessage
    pub fn peek(&mut self, request: PeekRequest, sink: &mut impl Sink) -> Result<(), Error> {
        let (receiver, mut effects) = self.receive_side_and_effects(sink);
        receiver.peek(request, &mut effects)
    }

    /// Whether the application should [peek](Self::peek) once more before it sleeps: a message has arrived
    /// that its latest peek did not find, and nothing else would tell it of the message. True once for a
    /// peek.
    pub fn take_owed_look(&mut self) -> bool {
        self.receive_side.take_owed_look()
    }

    /// Lets the next [`peek`](Self::peek) find all messages that have arrived. For peeks that are not
    /// repeated: deferred work, and automatic progress, where the application need make no pass.
    #[inline(always)]
    pub fn show_all_to_peeks(&mut self) {
        self.receive_side.show_all_to_peeks();
    }

    /// Receives the message that a peek with the context `claimed_by` has claimed. Ignores the
    /// criteria of `request`.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotFound`] if no message is claimed with this context. [`Again::QueueFull`] and
    /// [`Misuse::NotSupported`] as for [`post_receive`](Self::post_receive). Each error hands back
    /// the destination.
    ///
    /// [`Again::QueueFull`]: crate::error::Again::QueueFull
    pub fn receive_claimed(
        &mut self,
        request: ReceiveRequest,
        claimed_by: u64,
        sink: &mut impl Sink,
    ) -> Result<(), Rejected<Destination>> {
        self.end_connection_if_failed(sink);
        let (receiver, mut effects) = self.receive_side_and_effects(sink);
        receiver.receive_claimed(request, claimed_by, &mut effects)?;
        self.end_connection_if_failed(sink);
        Ok(())
    }

    /// Discards the message that a peek with this context has claimed. The call completes like a
    /// peek that finds the message. If the call is deferred work, `work` is its number.
    ///
    /// # Errors
    ///
    /// As [`receive_claimed`](Self::receive_claimed), but no destination is handed back.
    pub fn discard_claimed(
        &mut self,
        tagged: bool,
        context: u64,
        work: Option<u64>,
        sink: &mut impl Sink,
    ) -> Result<(), Error> {
        let (receiver, mut effects) = self.receive_side_and_effects(sink);
        receiver.discard_claimed(tagged, context, work, &mut effects)
    }

    /// Cancels one operation with this context. The operation ends with [`OperationError::Cancelled`].
    ///
    /// The engine looks first for an unmatched receive, or a multi-receive buffer that still takes
    /// messages. If there is none, it looks for a queued send or access that it has not offered,
    /// and of which no link has taken a byte. Among the untagged receives, among the tagged
    /// receives, and among the operations on one peer, it cancels the oldest.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotFound`] if no operation has this context, or if the operation can no longer be
    /// cancelled.
    ///
    /// [`OperationError::Cancelled`]: crate::error::OperationError::Cancelled
    pub fn cancel(&mut self, context: u64, sink: &mut impl Sink) -> Result<(), Error> {
        self.cancel_by_key(CancelKey::Context(context), sink)
    }

    /// As [`cancel`](Self::cancel), for the operation of the deferred work with this number.
    ///
    /// # Errors
    ///
    /// As [`cancel`](Self::cancel).
    pub fn cancel_work(&mut self, number: u64, sink: &mut impl Sink) -> Result<(), Error> {
        self.cancel_by_key(CancelKey::Work(number), sink)
    }

    /// Cancels all receives whose memory overlaps `memory`, also those that messages are filling. They end
    /// with [`OperationError::Cancelled`]. Receives of a shared receiver stay, unless a message on one of the
    /// engine's links is filling them.
    ///
    /// [`OperationError::Cancelled`]: crate::error::OperationError::Cancelled
    pub fn cancel_receives_into(&mut self, memory: &SegmentMut, sink: &mut impl Sink) {
        let (receiver, mut effects) = self.receive_side_and_effects(sink);
        receiver.cancel_into(memory, &mut effects);
        receiver.abandon_messages_into(memory, &mut effects);
    }

    fn cancel_by_key(&mut self, key: CancelKey, sink: &mut impl Sink) -> Result<(), Error> {
        let (receiver, mut effects) = self.receive_side_and_effects(sink);
        if receiver.cancel(key, &mut effects) {
            while mutated!("fi_endpoint/cancel-ends-one") && receiver.cancel(key, &mut effects) {}
            return Ok(());
        }
        let (initiator, mut effects) = self.initiator_and_effects(sink);
        if initiator.cancel(key, &mut effects) {
            return Ok(());
        }
        if let CancelKey::Context(context) = key
            && mutated!("fi_endpoint/cancel-of-ended-operation")
        {
            let flags = CompletionFlags::of_receive(false);
            let completion = EndedOperation::of_transmit(context, flags, Buffer::None);
            let error = OperationError::Cancelled;
            self.report_refused_operation(FailedOperation { completion, error, target: None }, sink);
        }
        Err(Misuse::NotFound(Missing::Operation).into())
    }

    /// Reports the failure of an operation that the caller had accepted, but the engine has
    /// refused. The caller counts the failure.
    #[cold]
    pub fn report_refused_operation(&mut self, failure: FailedOperation, sink: &mut impl Sink) {
        let is_cancelled = failure.error == OperationError::Cancelled;
        if failure.completion.flags.intersects(CompletionFlags::TRANSMITTED) {
            let (initiator, mut effects) = self.initiator_and_effects(sink);
            initiator.report_failure(failure, &mut effects);
        } else {
            let (receive_side, mut effects) = self.receive_side_and_effects(sink);
            receive_side.report_failure(failure, &mut effects);
        }
        if !is_cancelled {
            self.end_connection_after_failure(sink);
        }
    }

    /// Delivers the completions that wait for room in the sink, as far as the sink has room now.
    pub fn deliver_held(&mut self, sink: &mut impl Sink) {
        if self.initiator.has_held_reports()
            | self.receive_side.has_held_reports()
            | self.target.has_held_reports()
        {
            self.deliver_held_reports(sink);
        }
    }

    #[cold]
    #[inline(never)]
    fn deliver_held_reports(&mut self, sink: &mut impl Sink) {
        if self.initiator.has_held_reports() {
            let (initiator, mut effects) = self.initiator_and_effects(sink);
            initiator.deliver_held(&mut effects);
        }
        if self.receive_side.has_held_reports() {
            self.deliver_held_receives(sink);
        }
        if self.target.has_held_reports() {
            let (target, mut effects) = self.target_and_effects(sink);
            target.deliver_held_reports(&mut effects);
        }
    }

    /// Ends all links, before the caller drops the engine. Call this when
    /// [`has_unsent`](Self::has_unsent) is false. The transport still sends what it has taken.
    /// Operations that have not ended are not reported. From now on no peer can read the memory of
    /// a send.
    pub fn close_links(&mut self, transport: &mut impl Transport) {
        for condemned in self.condemned.drain(..) {
            transport.close(condemned.link, condemned.how);
        }
        for link in self.links.ids() {
            self.links.remove(link);
            transport.close(link, Close::Drain);
        }
        for link in self.connection.take_handshake_links() {
            transport.close(link, Close::Drain);
        }
    }
}
