//! `fi_endpoint(3)`. The calls of `fi_cm(3)` are in [`connection`], messages in [`message`] and
//! [`tagged`].

use homespun::flags::{BindFlags, CounterEvents, OpFlags};
use homespun::{Endpoint, Errno, Misuse};
use libc::{c_int, c_void};

use crate::abi::collective::FiOpsCollective;
use crate::abi::domain::FidDomain;
use crate::abi::endpoint::{FiOpsEp, FidEp};
use crate::abi::fid::{FiAlias, FiOps, Fid};
use crate::abi::info::FiInfo;
use crate::abi::{
    FI_ALIAS, FI_CLASS_AV, FI_CLASS_CNTR, FI_CLASS_CQ, FI_CLASS_EQ, FI_CLASS_SRX_CTX, FI_CLASS_STX_CTX,
    FI_ENABLE, FI_GETOPSFLAG, FI_RECV, FI_SETOPSFLAG, FI_TRANSMIT,
};
use crate::av::AvState;
use crate::c_misuse::CMisuse;
use crate::counter::CounterState;
use crate::cq::CqState;
use crate::edge::{Failure, run_entry_point};
use crate::eq::EqState;
use crate::handles::{self, Handle};
use crate::info::{Extent, read_info};
use crate::object::{self, Lease};
use crate::offered_name;
use crate::shared_receive_context::SharedReceiveContextState;
use crate::shared_transmit_context::SharedTransmitContextState;
use crate::states::{DomainState, EndpointState};
use crate::unsupported::StubFn;
use crate::{atomic, connection, message, options, posting, rma, tagged};

static FID_OPS: FiOps = FiOps { close, bind, control, ..FiOps::UNSUPPORTED };

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

pub(crate) static COLLECTIVE_OPS: FiOpsCollective = FiOpsCollective {
    size: size_of::<FiOpsCollective>(),
    barrier: StubFn::STUB,
    broadcast: StubFn::STUB,
    alltoall: StubFn::STUB,
    allreduce: StubFn::STUB,
    allgather: StubFn::STUB,
    reduce_scatter: StubFn::STUB,
    reduce: StubFn::STUB,
    scatter: StubFn::STUB,
    gather: StubFn::STUB,
    msg: StubFn::STUB,
    barrier2: StubFn::STUB,
};

/// `fi_endpoint`.
pub(crate) unsafe extern "C" fn open_endpoint(
    domain: *mut FidDomain,
    info: *mut FiInfo,
    ep: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open domain.
        let domain = unsafe { object::state::<DomainState>(domain.cast())? };
        if info.is_null() || ep.is_null() {
            return Err(Errno::EINVAL.into());
        }
        let api_version = domain.api_version;
        // SAFETY: not null, so valid; the field exists in every version of the structure.
        let handle = unsafe { (*info).handle };
        // SAFETY: the info has the fields of the application's headers, which are of `api_version`
        // or newer.
        let mut info = unsafe { read_info(info, Extent::Application { api_version })? };
        offered_name::restore_info_of_domain(&mut info, &domain.name, domain.domain.name());
        let (endpoint, request) = match handles::lookup_handle(handle) {
            _ if !info.endpoint_type().is_connected() => (domain.domain.endpoint(&info)?, None),
            None if handle.is_null() => (domain.domain.endpoint(&info)?, None),
            None => return Err(CMisuse::UnknownHandle.into()),
            Some(Handle::PassiveEndpoint(passive, _)) => {
                (domain.domain.endpoint_from_passive(&info, &passive)?, None)
            }
            Some(Handle::Request(request)) => {
                (domain.domain.endpoint_for_request(&info, &request)?, Some(request))
            }
        };
        let state = EndpointState::new(endpoint, request, domain);
        // SAFETY: not null, so writable.
        unsafe { ep.write(object::open(new_fid_ep(context), state)) };
        Ok(0)
    })
}

/// Returns the `struct fid_ep` of an endpoint.
fn new_fid_ep(context: *mut c_void) -> FidEp {
    FidEp {
        fid: object::new_fid::<EndpointState>(context, &FID_OPS),
        ops: &OPS,
        cm: &connection::OPS,
        msg: &message::OPS,
        rma: &rma::OPS,
        tagged: &tagged::OPS,
        atomic: &atomic::OPS,
        collective: &COLLECTIVE_OPS,
    }
}

/// `fi_ep_alias`. An alias of an alias is an alias of the endpoint itself.
///
/// # Safety
///
/// `alias` is null or points to writable memory.
unsafe fn open_alias(state: &EndpointState, context: *mut c_void, alias: &FiAlias) -> Result<(), Failure> {
    if alias.fid.is_null() {
        return Err(Errno::EINVAL.into());
    }
    let endpoint = state.endpoint.alias();
    setopsflag(&endpoint, alias.flags)?;
    let aliased = state.new_alias_state(endpoint);
    // SAFETY: not null, so writable.
    unsafe { alias.fid.write(object::open(new_fid_ep(context), aliased).cast()) };
    Ok(())
}

unsafe extern "C" fn close(ep: *mut Fid) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller closes an object of this class and uses it no more.
        unsafe { object::close::<EndpointState>(ep.cast(), |state| state.dependents.has_any())? };
        Ok(0)
    })
}

unsafe extern "C" fn bind(ep: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open endpoint.
        let state = unsafe { object::state::<EndpointState>(ep.cast())? };
        // SAFETY: the caller passes an open object of the same fabric, so it belongs to this
        // plugin.
        let lease = unsafe { bind_object(&state.endpoint, ep, other, flags)? };
        if let Some(lease) = lease {
            state.add_bound_lease(lease);
        }
        Ok(0)
    })
}

/// Binds an object, and returns its lease if it must not be closed before the endpoint.
///
/// # Safety
///
/// `other` is null or an open object of this plugin.
unsafe fn bind_object(
    endpoint: &Endpoint,
    ep: *mut Fid,
    other: *mut Fid,
    flags: u64,
) -> Result<Option<Lease>, Failure> {
    if other.is_null() {
        return Err(Errno::EINVAL.into());
    }
    // SAFETY: `other` is open, and its class determines the type of its state.
    unsafe {
        match (*other).fclass {
            FI_CLASS_CQ => {
                let cq = object::state::<CqState>(other.cast())?;
                endpoint.bind_cq(&cq.cq, BindFlags::from_bits_retain(flags))?;
                Ok(Some(cq.dependents.lease()))
            }
            FI_CLASS_AV | FI_CLASS_EQ | FI_CLASS_SRX_CTX | FI_CLASS_STX_CTX if flags != 0 => {
                Err(Misuse::Flags(flags).into())
            }
            FI_CLASS_AV => {
                let av = object::state::<AvState>(other.cast())?;
                endpoint.bind_av(&av.av)?;
                Ok(Some(av.dependents.lease()))
            }
            FI_CLASS_EQ => {
                let eq = object::state::<EqState>(other.cast())?;
                endpoint.bind_eq(&eq.eq, ep.expose_provenance() as u64)?;
                Ok(Some(eq.dependents.lease()))
            }
            FI_CLASS_SRX_CTX => {
                let srx = object::state::<SharedReceiveContextState>(other.cast())?;
                endpoint.bind_shared_receive_context(&srx.context)?;
                Ok(Some(srx.dependents.lease()))
            }
            FI_CLASS_STX_CTX => {
                let stx = object::state::<SharedTransmitContextState>(other.cast())?;
                endpoint.bind_shared_transmit_context(&stx.context)?;
                Ok(None)
            }
            FI_CLASS_CNTR => {
                let counter = object::state::<CounterState>(other.cast())?;
                endpoint.bind_counter(&counter.counter, CounterEvents::from_bits_retain(flags))?;
                Ok(Some(counter.dependents.lease()))
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }
}

unsafe extern "C" fn control(ep: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open endpoint.
        let state = unsafe { object::state::<EndpointState>(ep.cast())? };
        let endpoint = &state.endpoint;
        match command {
            FI_ALIAS if arg.is_null() => return Err(Errno::EINVAL.into()),
            // SAFETY: for this command `arg` points to a `struct fi_alias`; the endpoint is open.
            FI_ALIAS => unsafe { open_alias(state, (*ep).context, &*arg.cast())? },
            FI_ENABLE => endpoint.enable()?,
            FI_GETOPSFLAG | FI_SETOPSFLAG if arg.is_null() => return Err(Errno::EINVAL.into()),
            // SAFETY: for these commands `arg` points to flags.
            FI_GETOPSFLAG => unsafe { getopsflag(endpoint, arg.cast())? },
            // SAFETY: as above.
            FI_SETOPSFLAG => setopsflag(endpoint, unsafe { arg.cast::<u64>().read() })?,
            _ => return Err(Errno::ENOSYS.into()),
        }
        Ok(0)
    })
}

/// A direction: `FI_TRANSMIT` or `FI_RECV`.
enum Direction {
    Transmit,
    Receive,
}

impl Direction {
    /// Splits flags into a direction and the other flags. Fails unless the flags name exactly one
    /// direction.
    fn split_from_flags(flags: u64) -> Result<(Direction, OpFlags), Failure> {
        let rest = OpFlags::from_bits_retain(flags & !(FI_TRANSMIT | FI_RECV));
        match (flags & FI_TRANSMIT != 0, flags & FI_RECV != 0) {
            (true, false) => Ok((Direction::Transmit, rest)),
            (false, true) => Ok((Direction::Receive, rest)),
            _ => Err(CMisuse::NotOneDirection.into()),
        }
    }
}

/// `FI_GETOPSFLAG`: reads a direction from `flags`, and writes the default operation flags of this
/// direction to `flags`.
///
/// # Safety
///
/// `flags` is valid.
unsafe fn getopsflag(endpoint: &Endpoint, flags: *mut u64) -> Result<(), Failure> {
    // SAFETY: the caller promises it.
    let (direction, _) = Direction::split_from_flags(unsafe { flags.read() })?;
    let found = match direction {
        Direction::Transmit => endpoint.tx_op_flags(),
        Direction::Receive => endpoint.rx_op_flags(),
    };
    // SAFETY: the caller promises it.
    unsafe { flags.write(found.bits()) };
    Ok(())
}

/// `FI_SETOPSFLAG`: `flags` has a direction, and the new default operation flags of this direction.
fn setopsflag(endpoint: &Endpoint, flags: u64) -> Result<(), Failure> {
    match Direction::split_from_flags(flags)? {
        (Direction::Transmit, flags) => endpoint.set_tx_op_flags(flags)?,
        (Direction::Receive, flags) => endpoint.set_rx_op_flags(flags)?,
    }
    Ok(())
}

unsafe extern "C" fn cancel(ep: *mut Fid, context: *mut c_void) -> isize {
    run_entry_point(|| {
        // SAFETY: the caller passes an open endpoint.
        let endpoint = unsafe { &object::state::<EndpointState>(ep.cast())?.endpoint };
        endpoint.cancel(posting::context_number(context))?;
        Ok(0)
    })
}
