//! One step of a bench, as the leader announces it to the follower.

use std::fmt;
use std::str::FromStr;

use super::access::AccessOperation;
use crate::exchange::measure::Metric;
use crate::exchange::run::Run;

/// How messages travel, or which operation is measured in place of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The fabric.
    Fabric,
    /// The fabric, with messages from memory that the receiver maps.
    SendBuffers,
    /// The fabric, with accesses to the follower's memory in place of messages.
    Access(AccessOperation),
    /// A bare ring in shared memory. A message takes one slot if it fits.
    Ring,
    /// A bare ring like [`Ring`](Self::Ring), with long messages in several slots. The receiver copies
    /// from one slot while the sender fills the next.
    Pipelined(Chunk),
    /// Bare cross-memory copies.
    Readv,
    /// Bare copies from memory that both processes map.
    Memcpy,
    /// A bare socket.
    Socket,
}

/// The size of the payload in each slot of a pipelined ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    bytes: usize,
    /// The name of the pipelined way with this chunk.
    way_name: &'static str,
}

impl Chunk {
    /// All chunks, the smallest first.
    pub(super) const ALL: [Chunk; 5] = [
        Chunk { bytes: 4 << 10, way_name: "pipelined-4K" },
        Chunk { bytes: 8 << 10, way_name: "pipelined-8K" },
        Chunk { bytes: 16 << 10, way_name: "pipelined-16K" },
        Chunk { bytes: 32 << 10, way_name: "pipelined-32K" },
        Chunk { bytes: 64 << 10, way_name: "pipelined-64K" },
    ];

    pub(super) fn len_bytes(self) -> usize {
        self.bytes
    }
}

/// One measurement of one way, one metric and one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) way: Way,
    pub(super) metric: Metric,
    pub(super) run: Run,
}

impl Way {
    /// All ways: first those of messages, then each operation on memory.
    fn all() -> impl Iterator<Item = Way> {
        let messages = [Way::Fabric, Way::SendBuffers, Way::Ring, Way::Readv, Way::Memcpy, Way::Socket];
        let pipelined = Chunk::ALL.map(Way::Pipelined);
        messages.into_iter().chain(pipelined).chain(AccessOperation::ALL.map(Way::Access))
    }

    /// The way's name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Fabric => "fabric",
            Way::SendBuffers => "send-buffers",
            Way::Access(operation) => operation.name(),
            Way::Ring => "ring",
            Way::Pipelined(chunk) => chunk.way_name,
            Way::Readv => "process_vm_readv",
            Way::Memcpy => "memcpy",
            Way::Socket => "socket",
        }
    }
}

const METRICS: [Metric; 2] = [Metric::Latency, Metric::Bandwidth];

fn metric_name(metric: Metric) -> &'static str {
    match metric {
        Metric::Latency => "latency",
        Metric::Bandwidth => "bandwidth",
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { way, metric, run } = self;
        write!(f, "{} {} {run}", way.name(), metric_name(*metric))
    }
}

impl FromStr for Step {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let [way, metric, run] = text.split(' ').collect::<Vec<_>>()[..] else {
            return Err("a step needs three words");
        };
        let way = Way::all().find(|known| known.name() == way);
        let metric = METRICS.into_iter().find(|known| metric_name(*known) == metric);
        Ok(Step {
            way: way.ok_or("unknown way")?,
            metric: metric.ok_or("unknown metric")?,
            run: run.parse()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_step_parses_to_the_same_step() {
        for way in Way::all() {
            for metric in METRICS {
                let step = Step { way, metric, run: Run::new(64, Some(10)) };
                assert_eq!(step.to_string().parse(), Ok(step));
            }
        }
    }

    #[test]
    fn malformed_step_is_refused() {
        for text in
            ["", "ring", "ring latency", "ring latency 1", "ring latency 1:1:1:1:1 more", "x y 1:1:1:1:1"]
        {
            assert!(text.parse::<Step>().is_err(), "{text:?}");
        }
    }
}
