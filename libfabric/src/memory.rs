//! Memory that homespun allocates for C programs, and that peers may map (`include/homespun.h`). A
//! program gets the functions by `fi_open_ops`.

use std::ffi::CStr;

use homespun::{Errno, MrAttr};
use libc::{c_char, c_int, c_void};

use crate::abi::domain::{FidDomain, FidMr};
use crate::abi::fid::Fid;
use crate::abi::memory::HomespunMemoryOps;
use crate::edge::run_entry_point;
use crate::mr;
use crate::object;
use crate::states::DomainState;

/// The name that an application passes to open the operations.
const NAME: &CStr = c"homespun_memory";

static OPS: HomespunMemoryOps = HomespunMemoryOps { size: size_of::<HomespunMemoryOps>(), reg };

/// `fi_open_ops` of a domain.
pub(crate) unsafe extern "C" fn ops_open(
    domain: *mut Fid,
    name: *const c_char,
    flags: u64,
    ops: *mut *mut c_void,
    _context: *mut c_void,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open domain.
        unsafe { object::state::<DomainState>(domain.cast())? };
        if name.is_null() || ops.is_null() {
            return Err(Errno::EINVAL.into());
        }
        // SAFETY: not null, so a string that ends with a zero byte.
        if unsafe { CStr::from_ptr(name) } != NAME {
            return Err(Errno::ENOSYS.into());
        }
        if flags != 0 {
            return Err(Errno::EBADFLAGS.into());
        }
        // SAFETY: not null, so writable. The application only reads the operations.
        unsafe { ops.write((&raw const OPS).cast_mut().cast()) };
        Ok(0)
    })
}

unsafe extern "C" fn reg(
    domain: *mut FidDomain,
    len: usize,
    access: u64,
    requested_key: u64,
    flags: u64,
    memory: *mut *mut c_void,
    mr: *mut *mut FidMr,
    context: *mut c_void,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open domain.
        let state = unsafe { object::state::<DomainState>(domain.cast())? };
        if memory.is_null() || mr.is_null() {
            return Err(Errno::EINVAL.into());
        }
        let attr = MrAttr { shareable: true, ..mr::make_mr_attr(access, requested_key, flags) };
        let region = state.domain.register(len, &attr)?;
        // SAFETY: not null, so writable.
        unsafe {
            memory.write(region.as_ptr().cast());
            mr.write(mr::open_mr_object(region, state, context));
        }
        Ok(0)
    })
}
