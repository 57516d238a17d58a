//! The client's side of a measurement.

use std::time::Duration;

use homespun::flags::Caps;

use super::plan::{Greeting, Plan};
use super::server::READY;
use super::table::{Heading, SizeRow};
use crate::console::Console;
use crate::exchange::channel::{Channel, Settings, describe_messages};
use crate::exchange::measure::{self, Metric};
use crate::exchange::pattern::Direction;
use crate::exchange::port::Port;
use crate::exchange::run::{Run, WINDOW_MAX_BYTES, WINDOW_MAX_MESSAGES};
use crate::exchange::target::Target;
use crate::failure::Failure;
use crate::size;

/// The settings of a client.
#[derive(Debug)]
pub(super) struct Client<'a> {
    pub(super) server: Target,
    pub(super) domain: Option<&'a str>,
    pub(super) timeout: Duration,
    pub(super) plan: &'a Plan,
    /// A remark about the server, which the client prints after the server's address.
    pub(super) about_server: &'a str,
    /// A remark about this host's cores.
    pub(super) about_cores: &'a str,
}

impl Client<'_> {
    /// Measures, and shows the table.
    pub(super) fn run(&self, console: &mut Console) -> Result<(), Failure> {
        let (port, address) = Port::open_to_peer(&self.server, self.domain, Caps::empty())?;
        let Plan { tagged, check, ref runs } = *self.plan;
        let settings = Settings { direction: Direction::ToServer, tagged, check, timeout: self.timeout };
        let mut channel = Channel::open(&port, address, settings)?;
        greet_and_await_ready(&channel, Greeting::encode(port.address(), self.plan))?;

        self.print_head(&port, &channel, console)?;
        console.start_progress(runs.len());
        for run in runs {
            console.show_step(size::format_with_unit(run.size_bytes as u64));
            console.print_line(measure_row(&mut channel, run)?)?;
            console.step_done();
        }
        console.end_progress();
        Ok(())
    }

    /// Prints the lines above the table.
    fn print_head(&self, port: &Port, channel: &Channel<'_>, console: &Console) -> Result<(), Failure> {
        let Plan { tagged, check, .. } = *self.plan;
        let domain = port.domain_name();
        let (client, server) = (port.address(), channel.peer_address());
        let window = WINDOW_MAX_MESSAGES;
        let window_size = size::format_with_unit(WINDOW_MAX_BYTES);
        console.print_line(format_args!("domain {domain}, {}", describe_messages(tagged, check)))?;
        console.print_line(format_args!("from {client} to {server}{}", self.about_server))?;
        console.print_line(self.about_cores)?;
        console.print_line("latency: half of a round trip, the median over batches")?;
        console.print_line(format_args!(
            "MB/s: 10^6 bytes one way, up to {window} messages or {window_size} in flight, \
             the median over rounds"
        ))?;
        console.print_line("")?;
        console.print_line(Heading)
    }
}

fn measure_row(channel: &mut Channel<'_>, run: &Run) -> Result<SizeRow, Failure> {
    let latency_us = measure::lead(channel, Metric::Latency, run)?.each_us;
    let message_us = measure::lead(channel, Metric::Bandwidth, run)?.each_us;
    let Run { size_bytes, round_trips, messages, .. } = *run;
    Ok(SizeRow { size_bytes, round_trips, latency_us, messages, message_us })
}

/// Sends the plan to the server, and waits until the server is ready.
fn greet_and_await_ready(channel: &Channel<'_>, greeting: String) -> Result<(), Failure> {
    let answer = channel.ask(greeting.into())?;
    if answer == READY.as_bytes() {
        return Ok(());
    }
    // Escape sequences in the answer must not reach the terminal.
    let reason = String::from_utf8_lossy(&answer).escape_debug().to_string();
    Err(Failure::Refused { address: channel.peer_address(), reason })
}
