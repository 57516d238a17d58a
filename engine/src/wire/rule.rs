//! The contents of a header, whatever its layout, and the rules of its kind.

use std::fmt;

use crate::limits::MESSAGE_MAX_BYTES;
use crate::wire::error::WireError;

/// How many bits a header's flags have. A layout may use the other two bits of the byte.
pub const FLAGS_BITS: u32 = 6;

const FLAG_SETS: usize = 1 << FLAGS_BITS;

/// The entry for refused flags, in place of a number of words.
const REFUSED: u8 = u8::MAX;

/// The rules of one kind of header: its allowed flags, its number of words, and its longest payload.
///
/// [`Rule::of_kind`] returns the rule of a header without flags, words and payload. Each other function
/// changes one part of the rule.
pub(super) struct Rule {
    pub(super) kind: u8,
    /// The number of words for each set of flags, or [`REFUSED`].
    words: [u8; FLAG_SETS],
    pub(super) payload_max_bytes: u64,
}

impl Rule {
    /// Returns the rule of a kind without flags, words or payload. No kind is 0: layouts may use 0 for
    /// purposes of their own.
    pub(super) const fn of_kind(kind: u8) -> Rule {
        let mut words = [REFUSED; FLAG_SETS];
        words[0] = 0;
        Rule { kind, words, payload_max_bytes: 0 }
    }

    /// Allows any set of these flags. A flag that needs more than [`FLAGS_BITS`] bits does not compile.
    pub(super) const fn allow_flags(mut self, flags: u8) -> Rule {
        assert!((flags as usize) < FLAG_SETS, "a header has no room for this flag");
        let mut set = 0;
        while set < FLAG_SETS {
            if set as u8 & !flags == 0 {
                self.words[set] = 0;
            }
            set += 1;
        }
        self
    }

    /// Refuses more than one of these flags at a time.
    pub(super) const fn at_most_one_of(mut self, flags: u8) -> Rule {
        let mut set = 0;
        while set < FLAG_SETS {
            if (set as u8 & flags).count_ones() > 1 {
                self.words[set] = REFUSED;
            }
            set += 1;
        }
        self
    }

    /// Uses the flags as a number, and allows numbers up to `max`.
    pub(super) const fn allow_number_up_to(mut self, max: u8) -> Rule {
        let mut number = 0;
        while number <= max {
            self.words[number as usize] = 0;
            number += 1;
        }
        self
    }

    /// Adds `count` words to every header of the kind.
    pub(super) const fn add_words(mut self, count: u8) -> Rule {
        let mut set = 0;
        while set < FLAG_SETS {
            if self.words[set] != REFUSED {
                self.words[set] += count;
            }
            set += 1;
        }
        self
    }

    /// Adds one word for each of these flags that a header has.
    pub(super) const fn add_word_per_flag(mut self, flags: u8) -> Rule {
        let mut set = 0;
        while set < FLAG_SETS {
            if self.words[set] != REFUSED {
                self.words[set] += (set as u8 & flags).count_ones() as u8;
            }
            set += 1;
        }
        self
    }

    /// Allows payload of up to `max` bytes. Its length travels with the header.
    pub(super) const fn allow_payload_up_to(mut self, max: u64) -> Rule {
        self.payload_max_bytes = max;
        self
    }

    /// Returns the most words that a header of this kind has.
    pub(super) const fn words_max(&self) -> usize {
        let (mut most, mut set) = (0, 0);
        while set < FLAG_SETS {
            if self.words[set] != REFUSED && self.words[set] > most {
                most = self.words[set];
            }
            set += 1;
        }
        most as usize
    }
}

/// A kind and flags that the kind allows. Together they determine how many words follow, and whether payload
/// may follow.
#[derive(Clone, Copy)]
pub struct Form {
    kind: u8,
    flags: u8,
    rule: &'static Rule,
}

impl Form {
    /// Returns the form with these flags.
    ///
    /// # Errors
    ///
    /// [`WireError::UnknownFlag`] if the rule does not allow these flags.
    #[inline(always)]
    pub(super) fn with_flags(rule: &'static Rule, flags: u8) -> Result<Form, WireError> {
        match rule.words.get(usize::from(flags)) {
            None | Some(&REFUSED) => Err(WireError::UnknownFlag),
            Some(_) => Ok(Form { kind: rule.kind, flags, rule }),
        }
    }

    /// Returns the number of the header's kind. It is not 0.
    #[inline(always)]
    pub fn kind(self) -> u8 {
        self.kind
    }

    /// Returns the header's flags, in the lowest [`FLAGS_BITS`] bits.
    #[inline(always)]
    pub fn flags(self) -> u8 {
        self.flags
    }

    /// Returns the number of words in the header.
    #[inline(always)]
    pub fn word_count(self) -> usize {
        usize::from(self.rule.words[usize::from(self.flags) % FLAG_SETS])
    }

    /// Whether headers of this kind may have payload. If not, a layout omits the length of the payload.
    #[inline(always)]
    pub fn can_have_payload(self) -> bool {
        self.rule.payload_max_bytes > 0
    }

    #[inline(always)]
    pub(super) fn payload_max_bytes(self) -> u64 {
        self.rule.payload_max_bytes
    }
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Form").field("kind", &self.kind).field("flags", &self.flags).finish_non_exhaustive()
    }
}

/// The parts of a header, except its words. [`Header::encode_words`](crate::wire::Header::encode_words)
/// passes the words to the layout one by one. [`Header::decode_words`](crate::wire::Header::decode_words)
/// asks for them one by one.
#[derive(Debug, Clone, Copy)]
pub struct Fields {
    /// Kind and flags.
    pub form: Form,
    /// The length of the payload that follows, in bytes.
    pub payload_len_bytes: u64,
}

impl Fields {
    /// Returns the fields of a header under this rule, with these flags and this length of payload.
    #[inline(always)]
    pub(super) fn new(rule: &'static Rule, flags: u8, payload_len_bytes: u64) -> Fields {
        debug_assert!(Form::with_flags(rule, flags).is_ok(), "flags that every peer refuses");
        debug_assert!(payload_len_bytes <= rule.payload_max_bytes, "more payload than any peer takes");
        Fields { form: Form { kind: rule.kind, flags, rule }, payload_len_bytes }
    }

    /// Whether all of these flags are set.
    #[inline(always)]
    pub(super) fn has_flags(&self, flags: u8) -> bool {
        self.form.flags & flags == flags
    }
}

/// Checks the length of a message or an access, and returns the length.
///
/// # Errors
///
/// [`WireError::ImpossibleLength`] if the length exceeds [`MESSAGE_MAX_BYTES`].
#[inline(always)]
pub(super) fn check_len_bytes(len_bytes: u64) -> Result<u64, WireError> {
    if len_bytes <= MESSAGE_MAX_BYTES { Ok(len_bytes) } else { Err(WireError::ImpossibleLength) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u8 = 1;
    const B: u8 = 2;
    const C: u8 = 32;

    #[test]
    fn rule_with_exclusive_flags_refuses_them_together() {
        static RULE: Rule = Rule::of_kind(1)
            .allow_flags(A | B | C)
            .at_most_one_of(A | C)
            .add_words(1)
            .add_word_per_flag(B | C);
        let words = |flags| Form::with_flags(&RULE, flags).map(Form::word_count);
        assert_eq!([words(0), words(A), words(B), words(C), words(B | C)], [1, 1, 2, 2, 3].map(Ok));
        for refused in [A | C, A | B | C, 4, B | 8, 64, 64 | A, u8::MAX] {
            assert_eq!(words(refused), Err(WireError::UnknownFlag), "{refused:#b}");
        }
        assert_eq!(RULE.words_max(), 3);
    }

    #[test]
    fn rule_with_a_number_accepts_numbers_up_to_its_maximum() {
        static RULE: Rule = Rule::of_kind(1).allow_number_up_to(4);
        let accepted: Vec<u8> =
            (0..=u8::MAX).filter(|flags| Form::with_flags(&RULE, *flags).is_ok()).collect();
        assert_eq!(accepted, [0, 1, 2, 3, 4]);
    }
}
