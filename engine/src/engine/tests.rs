//! Tests of the engine, between a scripted transport and a recording sink.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};

use self::rma::{
    ATTR, KEY, raw_region, read_local, read_region, rma_header, rma_request, sent_answers, write_local,
};
use super::*;
use crate::address::AddressFormat;
use crate::atomic::{AtomicKind, AtomicOp, Datatype};
use crate::buffer::{Buffer, Destination, Segment, SegmentMut, Source};
use crate::completion::{EndedOperation, FailedOperation};
use crate::connection::{
    ConnectionEnd, ConnectionError, ConnectionReport, EndpointRole, Request, RequestId, Requester,
};
use crate::errno::Errno;
use crate::error::{Again, Error, OperationError};
use crate::flags::{CompletionFlags, CounterEvents, MrAccess, Order};
use crate::limits::*;
use crate::link::op_number_of;
use crate::loopback::{CAPACITY_MIN_BYTES, Faults, LoopbackTransport, Network};
use crate::matching::Criteria;
use crate::moment::Moment;
use crate::operation::{
    AtomicLocal, FlushKind, Level, PeekAction, PeekRequest, ReceiveRequest, RmaLocal, Signalled, TransmitOp,
    TransmitOptions, TransmitRequest,
};
use crate::peers::Peers;
use crate::region::{CountAccess, Persist, Region, RegionAttr, Regions};
use crate::remote_memory::RemoteMemory;
use crate::shared_receiver::{MemberId, SharedReceiver};
use crate::transport::{
    AddressProof, Denial, FrameHandler, Full, LinkCaps, LinkError, LinkEvent, LinkId, Provider, Pull,
    RemotePayload, Sent, SharedMemory, Space,
};
use crate::visits::count_visits_during;
use crate::wire::{
    Atomic, AtomicForm, AwaitedReply, CountedWrite, Durable, Form, HandshakeHeader, HandshakeStep, Header,
    MappableRegion, Message, Outcome, Refusal, Rma, RmaKind, samples,
};

mod atomics;
mod connections;
mod credit;
mod direct;
mod durability;
mod fences;
mod fetches;
mod flushes;
mod injected_writes;
mod invalid_frames;
mod lanes;
mod levels;
mod linking;
mod many_ends;
mod many_peers;
mod multi_receive;
mod ordering;
mod peeks;
mod peer_table;
mod random_frames;
mod requests;
mod rma;
mod sending;
mod shared;

/// What tests need of the engine's state.
impl Engine {
    fn set_pull_step_max_bytes(&mut self, step_max_bytes: usize) {
        self.receive_side.set_pull_step_max_bytes(step_max_bytes);
        self.target.set_pull_step_max_bytes(step_max_bytes);
    }

    fn fetches_len(&self) -> usize {
        self.receive_side.fetches_len() + self.target.fetches_len()
    }

    /// Discards the messages that wait for a receive.
    fn discard_all_unexpected(&mut self, sink: &mut impl Sink) {
        let (receiver, mut effects) = self.receive_side_and_effects(sink);
        receiver.discard_all_unexpected(&mut effects);
    }
}

/// The link to the peer of most tests.
const LINK: LinkId = LinkId(7);

const RESET: LinkError = LinkError::System(Errno::ECONNRESET);
const REFUSED: LinkError = LinkError::System(Errno::ECONNREFUSED);

/// The description that the scripted transport gives for exposed payload.
const REMOTE: &[u8] = b"0x7f00";

/// A transport that follows a script. A send returns the next of `answers`, or `Whole` if none is
/// left. A pull returns the next of `pulls`, or `Done` if none is left.
#[derive(Default)]
struct Scripted {
    answers: VecDeque<Sent>,
    /// The smallest payload that may be pulled; `None` if none may be.
    pull_min_bytes: Option<usize>,
    /// Whether the transport would rather send payload that may be pulled.
    prefers_send: bool,
    /// Whether the transport cannot expose memory.
    hides: bool,
    exposed: Vec<(LinkId, Vec<u8>)>,
    pulls: VecDeque<Pull>,
    /// The payload that a pull reads, whatever its description.
    memory: Vec<u8>,
    /// The pulls: the remote payload, the offset in it, and the number of bytes.
    pulled: Vec<(RemotePayload, u64, usize)>,
    /// How many links were closed. Shared, so that a sink can look at it.
    closes: Arc<AtomicUsize>,
    sent: Vec<(LinkId, Header, Vec<u8>)>,
    connected: Vec<Address>,
    /// How many of these connects repeat one that was cut short.
    connected_again: u32,
    closed: Vec<(LinkId, Close)>,
    /// The memory that `map_peer_memory` returns. If `None`, each mapping gets memory of its own.
    mapped: Option<Arc<dyn SharedMemory>>,
}

impl Scripted {
    fn pop_answer(&mut self, payload: &[IoSlice<'_>]) -> (Sent, Vec<u8>) {
        let bytes: Vec<u8> = payload.iter().flat_map(|slice| slice.iter().copied()).collect();
        match self.answers.pop_front().unwrap_or(Sent::Whole) {
            // A part must be less than all.
            Sent::Partial(count) if count >= bytes.len() => (Sent::Whole, bytes),
            Sent::Partial(count) => (Sent::Partial(count), bytes[..count].to_vec()),
            answer => (answer, bytes),
        }
    }

    fn headers_since(&self, place: usize) -> Vec<Header> {
        self.sent[place..].iter().map(|(_, header, _)| *header).collect()
    }
}

impl Transport for Scripted {
    fn address(&self) -> Address {
        address(1)
    }

    fn caps(&self, _: LinkId) -> LinkCaps {
        LinkCaps { inline_max_bytes: 8, pull_min_bytes: self.pull_min_bytes.unwrap_or(usize::MAX) }
    }

    fn prefers_pull(&self, _: LinkId, _: &[IoSlice<'_>]) -> bool {
        !self.prefers_send
    }

    fn connect(&mut self, to: Address) -> LinkId {
        self.connected.push(to);
        LinkId(self.connected.len() as u32 - 1)
    }

    fn connect_again(&mut self, to: Address) -> LinkId {
        self.connected_again += 1;
        self.connect(to)
    }

    fn send_inline(&mut self, link: LinkId, header: &Header, payload: &[u8]) -> Result<(), Full> {
        match self.send(link, header, &[IoSlice::new(payload)]) {
            Sent::Whole => Ok(()),
            _ => Err(Full),
        }
    }

    fn send(&mut self, link: LinkId, header: &Header, payload: &[IoSlice<'_>]) -> Sent {
        let (answer, bytes) = self.pop_answer(payload);
        if answer != Sent::Full {
            self.sent.push((link, *header, bytes));
        }
        answer
    }

    fn resume(&mut self, link: LinkId, rest: &[IoSlice<'_>]) -> Sent {
        let (answer, bytes) = self.pop_answer(rest);
        if answer != Sent::Full {
            let frame = self.sent.iter_mut().rfind(|(on, ..)| *on == link).expect("a frame to resume");
            frame.2.extend(bytes);
        }
        answer
    }

    fn expose(&mut self, link: LinkId, payload: &[IoSlice<'_>]) -> Option<RemotePayload> {
        if self.hides {
            return None;
        }
        let bytes = payload.iter().flat_map(|slice| slice.iter().copied()).collect();
        self.exposed.push((link, bytes));
        RemotePayload::new(REMOTE)
    }

    fn map_peer_memory(
        &mut self,
        _: LinkId,
        _: &RemotePayload,
        len_bytes: u64,
    ) -> Option<Arc<dyn SharedMemory>> {
        if let Some(memory) = &self.mapped {
            return Some(memory.clone());
        }
        let len_bytes = usize::try_from(len_bytes).ok().filter(|len_bytes| *len_bytes < 1 << 16)?;
        Some(shareable_memory(len_bytes))
    }

    fn pull(
        &mut self,
        _: LinkId,
        from: &RemotePayload,
        offset_bytes: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Pull {
        let answer = self.pulls.pop_front().unwrap_or(Pull::Done);
        let mut next = offset_bytes as usize;
        for place in into.iter_mut() {
            if answer == Pull::Done {
                let len = place.len();
                place.copy_from_slice(&self.memory[next..next + len]);
            } else {
                place.fill(b'?');
            }
            next += place.len();
        }
        self.pulled.push((from.clone(), offset_bytes, next - offset_bytes as usize));
        answer
    }

    fn flush(&mut self) {}

    fn receive(&mut self, _: u32, _: &mut impl FrameHandler) -> u32 {
        0
    }

    fn close(&mut self, link: LinkId, how: Close) {
        self.closed.push((link, how));
        self.closes.fetch_add(1, Ordering::Relaxed);
    }

    fn stop_accepting(&mut self) {}

    fn draining_count(&self) -> usize {
        0
    }
}

/// A sink that remembers what it is given.
#[derive(Default)]
struct Recorder {
    /// For how many completions there is room. `None` if there is no limit.
    room: Option<usize>,
    ended: Vec<Result<EndedOperation, FailedOperation>>,
    /// The counted events, and whether each has succeeded.
    counted: Vec<(CounterEvents, bool)>,
    events: Vec<ConnectionReport>,
    /// What to do after each report of an ended operation.
    after_report: Option<Box<dyn FnMut() + Send>>,
}

impl Recorder {
    fn is_full(&self) -> bool {
        self.room.is_some_and(|room| self.ended.len() >= room)
    }

    fn record(&mut self, ended: Result<EndedOperation, FailedOperation>) {
        self.ended.push(ended);
        if let Some(after_report) = &mut self.after_report {
            after_report();
        }
    }

    fn ended_contexts(&self) -> Vec<u64> {
        self.ended.iter().map(|ended| completion_of(ended).context).collect()
    }

    fn take_ended(&mut self) -> Vec<Result<EndedOperation, FailedOperation>> {
        std::mem::take(&mut self.ended)
    }
}

impl Sink for Recorder {
    fn complete(&mut self, completion: EndedOperation, _: &Peers) -> Result<(), EndedOperation> {
        if self.is_full() {
            return Err(completion);
        }
        self.record(Ok(completion));
        Ok(())
    }

    fn fail(&mut self, failure: FailedOperation, _: &Peers) -> Result<(), FailedOperation> {
        if self.is_full() {
            return Err(failure);
        }
        self.record(Err(failure));
        Ok(())
    }

    fn has_counters(&self) -> bool {
        true
    }

    fn count(&mut self, events: CounterEvents) {
        self.counted.push((events, true));
    }

    fn count_error(&mut self, events: CounterEvents) {
        self.counted.push((events, false));
    }

    fn report_connection_event(&mut self, event: ConnectionReport) {
        self.events.push(event);
    }
}

/// Allocates memory that peers can map.
fn shareable_memory(len_bytes: usize) -> Arc<dyn SharedMemory> {
    Network::new(0, Faults::default()).allocate_shareable(len_bytes).unwrap().unwrap()
}

fn address(port: u16) -> Address {
    SocketAddr::from(([127, 0, 0, 1], port)).into()
}

/// A request, with the peer that it is for.
struct AddressedRequest {
    to: PeerId,
    request: TransmitRequest,
}

impl AddressedRequest {
    fn new(to: PeerId, op: TransmitOp, context: u64) -> AddressedRequest {
        let options =
            TransmitOptions { level: Level::Inject, signalled: Signalled::Yes, inject: false, fence: false };
        AddressedRequest { to, request: TransmitRequest { op, options, context } }
    }

    fn level(mut self, level: Level) -> AddressedRequest {
        self.request.options.level = level;
        self
    }

    fn signalled(mut self, signalled: Signalled) -> AddressedRequest {
        self.request.options.signalled = signalled;
        self
    }

    fn inject(mut self, inject: bool) -> AddressedRequest {
        self.request.options.inject = inject;
        self
    }

    fn fence(mut self, fence: bool) -> AddressedRequest {
        self.request.options.fence = fence;
        self
    }

    fn source(mut self, message: Source) -> AddressedRequest {
        match &mut self.request.op {
            TransmitOp::Send { source, .. } => *source = message,
            other => panic!("not a send: {other:?}"),
        }
        self
    }

    fn key(mut self, key: u64) -> AddressedRequest {
        match &mut self.request.op {
            TransmitOp::Rma { memory, .. }
            | TransmitOp::Atomic { memory, .. }
            | TransmitOp::Flush { memory, .. } => memory.key = key,
            other => panic!("not an access: {other:?}"),
        }
        self
    }
}

impl Engine {
    /// Posts a request. If it is refused, hands its memory back.
    fn post_request(
        &mut self,
        AddressedRequest { to, mut request }: AddressedRequest,
        transport: &mut impl Transport,
        sink: &mut impl Sink,
    ) -> Result<(), Rejected<Buffer>> {
        self.post(to, &mut request, transport, sink)
            .map_err(|error| Rejected { error, returned: request.op.take_buffer() })
    }
}

/// An engine with its transport and its sink.
struct Node<T = Scripted> {
    engine: Engine,
    transport: T,
    sink: Recorder,
}

impl Node {
    fn new(config: Config) -> Node {
        Node { engine: Engine::new(config), transport: Scripted::default(), sink: Recorder::default() }
    }

    /// Adds a region to those that peers may access.
    #[track_caller]
    fn add_region(&self, region: Result<Region, Misuse>) -> Arc<Region> {
        self.engine.target.regions().add(region.unwrap()).unwrap()
    }

    /// Returns the operation number of the offer or access that was sent as this frame.
    #[track_caller]
    fn op_at(&self, place: usize) -> u64 {
        match self.transport.sent[place].1 {
            Header::Request { op, .. } | Header::Rma(Rma { op, .. }) | Header::Atomic(Atomic { op, .. }) => {
                op
            }
            other => panic!("neither an offer nor an access: {other:?}"),
        }
    }

    #[track_caller]
    fn last_op(&self) -> u64 {
        self.op_at(self.transport.sent.len() - 1)
    }

    /// Delivers the peer's answer to an access.
    fn answer(&mut self, link: LinkId, op: u64, outcome: Outcome) {
        self.frame(link, &Header::Answer { op, outcome }, b"");
    }

    /// Returns the headers of the sent frames, from a place on.
    fn sent_since(&self, place: usize) -> Vec<Header> {
        self.transport.headers_since(place)
    }
}

impl Node<LoopbackTransport> {
    fn open(network: &Network, instance: u64, config: Config) -> Self {
        let transport = network.open(AddressFormat::SockaddrIn.wildcard(), instance).unwrap();
        Node { engine: Engine::new(config), transport, sink: Recorder::default() }
    }

    fn address(&self) -> Address {
        self.transport.address()
    }

    fn send(&mut self, to: Address, message: impl Into<Bytes>, context: u64, level: Level) {
        let to = self.engine.intern_peer(to);
        self.post(send_request(to, b"", context).source(Source::owned(message.into())).level(level));
        self.transport.flush();
    }

    /// Makes a pass, which receives at most `frames_max` frames and events. Returns how many it has received.
    fn progress(&mut self, frames_max: u32) -> u32 {
        let received = self.transport.receive(frames_max, &mut self.engine.arrivals(&mut self.sink));
        self.transmit();
        self.transport.flush();
        self.deliver_held();
        received
    }
}

impl<T: Transport> Node<T> {
    fn post(&mut self, request: AddressedRequest) {
        self.try_post(request).unwrap();
    }

    fn try_post(&mut self, request: AddressedRequest) -> Result<(), Rejected<Buffer>> {
        self.engine.post_request(request, &mut self.transport, &mut self.sink)
    }

    fn post_receive(&mut self, request: ReceiveRequest) {
        self.engine.post_receive(request, &mut self.sink).unwrap();
    }

    /// Posts a receive of this length with each of these contexts.
    fn post_receives(&mut self, len_bytes: usize, contexts: impl IntoIterator<Item = u64>) {
        contexts.into_iter().for_each(|context| self.post_receive(receive_request(len_bytes, context)));
    }

    fn post_multi_receive(&mut self, request: ReceiveRequest, min_free_bytes: usize) {
        self.engine.post_multi_receive(request, min_free_bytes, None, &mut self.sink).unwrap();
    }

    fn cancel(&mut self, context: u64) -> Result<(), Error> {
        self.engine.cancel(context, &mut self.sink)
    }

    fn transmit(&mut self) {
        self.engine.transmit(&mut self.transport, &mut self.sink);
    }

    fn transmit_times(&mut self, count: usize) {
        (0..count).for_each(|_| self.transmit());
    }

    fn arrivals(&mut self) -> Arrivals<'_, Recorder> {
        self.engine.arrivals(&mut self.sink)
    }

    fn frame(&mut self, link: LinkId, header: &Header, payload: &[u8]) {
        self.arrivals().frame(link, header, payload);
    }

    /// Delivers a frame, and makes a pass.
    fn pass_with_frame(&mut self, link: LinkId, header: &Header, payload: &[u8]) {
        self.frame(link, header, payload);
        self.transmit();
    }

    fn frame_begun(&mut self, link: LinkId, header: &Header) {
        self.arrivals().frame_begun(link, header);
    }

    fn payload_arrived(&mut self, link: LinkId, bytes: &[u8]) {
        self.arrivals().payload_arrived(link, bytes);
    }

    fn link_event(&mut self, link: LinkId, event: LinkEvent) {
        self.arrivals().link_event(link, event);
    }

    /// Reports that a link with this instance of the peer at this port is up.
    fn link_up(&mut self, link: LinkId, port: u16, instance: u64) {
        self.link_event(link, LinkEvent::up(address(port), instance));
    }

    fn link_down(&mut self, link: LinkId, error: LinkError) {
        self.link_event(link, LinkEvent::Down(error));
    }

    fn advance_time(&mut self, now: Moment) {
        self.engine.advance_time(now, &mut self.sink);
    }

    fn outstanding_transmits(&self) -> usize {
        self.engine.outstanding_transmits()
    }

    fn outstanding_receives(&self) -> usize {
        self.engine.outstanding_receives()
    }

    fn unexpected_len(&self) -> usize {
        self.engine.receive_side.unexpected_len()
    }

    fn has_unsent(&self) -> bool {
        self.engine.has_unsent()
    }

    fn has_work_without_arrivals(&self) -> bool {
        self.engine.has_work_without_arrivals()
    }

    fn awaits_timeout(&self) -> bool {
        self.engine.awaits_timeout()
    }

    fn next_deadline(&self) -> Option<Moment> {
        self.engine.next_deadline()
    }

    fn ended_contexts(&self) -> Vec<u64> {
        self.sink.ended_contexts()
    }

    fn take_ended(&mut self) -> Vec<Result<EndedOperation, FailedOperation>> {
        self.sink.take_ended()
    }

    fn deliver_held(&mut self) {
        self.engine.deliver_held(&mut self.sink);
    }
}

fn send_request(to: PeerId, message: &'static [u8], context: u64) -> AddressedRequest {
    let source = Source::owned(Bytes::from_static(message));
    AddressedRequest::new(to, TransmitOp::Send { source, tag: None, data: None }, context)
}

fn receive_request(len_bytes: usize, context: u64) -> ReceiveRequest {
    ReceiveRequest {
        destination: Destination::owned(BytesMut::zeroed(len_bytes)),
        tagged: false,
        criteria: Criteria::any(),
        context,
        signalled: Signalled::Yes,
    }
}

fn untagged_header(len_bytes: u64) -> Header {
    Header::Message(Message::of_len(len_bytes))
}

/// The configuration of tests that tell the engine no time: it pulls unmatched offers at once.
fn untimed_config() -> Config {
    Config { delays_unmatched_fetches: false, ..Config::default() }
}

/// Returns an engine with a peer. Link 7, which the engine has accepted from the peer, is up.
fn engine_with_peer() -> (Node, PeerId) {
    engine_with_config(untimed_config())
}

/// As [`engine_with_peer`], with this configuration.
fn engine_with_config(config: Config) -> (Node, PeerId) {
    let mut node = Node::new(config);
    node.link_up(LinkId(7), 2, 1);
    let peer = node.engine.intern_peer(address(2));
    (node, peer)
}

fn completion_of(ended: &Result<EndedOperation, FailedOperation>) -> &EndedOperation {
    ended.as_ref().unwrap_or_else(|failure| &failure.completion)
}

fn received_bytes(ended: &Result<EndedOperation, FailedOperation>) -> &[u8] {
    match &completion_of(ended).buffer {
        Buffer::Received(bytes) => bytes,
        other => panic!("not a received buffer: {other:?}"),
    }
}
