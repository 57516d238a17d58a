//! An event loop that waits for messages and for other events at once, by file descriptors. The program
//! counts messages, and tells the number to each TCP client that connects.
//!
//! ```text
//! cargo run --example wait_fd                                       # prints both addresses
//! cargo run --example wait_fd -- 127.0.0.1:40123 one two three      # in another terminal: sends messages
//! ```
//!
//! The message `stop` ends the program.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what it received")]

use std::env;
use std::error::Error;
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::time::Duration;

use homespun::{
    Address, Bytes, Caps, CqAttr, Fabric, FabricAddress, Hints, OpFlags, OpenEndpoint, ReusableBuffer,
    WaitObject,
};
use mio::net::TcpListener;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

const FABRIC: Token = Token(0);
const STATUS: Token = Token(1);

/// The longest message.
const MESSAGE_MAX_BYTES: usize = 64;

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
        None => count_messages(),
        Some(peer) => send_messages(peer.parse()?, arguments),
    }
}

fn count_messages() -> Result<(), Box<dyn Error>> {
    let OpenEndpoint { endpoint, cq, .. } = open_endpoint(Hints::new().node("127.0.0.1").source())?;
    let mut status = TcpListener::bind("127.0.0.1:0".parse()?)?;
    println!("listening at {}, status at {}", endpoint.name()?, status.local_addr()?);

    let mut poll = Poll::new()?;
    let fd = cq.wait_fd().ok_or("a queue with WaitObject::Fd must have a descriptor")?.as_raw_fd();
    poll.registry().register(&mut SourceFd(&fd), FABRIC, Interest::READABLE)?;
    poll.registry().register(&mut status, STATUS, Interest::READABLE)?;
    let mut events = Events::with_capacity(2);

    let mut count = 0;
    // A receive returns this buffer at its full length, so the next receive can use the buffer as it is.
    endpoint.recv_into(ReusableBuffer::zeroed(MESSAGE_MAX_BYTES), FabricAddress::UNSPECIFIED, 0)?;
    loop {
        // Read completions until `try_wait` says that it is safe to sleep. The reads also make progress.
        while !cq.try_wait()? {
            let Some(entry) = cq.read_entry()? else { continue };
            let message =
                entry.into_result()?.buffer.into_reusable().ok_or("a receive returns its buffer")?;
            if &message[..] == b"stop" {
                return Ok(());
            }
            count += 1;
            println!("message {count}: {}", String::from_utf8_lossy(&message));
            endpoint.recv_into(message, FabricAddress::UNSPECIFIED, 0)?;
        }
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            polled => polled?,
        }
        // Events of the completion queue need no check: each round of the loop reads the queue.
        if events.iter().any(|event| event.token() == STATUS) {
            while let Ok((mut asker, _)) = status.accept() {
                // A line fits into the buffer of a new connection. If the client has gone, the error does
                // not matter.
                let _ = writeln!(asker, "{count} messages");
            }
        }
    }
}

fn send_messages(peer: Address, messages: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    let OpenEndpoint { endpoint, cq, av, .. } =
        open_endpoint(Hints::new().tx_op_flags(OpFlags::DELIVERY_COMPLETE))?;
    let to = av.insert_one(peer)?;
    for message in messages {
        endpoint.send(Bytes::from(message), to, 0)?;
        cq.sread_entry(Some(PATIENCE))?.ok_or("a message was not delivered within 10 s")?.into_result()?;
    }
    Ok(())
}

/// An endpoint whose completion queue has a descriptor to wait on.
fn open_endpoint(hints: Hints) -> Result<OpenEndpoint, homespun::Error> {
    let fabric = Fabric::new();
    let info = fabric.info(&hints.caps(Caps::MSG))?;
    let cq_attr = CqAttr { wait: WaitObject::Fd, ..CqAttr::default() };
    fabric.domain(&info)?.endpoint_builder(&info).cq_attr(cq_attr).open()
}
