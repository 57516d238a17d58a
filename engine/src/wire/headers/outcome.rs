//! The outcome of accesses to regions. Every answer carries it in the same form, with one number.

use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

/// The result of an access to a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The target has written all bytes, or has sent them.
    Done,
    /// The target has refused the access, or has ended it.
    Refused(Refusal),
    /// The memory that the initiator had exposed was unreadable
    /// ([`Pull::Fault`](crate::transport::Pull::Fault)).
    Fault,
    /// The target could not make the bytes or earlier writes durable. The bytes may have been
    /// written.
    NotDurable,
}

/// Why a target refuses access to a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No region has this key, or its region was closed.
    #[error("no memory region has this key")]
    Key,
    /// The region, or the endpoint, does not allow this access.
    #[error("the memory region may not be accessed in this way")]
    Access,
    /// Part of the access is outside the region.
    #[error("beyond the memory region")]
    Range,
    /// The access demands durable writes, but the region's memory is not persistent.
    #[error("the memory region is not persistent")]
    Volatile,
}

impl Outcome {
    /// All outcomes, in the order of their numbers on the wire.
    pub(crate) const ALL: [Outcome; 7] = [
        Outcome::Done,
        Outcome::Refused(Refusal::Key),
        Outcome::Refused(Refusal::Access),
        Outcome::Refused(Refusal::Range),
        Outcome::Fault,
        Outcome::Refused(Refusal::Volatile),
        Outcome::NotDurable,
    ];

    /// Returns the outcome's number on the wire.
    pub fn number(self) -> u8 {
        match self {
            Outcome::Done => 0,
            Outcome::Refused(Refusal::Key) => 1,
            Outcome::Refused(Refusal::Access) => 2,
            Outcome::Refused(Refusal::Range) => 3,
            Outcome::Fault => 4,
            Outcome::Refused(Refusal::Volatile) => 5,
            Outcome::NotDurable => 6,
        }
    }

    /// Returns the outcome that has this number on the wire.
    pub fn from_number(number: u8) -> Option<Outcome> {
        Outcome::ALL.get(usize::from(number)).copied()
    }
}

/// Returns the rule of an answer. The flags are the outcome's number.
pub(super) const fn answer_rule(kind: u8) -> Rule {
    Rule::of_kind(kind).allow_number_up_to(Outcome::ALL.len() as u8 - 1).add_words(1)
}

#[inline(always)]
pub(super) fn encode_answer(
    rule: &'static Rule,
    (number, outcome): (u64, Outcome),
    put: &mut impl FnMut(u64),
) -> Fields {
    put(number);
    Fields::new(rule, outcome.number(), 0)
}

#[inline(always)]
pub(super) fn decode_answer(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<(u64, Outcome), WireError> {
    let outcome = Outcome::from_number(fields.form.flags()).ok_or(WireError::UnknownFlag)?;
    Ok((word(), outcome))
}
