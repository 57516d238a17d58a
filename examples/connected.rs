//! A server with connections. The server opens an endpoint for each client, and echoes the client's
//! messages.
//!
//! ```text
//! cargo run --example connected                                      # prints: listening at 127.0.0.1:40123
//! cargo run --example connected -- 127.0.0.1:40123 ann one two       # in another terminal
//! ```
//!
//! A client gives its name in the connection request, and the server rejects the name `mallory`. The server
//! serves one client after another. The message `stop` ends the server.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example shows what it received")]

use std::env;
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use homespun::eq::{EqAttr, Event};
use homespun::info::EndpointType;
use homespun::{
    Address, BindFlags, Bytes, BytesMut, Caps, CompletionQueue, ConnectionEvent, CqAttr, Domain, Endpoint,
    EventQueue, Fabric, FabricAddress, Hints, OperationKind, WaitObject,
};

/// The longest message.
const MESSAGE_MAX_BYTES: usize = 64;

/// How long a client waits for its connection, and for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connected endpoint has one peer, so it needs no addresses.
const PEER: FabricAddress = FabricAddress::UNSPECIFIED;

/// The context of each endpoint in its events. The program never looks at contexts, so all endpoints have
/// this one.
const ENDPOINT: u64 = 1;

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
        None => run_server(),
        Some(server) => {
            let name = arguments.next().ok_or("a client needs a name")?;
            connect_and_send(server.parse()?, &name, arguments)
        }
    }
}

/// The domain and the queues of an endpoint.
struct Queues {
    domain: Domain,
    eq: EventQueue,
    cq: CompletionQueue,
}

impl Queues {
    fn open(fabric: &Fabric, info: &homespun::Info) -> Result<Queues, homespun::Error> {
        let domain = fabric.domain(info)?;
        let eq = fabric.open_eq(&EqAttr { wait: WaitObject::Unspec, ..EqAttr::default() })?;
        let cq = domain.open_cq(&CqAttr { wait: WaitObject::Unspec, ..CqAttr::default() })?;
        Ok(Queues { domain, eq, cq })
    }

    fn bind(&self, endpoint: &Endpoint) -> Result<(), homespun::Error> {
        endpoint.bind_eq(&self.eq, ENDPOINT)?;
        endpoint.bind_cq(&self.cq, BindFlags::TRANSMIT | BindFlags::RECV)
    }
}

fn run_server() -> Result<(), Box<dyn Error>> {
    let fabric = Fabric::new();
    let hints = Hints::new().ep_type(EndpointType::Msg).caps(Caps::MSG).node("127.0.0.1").source();
    let info = fabric.info(&hints)?;
    let queues = Queues::open(&fabric, &info)?;
    let passive = fabric.passive_endpoint(&info)?;
    passive.bind_eq(&queues.eq, ENDPOINT)?;
    passive.listen()?;
    println!("listening at {}", passive.name()?);

    loop {
        let entry = queues.eq.sread_entry(None)?.ok_or("the queue was signalled")?;
        let request = match entry.into_result() {
            Ok(Event::Connection(ConnectionEvent::Request(request))) => request,
            // The connection of an accepted client is up, or has been shut down.
            Ok(_) => continue,
            Err(failed) => {
                println!("{failed}");
                continue;
            }
        };
        let client = String::from_utf8_lossy(request.data()).into_owned();
        if client == "mallory" {
            println!("{client} is rejected");
            request.reject(b"mallory is not welcome")?;
            continue;
        }
        let endpoint = queues.domain.endpoint_for_request(&request.info(), &request)?;
        queues.bind(&endpoint)?;
        endpoint.accept(format!("welcome, {client}").as_bytes())?;
        if !echo_until_disconnected(&endpoint, &queues.cq, &client)? {
            return Ok(());
        }
    }
}

/// Echoes messages until the connection ends. Returns whether the server shall serve another client.
fn echo_until_disconnected(
    endpoint: &Endpoint,
    cq: &CompletionQueue,
    client: &str,
) -> Result<bool, Box<dyn Error>> {
    endpoint.recv(BytesMut::zeroed(MESSAGE_MAX_BYTES), PEER, 0)?;
    let mut is_last = false;
    loop {
        let entry = cq.sread_entry(None)?.ok_or("the queue was signalled")?;
        // The posted receive fails when the connection ends.
        let Ok(completion) = entry.into_result() else {
            println!("{client} is gone");
            return Ok(!is_last);
        };
        if completion.kind() == OperationKind::Receive {
            let message = completion.buffer.into_received().unwrap_or_default().freeze();
            println!("{client} says: {}", String::from_utf8_lossy(&message));
            is_last |= &message[..] == b"stop";
            endpoint.recv(BytesMut::zeroed(MESSAGE_MAX_BYTES), PEER, 0)?;
            endpoint.send(message, PEER, 0)?;
        }
    }
}

fn connect_and_send(
    server: Address,
    name: &str,
    messages: impl Iterator<Item = String>,
) -> Result<(), Box<dyn Error>> {
    let fabric = Fabric::new();
    let info = fabric.info(&Hints::new().ep_type(EndpointType::Msg).caps(Caps::MSG))?;
    let queues = Queues::open(&fabric, &info)?;
    let endpoint = queues.domain.endpoint(&info)?;
    queues.bind(&endpoint)?;
    endpoint.connect(server, name.as_bytes())?;
    let entry = queues.eq.sread_entry(Some(PATIENCE))?.ok_or("no answer within 10 s")?;
    match entry.into_result() {
        Ok(Event::Connection(ConnectionEvent::Connected { data, .. })) => {
            println!("connected: {}", String::from_utf8_lossy(&data));
        }
        Ok(other) => return Err(format!("no connection, but {other:?}").into()),
        Err(failed) => {
            println!("not connected: {}", String::from_utf8_lossy(&failed.err_data));
            return Err(failed.into());
        }
    }
    for message in messages {
        endpoint.recv(BytesMut::zeroed(MESSAGE_MAX_BYTES), PEER, 0)?;
        endpoint.send(Bytes::from(message), PEER, 0)?;
        for _ in 0..2 {
            let entry = queues.cq.sread_entry(Some(PATIENCE))?.ok_or("no answer within 10 s")?;
            let completion = entry.into_result()?;
            if completion.kind() == OperationKind::Receive {
                let answer = completion.buffer.into_received().unwrap_or_default();
                println!("answer: {}", String::from_utf8_lossy(&answer));
            }
        }
    }
    // Messages arrive before the shutdown, which both sides report.
    endpoint.shutdown()?;
    queues.eq.sread(Some(PATIENCE))?.ok_or("no shutdown event within 10 s")?;
    Ok(())
}
