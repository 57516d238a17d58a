//! One of the two processes of a pair. It opens an endpoint of an installed libfabric, and carries out
//! orders.

use std::ffi::OsString;
use std::ops::Range;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use crossbeam_channel::Receiver;
use homespun::Errno;
use homespun_host::{CallError, Libfabric, Lockstep, WaitObject};
use rustix::time::{ClockId, clock_gettime};

use super::messages::{ExchangeError, Messages};
use super::order::{Answer, Opened, RoundTrips, Slept, StepOrder};
use crate::bench::percentiles::Times;
use crate::console::Console;
use crate::cores;
use crate::failure::CommandFailure;
use crate::peer_process;

/// How often the leader reports that the measurement is still under way.
const ONGOING_INTERVAL: Duration = Duration::from_secs(1);

/// One of the two processes that `bench --only sleep` measures.
#[derive(Debug, Args)]
pub(crate) struct PeerArguments {
    /// The library: a path, or a name that the loader searches for.
    #[arg(long)]
    libfabric: OsString,
    /// The name of the provider.
    #[arg(long)]
    provider: String,
    /// How to wait.
    #[arg(long, value_enum)]
    wait: Wait,
    /// The length of the largest message.
    #[arg(long)]
    max_bytes: usize,
    /// The core to stay on.
    #[arg(long)]
    core: Option<usize>,
    /// Give up when nothing has happened for this many seconds.
    #[arg(long)]
    timeout: u64,
}

/// How a process waits for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Wait {
    /// Polls the queue (`FI_WAIT_NONE`).
    Polled,
    /// Sleeps on the descriptor of the queue (`FI_WAIT_FD`).
    Descriptor,
    /// Sleeps in a blocking call, as the provider chooses (`FI_WAIT_UNSPEC`).
    Blocking,
}

impl Wait {
    /// The name on a command line.
    pub(super) fn cli_name(self) -> &'static str {
        match self {
            Wait::Polled => "polled",
            Wait::Descriptor => "descriptor",
            Wait::Blocking => "blocking",
        }
    }

    /// The constant of `fi_cq_open(3)`.
    pub(super) fn fi_constant(self) -> &'static str {
        match self {
            Wait::Polled => "FI_WAIT_NONE",
            Wait::Descriptor => "FI_WAIT_FD",
            Wait::Blocking => "FI_WAIT_UNSPEC",
        }
    }

    fn wait_object(self) -> WaitObject {
        match self {
            Wait::Polled => WaitObject::None,
            Wait::Descriptor => WaitObject::Descriptor,
            Wait::Blocking => WaitObject::Unspecified,
        }
    }
}

/// Carries out orders until the order to close.
pub(crate) fn run(arguments: &PeerArguments, console: &Console) -> Result<(), CommandFailure> {
    let lines = peer_process::read_parent_lines_or_exit();
    if let Some(core) = arguments.core {
        cores::pin_thread_to_core(core)?;
    }
    let libfabric = match Libfabric::load(&arguments.libfabric) {
        Ok(libfabric) => libfabric,
        Err(error) => return Answer::NoLibfabric(error.to_string()).write_to_stdout(console),
    };
    match open_endpoint(libfabric, arguments) {
        Ok((endpoint, opened)) => {
            opened.write_to_stdout(console)?;
            // The controlling process waits twice as long. So if this process times out, its reason
            // still arrives.
            let timeout = Duration::from_secs(arguments.timeout) / 2;
            let messages = Messages::new(endpoint, arguments.wait, timeout);
            match (Peer { messages, next_tag: 0, console }).carry_out_orders(&lines) {
                Err(Stop::Exchange(error)) => Answer::Failed(error.to_string()).write_to_stdout(console),
                Err(Stop::Failure(failure)) => Err(failure),
                Ok(()) => Ok(()),
            }
        }
        Err(answer) => answer.write_to_stdout(console),
    }
}

/// Opens an endpoint, or answers why it cannot.
fn open_endpoint(libfabric: Libfabric, arguments: &PeerArguments) -> Result<(Lockstep, Answer), Answer> {
    let failed = |error: CallError| Answer::Failed(error.to_string());
    let info = libfabric.tagged_info(&arguments.provider).map_err(failed)?;
    let info = info.ok_or_else(|| Answer::NotOffered("no such provider".into()))?;
    let provider = info.provider_name().unwrap_or_default().to_owned();
    let opened = Lockstep::open(libfabric, &info, arguments.wait.wait_object(), arguments.max_bytes);
    let endpoint = opened.map_err(|error| match error {
        CallError { call: "fi_cq_open", errno: Errno::ENOSYS | Errno::EOPNOTSUPP } => {
            Answer::NotOffered(error.to_string())
        }
        error => failed(error),
    })?;
    let address = endpoint.address().map_err(failed)?;
    Ok((endpoint, Answer::Open(Opened { address, provider, libfabric: libfabric.version() })))
}

/// A process of a pair.
struct Peer<'a> {
    messages: Messages,
    /// Each round trip has its own tag, the same in both directions.
    next_tag: u64,
    console: &'a Console,
}

/// The reason why a process stops early.
#[derive(Debug, thiserror::Error)]
enum Stop {
    /// The process cannot exchange messages.
    #[error("{0}")]
    Exchange(#[from] ExchangeError),
    /// The process cannot reach the controlling process.
    #[error("{0}")]
    Failure(#[from] CommandFailure),
}

impl Peer<'_> {
    fn carry_out_orders(&mut self, lines: &Receiver<String>) -> Result<(), Stop> {
        loop {
            let line = lines.recv().map_err(|_| CommandFailure::PeerGone)?;
            let answer = match serde_json::from_str(&line).map_err(|_| CommandFailure::PeerProtocol)? {
                StepOrder::SetPeer(address) => {
                    self.messages.set_peer(&address)?;
                    Answer::Done
                }
                StepOrder::Follow(trips) => {
                    self.follow_round_trips(&trips)?;
                    Answer::Done
                }
                StepOrder::Lead(trips) => Answer::Halves(self.lead_round_trips(&trips)?.to_counts()),
                StepOrder::Sleep(for_ms) => Answer::Slept(self.measure_sleep(Duration::from_millis(for_ms))?),
                StepOrder::Close => return Ok(()),
            };
            answer.write_to_stdout(self.console)?;
        }
    }

    /// Leads round trips: sends a message and waits for the answer.
    fn lead_round_trips(&mut self, trips: &RoundTrips) -> Result<Times, Stop> {
        let mut halves = Times::new();
        let tags = self.allocate_tags(trips);
        self.messages.post_receive(tags.start)?;
        let mut begin = Instant::now();
        let mut last_report = begin;
        for tag in tags.clone() {
            self.messages.send(trips.size_bytes, tag)?;
            self.messages.await_message_and_send_completion(trips.size_bytes, tag)?;
            if tag + 1 < tags.end {
                self.messages.post_receive(tag + 1)?;
            }
            let mut end = Instant::now();
            halves.add(end.duration_since(begin) / 2);
            if end.duration_since(last_report) > ONGOING_INTERVAL {
                Answer::Ongoing.write_to_stdout(self.console)?;
                last_report = end;
                end = Instant::now();
            }
            begin = end;
        }
        Ok(halves)
    }

    /// Answers each message.
    fn follow_round_trips(&mut self, trips: &RoundTrips) -> Result<(), Stop> {
        let tags = self.allocate_tags(trips);
        self.messages.post_receive(tags.start)?;
        Answer::Ready.write_to_stdout(self.console)?;
        for tag in tags.clone() {
            self.messages.await_message_and_send_completion(trips.size_bytes, tag)?;
            if tag + 1 < tags.end {
                self.messages.post_receive(tag + 1)?;
            }
            self.messages.send(trips.size_bytes, tag)?;
        }
        // The provider may need this process's progress to send the last answer.
        Ok(self.messages.await_send_completion()?)
    }

    /// Sleeps, and measures the processor time of the sleep.
    fn measure_sleep(&mut self, duration: Duration) -> Result<Slept, ExchangeError> {
        let begin = Instant::now();
        let before = processor_time();
        let wake_ups = self.messages.sleep_counting_wake_ups(duration)?;
        let processor = processor_time().saturating_sub(before);
        let elapsed_s = begin.elapsed().as_secs_f64();
        Ok(Slept {
            processor_ms_per_s: processor.as_secs_f64() * 1e3 / elapsed_s,
            wake_ups_per_s: wake_ups as f64 / elapsed_s,
        })
    }

    /// The tags of the next round trips.
    fn allocate_tags(&mut self, trips: &RoundTrips) -> Range<u64> {
        let first = self.next_tag;
        self.next_tag += u64::from(trips.count);
        first..self.next_tag
    }
}

/// The processor time of all threads of this process so far.
fn processor_time() -> Duration {
    // The clock of a process is never negative.
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}
