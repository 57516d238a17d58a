//! What `homespun bench` tells the two processes of a pair, and what they answer: lines of JSON.

use serde::{Deserialize, Serialize};

use crate::bench::percentiles::Counts;
use crate::console::Console;
use crate::failure::Failure;

/// What a process of a pair is to do next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Order {
    /// Make the endpoint of this address the partner: [`Answer::Done`].
    Meet(Vec<u8>),
    /// Answer this many messages, each with one of the same length: [`Answer::Ready`] once a receive is
    /// posted, then [`Answer::Done`].
    Follow(RoundTrips),
    /// Send this many messages and wait for the answer to each: [`Answer::Ongoing`] now and then, then
    /// [`Answer::Halves`].
    Lead(RoundTrips),
    /// Sleep for so many milliseconds: [`Answer::Slept`].
    Sleep(u64),
    /// Close the endpoint and end.
    Close,
}

/// Messages back and forth, one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RoundTrips {
    /// The length of each message.
    pub(super) size_bytes: usize,
    /// How many there are.
    pub(super) count: u32,
}

/// What a process of a pair answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Answer {
    /// Its endpoint is open.
    Open(Opened),
    /// The other process may begin.
    Ready,
    /// It is still at it.
    Ongoing,
    /// It has done as it was told.
    Done,
    /// It has measured round trips; these are halves of them.
    Halves(Counts),
    /// It has slept.
    Slept(Slept),
    /// There is no libfabric, for this reason.
    NoLibfabric(String),
    /// The provider does not offer what it was asked, in its own words.
    NotOffered(String),
    /// Something failed.
    Failed(String),
}

/// An endpoint that is open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Opened {
    /// Where it is, in the provider's format.
    pub(super) address: Vec<u8>,
    /// The name of the provider in full, such as `tcp;ofi_rxm`.
    pub(super) provider: String,
    /// The version of libfabric, major and minor.
    pub(super) libfabric: (u16, u16),
}

/// What a process did while it slept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Slept {
    /// Milliseconds of processor time in each second, of all its threads.
    pub(super) processor_ms_per_s: f64,
    /// How often in each second its own thread was woken, or was not allowed to sleep.
    pub(super) wake_ups_per_s: f64,
}

impl Answer {
    /// Says it, as a line of results.
    pub(super) fn tell(&self, console: &Console) -> Result<(), Failure> {
        console.line(serde_json::to_string(self).map_err(|error| Failure::Output(error.into()))?)
    }
}
