//! The faults of a [`Network`](super::Network), and the random source that decides when they occur.

use fastrand::Rng;

/// The faults of a [`Network`](super::Network). By default there are none.
///
/// A probability is given in thousandths: 0 is never, 1000 and more is always. The network only
/// does what [`Transport`] permits. So a caller that keeps the contract survives every setting,
/// though it waits for ever with some, such as `full_per_mille: 1000`.
///
/// [`Transport`]: crate::transport::Transport
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// The probability that a read is cut at an arbitrary byte, even inside a header, so that the
    /// rest comes with a later read.
    pub split_per_mille: u16,
    /// The probability of a delay. Delayed bytes arrive only after the reader has made some more
    /// calls of `receive`. A delayed connection comes up only after the connector has made some
    /// more of these calls. Bytes keep their order.
    pub delay_per_mille: u16,
    /// The longest delay in calls of `receive`; at least 1.
    pub delay_max_calls: u16,
    /// The probability that a call to send finds the link full, although there is room.
    pub full_per_mille: u16,
    /// The probability that `send` or `resume` takes only a part of the bytes for which there is
    /// room.
    pub partial_per_mille: u16,
    /// The probability that a link breaks when an end writes to it or reads from it.
    pub drop_link_per_mille: u16,
    /// The probability that a connect is refused although an endpoint listens.
    pub refuse_per_mille: u16,
    /// The probability that a link that ends abruptly, for any reason, loses the bytes in flight
    /// from an arbitrary byte on.
    pub lose_per_mille: u16,
    /// The smallest payload, in bytes, that may be [pulled](crate::transport::Transport::pull)
    /// instead of being sent; `None` if none may be. Applies to links that are made from now on.
    pub pull_min_bytes: Option<u32>,
    /// The probability that a pull is refused. All later pulls on the link are then refused too.
    pub refuse_pull_per_mille: u16,
    /// The probability that a pull finds the peer's memory unreadable.
    pub fault_pull_per_mille: u16,
    /// How many bytes one direction of a link holds before it is full: 65,536 by default, and at
    /// least [`CAPACITY_MIN_BYTES`]. Applies to links that are made from now on.
    pub capacity_bytes: u32,
}

/// The least number of bytes that one direction of a link holds, whatever
/// [`Faults::capacity_bytes`] says.
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
            refuse_pull_per_mille: 0,
            fault_pull_per_mille: 0,
            capacity_bytes: 64 * 1024,
        }
    }
}

impl Faults {
    /// Returns the faults of a bad network that loses nothing: small pipes, cut and delayed bytes,
    /// links that are full at any moment, and large payload that is pulled until a pull is refused.
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

    /// As [`choppy`](Self::choppy). In addition links break, connections are refused, and some
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

    /// Draws whether and where to cut the next read: after 1 to `available_bytes` bytes. Small
    /// pieces are as likely as large ones, so that headers are cut too.
    pub(super) fn draw_cut_bytes(&mut self, faults: &Faults, available_bytes: usize) -> Option<usize> {
        if available_bytes < 2 || !self.draw_chance(faults.split_per_mille) {
            return None;
        }
        let largest = available_bytes.min(1 << self.0.u32(0..=12));
        Some(self.0.usize(1..=largest))
    }
}
