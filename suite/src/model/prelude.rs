//! What most parts of the model use.

pub(super) use std::collections::{BTreeMap, BTreeSet};

pub(super) use homespun::atomic::{AtomicKind, AtomicOp, Datatype};
pub(super) use homespun::endpoint::{AtomicTarget, RecvMsg, SendMsg};
pub(super) use homespun::flags::{BindFlags, Caps, CompletionFlags, CounterEvents, MrAccess, OpFlags, Order};
pub(super) use homespun::info::{Info, RxAttr, SHARED_CONTEXT};
pub(super) use homespun::limits::{
    CREDIT_INITIAL_BYTES, HOST_FETCH_PERCENT, HOST_SHARE_PERCENT, MESSAGE_COST_BYTES, MULTI_RECV_ALIGN_BYTES,
    UNEXPECTED_BUDGET_MIN_BYTES,
};
pub(super) use homespun::{
    Address, AddressVector, Again, AvAttr, Buffer, Bytes, Completion, CompletionQueue, Counter, CounterAttr,
    CqAttr, Domain, Endpoint, Errno, Error, FabricAddress, Misuse, OperationError, RemoteMemory,
    SharedReceiveContext, Tag,
};
pub(super) use homespun_engine::loopback::{Faults, Network};

pub(super) use crate::model::acceptor::{Rejection, Rules, Violation, accept, require};
pub(super) use crate::model::elements::{
    Element, REGION_BYTES, ROWS, ROWS_END, apply_atomic, compare_value, element_from_bytes, element_values,
    is_modelled, operand_value,
};
pub(super) use crate::model::history::{
    Access, AccessOp, BufferOp, ClaimOp, End, Event, History, Incarnation, Level, Operation, PeekEnd, PeekOp,
    Post, ReceiveEnd, ReceiveOp, SendOp,
};
pub(super) use crate::model::offer::Offer;
pub(super) use crate::model::program::{
    AccessCall, AccessStep, Disruption, ElementsCall, ElementsStep, LEN_MAX_BYTES, PeekAction, Program,
    ReceiveStep, SendCall, SendStep, Step, Topology,
};
pub(super) use crate::payload::{marked_buffer, marked_buffers, payload, received_bytes, split_unevenly};
pub(super) use crate::{
    AtomicBy, AtomicCall, Deadline, Ended, FlushCall, MemoryKind, Net, Outcome, Party, Region, RegionSpec,
    RmaBy, RmaCall, Setup, TransportKind, Turns, poll_completion,
};
