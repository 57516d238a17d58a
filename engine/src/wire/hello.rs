//! The hello: each side of a stream sends its address and instance first, before any frame.
//!
//! ```text
//!  offset  0       8         10     11        12     14         16         20      24   40         48
//!          +-------+---------+------+---------+------+----------+----------+-------+----+----------+
//!          | magic | version | form | purpose | port | reserved | scope id | check | ip | instance |
//!          +-------+---------+------+---------+------+----------+----------+-------+----+----------+
//! ```
//!
//! The purpose of a hello is 0. A [`Question`] has the same layout with the purpose 1, and a token in place
//! of the instance.
//!
//! Numbers are little-endian. The octets of the IP address keep their usual order. An IPv4 address fills the
//! first 4 bytes of its field. Then the other 12 bytes and the scope id are reserved. Reserved bytes are
//! zero. The check is the CRC-32 of all other bytes, in order.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ops::Range;

use crate::address::Address;
use crate::wire::error::WireError;

/// The size of a hello in bytes.
pub const HELLO_BYTES: usize = field::INSTANCE.end;

const MAGIC: [u8; 8] = *b"homespun";

/// The version of the protocol: of this hello, of all frames that follow it, and of the memory in which some
/// transports hold them.
pub const VERSION: u16 = 11;

const IPV4_BYTES: usize = 4;

mod field {
    use std::ops::Range;

    pub(super) const MAGIC: Range<usize> = 0..8;
    pub(super) const VERSION: Range<usize> = 8..10;
    pub(super) const FORM: usize = 10;
    pub(super) const PURPOSE: usize = 11;
    pub(super) const PORT: Range<usize> = 12..14;
    pub(super) const SCOPE_ID: Range<usize> = 16..20;
    pub(super) const CHECK: Range<usize> = 20..24;
    pub(super) const IP: Range<usize> = 24..40;
    pub(super) const INSTANCE: Range<usize> = 40..48;

    /// Reserved in every hello.
    pub(super) const RESERVED: Range<usize> = 14..16;
}

mod form {
    pub(super) const IPV4: u8 = 4;
    pub(super) const IPV6: u8 = 6;
}

mod purpose {
    pub(super) const LINK: u8 = 0;
    pub(super) const QUESTION: u8 = 1;
}

const _: () = assert!(HELLO_BYTES == 48);
const _: () = assert!(field::MAGIC.end - field::MAGIC.start == MAGIC.len());
const _: () = assert!(field::IP.end - field::IP.start == size_of::<Ipv6Addr>());

/// The address and instance of an endpoint. Each side sends its own at the start of a stream.
///
/// A hello is a claim, not a proof. The IP address is credible only if it agrees with the address of the
/// connection. A scope id has a meaning only on the host that chose it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// The address at which peers reach the endpoint. The address of this connection may differ.
    pub address: Address,
    /// The random number that the endpoint drew when it was opened.
    pub instance: u64,
}

/// A question from the endpoint that accepted a link: "Have you made the link to me that got this
/// [token](super::address_claim)?" An endpoint over TCP asks this on a separate connection, which is no
/// link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question {
    /// The address at which the link has reached the endpoint that asks.
    pub address: Address,
    /// The token of the link.
    pub token: u64,
}

/// The first bytes on a connection from the side that has made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// The connection is a link.
    Hello(Hello),
    /// The connection carries questions and their answers.
    Question(Question),
}

impl Hello {
    /// Returns the bytes of the hello on the stream.
    ///
    /// Peers refuse a hello whose address is a wildcard or has no port.
    pub fn to_bytes(&self) -> [u8; HELLO_BYTES] {
        encode(purpose::LINK, self.address, self.instance)
    }

    /// Reads a hello.
    ///
    /// # Errors
    ///
    /// The peer is no homespun endpoint, speaks another version of the protocol, asks a question, or names
    /// an address that no endpoint can have. Or the bytes were corrupted on their way.
    pub fn parse(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, WireError> {
        match Opening::parse(bytes)? {
            Opening::Hello(hello) => Ok(hello),
            Opening::Question(_) => Err(WireError::OutOfTurn),
        }
    }
}

impl Question {
    /// Returns the bytes of the question on the stream.
    pub fn to_bytes(&self) -> [u8; HELLO_BYTES] {
        encode(purpose::QUESTION, self.address, self.token)
    }
}

impl Opening {
    /// Reads a hello or a question.
    ///
    /// # Errors
    ///
    /// As [`Hello::parse`].
    pub fn parse(bytes: &[u8; HELLO_BYTES]) -> Result<Opening, WireError> {
        check_prefix(bytes)?;
        if u32::from_le_bytes(field_array(bytes, field::CHECK)) != compute_check(bytes) {
            return Err(WireError::WrongCheck);
        }
        let port = u16::from_le_bytes(field_array(bytes, field::PORT));
        let address: Address = match bytes[field::FORM] {
            form::IPV4 => {
                let [a, b, c, d, unused @ ..] = field_array::<16>(bytes, field::IP);
                if unused != [0; 12] || bytes[field::SCOPE_ID] != [0; 4] {
                    return Err(WireError::ReservedNotZero);
                }
                SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port)).into()
            }
            form::IPV6 => {
                let ip = Ipv6Addr::from(field_array::<16>(bytes, field::IP));
                let scope_id = u32::from_le_bytes(field_array(bytes, field::SCOPE_ID));
                SocketAddr::V6(SocketAddrV6::new(ip, port, 0, scope_id)).into()
            }
            _ => return Err(WireError::MalformedAddress),
        };
        if !address.is_specific() || port == 0 {
            return Err(WireError::MalformedAddress);
        }
        let last = u64::from_le_bytes(field_array(bytes, field::INSTANCE));
        Ok(match bytes[field::PURPOSE] {
            purpose::LINK => Opening::Hello(Hello { address, instance: last }),
            _ => Opening::Question(Question { address, token: last }),
        })
    }
}

fn encode(purpose: u8, address: Address, last: u64) -> [u8; HELLO_BYTES] {
    let mut bytes = [0; HELLO_BYTES];
    bytes[field::MAGIC].copy_from_slice(&MAGIC);
    bytes[field::VERSION].copy_from_slice(&VERSION.to_le_bytes());
    bytes[field::PURPOSE] = purpose;
    bytes[field::PORT].copy_from_slice(&address.port().to_le_bytes());
    bytes[field::INSTANCE].copy_from_slice(&last.to_le_bytes());
    match address.socket_addr() {
        SocketAddr::V4(v4) => {
            bytes[field::FORM] = form::IPV4;
            bytes[field::IP][..IPV4_BYTES].copy_from_slice(&v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            bytes[field::FORM] = form::IPV6;
            bytes[field::IP].copy_from_slice(&v6.ip().octets());
            bytes[field::SCOPE_ID].copy_from_slice(&v6.scope_id().to_le_bytes());
        }
    }
    let check = compute_check(&bytes);
    bytes[field::CHECK].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// Checks whether these first bytes of a stream can be the start of a hello or a question. Ignores bytes
/// beyond a hello's length.
///
/// A program that connects by mistake, such as a browser, is refused at its first wrong byte. A homespun
/// endpoint of another version is refused once both bytes of its version have arrived.
///
/// # Errors
///
/// The error with which [`Opening::parse`] refuses every stream that starts with these bytes. This function
/// does not verify the CRC-32.
pub fn check_prefix(bytes: &[u8]) -> Result<(), WireError> {
    if !is_field_expected(bytes, field::MAGIC, &MAGIC) {
        return Err(WireError::BadMagic);
    }
    // Wait for both bytes: the error names the version.
    let Some(version) = bytes.get(field::VERSION) else { return Ok(()) };
    let theirs = version.iter().rev().fold(0, |number, byte| number << 8 | u16::from(*byte));
    if theirs != VERSION {
        return Err(WireError::OtherVersion { theirs });
    }
    if !matches!(bytes.get(field::FORM), None | Some(&(form::IPV4 | form::IPV6))) {
        return Err(WireError::MalformedAddress);
    }
    if !matches!(bytes.get(field::PURPOSE), None | Some(&(purpose::LINK | purpose::QUESTION))) {
        return Err(WireError::ReservedNotZero);
    }
    if !is_field_expected(bytes, field::RESERVED, &[0; 2]) {
        return Err(WireError::ReservedNotZero);
    }
    Ok(())
}

/// Returns the CRC-32 of all bytes but the check.
fn compute_check(bytes: &[u8; HELLO_BYTES]) -> u32 {
    compute_crc32(&[&bytes[..field::CHECK.start], &bytes[field::CHECK.end..]])
}

/// Returns the CRC-32 of these bytes. Needs no table, since it runs only a few times for each connection.
pub(super) fn compute_crc32(parts: &[&[u8]]) -> u32 {
    const POLYNOMIAL_REFLECTED: u32 = 0xedb8_8320;
    let mut crc = u32::MAX;
    for byte in parts.iter().copied().flatten() {
        crc ^= u32::from(*byte);
        for _ in 0..u8::BITS {
            crc = crc >> 1 ^ if crc & 1 == 1 { POLYNOMIAL_REFLECTED } else { 0 };
        }
    }
    !crc
}

/// Whether the bytes of a field that have arrived are the expected ones.
fn is_field_expected(bytes: &[u8], field: Range<usize>, expected: &[u8]) -> bool {
    field.zip(expected).all(|(at, expected)| bytes.get(at).is_none_or(|byte| byte == expected))
}

/// Returns the bytes of a field. The caller knows the length of the field at compile time.
fn field_array<const N: usize>(bytes: &[u8; HELLO_BYTES], field: Range<usize>) -> [u8; N] {
    debug_assert_eq!(field.len(), N);
    std::array::from_fn(|at| bytes[field.start + at])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::Form;

    fn any_hello() -> impl Strategy<Value = Hello> {
        let ip = any::<std::net::IpAddr>().prop_filter("a wildcard", |ip| !ip.is_unspecified());
        (ip, 1..=u16::MAX, any::<u32>(), any::<u64>()).prop_map(|(ip, port, scope_id, instance)| {
            let mut address = SocketAddr::new(ip, port);
            if let SocketAddr::V6(v6) = &mut address {
                v6.set_scope_id(scope_id);
            }
            Hello { address: address.into(), instance }
        })
    }

    fn parse_address(text: &str) -> Address {
        text.parse::<SocketAddr>().unwrap().into()
    }

    fn with_valid_check(mut bytes: [u8; HELLO_BYTES]) -> [u8; HELLO_BYTES] {
        let check = compute_check(&bytes);
        bytes[field::CHECK].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    #[test]
    fn hello_layout_matches_documentation() {
        let v4 = Hello { address: parse_address("10.1.2.3:513"), instance: 0x0a0b };
        assert_eq!(&v4.to_bytes()[..20], b"homespun\x0b\0\x04\0\x01\x02\0\0\0\0\0\0");
        assert_eq!(v4.to_bytes()[20..24], 0xd545_002d_u32.to_le_bytes());
        assert_eq!(v4.to_bytes()[24..28], [10, 1, 2, 3]);
        assert_eq!(&v4.to_bytes()[28..], b"\0\0\0\0\0\0\0\0\0\0\0\0\x0b\x0a\0\0\0\0\0\0");
        let v6 = Hello { address: parse_address("[fe80::1%258]:1"), instance: 0 };
        assert_eq!(&v6.to_bytes()[8..20], b"\x0b\0\x06\0\x01\0\0\0\x02\x01\0\0");
        assert_eq!(&v6.to_bytes()[24..40], b"\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x01");
    }

    #[test]
    fn hello_check_detects_any_changed_byte() {
        for text in ["10.1.2.3:513", "[fe80::1%258]:1", "[ff01::ff]:65535"] {
            let bytes = Hello { address: parse_address(text), instance: 0x0123_4567_89ab_cdef }.to_bytes();
            for at in 0..bytes.len() {
                for byte in (0..=u8::MAX).filter(|byte| *byte != bytes[at]) {
                    let mut changed = bytes;
                    changed[at] = byte;
                    assert!(
                        Hello::parse(&changed).is_err(),
                        "byte {at} of the hello of {text} became {byte}"
                    );
                }
            }
        }
    }

    #[test]
    fn hello_with_wildcard_or_port_zero_is_refused() {
        for text in ["0.0.0.0:1", "[::]:1", "127.0.0.1:0", "[::1]:0"] {
            let bytes = Hello { address: parse_address(text), instance: 1 }.to_bytes();
            assert_eq!(Hello::parse(&bytes), Err(WireError::MalformedAddress), "{text}");
        }
    }

    #[test]
    fn unused_bytes_of_ipv4_address_must_be_zero() {
        let bytes = Hello { address: parse_address("127.0.0.1:1"), instance: 1 }.to_bytes();
        for at in field::SCOPE_ID.chain(field::IP.start + IPV4_BYTES..field::IP.end) {
            let mut wrong = bytes;
            wrong[at] = 1;
            let wrong = with_valid_check(wrong);
            assert_eq!(Hello::parse(&wrong), Err(WireError::ReservedNotZero), "byte {at}");
        }
    }

    #[test]
    fn other_protocol_is_refused_at_its_first_wrong_byte() {
        let bytes = Hello { address: parse_address("127.0.0.1:1"), instance: 1 }.to_bytes();
        let reasons = [
            (field::MAGIC, WireError::BadMagic),
            (field::FORM..field::FORM + 1, WireError::MalformedAddress),
            (field::PURPOSE..field::PURPOSE + 1, WireError::ReservedNotZero),
            (field::RESERVED, WireError::ReservedNotZero),
        ];
        for (field, reason) in reasons {
            for at in field {
                let mut wrong = bytes;
                wrong[at] ^= 0x80;
                assert_eq!(check_prefix(&wrong[..at]), Ok(()), "before byte {at}");
                assert_eq!(check_prefix(&wrong[..=at]), Err(reason), "byte {at}");
                assert_eq!(Hello::parse(&wrong), Err(reason), "byte {at}");
            }
        }
        let mut later = bytes;
        later[field::VERSION].copy_from_slice(&0x0b0c_u16.to_le_bytes());
        let other_version = Err(WireError::OtherVersion { theirs: 0x0b0c });
        assert_eq!(check_prefix(&later[..field::VERSION.end - 1]), Ok(()), "half a version");
        assert_eq!(check_prefix(&later[..field::VERSION.end]), other_version);
        assert_eq!(Hello::parse(&later).map(|_| ()), other_version);
        assert_eq!(check_prefix(b"GET / HTTP/1.1\r\n"), Err(WireError::BadMagic));
        assert_eq!(check_prefix(b""), Ok(()));
    }

    #[test]
    fn question_has_the_layout_of_a_hello_but_is_not_parsed_as_one() {
        let question = Question { address: parse_address("10.1.2.3:513"), token: 0x0a0b };
        let hello = Hello { address: question.address, instance: question.token }.to_bytes();
        let mut expected = hello;
        expected[field::PURPOSE] = 1;
        assert_eq!(question.to_bytes(), with_valid_check(expected));
        assert_eq!(Opening::parse(&question.to_bytes()), Ok(Opening::Question(question)));
        assert_eq!(Hello::parse(&question.to_bytes()), Err(WireError::OutOfTurn));
        assert_eq!(Opening::parse(&expected), Err(WireError::WrongCheck), "a hello with a changed byte");
    }

    /// Endpoints of one version understand each other. So a changed form of a header needs a new version.
    #[test]
    fn changed_forms_of_headers_need_a_new_version() {
        let mut digest = 0xcbf2_9ce4_8422_2325_u64;
        for form in Form::all() {
            let numbers = [form.kind().into(), form.flags().into(), form.word_count() as u64];
            for number in numbers.into_iter().chain([form.payload_max_bytes()]) {
                digest = (digest ^ number).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
        assert_eq!(
            (VERSION, format!("{digest:016x}").as_str()),
            (11, "c0c5a184fa70fcff"),
            "headers have other forms than before: raise VERSION, and record it with the digest here"
        );
    }

    proptest! {
        #[test]
        fn hello_round_trips(hello in any_hello()) {
            let bytes = hello.to_bytes();
            prop_assert_eq!(Hello::parse(&bytes), Ok(hello));
            for end in 0..=bytes.len() {
                prop_assert_eq!(check_prefix(&bytes[..end]), Ok(()), "cut at {}", end);
            }
        }

        #[test]
        fn hello_with_any_flipped_bit_is_refused(hello in any_hello()) {
            let bytes = hello.to_bytes();
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes;
                flipped[bit / 8] ^= 1 << (bit % 8);
                prop_assert!(Hello::parse(&flipped).is_err(), "bit {}", bit);
            }
        }

        #[test]
        fn prefix_check_and_parse_agree_on_any_bytes(
            start in 0..=HELLO_BYTES,
            hello in any_hello(),
            noise in any::<[u8; HELLO_BYTES]>(),
            is_checked: bool,
        ) {
            let mut bytes = noise;
            bytes[..start].copy_from_slice(&hello.to_bytes()[..start]);
            if is_checked {
                bytes = with_valid_check(bytes);
            }
            if let Err(reason) = check_prefix(&bytes) {
                prop_assert_eq!(Opening::parse(&bytes), Err(reason));
            }
            match Opening::parse(&bytes) {
                Ok(Opening::Hello(hello)) => prop_assert_eq!(hello.to_bytes(), bytes),
                Ok(Opening::Question(question)) => prop_assert_eq!(question.to_bytes(), bytes),
                Err(reason) => prop_assert_eq!(Hello::parse(&bytes), Err(reason)),
            }
        }
    }
}
