//! One process says hello to another.
//!
//! ```text
//! cargo run --example hello                        # prints: listening at 127.0.0.1:40123; and waits
//! cargo run --example hello -- 127.0.0.1:40123     # in another terminal
//! ```
//!
//! They use TCP, or, with `FI_HOMESPUN_DOMAIN=shm` in both environments, shared memory.

#![expect(clippy::print_stdout, reason = "an example shows what it received")]

use std::env;
use std::error::Error;
use std::time::Duration;

use homespun::{
    Address, AddressVector, AvAttr, BindFlags, Bytes, BytesMut, Caps, CompletionQueue, CqAttr, Endpoint,
    Fabric, FabricAddress, Hints, OpFlags, ReadError, WaitObject,
};

/// The tag of a greeting, by which receives match it.
const GREETING: u64 = 7;

/// The time-out of a greeting.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    run(env::args().skip(1))
}

pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    match arguments.next() {
        None => listen(),
        Some(peer) => greet(peer.parse()?),
    }
}

/// Waits for a message from any peer.
fn listen() -> Result<(), Box<dyn Error>> {
    let (endpoint, cq, _av) = open(Hints::new().node("127.0.0.1").source())?;
    println!("listening at {}", endpoint.name()?);
    // Room for 64 bytes. The completion returns the buffer and the context, 1.
    endpoint.trecv(BytesMut::zeroed(64), FabricAddress::UNSPECIFIED, GREETING, 0, 1)?;
    let completion = cq.sread(None)?;
    let message = completion.buffer.into_received().unwrap_or_default();
    println!("a peer says: {}", String::from_utf8_lossy(&message));
    Ok(())
}

/// Sends a message, and waits until it has arrived.
fn greet(peer: Address) -> Result<(), Box<dyn Error>> {
    // With delivery complete a send completes when the peer has received it, not as soon as it is on its way.
    let (endpoint, cq, av) = open(Hints::new().tx_op_flags(OpFlags::DELIVERY_COMPLETE))?;
    let to = av.insert_one(peer)?;
    endpoint.tsend(Bytes::from_static(b"hello, fabric"), to, GREETING, 1)?;
    match cq.sread(Some(PATIENCE)) {
        Ok(_) => println!("said hello to {peer}"),
        Err(ReadError::ErrorAvailable) => return Err(cq.read_error()?.error.into()),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// An endpoint for tagged messages, its completion queue, and its address vector.
fn open(hints: Hints) -> Result<(Endpoint, CompletionQueue, AddressVector), homespun::Error> {
    let fabric = Fabric::new();
    let info = fabric.info(&hints.caps(Caps::TAGGED))?;
    let domain = fabric.domain(&info)?;
    let cq = domain.open_cq(&CqAttr { wait: WaitObject::Unspec, ..CqAttr::default() })?;
    let av = domain.open_av(&AvAttr::default())?;
    let endpoint = domain.endpoint(&info)?;
    endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
    endpoint.bind_av(&av)?;
    endpoint.enable()?;
    Ok((endpoint, cq, av))
}
