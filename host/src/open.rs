//! Opens objects in their parents, and gives default attributes.

use std::mem::MaybeUninit;
use std::ptr;

use homespun::Errno;
use homespun_fi::abi::domain::{FiAvAttr, FidAv, FidDomain, FidMr};
use homespun_fi::abi::endpoint::{FidEp, FidPep};
use homespun_fi::abi::eq::{
    FiCntrAttr, FiCqAttr, FiCqErrEntry, FiCqTaggedEntry, FiEqAttr, FidCntr, FidCq, FidEq,
};
use homespun_fi::abi::fabric::FidFabric;
use homespun_fi::abi::{FI_CNTR_EVENTS_COMP, FI_WAIT_NONE, FI_WAIT_UNSPEC};
use libc::c_void;

use crate::info::InfoList;
use crate::library::check_result;
use crate::object::Object;

/// No context: these objects have none.
const NULL: *mut c_void = ptr::null_mut();

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
    FiEqAttr { size: 0, flags: 0, wait_obj: FI_WAIT_UNSPEC, signaling_vector: 0, wait_set: ptr::null_mut() }
}

impl Object<FidFabric> {
    /// `fi_domain(3)`.
    pub fn open_domain(&self, info: &InfoList) -> Result<Object<FidDomain>, Errno> {
        let info = info.as_ptr();
        // SAFETY: the fabric is open and the info valid.
        unsafe { self.open_child(|fabric, domain| ((*(*fabric).ops).domain)(fabric, info, domain, NULL)) }
    }

    /// `fi_eq_open(3)`.
    ///
    /// # Safety
    ///
    /// The pointers among the attributes are null or valid.
    pub unsafe fn open_eq(&self, mut attr: FiEqAttr) -> Result<Object<FidEq>, Errno> {
        // SAFETY: the fabric is open, and the caller promises the attributes.
        unsafe { self.open_child(|fabric, eq| ((*(*fabric).ops).eq_open)(fabric, &raw mut attr, eq, NULL)) }
    }

    /// `fi_passive_ep(3)`.
    pub fn open_passive_endpoint(&self, info: &InfoList) -> Result<Object<FidPep>, Errno> {
        let info = info.as_ptr();
        // SAFETY: the fabric is open and the info valid.
        unsafe { self.open_child(|fabric, pep| ((*(*fabric).ops).passive_ep)(fabric, info, pep, NULL)) }
    }
}

impl Object<FidDomain> {
    /// `fi_endpoint(3)`.
    pub fn open_endpoint(&self, info: &InfoList) -> Result<Object<FidEp>, Errno> {
        let info = info.as_ptr();
        // SAFETY: the domain is open and the info valid.
        unsafe { self.open_child(|domain, ep| ((*(*domain).ops).endpoint)(domain, info, ep, NULL)) }
    }

    /// `fi_cq_open(3)`.
    ///
    /// # Safety
    ///
    /// The pointers among the attributes are null or valid.
    pub unsafe fn open_cq(&self, mut attr: FiCqAttr) -> Result<Object<FidCq>, Errno> {
        // SAFETY: the domain is open, and the caller promises the attributes.
        unsafe { self.open_child(|domain, cq| ((*(*domain).ops).cq_open)(domain, &raw mut attr, cq, NULL)) }
    }

    /// `fi_cntr_open(3)`.
    ///
    /// # Safety
    ///
    /// The pointers among the attributes are null or valid.
    pub unsafe fn open_counter(&self, mut attr: FiCntrAttr) -> Result<Object<FidCntr>, Errno> {
        // SAFETY: the domain is open, and the caller promises the attributes.
        unsafe {
            self.open_child(|domain, cntr| ((*(*domain).ops).cntr_open)(domain, &raw mut attr, cntr, NULL))
        }
    }

    /// `fi_av_open(3)`.
    ///
    /// # Safety
    ///
    /// The pointers among the attributes are null or valid.
    pub unsafe fn open_av(&self, mut attr: FiAvAttr) -> Result<Object<FidAv>, Errno> {
        // SAFETY: the domain is open, and the caller promises the attributes.
        unsafe { self.open_child(|domain, av| ((*(*domain).ops).av_open)(domain, &raw mut attr, av, NULL)) }
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
        let fid = self.as_fid();
        // SAFETY: the domain is open, and the caller promises that the memory is valid.
        unsafe {
            self.open_child(|domain, mr| {
                ((*(*domain).mr).reg)(fid, buf, len_bytes, access, 0, requested_key, 0, mr, NULL)
            })
        }
    }
}

impl Object<FidCq> {
    /// Reads one entry of any format. Its later fields are zero if entries of this queue are shorter. Fails
    /// with `EAGAIN` if there is none. `call` is `fi_cq_read(3)` or a similar function.
    ///
    /// # Safety
    ///
    /// Whatever `call` returns, it writes at most one entry of a completion queue to the place that it gets.
    pub unsafe fn read_entry(
        &self,
        call: impl FnOnce(*mut FidCq, *mut c_void) -> isize,
    ) -> Result<FiCqTaggedEntry, Errno> {
        let mut entry = MaybeUninit::<FiCqTaggedEntry>::zeroed();
        check_count(call(self.as_ptr(), entry.as_mut_ptr().cast()))?;
        // SAFETY: all its bytes were zero or were written, which is valid for numbers and pointers.
        Ok(unsafe { entry.assume_init() })
    }

    /// `fi_cq_readerr(3)`, with room for the data of the error. Fails with `EAGAIN` if there is none.
    pub fn read_error_entry(&self, data: &mut [u8]) -> Result<FiCqErrEntry, Errno> {
        let cq = self.as_ptr();
        let mut entry = MaybeUninit::<FiCqErrEntry>::zeroed();
        // SAFETY: the queue is open, and the entry has room for as much data as it says. All its bytes are
        // zero or written, which is valid for numbers and pointers.
        unsafe {
            (*entry.as_mut_ptr()).err_data = data.as_mut_ptr().cast();
            (*entry.as_mut_ptr()).err_data_size = data.len();
            check_count(((*(*cq).ops).readerr)(cq, entry.as_mut_ptr(), 0))?;
            Ok(entry.assume_init())
        }
    }
}

/// Checks the number of entries that a call has read.
fn check_count(count: isize) -> Result<(), Errno> {
    match count {
        1.. => Ok(()),
        0 => Err(Errno::EAGAIN),
        error => Err(Errno::new(i32::try_from(-error).unwrap_or(i32::MAX))),
    }
}

impl Object<FidEp> {
    /// `fi_getname(3)`.
    pub fn name(&self) -> Result<Vec<u8>, Errno> {
        let mut name = vec![0; 256];
        let mut len_bytes = name.len();
        let ep = self.as_ptr();
        // SAFETY: the endpoint is open, and `name` has room for `len_bytes` bytes.
        let result =
            unsafe { ((*(*ep).cm).getname)(self.as_fid(), name.as_mut_ptr().cast(), &raw mut len_bytes) };
        check_result(result)?;
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
        let padded = padded.as_ptr().cast();
        // SAFETY: the vector is open, the address is padded, and `address` has room for the result.
        let inserted = unsafe { ((*(*av).ops).insert)(av, padded, 1, &raw mut address, 0, NULL) };
        if inserted == 1 { Ok(address) } else { Err(Errno::new(inserted.wrapping_neg())) }
    }
}
