//! A log in the memory of another process. The server maps a file, and clients append records to it. A record
//! that is stored survives the client, the server, and a loss of power.
//!
//! ```text
//! cargo run -p homespun-rpma --example remote_log -- serve log.bin    # prints: listening at 127.0.0.1:40123
//! cargo run -p homespun-rpma --example remote_log -- append 127.0.0.1:40123 one two   # in another terminal
//! cargo run -p homespun-rpma --example remote_log -- list 127.0.0.1:40123
//! ```
//!
//! The file begins with the *tail*, the length of all records. A client writes a record behind the others
//! and flushes it. Only then it moves the tail, by an atomic write, and flushes the tail. So the tail never
//! counts a record that is not whole and durable, whichever process dies in between: a reader does not see
//! the rest, and the next client overwrites it.
//!
//! Meanwhile the server's program only waits for the client's end. It serves one client after the other,
//! since two that append at once would write to the same place.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what it has stored")]

use std::env;
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::ptr;
use std::time::Duration;

use homespun_rpma::{
    Connection, ConnectionConfig, ConnectionEvent, ConnectionRequest, Endpoint, FlushType, LocalSlice,
    MemoryRegion, Peer, PeerConfig, RemoteMemoryRegion, Report, Status, Usage,
};
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// The length of the file.
const LOG_BYTES: usize = 64 * 1024;

/// The place of the tail, and its length. An atomic write needs a multiple of 8.
const TAIL: u64 = 0;
const TAIL_BYTES: usize = size_of::<u64>();

/// The place of the first record, in a cache line of its own.
const RECORDS: u64 = 64;

/// The length of a record stands before its text.
const LENGTH_BYTES: usize = size_of::<u32>();

/// How long a client waits until the server has served the clients before it.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    match run(env::args().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let (command, place) = (arguments.next(), arguments.next());
    match (command.as_deref(), place) {
        (Some("serve"), Some(path)) => serve(&path),
        (Some("append"), Some(server)) => append(server.parse()?, arguments),
        (Some("list"), Some(server)) => list(server.parse()?),
        _ => Err("usage: remote_log serve FILE | append SERVER TEXT... | list SERVER".into()),
    }
}

fn serve(path: &str) -> Result<(), Box<dyn Error>> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    // A new file has no records: its tail is 0.
    file.set_len(LOG_BYTES as u64)?;
    let peer = Peer::new()?;
    let log = register_file(&peer, &file)?;
    // Persistent flushes work only if this side says so.
    let config = PeerConfig { direct_write_to_pmem: true };
    let offer = [&log.descriptor()[..], &config.descriptor()].concat();
    let endpoint = Endpoint::listen(&peer, "127.0.0.1", 0)?;
    println!("listening at {}", endpoint.address());
    loop {
        let client = endpoint.next_connection_request(None)?.connect(&offer)?;
        let end = loop {
            match client.next_event()? {
                ConnectionEvent::Established => {}
                end => break end,
            }
        };
        let mut tail = [0; TAIL_BYTES];
        file.read_exact_at(&mut tail, TAIL)?;
        println!("{end}; the log has {} bytes of records", u64::from_le_bytes(tail));
    }
}

/// Maps the file, and lets peers read it, write to it and flush it. The mapping stays until the process ends.
fn register_file(peer: &Peer, file: &File) -> Result<MemoryRegion, Box<dyn Error>> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses an address where nothing is mapped.
    let address = unsafe { mmap(ptr::null_mut(), LOG_BYTES, access, MapFlags::SHARED, file, 0)? };
    let usage = Usage::READ_SRC | Usage::WRITE_DST | Usage::FLUSH_TYPE_PERSISTENT;
    // SAFETY: the file has this length, the mapping stays, and this program has no references to it.
    Ok(unsafe { MemoryRegion::register(peer, address.cast(), LOG_BYTES, usage)? })
}

fn append(server: SocketAddr, texts: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let mut log = RemoteLog::open(server)?;
    for text in texts {
        log.append(&text)?;
        println!("stored: {text}");
    }
    Ok(log.connection.disconnect()?)
}

fn list(server: SocketAddr) -> Result<(), Box<dyn Error>> {
    let mut log = RemoteLog::open(server)?;
    let records = log.read_records()?;
    println!("the log has {} records", parse_records(&records).count());
    for (number, text) in parse_records(&records).enumerate() {
        println!("record {number}: {}", String::from_utf8_lossy(text));
    }
    Ok(log.connection.disconnect()?)
}

/// The log of a server, as a client sees it.
struct RemoteLog {
    connection: Connection,
    region: RemoteMemoryRegion,
    buffer: Buffer,
    tail: u64,
}

impl RemoteLog {
    /// Connects to the server, and reads the tail.
    fn open(server: SocketAddr) -> Result<RemoteLog, Box<dyn Error>> {
        let peer = Peer::new()?;
        let config = ConnectionConfig { timeout: PATIENCE, ..ConnectionConfig::default() };
        let request = ConnectionRequest::new(&peer, &server.ip().to_string(), server.port(), Some(&config))?;
        let connection = request.connect(b"")?;
        match connection.next_event()? {
            ConnectionEvent::Established => {}
            event => return Err(format!("{server}: {event}").into()),
        }
        let offer = connection.private_data();
        let region = RemoteMemoryRegion::from_descriptor(offer)?;
        let behind = offer.get(RemoteMemoryRegion::DESCRIPTOR_BYTES..).unwrap_or_default();
        connection.apply_remote_peer_config(PeerConfig::from_descriptor(behind)?);
        let mut log = RemoteLog { connection, region, buffer: Buffer::register(&peer)?, tail: 0 };
        let tail = log.read(TAIL, TAIL_BYTES)?;
        log.tail = u64::from_le_bytes(tail.try_into().expect("as many bytes as were asked for"));
        if log.tail > LOG_BYTES as u64 - RECORDS {
            return Err("this is no log: its tail is too large".into());
        }
        Ok(log)
    }

    /// Appends a record. It is durable when the call returns.
    fn append(&mut self, text: &str) -> Result<(), Box<dyn Error>> {
        let record = encode_record(text)?;
        let (place, len_bytes) = (RECORDS + self.tail, record.len() as u64);
        if place + len_bytes > LOG_BYTES as u64 {
            return Err("the log is full".into());
        }
        self.buffer.fill(&record);
        let tail = self.tail + len_bytes;
        let (connection, region) = (&self.connection, &self.region);
        // The first three report only failures. The last one completes after them.
        connection.write(region.at(place), self.buffer.slice(record.len())?, Report::OnError, 1)?;
        connection.flush(region, place, len_bytes, FlushType::Persistent, Report::OnError, 2)?;
        // It takes effect only after the flush has succeeded.
        connection.atomic_write(region.at(TAIL), tail.to_le_bytes(), Report::OnError, 3)?;
        connection.flush(region, TAIL, TAIL_BYTES as u64, FlushType::Persistent, Report::Always, 4)?;
        self.await_completion()?;
        self.tail = tail;
        Ok(())
    }

    fn read_records(&mut self) -> Result<Vec<u8>, Box<dyn Error>> {
        // The tail is less than the length of the file.
        self.read(RECORDS, self.tail as usize)
    }

    fn read(&mut self, place: u64, len_bytes: usize) -> Result<Vec<u8>, Box<dyn Error>> {
        self.connection.read(self.buffer.slice(len_bytes)?, self.region.at(place), Report::Always, 5)?;
        self.await_completion()?;
        Ok(self.buffer.copy_out(len_bytes))
    }

    fn await_completion(&self) -> Result<(), Box<dyn Error>> {
        let queue = self.connection.completion_queue();
        queue.wait()?;
        match queue.next()?.status {
            Status::Success => Ok(()),
            status => Err(format!("the log is out of reach: {status}").into()),
        }
    }
}

fn encode_record(text: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let length = u32::try_from(text.len())?;
    Ok([&length.to_le_bytes()[..], text.as_bytes()].concat())
}

/// Splits records into their texts. Ends where a record is not whole, which the tail should rule out.
fn parse_records(mut records: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, behind) = records.split_first_chunk::<LENGTH_BYTES>()?;
        let (text, rest) = behind.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        records = rest;
        Some(text)
    })
}

/// Memory for the operations of a client. It stays until the process ends, so no operation outlives it.
struct Buffer {
    region: MemoryRegion,
}

impl Buffer {
    fn register(peer: &Peer) -> Result<Buffer, homespun_rpma::Error> {
        let memory: &'static mut [u8] = Box::leak(vec![0; LOG_BYTES].into());
        let usage = Usage::WRITE_SRC | Usage::READ_DST;
        // SAFETY: the memory stays, and only this object uses it.
        let region = unsafe { MemoryRegion::register(peer, memory.as_mut_ptr(), LOG_BYTES, usage)? };
        Ok(Buffer { region })
    }

    /// Returns the first bytes, for an operation.
    fn slice(&self, len_bytes: usize) -> Result<LocalSlice<'_>, homespun_rpma::Error> {
        Ok(self.region.slice(0, len_bytes)?)
    }

    /// Copies bytes to the beginning. No operation is using the memory: each method of the log waits for its
    /// own, and if one has failed, the program ends.
    fn fill(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= LOG_BYTES, "a record is shorter than the log");
        // SAFETY: the memory has this length, and nothing else uses it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.region.as_ptr(), bytes.len()) }
    }

    /// Returns a copy of the first bytes. As for [`fill`](Self::fill), no operation is using the memory.
    fn copy_out(&self, len_bytes: usize) -> Vec<u8> {
        assert!(len_bytes <= LOG_BYTES, "a read is shorter than the log");
        let mut bytes = vec![0; len_bytes];
        // SAFETY: the memory has this length, and nothing writes to it.
        unsafe { ptr::copy_nonoverlapping(self.region.as_ptr(), bytes.as_mut_ptr(), len_bytes) }
        bytes
    }
}
