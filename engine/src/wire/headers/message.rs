//! An eager message, and the fields that eager messages and requests have in common.

use crate::limits::{MESSAGE_COST_BYTES, MESSAGE_MAX_BYTES};
use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

/// The header of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Payload length in bytes.
    pub len_bytes: u64,
    /// The tag, if it is a tagged message.
    pub tag: Option<u64>,
    /// Completion data for the receiver (`FI_REMOTE_CQ_DATA`).
    pub data: Option<u64>,
    /// The reply that the sender awaits.
    pub awaits: AwaitedReply,
}

/// The reply that the sender of a message awaits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AwaitedReply {
    /// Nothing.
    #[default]
    Nothing,
    /// The whole message has arrived: in a posted buffer, or in the endpoint's memory.
    /// [`Header::Ack`](crate::wire::Header::Ack) acknowledges an eager message, and
    /// [`Header::Done`](crate::wire::Header::Done) acknowledges a request.
    Arrival,
    /// The message is in the buffer of the receive that matches it, or the application has discarded it.
    /// [`Header::Matched`](crate::wire::Header::Matched) acknowledges an eager message, and
    /// [`Header::Done`](crate::wire::Header::Done) acknowledges a request.
    Match,
}

impl AwaitedReply {
    /// Whether the sender awaits any reply.
    #[inline(always)]
    pub(crate) fn wants_answer(self) -> bool {
        match self {
            AwaitedReply::Nothing => false,
            AwaitedReply::Arrival | AwaitedReply::Match => true,
        }
    }

    /// Whether the receiver acknowledges the message on arrival. It acknowledges eager messages by a count.
    #[inline(always)]
    pub(crate) fn wants_ack(self) -> bool {
        match self {
            AwaitedReply::Arrival => true,
            AwaitedReply::Nothing | AwaitedReply::Match => false,
        }
    }

    /// Whether the receiver reports the match to the sender. If the message is offered, the receiver then
    /// does not fetch the payload before the match.
    #[inline(always)]
    pub(crate) fn wants_match(self) -> bool {
        match self {
            AwaitedReply::Match => true,
            AwaitedReply::Nothing | AwaitedReply::Arrival => false,
        }
    }
}

// Headers have room for two more flags than these four, see `FLAGS_BITS`.

/// The tag is among the words.
const TAGGED: u8 = 1 << 0;
/// Completion data is among the words.
const DATA: u8 = 1 << 1;
/// The sender awaits the report that the message has arrived.
const ARRIVAL: u8 = 1 << 2;
/// The sender awaits the report that the message was matched.
const MATCH: u8 = 1 << 3;
/// The flags for the reply that the sender awaits.
const AWAITS: u8 = ARRIVAL | MATCH;

/// Words: tag, data. The payload is the message.
pub(in crate::wire) const RULE: Rule = Message::rule_for_kind(1).allow_payload_up_to(MESSAGE_MAX_BYTES);

#[inline(always)]
pub(in crate::wire) fn encode_words(message: Message, put: &mut impl FnMut(u64)) -> Fields {
    message.encode_words(put);
    Fields::new(&RULE, message.wire_flags(), message.len_bytes)
}

#[inline(always)]
pub(in crate::wire) fn decode_words(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<Message, WireError> {
    Ok(Message { len_bytes: fields.payload_len_bytes, ..Message::decode_words(fields, word) })
}

impl Message {
    /// Returns an untagged message of this length, without data, whose sender awaits no reply. Code that
    /// must set every field of a message names the fields instead of calling this.
    #[inline(always)]
    pub const fn of_len(len_bytes: u64) -> Message {
        Message { len_bytes, tag: None, data: None, awaits: AwaitedReply::Nothing }
    }
}

impl Message {
    /// Returns the message of this length whose header has these flags, if its sender awaits no reply. Asks
    /// `word` for tag and data, in this order, if it has them. Returns `None` for any other flags. The length
    /// must be one that a header may have.
    #[inline(always)]
    pub fn decode_plain(flags: u8, len_bytes: u64, mut word: impl FnMut() -> u64) -> Option<Message> {
        if flags & !(TAGGED | DATA) != 0 {
            return None;
        }
        let tag = (flags & TAGGED != 0).then(&mut word);
        let data = (flags & DATA != 0).then(&mut word);
        Some(Message { len_bytes, tag, data, awaits: AwaitedReply::Nothing })
    }
}

/// Functions for eager messages and requests.
impl Message {
    /// Returns the credit that the message costs its sender if it travels as an eager message.
    #[inline(always)]
    pub(crate) fn eager_cost_bytes(&self) -> u64 {
        // The sum cannot overflow: a length is at most `MESSAGE_MAX_BYTES`.
        MESSAGE_COST_BYTES + self.len_bytes
    }

    /// Returns the rules for flags and words of messages, without a payload.
    pub(super) const fn rule_for_kind(kind: u8) -> Rule {
        Rule::of_kind(kind)
            .allow_flags(TAGGED | DATA | AWAITS)
            .at_most_one_of(AWAITS)
            .add_word_per_flag(TAGGED | DATA)
    }

    #[inline(always)]
    pub(super) fn wire_flags(&self) -> u8 {
        // The pattern names all fields, so a new field does not compile here until it has a flag.
        let Message { len_bytes: _, tag, data, awaits } = self;
        let awaits = match awaits {
            AwaitedReply::Nothing => 0,
            AwaitedReply::Arrival => ARRIVAL,
            AwaitedReply::Match => MATCH,
        };
        debug_assert_eq!(awaits & !AWAITS, 0, "`AWAITS` has the flag of every awaited reply");
        let tagged = if tag.is_some() { TAGGED } else { 0 };
        let data = if data.is_some() { DATA } else { 0 };
        awaits | tagged | data
    }

    /// Passes tag and data to `put`.
    #[inline(always)]
    pub(super) fn encode_words(&self, put: &mut impl FnMut(u64)) {
        if let Some(tag) = self.tag {
            put(tag);
        }
        if let Some(data) = self.data {
            put(data);
        }
    }

    /// Returns the message with length 0.
    #[inline(always)]
    pub(super) fn decode_words(fields: Fields, word: &mut impl FnMut() -> u64) -> Message {
        let tag = fields.has_flags(TAGGED).then(&mut *word);
        let data = fields.has_flags(DATA).then(&mut *word);
        let awaits = match fields.form.flags() & AWAITS {
            ARRIVAL => AwaitedReply::Arrival,
            MATCH => AwaitedReply::Match,
            other => {
                debug_assert_eq!(other, 0, "the rule allows one flag, and each has a line here");
                AwaitedReply::Nothing
            }
        };
        Message { len_bytes: 0, tag, data, awaits }
    }
}
