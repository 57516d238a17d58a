//! The history of a program: its calls and their results.

use crate::model::prelude::*;

/// All accepted posts, in posting order, with their results, and what happened at which time.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The events. The first one happens at time 1.
    pub(crate) events: Vec<Event>,
    pub(crate) sends: Vec<SendOp>,
    pub(crate) receives: Vec<ReceiveOp>,
    pub(crate) peeks: Vec<PeekOp>,
    pub(crate) accesses: Vec<AccessOp>,
    /// The addresses of the program, with the endpoints that each had.
    pub(crate) places: Vec<AddressHistory>,
    /// Whether the endpoints have a connection.
    pub(crate) is_connected: bool,
    /// The number of receives that were posted before all sends.
    pub(crate) posted_first: usize,
    /// Whether links between endpoints that live may break.
    pub(crate) breaks_links: bool,
    /// Whether an operation to an endpoint that was killed may never end. No man page says that it does.
    pub(crate) may_wait_for_killed: bool,
}

/// What the test observes: an accepted call, or an entry that it has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// An operation was posted.
    Posted(Operation),
    /// The receive or discard of a claimed message was posted.
    ClaimPosted(usize),
    /// A receive has got a message.
    Took { receive: usize, message: usize },
    /// An operation has ended, a receive without a message, or the receive of a claimed message.
    Ended(Operation),
    /// A receive could not be cancelled.
    TooLate(usize),
    /// The target has read the remote data of an access.
    DataRead(usize),
    /// The injected accesses have taken effect, unless one of them has failed.
    InjectedDone,
    /// All operations have ended, and all messages were received.
    Finished,
}

/// The successive endpoints at one address.
#[derive(Debug, Default)]
pub(crate) struct AddressHistory {
    /// The ways in which the former endpoints ended.
    pub(crate) ends: Vec<End>,
    pub(crate) is_vacant: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Closed,
    Killed,
}

/// An endpoint: the number of its address, and how many endpoints had this address before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Incarnation {
    pub(crate) place: usize,
    pub(crate) life: usize,
}

/// The completion level of a send or an access.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    #[default]
    Inject,
    Transmit,
    Delivery,
    Match,
}

/// What an accepted send and an accepted access have in common.
#[derive(Debug, Default)]
pub(crate) struct Post {
    /// The initiator; the owner of the region if it accessed its memory itself.
    pub(crate) by: Incarnation,
    /// The place of the target, whichever endpoint is there.
    pub(crate) to: usize,
    /// The level of its completion, and the one for which its fence waits.
    pub(crate) level: Level,
    pub(crate) fenced: bool,
    /// Whether it was injected. The success of an injected operation is not reported, and the entry of a
    /// failure has no context.
    pub(crate) injected: bool,
    pub(crate) posted_at: u64,
    pub(crate) cancelled: bool,
    pub(crate) ended: Option<Result<(), Errno>>,
    pub(crate) ended_at: u64,
}

/// A message that was accepted for sending. The index in the history is its identity.
#[derive(Debug, Default)]
pub(crate) struct SendOp {
    pub(crate) post: Post,
    pub(crate) tag: Option<u64>,
    pub(crate) len_bytes: usize,
    /// The operation that matched the message, if any did: a receive, or a peek that claimed or discarded it.
    pub(crate) taker: Option<Operation>,
    /// The time at which a read entry first showed that the message has arrived.
    pub(crate) seen_at: Option<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct ReceiveOp {
    pub(crate) at: Incarnation,
    pub(crate) tagged: Option<(u64, u64)>,
    /// The only source that the receive accepts, if it names one.
    pub(crate) from: Option<usize>,
    pub(crate) len_bytes: usize,
    pub(crate) posted_at: u64,
    /// When a cancel was accepted.
    pub(crate) cancel_asked_at: Option<u64>,
    pub(crate) cancelled: bool,
    /// Whether a cancel came too late, so that the receive completes as usual.
    pub(crate) too_late_to_cancel: bool,
    /// How the receive has ended, and `None` if it waited to the end.
    pub(crate) ended: Option<ReceiveEnd>,
    /// The state of a multi-receive buffer.
    pub(crate) buffer: Option<BufferOp>,
}

/// A receive that takes many messages, until it is released.
#[derive(Debug)]
pub(crate) struct BufferOp {
    pub(crate) min_free_bytes: usize,
    pub(crate) took: Vec<usize>,
    /// Whether a message was lost while it arrived in the buffer.
    pub(crate) has_lost: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReceiveEnd {
    /// The receive got the message with this identity, maybe truncated.
    Took(usize),
    /// The multi-receive buffer was released.
    Released,
    Cancelled,
    /// The receive failed. The link to the sender ended in the middle of a message, or the only source that
    /// the receive accepts was lost.
    Broken(Errno),
}

/// A peek at the tagged messages that have arrived.
#[derive(Debug)]
pub(crate) struct PeekOp {
    pub(crate) at: Incarnation,
    pub(crate) tagged: (u64, u64),
    pub(crate) from: Option<usize>,
    pub(crate) then: PeekAction,
    pub(crate) posted_at: u64,
    pub(crate) ended: Option<PeekEnd>,
    /// The receive or discard of the message that the peek claimed.
    pub(crate) claim: Option<ClaimOp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeekEnd {
    /// The peek found the message with this identity.
    Found(usize),
    Nothing,
}

/// The receive or discard of a claimed message.
#[derive(Debug)]
pub(crate) struct ClaimOp {
    pub(crate) len_bytes: usize,
    pub(crate) discards: bool,
    pub(crate) posted_at: u64,
    /// Fails if the sender was lost before the whole message had arrived.
    pub(crate) ended: Option<Result<(), Errno>>,
}

/// An accepted access to a region, by a peer or by the region's owner. The index in the history is its
/// identity.
#[derive(Debug, Default)]
pub(crate) struct AccessOp {
    pub(crate) post: Post,
    pub(crate) access: Access,
    /// The offset and the length in the region.
    pub(crate) place: usize,
    pub(crate) len_bytes: usize,
    /// Whether the access has remote data. Remote data produces a completion at the target.
    pub(crate) has_data: bool,
    /// The time at which the target read that completion.
    pub(crate) data_read_at: Option<u64>,
    /// The bytes that were read or fetched.
    pub(crate) found: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Access {
    #[default]
    Read,
    Write,
    /// Elements are changed.
    Update(AtomicOp),
    /// Elements are fetched, and maybe changed.
    Fetch(AtomicOp),
    /// Earlier writes become visible.
    Flush,
}

impl Post {
    /// The flags of the post.
    pub(crate) fn flags(&self) -> OpFlags {
        // That of injection is the default level.
        let mut flags = match self.level {
            Level::Inject => OpFlags::empty(),
            Level::Transmit => OpFlags::TRANSMIT_COMPLETE,
            Level::Delivery => OpFlags::DELIVERY_COMPLETE,
            Level::Match => OpFlags::MATCH_COMPLETE,
        };
        flags.set(OpFlags::FENCE, self.fenced);
        flags
    }

    /// Whether the owner of a region accessed it directly, without a post.
    pub(crate) fn is_direct_by_owner(&self) -> bool {
        self.posted_at == self.ended_at
    }

    pub(crate) fn has_succeeded(&self) -> bool {
        self.ended == Some(Ok(()))
    }

    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.ended, Some(Err(_)))
    }

    /// Whether later operations with a fence wait for this one. An endpoint that was closed may not have read
    /// the end of an operation that it had cancelled.
    pub(crate) fn delays_fences(&self) -> bool {
        !self.has_failed() && !self.cancelled
    }

    /// Returns whether a cancel was accepted, which may change, and whether it has ended.
    fn cancellation(&mut self) -> (&mut bool, bool) {
        (&mut self.cancelled, self.ended.is_some())
    }

    /// Records the end, of which there is only one.
    pub(crate) fn end(&mut self, result: Result<(), Errno>, now: u64) {
        assert_eq!(self.ended, None, "it ended again, with {result:?}: {self:?}");
        (self.ended, self.ended_at) = (Some(result), now);
    }
}

impl SendOp {
    /// Whether the send has succeeded at a level that implies that the receiver has the message.
    pub(crate) fn is_known_to_arrive(&self) -> bool {
        self.post.level > Level::Inject && self.post.has_succeeded()
    }

    /// Whether a receive with this tag and source matches the message, if it is for that receiver.
    pub(crate) fn matches(&self, tagged: Option<(u64, u64)>, from: Option<usize>) -> bool {
        let tag_fits = match (tagged, self.tag) {
            (None, None) => true,
            (Some((tag, ignore)), Some(sent)) => (tag ^ sent) & !ignore == 0,
            _ => false,
        };
        tag_fits && from.is_none_or(|from| from == self.post.by.place)
    }
}

impl ReceiveOp {
    pub(crate) fn accepts(&self, send: &SendOp) -> bool {
        self.at.place == send.post.to && send.matches(self.tagged, self.from)
    }
}

impl PeekOp {
    pub(crate) fn accepts(&self, send: &SendOp) -> bool {
        self.at.place == send.post.to && send.matches(Some(self.tagged), self.from)
    }

    /// Whether the peek has claimed a message that no operation has received or discarded.
    pub(crate) fn has_unreceived_claim(&self) -> bool {
        self.then == PeekAction::Claim
            && matches!(self.ended, Some(PeekEnd::Found(_)))
            && self.claim.is_none()
    }
}

impl AddressHistory {
    /// Whether the first endpoint of this place is still open.
    pub(crate) fn has_original_endpoint(&self) -> bool {
        self.ends.is_empty()
    }
}

impl History {
    /// Returns the history of endpoints that have made no call.
    pub(crate) fn of_places(count: usize) -> History {
        History { places: (0..count).map(|_| AddressHistory::default()).collect(), ..History::default() }
    }

    /// Records an event, and returns its time.
    pub(crate) fn record(&mut self, event: Event) -> u64 {
        self.events.push(event);
        self.events.len() as u64
    }

    /// Describes an event and its operation.
    pub(crate) fn describe(&self, event: Event) -> String {
        let of = |operation: Operation| match operation {
            Operation::Send(send) => format!("{:?}", self.sends[send]),
            Operation::Receive(receive) => format!("{:?}", self.receives[receive]),
            Operation::Peek(peek) => format!("{:?}", self.peeks[peek]),
            Operation::Access(access) => format!("{:?}", self.accesses[access]),
        };
        match event {
            Event::Posted(operation) | Event::Ended(operation) => format!("{event:?}, {}", of(operation)),
            Event::Took { receive, message } => {
                format!("{event:?}, {}, {}", of(Operation::Receive(receive)), of(Operation::Send(message)))
            }
            event => format!("{event:?}"),
        }
    }

    /// Returns the endpoint at a place, or the last one that was there.
    pub(crate) fn incarnation_at(&self, place: usize) -> Incarnation {
        let AddressHistory { ends, is_vacant } = &self.places[place];
        Incarnation { place, life: ends.len() - usize::from(*is_vacant) }
    }

    pub(crate) fn is_alive(&self, who: Incarnation) -> bool {
        self.incarnation_at(who.place) == who && !self.places[who.place].is_vacant
    }

    pub(crate) fn was_killed(&self, who: Incarnation) -> bool {
        self.places[who.place].ends.get(who.life) == Some(&End::Killed)
    }

    /// Returns the source that a completion names for an endpoint.
    pub(crate) fn source_of(&self, place: usize) -> FabricAddress {
        if self.is_connected { FabricAddress::UNSPECIFIED } else { FabricAddress(place as u64) }
    }

    /// Whether an operation that needs the endpoint at a place may never end.
    pub(crate) fn may_wait_forever_for(&self, place: usize) -> bool {
        self.may_wait_for_killed && !self.places[place].ends.is_empty()
    }

    pub(crate) fn record_endpoint_end(&mut self, place: usize, end: End) {
        self.places[place].ends.push(end);
        self.places[place].is_vacant = true;
    }

    /// Records which operation has got a message. Panics if another one has.
    pub(crate) fn record_taker(&mut self, message: usize, taker: Operation) {
        let before = self.sends[message].taker.replace(taker);
        assert_eq!(before, None, "message {message} turned up again: {taker:?}");
    }

    /// Returns what is common to all sends and accesses.
    pub(crate) fn posts(&self) -> impl Iterator<Item = &Post> {
        let sends = self.sends.iter().map(|send| &send.post);
        sends.chain(self.accesses.iter().map(|access| &access.post))
    }

    /// Returns what is common to sends and accesses.
    pub(crate) fn post_of(&self, operation: Operation) -> Option<&Post> {
        match operation {
            Operation::Send(send) => Some(&self.sends[send].post),
            Operation::Access(access) => Some(&self.accesses[access].post),
            Operation::Receive(_) | Operation::Peek(_) => None,
        }
    }

    /// Returns when the operation that matched a message was posted.
    pub(crate) fn taken_at(&self, message: usize) -> Option<u64> {
        match self.sends[message].taker? {
            Operation::Receive(receive) => Some(self.receives[receive].posted_at),
            Operation::Peek(peek) => Some(self.peeks[peek].posted_at),
            Operation::Send(_) | Operation::Access(_) => None,
        }
    }

    /// Records the post of a message.
    pub(crate) fn post_send(&mut self, mut post: Post, tag: Option<u64>, len_bytes: usize) {
        post.posted_at = self.record(Event::Posted(Operation::Send(self.sends.len())));
        self.sends.push(SendOp { post, tag, len_bytes, ..SendOp::default() });
    }

    /// Records the post of a receive.
    pub(crate) fn post_receive(
        &mut self,
        at: Incarnation,
        tagged: Option<(u64, u64)>,
        from: Option<usize>,
        len_bytes: usize,
    ) -> &mut ReceiveOp {
        let posted_at = self.record(Event::Posted(Operation::Receive(self.receives.len())));
        let op = ReceiveOp { at, tagged, from, len_bytes, posted_at, ..ReceiveOp::default() };
        self.receives.push_mut(op)
    }

    /// Records the post of a peek.
    pub(crate) fn post_peek(
        &mut self,
        at: Incarnation,
        tagged: (u64, u64),
        from: Option<usize>,
        then: PeekAction,
    ) -> &mut PeekOp {
        let posted_at = self.record(Event::Posted(Operation::Peek(self.peeks.len())));
        self.peeks.push_mut(PeekOp { at, tagged, from, then, posted_at, ended: None, claim: None })
    }

    /// Whether a living target has not yet read the remote data of a successful write.
    pub(crate) fn is_untold(&self, access: &AccessOp) -> bool {
        let is_to_be_told = access.has_data && access.post.has_succeeded();
        is_to_be_told && access.data_read_at.is_none() && self.places[access.post.to].has_original_endpoint()
    }

    /// Records the post of an access to a part of a region.
    pub(crate) fn post_access(
        &mut self,
        mut post: Post,
        access: Access,
        (place, len_bytes): (usize, usize),
    ) -> &mut AccessOp {
        post.posted_at = self.record(Event::Posted(Operation::Access(self.accesses.len())));
        self.accesses.push_mut(AccessOp { post, access, place, len_bytes, ..AccessOp::default() })
    }

    /// Records that a receive has got a message.
    pub(crate) fn record_taken(&mut self, receive: usize, message: usize) {
        let now = self.record(Event::Took { receive, message });
        self.record_taker(message, Operation::Receive(receive));
        self.record_seen(message, now);
    }

    /// Records that a read entry shows that a message has arrived.
    pub(crate) fn record_seen(&mut self, message: usize, now: u64) {
        self.sends[message].seen_at.get_or_insert(now);
    }

    /// Returns when the operation that matched or discarded a message was posted. Returns `None` if the
    /// message has not arrived, or is claimed and not yet received.
    pub(crate) fn match_posted_at(&self, message: usize) -> Option<u64> {
        match self.sends[message].taker? {
            Operation::Peek(peek) if self.peeks[peek].then == PeekAction::Claim => {
                self.peeks[peek].claim.as_ref().map(|claim| claim.posted_at)
            }
            _ => self.taken_at(message),
        }
    }

    /// Records the result of a cancel.
    pub(crate) fn record_cancel(&mut self, operation: Operation, result: &Result<(), Error>) {
        let now = self.events.len() as u64;
        if let (Operation::Receive(receive), Err(_)) = (operation, result)
            && self.receives[receive].cancel_asked_at.is_none()
        {
            self.record(Event::TooLate(receive));
        }
        let (cancelled, has_ended) = match operation {
            Operation::Send(send) => self.sends[send].post.cancellation(),
            Operation::Access(access) => self.accesses[access].post.cancellation(),
            Operation::Receive(receive) => {
                let receive = &mut self.receives[receive];
                receive.too_late_to_cancel |= result.is_err() && !receive.cancelled;
                if result.is_ok() {
                    receive.cancel_asked_at.get_or_insert(now);
                }
                (&mut receive.cancelled, receive.ended.is_some())
            }
            Operation::Peek(peek) => {
                assert!(result.is_err(), "peek {peek} ends at once, and was cancelled nevertheless");
                return;
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
    /// A peek, or the receive of its claimed message, which has the same context.
    Peek(usize),
    Access(usize),
}

impl Operation {
    /// Returns the context of the operation. Injected messages have 0.
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
