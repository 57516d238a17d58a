//! Hostile peers over TCP. Tests and benchmarks use them to measure what such peers cost an endpoint.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use homespun_engine::limits::{CREDIT_INITIAL_BYTES, MESSAGE_COST_BYTES};
use homespun_engine::transport::{FrameHandler, LinkEvent, LinkId, Space};
use homespun_engine::wire::address_claim::{CLAIM_RECORD_BYTES, ClaimRecord, ClaimStatus};
use homespun_engine::wire::frame::{self, HEADER_MAX_BYTES};
use homespun_engine::wire::hello::{HELLO_BYTES, Hello, Opening};
use homespun_engine::wire::stream::Decoder;
use homespun_engine::wire::{AwaitedReply, Header, Message};
use socket2::SockRef;

use super::Deadline;

/// The tag of the messages that a [`HostilePeer`] sends. No receive for this tag is posted.
pub const HOSTILE_TAG: u64 = 0xdead_beef_cafe_f00d;

/// The length of the greeting of an acceptor that does not hold the link.
const GREETING_BYTES: usize = HELLO_BYTES + CLAIM_RECORD_BYTES;

/// A hostile peer's connection to an endpoint. The test decides how far the peer follows the protocol.
#[derive(Debug)]
pub struct HostilePeer {
    stream: TcpStream,
    greeting: Vec<u8>,
    decoder: Decoder,
    received: Received,
    spent_bytes: u64,
    has_ended: bool,
}

/// What the endpoint has sent to a hostile peer.
#[derive(Debug)]
struct Received {
    granted_bytes: u64,
    headers: Vec<Header>,
    payload_bytes: u64,
}

impl FrameHandler for Received {
    fn frame(&mut self, _: LinkId, header: &Header, payload: &[u8]) {
        self.payload_bytes += payload.len() as u64;
        match *header {
            Header::Credit { granted_bytes } => self.granted_bytes = granted_bytes,
            other => self.headers.push(other),
        }
    }
    fn frame_begun(&mut self, _: LinkId, header: &Header) {
        self.headers.push(*header);
    }
    fn payload_space(&mut self, _: LinkId) -> Space<'_> {
        Space::new()
    }
    fn bytes_placed(&mut self, _: LinkId, _: usize) {}
    fn payload_arrived(&mut self, _: LinkId, bytes: &[u8]) {
        self.payload_bytes += bytes.len() as u64;
    }
    fn link_event(&mut self, _: LinkId, _: LinkEvent) {}
    fn link_writable(&mut self, _: LinkId) {}
}

impl HostilePeer {
    /// Connects, and says nothing.
    ///
    /// # Errors
    ///
    /// The error of the connect.
    pub fn connect(to: SocketAddr) -> io::Result<HostilePeer> {
        let stream = TcpStream::connect(to)?;
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let received =
            Received { granted_bytes: CREDIT_INITIAL_BYTES, headers: Vec::new(), payload_bytes: 0 };
        Ok(HostilePeer {
            stream,
            greeting: Vec::new(),
            decoder: Decoder::new(),
            received,
            spent_bytes: 0,
            has_ended: false,
        })
    }

    /// Connects, and sends a hello that claims this address.
    ///
    /// # Errors
    ///
    /// The error of the connect.
    pub fn claim(to: SocketAddr, address: SocketAddr, instance: u64) -> io::Result<HostilePeer> {
        let mut peer = HostilePeer::connect(to)?;
        peer.send_bytes(&Hello { address: address.into(), instance }.to_bytes());
        Ok(peer)
    }

    /// Sends bytes. If the endpoint has ended the connection, sends nothing.
    pub fn send_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.has_ended {
            match self.stream.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.read();
                    std::thread::yield_now();
                }
                Err(_) => self.has_ended = true,
            }
        }
    }

    /// Sends a frame without payload.
    pub fn send_header(&mut self, header: &Header) {
        self.send_bytes(&frame_without_payload(header));
    }

    /// Returns for how many messages there is credit.
    fn affordable_messages(&mut self) -> usize {
        self.read();
        let room = (self.received.granted_bytes - self.spent_bytes) / MESSAGE_COST_BYTES;
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// Offers messages with these numbers until the credit is used up. The endpoint must have no receive
    /// that matches them. Returns how many messages were offered.
    pub fn send_offers(&mut self, numbers: impl Iterator<Item = u64>) -> usize {
        let mut bytes = Vec::new();
        let mut count = 0;
        for op in numbers.take(self.affordable_messages()) {
            // The send awaits a match. So the endpoint fetches no payload as long as no receive matches.
            let message =
                Message { tag: Some(HOSTILE_TAG), awaits: AwaitedReply::Match, ..Message::of_len(1) };
            bytes.extend(frame_without_payload(&Header::Request { message, op, remote_bytes: 0 }));
            count += 1;
        }
        self.spent_bytes += count as u64 * MESSAGE_COST_BYTES;
        self.send_bytes(&bytes);
        count
    }

    /// Sends empty messages until the credit is used up, but at most `max_messages`. Returns how many it has
    /// sent.
    pub fn send_messages(&mut self, max_messages: usize) -> usize {
        let count = self.affordable_messages().min(max_messages);
        self.spent_bytes += count as u64 * MESSAGE_COST_BYTES;
        let message = Message { tag: Some(HOSTILE_TAG), ..Message::of_len(0) };
        self.send_bytes(&frame_without_payload(&Header::Message(message)).repeat(count));
        count
    }

    /// Offers a message of this length, which the endpoint may fetch before a receive matches it. There must
    /// be credit for one message.
    pub fn offer_payload(&mut self, op: u64, len_bytes: u64) {
        let message = Message { tag: Some(HOSTILE_TAG), ..Message::of_len(len_bytes) };
        self.spent_bytes += MESSAGE_COST_BYTES;
        self.send_header(&Header::Request { message, op, remote_bytes: 0 });
    }

    /// Reads what has arrived. Returns whether the connection is open.
    pub fn read(&mut self) -> bool {
        let mut buffer = [0; 4096];
        while !self.has_ended {
            let mut bytes = match self.stream.read(&mut buffer) {
                Ok(read_bytes @ 1..) => &buffer[..read_bytes],
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Ok(_) | Err(_) => {
                    self.has_ended = true;
                    break;
                }
            };
            // If the link is held, the record that admits it follows the greeting.
            while !bytes.is_empty() && self.greeting.len() < self.greeting_bytes() {
                let missing_bytes = self.greeting_bytes() - self.greeting.len();
                let (greeting, rest) = bytes.split_at(missing_bytes.min(bytes.len()));
                self.greeting.extend_from_slice(greeting);
                bytes = rest;
            }
            // Only a peer that has said hello gets correct frames from the endpoint.
            self.has_ended |= self.decoder.feed(LinkId(0), bytes, &mut self.received).is_err();
        }
        !self.has_ended
    }

    fn greeting_bytes(&self) -> usize {
        GREETING_BYTES + if self.is_held() { CLAIM_RECORD_BYTES } else { 0 }
    }

    /// Whether the endpoint has said that it holds the link.
    pub fn is_held(&self) -> bool {
        self.claim_status() == Some(ClaimStatus::Held)
    }

    /// Returns what the endpoint has said first about the claim.
    fn claim_status(&self) -> Option<ClaimStatus> {
        let record = self.greeting.get(HELLO_BYTES..)?.first_chunk()?;
        ClaimRecord::parse(record).ok().map(|record| record.status)
    }

    /// Whether the endpoint has answered the hello.
    pub fn is_greeted(&self) -> bool {
        self.claim_status().is_some()
    }

    /// Whether the endpoint reads the frames of the link.
    pub fn is_admitted(&self) -> bool {
        self.is_greeted() && self.greeting.len() == self.greeting_bytes()
    }

    /// The frames that have arrived, except those that grant credit.
    pub fn received_headers(&self) -> &[Header] {
        &self.received.headers
    }

    /// How many bytes of payload have arrived.
    pub fn received_payload_bytes(&self) -> u64 {
        self.received.payload_bytes
    }

    /// Ends the connection by a reset.
    pub fn reset(self) {
        // Without this the connection ends in order.
        let _no_reset = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}

fn frame_without_payload(header: &Header) -> Vec<u8> {
    let mut bytes = [0; HEADER_MAX_BYTES];
    let len_bytes = frame::emit(header, &mut bytes);
    bytes[..len_bytes].to_vec()
}

/// Waits until the endpoint has answered a hello.
#[track_caller]
pub fn await_greeting(peer: &mut HostilePeer, progress: impl Fn()) {
    let deadline = Deadline::new();
    while peer.read() && !peer.is_greeted() {
        progress();
        deadline.yield_or_panic("an answer to a hello");
    }
}

/// An address at which a hostile process listens. An endpoint may ask there whether the process has claimed
/// the address. The process confirms each claim.
#[derive(Debug)]
pub struct HostileAddress {
    listener: TcpListener,
    asked: Vec<TcpStream>,
}

impl HostileAddress {
    /// Listens at a free port.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn listen() -> io::Result<HostileAddress> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        Ok(HostileAddress { listener, asked: Vec::new() })
    }

    /// The address to claim.
    ///
    /// # Errors
    ///
    /// The error of the system.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers the endpoints that ask about claims of this address, and confirms each claim. Drops
    /// connections that have ended.
    pub fn confirm_claims(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_ok() {
                self.asked.push(stream);
            }
        }
        self.asked.retain_mut(|stream| {
            let mut bytes = [0; HELLO_BYTES];
            loop {
                match stream.peek(&mut bytes) {
                    Ok(HELLO_BYTES) => {}
                    Ok(0) => return false,
                    Ok(_) => return true,
                    Err(error) => return error.kind() == ErrorKind::WouldBlock,
                }
                let Ok(()) = stream.read_exact(&mut bytes) else { return false };
                let Ok(Opening::Question(question)) = Opening::parse(&bytes) else { return false };
                let record = ClaimRecord { status: ClaimStatus::Confirmed, token: question.token };
                if stream.write_all(&record.to_bytes()).is_err() {
                    return false;
                }
            }
        });
    }
}
