//! The elements that atomic operations change: places, operands and results.
//!
//! The elements follow the part of the region that plain accesses use. The elements form rows, each of one
//! datatype. The values are small numbers, so that comparisons often succeed.

use homespun::Bytes;
use homespun::atomic::{AtomicOp, Datatype};

/// The length of the first part of each region. Plain accesses use this part, and it has room for every
/// protocol. The elements of atomic operations follow.
pub(crate) const REGION_BYTES: usize = 70_000;

/// A row of elements, one after the other.
#[derive(Debug)]
pub(crate) struct Row {
    /// Its offset in the region.
    pub(crate) offset_bytes: usize,
    pub(crate) datatype: Datatype,
    pub(crate) count: usize,
}

/// The bytes of an element, padded with zeros.
pub(crate) type Element = u128;

/// The rows. Operations on the first row are long enough to be sent in pieces. The second row is not aligned
/// to its datatype.
pub(crate) const ROWS: [Row; 7] = [
    row(70_008, Datatype::Uint64, 1100),
    row(78_810, Datatype::Uint64, 24),
    row(79_003, Datatype::Uint8, 40),
    row(79_044, Datatype::Int16, 24),
    row(79_096, Datatype::Int32, 24),
    row(79_200, Datatype::Double, 24),
    row(79_408, Datatype::Uint128, 12),
];

const fn row(offset_bytes: usize, datatype: Datatype, count: usize) -> Row {
    Row { offset_bytes, datatype, count }
}

/// The end of the last row.
pub(crate) const ROWS_END: usize = ROWS[ROWS.len() - 1].end_offset();

/// The number of values that operands and compares have.
const OPERANDS: u64 = 6;
const COMPARES: u64 = 3;

impl Row {
    pub(crate) const fn end_offset(&self) -> usize {
        self.offset_bytes + self.count * self.datatype.size_bytes()
    }

    /// Returns the row of an offset.
    fn containing(offset_bytes: usize) -> &'static Row {
        let row = ROWS.iter().find(|row| (row.offset_bytes..row.end_offset()).contains(&offset_bytes));
        row.expect("an offset in a row")
    }

    /// Returns the offsets of the row's elements.
    pub(crate) fn element_offsets(&self) -> impl Iterator<Item = usize> + use<> {
        (self.offset_bytes..self.end_offset()).step_by(self.datatype.size_bytes())
    }
}

/// Returns the operand that an access has for the element at an offset. A plain write writes this value.
pub(crate) fn operand_value(access: usize, offset_bytes: usize) -> Element {
    small_element(scrambled_number(access, offset_bytes) % OPERANDS, Row::containing(offset_bytes).datatype)
}

/// Returns the compare value of an access for the element at an offset.
pub(crate) fn compare_value(access: usize, offset_bytes: usize) -> Element {
    let number = scrambled_number(access, offset_bytes) / OPERANDS % COMPARES;
    small_element(number, Row::containing(offset_bytes).datatype)
}

fn scrambled_number(access: usize, offset_bytes: usize) -> u64 {
    ((access as u64) << 32 | offset_bytes as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

/// Returns the values for all elements of a part of a row.
pub(crate) fn element_values(
    of: fn(usize, usize) -> Element,
    access: usize,
    offset_bytes: usize,
    len_bytes: usize,
) -> Bytes {
    let size_bytes = Row::containing(offset_bytes).datatype.size_bytes();
    let places = (offset_bytes..offset_bytes + len_bytes).step_by(size_bytes);
    places
        .flat_map(|offset_bytes| of(access, offset_bytes).to_le_bytes().into_iter().take(size_bytes))
        .collect()
}

/// Returns the element in these bytes.
pub(crate) fn element_from_bytes(bytes: &[u8]) -> Element {
    let mut element = [0; size_of::<Element>()];
    element[..bytes.len()].copy_from_slice(bytes);
    Element::from_le_bytes(element)
}

fn small_element(number: u64, datatype: Datatype) -> Element {
    match datatype {
        Datatype::Double => (number as f64).to_bits().into(),
        _ => number.into(),
    }
}

/// Whether [`apply_atomic`] knows an operation: without products, no number reaches the sign of its datatype.
pub(crate) fn is_modelled(op: AtomicOp) -> bool {
    op != AtomicOp::Prod
}

/// Returns the element after an operation. No number is negative, so also the bytes of floating-point numbers
/// have the order of the numbers.
pub(crate) fn apply_atomic(
    op: AtomicOp,
    datatype: Datatype,
    [before, operand, compare]: [Element; 3],
) -> Element {
    let swapped_if = |is_so: bool| if is_so { operand } else { before };
    let truth = |is_so: bool| small_element(is_so.into(), datatype);
    match op {
        AtomicOp::Sum if datatype == Datatype::Double => {
            let [one, other] = [before, operand].map(|number| f64::from_bits(number as u64));
            (one + other).to_bits().into()
        }
        AtomicOp::Sum => {
            let sum = before.wrapping_add(operand).to_le_bytes();
            element_from_bytes(&sum[..datatype.size_bytes()])
        }
        AtomicOp::Min => swapped_if(operand < before),
        AtomicOp::Max => swapped_if(operand > before),
        AtomicOp::Lor => truth(before != 0 || operand != 0),
        AtomicOp::Land => truth(before != 0 && operand != 0),
        AtomicOp::Lxor => truth((before != 0) != (operand != 0)),
        AtomicOp::Bor => before | operand,
        AtomicOp::Band => before & operand,
        AtomicOp::Bxor => before ^ operand,
        AtomicOp::Mswap => before & !compare | operand & compare,
        AtomicOp::Read => before,
        AtomicOp::Write => operand,
        AtomicOp::Cswap => swapped_if(compare == before),
        AtomicOp::CswapNe => swapped_if(compare != before),
        AtomicOp::CswapLe => swapped_if(compare <= before),
        AtomicOp::CswapLt => swapped_if(compare < before),
        AtomicOp::CswapGe => swapped_if(compare >= before),
        AtomicOp::CswapGt => swapped_if(compare > before),
        AtomicOp::Prod => unreachable!("no program has a product"),
    }
}
