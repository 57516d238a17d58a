//! What must become of elements that atomic operations change.
//!
//! Each element is as if everything that was done with it had been done one after the other, in some order that agrees with what
//! is [known](crate::memory): there must be such an order in which every operation finds what it has fetched, and everybody who
//! looks finds what they saw. It is searched for. That the sum of all that was added is there, that nobody gets the same ticket
//! as somebody else, and that one wins who swaps, is part of that.
//!
//! Atomic operations and other accesses do not exclude each other. So an element is left out that was written otherwise while
//! something was done with it, and so is what was read at such a time.

use std::collections::HashSet;

use homespun::atomic::{AtomicOp, Datatype};

use crate::elements::{Element, ROWS, compare, element, operand, updated};
use crate::history::{Access, AccessOp};
use crate::memory::{Event, Known};

/// Something that was done with an element.
#[derive(Debug)]
struct Deed {
    access: usize,
    does: Does,
    /// Whether it has been done, or will be; if not it may have been.
    is_sure: bool,
    /// Those that come before it, a bit for each.
    after: u64,
}

#[derive(Debug)]
enum Does {
    /// Somebody has looked.
    Find(Element),
    Write(Element),
    Update {
        op: AtomicOp,
        datatype: Datatype,
        operands: [Element; 2],
        found: Option<Element>,
    },
}

impl Does {
    fn changes(&self) -> bool {
        match self {
            Does::Find(_) => false,
            Does::Write(_) => true,
            Does::Update { op, .. } => op.writes(),
        }
    }

    fn is_write(&self) -> bool {
        matches!(self, Does::Write(_))
    }

    /// What the element becomes, if it can be this one before.
    fn from(&self, before: Element) -> Option<Element> {
        match *self {
            Does::Find(found) => (found == before).then_some(before),
            Does::Write(element) => Some(element),
            Does::Update { op, datatype, operands: [operand, compare], found } => {
                let is_possible = found.is_none_or(|found| found == before);
                is_possible.then(|| updated(op, datatype, [before, operand, compare]))
            }
        }
    }
}

impl Known<'_> {
    /// Checks every element at the place.
    pub(crate) fn check_elements(&self) {
        for row in &ROWS {
            for place in row.places() {
                self.check_element(place, row.datatype);
            }
        }
    }

    fn check_element(&self, place: usize, datatype: Datatype) {
        let range = place..place + datatype.size_bytes();
        let mut nodes: Vec<(usize, usize, Does)> = Vec::new();
        for (node, event) in self.events.iter().enumerate() {
            let Event::Access(number) = *event else { continue };
            let access = &self.history.accesses[number];
            if access.covers(&range)
                && let Some(does) = does(number, access, place, datatype)
            {
                nodes.push((node, number, does));
            }
        }
        let is_beside = |one: usize, other: usize| {
            one != other && !self.is_before[one][other] && !self.is_before[other][one]
        };
        let is_contested = |(one, _, does): &(usize, usize, Does)| {
            let updates_or_writes = |does: &Does| !matches!(does, Does::Find(_));
            does.is_write()
                && nodes.iter().any(|(other, _, beside)| is_beside(*one, *other) && updates_or_writes(beside))
        };
        if nodes.iter().any(is_contested) {
            return;
        }
        let is_exact = |(one, _, does): &(usize, usize, Does)| {
            let is_clear =
                || nodes.iter().all(|(other, _, beside)| !is_beside(*one, *other) || !beside.changes());
            !matches!(does, Does::Find(_)) || is_clear()
        };
        let exact: Vec<bool> = nodes.iter().map(is_exact).collect();
        let nodes: Vec<_> = nodes.into_iter().zip(exact).filter(|(_, is_exact)| *is_exact).collect();
        assert!(nodes.len() < 64, "a program is not that long");
        let after = |node: usize| {
            let earlier = nodes.iter().map(|((earlier, ..), _)| self.is_before[*earlier][node]);
            earlier.enumerate().fold(0, |after, (bit, is_before)| after | u64::from(is_before) << bit)
        };
        let afters: Vec<u64> = nodes.iter().map(|((node, ..), _)| after(*node)).collect();
        let deeds = nodes.into_iter().zip(afters).map(|(((_, access, does), _), after)| {
            let is_sure = self.is_sure(&self.history.accesses[access]);
            Deed { access, does, is_sure, after }
        });
        let deeds: Vec<Deed> = deeds.collect();
        let explained = || {
            let accesses = &self.history.accesses;
            let of =
                |deed: &Deed| format!("\n{:?} by {:?}: {deed:x?}", deed.access, accesses[deed.access].by);
            deeds.iter().map(of).collect::<String>()
        };
        assert!(
            has_order(&deeds, 0, 0, &mut HashSet::new()),
            "in no order does the {datatype} at {place}, which was 0, become what was found: {}",
            explained()
        );
    }
}

/// What an access does with an element. `None` if it has not been heard of what it has read.
fn does(number: usize, access: &AccessOp, place: usize, datatype: Datatype) -> Option<Does> {
    let found = access.found.as_ref().map(|found| {
        let first = place - access.place;
        element(&found[first..first + datatype.size_bytes()])
    });
    match access.access {
        Access::Read => found.map(Does::Find),
        Access::Write => Some(Does::Write(operand(number, place))),
        Access::Update(op) | Access::Fetch(op) => {
            let operands = [operand(number, place), compare(number, place)];
            Some(Does::Update { op, datatype, operands, found })
        }
    }
}

/// Whether what is left can be done in some order with an element. `failed` is what is known not to lead to the end.
fn has_order(deeds: &[Deed], mut done: u64, before: Element, failed: &mut HashSet<(u64, Element)>) -> bool {
    let is_next = |done: u64, bit: usize| done >> bit & 1 == 0 && deeds[bit].after & !done == 0;
    // To look as soon as possible is no worse than later.
    while let Some(bit) = (0..deeds.len()).find(|&bit| {
        let changes = deeds[bit].does.changes();
        is_next(done, bit) && !changes && deeds[bit].does.from(before).is_some()
    }) {
        done |= 1 << bit;
    }
    if done.count_ones() as usize == deeds.len() {
        return true;
    }
    if !failed.insert((done, before)) {
        return false;
    }
    (0..deeds.len()).filter(|&bit| is_next(done, bit)).any(|bit| {
        let after = deeds[bit].does.from(before);
        let unless_done = (!deeds[bit].is_sure).then_some(before);
        after.into_iter().chain(unless_done).any(|element| has_order(deeds, done | 1 << bit, element, failed))
    })
}
