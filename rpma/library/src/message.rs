//! Messages: `rpma_send(3)`, `rpma_recv(3)`.

use std::ffi::c_void;

use homespun_rpma::{Connection, MemoryRegion, Report};
use libc::c_int;

use crate::edge::{BadArgument, run};
use crate::handle::object;
use crate::mr::slice;

/// The bit that `RPMA_F_COMPLETION_ALWAYS` has beside that of `RPMA_F_COMPLETION_ON_ERROR`.
const COMPLETION_ON_SUCCESS: c_int = 1 << 1;

/// Returns which completions an operation has.
///
/// # Errors
///
/// [`BadArgument::NoFlags`].
#[inline]
pub(crate) fn report(flags: c_int) -> Result<Report, BadArgument> {
    match flags {
        0 => Err(BadArgument::NoFlags),
        _ if flags & COMPLETION_ON_SUCCESS != 0 => Ok(Report::Always),
        _ => Ok(Report::OnError),
    }
}

/// # Safety
///
/// `conn` is null or a connection; `src` is null or a region.
pub(crate) unsafe extern "C" fn rpma_send(
    conn: *mut Connection,
    src: *const MemoryRegion,
    offset: usize,
    len: usize,
    flags: c_int,
    op_context: *const c_void,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (connection, src) = unsafe { (object(conn)?, slice(src, offset, len)?) };
        Ok(connection.send(src, report(flags)?, op_context.addr() as u64)?)
    })
}

/// # Safety
///
/// `conn` is null or a connection; `src` is null or a region.
pub(crate) unsafe extern "C" fn rpma_send_with_imm(
    conn: *mut Connection,
    src: *const MemoryRegion,
    offset: usize,
    len: usize,
    flags: c_int,
    imm: u32,
    op_context: *const c_void,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (connection, src) = unsafe { (object(conn)?, slice(src, offset, len)?) };
        Ok(connection.send_with_imm(src, report(flags)?, imm, op_context.addr() as u64)?)
    })
}

/// # Safety
///
/// `conn` is null or a connection; `dst` is null or a region.
pub(crate) unsafe extern "C" fn rpma_recv(
    conn: *mut Connection,
    dst: *mut MemoryRegion,
    offset: usize,
    len: usize,
    op_context: *const c_void,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (connection, dst) = unsafe { (object(conn)?, slice(dst, offset, len)?) };
        Ok(connection.recv(dst, op_context.addr() as u64)?)
    })
}
