//! An atomic operation on a region: `fi_atomic(3)`, [`Header::Atomic`](crate::wire::Header::Atomic).

use crate::atomic::{AtomicKind, AtomicOp, Datatype};
use crate::limits::ATOMIC_MAX_BYTES;
use crate::wire::error::WireError;
use crate::wire::rule::{Fields, Rule};

/// An atomic operation on a region of the receiver. Its payload are the operands of all elements, then what
/// the elements are compared with, each as long as the elements, where the operation has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Atomic {
    /// The initiator's number for the operation, unique on the link while the operation lives.
    pub op: u64,
    /// The key of the region.
    pub key: u64,
    /// Where in the region, as its [address](crate::region::Region) is known to peers.
    pub address: u64,
    /// The operation and its elements.
    pub form: AtomicForm,
}

/// An operation, and the number and type of its elements. There are no others than those that some
/// initiator may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicForm {
    kind: AtomicKind,
    op: AtomicOp,
    datatype: Datatype,
    count: u32,
}

/// Where the parts of a form start in the number that it travels as, counted in bits.
mod field {
    pub(super) const COUNT: u32 = 0;
    pub(super) const DATATYPE: u32 = 32;
    pub(super) const OP: u32 = 40;
    pub(super) const KIND: u32 = 48;
}

impl AtomicForm {
    /// An operation on `count` elements, which may be none, if there is such a one and no target refuses it
    /// for its length.
    pub fn new(kind: AtomicKind, op: AtomicOp, datatype: Datatype, count: usize) -> Option<AtomicForm> {
        let may_be = kind.can_apply(op, datatype) && count <= datatype.count_max();
        may_be.then_some(AtomicForm { kind, op, datatype, count: count as u32 })
    }

    /// Which of the sets of calls it belongs to.
    pub fn kind(&self) -> AtomicKind {
        self.kind
    }

    /// The operation on each element.
    pub fn op(&self) -> AtomicOp {
        self.op
    }

    /// The type of the elements.
    pub fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// How many they are.
    pub fn count(&self) -> usize {
        self.count as usize
    }

    /// How long they are together, and so are operands, comparands and results.
    pub fn len_bytes(&self) -> usize {
        self.count() * self.datatype.size_bytes()
    }

    /// How long the operands are.
    pub fn operands_len_bytes(&self) -> usize {
        if self.op.has_operand() { self.len_bytes() } else { 0 }
    }

    /// How long operands and comparands are together.
    pub fn payload_len_bytes(&self) -> usize {
        self.operands_len_bytes() + if self.op.has_compare_operand() { self.len_bytes() } else { 0 }
    }

    /// The number that it travels as: from its lowest bit, the count in 32 bits, then datatype, operation and
    /// kind, each in 8.
    pub fn number(&self) -> u64 {
        u64::from(self.count) << field::COUNT
            | u64::from(self.datatype as u8) << field::DATATYPE
            | u64::from(self.op as u8) << field::OP
            | u64::from(self.kind as u8) << field::KIND
    }

    /// The form that travels as this number.
    ///
    /// # Errors
    ///
    /// [`WireError::ImpossibleLength`] and [`WireError::UnknownOperation`].
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

/// Words: operation, key, address, form. The payload are the operands, then the comparands.
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
