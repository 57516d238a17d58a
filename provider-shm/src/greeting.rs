//! The greeting: the first message of each side of a link. It travels over the control socket with two
//! descriptors: of the sender's ring, and of the doorbell that the sender rings.
//!
//! ```text
//!  offset  0                     48               56       64
//!          +---------------------+----------------+--------+
//!          | hello               | cookie address | cookie |
//!          +---------------------+----------------+--------+
//! ```
//!
//! The first part is the [hello of every homespun transport](homespun_engine::wire::hello). Numbers are
//! little-endian.

use std::ops::Range;

use homespun_engine::transport::Denial;
use homespun_engine::wire::WireError;
use homespun_engine::wire::hello::{self, HELLO_BYTES};

use crate::cookie::CookieLocation;

/// The size of a greeting in bytes.
pub(crate) const GREETING_BYTES: usize = field::COOKIE.end;

/// The size of a refusal in bytes.
pub(crate) const REFUSAL_BYTES: usize = 8;

/// What a process sends in place of its greeting if it cannot take the link.
const REFUSALS: [(Denial, [u8; REFUSAL_BYTES]); 3] = [
    (Denial::NoDescriptors, *b"no-fds\0\0"),
    (Denial::NoMemoryFiles, *b"no-memfd"),
    (Denial::ForeignAddress, *b"no-addr\0"),
];

/// Returns the bytes of a refusal. `None` if this reason is not told.
pub(crate) fn emit_refusal(reason: Denial) -> Option<[u8; REFUSAL_BYTES]> {
    REFUSALS.iter().find(|(told, _)| *told == reason).map(|(_, bytes)| *bytes)
}

/// Returns the reason of a refusal. `None` if the message is no refusal.
pub(crate) fn parse_refusal(message: &[u8]) -> Option<Denial> {
    REFUSALS.iter().find(|(_, bytes)| bytes == message).map(|(reason, _)| *reason)
}

mod field {
    use super::{HELLO_BYTES, Range};

    pub(super) const HELLO: Range<usize> = 0..HELLO_BYTES;
    pub(super) const COOKIE_ADDRESS: Range<usize> = 48..56;
    pub(super) const COOKIE: Range<usize> = 56..64;
}

const _: () = assert!(field::HELLO.end == field::COOKIE_ADDRESS.start);

/// The hello of this transport, with the sender's cookie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) hello: hello::Hello,
    /// The sender's cookie. After each copy from the sender's memory, the peer must find the cookie in
    /// place.
    pub(crate) cookie: CookieLocation,
}

impl Greeting {
    pub(crate) fn emit(&self) -> [u8; GREETING_BYTES] {
        let mut bytes = [0; GREETING_BYTES];
        bytes[field::HELLO].copy_from_slice(&self.hello.to_bytes());
        bytes[field::COOKIE_ADDRESS].copy_from_slice(&self.cookie.address.to_le_bytes());
        bytes[field::COOKIE].copy_from_slice(&self.cookie.value.to_le_bytes());
        bytes
    }

    /// Reads a greeting.
    ///
    /// # Errors
    ///
    /// The errors of [`Hello::parse`](hello::Hello::parse).
    pub(crate) fn parse(bytes: &[u8; GREETING_BYTES]) -> Result<Greeting, WireError> {
        let (hello, rest) = bytes.split_first_chunk().ok_or(WireError::BadMagic)?;
        let (address, rest) = rest.split_first_chunk().ok_or(WireError::BadMagic)?;
        let value = rest.first_chunk().ok_or(WireError::BadMagic)?;
        Ok(Greeting {
            hello: hello::Hello::parse(hello)?,
            cookie: CookieLocation {
                address: u64::from_le_bytes(*address),
                value: u64::from_le_bytes(*value),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn greeting_round_trips(instance: u64, address: u64, value: u64, port in 1..u16::MAX) {
            let hello = hello::Hello { address: SocketAddr::from(([127, 0, 0, 1], port)).into(), instance };
            let greeting = Greeting { hello, cookie: CookieLocation { address, value } };
            prop_assert_eq!(Greeting::parse(&greeting.emit()), Ok(greeting));
        }

        #[test]
        fn parse_accepts_emitted_greetings_only(
            bytes in proptest::collection::vec(any::<u8>(), GREETING_BYTES),
        ) {
            let bytes = bytes.first_chunk().expect("the vector has the length of a greeting");
            if let Ok(greeting) = Greeting::parse(bytes) {
                prop_assert_eq!(&greeting.emit(), bytes);
            }
        }
    }
}
