//! Memory regions: `fi_mr(3)`.

use std::fmt;
use std::sync::Arc;

use homespun_engine::buffer::SegmentMut;
use homespun_engine::errno::Errno;
use homespun_engine::error::{Error, Misuse};
use homespun_engine::flags::MrAccess;
use homespun_engine::region::{Region, RegionAttr};

use crate::domain::{self, Domain};
use crate::info::MrMode;

/// What a memory region is registered with: `struct fi_mr_attr`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MrAttr {
    /// What may be done with the memory. Only what peers may do is enforced; local buffers need no registration.
    pub access: MrAccess,
    /// Reserved by `fi_mr(3)`: must be 0.
    pub offset: u64,
    /// The key that the region is to have. Not looked at in a domain that picks keys itself ([`MrMode::PROV_KEY`],
    /// [`MrMode::BASIC`]); such a key is 64 random bits.
    pub requested_key: u64,
    /// Whether peers may map the memory, where they can: with [`Domain::register`], in a domain whose provider has such
    /// memory, which is shared memory. Whoever has accessed the region once then does so by plain copies, without the owner's
    /// help and without a system call; what brings remote data still goes through the owner, and so does what waits for a
    /// fence. The memory takes whole pages, as they are touched, and one more, and a descriptor; it is given back when no
    /// peer has it mapped any more. It is ignored where there is no such memory: see
    /// [`MemoryRegion::is_shareable`].
    pub shareable: bool,
}

/// Memory that peers may read and write without a receive being posted: a registered region, `fi_mr(3)`.
///
/// Peers name it by its [`key`](Self::key), and a place in it by an address: that of its first byte is
/// [`address`](Self::address). They reach it through any endpoint of its domain that has the capabilities
/// [`REMOTE_READ`](crate::flags::Caps::REMOTE_READ) or [`REMOTE_WRITE`](crate::flags::Caps::REMOTE_WRITE).
///
/// A region that [`Domain::register`] makes owns its memory. [`read_at`](Self::read_at) and [`write_at`](Self::write_at)
/// copy from and to it while peers access it too; there is no `&[u8]` of it, since what it would show could change. It
/// costs its length rounded up to 8 bytes. One of [`Domain::register_raw`] is the caller's memory.
///
/// Dropping it closes it: `fi_close`. Accesses that are under way fail then at their initiators, and once the drop returns
/// nothing touches the memory.
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
/// endpoint.write(Bytes::from_static(b"hello"), own, region.address() + 100, region.key(), 1)?;
/// while cq.read().is_err() {}
/// let mut written = [0; 5];
/// region.read_at(100, &mut written)?;
/// assert_eq!(&written, b"hello");
/// # Ok::<(), homespun::Error>(())
/// ```
pub struct MemoryRegion {
    region: Arc<Region>,
    domain: Arc<domain::Shared>,
}

impl Domain {
    /// Registers memory that the region owns, all zeros at first: `fi_mr_reg`.
    ///
    /// # Errors
    ///
    /// [`Misuse::Invalid`] for a length of 0 or one that there is no memory for, for rights that are not known, or for an
    /// offset; [`Misuse::KeyInUse`] if another region of the domain has the key; what the system says of memory that is to
    /// be [shareable](MrAttr::shareable): ENOMEM, EMFILE.
    pub fn register(&self, len_bytes: usize, attr: &MrAttr) -> Result<MemoryRegion, Error> {
        let shared =
            if attr.shareable && len_bytes > 0 { self.shared.allocate_shareable(len_bytes)? } else { None };
        self.enter(attr, 0, |attr| match &shared {
            Some(memory) => Region::shareable(memory.clone(), len_bytes, attr),
            None => Region::owned(len_bytes, attr),
        })
    }

    /// Registers the caller's memory, in up to [`mr_iov_limit`](crate::info::DomainAttr::mr_iov_limit) segments, which
    /// follow each other as if they were one: `fi_mr_reg`, `fi_mr_regv`.
    ///
    /// # Errors
    ///
    /// As [`register`](Self::register); besides [`Misuse::TooManySegments`], and [`Misuse::Invalid`] for a null address with
    /// a length, and for memory that is to be [shareable](MrAttr::shareable).
    ///
    /// # Safety
    ///
    /// Every segment must be initialised memory that is readable, and writable if peers may write, from any thread, until the
    /// region was dropped. Until then nothing holds a Rust reference to it, other than to atomics or cells; what a peer
    /// and somebody else access at the same time has no particular value.
    pub unsafe fn register_raw(&self, segments: &[SegmentMut], attr: &MrAttr) -> Result<MemoryRegion, Error> {
        if attr.shareable {
            return Err(Misuse::Invalid("memory of the caller's, to be mapped by peers").into());
        }
        let is_virtual = self.shared.mr_mode().intersects(MrMode::VIRT_ADDR | MrMode::BASIC);
        let first = segments.first().filter(|_| is_virtual);
        let base_address = first.map_or(0, |segment| segment.address.expose_provenance() as u64);
        // SAFETY: the caller promises the same until the region is dropped, and by the end of that it has ended.
        self.enter(attr, base_address, |attr| unsafe { Region::raw(segments, attr) })
    }

    fn enter(
        &self,
        attr: &MrAttr,
        base_address: u64,
        make: impl Fn(RegionAttr) -> Result<Region, Misuse>,
    ) -> Result<MemoryRegion, Error> {
        let MrAttr { access, offset, requested_key, .. } = *attr;
        if offset != 0 {
            return Err(Misuse::Invalid("an offset of a memory region, which must be 0").into());
        }
        if !MrAccess::all().contains(access) {
            return Err(Misuse::Invalid("rights that are not known").into());
        }
        let picks_key = self.shared.mr_mode().intersects(MrMode::PROV_KEY | MrMode::BASIC);
        loop {
            let key = if picks_key { random_key()? } else { requested_key };
            let region = make(RegionAttr { key, access, base_address })?;
            match self.shared.regions().add(region) {
                Ok(region) => return Ok(MemoryRegion { region, domain: self.shared.clone() }),
                // As good as never.
                Err(Misuse::KeyInUse(_)) if picks_key => {}
                Err(misuse) => return Err(misuse.into()),
            }
        }
    }
}

/// A key that nobody guesses, and that is not the one which says that there is none (`FI_KEY_NOTAVAIL`).
fn random_key() -> Result<u64, Error> {
    let key = getrandom::u64().map_err(|error| Error::System {
        call: "drawing a random number",
        errno: error.raw_os_error().map_or(Errno::EIO, Errno::new),
    })?;
    Ok(key & !(1 << 63))
}

impl MemoryRegion {
    /// The key by which peers name the region: `fi_mr_key`.
    pub fn key(&self) -> u64 {
        self.region.key()
    }

    /// The address of the first byte, as peers name it: 0, but for raw memory in a domain that was opened with
    /// [`MrMode::VIRT_ADDR`] or [`MrMode::BASIC`] its own address.
    pub fn address(&self) -> u64 {
        self.region.base_address()
    }

    /// How long the region is, in bytes.
    pub fn len_bytes(&self) -> usize {
        self.region.len_bytes()
    }

    /// Whether peers may map the memory. For any other memory they need this side's progress.
    pub fn is_shareable(&self) -> bool {
        self.region.is_shareable()
    }

    /// What may be done with the memory.
    pub fn access(&self) -> MrAccess {
        self.region.access()
    }

    /// Copies from the region into all of `into`, `offset_bytes` from its start. Of what a peer writes at the same moment a
    /// part may be there.
    ///
    /// # Errors
    ///
    /// [`Misuse::Invalid`] if the region does not reach so far; nothing is copied then.
    pub fn read_at(&self, offset_bytes: usize, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.region.read_at(offset_bytes, into)?)
    }

    /// Copies all of `from` into the region, `offset_bytes` from its start. A peer that reads at the same moment may get a
    /// part of it.
    ///
    /// # Errors
    ///
    /// [`Misuse::Invalid`] if the region does not reach so far; nothing is copied then.
    pub fn write_at(&self, offset_bytes: usize, from: &[u8]) -> Result<(), Error> {
        Ok(self.region.write_at(offset_bytes, from)?)
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        self.domain.regions().close(&self.region);
        self.domain.settle();
    }
}

impl fmt::Debug for MemoryRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion").field("region", &self.region).finish_non_exhaustive()
    }
}
