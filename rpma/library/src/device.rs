//! `struct ibv_context`, as far as librpma uses it: which peers an application opens.
//!
//! There is no device. A context says only which format the addresses of its peers have.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::ptr;

use homespun::params::Params;
use homespun_rpma::{AddressFormat, DomainName, PeerAttr};
use libc::{c_char, c_int};

use crate::edge::{BadArgument, Failure, run};
use crate::handle::{OutParam, text};
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
        let (name, place) = unsafe { (text(addr)?, OutParam::new(context_ptr)?) };
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
        let place = unsafe { OutParam::new(is_capable)? };
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
        Err(BadArgument::Null.into())
    } else if ptr::eq(context, &raw const IPV4) {
        Ok(AddressFormat::SockaddrIn)
    } else if ptr::eq(context, &raw const IPV6) {
        Ok(AddressFormat::SockaddrIn6)
    } else {
        Err(BadArgument::ForeignContext.into())
    }
}

/// Returns the address that a name stands for, one of IPv4 if there is any.
fn find_address(name: &str, kind: c_int) -> Result<IpAddr, Failure> {
    if !matches!(kind, LOCAL | REMOTE) {
        return Err(BadArgument::UnknownValue.into());
    }
    let failure = |reason| Failure::Address { name: name.to_owned(), reason };
    let found = (name, 0).to_socket_addrs().map_err(failure)?;
    let (first, then): (Vec<_>, Vec<_>) = found.partition(SocketAddr::is_ipv4);
    let mut last_failure = io::ErrorKind::NotFound.into();
    for address in first.into_iter().chain(then) {
        match check_usable(address, kind) {
            Ok(()) => return Ok(address.ip()),
            Err(reason) => last_failure = reason,
        }
    }
    Err(failure(last_failure))
}

/// Checks that an address is one of this host, if that was asked for.
fn check_usable(address: SocketAddr, kind: c_int) -> Result<(), io::Error> {
    match kind {
        LOCAL => UdpSocket::bind(address).map(drop),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn failure_of_an_address_has_its_reason() {
        let failure = find_address("192.0.2.1", LOCAL).unwrap_err();
        let reason = failure.source().and_then(|reason| reason.downcast_ref::<io::Error>()).unwrap();
        assert_eq!(reason.raw_os_error(), Some(libc::EADDRNOTAVAIL));
        assert!(failure.to_string().starts_with("192.0.2.1: "), "{failure}");
        assert_eq!(find_address("192.0.2.1", REMOTE).unwrap().to_string(), "192.0.2.1");
        assert!(find_address("no-such-host.invalid", REMOTE).unwrap_err().source().is_some());
    }
}
