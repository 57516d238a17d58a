//! A server without known peers: the first message of a client completes with an error that carries the
//! client's address. The server inserts the address into its address vector, and can answer from then on.
//!
//! ```text
//! cargo run --example unknown_source                                 # prints: listening at 127.0.0.1:40123
//! cargo run --example unknown_source -- 127.0.0.1:40123 hello stop   # in another terminal
//! ```
//!
//! The message `stop` ends the server.

#![expect(clippy::print_stdout, reason = "an example shows what it received")]

use std::env;
use std::error::Error;
use std::time::Duration;

use homespun::{
    Address, AddressVector, AvAttr, BindFlags, Bytes, BytesMut, Caps, CompletionQueue, CqAttr, Endpoint,
    Fabric, FabricAddress, Hints, ReadError, WaitObject,
};

/// The longest message.
const MESSAGE_MAX_BYTES: usize = 256;

/// The contexts of receives and of sends.
const RECEIVED: u64 = 1;
const SENT: u64 = 2;

/// The time-out of an answer.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    run(env::args().skip(1))
}

pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    match arguments.next() {
        None => serve(),
        Some(peer) => ask(peer.parse()?, arguments),
    }
}

fn serve() -> Result<(), Box<dyn Error>> {
    // FI_SOURCE: a completion names the sender. FI_SOURCE_ERR: a message of an unknown sender is reported as
    // an error.
    let caps = Caps::MSG | Caps::SOURCE | Caps::SOURCE_ERR;
    let (endpoint, cq, av) = open(&Hints::new().caps(caps).node("127.0.0.1").source())?;
    println!("listening at {}", endpoint.name()?);
    endpoint.recv(BytesMut::zeroed(MESSAGE_MAX_BYTES), FabricAddress::UNSPECIFIED, RECEIVED)?;
    loop {
        let (completion, from) = match cq.sread_from(None) {
            Ok(read) => read,
            Err(ReadError::ErrorAvailable) => {
                let failed = cq.read_error()?;
                match failed.unknown_source() {
                    // The error entry still has the message.
                    Some(address) => {
                        println!("{address} is new here");
                        let from = av.insert_one(address)?;
                        (failed.completion, from)
                    }
                    None => {
                        // A message was longer than its buffer, or an answer did not reach its client, for
                        // example.
                        println!("an operation failed: {}", failed.error);
                        if failed.completion.context == RECEIVED {
                            let room = BytesMut::zeroed(MESSAGE_MAX_BYTES);
                            endpoint.recv(room, FabricAddress::UNSPECIFIED, RECEIVED)?;
                        }
                        continue;
                    }
                }
            }
            Err(error) => return Err(error.into()),
        };
        if completion.context == SENT {
            continue;
        }
        let message = completion.buffer.into_received().unwrap_or_default();
        println!("{} says: {}", av.lookup(from)?, String::from_utf8_lossy(&message));
        endpoint.send(message.clone().freeze(), from, SENT)?;
        if &message[..] == b"stop" {
            // Dropping the endpoint waits until the answer has left.
            return Ok(());
        }
        endpoint.recv(BytesMut::zeroed(MESSAGE_MAX_BYTES), FabricAddress::UNSPECIFIED, RECEIVED)?;
    }
}

fn ask(peer: Address, messages: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let (endpoint, cq, av) = open(&Hints::new().caps(Caps::MSG).node("127.0.0.1").source())?;
    let to = av.insert_one(peer)?;
    for message in messages {
        endpoint.recv(BytesMut::zeroed(MESSAGE_MAX_BYTES), FabricAddress::UNSPECIFIED, RECEIVED)?;
        endpoint.send(Bytes::from(message), to, SENT)?;
        loop {
            match cq.sread(Some(PATIENCE)) {
                Ok(completion) if completion.context == RECEIVED => {
                    let answer = completion.buffer.into_received().unwrap_or_default();
                    println!("answer: {}", String::from_utf8_lossy(&answer));
                    break;
                }
                Ok(_) => {}
                Err(ReadError::ErrorAvailable) => return Err(cq.read_error()?.error.into()),
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// An endpoint, its completion queue, and its address vector.
fn open(hints: &Hints) -> Result<(Endpoint, CompletionQueue, AddressVector), homespun::Error> {
    let fabric = Fabric::new();
    let info = fabric.info(hints)?;
    let domain = fabric.domain(&info)?;
    let cq = domain.open_cq(&CqAttr { wait: WaitObject::Unspec, ..CqAttr::default() })?;
    let av = domain.open_av(&AvAttr::default())?;
    let endpoint = domain.endpoint(&info)?;
    endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
    endpoint.bind_av(&av)?;
    endpoint.enable()?;
    Ok((endpoint, cq, av))
}
