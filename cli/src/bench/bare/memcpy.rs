//! Copying within one process: the least that a message from shared memory costs.

use std::hint;
use std::time::Instant;

use super::Buffers;
use super::sys::Segment;
use crate::exchange::measure;
use crate::exchange::run::Run;
use crate::failure::Failure;

/// Copies from shared to private memory, as often as the run has messages. Returns what one copy takes, in microseconds.
pub(in crate::bench) fn memcpy_us(run: &Run) -> Result<f64, Failure> {
    let making = |error| Failure::Bare { doing: "making shared memory", error };
    let segment = Segment::create(run.size_bytes.max(1)).map_err(making)?;
    // Pages that nobody has written to are all the same one.
    segment.write(0, &vec![1; run.size_bytes]);
    let mut buffers = Buffers::new(run.size_bytes, run.window);
    measure::message_us(run, |count| {
        let start = Instant::now();
        for _ in 0..count {
            let buffer = buffers.next();
            segment.read(0, buffer);
            hint::black_box(buffer);
        }
        Ok(start.elapsed())
    })
}
