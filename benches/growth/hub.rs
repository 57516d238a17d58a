//! The hub's process: one endpoint with links to all the peers.

use std::net::SocketAddr;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use std::{fs, thread};

use homespun::info::Progress;
use homespun::{
    Address, Bytes, BytesMut, Caps, Completion, CompletionQueue, Fabric, FabricAddress, Hints, OpenEndpoint,
    OperationKind, Tag,
};

use crate::clock::now_ns;
use crate::process::{arguments, commands, raise_descriptor_limit};
use crate::row::{MESSAGE, median};
use crate::{Result, heap, processors};

/// The tags of a message to the hub, and of one to a peer.
pub(crate) const TO_HUB: Tag = Tag(1);
pub(crate) const TO_PEER: Tag = Tag(2);

/// How long the hub makes passes after the last peer is connected. Meanwhile, checks of the peers' addresses
/// end, and rings become cold.
const SETTLING_TIME: Duration = Duration::from_millis(700);

const SAMPLES: usize = 41;
const IDLE_PASSES_OF_SAMPLE: u32 = 500;
const ROUND_TRIPS: usize = 4_001;

/// Opens an endpoint for which only calls make progress.
pub(crate) fn open_endpoint(domain: &str) -> Result<OpenEndpoint> {
    let hints = Hints::new().caps(Caps::TAGGED).domain(domain).node("127.0.0.1").source();
    Ok(Fabric::new().open_endpoint(&hints.progress(Progress::Manual))?)
}

/// Parses the addresses in a command or an answer.
pub(crate) fn parse_addresses(text: &str) -> Result<Vec<Address>> {
    let parse = |word: &str| Ok(word.parse::<SocketAddr>()?.into());
    text.split_whitespace().map(parse).collect()
}

/// Reads one completion.
pub(crate) fn read(cq: &CompletionQueue) -> Result<Option<Completion>> {
    cq.read().map_err(|error| format!("{error}: {:?}", cq.read_error()).into())
}

/// As [`read`]. Gives the processor away if there is no completion, since there are more processes than
/// processors.
fn read_or_yield(cq: &CompletionQueue) -> Result<Option<Completion>> {
    let completion = read(cq)?;
    if completion.is_none() {
        thread::yield_now();
    }
    Ok(completion)
}

pub(crate) fn run() -> Result<()> {
    raise_descriptor_limit()?;
    let commands = commands();
    let open = open_endpoint(&arguments()[0])?;
    println!("at {}", open.endpoint.name()?.socket_addr());
    let peers = parse_addresses(&commands.recv()?)?;
    let mut hub = Hub { open, commands, peers };
    hub.measure_connections()?;
    hub.measure_idle_pass()?;
    hub.measure_round_trips()?;
    hub.close();
    Ok(())
}

struct Hub {
    open: OpenEndpoint,
    commands: Receiver<String>,
    peers: Vec<Address>,
}

impl Hub {
    /// Connects to the peers, or waits until they have connected, as the next command says. Answers with the
    /// time of the first post, or of the last message that has arrived.
    fn measure_connections(&mut self) -> Result<()> {
        let OpenEndpoint { endpoint, cq, av, .. } = &self.open;
        let count = self.peers.len();
        let connects = self.commands.recv()? == "connect";
        let (heap_before, rings_before) = (heap::held_bytes(), Rings::of_this_process()?);
        let begun_ns = now_ns();
        if connects {
            for address in &self.peers {
                let peer = av.insert_one(*address)?;
                endpoint.tsend(Bytes::from_static(MESSAGE), peer, TO_PEER, 1)?;
            }
        } else {
            for _ in 0..count {
                let room = BytesMut::zeroed(MESSAGE.len());
                endpoint.trecv(room, FabricAddress::UNSPECIFIED, TO_HUB, 1)?;
            }
            println!("accepting");
        }
        let mut ended = 0;
        while ended < count {
            ended += usize::from(read_or_yield(cq)?.is_some());
        }
        let time_ns = if connects { begun_ns } else { now_ns() };
        let settled = Instant::now() + SETTLING_TIME;
        while Instant::now() < settled {
            read_or_yield(cq)?;
        }
        let (heap_bytes, rings) = (heap::held_bytes() - heap_before, Rings::of_this_process()?);
        let (mapped, resident) = rings.since(rings_before);
        println!("connected {time_ns} {heap_bytes} {mapped} {resident}");
        Ok(())
    }

    /// Measures a pass while all peers are idle: a read of the empty queue.
    fn measure_idle_pass(&mut self) -> Result<()> {
        self.commands.recv()?;
        let cq = &self.open.cq;
        // No ring stays hot for so many passes.
        for _ in 0..50_000 {
            read(cq)?;
        }
        let mut samples = Vec::new();
        for _ in 0..SAMPLES {
            let begin = Instant::now();
            for _ in 0..IDLE_PASSES_OF_SAMPLE {
                read(cq)?;
            }
            samples.push(begin.elapsed().as_nanos() as f64 / f64::from(IDLE_PASSES_OF_SAMPLE));
        }
        println!("idle {}", median(samples));
        Ok(())
    }

    /// Measures round trips with the first peer while the others are idle.
    fn measure_round_trips(&mut self) -> Result<()> {
        self.commands.recv()?;
        processors::stay_on_first()?;
        let OpenEndpoint { endpoint, cq, av, .. } = &self.open;
        let peer = av.insert_one(self.peers[0])?;
        let mut samples = Vec::new();
        for _ in 0..ROUND_TRIPS {
            endpoint.trecv(BytesMut::zeroed(MESSAGE.len()), FabricAddress::UNSPECIFIED, TO_HUB, 1)?;
            let begin = Instant::now();
            endpoint.tsend(Bytes::from_static(MESSAGE), peer, TO_PEER, 2)?;
            while read(cq)?.is_none_or(|completion| completion.kind() != OperationKind::Receive) {}
            samples.push(begin.elapsed().as_nanos() as f64);
        }
        println!("active {}", median(samples));
        Ok(())
    }

    /// Closes the endpoint while the peers are alive.
    fn close(self) {
        let Hub { open, peers, .. } = self;
        let begin = Instant::now();
        drop(open);
        println!("closed {}", begin.elapsed().as_nanos() / peers.len() as u128);
    }
}

/// The shared memory that this process has mapped.
#[derive(Debug, Clone, Copy)]
struct Rings {
    mapped_bytes: u64,
    resident_bytes: u64,
}

impl Rings {
    fn of_this_process() -> Result<Rings> {
        let mut rings = Rings { mapped_bytes: 0, resident_bytes: 0 };
        let mut is_ring = false;
        for line in fs::read_to_string("/proc/self/smaps")?.lines() {
            let mut words = line.split_whitespace();
            let kib = |words: &mut std::str::SplitWhitespace<'_>| {
                words.next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0)
            };
            match words.next() {
                Some(range) if !range.ends_with(':') => is_ring = line.contains("/memfd:"),
                Some("Size:") if is_ring => rings.mapped_bytes += kib(&mut words) * 1024,
                Some("Rss:") if is_ring => rings.resident_bytes += kib(&mut words) * 1024,
                _ => {}
            }
        }
        Ok(rings)
    }

    fn since(self, before: Rings) -> (u64, u64) {
        (
            self.mapped_bytes.saturating_sub(before.mapped_bytes),
            self.resident_bytes.saturating_sub(before.resident_bytes),
        )
    }
}
