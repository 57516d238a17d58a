//! Every header as one type, and the table of their files.

use super::error::WireError;
use super::headers::{self, Atomic, Handshake, MappableRegion, Message, Outcome, Rma, RmaKind};
use super::rule::{FLAGS_BITS, Fields, Form, Rule};

/// The header of a frame.
///
/// A message travels in one of two ways. An eager one is a [`Message`](Header::Message) with its payload. In
/// a rendezvous the payload stays where it is, and the receiver fetches it or asks for it:
///
/// ```text
///  sender                                   receiver
///    Request(op)  ------------------------>   matches, or has room for it; pulls
///                 <------------------------  Done(op)
///
///    Request(op)  ------------------------>   matches, or has room for it; cannot pull
///                 <------------------------  Clear(op)
///    Data(op) + payload  ----------------->
///                 <------------------------  Done(op), if the sender waits for it
/// ```
///
/// Memory that a peer has registered is written and read without a message. Each of these operations has a
/// number and is answered once, also if it is refused:
///
/// ```text
///  initiator                                target
///    Rma(op, write) + payload  ----------->   puts it into the region
///                 <------------------------  Answer(op)
///
///    Rma(op, offer)  --------------------->   pulls, or says Clear(op) and gets Data(op)
///                 <------------------------  Answer(op)
///
///    Rma(op, read)  ---------------------->
///                 <------------------------  ReadData(op) + a piece, as often as needed
///                 <------------------------  Answer(op)
///
///    Atomic(op) + operands  -------------->   updates elements of the region
///                 <------------------------  Answer(op), or if they are fetched ReadData(op) + results
/// ```
///
/// The target offers an initiator a region that it can map after the first access. From then on accesses may
/// need no frames.
///
/// ```text
///  initiator                                target
///                 <------------------------  MappableRegion(key)
///    writes and reads
/// ```
///
/// Endpoints of `FI_EP_MSG` talk to one peer only, with which they are connected first:
///
/// ```text
///  requester                                passive endpoint
///    Connection(request) + data  --------->
///                 <------------------------  Connection(reject) + data
///
///  requester                                the endpoint that accepts, over a link of its own
///                 <------------------------  Connection(accept) + data
///       ... everything else, in both directions, and soon ...
///    Connection(confirm)  ---------------->
///       ...
///    Connection(shutdown)  --------------->  ends the link
/// ```
///
/// Messages and requests cost the sender [credit](crate::limits::MESSAGE_COST_BYTES), which the receiver
/// gives by [`Credit`](Header::Credit), and so do writes that bring data for a completion. Other frames cost
/// none, so they never wait for a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// An eager message; its payload follows.
    Message(Message),
    /// "This many eager messages have arrived in whole on this link": the acknowledgement travels against the
    /// messages that it counts, on the same link, so a count never outlives its messages. Has no payload.
    Ack {
        /// The cumulative count since the link came up.
        received: u64,
    },
    /// A message whose payload the receiver is to fetch. Its own payload is a
    /// [`Remote`](crate::transport::RemotePayload), empty if the receiver cannot pull and has to ask.
    Request {
        /// The message.
        message: Message,
        /// The sender's number for the operation, unique on the link while the operation lives.
        op: u64,
        /// How long the description that follows is, at most
        /// [`REMOTE_MAX_BYTES`](crate::limits::REMOTE_MAX_BYTES).
        remote_bytes: u8,
    },
    /// "Send it": the receiver has matched the request, or has room for it. Has no payload.
    Clear {
        /// The number in the request.
        op: u64,
        /// Whether the receiver tried to pull and cannot: nothing need be exposed to it any more.
        cannot_pull: bool,
    },
    /// The payload that the receiver has asked for.
    Data {
        /// The number in the request.
        op: u64,
        /// The length of the message, as in the request.
        len_bytes: u64,
    },
    /// "It is in place", or "it could not be read": the sender will hear no more of the operation. Has no
    /// payload.
    Done {
        /// The number in the request.
        op: u64,
        /// The exposed memory was not readable ([`Pull::Fault`](crate::transport::Pull::Fault)).
        fault: bool,
    },
    /// "The application has matched, or thrown away, this eager message", for one that
    /// [awaits](super::AwaitedReply::Match) it. Has no payload.
    Matched {
        /// The message's number among the eager messages of the link, as [`Ack`](Header::Ack) counts them:
        /// the first is 1.
        number: u64,
    },
    /// "Messages may have cost you this much in all." Has no payload.
    Credit {
        /// The cumulative limit since the link came up, in bytes. It never shrinks, and begins at
        /// [`CREDIT_INITIAL_BYTES`](crate::limits::CREDIT_INITIAL_BYTES).
        granted_bytes: u64,
    },
    /// "Say [`Fenced`](Header::Fenced) when all messages before this have arrived": no other fence follows
    /// before that, and messages only if the answer is not awaited any more. Has no payload.
    Fence {
        /// Whether they are to be matched or thrown away too.
        matched: bool,
    },
    /// The answer to [`Fence`](Header::Fence): its condition holds. Has no payload.
    Fenced,
    /// Access to a region of the receiver. No more than [`RMA_LINK_MAX_OPS`](crate::limits::RMA_LINK_MAX_OPS)
    /// of a link are unanswered at a time.
    Rma(Rma),
    /// An atomic operation on a region of the receiver. It counts as an access like the others. Those whose
    /// results are under way bring no more than
    /// [`ATOMIC_LINK_MAX_BYTES`](crate::limits::ATOMIC_LINK_MAX_BYTES) together.
    Atomic(Atomic),
    /// The next piece of a read; or all results of an atomic operation, which this also answers.
    ReadData {
        /// The number in the request.
        op: u64,
        /// The length of this piece.
        len_bytes: u64,
    },
    /// "You may map this region of mine, and access it without my help."
    MappableRegion(MappableRegion),
    /// "It is done", or why it is not: the initiator will hear no more of the operation. Has no payload.
    Answer {
        /// The number in the request.
        op: u64,
        /// Its result.
        outcome: Outcome,
    },
    /// Makes or ends a connection. The application's data follows as payload.
    Connection(Handshake),
}

/// The table of headers. A row names the file that describes a header, the fields that this file gets, and
/// how the header is made from the fields that the file returns.
macro_rules! headers {
    ($($file:ident: $header:pat => $parts:expr, $made:expr;)*) => {
        /// The rules of each kind.
        const RULES: [Option<&Rule>; KINDS] = rules_by_kind(&[$(&headers::$file::RULE),*]);

        impl Header {
            /// Takes the header apart: `put` gets its words, each once and in order.
            ///
            /// It is not for this function to refuse a header that breaks its rules: the engine makes none,
            /// and every peer refuses it.
            #[inline(always)]
            pub fn encode_words(&self, mut put: impl FnMut(u64)) -> Fields {
                match *self {
                    $($header => headers::$file::encode_words($parts, &mut put),)*
                }
            }

            /// Puts a header together: `word` returns the words of [`Form::word_count`], in order.
            ///
            /// # Errors
            ///
            /// Refuses a header that no correct peer sends, perhaps before it has read all words.
            #[inline(always)]
            pub fn decode_words(fields: Fields, mut word: impl FnMut() -> u64) -> Result<Header, WireError> {
                if fields.payload_len_bytes > fields.form.payload_max_bytes() {
                    return Err(WireError::ImpossibleLength);
                }
                match fields.form.kind() {
                    $(kind if kind == headers::$file::RULE.kind => {
                        headers::$file::decode_words(fields, &mut word).map($made)
                    })*
                    _ => Err(WireError::UnknownKind),
                }
            }
        }
    };
}

headers! {
    message: Header::Message(message) => message, Header::Message;
    ack: Header::Ack { received } => received, |received| Header::Ack { received };
    request: Header::Request { message, op, remote_bytes } => (message, op, remote_bytes),
        |(message, op, remote_bytes)| Header::Request { message, op, remote_bytes };
    clear: Header::Clear { op, cannot_pull } => (op, cannot_pull),
        |(op, cannot_pull)| Header::Clear { op, cannot_pull };
    data: Header::Data { op, len_bytes } => (op, len_bytes), |(op, len_bytes)| Header::Data { op, len_bytes };
    done: Header::Done { op, fault } => (op, fault), |(op, fault)| Header::Done { op, fault };
    matched: Header::Matched { number } => number, |number| Header::Matched { number };
    credit: Header::Credit { granted_bytes } => granted_bytes,
        |granted_bytes| Header::Credit { granted_bytes };
    fence: Header::Fence { matched } => matched, |matched| Header::Fence { matched };
    fenced: Header::Fenced => (), |()| Header::Fenced;
    read: Header::Rma(rma @ Rma { kind: RmaKind::Read, .. }) => rma, Header::Rma;
    write: Header::Rma(rma @ Rma { kind: RmaKind::Write { .. }, .. }) => rma, Header::Rma;
    offer: Header::Rma(rma @ Rma { kind: RmaKind::Offer { remote_bytes, .. }, .. }) => (rma, remote_bytes),
        Header::Rma;
    read_data: Header::ReadData { op, len_bytes } => (op, len_bytes),
        |(op, len_bytes)| Header::ReadData { op, len_bytes };
    answer: Header::Answer { op, outcome } => (op, outcome), |(op, outcome)| Header::Answer { op, outcome };
    atomic: Header::Atomic(atomic) => atomic, Header::Atomic;
    mappable_region: Header::MappableRegion(shown) => shown, Header::MappableRegion;
    connection: Header::Connection(handshake) => handshake, Header::Connection;
}

impl Header {
    /// How many bytes of payload follow this header.
    #[inline]
    pub fn payload_len_bytes(&self) -> u64 {
        self.encode_words(|_| {}).payload_len_bytes
    }
}

/// The kind of most frames, eager messages. A layout may treat it apart, in code where all of its rules are
/// constants.
pub const COMMON_KIND: u8 = headers::message::RULE.kind;

/// How many words a header has at most.
pub const WORDS_MAX: usize = {
    let (mut most, mut kind) = (0, 0);
    while kind < KINDS {
        if let Some(rule) = RULES[kind]
            && rule.words_max() > most
        {
            most = rule.words_max();
        }
        kind += 1;
    }
    most
};

/// The numbers that a kind can have are less than this.
const KINDS: usize = 32;

const fn rules_by_kind(rules: &[&'static Rule]) -> [Option<&'static Rule>; KINDS] {
    let mut by_kind: [Option<&'static Rule>; KINDS] = [None; KINDS];
    let mut n = 0;
    while n < rules.len() {
        let kind = rules[n].kind as usize;
        assert!(kind != 0, "kind 0 belongs to the layouts");
        assert!(by_kind[kind].is_none(), "two headers have the same kind");
        by_kind[kind] = Some(rules[n]);
        n += 1;
    }
    by_kind
}

impl Form {
    /// The form of a header of this kind, with these flags.
    ///
    /// # Errors
    ///
    /// There is no such kind, or it does not have these flags.
    #[inline(always)]
    pub fn new(kind: u8, flags: u8) -> Result<Form, WireError> {
        static BY_KIND: [Option<&Rule>; KINDS] = RULES;
        match BY_KIND.get(usize::from(kind)) {
            Some(Some(rule)) => Form::with_flags(rule, flags),
            _ => Err(WireError::UnknownKind),
        }
    }

    /// All forms that headers can have.
    ///
    /// ```
    /// use homespun_engine::wire::Form;
    ///
    /// assert!(Form::all().all(|form| Form::new(form.kind(), form.flags()).is_ok()));
    /// ```
    pub fn all() -> impl Iterator<Item = Form> {
        (0..KINDS as u8)
            .flat_map(|kind| (0..1 << FLAGS_BITS).filter_map(move |flags| Form::new(kind, flags).ok()))
    }
}
