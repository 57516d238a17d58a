//! The protocol engine of one endpoint.

mod arrival;
mod atomic_targets;
mod atomics;
mod connected;
mod credit;
mod direct;
mod durability;
mod fences;
mod fetches;
mod former;
mod handshakes;
mod incoming;
mod links;
mod multi_receive;
mod ordering;
mod passive;
mod peeks;
mod remote_events;
mod reports;
mod requests;
mod rma;
mod targets;
#[cfg(test)]
mod tests;
mod timers;
mod transmit;
mod turns;
mod unexpected;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use slotmap::SlotMap;

pub use self::arrival::Arrivals;
use self::credit::Budget;
pub use self::direct::{Attempt, Place};
use self::durability::Unpersisted;
use self::fetches::Fetch;
use self::former::Former;
use self::handshakes::{Handshakes, Standing};
use self::links::{Condemned, Links};
use self::multi_receive::MultiReceives;
pub(crate) use self::ordering::Told;
use self::peeks::Claimed;
use self::remote_events::RemoteEvents;
use self::reports::Reports;
use self::targets::Inbound;
pub(crate) use self::turns::Turn;
use self::unexpected::Unexpected;
use crate::address::Address;
use crate::buffer::Destination;
use crate::completion::Sink;
use crate::connection::EndpointRole;
use crate::error::{Again, Error, Misuse, OperationError};
use crate::flags::{MrAccess, Order};
use crate::limits;
use crate::matching::{Criteria, Matching};
use crate::operation::{
    FetchId, InboundId, Receive, ReceiveId, ReceiveRequest, Role, Send, SendId, UnexpectedId,
};
use crate::peer_id::PeerId;
use crate::peers::Peers;
use crate::region::Regions;
use crate::rejected::Rejected;
use crate::transport::{Close, LinkId, Transport};

/// How large an endpoint may grow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// How many sends may be outstanding.
    pub tx_depth_ops: usize,
    /// How many receives may be outstanding.
    pub rx_depth_ops: usize,
    /// The largest message that may be sent.
    pub message_max_bytes: u64,
    /// How much memory unexpected messages may take in all: see
    /// [`MESSAGE_COST_BYTES`](limits::MESSAGE_COST_BYTES). Every link may take
    /// [`CREDIT_INITIAL_BYTES`](limits::CREDIT_INITIAL_BYTES) besides.
    pub unexpected_budget_bytes: usize,
    /// The largest message that travels eagerly.
    pub eager_max_bytes: usize,
    /// What peers may do with regions through this endpoint; each region says besides what may be done with it. Only
    /// [`MrAccess::REMOTE_READ`] and [`MrAccess::REMOTE_WRITE`] matter.
    pub remote_access: MrAccess,
    /// The same of atomic operations.
    pub remote_atomics: MrAccess,
    /// Whether what peers do with regions through this endpoint is counted (`FI_RMA_EVENT`).
    pub rma_events: bool,
    /// Which of this side's operations the same peer must not do in another order than they were posted in. Messages keep
    /// theirs always, and so do reads.
    pub transmit_order: Order,
    /// Whether the completions of sends and accesses to one peer keep the order of posting.
    pub completes_in_order: bool,
    /// Which operations of one peer must not be done in another order than that in which they arrive.
    pub receive_order: Order,
    /// Whom it talks to.
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
            transmit_order: Order::SAS,
            completes_in_order: false,
            receive_order: Order::SAS,
            role: EndpointRole::Unconnected,
        }
    }
}

/// Everything that an endpoint is, except its sockets and its completion queues.
///
/// The engine does no I/O, reads no clock and has no thread. Its methods are of five kinds:
///
/// - getters;
/// - commands of the application: [`peer`](Self::peer), [`post_send`](Self::post_send),
///   [`post_receive`](Self::post_receive), [`post_multi_receive`](Self::post_multi_receive),
///   [`post_rma`](Self::post_rma), [`post_atomic`](Self::post_atomic), [`peek`](Self::peek),
///   [`cancel`](Self::cancel); and those that make and end connections, [`connect`](Self::connect),
///   [`listen`](Self::listen), [`accept`](Self::accept), [`reject`](Self::reject), [`shutdown`](Self::shutdown);
/// - input: what a transport reports to [`arrivals`](Self::arrivals);
/// - time: [`advance_time`](Self::advance_time), where [`awaits_timeout`](Self::awaits_timeout) says that it matters;
/// - output: [`transmit`](Self::transmit) hands frames to a transport, and a [`Sink`] given to any of these takes
///   completions.
///
/// A pass over the engine delivers held completions, receives, tells the time if something may time out, transmits and
/// flushes the transport, in this order:
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
    sends: SlotMap<SendId, Send>,
    receives: SlotMap<ReceiveId, Receive>,
    // In boxes, since a table keeps the size that it once had, and these may have been very many.
    unexpected: SlotMap<UnexpectedId, Box<Unexpected>>,
    fetches: SlotMap<FetchId, Box<Fetch>>,
    /// What peers are writing to regions.
    inbounds: SlotMap<InboundId, Box<Inbound>>,
    /// What peers have written to persistent memory without waiting for it to be durable.
    unpersisted: HashMap<PeerId, Unpersisted>,
    /// What peers may access.
    regions: Arc<Regions>,
    /// Whether peers are to access regions by frames alone.
    sees_accesses: bool,
    /// Whether this side has written to peers' memory, and the processor may do what follows before that is seen by all.
    has_unseen_stores: bool,
    /// What unexpected messages take, and may take.
    budget: Budget,
    /// Requests that nobody has asked for and that the budget had no room for, in the order of their arrival. Some may
    /// have been matched meanwhile.
    deferred: VecDeque<FetchId>,
    /// Messages that were set aside, by whether they are tagged and the context of the peek.
    claimed: HashMap<(bool, u64), Claimed>,
    untagged: Matching<ReceiveId, UnexpectedId>,
    tagged: Matching<ReceiveId, UnexpectedId>,
    multi_receives: MultiReceives,
    reports: Reports,
    remote_events: RemoteEvents,
    /// Peers with queued sends, payload that they asked for, or a partly written frame. Each is listed once.
    active: VecDeque<PeerId>,
    /// Links whose peer has shown regions that are to be mapped.
    mapping: Vec<LinkId>,
    /// After how many passes it is looked which of the regions that are mapped have ended; 0 if none is.
    passes_to_sweep: u32,
    /// Links for which no credit was left when it was time to give them some.
    starved: BTreeSet<LinkId>,
    /// What is to be pulled, in turn. Some of it may have ended meanwhile.
    pulling: VecDeque<FetchId>,
    /// See [`limits::PULL_STEP_MAX_BYTES`].
    pull_step_max_bytes: usize,
    /// Links that the engine ended, of which the transport does not know yet.
    condemned: Vec<Condemned>,
    /// Links to endpoints that were replaced, which are read to their end.
    former: Vec<Former>,
    /// Whether something may time out.
    has_timeouts: bool,
    /// What there is of connections, if the endpoint is for them.
    standing: Standing,
    /// Links that carry no messages.
    handshakes: Handshakes,
    /// What receives end with that nothing can arrive for any more, once the connection has ended.
    over: Option<Box<OperationError>>,
}

impl Engine {
    /// An engine that knows nobody, and has no memory that peers may access.
    pub fn new(config: Config) -> Engine {
        Engine::with_regions(config, Arc::default())
    }

    /// An engine that knows nobody. Peers may access these regions through it.
    pub fn with_regions(config: Config, regions: Arc<Regions>) -> Engine {
        Engine {
            budget: Budget::new(config.unexpected_budget_bytes),
            reports: Reports::new(config.completes_in_order),
            standing: config.role.into(),
            config,
            peers: Peers::default(),
            links: Links::default(),
            sends: SlotMap::with_key(),
            receives: SlotMap::with_key(),
            unexpected: SlotMap::with_key(),
            fetches: SlotMap::with_key(),
            inbounds: SlotMap::with_key(),
            unpersisted: HashMap::new(),
            regions,
            sees_accesses: false,
            has_unseen_stores: false,
            deferred: VecDeque::new(),
            claimed: HashMap::new(),
            untagged: Matching::new(),
            tagged: Matching::new(),
            multi_receives: MultiReceives::default(),
            remote_events: RemoteEvents::default(),
            active: VecDeque::new(),
            mapping: Vec::new(),
            passes_to_sweep: 0,
            starved: BTreeSet::new(),
            pulling: VecDeque::new(),
            pull_step_max_bytes: limits::PULL_STEP_MAX_BYTES,
            condemned: Vec::new(),
            former: Vec::new(),
            has_timeouts: false,
            handshakes: Handshakes::default(),
            over: None,
        }
    }

    /// The endpoints that this one knows.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// Has peers access all regions by frames from now on, so that every access through this endpoint can be
    /// counted. Regions that peers have mapped through it are retired: no endpoint shows them again.
    pub fn see_accesses(&mut self) {
        if !self.sees_accesses {
            self.sees_accesses = true;
            self.retire_shown_regions();
        }
    }

    /// Whether something still has to leave: sends and answers that wait for a link to take them, and sends that a peer
    /// has not fetched yet, for which it needs this endpoint.
    pub fn has_unsent(&self) -> bool {
        !self.active.is_empty()
            || self.links.are_owing()
            || self.links.have_unfetched()
            || self.handshakes.have_unsent()
    }

    /// Whether a pass would move something on although nothing has arrived: to be asked before sleeping, after a pass.
    /// What waits for a link or a peer does not count, since the transport tells of those.
    pub fn wants_pass(&self) -> bool {
        !self.pulling.is_empty()
            || !self.condemned.is_empty()
            || !self.mapping.is_empty()
            || (!self.starved.is_empty() && self.budget.may_feed())
            || self.may_fetch_deferred()
            || self.links.have_paused()
    }

    /// How many sends have not ended or not been reported yet.
    #[inline(always)]
    pub fn outstanding_sends(&self) -> usize {
        self.sends.len() + self.reports.held_sends()
    }

    /// How many receives have not ended or not been reported yet.
    #[inline(always)]
    pub fn outstanding_receives(&self) -> usize {
        self.receives.len() + self.reports.held_receives()
    }

    /// Names the peer at `address`; the same address has the same name for the life of the engine.
    pub fn peer(&mut self, address: Address) -> PeerId {
        self.peers.intern(address)
    }

    /// Posts a receive. A message that is waiting for it is taken at once, the earliest first.
    ///
    /// # Errors
    ///
    /// With the destination of the receive: [`Again::QueueFull`] when [`Config::rx_depth_ops`] receives are outstanding;
    /// [`Misuse::NotConnected`] if the connection has ended and nothing that has arrived before is left for it.
    #[inline(always)]
    pub fn post_receive(
        &mut self,
        request: ReceiveRequest,
        sink: &mut impl Sink,
    ) -> Result<(), Rejected<Destination>> {
        if self.outstanding_receives() >= self.config.rx_depth_ops {
            return Err(Rejected { error: Again::QueueFull.into(), buffer: request.destination });
        }
        let ReceiveRequest { destination, tagged, mut criteria, context, signalled } = request;
        if !tagged {
            criteria = Criteria { tag: 0, ignore: u64::MAX, ..criteria };
        }
        if self.is_set_aside(tagged) {
            let receive = Receive { destination, tagged, context, signalled, role: Role::Single };
            let id = self.post_behind(criteria, receive);
            self.fail_if_over(id, sink);
            return Ok(());
        }
        let matching = if tagged { &mut self.tagged } else { &mut self.untagged };
        match matching.take_unexpected(&criteria) {
            Some(found) => {
                let receive = Receive { destination, tagged, context, signalled, role: Role::Single };
                self.receive_unexpected(receive, found, sink);
            }
            None if self.over.is_some() => {
                return Err(Rejected { error: Misuse::NotConnected.into(), buffer: destination });
            }
            None => {
                // Written where it stays: made elsewhere and moved, it would be read before its bytes have left the
                // processor's store buffer one by one.
                let id = self.receives.insert(Receive::vacant());
                if let Some(receive) = self.receives.get_mut(id) {
                    receive.destination = destination;
                    receive.context = context;
                    receive.tagged = tagged;
                    receive.signalled = signalled;
                }
                matching.post(criteria, id);
            }
        }
        Ok(())
    }

    /// Cancels an operation with this context that can still be taken back: a receive that no message has
    /// matched, or a multi-receive buffer that takes messages, else a send of which no link has taken a byte,
    /// nor told the peer of it. It ends with [`OperationError::Cancelled`]. Of several receives of one kind,
    /// or sends to one peer, the oldest is taken.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotFound`] if there is none. The operation, if there was one, ends by itself.
    pub fn cancel(&mut self, context: u64, sink: &mut impl Sink) -> Result<(), Error> {
        let posted = [&self.untagged, &self.tagged]
            .into_iter()
            .flat_map(Matching::posted)
            .find(|id| self.receives.get(*id).is_some_and(|receive| receive.context == context));
        if let Some(id) = posted
            && self.receives.get(id).is_some_and(|receive| receive.role == Role::Buffer)
        {
            self.cancel_buffer(id, sink);
            return Ok(());
        }
        if let Some(id) = posted
            && let Some(receive) = self.receives.remove(id)
        {
            let matching = if receive.tagged { &mut self.tagged } else { &mut self.untagged };
            matching.remove_posted(id);
            let failure = receive.failure(None, 0, OperationError::Cancelled);
            self.reports.failed(failure, &self.peers, sink);
            return Ok(());
        }
        let queued = self.active.iter().find_map(|peer| {
            let queue = &self.peers.of(*peer).queue;
            let is_meant = |id: &SendId| self.sends.get(*id).is_some_and(|send| send.context == context);
            queue.iter().position(is_meant).map(|place| (*peer, place))
        });
        if let Some((peer, place)) = queued
            && let Some(id) = self.peers.of_mut(peer).queue.remove(place)
            && let Some(send) = self.sends.remove(id)
        {
            self.reports.send_failed(send, OperationError::Cancelled, &self.peers, sink);
            return Ok(());
        }
        Err(Misuse::NotFound("no such operation, or it can no longer be cancelled").into())
    }

    /// Delivers completions that the sink had no room for, as far as it has room now.
    pub fn deliver_held(&mut self, sink: &mut impl Sink) {
        if self.reports.are_held() {
            self.reports.deliver_held(&self.peers, sink);
            self.match_set_aside(sink);
        }
        if !self.remote_events.is_empty() {
            self.deliver_remote_events(sink);
        }
    }

    /// Ends all links, after the transport has been given all that [`has_unsent`](Self::has_unsent) knows of.
    /// Operations that have not ended stay as they are; the engine is to be dropped next. From now on no peer can read
    /// the memory of a send.
    pub fn close_links(&mut self, transport: &mut impl Transport) {
        for condemned in self.condemned.drain(..) {
            transport.close(condemned.link, condemned.how);
        }
        for link in self.links.ids() {
            self.links.remove(link);
            transport.close(link, Close::Drain);
        }
        for link in self.handshakes.ids() {
            self.handshakes.remove(link);
            transport.close(link, Close::Drain);
        }
    }
}
