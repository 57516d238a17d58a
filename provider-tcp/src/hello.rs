//! What precedes the frames of a link: the hello of each side, and the records about the connector's claim.

use std::net::{IpAddr, SocketAddr};

use homespun_engine::address::Address;
use homespun_engine::wire::WireError;
use homespun_engine::wire::address_claim::{CLAIM_RECORD_BYTES, ClaimRecord, ClaimStatus};
use homespun_engine::wire::hello::{self, HELLO_BYTES, Hello, Opening};

/// Assembles bytes that arrive into records of one length.
#[derive(Debug)]
struct Assembler<const N: usize> {
    bytes: [u8; N],
    len_bytes: usize,
}

impl<const N: usize> Assembler<N> {
    const EMPTY: Assembler<N> = Assembler { bytes: [0; N], len_bytes: 0 };

    /// Reads the record, or a part of it, from the next bytes of the stream. Returns the record if it is now
    /// complete, and the bytes that follow.
    fn feed<'a>(&mut self, bytes: &'a [u8]) -> (Option<[u8; N]>, &'a [u8]) {
        if self.len_bytes == N {
            self.len_bytes = 0;
        }
        let missing = &mut self.bytes[self.len_bytes..];
        let (ours, rest) = bytes.split_at(missing.len().min(bytes.len()));
        missing[..ours.len()].copy_from_slice(ours);
        self.len_bytes += ours.len();
        if self.len_bytes < N {
            return (None, rest);
        }
        (Some(self.bytes), rest)
    }

    /// The bytes of the record that is being assembled, or that was complete last.
    fn arrived(&self) -> &[u8] {
        &self.bytes[..self.len_bytes]
    }
}

/// Reads hellos and questions.
#[derive(Debug)]
pub(crate) struct OpeningReader(Assembler<HELLO_BYTES>);

impl OpeningReader {
    pub(crate) fn new() -> OpeningReader {
        OpeningReader(Assembler::EMPTY)
    }

    /// The bytes that have arrived of the opening.
    pub(crate) fn arrived(&self) -> &[u8] {
        self.0.arrived()
    }

    /// How many bytes of the opening are missing.
    pub(crate) fn missing_bytes(&self) -> usize {
        HELLO_BYTES - self.0.len_bytes
    }

    /// Reads the next bytes of the stream. If they complete the opening (a hello or a question), returns it
    /// and the bytes that follow.
    pub(crate) fn feed<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Opening, &'a [u8])>, WireError> {
        match self.0.feed(bytes) {
            (Some(whole), rest) => Ok(Some((Opening::parse(&whole)?, rest))),
            (None, _) => {
                hello::check_prefix(self.0.arrived())?;
                Ok(None)
            }
        }
    }
}

/// Reads records about claims.
#[derive(Debug)]
pub(crate) struct ClaimRecordReader(Assembler<CLAIM_RECORD_BYTES>);

impl ClaimRecordReader {
    pub(crate) fn new() -> ClaimRecordReader {
        ClaimRecordReader(Assembler::EMPTY)
    }

    /// Reads the next bytes of the stream. If they complete the record, returns it and the bytes that
    /// follow.
    pub(crate) fn feed<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(ClaimRecord, &'a [u8])>, WireError> {
        match self.0.feed(bytes) {
            (Some(whole), rest) => Ok(Some((ClaimRecord::parse(&whole)?, rest))),
            (None, _) => Ok(None),
        }
    }
}

/// Reads what an acceptor sends before its first frame.
#[derive(Debug)]
pub(crate) struct GreetingReader {
    opening: OpeningReader,
    hello: Option<Hello>,
    claim: ClaimRecordReader,
    /// The token of a link that the acceptor holds.
    held_token: Option<u64>,
    /// Whether the link carries nothing before the greeting.
    holds_frames: bool,
}

/// A part of the acceptor's greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Greeting {
    /// The link is up, and its first frames follow.
    Up { hello: Hello, token: u64 },
    /// The acceptor holds the link.
    Held { token: u64 },
    /// The acceptor does not take the link. The token says why.
    Refused { token: u64 },
}

impl GreetingReader {
    pub(crate) fn new() -> GreetingReader {
        GreetingReader {
            opening: OpeningReader::new(),
            hello: None,
            claim: ClaimRecordReader::new(),
            held_token: None,
            holds_frames: false,
        }
    }

    /// Makes the link take no frames before the greeting is complete.
    pub(crate) fn hold_frames(&mut self) {
        self.holds_frames = true;
    }

    /// Whether the link takes no frames for now: the acceptor has said that it holds the link, or this side
    /// [holds the frames](Self::hold_frames).
    pub(crate) fn is_held(&self) -> bool {
        self.holds_frames || self.held_token.is_some()
    }

    /// Reads the next bytes of the stream. If they complete a part of the greeting, returns this part and
    /// the bytes that follow.
    pub(crate) fn feed<'a>(
        &mut self,
        mut bytes: &'a [u8],
    ) -> Result<Option<(Greeting, &'a [u8])>, WireError> {
        let hello = match self.hello {
            Some(hello) => hello,
            None => match self.opening.feed(bytes)? {
                None => return Ok(None),
                Some((Opening::Question(_), _)) => return Err(WireError::OutOfTurn),
                Some((Opening::Hello(hello), rest)) => {
                    bytes = rest;
                    self.hello = Some(hello);
                    hello
                }
            },
        };
        let Some((ClaimRecord { status, token }, rest)) = self.claim.feed(bytes)? else { return Ok(None) };
        match (status, self.held_token) {
            (ClaimStatus::Welcome, None) => Ok(Some((Greeting::Up { hello, token }, rest))),
            (ClaimStatus::Admitted, Some(held)) if held == token => {
                Ok(Some((Greeting::Up { hello, token }, rest)))
            }
            (ClaimStatus::Refused, _) => Ok(Some((Greeting::Refused { token }, rest))),
            (ClaimStatus::Held, None) => {
                self.held_token = Some(token);
                Ok(Some((Greeting::Held { token }, rest)))
            }
            _ => Err(WireError::OutOfTurn),
        }
    }
}

/// The address that this side believes the peer of an accepted connection to have.
///
/// The hello claims an address, which may be false. This side believes the port of the claim, since the
/// connection does not show the peer's port. It believes the IP address of the claim only if the connection
/// comes from the claimed host. Otherwise it believes the IP address of the connection. All addresses of
/// this host count as one host: a peer on this host may claim the address of an interface, and connect
/// through loopback.
pub(crate) fn believed_address(
    claimed: Address,
    remote: SocketAddr,
    mut is_local: impl FnMut(IpAddr) -> bool,
) -> Address {
    // Take the connection's IP address even if the two are equal: only its scope id is valid on this host.
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

    /// Asserts which address this side believes, if a peer claims `claimed` over a connection from `remote`.
    /// This host has loopback, 10.0.0.1, fd00::1 and fe80::1.
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
        // The connection does not come from the claimed host, so only the port is believed.
        assert_believed_address("10.0.0.7:100", "10.0.0.8:5555", "10.0.0.8:100");
        // Another host claims to be this one.
        assert_believed_address("127.0.0.1:100", "10.0.0.8:5555", "10.0.0.8:100");
        assert_believed_address("10.0.0.1:100", "10.0.0.8:5555", "10.0.0.8:100");
        // This host claims to be another one.
        assert_believed_address("10.0.0.8:100", "127.0.0.1:5555", "127.0.0.1:100");
        // The claimed address and the connection's address are both of this host, so the claim is believed.
        assert_believed_address("10.0.0.1:100", "127.0.0.1:5555", "10.0.0.1:100");
        assert_believed_address("127.0.0.1:100", "10.0.0.1:5555", "127.0.0.1:100");
        assert_believed_address("[fd00::1]:100", "[::1]:5555", "[fd00::1]:100");
        // The claimed address is of this host, but this endpoint cannot use addresses of its family.
        assert_believed_address("10.0.0.1:100", "[::1]:5555", "[::1]:100");
    }

    #[test]
    fn believed_address_keeps_the_local_scope_id() {
        assert_believed_address("[fe80::7%9]:100", "[fe80::7%2]:5555", "[fe80::7%2]:100");
        assert_believed_address("[fe80::8%9]:100", "[fe80::7%2]:5555", "[fe80::7%2]:100");
        assert_believed_address("[fe80::1%3]:100", "[fd00::1]:5555", "[fe80::1%3]:100");
    }

    fn hello() -> Hello {
        Hello { address: parse_address("127.0.0.1:9"), instance: 3 }
    }

    /// Returns the parts that a reader finds in a hello and these records. Asserts that the parts are the
    /// same if the bytes arrive in two pieces, wherever they are cut.
    fn read_greeting(claims: &[(ClaimStatus, u64)]) -> Result<Vec<Greeting>, WireError> {
        let mut bytes = hello().to_bytes().to_vec();
        bytes.extend(claims.iter().flat_map(|&(status, token)| ClaimRecord { status, token }.to_bytes()));
        let read = |cut: usize| {
            let (mut reader, mut parts) = (GreetingReader::new(), Vec::new());
            for mut piece in [&bytes[..cut], &bytes[cut..]] {
                while let Some((part, rest)) = reader.feed(piece)? {
                    parts.push(part);
                    piece = rest;
                }
            }
            Ok(parts)
        };
        let first = read(0);
        for cut in 1..bytes.len() {
            assert_eq!(read(cut), first, "cut at {cut}");
        }
        first
    }

    #[test]
    fn hello_in_pieces_is_assembled() {
        let mut bytes = hello().to_bytes().to_vec();
        bytes.extend(b"rest");
        for first in 0..HELLO_BYTES {
            let mut reader = OpeningReader::new();
            assert_eq!(reader.feed(&bytes[..first]), Ok(None));
            assert_eq!(reader.missing_bytes(), HELLO_BYTES - first);
            let expected = (Opening::Hello(hello()), b"rest".as_slice());
            assert_eq!(reader.feed(&bytes[first..]), Ok(Some(expected)));
        }
    }

    #[test]
    fn garbage_is_refused_at_the_first_byte() {
        assert_eq!(OpeningReader::new().feed(b"G"), Err(WireError::BadMagic));
        assert_eq!(OpeningReader::new().feed(&[b'x'; 4096]), Err(WireError::BadMagic));
    }

    #[test]
    fn greeting_says_whether_the_link_is_held() {
        let up = |token| Greeting::Up { hello: hello(), token };
        assert_eq!(read_greeting(&[]), Ok(vec![]));
        assert_eq!(read_greeting(&[(ClaimStatus::Welcome, 5)]), Ok(vec![up(5)]));
        assert_eq!(read_greeting(&[(ClaimStatus::Held, 5)]), Ok(vec![Greeting::Held { token: 5 }]));
        let refused = Greeting::Refused { token: 1 };
        assert_eq!(read_greeting(&[(ClaimStatus::Refused, 1)]), Ok(vec![refused]));
        let held = Greeting::Held { token: 5 };
        assert_eq!(
            read_greeting(&[(ClaimStatus::Held, 5), (ClaimStatus::Refused, 1)]),
            Ok(vec![held, refused])
        );
        let held_first = [(ClaimStatus::Held, 5), (ClaimStatus::Admitted, 5)];
        assert_eq!(read_greeting(&held_first), Ok(vec![Greeting::Held { token: 5 }, up(5)]));
    }

    #[test]
    fn greeting_in_another_order_is_refused() {
        for status in ClaimStatus::ALL {
            let is_first = matches!(status, ClaimStatus::Welcome | ClaimStatus::Held | ClaimStatus::Refused);
            assert_eq!(read_greeting(&[(status, 5)]).is_ok(), is_first, "{status:?}");
            let held_first = [(ClaimStatus::Held, 5), (status, 5)];
            let is_second = matches!(status, ClaimStatus::Admitted | ClaimStatus::Refused);
            assert_eq!(read_greeting(&held_first).is_ok(), is_second, "{status:?}");
        }
        let other_token = [(ClaimStatus::Held, 5), (ClaimStatus::Admitted, 6)];
        assert_eq!(read_greeting(&other_token), Err(WireError::OutOfTurn));
    }
}
