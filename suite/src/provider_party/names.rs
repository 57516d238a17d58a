//! The names of endpoints, as bytes of the C interface.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::slice;

use libc::{AF_INET, AF_INET6, c_int, sa_family_t, sockaddr_in, sockaddr_in6};

use crate::form::NameForm;

/// Reads a name.
pub(super) fn name_from_bytes(bytes: &[u8]) -> NameForm {
    let address = bytes.as_ptr();
    if bytes.len() >= size_of::<sa_family_t>() {
        // SAFETY: there are enough bytes for the family, and then for its address; they may be unaligned.
        // Any bytes are a valid structure.
        unsafe {
            match c_int::from(address.cast::<sa_family_t>().read_unaligned()) {
                AF_INET if bytes.len() >= size_of::<sockaddr_in>() => {
                    let raw = address.cast::<sockaddr_in>().read_unaligned();
                    let ip = Ipv4Addr::from_bits(u32::from_be(raw.sin_addr.s_addr));
                    return NameForm::Socket(SocketAddr::from((ip, u16::from_be(raw.sin_port))));
                }
                AF_INET6 if bytes.len() >= size_of::<sockaddr_in6>() => {
                    let raw = address.cast::<sockaddr_in6>().read_unaligned();
                    let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
                    let port = u16::from_be(raw.sin6_port);
                    return NameForm::Socket(SocketAddrV6::new(ip, port, 0, raw.sin6_scope_id).into());
                }
                _ => {}
            }
        }
    }
    NameForm::Opaque(bytes.to_vec())
}

/// Writes a name.
pub(super) fn bytes_of_name(name: NameForm) -> Vec<u8> {
    let address = match name {
        NameForm::Opaque(bytes) => return bytes,
        NameForm::Socket(address) => address,
    };
    let address = socket2::SockAddr::from(address);
    // SAFETY: the address has so many initialised bytes, and lives until they are copied.
    unsafe { slice::from_raw_parts(address.as_ptr().cast::<u8>(), address.len() as usize) }.to_vec()
}
