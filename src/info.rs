//! Hints of an application, and infos of providers: `struct fi_info` of `fi_getinfo(3)` and its
//! attributes.
//!
//! One type, [`Info`], serves for both. [`Info::default`] leaves every field open; hints start from it.
//! [`getinfo`](crate::getinfo()) returns infos with the fields filled in, except fields for which homespun
//! has no preference, such as the type of address vectors. Before an application opens an object with an
//! info, it may change the info: drop a capability, lower a size, set an address.
//!
//! Zero, `None` and the empty text mean "unspecified", as in C. With the feature `serde` every structure
//! converts to text and back. A field that the text lacks is unspecified; an unknown field is refused, since
//! it may be misspelt. The C fields that name open objects have no counterpart: `handle`, `nic`,
//! `fabric_attr->fabric` and `domain_attr->domain`.

use std::fmt;

use bitflags::bitflags;
use homespun_engine::address::{Address, AddressFormat};
use homespun_engine::error::{Error, Misuse, Unmet};
use homespun_engine::flags::{Caps, Mode, OpFlags, Order};

/// The name of homespun as a provider of libfabric (`fabric_attr->prov_name`). Hints may ask for it.
pub const PROVIDER_NAME: &str = "homespun";

/// The version of homespun as a provider of libfabric: that of this crate.
pub const PROVIDER_VERSION: Version = Version::new(
    parse_version_number(env!("CARGO_PKG_VERSION_MAJOR")),
    parse_version_number(env!("CARGO_PKG_VERSION_MINOR")),
);

/// The name of the only fabric. Endpoints of one domain can reach each other. Endpoints of the domain `shm`
/// must be on one host.
pub const FABRIC_NAME: &str = "homespun";

/// The number of the protocol between endpoints. The highest bit marks a protocol that libfabric does not
/// define.
pub const PROTOCOL: u32 = 1 << 31 | 0x0068_6f6d;

/// The version of [`PROTOCOL`].
pub const PROTOCOL_VERSION: u32 = homespun_engine::wire::hello::VERSION as u32;

/// The tag format that promises nothing about the use of tags: 64 fields of one bit each (`FI_TAG_GENERIC`
/// of `fi_endpoint(3)`).
pub const TAG_GENERIC: u64 = 0xaaaa_aaaa_aaaa_aaaa;

/// A context count of [`EpAttr`] that asks for a context shared with other endpoints
/// (`FI_SHARED_CONTEXT`).
pub const SHARED_CONTEXT: usize = usize::MAX;

/// One way to communicate: the kind of an endpoint, its addresses, its domain and its fabric.
///
/// See `fi_getinfo(3)`. [`Hints`](crate::Hints) build an info field by field.
///
/// ```
/// use homespun::{Caps, Fabric, Hints};
///
/// let fabric = Fabric::new();
/// let mut info = fabric.info(&Hints::new().domain("tcp").node("127.0.0.1").source())?;
/// assert!(info.caps.contains(Caps::MSG | Caps::TAGGED));
/// println!("messages of up to {} bytes", info.ep.max_msg_size_bytes);
///
/// // An answer may be changed before something is opened with it.
/// info.caps -= Caps::TAGGED;
/// info.tx.size_ops = 16;
/// let endpoint = fabric.domain(&info)?.endpoint(&info)?;
/// assert_eq!(endpoint.info().tx.size_ops, 16);
/// # Ok::<(), homespun::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct Info {
    /// The endpoint's capabilities. Empty hints ask for all capabilities that homespun grants without a
    /// request.
    pub caps: Caps,
    /// In hints, the modes that the application supports; in an info that opens an endpoint, the modes that
    /// the endpoint has. homespun demands none. It has one, [`Mode::RX_CQ_DATA`]: a peer's write with remote
    /// data takes a receive of the endpoint. If hints have this mode here and in [`RxAttr::mode`], the infos
    /// with the mode follow those without. An application may also set the mode in any other info before it
    /// opens an endpoint with it. The endpoint needs [`Caps::MSG`] and [`Caps::RECV`] then.
    pub mode: Mode,
    /// The format of all addresses. `None` leaves the choice to homespun. C's `FI_SOCKADDR`, "any socket
    /// address", is `None` here.
    pub addr_format: Option<AddressFormat>,
    /// The address to which the endpoint is bound. `None` means every interface, and a port that the system
    /// chooses.
    pub src_addr: Option<Address>,
    /// The peer's address, if the call of [`getinfo`](crate::getinfo()) or its hints named a peer.
    pub dest_addr: Option<Address>,
    /// The transmit side of the endpoint.
    pub tx: TxAttr,
    /// The receive side of the endpoint.
    pub rx: RxAttr,
    /// The endpoint as a whole.
    pub ep: EpAttr,
    /// The domain.
    pub domain: DomainAttr,
    /// The fabric.
    pub fabric: FabricAttr,
}

/// The transmit side of an endpoint: `struct fi_tx_attr` of `fi_endpoint(3)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct TxAttr {
    /// The part of [`Info::caps`] that concerns transmission. Empty hints ask for all transmit capabilities
    /// of [`Info::caps`]. Capabilities of the receive side are ignored in hints.
    pub caps: Caps,
    /// As [`Info::mode`], for transmission.
    pub mode: Mode,
    /// The flags of operations that are posted without flags of their own.
    pub op_flags: OpFlags,
    /// The kinds of operations to one peer that take effect in the order of posting, if the peer's
    /// [`RxAttr::msg_order`] has the same orders. Results always have the orders that cost nothing. Other
    /// orders cost time: an operation may have to wait until an earlier long access has ended.
    pub msg_order: Order,
    /// Whether operations to one peer complete in the order of posting: [`Order::STRICT`], or empty. With
    /// `STRICT`, a completion waits until all earlier operations have ended.
    pub comp_order: Order,
    /// The largest message that can be injected, in bytes. For atomic operations, the largest operand.
    pub inject_size_bytes: usize,
    /// The number of operations that may be outstanding. 0 in hints stands for
    /// [`TX_SIZE`](crate::params::TX_SIZE) if it is set, else
    /// [`TX_DEPTH_DEFAULT_OPS`](crate::limits::TX_DEPTH_DEFAULT_OPS).
    pub size_ops: usize,
    /// The number of segments that one operation may gather from.
    pub iov_limit: usize,
    /// The number of remote segments that one RMA operation may name.
    pub rma_iov_limit: usize,
    /// The traffic class; 0 is unspecified. Any class is accepted in hints. Results have 0, since homespun
    /// treats all traffic alike.
    pub tclass: u32,
}

/// The receive side of an endpoint: `struct fi_rx_attr` of `fi_endpoint(3)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct RxAttr {
    /// The part of [`Info::caps`] that concerns reception. Empty hints ask for all receive capabilities of
    /// [`Info::caps`]. Capabilities of the transmit side are ignored in hints.
    pub caps: Caps,
    /// As [`Info::mode`], for reception. An endpoint has the modes of both. A shared receive context has
    /// none: its endpoints have theirs.
    pub mode: Mode,
    /// The flags of receives that are posted without flags of their own.
    pub op_flags: OpFlags,
    /// The kinds of operations of one peer that take effect in the order of posting, if the peer's
    /// [`TxAttr::msg_order`] has the same orders. Results always have the orders that cost nothing.
    pub msg_order: Order,
    /// The order of completions of receives: always empty, since receives complete as their messages arrive.
    /// Hints that ask for an order cannot be met.
    pub comp_order: Order,
    /// The limit, in bytes, of the memory for messages that arrive before a receive for them is posted.
    /// Beyond the limit the senders wait. No message of a present peer is lost.
    ///
    /// Over TCP, all peers of one host together use at most
    /// [`HOST_SHARE_PERCENT`](crate::limits::HOST_SHARE_PERCENT) of the limit. Long messages that are
    /// fetched before a receive matches them use at most
    /// [`HOST_FETCH_PERCENT`](crate::limits::HOST_FETCH_PERCENT) per host; further long messages wait at
    /// their senders. If a peer leaves before its address has been confirmed, its messages are dropped when
    /// other messages need the room.
    ///
    /// 0 in hints stands for [`UNEXPECTED_BYTES`](crate::params::UNEXPECTED_BYTES) if it is set, else
    /// [`UNEXPECTED_BUDGET_DEFAULT_BYTES`](crate::limits::UNEXPECTED_BUDGET_DEFAULT_BYTES). By
    /// `fi_endpoint(3)` the number is a hint, so no number is refused. A number below
    /// [`UNEXPECTED_BUDGET_MIN_BYTES`](crate::limits::UNEXPECTED_BUDGET_MIN_BYTES) is raised to that
    /// minimum.
    pub total_buffered_recv_bytes: usize,
    /// The number of receives that may be posted. 0 in hints stands for
    /// [`RX_SIZE`](crate::params::RX_SIZE) if it is set, else
    /// [`RX_DEPTH_DEFAULT_OPS`](crate::limits::RX_DEPTH_DEFAULT_OPS).
    pub size_ops: usize,
    /// The number of segments that one receive may scatter to.
    pub iov_limit: usize,
}

/// An endpoint as a whole: `struct fi_ep_attr` of `fi_endpoint(3)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct EpAttr {
    /// The kind of endpoint.
    pub ep_type: Option<EndpointType>,
    /// The number of the protocol between endpoints; 0 is unspecified. Endpoints with the same protocol and
    /// version understand each other.
    pub protocol: u32,
    /// The version of the protocol.
    pub protocol_version: u32,
    /// The largest message in bytes.
    pub max_msg_size_bytes: usize,
    /// The bytes that buffers must leave free at their start ([`Mode::MSG_PREFIX`]): 0 in results.
    pub msg_prefix_size_bytes: usize,
    /// The size in bytes up to which reads after writes keep their order. Results have `usize::MAX` (any
    /// size) if [`TxAttr::msg_order`] or [`RxAttr::msg_order`] has this order, else 0. In hints, any number
    /// but 0 asks for the order.
    pub max_order_raw_size_bytes: usize,
    /// As [`max_order_raw_size_bytes`](Self::max_order_raw_size_bytes), for a write after a read.
    pub max_order_war_size_bytes: usize,
    /// As [`max_order_raw_size_bytes`](Self::max_order_raw_size_bytes), for a write after a write.
    pub max_order_waw_size_bytes: usize,
    /// The bits of a tag that are used. A run of equal bits is one field, see [`TAG_GENERIC`].
    pub mem_tag_format: u64,
    /// The number of transmit contexts of the endpoint. [`SHARED_CONTEXT`] asks for a
    /// [`SharedTransmitContext`](crate::SharedTransmitContext).
    pub tx_ctx_cnt: usize,
    /// The number of receive contexts of the endpoint. [`SHARED_CONTEXT`] asks for a
    /// [`SharedReceiveContext`](crate::SharedReceiveContext).
    pub rx_ctx_cnt: usize,
    /// The key that peers must have, too. Empty stands for no key.
    pub auth_key: Vec<u8>,
}

/// A domain: `struct fi_domain_attr` of `fi_domain(3)`.
///
/// In results, homespun sets the numbers of queues, endpoints, contexts, counters and memory regions, and
/// the size of a key. Hints in these fields are ignored, so a result may have lower numbers than the hints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct DomainAttr {
    /// The domain's name (`"tcp"`).
    pub name: Option<String>,
    /// The calls that the application serialises. As a hint, `None` means [`Safe`](Threading::Safe); any
    /// other value is returned unchanged. Only
    /// [`Fabric::domain_unsynchronised`](crate::Fabric::domain_unsynchronised) relies on this field.
    pub threading: Option<Threading>,
    /// How control operations make progress. As a hint, `None` means [`Manual`](Progress::Manual); any other
    /// value is returned unchanged. The choice matters only for connections.
    pub control_progress: Option<Progress>,
    /// How data transfers make progress. As a hint, `None` means [`Manual`](Progress::Manual); any other
    /// value is returned unchanged. The domain's info decides for the domain and all of its endpoints.
    pub data_progress: Option<Progress>,
    /// Whether completion queues are protected from overruns. As a hint, `None` means
    /// [`Enabled`](ResourceManagement::Enabled); any other value is returned unchanged. The domain's info
    /// decides for all queues and endpoints of the domain.
    pub resource_mgmt: Option<ResourceManagement>,
    /// The kind of address vector.
    pub av_type: Option<AvType>,
    /// The duties of the application when it registers memory. In hints, the duties that it accepts.
    pub mr_mode: MrMode,
    /// The size of the keys of memory regions in bytes: 8, or from 4 on as the hints ask. The domain
    /// chooses no longer key, and refuses a longer one. A size below 4 stands for 8, as 0 does, also in the
    /// info that opens a domain.
    ///
    /// Shorter keys fit a protocol with a field for them, but are easier to guess: a peer that tries keys
    /// of 4 bytes finds one of a single region after about 2 billion attempts. No key comes twice before
    /// all others have come.
    pub mr_key_size_bytes: usize,
    /// The size of remote completion data in bytes.
    pub cq_data_size_bytes: usize,
    /// The recommended number of completion queues.
    pub cq_cnt: usize,
    /// The recommended number of endpoints.
    pub ep_cnt: usize,
    /// The recommended number of transmit contexts.
    pub tx_ctx_cnt: usize,
    /// The recommended number of receive contexts.
    pub rx_ctx_cnt: usize,
    /// The number of transmit contexts that one endpoint may have.
    pub max_ep_tx_ctx: usize,
    /// The number of receive contexts that one endpoint may have.
    pub max_ep_rx_ctx: usize,
    /// The number of endpoints that may share a transmit context.
    pub max_ep_stx_ctx: usize,
    /// The number of endpoints that may share a receive context.
    pub max_ep_srx_ctx: usize,
    /// The recommended number of counters.
    pub cntr_cnt: usize,
    /// The number of segments that one memory registration may name.
    pub mr_iov_limit: usize,
    /// The capabilities of every endpoint of the domain: [`Caps::LOCAL_COMM`] and [`Caps::REMOTE_COMM`].
    pub caps: Caps,
    /// The modes that the domain demands of its application.
    pub mode: Mode,
    /// The default key of endpoints. Empty stands for no key.
    pub auth_key: Vec<u8>,
    /// The largest length of an error's `err_data` in bytes: as much data as a peer may pass when it rejects
    /// a connection.
    pub max_err_data_bytes: usize,
    /// The recommended number of memory regions. Results have 0, since nothing limits the number.
    pub mr_cnt: usize,
    /// The default traffic class of endpoints; 0 is unspecified.
    pub tclass: u32,
}

/// A fabric: `struct fi_fabric_attr` of `fi_fabric(3)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct FabricAttr {
    /// The fabric's name: [`FABRIC_NAME`] in results.
    pub name: Option<String>,
    /// The name of the provider in libfabric: [`PROVIDER_NAME`] in results.
    pub prov_name: Option<String>,
    /// The version of the provider in libfabric. Ignored as a hint.
    pub prov_version: Version,
    /// The version of libfabric's interface that the application requested. A Rust application has 0.0.
    pub api_version: Version,
}

/// A version of libfabric's interface or of homespun, as `FI_VERSION(major, minor)` packs it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Version {
    /// Changes when compatibility ends.
    pub major: u16,
    /// Grows with every release.
    pub minor: u16,
}

impl Version {
    /// Returns version `major.minor`.
    pub const fn new(major: u16, minor: u16) -> Self {
        Version { major, minor }
    }

    /// Unpacks the word that C code uses.
    pub const fn from_raw(raw: u32) -> Self {
        Version { major: (raw >> 16) as u16, minor: (raw & 0xffff) as u16 }
    }

    /// Returns the word that C code uses.
    pub const fn raw(self) -> u32 {
        (self.major as u32) << 16 | self.minor as u32
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Returns a part of the crate's version, at compile time.
const fn parse_version_number(text: &str) -> u16 {
    match u16::from_str_radix(text, 10) {
        Ok(number) => number,
        Err(_) => panic!("the crate's version is not made of numbers"),
    }
}

/// Defines an enumeration of the C interface. Its value 0, "unspecified", is `None` here.
macro_rules! choices {
    (
        $(#[$attr:meta])* pub enum $name:ident, unknown: $unknown:ident {
            $($(#[$variant_attr:meta])* $variant:ident = $raw:literal,)*
        }
    ) => {
        $(#[$attr])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[cfg_attr(
            feature = "serde",
            derive(serde::Serialize, serde::Deserialize),
            serde(rename_all = "SCREAMING_SNAKE_CASE")
        )]
        #[repr(u32)]
        pub enum $name {
            $($(#[$variant_attr])* $variant = $raw,)*
        }

        impl $name {
            /// Reads the value that C code uses; 0 is "unspecified".
            ///
            /// # Errors
            ///
            /// [`Misuse::Unmet`] for an unknown value, since no offer of homespun can meet it.
            pub fn from_raw(raw: u32) -> Result<Option<Self>, Error> {
                match raw {
                    0 => Ok(None),
                    $($raw => Ok(Some($name::$variant)),)*
                    _ => Err(Misuse::Unmet(Unmet::$unknown).into()),
                }
            }

            /// Returns the value that C code uses.
            pub const fn raw(self) -> u32 {
                self as u32
            }
        }
    };
}

choices! {
    /// The kind of an endpoint: `fi_endpoint(3)`, "type".
    pub enum EndpointType, unknown: UnknownEndpointType {
        /// Connected, reliable messages (`FI_EP_MSG`).
        Msg = 1,
        /// Unconnected, unreliable datagrams (`FI_EP_DGRAM`).
        Dgram = 2,
        /// Unconnected, reliable messages (`FI_EP_RDM`).
        Rdm = 3,
    }
}

choices! {
    /// The calls that the application serialises: `fi_domain(3)`, "threading".
    pub enum Threading, unknown: UnknownThreading {
        /// None: any thread may make any call at any time.
        Safe = 1,
        /// Calls that use the same object.
        Fid = 2,
        /// All calls within a domain.
        Domain = 3,
        /// Calls on objects that report to the same completion queue or counter.
        Completion = 4,
        /// Calls on the same endpoint, whichever of its contexts they use.
        Endpoint = 5,
    }
}

choices! {
    /// Who drives the progress of operations: `fi_domain(3)`, "control_progress / data_progress".
    ///
    /// ```
    /// use homespun::info::{Info, Progress};
    /// use homespun::Fabric;
    ///
    /// let fabric = Fabric::new();
    /// let mut hints = Info::default();
    /// hints.domain.data_progress = Some(Progress::Auto);
    /// let info = &fabric.getinfo(None, None, Default::default(), Some(&hints))?[0];
    /// // Its endpoints receive, answer and send even if no thread reads a queue.
    /// let domain = fabric.domain(info)?;
    /// # Ok::<(), homespun::Error>(())
    /// ```
    pub enum Progress, unknown: UnknownProgress {
        /// homespun drives progress, without calls of the application. The domain starts a thread, with two
        /// file descriptors, when its first endpoint is enabled. The thread ends when the last handle of the
        /// domain and of its endpoints is gone. It sleeps until an event comes. If a transport has no
        /// descriptor to sleep on, the thread polls its endpoints every millisecond.
        ///
        /// Reads of an empty queue also drive progress. While the application polls, the thread pauses, so
        /// polling is as fast as with manual progress. The thread resumes within about two milliseconds of
        /// the last poll, or at once when a reader blocks on a queue.
        ///
        /// The thread, like any call, may drop a buffer of an ended operation while the endpoint is locked.
        /// So if a [`Bytes`](crate::Bytes) has an owner of its own, the owner's destructor must not use the
        /// endpoint.
        Auto = 1,
        /// The application's calls drive progress, above all its reads of completion queues.
        Manual = 2,
        /// For control operations: as `Manual`, and the application promises to make only one such call at a
        /// time in a domain (`FI_PROGRESS_CONTROL_UNIFIED`, since libfabric 2.0). homespun does not rely on
        /// the promise.
        ControlUnified = 3,
    }
}

choices! {
    /// Whether completion queues are protected from overruns: `fi_domain(3)`, "resource_mgmt".
    pub enum ResourceManagement, unknown: UnknownResourceManagement {
        /// The application must not have more completions outstanding than a completion queue holds. A
        /// completion that finds the queue full overruns the queue and is lost, see
        /// [`CompletionQueue`](crate::CompletionQueue). An operation beyond the depth of an endpoint still
        /// gets EAGAIN. Messages and peers are as safe as with [`Enabled`](Self::Enabled).
        Disabled = 1,
        /// No queue is overrun, and no completion is lost: a completion that finds its queue full waits at
        /// its endpoint. An operation beyond the depth of an endpoint gets EAGAIN and has no effect.
        Enabled = 2,
    }
}

choices! {
    /// The kind of an address vector: `fi_av(3)`, "type".
    pub enum AvType, unknown: UnknownAvType {
        /// homespun chooses the fabric address of an inserted address.
        Map = 1,
        /// The fabric address of an inserted address is its index.
        Table = 2,
    }
}

bitflags! {
    /// The demands of memory registration on an application: `fi_mr(3)`, "mr_mode".
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct MrMode: u32 {
        /// Before libfabric 1.5: peers use virtual addresses, and homespun chooses keys.
        const BASIC = 1 << 0;
        /// Before libfabric 1.5: peers use offsets, and the application chooses keys.
        const SCALABLE = 1 << 1;
        /// The application registers local buffers, too.
        const LOCAL = 1 << 2;
        /// Keys are longer than 64 bits.
        const RAW = 1 << 3;
        /// Peers address a region by its virtual address, not from 0.
        const VIRT_ADDR = 1 << 4;
        /// The application registers only memory whose pages are allocated.
        const ALLOCATED = 1 << 5;
        /// homespun chooses the key.
        const PROV_KEY = 1 << 6;
        /// The application reports changes of the address space to homespun.
        const MMU_NOTIFY = 1 << 7;
        /// The application enables regions with counters explicitly.
        const RMA_EVENT = 1 << 8;
        /// The application binds regions to endpoints.
        const ENDPOINT = 1 << 9;
        /// The application registers device memory.
        const HMEM = 1 << 10;
        /// The application registers buffers of collective operations.
        const COLLECTIVE = 1 << 11;
    }
}

/// Converts an address format of C code (`FI_SOCKADDR_IN`). The formats `FI_FORMAT_UNSPEC`, `FI_SOCKADDR`
/// and `FI_SOCKADDR_IP` become `None`: any format.
///
/// # Errors
///
/// [`Misuse::Unmet`] for a format that homespun does not support.
pub fn address_format_from_raw(raw: u32) -> Result<Option<AddressFormat>, Error> {
    match raw {
        raw::FI_FORMAT_UNSPEC | raw::FI_SOCKADDR | raw::FI_SOCKADDR_IP => Ok(None),
        raw::FI_SOCKADDR_IN => Ok(Some(AddressFormat::SockaddrIn)),
        raw::FI_SOCKADDR_IN6 => Ok(Some(AddressFormat::SockaddrIn6)),
        _ => Err(Misuse::Unmet(Unmet::UnknownAddressFormat).into()),
    }
}

/// Returns the C code's number of an address format; the inverse of [`address_format_from_raw`].
pub fn address_format_raw(format: Option<AddressFormat>) -> u32 {
    match format {
        None => raw::FI_FORMAT_UNSPEC,
        Some(AddressFormat::SockaddrIn) => raw::FI_SOCKADDR_IN,
        Some(AddressFormat::SockaddrIn6) => raw::FI_SOCKADDR_IN6,
    }
}

/// The address formats as `rdma/fabric.h` numbers them.
mod raw {
    pub(super) const FI_FORMAT_UNSPEC: u32 = 0;
    pub(super) const FI_SOCKADDR: u32 = 1;
    pub(super) const FI_SOCKADDR_IN: u32 = 2;
    pub(super) const FI_SOCKADDR_IN6: u32 = 3;
    /// Since libfabric 2.3.
    pub(super) const FI_SOCKADDR_IP: u32 = 17;
}

#[cfg(test)]
mod tests {
    use homespun_engine::errno::Errno;

    use super::*;

    #[test]
    fn attribute_enums_convert_to_raw_values_and_back() {
        for raw in 1..=5 {
            assert_eq!(Threading::from_raw(raw).unwrap().map(Threading::raw), Some(raw));
        }
        assert_eq!(EndpointType::from_raw(3), Ok(Some(EndpointType::Rdm)));
        assert_eq!(Progress::from_raw(2), Ok(Some(Progress::Manual)));
        assert_eq!(ResourceManagement::from_raw(2), Ok(Some(ResourceManagement::Enabled)));
        assert_eq!(AvType::from_raw(2), Ok(Some(AvType::Table)));
    }

    #[test]
    fn raw_zero_is_unspecified_and_unknown_value_is_refused() {
        assert_eq!(AvType::from_raw(0), Ok(None));
        assert_eq!(EndpointType::from_raw(4).unwrap_err().errno(), Errno::ENODATA);
        assert_eq!(address_format_from_raw(4).unwrap_err().errno(), Errno::ENODATA);
    }

    #[test]
    fn generic_sockaddr_format_means_any_format() {
        assert_eq!(address_format_from_raw(1), Ok(None));
        assert_eq!(address_format_from_raw(17), Ok(None));
        for raw in [0, 2, 3] {
            assert_eq!(address_format_from_raw(raw).map(address_format_raw), Ok(raw));
        }
    }

    #[test]
    fn versions_pack_as_in_c() {
        assert_eq!(Version::new(1, 17).raw(), 0x0001_0011);
        assert_eq!(Version::from_raw(0x0001_0011), Version::new(1, 17));
        assert_eq!(Version::new(1, 17).to_string(), "1.17");
        assert!(Version::new(1, 9) < Version::new(1, 17));
    }

    #[test]
    fn mr_mode_bits_match_libfabric_headers() {
        assert_eq!(MrMode::LOCAL.bits(), 4);
        assert_eq!(MrMode::COLLECTIVE.bits(), 0x800);
    }
}
