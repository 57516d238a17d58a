//! Flushes: `rpma_flush(3)`.

use std::ffi::c_void;

use homespun_rpma::{Connection, FlushType, RemoteMemoryRegion};
use libc::c_int;

use crate::edge::{BadArgument, run};
use crate::handle::object;
use crate::message::report;

/// # Safety
///
/// `conn` is null or a connection; `dst` is null or a region.
pub(crate) unsafe extern "C" fn rpma_flush(
    conn: *mut Connection,
    dst: *mut RemoteMemoryRegion,
    dst_offset: usize,
    len: usize,
    kind: c_int,
    flags: c_int,
    op_context: *const c_void,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (connection, dst) = unsafe { (object(conn)?, object(dst)?) };
        let kind = match kind {
            0 => FlushType::Persistent,
            1 => FlushType::Visibility,
            _ => return Err(BadArgument::UnknownValue.into()),
        };
        let (offset, len, context) = (dst_offset as u64, len as u64, op_context.addr() as u64);
        Ok(connection.flush(dst, offset, len, kind, report(flags)?, context)?)
    })
}
