//! `struct ibv_context`, as far as librpma uses it: which peers an application opens.
//!
//! There is no device. A context says only which format the addresses of its peers have.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::ptr;

use homespun::params::Params;
use homespun_rpma::{AddressFormat, DomainName, PeerAttr};
use libc::{c_char, c_int};

use crate::edge::{Argument, Failure, run};
use crate::handle::{Place, text};
use crate::ibv::IbvContext;

static IPV4: IbvContext = IbvContext::new();
static IPV6: IbvContext = IbvContext::new();

/// `RPMA_UTIL_IBV_CONTEXT_LOCAL`
const LOCAL: c_int = 0;
/// `RPMA_UTIL_IBV_CONTEXT_REMOTE`
const REMOTE: c_int = 1;

/// Returns the context for an address of this host, or for one of a peer.
///
/// # Safety
///
/// `addr` is null or a C string; `context_ptr` is null or writable.
pub(crate) unsafe extern "C" fn rpma_utils_get_ibv_context(
    addr: *const c_char,
    kind: c_int,
    context_ptr: *mut *mut IbvContext,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let (name, place) = unsafe { (text(addr)?, Place::new(context_ptr)?) };
        let context = match find_address(name, kind)? {
            IpAddr::V4(_) => &raw const IPV4,
            IpAddr::V6(_) => &raw const IPV6,
        };
        place.write(context.cast_mut());
        Ok(())
    })
}

/// Returns whether memory can be registered that has no pages yet: always.
///
/// # Safety
///
/// `context` is null or from [`rpma_utils_get_ibv_context`]; `is_capable` is null or writable.
pub(crate) unsafe extern "C" fn rpma_utils_ibv_context_is_odp_capable(
    context: *const IbvContext,
    is_capable: *mut c_int,
) -> c_int {
    run(|| {
        // SAFETY: the caller promises it.
        let place = unsafe { Place::new(is_capable)? };
        format_of(context)?;
        place.write(1);
        Ok(())
    })
}

/// Returns the attributes of a peer that is opened from a context. The parameter `FI_HOMESPUN_DOMAIN` chooses
/// the way to other peers.
pub(crate) fn peer_attr(context: *const IbvContext) -> Result<PeerAttr, Failure> {
    let format = format_of(context)?;
    let domain = match Params::from_env().domain.as_deref() {
        Some("shm") => DomainName::Shm,
        Some("tcp") => DomainName::Tcp,
        // The peer refuses a domain that does not exist.
        _ => DomainName::Auto,
    };
    Ok(PeerAttr { domain, format })
}

fn format_of(context: *const IbvContext) -> Result<AddressFormat, Failure> {
    if context.is_null() {
        Err(Argument::Null.into())
    } else if ptr::eq(context, &raw const IPV4) {
        Ok(AddressFormat::SockaddrIn)
    } else if ptr::eq(context, &raw const IPV6) {
        Ok(AddressFormat::SockaddrIn6)
    } else {
        Err(Argument::ForeignContext.into())
    }
}

/// Returns the address that a name stands for, one of IPv4 if there is any.
fn find_address(name: &str, kind: c_int) -> Result<IpAddr, Failure> {
    let is_usable = |address: &SocketAddr| match kind {
        LOCAL => UdpSocket::bind(address).is_ok(),
        _ => true,
    };
    if !matches!(kind, LOCAL | REMOTE) {
        return Err(Argument::UnknownValue.into());
    }
    let found: Vec<SocketAddr> = (name, 0).to_socket_addrs().map(Iterator::collect).unwrap_or_default();
    let (first, then): (Vec<_>, Vec<_>) = found.into_iter().partition(SocketAddr::is_ipv4);
    let usable = first.into_iter().chain(then).find(is_usable);
    usable.map(|address| address.ip()).ok_or_else(|| Failure::Address(name.to_owned()))
}
