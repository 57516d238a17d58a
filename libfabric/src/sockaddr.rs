//! Socket addresses in the caller's memory.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use homespun::{Address, Errno};
use libc::{c_int, c_void, sa_family_t, sockaddr_in, sockaddr_in6};

use crate::edge::Failure;

/// Reads an address that is `len_bytes` long.
///
/// # Errors
///
/// EINVAL if `addr` is null, if `len_bytes` is too small, or if the family is neither IPv4 nor
/// IPv6.
///
/// # Safety
///
/// `addr` is null or readable for `len_bytes`.
pub(crate) unsafe fn read(addr: *const c_void, len_bytes: usize) -> Result<Address, Failure> {
    if addr.is_null() || len_bytes < size_of::<sa_family_t>() {
        return Err(Errno::EINVAL.into());
    }
    // SAFETY: there are enough bytes for the family; it may be unaligned.
    let family = c_int::from(unsafe { addr.cast::<sa_family_t>().read_unaligned() });
    let address = match family {
        libc::AF_INET if len_bytes >= size_of::<sockaddr_in>() => {
            // SAFETY: there are enough bytes, and any bytes are a `sockaddr_in`.
            let raw = unsafe { addr.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from_bits(u32::from_be(raw.sin_addr.s_addr));
            SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)))
        }
        libc::AF_INET6 if len_bytes >= size_of::<sockaddr_in6>() => {
            // SAFETY: there are enough bytes, and any bytes are a `sockaddr_in6`.
            let raw = unsafe { addr.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            SocketAddr::V6(SocketAddrV6::new(ip, u16::from_be(raw.sin6_port), 0, raw.sin6_scope_id))
        }
        _ => return Err(Errno::EINVAL.into()),
    };
    Ok(address.into())
}

/// An address in its C form.
pub(crate) enum CAddress {
    V4(sockaddr_in),
    V6(sockaddr_in6),
}

impl CAddress {
    /// Converts an address.
    pub(crate) fn new(address: Address) -> CAddress {
        match address.socket_addr() {
            SocketAddr::V4(v4) => {
                // SAFETY: all zeroes are a `sockaddr_in`.
                let mut raw: sockaddr_in = unsafe { std::mem::zeroed() };
                raw.sin_family = libc::AF_INET as sa_family_t;
                raw.sin_port = v4.port().to_be();
                raw.sin_addr.s_addr = v4.ip().to_bits().to_be();
                CAddress::V4(raw)
            }
            SocketAddr::V6(v6) => {
                // SAFETY: all zeroes are a `sockaddr_in6`.
                let mut raw: sockaddr_in6 = unsafe { std::mem::zeroed() };
                raw.sin6_family = libc::AF_INET6 as sa_family_t;
                raw.sin6_port = v6.port().to_be();
                raw.sin6_addr.s6_addr = v6.ip().octets();
                raw.sin6_scope_id = v6.scope_id();
                CAddress::V6(raw)
            }
        }
    }

    /// Returns its size in bytes.
    pub(crate) fn len_bytes(&self) -> usize {
        match self {
            CAddress::V4(raw) => size_of_val(raw),
            CAddress::V6(raw) => size_of_val(raw),
        }
    }

    /// Returns its bytes.
    pub(crate) fn to_bytes(&self) -> Box<[u8]> {
        let mut bytes = vec![0; self.len_bytes()];
        let mut len_bytes = bytes.len();
        // SAFETY: `bytes` has `len_bytes` bytes.
        unsafe { self.copy_to(bytes.as_mut_ptr().cast(), &raw mut len_bytes) };
        bytes.into()
    }

    /// Copies as much as fits into the caller's buffer, as `fi_getname(3)` and `fi_av_lookup` do.
    /// `*len_bytes` is the buffer's size before the call, and the address's size after the call.
    ///
    /// Returns whether the whole address fits.
    ///
    /// # Safety
    ///
    /// `len_bytes` is valid for reading and writing. `to` is null, or writable for `*len_bytes`
    /// bytes.
    pub(crate) unsafe fn copy_to(&self, to: *mut c_void, len_bytes: *mut usize) -> bool {
        // SAFETY: the caller promises it. Null has no room.
        let room_bytes = if to.is_null() { 0 } else { unsafe { len_bytes.read() } };
        let from: *const u8 = match self {
            CAddress::V4(raw) => (&raw const *raw).cast(),
            CAddress::V6(raw) => (&raw const *raw).cast(),
        };
        let count_bytes = self.len_bytes().min(room_bytes);
        if count_bytes > 0 {
            // SAFETY: `from` has `len_bytes()` bytes, `to` has `room_bytes`. They do not overlap:
            // `from` is on the plugin's stack or heap.
            unsafe { std::ptr::copy_nonoverlapping(from, to.cast(), count_bytes) };
        }
        // SAFETY: the caller promises it.
        unsafe { len_bytes.write(self.len_bytes()) };
        count_bytes == self.len_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip_through_c(address: Address) -> Address {
        let mut room = [0u8; 32];
        let mut len_bytes = room.len();
        // SAFETY: `len_bytes` is the length of `room`.
        unsafe {
            assert!(CAddress::new(address).copy_to(room.as_mut_ptr().cast(), &raw mut len_bytes));
            assert_eq!(len_bytes, address.format().len_bytes());
            read(room.as_ptr().cast(), len_bytes).unwrap()
        }
    }

    #[test]
    fn addresses_round_trip_through_c() {
        for text in ["192.0.2.7:4711", "[2001:db8::7]:65535", "[fe80::1%3]:1", "0.0.0.0:0"] {
            let address = Address::from(text.parse::<SocketAddr>().unwrap());
            assert_eq!(round_trip_through_c(address), address, "{text}");
        }
    }

    #[test]
    fn short_or_foreign_sockaddr_is_refused() {
        let mut raw = [0u8; 28];
        raw[0] = libc::AF_INET6 as u8;
        // SAFETY: no length exceeds that of `raw`.
        unsafe {
            assert!(read(raw.as_ptr().cast(), 28).is_ok());
            assert_eq!(read(raw.as_ptr().cast(), 27), Err(Errno::EINVAL.into()));
            assert_eq!(read(raw.as_ptr().cast(), 1), Err(Errno::EINVAL.into()));
            assert_eq!(read(std::ptr::null(), 28), Err(Errno::EINVAL.into()));
            raw[0] = libc::AF_UNIX as u8;
            assert_eq!(read(raw.as_ptr().cast(), 28), Err(Errno::EINVAL.into()));
        }
    }

    #[test]
    fn short_buffer_gets_truncated_address_and_full_length() {
        let address = CAddress::new(Address::from("127.0.0.1:7".parse::<SocketAddr>().unwrap()));
        let mut room = [0xffu8; 16];
        let mut len_bytes = 4;
        // SAFETY: `room` is longer than `len_bytes`.
        let whole = unsafe { address.copy_to(room.as_mut_ptr().cast(), &raw mut len_bytes) };
        assert!(!whole);
        assert_eq!((len_bytes, room[4]), (16, 0xff));
        // SAFETY: null needs no room.
        assert!(!unsafe { address.copy_to(std::ptr::null_mut(), &raw mut len_bytes) });
    }
}
