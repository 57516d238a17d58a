//! Requests for connections: `rpma_conn_req_new(3)`.

use std::ffi::c_void;
use std::{ptr, slice};

use homespun_rpma::{Connection, ConnectionRequest, MemoryRegion, Peer};
use libc::{c_char, c_int};

use crate::conn_cfg::{ConnCfg, to_config};
use crate::edge::{BadArgument, Failure, run};
use crate::handle::{OutParam, delete, object, take, text};

/// `struct rpma_conn_private_data`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct PrivateData {
    ptr: *mut c_void,
    len: u8,
}

impl PrivateData {
    /// Describes the private data of a peer. Its address is valid as long as the request, and the connection
    /// that comes from it.
    pub(crate) fn describe(data: &[u8]) -> PrivateData {
        // A peer that uses homespun's other interfaces may send more.
        let len = u8::try_from(data.len()).unwrap_or(u8::MAX);
        let ptr = if len == 0 { ptr::null() } else { data.as_ptr() };
        PrivateData { ptr: ptr.cast_mut().cast(), len }
    }
}

/// # Safety
///
/// `peer` is null or a peer; `addr` and `port` are null or C strings; `cfg` is null or a configuration;
/// `req_ptr` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_req_new(
    peer: *mut Peer,
    addr: *const c_char,
    port: *const c_char,
    cfg: *const ConnCfg,
    req_ptr: *mut *mut ConnectionRequest,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (peer, config, place) = unsafe { (object(peer)?, to_config(cfg), OutParam::new(req_ptr)?) };
        // SAFETY: the caller promises it.
        let (address, port) = unsafe { (text(addr)?, text(port)?) };
        place.store(ConnectionRequest::new(peer, address, port, config.as_ref())?);
        Ok(())
    })
}

/// Deletes a request. That of a peer is rejected.
///
/// # Safety
///
/// `req_ptr` is null or has null or a request, which no code uses any more.
pub(crate) unsafe extern "C" fn rpma_conn_req_delete(req_ptr: *mut *mut ConnectionRequest) -> c_int {
    // SAFETY: the caller promises it.
    run(|| unsafe { delete(req_ptr) })
}

/// Asks for the connection, or accepts it. The request is gone afterwards, also after an error.
///
/// # Safety
///
/// `req_ptr` is null or has null or a request, which no other code uses. `pdata` is null or describes
/// readable memory; `conn_ptr` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_req_connect(
    req_ptr: *mut *mut ConnectionRequest,
    pdata: *const PrivateData,
    conn_ptr: *mut *mut Connection,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let request = unsafe { take(req_ptr)? }.ok_or(BadArgument::Null)?;
        // SAFETY: the caller promises it.
        let (data, place) = unsafe { (private_data(pdata)?, OutParam::new(conn_ptr)?) };
        place.store(request.connect(data)?);
        Ok(())
    })
}

/// # Safety
///
/// `pdata` is null or describes memory that is readable before the last use of the result.
unsafe fn private_data<'a>(pdata: *const PrivateData) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller promises it.
    match unsafe { pdata.as_ref() } {
        None => Ok(&[]),
        Some(PrivateData { ptr, .. }) if ptr.is_null() => Err(BadArgument::Null.into()),
        Some(PrivateData { len: 0, .. }) => Err(BadArgument::EmptyPrivateData.into()),
        // SAFETY: the caller promises it.
        Some(&PrivateData { ptr, len }) => Ok(unsafe { slice::from_raw_parts(ptr.cast(), len.into()) }),
    }
}

/// # Safety
///
/// `req` is null or a request; `dst` is null or a region.
pub(crate) unsafe extern "C" fn rpma_conn_req_recv(
    req: *mut ConnectionRequest,
    dst: *mut MemoryRegion,
    offset: usize,
    len: usize,
    op_context: *const c_void,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (request, dst) = unsafe { (object(req)?, object(dst)?) };
        Ok(request.recv(dst.slice(offset, len)?, op_context.addr() as u64)?)
    })
}

/// # Safety
///
/// `req` is null or a request; `pdata` is null or writable.
pub(crate) unsafe extern "C" fn rpma_conn_req_get_private_data(
    req: *const ConnectionRequest,
    pdata: *mut PrivateData,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (request, place) = unsafe { (object(req)?, OutParam::new(pdata)?) };
        place.write(PrivateData::describe(request.private_data()));
        Ok(())
    })
}
