//! The answer to an access to a region: [`Header::Answer`](crate::wire::Header::Answer).

use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

/// The result of an access to a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All of it was written, or sent.
    Done,
    /// It was refused, or ended, by the target.
    Refused(Refusal),
    /// The memory that the initiator had offered was not readable
    /// ([`Pull::Fault`](crate::transport::Pull::Fault)).
    Fault,
    /// It was written, and could not be made durable.
    NotDurable,
}

/// Why a target refuses access to a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No region has this key, or no longer.
    #[error("no memory region has this key")]
    Key,
    /// The region, or the endpoint, is not to be accessed in this way.
    #[error("the memory region may not be accessed in this way")]
    Access,
    /// Not all of it lies in the region.
    #[error("beyond the memory region")]
    Range,
    /// It was to be durable, and the region is not of persistent memory.
    #[error("the memory region is not persistent")]
    Volatile,
}

impl Outcome {
    /// All outcomes, by the number that they travel as.
    pub(crate) const ALL: [Outcome; 7] = [
        Outcome::Done,
        Outcome::Refused(Refusal::Key),
        Outcome::Refused(Refusal::Access),
        Outcome::Refused(Refusal::Range),
        Outcome::Fault,
        Outcome::Refused(Refusal::Volatile),
        Outcome::NotDurable,
    ];

    /// The number that it travels as.
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

    /// The outcome that travels as this number.
    pub fn from_number(number: u8) -> Option<Outcome> {
        Outcome::ALL.get(usize::from(number)).copied()
    }
}

/// Words: operation. The flags are the number of the outcome.
pub(in crate::wire) const RULE: Rule =
    Rule::of_kind(15).allow_number_up_to(Outcome::ALL.len() as u8 - 1).add_words(1);

#[inline(always)]
pub(in crate::wire) fn encode_words((op, outcome): (u64, Outcome), put: &mut impl FnMut(u64)) -> Fields {
    put(op);
    Fields::new(&RULE, outcome.number(), 0)
}

#[inline(always)]
pub(in crate::wire) fn decode_words(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<(u64, Outcome), WireError> {
    let outcome = Outcome::from_number(fields.form.flags()).ok_or(WireError::UnknownFlag)?;
    Ok((word(), outcome))
}
