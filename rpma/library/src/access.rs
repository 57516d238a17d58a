//! Accesses to the memory of peers: `rpma_read(3)`, `rpma_write(3)`, `rpma_atomic_write(3)`.

use std::ffi::c_void;

use homespun_rpma::{Connection, MemoryRegion, RemoteMemoryRegion, RemotePlace};
use libc::{c_char, c_int};

use crate::edge::{BadArgument, Failure, run};
use crate::handle::{object, optional};
use crate::message::report;
use crate::mr::slice;

/// The length of an atomic write, and the alignment of its target: `RPMA_ATOMIC_WRITE_ALIGNMENT`.
const ATOMIC_WRITE_BYTES: usize = 8;

/// # Safety
///
/// `conn` is null or a connection; `dst` and `src` are null or regions.
pub(crate) unsafe extern "C" fn rpma_read(
    conn: *mut Connection,
    dst: *mut MemoryRegion,
    dst_offset: usize,
    src: *const RemoteMemoryRegion,
    src_offset: usize,
    len: usize,
    flags: c_int,
    op_context: *const c_void,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (connection, dst) = unsafe { (object(conn)?, slice(dst, dst_offset, len)?) };
        // SAFETY: the caller promises it.
        let src = unsafe { remote_place(src, src_offset)? };
        Ok(connection.read(dst, src, report(flags)?, op_context.addr() as u64)?)
    })
}

/// # Safety
///
/// `conn` is null or a connection; `dst` and `src` are null or regions.
pub(crate) unsafe extern "C" fn rpma_write(
    conn: *mut Connection,
    dst: *mut RemoteMemoryRegion,
    dst_offset: usize,
    src: *const MemoryRegion,
    src_offset: usize,
    len: usize,
    flags: c_int,
    op_context: *const c_void,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (connection, src) = unsafe { (object(conn)?, slice(src, src_offset, len)?) };
        // SAFETY: the caller promises it.
        let dst = unsafe { remote_place(dst, dst_offset)? };
        Ok(connection.write(dst, src, report(flags)?, op_context.addr() as u64)?)
    })
}

/// # Safety
///
/// `conn` is null or a connection; `dst` and `src` are null or regions.
pub(crate) unsafe extern "C" fn rpma_write_with_imm(
    conn: *mut Connection,
    dst: *mut RemoteMemoryRegion,
    dst_offset: usize,
    src: *const MemoryRegion,
    src_offset: usize,
    len: usize,
    flags: c_int,
    imm: u32,
    op_context: *const c_void,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (connection, src) = unsafe { (object(conn)?, slice(src, src_offset, len)?) };
        // SAFETY: the caller promises it.
        let dst = unsafe { remote_place(dst, dst_offset)? };
        Ok(connection.write_with_imm(dst, src, report(flags)?, imm, op_context.addr() as u64)?)
    })
}

/// # Safety
///
/// `conn` is null or a connection; `dst` is null or a region; `src` is null or readable for 8 bytes.
pub(crate) unsafe extern "C" fn rpma_atomic_write(
    conn: *mut Connection,
    dst: *mut RemoteMemoryRegion,
    dst_offset: usize,
    src: *const c_char,
    flags: c_int,
    op_context: *const c_void,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (connection, dst) = unsafe { (object(conn)?, object(dst)?) };
        // SAFETY: the caller promises it. An array of bytes has no alignment.
        let bytes = *unsafe { object(src.cast::<[u8; ATOMIC_WRITE_BYTES]>())? };
        let place = atomic_place(dst, dst_offset)?;
        Ok(connection.atomic_write(place, bytes, report(flags)?, op_context.addr() as u64)?)
    })
}

/// An atomic write of bytes of a region, in librpma 0.10. The bytes are read before the call returns.
///
/// # Safety
///
/// `conn` is null or a connection; `dst` and `src` are null or regions. No code writes to the bytes during
/// the call.
pub(crate) unsafe extern "C" fn rpma_write_atomic(
    conn: *mut Connection,
    dst: *mut RemoteMemoryRegion,
    dst_offset: usize,
    src: *const MemoryRegion,
    src_offset: usize,
    flags: c_int,
    op_context: *const c_void,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (connection, dst, src) = unsafe { (object(conn)?, object(dst)?, object(src)?) };
        let place = atomic_place(dst, dst_offset)?;
        src.slice(src_offset, ATOMIC_WRITE_BYTES)?;
        // SAFETY: the region has these bytes, its memory is readable, and nothing writes to them.
        let bytes = unsafe { src.as_ptr().add(src_offset).cast::<[u8; ATOMIC_WRITE_BYTES]>().read() };
        Ok(connection.atomic_write(place, bytes, report(flags)?, op_context.addr() as u64)?)
    })
}

/// Returns the target of an atomic write.
fn atomic_place(dst: &RemoteMemoryRegion, offset: usize) -> Result<RemotePlace, BadArgument> {
    if !offset.is_multiple_of(ATOMIC_WRITE_BYTES) {
        return Err(BadArgument::Misaligned);
    }
    Ok(dst.at(offset as u64))
}

/// Returns a place in a region of a peer, or none without a region.
///
/// # Safety
///
/// `region` is null or a region.
#[inline]
unsafe fn remote_place(region: *const RemoteMemoryRegion, offset: usize) -> Result<RemotePlace, Failure> {
    // SAFETY: the caller promises it.
    match unsafe { optional(region) } {
        Some(region) => Ok(region.at(offset as u64)),
        None if offset == 0 => Ok(RemotePlace::NONE),
        None => Err(BadArgument::NoRegion.into()),
    }
}
