//! Memory regions: `fi_mr(3)`.

#[cfg(target_arch = "x86_64")]
mod cache_lines;
mod file;
mod mappings;
mod persistent;

use std::fmt;
use std::fs::File;
use std::sync::Arc;

use homespun_engine::buffer::SegmentMut;
use homespun_engine::error::{BadMemory, Error, Misuse, ObjectState};
use homespun_engine::flags::{CounterEvents, MrAccess, MrFlags};
use homespun_engine::region::{CountAccess, Region, RegionAttr};
use homespun_engine::remote_memory::RemoteMemory;
use parking_lot::Mutex;

use crate::counter::{self, Counter};
use crate::domain::{self, Domain};
use crate::endpoint::Endpoint;
use crate::info::MrMode;
use crate::mutated;
use crate::region::file::MappedFile;
use crate::region::persistent::Persistent;

/// The attributes of a memory region: `struct fi_mr_attr`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MrAttr {
    /// What the memory may be used for; nothing by default, see [`granting`](Self::granting). homespun
    /// enforces only the rights of peers. Local buffers need no registration. Unknown bits are ignored.
    pub access: MrAccess,
    /// The key by which peers name the region. `None` lets the domain choose: 64 random bits, which peers
    /// cannot guess, or a shorter key if the domain has
    /// [shorter ones](crate::info::DomainAttr::mr_key_size_bytes). In a domain with [`MrMode::PROV_KEY`] or
    /// [`MrMode::BASIC`] this is ignored, and the domain always chooses. It is also ignored if `access` gives
    /// peers no rights: such a region has no key.
    pub requested_key: Option<u64>,
    /// Whether peers may map the memory. The region must be made by [`Domain::register`], in a domain whose
    /// provider supports sharing, such as `"shm"`. Otherwise the flag is ignored
    /// ([`MemoryRegion::is_shareable`]).
    ///
    /// After its first access a peer reads and writes the region by plain copies, without a system call and
    /// without the owner's help. These accesses still go through the owner: atomic operations, accesses with
    /// remote data or a fence, and accesses that a counter [counts](MemoryRegion::bind_counter).
    ///
    /// A peer also maps the memory to receive long messages that are sent from there, as from a send buffer
    /// ([`Domain::allocate_send_buffer`]).
    ///
    /// The rights of the region bind only honest peers: a malicious process of the same user can write to
    /// mapped memory. The memory takes whole pages, one more page, and a descriptor. It is freed when the
    /// last peer unmaps it.
    pub shareable: bool,
    /// Further requests. Unknown flags are ignored.
    pub flags: MrFlags,
}

impl MrAttr {
    /// Returns attributes that grant these rights to a region with a random key.
    ///
    /// ```
    /// use homespun::MrAttr;
    /// use homespun::flags::MrAccess;
    ///
    /// # let fabric = homespun::Fabric::new();
    /// # let domain = fabric.domain(&fabric.info(&homespun::Hints::new())?)?;
    /// let attr = MrAttr::granting(MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE);
    /// let region = domain.register(4096, &attr)?;
    /// # Ok::<(), homespun::Error>(())
    /// ```
    pub fn granting(access: MrAccess) -> MrAttr {
        MrAttr { access, ..MrAttr::default() }
    }
}

/// Memory that peers may read and write without a posted receive: a registered region, `fi_mr(3)`.
///
/// Peers name the region by its [`key`](Self::key), and a byte in it by an address. The first byte has the
/// address [`address`](Self::address). Peers reach the region through any endpoint of its domain with
/// [`REMOTE_READ`](crate::flags::Caps::REMOTE_READ) or [`REMOTE_WRITE`](crate::flags::Caps::REMOTE_WRITE).
///
/// [`Domain::register`] makes a region that owns its memory: the region's length, rounded up to 8 bytes, or
/// to whole pages if the region is shareable. [`Domain::register_raw`] makes a region of the caller's
/// memory, and [`Domain::register_file`] a region of a part of a file. [`read_at`](Self::read_at) and
/// [`write_at`](Self::write_at) copy from and to the memory, even while peers access it. There is no `&[u8]`
/// of the memory, since peers could change the bytes.
///
/// A counter can count accesses by peers: see [`bind_counter`](Self::bind_counter). An application made for
/// [`MrMode::RMA_EVENT`] registers with [`MrFlags::RMA_EVENT`], binds the counters, and then calls
/// [`enable`](Self::enable). Before that call, peers cannot access the region.
///
/// Dropping the region closes it: `fi_close`. Accesses that are under way fail at their initiators. After
/// the drop no access touches the memory.
///
/// ```
/// use homespun::flags::{BindFlags, InfoFlags, MrAccess};
/// use homespun::{AvAttr, Bytes, CqAttr, Fabric, MrAttr};
///
/// # let fabric = Fabric::new();
/// # let info = &fabric.getinfo(Some("127.0.0.1"), None, InfoFlags::SOURCE, None)?[0];
/// # let domain = fabric.domain(info)?;
/// # let (cq, av) = (domain.open_cq(&CqAttr::default())?, domain.open_av(&AvAttr::default())?);
/// # let endpoint = domain.endpoint(info)?;
/// # endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
/// # endpoint.bind_av(&av)?;
/// # endpoint.enable()?;
/// # let own = av.insert(&[endpoint.name()?]).remove(0)?;
/// let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
/// let region = domain.register(4096, &MrAttr::granting(access))?;
///
/// // The endpoint writes to itself, at the 100th byte of the region.
/// endpoint.write(Bytes::from_static(b"hello"), own, region.remote().offset(100), 1)?;
/// while cq.read().expect("no failure").is_none() {}
/// let mut written = [0; 5];
/// region.read_at(100, &mut written)?;
/// assert_eq!(&written, b"hello");
/// # Ok::<(), homespun::Error>(())
/// ```
pub struct MemoryRegion {
    region: Arc<Region>,
    domain: Arc<domain::DomainShared>,
    /// Whether the region was registered disabled. Then it accepts counters and endpoints only until it is
    /// enabled.
    needs_enable: bool,
    /// One entry for each binding.
    counters: Mutex<Vec<Arc<counter::CounterShared>>>,
}

impl Domain {
    /// Registers new memory that the region owns, all zeros at first: `fi_mr_reg`.
    ///
    /// # Errors
    ///
    /// [`Misuse::Memory`] for a length of 0, for more memory than there is, and with
    /// [`MrFlags::RMA_PMEM`], since this memory is not persistent. [`Misuse::KeyInUse`] if another region of
    /// the domain has the key, [`Misuse::KeyTooLong`] if the requested key exceeds the
    /// [key size](crate::info::DomainAttr::mr_key_size_bytes) of the domain. The system's error for
    /// [shareable](MrAttr::shareable) memory: ENOMEM, EMFILE.
    pub fn register(&self, len_bytes: usize, attr: &MrAttr) -> Result<MemoryRegion, Error> {
        if attr.flags.contains(MrFlags::RMA_PMEM) {
            return Err(Misuse::Memory(BadMemory::NotPersistent).into());
        }
        let shared =
            if attr.shareable && len_bytes > 0 { self.shared.allocate_shareable(len_bytes)? } else { None };
        self.make_region_and_register(attr, |attr| match &shared {
            Some(memory) => Region::shareable(memory.clone(), len_bytes, attr),
            None => Region::owned(len_bytes, attr),
        })
    }

    /// Registers the caller's memory: `fi_mr_reg`, `fi_mr_regv`. The region is the concatenation of up to
    /// [`mr_iov_limit`](crate::info::DomainAttr::mr_iov_limit) segments. Segments may be empty. A single
    /// segment at the null address stands for the whole address space, even though most of its addresses are
    /// unmapped.
    ///
    /// With [`MrFlags::RMA_PMEM`] the memory must consist of shared mappings of files. Peers may then wait
    /// until their writes are durable ([`COMMIT_COMPLETE`](crate::flags::OpFlags::COMMIT_COMPLETE)). On
    /// x86-64, homespun flushes the processor's caches if the file is mapped with `MAP_SYNC` or is a memory
    /// device (`/dev/dax*`). In all other cases it calls `msync(2)`, and the endpoint makes no progress
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// As [`register`](Self::register), except for a length of 0. Also [`Misuse::TooManySegments`], and
    /// [`Misuse::Memory`] without a segment, for a null address with a length among several segments, for
    /// [shareable](MrAttr::shareable) memory, and with `RMA_PMEM` for memory that is not a file's. The
    /// system's error if the mappings of persistent memory cannot be read.
    ///
    /// # Safety
    ///
    /// Until the region is dropped, every segment must be initialised memory that any thread may read, and
    /// may write if peers may write. Until then, Rust references to the memory must be references to atomics
    /// or cells. Bytes that a peer and another thread access at the same time have no particular value. The
    /// mapping of persistent memory must not change. If the region is the address space, these conditions
    /// hold only for memory that peers access, during each access.
    pub unsafe fn register_raw(&self, segments: &[SegmentMut], attr: &MrAttr) -> Result<MemoryRegion, Error> {
        if attr.shareable {
            return Err(Misuse::Memory(BadMemory::NotShareable).into());
        }
        // SAFETY: the caller promises that the mapping does not change until the region is dropped.
        let persistent = attr
            .flags
            .contains(MrFlags::RMA_PMEM)
            .then(|| unsafe { Persistent::from_segments(segments) })
            .transpose()?;
        self.make_region_and_register(attr, |attr| {
            // SAFETY: the caller keeps its promise until the `MemoryRegion` is dropped, and that drop
            // closes `region`.
            let region = unsafe { Region::raw(segments, attr)? };
            Ok(match &persistent {
                Some(persistent) => region.with_persistence(Box::new(persistent.clone())),
                None => region,
            })
        })
    }

    /// Maps a part of a file and registers it. The region is persistent memory, as with
    /// [`register_raw`](Self::register_raw) and [`MrFlags::RMA_PMEM`], but the caller promises nothing.
    /// `offset_bytes` must be a multiple of the page size. Peers see what other processes write to the file,
    /// and other processes see what peers write.
    ///
    /// The region takes no memory except the file's pages. The application may close the file. If the file
    /// is truncated while peers access the region, the system kills this process with SIGBUS.
    ///
    /// ```
    /// use homespun::flags::{BindFlags, InfoFlags, MrAccess, OpFlags};
    /// use homespun::endpoint::WriteMsg;
    /// use homespun::{AvAttr, Bytes, CqAttr, Fabric, MrAttr};
    ///
    /// # let fabric = Fabric::new();
    /// # let info = &fabric.getinfo(Some("127.0.0.1"), None, InfoFlags::SOURCE, None)?[0];
    /// # let domain = fabric.domain(info)?;
    /// # let (cq, av) = (domain.open_cq(&CqAttr::default())?, domain.open_av(&AvAttr::default())?);
    /// # let endpoint = domain.endpoint(info)?;
    /// # endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
    /// # endpoint.bind_av(&av)?;
    /// # endpoint.enable()?;
    /// # let to = av.insert(&[endpoint.name()?]).remove(0)?;
    /// # let path = std::env::temp_dir().join(format!("homespun-{}", std::process::id()));
    /// let file = std::fs::File::options().read(true).write(true).create_new(true).open(&path)?;
    /// file.set_len(4096)?;
    /// let region = domain.register_file(&file, 0, 4096, &MrAttr {
    ///     access: MrAccess::REMOTE_WRITE,
    ///     ..MrAttr::default()
    /// })?;
    ///
    /// // Here the endpoint writes to itself. When the write completes, the bytes are durable.
    /// endpoint.writemsg(WriteMsg {
    ///     buffers: vec![Bytes::from_static(b"for good")],
    ///     to,
    ///     memory: region.remote(),
    ///     flags: OpFlags::COMMIT_COMPLETE,
    ///     ..WriteMsg::default()
    /// })?;
    /// while cq.read().expect("no failure").is_none() {}
    /// assert!(std::fs::read(&path)?.starts_with(b"for good"));
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`register`](Self::register). Also [`Misuse::Memory`] for an offset that is not a multiple of the
    /// page size, for a range beyond the file's end, and for [shareable](MrAttr::shareable) memory. The
    /// system's error when the file is mapped, such as EACCES if the file is not open for reading and
    /// writing.
    pub fn register_file(
        &self,
        file: &File,
        offset_bytes: u64,
        len_bytes: usize,
        attr: &MrAttr,
    ) -> Result<MemoryRegion, Error> {
        if attr.shareable {
            return Err(Misuse::Memory(BadMemory::NotShareable).into());
        }
        let mapped = file::FileMemory(Arc::new(MappedFile::map(file, offset_bytes, len_bytes)?));
        self.make_region_and_register(attr, |attr| {
            let region = Region::kept_by(Box::new(mapped.clone()), len_bytes, attr)?;
            Ok(region.with_persistence(Box::new(mapped.clone())))
        })
    }

    fn make_region_and_register(
        &self,
        attr: &MrAttr,
        make: impl Fn(RegionAttr) -> Result<Region, Misuse>,
    ) -> Result<MemoryRegion, Error> {
        let MrAttr { requested_key, flags, .. } = *attr;
        let access = attr.access & MrAccess::all();
        let needs_enable = flags.contains(MrFlags::RMA_EVENT);
        let picks_key = !mutated!("fi_mr/provider-key")
            && self.shared.mr_mode().intersects(MrMode::PROV_KEY | MrMode::BASIC);
        let keys = self.shared.region_keys();
        let requested_key = match requested_key {
            _ if !access.gives_peers_rights() => Some(keys.unavailable()),
            Some(key) if !picks_key => Some(keys.checked_requested(key)?),
            _ => None,
        };
        let is_virtual = self.shared.mr_mode().intersects(MrMode::VIRT_ADDR | MrMode::BASIC)
            && !mutated!("fi_rma/address-is-virtual-or-offset");
        loop {
            let key = requested_key.map_or_else(|| keys.choose(), Ok)?;
            let region = make(RegionAttr { key, access, base_address: 0 })?;
            let region = if is_virtual { region.with_own_base_address() } else { region };
            let is_disabled = needs_enable && !mutated!("fi_mr/event-region-starts-disabled");
            let region = if is_disabled { region.into_disabled() } else { region };
            match self.shared.regions().add(region) {
                Ok(region) => {
                    let (domain, counters) = (self.shared.clone(), Mutex::default());
                    return Ok(MemoryRegion { region, domain, needs_enable, counters });
                }
                // Another region has the key that the domain has chosen. Choose again.
                Err(Misuse::KeyInUse(_)) if requested_key.is_none() => {}
                Err(misuse) => return Err(misuse.into()),
            }
        }
    }
}

impl MemoryRegion {
    /// Returns the key by which peers name the region: `fi_mr_key`. A region that gives peers no rights has
    /// no key; then this is the largest number that fits the [key size](Domain::key_size_bytes), of 8 bytes
    /// `FI_KEY_NOTAVAIL`, which no chosen key is.
    pub fn key(&self) -> u64 {
        self.region.key() ^ u64::from(mutated!("fi_mr/key-of-region"))
    }

    /// Returns the address by which peers name the first byte: 0, or in a domain that was opened with
    /// [`MrMode::VIRT_ADDR`] or [`MrMode::BASIC`], the byte's [own address](Self::as_ptr).
    pub fn address(&self) -> u64 {
        self.region.base_address()
    }

    /// Returns the [`address`](Self::address) of the first byte and the region's [`key`](Self::key). Peers
    /// use them as the target of an access.
    pub fn remote(&self) -> RemoteMemory {
        RemoteMemory { address: self.address(), key: self.key() }
    }

    /// Returns the address of the first segment of the memory in this process. Peers may access the same
    /// bytes at the same time. The memory must not be used after the region is dropped.
    pub fn as_ptr(&self) -> *mut u8 {
        self.region.as_ptr()
    }

    /// Returns the region's length in bytes.
    pub fn len_bytes(&self) -> usize {
        self.region.len_bytes()
    }

    /// Whether peers may map the memory. If not, accesses by peers need progress of this side. A counter
    /// that counts accesses makes this false.
    pub fn is_shareable(&self) -> bool {
        self.region.is_shareable()
    }

    /// Whether writes to the region can be made durable. [`Domain::register_file`] and [`MrFlags::RMA_PMEM`]
    /// register such regions.
    pub fn is_persistent(&self) -> bool {
        self.region.is_persistent()
    }

    /// Returns the access rights to the memory.
    pub fn access(&self) -> MrAccess {
        self.region.access()
    }

    /// Copies bytes from the region into all of `into`, starting at `offset_bytes`. If a peer writes at the
    /// same time, the copy may have a part of the write.
    ///
    /// # Errors
    ///
    /// [`Misuse::Memory`] if the range reaches beyond the region, or the region is the address space. Then
    /// nothing is copied.
    pub fn read_at(&self, offset_bytes: usize, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.region.read_at(offset_bytes, into)?)
    }

    /// Copies all of `from` into the region, starting at `offset_bytes`. A peer that reads at the same time
    /// may get a part of the new bytes.
    ///
    /// # Errors
    ///
    /// [`Misuse::Memory`] if the range reaches beyond the region, if the region is the address space, or if
    /// it is the caller's memory and peers may not write to it: such memory need not be writable. Then
    /// nothing is copied.
    pub fn write_at(&self, offset_bytes: usize, from: &[u8]) -> Result<(), Error> {
        Ok(self.region.write_at(offset_bytes, from)?)
    }
}

impl MemoryRegion {
    /// Binds a counter: `fi_mr_bind`. From now on it counts accesses of peers through endpoints that have
    /// [`Caps::RMA_EVENT`]. One counter may be bound for accesses that change the region
    /// ([`CounterEvents::REMOTE_WRITE`]), and one for accesses that read it
    /// ([`CounterEvents::REMOTE_READ`]).
    ///
    /// An atomic operation that fetches and changes is both; a counter that is bound for both counts it
    /// once. A compare-and-swap counts as a change even if it changes nothing. Refused accesses are not
    /// counted.
    ///
    /// Reads of the counter, and threads that wait for it, drive all endpoints of the domain that have
    /// [`Caps::RMA_EVENT`].
    ///
    /// ```
    /// use homespun::flags::{CounterEvents, MrAccess};
    /// use homespun::{BindFlags, Bytes, CounterAttr, Fabric, Hints, MrAttr};
    ///
    /// # let fabric = Fabric::new();
    /// # let info = &fabric.info(&Hints::new().node("127.0.0.1").source())?;
    /// # let domain = fabric.domain(info)?;
    /// # let (cq, av) = (domain.open_cq(&Default::default())?, domain.open_av(&Default::default())?);
    /// # let endpoint = domain.endpoint(info)?;
    /// # endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
    /// # endpoint.bind_av(&av)?;
    /// # endpoint.enable()?;
    /// # let own = av.insert_one(endpoint.name()?)?;
    /// let region = domain.register(4096, &MrAttr::granting(MrAccess::REMOTE_WRITE))?;
    /// let written = domain.open_counter(&CounterAttr::default())?;
    /// region.bind_counter(&written, CounterEvents::REMOTE_WRITE)?;
    ///
    /// // The endpoint writes to itself.
    /// endpoint.write(Bytes::from_static(b"hello"), own, region.remote(), 1)?;
    /// written.wait(1, None).expect("no failure and no signal");
    /// let mut bytes = [0; 5];
    /// region.read_at(0, &mut bytes)?;
    /// assert_eq!(&bytes, b"hello");
    /// # Ok::<(), homespun::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Misuse::Flags`] for other events, or none. [`Misuse::Busy`] if an event already has a counter.
    /// [`Misuse::OtherDomain`] for a counter of another domain. [`Misuse::State`] if the region was
    /// registered with [`MrFlags::RMA_EVENT`] and is enabled. The system's error if an endpoint cannot wake
    /// sleepers: ENOMEM, ENOSPC.
    ///
    /// [`Caps::RMA_EVENT`]: crate::Caps::RMA_EVENT
    pub fn bind_counter(&self, counter: &Counter, events: CounterEvents) -> Result<(), Error> {
        let counter = counter.shared();
        self.check_bindable(counter.domain() == self.domain.id())?;
        let is_refused = mutated!("fi_mr/event-region-flag");
        if events.is_empty() || !CounterEvents::OF_REGION.contains(events) || is_refused {
            return Err(Misuse::Flags(events.bits()).into());
        }
        let mut counters = self.counters.lock();
        // The counter must drive the endpoints before it counts. Otherwise a count might not wake its
        // sleepers.
        self.domain.domain_counters().add_counter_use(counter)?;
        let counting: Arc<dyn CountAccess> = counter.clone();
        if let Err(misuse) = self.region.bind_counter(events, &counting) {
            self.domain.domain_counters().remove_counter_use(counter);
            return Err(misuse.into());
        }
        counter.add_binding();
        counters.push(counter.clone());
        Ok(())
    }

    /// Declares an endpoint through which peers access the region: `fi_mr_bind`. Applications made for
    /// [`MrMode::ENDPOINT`] make this call. It has no effect, since regions belong to their domain here.
    ///
    /// # Errors
    ///
    /// [`Misuse::OtherDomain`] for an endpoint of another domain. [`Misuse::State`] as for
    /// [`bind_counter`](Self::bind_counter).
    pub fn bind_endpoint(&self, endpoint: &Endpoint) -> Result<(), Error> {
        let is_refused = mutated!("fi_mr/endpoint-region");
        self.check_bindable(endpoint.domain() == self.domain.id() && !is_refused)
    }

    /// Allows peers to access the region: `fi_mr_enable`. Only a region registered with
    /// [`MrFlags::RMA_EVENT`] needs this.
    pub fn enable(&self) {
        self.region.enable();
    }

    fn check_bindable(&self, is_of_same_domain: bool) -> Result<(), Error> {
        let may_bind_late = mutated!("fi_mr/no-binding-after-enable");
        if self.needs_enable && self.region.is_enabled() && !may_bind_late {
            return Err(Misuse::State(ObjectState::RegionEnabled).into());
        }
        if is_of_same_domain { Ok(()) } else { Err(Misuse::OtherDomain.into()) }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        self.domain.regions().close(&self.region);
        self.domain.wait_for_running_passes();
        for counter in self.counters.get_mut() {
            self.domain.domain_counters().remove_counter_use(counter);
            counter.remove_binding();
        }
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion").field("region", &self.region).finish_non_exhaustive()
    }
}
