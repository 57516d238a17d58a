//! Opens objects in their parents, and gives default attributes.

use std::ptr;

use homespun::Errno;
use homespun_fi::abi::domain::{FiAvAttr, FidAv, FidDomain, FidMr};
use homespun_fi::abi::endpoint::{FidEp, FidPep};
use homespun_fi::abi::eq::{FiCntrAttr, FiCqAttr, FiEqAttr, FidCntr, FidCq, FidEq};
use homespun_fi::abi::fabric::FidFabric;
use homespun_fi::abi::{FI_CNTR_EVENTS_COMP, FI_WAIT_NONE};
use libc::c_void;

use crate::info::InfoList;
use crate::library::check_result;
use crate::object::Object;

/// Attributes of a completion queue of this format, without a wait object, and with the provider's default
/// size.
pub fn cq_attr(format: u32) -> FiCqAttr {
    FiCqAttr {
        size: 0,
        flags: 0,
        format,
        wait_obj: FI_WAIT_NONE,
        signaling_vector: 0,
        wait_cond: 0,
        wait_set: ptr::null_mut(),
    }
}

/// Attributes of a counter that counts completions and has no wait object.
pub fn counter_attr() -> FiCntrAttr {
    FiCntrAttr { events: FI_CNTR_EVENTS_COMP, wait_obj: FI_WAIT_NONE, wait_set: ptr::null_mut(), flags: 0 }
}

/// Attributes of an address vector with the provider's default type and size.
pub fn av_attr() -> FiAvAttr {
    FiAvAttr {
        r#type: 0,
        rx_ctx_bits: 0,
        count: 0,
        ep_per_node: 0,
        name: ptr::null(),
        map_addr: ptr::null_mut(),
        flags: 0,
    }
}

/// Attributes of an event queue with a wait object that the provider chooses.
pub fn eq_attr() -> FiEqAttr {
    FiEqAttr {
        size: 0,
        flags: 0,
        wait_obj: homespun_fi::abi::FI_WAIT_UNSPEC,
        signaling_vector: 0,
        wait_set: ptr::null_mut(),
    }
}

impl Object<FidFabric> {
    /// `fi_domain(3)`.
    pub fn open_domain(&self, info: &InfoList) -> Result<Object<FidDomain>, Errno> {
        let (fabric, info) = (self.as_ptr(), info.as_ptr());
        // SAFETY: the fabric is open and the info valid.
        unsafe {
            Object::open([self.keep_alive_handle()], |domain| {
                ((*(*fabric).ops).domain)(fabric, info, domain, ptr::null_mut())
            })
        }
    }

    /// `fi_eq_open(3)`.
    ///
    /// # Safety
    ///
    /// The pointers among the attributes are null or valid.
    pub unsafe fn open_eq(&self, mut attr: FiEqAttr) -> Result<Object<FidEq>, Errno> {
        let fabric = self.as_ptr();
        // SAFETY: the fabric is open, and the caller promises the attributes.
        unsafe {
            Object::open([self.keep_alive_handle()], |eq| {
                ((*(*fabric).ops).eq_open)(fabric, &raw mut attr, eq, ptr::null_mut())
            })
        }
    }

    /// `fi_passive_ep(3)`.
    pub fn open_passive_endpoint(&self, info: &InfoList) -> Result<Object<FidPep>, Errno> {
        let (fabric, info) = (self.as_ptr(), info.as_ptr());
        // SAFETY: the fabric is open and the info valid.
        unsafe {
            Object::open([self.keep_alive_handle()], |pep| {
                ((*(*fabric).ops).passive_ep)(fabric, info, pep, ptr::null_mut())
            })
        }
    }
}

impl Object<FidDomain> {
    /// `fi_endpoint(3)`.
    pub fn open_endpoint(&self, info: &InfoList) -> Result<Object<FidEp>, Errno> {
        let (domain, info) = (self.as_ptr(), info.as_ptr());
        // SAFETY: the domain is open and the info valid.
        unsafe {
            Object::open([self.keep_alive_handle()], |ep| {
                ((*(*domain).ops).endpoint)(domain, info, ep, ptr::null_mut())
            })
        }
    }

    /// `fi_cq_open(3)`.
    ///
    /// # Safety
    ///
    /// The pointers among the attributes are null or valid.
    pub unsafe fn open_cq(&self, mut attr: FiCqAttr) -> Result<Object<FidCq>, Errno> {
        let domain = self.as_ptr();
        // SAFETY: the domain is open, and the caller promises the attributes.
        unsafe {
            Object::open([self.keep_alive_handle()], |cq| {
                ((*(*domain).ops).cq_open)(domain, &raw mut attr, cq, ptr::null_mut())
            })
        }
    }

    /// `fi_cntr_open(3)`.
    ///
    /// # Safety
    ///
    /// The pointers among the attributes are null or valid.
    pub unsafe fn open_counter(&self, mut attr: FiCntrAttr) -> Result<Object<FidCntr>, Errno> {
        let domain = self.as_ptr();
        // SAFETY: the domain is open, and the caller promises the attributes.
        unsafe {
            Object::open([self.keep_alive_handle()], |counter| {
                ((*(*domain).ops).cntr_open)(domain, &raw mut attr, counter, ptr::null_mut())
            })
        }
    }

    /// `fi_av_open(3)`.
    ///
    /// # Safety
    ///
    /// The pointers among the attributes are null or valid.
    pub unsafe fn open_av(&self, mut attr: FiAvAttr) -> Result<Object<FidAv>, Errno> {
        let domain = self.as_ptr();
        // SAFETY: the domain is open, and the caller promises the attributes.
        unsafe {
            Object::open([self.keep_alive_handle()], |av| {
                ((*(*domain).ops).av_open)(domain, &raw mut attr, av, ptr::null_mut())
            })
        }
    }

    /// `fi_mr_reg(3)`: registers memory at an address, with these access flags (such as `FI_REMOTE_WRITE`)
    /// and this requested key.
    ///
    /// # Safety
    ///
    /// Peers and this process access the memory through the region, as the flags allow. So the memory must
    /// stay allocated until the region is closed, and no Rust reference may borrow it meanwhile.
    pub unsafe fn register_memory(
        &self,
        buf: *mut c_void,
        len_bytes: usize,
        access: u64,
        requested_key: u64,
    ) -> Result<Object<FidMr>, Errno> {
        let domain = self.as_ptr();
        let fid = self.as_fid();
        // SAFETY: the domain is open, and the caller promises that the memory is valid.
        unsafe {
            Object::open([self.keep_alive_handle()], |mr| {
                let reg = (*(*domain).mr).reg;
                reg(fid, buf, len_bytes, access, 0, requested_key, 0, mr, ptr::null_mut())
            })
        }
    }
}

impl Object<FidEp> {
    /// `fi_getname(3)`.
    pub fn name(&self) -> Result<Vec<u8>, Errno> {
        let mut name = vec![0; 256];
        let mut len_bytes = name.len();
        let ep = self.as_ptr();
        // SAFETY: the endpoint is open, and `name` has room for `len_bytes` bytes.
        check_result(unsafe {
            ((*(*ep).cm).getname)(self.as_fid(), name.as_mut_ptr().cast(), &raw mut len_bytes)
        })?;
        name.truncate(len_bytes);
        Ok(name)
    }
}

impl Object<FidAv> {
    /// `fi_av_insert(3)`: inserts one address. The vector must report no events.
    pub fn insert(&self, name: &[u8]) -> Result<u64, Errno> {
        // A provider reads as many bytes as its address format has. The padding keeps it from reading beyond
        // the end of a shorter name.
        let mut padded = [0_u8; 256];
        // At least one zero is left, which terminates a name that is a string.
        padded[..255].get_mut(..name.len()).ok_or(Errno::EINVAL)?.copy_from_slice(name);
        let av = self.as_ptr();
        let mut address = u64::MAX;
        // SAFETY: the vector is open, the address is padded, and `address` has room for the result.
        let inserted = unsafe {
            ((*(*av).ops).insert)(av, padded.as_ptr().cast(), 1, &raw mut address, 0, ptr::null_mut())
        };
        if inserted == 1 { Ok(address) } else { Err(Errno::new(inserted.wrapping_neg())) }
    }
}
