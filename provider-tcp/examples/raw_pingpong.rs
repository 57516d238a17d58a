//! Half round trips through [`TcpTransport`] beside those of a bare busy-polled socket, in one run.
//!
//! Two threads, each pinned to a processor of its own, take turns; the rounds of both ways are interleaved so that
//! what else the machine does hits both alike. Run it with `cargo run --release -p homespun-tcp --example raw_pingpong`.
#![expect(clippy::print_stdout, reason = "the table is what it is for")]

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use homespun_engine::address::Address;
use homespun_engine::transport::{LinkEvent, LinkId, Provider, Receiver, Sent, Space, Transport};
use homespun_engine::wire::{Header, Message};
use homespun_tcp::{TcpProvider, TcpTransport};
use rustix::thread::{CpuSet, sched_setaffinity};

const SIZES_BYTES: [usize; 8] = [8, 1024, 4096, 16 * 1024, 64 * 1024, 256 * 1024, 1 << 20, 4 << 20];
const ROUNDS: usize = 31;
const BYTES_PER_ROUND: usize = 128 << 20;
const ITERATIONS_MAX: usize = 5_000;

/// One message at a time, read straight into a buffer.
struct Inbox {
    buffer: Vec<u8>,
    filled_bytes: usize,
    complete_count: usize,
    link: Option<LinkId>,
}

impl Inbox {
    fn fill(&mut self, count_bytes: usize, len_bytes: usize) {
        self.filled_bytes += count_bytes;
        if self.filled_bytes == len_bytes {
            self.filled_bytes = 0;
            self.complete_count += 1;
        }
    }
}

impl Receiver for Inbox {
    fn frame(&mut self, _: LinkId, _: &Header, payload: &[u8]) {
        self.buffer[..payload.len()].copy_from_slice(payload);
        self.complete_count += 1;
    }
    fn begin(&mut self, _: LinkId, _: &Header) {}
    fn space(&mut self, _: LinkId) -> Space<'_> {
        Space::from_iter([IoSliceMut::new(&mut self.buffer[self.filled_bytes..])])
    }
    fn placed(&mut self, _: LinkId, count_bytes: usize) {
        let len_bytes = self.buffer.len();
        self.fill(count_bytes, len_bytes);
    }
    fn chunk(&mut self, _: LinkId, bytes: &[u8]) {
        let at = self.filled_bytes;
        self.buffer[at..at + bytes.len()].copy_from_slice(bytes);
        let len_bytes = self.buffer.len();
        self.fill(bytes.len(), len_bytes);
    }
    fn link(&mut self, link: LinkId, event: LinkEvent) {
        assert!(matches!(event, LinkEvent::Up { .. }), "{event:?}");
        self.link = Some(link);
    }
}

/// One end of the conversation.
trait End {
    fn set_len(&mut self, len_bytes: usize);
    fn send(&mut self);
    fn receive(&mut self);
}

struct Raw {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl End for Raw {
    fn set_len(&mut self, len_bytes: usize) {
        self.buffer = vec![7; len_bytes];
    }

    fn send(&mut self) {
        let mut rest = &self.buffer[..];
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    }

    fn receive(&mut self) {
        let mut filled = 0;
        while filled < self.buffer.len() {
            match self.stream.read(&mut self.buffer[filled..]) {
                Ok(count) => filled += count,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    }
}

struct Homespun {
    transport: TcpTransport,
    inbox: Inbox,
    outgoing: Vec<u8>,
}

impl Homespun {
    fn open() -> Homespun {
        let loopback = Address::from(SocketAddr::from(([127, 0, 0, 1], 0)));
        let transport = TcpProvider::new().open(loopback, 1).expect("an endpoint");
        let inbox = Inbox { buffer: Vec::new(), filled_bytes: 0, complete_count: 0, link: None };
        Homespun { transport, inbox, outgoing: Vec::new() }
    }

    fn wait_for_link(&mut self) {
        while self.inbox.link.is_none() {
            self.pass();
        }
    }

    fn pass(&mut self) {
        self.transport.receive(64, &mut self.inbox);
        self.transport.flush();
    }
}

impl End for Homespun {
    fn set_len(&mut self, len_bytes: usize) {
        self.inbox.buffer = vec![7; len_bytes];
        self.outgoing = vec![7; len_bytes];
    }

    fn send(&mut self) {
        let link = self.inbox.link.expect("a link");
        let len_bytes = self.outgoing.len() as u64;
        let header = Header::Message(Message { len_bytes, tag: Some(1), data: None, wants_ack: false });
        let mut taken = match self.transport.send(link, &header, &[IoSlice::new(&self.outgoing)]) {
            Sent::Whole => self.outgoing.len(),
            Sent::Partial(count) => count,
            Sent::Full => panic!("no room although the peer has answered"),
        };
        while taken < self.outgoing.len() {
            self.pass();
            taken += match self.transport.resume(link, &[IoSlice::new(&self.outgoing[taken..])]) {
                Sent::Whole => self.outgoing.len() - taken,
                Sent::Partial(count) => count,
                Sent::Full => 0,
            };
        }
        self.transport.flush();
    }

    fn receive(&mut self) {
        let next = self.inbox.complete_count + 1;
        while self.inbox.complete_count < next {
            self.pass();
        }
    }
}

fn iterations(len_bytes: usize) -> usize {
    (BYTES_PER_ROUND / len_bytes).clamp(50, ITERATIONS_MAX)
}

fn pin(processor: usize) {
    let mut set = CpuSet::new();
    set.set(processor);
    if sched_setaffinity(None, &set).is_err() {
        println!("processor {processor} is not available; this thread is not pinned");
    }
}

/// The time of a half round trip.
fn measure(end: &mut impl End, count: usize) -> Duration {
    let begin = Instant::now();
    for _ in 0..count {
        end.send();
        end.receive();
    }
    begin.elapsed() / (2 * u32::try_from(count).expect("a small number"))
}

fn answer(end: &mut impl End, count: usize) {
    for _ in 0..count {
        end.receive();
        end.send();
    }
}

/// The best round in microseconds: the one that nothing else on the machine has disturbed.
fn best_us(times: &[Duration]) -> f64 {
    times.iter().min().map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

fn main() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let raw_address = listener.local_addr().expect("an address");
    let (tell, told) = mpsc::channel();

    let server = thread::spawn(move || {
        pin(1);
        let mut homespun = Homespun::open();
        tell.send(homespun.transport.address()).expect("a client");
        let (stream, _) = listener.accept().expect("a client");
        let mut raw = Raw { stream: prepared(stream), buffer: Vec::new() };
        homespun.wait_for_link();
        for len_bytes in SIZES_BYTES {
            raw.set_len(len_bytes);
            homespun.set_len(len_bytes);
            for _ in 0..ROUNDS {
                answer(&mut raw, iterations(len_bytes));
                answer(&mut homespun, iterations(len_bytes));
            }
        }
    });

    pin(0);
    let mut homespun = Homespun::open();
    let address = told.recv().expect("a server");
    let mut raw =
        Raw { stream: prepared(TcpStream::connect(raw_address).expect("a server")), buffer: Vec::new() };
    homespun.transport.connect(address);
    homespun.wait_for_link();
    println!("{:>9} {:>12} {:>12} {:>7}", "bytes", "raw us", "homespun us", "ratio");
    for len_bytes in SIZES_BYTES {
        raw.set_len(len_bytes);
        homespun.set_len(len_bytes);
        let (mut raw_times, mut homespun_times) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            raw_times.push(measure(&mut raw, iterations(len_bytes)));
            homespun_times.push(measure(&mut homespun, iterations(len_bytes)));
        }
        let (raw_us, homespun_us) = (best_us(&raw_times), best_us(&homespun_times));
        println!("{len_bytes:>9} {raw_us:>12.2} {homespun_us:>12.2} {:>7.3}", homespun_us / raw_us);
    }
    server.join().expect("the server to end in order");
}

fn prepared(stream: TcpStream) -> TcpStream {
    stream.set_nodelay(true).expect("an option");
    stream.set_nonblocking(true).expect("an option");
    stream
}
