//! The server's side of a measurement.

use std::thread;
use std::time::Duration;

use bytes::BytesMut;
use homespun::FabricAddress;
use homespun::flags::Caps;

use super::plan::{Plan, PlanRequest};
use crate::console::Console;
use crate::exchange::conversation::{CONTROL_MAX_BYTES, Conversation, Settings, describe_messages};
use crate::exchange::host_and_port::HostAndPort;
use crate::exchange::measure::{self, Metric};
use crate::exchange::pattern::MessageDirection;
use crate::exchange::port::{Port, PortEvent};
use crate::failure::CommandFailure;

/// The interval between checks for a client.
const IDLE_INTERVAL: Duration = Duration::from_millis(1);

/// The context of the receive for greetings.
const GREETING_CONTEXT: u64 = u64::MAX - 1;

/// The answer to an accepted client. A refused client gets the reason as its answer.
pub(super) const READY: &str = "ready";

/// The settings of a server.
#[derive(Debug)]
pub(super) struct Server<'a> {
    pub(super) at: HostAndPort,
    pub(super) domain: Option<&'a str>,
    pub(super) timeout: Duration,
    /// Whether to serve further clients after the first.
    pub(super) keep: bool,
    /// Whether to print nothing but the address.
    pub(super) quiet: bool,
}

impl Server<'_> {
    /// Prints the server's address, and serves clients.
    pub(super) fn run(self, console: &Console) -> Result<(), CommandFailure> {
        let port = Port::open_listening(&self.at, self.domain, Caps::empty())?;
        // Programs parse this line. The address ends at the first space after "at ". The rest of the
        // line may change.
        console.print_line(format_args!("{LISTENING}{} (domain {})", port.address(), port.domain_name()))?;
        loop {
            match self.serve_one_client(&port, console) {
                Ok(()) if !self.keep => return Ok(()),
                Ok(()) => {}
                Err(failure) if !self.keep || failure.is_closed_pipe() => return Err(failure),
                Err(failure) => console.print_warning(&failure),
            }
        }
    }

    fn serve_one_client(&self, port: &Port, console: &Console) -> Result<(), CommandFailure> {
        let (greeting, plan) = self.await_acceptable_client(port, console)?;
        let Plan { tagged, check, runs } = plan;
        let mut conversation = Conversation::open(port, greeting, self.conversation_settings(tagged, check))?;
        let client = conversation.peer_address();
        if !self.quiet {
            let kind = describe_messages(tagged, check);
            let count = runs.len();
            let sizes = if count == 1 { "size" } else { "sizes" };
            console.print_line(format_args!("serving {client}: {kind}, {count} {sizes}"))?;
        }
        conversation.send_answer(READY)?;
        for run in &runs {
            measure::follow(&mut conversation, Metric::Latency, run)?;
            measure::follow(&mut conversation, Metric::Bandwidth, run)?;
        }
        if !self.quiet {
            console.print_line(format_args!("served {client}"))?;
        }
        Ok(())
    }

    /// Waits for a client with an acceptable plan.
    fn await_acceptable_client(
        &self,
        port: &Port,
        console: &Console,
    ) -> Result<(homespun::Address, Plan), CommandFailure> {
        loop {
            let message = await_greeting(port)?;
            let Some(PlanRequest { from, plan }) = PlanRequest::parse(&message) else {
                console.print_warning("ignored a message that is no greeting");
                continue;
            };
            let reason = match plan {
                Ok(plan) => return Ok((from, plan)),
                Err(reason) => reason,
            };
            console.print_warning(format_args!("refused the client at {from}: {reason}"));
            // The answer fails if this side cannot reach the address that the client has named.
            let answered = Conversation::open(port, from, self.conversation_settings(false, false))
                .and_then(|conversation| conversation.send_answer(reason));
            if let Err(failure) = answered {
                console.print_warning(failure);
            }
        }
    }

    fn conversation_settings(&self, tagged: bool, check: bool) -> Settings {
        Settings { direction: MessageDirection::ToClient, tagged, check, timeout: self.timeout }
    }
}

/// The beginning of the first line that a server prints. The server's address and a space follow.
pub(super) const LISTENING: &str = "listening at ";

fn await_greeting(port: &Port) -> Result<BytesMut, CommandFailure> {
    let expect = || {
        let buffer = BytesMut::zeroed(CONTROL_MAX_BYTES);
        port.endpoint.recv(buffer, FabricAddress::UNSPECIFIED, GREETING_CONTEXT)
    };
    expect()?;
    loop {
        match port.poll()? {
            Some(PortEvent::Received { context: GREETING_CONTEXT, message, .. }) => return Ok(message),
            Some(PortEvent::Failed(failed)) if failed.completion.context == GREETING_CONTEXT => expect()?,
            // This completion belongs to an earlier client, such as an answer that was not delivered, or
            // a cancelled receive.
            Some(_) => {}
            None => thread::sleep(IDLE_INTERVAL),
        }
    }
}
