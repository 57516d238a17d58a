//! Measures one size between client and server, and computes the times.
//!
//! Latency is measured by round trips: the client sends a message, and the server answers with a message
//! of the same length. Bandwidth is measured in a few rounds. In each round the server posts receives
//! and announces that it is ready. The client then keeps a window of messages in flight, each with
//! `FI_MORE`. When the server has received all messages of the round, it sends an empty message.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::conversation::{Completed, Conversation};
use super::run::Run;
use super::timing::Timing;
use crate::failure::CommandFailure;

/// The largest number of batches of round trips. The result is the median over batches, so a short
/// disturbance hardly affects it.
const BATCHES_MAX: u32 = 32;

/// The last round trips of a run are timed one by one. Their number is the number of all round trips
/// divided by this divisor, but at most [`SINGLES_MAX`].
const SINGLES_DIVISOR: u32 = 4;

/// The largest number of individually timed round trips in a run.
const SINGLES_MAX: u32 = 4096;

/// The number of posted receives during round trips. With two receives, one is still posted while the
/// buffer of the other is being posted again.
const ROUND_TRIP_DEPTH: u32 = 2;

/// A measured quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Metric {
    /// Half the time of a round trip.
    Latency,
    /// The time of each of many one-way messages.
    Bandwidth,
}

/// Measures as the client: half round trips, or one-way messages.
pub(crate) fn lead(
    conversation: &mut Conversation<'_>,
    metric: Metric,
    run: &Run,
) -> Result<Timing, CommandFailure> {
    match metric {
        Metric::Latency => lead_round_trips(conversation, run),
        Metric::Bandwidth => time_one_way_sends(conversation, run),
    }
}

/// Takes the server's part in a measurement.
pub(crate) fn follow(
    conversation: &mut Conversation<'_>,
    metric: Metric,
    run: &Run,
) -> Result<(), CommandFailure> {
    match metric {
        Metric::Latency => answer_round_trips(conversation, run),
        Metric::Bandwidth => receive_one_way(conversation, run),
    }
}

/// The number of posted receives, and so of the buffers that are used in turn.
pub(crate) fn receive_depth(metric: Metric, run: &Run) -> u32 {
    match metric {
        Metric::Latency => ROUND_TRIP_DEPTH,
        Metric::Bandwidth => run.window,
    }
}

/// The client's part of the round trips. Returns halves of their times.
fn lead_round_trips(conversation: &mut Conversation<'_>, run: &Run) -> Result<Timing, CommandFailure> {
    let mut phase = Phase::for_round_trips(conversation, run)?;
    let timing = time_round_trips(run, || phase.make_round_trip())?;
    phase.wait_for_all_buffers()?;
    Ok(timing.halved())
}

/// The server's part of the round trips.
fn answer_round_trips(conversation: &mut Conversation<'_>, run: &Run) -> Result<(), CommandFailure> {
    let mut phase = Phase::for_round_trips(conversation, run)?;
    for _ in 0..run.warmup + run.round_trips {
        phase.await_message()?;
        phase.await_buffer_and_send()?;
    }
    phase.wait_for_all_buffers()
}

/// The client's part of the bandwidth measurement.
fn time_one_way_sends(conversation: &mut Conversation<'_>, run: &Run) -> Result<Timing, CommandFailure> {
    conversation.set_fi_more(true)?;
    let timing = time_message_rounds(run, |count| time_send_round(conversation, run, count))?;
    conversation.set_fi_more(false)?;
    Ok(timing)
}

/// The server's part of the bandwidth measurement.
fn receive_one_way(conversation: &mut Conversation<'_>, run: &Run) -> Result<(), CommandFailure> {
    for count in message_counts_of_rounds(run) {
        let mut phase = Phase::new(
            conversation,
            Outgoing::none(),
            Incoming::new(run.size_bytes, count, receive_depth(Metric::Bandwidth, run)),
        )?;
        phase.conversation.inject(&[])?;
        for _ in 0..count {
            phase.await_message()?;
            phase.incoming.post_spare_buffers(phase.conversation)?;
        }
        phase.conversation.inject(&[])?;
    }
    Ok(())
}

/// Makes the round trips of a run over any medium. The result is the median over batches of round trips.
/// Only the last round trips are timed one by one, because reading the clock takes long compared with a
/// short round trip.
pub(crate) fn time_round_trips(
    run: &Run,
    mut round_trip: impl FnMut() -> Result<(), CommandFailure>,
) -> Result<Timing, CommandFailure> {
    for _ in 0..run.warmup {
        round_trip()?;
    }
    let single_count = (run.round_trips / SINGLES_DIVISOR).min(SINGLES_MAX);
    let batched = run.round_trips - single_count;
    let batches = batched.min(BATCHES_MAX);
    let mut times_us = Vec::new();
    for batch in 0..batches {
        let count = size_of_part(batched, batch, batches);
        let start = Instant::now();
        for _ in 0..count {
            round_trip()?;
        }
        times_us.push(us_per_operation(start.elapsed(), count));
    }
    let mut singles_us = Vec::with_capacity(single_count as usize);
    let mut start = Instant::now();
    for _ in 0..single_count {
        round_trip()?;
        let end = Instant::now();
        singles_us.push(us_per_operation(end - start, 1));
        start = end;
    }
    Ok(Timing { each_us: median(times_us), singles_us })
}

/// Sends the messages of a run over any medium, in rounds. `send` sends as many messages as its argument
/// says, and returns the time that they took. The result is the time of each message: the median over
/// rounds.
pub(crate) fn time_message_rounds(
    run: &Run,
    mut send: impl FnMut(u32) -> Result<Duration, CommandFailure>,
) -> Result<Timing, CommandFailure> {
    let mut times_us = Vec::new();
    for count in message_counts_of_rounds(run) {
        times_us.push(us_per_operation(send(count)?, count));
    }
    Ok(Timing { each_us: median(times_us), singles_us: Vec::new() })
}

/// The number of messages in each round of a bandwidth measurement.
pub(crate) fn message_counts_of_rounds(run: &Run) -> impl Iterator<Item = u32> + use<> {
    let (messages, rounds) = (run.messages, run.round_count());
    (0..rounds).map(move |round| size_of_part(messages, round, rounds))
}

/// The median.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// Sends a round of `count` messages. Returns the time until the server confirms that it has received
/// all of them.
fn time_send_round(
    conversation: &mut Conversation<'_>,
    run: &Run,
    count: u32,
) -> Result<Duration, CommandFailure> {
    await_server_ready(conversation)?;
    let outgoing = Outgoing::windowed(conversation, run)?;
    let mut phase = Phase::new(conversation, outgoing, Incoming::new(0, 1, 1))?;
    let start = Instant::now();
    for _ in 0..count {
        phase.await_buffer_and_send()?;
    }
    phase.await_message()?;
    let time = start.elapsed();
    phase.wait_for_all_buffers()?;
    Ok(time)
}

/// Waits for the empty message by which the server announces that it is ready.
fn await_server_ready(conversation: &mut Conversation<'_>) -> Result<(), CommandFailure> {
    Phase::new(conversation, Outgoing::none(), Incoming::new(0, 1, 1))?.await_message()
}

/// One side's outgoing and incoming messages in a part of a measurement.
struct Phase<'c, 'p> {
    conversation: &'c mut Conversation<'p>,
    outgoing: Outgoing,
    incoming: Incoming,
}

impl<'c, 'p> Phase<'c, 'p> {
    fn new(
        conversation: &'c mut Conversation<'p>,
        outgoing: Outgoing,
        incoming: Incoming,
    ) -> Result<Self, CommandFailure> {
        let mut phase = Phase { conversation, outgoing, incoming };
        phase.incoming.post_spare_buffers(phase.conversation)?;
        Ok(phase)
    }

    fn for_round_trips(conversation: &'c mut Conversation<'p>, run: &Run) -> Result<Self, CommandFailure> {
        let outgoing = Outgoing::single(conversation, run)?;
        let incoming =
            Incoming::new(run.size_bytes, run.warmup + run.round_trips, receive_depth(Metric::Latency, run));
        Phase::new(conversation, outgoing, incoming)
    }

    fn make_round_trip(&mut self) -> Result<(), CommandFailure> {
        self.await_buffer_and_send()?;
        self.await_message()
    }

    /// Sends the next message as soon as a buffer is free. Then posts the spare receive buffers.
    fn await_buffer_and_send(&mut self) -> Result<(), CommandFailure> {
        let message = loop {
            match self.outgoing.free.pop() {
                Some(message) => break message,
                None => self.process_next_completion()?,
            }
        };
        let size_bytes = self.outgoing.size_bytes;
        let message = if self.conversation.is_checked() {
            let mut own = message.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&*shared));
            self.conversation.pattern_of_next_send(size_bytes).fill(&mut own);
            own.freeze()
        } else {
            message
        };
        if self.outgoing.inject {
            self.conversation.inject(&message)?;
            self.outgoing.free.push(message);
        } else {
            self.conversation.send(message)?;
        }
        self.incoming.post_spare_buffers(self.conversation)
    }

    /// Waits for one more message.
    fn await_message(&mut self) -> Result<(), CommandFailure> {
        let before = self.incoming.arrived;
        while self.incoming.arrived == before {
            self.process_next_completion()?;
        }
        Ok(())
    }

    /// Waits until completions have returned all send buffers.
    fn wait_for_all_buffers(&mut self) -> Result<(), CommandFailure> {
        while self.outgoing.free.len() < self.outgoing.window {
            self.process_next_completion()?;
        }
        Ok(())
    }

    fn process_next_completion(&mut self) -> Result<(), CommandFailure> {
        match self.conversation.wait_for_message()? {
            Completed::Sent(message) => self.outgoing.free.push(message),
            Completed::Received(sequence, message) => {
                self.conversation.verify_message(sequence, &message, self.incoming.size_bytes)?;
                self.incoming.arrived += 1;
                self.incoming.spare.push(message);
            }
        }
        Ok(())
    }
}

/// The outgoing messages of one side.
struct Outgoing {
    size_bytes: usize,
    window: usize,
    /// Buffers that no send uses.
    free: Vec<Bytes>,
    /// Whether messages are small enough for inject, which copies a message and writes no completion.
    inject: bool,
}

impl Outgoing {
    fn none() -> Outgoing {
        Outgoing { size_bytes: 0, window: 0, free: Vec::new(), inject: false }
    }

    fn single(conversation: &mut Conversation<'_>, run: &Run) -> Result<Outgoing, CommandFailure> {
        let size_bytes = run.size_bytes;
        let free = vec![conversation.make_message(size_bytes)?];
        Ok(Outgoing { size_bytes, window: 1, free, inject: size_bytes <= conversation.inject_max_bytes() })
    }

    fn windowed(conversation: &mut Conversation<'_>, run: &Run) -> Result<Outgoing, CommandFailure> {
        let first = conversation.make_message(run.size_bytes)?;
        let is_checked = conversation.is_checked();
        let another = |_| if is_checked { zeroed_buffer(run.size_bytes).freeze() } else { first.clone() };
        let free: Vec<Bytes> = (0..run.window).map(another).collect();
        Ok(Outgoing { size_bytes: run.size_bytes, window: free.len(), free, inject: false })
    }
}

/// The incoming messages of one side.
struct Incoming {
    size_bytes: usize,
    /// The number of expected messages for which no receive is posted yet.
    unposted: u32,
    /// The number of messages received.
    arrived: u32,
    /// Buffers that no receive uses.
    spare: Vec<BytesMut>,
}

impl Incoming {
    fn new(size_bytes: usize, messages: u32, depth: u32) -> Incoming {
        let spare = (0..depth.min(messages)).map(|_| zeroed_buffer(size_bytes)).collect();
        Incoming { size_bytes, unposted: messages, arrived: 0, spare }
    }

    /// Posts spare buffers for the messages still to come.
    fn post_spare_buffers(&mut self, conversation: &mut Conversation<'_>) -> Result<(), CommandFailure> {
        while self.unposted > 0
            && let Some(buffer) = self.spare.pop()
        {
            conversation.post_receive(buffer)?;
            self.unposted -= 1;
        }
        Ok(())
    }
}

/// A buffer of zeros. Its pages are already allocated, so the measurement includes no page faults.
pub(crate) fn zeroed_buffer(size_bytes: usize) -> BytesMut {
    let mut buffer = BytesMut::with_capacity(size_bytes);
    buffer.resize(size_bytes, 0);
    buffer
}

/// The size of one of `parts` almost equal parts of `total`.
fn size_of_part(total: u32, part: u32, parts: u32) -> u32 {
    let before = |part: u32| u64::from(total) * u64::from(part) / u64::from(parts);
    // A part is no larger than `total`, so it fits into 32 bits.
    (before(part + 1) - before(part)) as u32
}

/// The time of each of `count` operations, in microseconds.
fn us_per_operation(time: Duration, count: u32) -> f64 {
    time.as_secs_f64() * 1e6 / f64::from(count.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_differ_by_one_at_most() {
        for total in [1, 2, 31, 32, 33, 1000, u32::MAX] {
            let parts = total.min(BATCHES_MAX);
            let shares: Vec<u32> = (0..parts).map(|part| size_of_part(total, part, parts)).collect();
            assert_eq!(shares.iter().sum::<u32>(), total);
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(*least > 0 && most - least <= 1, "{shares:?}");
        }
    }

    #[test]
    fn median_is_the_middle_value() {
        assert_eq!(median(vec![9.0, 1.0, 5.0]), 5.0);
        assert_eq!(median(Vec::new()), 0.0);
    }
}
