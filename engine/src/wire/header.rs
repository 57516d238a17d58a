//! [`Header`], the type of all headers, and the table of the files that describe them.

use super::error::WireError;
use super::headers::{
    self, Atomic, CountedWrite, HandshakeHeader, MappableRegion, Message, Outcome, Rma, RmaKind,
};
use super::rule::{FLAGS_BITS, Fields, Form, Rule};

/// The header of a frame.
///
/// A message travels in one of two ways. An eager message is a [`Message`](Header::Message) with its
/// payload. In a rendezvous, the sender keeps the payload until the receiver pulls the payload or asks for
/// it:
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
/// An access writes or reads memory that a peer has registered. Most accesses have a number, and get one
/// answer each, even if the target refuses the access:
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
///    Rma(op, flush)  --------------------->   makes a range durable, if this is demanded
///                 <------------------------  Answer(op)
///
///    Atomic(op) + operands  -------------->   updates elements of the region
///                 <------------------------  Answer(op), or if they are fetched ReadData(op) + results
/// ```
///
/// A short write may have no number. Both sides count such writes, and one answer ends many of them:
///
/// ```text
///  initiator                                target
///    CountedWrite + payload  ------------->
///    CountedWrite + payload  ------------->   puts them into the region
///                 <------------------------  Written(2)
/// ```
///
/// When an initiator accesses a region whose memory can be mapped, the target offers the region for mapping.
/// Accesses to a mapped region may need no frames.
///
/// ```text
///  initiator                                target
///                 <------------------------  MappableRegion(key)
///    writes and reads
/// ```
///
/// An endpoint of type `FI_EP_MSG` talks to one peer only, and connects to it first:
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
/// Messages, requests, and writes with completion data cost the sender
/// [credit](crate::limits::MESSAGE_COST_BYTES). The receiver grants credit by [`Credit`](Header::Credit).
/// Other frames cost no credit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// An eager message; its payload follows.
    Message(Message),
    /// Acknowledges the eager messages that have arrived whole on this link. Has no payload.
    Ack {
        /// The cumulative count since the link came up.
        received: u64,
    },
    /// Offers a message. The payload of this frame is a [`RemotePayload`](crate::transport::RemotePayload),
    /// from which the receiver pulls. If this payload is empty, the receiver cannot pull and has to ask.
    Request {
        /// The message.
        message: Message,
        /// The sender's number for the operation. No two unfinished operations on a link share a number.
        op: u64,
        /// The length of the payload of this frame, at most
        /// [`REMOTE_MAX_BYTES`](crate::limits::REMOTE_MAX_BYTES).
        remote_bytes: u8,
    },
    /// Asks the sender for the payload. The receiver has matched the request, or has room for the payload.
    /// Has no payload itself.
    Clear {
        /// The number in the request.
        op: u64,
        /// Whether the receiver has failed to pull. The sender then exposes no more payload to it.
        cannot_pull: bool,
    },
    /// The payload that the receiver has asked for.
    Data {
        /// The number in the request.
        op: u64,
        /// The length of the message, as in the request.
        len_bytes: u64,
    },
    /// Ends the operation: the payload is in place, or could not be read. Has no payload.
    Done {
        /// The number in the request.
        op: u64,
        /// Whether the exposed memory was unreadable ([`Pull::Fault`](crate::transport::Pull::Fault)).
        fault: bool,
    },
    /// The receiving application has matched or discarded this eager message. Sent only if the sender
    /// [awaits](super::AwaitedReply::Match) it. Has no payload.
    Matched {
        /// The message's number among the eager messages of the link. The first message has the number 1.
        number: u64,
    },
    /// The limit for the total cost of messages. Has no payload.
    Credit {
        /// The limit in bytes, counted from the time when the link came up. It never shrinks, and starts at
        /// [`CREDIT_INITIAL_BYTES`](crate::limits::CREDIT_INITIAL_BYTES).
        granted_bytes: u64,
    },
    /// Asks for [`Fenced`](Header::Fenced) as soon as all earlier messages have arrived. The sender sends no
    /// second fence before that answer arrives. As long as it waits for the answer, it sends no messages.
    /// Has no payload.
    Fence {
        /// Whether the messages must also have been matched or discarded.
        matched: bool,
    },
    /// The answer to [`Fence`](Header::Fence): what the fence asks for has happened. Has no payload.
    Fenced,
    /// An access to a region of the receiver. At most [`RMA_LINK_MAX_OPS`](crate::limits::RMA_LINK_MAX_OPS)
    /// accesses on a link are unanswered at a time.
    Rma(Rma),
    /// A short write to a region of the receiver, answered by count. At most
    /// [`COUNTED_WRITES_LINK_MAX_OPS`](crate::limits::COUNTED_WRITES_LINK_MAX_OPS) of them are unanswered on
    /// a link at a time.
    CountedWrite(CountedWrite),
    /// Ends counted writes. All of them up to the one with the number `count` have been carried out, except
    /// those that an earlier header of this kind has refused. Unless the outcome is [`Outcome::Done`], the
    /// write with the number `count` has this outcome. Has no payload.
    Written {
        /// The number of a counted write of this link. The first has the number 1.
        count: u64,
        /// The outcome of that write.
        outcome: Outcome,
    },
    /// An atomic operation on a region of the receiver. It counts toward the limit of unanswered accesses.
    /// The results of all unanswered operations on a link have at most
    /// [`ATOMIC_LINK_MAX_BYTES`](crate::limits::ATOMIC_LINK_MAX_BYTES).
    Atomic(Atomic),
    /// The next piece of the data of a read. Or all results of an atomic operation, as its answer.
    ReadData {
        /// The number in the request.
        op: u64,
        /// The length of this piece.
        len_bytes: u64,
    },
    /// A region of the sender that the receiver may map. The receiver accesses a mapped region without the
    /// sender's help.
    MappableRegion(MappableRegion),
    /// The result of an access, and the last frame of it. Has no payload.
    Answer {
        /// The number in the request.
        op: u64,
        /// The result.
        outcome: Outcome,
    },
    /// Makes or ends a connection. The application's data follows as payload.
    Connection(HandshakeHeader),
}

/// The table of headers. A row names the file that describes a header. The row also says how to take the
/// header apart for that file, and how to put it together again.
macro_rules! headers {
    ($($file:ident: $header:pat => $parts:expr, $made:expr;)*) => {
        /// The rules of each kind.
        const RULES: [Option<&Rule>; KINDS] = rules_by_kind(&[$(&headers::$file::RULE),*]);

        impl Header {
            /// Passes the header's words to `put` in order, and returns the other fields.
            ///
            /// Does not check the header's rules: the engine keeps them, and every peer checks them.
            #[inline(always)]
            pub fn encode_words(&self, mut put: impl FnMut(u64)) -> Fields {
                match *self {
                    $($header => headers::$file::encode_words($parts, &mut put),)*
                }
            }

            /// Makes a header of these fields and [`Form::word_count`] words. `word` returns the words in
            /// order.
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
    flush: Header::Rma(rma @ Rma { kind: RmaKind::Flush, .. }) => rma, Header::Rma;
    counted_write: Header::CountedWrite(write) => write, Header::CountedWrite;
    written: Header::Written { count, outcome } => (count, outcome),
        |(count, outcome)| Header::Written { count, outcome };
    read_data: Header::ReadData { op, len_bytes } => (op, len_bytes),
        |(op, len_bytes)| Header::ReadData { op, len_bytes };
    answer: Header::Answer { op, outcome } => (op, outcome), |(op, outcome)| Header::Answer { op, outcome };
    atomic: Header::Atomic(atomic) => atomic, Header::Atomic;
    mappable_region: Header::MappableRegion(shown) => shown, Header::MappableRegion;
    connection: Header::Connection(handshake) => handshake, Header::Connection;
}

impl Header {
    /// Returns the length of the payload that follows this header, in bytes.
    #[inline]
    pub fn payload_len_bytes(&self) -> u64 {
        self.encode_words(|_| {}).payload_len_bytes
    }
}

/// The kind of eager messages. Most frames are of this kind, so a layout may treat it on a fast path of its
/// own.
pub const COMMON_KIND: u8 = headers::message::RULE.kind;

/// The most words that any header has.
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

/// Every kind's number is less than this.
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
    /// Returns the form of headers of this kind with these flags.
    ///
    /// # Errors
    ///
    /// [`WireError::UnknownKind`] if no header has this kind; [`WireError::UnknownFlag`] if the kind does
    /// not have these flags.
    #[inline(always)]
    pub fn new(kind: u8, flags: u8) -> Result<Form, WireError> {
        static BY_KIND: [Option<&Rule>; KINDS] = RULES;
        match BY_KIND.get(usize::from(kind)) {
            Some(Some(rule)) => Form::with_flags(rule, flags),
            _ => Err(WireError::UnknownKind),
        }
    }

    /// Returns all forms that headers can have.
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
