//! The protocol between `homespun bench` and the two processes of a pair. Each order and answer is a
//! line of JSON.

use serde::{Deserialize, Serialize};

use crate::bench::percentiles::Counts;
use crate::console::Console;
use crate::failure::CommandFailure;

/// The order for the next step of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum StepOrder {
    /// Make the endpoint at this address the peer. The process answers [`Answer::Done`].
    SetPeer(Vec<u8>),
    /// Reply to each of this many messages with a message of the same length. The process answers
    /// [`Answer::Ready`] once a receive is posted, and [`Answer::Done`] at the end.
    Follow(RoundTrips),
    /// Send this many messages, and wait for the reply to each. The process answers [`Answer::Ongoing`]
    /// now and then, and [`Answer::Halves`] at the end.
    Lead(RoundTrips),
    /// Sleep for this many milliseconds. The process answers [`Answer::Slept`].
    Sleep(u64),
    /// Close the endpoint and end. There is no answer.
    Close,
}

/// Messages back and forth, one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RoundTrips {
    /// The length of each message.
    pub(super) size_bytes: usize,
    /// The number of messages.
    pub(super) count: u32,
}

/// The answer of a process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The endpoint of the process is open.
    Open(Opened),
    /// The other process may begin.
    Ready,
    /// The measurement is still under way.
    Ongoing,
    /// The step is done.
    Done,
    /// The times of round trips, halved.
    Halves(Counts),
    /// The process has slept.
    Slept(Slept),
    /// libfabric cannot be loaded, for this reason.
    NoLibfabric(String),
    /// The provider does not offer the requested feature, for this reason.
    NotOffered(String),
    /// A call or an exchange of messages failed, for this reason.
    Failed(String),
}

/// An endpoint that is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Opened {
    /// The endpoint's address, in the provider's format.
    pub(super) address: Vec<u8>,
    /// The provider's full name, such as `tcp;ofi_rxm`.
    pub(super) provider: String,
    /// The version of libfabric, major and minor.
    pub(super) libfabric: (u16, u16),
}

/// The activity of a process while it slept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Slept {
    /// Processor time of all threads of the process, in milliseconds a second.
    pub(super) processor_ms_per_s: f64,
    /// Wake-ups of the main thread a second. A refused attempt to sleep counts as a wake-up.
    pub(super) wake_ups_per_s: f64,
}

impl Answer {
    /// Writes the answer to standard output.
    pub(super) fn write_to_stdout(&self, console: &Console) -> Result<(), CommandFailure> {
        console.print_line(serde_json::to_string(self).map_err(|error| CommandFailure::Output(error.into()))?)
    }
}
