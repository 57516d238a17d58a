//! Receive contexts that endpoints share: `fi_srx_context` of `fi_endpoint(3)`. Receives are posted
//! to them in [`shared_receives`].

use homespun::flags::OpFlags;
use homespun::{Errno, SharedReceiveContext};
use libc::{c_int, c_void};

use crate::abi::domain::FidDomain;
use crate::abi::endpoint::{FiOpsEp, FidEp};
use crate::abi::fid::{FiOps, Fid};
use crate::abi::info::FiRxAttr;
use crate::abi::{FI_CLASS_SRX_CTX, FI_ENABLE, FI_GETOPSFLAG, FI_RECV, FI_SETOPSFLAG, FI_TRANSMIT};
use crate::c_misuse::CMisuse;
use crate::edge::{Failure, run_entry_point};
use crate::endpoint::COLLECTIVE_OPS;
use crate::info::read_rx_attr;
use crate::object::{self, Dependents, Lease, State};
use crate::states::DomainState;
use crate::unsupported::StubFn;
use crate::{atomic, connection, options, posting, rma, shared_receives};

/// The state behind a `struct fid_ep` that is a receive context.
pub(crate) struct SharedReceiveContextState {
    pub(crate) context: SharedReceiveContext,
    pub(crate) dependents: Dependents,
    _domain: Lease,
}

// SAFETY: `struct fid_ep` begins with a `struct fid`.
unsafe impl State for SharedReceiveContextState {
    type Front = FidEp;
    const CLASS: usize = FI_CLASS_SRX_CTX;
}

static FID_OPS: FiOps = FiOps {
    close,
    // Queues and counters are bound to the endpoints of the context, not to the context.
    bind: StubFn::STUB,
    control,
    ..FiOps::UNSUPPORTED
};

static OPS: FiOpsEp = FiOpsEp {
    size: size_of::<FiOpsEp>(),
    cancel,
    getopt: options::getopt,
    setopt: options::setopt,
    tx_ctx: StubFn::STUB,
    rx_ctx: StubFn::STUB,
    rx_size_left: StubFn::STUB,
    tx_size_left: StubFn::STUB,
    export_xpu: StubFn::STUB,
};

/// `fi_srx_context`.
pub(crate) unsafe extern "C" fn open_shared_receive_context(
    domain: *mut FidDomain,
    attr: *mut FiRxAttr,
    rx_ep: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open domain.
        let domain = unsafe { object::state::<DomainState>(domain.cast())? };
        if rx_ep.is_null() {
            return Err(Errno::EINVAL.into());
        }
        // SAFETY: the attributes are null or valid.
        let attr = unsafe { read_rx_attr(attr) };
        let state = SharedReceiveContextState {
            context: domain.domain.shared_receive_context(&attr)?,
            dependents: Dependents::default(),
            _domain: domain.dependents.lease(),
        };
        let front = FidEp {
            fid: object::new_fid::<SharedReceiveContextState>(context, &FID_OPS),
            ops: &OPS,
            msg: &shared_receives::MSG_OPS,
            tagged: &shared_receives::TAGGED_OPS,
            // The calls of these vtables refuse every object but an endpoint.
            cm: &connection::OPS,
            rma: &rma::OPS,
            atomic: &atomic::OPS,
            collective: &COLLECTIVE_OPS,
        };
        // SAFETY: not null, so writable.
        unsafe { rx_ep.write(object::open(front, state)) };
        Ok(0)
    })
}

/// Returns the shared receive context behind a pointer from C.
///
/// # Errors
///
/// As [`object::state`].
///
/// # Safety
///
/// As [`object::state`].
pub(crate) unsafe fn receive_context_from_fid<'a>(
    srx: *const c_void,
) -> Result<&'a SharedReceiveContext, Failure> {
    // SAFETY: the caller promises it.
    Ok(unsafe { &object::state::<SharedReceiveContextState>(srx)?.context })
}

unsafe extern "C" fn close(srx: *mut Fid) -> c_int {
    run_entry_point(|| {
        let in_use = |state: &SharedReceiveContextState| state.dependents.has_any();
        // SAFETY: the caller closes an object of this class and uses it no more.
        unsafe { object::close::<SharedReceiveContextState>(srx.cast(), in_use)? };
        Ok(0)
    })
}

unsafe extern "C" fn control(srx: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open context.
        let context = unsafe { receive_context_from_fid(srx.cast())? };
        let flags: *mut u64 = arg.cast();
        match command {
            // A context accepts receives as soon as it is open.
            FI_ENABLE => {}
            FI_GETOPSFLAG | FI_SETOPSFLAG if arg.is_null() => return Err(Errno::EINVAL.into()),
            FI_GETOPSFLAG => {
                // SAFETY: for this command `arg` points to flags.
                parse_receive_flags(unsafe { flags.read() })?;
                // SAFETY: as above.
                unsafe { flags.write(context.rx_op_flags().bits()) };
            }
            // SAFETY: for this command `arg` points to flags.
            FI_SETOPSFLAG => context.set_rx_op_flags(parse_receive_flags(unsafe { flags.read() })?)?,
            _ => return Err(Errno::ENOSYS.into()),
        }
        Ok(0)
    })
}

/// Returns the operation flags of a command. Fails unless the command names receives as its only
/// direction.
fn parse_receive_flags(flags: u64) -> Result<OpFlags, Failure> {
    if flags & FI_RECV == 0 || flags & FI_TRANSMIT != 0 {
        return Err(CMisuse::NotReceiving.into());
    }
    Ok(OpFlags::from_bits_retain(flags & !FI_RECV))
}

unsafe extern "C" fn cancel(srx: *mut Fid, context: *mut c_void) -> isize {
    run_entry_point(|| {
        // SAFETY: the caller passes an open context.
        unsafe { receive_context_from_fid(srx.cast())? }.cancel(posting::context_number(context))?;
        Ok(0)
    })
}
