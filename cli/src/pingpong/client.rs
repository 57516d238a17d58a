//! The client's side of a measurement.

use std::time::Duration;

use homespun::flags::Caps;

use super::plan::{Greeting, Plan};
use super::server::READY;
use super::table::{Heading, Row};
use crate::console::Console;
use crate::exchange::channel::{Channel, Settings, kind};
use crate::exchange::measure::{self, Metric};
use crate::exchange::pattern::Direction;
use crate::exchange::port::Port;
use crate::exchange::run::{Run, WINDOW_MAX_BYTES, WINDOW_MAX_MESSAGES};
use crate::exchange::target::Target;
use crate::failure::Failure;
use crate::size;

/// A client before its start.
#[derive(Debug)]
pub(super) struct Client<'a> {
    pub(super) server: Target,
    pub(super) domain: Option<&'a str>,
    pub(super) timeout: Duration,
    pub(super) plan: &'a Plan,
    /// A remark on the server, printed after its address.
    pub(super) about_server: &'a str,
    /// A remark on this host's cores.
    pub(super) about_cores: &'a str,
}

impl Client<'_> {
    /// Measures, and shows the table.
    pub(super) fn run(&self, console: &mut Console) -> Result<(), Failure> {
        let (port, address) = Port::to_peer(&self.server, self.domain, Caps::empty())?;
        let Plan { tagged, check, ref runs } = *self.plan;
        let settings = Settings { direction: Direction::ToServer, tagged, check, timeout: self.timeout };
        let mut channel = Channel::open(&port, address, settings)?;
        greet(&channel, Greeting::text(port.address(), self.plan))?;

        self.head(&port, &channel, console)?;
        console.start_progress(runs.len());
        for run in runs {
            console.step(size::with_unit(run.size_bytes as u64));
            console.line(measure(&mut channel, run)?)?;
            console.step_done();
        }
        console.end_progress();
        Ok(())
    }

    /// Prints the lines above the table.
    fn head(&self, port: &Port, channel: &Channel<'_>, console: &Console) -> Result<(), Failure> {
        let Plan { tagged, check, .. } = *self.plan;
        let domain = port.domain();
        let (client, server) = (port.address(), channel.address());
        let window = WINDOW_MAX_MESSAGES;
        let window_size = size::with_unit(WINDOW_MAX_BYTES);
        console.line(format_args!("domain {domain}, {}", kind(tagged, check)))?;
        console.line(format_args!("from {client} to {server}{}", self.about_server))?;
        console.line(self.about_cores)?;
        console.line("latency: half of a round trip, the median over batches")?;
        console.line(format_args!(
            "MB/s: 10^6 bytes one way, up to {window} messages or {window_size} in flight, \
             the median over rounds"
        ))?;
        console.line("")?;
        console.line(Heading)
    }
}

fn measure(channel: &mut Channel<'_>, run: &Run) -> Result<Row, Failure> {
    let latency_us = measure::lead(channel, Metric::Latency, run)?.each_us;
    let message_us = measure::lead(channel, Metric::Bandwidth, run)?.each_us;
    let Run { size_bytes, round_trips, messages, .. } = *run;
    Ok(Row { size_bytes, round_trips, latency_us, messages, message_us })
}

/// Sends the plan to the server, and waits until it is ready.
fn greet(channel: &Channel<'_>, greeting: String) -> Result<(), Failure> {
    let answer = channel.ask(greeting.into())?;
    if answer == READY.as_bytes() {
        return Ok(());
    }
    // Escape sequences in the answer must not reach the terminal.
    let reason = String::from_utf8_lossy(&answer).escape_debug().to_string();
    Err(Failure::Refused { address: channel.address(), reason })
}
