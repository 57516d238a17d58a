//! The pump: the only code that sees both an endpoint's engine and its transport.
//!
//! It is generic over the transport, and reached through one virtual call per post and one per progress, none per
//! frame. Its lock is taken before a completion queue's lock, never the other way.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use homespun_engine::address::Address;
use homespun_engine::buffer::{Destination, Room, Source};
use homespun_engine::completion;
use homespun_engine::completion::Sink;
use homespun_engine::engine::{Config, Engine};
use homespun_engine::error::{Error, Misuse};
use homespun_engine::flags::CompletionFlags;
use homespun_engine::matching::Criteria;
use homespun_engine::operation::{Found, Level, PeekRequest, ReceiveRequest, SendRequest};
use homespun_engine::peer_id::PeerId;
use homespun_engine::peers::Peers;
use homespun_engine::transport::Transport;

use crate::av::{AddressVector, FabricAddress};
use crate::cq::{Completion, CompletionError, Reader, RingGuard, Shared};
use crate::lock::Lock;

/// How many frames a pass receives before it hands completions to the application.
const RECEIVE_BUDGET_FRAMES: u32 = 256;

/// A pump, whatever its transport: what endpoints and completion queues hold.
pub(crate) trait Drive: Send + Sync {
    fn address(&self) -> Address;
    fn enable(&self, wiring: Wiring) -> Result<(), Error>;
    fn post_send(&self, post: SendPost) -> Result<(), Error>;
    fn post_receive(&self, post: ReceivePost, destination: Destination) -> Result<(), Error>;
    /// As [`post_receive`](Self::post_receive), for the most frequent kind of destination.
    fn post_receive_into(&self, post: ReceivePost, room: Room) -> Result<(), Error>;
    /// Looks for a message that this receive would take. It is always reported, signalled or not.
    fn peek(&self, post: ReceivePost, then: Found) -> Result<(), Error>;
    /// Receives the message that a peek with this context has claimed, wherever it is from and whatever its tag.
    fn receive_claimed(&self, post: ReceivePost, destination: Destination) -> Result<(), Error>;
    /// Throws away the message that a peek with this context has claimed. It is always reported.
    fn discard_claimed(&self, tagged: bool, context: u64) -> Result<(), Error>;
    /// Sends a small message, if that is possible at once. Whether it was sent; if not, it is to be posted.
    fn inject(
        &self,
        to: FabricAddress,
        tag: Option<u64>,
        data: Option<u64>,
        message: &[u8],
    ) -> Result<bool, Error>;
    fn cancel(&self, context: u64) -> Result<(), Error>;
    /// Moves everything on as far as it goes, on behalf of somebody who reads a queue.
    fn progress(&self, reader: &mut Reader<'_>);
    /// Ends the endpoint. Waits up to `linger` for what it still has to send.
    fn close(&self, linger: Duration);
}

/// What an endpoint is connected to when it is enabled.
pub(crate) struct Wiring {
    pub(crate) av: AddressVector,
    pub(crate) transmit_cq: Option<Arc<Shared>>,
    pub(crate) receive_cq: Option<Arc<Shared>>,
    /// Whether completions name their source.
    pub(crate) wants_source: bool,
}

/// A send as an endpoint posts it.
pub(crate) struct SendPost {
    pub(crate) to: FabricAddress,
    pub(crate) source: Source,
    pub(crate) tag: Option<u64>,
    pub(crate) data: Option<u64>,
    pub(crate) context: u64,
    pub(crate) level: Level,
    pub(crate) signalled: bool,
    pub(crate) inject: bool,
    /// Whether it waits for all before it to the same peer, and all after it wait for it.
    pub(crate) fence: bool,
    /// Another operation follows at once, so transmission may wait for it.
    pub(crate) more: bool,
}

/// A receive as an endpoint posts it.
pub(crate) struct ReceivePost {
    /// `None` for any source.
    pub(crate) from: Option<FabricAddress>,
    /// Tag and ignore mask of a tagged receive.
    pub(crate) tagged: Option<(u64, u64)>,
    pub(crate) context: u64,
    pub(crate) signalled: bool,
}

/// An endpoint's engine, its transport, and what both are wired to.
pub(crate) struct Pump<T> {
    address: Address,
    /// `None` once it was closed.
    state: Lock<Option<State<T>>>,
}

struct State<T> {
    /// Dropped before the engine, which has lent memory that peers may read until the links have ended.
    transport: T,
    engine: Engine,
    wired: Option<Wired>,
}

struct Wired {
    wiring: Wiring,
    targets: Targets,
    sources: Sources,
}

impl Wired {
    /// Which messages a receive accepts.
    #[inline(always)]
    fn criteria(&mut self, post: &ReceivePost, engine: &mut Engine) -> Result<Criteria, Error> {
        let source = match post.from {
            Some(from) => Some(self.targets.peer(from, &self.wiring.av, engine)?),
            None => None,
        };
        let (tag, ignore) = post.tagged.unwrap_or((0, u64::MAX));
        Ok(Criteria { source, tag, ignore })
    }

    fn queues(&mut self) -> Queues<'_, 'static> {
        Queues::new(&self.wiring, &mut self.sources, None)
    }

    fn queues_for<'a, 'r>(&'a mut self, reader: &'a mut Reader<'r>) -> Queues<'a, 'r> {
        Queues::new(&self.wiring, &mut self.sources, Some(reader))
    }
}

/// Which peer an `fi_addr_t` means, remembered from the address vector.
#[derive(Default)]
struct Targets {
    version: u64,
    peers: Vec<Option<PeerId>>,
}

/// Which `fi_addr_t` a peer has, remembered from the address vector.
#[derive(Default)]
struct Sources {
    version: u64,
    addresses: Vec<Option<FabricAddress>>,
}

impl<T: Transport> Pump<T> {
    pub(crate) fn new(transport: T, config: Config) -> Self {
        let address = transport.address();
        Pump {
            address,
            state: Lock::new(Some(State { engine: Engine::new(config), transport, wired: None })),
        }
    }

    #[inline(always)]
    fn receive_to(&self, post: &ReceivePost, destination: impl FnOnce() -> Destination) -> Result<(), Error> {
        let mut guard = self.state.lock();
        let State { engine, wired, .. } = guard.as_mut().ok_or(NOT_ENABLED)?;
        let wired = wired.as_mut().ok_or(NOT_ENABLED)?;
        let request = ReceiveRequest {
            criteria: wired.criteria(post, engine)?,
            destination: destination(),
            tagged: post.tagged.is_some(),
            context: post.context,
            signalled: post.signalled,
        };
        engine.post_receive(request, &mut wired.queues())
    }
}

impl<T: Transport> Drive for Pump<T> {
    fn address(&self) -> Address {
        self.address
    }

    fn enable(&self, wiring: Wiring) -> Result<(), Error> {
        let mut guard = self.state.lock();
        let state = guard.as_mut().ok_or(NOT_ENABLED)?;
        if state.wired.is_some() {
            return Err(Misuse::State("the endpoint is enabled already").into());
        }
        state.wired = Some(Wired { wiring, targets: Targets::default(), sources: Sources::default() });
        Ok(())
    }

    fn post_send(&self, post: SendPost) -> Result<(), Error> {
        let mut guard = self.state.lock();
        let State { engine, transport, wired } = guard.as_mut().ok_or(NOT_ENABLED)?;
        let wired = wired.as_mut().ok_or(NOT_ENABLED)?;
        let SendPost { to, source, tag, data, context, level, signalled, inject, fence, more } = post;
        let to = wired.targets.peer(to, &wired.wiring.av, engine)?;
        let request = SendRequest { to, source, tag, data, context, level, signalled, inject, fence };
        engine.post_send(request, transport, &mut wired.queues())?;
        if !more {
            transport.flush();
        }
        Ok(())
    }

    fn post_receive(&self, post: ReceivePost, destination: Destination) -> Result<(), Error> {
        self.receive_to(&post, || destination)
    }

    fn post_receive_into(&self, post: ReceivePost, room: Room) -> Result<(), Error> {
        self.receive_to(&post, || room.into())
    }

    fn peek(&self, post: ReceivePost, then: Found) -> Result<(), Error> {
        let mut guard = self.state.lock();
        let State { engine, wired, .. } = guard.as_mut().ok_or(NOT_ENABLED)?;
        let wired = wired.as_mut().ok_or(NOT_ENABLED)?;
        let criteria = wired.criteria(&post, engine)?;
        let ReceivePost { tagged, context, .. } = post;
        let request = PeekRequest { tagged: tagged.is_some(), criteria, context, then };
        engine.peek(request, &mut wired.queues())
    }

    fn receive_claimed(&self, post: ReceivePost, destination: Destination) -> Result<(), Error> {
        let mut guard = self.state.lock();
        let State { engine, wired, .. } = guard.as_mut().ok_or(NOT_ENABLED)?;
        let wired = wired.as_mut().ok_or(NOT_ENABLED)?;
        let ReceivePost { tagged, context, signalled, .. } = post;
        let (tagged, criteria) = (tagged.is_some(), Criteria::any());
        let request = ReceiveRequest { destination, tagged, criteria, context, signalled };
        engine.receive_claimed(request, &mut wired.queues())
    }

    fn discard_claimed(&self, tagged: bool, context: u64) -> Result<(), Error> {
        let mut guard = self.state.lock();
        let State { engine, wired, .. } = guard.as_mut().ok_or(NOT_ENABLED)?;
        let wired = wired.as_mut().ok_or(NOT_ENABLED)?;
        engine.discard_claimed(tagged, context, &mut wired.queues())
    }

    fn inject(
        &self,
        to: FabricAddress,
        tag: Option<u64>,
        data: Option<u64>,
        message: &[u8],
    ) -> Result<bool, Error> {
        let mut guard = self.state.lock();
        let State { engine, transport, wired } = guard.as_mut().ok_or(NOT_ENABLED)?;
        let wired = wired.as_mut().ok_or(NOT_ENABLED)?;
        let to = wired.targets.peer(to, &wired.wiring.av, engine)?;
        let is_sent = engine.inject(to, tag, data, message, transport);
        if is_sent {
            transport.flush();
        }
        Ok(is_sent)
    }

    fn cancel(&self, context: u64) -> Result<(), Error> {
        let mut guard = self.state.lock();
        let State { engine, wired, .. } = guard.as_mut().ok_or(NOT_ENABLED)?;
        let wired = wired.as_mut().ok_or(NOT_ENABLED)?;
        engine.cancel(context, &mut wired.queues())
    }

    fn progress(&self, reader: &mut Reader<'_>) {
        let mut guard = self.state.lock();
        let Some(State { engine, transport, wired: Some(wired) }) = guard.as_mut() else { return };
        reader.begin();
        let mut queues = wired.queues_for(reader);
        engine.deliver_held(&mut queues);
        transport.receive(RECEIVE_BUDGET_FRAMES, &mut engine.arrivals(&mut queues));
        engine.transmit(transport, &mut queues);
        transport.flush();
    }

    fn close(&self, linger: Duration) {
        let deadline = Instant::now() + linger;
        let mut guard = self.state.lock();
        // What is not there any more frees its memory, and its descriptors, whoever still knows the pump.
        let Some(State { mut engine, mut transport, .. }) = guard.take() else { return };
        drop(guard);
        transport.stop_accepting();
        let (mut nobody, mut patience) = (Nobody, Patience::default());
        while engine.has_unsent() && Instant::now() < deadline {
            transport.receive(RECEIVE_BUDGET_FRAMES, &mut engine.arrivals(&mut nobody));
            engine.transmit(&mut transport, &mut nobody);
            transport.flush();
            patience.pause();
        }
        engine.close_links(&mut transport);
        transport.flush();
        while transport.draining() > 0 && Instant::now() < deadline {
            transport.receive(RECEIVE_BUDGET_FRAMES, &mut engine.arrivals(&mut nobody));
            transport.flush();
            patience.pause();
        }
    }
}

/// Waits a little between looks at what does not announce itself, such as that a peer's kernel has everything: at
/// first hardly, then longer.
#[derive(Default)]
struct Patience {
    pauses: u32,
}

impl Patience {
    fn pause(&mut self) {
        self.pauses += 1;
        if self.pauses < 100 {
            thread::yield_now();
        } else {
            thread::sleep(Duration::from_micros(100));
        }
    }
}

const NOT_ENABLED: Error = Error::Misuse(Misuse::State("the endpoint is not enabled"));

impl Targets {
    fn peer(
        &mut self,
        address: FabricAddress,
        av: &AddressVector,
        engine: &mut Engine,
    ) -> Result<PeerId, Error> {
        let version = av.version();
        if self.version != version {
            self.version = version;
            self.peers.clear();
        }
        let index = usize::try_from(address.0).unwrap_or(usize::MAX);
        if let Some(Some(peer)) = self.peers.get(index) {
            return Ok(*peer);
        }
        let peer = engine.peer(av.lookup(address)?);
        if self.peers.len() <= index {
            self.peers.resize(index + 1, None);
        }
        self.peers[index] = Some(peer);
        Ok(peer)
    }
}

impl Sources {
    fn address(&mut self, peer: PeerId, av: &AddressVector, peers: &Peers) -> FabricAddress {
        let version = av.version();
        if self.version != version {
            self.version = version;
            self.addresses.clear();
        }
        let index = peer.index();
        if let Some(Some(address)) = self.addresses.get(index) {
            return *address;
        }
        let address = av.reverse_lookup(&peers.address(peer)).unwrap_or(FabricAddress::UNSPECIFIED);
        if self.addresses.len() <= index {
            self.addresses.resize(index + 1, None);
        }
        self.addresses[index] = Some(address);
        address
    }
}

/// The completion queues of an endpoint as the engine's sink.
///
/// A ring stays locked from its first use until the other one is used or the pass ends. Never are both locked: two
/// endpoints that share their queues crosswise would wait for each other.
struct Queues<'a, 'r> {
    wiring: &'a Wiring,
    sources: &'a mut Sources,
    transmit: Option<RingGuard<'a>>,
    receive: Option<RingGuard<'a>>,
    /// Who makes the queues move, if that is somebody who reads one of them.
    reader: Option<&'a mut Reader<'r>>,
    /// Whether both directions report to the same queue, which must not be locked twice.
    are_one: bool,
}

impl<'a, 'r> Queues<'a, 'r> {
    fn new(wiring: &'a Wiring, sources: &'a mut Sources, reader: Option<&'a mut Reader<'r>>) -> Self {
        let are_one = match (&wiring.transmit_cq, &wiring.receive_cq) {
            (Some(transmit), Some(receive)) => Arc::ptr_eq(transmit, receive),
            _ => false,
        };
        Queues { wiring, sources, transmit: None, receive: None, reader, are_one }
    }

    fn transmit_ring(&mut self) -> Option<&mut RingGuard<'a>> {
        let cq = self.wiring.transmit_cq.as_ref()?;
        self.receive = None;
        Some(self.transmit.get_or_insert_with(|| cq.lock()))
    }

    fn receive_ring(&mut self) -> Option<&mut RingGuard<'a>> {
        let cq = self.wiring.receive_cq.as_ref()?;
        self.transmit = None;
        Some(self.receive.get_or_insert_with(|| cq.lock()))
    }

    /// The queue that reports operations of this kind.
    #[inline(always)]
    fn cq_for(&self, flags: CompletionFlags) -> Option<&'a Shared> {
        let is_send = flags.contains(CompletionFlags::SEND);
        let cq = if is_send { &self.wiring.transmit_cq } else { &self.wiring.receive_cq };
        cq.as_deref()
    }

    /// That queue's ring, in which something is about to be put.
    fn ring_for(&mut self, flags: CompletionFlags) -> Option<&mut RingGuard<'a>> {
        if let (Some(cq), Some(reader)) = (self.cq_for(flags), &mut self.reader) {
            reader.overtaken(cq);
        }
        if flags.contains(CompletionFlags::SEND) || self.are_one {
            self.transmit_ring()
        } else {
            self.receive_ring()
        }
    }

    #[inline(always)]
    fn source(&mut self, completion: &completion::Completion, peers: &Peers) -> FabricAddress {
        match completion.source {
            Some(peer) if self.wiring.wants_source => self.sources.address(peer, &self.wiring.av, peers),
            _ => FabricAddress::UNSPECIFIED,
        }
    }
}

impl Sink for Queues<'_, '_> {
    #[inline(always)]
    fn complete(
        &mut self,
        completion: completion::Completion,
        peers: &Peers,
    ) -> Result<(), completion::Completion> {
        let source = self.source(&completion, peers);
        // A direction without a queue has nobody to tell.
        let Some(cq) = self.cq_for(completion.flags) else { return Ok(()) };
        let entry = |completion| {
            let mut entry = Completion::from(completion);
            cq.format().trim(&mut entry);
            entry
        };
        if let Some(reader) = &mut self.reader
            && reader.takes_from(cq)
        {
            reader.hand_over(entry(completion), source);
            return Ok(());
        }
        let Some(ring) = self.ring_for(completion.flags) else { return Ok(()) };
        if !ring.has_room() {
            if cq.is_protected() {
                return Err(completion);
            }
            ring.overrun();
            return Ok(());
        }
        ring.push_completed(entry(completion), source);
        Ok(())
    }

    fn fail(&mut self, failure: completion::Failure, peers: &Peers) -> Result<(), completion::Failure> {
        let source = self.source(&failure.completion, peers);
        let Some(cq) = self.cq_for(failure.completion.flags) else { return Ok(()) };
        let Some(ring) = self.ring_for(failure.completion.flags) else { return Ok(()) };
        if !ring.has_room() {
            if cq.is_protected() {
                return Err(failure);
            }
            ring.overrun();
            return Ok(());
        }
        let completion::Failure { completion, error } = failure;
        ring.push_failed(CompletionError { completion: completion.into(), error, source });
        Ok(())
    }
}

/// The sink of an endpoint that is being closed: its operations end unheard.
struct Nobody;

impl Sink for Nobody {
    #[inline(always)]
    fn complete(&mut self, _: completion::Completion, _: &Peers) -> Result<(), completion::Completion> {
        Ok(())
    }

    fn fail(&mut self, _: completion::Failure, _: &Peers) -> Result<(), completion::Failure> {
        Ok(())
    }
}
