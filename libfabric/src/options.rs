//! The options of an endpoint: `fi_getopt` and `fi_setopt` of `fi_endpoint(3)`.
//!
//! Both supported options have the level FI_OPT_ENDPOINT and the type `size_t`.
//! FI_OPT_MIN_MULTI_RECV exists for endpoints and shared receive contexts. FI_OPT_CM_DATA_SIZE
//! exists for connected and passive endpoints, and is read only. Any other option fails with
//! ENOPROTOOPT, which an application need not treat as a failure.

use homespun::limits::CONNECTION_DATA_MAX_BYTES;
use homespun::mutated;
use homespun::{Endpoint, Errno, SharedReceiveContext};
use libc::{c_int, c_void};

use crate::abi::fid::Fid;
use crate::abi::{
    FI_CLASS_PEP, FI_CLASS_SRX_CTX, FI_OPT_CM_DATA_SIZE, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV,
};
use crate::edge::{Failure, run_entry_point};
use crate::object;
use crate::shared_receive_context::receive_context_from_fid;
use crate::states::EndpointState;

/// The length of an option's value, in bytes.
const SIZE_BYTES: usize = size_of::<usize>();

pub(crate) unsafe extern "C" fn getopt(
    ep: *mut Fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open endpoint, a passive endpoint or a shared receive context.
        let current = match unsafe { find_option(ep, level, name)? } {
            Setting::MinMultiRecv(endpoint) => endpoint.min_multi_recv_bytes(),
            Setting::MinMultiRecvOfContext(context) => context.min_multi_recv_bytes(),
            Setting::CmDataSize if mutated!("fi_endpoint/cm-data-size") => 2 * CONNECTION_DATA_MAX_BYTES,
            Setting::CmDataSize => CONNECTION_DATA_MAX_BYTES,
        };
        if value.is_null() || len.is_null() {
            return Err(Errno::EINVAL.into());
        }
        // SAFETY: `len` is not null, so it holds the size of the caller's buffer and is writable.
        let room_bytes = unsafe { len.replace(SIZE_BYTES) };
        if room_bytes < SIZE_BYTES {
            return Err(Errno::ETOOSMALL.into());
        }
        // SAFETY: the room is large enough; options may be unaligned.
        unsafe { value.cast::<usize>().write_unaligned(current) };
        Ok(0)
    })
}

pub(crate) unsafe extern "C" fn setopt(
    ep: *mut Fid,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open endpoint, a passive endpoint or a shared receive context.
        let setting = unsafe { find_option(ep, level, name)? };
        if matches!(setting, Setting::CmDataSize) {
            return Err(Errno::ENOPROTOOPT.into());
        }
        if value.is_null() || len != SIZE_BYTES {
            return Err(Errno::EINVAL.into());
        }
        // SAFETY: not null and of this length, so readable; options may be unaligned.
        let asked = unsafe { value.cast::<usize>().read_unaligned() };
        match setting {
            Setting::MinMultiRecv(endpoint) => endpoint.set_min_multi_recv_bytes(asked),
            Setting::MinMultiRecvOfContext(context) => context.set_min_multi_recv_bytes(asked),
            Setting::CmDataSize => {}
        }
        Ok(0)
    })
}

/// A supported option and its object.
enum Setting<'a> {
    MinMultiRecv(&'a Endpoint),
    MinMultiRecvOfContext(&'a SharedReceiveContext),
    CmDataSize,
}

/// Returns the option of this level and name.
///
/// # Errors
///
/// ENOPROTOOPT if the object does not have the option. EINVAL if `ep` is null or an object of
/// another kind.
///
/// # Safety
///
/// `ep` is null or an open object: an endpoint, a passive endpoint or a shared receive context. The
/// object stays open as long as the result is used.
unsafe fn find_option<'a>(ep: *mut Fid, level: c_int, name: c_int) -> Result<Setting<'a>, Failure> {
    if ep.is_null() {
        return Err(Errno::EINVAL.into());
    }
    // SAFETY: not null, so an endpoint or a context.
    let class = unsafe { (*ep).fclass };
    if class == FI_CLASS_PEP {
        return match (level, name) {
            (FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE) => Ok(Setting::CmDataSize),
            _ => Err(Errno::ENOPROTOOPT.into()),
        };
    }
    if class == FI_CLASS_SRX_CTX {
        // SAFETY: the caller promises it.
        let context = unsafe { receive_context_from_fid(ep.cast())? };
        return match (level, name) {
            (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) => Ok(Setting::MinMultiRecvOfContext(context)),
            _ => Err(Errno::ENOPROTOOPT.into()),
        };
    }
    // SAFETY: the caller promises it.
    let endpoint = unsafe { &object::state::<EndpointState>(ep.cast())?.endpoint };
    match (level, name) {
        (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) => Ok(Setting::MinMultiRecv(endpoint)),
        (FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE) if endpoint.info().endpoint_type().is_connected() => {
            Ok(Setting::CmDataSize)
        }
        (FI_OPT_ENDPOINT, 2 | 3) if mutated!("fi_endpoint/buffered-limits") => {
            Ok(Setting::MinMultiRecv(endpoint))
        }
        (FI_OPT_ENDPOINT, 8..) if mutated!("fi_endpoint/device-options") => {
            Ok(Setting::MinMultiRecv(endpoint))
        }
        _ => Err(Errno::ENOPROTOOPT.into()),
    }
}
