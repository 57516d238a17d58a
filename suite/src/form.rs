//! Serialised forms of the library's types, for calls to another process.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use homespun::atomic::{AtomicKind, AtomicOp, Datatype};
use homespun::endpoint::AtomicTarget;
use homespun::error::{Argument, BadMemory, ExhaustedPorts, Missing, ObjectState, SystemRequest};
use homespun::flags::{Caps, CompletionFlags};
use homespun::info::ResourceManagement;
use homespun::transport::{Denial, LinkError};
use homespun::{
    Address, Again, Buffer, Bytes, BytesMut, Completion, CompletionError, CqFormat, Errno, Error,
    FabricAddress, Fetched, Misuse, OperationError, ReadError, ReceivedLast, Refusal, RemoteMemory,
    ReusableBuffer, SegmentMut, Tag, TagMatch,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ended::Ended;
use super::payload;

/// A string constant of the library. Without this alias, serde would borrow the string from the input.
type Constant = &'static str;

/// Flags of any type, as their bits.
pub(crate) mod bits {
    use bitflags::Flags;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<F: Flags<Bits = u64>, S: Serializer>(
        flags: &F,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        flags.bits().serialize(to)
    }

    pub(crate) fn deserialize<'de, F: Flags<Bits = u64>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<F, D::Error> {
        u64::deserialize(from).map(F::from_bits_retain)
    }
}

/// Strings from another process are leaked to become constants. There are only a few.
mod constant {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(text: &&'static str, to: S) -> Result<S::Ok, S::Error> {
        text.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<&'static str, D::Error> {
        String::deserialize(from).map(|text| &*text.leak())
    }
}

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

travels_as! { name: Address, NameForm, NameForm::of, NameForm::into_address }
travels_as! { optional_address: Option<Address>, Option<NameForm>,
|address| address.as_ref().map(NameForm::of), |name| name.map(NameForm::into_address) }
travels_as! { boxed_address: Option<Box<Address>>, Option<NameForm>,
|address| address.as_deref().map(NameForm::of),
|name| name.map(|name| Box::new(name.into_address())) }
travels_as! { named_address: Box<Address>, SocketAddr,
|address| address.socket_addr(), |address| Box::new(address.into()) }
travels_as! { fabric_address: FabricAddress, u64, |address| address.0, FabricAddress }
travels_as! { tag: Tag, u64, |tag| tag.0, Tag }
travels_as! { optional_tag: Option<Tag>, Option<u64>, |tag| tag.map(|tag| tag.0), |tag| tag.map(Tag) }
travels_as! { optional_tag_match: Option<TagMatch>, Option<(u64, u64)>,
|tagged| tagged.map(|TagMatch { tag, ignore }| (tag, ignore)),
|tagged| tagged.map(|(tag, ignore)| TagMatch { tag, ignore }) }
travels_as! { errno: Errno, i32, |errno| errno.raw(), Errno::new }
travels_as! { optional_flags: Option<homespun::flags::OpFlags>, Option<u64>,
|flags| flags.map(|flags| flags.bits()),
|bits| bits.map(homespun::flags::OpFlags::from_bits_retain) }
travels_as! { optional_format: Option<CqFormat>, Option<u8>,
|format| format.map(|format| format as u8),
|number| {
    let formats = [CqFormat::Context, CqFormat::Msg, CqFormat::Data, CqFormat::Tagged];
    number.and_then(|number| formats.into_iter().find(|&format| format as u8 == number))
} }

travels_as! { optional_resource_mgmt: Option<ResourceManagement>, u32,
|choice| choice.map_or(0, ResourceManagement::raw),
|raw| ResourceManagement::from_raw(raw).expect("it was one") }

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
travels_as! { atomic_op: AtomicOp, u32, |op| *op as u32,
|number| AtomicOp::from_number(number).expect("it was one") }
travels_as! { datatype: Datatype, u32, |datatype| *datatype as u32,
|number| Datatype::from_number(number).expect("it was one") }

travels_as! { atomic_target: AtomicTarget, AtomicTargetForm,
|target| {
    let AtomicTarget { peer, memory: RemoteMemory { address, key }, datatype, op } = *target;
    AtomicTargetForm { peer, address, key, datatype, op }
},
|AtomicTargetForm { peer, address, key, datatype, op }| {
    AtomicTarget { peer, memory: RemoteMemory { address, key }, datatype, op }
} }

#[derive(Serialize, Deserialize)]
struct AtomicTargetForm {
    #[serde(with = "fabric_address")]
    peer: FabricAddress,
    address: u64,
    key: u64,
    #[serde(with = "datatype")]
    datatype: Datatype,
    #[serde(with = "atomic_op")]
    op: AtomicOp,
}

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
    #[serde(with = "bits")]
    flags: CompletionFlags,
    len_bytes: usize,
    data: u64,
    #[serde(with = "tag")]
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
    Truncated { overflow_bytes: u64 },
    Cancelled,
    Flushed,
    PeerReceive,
    NoMessage,
    Fault,
    NotDurable,
    Deferred(#[serde(with = "boxed_misuse")] Box<Misuse>),
    Refused(#[serde(with = "RefusalForm")] Refusal),
    Link(#[serde(with = "LinkErrorForm")] LinkError),
    UnknownSource,
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

#[derive(Serialize, Deserialize)]
#[serde(remote = "Error")]
pub(crate) enum ErrorForm {
    Misuse(#[serde(with = "misuse")] Misuse),
    System {
        #[serde(with = "system_request")]
        request: SystemRequest,
        #[serde(with = "errno")]
        errno: Errno,
    },
    Bind {
        #[serde(with = "named_address")]
        address: Box<Address>,
        #[serde(with = "errno")]
        errno: Errno,
        #[serde(with = "exhausted_ports")]
        exhausted: Option<ExhaustedPorts>,
    },
    Again(#[serde(with = "AgainForm")] Again),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Again")]
enum AgainForm {
    QueueFull,
}

travels_as! { system_request: SystemRequest, usize,
|request| SystemRequest::ALL.iter().position(|listed| listed == request).expect("all are listed"),
|position: usize| SystemRequest::ALL[position] }
travels_as! { exhausted_ports: Option<ExhaustedPorts>, Option<(u16, u16)>,
|exhausted| exhausted.map(|ports| (ports.low, ports.high)),
|ports: Option<(u16, u16)>| ports.map(|(low, high)| ExhaustedPorts { low, high }) }
travels_as! { boxed_misuse: Box<Misuse>, MisuseForm, |misuse| MisuseForm::from(&**misuse),
|form| Box::new(form.into()) }
travels_as! { misuse: Misuse, MisuseForm, |misuse| MisuseForm::from(misuse), Misuse::from }

/// The mistakes that a party's calls can report.
#[derive(Serialize, Deserialize)]
enum MisuseForm {
    UnknownAddress(u64),
    TooLong {
        len_bytes: u64,
        max_bytes: u64,
    },
    TooManySegments {
        count: usize,
        max: usize,
    },
    Flags(u64),
    NotEnabled,
    NoCapability(u64),
    NoAtomic {
        #[serde(with = "atomic_kind")]
        kind: AtomicKind,
        #[serde(with = "atomic_op")]
        op: AtomicOp,
        #[serde(with = "datatype")]
        datatype: Datatype,
    },
    NoOperation,
    NoClaimedMessage,
    KeyInUse(u64),
    ClaimedContext,
    NoSegment,
    UnequalOperands,
    PartialElement,
}

impl From<&Misuse> for MisuseForm {
    fn from(misuse: &Misuse) -> MisuseForm {
        match *misuse {
            Misuse::UnknownAddress(address) => MisuseForm::UnknownAddress(address),
            Misuse::TooLong { len_bytes, max_bytes } => MisuseForm::TooLong { len_bytes, max_bytes },
            Misuse::TooManySegments { count, max } => MisuseForm::TooManySegments { count, max },
            Misuse::Flags(bits) => MisuseForm::Flags(bits),
            Misuse::State(ObjectState::EndpointNotEnabled) => MisuseForm::NotEnabled,
            Misuse::NoCapability(missing) => MisuseForm::NoCapability(missing.bits()),
            Misuse::NoAtomic { kind, op, datatype } => MisuseForm::NoAtomic { kind, op, datatype },
            Misuse::NotFound(Missing::Operation) => MisuseForm::NoOperation,
            Misuse::NotFound(Missing::ClaimedMessage) => MisuseForm::NoClaimedMessage,
            Misuse::KeyInUse(key) => MisuseForm::KeyInUse(key),
            Misuse::Invalid(Argument::ClaimedContext) => MisuseForm::ClaimedContext,
            Misuse::Memory(BadMemory::NoSegment) => MisuseForm::NoSegment,
            Misuse::Memory(BadMemory::UnequalOperands) => MisuseForm::UnequalOperands,
            Misuse::Memory(BadMemory::PartialElement) => MisuseForm::PartialElement,
            ref other => panic!("no call of a party in another process was expected to answer {other:?}"),
        }
    }
}

impl From<MisuseForm> for Misuse {
    fn from(form: MisuseForm) -> Misuse {
        match form {
            MisuseForm::UnknownAddress(address) => Misuse::UnknownAddress(address),
            MisuseForm::TooLong { len_bytes, max_bytes } => Misuse::TooLong { len_bytes, max_bytes },
            MisuseForm::TooManySegments { count, max } => Misuse::TooManySegments { count, max },
            MisuseForm::Flags(bits) => Misuse::Flags(bits),
            MisuseForm::NotEnabled => Misuse::State(ObjectState::EndpointNotEnabled),
            MisuseForm::NoCapability(missing) => Misuse::NoCapability(Caps::from_bits_retain(missing)),
            MisuseForm::NoAtomic { kind, op, datatype } => Misuse::NoAtomic { kind, op, datatype },
            MisuseForm::NoOperation => Misuse::NotFound(Missing::Operation),
            MisuseForm::NoClaimedMessage => Misuse::NotFound(Missing::ClaimedMessage),
            MisuseForm::KeyInUse(key) => Misuse::KeyInUse(key),
            MisuseForm::ClaimedContext => Misuse::Invalid(Argument::ClaimedContext),
            MisuseForm::NoSegment => Misuse::Memory(BadMemory::NoSegment),
            MisuseForm::UnequalOperands => Misuse::Memory(BadMemory::UnequalOperands),
            MisuseForm::PartialElement => Misuse::Memory(BadMemory::PartialElement),
        }
    }
}
