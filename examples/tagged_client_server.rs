//! Remote procedure calls with tagged messages: a server that answers many clients, and a client with several
//! calls in flight.
//!
//! ```text
//! cargo run --example tagged_client_server -- server     # prints: listening at 127.0.0.1:40123
//! cargo run --example tagged_client_server -- client 127.0.0.1:40123 "add 2 40" "reverse cirbaf" stop
//! ```
//!
//! A call has a number. The tag of a request is the number with one more bit set, so that the server's
//! receives match requests and nothing else. The tag of the answer is the number, so that each answer matches
//! its receive, in any order.

#![expect(clippy::print_stdout, reason = "an example shows what it received")]

use std::env;
use std::error::Error;
use std::time::Duration;

use homespun::{
    Address, AddressVector, AvAttr, BindFlags, Bytes, BytesMut, Caps, Completion, CompletionQueue, CqAttr,
    Endpoint, Fabric, FabricAddress, Hints, ReadError, WaitObject,
};

/// The bit that distinguishes a request from an answer.
const REQUEST: u64 = 1 << 63;

/// The number of receives that the server keeps posted. Further requests wait, and none is lost.
const SLOTS: u64 = 16;

/// The longest request or answer.
const MESSAGE_MAX_BYTES: usize = 1024;

/// The context of sends. The context of a receive is its slot, or the number of its call.
const SENT: u64 = u64::MAX;

/// The time-out of an answer.
const PATIENCE: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    run(env::args().skip(1))
}

pub(crate) fn run(mut arguments: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("server"), None) => serve(),
        (Some("client"), Some(server)) => call(server.parse()?, &arguments.collect::<Vec<_>>()),
        _ => Err("usage: tagged_client_server server | client ADDRESS CALL...".into()),
    }
}

/// An endpoint, its completion queue, and its address vector.
struct Port {
    endpoint: Endpoint,
    cq: CompletionQueue,
    av: AddressVector,
}

impl Port {
    fn open() -> Result<Port, homespun::Error> {
        let fabric = Fabric::new();
        let info = fabric.info(&Hints::new().caps(Caps::TAGGED).node("127.0.0.1").source())?;
        let domain = fabric.domain(&info)?;
        let cq = domain.open_cq(&CqAttr { wait: WaitObject::Unspec, ..CqAttr::default() })?;
        let av = domain.open_av(&AvAttr::default())?;
        let endpoint = domain.endpoint(&info)?;
        endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
        endpoint.bind_av(&av)?;
        endpoint.enable()?;
        Ok(Port { endpoint, cq, av })
    }

    /// The endpoint's fabric address of the peer, inserted if it is new.
    fn peer(&self, peer: Address) -> Result<FabricAddress, homespun::Error> {
        self.av.reverse_lookup(&peer).map_or_else(|| self.av.insert_one(peer), Ok)
    }

    /// Waits for the next message.
    fn next_message(&self, timeout: Option<Duration>) -> Result<Completion, Box<dyn Error>> {
        loop {
            match self.cq.sread(timeout) {
                Ok(completion) if completion.context == SENT => {}
                Ok(completion) => return Ok(completion),
                Err(ReadError::ErrorAvailable) => {
                    let failed = self.cq.read_error()?;
                    if failed.completion.context == SENT {
                        println!("a peer could not be reached: {}", failed.error);
                        continue;
                    }
                    // The message was longer than its buffer, for example. The truncated part is of no use.
                    println!("a message was lost: {}", failed.error);
                    return Ok(Completion { len_bytes: 0, ..failed.completion });
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn serve() -> Result<(), Box<dyn Error>> {
    let port = Port::open()?;
    println!("listening at {}", port.endpoint.name()?);
    let any = FabricAddress::UNSPECIFIED;
    for slot in 0..SLOTS {
        port.endpoint.trecv(BytesMut::zeroed(MESSAGE_MAX_BYTES), any, REQUEST, !REQUEST, slot)?;
    }
    loop {
        let Completion { context: slot, tag, len_bytes, buffer, .. } = port.next_message(None)?;
        let mut buffer = buffer.into_received().unwrap_or_default();
        buffer.truncate(len_bytes);
        let request = String::from_utf8_lossy(&buffer).into_owned();
        // A request begins with the client's address, where the answer goes.
        if let Some((client, call)) = request.split_once(' ')
            && let Ok(client) = client.parse()
            && let Ok(to) = port.peer(client)
        {
            println!("{call}");
            port.endpoint.tsend(Bytes::from(answer(call)), to, tag & !REQUEST, SENT)?;
            if call == "stop" {
                // Dropping the endpoint waits until the answer has left.
                return Ok(());
            }
        }
        // The completion has truncated the buffer to the message.
        buffer.resize(MESSAGE_MAX_BYTES, 0);
        port.endpoint.trecv(buffer, any, REQUEST, !REQUEST, slot)?;
    }
}

/// Carries out a call.
fn answer(call: &str) -> String {
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

fn call(server: Address, calls: &[String]) -> Result<(), Box<dyn Error>> {
    let port = Port::open()?;
    let (own, to) = (port.endpoint.name()?, port.peer(server)?);
    for (number, call) in (0..).zip(calls) {
        // Post the receive of the answer first, so that the answer goes directly to its buffer.
        port.endpoint.trecv(BytesMut::zeroed(MESSAGE_MAX_BYTES), to, number, 0, number)?;
        port.endpoint.tsend(Bytes::from(format!("{own} {call}")), to, REQUEST | number, SENT)?;
    }
    for _ in calls {
        let Completion { context: number, len_bytes, buffer, .. } = port.next_message(Some(PATIENCE))?;
        let mut answer = buffer.into_received().unwrap_or_default();
        answer.truncate(len_bytes);
        println!("{} -> {}", calls[number as usize], String::from_utf8_lossy(&answer));
    }
    Ok(())
}
