//! The calls to a party in another process or behind the C interface, and its answers.

use std::time::Duration;

use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::flags::OpFlags;
use homespun::{
    Address, Bytes, BytesMut, CqFormat, Domain, Endpoint, Errno, Error, FabricAddress, ReadError, SegmentMut,
    Tag, TagMatch,
};
use serde::{Deserialize, Serialize};

use super::atomic_call::AtomicCall;
use super::flush_call::FlushCall;
use super::form::{self, EndedForm, ErrorForm, ReadErrorForm};
use super::provider::{Granted, Outcome};
use super::raw::{Post, send_from_raw_memory};
use super::region_spec::RegionSpec;
use super::rma_call::RmaCall;
use super::setup::Setup;
use super::transport::{TransportKind, Turns};

/// A request to the party's process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum RemoteCall {
    /// Opens the party. The first call must be an `Open`, and no later call may be one. Answered by
    /// [`RemoteAnswer::Opened`].
    Open {
        transport: TransportKind,
        setup: Setup,
    },
    /// Runs a test in the process. The first and only call. Answered by [`RemoteAnswer::Outcome`].
    RunTest(TestInProcess),
    /// Makes a call to an object of a side of connections: an endpoint, a passive endpoint or a request.
    At(usize, Box<RemoteCall>),
    Connection(ConnectionCall),
    /// From now on the process drives the party whenever it has no other call.
    StartDriving,
    Send(RemoteSend),
    Receive(RemoteReceive),
    Rma(RmaCall),
    Flush(FlushCall),
    /// Posts an atomic operation. If it fetches into raw memory, the call [`Taken`](RemoteCall::Taken)
    /// returns the fetched bytes.
    Atomic(AtomicCall),
    /// Answered by [`RemoteAnswer::Registered`].
    Register(RegionSpec),
    /// Returns the content of the region with this number. Answered by [`RemoteAnswer::Bytes`].
    RegionContent(usize),
    /// Returns a part of a region: the region's number, the offset and the length. Answered by
    /// [`RemoteAnswer::Bytes`].
    RegionPart(usize, usize, usize),
    /// Copies bytes into a region: its number, the offset, the bytes.
    RegionPut(usize, usize, #[serde(with = "serde_bytes")] Vec<u8>),
    RegionClose(usize),
    /// Starts counting accesses to the region with this number.
    RegionCount(usize),
    /// Reads a counter of a region: the region's number, and the bits of the counted event. Answered by
    /// [`RemoteAnswer::Counted`].
    RegionCounted(usize, u64),
    /// Reads the endpoint's counter of the event with these bits. Answered by [`RemoteAnswer::Counted`].
    Counted(u64),
    /// Returns the memory of a raw region that is closed. Answered by [`RemoteAnswer::Bytes`].
    ClosedContent(usize),
    ReceiveRaw {
        lens_bytes: Vec<usize>,
        ignore: u64,
        post: Post,
    },
    /// The memory of a completed raw receive. Answered by [`RemoteAnswer::Bytes`].
    Taken {
        context: u64,
        len_bytes: usize,
    },
    /// Asks for the bytes of the message at `place` in the raw multi-receive buffer of `context`. Answered
    /// by [`RemoteAnswer::Bytes`].
    Within {
        context: u64,
        #[serde(with = "form::segment")]
        place: SegmentMut,
    },
    /// Returns the whole memory of a raw receive whose endpoint is closed. Answered by
    /// [`RemoteAnswer::Bytes`].
    Contents {
        context: u64,
    },
    /// Answered by [`RemoteAnswer::Size`].
    MinMultiRecv,
    SetMinMultiRecv {
        bytes: usize,
    },
    Cancel {
        context: u64,
    },
    /// Answered by [`RemoteAnswer::Flags`].
    OpFlags(Direction),
    SetOpFlags(Direction, #[serde(with = "form::bits")] OpFlags),
    /// Drives the party once, without reading a completion.
    Progress,
    /// Answered by [`RemoteAnswer::Ended`].
    Poll(QueueName),
    /// Like `Poll`, but waits for some rounds.
    Next(QueueName),
    /// Answered by [`RemoteAnswer::Read`].
    ReadEach(QueueName, usize),
    /// Answered by [`RemoteAnswer::Ended`].
    ReadError(QueueName),
    /// Answered by [`RemoteAnswer::Text`].
    Strerror(i32),
    /// Answered by [`RemoteAnswer::Inserted`].
    Insert(Vec<AddressForm>),
    Remove(Vec<u64>),
    /// Answered by [`RemoteAnswer::Found`].
    ReverseLookup(AddressForm),
    CloseEndpoint,
    /// Makes the system refuse, with this error, all later copies between the party's process and others.
    RefuseCopies {
        errno: i32,
    },
    /// Forks a child that does nothing, and ends at once or lingers.
    Fork {
        lingers: bool,
    },
    /// Forks a child. The child checks that the inherited endpoint fails, and then sends a message to this
    /// peer from a new endpoint.
    ForkCaller {
        peer: AddressForm,
        /// The key and the address of a region of the peer.
        region: (u64, u64),
        #[serde(with = "serde_bytes")]
        message: Vec<u8>,
    },
}

impl RemoteCall {
    /// Makes a call that an endpoint of the library accepts or refuses.
    pub(super) fn make(self, endpoint: &Endpoint) -> Result<(), Error> {
        match self {
            RemoteCall::Receive(receive) => receive.post(endpoint),
            RemoteCall::Rma(call) => call.post(endpoint),
            RemoteCall::Flush(call) => call.post(endpoint),
            RemoteCall::Cancel { context } => endpoint.cancel(context),
            RemoteCall::SetOpFlags(Direction::Transmit, flags) => endpoint.set_tx_op_flags(flags),
            RemoteCall::SetOpFlags(Direction::Receive, flags) => endpoint.set_rx_op_flags(flags),
            RemoteCall::SetMinMultiRecv { bytes } => {
                endpoint.set_min_multi_recv_bytes(bytes);
                Ok(())
            }
            other => panic!("a call that is answered otherwise: {other:?}"),
        }
    }
}

/// A call to a side of connections or, [at](RemoteCall::At) its number, to one of its objects.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum ConnectionCall {
    /// Answered by [`RemoteAnswer::Size`], the number of the endpoint.
    OpenEndpoint(Origin),
    /// Answered as `OpenEndpoint`.
    OpenPassive,
    /// Binds an endpoint to the queues of its side. Its events have this context.
    Bind(u64),
    Enable,
    Listen,
    SetBacklog(usize),
    SetName(AddressForm),
    /// Answered by [`RemoteAnswer::Address`].
    Name,
    /// Answered by [`RemoteAnswer::Address`].
    Peer,
    Connect(AddressForm, #[serde(with = "serde_bytes")] Vec<u8>),
    Accept(#[serde(with = "serde_bytes")] Vec<u8>),
    Reject(#[serde(with = "serde_bytes")] Vec<u8>),
    Shutdown,
    /// Answered by [`RemoteAnswer::Event`].
    ReadEvent,
    /// Answered by [`RemoteAnswer::Text`].
    EventStrerror(i32),
}

/// What an endpoint is opened for.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum Origin {
    New,
    /// The request or the passive endpoint with this number.
    Of(usize),
}

/// An event of a connection, or the failure of one. An endpoint is named by its context.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum EventForm {
    Request {
        number: usize,
        listener: u64,
        data: Vec<u8>,
        from: AddressForm,
        to: AddressForm,
    },
    Connected {
        endpoint: u64,
        data: Vec<u8>,
    },
    Shutdown {
        endpoint: u64,
    },
    Failed {
        object: u64,
        #[serde(with = "form::errno")]
        errno: Errno,
        prov_errno: i32,
        err_data: Vec<u8>,
    },
}

/// A test that a process of its own runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TestInProcess {
    pub(super) transport: TransportKind,
    pub(super) turns: Turns,
    pub(super) module: String,
    pub(super) name: String,
    pub(super) patience: Duration,
}

/// The answer to a call.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum RemoteAnswer {
    Done,
    Refused(#[serde(with = "ErrorForm")] Error),
    /// Another provider has refused the call with this errno.
    RefusedWith(i32),
    /// The party's provider does not have what the call asks for.
    NotOffered(String),
    Opened {
        name: AddressForm,
        depth_entries: usize,
        #[serde(with = "form::optional_format")]
        format: Option<CqFormat>,
        /// What the provider has granted, for a party of another provider.
        granted: Option<Granted>,
    },
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
    Size(usize),
    Registered {
        number: usize,
        key: u64,
        address: u64,
    },
    Text(String),
    Counted(u64, u64),
    Flags(#[serde(with = "form::bits")] OpFlags),
    Ended(Option<EndedForm>),
    /// `None` for an empty queue.
    Read(Option<Vec<EndedForm>>),
    ReadFailed(#[serde(with = "ReadErrorForm")] ReadError),
    Inserted(Vec<Result<u64, RefusedForm>>),
    Found(Option<u64>),
    Outcome(Outcome),
    Address(AddressForm),
    Event(Option<EventForm>),
}

/// An address, in a message to another process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct AddressForm(#[serde(with = "form::name")] pub Address);

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RefusedForm(#[serde(with = "ErrorForm")] pub(super) Error);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Direction {
    Transmit,
    Receive,
}

/// One of a party's queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum QueueName {
    /// The queue that every party has.
    First,
    /// The separate queue of receives, if there is one.
    Receive,
}

/// A send.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RemoteSend {
    pub(super) by: SendBy,
    pub(super) buffers: Vec<Bytes>,
    #[serde(with = "form::fabric_address")]
    pub(super) to: FabricAddress,
    #[serde(with = "form::optional_tag")]
    pub(super) tag: Option<Tag>,
    pub(super) data: Option<u64>,
    pub(super) context: u64,
    #[serde(with = "form::optional_flags")]
    pub(super) flags: Option<OpFlags>,
}

/// The call that posts a send.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum SendBy {
    /// `fi_send`, `fi_senddata`, `fi_tsend`, `fi_tsenddata`.
    Single,
    /// `fi_sendv`, `fi_tsendv`.
    Vector,
    /// `fi_sendmsg`, `fi_tsendmsg`.
    Message,
    /// `fi_sendmsg`, `fi_tsendmsg` from raw memory.
    Raw,
    /// `fi_inject`, `fi_injectdata`, `fi_tinject`, `fi_tinjectdata`.
    Inject,
}

/// A receive into buffers that the party allocates.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RemoteReceive {
    pub(super) by: ReceiveBy,
    #[serde(with = "form::rooms")]
    pub(super) buffers: Vec<BytesMut>,
    #[serde(with = "form::fabric_address")]
    pub(super) from: FabricAddress,
    #[serde(with = "form::optional_tag_match")]
    pub(super) tagged: Option<TagMatch>,
    pub(super) context: u64,
    #[serde(with = "form::bits")]
    pub(super) flags: OpFlags,
}

/// The call that posts a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ReceiveBy {
    /// `fi_recv`, `fi_trecv`.
    Single,
    /// `fi_recvv`, `fi_trecvv`.
    Vector,
    /// `fi_recvmsg`, `fi_trecvmsg`.
    Message,
    /// `fi_recvmsg` for many messages.
    Multi,
}

/// Shorter messages are not sent from send buffers. No transport pulls them.
const BUFFERED_MIN_BYTES: usize = 8 << 10;

impl RemoteSend {
    /// Moves the payload into one send buffer of a domain, if the payload is long and not raw memory.
    pub(super) fn into_buffer_of(self, domain: &Domain) -> Result<RemoteSend, Error> {
        let len_bytes = self.buffers.iter().map(Bytes::len).sum();
        if len_bytes < BUFFERED_MIN_BYTES || matches!(self.by, SendBy::Raw | SendBy::Inject) {
            return Ok(self);
        }
        let mut buffer = domain.allocate_send_buffer(len_bytes)?;
        let place = buffer.get_mut().expect("nothing else uses the new buffer");
        place.copy_from_slice(&self.buffers.concat());
        let mut rest = buffer.bytes();
        let buffers = self.buffers.iter().map(|piece| rest.split_to(piece.len())).collect();
        Ok(RemoteSend { buffers, ..self })
    }

    pub(super) fn post(self, endpoint: &Endpoint) -> Result<(), Error> {
        let RemoteSend { by, buffers, to, tag, data, context, flags } = self;
        match by {
            SendBy::Single => {
                let message = buffers.into_iter().next().expect("a single call has a single buffer");
                match (tag, data) {
                    (None, None) => endpoint.send(message, to, context)?,
                    (None, Some(data)) => endpoint.senddata(message, data, to, context)?,
                    (Some(tag), None) => endpoint.tsend(message, to, tag, context)?,
                    (Some(tag), Some(data)) => endpoint.tsenddata(message, data, to, tag, context)?,
                }
            }
            SendBy::Vector => match tag {
                None => endpoint.sendv(buffers, to, context)?,
                Some(tag) => endpoint.tsendv(buffers, to, tag, context)?,
            },
            SendBy::Message => {
                let flags = flags.unwrap_or_default();
                endpoint.sendmsg(SendMsg { buffers, to, tag, data, context, flags })?;
            }
            SendBy::Raw => {
                let tag = tag.map(|Tag(tag)| tag);
                send_from_raw_memory(endpoint, &buffers, Post { peer: to, tag, data, context, flags })?;
            }
            SendBy::Inject => endpoint.inject(&buffers.concat(), to, tag, data)?,
        }
        Ok(())
    }
}

impl RemoteReceive {
    pub(super) fn post(self, endpoint: &Endpoint) -> Result<(), Error> {
        let RemoteReceive { by, buffers, from, tagged, context, flags } = self;
        match by {
            ReceiveBy::Single => {
                let buffer = buffers.into_iter().next().expect("a single call has a single buffer");
                match tagged {
                    None => endpoint.recv(buffer, from, context)?,
                    Some(tagged) => endpoint.trecv(buffer, from, tagged, context)?,
                }
            }
            ReceiveBy::Vector => match tagged {
                None => endpoint.recvv(buffers, from, context)?,
                Some(tagged) => endpoint.trecvv(buffers, from, tagged, context)?,
            },
            ReceiveBy::Multi => {
                let buffer = buffers.into_iter().next().expect("a multi-receive has a single buffer");
                endpoint.recv_multi(buffer, from, context)?;
            }
            ReceiveBy::Message => {
                endpoint.recvmsg(RecvMsg { buffers, from, tagged, context, flags })?;
            }
        }
        Ok(())
    }
}
