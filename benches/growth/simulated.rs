//! A hub and its peers on the simulated network of the tests, in one thread. Only the calls of the hub
//! count.

use std::hint::black_box;
use std::time::{Duration, Instant};

use homespun::{Bytes, BytesMut};
use homespun_engine::address::{Address, AddressFormat};
use homespun_engine::buffer::{Destination, Source};
use homespun_engine::completion::{EndedOperation, FailedOperation, Sink};
use homespun_engine::engine::{Config, Engine};
use homespun_engine::loopback::{CAPACITY_MIN_BYTES, Faults, LoopbackTransport, Network};
use homespun_engine::matching::Criteria;
use homespun_engine::operation::{
    Level, ReceiveRequest, Signalled, TransmitOp, TransmitOptions, TransmitRequest,
};
use homespun_engine::peers::Peers;
use homespun_engine::transport::{Provider, Transport};

use crate::row::{MESSAGE, Row, median};
use crate::{Result, heap};

/// How many frames a pass receives at most, as in the library.
const PASS_MAX_FRAMES: u32 = 256;

/// How many sends to new peers the hub has outstanding at once.
const CONNECTING_PEERS: usize = 1024;

/// After this many passes without the expected event, something hangs.
const PASSES_MAX: usize = 100_000;

const SAMPLES: usize = 41;
const BLOCKED_SAMPLES: usize = 5;
const BLOCKED_PASSES_OF_SAMPLE: u32 = 20;
const IDLE_PASSES_OF_SAMPLE: u32 = 500;
const ACTIVE_ROUNDS: usize = 2_001;

/// An endpoint without the objects of the application.
struct Node {
    engine: Engine,
    transport: LoopbackTransport,
    ended: Ended,
}

/// Counts completions.
#[derive(Default)]
struct Ended {
    operations: u64,
    failures: u64,
}

impl Sink for Ended {
    fn complete(&mut self, completion: EndedOperation, _: &Peers) -> std::result::Result<(), EndedOperation> {
        self.operations += 1;
        drop(completion);
        Ok(())
    }

    fn fail(&mut self, failure: FailedOperation, _: &Peers) -> std::result::Result<(), FailedOperation> {
        self.failures += 1;
        drop(failure);
        Ok(())
    }
}

impl Node {
    fn open(network: &Network, instance: u64) -> Result<Node> {
        let transport = network.open(AddressFormat::SockaddrIn.wildcard(), instance)?;
        Ok(Node { engine: Engine::new(Config::default()), transport, ended: Ended::default() })
    }

    fn address(&self) -> Address {
        self.transport.address()
    }

    /// Makes a pass. Returns how many frames and events it has received.
    fn pass(&mut self) -> u32 {
        let Node { engine, transport, ended } = self;
        engine.deliver_held(ended);
        let received = transport.receive(PASS_MAX_FRAMES, &mut engine.arrivals(ended));
        engine.transmit(transport, ended);
        transport.flush();
        received
    }

    /// Returns the time of a pass that receives nothing.
    fn quiet_pass_ns(&mut self, samples: usize, passes: u32) -> f64 {
        let sample_ns = |_| {
            let begin = Instant::now();
            for _ in 0..passes {
                black_box(self.pass());
            }
            begin.elapsed().as_nanos() as f64 / f64::from(passes)
        };
        median((0..samples).map(sample_ns).collect())
    }

    fn send(&mut self, to: Address, message: &'static [u8]) -> Result<()> {
        let to = self.engine.intern_peer(to);
        let op =
            TransmitOp::Send { source: Source::owned(Bytes::from_static(message)), tag: None, data: None };
        let options = TransmitOptions {
            level: Level::Transmit,
            signalled: Signalled::Yes,
            inject: false,
            fence: false,
        };
        let mut request = TransmitRequest { op, options, context: 1 };
        self.engine.post(to, &mut request, &mut self.transport, &mut self.ended)?;
        self.transport.flush();
        Ok(())
    }

    fn post_receive(&mut self) -> Result<()> {
        let request = ReceiveRequest {
            destination: Destination::owned(BytesMut::zeroed(MESSAGE.len())),
            tagged: false,
            criteria: Criteria::any(),
            context: 2,
            signalled: Signalled::Yes,
        };
        self.engine.post_receive(request, &mut self.ended).map_err(|_| "a receive was refused".into())
    }
}

/// A hub with links to all its peers.
struct Star {
    hub: Node,
    peers: Vec<Node>,
    /// The time that the hub spent to connect them.
    connecting: Duration,
}

/// Adds the time of a call to `total`.
fn timed<R>(total: &mut Duration, call: impl FnOnce() -> R) -> R {
    let begin = Instant::now();
    let result = call();
    *total += begin.elapsed();
    result
}

impl Star {
    /// The hub sends a message to each peer, and so connects to it.
    fn connect(network: &Network, count: usize) -> Result<Star> {
        let mut hub = Node::open(network, 1)?;
        let mut peers = Vec::new();
        for number in 0..count {
            let mut peer = Node::open(network, 2 + number as u64)?;
            peer.post_receive()?;
            peers.push(peer);
        }
        let mut connecting = Duration::ZERO;
        let mut expected = 0;
        for batch in peers.chunks_mut(CONNECTING_PEERS) {
            let addresses: Vec<Address> = batch.iter().map(Node::address).collect();
            timed(&mut connecting, || {
                addresses.into_iter().try_for_each(|address| hub.send(address, MESSAGE))
            })?;
            expected += batch.len() as u64;
            let mut passes = 0;
            while hub.ended.operations < expected || batch.iter().any(|peer| peer.ended.operations == 0) {
                timed(&mut connecting, || hub.pass());
                batch.iter_mut().for_each(|peer| _ = peer.pass());
                passes += 1;
                if passes == PASSES_MAX || hub.ended.failures > 0 {
                    return Err("the peers do not get connected".into());
                }
            }
        }
        let mut star = Star { hub, peers, connecting };
        star.settle();
        Ok(star)
    }

    /// Makes passes until nothing moves any more.
    fn settle(&mut self) {
        while self.hub.pass() + self.peers.iter_mut().map(Node::pass).sum::<u32>() > 0 {}
    }

    /// Returns the times of a pass that receives a message of one peer, and of a send to this peer.
    fn active_pass_and_send_ns(&mut self) -> Result<(f64, f64)> {
        let active = self.peers.len() / 2;
        let (hub_address, peer_address) = (self.hub.address(), self.peers[active].address());
        let (mut passes, mut sends) = (Vec::new(), Vec::new());
        for _ in 0..ACTIVE_ROUNDS {
            let (hub, peer) = (&mut self.hub, &mut self.peers[active]);
            hub.post_receive()?;
            peer.send(hub_address, MESSAGE)?;
            let (before, mut pass, mut send) = (hub.ended.operations, Duration::ZERO, Duration::ZERO);
            timed(&mut pass, || hub.pass());
            if hub.ended.operations == before {
                return Err("the message does not arrive in one pass".into());
            }
            peer.post_receive()?;
            timed(&mut send, || hub.send(peer_address, MESSAGE))?;
            while hub.pass() + peer.pass() > 0 {}
            passes.push(pass.as_nanos() as f64);
            sends.push(send.as_nanos() as f64);
        }
        Ok((median(passes), median(sends)))
    }

    /// All peers leave. Returns the time that the hub takes for each.
    fn leave_ns(mut self) -> Result<f64> {
        let count = self.peers.len();
        for mut peer in self.peers.drain(..) {
            peer.engine.close_links(&mut peer.transport);
            peer.transport.flush();
        }
        let (mut time, mut ended, mut passes) = (Duration::ZERO, 0, 0);
        while ended < count {
            ended += timed(&mut time, || self.hub.pass()) as usize;
            passes += 1;
            if passes == PASSES_MAX {
                return Err("the links do not end".into());
            }
        }
        Ok(time.as_nanos() as f64 / count as f64)
    }

    /// Closes the hub. Returns the time for each link.
    fn close_ns(self) -> f64 {
        let Star { mut hub, peers, .. } = self;
        let mut time = Duration::ZERO;
        timed(&mut time, || {
            hub.engine.has_unsent();
            hub.engine.close_links(&mut hub.transport);
            hub.transport.flush();
        });
        time.as_nanos() as f64 / peers.len() as f64
    }

    /// Returns how many bytes of heap the hub's engine has for each peer.
    fn heap_bytes(self) -> u64 {
        let Node { engine, transport, .. } = self.hub;
        let before = heap::held_bytes();
        drop(engine);
        let bytes = before - heap::held_bytes();
        drop(transport);
        bytes
    }
}

/// Returns the time of a pass of a hub whose links are all full, with a send in the middle of its message on
/// each.
fn blocked_pass_ns(count: usize) -> Result<f64> {
    let faults = Faults { capacity_bytes: CAPACITY_MIN_BYTES, ..Faults::default() };
    let network = Network::new(7, faults);
    let mut hub = Node::open(&network, 1)?;
    let peers =
        (0..count).map(|number| Node::open(&network, 2 + number as u64)).collect::<Result<Vec<Node>>>()?;
    const LONG: &[u8] = &[7; 2 * CAPACITY_MIN_BYTES as usize];
    peers.iter().try_for_each(|peer| hub.send(peer.address(), LONG))?;
    let pass_ns = hub.quiet_pass_ns(BLOCKED_SAMPLES, BLOCKED_PASSES_OF_SAMPLE);
    if !hub.engine.has_unsent() {
        return Err("the links are not full".into());
    }
    Ok(pass_ns)
}

/// Measures a hub with this many peers.
pub(crate) fn measure(peers: usize) -> Result<Row> {
    let connect = || Star::connect(&Network::new(7, Faults::default()), peers);
    let mut star = connect()?;
    let connecting = star.connecting;
    let idle_pass_ns = star.hub.quiet_pass_ns(SAMPLES, IDLE_PASSES_OF_SAMPLE);
    let (active_pass_ns, send_ns) = star.active_pass_and_send_ns()?;
    let leave_ns = star.leave_ns()?;
    let close_ns = connect()?.close_ns();
    let star = connect()?;
    let heap_bytes = star.heap_bytes();
    Ok(Row {
        who_connects: "hub",
        peers,
        heap_bytes: heap_bytes / peers as u64,
        mapped_bytes: None,
        idle_pass_ns,
        active_ns: active_pass_ns,
        blocked_pass_ns: Some(blocked_pass_ns(peers)?),
        send_ns: Some(send_ns),
        leave_ns: Some(leave_ns),
        close_ns,
        connections_per_s: peers as f64 / connecting.as_secs_f64(),
    })
}
