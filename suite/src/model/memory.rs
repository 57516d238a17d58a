//! The rules of regions: what accesses may find.
//!
//! The acceptor of an element, or of a range of bytes that accesses treat alike, keeps states of which
//! accesses have taken effect, and what is there. An access takes effect between its post and its end, after
//! the accesses that precede it: one precedes another if it ended before the other was posted, or if a fence
//! or the message order says so. Messages count, too, since an access may come before a message. A failed
//! access may have taken effect or not. States are looked for only when another access is posted, and at the
//! end: between two posts, ends only tell which accesses must have taken effect.
//!
//! Bytes have the number of the write that left them. Where writes race, a read may find bytes of several;
//! each run of bytes of one write is a range of its own. Atomic operations and plain accesses do not exclude
//! each other. If a plain write and another write or atomic operation have no known order, the element is not
//! checked. If a plain read and a change of the element have no known order, the read is not checked.

use std::ops::Range;

use crate::model::accesses::bytes_to_write;
use crate::model::prelude::*;

/// Follows every element and every range of bytes of the regions whose endpoints stayed open.
pub(crate) fn accept_accesses(
    history: &History,
    disruption: Disruption,
    order: Order,
) -> Result<(), Violation> {
    for place in (0..history.places.len()).filter(|&place| history.places[place].has_original_endpoint()) {
        let known = Known::of_place(history, place, disruption, order);
        for range in known.byte_ranges() {
            accept(&known.cell_of_bytes(range)?, history)?;
        }
        for row in &ROWS {
            for place in row.element_offsets() {
                if let Some(cell) = known.cell_of_element(place, row.datatype) {
                    accept(&cell, history)?;
                }
            }
        }
    }
    Ok(())
}

/// The known order of the accesses to one region, and of the messages to its owner.
struct Known<'a> {
    history: &'a History,
    events: Vec<Operation>,
    /// Whether the first of two events is known to precede the second.
    is_before: Vec<Vec<bool>>,
    /// Whether no injected operation can fail.
    is_safe: bool,
    /// The bytes of each plain write.
    written: BTreeMap<usize, Bytes>,
}

impl History {
    /// Returns what is common to accesses and messages.
    fn common(&self, event: Operation) -> &Post {
        self.post_of(event).expect("an access or a message")
    }

    /// Returns the time by which an access or a message is known to have ended.
    fn known_end_at(&self, event: Operation) -> Option<u64> {
        let Some(access) = self.as_access(event) else {
            let Operation::Send(message) = event else { return None };
            return self.sends[message].seen_at;
        };
        let ended_at = access.post.has_succeeded().then_some(access.post.ended_at);
        ended_at.into_iter().chain(access.data_read_at).min()
    }

    fn as_access(&self, event: Operation) -> Option<&AccessOp> {
        if let Operation::Access(number) = event { Some(&self.accesses[number]) } else { None }
    }
}

impl<'a> Known<'a> {
    fn of_place(history: &'a History, place: usize, disruption: Disruption, order: Order) -> Known<'a> {
        let accesses = (0..history.accesses.len()).map(Operation::Access);
        let events = accesses.chain((0..history.sends.len()).map(Operation::Send)).filter(|&event| {
            let post = history.common(event);
            post.to == place && !post.cancelled
        });
        let mut events: Vec<Operation> = events.collect();
        events.sort_by_key(|event| history.common(*event).posted_at);
        let count = events.len();
        let mut is_before = vec![vec![false; count]; count];
        for later in 0..count {
            for earlier in 0..later {
                let [first, second] = [events[earlier], events[later]];
                let [one, other] = [first, second].map(|event| history.common(event));
                let is_over = history.known_end_at(first).is_some_and(|over_at| over_at < other.posted_at);
                // Messages on a broken link may or may not arrive.
                let is_one_stream = disruption != Disruption::Killing
                    && one.by == other.by
                    && !one.is_direct_by_owner()
                    && !other.is_direct_by_owner();
                let is_fenced = || {
                    let mut between = events[earlier + 1..=later].iter().map(|event| history.common(*event));
                    history.as_access(first).is_some() && between.any(|post| post.by == one.by && post.fenced)
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
        let is_safe = disruption == Disruption::None;
        let mut known = Known { history, events, is_before, is_safe, written: BTreeMap::new() };
        let writes = known.byte_accesses(Access::Write);
        let bytes = writes.map(|(_, number, op)| (number, bytes_to_write(number, op.place, op.len_bytes)));
        known.written = bytes.collect();
        known
    }

    /// Whether an access is known to take effect, and not to be refused.
    fn is_known_to_take_effect(&self, access: &AccessOp) -> bool {
        let Post { injected, .. } = access.post;
        access.post.has_succeeded() || access.data_read_at.is_some() || injected && self.is_safe
    }

    /// Returns the accesses of plain bytes, with their places among the events.
    fn byte_accesses(&self, access: Access) -> impl Iterator<Item = (usize, usize, &AccessOp)> {
        self.events.iter().enumerate().filter_map(move |(node, event)| {
            let Operation::Access(number) = *event else { return None };
            let op = &self.history.accesses[number];
            (op.access == access && op.place < REGION_BYTES).then_some((node, number, op))
        })
    }

    /// Divides the region where an access begins or ends, and where a read has found bytes of another write.
    fn byte_ranges(&self) -> Vec<Range<usize>> {
        let ends = self.byte_accesses(Access::Read).chain(self.byte_accesses(Access::Write));
        let ends = ends.flat_map(|(.., op)| [op.place, op.place + op.len_bytes]);
        let mut ends: BTreeSet<usize> = ends.map(|end| end.min(REGION_BYTES)).collect();
        for range in between(&ends) {
            let written = self.written_bytes(&range);
            for (.., read) in self.byte_accesses(Access::Read) {
                let Some(found) = read.found_in(&range) else { continue };
                let mut at = 0;
                while at < found.len() {
                    let run = |(_, bytes): &(Element, Vec<u8>)| {
                        bytes[at..].iter().zip(&found[at..]).take_while(|(one, other)| one == other).count()
                    };
                    at += written.iter().map(run).max().unwrap_or(0).max(1);
                    ends.insert(range.start + at);
                }
            }
        }
        between(&ends)
    }

    /// Returns what each write leaves in a range, and what is there at first.
    fn written_bytes(&self, range: &Range<usize>) -> Vec<(Element, Vec<u8>)> {
        let writes = self.byte_accesses(Access::Write).filter(|(.., op)| op.covers(range));
        let written = writes.map(|(_, number, op)| {
            let bytes = &self.written[&number][range.start - op.place..range.end - op.place];
            (number as Element + 1, bytes.to_vec())
        });
        [(0, marked_buffer(range.len()).to_vec())].into_iter().chain(written).collect()
    }

    /// Returns the rules of a range of bytes, unless a read has found bytes that were never there.
    ///
    /// Shows fi_rma/reads-return-memory.
    fn cell_of_bytes(&self, range: Range<usize>) -> Result<Cell<'_>, Violation> {
        let written = self.written_bytes(&range);
        let writes = self.byte_accesses(Access::Write).filter(|(.., op)| op.covers(&range));
        let writes = writes.map(|(node, number, _)| (node, number, Effect::Write(number as Element + 1)));
        let mut nodes: Vec<(usize, usize, Effect)> = writes.collect();
        for (node, number, read) in self.byte_accesses(Access::Read) {
            let Some(found) = read.found_in(&range) else { continue };
            let sources = written.iter().filter(|(_, bytes)| bytes == found).map(|(write, _)| *write);
            let sources: Vec<Element> = sources.collect();
            if sources.is_empty() {
                let expected = format!("no write has left {found:x?} in bytes {range:?}, which it has found");
                let event = format!("access {number} by {:?} at {}", read.post.by, read.post.posted_at);
                return Err(Violation { clause: "fi_rma/reads-return-memory", event, expected });
            }
            nodes.push((node, number, Effect::Find(sources)));
        }
        Ok(self.cell(format!("bytes {range:?}"), "fi_endpoint/data-order", nodes))
    }

    fn cell_of_element(&self, place: usize, datatype: Datatype) -> Option<Cell<'_>> {
        let range = place..place + datatype.size_bytes();
        let nodes = self.events.iter().enumerate().filter_map(|(node, event)| {
            let Operation::Access(number) = *event else { return None };
            let access = &self.history.accesses[number];
            let does = access.covers(&range).then(|| effect_on_element(number, access, place, datatype))?;
            Some((node, number, does?))
        });
        let mut nodes: Vec<(usize, usize, Effect)> = nodes.collect();
        let is_beside = |one: usize, other: usize| {
            one != other && !self.is_before[one][other] && !self.is_before[other][one]
        };
        let is_contested = |(one, _, does): &(usize, usize, Effect)| {
            let changes = |does: &Effect| !matches!(does, Effect::Find(_));
            matches!(does, Effect::Write(_))
                && nodes.iter().any(|(other, _, beside)| is_beside(*one, *other) && changes(beside))
        };
        if nodes.iter().any(is_contested) {
            return None;
        }
        let is_exact = |(one, _, does): &(usize, usize, Effect)| {
            let is_clear =
                || nodes.iter().all(|(other, _, beside)| !is_beside(*one, *other) || !beside.can_change());
            !matches!(does, Effect::Find(_)) || is_clear()
        };
        let exact: Vec<bool> = nodes.iter().map(is_exact).collect();
        let mut exact = exact.into_iter();
        nodes.retain(|_| exact.next() == Some(true));
        Some(self.cell(format!("the {datatype} at {place}"), "fi_atomic/atomic-per-element", nodes))
    }

    fn cell(&self, what: String, clause: &'static str, nodes: Vec<(usize, usize, Effect)>) -> Cell<'_> {
        assert!(nodes.len() < 128, "a program is not that long");
        let after = |node: usize| {
            let earlier = nodes.iter().map(|(earlier, ..)| self.is_before[*earlier][node]);
            earlier.enumerate().fold(0, |after, (bit, is_before)| after | u128::from(is_before) << bit)
        };
        let afters: Vec<u128> = nodes.iter().map(|(node, ..)| after(*node)).collect();
        let ops = nodes.into_iter().zip(afters).map(|((node, access, does), after)| {
            let is_sure = self.is_known_to_take_effect(&self.history.accesses[access]);
            let over_at = self.history.known_end_at(self.events[node]);
            CellOp { access, does, is_sure, over_at, after }
        });
        Cell { history: self.history, what, clause, ops: ops.collect() }
    }
}

/// Returns the ranges between neighbouring ends.
fn between(ends: &BTreeSet<usize>) -> Vec<Range<usize>> {
    ends.iter().zip(ends.iter().skip(1)).map(|(begin, end)| *begin..*end).collect()
}

/// The rules of one element, or of one range of bytes.
struct Cell<'a> {
    history: &'a History,
    what: String,
    clause: &'static str,
    ops: Vec<CellOp>,
}

/// An access to it.
#[derive(Debug)]
struct CellOp {
    access: usize,
    does: Effect,
    /// Whether the access certainly takes effect. Otherwise it may or may not.
    is_sure: bool,
    over_at: Option<u64>,
    /// The accesses that precede this one, a bit for each.
    after: u128,
}

#[derive(Debug)]
enum Effect {
    /// A read has found one of these.
    Find(Vec<Element>),
    Write(Element),
    Update {
        op: AtomicOp,
        datatype: Datatype,
        operands: [Element; 2],
        found: Option<Element>,
    },
}

impl Effect {
    fn can_change(&self) -> bool {
        match self {
            Effect::Find(_) => false,
            Effect::Write(_) => true,
            Effect::Update { op, .. } => op.can_write(),
        }
    }

    /// Returns the element after the operation. Returns `None` if the operation cannot have found `before`.
    fn element_after(&self, before: Element) -> Option<Element> {
        match *self {
            Effect::Find(ref found) => found.contains(&before).then_some(before),
            Effect::Write(element) => Some(element),
            Effect::Update { op, datatype, operands: [operand, compare], found } => {
                let is_possible = found.is_none_or(|found| found == before);
                is_possible.then(|| apply_atomic(op, datatype, [before, operand, compare]))
            }
        }
    }
}

/// Returns the effect of an access on an element, or `None` for a plain read whose result is unknown.
fn effect_on_element(number: usize, access: &AccessOp, place: usize, datatype: Datatype) -> Option<Effect> {
    let found = access.found_in(&(place..place + datatype.size_bytes())).map(element_from_bytes);
    match access.access {
        Access::Read => found.map(|found| Effect::Find(vec![found])),
        Access::Flush => None,
        Access::Write => Some(Effect::Write(operand_value(number, place))),
        Access::Update(op) | Access::Fetch(op) => {
            let operands = [operand_value(number, place), compare_value(number, place)];
            Some(Effect::Update { op, datatype, operands, found })
        }
    }
}

impl Rules for Cell<'_> {
    /// The accesses that have taken effect, or never will, a bit for each; and what is there.
    type State = (u128, Element);

    fn start(&self) -> (u128, Element) {
        (0, 0)
    }

    fn concerns(&self, event: Event) -> bool {
        let is_posted = |op: &CellOp| event == Event::Posted(Operation::Access(op.access));
        event == Event::Finished || self.ops.iter().any(is_posted)
    }

    /// Shows fi_endpoint/data-order, fi_atomic/atomic-per-element.
    fn step(
        &self,
        state: &(u128, Element),
        now: u64,
        event: Event,
    ) -> Result<Vec<(u128, Element)>, Rejection> {
        let is_end = event == Event::Finished;
        let is_due = |op: &CellOp| is_end || op.over_at.is_some_and(|over_at| over_at < now);
        let bits = (0..).zip(&self.ops);
        let due = bits.filter(|(_, op)| is_due(op)).fold(0, |due, (bit, _)| due | 1 << bit);
        let states = self.states_after(*state, due, now, is_end);
        require(!states.is_empty(), self.clause, || {
            let of = |op: &CellOp| format!("\n{op:x?} by {:?}", self.history.accesses[op.access].post.by);
            let ops: String = self.ops.iter().map(of).collect();
            format!("in no order do {}, which were 0, become what was found: {ops}", self.what)
        })
        .map_err(|rejection| Rejection { at: self.first_unexplained(*state, now), ..rejection })?;
        Ok(states)
    }
}

impl Cell<'_> {
    /// Returns the end of the first access before which all ends can be explained.
    fn first_unexplained(&self, state: (u128, Element), now: u64) -> Option<Event> {
        let mut over: Vec<(u64, usize)> = (0..)
            .zip(&self.ops)
            .filter_map(|(bit, op)| Some((op.over_at.filter(|at| *at < now)?, bit)))
            .collect();
        over.sort_unstable();
        let mut due = 0;
        let (_, bit) = over.into_iter().find(|&(over_at, bit)| {
            due |= 1 << bit;
            self.states_after(state, due, over_at + 1, true).is_empty()
        })?;
        Some(Event::Ended(Operation::Access(self.ops[bit].access)))
    }

    /// Returns the states in which the accesses `due` have taken effect; only one of them if one is enough.
    fn states_after(
        &self,
        state: (u128, Element),
        due: u128,
        now: u64,
        one_is_enough: bool,
    ) -> Vec<(u128, Element)> {
        let (mut seen, mut open, mut found) = (BTreeSet::new(), vec![state], Vec::new());
        while let Some((mut done, before)) = open.pop() {
            let is_next = |done: u128, bit: usize| {
                let op = &self.ops[bit];
                let posted_at = self.history.accesses[op.access].post.posted_at;
                done >> bit & 1 == 0 && op.after & !done == 0 && posted_at < now
            };
            // A read as early as possible is no worse than a later one.
            while let Some(bit) = (0..self.ops.len()).find(|&bit| {
                let does = &self.ops[bit].does;
                is_next(done, bit) && !does.can_change() && does.element_after(before).is_some()
            }) {
                done |= 1 << bit;
            }
            if !seen.insert((done, before)) {
                continue;
            }
            if due & !done == 0 {
                found.push((done, before));
                if one_is_enough {
                    break;
                }
                continue;
            }
            for bit in (0..self.ops.len()).filter(|&bit| is_next(done, bit)) {
                let op = &self.ops[bit];
                let skipped = (!op.is_sure).then_some(before);
                let after = op.does.element_after(before).into_iter().chain(skipped);
                open.extend(after.map(|element| (done | 1 << bit, element)));
            }
        }
        found
    }
}

impl AccessOp {
    fn covers(&self, range: &Range<usize>) -> bool {
        self.place <= range.start && range.end <= self.place + self.len_bytes
    }

    /// Returns what the access has found in a range, if it has read all of it.
    fn found_in(&self, range: &Range<usize>) -> Option<&[u8]> {
        let found = self.found.as_ref().filter(|_| self.covers(range))?;
        Some(&found[range.start - self.place..range.end - self.place])
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
fn order_roles(event: Operation, history: &History) -> &'static [Role] {
    match history.as_access(event).map(|access| access.access) {
        None => &[Role::Send],
        Some(Access::Flush) => &[],
        Some(Access::Read) => &[Role::Read],
        Some(Access::Fetch(op)) if !op.can_write() => &[Role::Read],
        Some(Access::Write | Access::Update(_)) => &[Role::Write],
        Some(Access::Fetch(_)) => &[Role::Read, Role::Write],
    }
}

/// Whether the message order forbids `second` to overtake `first`. Both are operations of one endpoint.
fn is_ordered(history: &History, first: Operation, second: Operation, order: Order) -> bool {
    let is_atomic =
        |event| history.as_access(event).is_some_and(|access| access.access.atomic_kind_and_op().is_some());
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
    let is_flush = history.as_access(second).is_some_and(|access| access.access == Access::Flush);
    if is_flush && firsts.contains(&Role::Write) {
        return true;
    }
    firsts.iter().any(|first| seconds.iter().any(|second| order.intersects(orders(*first, *second))))
}
