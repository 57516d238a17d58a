//! Remote procedure calls with tagged messages. The server answers many clients. A client has several calls
//! in flight.
//!
//! ```text
//! cargo run --example tagged_client_server -- server     # prints: listening at 127.0.0.1:40123
//! cargo run --example tagged_client_server -- client 127.0.0.1:40123 "add 2 40" "reverse cirbaf" stop
//! ```
//!
//! A call has a number. The tag of a request is this number with one more bit set. By this bit the server's
//! receives match requests only. The tag of the answer is the number. So each answer matches its receive, in
//! whatever order the answers come.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what it received")]

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use homespun::{
    Address, Bytes, BytesMut, Caps, Completion, CompletionError, CompletionQueue, Fabric, FabricAddress,
    Hints, OpenEndpoint, OperationKind, ReusableBuffer, Tag,
};

/// The bit that distinguishes a request from an answer.
const REQUEST: u64 = 1 << 63;

/// The number of receives that the server keeps posted. More requests wait, and none is lost.
const SLOTS: u64 = 16;

/// The longest request or answer.
const MESSAGE_MAX_BYTES: usize = 1024;

/// The time-out of an answer.
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
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("server"), None) => answer_requests(),
        (Some("client"), Some(server)) => send_calls(server.parse()?, &arguments.collect::<Vec<_>>()),
        _ => Err("usage: tagged_client_server server | client ADDRESS CALL...".into()),
    }
}

/// An endpoint for tagged messages.
fn open_endpoint() -> Result<OpenEndpoint, homespun::Error> {
    let hints = Hints::new().caps(Caps::TAGGED | Caps::DIRECTED_RECV).node("127.0.0.1").source();
    Fabric::new().open_endpoint(&hints)
}

/// A received message, or an operation that has failed.
type Ended = Result<Completion, CompletionError>;

/// Waits for the next message, or for an operation to fail.
fn wait_for_message(cq: &CompletionQueue, timeout: Option<Duration>) -> Result<Ended, Box<dyn Error>> {
    loop {
        let entry = cq.sread_entry(timeout)?.ok_or("no message before the time-out")?;
        match entry.into_result() {
            Ok(completion) if completion.kind() == OperationKind::Send => {}
            ended => return Ok(ended),
        }
    }
}

fn answer_requests() -> Result<(), Box<dyn Error>> {
    let OpenEndpoint { endpoint, cq, av, .. } = open_endpoint()?;
    println!("listening at {}", endpoint.name()?);
    let any = FabricAddress::UNSPECIFIED;
    for slot in 0..SLOTS {
        // A completed receive returns this buffer at its full length, so the next receive can use the buffer
        // as it is.
        let buffer = ReusableBuffer::zeroed(MESSAGE_MAX_BYTES);
        endpoint.trecv_into(buffer, any, Tag(REQUEST).ignoring(!REQUEST), slot)?;
    }
    loop {
        let (received, is_whole) = match wait_for_message(&cq, None)? {
            Ok(completion) => (completion, true),
            // For example, a client left before the server had answered, or a message was longer than its
            // buffer. What arrived of such a message is not a request.
            Err(failed) => {
                println!("{failed}");
                if failed.completion.kind() == OperationKind::Send {
                    continue;
                }
                (failed.completion, false)
            }
        };
        let Completion { context: slot, tag, buffer, .. } = received;
        let buffer = buffer.into_reusable().ok_or("a receive returns its buffer")?;
        let request = String::from_utf8_lossy(&buffer).into_owned();
        // A request begins with the client's address, where the answer goes.
        if is_whole
            && let Some((client, call)) = request.split_once(' ')
            && let Ok(client) = client.parse()
            && let Ok(to) = av.insert_if_absent(client)
        {
            println!("{call}");
            endpoint.tsend(Bytes::from(carry_out_call(call)), to, Tag(tag.0 & !REQUEST), slot)?;
            if call == "stop" {
                // Dropping the endpoint waits until the answer has left.
                return Ok(());
            }
        }
        endpoint.trecv_into(buffer, any, Tag(REQUEST).ignoring(!REQUEST), slot)?;
    }
}

/// Carries out a call.
fn carry_out_call(call: &str) -> String {
    let words: Vec<&str> = call.split_whitespace().collect();
    match words[..] {
        ["add", left, right] => match (left.parse::<i64>(), right.parse::<i64>()) {
            (Ok(left), Ok(right)) => left.saturating_add(right).to_string(),
            _ => "two numbers are needed".into(),
        },
        ["reverse", text] => text.chars().rev().collect(),
        ["stop"] => "good bye".into(),
        _ => "there is no such call".into(),
    }
}

fn send_calls(server: Address, calls: &[String]) -> Result<(), Box<dyn Error>> {
    let OpenEndpoint { endpoint, cq, av, .. } = open_endpoint()?;
    let (own, to) = (endpoint.name()?, av.insert_if_absent(server)?);
    for (number, call) in (0..).zip(calls) {
        // Post the receive first, so that the answer goes directly to its buffer. The receive names the
        // server as its source, so it fails if the server dies or cannot be reached.
        endpoint.trecv(BytesMut::zeroed(MESSAGE_MAX_BYTES), to, Tag(number), number)?;
        endpoint.tsend(Bytes::from(format!("{own} {call}")), to, Tag(REQUEST | number), number)?;
    }
    for _ in calls {
        let Completion { context: number, len_bytes, buffer, .. } = wait_for_message(&cq, Some(PATIENCE))??;
        let mut answer = buffer.into_received().unwrap_or_default();
        answer.truncate(len_bytes);
        println!("{} -> {}", calls[number as usize], String::from_utf8_lossy(&answer));
    }
    Ok(())
}
