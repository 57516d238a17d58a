//! Atomic operations: posts and completions. [`memory`](crate::model::memory) checks the elements.

use crate::model::prelude::*;
use crate::model::run::{Runner, expect_accepted_or_full, most_bytes};

/// The length of a read of all rows. The read begins before the rows, to be this long.
const LONG_BYTES: usize = 40_000;

impl Access {
    /// Returns the kind of atomic call, or `None` for a plain access.
    pub(crate) fn atomic_kind_and_op(self) -> Option<(AtomicKind, AtomicOp)> {
        match self {
            Access::Read | Access::Write | Access::Flush => None,
            Access::Update(op) => Some((AtomicKind::Base, op)),
            Access::Fetch(op) if op.has_compare_operand() => Some((AtomicKind::Compare, op)),
            Access::Fetch(op) => Some((AtomicKind::Fetch, op)),
        }
    }
}

impl Runner<'_> {
    /// Posts an atomic operation, a read or a write of elements of the region at place `to`.
    pub(crate) fn post_elements_access(&mut self, step: ElementsStep) {
        let ElementsStep { from, to, row, part: (first, count), call, op, fenced } = step;
        let row = &ROWS[row % ROWS.len()];
        let size_bytes = row.datatype.size_bytes();
        let first = first % row.count;
        let place = row.offset_bytes + first * size_bytes;
        let count = count.clamp(1, row.count - first);
        let part = (place, count * size_bytes);
        let plain = |call, part| AccessStep { from, to, part, call, fenced };
        let kind = match call {
            ElementsCall::Base | ElementsCall::Inject => AtomicKind::Base,
            ElementsCall::Fetch => AtomicKind::Fetch,
            ElementsCall::Compare => AtomicKind::Compare,
            ElementsCall::Write => return self.post_access(plain(AccessCall::Write, part)),
            ElementsCall::Read => return self.post_access(plain(AccessCall::Read, part)),
            ElementsCall::ReadAll => {
                return self.post_access(plain(AccessCall::Read, (ROWS_END - LONG_BYTES, LONG_BYTES)));
            }
        };
        let is_injected = call == ElementsCall::Inject;
        let (Some(party), Some(region)) = (&self.parties[from], &self.regions[to]) else { return };
        let len_bytes = size_bytes * count.min(most_bytes(party, is_injected) / size_bytes);
        let op = choose_op(kind, row.datatype, op);
        let identity = self.history.accesses.len();
        let post = self.make_post((from, to), Level::Delivery, fenced, is_injected);
        // The C interface counts elements, so no part of one can be a segment.
        let may_split = self.offer.is_native;
        let parts = if may_split { 1 + identity % 3 } else { 1 };
        let split = |value: fn(usize, usize) -> Element, parts| {
            split_unevenly(&element_values(value, identity, place, len_bytes), parts)
        };
        let compare_parts = if may_split { 4 - parts } else { 1 };
        let is_compare = kind == AtomicKind::Compare;
        let call = AtomicCall {
            by: if is_injected { AtomicBy::Inject } else { AtomicBy::Message },
            kind,
            operands: if op.has_operand() { split(operand_value, parts) } else { Vec::new() },
            compares: if is_compare { split(compare_value, compare_parts) } else { Vec::new() },
            results_bytes: match kind.fetches() {
                true if may_split => vec![len_bytes / 2, len_bytes - len_bytes / 2],
                true => vec![len_bytes],
                false => Vec::new(),
            },
            target: AtomicTarget {
                peer: FabricAddress(to as u64),
                memory: RemoteMemory { address: region.address_at(place), key: region.key() },
                datatype: row.datatype,
                op,
            },
            context: Operation::Access(identity).context(),
            flags: if is_injected { OpFlags::empty() } else { post.flags() },
        };
        if expect_accepted_or_full(party.endpoint.atomic(call).map(|_| ())) {
            self.injected[from] += usize::from(is_injected);
            let access = if kind.fetches() { Access::Fetch(op) } else { Access::Update(op) };
            self.history.post_access(post, access, (place, len_bytes));
        }
    }
}

/// Returns the operation with this number, of those that the datatype supports. Without a number, returns
/// the most common one.
fn choose_op(kind: AtomicKind, datatype: Datatype, number: Option<usize>) -> AtomicOp {
    let ops = AtomicOp::ALL.into_iter().filter(|op| is_modelled(*op));
    let ops: Vec<AtomicOp> = ops.filter(|op| kind.count_max(*op, datatype).is_some()).collect();
    match number {
        Some(number) => ops[number % ops.len()],
        None if kind == AtomicKind::Compare => AtomicOp::Cswap,
        None => AtomicOp::Sum,
    }
}

/// Checks that a completion returns the buffers of its call. Returns the bytes that the operation fetched.
pub(crate) fn check_returned_buffers(
    identity: usize,
    access: &AccessOp,
    succeeded: bool,
    buffer: Buffer,
) -> Option<Vec<u8>> {
    let AccessOp { place, len_bytes, .. } = *access;
    let (kind, op) = access.access.atomic_kind_and_op().expect("an atomic operation");
    let (found, operands, compares) = if kind.fetches() {
        let found = succeeded.then(|| received_bytes(&buffer));
        let fetched = buffer.into_fetched().expect("what was posted to fetch comes back");
        (found, fetched.operand, fetched.compare)
    } else {
        (None, buffer, Buffer::None)
    };
    let comes_back = |buffer: Buffer, value: fn(usize, usize) -> Element| {
        let sent = buffer.into_sent_vector().expect("a vector was handed over");
        sent.concat() == element_values(value, identity, place, len_bytes)
    };
    assert!(!op.has_operand() || comes_back(operands, operand_value), "other operands come back");
    let is_compare = kind == AtomicKind::Compare;
    assert!(!is_compare || comes_back(compares, compare_value), "something else was compared");
    assert!(found.as_ref().is_none_or(|found| found.len() == len_bytes));
    found
}
