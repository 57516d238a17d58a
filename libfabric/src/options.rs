//! The options of an endpoint: `fi_getopt` and `fi_setopt` of `fi_endpoint(3)`.
//!
//! There is one, of the level FI_OPT_ENDPOINT: FI_OPT_MIN_MULTI_RECV, a `size_t`. The others of that level concern
//! connections, buffered receives and devices, which endpoints here do not have; ENOPROTOOPT says so, and to an application
//! that asks that is not a failure.

use homespun::{Endpoint, Errno};
use libc::{c_int, c_void};

use crate::abi::fabric::Fid;
use crate::abi::{FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV};
use crate::edge::{Failure, enter};
use crate::endpoint::EndpointState;
use crate::object;

/// The length of an option's value, in bytes.
const SIZE_BYTES: usize = size_of::<usize>();

pub(crate) unsafe extern "C" fn getopt(
    ep: *mut Fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    enter(|| {
        // SAFETY: the caller passes an open endpoint.
        let endpoint = unsafe { option_of(ep, level, name)? };
        if value.is_null() || len.is_null() {
            return Err(Errno::EINVAL.into());
        }
        // SAFETY: not null, so it says how much room there is, and is told how much there is to say.
        let room_bytes = unsafe { len.replace(SIZE_BYTES) };
        if room_bytes < SIZE_BYTES {
            return Err(Errno::ETOOSMALL.into());
        }
        // SAFETY: there is room for it; options need not be aligned.
        unsafe { value.cast::<usize>().write_unaligned(endpoint.min_multi_recv_bytes()) };
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
    enter(|| {
        // SAFETY: the caller passes an open endpoint.
        let endpoint = unsafe { option_of(ep, level, name)? };
        if value.is_null() || len != SIZE_BYTES {
            return Err(Errno::EINVAL.into());
        }
        // SAFETY: not null and of this length, so readable; options need not be aligned.
        endpoint.set_min_multi_recv_bytes(unsafe { value.cast::<usize>().read_unaligned() });
        Ok(0)
    })
}

/// The endpoint, if the option is the one that there is.
///
/// # Safety
///
/// `ep` is null or an open endpoint, for as long as the result is used.
unsafe fn option_of<'a>(ep: *mut Fid, level: c_int, name: c_int) -> Result<&'a Endpoint, Failure> {
    // SAFETY: the caller says so.
    let endpoint = unsafe { &object::state::<EndpointState>(ep.cast())?.endpoint };
    match (level, name) {
        (FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV) => Ok(endpoint),
        _ => Err(Errno::ENOPROTOOPT.into()),
    }
}
