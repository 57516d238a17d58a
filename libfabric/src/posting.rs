//! What all calls that post an operation share: C functions, and the conversion of C's vectors,
//! flags and addresses.

use std::slice;

use homespun::flags::{Caps, OpFlags};
use homespun::limits::IOV_LIMIT;
use homespun::{Endpoint, Errno, FabricAddress, Misuse, RemoteMemory, Segment, SegmentMut};
use libc::{c_void, iovec};
use smallvec::SmallVec;

use crate::abi::endpoint::FidEp;
use crate::c_misuse::CMisuse;
use crate::edge::Failure;
use crate::object;
use crate::states::EndpointState;

/// Memory to read.
pub(crate) type Segments = SmallVec<[Segment; IOV_LIMIT]>;

/// Memory to write.
pub(crate) type SegmentsMut = SmallVec<[SegmentMut; IOV_LIMIT]>;

/// A descriptor of memory. homespun ignores it.
pub(crate) type Desc = *mut c_void;

/// Several descriptors.
pub(crate) type Descs = *mut *mut c_void;

/// Defines the C functions of a vtable. Write each as a Rust function whose first argument is the
/// endpoint: the macro gets it from C's `struct fid_ep`. For another object, name after `of` the
/// function that returns it. The body runs in [`run_entry_point`](crate::edge::run_entry_point).
/// The body is in an `unsafe` block: the C caller must keep to the manual page.
macro_rules! entry_points {
    (
        of $object:path,
        $(fn $name:ident($ep:ident $(, $argument:tt: $type:ty)* $(,)?) -> $answer:ty $body:block)*
    ) => {$(
        unsafe extern "C" fn $name(ep: *mut $crate::abi::endpoint::FidEp $(, $argument: $type)*) -> $answer {
            $crate::edge::run_entry_point(|| {
                // SAFETY: the caller passes null or an open object, and keeps to the manual page.
                unsafe {
                    let $ep = $object(ep)?;
                    let () = $body?;
                }
                Ok(0)
            })
        }
    )*};
    (fn $($functions:tt)*) => {
        $crate::posting::entry_points! { of $crate::posting::endpoint_from_fid, fn $($functions)* }
    };
}

pub(crate) use entry_points;

/// Returns the endpoint on which C code makes a call.
///
/// # Errors
///
/// As [`object::state`].
///
/// # Safety
///
/// `ep` is null or an open endpoint, and stays open for `'a`.
#[inline(always)]
pub(crate) unsafe fn endpoint_from_fid<'a>(ep: *mut FidEp) -> Result<&'a Endpoint, Failure> {
    // SAFETY: the caller promises it.
    Ok(unsafe { &object::state::<EndpointState>(ep.cast())?.endpoint })
}

/// Returns the application's context as a number, as homespun keeps it.
pub(crate) fn context_number(context: *mut c_void) -> u64 {
    // The completion converts it back to a pointer.
    context.expose_provenance() as u64
}

/// Returns the flags of a call: its own, or the default ones.
#[inline(always)]
pub(crate) fn flags_or_default(flags: Option<u64>, default: OpFlags) -> OpFlags {
    flags.map_or(default, OpFlags::from_bits_retain)
}

/// Returns the source that a receive names, or the unspecified source without `FI_DIRECTED_RECV`.
/// Without this capability C programs may pass any source (`fi_msg(3)`), but homespun's Rust calls
/// accept only the unspecified one.
#[inline(always)]
pub(crate) fn receive_source(from: u64, caps: Caps) -> FabricAddress {
    if caps.contains(Caps::DIRECTED_RECV) { FabricAddress(from) } else { FabricAddress::UNSPECIFIED }
}

/// Returns the completion data of a message, if its flags have `FI_REMOTE_CQ_DATA`.
pub(crate) fn remote_cq_data(flags: u64, data: u64) -> Option<u64> {
    (flags & OpFlags::REMOTE_CQ_DATA.bits() != 0).then_some(data)
}

/// Returns the structure that describes a call.
///
/// # Errors
///
/// EINVAL for a null pointer.
///
/// # Safety
///
/// `message` is null or valid for `'a`.
pub(crate) unsafe fn deref_non_null<'a, M>(message: *const M) -> Result<&'a M, Failure> {
    // SAFETY: the caller promises it.
    unsafe { message.as_ref() }.ok_or(Failure(Errno::EINVAL))
}

/// Returns one buffer to read, as a vector.
#[inline(always)]
pub(crate) fn segment(buf: *const c_void, len_bytes: usize) -> [Segment; 1] {
    [Segment { address: buf.cast(), len_bytes }]
}

/// Returns one buffer to write, as a vector.
#[inline(always)]
pub(crate) fn segment_mut(buf: *mut c_void, len_bytes: usize) -> [SegmentMut; 1] {
    [SegmentMut { address: buf.cast(), len_bytes }]
}

/// Converts a vector of buffers that the operation reads.
///
/// # Errors
///
/// As [`vector_entries`].
///
/// # Safety
///
/// As [`vector_entries`].
pub(crate) unsafe fn segments(iov: *const iovec, count: usize) -> Result<Segments, Failure> {
    // SAFETY: the caller promises it.
    let entries = unsafe { vector_entries(iov, count)? };
    Ok(entries.iter().flat_map(|entry| segment(entry.iov_base, entry.iov_len)).collect())
}

/// Converts a vector of buffers that the operation writes.
///
/// # Errors
///
/// As [`vector_entries`].
///
/// # Safety
///
/// As [`vector_entries`].
pub(crate) unsafe fn segments_mut(iov: *const iovec, count: usize) -> Result<SegmentsMut, Failure> {
    // SAFETY: the caller promises it.
    let entries = unsafe { vector_entries(iov, count)? };
    Ok(entries.iter().flat_map(|entry| segment_mut(entry.iov_base, entry.iov_len)).collect())
}

/// Returns the entries of a vector.
///
/// # Errors
///
/// EINVAL if `vector` is null and `count` is not 0. [`Misuse::TooManySegments`] if `count` exceeds
/// [`IOV_LIMIT`].
///
/// # Safety
///
/// `vector` is null or readable for `count` entries, for as long as the result is used.
pub(crate) unsafe fn vector_entries<'a, T>(vector: *const T, count: usize) -> Result<&'a [T], Failure> {
    match (vector.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Errno::EINVAL.into()),
        // Checked here, so that an impossible count causes no read and no allocation.
        (false, _) if count > IOV_LIMIT => Err(Misuse::TooManySegments { count, max: IOV_LIMIT }.into()),
        // SAFETY: the caller promises it.
        (false, _) => Ok(unsafe { slice::from_raw_parts(vector, count) }),
    }
}

/// Returns the bytes to inject.
///
/// # Errors
///
/// EINVAL if `buf` is null and `len` is not 0. EMSGSIZE if `len` exceeds half of the address space.
///
/// # Safety
///
/// `buf` is null or readable for `len` bytes. No code writes to these bytes as long as the slice is
/// used.
pub(crate) unsafe fn bytes_to_inject<'a>(buf: *const c_void, len: usize) -> Result<&'a [u8], Failure> {
    match (buf.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Errno::EINVAL.into()),
        // No memory is longer than half of the address space.
        (false, _) if isize::try_from(len).is_err() => Err(Errno::EMSGSIZE.into()),
        // SAFETY: the caller promises it.
        (false, _) => Ok(unsafe { slice::from_raw_parts(buf.cast(), len) }),
    }
}

/// Returns the range of the peer's memory that a call names. The range must be as long as the local
/// memory. A call without bytes need not name a range.
///
/// # Errors
///
/// EINVAL if the call names no range, or a range of another length. [`Misuse::TooManySegments`] for
/// several ranges.
///
/// # Safety
///
/// `places` is null or readable for `count` entries.
pub(crate) unsafe fn single_remote_memory<R>(
    places: *const R,
    count: usize,
    local_lens_bytes: impl Iterator<Item = usize>,
    place: impl FnOnce(&R) -> Result<(RemoteMemory, usize), Failure>,
) -> Result<RemoteMemory, Failure> {
    // A saturated sum is longer than any remote range, so it never matches.
    let local_bytes = local_lens_bytes.fold(0, usize::saturating_add);
    match (places.is_null(), count) {
        (false, 1) => {
            // SAFETY: the caller promises it.
            let (remote, len_bytes) = place(unsafe { &*places })?;
            if len_bytes != local_bytes {
                return Err(CMisuse::RemoteLength.into());
            }
            Ok(remote)
        }
        (false, count) if count > 1 => Err(Misuse::TooManySegments { count, max: 1 }.into()),
        _ if local_bytes == 0 => Ok(RemoteMemory::default()),
        _ => Err(Errno::EINVAL.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_with_entries_and_vectors_beyond_the_limit_are_refused() {
        let (null, some) = (std::ptr::null::<u8>(), [7_u8; 3].as_ptr());
        let beyond = usize::MAX / 2 + 1;
        // SAFETY: the memory has three bytes, and longer lengths are refused.
        unsafe {
            for (from, count, answer) in [
                (null, 0, Ok(0)),
                (some, 0, Ok(0)),
                (some, 3, Ok(3)),
                (null, 1, Err(Errno::EINVAL)),
                (some, IOV_LIMIT + 1, Err(Errno::EINVAL)),
                (some, usize::MAX, Err(Errno::EINVAL)),
            ] {
                assert_eq!(vector_entries(from, count).map(<[u8]>::len), answer.map_err(Failure));
            }
            let inject = |from: *const u8, len| bytes_to_inject(from.cast(), len).map(<[u8]>::len);
            assert_eq!([inject(null, 0), inject(some, 0), inject(some, 3)], [Ok(0), Ok(0), Ok(3)]);
            assert_eq!(
                [inject(null, 1), inject(some, beyond)],
                [Errno::EINVAL, Errno::EMSGSIZE].map(|errno| Err(Failure(errno)))
            );
        }
    }

    #[test]
    fn remote_memory_of_another_count_or_length_is_refused() {
        let range = RemoteMemory { address: 7, key: 9 };
        let remote = |places: &[usize], locals: &[usize]| {
            let start = if places == [0] { std::ptr::null() } else { places.as_ptr() };
            // SAFETY: the array has this length, or null is not read.
            unsafe {
                single_remote_memory(start, places.len(), locals.iter().copied(), |len| Ok((range, *len)))
            }
        };
        let (nothing, refused) = (Ok(RemoteMemory::default()), Err(Failure(Errno::EINVAL)));
        assert_eq!([remote(&[4], &[4]), remote(&[4], &[1, 3])], [Ok(range); 2]);
        assert_eq!([remote(&[3], &[4]), remote(&[5], &[4]), remote(&[2, 2], &[4])], [refused; 3]);
        assert_eq!([remote(&[2], &[usize::MAX, 3]), remote(&[], &[4])], [refused; 2]);
        assert_eq!([remote(&[], &[]), remote(&[], &[0])], [nothing; 2]);
        // A null pointer to one range.
        assert_eq!([remote(&[0], &[]), remote(&[0], &[4])], [nothing, refused]);
    }
}
