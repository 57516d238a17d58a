//! What the two sides of a new connection learn about each other.

use std::net::{IpAddr, SocketAddr};

use homespun_engine::address::Address;
use homespun_engine::wire::WireError;
use homespun_engine::wire::hello::{self, HELLO_BYTES, Hello};

/// A hello that is arriving.
#[derive(Debug)]
pub(crate) struct HelloReader {
    bytes: [u8; HELLO_BYTES],
    len_bytes: usize,
}

impl HelloReader {
    pub(crate) fn new() -> HelloReader {
        HelloReader { bytes: [0; HELLO_BYTES], len_bytes: 0 }
    }

    /// Takes the next bytes of the stream. Returns the hello once it is complete, and what follows it.
    pub(crate) fn feed<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Hello, &'a [u8])>, WireError> {
        let missing = &mut self.bytes[self.len_bytes..];
        let (ours, rest) = bytes.split_at(missing.len().min(bytes.len()));
        missing[..ours.len()].copy_from_slice(ours);
        self.len_bytes += ours.len();
        if self.len_bytes < HELLO_BYTES {
            hello::plausible_prefix(&self.bytes[..self.len_bytes])?;
            return Ok(None);
        }
        Ok(Some((Hello::parse(&self.bytes)?, rest)))
    }
}

/// The address at which the peer of an accepted connection is taken to be.
///
/// Its hello claims one, but anybody can claim anything. The port has to be believed; the host only as far as the
/// connection itself comes from there. Two addresses of this very host are as good as one another: a peer that is
/// bound to a wildcard claims one interface and connects through loopback.
pub(crate) fn believed_address(
    claimed: Address,
    remote: SocketAddr,
    is_local: impl Fn(IpAddr) -> bool,
) -> Address {
    // The scope id of the connection is the one that means something here, so it is kept along with its address.
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

    fn address(text: &str) -> Address {
        text.parse::<SocketAddr>().unwrap().into()
    }

    /// The peer is believed to be at `believed` if it claims `claimed` over a connection from `remote`. This host has
    /// loopback, 10.0.0.1, fd00::1 and fe80::1.
    fn check(claimed: &str, remote: &str, believed: &str) {
        let ours = ["10.0.0.1", "fd00::1", "fe80::1"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let is_local = |ip: IpAddr| ip.is_loopback() || ours.contains(&ip);
        assert_eq!(
            believed_address(address(claimed), remote.parse().unwrap(), is_local),
            address(believed),
            "{claimed} over {remote}"
        );
    }

    #[test]
    fn believed_address_follows_claim_and_connection() {
        // From the host that it names.
        check("10.0.0.7:100", "10.0.0.7:5555", "10.0.0.7:100");
        check("[fd00::7]:100", "[fd00::7]:5555", "[fd00::7]:100");
        // From another host: only the port is believed.
        check("10.0.0.7:100", "10.0.0.8:5555", "10.0.0.8:100");
        // A stranger claims to be this host, or this host's traffic comes in another way.
        check("127.0.0.1:100", "10.0.0.8:5555", "10.0.0.8:100");
        check("10.0.0.1:100", "10.0.0.8:5555", "10.0.0.8:100");
        // This host claims to be a stranger.
        check("10.0.0.8:100", "127.0.0.1:5555", "127.0.0.1:100");
        // Two addresses of this host.
        check("10.0.0.1:100", "127.0.0.1:5555", "10.0.0.1:100");
        check("127.0.0.1:100", "10.0.0.1:5555", "127.0.0.1:100");
        check("[fd00::1]:100", "[::1]:5555", "[fd00::1]:100");
        // Of this host, but of a family in which this endpoint could not answer.
        check("10.0.0.1:100", "[::1]:5555", "[::1]:100");
    }

    #[test]
    fn believed_address_keeps_the_local_scope_id() {
        check("[fe80::7%9]:100", "[fe80::7%2]:5555", "[fe80::7%2]:100");
        check("[fe80::8%9]:100", "[fe80::7%2]:5555", "[fe80::7%2]:100");
        check("[fe80::1%3]:100", "[fd00::1]:5555", "[fe80::1%3]:100");
    }

    #[test]
    fn hello_in_pieces_is_assembled() {
        let hello = Hello { address: address("127.0.0.1:9"), instance: 3 };
        let mut bytes = hello.emit().to_vec();
        bytes.extend(b"rest");
        for first in 0..HELLO_BYTES {
            let mut greeting = HelloReader::new();
            assert_eq!(greeting.feed(&bytes[..first]), Ok(None));
            let expected = (hello, b"rest".as_slice());
            assert_eq!(greeting.feed(&bytes[first..]), Ok(Some(expected)));
        }
    }

    #[test]
    fn garbage_is_refused_at_the_first_byte() {
        assert_eq!(HelloReader::new().feed(b"G"), Err(WireError::BadMagic));
        assert_eq!(HelloReader::new().feed(&[b'x'; 4096]), Err(WireError::BadMagic));
    }
}
