//! Large payload that takes one way and then another, between two engines over a real link. The clock of the
//! target stands still but for what a test makes each way cost.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use homespun_engine::address::{Address, AddressFormat};
use homespun_engine::buffer::{Buffer, Destination, Source};
use homespun_engine::completion::{EndedOperation, FailedOperation, Sink};
use homespun_engine::engine::{Config, Engine};
use homespun_engine::flags::{MrAccess, Order};
use homespun_engine::matching::Criteria;
use homespun_engine::operation::{
    Level, ReceiveRequest, RmaLocal, Signalled, TransmitOp, TransmitOptions, TransmitRequest,
};
use homespun_engine::peer_id::PeerId;
use homespun_engine::peers::Peers;
use homespun_engine::region::{Region, RegionAttr, Regions};
use homespun_engine::remote_memory::RemoteMemory;
use homespun_engine::transport::{LinkId, Provider, Transport};

use crate::clock::{Clock, ManualTime};
use crate::link::Slot;
use crate::transport::ShmTransport;
use crate::{ShmProvider, memory};

const LEN_BYTES: usize = 64 << 10;

/// If an operation has not ended after this many passes, something hangs.
const PASSES_MAX: u32 = 100_000;

const KEY: u64 = 7;

/// The completions of an endpoint.
#[derive(Default)]
struct Completions(Vec<EndedOperation>);

impl Sink for Completions {
    fn complete(&mut self, completion: EndedOperation, _: &Peers) -> Result<(), EndedOperation> {
        self.0.push(completion);
        Ok(())
    }

    fn fail(&mut self, failure: FailedOperation, _: &Peers) -> Result<(), FailedOperation> {
        panic!("{failure:?}")
    }
}

struct Node {
    engine: Engine,
    transport: ShmTransport,
    sink: Completions,
}

impl Node {
    fn open(instance: u64, config: Config) -> Node {
        let bind = AddressFormat::SockaddrIn.wildcard();
        Node {
            engine: Engine::new(config),
            transport: ShmProvider::new().open(bind, instance).unwrap(),
            sink: Completions::default(),
        }
    }

    fn receive(&mut self) {
        self.transport.receive(16, &mut self.engine.arrivals(&mut self.sink));
    }

    fn transmit(&mut self) {
        self.engine.transmit(&mut self.transport, &mut self.sink);
        self.transport.flush();
    }

    /// The link to the only peer.
    fn link(&mut self) -> LinkId {
        self.transport.links.next_id(LinkId(0)).unwrap()
    }
}

/// What the ways cost, in ns for a transfer.
#[derive(Debug, Clone, Copy)]
struct Costs {
    ring_ns: u64,
    pull_ns: u64,
}

/// An initiator and its target.
struct Pair {
    initiator: Node,
    target: Node,
    to: PeerId,
    region: Arc<Region>,
    time: Arc<ManualTime>,
    costs: Costs,
    posted: u64,
}

impl Pair {
    /// `None` if the system lets no process read another one's memory.
    fn open() -> Option<Pair> {
        memory::probe_process_vm_readv().ok()?;
        let order = Order::SAS | Order::WAW;
        let config = || Config {
            transmit_order: order,
            completes_in_order: true,
            receive_order: order,
            ..Config::default()
        };
        let regions = Arc::new(Regions::default());
        let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        let attr = RegionAttr { key: KEY, access, base_address: 0 };
        let region = regions.add(Region::owned(LEN_BYTES, attr).unwrap()).unwrap();
        let time = Arc::new(ManualTime::default());
        let mut target = Node::open(2, config());
        target.engine = Engine::with_regions(config(), regions);
        target.transport.clock = Clock::Manual(time.clone());
        let mut initiator = Node::open(1, config());
        let address: Address = target.transport.address();
        let to = initiator.engine.intern_peer(address);
        let costs = Costs { ring_ns: 1_000, pull_ns: 2_000 };
        Some(Pair { initiator, target, to, region, time, costs, posted: 0 })
    }

    fn post(&mut self, op: TransmitOp) {
        let options = TransmitOptions {
            level: Level::Delivery,
            signalled: Signalled::Yes,
            inject: false,
            fence: false,
        };
        let mut request = TransmitRequest { op, options, context: self.posted };
        self.posted += 1;
        let Node { engine, transport, sink } = &mut self.initiator;
        engine.post(self.to, &mut request, transport, sink).unwrap();
        transport.flush();
    }

    /// Writes the number of the operation all over the region.
    fn post_write(&mut self) {
        let local = RmaLocal::Write { source: make_payload(self.posted), data: None };
        self.post(TransmitOp::Rma { local, memory: RemoteMemory { key: KEY, address: 0 } });
    }

    /// Sends a message that holds the number of the operation.
    fn post_send(&mut self) {
        let source = make_payload(self.posted);
        self.post(TransmitOp::Send { source, tag: None, data: None });
    }

    fn post_receive(&mut self, context: u64) {
        let request = ReceiveRequest {
            destination: Destination::owned(BytesMut::zeroed(LEN_BYTES)),
            tagged: false,
            criteria: Criteria { source: None, tag: 0, ignore: 0 },
            context,
            signalled: Signalled::Yes,
        };
        self.target.engine.post_receive(request, &mut self.target.sink).unwrap();
    }

    /// Makes a pass of each side. The ring is read in one half of the target's pass, and payload is pulled in
    /// the other.
    fn progress(&mut self) {
        self.initiator.receive();
        self.initiator.transmit();
        self.time.step_ns.store(self.costs.ring_ns, Ordering::Relaxed);
        self.target.receive();
        self.time.step_ns.store(self.costs.pull_ns, Ordering::Relaxed);
        self.target.transmit();
    }

    fn progress_until(&mut self, mut is_done: impl FnMut(&mut Pair) -> bool) {
        for _ in 0..PASSES_MAX {
            if is_done(self) {
                return;
            }
            self.progress();
        }
        panic!("no end in sight");
    }

    /// Whether all messages were sent and received.
    fn has_ended_all(&mut self) -> bool {
        [&self.initiator, &self.target].iter().all(|node| node.sink.0.len() as u64 == self.posted)
    }

    /// Asks the initiator to expose payload, or to send it, whatever the target has measured.
    fn force_way(&mut self, is_pulled: bool) {
        let id = self.initiator.link();
        let Some(Slot::Made(link)) = self.initiator.transport.links.get(id) else { panic!("no link") };
        let classes = if is_pulled { u32::MAX } else { 0 };
        let segment = link.outgoing.as_ref().unwrap().ring.segment();
        segment.pulled_classes().store(classes, Ordering::Relaxed);
    }

    fn is_pull_preferred(&mut self) -> bool {
        let link = self.initiator.link();
        self.initiator.transport.prefers_pull(link, &[std::io::IoSlice::new(&[0; LEN_BYTES])])
    }

    /// Makes the cheaper way cost twice as much as the other one.
    fn make_cheaper_way_slow(&mut self) {
        let Costs { ring_ns, pull_ns } = &mut self.costs;
        if pull_ns < ring_ns {
            *pull_ns = 2 * *ring_ns;
        } else {
            *ring_ns = 2 * *pull_ns;
        }
    }

    /// Returns the number that fills the region. Panics if a write is there only in part, while none is under
    /// way.
    fn number_in_region(&self) -> u64 {
        let mut bytes = vec![0; LEN_BYTES];
        self.region.read_at(0, &mut bytes).unwrap();
        number_in(&bytes)
    }

    /// The numbers at the beginning and at the end of the region. A later write may be under way.
    fn numbers_at_ends(&self) -> [u64; 2] {
        [0, LEN_BYTES - 8].map(|offset_bytes| {
            let mut bytes = [0; 8];
            self.region.read_at(offset_bytes, &mut bytes).unwrap();
            u64::from_le_bytes(bytes)
        })
    }
}

fn make_payload(number: u64) -> Source {
    Source::owned(Bytes::from(number.to_le_bytes().repeat(LEN_BYTES / 8)))
}

fn number_in(payload: &[u8]) -> u64 {
    let (words, _) = payload.as_chunks::<8>();
    assert!(words.iter().all(|word| *word == words[0]), "parts of two payloads");
    u64::from_le_bytes(words[0])
}

#[test]
fn writes_land_and_complete_in_order_while_ways_alternate() {
    const BATCH: usize = 7;
    let Some(mut pair) = Pair::open() else { return };
    pair.post_write();
    pair.progress_until(|pair| pair.initiator.sink.0.len() == 1);
    let mut changes = 0;
    for round in 0..200_u64 {
        for at in 0..BATCH as u64 {
            // Each round has another pattern of ways.
            let is_pulled = (round * 37) >> at & 1 != 0;
            changes += u32::from(is_pulled != pair.is_pull_preferred());
            pair.force_way(is_pulled);
            pair.post_write();
        }
        let expected = pair.initiator.sink.0.len() + BATCH;
        let mut before = [0; 2];
        pair.progress_until(|pair| {
            let numbers = pair.numbers_at_ends();
            assert!(numbers[0] >= before[0] && numbers[1] >= before[1], "{before:?}, then {numbers:?}");
            before = numbers;
            pair.initiator.sink.0.len() == expected
        });
        assert_eq!(pair.number_in_region(), pair.posted - 1);
    }
    assert!(changes > 400, "{changes}");
    let contexts = pair.initiator.sink.0.iter().map(|completion| completion.context);
    assert!(contexts.eq(0..pair.posted));
}

#[test]
fn messages_match_and_complete_in_order_while_ways_alternate() {
    const BATCH: u64 = 5;
    let Some(mut pair) = Pair::open() else { return };
    let (mut pulled, mut sent) = (0, 0);
    for _ in 0..200 {
        if pair.posted % 50 == 0 {
            pair.make_cheaper_way_slow();
        }
        (0..BATCH).for_each(|at| pair.post_receive(pair.posted + at));
        for _ in 0..BATCH {
            let is_pulled = pair.posted > 0 && pair.is_pull_preferred();
            *(if is_pulled { &mut pulled } else { &mut sent }) += 1;
            pair.post_send();
        }
        pair.progress_until(Pair::has_ended_all);
    }
    assert!(pulled > 100 && sent > 100, "{pulled} pulled, {sent} sent");
    let contexts = pair.initiator.sink.0.iter().map(|completion| completion.context);
    assert!(contexts.eq(0..pair.posted));
    for completion in &pair.target.sink.0 {
        let Buffer::Received(bytes) = &completion.buffer else { panic!("{completion:?}") };
        assert_eq!(number_in(bytes), completion.context, "the receive of another message");
    }
}
