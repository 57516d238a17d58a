//! What a program did and was told.

use homespun::atomic::AtomicOp;
use homespun::{Errno, Error};

use crate::program::Then;

/// Everything that was posted, in the order of posting, and how it ended.
///
/// Each call and each entry that is read has a moment of its own, counted from the beginning of the program.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) sends: Vec<SendOp>,
    pub(crate) receives: Vec<ReceiveOp>,
    pub(crate) peeks: Vec<PeekOp>,
    pub(crate) accesses: Vec<AccessOp>,
    /// Those that an endpoint has, each at an address of its own.
    pub(crate) places: Vec<Place>,
}

/// The endpoints that were at one address, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// How those ended that have.
    pub(crate) ends: Vec<End>,
    pub(crate) is_vacant: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Closed,
    Killed,
}

/// An endpoint: where it is, and how many were there before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Who {
    pub(crate) place: usize,
    pub(crate) life: usize,
}

/// How soon a send may complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Inject,
    Transmit,
    Delivery,
    Match,
}

/// A message that was accepted for sending. Its place in the history is its identity.
#[derive(Debug)]
pub(crate) struct SendOp {
    pub(crate) from: Who,
    /// The place that it was for, whoever is there.
    pub(crate) to: usize,
    pub(crate) tag: Option<u64>,
    pub(crate) len_bytes: usize,
    pub(crate) level: Level,
    pub(crate) fenced: bool,
    /// Injected: success is silent, and failure is told without saying whose.
    pub(crate) injected: bool,
    pub(crate) posted_at: u64,
    pub(crate) cancelled: bool,
    pub(crate) ended: Option<Result<(), Errno>>,
    pub(crate) ended_at: u64,
    pub(crate) arrived: Option<Arrived>,
    /// When something was read that shows the message to be there.
    pub(crate) seen_at: Option<u64>,
}

/// Where a message has turned up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// A receive of the program took it.
    Received(usize),
    /// A peek has claimed it.
    Claimed(usize),
    /// A peek has thrown it away.
    Discarded(usize),
    /// It was waiting at the receiver when the program was over; as the so many-th of its kind there.
    Waiting {
        order: usize,
        /// When the receive was posted that took it then.
        posted_at: u64,
    },
}

#[derive(Debug)]
pub(crate) struct ReceiveOp {
    pub(crate) at: Who,
    pub(crate) tagged: Option<(u64, u64)>,
    /// The place whose messages alone it takes.
    pub(crate) from: Option<usize>,
    pub(crate) len_bytes: usize,
    pub(crate) posted_at: u64,
    pub(crate) cancelled: bool,
    /// An attempt to cancel it came too late, so it ends by itself.
    pub(crate) too_late_to_cancel: bool,
    pub(crate) ended: Option<ReceiveEnd>,
    /// What there is besides, if it takes many messages.
    pub(crate) buffer: Option<BufferOp>,
}

/// A receive that takes many messages, until it is released.
#[derive(Debug)]
pub(crate) struct BufferOp {
    pub(crate) min_free_bytes: usize,
    pub(crate) took: Vec<usize>,
    /// A message was lost in the middle.
    pub(crate) has_lost: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveEnd {
    /// It was given the message with this identity, or as much of it as there was room for.
    Took(usize),
    /// It has taken as many messages as it could.
    Released,
    Cancelled,
    /// Its sender was lost, in the middle of a message or as the only one who could have sent one.
    Broken(Errno),
}

/// A look at the tagged messages that have arrived already.
#[derive(Debug)]
pub(crate) struct PeekOp {
    pub(crate) at: Who,
    pub(crate) tagged: (u64, u64),
    pub(crate) from: Option<usize>,
    pub(crate) then: Then,
    pub(crate) posted_at: u64,
    pub(crate) ended: Option<PeekEnd>,
    /// What became of the message that it has claimed.
    pub(crate) claim: Option<ClaimOp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeekEnd {
    /// There is the message with this identity.
    Found(usize),
    Nothing,
}

/// The end of a claimed message.
#[derive(Debug)]
pub(crate) struct ClaimOp {
    pub(crate) len_bytes: usize,
    pub(crate) discards: bool,
    pub(crate) posted_at: u64,
    pub(crate) ended: Option<ClaimEnd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimEnd {
    Done,
    /// Its sender was lost before all of the message was there.
    Broken(Errno),
}

/// An access to the region of an endpoint that was accepted, or what the endpoint itself has done with it. Its place in the
/// history is its identity.
#[derive(Debug)]
pub(crate) struct AccessOp {
    /// Whoever the region belongs to, if nobody else.
    pub(crate) by: Who,
    pub(crate) at: Who,
    pub(crate) access: Access,
    /// Where in the region.
    pub(crate) place: usize,
    pub(crate) len_bytes: usize,
    /// What its fence waits for, if it has one.
    pub(crate) level: Level,
    pub(crate) fenced: bool,
    pub(crate) injected: bool,
    /// Whether the target is to be told.
    pub(crate) has_data: bool,
    pub(crate) posted_at: u64,
    pub(crate) cancelled: bool,
    pub(crate) ended: Option<Result<(), Errno>>,
    pub(crate) ended_at: u64,
    /// When the target was told.
    pub(crate) told_at: Option<u64>,
    /// What was read or fetched.
    pub(crate) found: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// Elements are changed.
    Update(AtomicOp),
    /// What elements are comes back, and they may be changed.
    Fetch(AtomicOp),
}

impl AccessOp {
    /// Whether nothing was posted for it: the endpoint itself has looked at its region, or changed it.
    pub(crate) fn is_ones_own(&self) -> bool {
        self.posted_at == self.ended_at
    }
}

impl SendOp {
    /// Whether success says that the receiver has it.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.level > Level::Inject
    }

    fn is_wanted(&self, at: Who, tagged: Option<(u64, u64)>, from: Option<usize>) -> bool {
        let tag_fits = match (tagged, self.tag) {
            (None, None) => true,
            (Some((tag, ignore)), Some(sent)) => (tag ^ sent) & !ignore == 0,
            _ => false,
        };
        at.place == self.to && tag_fits && from.is_none_or(|from| from == self.from.place)
    }
}

impl ReceiveOp {
    pub(crate) fn accepts(&self, send: &SendOp) -> bool {
        send.is_wanted(self.at, self.tagged, self.from)
    }
}

impl PeekOp {
    pub(crate) fn accepts(&self, send: &SendOp) -> bool {
        send.is_wanted(self.at, Some(self.tagged), self.from)
    }

    /// Whether it has claimed a message of which nothing more has been asked yet.
    pub(crate) fn is_claiming(&self) -> bool {
        self.then == Then::Claim && matches!(self.ended, Some(PeekEnd::Found(_))) && self.claim.is_none()
    }
}

impl Place {
    /// Whether the same endpoint is there as ever.
    pub(crate) fn is_as_ever(&self) -> bool {
        self.ends.is_empty()
    }
}

impl History {
    /// Who is at a place, or was there last.
    pub(crate) fn who(&self, place: usize) -> Who {
        let Place { ends, is_vacant } = &self.places[place];
        Who { place, life: ends.len() - usize::from(*is_vacant) }
    }

    pub(crate) fn lives(&self, who: Who) -> bool {
        self.who(who.place) == who && !self.places[who.place].is_vacant
    }

    pub(crate) fn was_killed(&self, who: Who) -> bool {
        self.places[who.place].ends.get(who.life) == Some(&End::Killed)
    }

    pub(crate) fn end(&mut self, place: usize, end: End) {
        self.places[place].ends.push(end);
        self.places[place].is_vacant = true;
    }

    /// Notes where a message has turned up, which it does once.
    pub(crate) fn arrived(&mut self, message: usize, arrived: Arrived) {
        let before = self.sends[message].arrived.replace(arrived);
        assert_eq!(before, None, "message {message} turned up again: {arrived:?}");
    }

    /// Notes that something was read that shows a message to be there.
    pub(crate) fn seen(&mut self, message: usize, now: u64) {
        self.sends[message].seen_at.get_or_insert(now);
    }

    /// When that was posted which matched a message, or threw it away.
    pub(crate) fn matched_at(&self, message: usize) -> Option<u64> {
        match self.sends[message].arrived? {
            Arrived::Received(receive) => Some(self.receives[receive].posted_at),
            Arrived::Claimed(peek) => self.peeks[peek].claim.as_ref().map(|claim| claim.posted_at),
            Arrived::Discarded(peek) => Some(self.peeks[peek].posted_at),
            Arrived::Waiting { posted_at, .. } => Some(posted_at),
        }
    }

    /// Notes what an attempt to cancel an operation came to.
    pub(crate) fn cancel_attempted(&mut self, operation: Operation, result: &Result<(), Error>) {
        let (cancelled, has_ended) = match operation {
            Operation::Send(send) => {
                let send = &mut self.sends[send];
                (&mut send.cancelled, send.ended.is_some())
            }
            Operation::Receive(receive) => {
                let receive = &mut self.receives[receive];
                receive.too_late_to_cancel |= result.is_err() && !receive.cancelled;
                (&mut receive.cancelled, receive.ended.is_some())
            }
            Operation::Peek(peek) => {
                assert!(result.is_err(), "peek {peek} ends at once, and was cancelled nevertheless");
                return;
            }
            Operation::Access(access) => {
                let access = &mut self.accesses[access];
                (&mut access.cancelled, access.ended.is_some())
            }
        };
        if result.is_ok() {
            assert!(!has_ended, "{operation:?} had ended, and was cancelled nevertheless");
            assert!(!*cancelled, "{operation:?} was cancelled twice");
            *cancelled = true;
        }
    }
}

/// An operation by its place in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Send(usize),
    Receive(usize),
    /// Or the receive of what it has claimed, whose context is the same.
    Peek(usize),
    Access(usize),
}

impl Operation {
    /// The context that the operation is posted with. 0 is that of injected messages.
    pub(crate) fn context(self) -> u64 {
        match self {
            Operation::Send(send) => 4 * send as u64 + 1,
            Operation::Receive(receive) => 4 * receive as u64 + 2,
            Operation::Peek(peek) => 4 * peek as u64 + 3,
            Operation::Access(access) => 4 * access as u64 + 4,
        }
    }

    pub(crate) fn from_context(context: u64) -> Operation {
        let number = (context as usize - 1) / 4;
        match context % 4 {
            1 => Operation::Send(number),
            2 => Operation::Receive(number),
            3 => Operation::Peek(number),
            _ => Operation::Access(number),
        }
    }
}
