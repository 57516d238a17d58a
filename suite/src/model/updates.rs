//! Checks the elements that atomic operations change.
//!
//! The operations on one element must be linearizable. The check searches for an order of them that agrees
//! with the [known](crate::model::memory) order and explains every value that was read or fetched.
//!
//! Atomic operations and plain accesses do not exclude each other. If a plain write and another write or
//! atomic operation have no known order, the element is not checked. If a plain read and a change of the
//! element have no known order, the read is not checked.

use std::collections::HashSet;

use homespun::atomic::{AtomicOp, Datatype};

use crate::model::elements::{Element, ROWS, apply_atomic, compare_value, element_from_bytes, operand_value};
use crate::model::history::{Access, AccessOp};
use crate::model::memory::{Event, Known};

/// An operation on one element.
#[derive(Debug)]
struct ElementOp {
    access: usize,
    does: Effect,
    /// Whether the operation certainly takes effect. Otherwise it may or may not.
    is_sure: bool,
    /// The operations that precede this one, a bit for each.
    after: u64,
}

#[derive(Debug)]
enum Effect {
    /// A read has found this value.
    Find(Element),
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

    fn is_write(&self) -> bool {
        matches!(self, Effect::Write(_))
    }

    /// Returns the element after the operation. Returns `None` if the operation cannot have found `before`.
    fn element_after(&self, before: Element) -> Option<Element> {
        match *self {
            Effect::Find(found) => (found == before).then_some(before),
            Effect::Write(element) => Some(element),
            Effect::Update { op, datatype, operands: [operand, compare], found } => {
                let is_possible = found.is_none_or(|found| found == before);
                is_possible.then(|| apply_atomic(op, datatype, [before, operand, compare]))
            }
        }
    }
}

impl Known<'_> {
    /// Checks every element at the place.
    pub(crate) fn check_elements(&self) {
        for row in &ROWS {
            for place in row.element_offsets() {
                self.check_element(place, row.datatype);
            }
        }
    }

    fn check_element(&self, place: usize, datatype: Datatype) {
        let range = place..place + datatype.size_bytes();
        let mut nodes: Vec<(usize, usize, Effect)> = Vec::new();
        for (node, event) in self.events.iter().enumerate() {
            let Event::Access(number) = *event else { continue };
            let access = &self.history.accesses[number];
            if access.covers(&range)
                && let Some(does) = effect_on_element(number, access, place, datatype)
            {
                nodes.push((node, number, does));
            }
        }
        let is_beside = |one: usize, other: usize| {
            one != other && !self.is_before[one][other] && !self.is_before[other][one]
        };
        let is_contested = |(one, _, does): &(usize, usize, Effect)| {
            let updates_or_writes = |does: &Effect| !matches!(does, Effect::Find(_));
            does.is_write()
                && nodes.iter().any(|(other, _, beside)| is_beside(*one, *other) && updates_or_writes(beside))
        };
        if nodes.iter().any(is_contested) {
            return;
        }
        let is_exact = |(one, _, does): &(usize, usize, Effect)| {
            let is_clear =
                || nodes.iter().all(|(other, _, beside)| !is_beside(*one, *other) || !beside.can_change());
            !matches!(does, Effect::Find(_)) || is_clear()
        };
        let exact: Vec<bool> = nodes.iter().map(is_exact).collect();
        let nodes: Vec<_> = nodes.into_iter().zip(exact).filter(|(_, is_exact)| *is_exact).collect();
        assert!(nodes.len() < 64, "a program is not that long");
        let after = |node: usize| {
            let earlier = nodes.iter().map(|((earlier, ..), _)| self.is_before[*earlier][node]);
            earlier.enumerate().fold(0, |after, (bit, is_before)| after | u64::from(is_before) << bit)
        };
        let afters: Vec<u64> = nodes.iter().map(|((node, ..), _)| after(*node)).collect();
        let element_ops = nodes.into_iter().zip(afters).map(|(((_, access, does), _), after)| {
            let is_sure = self.is_known_to_take_effect(&self.history.accesses[access]);
            ElementOp { access, does, is_sure, after }
        });
        let element_ops: Vec<ElementOp> = element_ops.collect();
        let explained = || {
            let accesses = &self.history.accesses;
            let of = |element_op: &ElementOp| {
                format!("\n{:?} by {:?}: {element_op:x?}", element_op.access, accesses[element_op.access].by)
            };
            element_ops.iter().map(of).collect::<String>()
        };
        assert!(
            has_possible_order(&element_ops, 0, 0, &mut HashSet::new()),
            "in no order does the {datatype} at {place}, which was 0, become what was found: {}",
            explained()
        );
    }
}

/// Returns the effect of an access on an element, or `None` for a plain read whose result is unknown.
fn effect_on_element(number: usize, access: &AccessOp, place: usize, datatype: Datatype) -> Option<Effect> {
    let found = access.found.as_ref().map(|found| {
        let first = place - access.place;
        element_from_bytes(&found[first..first + datatype.size_bytes()])
    });
    match access.access {
        Access::Read => found.map(Effect::Find),
        Access::Flush => None,
        Access::Write => Some(Effect::Write(operand_value(number, place))),
        Access::Update(op) | Access::Fetch(op) => {
            let operands = [operand_value(number, place), compare_value(number, place)];
            Some(Effect::Update { op, datatype, operands, found })
        }
    }
}

/// Whether the operations that are not in `done` can take effect in some order. `failed` has the states for
/// which the search has found no order.
fn has_possible_order(
    element_ops: &[ElementOp],
    mut done: u64,
    before: Element,
    failed: &mut HashSet<(u64, Element)>,
) -> bool {
    let is_next = |done: u64, bit: usize| done >> bit & 1 == 0 && element_ops[bit].after & !done == 0;
    // A read as early as possible is no worse than a later one.
    while let Some(bit) = (0..element_ops.len()).find(|&bit| {
        let changes = element_ops[bit].does.can_change();
        is_next(done, bit) && !changes && element_ops[bit].does.element_after(before).is_some()
    }) {
        done |= 1 << bit;
    }
    if done.count_ones() as usize == element_ops.len() {
        return true;
    }
    if !failed.insert((done, before)) {
        return false;
    }
    (0..element_ops.len()).filter(|&bit| is_next(done, bit)).any(|bit| {
        let after = element_ops[bit].does.element_after(before);
        let unless_done = (!element_ops[bit].is_sure).then_some(before);
        after
            .into_iter()
            .chain(unless_done)
            .any(|element| has_possible_order(element_ops, done | 1 << bit, element, failed))
    })
}
