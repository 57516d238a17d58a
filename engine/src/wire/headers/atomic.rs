//! An atomic operation on a region: `fi_atomic(3)`, [`Header::Atomic`](crate::wire::Header::Atomic).

use crate::atomic::{AtomicKind, AtomicOp, Datatype};
use crate::limits::ATOMIC_MAX_BYTES;
use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

/// An atomic operation on a region of the receiver. Its payload is one operand for each element, and then
/// one comparand for each element. If the operation takes no operands or no comparands, they are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Atomic {
    /// The initiator's number for the operation. No two unfinished operations on a link share a number.
    pub op: u64,
    /// The key of the region.
    pub key: u64,
    /// The address of the first element, as peers count addresses: see
    /// [`RegionAttr`](crate::region::RegionAttr::base_address).
    pub address: u64,
    /// The operation and its elements.
    pub form: AtomicForm,
}

/// An operation, and the number and type of its elements. Holds only combinations that an initiator may ask
/// for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicForm {
    kind: AtomicKind,
    op: AtomicOp,
    datatype: Datatype,
    count: u32,
}

/// The lowest bit of each part of a form, in the form's number on the wire.
mod field {
    pub(super) const COUNT: u32 = 0;
    pub(super) const DATATYPE: u32 = 32;
    pub(super) const OP: u32 = 40;
    pub(super) const KIND: u32 = 48;
}

impl AtomicForm {
    /// Returns the form of an operation on `count` elements; 0 is allowed. Returns `None` if there is no
    /// such operation, or if there are too many elements.
    pub fn new(kind: AtomicKind, op: AtomicOp, datatype: Datatype, count: usize) -> Option<AtomicForm> {
        let may_be = kind.can_apply(op, datatype) && count <= datatype.count_max();
        may_be.then_some(AtomicForm { kind, op, datatype, count: count as u32 })
    }

    /// Returns the set of calls that the operation belongs to.
    pub fn kind(&self) -> AtomicKind {
        self.kind
    }

    /// Returns the operation on each element.
    pub fn op(&self) -> AtomicOp {
        self.op
    }

    /// Returns the type of the elements.
    pub fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// Returns the number of elements.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// Returns the length of all elements together. Operands, comparands and results each have this length.
    pub fn len_bytes(&self) -> usize {
        self.count() * self.datatype.size_bytes()
    }

    /// Returns the length of all operands.
    pub fn operands_len_bytes(&self) -> usize {
        if self.op.has_operand() { self.len_bytes() } else { 0 }
    }

    /// Returns the length of all operands and comparands together.
    pub fn payload_len_bytes(&self) -> usize {
        self.operands_len_bytes() + if self.op.has_compare_operand() { self.len_bytes() } else { 0 }
    }

    /// Returns the form as a number on the wire: the count in the lowest 32 bits, then datatype, operation
    /// and kind in 8 bits each.
    pub fn number(&self) -> u64 {
        u64::from(self.count) << field::COUNT
            | u64::from(self.datatype as u8) << field::DATATYPE
            | u64::from(self.op as u8) << field::OP
            | u64::from(self.kind as u8) << field::KIND
    }

    /// Returns the form that has this number on the wire.
    ///
    /// # Errors
    ///
    /// [`WireError::ImpossibleLength`] for too many elements; [`WireError::UnknownOperation`] for an
    /// operation that does not exist.
    pub fn from_number(number: u64) -> Result<AtomicForm, WireError> {
        let part = |at: u32, bits: u32| (number >> at & ((1 << bits) - 1)) as u32;
        let kind = number >> field::KIND;
        let kind = u32::try_from(kind).ok().and_then(AtomicKind::from_number);
        let op = AtomicOp::from_number(part(field::OP, 8));
        let datatype = Datatype::from_number(part(field::DATATYPE, 8));
        let (Some(kind), Some(op), Some(datatype)) = (kind, op, datatype) else {
            return Err(WireError::UnknownOperation);
        };
        if !kind.can_apply(op, datatype) {
            return Err(WireError::UnknownOperation);
        }
        let form = AtomicForm::new(kind, op, datatype, part(field::COUNT, 32) as usize);
        form.ok_or(WireError::ImpossibleLength)
    }
}

/// Words: operation, key, address, form. The payload is the operands, then the comparands.
pub(in crate::wire) const RULE: Rule =
    Rule::of_kind(16).add_words(4).allow_payload_up_to(2 * ATOMIC_MAX_BYTES as u64);

#[inline(always)]
pub(in crate::wire) fn encode_words(atomic: Atomic, put: &mut impl FnMut(u64)) -> Fields {
    put(atomic.op);
    put(atomic.key);
    put(atomic.address);
    put(atomic.form.number());
    Fields::new(&RULE, 0, atomic.form.payload_len_bytes() as u64)
}

#[inline(always)]
pub(in crate::wire) fn decode_words(
    fields: Fields,
    word: &mut impl FnMut() -> u64,
) -> Result<Atomic, WireError> {
    let [op, key, address] = [word(), word(), word()];
    let form = AtomicForm::from_number(word())?;
    if form.payload_len_bytes() as u64 != fields.payload_len_bytes {
        return Err(WireError::ImpossibleLength);
    }
    Ok(Atomic { op, key, address, form })
}
