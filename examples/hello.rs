//! One process says hello to another.
//!
//! ```text
//! cargo run --example hello                        # prints: listening at 127.0.0.1:40123; and waits
//! cargo run --example hello -- 127.0.0.1:40123     # in another terminal
//! ```
//!
//! The two processes use TCP. With `FI_HOMESPUN_DOMAIN=shm` in both environments they use shared memory.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what it received")]

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use homespun::{Address, Bytes, BytesMut, Caps, Fabric, FabricAddress, Hints, OpFlags, OpenEndpoint, Tag};

/// The tag of a greeting, by which receives match it.
const GREETING: u64 = 7;

/// The time-out of a greeting.
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
        None => receive_greeting(),
        Some(peer) => send_greeting(peer.parse()?),
    }
}

/// Waits for a message from any peer.
fn receive_greeting() -> Result<(), Box<dyn Error>> {
    let hints = Hints::new().caps(Caps::TAGGED).node("127.0.0.1").source();
    let OpenEndpoint { endpoint, cq, .. } = Fabric::new().open_endpoint(&hints)?;
    println!("listening at {}", endpoint.name()?);
    // Room for 64 bytes. The completion returns the buffer and the context, 1.
    endpoint.trecv(BytesMut::zeroed(64), FabricAddress::UNSPECIFIED, Tag(GREETING), 1)?;
    let completion = cq.sread_entry(None)?.ok_or("the queue was signalled")?.into_result()?;
    let message = completion.buffer.into_received().unwrap_or_default();
    println!("a peer says: {}", String::from_utf8_lossy(&message));
    Ok(())
}

/// Sends a message, and waits until it has arrived.
fn send_greeting(peer: Address) -> Result<(), Box<dyn Error>> {
    // At this level a send completes when the peer has received the message, not as soon as the message is
    // on its way.
    let hints = Hints::new().caps(Caps::TAGGED).tx_op_flags(OpFlags::DELIVERY_COMPLETE);
    let OpenEndpoint { endpoint, cq, av, .. } = Fabric::new().open_endpoint(&hints)?;
    let to = av.insert_one(peer)?;
    endpoint.tsend(Bytes::from_static(b"hello, fabric"), to, Tag(GREETING), 1)?;
    cq.sread_entry(Some(PATIENCE))?.ok_or("the greeting was not delivered within 10 s")?.into_result()?;
    println!("said hello to {peer}");
    Ok(())
}
