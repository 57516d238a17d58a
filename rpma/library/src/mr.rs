//! Memory regions of this process: `rpma_mr_reg(3)`.

use homespun::Misuse;
use homespun::error::BadMemory;
use homespun_rpma::{Error, LocalSlice, MemoryRegion, Peer, RemoteMemoryRegion, Usage};
use libc::{c_int, c_void};

use crate::edge::{BadArgument, Failure, run};
use crate::handle::{OutParam, delete, object, optional};

const NOT_PERSISTENT: homespun::Error = homespun::Error::Misuse(Misuse::Memory(BadMemory::NotPersistent));

/// Registers memory.
///
/// # Safety
///
/// `peer` is null or a peer; `mr_ptr` is null or writable. The memory fulfils what
/// [`MemoryRegion::register`] asks for, until it is deregistered and its operations have ended.
pub(crate) unsafe extern "C" fn rpma_mr_reg(
    peer: *mut Peer,
    ptr: *mut c_void,
    size: usize,
    usage: c_int,
    mr_ptr: *mut *mut MemoryRegion,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (peer, place) = unsafe { (object(peer)?, OutParam::new(mr_ptr)?) };
        let usage = u8::try_from(usage).map_err(|_| BadArgument::UnknownUsage)?;
        let usage = Usage::from_bits(usage).ok_or(BadArgument::UnknownUsage)?;
        // SAFETY: the application knows the rules of librpma for memory, which are those of `register`.
        let register = |usage| unsafe { MemoryRegion::register(peer, ptr.cast(), size, usage) };
        let volatile = usage - Usage::FLUSH_TYPE_PERSISTENT;
        let mut region = match register(usage) {
            // Programs register any memory for persistent flushes, for example what they only send from.
            // If it is not persistent, peers do not see that usage, so they cannot ask for such a flush.
            Err(Error::Fabric(NOT_PERSISTENT)) if !volatile.is_empty() => {
                tracing::info!("registered without persistent flushes: {NOT_PERSISTENT}");
                register(volatile)?
            }
            region => region?,
        };
        // As hardware does, which programs rely on.
        let mut local_usage = Usage::SEND | Usage::WRITE_SRC;
        local_usage.set(Usage::RECV | Usage::READ_DST, allows_local_writes(usage));
        // SAFETY: as above. Hardware may write to such memory, too.
        unsafe { region.allow_local_usage(local_usage) };
        place.store(region);
        Ok(())
    })
}

/// # Safety
///
/// `mr_ptr` is null or has null or a region, which no code uses any more.
pub(crate) unsafe extern "C" fn rpma_mr_dereg(mr_ptr: *mut *mut MemoryRegion) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { delete(mr_ptr) })
}

/// # Safety
///
/// `mr` is null or a region; `desc` is null or writable for a descriptor.
pub(crate) unsafe extern "C" fn rpma_mr_get_descriptor(mr: *const MemoryRegion, desc: *mut c_void) -> c_int {
    run(|| {
        // SAFETY: the caller promises it. An array of bytes has no alignment.
        let (mr, place) = unsafe { (object(mr)?, OutParam::new(desc.cast())?) };
        place.write(mr.descriptor());
        Ok(())
    })
}

/// # Safety
///
/// `mr` is null or a region; `desc_size` is null or writable.
pub(crate) unsafe extern "C" fn rpma_mr_get_descriptor_size(
    mr: *const MemoryRegion,
    desc_size: *mut usize,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (_, place) = unsafe { (object(mr)?, OutParam::new(desc_size)?) };
        place.write(RemoteMemoryRegion::DESCRIPTOR_BYTES);
        Ok(())
    })
}

/// # Safety
///
/// `mr` is null or a region; `ptr` is null or writable.
pub(crate) unsafe extern "C" fn rpma_mr_get_ptr(mr: *const MemoryRegion, ptr: *mut *mut c_void) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (mr, place) = unsafe { (object(mr)?, OutParam::new(ptr)?) };
        place.write(mr.as_ptr().cast());
        Ok(())
    })
}

/// # Safety
///
/// `mr` is null or a region; `size` is null or writable.
pub(crate) unsafe extern "C" fn rpma_mr_get_size(mr: *const MemoryRegion, size: *mut usize) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (mr, place) = unsafe { (object(mr)?, OutParam::new(size)?) };
        place.write(mr.size_bytes());
        Ok(())
    })
}

/// `IBV_ADVISE_MR_ADVICE_PREFETCH`, `_PREFETCH_WRITE` and `_PREFETCH_NO_FAULT`.
const ADVICE_PREFETCH: c_int = 0;
const ADVICE_PREFETCH_WRITE: c_int = 1;
const ADVICE_PREFETCH_NO_FAULT: c_int = 2;

/// `IB_UVERBS_ADVISE_MR_FLAG_FLUSH`: the advice has been followed when the call returns. That is so always.
const ADVICE_FLAG_FLUSH: u32 = 1;

/// Brings the pages of a range into memory.
///
/// # Safety
///
/// `mr` is null or a region.
pub(crate) unsafe extern "C" fn rpma_mr_advise(
    mr: *mut MemoryRegion,
    offset: usize,
    len: usize,
    advice: c_int,
    flags: u32,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let mr = unsafe { object(mr)? };
        if flags & !ADVICE_FLAG_FLUSH != 0 {
            return Err(BadArgument::UnknownValue.into());
        }
        mr.slice(offset, len)?;
        let advice = match advice {
            ADVICE_PREFETCH => libc::MADV_POPULATE_READ,
            ADVICE_PREFETCH_WRITE if allows_local_writes(mr.usage()) => libc::MADV_POPULATE_WRITE,
            ADVICE_PREFETCH_NO_FAULT => libc::MADV_WILLNEED,
            _ => return Err(BadArgument::UnknownValue.into()),
        };
        advise(mr.as_ptr().addr() + offset, len, advice);
        Ok(())
    })
}

fn allows_local_writes(usage: Usage) -> bool {
    usage.intersects(Usage::READ_DST | Usage::WRITE_SRC | Usage::WRITE_DST | Usage::RECV)
}

/// Advises the system about the pages of a range. A system that does not follow is no failure.
fn advise(address: usize, len_bytes: usize, advice: c_int) {
    // SAFETY: the call has no preconditions.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let begin = address & !(page_bytes - 1);
    // SAFETY: none of the kinds of advice changes what the pages contain, and the kernel checks the range.
    unsafe { libc::madvise(begin as *mut c_void, address - begin + len_bytes, advice) };
}

/// Returns the range of a region that an operation names, or no memory without a region.
///
/// # Errors
///
/// [`BadArgument::NoRegion`] for an offset or a length without a region.
/// [`Invalid::LocalRange`](homespun_rpma::Invalid::LocalRange).
///
/// # Safety
///
/// `mr` is null or a region that is not deregistered before the last use of the slice.
#[inline]
pub(crate) unsafe fn slice<'a>(
    mr: *const MemoryRegion,
    offset: usize,
    len: usize,
) -> Result<LocalSlice<'a>, Failure> {
    // SAFETY: the caller promises it.
    match unsafe { optional(mr) } {
        Some(mr) => Ok(mr.slice(offset, len)?),
        None if offset == 0 && len == 0 => Ok(LocalSlice::EMPTY),
        None => Err(BadArgument::NoRegion.into()),
    }
}
