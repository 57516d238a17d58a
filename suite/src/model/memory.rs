//! The bytes that a read of a region may find.
//!
//! Only a part of the order of accesses to one region is known. An access precedes another if it ended
//! before the other was posted. Of two operations of one endpoint, a fence or the message order may fix the
//! order. Messages count, too, since an access may come before a message.
//!
//! Each byte that a read finds must come from a write that may be the last one before the read. Such a write
//! does not follow the read, and no other write is known to lie between the two. Accesses without a known
//! order may take effect in either order.
//!
//! The result of an atomic operation depends on the former value; the module
//! [`updates`](crate::model::updates) checks it.

use std::collections::BTreeSet;
use std::ops::Range;

use homespun::Errno;
use homespun::flags::Order;

use crate::model::accesses::{REGION_BYTES, bytes_to_write};
use crate::model::check::Promise;
use crate::model::history::{Access, AccessOp, History, Incarnation, Level, SendOp};
use crate::payload::marked_buffer;

pub(crate) fn check_accesses(history: &History, promise: Promise, order: Order) {
    check_accesses_end(history, promise);
    for place in (0..history.places.len()).filter(|&place| history.places[place].has_original_endpoint()) {
        let known = Known::of_place(history, place, promise, order);
        for (node, event) in known.events.iter().enumerate() {
            if let Event::Access(number) = *event
                && history.accesses[number].access == Access::Read
                && let Some(found) = &history.accesses[number].found
            {
                known.check_read(node, number, found);
            }
        }
        known.check_elements();
    }
    assert_fenced_accesses_wait_for_matches(history, promise);
}

/// Checks that the sends and accesses of an endpoint to one peer complete in posting order.
pub(crate) fn check_completion_order(history: &History) {
    let sends = history.sends.iter().filter(|send| !send.injected);
    let sends =
        sends.filter(|send| send.ended.is_some()).map(|it| (it.from, it.to, it.posted_at, it.ended_at));
    let accesses = history.accesses.iter().filter(|access| !access.injected && !access.is_direct_by_owner());
    let accesses = accesses.filter(|access| access.ended.is_some());
    let accesses = accesses.map(|it| (it.by, it.at.place, it.posted_at, it.ended_at));
    let mut ended: Vec<(Incarnation, usize, u64, u64)> = sends.chain(accesses).collect();
    ended.sort_unstable();
    for pair in ended.windows(2) {
        let [(from, to, _, first), (also_from, also_to, _, second)] = [pair[0], pair[1]];
        let is_one_stream = (from, to) == (also_from, also_to);
        assert!(!is_one_stream || first < second, "{from:?} heard of {pair:?} in another order");
    }
}

fn check_accesses_end(history: &History, promise: Promise) {
    for (number, access) in history.accesses.iter().enumerate() {
        if history.is_alive(access.by) {
            let is_cancelled = access.ended == Some(Err(Errno::ECANCELED));
            assert_eq!(access.cancelled, is_cancelled, "access {number}: {access:?}");
        }
        if !history.is_alive(access.by) || access.injected || access.cancelled {
            continue;
        }
        let result = access.ended.unwrap_or_else(|| panic!("access {number} never ended"));
        let may_fail = match promise {
            Promise::Everything => false,
            Promise::ToOpenReceivers => !history.places[access.at.place].has_original_endpoint(),
            Promise::AcknowledgedOnly => true,
        };
        assert!(result.is_ok() || may_fail, "access {number} failed: {access:?}");
        let is_to_be_told =
            access.has_data && result.is_ok() && history.places[access.at.place].has_original_endpoint();
        assert!(
            !is_to_be_told || access.data_read_at.is_some(),
            "the target was not told of access {number}: {access:?}"
        );
    }
}

/// An access to a region, or a message to its owner.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Event {
    Access(usize),
    Message(usize),
}

/// The known order of the events at one place.
pub(crate) struct Known<'a> {
    pub(crate) history: &'a History,
    pub(crate) events: Vec<Event>,
    /// Whether the first of two events is known to precede the second.
    pub(crate) is_before: Vec<Vec<bool>>,
    /// Whether no injected operation can fail.
    is_safe: bool,
}

impl Event {
    fn posted_at(self, history: &History) -> u64 {
        match self {
            Event::Access(number) => history.accesses[number].posted_at,
            Event::Message(number) => history.sends[number].posted_at,
        }
    }

    /// Returns the time by which the event is known to have ended.
    fn known_end_at(self, history: &History) -> Option<u64> {
        match self {
            Event::Access(number) => {
                let AccessOp { ended, ended_at, data_read_at, .. } = history.accesses[number];
                let ended_at = (ended == Some(Ok(()))).then_some(ended_at);
                ended_at.into_iter().chain(data_read_at).min()
            }
            Event::Message(number) => history.sends[number].seen_at,
        }
    }

    fn initiator(self, history: &History) -> Incarnation {
        match self {
            Event::Access(number) => history.accesses[number].by,
            Event::Message(number) => history.sends[number].from,
        }
    }

    /// Whether the event has a fence and was not cancelled.
    fn is_fenced(self, history: &History) -> bool {
        match self {
            Event::Access(number) => history.accesses[number].fenced && !history.accesses[number].cancelled,
            Event::Message(number) => history.sends[number].fenced && !history.sends[number].cancelled,
        }
    }

    fn as_access(self, history: &History) -> Option<&AccessOp> {
        match self {
            Event::Access(number) => Some(&history.accesses[number]),
            Event::Message(_) => None,
        }
    }
}

impl<'a> Known<'a> {
    fn of_place(history: &'a History, place: usize, promise: Promise, order: Order) -> Known<'a> {
        let accesses = (0..history.accesses.len()).filter(|&number| {
            let AccessOp { at, cancelled, .. } = history.accesses[number];
            at.place == place && !cancelled
        });
        let messages = (0..history.sends.len()).filter(|&number| {
            let SendOp { to, cancelled, .. } = history.sends[number];
            to == place && !cancelled
        });
        let mut events: Vec<Event> =
            accesses.map(Event::Access).chain(messages.map(Event::Message)).collect();
        events.sort_by_key(|event| event.posted_at(history));
        let count = events.len();
        let mut is_before = vec![vec![false; count]; count];
        for later in 0..count {
            for earlier in 0..later {
                let [first, second] = [events[earlier], events[later]];
                let is_over =
                    first.known_end_at(history).is_some_and(|over_at| over_at < second.posted_at(history));
                // Messages on a broken link may or may not arrive.
                let is_one_stream = promise != Promise::AcknowledgedOnly
                    && first.initiator(history) == second.initiator(history)
                    && [first, second].iter().all(|event| !event.is_direct_by_owner(history));
                let is_fenced = || {
                    let between = events[earlier + 1..=later].iter();
                    let mut between =
                        between.filter(|event| event.initiator(history) == first.initiator(history));
                    first.as_access(history).is_some() && between.any(|event| event.is_fenced(history))
                };
                let is_known = is_one_stream && (is_fenced() || is_ordered(history, first, second, order));
                is_before[earlier][later] = is_over || is_known;
            }
        }
        for middle in 0..count {
            let (before, others) = is_before.split_at_mut(middle);
            for first in before.iter_mut().filter(|first| first[middle]) {
                first.iter_mut().zip(&others[0]).for_each(|(is_before, is_later)| *is_before |= is_later);
            }
        }
        Known { history, events, is_before, is_safe: promise == Promise::Everything }
    }

    /// Whether an access is known to take effect, and not to be refused.
    pub(crate) fn is_known_to_take_effect(&self, access: &AccessOp) -> bool {
        access.ended == Some(Ok(())) || access.data_read_at.is_some() || access.injected && self.is_safe
    }

    fn check_read(&self, read: usize, number: usize, found: &[u8]) {
        let AccessOp { place, len_bytes, .. } = self.history.accesses[number];
        assert_eq!(found.len(), len_bytes);
        // The elements are behind this part, and have their own check.
        let len_bytes = len_bytes.min(REGION_BYTES.saturating_sub(place));
        let writes: Vec<(usize, usize, &AccessOp)> = self
            .events
            .iter()
            .enumerate()
            .filter_map(|(node, event)| match *event {
                Event::Access(write) => Some((node, write, &self.history.accesses[write])),
                Event::Message(_) => None,
            })
            .filter(|(node, _, access)| access.access == Access::Write && !self.is_before[read][*node])
            .collect();
        let mut ends: BTreeSet<usize> = [place, place + len_bytes].into();
        for (.., access) in &writes {
            ends.extend([access.place, access.place + access.len_bytes]);
        }
        let ends: Vec<usize> =
            ends.into_iter().filter(|end| (place..=place + len_bytes).contains(end)).collect();
        for range in ends.windows(2).map(|ends| ends[0]..ends[1]) {
            let here: Vec<_> = writes.iter().filter(|(.., access)| access.covers(&range)).collect();
            let is_over_written = |before: Option<usize>| {
                here.iter().any(|(node, _, access)| {
                    let is_later = before.is_none_or(|before| self.is_before[before][*node]);
                    is_later && self.is_before[*node][read] && self.is_known_to_take_effect(access)
                })
            };
            let mut candidates = Vec::new();
            if !is_over_written(None) {
                candidates.push((None, marked_buffer(range.len()).to_vec()));
            }
            for (node, write, access) in &here {
                if !is_over_written(Some(*node)) {
                    let bytes = bytes_to_write(*write, access.place, access.len_bytes);
                    let bytes = &bytes[range.start - access.place..range.end - access.place];
                    candidates.push((Some(*write), bytes.to_vec()));
                }
            }
            let found = &found[range.start - place..range.end - place];
            if candidates.iter().any(|(_, bytes)| bytes == found) {
                continue;
            }
            let stranger =
                (0..found.len()).find(|&at| !candidates.iter().any(|(_, bytes)| bytes[at] == found[at]));
            assert!(
                stranger.is_none(),
                "access {number} found at {range:?} what is none of {:?}; {:?}",
                candidates.iter().map(|(write, _)| write).collect::<Vec<_>>(),
                self.history.accesses[number]
            );
        }
    }
}

impl Event {
    fn is_direct_by_owner(self, history: &History) -> bool {
        self.as_access(history).is_some_and(AccessOp::is_direct_by_owner)
    }
}

impl AccessOp {
    pub(crate) fn covers(&self, range: &Range<usize>) -> bool {
        self.place <= range.start && range.end <= self.place + self.len_bytes
    }
}

/// The role of an operation in message order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Send,
    Read,
    Write,
}

/// Returns the roles of an operation. An atomic operation that fetches and changes elements is a read and a
/// write.
fn order_roles(event: Event, history: &History) -> &'static [Role] {
    match event.as_access(history).map(|access| access.access) {
        None => &[Role::Send],
        Some(Access::Flush) => &[],
        Some(Access::Read) => &[Role::Read],
        Some(Access::Fetch(op)) if !op.can_write() => &[Role::Read],
        Some(Access::Write | Access::Update(_)) => &[Role::Write],
        Some(Access::Fetch(_)) => &[Role::Read, Role::Write],
    }
}

/// Whether the message order forbids `second` to overtake `first`. Both are operations of one endpoint.
fn is_ordered(history: &History, first: Event, second: Event, order: Order) -> bool {
    let is_atomic = |event: Event| {
        event.as_access(history).is_some_and(|access| access.access.atomic_kind_and_op().is_some())
    };
    let are_alike = |rma: Order, atomic: Order| match (is_atomic(first), is_atomic(second)) {
        (false, false) => rma,
        (true, true) => atomic,
        _ => Order::empty(),
    };
    let orders = |first: Role, second: Role| match (first, second) {
        (Role::Send, Role::Send) => Order::SAS,
        (Role::Send, Role::Read) => Order::RAS,
        (Role::Send, Role::Write) => Order::WAS,
        (Role::Read, Role::Send) => Order::SAR,
        (Role::Write, Role::Send) => Order::SAW,
        (Role::Read, Role::Read) => Order::RAR | are_alike(Order::RMA_RAR, Order::ATOMIC_RAR),
        (Role::Write, Role::Read) => Order::RAW | are_alike(Order::RMA_RAW, Order::ATOMIC_RAW),
        (Role::Read, Role::Write) => Order::WAR | are_alike(Order::RMA_WAR, Order::ATOMIC_WAR),
        (Role::Write, Role::Write) => Order::WAW | are_alike(Order::RMA_WAW, Order::ATOMIC_WAW),
    };
    let (firsts, seconds) = (order_roles(first, history), order_roles(second, history));
    let is_flush = second.as_access(history).is_some_and(|access| access.access == Access::Flush);
    if is_flush && firsts.contains(&Role::Write) {
        return true;
    }
    firsts.iter().any(|first| seconds.iter().any(|second| order.intersects(orders(*first, *second))))
}

/// Checks that a fenced access ends only after earlier messages were matched. A fence waits for the match if
/// the message or the access has the match level.
fn assert_fenced_accesses_wait_for_matches(history: &History, promise: Promise) {
    for (number, fenced) in history.accesses.iter().enumerate() {
        if !fenced.fenced
            || fenced.ended != Some(Ok(()))
            || !history.places[fenced.at.place].has_original_endpoint()
        {
            continue;
        }
        for (message, send) in history.sends.iter().enumerate() {
            let is_before_it = send.from == fenced.by
                && send.to == fenced.at.place
                && send.posted_at < fenced.posted_at
                && !matches!(send.ended, Some(Err(_)));
            let is_known = promise != Promise::AcknowledgedOnly
                || send.level == Level::Match && send.ended == Some(Ok(()));
            if is_before_it && is_known && Level::Match == send.level.max(fenced.level) {
                let matched_at = history.match_posted_at(message);
                assert!(
                    matched_at.is_some_and(|matched_at| matched_at < fenced.ended_at),
                    "access {number} was past its fence at {}, and message {message}, before it, was matched \
                     at {matched_at:?}",
                    fenced.ended_at
                );
            }
        }
    }
}
