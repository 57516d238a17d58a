//! The calls to a party in another process or behind the C interface, and its answers.

use std::time::Duration;

use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::error::SystemRequest;
use homespun::flags::{CounterEvents, OpFlags};
use homespun::{
    Address, Again, Bytes, BytesMut, CqFormat, Domain, Endpoint, Errno, Error, FabricAddress, ReadError,
    RemoteMemory, SegmentMut, Tag, TagMatch,
};
use serde::{Deserialize, Serialize};

use super::atomic_call::{AtomicBy, AtomicCall};
use super::ended::Ended;
use super::flush_call::FlushCall;
use super::form::{self, EndedForm, ReadErrorForm};
use super::provider::{Granted, Outcome};
use super::raw::{Post, RawBuffer, send_from_raw_memory};
use super::region_spec::RegionSpec;
use super::rma_call::RmaCall;
use super::setup::Setup;
use super::transport::{TransportKind, Turns};

/// A request to the party's process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum RemoteCall {
    /// Opens the party, or a side of connections, which opens its endpoints later. The first call must be an
    /// `Open`, and no later call may be one. Answered by [`RemoteAnswer::Opened`].
    Open {
        transport: TransportKind,
        setup: Setup,
        is_side: bool,
    },
    /// Runs a test in the process. The first and only call. Answered by [`RemoteAnswer::Outcome`].
    RunTest(TestInProcess),
    /// Makes a call to an object of a side of connections: an endpoint, a passive endpoint or a request.
    At(usize, Box<RemoteCall>),
    Connection(ConnectionCall),
    /// From now on the process drives the party whenever it has no other call.
    StartDriving,
    /// Drives the party once, without reading a completion.
    Progress,
    Endpoint(EndpointCall),
    CloseEndpoint,
    Queue(QueueName, QueueCall),
    Vector(VectorCall),
    /// Answered by [`RemoteAnswer::Registered`].
    Register(RegionSpec),
    /// Makes a call to the region with this number.
    Region(usize, RegionCall),
    /// Makes a call to the memory of the raw operation with this context. Answered by
    /// [`RemoteAnswer::Bytes`].
    Buffer(u64, BufferCall),
    /// Reads the endpoint's counter of this event. Answered by [`RemoteAnswer::Counted`].
    Counted(CounterEvents),
    /// Makes the system refuse, with this error, all later copies between the party's process and others.
    RefuseCopies(i32),
    /// Forks a child that does nothing, and ends at once or lingers.
    Fork {
        lingers: bool,
    },
    /// Forks a child. The child checks that the inherited endpoint fails, and then sends a message to this
    /// peer from a new endpoint.
    ForkCaller {
        peer: AddressForm,
        /// A region of the peer.
        region: RemoteMemory,
        #[serde(with = "serde_bytes")]
        message: Vec<u8>,
    },
}

/// A call to an endpoint.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum EndpointCall {
    Send(RemoteSend),
    Receive(RemoteReceive),
    /// Posts a receive into raw memory, on which a [`BufferCall`] is made later.
    ReceiveRaw {
        lens_bytes: Vec<usize>,
        ignore: u64,
        post: Post,
    },
    Rma(RmaCall),
    Flush(FlushCall),
    /// Posts an atomic operation. If it fetches into raw memory, a [`BufferCall`] returns the fetched bytes.
    Atomic(AtomicCall),
    /// Cancels an operation with this context.
    Cancel(u64),
    /// Reads the default flags of sends. Answered by [`RemoteAnswer::Flags`].
    TxOpFlags,
    SetOpFlags(Direction, OpFlags),
    /// Answered by [`RemoteAnswer::Size`].
    MinMultiRecv,
    SetMinMultiRecv(usize),
}

impl EndpointCall {
    /// The context of an operation that places its payload in raw memory.
    pub(super) fn raw_context(&self) -> Option<u64> {
        match self {
            EndpointCall::ReceiveRaw { post, .. } => Some(post.context),
            EndpointCall::Atomic(call) if call.by == AtomicBy::Raw && call.kind.fetches() => {
                Some(call.context)
            }
            _ => None,
        }
    }

    /// Makes a call that an endpoint of the library accepts or refuses. Returns the raw memory of the
    /// operation. If there is a domain, long messages are sent from its send buffers.
    pub(super) fn make(
        self,
        endpoint: &Endpoint,
        buffers_of: Option<&Domain>,
    ) -> Result<Option<RawBuffer>, Error> {
        match self {
            EndpointCall::Send(send) => match buffers_of {
                Some(domain) => send.into_buffer_of(domain)?.post(endpoint)?,
                None => send.post(endpoint)?,
            },
            EndpointCall::Receive(receive) => receive.post(endpoint)?,
            EndpointCall::ReceiveRaw { lens_bytes, ignore, post } => {
                return RawBuffer::post_receive(endpoint, &lens_bytes, ignore, post).map(Some);
            }
            EndpointCall::Rma(call) => call.post(endpoint)?,
            EndpointCall::Flush(call) => call.post(endpoint)?,
            EndpointCall::Atomic(call) => return call.post(endpoint),
            EndpointCall::Cancel(context) => endpoint.cancel(context)?,
            EndpointCall::SetOpFlags(Direction::Transmit, flags) => endpoint.set_tx_op_flags(flags)?,
            EndpointCall::SetOpFlags(Direction::Receive, flags) => endpoint.set_rx_op_flags(flags)?,
            EndpointCall::SetMinMultiRecv(bytes) => endpoint.set_min_multi_recv_bytes(bytes),
            call @ (EndpointCall::TxOpFlags | EndpointCall::MinMultiRecv) => panic!("a question: {call:?}"),
        }
        Ok(None)
    }
}

/// A call to a completion queue.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum QueueCall {
    /// Answered by [`RemoteAnswer::Ended`].
    Poll,
    /// Like `Poll`, but waits for some rounds.
    Next,
    /// Answered by [`RemoteAnswer::Read`].
    ReadEach(usize),
    /// Answered by [`RemoteAnswer::Ended`].
    ReadError,
    /// Answered by [`RemoteAnswer::Text`].
    Strerror(i32),
}

/// A call to an address vector.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum VectorCall {
    /// Answered by [`RemoteAnswer::Inserted`].
    Insert(Vec<AddressForm>),
    Remove(Vec<u64>),
    /// Answered by [`RemoteAnswer::Found`].
    ReverseLookup(AddressForm),
}

/// A call to a region.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum RegionCall {
    /// Returns a part of the region, or of the memory of a closed raw region: the offset and the length.
    /// Answered by [`RemoteAnswer::Bytes`].
    Part(usize, usize),
    /// Copies bytes into the region: the offset, the bytes.
    Put(usize, #[serde(with = "serde_bytes")] Vec<u8>),
    /// The region may be closed already.
    Close,
    /// Starts counting accesses.
    Count,
    /// Reads the counter of an event. Answered by [`RemoteAnswer::Counted`].
    Counted(CounterEvents),
}

/// A call to the memory of a raw receive or fetch.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum BufferCall {
    /// Returns what has filled so many bytes of the memory. The completion had this context.
    Message { context: u64, len_bytes: usize },
    /// Returns the bytes of the message at this place in a multi-receive buffer.
    Within(#[serde(with = "form::segment")] SegmentMut),
    /// Returns the whole memory, once the endpoint is closed.
    Contents,
}

impl BufferCall {
    #[track_caller]
    pub(super) fn make(self, room: &RawBuffer) -> Vec<u8> {
        match self {
            BufferCall::Message { context, len_bytes } => room.message(context, len_bytes),
            BufferCall::Within(place) => room.message_at(place),
            BufferCall::Contents => room.memory_after_close(),
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
    /// The endpoint, and the data that the peer has sent.
    Connected(u64, Vec<u8>),
    Shutdown(u64),
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
    /// The call was refused with this errno.
    Refused(#[serde(with = "form::errno")] Errno),
    /// The party's provider does not have what the call asks for.
    NotOffered(String),
    Opened(Opened),
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
    Size(usize),
    /// The number and the memory of the region.
    Registered(usize, RemoteMemory),
    Text(String),
    Counted((u64, u64)),
    Flags(OpFlags),
    Ended(Option<EndedForm>),
    /// `None` for an empty queue.
    Read(Option<Vec<EndedForm>>),
    ReadFailed(#[serde(with = "ReadErrorForm")] ReadError),
    Inserted(Vec<Result<u64, i32>>),
    Found(Option<u64>),
    Outcome(Outcome),
    Address(AddressForm),
    Event(Option<EventForm>),
}

/// A party or a side that was opened.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Opened {
    pub(super) name: AddressForm,
    pub(super) depth_entries: usize,
    pub(super) format: CqFormat,
    /// What the provider has granted, for a party of another provider.
    pub(super) granted: Option<Granted>,
}

impl RemoteAnswer {
    pub(super) fn from_result(result: Result<RemoteAnswer, Error>) -> RemoteAnswer {
        result.unwrap_or_else(|error| RemoteAnswer::Refused(error.errno()))
    }

    /// The answer to a call that may be refused.
    pub(super) fn granted(self) -> Result<RemoteAnswer, Error> {
        match self {
            RemoteAnswer::Refused(errno) => Err(refused_with(errno)),
            answer => Ok(answer),
        }
    }

    #[track_caller]
    pub(super) fn result(self) -> Result<(), Error> {
        let answer = self.granted()?;
        assert!(matches!(answer, RemoteAnswer::Done), "{answer:?}");
        Ok(())
    }

    #[track_caller]
    pub(super) fn address(self) -> Result<Address, Error> {
        match self.granted()? {
            RemoteAnswer::Address(AddressForm(address)) => Ok(address),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub(super) fn bytes(self) -> Vec<u8> {
        let RemoteAnswer::Bytes(bytes) = self else { panic!("{self:?}") };
        bytes
    }

    #[track_caller]
    pub(super) fn text(self) -> String {
        let RemoteAnswer::Text(text) = self else { panic!("{self:?}") };
        text
    }

    #[track_caller]
    pub(super) fn counted(self) -> (u64, u64) {
        let RemoteAnswer::Counted(counted) = self else { panic!("{self:?}") };
        counted
    }

    #[track_caller]
    pub(super) fn ended(self) -> Result<Option<Ended>, ReadError> {
        match self {
            RemoteAnswer::Ended(ended) => Ok(ended.map(Ended::from)),
            RemoteAnswer::ReadFailed(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }
}

/// The error of a call that a party has refused. The library's own errors say more than their numbers, but
/// only in its own process.
pub(super) fn refused_with(errno: Errno) -> Error {
    match errno {
        Errno::EAGAIN => Again::QueueFull.into(),
        errno => Error::System { request: SystemRequest::Socket, errno },
    }
}

/// An address, in a message to another process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct AddressForm(#[serde(with = "form::name")] pub Address);

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
    pub(super) post: Post,
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
    pub(super) tagged: Option<TagMatch>,
    pub(super) context: u64,
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
        let RemoteSend { by, buffers, post } = self;
        let Post { peer: to, tag, data, context, flags } = post;
        let tag = tag.map(Tag);
        match by {
            SendBy::Single => {
                let message = single(buffers);
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
            SendBy::Raw => send_from_raw_memory(endpoint, &buffers, post)?,
            SendBy::Inject => endpoint.inject(&buffers.concat(), to, tag, data)?,
        }
        Ok(())
    }
}

/// The buffer of a call that takes one.
fn single<T>(buffers: Vec<T>) -> T {
    buffers.into_iter().next().expect("the call has a buffer")
}

impl RemoteReceive {
    pub(super) fn post(self, endpoint: &Endpoint) -> Result<(), Error> {
        let RemoteReceive { by, buffers, from, tagged, context, flags } = self;
        match by {
            ReceiveBy::Single => {
                let buffer = single(buffers);
                match tagged {
                    None => endpoint.recv(buffer, from, context)?,
                    Some(tagged) => endpoint.trecv(buffer, from, tagged, context)?,
                }
            }
            ReceiveBy::Vector => match tagged {
                None => endpoint.recvv(buffers, from, context)?,
                Some(tagged) => endpoint.trecvv(buffers, from, tagged, context)?,
            },
            ReceiveBy::Multi => endpoint.recv_multi(single(buffers), from, context)?,
            ReceiveBy::Message => endpoint.recvmsg(RecvMsg { buffers, from, tagged, context, flags })?,
        }
        Ok(())
    }
}
