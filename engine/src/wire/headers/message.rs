//! An eager message, and what every message says of itself.

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
    /// That all of it has arrived, in a posted buffer or in one of the endpoint's own. An eager message is
    /// acknowledged by [`Header::Ack`](crate::wire::Header::Ack), a requested one by
    /// [`Header::Done`](crate::wire::Header::Done).
    Arrival,
    /// That the application has matched it, and it is in its buffer, or has thrown it away. An eager message
    /// is acknowledged by [`Header::Matched`](crate::wire::Header::Matched), a requested one by
    /// [`Header::Done`](crate::wire::Header::Done).
    Match,
}

impl AwaitedReply {
    /// Whether the peer is to say anything of the message.
    #[inline(always)]
    pub(crate) fn wants_answer(self) -> bool {
        match self {
            AwaitedReply::Nothing => false,
            AwaitedReply::Arrival | AwaitedReply::Match => true,
        }
    }

    /// Whether the message is acknowledged when it has arrived: an eager one by the count of those that have.
    #[inline(always)]
    pub(crate) fn wants_ack(self) -> bool {
        match self {
            AwaitedReply::Arrival => true,
            AwaitedReply::Nothing | AwaitedReply::Match => false,
        }
    }

    /// Whether the receiver reports the match to the sender: of an eager message by its number. A
    /// requested one is not fetched before it is matched.
    #[inline(always)]
    pub(crate) fn wants_match(self) -> bool {
        match self {
            AwaitedReply::Match => true,
            AwaitedReply::Nothing | AwaitedReply::Arrival => false,
        }
    }
}

// Headers have room for two flags more than these four, see `FLAGS_BITS`.

/// The tag is among the words.
const TAGGED: u8 = 1 << 0;
/// Completion data is among the words.
const DATA: u8 = 1 << 1;
/// The sender waits to hear that the message has arrived.
const ARRIVAL: u8 = 1 << 2;
/// The sender waits to hear that the message was matched.
const MATCH: u8 = 1 << 3;
/// The flags that say what the sender waits to hear.
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
    /// An untagged message of this length, without data, of which its sender awaits nothing. Code that
    /// posts a message, or makes any message for a test, names all fields instead: the compiler asks it for
    /// new ones.
    #[inline(always)]
    pub const fn of_len(len_bytes: u64) -> Message {
        Message { len_bytes, tag: None, data: None, awaits: AwaitedReply::Nothing }
    }
}

/// Common to eager messages and requests.
impl Message {
    /// Returns the credit that it costs its sender if its payload is sent eagerly.
    #[inline(always)]
    pub(crate) fn eager_cost_bytes(&self) -> u64 {
        // A length is far below the largest number, see `MESSAGE_MAX_BYTES`.
        MESSAGE_COST_BYTES + self.len_bytes
    }

    /// The rules for flags and words of messages.
    pub(super) const fn rule_for_kind(kind: u8) -> Rule {
        Rule::of_kind(kind)
            .allow_flags(TAGGED | DATA | AWAITS)
            .at_most_one_of(AWAITS)
            .add_word_per_flag(TAGGED | DATA)
    }

    #[inline(always)]
    pub(super) fn wire_flags(&self) -> u8 {
        // Taken apart, so that the compiler asks for the flag of a new field.
        let Message { len_bytes: _, tag, data, awaits } = self;
        let awaits = match awaits {
            AwaitedReply::Nothing => 0,
            AwaitedReply::Arrival => ARRIVAL,
            AwaitedReply::Match => MATCH,
        };
        let tagged = if tag.is_some() { TAGGED } else { 0 };
        let data = if data.is_some() { DATA } else { 0 };
        awaits | tagged | data
    }

    /// Hands over tag and data.
    #[inline(always)]
    pub(super) fn encode_words(&self, put: &mut impl FnMut(u64)) {
        if let Some(tag) = self.tag {
            put(tag);
        }
        if let Some(data) = self.data {
            put(data);
        }
    }

    /// All of a message but its length.
    #[inline(always)]
    pub(super) fn decode_words(fields: Fields, word: &mut impl FnMut() -> u64) -> Message {
        let tag = fields.has_flags(TAGGED).then(&mut *word);
        let data = fields.has_flags(DATA).then(&mut *word);
        let awaits = match fields.form.flags() & AWAITS {
            ARRIVAL => AwaitedReply::Arrival,
            MATCH => AwaitedReply::Match,
            // The rule allows no other flags.
            _ => AwaitedReply::Nothing,
        };
        Message { len_bytes: 0, tag, data, awaits }
    }
}
