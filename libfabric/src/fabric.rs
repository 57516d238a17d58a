//! `fi_fabric(3)`.

use homespun::error::Unmet;
use homespun::info::Version;
use homespun::{Errno, Fabric, Misuse};
use libc::{c_int, c_void};

use crate::abi::fabric::{FiOpsFabric, FidFabric};
use crate::abi::fid::{FiOps, Fid};
use crate::abi::info::FiFabricAttr;
use crate::c_misuse::CMisuse;
use crate::domain::open_domain;
use crate::edge::run_entry_point;
use crate::eq::open_eq;
use crate::handles;
use crate::host;
use crate::info::read_string;
use crate::object::{self, Dependents};
use crate::offered_name;
use crate::opened;
use crate::passive_endpoint::open_passive;
use crate::states::FabricState;
use crate::unsupported::StubFn;
use crate::wait::trywait;
use crate::wait_set::open_wait_set;

static FID_OPS: FiOps = FiOps { close, ..FiOps::UNSUPPORTED };

static OPS: FiOpsFabric = FiOpsFabric {
    size: size_of::<FiOpsFabric>(),
    domain: open_domain,
    passive_ep: open_passive,
    eq_open: open_eq,
    wait_open: open_wait_set,
    trywait,
    domain2: StubFn::STUB,
};

/// Opens a fabric: the provider's side of `fi_fabric`.
pub(crate) unsafe extern "C" fn open_fabric(
    attr: *mut FiFabricAttr,
    fabric: *mut *mut FidFabric,
    context: *mut c_void,
) -> c_int {
    run_entry_point(|| {
        if attr.is_null() || fabric.is_null() {
            return Err(Errno::EINVAL.into());
        }
        // SAFETY: `attr` is not null, so valid. The host has converted the attributes to its own
        // version.
        let (name, api_version) =
            unsafe { (read_string((*attr).name)?, Version::from_raw((*attr).api_version)) };
        let native = Fabric::with_params(host::read_params());
        let name = name.ok_or(CMisuse::NamelessFabric)?;
        if !offered_name::is_fabric_name(&native, &name)? {
            return Err(Misuse::Unmet(Unmet::FabricName).into());
        }
        let front = FidFabric {
            fid: object::new_fid::<FabricState>(context, &FID_OPS),
            ops: &OPS,
            api_version: api_version.raw(),
        };
        let state = FabricState {
            fabric: native,
            name: name.clone(),
            api_version,
            dependents: Dependents::default(),
        };
        let opened = object::open(front, state);
        opened::add_fabric(opened, name);
        // SAFETY: not null, so writable.
        unsafe { fabric.write(opened) };
        Ok(0)
    })
}

unsafe extern "C" fn close(fabric: *mut Fid) -> c_int {
    run_entry_point(|| {
        let in_use = |state: &FabricState| {
            let has_dependents = state.dependents.has_any();
            // Remove the fabric before another object may have the same address.
            if !has_dependents {
                opened::remove_fabric(fabric);
                handles::remove_requests_of_fabric(fabric);
            }
            has_dependents
        };
        // SAFETY: the caller closes an object of this class and uses it no more.
        unsafe { object::close::<FabricState>(fabric.cast(), in_use)? };
        Ok(0)
    })
}
