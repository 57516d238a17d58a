//! Completions in tasks of tokio. The server answers messages while a timer ticks. The client waits with a
//! time-out.
//!
//! ```text
//! cargo run --example tokio                                       # prints: listening at 127.0.0.1:40123
//! cargo run --example tokio -- 127.0.0.1:40123 one two three      # in another terminal
//! ```
//!
//! The message `stop` ends the server.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what it received")]

use std::env;
use std::error::Error;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::time::Duration;

use homespun::{
    Address, Bytes, BytesMut, Caps, CompletionQueue, CqAttr, Entry, Fabric, FabricAddress, Hints,
    OpenEndpoint, OperationKind, ReusableBuffer, WaitObject,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Builder;
use tokio::task::yield_now;
use tokio::time::{interval, timeout};

/// The longest message: the address of the client, a space and its text.
const MESSAGE_MAX_BYTES: usize = 128;

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
    let runtime = Builder::new_current_thread().enable_all().build()?;
    match arguments.next() {
        None => runtime.block_on(answer_messages()),
        Some(server) => runtime.block_on(send_messages(server.parse()?, arguments)),
    }
}

/// A completion queue that a task waits for.
struct AsyncQueue {
    cq: CompletionQueue,
    fd: AsyncFd<OwnedFd>,
}

impl AsyncQueue {
    fn new(cq: CompletionQueue) -> Result<AsyncQueue, Box<dyn Error>> {
        // An `AsyncFd` must own its descriptor. The queue only lends one, so make a copy.
        let lent = cq.wait_fd().ok_or("a queue with WaitObject::Fd must have a descriptor")?;
        let own = lent.try_clone_to_owned()?;
        // SAFETY: the descriptor of an `OwnedFd` stays open until the `AsyncFd` drops it.
        let fd = unsafe { AsyncFd::register_with_interest(own, Interest::READABLE)? };
        Ok(AsyncQueue { cq, fd })
    }

    /// Waits for the next entry. The future does not wait after it has read an entry. So no entry is lost if
    /// the future is dropped.
    async fn next_entry(&self) -> Result<Entry, Box<dyn Error>> {
        loop {
            // Each read also makes progress.
            if let Some(entry) = self.cq.read_entry()? {
                return Ok(entry);
            }
            if !self.cq.try_wait()? {
                // There may be something to read. Other tasks get their turn first.
                yield_now().await;
                continue;
            }
            // An entry that arrives from now on makes the descriptor readable, and tokio records this. Clear
            // the record before the next read of the queue. If it were cleared after the read, tokio could
            // forget an entry that the read has not seen.
            self.fd.readable().await?.clear_ready();
        }
    }
}

/// An endpoint, and its queue, which has a descriptor to wait on.
fn open_endpoint_and_queue(hints: Hints) -> Result<(OpenEndpoint, AsyncQueue), Box<dyn Error>> {
    let fabric = Fabric::new();
    let info = fabric.info(&hints.node("127.0.0.1").source())?;
    let cq_attr = CqAttr { wait: WaitObject::Fd, ..CqAttr::default() };
    let opened = fabric.domain(&info)?.endpoint_builder(&info).cq_attr(cq_attr).open()?;
    let queue = AsyncQueue::new(opened.cq.clone())?;
    Ok((opened, queue))
}

async fn answer_messages() -> Result<(), Box<dyn Error>> {
    let (OpenEndpoint { endpoint, av, .. }, queue) = open_endpoint_and_queue(Hints::new().caps(Caps::MSG))?;
    println!("listening at {}", endpoint.name()?);
    endpoint.recv_into(ReusableBuffer::zeroed(MESSAGE_MAX_BYTES), FabricAddress::UNSPECIFIED, 0)?;
    let (mut count, mut second) = (0, interval(Duration::from_secs(1)));
    loop {
        let entry = tokio::select! {
            entry = queue.next_entry() => entry?,
            _ = second.tick() => {
                println!("{count} messages so far");
                continue;
            }
        };
        let completion = entry.into_result()?;
        if completion.kind() == OperationKind::Send {
            continue;
        }
        count += 1;
        let message = completion.buffer.into_reusable().ok_or("a receive returns its buffer")?;
        let (client, text) = str::from_utf8(&message)?.split_once(' ').ok_or("no address")?;
        println!("message {count}: {text}");
        let to = av.insert_if_absent(client.parse()?)?;
        endpoint.send(Bytes::from(text.to_uppercase()), to, 0)?;
        if text == "stop" {
            // Dropping the endpoint waits until the answer has left.
            return Ok(());
        }
        endpoint.recv_into(message, FabricAddress::UNSPECIFIED, 0)?;
    }
}

async fn send_messages(
    server: Address,
    messages: impl Iterator<Item = String>,
) -> Result<(), Box<dyn Error>> {
    // With this capability a receive can name the server as its source. Such a receive fails if the server
    // is not there.
    let (OpenEndpoint { endpoint, av, .. }, queue) =
        open_endpoint_and_queue(Hints::new().caps(Caps::MSG | Caps::DIRECTED_RECV))?;
    let (own, to) = (endpoint.name()?, av.insert_one(server)?);
    for message in messages {
        endpoint.recv(BytesMut::zeroed(MESSAGE_MAX_BYTES), to, 0)?;
        endpoint.send(Bytes::from(format!("{own} {message}")), to, 0)?;
        loop {
            let entry =
                timeout(PATIENCE, queue.next_entry()).await.map_err(|_| "no answer within 10 s")??;
            let completion = entry.into_result()?;
            if let Some(answer) = completion.buffer.into_received() {
                println!("{message} -> {}", String::from_utf8_lossy(&answer));
                break;
            }
        }
    }
    Ok(())
}
