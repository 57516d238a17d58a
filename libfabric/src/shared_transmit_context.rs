//! Transmit contexts that endpoints share: `fi_stx_context` of `fi_endpoint(3)`.

use homespun::{Errno, SharedTransmitContext};
use libc::{c_int, c_void};

use crate::abi::FI_CLASS_STX_CTX;
use crate::abi::domain::FidDomain;
use crate::abi::endpoint::{FiOpsEp, FidStx};
use crate::abi::fid::{FiOps, Fid};
use crate::abi::info::FiTxAttr;
use crate::edge::run_entry_point;
use crate::info::{Extent, read_tx_attr};
use crate::object::{self, State};
use crate::states::DomainState;
use crate::unsupported::StubFn;

/// The state behind a `struct fid_stx`. It keeps no lease of its domain: MPICH closes the domain first, and
/// ends with a failure if that is refused.
pub(crate) struct SharedTransmitContextState {
    pub(crate) context: SharedTransmitContext,
}

// SAFETY: `struct fid_stx` begins with a `struct fid`.
unsafe impl State for SharedTransmitContextState {
    type Front = FidStx;
    const CLASS: usize = FI_CLASS_STX_CTX;
}

static FID_OPS: FiOps = FiOps { close, ..FiOps::UNSUPPORTED };

static OPS: FiOpsEp = FiOpsEp {
    size: size_of::<FiOpsEp>(),
    cancel: StubFn::STUB,
    getopt: StubFn::STUB,
    setopt: StubFn::STUB,
    tx_ctx: StubFn::STUB,
    rx_ctx: StubFn::STUB,
    rx_size_left: StubFn::STUB,
    tx_size_left: StubFn::STUB,
    export_xpu: StubFn::STUB,
};

/// `fi_stx_context`.
pub(crate) unsafe extern "C" fn open_shared_transmit_context(
    domain: *mut FidDomain,
    attr: *mut FiTxAttr,
    stx: *mut *mut FidStx,
    context: *mut c_void,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open domain.
        let domain = unsafe { object::state::<DomainState>(domain.cast())? };
        if stx.is_null() {
            return Err(Errno::EINVAL.into());
        }
        let api_version = domain.api_version;
        // SAFETY: the attributes are null, or laid out as in the application's headers.
        let attr = unsafe { read_tx_attr(attr, Extent::Application { api_version }) };
        let state = SharedTransmitContextState { context: domain.domain.shared_transmit_context(&attr)? };
        let front =
            FidStx { fid: object::new_fid::<SharedTransmitContextState>(context, &FID_OPS), ops: &OPS };
        // SAFETY: not null, so writable.
        unsafe { stx.write(object::open(front, state)) };
        Ok(0)
    })
}

unsafe extern "C" fn close(stx: *mut Fid) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller closes an object of this class and uses it no more. Endpoints that are bound to
        // the context have handles of their own.
        unsafe { object::close::<SharedTransmitContextState>(stx.cast(), |_| false)? };
        Ok(0)
    })
}
