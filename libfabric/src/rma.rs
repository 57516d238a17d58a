//! `fi_rma(3)`.

use homespun::endpoint::{ReadMsgRaw, WriteMsgRaw};
use homespun::flags::OpFlags;
use homespun::{Errno, FabricAddress, Misuse};
use libc::{c_void, iovec};

use crate::abi::endpoint::FidEp;
use crate::abi::rma::{FiMsgRma, FiOpsRma};
use crate::edge::{Failure, enter};
use crate::endpoint::EndpointState;
use crate::message::{context, injected, remote_data, segment, segment_mut, segments, segments_mut};
use crate::object;

pub(crate) static OPS: FiOpsRma = FiOpsRma {
    size: size_of::<FiOpsRma>(),
    read,
    readv,
    readmsg,
    write,
    writev,
    writemsg,
    inject,
    writedata,
    injectdata,
};

/// Posts a write.
///
/// # Safety
///
/// `ep` is an open endpoint; the segments stay as they are until the completion was read (`fi_rma(3)`).
unsafe fn post_write(ep: *mut FidEp, write: &WriteMsgRaw<'_>) -> Result<isize, Failure> {
    // SAFETY: the caller promises what either asks for.
    unsafe { object::state::<EndpointState>(ep.cast())?.endpoint.post_write(write)? };
    Ok(0)
}

/// Posts a read.
///
/// # Safety
///
/// `ep` is an open endpoint; nobody else touches the segments until the completion was read (`fi_rma(3)`).
unsafe fn post_read(ep: *mut FidEp, read: &ReadMsgRaw<'_>) -> Result<isize, Failure> {
    // SAFETY: the caller promises what either asks for.
    unsafe { object::state::<EndpointState>(ep.cast())?.endpoint.post_read(read)? };
    Ok(0)
}

/// Injects a write.
///
/// # Safety
///
/// `ep` is an open endpoint, `buf` is readable for `len` bytes.
unsafe fn post_inject(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    to: u64,
    address: u64,
    key: u64,
    data: Option<u64>,
) -> Result<isize, Failure> {
    // SAFETY: the caller says so.
    let endpoint = unsafe { &object::state::<EndpointState>(ep.cast())?.endpoint };
    // SAFETY: the caller says so.
    let bytes = unsafe { injected(buf, len)? };
    endpoint.inject_write(bytes, FabricAddress(to), address, key, data)?;
    Ok(0)
}

/// The one place in the peer's memory that an access of this length names, and its key. One of no bytes need
/// not name any.
///
/// # Safety
///
/// `msg` is valid, and so is what it points to.
unsafe fn target(msg: &FiMsgRma, len_bytes: usize) -> Result<(u64, u64), Failure> {
    match (msg.rma_iov.is_null(), msg.rma_iov_count) {
        (false, 1) => {
            // SAFETY: the caller says so.
            let target = unsafe { &*msg.rma_iov };
            if target.len != len_bytes {
                return Err(Misuse::Invalid("a remote segment of another length than the local ones").into());
            }
            Ok((target.addr, target.key))
        }
        (false, count) if count > 1 => Err(Misuse::TooManySegments { count, max: 1 }.into()),
        _ if len_bytes == 0 => Ok((0, 0)),
        _ => Err(Errno::EINVAL.into()),
    }
}

unsafe extern "C" fn read(
    ep: *mut FidEp,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    src_addr: u64,
    addr: u64,
    key: u64,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        let read = ReadMsgRaw {
            segments: &[segment_mut(buf, len)],
            from: FabricAddress(src_addr),
            address: addr,
            key,
            context: context(op_context),
            flags: None,
        };
        // SAFETY: the caller keeps to `fi_rma(3)`.
        unsafe { post_read(ep, &read) }
    })
}

unsafe extern "C" fn readv(
    ep: *mut FidEp,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    src_addr: u64,
    addr: u64,
    key: u64,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        let read = ReadMsgRaw {
            // SAFETY: the caller keeps to `fi_rma(3)`.
            segments: &unsafe { segments_mut(iov, count)? },
            from: FabricAddress(src_addr),
            address: addr,
            key,
            context: context(op_context),
            flags: None,
        };
        // SAFETY: as above.
        unsafe { post_read(ep, &read) }
    })
}

unsafe extern "C" fn readmsg(ep: *mut FidEp, msg: *const FiMsgRma, flags: u64) -> isize {
    enter(|| {
        // SAFETY: the caller keeps to `fi_rma(3)`: null or valid.
        let msg = unsafe { msg.as_ref() }.ok_or(Failure(Errno::EINVAL))?;
        // SAFETY: as above.
        let segments = unsafe { segments_mut(msg.msg_iov, msg.iov_count)? };
        let len_bytes = total(segments.iter().map(|segment| segment.len_bytes));
        // SAFETY: as above.
        let (address, key) = unsafe { target(msg, len_bytes)? };
        let read = ReadMsgRaw {
            segments: &segments,
            from: FabricAddress(msg.addr),
            address,
            key,
            context: context(msg.context),
            flags: Some(OpFlags::from_bits_retain(flags)),
        };
        // SAFETY: as above.
        unsafe { post_read(ep, &read) }
    })
}

unsafe extern "C" fn write(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    dest_addr: u64,
    addr: u64,
    key: u64,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        let write = WriteMsgRaw {
            segments: &[segment(buf, len)],
            to: FabricAddress(dest_addr),
            address: addr,
            key,
            data: None,
            context: context(op_context),
            flags: None,
        };
        // SAFETY: the caller keeps to `fi_rma(3)`.
        unsafe { post_write(ep, &write) }
    })
}

unsafe extern "C" fn writev(
    ep: *mut FidEp,
    iov: *const iovec,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: u64,
    addr: u64,
    key: u64,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        let write = WriteMsgRaw {
            // SAFETY: the caller keeps to `fi_rma(3)`.
            segments: &unsafe { segments(iov, count)? },
            to: FabricAddress(dest_addr),
            address: addr,
            key,
            data: None,
            context: context(op_context),
            flags: None,
        };
        // SAFETY: as above.
        unsafe { post_write(ep, &write) }
    })
}

unsafe extern "C" fn writemsg(ep: *mut FidEp, msg: *const FiMsgRma, flags: u64) -> isize {
    enter(|| {
        // SAFETY: the caller keeps to `fi_rma(3)`: null or valid.
        let msg = unsafe { msg.as_ref() }.ok_or(Failure(Errno::EINVAL))?;
        // SAFETY: as above.
        let segments = unsafe { segments(msg.msg_iov, msg.iov_count)? };
        let len_bytes = total(segments.iter().map(|segment| segment.len_bytes));
        // SAFETY: as above.
        let (address, key) = unsafe { target(msg, len_bytes)? };
        let write = WriteMsgRaw {
            segments: &segments,
            to: FabricAddress(msg.addr),
            address,
            key,
            data: remote_data(flags, msg.data),
            context: context(msg.context),
            flags: Some(OpFlags::from_bits_retain(flags)),
        };
        // SAFETY: as above.
        unsafe { post_write(ep, &write) }
    })
}

unsafe extern "C" fn inject(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    dest_addr: u64,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: the caller keeps to `fi_rma(3)`.
    enter(|| unsafe { post_inject(ep, buf, len, dest_addr, addr, key, None) })
}

unsafe extern "C" fn writedata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    dest_addr: u64,
    addr: u64,
    key: u64,
    op_context: *mut c_void,
) -> isize {
    enter(|| {
        let write = WriteMsgRaw {
            segments: &[segment(buf, len)],
            to: FabricAddress(dest_addr),
            address: addr,
            key,
            data: Some(data),
            context: context(op_context),
            flags: None,
        };
        // SAFETY: the caller keeps to `fi_rma(3)`.
        unsafe { post_write(ep, &write) }
    })
}

unsafe extern "C" fn injectdata(
    ep: *mut FidEp,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest_addr: u64,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: the caller keeps to `fi_rma(3)`.
    enter(|| unsafe { post_inject(ep, buf, len, dest_addr, addr, key, Some(data)) })
}

/// The length of segments together. One that is too long for memory is the length of no remote segment either.
fn total(lens_bytes: impl Iterator<Item = usize>) -> usize {
    lens_bytes.fold(0, usize::saturating_add)
}
