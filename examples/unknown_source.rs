//! A server that knows no peers. A client's first message completes with an error that has the client's
//! address. The server inserts this address into its address vector, and can then answer.
//!
//! ```text
//! cargo run --example unknown_source                                 # prints: listening at 127.0.0.1:40123
//! cargo run --example unknown_source -- 127.0.0.1:40123 hello stop   # in another terminal
//! ```
//!
//! The message `stop` ends the server.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what it received")]

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use homespun::{
    Address, Bytes, BytesMut, Caps, Entry, Fabric, FabricAddress, Hints, OpenEndpoint, OperationKind,
};

/// The longest message.
const MESSAGE_MAX_BYTES: usize = 256;

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
    match arguments.next() {
        None => echo_messages(),
        Some(peer) => send_messages(peer.parse()?, arguments),
    }
}

fn echo_messages() -> Result<(), Box<dyn Error>> {
    // With FI_SOURCE a completion names the sender. With FI_SOURCE_ERR a message of an unknown sender
    // completes with an error.
    let caps = Caps::MSG | Caps::SOURCE | Caps::SOURCE_ERR;
    let hints = Hints::new().caps(caps).node("127.0.0.1").source();
    let OpenEndpoint { endpoint, cq, av, .. } = Fabric::new().open_endpoint(&hints)?;
    println!("listening at {}", endpoint.name()?);
    endpoint.recv(BytesMut::zeroed(MESSAGE_MAX_BYTES), FabricAddress::UNSPECIFIED, 0)?;
    loop {
        let (completion, from) = match cq.sread_entry(None)?.ok_or("the queue was signalled")? {
            Entry::Completed(completion, from) => (completion, from),
            Entry::UnknownSource(completion, address) => {
                println!("{address} is new here");
                (completion, av.insert_one(address)?)
            }
            // For example, a message was longer than its buffer, or an answer did not reach its client.
            Entry::Failed(failed) => {
                println!("{failed}");
                if failed.completion.kind() == OperationKind::Receive {
                    let room = BytesMut::zeroed(MESSAGE_MAX_BYTES);
                    endpoint.recv(room, FabricAddress::UNSPECIFIED, 0)?;
                }
                continue;
            }
        };
        if completion.kind() != OperationKind::Receive {
            continue;
        }
        let message = completion.buffer.into_received().unwrap_or_default();
        println!("{} says: {}", av.lookup(from)?, String::from_utf8_lossy(&message));
        endpoint.send(message.clone().freeze(), from, 0)?;
        if &message[..] == b"stop" {
            // Dropping the endpoint waits until the answer has left.
            return Ok(());
        }
        endpoint.recv(BytesMut::zeroed(MESSAGE_MAX_BYTES), FabricAddress::UNSPECIFIED, 0)?;
    }
}

fn send_messages(peer: Address, messages: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let hints = Hints::new().caps(Caps::MSG).node("127.0.0.1").source();
    let OpenEndpoint { endpoint, cq, av, .. } = Fabric::new().open_endpoint(&hints)?;
    let to = av.insert_one(peer)?;
    for message in messages {
        endpoint.recv(BytesMut::zeroed(MESSAGE_MAX_BYTES), FabricAddress::UNSPECIFIED, 0)?;
        endpoint.send(Bytes::from(message), to, 0)?;
        loop {
            let entry = cq.sread_entry(Some(PATIENCE))?.ok_or("no answer within 10 s")?;
            let completion = entry.into_result()?;
            if completion.kind() == OperationKind::Receive {
                let answer = completion.buffer.into_received().unwrap_or_default();
                println!("answer: {}", String::from_utf8_lossy(&answer));
                break;
            }
        }
    }
    Ok(())
}
