//! Address vectors: `fi_av(3)`.

mod symmetric;
mod table;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bitflags::bitflags;
use homespun_engine::address::{Address, AddressFormat};
use homespun_engine::error::{Argument, Error, InUse, Misuse, Unmet, Unsupported};
use homespun_engine::rejected::Rejected;
use parking_lot::RwLock;

use crate::domain_id::DomainId;
use crate::info::AvType;
use crate::mutated;
use crate::resolve::{AddressRole, resolve};
use table::Table;

/// A new vector reserves memory for at most this many addresses, however large [`AvAttr::count`] is.
const RESERVE_MAX_ENTRIES: usize = 1 << 16;

/// An application's name for a peer: `fi_addr_t`. A fabric address is valid only in the address vector that
/// returned it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FabricAddress(pub u64);

impl FabricAddress {
    /// No address. As the source of a receive: any peer (`FI_ADDR_UNSPEC`). As the source in a completion:
    /// unknown (`FI_ADDR_NOTAVAIL`).
    pub const UNSPECIFIED: FabricAddress = FabricAddress(u64::MAX);
}

impl Default for FabricAddress {
    /// [`FabricAddress::UNSPECIFIED`].
    fn default() -> Self {
        FabricAddress::UNSPECIFIED
    }
}

impl fmt::Debug for FabricAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FabricAddress::UNSPECIFIED => f.write_str("FabricAddress::UNSPECIFIED"),
            FabricAddress(value) => write!(f, "FabricAddress({value})"),
        }
    }
}

/// The attributes of an address vector: `struct fi_av_attr` of `fi_av(3)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct AvAttr {
    /// The type. With `None`, homespun makes a table.
    pub av_type: Option<AvType>,
    /// The expected number of addresses; a hint that saves time, not a limit.
    pub count: usize,
    /// The expected number of endpoints on each host; a hint that is ignored.
    pub ep_per_node: usize,
    /// The number of bits in a fabric address that name a receive context. Ignored: an endpoint has only
    /// receive context 0, so these bits are always 0.
    pub rx_ctx_bits: u32,
    /// The name under which processes share the vector. Must be `None`: vectors are not shared.
    pub name: Option<String>,
    /// How the vector is used.
    pub flags: AvFlags,
}

bitflags! {
    /// Flags of an address vector: `fi_av(3)`, "flags" of `fi_av_open`.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
    pub struct AvFlags: u64 {
        /// The application only reads addresses from a vector that another process shares. Ignored, since
        /// vectors are not shared.
        const READ = 1 << 8;
        /// Insertions are reported to an event queue. Not supported.
        const EVENT = 1 << 24;
        /// The application promises that every host has the same number of endpoints. Ignored.
        const SYMMETRIC = 1 << 59;
    }
}

/// The peers of an application: a map from each [`Address`] to a [`FabricAddress`] and back. See
/// `fi_av(3)`.
///
/// Clones are handles to the same vector. Any thread may use the vector at any time.
///
/// In a vector of either type, a fabric address is an index. An inserted address gets the lowest free
/// index. The indices of a new vector are 0, 1, 2 and so on. Removing an address frees its index for a
/// later address.
///
/// An address that is inserted several times has several fabric addresses. All of them send to the same
/// peer. Completions name the lowest of them as the source. An entry takes about 100 bytes.
///
/// ```
/// use homespun::{Address, AvAttr, Fabric, Hints};
/// use std::net::SocketAddr;
///
/// let fabric = Fabric::new();
/// let domain = fabric.domain(&fabric.info(&Hints::new())?)?;
/// let av = domain.open_av(&AvAttr::default())?;
///
/// let peer = Address::from(SocketAddr::from(([127, 0, 0, 1], 7471)));
/// let inserted = av.insert_one(peer)?;
/// assert_eq!(av.lookup(inserted)?, peer);
/// assert_eq!(av.reverse_lookup(&peer), Some(inserted));
/// av.remove(&[inserted]);
/// assert!(av.lookup(inserted).is_err());
/// # Ok::<(), homespun::Error>(())
/// ```
#[derive(Clone)]
pub struct AddressVector {
    shared: Arc<VectorShared>,
}

struct VectorShared {
    domain: DomainId,
    av_type: AvType,
    format: AddressFormat,
    table: RwLock<Table>,
    /// Incremented after each change of `table`, before the table is unlocked. If a thread reads the
    /// version and then looks up an address, the thread sees at least the changes that the version counts.
    version: AtomicU64,
    /// The number of bound endpoints.
    bound: AtomicUsize,
}

impl AddressVector {
    /// Opens a vector for addresses of one format.
    ///
    /// # Errors
    ///
    /// [`Misuse::Flags`] for unknown flags. [`Misuse::NotSupported`] for a name, or for [`AvFlags::EVENT`].
    pub(crate) fn open(attr: &AvAttr, format: AddressFormat, domain: DomainId) -> Result<Self, Error> {
        let unknown = attr.flags.difference(AvFlags::all());
        if !unknown.is_empty() {
            return Err(Misuse::Flags(unknown.bits()).into());
        }
        if attr.name.is_some() && !mutated!("fi_av/shared-vector") {
            return Err(Misuse::NotSupported(Unsupported::NamedAddressVector).into());
        }
        if attr.flags.contains(AvFlags::EVENT) && !mutated!("fi_av/asynchronous-insertion") {
            return Err(Misuse::NotSupported(Unsupported::AsynchronousInsertion).into());
        }
        let shared = VectorShared {
            domain,
            av_type: attr.av_type.unwrap_or(AvType::Table),
            format,
            table: RwLock::new(Table::with_capacity(attr.count.min(RESERVE_MAX_ENTRIES))),
            version: AtomicU64::new(0),
            bound: AtomicUsize::new(0),
        };
        Ok(AddressVector { shared: Arc::new(shared) })
    }

    /// Returns the requested type, or the one that homespun chose.
    pub fn av_type(&self) -> AvType {
        self.shared.av_type
    }

    /// Returns the format of every address in the vector: the format of its domain.
    pub fn format(&self) -> AddressFormat {
        self.shared.format
    }

    /// Inserts addresses, as `fi_av_insert(3)` does. Returns a result for each.
    ///
    /// Each address gets its index before any address is checked. An invalid address leaves its index
    /// unused, and later addresses do not move up. So the application can compute the indices itself.
    ///
    /// # Errors
    ///
    /// For each address: [`Misuse::Invalid`] if it is of another format, a wildcard, or without a port.
    pub fn insert(&self, addresses: &[Address]) -> Vec<Result<FabricAddress, Error>> {
        self.update_table(|table| {
            let indices = table.lowest_vacant_indices(addresses.len());
            let insert = |(&address, index)| {
                self.check_address(address)?;
                table.insert(index, address);
                let is_lost = self.av_type() == AvType::Map && mutated!("fi_av/map-returns-addresses");
                Ok(FabricAddress(index | u64::from(is_lost) << 32))
            };
            addresses.iter().zip(indices).map(insert).collect()
        })
    }

    /// Inserts one address: `fi_av_insert(3)` with a count of 1.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_one(&self, address: Address) -> Result<FabricAddress, Error> {
        self.check_address(address)?;
        Ok(self.update_table(|table| {
            let index = table.lowest_vacant_index();
            table.insert(index, address);
            FabricAddress(index)
        }))
    }

    /// Returns the lowest fabric address of `address`. If the vector does not hold `address`, inserts it
    /// first.
    ///
    /// ```
    /// # use homespun::{AvAttr, Fabric, Hints};
    /// # let fabric = Fabric::new();
    /// # let domain = fabric.domain(&fabric.info(&Hints::new())?)?;
    /// let av = domain.open_av(&AvAttr::default())?;
    /// let peer = "127.0.0.1:7471".parse()?;
    /// assert_eq!(av.insert_if_absent(peer)?, av.insert_if_absent(peer)?);
    /// assert_eq!(av.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert).
    pub fn insert_if_absent(&self, address: Address) -> Result<FabricAddress, Error> {
        self.check_address(address)?;
        if let Some(known) = self.reverse_lookup(&address) {
            return Ok(known);
        }
        Ok(self.update_table(|table| {
            // Another thread may have inserted the address meanwhile.
            let index = table.lowest_index_of(address).unwrap_or_else(|| {
                let index = table.lowest_vacant_index();
                table.insert(index, address);
                index
            });
            FabricAddress(index)
        }))
    }

    /// Resolves a node and a service, and inserts the first address of the vector's format, as
    /// `fi_av_insertsvc(3)` does. The node is a host name or a numeric address. Resolving a name may block.
    ///
    /// # Errors
    ///
    /// [`Misuse::Unresolved`] if the node or the service does not resolve. [`Misuse::Unmet`] if no address
    /// that was found has the vector's format. And the errors of [`insert`](Self::insert).
    pub fn insert_svc(&self, node: &str, service: &str) -> Result<FabricAddress, Error> {
        self.insert_one(self.resolve_svc(node, service)?)
    }

    /// Resolves a node and a service, and returns the first address of the vector's format.
    fn resolve_svc(&self, node: &str, service: &str) -> Result<Address, Error> {
        let is_numeric = mutated!("fi_av/insertsvc");
        let found = resolve(Some(node), Some(service), AddressRole::Destination, is_numeric)?;
        let fits = |address: &Address| address.format() == self.shared.format;
        let address = found.into_iter().find(fits);
        Ok(address.ok_or(Misuse::Unmet(Unmet::AddressFormat(self.shared.format)))?)
    }

    /// Removes these addresses: `fi_av_remove(3)`. Ignores those that the vector does not have. The indices
    /// may be used again at once.
    pub fn remove(&self, addresses: &[FabricAddress]) {
        self.update_table(|table| {
            for address in addresses.iter().filter(|_| !mutated!("fi_av/removed-address-is-invalid")) {
                table.remove(address.0);
            }
        });
    }

    /// Returns the address behind a fabric address: `fi_av_lookup(3)`.
    ///
    /// # Errors
    ///
    /// [`Misuse::UnknownAddress`] if the vector has no such fabric address, or no longer has it.
    pub fn lookup(&self, address: FabricAddress) -> Result<Address, Error> {
        let found = self.shared.table.read().get(address.0);
        if mutated!("fi_av/lookup-returns-inserted-address") {
            return found.map(|found| found.with_port(0)).ok_or(Misuse::UnknownAddress(address.0).into());
        }
        found.ok_or_else(|| Misuse::UnknownAddress(address.0).into())
    }

    /// Returns the lowest fabric address of `address`, or `None` if the vector does not hold `address`.
    pub fn reverse_lookup(&self, address: &Address) -> Option<FabricAddress> {
        self.shared.table.read().lowest_index_of(*address).map(FabricAddress)
    }

    /// Returns the number of fabric addresses in the vector.
    pub fn len(&self) -> usize {
        self.shared.table.read().len()
    }

    /// Whether the vector is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes the vector: `fi_close`. Dropping the last clone of the handle frees the memory.
    ///
    /// # Errors
    ///
    /// [`Misuse::Busy`] while an endpoint is bound to the vector. The error returns the handle.
    pub fn close(self) -> Result<(), Rejected<Self>> {
        let is_bound = self.shared.bound.load(Ordering::Acquire) > 0;
        let is_filled = mutated!("fi_av/removal-is-optional") && !self.is_empty();
        if is_bound && !mutated!("fi_av/close-av-ebusy") || is_filled {
            return Err(Rejected { error: Misuse::Busy(InUse::AddressVector).into(), returned: self });
        }
        Ok(())
    }

    /// Returns a number that changes with every change of the vector. A caller that reads this number
    /// before it looks up an address may keep the result until the number changes.
    pub(crate) fn version(&self) -> u64 {
        self.shared.version.load(Ordering::Acquire)
    }

    /// Locks the table until the result is dropped.
    #[cfg(test)]
    pub(crate) fn lock_table(&self) -> impl Sized + '_ {
        self.shared.table.write()
    }

    /// Whether both are handles of one vector.
    pub(crate) fn is_same(&self, other: &AddressVector) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    pub(crate) fn domain(&self) -> DomainId {
        self.shared.domain
    }

    /// Counts an endpoint that is bound.
    pub(crate) fn add_binding(&self) {
        self.shared.bound.fetch_add(1, Ordering::AcqRel);
    }

    /// Undoes one [`add_binding`](Self::add_binding).
    pub(crate) fn remove_binding(&self) {
        self.shared.bound.fetch_sub(1, Ordering::AcqRel);
    }

    fn update_table<R>(&self, change: impl FnOnce(&mut Table) -> R) -> R {
        let mut table = self.shared.table.write();
        let result = change(&mut table);
        self.shared.version.fetch_add(1, Ordering::Release);
        result
    }

    /// Checks that messages can be sent to this address.
    fn check_address(&self, address: Address) -> Result<(), Error> {
        check_peer_address(address, self.shared.format)
    }
}

/// Checks that an address has this format, names one host, and has a port.
pub(crate) fn check_peer_address(address: Address, format: AddressFormat) -> Result<(), Error> {
    let refused = if address.format() != format && !mutated!("fi_av/insert-has-domain-format") {
        Argument::AddressFormat { accepted: format }
    } else if !address.is_specific() {
        Argument::WildcardPeer
    } else if address.port() == 0 {
        Argument::PeerWithoutPort
    } else {
        return Ok(());
    };
    Err(Misuse::Invalid(refused).into())
}

impl fmt::Debug for AddressVector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressVector")
            .field("av_type", &self.shared.av_type)
            .field("format", &self.shared.format)
            .field("len", &self.len())
            .finish()
    }
}

/// Returns the text of an address, as `fi_av_straddr(3)` does: `fi_sockaddr_in://127.0.0.1:7471`.
pub fn straddr(address: Address) -> String {
    match address.format() {
        AddressFormat::SockaddrIn => format!("fi_sockaddr_in://{address}"),
        AddressFormat::SockaddrIn6 => format!("fi_sockaddr_in6://{address}"),
    }
}

#[cfg(test)]
mod tests;
