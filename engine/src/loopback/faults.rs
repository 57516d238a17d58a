//! The faults of a [`Network`](super::Network), and the random numbers that decide when they occur.

use std::time::Duration;

use fastrand::Rng;

/// The faults of a [`Network`](super::Network). By default there are none.
///
/// A probability is given in thousandths: 0 is never, 1000 and more is always. The network does
/// only what [`Transport`] permits, so a correct caller survives every setting. With some settings,
/// such as `full_per_mille: 1000`, a caller waits for ever.
///
/// [`Transport`]: crate::transport::Transport
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// The probability that a read is cut at an arbitrary byte, even inside a header. The rest
    /// comes with a later read.
    pub split_per_mille: u16,
    /// The probability of a delay. Delayed bytes arrive only after some more `receive` calls of the
    /// reader. A delayed connection comes up only after some more `receive` calls of the connector.
    /// Bytes keep their order.
    pub delay_per_mille: u16,
    /// The longest delay in calls of `receive`; at least 1.
    pub delay_max_calls: u16,
    /// The probability that a call to send finds the link full, although there is room.
    pub full_per_mille: u16,
    /// The probability that `send` or `resume` takes fewer bytes than there is room for.
    pub partial_per_mille: u16,
    /// The probability that a link breaks when an end writes to it or reads from it.
    pub drop_link_per_mille: u16,
    /// The probability that a connect is refused although an endpoint listens.
    pub refuse_per_mille: u16,
    /// The probability that bytes in flight are lost when a link ends abruptly. The loss begins at
    /// an arbitrary byte.
    pub lose_per_mille: u16,
    /// The smallest payload, in bytes, that a peer may [pull](crate::transport::Transport::pull).
    /// If `None`, no payload may be pulled. Applies to links that are made from now on. A pull takes no
    /// time.
    pub pull_min_bytes: Option<u32>,
    /// The probability that an end prefers to send payload that its peer could pull.
    pub prefer_send_per_mille: u16,
    /// The probability that a pull is refused. All later pulls on the link are then refused too.
    pub refuse_pull_per_mille: u16,
    /// The probability that a pull finds the peer's memory unreadable.
    pub fault_pull_per_mille: u16,
    /// How many bytes one direction of a link holds before it is full: 65,536 by default, and at
    /// least [`CAPACITY_MIN_BYTES`]. Applies to links that are made from now on.
    pub capacity_bytes: u32,
    /// The shortest time from a flush until its bytes arrive. A request for a connection and the end
    /// of a link take as long. Time passes only if the user of the network
    /// [advances](super::Network::advance_to) it. By default bytes take no time.
    pub latency_min: Duration,
    /// The longest such time, if it is longer than `latency_min`. Each flush then takes a random
    /// time between the two, in whole microseconds. Bytes of a link keep their order.
    pub latency_max: Duration,
}

/// The least number of bytes that one direction of a link holds. Replaces a smaller
/// [`Faults::capacity_bytes`].
pub const CAPACITY_MIN_BYTES: u32 = 256;

impl Default for Faults {
    fn default() -> Self {
        Faults {
            split_per_mille: 0,
            delay_per_mille: 0,
            delay_max_calls: 1,
            full_per_mille: 0,
            partial_per_mille: 0,
            drop_link_per_mille: 0,
            refuse_per_mille: 0,
            lose_per_mille: 0,
            pull_min_bytes: None,
            prefer_send_per_mille: 0,
            refuse_pull_per_mille: 0,
            fault_pull_per_mille: 0,
            capacity_bytes: 64 * 1024,
            latency_min: Duration::ZERO,
            latency_max: Duration::ZERO,
        }
    }
}

impl Faults {
    /// Returns the faults of a bad network without losses: small pipes, cut and delayed bytes,
    /// links that are full at random, and refused pulls.
    pub fn choppy() -> Self {
        Faults {
            split_per_mille: 500,
            delay_per_mille: 300,
            delay_max_calls: 5,
            full_per_mille: 200,
            partial_per_mille: 300,
            pull_min_bytes: Some(1000),
            refuse_pull_per_mille: 100,
            capacity_bytes: 2 * 1024,
            ..Faults::default()
        }
    }

    /// Like [`choppy`](Self::choppy), but links also break, connections are refused, and some
    /// memory is unreadable.
    pub fn nasty() -> Self {
        Faults {
            drop_link_per_mille: 5,
            refuse_per_mille: 100,
            lose_per_mille: 500,
            fault_pull_per_mille: 20,
            ..Faults::choppy()
        }
    }
}

/// The network's only source of randomness.
pub(super) struct RandomSource(Rng);

impl RandomSource {
    pub(super) fn new(seed: u64) -> Self {
        RandomSource(Rng::with_seed(seed))
    }

    /// Returns true with this probability. If the probability is 0, draws no random number.
    pub(super) fn draw_chance(&mut self, per_mille: u16) -> bool {
        per_mille > 0 && self.0.u16(0..1000) < per_mille
    }

    pub(super) fn flip_coin(&mut self) -> bool {
        self.0.bool()
    }

    /// Returns a random number from 0 to `max`, both included.
    pub(super) fn draw_number_up_to(&mut self, max: usize) -> usize {
        self.0.usize(0..=max)
    }

    /// Draws a delay in calls of `receive`, or 0 for no delay.
    pub(super) fn draw_delay_calls(&mut self, faults: &Faults) -> u64 {
        if self.draw_chance(faults.delay_per_mille) {
            self.0.u64(1..=u64::from(faults.delay_max_calls.max(1)))
        } else {
            0
        }
    }

    /// Draws how long a flush is under way. Without a range, draws no random number.
    pub(super) fn draw_latency(&mut self, faults: &Faults) -> Duration {
        let extra = faults.latency_max.saturating_sub(faults.latency_min);
        match u64::try_from(extra.as_micros()).unwrap_or(u64::MAX) {
            0 => faults.latency_min,
            extra_us => faults.latency_min + Duration::from_micros(self.0.u64(0..=extra_us)),
        }
    }

    pub(super) fn draw_u64(&mut self) -> u64 {
        self.0.u64(..)
    }

    /// Draws whether and where to cut the next read: after 1 to `available_bytes` bytes. Small
    /// pieces are as likely as large pieces, to cut headers too.
    pub(super) fn draw_cut_bytes(&mut self, faults: &Faults, available_bytes: usize) -> Option<usize> {
        if available_bytes < 2 || !self.draw_chance(faults.split_per_mille) {
            return None;
        }
        let largest = available_bytes.min(1 << self.0.u32(0..=12));
        Some(self.0.usize(1..=largest))
    }
}
