#![doc = include_str!("../docs/rust.md")]
#![deny(unsafe_code)]

pub mod av;
mod clock;
mod connection;
pub mod counter;
pub mod cq;
mod domain;
mod domain_id;
mod doorbell;
mod drive;
mod driven;
mod empty_polls;
#[expect(unsafe_code, reason = "the raw tier takes addresses; see endpoint/send.rs")]
pub mod endpoint;
mod endpoint_pump;
mod endpoint_type;
pub mod eq;
mod fabric;
mod getinfo;
mod hints;
pub mod info;
mod interfaces;
mod io_errors;
#[expect(unsafe_code, reason = "a lock is a promise to the compiler; see lock.rs")]
mod lock;
mod op_flags;
mod open_endpoint;
mod open_pump;
mod owned;
pub mod params;
mod passive_endpoint;
mod poll_set;
mod ports;
mod post;
mod poster;
mod progress_thread;
mod pump;
mod random;
mod receive_calls;
#[expect(unsafe_code, reason = "the raw tier takes addresses; see receives.rs")]
mod receives;
#[expect(unsafe_code, reason = "the raw tier takes addresses, and files are mapped; see region/")]
pub mod region;
mod region_keys;
mod resolve;
mod send_buffer;
mod send_msg;
mod shared_receive_context;
mod shared_transmit_context;
#[expect(unsafe_code, reason = "sets of signals are memory of the C library's making; see signals.rs")]
pub mod signals;
#[cfg(feature = "simulator")]
pub mod simulation;
mod sync;
mod tag;
#[expect(unsafe_code, reason = "the raw tier takes addresses; see endpoint/send.rs")]
pub mod trigger;
#[expect(unsafe_code, reason = "what is not locked is a promise of the application; see unsynchronised.rs")]
mod unsynchronised;
pub mod wait;
mod works;

pub use bytes::{Bytes, BytesMut};
pub use homespun_engine::address::{Address, AddressFormat};
pub use homespun_engine::atomic;
pub use homespun_engine::buffer::{
    Buffer, Fetched, ReceivedLast, ReusableBuffer, Segment, SegmentMut, SendBuffer,
};
pub use homespun_engine::connection::ConnectionEnd;
pub use homespun_engine::errno::Errno;
pub use homespun_engine::error;
pub use homespun_engine::error::{Again, Error, Misuse, OperationError};
pub use homespun_engine::flags::{BindFlags, Caps, CompletionFlags, CounterEvents, InfoFlags, OpFlags};
pub(crate) use homespun_engine::mutants::is_any_planted;
#[doc(hidden)]
pub use homespun_engine::mutated;
pub use homespun_engine::operation::FlushKind;
pub use homespun_engine::rejected::Rejected;
pub use homespun_engine::remote_memory::RemoteMemory;
pub use homespun_engine::transport;
pub use homespun_engine::wire::Refusal;
pub use homespun_engine::{flags, limits};
#[doc(inline)]
pub use homespun_tcp::LocalAddress;

pub use self::av::{AddressVector, AvAttr, FabricAddress};
pub use self::clock::SimulatedClock;
pub use self::connection::{ConnectionEvent, ConnectionRequest};
pub use self::counter::{Counter, CounterAttr};
pub use self::cq::{
    Completion, CompletionError, CompletionQueue, CqAttr, CqFormat, Entry, OperationKind, ReadError,
    WaitObject,
};
pub use self::domain::{AtomicAttr, Domain};
pub use self::endpoint::{Endpoint, RecvMsg, SendMsg};
pub use self::eq::{EqAttr, EqReadError, Event, EventError, EventQueue};
pub use self::fabric::{Fabric, getinfo};
pub use self::hints::Hints;
pub use self::info::Info;
pub use self::open_endpoint::{EndpointBuilder, OpenEndpoint};
pub use self::passive_endpoint::PassiveEndpoint;
pub use self::poll_set::{PollObject, PollSet};
pub use self::region::{MemoryRegion, MrAttr};
pub use self::shared_receive_context::SharedReceiveContext;
pub use self::shared_transmit_context::SharedTransmitContext;
pub use self::tag::{Tag, TagMatch};
pub use self::wait::WaitSet;

/// Tests the examples of README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
