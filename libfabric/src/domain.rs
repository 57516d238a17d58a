//! `fi_domain(3)`.

use homespun::info::{Info, Progress, Threading};
use homespun::{Domain, Errno, Error, Fabric};
use libc::{c_int, c_void};

use crate::abi::domain::{FiOpsDomain, FidDomain};
use crate::abi::fabric::FidFabric;
use crate::abi::fid::{FiOps, Fid};
use crate::abi::info::FiInfo;
use crate::abi::{FI_CANCEL_WORK, FI_FLUSH_WORK, FI_MAP_RAW_MR, FI_QUEUE_WORK, FI_UNMAP_KEY};
use crate::atomic;
use crate::av::open_av;
use crate::counter::open_counter;
use crate::cq::open_cq;
use crate::deferred_work;
use crate::edge::run_entry_point;
use crate::endpoint::open_endpoint;
use crate::info::{Extent, read_info};
use crate::memory;
use crate::mr;
use crate::object;
use crate::offered_name::{self, Names};
use crate::opened;
use crate::poll_set::open_poll_set;
use crate::shared_receive_context::open_shared_receive_context;
use crate::shared_transmit_context::open_shared_transmit_context;
use crate::states::{DomainState, FabricState};
use crate::unsupported::StubFn;

static FID_OPS: FiOps = FiOps { close, control, ops_open: memory::ops_open, ..FiOps::UNSUPPORTED };

static OPS: FiOpsDomain = FiOpsDomain {
    size: size_of::<FiOpsDomain>(),
    av_open: open_av,
    cq_open: open_cq,
    endpoint: open_endpoint,
    scalable_ep: StubFn::STUB,
    cntr_open: open_counter,
    poll_open: open_poll_set,
    stx_ctx: open_shared_transmit_context,
    srx_ctx: open_shared_receive_context,
    query_atomic: atomic::query_atomic,
    query_collective: StubFn::STUB,
    endpoint2: StubFn::STUB,
    xpu_ctx: StubFn::STUB,
};

/// `fi_domain`.
pub(crate) unsafe extern "C" fn open_domain(
    fabric: *mut FidFabric,
    info: *mut FiInfo,
    domain: *mut *mut FidDomain,
    context: *mut c_void,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open fabric.
        let fabric = unsafe { object::state::<FabricState>(fabric.cast())? };
        if info.is_null() || domain.is_null() {
            return Err(Errno::EINVAL.into());
        }
        let api_version = fabric.api_version;
        // SAFETY: the info has the fields of the application's headers, which are of `api_version`
        // or newer.
        let mut info = unsafe { read_info(info, Extent::Application { api_version })? };
        let asked = info.domain.name.clone();
        offered_name::restore_info(&fabric.fabric, &mut info)?;
        let front =
            FidDomain { fid: object::new_fid::<DomainState>(context, &FID_OPS), ops: &OPS, mr: &mr::OPS };
        let is_locked = needs_locks(&info);
        let native = open_with_locking(&fabric.fabric, &info, is_locked)?;
        let name = offered_name::name_of_open_domain(asked, native.name());
        let names = Names { fabric: fabric.name.clone(), domain: name.clone() };
        let opened = object::open(front, DomainState::new(native.clone(), name, fabric));
        opened::add_domain(opened, &native, names, &info, is_locked);
        // SAFETY: not null, so writable.
        unsafe { domain.write(opened) };
        Ok(0)
    })
}

/// Whether several threads may use the objects of a domain at the same time. This is always so for
/// connected endpoints. Their event queue belongs to the fabric, and any thread that reads the
/// event queue makes progress of the endpoints.
fn needs_locks(info: &Info) -> bool {
    info.domain.threading != Some(Threading::Domain)
        || info.domain.data_progress == Some(Progress::Auto)
        || info.endpoint_type().needs_locks()
}

/// Opens a domain with no more locks than its application needs.
fn open_with_locking(fabric: &Fabric, info: &Info, is_locked: bool) -> Result<Domain, Error> {
    if !is_locked {
        // SAFETY: an application that opens a domain with `FI_THREAD_DOMAIN` serialises all access
        // to the domain's objects (`fi_domain(3)`). `getinfo` grants that level only on request. No
        // progress thread runs. The plugin's thread for `FI_WAIT_MUTEX_COND` accesses neither
        // queues nor endpoints.
        unsafe { fabric.domain_unsynchronised(info) }
    } else {
        fabric.domain(info)
    }
}

unsafe extern "C" fn control(domain: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open domain.
        let state = unsafe { object::state::<DomainState>(domain.cast())? };
        match command {
            FI_MAP_RAW_MR | FI_UNMAP_KEY | FI_QUEUE_WORK | FI_CANCEL_WORK if arg.is_null() => {
                Err(Errno::EINVAL.into())
            }
            // SAFETY: for this command `arg` points to a `struct fi_mr_map_raw`.
            FI_MAP_RAW_MR => unsafe { mr::map_raw_key(&*arg.cast()) },
            FI_UNMAP_KEY => Ok(0),
            // SAFETY: for this command `arg` points to a `struct fi_deferred_work`, and it meets
            // the conditions of `fi_trigger(3)`.
            FI_QUEUE_WORK => unsafe { deferred_work::queue_work(&state.domain, arg.cast()) },
            FI_CANCEL_WORK => deferred_work::cancel_work(&state.domain, arg.cast()),
            // SAFETY: for this command `arg` is null, or an open counter.
            FI_FLUSH_WORK => unsafe { deferred_work::flush_work(&state.domain, arg.cast()) },
            _ => Err(Errno::ENOSYS.into()),
        }
    })
}

unsafe extern "C" fn close(domain: *mut Fid) -> c_int {
    run_entry_point(|| {
        let in_use = |state: &DomainState| {
            let has_dependents = state.dependents.has_any();
            // Remove the domain before another object may have the same address.
            if !has_dependents {
                opened::remove_domain(domain);
            }
            has_dependents
        };
        // SAFETY: the caller closes an object of this class and uses it no more.
        unsafe { object::close::<DomainState>(domain.cast(), in_use)? };
        Ok(0)
    })
}
