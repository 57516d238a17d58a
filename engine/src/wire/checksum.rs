//! The check byte of a few words.

/// A check over words that are added one by one.
///
/// Each bit of a word changes one bit of the check. So a change within any 8 bits in a row always changes
/// the check. Each word is rotated by a different amount, so the order of words matters.
///
/// The check protects against accidents, not against attackers. It costs only a few instructions.
///
/// ```
/// use homespun_engine::wire::checksum::Checksum;
///
/// let check = |words: [u64; 2]| words.into_iter().fold(Checksum::default(), Checksum::with_word).finish();
/// assert_ne!(check([1, 2]), check([1, 3]));
/// assert_ne!(check([1, 2]), check([2, 1]));
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Checksum(u64);

/// A constant part of every check. It makes the check of zero bytes different from zero.
const SALT: u8 = 0x5a;

/// By how many bits each word is rotated against the next. Does not divide the length of a byte.
const ROTATION_BITS: u32 = 3;

impl Checksum {
    /// Returns the check with one more word.
    #[inline]
    #[must_use]
    pub fn with_word(self, word: u64) -> Checksum {
        Checksum(self.0.rotate_left(ROTATION_BITS) ^ word)
    }

    /// Returns the check of all words so far.
    #[inline]
    pub fn finish(self) -> u8 {
        fold_word(self.0) ^ SALT
    }
}

/// XORs all bytes of a word. A change of one byte always changes the result.
#[inline]
fn fold_word(word: u64) -> u8 {
    let folded = word ^ word >> 32;
    let folded = folded ^ folded >> 16;
    (folded ^ folded >> 8) as u8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn check_detects_bursts_up_to_one_byte(
            words in prop::collection::vec(any::<u64>(), 1..5),
            at in any::<prop::sample::Index>(),
            burst in 1..=u8::MAX,
            by_bits in 0..u64::BITS,
        ) {
            let check = |words: &[u64]| {
                words.iter().copied().fold(Checksum::default(), Checksum::with_word).finish()
            };
            let mut changed = words.clone();
            changed[at.index(words.len())] ^= u64::from(burst) << by_bits;
            prop_assume!(changed != words);
            prop_assert_ne!(check(&changed), check(&words));
        }
    }
}
