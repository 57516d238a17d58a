//! The client's side of a measurement.

use std::time::Duration;

use homespun::flags::Caps;

use super::document::{DomainResult, SizeResult};
use super::plan::{Plan, PlanRequest};
use super::server::READY;
use super::table::{Heading, SizeRow};
use crate::console::Console;
use crate::exchange::conversation::{Conversation, Settings, describe_messages};
use crate::exchange::host_and_port::HostAndPort;
use crate::exchange::measure::{self, Metric};
use crate::exchange::pattern::MessageDirection;
use crate::exchange::port::Port;
use crate::exchange::run::{Run, WINDOW_MAX_BYTES, WINDOW_MAX_MESSAGES};
use crate::failure::CommandFailure;
use crate::size;

/// The settings of a client.
#[derive(Debug)]
pub(super) struct Client<'a> {
    pub(super) server: HostAndPort,
    pub(super) domain: Option<&'a str>,
    pub(super) timeout: Duration,
    pub(super) plan: &'a Plan,
    /// A remark about the server. The client prints it after the server's address.
    pub(super) about_server: &'a str,
    /// A remark about this host's cores.
    pub(super) about_cores: &'a str,
    /// The cores of this process and of the server, as far as they are known.
    pub(super) cores: [Option<usize>; 2],
    /// Whether to print the table while measuring.
    pub(super) shows_rows: bool,
}

impl Client<'_> {
    /// Measures, and returns the results.
    pub(super) fn run(&self, console: &mut Console) -> Result<DomainResult, CommandFailure> {
        let (port, address) = Port::open_to_peer(&self.server, self.domain, Caps::empty())?;
        let Plan { tagged, check, ref runs } = *self.plan;
        let settings =
            Settings { direction: MessageDirection::ToServer, tagged, check, timeout: self.timeout };
        let mut conversation = Conversation::open(&port, address, settings)?;
        greet_and_await_ready(&conversation, PlanRequest::encode(port.address(), self.plan))?;

        let [client_core, server_core] = self.cores;
        let mut result = DomainResult {
            domain: port.domain_name().to_owned(),
            client_address: port.address().to_string(),
            server_address: conversation.peer_address().to_string(),
            client_core,
            server_core,
            sizes: Vec::with_capacity(runs.len()),
        };
        if self.shows_rows {
            self.print_head(&result, console)?;
        }
        console.start_progress(runs.len());
        for run in runs {
            console.show_step(size::format_with_unit(run.size_bytes as u64));
            let measured = measure_size(&mut conversation, run)?;
            if self.shows_rows {
                console.print_line(SizeRow(measured))?;
            }
            result.sizes.push(measured);
            console.advance_progress();
        }
        console.end_progress();
        Ok(result)
    }

    /// Prints the lines above the table.
    fn print_head(&self, result: &DomainResult, console: &Console) -> Result<(), CommandFailure> {
        let Plan { tagged, check, .. } = *self.plan;
        let DomainResult { domain, client_address, server_address, .. } = result;
        let window = WINDOW_MAX_MESSAGES;
        let window_size = size::format_with_unit(WINDOW_MAX_BYTES);
        console.print_line(format_args!("domain {domain}, {}", describe_messages(tagged, check)))?;
        console
            .print_wrapped(format_args!("from {client_address} to {server_address}{}", self.about_server))?;
        console.print_wrapped(self.about_cores)?;
        console.print_line("latency: half of a round trip, the median over batches")?;
        console.print_wrapped(format_args!(
            "MB/s: 10^6 bytes one way, up to {window} messages or {window_size} in flight, \
             the median over rounds"
        ))?;
        console.print_line("")?;
        console.print_line(Heading)
    }
}

fn measure_size(conversation: &mut Conversation<'_>, run: &Run) -> Result<SizeResult, CommandFailure> {
    let latency_us = measure::lead(conversation, Metric::Latency, run)?.each_us;
    let message_us = measure::lead(conversation, Metric::Bandwidth, run)?.each_us;
    let Run { size_bytes, round_trips, messages, .. } = *run;
    let bandwidth_mb_per_s = None;
    let result = SizeResult { size_bytes, round_trips, latency_us, messages, message_us, bandwidth_mb_per_s };
    Ok(result.with_bandwidth())
}

/// Sends the plan to the server, and waits until the server is ready.
fn greet_and_await_ready(conversation: &Conversation<'_>, greeting: String) -> Result<(), CommandFailure> {
    let answer = conversation.send_question_and_await_answer(greeting.into())?;
    if answer == READY.as_bytes() {
        return Ok(());
    }
    // Escape sequences in the answer must not reach the terminal.
    let reason = String::from_utf8_lossy(&answer).escape_debug().to_string();
    Err(CommandFailure::Refused { address: conversation.peer_address(), reason })
}
