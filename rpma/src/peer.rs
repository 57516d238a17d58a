//! Peers: what all objects of an application are opened from.

use std::fmt;
use std::sync::Arc;

use homespun::flags::{Caps, Mode, Order};
use homespun::info::{EndpointType, Info, MrMode, Progress};
use homespun::{AddressFormat, Domain, EventQueue, Fabric, Hints};
use homespun::{EqAttr, WaitObject};

use crate::error::Error;
use crate::receive_regions::ReceiveRegions;
use crate::remote_region::KEY_BYTES;

/// The way in which a peer reaches other peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum DomainName {
    /// Shared memory for peers of the same host and user, and TCP for all others.
    #[default]
    Auto,
    /// Shared memory: only peers of the same host and user.
    Shm,
    /// TCP.
    Tcp,
}

/// The attributes of a [`Peer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PeerAttr {
    /// The way to other peers. `Auto` by default.
    pub domain: DomainName,
    /// The format of all addresses: IPv4, the default, or IPv6.
    pub format: AddressFormat,
}

impl Default for PeerAttr {
    fn default() -> PeerAttr {
        PeerAttr { domain: DomainName::Auto, format: AddressFormat::SockaddrIn }
    }
}

/// What all other objects are opened from: `rpma_peer_new(3)`.
///
/// Memory that is registered with a peer can be used with all connections of the peer, and with no others.
/// A peer has no thread at first, so a process may still fork. The thread that makes progress starts with the
/// first connection, and ends when all objects of the peer are gone. Clones are handles to the same peer.
///
/// ```
/// use homespun_rpma::{DomainName, Peer, PeerAttr};
///
/// let peer = Peer::new()?;
/// let over_tcp = Peer::open(&PeerAttr { domain: DomainName::Tcp, ..PeerAttr::default() })?;
/// # Ok::<(), homespun_rpma::Error>(())
/// ```
#[derive(Clone)]
pub struct Peer {
    fabric: Fabric,
    domain: Domain,
    format: AddressFormat,
    receive_regions: Arc<ReceiveRegions>,
}

impl DomainName {
    fn as_str(self) -> &'static str {
        match self {
            DomainName::Auto => "auto",
            DomainName::Shm => "shm",
            DomainName::Tcp => "tcp",
        }
    }
}

impl Peer {
    /// Opens a peer with the default attributes.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn new() -> Result<Peer, Error> {
        Peer::open(&PeerAttr::default())
    }

    /// Opens a peer. The parameters of the native interface ([`homespun::params`]) come from the environment.
    ///
    /// # Errors
    ///
    /// [`Error::Fabric`] if the domain is not offered, for example because the environment excludes it.
    pub fn open(attr: &PeerAttr) -> Result<Peer, Error> {
        let fabric = Fabric::new();
        let mut info = fabric.info(&hints(attr.domain.as_str(), attr.format))?;
        // The hint only allows it. Descriptors of regions have the addresses of their memory.
        info.domain.mr_mode |= MrMode::VIRT_ADDR;
        let domain = fabric.domain(&info)?;
        Ok(Peer { fabric, domain, format: attr.format, receive_regions: Arc::default() })
    }

    /// Returns the hints for endpoints of this peer.
    pub(crate) fn hints(&self) -> Hints {
        hints(self.domain.name(), self.format)
    }

    pub(crate) fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    pub(crate) fn domain(&self) -> &Domain {
        &self.domain
    }

    pub(crate) fn receive_regions(&self) -> &ReceiveRegions {
        &self.receive_regions
    }

    /// Opens a queue for the events of one object.
    pub(crate) fn open_event_queue(&self) -> Result<EventQueue, Error> {
        Ok(self.fabric.open_eq(&EqAttr { wait: WaitObject::Fd, ..EqAttr::default() })?)
    }
}

/// Returns the hints for endpoints with the promises of a queue pair of verbs: everything that one side posts
/// takes effect and completes in the order of posting.
fn hints(domain: &str, format: AddressFormat) -> Hints {
    let caps = Caps::MSG | Caps::RMA | Caps::ATOMIC | Caps::RMA_PMEM;
    Hints::new()
        .caps(caps)
        .domain(domain)
        .ep_type(EndpointType::Msg)
        .addr_format(format)
        .progress(Progress::Auto)
        .mr_mode(MrMode::VIRT_ADDR)
        .mr_key_size_bytes(KEY_BYTES)
        .msg_order(Order::STRICT)
        .with(|info| info.tx.comp_order = Order::STRICT)
}

/// Makes writes with immediate data take receives, as the peer of such a write expects.
pub(crate) fn set_writes_take_receives(info: &mut Info) {
    info.mode |= Mode::RX_CQ_DATA;
    info.rx.mode |= Mode::RX_CQ_DATA;
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("domain", &self.domain).finish_non_exhaustive()
    }
}
