//! The pump: the only code that sees both an endpoint's engine and its transport.
//!
//! It is generic over the transport, and reached through one virtual call per post and one per progress, none per
//! frame. Its lock is taken before a completion queue's lock, never the other way.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use homespun_engine::address::Address;
use homespun_engine::buffer::{Destination, Source};
use homespun_engine::completion;
use homespun_engine::completion::Sink;
use homespun_engine::engine::{Config, Engine};
use homespun_engine::error::{Again, Error, Misuse};
use homespun_engine::flags::CompletionFlags;
use homespun_engine::matching::Criteria;
use homespun_engine::operation::{Level, ReceiveRequest, SendRequest};
use homespun_engine::peer_id::PeerId;
use homespun_engine::peers::Peers;
use homespun_engine::transport::Transport;
use parking_lot::{Mutex, MutexGuard};

use crate::av::{AddressVector, FabricAddress};
use crate::cq::{Completion, CompletionError, CqFormat, Ring, Shared};

/// How many frames a pass receives before it hands completions to the application.
const RECEIVE_BUDGET_FRAMES: u32 = 256;

/// A pump, whatever its transport: what endpoints and completion queues hold.
pub(crate) trait Drive: Send + Sync {
    fn address(&self) -> Address;
    fn enable(&self, wiring: Wiring) -> Result<(), Error>;
    fn post_send(&self, post: SendPost) -> Result<(), Error>;
    fn post_receive(&self, post: ReceivePost) -> Result<(), Error>;
    fn cancel(&self, context: u64) -> Result<(), Error>;
    fn progress(&self);
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
    /// Another operation follows at once, so transmission may wait for it.
    pub(crate) more: bool,
}

/// A receive as an endpoint posts it.
pub(crate) struct ReceivePost {
    pub(crate) destination: Destination,
    /// `None` for any source.
    pub(crate) from: Option<FabricAddress>,
    /// Tag and ignore mask of a tagged receive.
    pub(crate) tagged: Option<(u64, u64)>,
    pub(crate) context: u64,
    pub(crate) signalled: bool,
}

/// An endpoint's engine, its transport, and what both are wired to.
pub(crate) struct Pump<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    engine: Engine,
    transport: T,
    wired: Option<Wired>,
}

struct Wired {
    wiring: Wiring,
    targets: Targets,
    sources: Sources,
    /// How many places are set aside in the transmit queue for sends that have not ended.
    reserved: usize,
}

impl Wired {
    fn queues(&mut self) -> Queues<'_> {
        Queues::new(&self.wiring, &mut self.sources, &mut self.reserved)
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
        Pump { state: Mutex::new(State { engine: Engine::new(config), transport, wired: None }) }
    }
}

impl<T: Transport> Drive for Pump<T> {
    fn address(&self) -> Address {
        self.state.lock().transport.address()
    }

    fn enable(&self, wiring: Wiring) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.wired.is_some() {
            return Err(Misuse::State("the endpoint is enabled already").into());
        }
        state.wired =
            Some(Wired { wiring, targets: Targets::default(), sources: Sources::default(), reserved: 0 });
        Ok(())
    }

    fn post_send(&self, post: SendPost) -> Result<(), Error> {
        let mut guard = self.state.lock();
        let State { engine, transport, wired } = &mut *guard;
        let wired = wired.as_mut().ok_or(NOT_ENABLED)?;
        let SendPost { to, source, tag, data, context, level, signalled, inject, more } = post;
        let to = wired.targets.peer(to, &wired.wiring.av, engine)?;
        let mut queues = wired.queues();
        if signalled && !queues.reserve() {
            return Err(Again::CompletionQueueFull.into());
        }
        let request = SendRequest { to, source, tag, data, context, level, signalled, inject };
        if let Err(error) = engine.post_send(request, transport, &mut queues) {
            if signalled {
                queues.unreserve();
            }
            return Err(error);
        }
        if !more {
            transport.flush();
        }
        Ok(())
    }

    fn post_receive(&self, post: ReceivePost) -> Result<(), Error> {
        let mut guard = self.state.lock();
        let State { engine, wired, .. } = &mut *guard;
        let wired = wired.as_mut().ok_or(NOT_ENABLED)?;
        let ReceivePost { destination, from, tagged, context, signalled } = post;
        let source = match from {
            Some(from) => Some(wired.targets.peer(from, &wired.wiring.av, engine)?),
            None => None,
        };
        let (tag, ignore) = tagged.unwrap_or((0, u64::MAX));
        let criteria = Criteria { source, tag, ignore };
        let request = ReceiveRequest { destination, tagged: tagged.is_some(), criteria, context, signalled };
        engine.post_receive(request, &mut wired.queues())
    }

    fn cancel(&self, context: u64) -> Result<(), Error> {
        let mut guard = self.state.lock();
        let State { engine, wired, .. } = &mut *guard;
        let wired = wired.as_mut().ok_or(NOT_ENABLED)?;
        engine.cancel(context, &mut wired.queues())
    }

    fn progress(&self) {
        let mut guard = self.state.lock();
        let State { engine, transport, wired } = &mut *guard;
        let Some(wired) = wired else { return };
        let mut queues = wired.queues();
        engine.deliver_held(&mut queues);
        transport.receive(RECEIVE_BUDGET_FRAMES, &mut engine.arrivals(&mut queues));
        engine.transmit(transport, &mut queues);
        transport.flush();
    }

    fn close(&self, linger: Duration) {
        let deadline = Instant::now() + linger;
        let mut guard = self.state.lock();
        let State { engine, transport, wired } = &mut *guard;
        if let Some(mut wired) = wired.take() {
            let mut queues = wired.queues();
            while *queues.reserved > 0 {
                queues.unreserve();
            }
        }
        transport.stop_accepting();
        let (mut nobody, mut patience) = (Nobody, Patience::default());
        while engine.has_unsent() && Instant::now() < deadline {
            transport.receive(RECEIVE_BUDGET_FRAMES, &mut engine.arrivals(&mut nobody));
            engine.transmit(transport, &mut nobody);
            transport.flush();
            patience.pause();
        }
        engine.close_links(transport);
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
struct Queues<'a> {
    wiring: &'a Wiring,
    sources: &'a mut Sources,
    reserved: &'a mut usize,
    transmit: Option<MutexGuard<'a, Ring>>,
    receive: Option<MutexGuard<'a, Ring>>,
    /// Whether both directions report to the same queue, which must not be locked twice.
    are_one: bool,
}

impl<'a> Queues<'a> {
    fn new(wiring: &'a Wiring, sources: &'a mut Sources, reserved: &'a mut usize) -> Self {
        let are_one = match (&wiring.transmit_cq, &wiring.receive_cq) {
            (Some(transmit), Some(receive)) => Arc::ptr_eq(transmit, receive),
            _ => false,
        };
        Queues { wiring, sources, reserved, transmit: None, receive: None, are_one }
    }

    fn transmit_ring(&mut self) -> Option<&mut Ring> {
        let cq = self.wiring.transmit_cq.as_ref()?;
        self.receive = None;
        Some(self.transmit.get_or_insert_with(|| cq.lock()))
    }

    fn receive_ring(&mut self) -> Option<&mut Ring> {
        let cq = self.wiring.receive_cq.as_ref()?;
        self.transmit = None;
        Some(self.receive.get_or_insert_with(|| cq.lock()))
    }

    /// The ring that reports operations of this kind, and the format of its entries.
    fn ring_for(&mut self, flags: CompletionFlags) -> Option<(&mut Ring, CqFormat)> {
        let is_send = flags.contains(CompletionFlags::SEND);
        let cq = if is_send { &self.wiring.transmit_cq } else { &self.wiring.receive_cq };
        let format = cq.as_ref()?.format();
        let ring = if is_send || self.are_one { self.transmit_ring() } else { self.receive_ring() };
        ring.map(|ring| (ring, format))
    }

    fn reserve(&mut self) -> bool {
        let has_place = self.transmit_ring().is_some_and(Ring::reserve);
        *self.reserved += usize::from(has_place);
        has_place
    }

    fn unreserve(&mut self) {
        *self.reserved -= 1;
        if let Some(ring) = self.transmit_ring() {
            ring.unreserve();
        }
    }

    fn source(&mut self, completion: &completion::Completion, peers: &Peers) -> FabricAddress {
        match completion.source {
            Some(peer) if self.wiring.wants_source => self.sources.address(peer, &self.wiring.av, peers),
            _ => FabricAddress::UNSPECIFIED,
        }
    }
}

impl Sink for Queues<'_> {
    fn complete(
        &mut self,
        completion: completion::Completion,
        peers: &Peers,
    ) -> Result<(), completion::Completion> {
        let source = self.source(&completion, peers);
        if completion.reserved {
            self.unreserve();
        }
        // A direction without a queue has nobody to tell.
        let Some((ring, format)) = self.ring_for(completion.flags) else { return Ok(()) };
        if !ring.has_room() {
            return Err(completion);
        }
        let mut entry = Completion::from(completion);
        format.trim(&mut entry);
        ring.push_completed(entry, source);
        Ok(())
    }

    fn fail(&mut self, failure: completion::Failure, peers: &Peers) -> Result<(), completion::Failure> {
        let source = self.source(&failure.completion, peers);
        if failure.completion.reserved {
            self.unreserve();
        }
        let Some((ring, _)) = self.ring_for(failure.completion.flags) else { return Ok(()) };
        if !ring.has_room() {
            return Err(failure);
        }
        let completion::Failure { completion, error } = failure;
        ring.push_failed(CompletionError { completion: completion.into(), error, source });
        Ok(())
    }
}

/// The sink of an endpoint that is being closed: its operations end unheard.
struct Nobody;

impl Sink for Nobody {
    fn complete(&mut self, _: completion::Completion, _: &Peers) -> Result<(), completion::Completion> {
        Ok(())
    }

    fn fail(&mut self, _: completion::Failure, _: &Peers) -> Result<(), completion::Failure> {
        Ok(())
    }
}
