//! What most of these tests use.

pub(super) use crate::connecting::{
    CLIENT, ConnectionEvent, LISTENER, SERVER, Side, ask, close_with_progress, connect_pair,
    expect_connected, expect_each_of_first_side, expect_shut_down, next_completion_of_first_side,
    next_event_of_first_side, next_message_of_first_side, next_operation_end_of_first_side,
    next_request_of_first_side, open_connection, open_sides, sleep_until_event,
};
pub(super) use crate::deadline::poll_until;
pub(super) use crate::files::NamedFile;
pub(super) use crate::payload::{marked_buffer, marked_buffers, payload, received_bytes, split_unevenly};
pub(super) use crate::raw::Post;
pub(super) use crate::setup::BOTH;
pub(super) use crate::sleeping::{
    BLOCKING_WAIT_OBJECTS, PATIENCE, StopOnDrop, WAIT_OBJECTS, drive_counter_until, let_threads_fall_asleep,
    sleep_until_operation_ends, wait_for_threshold,
};
pub(super) use crate::{
    AtomicBy, AtomicCall, Deadline, Ended, MemoryKind, Net, Party, Queue, ReceiveBuffer, Region, RegionFile,
    RegionSpec, RmaBy, RmaCall, Setup, Turns, over, poll_completion, sleeping,
};
pub(super) use homespun::atomic::{AtomicKind, AtomicOp, Datatype};
pub(super) use homespun::counter::CounterWaitError;
pub(super) use homespun::cq::CQ_DEPTH_DEFAULT_ENTRIES;
pub(super) use homespun::endpoint::{
    AtomicTarget, CompareAtomicMsg, FetchAtomicMsg, ReadMsg, RecvMsg, WriteMsg,
};
pub(super) use homespun::eq::{EqAttr, EqFlags, Event};
pub(super) use homespun::error::{BadMemory, Direction};
pub(super) use homespun::flags::{CompletionFlags, InfoFlags, Mode, MrAccess, MrFlags, Order};
pub(super) use homespun::info::{EndpointType, ResourceManagement, RxAttr, SHARED_CONTEXT, TxAttr};
pub(super) use homespun::limits::{
    ATOMIC_MAX_BYTES, CONNECTION_DATA_MAX_BYTES, FLUSH_PASS_MAX_BYTES, INJECT_MAX_BYTES, IOV_LIMIT,
    MIN_MULTI_RECV_DEFAULT_BYTES, MULTI_RECV_ALIGN_BYTES, PULL_STEP_MAX_BYTES, READ_COPIED_MAX_BYTES,
    RMA_LINK_MAX_OPS, UNEXPECTED_BUDGET_MIN_BYTES,
};
pub(super) use homespun::transport::LinkError;
pub(super) use homespun::trigger::{DeferredAction, DeferredWork, Operation, Trigger};
pub(super) use homespun::wait::{WaitError, Waitable};
pub(super) use homespun::{
    Address, AddressFormat, AddressVector, Again, AvAttr, BindFlags, Buffer, Bytes, BytesMut, Caps,
    Completion, CompletionError, CompletionQueue, ConnectionEnd, Counter, CounterAttr, CounterEvents, CqAttr,
    CqFormat, Domain, Endpoint, Errno, Error, EventQueue, FabricAddress, Fetched, Info, MemoryRegion, Misuse,
    MrAttr, OpFlags, OperationError, OperationKind, ReadError, Refusal, Rejected, RemoteMemory,
    ReusableBuffer, SegmentMut, SendBuffer, SendMsg, SharedReceiveContext, SimulatedClock, Tag, TagMatch,
    WaitObject, WaitSet,
};
pub(super) use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(super) use std::sync::mpsc;
pub(super) use std::thread;
pub(super) use std::time::{Duration, Instant};

/// No source in particular.
pub(super) const ANY: FabricAddress = FabricAddress::UNSPECIFIED;
/// The peer address of posts, which connected endpoints ignore.
pub(super) const NOWHERE: FabricAddress = FabricAddress(0x5eed);
pub(super) const KEY: u64 = 0xfeed_f00d;
pub(super) const EVERYTHING: MrAccess = MrAccess::REMOTE_READ.union(MrAccess::REMOTE_WRITE);
pub(super) const SEND: CounterEvents = CounterEvents::SEND;
pub(super) const RECV: CounterEvents = CounterEvents::RECV;
pub(super) const READ: CounterEvents = CounterEvents::READ;
pub(super) const WRITE: CounterEvents = CounterEvents::WRITE;
pub(super) const REMOTE_READ: CounterEvents = CounterEvents::REMOTE_READ;
pub(super) const REMOTE_WRITE: CounterEvents = CounterEvents::REMOTE_WRITE;

/// Every level, the weakest first.
pub(super) const LEVELS: [OpFlags; 4] = [
    OpFlags::INJECT_COMPLETE,
    OpFlags::TRANSMIT_COMPLETE,
    OpFlags::DELIVERY_COMPLETE,
    OpFlags::MATCH_COMPLETE,
];

/// Every level that a call may name, the weakest first, and before them none.
pub(super) const LEVELS_AND_NONE: [OpFlags; 5] =
    [OpFlags::empty(), LEVELS[0], LEVELS[1], LEVELS[2], LEVELS[3]];

#[track_caller]
pub(super) fn expect_errno<T>(result: Result<T, impl Into<Error>>) -> Errno {
    match result {
        Ok(_) => panic!("the call was granted"),
        Err(error) => error.into().errno(),
    }
}

#[track_caller]
pub(super) fn expect_error<T>(result: Result<T, impl Into<Error>>, errno: Errno) {
    assert_eq!(expect_errno(result), errno);
}

/// Checks that a call was refused with this error, and has returned its buffers.
#[track_caller]
pub(super) fn expect_rejected<T: Debug + PartialEq>(
    refused: Result<(), Rejected<T>>,
    errno: Errno,
    returned: T,
) {
    let rejected = refused.expect_err("the call was granted");
    assert_eq!((rejected.errno(), rejected.returned), (errno, returned));
}

/// Checks that an object was not closed because it is in use. Returns the object.
#[track_caller]
pub(super) fn expect_busy<T>(closed: Result<(), Rejected<T>>) -> T {
    let Err(Rejected { error, returned }) = closed else { panic!("an object in use was closed") };
    assert_eq!(error.errno(), Errno::EBUSY);
    returned
}

pub(super) fn make_connected_event(endpoint: u64, data: &[u8]) -> ConnectionEvent {
    ConnectionEvent::Connected { endpoint, data: data.into() }
}

pub(super) fn make_shutdown_event(endpoint: u64) -> ConnectionEvent {
    ConnectionEvent::Shutdown { endpoint, end: ConnectionEnd::Closed }
}

/// Returns a loopback address of the other format.
pub(super) fn make_address_of_other_format(address: Address) -> Address {
    SocketAddr::from(match address.format() {
        AddressFormat::SockaddrIn => (IpAddr::from(Ipv6Addr::LOCALHOST), 9),
        AddressFormat::SockaddrIn6 => (IpAddr::from(Ipv4Addr::LOCALHOST), 9),
    })
    .into()
}

/// Opens a counter with this wait object.
pub(super) fn open_counter(domain: &Domain, wait: WaitObject) -> Counter {
    domain.open_counter(&CounterAttr { wait, ..CounterAttr::default() }).expect("a counter")
}

pub(super) fn register_region(domain: &Domain, key: u64, flags: MrFlags) -> MemoryRegion {
    let attr = MrAttr { access: EVERYTHING, requested_key: Some(key), flags, ..MrAttr::default() };
    domain.register(64, &attr).expect("a region")
}

/// Returns an access to a place in a region. The context is also the identity of the payload.
pub(super) fn make_access(
    by: RmaBy,
    party: &Party,
    region: &Region,
    context: u64,
    place: usize,
    len_bytes: usize,
) -> RmaCall {
    let call = RmaCall::new(by, payload(context, len_bytes), party.peer(), region, context);
    call.at_address(region.address_at(place))
}

/// Posts an [access](make_access).
#[track_caller]
pub(super) fn post_access(
    by: RmaBy,
    party: &Party,
    region: &Region,
    context: u64,
    place: usize,
    len_bytes: usize,
) {
    party
        .endpoint
        .rma(make_access(by, party, region, context, place, len_bytes))
        .expect("room for an access");
}

/// Registers a region of a file. Also returns the file.
pub(super) fn register_file_region(
    party: &Party,
    len_bytes: usize,
    is_raw: bool,
    key: u64,
) -> (Region, NamedFile) {
    let file = NamedFile::with_unused_name();
    let kind = MemoryKind::File(RegionFile { is_raw, number: Some(file.number) });
    (party.open_region(len_bytes, kind, key), file)
}

/// Opens an endpoint with these queues and an address vector, not yet enabled.
pub(super) fn open_endpoint_with_queues(
    domain: &Domain,
    info: &Info,
    cqs: &[(&CompletionQueue, BindFlags)],
) -> (Endpoint, AddressVector) {
    let endpoint = domain.endpoint(info).expect("an endpoint");
    let av = domain.open_av(&AvAttr::default()).expect("an address vector");
    endpoint.bind_av(&av).expect("its first address vector");
    cqs.iter().for_each(|(cq, flags)| endpoint.bind_cq(cq, *flags).expect("its first queue"));
    (endpoint, av)
}

/// Opens an endpoint with a queue for both directions and an address vector, not yet enabled.
pub(super) fn open_disabled_endpoint(
    domain: &Domain,
    info: &Info,
) -> (Endpoint, CompletionQueue, AddressVector) {
    let cq = domain.open_cq(&CqAttr::default()).expect("a queue");
    let (endpoint, av) = open_endpoint_with_queues(domain, info, &[(&cq, BOTH)]);
    (endpoint, cq, av)
}

/// Has the net drive both parties again: closing one may need progress of the other.
pub(super) fn start_driving_both(net: &Net, parties: [&Party; 2]) {
    parties.into_iter().for_each(|party| net.start_driving(party));
}

/// Writes one byte over the link. After this, the initiator has mapped the region if the transport can map
/// it.
#[track_caller]
pub(super) fn write_over_link_first(party: &Party, region: &Region) {
    party.access(make_access(RmaBy::Write, party, region, 1, 0, 1));
}

/// Waits for the next completion in a queue. Drives other queues meanwhile.
#[track_caller]
pub(super) fn next_completion_of(cq: &CompletionQueue, others: &[&CompletionQueue]) -> Completion {
    let deadline = Deadline::new();
    loop {
        if let Some(ended) = poll_completion(cq) {
            return ended.expect("no operation fails").0;
        }
        others.iter().for_each(|cq| cq.progress());
        deadline.yield_or_panic("a completion");
    }
}

/// Calls `drive` until a counter has this value and this error value.
#[track_caller]
pub(super) fn drive_until_counts(counter: &Counter, expected: (u64, u64), drive: impl Fn()) {
    let deadline = Deadline::new();
    while (counter.read(), counter.read_error()) != expected {
        drive();
        deadline.yield_or_panic_with(|| format!("{expected:?}, where there is {counter:?}"));
    }
}
