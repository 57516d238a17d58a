//! Passive endpoints: `fi_passive_ep` of `fi_endpoint(3)`, and their part of `fi_cm(3)`.

use homespun::{Errno, Misuse, PassiveEndpoint};
use libc::{c_int, c_void};
use parking_lot::Mutex;

use crate::abi::endpoint::{FiOpsCm, FiOpsEp, FidPep};
use crate::abi::fabric::FidFabric;
use crate::abi::fid::{FiOps, Fid};
use crate::abi::info::FiInfo;
use crate::abi::{FI_BACKLOG, FI_CLASS_EQ, FI_CLASS_PEP};
use crate::c_misuse::CMisuse;
use crate::connection::connection_data;
use crate::edge::run_entry_point;
use crate::eq::EqState;
use crate::info::{Extent, read_info};
use crate::object::{self, Lease, State};
use crate::offered_name::{self, Names};
use crate::sockaddr::{self, CAddress};
use crate::states::FabricState;
use crate::unsupported::StubFn;
use crate::{handles, options};

/// The object behind a `struct fid_pep`.
pub(crate) struct PassiveState {
    passive: PassiveEndpoint,
    /// The leases of the objects bound to it.
    bound: Mutex<Vec<Lease>>,
    _fabric: Lease,
}

// SAFETY: `struct fid_pep` begins with a `struct fid`.
unsafe impl State for PassiveState {
    type Front = FidPep;
    const CLASS: usize = FI_CLASS_PEP;
}

static FID_OPS: FiOps = FiOps { close, bind, control, ..FiOps::UNSUPPORTED };

static OPS: FiOpsEp = FiOpsEp {
    size: size_of::<FiOpsEp>(),
    cancel: StubFn::STUB,
    getopt: options::getopt,
    setopt: options::setopt,
    tx_ctx: StubFn::STUB,
    rx_ctx: StubFn::STUB,
    rx_size_left: StubFn::STUB,
    tx_size_left: StubFn::STUB,
    export_xpu: StubFn::STUB,
};

static CM_OPS: FiOpsCm = FiOpsCm {
    size: size_of::<FiOpsCm>(),
    setname,
    getname,
    getpeer: StubFn::STUB,
    connect: StubFn::STUB,
    listen,
    accept: StubFn::STUB,
    reject,
    shutdown: StubFn::STUB,
    join: StubFn::STUB,
};

/// `fi_passive_ep`.
pub(crate) unsafe extern "C" fn open_passive(
    fabric: *mut FidFabric,
    info: *mut FiInfo,
    pep: *mut *mut FidPep,
    context: *mut c_void,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open fabric.
        let fabric = unsafe { object::state::<FabricState>(fabric.cast())? };
        if info.is_null() || pep.is_null() {
            return Err(Errno::EINVAL.into());
        }
        let api_version = fabric.api_version;
        // SAFETY: the info has the fields of the application's headers, which are of `api_version`
        // or newer.
        let mut info = unsafe { read_info(info, Extent::Application { api_version })? };
        let asked = info.domain.name.clone();
        offered_name::restore_info(&fabric.fabric, &mut info)?;
        let passive = fabric.fabric.passive_endpoint(&info)?;
        let native = info.domain.name.as_deref().unwrap_or_default();
        let domain = offered_name::name_of_open_domain(asked, native);
        let names = Names { fabric: fabric.name.clone(), domain };
        let state = PassiveState {
            passive: passive.clone(),
            bound: Mutex::default(),
            _fabric: fabric.dependents.lease(),
        };
        let front =
            FidPep { fid: object::new_fid::<PassiveState>(context, &FID_OPS), ops: &OPS, cm: &CM_OPS };
        let opened = object::open(front, state);
        handles::add_passive(opened, &passive, names);
        // SAFETY: not null, so writable.
        unsafe { pep.write(opened) };
        Ok(0)
    })
}

unsafe extern "C" fn close(pep: *mut Fid) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller closes an object of this class and uses it no more.
        unsafe { object::state::<PassiveState>(pep.cast())? };
        // Remove the endpoint before another object may have the same address.
        handles::remove_passive(pep);
        // SAFETY: as above.
        unsafe { object::close::<PassiveState>(pep.cast(), |_| false)? };
        Ok(0)
    })
}

unsafe extern "C" fn bind(pep: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open passive endpoint.
        let state = unsafe { object::state::<PassiveState>(pep.cast())? };
        // SAFETY: the caller passes an open object of the same fabric, or null.
        if other.is_null() || unsafe { (*other).fclass } != FI_CLASS_EQ {
            return Err(Errno::EINVAL.into());
        }
        if flags != 0 {
            return Err(Misuse::Flags(flags).into());
        }
        // SAFETY: it is an open event queue.
        let eq = unsafe { object::state::<EqState>(other.cast())? };
        state.passive.bind_eq(&eq.eq, pep.expose_provenance() as u64)?;
        state.bound.lock().push(eq.dependents.lease());
        Ok(0)
    })
}

unsafe extern "C" fn control(pep: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open passive endpoint.
        let state = unsafe { object::state::<PassiveState>(pep.cast())? };
        match command {
            FI_BACKLOG if arg.is_null() => Err(Errno::EINVAL.into()),
            FI_BACKLOG => {
                // SAFETY: for this command `arg` points to an `int`.
                let requests = unsafe { arg.cast::<c_int>().read() };
                let requests = usize::try_from(requests).map_err(|_| Errno::EINVAL)?;
                state.passive.set_backlog(requests)?;
                Ok(0)
            }
            _ => Err(Errno::ENOSYS.into()),
        }
    })
}

unsafe extern "C" fn setname(pep: *mut Fid, addr: *mut c_void, addrlen: usize) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open passive endpoint and an address of this length.
        unsafe {
            let passive = &object::state::<PassiveState>(pep.cast())?.passive;
            passive.set_name(sockaddr::read(addr, addrlen)?)?;
        }
        Ok(0)
    })
}

unsafe extern "C" fn getname(pep: *mut Fid, addr: *mut c_void, addrlen: *mut usize) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open passive endpoint.
        let passive = unsafe { &object::state::<PassiveState>(pep.cast())?.passive };
        if addrlen.is_null() {
            return Err(Errno::EINVAL.into());
        }
        let name = CAddress::new(passive.name()?);
        // SAFETY: the caller passes the length of its buffer.
        if unsafe { name.copy_to(addr, addrlen) } { Ok(0) } else { Err(Errno::ETOOSMALL.into()) }
    })
}

unsafe extern "C" fn listen(pep: *mut FidPep) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open passive endpoint.
        unsafe { object::state::<PassiveState>(pep.cast())? }.passive.listen()?;
        Ok(0)
    })
}

unsafe extern "C" fn reject(
    pep: *mut FidPep,
    handle: *mut Fid,
    param: *const c_void,
    paramlen: usize,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open passive endpoint.
        unsafe { object::state::<PassiveState>(pep.cast())? };
        let request = handles::lookup_request_of_passive(pep, handle).ok_or(CMisuse::NoRequest)?;
        // SAFETY: the caller passes data of this length.
        request.reject(unsafe { connection_data(param, paramlen)? })?;
        handles::forget_request(&request);
        Ok(0)
    })
}
