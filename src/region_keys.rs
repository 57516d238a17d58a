//! The keys that a domain chooses for its regions.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use homespun_engine::error::{Error, Misuse};
use homespun_engine::limits::{KEY_MAX_BYTES, KEY_MIN_BYTES};
use parking_lot::Mutex;

use crate::clock::Clock;
use crate::mutated;
use crate::random;

/// The rounds of the [permutation](Sequence::permute). Four rounds are enough if the round function is
/// random; the halves of short keys have few bits, so there are more.
const ROUNDS: u8 = 8;

/// Chooses the keys of a domain's regions.
///
/// Keys of 8 bytes are random. Shorter random keys would meet a key that was closed lately. So short keys
/// are the values of a secret permutation, in sequence: no key comes twice before all others have come.
pub(crate) struct RegionKeys {
    size_bytes: usize,
    /// The clock of the domain, which knows whether the keys come from the seed of a simulation.
    clock: Clock,
    /// The sequence of short keys; `None` until the first of them is chosen.
    sequence: Mutex<Option<Sequence>>,
}

/// Shows no secret: with it, the keys of all later regions would be known.
impl fmt::Debug for RegionKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("RegionKeys").field("size_bytes", &self.size_bytes).finish_non_exhaustive()
    }
}

impl RegionKeys {
    /// Creates a source of keys of this size, from [`KEY_MIN_BYTES`] to [`KEY_MAX_BYTES`].
    pub(crate) fn new(size_bytes: usize, clock: Clock) -> RegionKeys {
        debug_assert!((KEY_MIN_BYTES..=KEY_MAX_BYTES).contains(&size_bytes));
        RegionKeys { size_bytes, clock, sequence: Mutex::new(None) }
    }

    /// Returns the size of a key in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Returns the key that the application requests, if it fits the size.
    pub(crate) fn checked_requested(&self, key: u64) -> Result<u64, Misuse> {
        if key <= self.unavailable() || mutated!("fi_mr/key-out-of-range") {
            Ok(key)
        } else {
            Err(Misuse::KeyTooLong { key, max_bytes: self.size_bytes })
        }
    }

    /// Returns the largest number that fits the size: in place of the key of a region that has none, and
    /// never a chosen key. Of 8 bytes it is `FI_KEY_NOTAVAIL`.
    pub(crate) fn unavailable(&self) -> u64 {
        u64::MAX >> (u64::BITS - 8 * self.size_bytes as u32)
    }

    /// Chooses a key that peers cannot foresee. It is never [`unavailable`](Self::unavailable).
    ///
    /// # Errors
    ///
    /// The system's error if it provides no random bits.
    pub(crate) fn choose(&self) -> Result<u64, Error> {
        loop {
            let key = self.draw()?;
            if key != self.unavailable() {
                return Ok(key);
            }
        }
    }

    fn draw(&self) -> Result<u64, Error> {
        if self.size_bytes == KEY_MAX_BYTES {
            return random::draw_u64(&self.clock);
        }
        let mut sequence = self.sequence.lock();
        let sequence = match &mut *sequence {
            Some(sequence) => sequence,
            none => none.insert(Sequence::draw(self.size_bytes, &self.clock)?),
        };
        Ok(sequence.next_key())
    }
}

/// The values of a permutation of all short keys: a Feistel network, whose round function is a hash of the
/// secret, of the round and of one half of the value.
struct Sequence {
    half_bits: u32,
    secret: [u64; 2],
    count: u64,
}

impl Sequence {
    fn draw(size_bytes: usize, clock: &Clock) -> Result<Sequence, Error> {
        let half_bits = 4 * size_bytes as u32;
        Ok(Sequence { half_bits, secret: [random::draw_u64(clock)?, random::draw_u64(clock)?], count: 0 })
    }

    fn next_key(&mut self) -> u64 {
        let key = self.permute(self.count);
        // The value that follows the last one is 0 again: `permute` ignores the higher bits.
        self.count = self.count.wrapping_add(1);
        key
    }

    fn permute(&self, value: u64) -> u64 {
        let mask = (1 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits & mask, value & mask);
        for round in 0..ROUNDS {
            let mut hasher = DefaultHasher::new();
            (self.secret, round, right).hash(&mut hasher);
            (left, right) = (right, left ^ hasher.finish() & mask);
        }
        left << self.half_bits | right
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn chosen_keys_fit_their_size_and_differ() {
        for size_bytes in KEY_MIN_BYTES..=KEY_MAX_BYTES {
            let keys = RegionKeys::new(size_bytes, Clock::System);
            let chosen: Vec<u64> = (0..200_000).map(|_| keys.choose().unwrap()).collect();
            assert!(chosen.iter().all(|key| keys.checked_requested(*key).is_ok()), "{size_bytes} bytes");
            // Among as many random keys of 4 bytes there would be about five pairs of equal ones.
            let different: HashSet<u64> = chosen.iter().copied().collect();
            assert_eq!(different.len(), chosen.len(), "{size_bytes} bytes");
            // Every bit is used.
            let used = chosen.iter().fold(0, |used, key| used | key);
            assert_eq!(used, u64::MAX >> (64 - 8 * size_bytes), "{size_bytes} bytes");
        }
    }

    #[test]
    fn short_keys_are_a_permutation() {
        // All values of a sequence of 16 bits, which is too short for a domain.
        let mut sequence = Sequence { half_bits: 8, secret: [3, 4], count: 0 };
        let round: Vec<u64> = (0..1 << 16).map(|_| sequence.next_key()).collect();
        let different: HashSet<u64> = round.iter().copied().collect();
        assert!(different.len() == 1 << 16 && different.iter().all(|key| *key < 1 << 16));
        // Then it begins again.
        assert_eq!(sequence.next_key(), round[0]);
    }

    #[test]
    fn short_keys_of_two_domains_differ() {
        let [first, second] = [RegionKeys::new(4, Clock::System), RegionKeys::new(4, Clock::System)];
        let chosen = |keys: &RegionKeys| (0..4).map(|_| keys.choose().unwrap()).collect::<Vec<_>>();
        assert_ne!(chosen(&first), chosen(&second));
    }

    #[test]
    fn requested_key_beyond_the_size_is_refused() {
        let keys = RegionKeys::new(4, Clock::System);
        assert_eq!(keys.checked_requested(u64::from(u32::MAX)), Ok(u64::from(u32::MAX)));
        let key = 1 << 32;
        assert_eq!(keys.checked_requested(key), Err(Misuse::KeyTooLong { key, max_bytes: 4 }));
        assert_eq!(RegionKeys::new(8, Clock::System).checked_requested(u64::MAX), Ok(u64::MAX));
    }
}
