//! What a program did and was told.

use homespun::{Errno, Error};

/// Everything that was posted, in the order of posting, and how it ended.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) sends: Vec<SendOp>,
    pub(crate) receives: Vec<ReceiveOp>,
    /// How each endpoint fared.
    pub(crate) fates: Vec<Fate>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Lives,
    Closed,
    Killed,
}

/// A message that was accepted for sending. Its place in the history is its identity.
#[derive(Debug)]
pub(crate) struct SendOp {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) tag: Option<u64>,
    pub(crate) len_bytes: usize,
    /// Injected: success is silent, and failure is told without saying whose.
    pub(crate) injected: bool,
    /// Whether success says that the receiver has it.
    pub(crate) acknowledged: bool,
    pub(crate) cancelled: bool,
    pub(crate) ended: Option<Result<(), Errno>>,
    pub(crate) arrived: Option<Arrived>,
}

/// Where a message has turned up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrived {
    /// A receive of the program took it.
    Received(usize),
    /// It was waiting at the receiver when the program was over; as the so many-th of its kind there.
    Waiting(usize),
}

#[derive(Debug)]
pub(crate) struct ReceiveOp {
    pub(crate) at: usize,
    pub(crate) tagged: Option<(u64, u64)>,
    pub(crate) from: Option<usize>,
    pub(crate) len_bytes: usize,
    pub(crate) cancelled: bool,
    /// An attempt to cancel it came too late, so it ends by itself.
    pub(crate) too_late_to_cancel: bool,
    pub(crate) ended: Option<ReceiveEnd>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveEnd {
    /// It was given the message with this identity, or as much of it as there was room for.
    Took(usize),
    Cancelled,
    /// Its sender was lost in the middle of a message.
    Broken(Errno),
}

impl ReceiveOp {
    pub(crate) fn accepts(&self, send: &SendOp) -> bool {
        let tag_fits = match (self.tagged, send.tag) {
            (None, None) => true,
            (Some((tag, ignore)), Some(sent)) => (tag ^ sent) & !ignore == 0,
            _ => false,
        };
        self.at == send.to && tag_fits && self.from.is_none_or(|from| from == send.from)
    }
}

impl History {
    pub(crate) fn lives(&self, party: usize) -> bool {
        self.fates[party] == Fate::Lives
    }

    /// Notes where a message has turned up, which it does once.
    pub(crate) fn arrived(&mut self, message: usize, arrived: Arrived) {
        let before = self.sends[message].arrived.replace(arrived);
        assert_eq!(before, None, "message {message} turned up again: {arrived:?}");
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
}

impl Operation {
    /// The context that the operation is posted with. 0 is that of injected messages.
    pub(crate) fn context(self) -> u64 {
        match self {
            Operation::Send(send) => 2 * send as u64 + 1,
            Operation::Receive(receive) => 2 * receive as u64 + 2,
        }
    }

    pub(crate) fn from_context(context: u64) -> Operation {
        match context {
            odd if odd % 2 == 1 => Operation::Send(odd as usize / 2),
            even => Operation::Receive((even as usize - 2) / 2),
        }
    }
}
