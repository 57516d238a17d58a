//! `fi_av(3)`.

use std::{ptr, slice};

use homespun::av::{AvFlags, straddr};
use homespun::info::AvType;
use homespun::mutated;
use homespun::{Address, AddressVector, AvAttr, Errno, Error, FabricAddress, Misuse};
use libc::{c_char, c_int, c_void};

use crate::abi::domain::{FiAvAttr, FiOpsAv, FidAv, FidDomain};
use crate::abi::fid::{FiOps, Fid};
use crate::abi::{FI_ADDR_NOTAVAIL, FI_AV_USER_ID, FI_CLASS_AV, FI_SYNC_ERR};
use crate::edge::{Failure, run_entry_point};
use crate::info::read_string;
use crate::object::{self, Dependents, Lease, State};
use crate::sockaddr::{self, CAddress};
use crate::states::DomainState;
use crate::text;
use crate::unsupported::StubFn;

/// The object behind a `struct fid_av`.
pub(crate) struct AvState {
    pub(crate) av: AddressVector,
    pub(crate) dependents: Dependents,
    _domain: Lease,
}

// SAFETY: `struct fid_av` begins with a `struct fid`.
unsafe impl State for AvState {
    type Front = FidAv;
    const CLASS: usize = FI_CLASS_AV;
}

static FID_OPS: FiOps = FiOps { close, ..FiOps::UNSUPPORTED };

static OPS: FiOpsAv = FiOpsAv {
    size: size_of::<FiOpsAv>(),
    insert,
    insertsvc,
    insertsym,
    remove,
    lookup,
    straddr: straddr_to,
    av_set: StubFn::STUB,
    insert_auth_key: StubFn::STUB,
    lookup_auth_key: StubFn::STUB,
    set_user_id: StubFn::STUB,
    lookup2: StubFn::STUB,
};

/// `fi_av_open`.
pub(crate) unsafe extern "C" fn open_av(
    domain: *mut FidDomain,
    attr: *mut FiAvAttr,
    av: *mut *mut FidAv,
    context: *mut c_void,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open domain.
        let domain = unsafe { object::state::<DomainState>(domain.cast())? };
        if attr.is_null() || av.is_null() {
            return Err(Errno::EINVAL.into());
        }
        // SAFETY: not null, so valid.
        let wanted = unsafe { read_attr(attr)? };
        let opened = domain.domain.open_av(&wanted)?;
        let av_type = opened.av_type().raw();
        let state =
            AvState { av: opened, dependents: Dependents::default(), _domain: domain.dependents.lease() };
        let front = FidAv { fid: object::new_fid::<AvState>(context, &FID_OPS), ops: &OPS };
        // SAFETY: `attr` and `av` are not null, so both are writable. `r#type` tells the
        // application the type of the vector.
        unsafe {
            if !mutated!("fi_av/unspecified-type") {
                (*attr).r#type = av_type;
            }
            av.write(object::open(front, state));
        }
        Ok(0)
    })
}

/// # Safety
///
/// `attr` is valid, and so is its name.
unsafe fn read_attr(attr: *const FiAvAttr) -> Result<AvAttr, Failure> {
    // SAFETY: the fields exist in every version of the structure.
    unsafe {
        Ok(AvAttr {
            av_type: AvType::from_raw((*attr).r#type)?,
            count: (*attr).count,
            ep_per_node: (*attr).ep_per_node,
            // homespun ignores this value.
            rx_ctx_bits: u32::try_from((*attr).rx_ctx_bits).unwrap_or(0),
            name: read_string((*attr).name)?,
            flags: AvFlags::from_bits_retain((*attr).flags),
        })
    }
}

unsafe extern "C" fn close(av: *mut Fid) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller closes an object of this class and uses it no more.
        unsafe { object::close::<AvState>(av.cast(), |state| state.dependents.has_any())? };
        Ok(0)
    })
}

/// The application's arrays for the results of an insertion, with one element for each address.
struct Report {
    fi_addr: *mut u64,
    /// With `FI_SYNC_ERR`, the application's array of error numbers.
    errors: *mut c_int,
}

impl Report {
    fn new(fi_addr: *mut u64, flags: u64, context: *mut c_void) -> Result<Report, Failure> {
        if fi_addr.is_null() && mutated!("fi_av/index-without-result") {
            return Err(Errno::EINVAL.into());
        }
        // With `FI_AV_USER_ID` the caller chooses the `fi_addr_t` values, which homespun does not
        // support. Besides this flag only `FI_SYNC_ERR` has an effect.
        if flags & FI_AV_USER_ID != 0 && !mutated!("fi_av/user-identifiers") {
            return Err(Misuse::Flags(FI_AV_USER_ID).into());
        }
        let wants_errors = flags & FI_SYNC_ERR != 0;
        if wants_errors && context.is_null() {
            return Err(Errno::EINVAL.into());
        }
        Ok(Report { fi_addr, errors: if wants_errors { context.cast() } else { ptr::null_mut() } })
    }

    /// # Safety
    ///
    /// The application's arrays are longer than `index`.
    unsafe fn write_outcome(&self, index: usize, outcome: &Result<FabricAddress, Error>) {
        let (address, errno) = match outcome {
            Ok(address) => (address.0, 0),
            Err(error) => {
                let address = if mutated!("fi_av/failed-insertion-notavail") { 0 } else { FI_ADDR_NOTAVAIL };
                (address, if mutated!("fi_av/sync-err-reports-each") { 0 } else { error.errno().raw() })
            }
        };
        if !self.fi_addr.is_null() {
            // SAFETY: the caller promises it.
            unsafe { self.fi_addr.add(index).write(address) };
        }
        if !self.errors.is_null() {
            // SAFETY: the caller promises it.
            unsafe { self.errors.add(index).write(errno) };
        }
    }
}

unsafe extern "C" fn insert(
    av: *mut FidAv,
    addr: *const c_void,
    count: usize,
    fi_addr: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open address vector.
        let av = unsafe { &object::state::<AvState>(av.cast())?.av };
        let report = Report::new(fi_addr, flags, context)?;
        if count > 0 && addr.is_null() || c_int::try_from(count).is_err() {
            return Err(Errno::EINVAL.into());
        }
        let stride_bytes = av.format().len_bytes();
        let read = |index| {
            // SAFETY: the caller passes `count` addresses of the vector's format.
            let address = unsafe { sockaddr::read(addr.byte_add(index * stride_bytes), stride_bytes) };
            // Insert the wildcard address in place of an unreadable address. The vector refuses the
            // wildcard, and the refused address still takes an index.
            address.unwrap_or_else(|_| av.format().wildcard())
        };
        let addresses: Vec<Address> = (0..count).map(read).collect();
        let mut inserted = 0;
        for (index, outcome) in av.insert(&addresses).iter().enumerate() {
            inserted += c_int::from(outcome.is_ok() || mutated!("fi_av/insertion-returns-count"));
            // SAFETY: `insert` returns one result for each of the `count` addresses.
            unsafe { report.write_outcome(index, outcome) };
        }
        Ok(inserted)
    })
}

unsafe extern "C" fn insertsvc(
    av: *mut FidAv,
    node: *const c_char,
    service: *const c_char,
    fi_addr: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open address vector.
        let av = unsafe { &object::state::<AvState>(av.cast())?.av };
        let report = Report::new(fi_addr, flags, context)?;
        // SAFETY: the caller passes strings.
        let (Some(node), Some(service)) = (unsafe { (read_string(node)?, read_string(service)?) }) else {
            return Err(Errno::EINVAL.into());
        };
        let outcome = av.insert_svc(&node, &service);
        // SAFETY: one address is inserted.
        unsafe { report.write_outcome(0, &outcome) };
        outcome?;
        Ok(1)
    })
}

unsafe extern "C" fn insertsym(
    av: *mut FidAv,
    node: *const c_char,
    node_count: usize,
    service: *const c_char,
    service_count: usize,
    fi_addr: *mut u64,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open address vector.
        let av = unsafe { &object::state::<AvState>(av.cast())?.av };
        let report = Report::new(fi_addr, flags, context)?;
        // SAFETY: the caller passes strings.
        let (Some(node), Some(service)) = (unsafe { (read_string(node)?, read_string(service)?) }) else {
            return Err(Errno::EINVAL.into());
        };
        if node_count.checked_mul(service_count).is_none_or(|count| c_int::try_from(count).is_err()) {
            return Err(Errno::EINVAL.into());
        }
        let mut inserted = 0;
        for (index, outcome) in av.insert_sym(&node, node_count, &service, service_count)?.iter().enumerate()
        {
            inserted += c_int::from(outcome.is_ok());
            // SAFETY: `insert_sym` returns one result for each element of the application's arrays.
            unsafe { report.write_outcome(index, outcome) };
        }
        Ok(inserted)
    })
}

/// `fi_av_remove`. Ignores the flags, which have no meaning here.
unsafe extern "C" fn remove(av: *mut FidAv, fi_addr: *mut u64, count: usize, _flags: u64) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open address vector.
        let av = unsafe { &object::state::<AvState>(av.cast())?.av };
        if count == 0 {
            return Ok(0);
        }
        if fi_addr.is_null() {
            return Err(Errno::EINVAL.into());
        }
        // SAFETY: the caller passes `count` addresses.
        let raw = unsafe { slice::from_raw_parts(fi_addr, count) };
        let addresses: Vec<FabricAddress> = raw.iter().map(|&raw| FabricAddress(raw)).collect();
        av.remove(&addresses);
        Ok(0)
    })
}

unsafe extern "C" fn lookup(av: *mut FidAv, fi_addr: u64, addr: *mut c_void, addrlen: *mut usize) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open address vector.
        let av = unsafe { &object::state::<AvState>(av.cast())?.av };
        if addrlen.is_null() {
            return Err(Errno::EINVAL.into());
        }
        let address = CAddress::new(av.lookup(FabricAddress(fi_addr))?);
        // SAFETY: the caller passes the length of its buffer. Truncation is no error here.
        unsafe {
            let room_bytes = addrlen.read();
            address.copy_to(addr, addrlen);
            if mutated!("fi_av/lookup-truncates") {
                addrlen.write(room_bytes);
            }
        }
        Ok(0)
    })
}

unsafe extern "C" fn straddr_to(
    av: *mut FidAv,
    addr: *const c_void,
    buf: *mut c_char,
    len: *mut usize,
) -> *const c_char {
    run_entry_point(|| {
        // SAFETY: the caller passes an open address vector.
        let av = unsafe { &object::state::<AvState>(av.cast())?.av };
        if len.is_null() {
            return Err(Errno::EINVAL.into());
        }
        // SAFETY: the caller passes an address of the vector's format.
        let address = unsafe { sockaddr::read(addr, av.format().len_bytes())? };
        let printed = straddr(address);
        // SAFETY: `len` is the length of the buffer.
        unsafe {
            text::copy_terminated(printed.as_bytes(), buf, len.read());
            len.write(printed.len() + usize::from(!mutated!("fi_av/straddr-truncates")));
        }
        Ok(buf.cast_const())
    })
}
