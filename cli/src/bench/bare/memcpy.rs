//! Copies within one process. Their time is a lower bound for a message through shared memory, and for
//! an access to mapped memory.

use std::hint;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use super::Buffers;
use super::sys::BareSegment;
use crate::exchange::measure::{self, Metric};
use crate::exchange::run::Run;
use crate::exchange::timing::Timing;
use crate::failure::CommandFailure;

/// Copies from shared to private memory, once for each message of the run.
pub(in crate::bench) fn time_memcpy(run: &Run) -> Result<Timing, CommandFailure> {
    let segment = create_populated_segment(run.size_bytes)?;
    let mut buffers = Buffers::new(run.size_bytes, run.window);
    measure::time_message_rounds(run, |count| {
        let start = Instant::now();
        for _ in 0..count {
            let buffer = buffers.next_buffer();
            segment.read(0, buffer);
            hint::black_box(buffer);
        }
        Ok(start.elapsed())
    })
}

/// The direction of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::bench) enum Copying {
    /// To shared memory.
    To,
    /// From shared memory.
    From,
}

/// Copies to or from shared memory. A fence follows each copy, so that the copy ends before the next
/// copy begins.
#[derive(Debug, Clone, Copy)]
pub(in crate::bench) struct Copies {
    pub(in crate::bench) copying: Copying,
    pub(in crate::bench) metric: Metric,
    pub(in crate::bench) run: Run,
}

/// Makes and times the copies.
pub(in crate::bench) fn time_copies(copies: &Copies) -> Result<Timing, CommandFailure> {
    let Copies { copying, metric, run } = copies;
    let segment = create_populated_segment(run.size_bytes)?;
    let source = vec![1; run.size_bytes];
    let count = match metric {
        Metric::Latency => 1,
        Metric::Bandwidth => run.window,
    };
    let mut buffers = Buffers::new(run.size_bytes, count);
    let mut copy = || {
        match copying {
            Copying::To => segment.write(0, &source),
            Copying::From => {
                let buffer = buffers.next_buffer();
                segment.read(0, buffer);
                hint::black_box(buffer);
            }
        }
        fence(Ordering::SeqCst);
    };
    match metric {
        Metric::Latency => measure::time_round_trips(run, || {
            copy();
            Ok(())
        }),
        Metric::Bandwidth => measure::time_message_rounds(run, |count| {
            let start = Instant::now();
            (0..count).for_each(|_| copy());
            Ok(start.elapsed())
        }),
    }
}

/// Creates shared memory and writes to all of it. So the kernel allocates its pages before the
/// measurement.
fn create_populated_segment(size_bytes: usize) -> Result<BareSegment, CommandFailure> {
    let making = |error| CommandFailure::Bare { doing: "making shared memory", error };
    let segment = BareSegment::create(size_bytes.max(1)).map_err(making)?;
    segment.write(0, &vec![1; size_bytes]);
    Ok(segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_copied_both_ways() {
        for copying in [Copying::To, Copying::From] {
            for metric in [Metric::Latency, Metric::Bandwidth] {
                for size_bytes in [0, 1, 8, 1000, 300_000] {
                    let run = Run::new(size_bytes, Some(200));
                    assert!(time_copies(&Copies { copying, metric, run }).unwrap().each_us > 0.0);
                }
            }
        }
    }
}
