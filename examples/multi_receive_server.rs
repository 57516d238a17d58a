//! One buffer for many messages. The server collects lines from any number of clients, and knows neither the
//! number nor the length of the messages in advance.
//!
//! ```text
//! cargo run --example multi_receive_server                              # listening at 127.0.0.1:40123
//! cargo run --example multi_receive_server -- 127.0.0.1:40123 one two   # in another terminal
//! ```
//!
//! Two buffers take turns. While one fills, the other waits, so there is always room. The message `stop`
//! ends the server.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what it received")]

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use homespun::{
    Address, Bytes, BytesMut, Caps, CompletionFlags, Fabric, FabricAddress, Hints, OpFlags, OpenEndpoint,
};

/// The size of a buffer. The endpoint releases a buffer that has less room than a minimum
/// (`FI_OPT_MIN_MULTI_RECV`).
const BUFFER_BYTES: usize = 64 << 10;

/// The number of buffers.
const BUFFERS: u64 = 2;

/// The time-out of a message.
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
        None => collect_messages(),
        Some(peer) => send_messages(peer.parse()?, arguments),
    }
}

fn collect_messages() -> Result<(), Box<dyn Error>> {
    let caps = Caps::MSG | Caps::MULTI_RECV;
    let hints = Hints::new().caps(caps).node("127.0.0.1").source();
    let OpenEndpoint { endpoint, cq, .. } = Fabric::new().open_endpoint(&hints)?;
    println!("listening at {}", endpoint.name()?);
    for context in 0..BUFFERS {
        endpoint.recv_multi(BytesMut::zeroed(BUFFER_BYTES), FabricAddress::UNSPECIFIED, context)?;
    }
    let (mut messages, mut released) = (0, 0);
    loop {
        let completion = cq.sread_entry(None)?.ok_or("the queue was signalled")?.into_result()?;
        // FI_MULTI_RECV says that the buffer is released. The flag comes with the last message or alone.
        if completion.flags.contains(CompletionFlags::MULTI_RECV) {
            released += 1;
            endpoint.recv_multi(
                BytesMut::zeroed(BUFFER_BYTES),
                FabricAddress::UNSPECIFIED,
                completion.context,
            )?;
        }
        // The message is a part of the buffer: nothing is copied.
        if let Some(message) = completion.buffer.into_received() {
            messages += 1;
            if &message[..] == b"stop" {
                println!("{messages} messages, {released} buffers used up");
                return Ok(());
            }
            println!("message {messages}: {}", String::from_utf8_lossy(&message));
        }
    }
}

fn send_messages(peer: Address, messages: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let hints = Hints::new().caps(Caps::MSG).tx_op_flags(OpFlags::DELIVERY_COMPLETE);
    let OpenEndpoint { endpoint, cq, av, .. } = Fabric::new().open_endpoint(&hints)?;
    let to = av.insert_one(peer)?;
    let mut outstanding = 0;
    for message in messages {
        endpoint.send(Bytes::from(message), to, 0)?;
        outstanding += 1;
    }
    for _ in 0..outstanding {
        cq.sread_entry(Some(PATIENCE))?.ok_or("a message was not delivered within 10 s")?.into_result()?;
    }
    Ok(())
}
