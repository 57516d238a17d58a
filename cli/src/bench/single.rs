//! `homespun bare`: measures one bare loop, and prints one number, for scripts.

use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::pair::{MediumKind, Pair, Placement};
use super::step::{Step, Way};
use crate::console::Console;
use crate::cores::AllowedCores;
use crate::exchange::measure::Metric;
use crate::exchange::run::{ITERATIONS_MAX, Run};
use crate::exchange::sizes::parse_message_size;
use crate::failure::CommandFailure;

/// Measure half of a round trip between two processes without the fabric, and print it in microseconds.
#[derive(Debug, Args)]
pub(crate) struct BareArguments {
    /// The medium of the messages.
    way: Choice,
    /// The length of a message in bytes; K and M stand for 1024 and 1024 x 1024.
    #[arg(long, value_name = "SIZE", value_parser = parse_message_size)]
    size: usize,
    /// The number of round trips.
    #[arg(
        long,
        value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(ITERATIONS_MAX))
    )]
    iterations: u32,
    /// The cores of the two processes. By default they are not threads of one physical core, if
    /// possible.
    #[arg(long, value_name = "NUMBER,NUMBER")]
    cores: Option<CorePair>,
    /// Give up when nothing has happened for this long.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    timeout: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Choice {
    /// A ring in shared memory.
    #[value(name = "ring-pingpong")]
    Ring,
    /// Cross-memory copies by process_vm_readv(2).
    #[value(name = "vm-pingpong")]
    Vm,
    /// A polled TCP socket.
    #[value(name = "tcp-pingpong")]
    Tcp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CorePair(usize, usize);

/// Measures, and prints the result.
pub(crate) fn run(arguments: &BareArguments, console: &Console) -> Result<(), CommandFailure> {
    let (way, medium) = match arguments.way {
        Choice::Ring => (Way::Ring, MediumKind::Memory),
        Choice::Vm => (Way::Readv, MediumKind::Memory),
        Choice::Tcp => (Way::Socket, MediumKind::Socket),
    };
    let requested = arguments.cores.map(|CorePair(own, other)| (own, other));
    let cores = requested.or_else(|| AllowedCores::of_this_process().choose_pair());
    let timeout = Duration::from_secs(arguments.timeout);
    let mut pair = Pair::start(medium, None, Placement { cores, timeout })?;
    if way == Way::Readv {
        pair.require_readv()?;
    }
    let run = Run::new(arguments.size, Some(arguments.iterations));
    let half_us = pair.measure_step(&Step { way, metric: Metric::Latency, run }, None)?.each_us;
    console.print_line(format_args!("{half_us:.4}"))
}

impl FromStr for CorePair {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = |text: &str| text.parse().map_err(|_| "cores are two numbers separated by a comma");
        let (own, other) = text.split_once(',').unwrap_or((text, ""));
        Ok(CorePair(number(own)?, number(other)?))
    }
}
