//! `fi_mr(3)`.

use homespun::flags::{CounterEvents, MrAccess, MrFlags};
use homespun::info::Version;
use homespun::limits::{KEY_MAX_BYTES, KEY_MIN_BYTES};
use homespun::mutated;
use homespun::{Errno, MemoryRegion, Misuse, MrAttr, SegmentMut};
use libc::{c_int, c_void, iovec};
use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::abi::domain::{FiMrAttr, FiOpsMr, FidMr};
use crate::abi::fabric::{FiMrMapRaw, FiMrRawAttr};
use crate::abi::fid::{FiOps, Fid};
use crate::abi::{FI_CLASS_CNTR, FI_CLASS_EP, FI_CLASS_MR, FI_ENABLE, FI_GET_RAW_MR, FI_REFRESH};
use crate::c_misuse::CMisuse;
use crate::counter::CounterState;
use crate::edge::{Failure, run_entry_point};
use crate::object::{self, Lease, State};
use crate::posting::segments_mut;
use crate::states::{DomainState, EndpointState};

/// The object behind a `struct fid_mr`.
struct MrState {
    /// The only handle of the region: dropping it closes the region. This must be the first field,
    /// because the region must close before the leases below are dropped.
    region: MemoryRegion,
    /// The size of the keys of the domain.
    key_size_bytes: usize,
    /// The leases of the objects bound to the region.
    bound: Mutex<Vec<Lease>>,
    _domain: Lease,
}

// SAFETY: `struct fid_mr` begins with a `struct fid`.
unsafe impl State for MrState {
    type Front = FidMr;
    const CLASS: usize = FI_CLASS_MR;
}

static FID_OPS: FiOps = FiOps { close, bind, control, ..FiOps::UNSUPPORTED };

pub(crate) static OPS: FiOpsMr = FiOpsMr { size: size_of::<FiOpsMr>(), reg, regv, regattr };

/// With this flag `struct fi_mr_dmabuf` describes a buffer of a device. Headers have the flag since
/// 1.20.
const FI_MR_DMABUF: u64 = 1 << 40;

unsafe extern "C" fn reg(
    domain: *mut Fid,
    buf: *const c_void,
    len: usize,
    access: u64,
    _offset: u64,
    requested_key: u64,
    flags: u64,
    mr: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    run_entry_point(|| {
        let segment = SegmentMut { address: buf.cast_mut().cast(), len_bytes: len };
        let attr = make_mr_attr(access, requested_key, flags);
        // SAFETY: the caller keeps to `fi_mr(3)`.
        unsafe { register(domain, &[segment], &attr, mr, context) }
    })
}

unsafe extern "C" fn regv(
    domain: *mut Fid,
    iov: *const iovec,
    count: usize,
    access: u64,
    _offset: u64,
    requested_key: u64,
    flags: u64,
    mr: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller keeps to `fi_mr(3)`.
        let segments: SmallVec<_> = unsafe { segments_mut(iov, count)? };
        let attr = make_mr_attr(access, requested_key, flags);
        // SAFETY: as above.
        unsafe { register(domain, &segments, &attr, mr, context) }
    })
}

unsafe extern "C" fn regattr(
    domain: *mut Fid,
    from: *const FiMrAttr,
    flags: u64,
    mr: *mut *mut FidMr,
) -> c_int {
    run_entry_point(|| {
        if from.is_null() {
            return Err(Errno::EINVAL.into());
        }
        // SAFETY: the caller passes an open domain.
        let api_version = unsafe { object::state::<DomainState>(domain.cast())? }.api_version;
        if flags & FI_MR_DMABUF != 0 {
            return Err(Misuse::Flags(FI_MR_DMABUF).into());
        }
        // SAFETY: `from` is not null, so valid, and its vectors describe the memory. Every version
        // of the structure has these fields except `auth_key_size`, which 1.5 added.
        let (segments, attr, context) = unsafe {
            if api_version >= Version::new(1, 5)
                && (*from).auth_key_size != 0
                && !mutated!("fi_mr/authorization-keys")
            {
                return Err(CMisuse::RegionAuthorization.into());
            }
            let attr = make_mr_attr((*from).access, (*from).requested_key, flags);
            (segments_mut((*from).mr_iov, (*from).iov_count)?, attr, (*from).context)
        };
        // SAFETY: as above.
        unsafe { register(domain, &segments, &attr, mr, context) }
    })
}

/// Leaves out the offset, which `fi_mr(3)` reserves.
pub(crate) fn make_mr_attr(access: u64, requested_key: u64, flags: u64) -> MrAttr {
    let (access, flags) = (MrAccess::from_bits_retain(access), MrFlags::from_bits_retain(flags));
    MrAttr { access, requested_key: Some(requested_key), flags, ..MrAttr::default() }
}

/// # Safety
///
/// `domain` is an open domain. The segments meet the conditions of `fi_mr(3)` until the region is
/// closed. `mr` is null or writable.
unsafe fn register(
    domain: *mut Fid,
    segments: &[SegmentMut],
    attr: &MrAttr,
    mr: *mut *mut FidMr,
    context: *mut c_void,
) -> Result<c_int, Failure> {
    // SAFETY: the caller promises it.
    let domain = unsafe { object::state::<DomainState>(domain.cast())? };
    if mr.is_null() {
        return Err(Errno::EINVAL.into());
    }
    // SAFETY: the caller promises it. The memory belongs to C code, so no Rust reference to it
    // exists.
    let region = unsafe { domain.domain.register_raw(segments, attr)? };
    // SAFETY: not null, so writable.
    unsafe { mr.write(open_mr_object(region, domain, context)) };
    Ok(0)
}

/// Opens the C object of a region. `domain` is the region's domain.
pub(crate) fn open_mr_object(region: MemoryRegion, domain: &DomainState, context: *mut c_void) -> *mut FidMr {
    let front = FidMr {
        fid: object::new_fid::<MrState>(context, &FID_OPS),
        // homespun needs no descriptors.
        mem_desc: std::ptr::null_mut(),
        key: region.key(),
    };
    let (key_size_bytes, bound) = (domain.domain.key_size_bytes(), Mutex::default());
    object::open(front, MrState { region, key_size_bytes, bound, _domain: domain.dependents.lease() })
}

unsafe extern "C" fn close(mr: *mut Fid) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller closes an object of this class and uses it no more.
        unsafe { object::close::<MrState>(mr.cast(), |_| false)? };
        Ok(0)
    })
}

unsafe extern "C" fn bind(mr: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open region.
        let MrState { region, bound, .. } = unsafe { object::state::<MrState>(mr.cast())? };
        if other.is_null() {
            return Err(Errno::EINVAL.into());
        }
        // SAFETY: `other` is an open object, and its class determines the type of its state.
        unsafe {
            match (*other).fclass {
                FI_CLASS_EP if flags != 0 => return Err(Misuse::Flags(flags).into()),
                // The region and the endpoint may close in either order, so no lease is kept.
                FI_CLASS_EP => {
                    region.bind_endpoint(&object::state::<EndpointState>(other.cast())?.endpoint)?;
                }
                FI_CLASS_CNTR => {
                    let counter = object::state::<CounterState>(other.cast())?;
                    region.bind_counter(&counter.counter, CounterEvents::from_bits_retain(flags))?;
                    bound.lock().push(counter.dependents.lease());
                }
                _ => return Err(Errno::EINVAL.into()),
            }
        }
        Ok(0)
    })
}

unsafe extern "C" fn control(mr: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open region.
        let MrState { region, key_size_bytes, .. } = unsafe { object::state::<MrState>(mr.cast())? };
        match command {
            FI_ENABLE => {
                region.enable();
                Ok(0)
            }
            // Every access looks up the memory behind a region, so no refresh is needed.
            FI_REFRESH if mutated!("fi_mr/refresh") => Err(Errno::ENOSYS.into()),
            FI_REFRESH => Ok(0),
            FI_GET_RAW_MR if arg.is_null() => Err(Errno::EINVAL.into()),
            // SAFETY: for this command `arg` points to a `struct fi_mr_raw_attr`.
            FI_GET_RAW_MR => unsafe { fill_raw_attr(region, *key_size_bytes, &*arg.cast::<FiMrRawAttr>()) },
            _ => Err(Errno::ENOSYS.into()),
        }
    })
}

/// `fi_mr_raw_attr`: writes the raw key and the base address to the memory that `attr` names.
///
/// # Safety
///
/// `attr` is null or points to a valid structure.
unsafe fn fill_raw_attr(
    region: &MemoryRegion,
    key_size_bytes: usize,
    attr: &FiMrRawAttr,
) -> Result<c_int, Failure> {
    if attr.key_size.is_null() {
        return Err(Errno::EINVAL.into());
    }
    // SAFETY: the caller promises it, and `key_size` is the room for the raw key.
    unsafe {
        let room_bytes = attr.key_size.read();
        attr.key_size.write(key_size_bytes);
        if room_bytes < key_size_bytes || attr.raw_key.is_null() {
            let is_other = mutated!("fi_mr/raw-attr-of-any-region");
            return Err(if is_other { Errno::EINVAL } else { Errno::ETOOSMALL }.into());
        }
        attr.raw_key.copy_from_nonoverlapping(region.key().to_le_bytes().as_ptr(), key_size_bytes);
        if !attr.base_addr.is_null() {
            attr.base_addr.write(region.address());
        }
    }
    Ok(0)
}

/// `fi_mr_map_raw`: converts a raw key to the key. A raw key is the bytes of the key, as many as keys of
/// its domain have. Keys of the peer's domain may have another size than those of this one.
///
/// # Safety
///
/// `map` is null or points to a valid structure.
pub(crate) unsafe fn map_raw_key(map: &FiMrMapRaw) -> Result<c_int, Failure> {
    if map.raw_key.is_null() || map.key.is_null() || !(KEY_MIN_BYTES..=KEY_MAX_BYTES).contains(&map.key_size)
    {
        return Err(Errno::EINVAL.into());
    }
    if map.flags != 0 {
        return Err(Misuse::Flags(map.flags).into());
    }
    let mut raw = [0; KEY_MAX_BYTES];
    // SAFETY: the caller promises it, and the size was checked.
    unsafe {
        raw.as_mut_ptr().copy_from_nonoverlapping(map.raw_key, map.key_size);
        let key = u64::from_le_bytes(raw);
        map.key.write(if mutated!("fi_mr/raw-key-is-mapped") { key.swap_bytes() } else { key });
    }
    Ok(0)
}
