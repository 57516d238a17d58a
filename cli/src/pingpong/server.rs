//! The server's side of a measurement.

use std::thread;
use std::time::Duration;

use bytes::BytesMut;
use homespun::FabricAddress;
use homespun::flags::Caps;

use super::plan::{Greeting, Plan};
use crate::console::Console;
use crate::exchange::channel::{CONTROL_MAX_BYTES, Channel, Settings, kind};
use crate::exchange::measure::{self, Metric};
use crate::exchange::pattern::Direction;
use crate::exchange::port::{Event, Port};
use crate::exchange::target::Target;
use crate::failure::Failure;

/// How long a server sleeps between looks for a client.
const IDLE_INTERVAL: Duration = Duration::from_millis(1);

/// The context of the receive for greetings.
const GREETING_CONTEXT: u64 = u64::MAX - 1;

/// What a client is told that is served; anything else is the reason why it is not.
pub(super) const READY: &str = "ready";

/// A server that has not been started.
#[derive(Debug)]
pub(super) struct Server<'a> {
    pub(super) at: Target,
    pub(super) domain: Option<&'a str>,
    pub(super) timeout: Duration,
    /// Serves client after client.
    pub(super) keep: bool,
    /// Says nothing beyond where it listens.
    pub(super) quiet: bool,
}

impl Server<'_> {
    /// Says where it listens, and serves.
    pub(super) fn run(self, console: &Console) -> Result<(), Failure> {
        let port = Port::listening(&self.at, self.domain, Caps::empty())?;
        // The rest of the line may grow; what comes before the first space after "at" is what programs read.
        console.line(format_args!("{LISTENING}{} (domain {})", port.address(), port.domain()))?;
        loop {
            match self.serve_one(&port, console) {
                Ok(()) if !self.keep => return Ok(()),
                Ok(()) => {}
                Err(failure) if !self.keep || failure.is_closed_pipe() => return Err(failure),
                Err(failure) => console.complain(&failure),
            }
        }
    }

    fn serve_one(&self, port: &Port, console: &Console) -> Result<(), Failure> {
        let (greeting, plan) = self.accept(port, console)?;
        let Plan { tagged, check, runs } = plan;
        let mut channel = Channel::open(port, greeting, self.settings(tagged, check))?;
        let client = channel.address();
        if !self.quiet {
            let kind = kind(tagged, check);
            let count = runs.len();
            let sizes = if count == 1 { "size" } else { "sizes" };
            console.line(format_args!("serving {client}: {kind}, {count} {sizes}"))?;
        }
        channel.answer(READY)?;
        for run in &runs {
            measure::follow(&mut channel, Metric::Latency, run)?;
            measure::follow(&mut channel, Metric::Bandwidth, run)?;
        }
        if !self.quiet {
            console.line(format_args!("served {client}"))?;
        }
        Ok(())
    }

    /// Waits for a client whose plan can be followed.
    fn accept(&self, port: &Port, console: &Console) -> Result<(homespun::Address, Plan), Failure> {
        loop {
            let message = await_greeting(port)?;
            let Some(Greeting { from, plan }) = Greeting::parse(&message) else {
                console.complain("a message that came is no greeting; it is ignored");
                continue;
            };
            let reason = match plan {
                Ok(plan) => return Ok((from, plan)),
                Err(reason) => reason,
            };
            console.complain(format_args!("the client at {from} is refused: {reason}"));
            // It may have named an address that means nothing here, and then it cannot be told.
            let told = Channel::open(port, from, self.settings(false, false))
                .and_then(|channel| channel.answer(reason));
            if let Err(failure) = told {
                console.complain(failure);
            }
        }
    }

    fn settings(&self, tagged: bool, check: bool) -> Settings {
        Settings { direction: Direction::ToClient, tagged, check, timeout: self.timeout }
    }
}

/// What the first line that a server writes begins with; an address follows, and a space.
pub(super) const LISTENING: &str = "listening at ";

fn await_greeting(port: &Port) -> Result<BytesMut, Failure> {
    let expect = || {
        let buffer = BytesMut::zeroed(CONTROL_MAX_BYTES);
        port.endpoint.recv(buffer, FabricAddress::UNSPECIFIED, GREETING_CONTEXT)
    };
    expect()?;
    loop {
        match port.poll()? {
            Some(Event::Received { context: GREETING_CONTEXT, message, .. }) => return Ok(message),
            Some(Event::Failed(failed)) if failed.completion.context == GREETING_CONTEXT => expect()?,
            // An answer that could not be delivered.
            Some(_) => {}
            None => thread::sleep(IDLE_INTERVAL),
        }
    }
}
