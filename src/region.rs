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
use homespun_engine::errno::Errno;
use homespun_engine::error::{BadMemory, Error, Misuse, ObjectState};
use homespun_engine::flags::{CounterEvents, MrAccess, MrFlags};
use homespun_engine::region::{CountAccess, Region, RegionAttr};
use homespun_engine::remote_memory::RemoteMemory;
use parking_lot::Mutex;

use crate::counter::{self, Counter};
use crate::domain::{self, Domain};
use crate::endpoint::Endpoint;
use crate::info::MrMode;
use crate::region::file::MappedFile;
use crate::region::persistent::Persistent;

/// The attributes of a memory region: `struct fi_mr_attr`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MrAttr {
    /// The allowed uses of the memory; none by default, see [`granting`](Self::granting). Only those of
    /// peers are enforced; local buffers need no
    /// registration. Other bits, such as the capabilities that some programs pass, are ignored.
    pub access: MrAccess,
    /// Reserved by `fi_mr(3)`: must be 0.
    pub offset: u64,
    /// The key of the region. Ignored in a domain that picks keys itself ([`MrMode::PROV_KEY`],
    /// [`MrMode::BASIC`]); such a key is 64 random bits.
    pub requested_key: u64,
    /// Whether peers may map the memory. This needs [`Domain::register`], and a domain whose provider
    /// supports it, as `"shm"` does. After its first access a peer accesses the region by plain copies,
    /// without the owner's help and without a system call.
    /// Accesses with remote data or a fence still go through the owner, and so do
    /// [counted](MemoryRegion::bind_counter) ones. The rights of the region bind only honest peers:
    /// a malicious process of the same user can write to mapped memory. The memory takes whole pages,
    /// as they are touched, one more page, and a descriptor; it is freed when the last peer unmaps it.
    /// Elsewhere the flag is ignored: see [`MemoryRegion::is_shareable`].
    pub shareable: bool,
    /// Further requests. Unknown flags are ignored.
    pub flags: MrFlags,
}

impl MrAttr {
    /// Returns attributes that grant these rights, and are else the defaults, which grant none.
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
/// Peers name it by its [`key`](Self::key), and a byte in it by an address: that of its first byte is
/// [`address`](Self::address). They reach it through any endpoint of its domain that has the capabilities
/// [`REMOTE_READ`](crate::flags::Caps::REMOTE_READ) or [`REMOTE_WRITE`](crate::flags::Caps::REMOTE_WRITE).
///
/// A region that [`Domain::register`] makes owns its memory. [`read_at`](Self::read_at) and
/// [`write_at`](Self::write_at) copy from and to it while peers access it too; it offers no `&[u8]`,
/// since peers could change the bytes. It costs its length rounded up to 8 bytes. One of
/// [`Domain::register_raw`] is the caller's memory, and one of [`Domain::register_file`] is a file.
///
/// Accesses by peers can be counted: see [`bind_counter`](Self::bind_counter). With
/// [`MrFlags::RMA_EVENT`], which applications made for [`MrMode::RMA_EVENT`] pass, peers can access the
/// region only after [`enable`](Self::enable), so that its counters are bound by then.
///
/// Dropping it closes it: `fi_close`. Accesses that are under way fail at their initiators, and once the
/// drop returns no access touches the memory.
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
/// let region = domain.register(4096, &MrAttr { access, requested_key: 7, ..MrAttr::default() })?;
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
    /// Whether the region was registered disabled, and allows no binding once it is enabled.
    needs_enable: bool,
    /// One entry for each binding.
    counters: Mutex<Vec<Arc<counter::CounterShared>>>,
}

impl Domain {
    /// Registers new memory that the region owns, all zeros at first: `fi_mr_reg`.
    ///
    /// # Errors
    ///
    /// [`Misuse::Memory`] for a length of 0 or more memory than there is, for an offset, or for
    /// memory as [persistent](MrFlags::RMA_PMEM), which this is not; [`Misuse::KeyInUse`] if
    /// another region of the domain has the key; the system's error for
    /// [shareable](MrAttr::shareable) memory: ENOMEM, EMFILE.
    pub fn register(&self, len_bytes: usize, attr: &MrAttr) -> Result<MemoryRegion, Error> {
        if attr.flags.contains(MrFlags::RMA_PMEM) {
            return Err(Misuse::Memory(BadMemory::NotPersistent).into());
        }
        let shared =
            if attr.shareable && len_bytes > 0 { self.shared.allocate_shareable(len_bytes)? } else { None };
        self.register_with_key(attr, |attr| match &shared {
            Some(memory) => Region::shareable(memory.clone(), len_bytes, attr),
            None => Region::owned(len_bytes, attr),
        })
    }

    /// Registers the caller's memory, in up to
    /// [`mr_iov_limit`](crate::info::DomainAttr::mr_iov_limit) segments, which follow each other as
    /// if they were one: `fi_mr_reg`, `fi_mr_regv`. They may be empty. A single segment at the
    /// null address is the address space from its beginning on, where most addresses are unmapped.
    ///
    /// With [`MrFlags::RMA_PMEM`] the memory must be that of shared mappings of files, and peers
    /// may wait until their writes are durable
    /// ([`COMMIT_COMPLETE`](crate::OpFlags::COMMIT_COMPLETE)). For a file that is
    /// mapped with `MAP_SYNC`, or a device that is memory, the processor's caches are flushed; for others
    /// `msync(2)` is called, and the endpoint makes no progress meanwhile. This call asks the system once
    /// how the memory is mapped.
    ///
    /// # Errors
    ///
    /// As [`register`](Self::register), but for a length of 0; besides [`Misuse::TooManySegments`],
    /// and [`Misuse::Memory`] for no segment, for a null address with a length among others, for
    /// memory that is to be [shareable](MrAttr::shareable), and for persistent memory that is not a
    /// file's; the system's error when it is asked how persistent memory is mapped.
    ///
    /// # Safety
    ///
    /// Every segment must be initialised memory that is readable, and writable if peers may write,
    /// from any thread, until the region was dropped. Until then no Rust reference to it exists, other
    /// than to atomics or cells; bytes that a peer and another thread access at the same time have no
    /// particular value. Persistent memory stays mapped as it is. For the address space as a region, this
    /// holds for all memory that peers access, during the access.
    pub unsafe fn register_raw(&self, segments: &[SegmentMut], attr: &MrAttr) -> Result<MemoryRegion, Error> {
        if attr.shareable {
            return Err(Misuse::Memory(BadMemory::NotShareable).into());
        }
        // SAFETY: the caller promises that its mapping does not change until the region is dropped.
        let persistent = attr
            .flags
            .contains(MrFlags::RMA_PMEM)
            .then(|| unsafe { Persistent::from_segments(segments) })
            .transpose()?;
        self.register_with_key(attr, |attr| {
            // SAFETY: the caller promises the same until the `MemoryRegion` is dropped, and its
            // drop closes this region.
            let region = unsafe { Region::raw(segments, attr)? };
            Ok(match &persistent {
                Some(persistent) => region.with_persistence(Box::new(persistent.clone())),
                None => region,
            })
        })
    }

    /// Registers a part of a file, which is mapped for it: persistent memory, as with
    /// [`register_raw`](Self::register_raw) and [`MrFlags::RMA_PMEM`], without a promise by the
    /// caller. It begins at `offset_bytes` in the file, a multiple of the size of a page. Peers read what
    /// other processes write to the file, and the other way round.
    ///
    /// It takes no memory besides the file's pages, and no descriptor once the file is closed.
    /// Truncating the file while peers access it ends this process: the system sends it SIGBUS.
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
    /// As [`register`](Self::register); besides [`Misuse::Memory`] for another offset, for more
    /// than the file has, and for memory that is to be [shareable](MrAttr::shareable); the system's
    /// error when the file is mapped, such as EACCES for a file that is not open for reading
    /// and writing.
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
        self.register_with_key(attr, |attr| {
            let region = Region::kept_by(Box::new(mapped.clone()), len_bytes, attr)?;
            Ok(region.with_persistence(Box::new(mapped.clone())))
        })
    }

    fn register_with_key(
        &self,
        attr: &MrAttr,
        make: impl Fn(RegionAttr) -> Result<Region, Misuse>,
    ) -> Result<MemoryRegion, Error> {
        let MrAttr { offset, requested_key, flags, .. } = *attr;
        let access = attr.access & MrAccess::all();
        if offset != 0 {
            return Err(Misuse::Memory(BadMemory::RegionOffset).into());
        }
        let needs_enable = flags.contains(MrFlags::RMA_EVENT);
        let picks_key = self.shared.mr_mode().intersects(MrMode::PROV_KEY | MrMode::BASIC);
        let is_virtual = self.shared.mr_mode().intersects(MrMode::VIRT_ADDR | MrMode::BASIC);
        loop {
            let key = if picks_key { random_key()? } else { requested_key };
            let region = make(RegionAttr { key, access, base_address: 0 })?;
            let region = if is_virtual { region.with_own_base_address() } else { region };
            let region = if needs_enable { region.into_disabled() } else { region };
            match self.shared.regions().add(region) {
                Ok(region) => {
                    let (domain, counters) = (self.shared.clone(), Mutex::default());
                    return Ok(MemoryRegion { region, domain, needs_enable, counters });
                }
                // Another region has this random key, which is very unlikely: draw another one.
                Err(Misuse::KeyInUse(_)) if picks_key => {}
                Err(misuse) => return Err(misuse.into()),
            }
        }
    }
}

/// Returns a key that peers cannot guess, and that is not `FI_KEY_NOTAVAIL`.
fn random_key() -> Result<u64, Error> {
    const FI_KEY_NOTAVAIL: u64 = u64::MAX;
    loop {
        let key = getrandom::u64().map_err(|error| Error::System {
            call: "drawing a random number",
            errno: error.raw_os_error().map_or(Errno::EIO, Errno::new),
        })?;
        if key != FI_KEY_NOTAVAIL {
            return Ok(key);
        }
    }
}

impl MemoryRegion {
    /// Returns the key by which peers name the region: `fi_mr_key`.
    pub fn key(&self) -> u64 {
        self.region.key()
    }

    /// Returns the address by which peers name the first byte: 0, or its [own
    /// address](Self::as_ptr) in a domain that was opened with [`MrMode::VIRT_ADDR`] or
    /// [`MrMode::BASIC`].
    pub fn address(&self) -> u64 {
        self.region.base_address()
    }

    /// Returns the region's first byte as peers name it in reads, writes and atomic operations: its
    /// [`address`](Self::address) and [`key`](Self::key).
    pub fn remote(&self) -> RemoteMemory {
        RemoteMemory { address: self.address(), key: self.key() }
    }

    /// Where the memory begins in this process: that of the first segment, where it has several.
    /// Peers may access the same bytes at the same moment. The memory is gone once the region was
    /// dropped.
    pub fn as_ptr(&self) -> *mut u8 {
        self.region.as_ptr()
    }

    /// Returns the region's length in bytes.
    pub fn len_bytes(&self) -> usize {
        self.region.len_bytes()
    }

    /// Whether peers may map the memory; they may not once a counter counts their accesses.
    /// Accesses to any other memory need progress of this side.
    pub fn is_shareable(&self) -> bool {
        self.region.is_shareable()
    }

    /// Whether writes to it can be made durable: [`MrFlags::RMA_PMEM`], [`Domain::register_file`].
    pub fn is_persistent(&self) -> bool {
        self.region.is_persistent()
    }

    /// Returns the access rights to the memory.
    pub fn access(&self) -> MrAccess {
        self.region.access()
    }

    /// Copies from the region into all of `into`, `offset_bytes` from its start. A write by a peer
    /// at the same moment may be copied in part.
    ///
    /// # Errors
    ///
    /// [`Misuse::Memory`] if the region does not reach so far, or is the address space; no byte is
    /// copied.
    pub fn read_at(&self, offset_bytes: usize, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.region.read_at(offset_bytes, into)?)
    }

    /// Copies all of `from` into the region, from `offset_bytes` on. A peer that reads at the same
    /// time may get a part of it.
    ///
    /// # Errors
    ///
    /// [`Misuse::Memory`] if the region does not reach so far, is the address space, or is the
    /// caller's memory that peers may not write, and that need not be writable; no byte is copied.
    pub fn write_at(&self, offset_bytes: usize, from: &[u8]) -> Result<(), Error> {
        Ok(self.region.write_at(offset_bytes, from)?)
    }
}

impl MemoryRegion {
    /// Has a counter count accesses of peers to the region, through endpoints that have [`Caps::RMA_EVENT`]:
    /// `fi_mr_bind`. One counter may be bound for accesses that change the region
    /// ([`CounterEvents::REMOTE_WRITE`]), and one for accesses that read it
    /// ([`CounterEvents::REMOTE_READ`]). An atomic operation that fetches and changes is both, and a counter
    /// that is bound for both counts it once; a compare-and-swap counts as a change even if it compares
    /// unequal. A refused access is not counted:
    /// its initiator gets the error.
    ///
    /// Reading the counter and waiting for it drive progress of all these endpoints of the domain.
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
    /// let attr = MrAttr { access: MrAccess::REMOTE_WRITE, requested_key: 7, ..MrAttr::default() };
    /// let region = domain.register(4096, &attr)?;
    /// let written = domain.open_counter(&CounterAttr::default())?;
    /// region.bind_counter(&written, CounterEvents::REMOTE_WRITE)?;
    ///
    /// // The endpoint writes to itself.
    /// endpoint.write(Bytes::from_static(b"hello"), own, region.remote(), 1)?;
    /// written.wait(1, None).expect("nothing ends the wait before");
    /// let mut bytes = [0; 5];
    /// region.read_at(0, &mut bytes)?;
    /// assert_eq!(&bytes, b"hello");
    /// # Ok::<(), homespun::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Misuse::Flags`] for other events, or none; [`Misuse::Busy`] if an event has a counter
    /// already; [`Misuse::OtherDomain`] for a counter of another domain; [`Misuse::State`] if the
    /// region was registered with [`MrFlags::RMA_EVENT`] and is enabled; the system's error if an
    /// endpoint cannot wake sleepers: ENOMEM, ENOSPC.
    ///
    /// [`Caps::RMA_EVENT`]: crate::Caps::RMA_EVENT
    pub fn bind_counter(&self, counter: &Counter, events: CounterEvents) -> Result<(), Error> {
        let counter = counter.shared();
        self.check_binding(counter.domain() == self.domain.id())?;
        if events.is_empty() || !CounterEvents::OF_REGION.contains(events) {
            return Err(Misuse::Flags(events.bits()).into());
        }
        let mut counters = self.counters.lock();
        // The counter must drive the endpoints before it can count, so that every count wakes its
        // sleepers.
        self.domain.domain_counters().add(counter)?;
        let counting: Arc<dyn CountAccess> = counter.clone();
        if let Err(misuse) = self.region.bind_counter(events, &counting) {
            self.domain.domain_counters().remove(counter);
            return Err(misuse.into());
        }
        counter.add_binding();
        counters.push(counter.clone());
        Ok(())
    }

    /// Names an endpoint through which peers access the region, for applications made for
    /// [`MrMode::ENDPOINT`]: `fi_mr_bind`. Regions belong to their domain here, so the call has no effect.
    ///
    /// # Errors
    ///
    /// [`Misuse::OtherDomain`] for an endpoint of another domain; [`Misuse::State`] as for
    /// [`bind_counter`](Self::bind_counter).
    pub fn bind_endpoint(&self, endpoint: &Endpoint) -> Result<(), Error> {
        self.check_binding(endpoint.domain() == self.domain.id())
    }

    /// Allows peers to access the region: `fi_mr_enable`. A region that was registered without
    /// [`MrFlags::RMA_EVENT`] is enabled from the start.
    pub fn enable(&self) {
        self.region.enable();
    }

    fn check_binding(&self, is_of_domain: bool) -> Result<(), Error> {
        if self.needs_enable && self.region.is_enabled() {
            return Err(Misuse::State(ObjectState::RegionEnabled).into());
        }
        if is_of_domain { Ok(()) } else { Err(Misuse::OtherDomain.into()) }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        self.domain.regions().close(&self.region);
        self.domain.wait_for_running_passes();
        for counter in self.counters.get_mut() {
            self.domain.domain_counters().remove(counter);
            counter.remove_binding();
        }
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion").field("region", &self.region).finish_non_exhaustive()
    }
}
