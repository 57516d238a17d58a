//! A notice board. A client takes a number, and writes a note into the server's memory. Meanwhile the server
//! only reads its queue.
//!
//! ```text
//! cargo run --example remote_memory                      # prints: listening at 127.0.0.1:40123
//! cargo run --example remote_memory -- 127.0.0.1:40123 "milk is out" stop     # in another terminal
//! ```
//!
//! A client first sends a message, and the server answers with the place of the board. An atomic operation
//! on the first word of the board gives the client its number, so any number of clients may write at once.
//! Then a second message tells the server that the note is written. The note `stop` ends the server.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what it received")]

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use homespun::flags::MrAccess;
use homespun::{
    Address, Bytes, BytesMut, Caps, Completion, CompletionQueue, CounterAttr, CounterEvents, Fabric,
    FabricAddress, Hints, MrAttr, OpFlags, OpenEndpoint, OperationKind, RemoteMemory,
};

/// The length of a note on the board.
const NOTE_BYTES: usize = 64;

/// How many notes the board holds. Later notes replace the oldest.
const NOTES: u64 = 100;

/// The longest message: an address.
const MESSAGE_MAX_BYTES: usize = 64;

/// How long a client waits for the server.
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
    match arguments.next() {
        None => serve_board(),
        Some(server) => write_notes(server.parse()?, arguments),
    }
}

/// Returns the offset of a note on the board. The first word of the board counts the notes.
fn note_offset(number: u64) -> u64 {
    8 + number % NOTES * NOTE_BYTES as u64
}

/// Waits until a receive, a read or a write has completed. Ignores completions of sends.
fn await_completion(cq: &CompletionQueue, timeout: Option<Duration>) -> Result<Completion, Box<dyn Error>> {
    loop {
        let entry = cq.sread_entry(timeout)?.ok_or("no completion before the time-out")?;
        let completion = entry.into_result()?;
        if completion.kind() != OperationKind::Send {
            return Ok(completion);
        }
    }
}

fn serve_board() -> Result<(), Box<dyn Error>> {
    let hints = Hints::new().caps(Caps::MSG | Caps::RMA | Caps::ATOMIC).node("127.0.0.1").source();
    let OpenEndpoint { endpoint, cq, av, domain } = Fabric::new().open_endpoint(&hints)?;
    let attr = MrAttr::granting(MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE);
    let board = domain.register(note_offset(NOTES - 1) as usize + NOTE_BYTES, &attr)?;
    // The counter counts the peers' writes and atomic operations. Each read of the queue carries out the
    // ones that have arrived.
    let writes = domain.open_counter(&CounterAttr::default())?;
    board.bind_counter(&writes, CounterEvents::REMOTE_WRITE)?;
    println!("listening at {}", endpoint.name()?);
    loop {
        endpoint.recv(BytesMut::zeroed(MESSAGE_MAX_BYTES), FabricAddress::UNSPECIFIED, 0)?;
        let message = await_completion(&cq, None)?.buffer.into_received().unwrap_or_default();
        let message = std::str::from_utf8(&message)?;
        if let Ok(client) = message.parse() {
            // A client's address: it asks where the board is.
            let place = board.remote().to_bytes();
            endpoint.send(Bytes::copy_from_slice(&place), av.insert_if_absent(client)?, 0)?;
            continue;
        }
        let number: u64 = message.parse()?;
        let mut note = [0; NOTE_BYTES];
        board.read_at(note_offset(number) as usize, &mut note)?;
        let note = String::from_utf8_lossy(&note);
        let note = note.trim_end_matches('\0');
        println!("note {number}: {note}");
        if note == "stop" {
            println!("peers have changed the board {} times", writes.read());
            return Ok(());
        }
    }
}

fn write_notes(server: Address, notes: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    // A write that completes has reached the server's memory.
    let hints =
        Hints::new().caps(Caps::MSG | Caps::RMA | Caps::ATOMIC).tx_op_flags(OpFlags::DELIVERY_COMPLETE);
    let hints = hints.node("127.0.0.1").source();
    let OpenEndpoint { endpoint, cq, av, .. } = Fabric::new().open_endpoint(&hints)?;
    let to = av.insert_one(server)?;
    endpoint.recv(BytesMut::zeroed(RemoteMemory::LEN_BYTES), FabricAddress::UNSPECIFIED, 0)?;
    endpoint.send(Bytes::from(endpoint.name()?.to_string()), to, 0)?;
    let place = await_completion(&cq, Some(PATIENCE))?.buffer.into_received().unwrap_or_default();
    let board = RemoteMemory::from_bytes(place[..].try_into()?);
    for note in notes {
        endpoint.fetch_add_u64(1, to, board, 0)?;
        let number = await_completion(&cq, Some(PATIENCE))?.fetched_u64().ok_or("no number")?;
        let mut bytes = note.into_bytes();
        bytes.resize(NOTE_BYTES, 0);
        endpoint.write(Bytes::from(bytes), to, board.offset(note_offset(number)), 0)?;
        await_completion(&cq, Some(PATIENCE))?;
        println!("note {number} is written");
        endpoint.send(Bytes::from(number.to_string()), to, 0)?;
        cq.sread_entry(Some(PATIENCE))?.ok_or("the note's number was not sent within 10 s")?.into_result()?;
    }
    Ok(())
}
