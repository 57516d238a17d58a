//! The peer's hello, and the address that this side believes the peer to have.

use std::net::{IpAddr, SocketAddr};

use homespun_engine::address::Address;
use homespun_engine::wire::WireError;
use homespun_engine::wire::hello::{self, HELLO_BYTES, Hello};

/// Assembles a hello from the bytes that arrive.
#[derive(Debug)]
pub(crate) struct HelloReader {
    bytes: [u8; HELLO_BYTES],
    len_bytes: usize,
}

impl HelloReader {
    pub(crate) fn new() -> HelloReader {
        HelloReader { bytes: [0; HELLO_BYTES], len_bytes: 0 }
    }

    /// Takes the next bytes of the stream. Once the hello is complete, returns it with the bytes that follow.
    pub(crate) fn feed<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Hello, &'a [u8])>, WireError> {
        let missing = &mut self.bytes[self.len_bytes..];
        let (ours, rest) = bytes.split_at(missing.len().min(bytes.len()));
        missing[..ours.len()].copy_from_slice(ours);
        self.len_bytes += ours.len();
        if self.len_bytes < HELLO_BYTES {
            hello::check_prefix(&self.bytes[..self.len_bytes])?;
            return Ok(None);
        }
        Ok(Some((Hello::parse(&self.bytes)?, rest)))
    }
}

/// The address that the peer of an accepted connection is believed to have.
///
/// The hello claims an address, which may be false. This side cannot check the port, and believes it. It
/// believes the IP address only if the connection comes from the same host; otherwise it takes the
/// connection's. All addresses of this host count as the same host: a peer that is bound to a wildcard claims
/// the address of an interface and connects through loopback.
pub(crate) fn believed_address(
    claimed: Address,
    remote: SocketAddr,
    mut is_local: impl FnMut(IpAddr) -> bool,
) -> Address {
    // Only the scope id of the connection's address is valid on this host.
    let observed = Address::from(remote).with_port(claimed.port());
    let same_format = claimed.format() == observed.format();
    if same_format && claimed.ip() != observed.ip() && is_local(observed.ip()) && is_local(claimed.ip()) {
        return claimed;
    }
    observed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_address(text: &str) -> Address {
        text.parse::<SocketAddr>().unwrap().into()
    }

    /// Asserts that this side believes a peer to be at `believed` if the peer claims `claimed` over a
    /// connection from `remote`. This host has loopback, 10.0.0.1, fd00::1 and fe80::1.
    fn assert_believed_address(claimed: &str, remote: &str, believed: &str) {
        let ours = ["10.0.0.1", "fd00::1", "fe80::1"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let is_local = |ip: IpAddr| ip.is_loopback() || ours.contains(&ip);
        assert_eq!(
            believed_address(parse_address(claimed), remote.parse().unwrap(), is_local),
            parse_address(believed),
            "{claimed} over {remote}"
        );
    }

    #[test]
    fn believed_address_follows_claim_and_connection() {
        // The connection comes from the claimed host.
        assert_believed_address("10.0.0.7:100", "10.0.0.7:5555", "10.0.0.7:100");
        assert_believed_address("[fd00::7]:100", "[fd00::7]:5555", "[fd00::7]:100");
        // The connection comes from another host than the claimed one, so only the port is believed.
        assert_believed_address("10.0.0.7:100", "10.0.0.8:5555", "10.0.0.8:100");
        // Another host claims to be this one.
        assert_believed_address("127.0.0.1:100", "10.0.0.8:5555", "10.0.0.8:100");
        assert_believed_address("10.0.0.1:100", "10.0.0.8:5555", "10.0.0.8:100");
        // This host claims to be another one.
        assert_believed_address("10.0.0.8:100", "127.0.0.1:5555", "127.0.0.1:100");
        // Claim and connection are two addresses of this host, so the claim is believed.
        assert_believed_address("10.0.0.1:100", "127.0.0.1:5555", "10.0.0.1:100");
        assert_believed_address("127.0.0.1:100", "10.0.0.1:5555", "127.0.0.1:100");
        assert_believed_address("[fd00::1]:100", "[::1]:5555", "[fd00::1]:100");
        // The claimed address is of this host, but of a family in which this endpoint cannot answer.
        assert_believed_address("10.0.0.1:100", "[::1]:5555", "[::1]:100");
    }

    #[test]
    fn believed_address_keeps_the_local_scope_id() {
        assert_believed_address("[fe80::7%9]:100", "[fe80::7%2]:5555", "[fe80::7%2]:100");
        assert_believed_address("[fe80::8%9]:100", "[fe80::7%2]:5555", "[fe80::7%2]:100");
        assert_believed_address("[fe80::1%3]:100", "[fd00::1]:5555", "[fe80::1%3]:100");
    }

    #[test]
    fn hello_in_pieces_is_assembled() {
        let hello = Hello { address: parse_address("127.0.0.1:9"), instance: 3 };
        let mut bytes = hello.to_bytes().to_vec();
        bytes.extend(b"rest");
        for first in 0..HELLO_BYTES {
            let mut reader = HelloReader::new();
            assert_eq!(reader.feed(&bytes[..first]), Ok(None));
            let expected = (hello, b"rest".as_slice());
            assert_eq!(reader.feed(&bytes[first..]), Ok(Some(expected)));
        }
    }

    #[test]
    fn garbage_is_refused_at_the_first_byte() {
        assert_eq!(HelloReader::new().feed(b"G"), Err(WireError::BadMagic));
        assert_eq!(HelloReader::new().feed(&[b'x'; 4096]), Err(WireError::BadMagic));
    }
}
