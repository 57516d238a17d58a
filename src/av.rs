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
use crate::resolve::{AddressRole, resolve};
use table::Table;

/// For how many addresses room is made in advance at most, whatever [`AvAttr::count`] says.
const RESERVE_MAX_ENTRIES: usize = 1 << 16;

/// What an application calls a peer: `fi_addr_t`. It means something only together with its address vector.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FabricAddress(pub u64);

impl FabricAddress {
    /// No address: as the source of a receive "any" (`FI_ADDR_UNSPEC`), as the source in a
    /// completion "not in the address vector" (`FI_ADDR_NOTAVAIL`).
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

/// How to open an address vector: `struct fi_av_attr` of `fi_av(3)`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct AvAttr {
    /// The kind. `None` leaves the choice to homespun, which makes a table.
    pub av_type: Option<AvType>,
    /// How many addresses are expected; a hint that saves time, no limit.
    pub count: usize,
    /// How many endpoints each host is expected to have; a hint that is not looked at.
    pub ep_per_node: usize,
    /// How many bits of a fabric address name a receive context. Ignored: endpoints have one receive context,
    /// number 0, which sets none of these bits.
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
        /// Addresses of a vector that another process shares are only read. Ignored for a vector without a
        /// name.
        const READ = 1 << 8;
        /// Insertions are reported to an event queue. Not supported.
        const EVENT = 1 << 24;
        /// A promise of the application that every host has the same number of endpoints. Not made use of.
        const SYMMETRIC = 1 << 59;
    }
}

/// The peers that an application knows: it maps each [`Address`] to a [`FabricAddress`] and back.
/// See `fi_av(3)`.
///
/// A handle: clones refer to the same vector, which any thread may use at any time. A vector of
/// either type gives out indices. An address gets the lowest index that is not in use, so the first
/// gets 0 and, as long as nothing is removed, each that follows gets the next; a removed index is
/// given out again.
///
/// One address may be inserted many times and then has as many fabric addresses. All of them send
/// to the same peer; what comes from the peer is reported under the lowest. An entry takes about
/// 100 bytes.
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
/// av.remove(&[inserted])?;
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
    /// Grows with every change of `table`, after the change and while it is still locked: a thread
    /// that reads a version here finds at least the changes that led to it.
    version: AtomicU64,
    /// How many endpoints are bound.
    bound: AtomicUsize,
}

impl AddressVector {
    /// Opens a vector for addresses of one format.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotSupported`] for what [`AvAttr`] and [`AvFlags`] say is not, [`Misuse::Flags`]
    /// for unknown flags.
    pub(crate) fn open(attr: &AvAttr, format: AddressFormat, domain: DomainId) -> Result<Self, Error> {
        let unknown = attr.flags.difference(AvFlags::all());
        if !unknown.is_empty() {
            return Err(Misuse::Flags(unknown.bits()).into());
        }
        if attr.name.is_some() {
            return Err(Misuse::NotSupported(Unsupported::NamedAddressVector).into());
        }
        if attr.flags.contains(AvFlags::EVENT) {
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

    /// The type asked for, or the one chosen if none was.
    pub fn av_type(&self) -> AvType {
        self.shared.av_type
    }

    /// The format of every address in the vector: that of its domain.
    pub fn format(&self) -> AddressFormat {
        self.shared.format
    }

    /// Inserts addresses, as `fi_av_insert(3)` does. Returns a result for each.
    ///
    /// The indices are set before the first address is looked at. One that cannot be inserted
    /// leaves its index unused, and those behind it get the index that they would have had; so an
    /// application that counts for itself finds each address where it expects it.
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
                Ok(FabricAddress(index))
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

    /// The lowest fabric address of this address, which is inserted if the vector does not hold it.
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
            // Another thread may have inserted it meanwhile.
            let index = table.lowest_index_of(address).unwrap_or_else(|| {
                let index = table.lowest_vacant_index();
                table.insert(index, address);
                index
            });
            FabricAddress(index)
        }))
    }

    /// Inserts the address that a node and a service name, as `fi_av_insertsvc(3)` does: the first
    /// one that the vector can hold. The node is a name or a numeric address; looking up a name may
    /// block.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoData`] if they name nothing of the vector's format, otherwise as [`insert`](Self::insert).
    pub fn insert_svc(&self, node: &str, service: &str) -> Result<FabricAddress, Error> {
        self.insert_one(self.resolve_svc(node, service)?)
    }

    /// The first address of a node and a service that the vector can hold.
    fn resolve_svc(&self, node: &str, service: &str) -> Result<Address, Error> {
        let found = resolve(Some(node), Some(service), AddressRole::Destination, false)?;
        let fits = |address: &Address| address.format() == self.shared.format;
        let address = found.into_iter().find(fits);
        Ok(address.ok_or(Misuse::NoData(Unmet::AddressFormat(self.shared.format)))?)
    }

    /// Removes addresses: all of them, or none if there is an error. Their indices may be given out
    /// again at once.
    ///
    /// # Errors
    ///
    /// [`Misuse::UnknownAddress`] for one that is not in the vector, or is listed twice.
    pub fn remove(&self, addresses: &[FabricAddress]) -> Result<(), Error> {
        let mut indices: Vec<u64> = addresses.iter().map(|address| address.0).collect();
        indices.sort_unstable();
        if let Some(twice) = indices.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Misuse::UnknownAddress(twice[0]).into());
        }
        self.update_table(|table| {
            if let Some(&unknown) = indices.iter().find(|&&index| table.get(index).is_none()) {
                return Err(Misuse::UnknownAddress(unknown).into());
            }
            for &index in &indices {
                table.remove(index);
            }
            Ok(())
        })
    }

    /// The address that was inserted: `fi_av_lookup(3)`.
    ///
    /// # Errors
    ///
    /// [`Misuse::UnknownAddress`] if there is none, or it was removed.
    pub fn lookup(&self, address: FabricAddress) -> Result<Address, Error> {
        self.shared.table.read().get(address.0).ok_or_else(|| Misuse::UnknownAddress(address.0).into())
    }

    /// The lowest fabric address that this address has, if it is in the vector.
    pub fn reverse_lookup(&self, address: &Address) -> Option<FabricAddress> {
        self.shared.table.read().lowest_index_of(*address).map(FabricAddress)
    }

    /// How many fabric addresses the vector holds.
    pub fn len(&self) -> usize {
        self.shared.table.read().len()
    }

    /// Whether the vector is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Closes the vector: `fi_close`. The addresses are gone when the last clone of the handle is.
    ///
    /// # Errors
    ///
    /// [`Misuse::Busy`] while an endpoint is bound to it; the handle is handed back.
    pub fn close(self) -> Result<(), Rejected<Self>> {
        if self.shared.bound.load(Ordering::Acquire) > 0 {
            return Err(Rejected { error: Misuse::Busy(InUse::AddressVector).into(), returned: self });
        }
        Ok(())
    }

    /// A number that is another one after every change, so that what was looked up can be kept
    /// while it stays the same: take the version, then look up.
    pub(crate) fn version(&self) -> u64 {
        self.shared.version.load(Ordering::Acquire)
    }

    /// Holds the lock of the table.
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

    /// Counts an endpoint that is bound from now on.
    pub(crate) fn add_binding(&self) {
        self.shared.bound.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts an endpoint that is bound no longer. To be called once for each [`bind`](Self::bind).
    pub(crate) fn remove_binding(&self) {
        self.shared.bound.fetch_sub(1, Ordering::AcqRel);
    }

    fn update_table<R>(&self, change: impl FnOnce(&mut Table) -> R) -> R {
        let mut table = self.shared.table.write();
        let result = change(&mut table);
        self.shared.version.fetch_add(1, Ordering::Release);
        result
    }

    /// Whether messages could be sent to this address.
    fn check_address(&self, address: Address) -> Result<(), Error> {
        check_peer(address, self.shared.format)
    }
}

/// Whether an address of this format can be that of a peer.
pub(crate) fn check_peer(address: Address, format: AddressFormat) -> Result<(), Error> {
    let refused = if address.format() != format {
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

/// An address as `fi_av_straddr(3)` prints it, in the form `fi_sockaddr_in://127.0.0.1:7471`.
pub fn straddr(address: Address) -> String {
    match address.format() {
        AddressFormat::SockaddrIn => format!("fi_sockaddr_in://{address}"),
        AddressFormat::SockaddrIn6 => format!("fi_sockaddr_in6://{address}"),
    }
}

#[cfg(test)]
mod tests;
