//! Serialised forms of the library's types, for calls to another process.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use homespun::atomic::{AtomicKind, AtomicOp, Datatype};
use homespun::endpoint::AtomicTarget;
use homespun::flags::{CompletionFlags, MrAccess};
use homespun::transport::{Denial, LinkError};
use homespun::{
    Address, Buffer, Bytes, BytesMut, Completion, CompletionError, Errno, FabricAddress, Fetched, Misuse,
    OperationError, ReadError, ReceivedLast, Refusal, RemoteMemory, ReusableBuffer, SegmentMut, Tag,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ended::Ended;
use super::payload;

/// A string constant of the library. Without this alias, serde would borrow the string from the input.
type Constant = &'static str;

/// The names of endpoints that are no socket addresses, in the order in which they were met.
static OPAQUE_NAMES: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// The prefix of the addresses that stand for opaque names. The network discards packets to them (RFC 6666).
const OPAQUE_PREFIX: u128 = 0x0100 << 112;

/// An endpoint's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NameForm {
    Socket(SocketAddr),
    /// A provider's own format. In each process, an address of its own stands for it.
    Opaque(Vec<u8>),
}

impl NameForm {
    pub(crate) fn of(address: &Address) -> NameForm {
        match address.ip() {
            IpAddr::V6(ip) if ip.to_bits() >> 112 == OPAQUE_PREFIX >> 112 => {
                let names = OPAQUE_NAMES.lock().unwrap_or_else(PoisonError::into_inner);
                NameForm::Opaque(names[usize::from(address.port())].clone())
            }
            _ => NameForm::Socket(address.socket_addr()),
        }
    }

    pub(crate) fn into_address(self) -> Address {
        let name = match self {
            NameForm::Socket(address) => return address.into(),
            NameForm::Opaque(name) => name,
        };
        let mut names = OPAQUE_NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        let known = names.iter().position(|known| *known == name);
        let index = known.unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        let port = u16::try_from(index).expect("few endpoints");
        SocketAddr::from((Ipv6Addr::from_bits(OPAQUE_PREFIX), port)).into()
    }
}

/// Serialises a type by way of another type.
macro_rules! travels_as {
    ($module:ident: $type:ty, $form:ty, $into:expr, $from:expr) => {
        pub(crate) mod $module {
            use super::*;

            pub(crate) fn serialize<S: Serializer>(it: &$type, to: S) -> Result<S::Ok, S::Error> {
                let into: fn(&$type) -> $form = $into;
                into(it).serialize(to)
            }

            pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<$type, D::Error> {
                <$form>::deserialize(from).map($from)
            }
        }
    };
}

// Strings from another process are leaked to become constants. There are only a few.
travels_as! { constant: Constant, String, |text| (*text).to_owned(), |text| &*text.leak() }
travels_as! { name: Address, NameForm, NameForm::of, NameForm::into_address }
travels_as! { optional_address: Option<Address>, Option<NameForm>,
|address| address.as_ref().map(NameForm::of), |name| name.map(NameForm::into_address) }
travels_as! { boxed_address: Option<Box<Address>>, Option<NameForm>,
|address| address.as_deref().map(NameForm::of),
|name| name.map(|name| Box::new(name.into_address())) }
travels_as! { named_address: Box<Address>, SocketAddr,
|address| address.socket_addr(), |address| Box::new(address.into()) }
travels_as! { fabric_address: FabricAddress, u64, |address| address.0, FabricAddress }
travels_as! { access: MrAccess, u64, |access| access.bits(), MrAccess::from_bits_retain }
travels_as! { errno: Errno, i32, |errno| errno.raw(), Errno::new }
travels_as! { rooms: Vec<BytesMut>, Vec<usize>,
|rooms| rooms.iter().map(BytesMut::len).collect(),
|lens_bytes| lens_bytes.into_iter().map(payload::marked_buffer).collect() }

// The address is meaningful only in the process that it comes from.
travels_as! { segment: SegmentMut, (usize, usize),
|segment| (segment.address.addr(), segment.len_bytes),
|(address, len_bytes)| SegmentMut { address: std::ptr::without_provenance_mut(address), len_bytes } }

travels_as! { received_last: Box<ReceivedLast>, (BytesMut, BytesMut),
|last| (last.message.clone(), last.unused.clone()),
|(message, unused)| Box::new(ReceivedLast { message, unused }) }

travels_as! { fetched: Box<Fetched>, [FetchedPart; 3],
|fetched| {
    [&fetched.result, &fetched.operand, &fetched.compare].map(|part| FetchedPart(part.clone()))
},
|[FetchedPart(result), FetchedPart(operand), FetchedPart(compare)]| {
    Box::new(Fetched { result, operand, compare })
} }

#[derive(Serialize, Deserialize)]
struct FetchedPart(#[serde(with = "BufferForm")] Buffer);

travels_as! { atomic_kind: AtomicKind, u32, |kind| *kind as u32,
|number| AtomicKind::from_number(number).expect("it was one") }
travels_as! { atomic_target: AtomicTarget, (u64, RemoteMemory, u32, u32),
|target| (target.peer.0, target.memory, target.datatype as u32, target.op as u32),
|(peer, memory, datatype, op)| {
    let datatype = Datatype::from_number(datatype).expect("it was one");
    let op = AtomicOp::from_number(op).expect("it was one");
    AtomicTarget { peer: FabricAddress(peer), memory, datatype, op }
} }

/// The end of an operation.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum EndedForm {
    Completed(#[serde(with = "CompletionForm")] Completion, #[serde(with = "fabric_address")] FabricAddress),
    Failed(#[serde(with = "CompletionErrorForm")] CompletionError),
}

impl From<Ended> for EndedForm {
    fn from(ended: Ended) -> EndedForm {
        match ended {
            Ok((completion, source)) => EndedForm::Completed(completion, source),
            Err(failed) => EndedForm::Failed(failed),
        }
    }
}

impl From<EndedForm> for Ended {
    fn from(form: EndedForm) -> Ended {
        match form {
            EndedForm::Completed(completion, source) => Ok((completion, source)),
            EndedForm::Failed(failed) => Err(failed),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Completion")]
pub(crate) struct CompletionForm {
    context: u64,
    flags: CompletionFlags,
    len_bytes: usize,
    data: u64,
    tag: Tag,
    #[serde(with = "BufferForm")]
    buffer: Buffer,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Buffer")]
enum BufferForm {
    None,
    Sent(Bytes),
    SentVector(Vec<Bytes>),
    Received(BytesMut),
    ReceivedVector(Vec<BytesMut>),
    Within(#[serde(with = "segment")] SegmentMut),
    Unused(BytesMut),
    ReceivedLast(#[serde(with = "received_last")] Box<ReceivedLast>),
    Fetched(#[serde(with = "fetched")] Box<Fetched>),
    /// No call to another process posts such a buffer.
    #[serde(skip)]
    Reusable(ReusableBuffer),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "CompletionError")]
pub(crate) struct CompletionErrorForm {
    #[serde(with = "CompletionForm")]
    completion: Completion,
    #[serde(with = "OperationErrorForm")]
    error: OperationError,
    #[serde(with = "fabric_address")]
    source: FabricAddress,
    #[serde(with = "boxed_address")]
    peer: Option<Box<Address>>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "OperationError")]
enum OperationErrorForm {
    Truncated {
        overflow_bytes: u64,
    },
    Cancelled,
    Flushed,
    PeerReceive,
    NoMessage,
    Fault,
    NotDurable,
    Refused(#[serde(with = "RefusalForm")] Refusal),
    Link(#[serde(with = "LinkErrorForm")] LinkError),
    UnknownSource,
    /// No call to another process defers work.
    #[serde(skip)]
    Deferred(Box<Misuse>),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Refusal")]
enum RefusalForm {
    Key,
    Access,
    Range,
    Volatile,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Denial")]
enum DenialForm {
    OtherUser,
    ForkedChild,
    ForeignAddress,
    NoDescriptors,
    NoMemoryFiles,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "LinkError")]
enum LinkErrorForm {
    Closed,
    System(#[serde(with = "errno")] Errno),
    Denied(#[serde(with = "DenialForm")] Denial),
    Protocol(#[serde(with = "constant")] Constant),
    OtherVersion {
        theirs: u16,
    },
    NoEndpoint {
        #[serde(with = "constant")]
        medium: Constant,
    },
    LoopbackOnly {
        #[serde(with = "named_address")]
        own: Box<Address>,
        #[serde(with = "named_address")]
        peer: Box<Address>,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "ReadError")]
pub(crate) enum ReadErrorForm {
    ErrorAvailable,
    Overrun,
    NoWaitObject,
    Deadlock,
}
