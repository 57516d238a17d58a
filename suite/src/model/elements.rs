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

/// The alignment, the datatype and the length of each row. Operations on the first row are long enough to be
/// sent in pieces. The second row is not aligned to its datatype.
pub(crate) const ROWS: [Row; 7] = lay_out_rows([
    (8, Datatype::Uint64, 1100),
    (3, Datatype::Uint64, 24),
    (1, Datatype::Uint8, 40),
    (2, Datatype::Int16, 24),
    (4, Datatype::Int32, 24),
    (8, Datatype::Double, 24),
    (16, Datatype::Uint128, 12),
]);

/// The end of the last row.
pub(crate) const ROWS_END: usize = ROWS[ROWS.len() - 1].end_offset();

/// The number of values that operands and compares have.
const OPERANDS: u64 = 6;
const COMPARES: u64 = 3;

/// Lays out rows one after the other, each at a multiple of its alignment.
const fn lay_out_rows<const N: usize>(rows: [(usize, Datatype, usize); N]) -> [Row; N] {
    let mut laid_out = [const { Row { offset_bytes: 0, datatype: Datatype::Uint8, count: 0 } }; N];
    let mut end = REGION_BYTES;
    let mut row = 0;
    while row < N {
        let (multiple, datatype, count) = rows[row];
        // Add at least one byte before each row. Otherwise the second row might be aligned by accident.
        laid_out[row] = Row { offset_bytes: (end / multiple + 1) * multiple, datatype, count };
        end = laid_out[row].end_offset();
        row += 1;
    }
    laid_out
}

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
    small_element(
        scrambled_number(access, offset_bytes) / OPERANDS % COMPARES,
        Row::containing(offset_bytes).datatype,
    )
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

/// Returns the element after an operation.
pub(crate) fn apply_atomic(op: AtomicOp, datatype: Datatype, numbers: [Element; 3]) -> Element {
    macro_rules! integers {
        ($type:ty) => {
            element_from_bytes(
                &apply_atomic_to_numbers(
                    op,
                    numbers.map(|number| number as $type),
                    <$type>::wrapping_add,
                    <$type>::wrapping_mul,
                )
                .to_le_bytes(),
            )
        };
    }
    let [before, operand, mask] = numbers;
    match (op, datatype) {
        (AtomicOp::Bor, _) => before | operand,
        (AtomicOp::Band, _) => before & operand,
        (AtomicOp::Bxor, _) => before ^ operand,
        (AtomicOp::Mswap, _) => before & !mask | operand & mask,
        (_, Datatype::Uint8) => integers!(u8),
        (_, Datatype::Int16) => integers!(i16),
        (_, Datatype::Int32) => integers!(i32),
        (_, Datatype::Uint64) => integers!(u64),
        (_, Datatype::Uint128) => integers!(u128),
        (_, Datatype::Double) => {
            let numbers = numbers.map(|number| f64::from_bits(number as u64));
            let result = apply_atomic_to_numbers(op, numbers, |a, b| a + b, |a, b| a * b);
            result.to_bits().into()
        }
        other => panic!("no row has {other:?}"),
    }
}

fn apply_atomic_to_numbers<N: Copy + Default + PartialOrd + From<bool>>(
    op: AtomicOp,
    [before, operand, compare]: [N; 3],
    sum: impl Fn(N, N) -> N,
    product: impl Fn(N, N) -> N,
) -> N {
    let is_so = |number: N| number != N::default();
    let swapped_if = |is_so: bool| if is_so { operand } else { before };
    match op {
        AtomicOp::Min => swapped_if(operand < before),
        AtomicOp::Max => swapped_if(operand > before),
        AtomicOp::Sum => sum(before, operand),
        AtomicOp::Prod => product(before, operand),
        AtomicOp::Lor => (is_so(before) || is_so(operand)).into(),
        AtomicOp::Land => (is_so(before) && is_so(operand)).into(),
        AtomicOp::Lxor => (is_so(before) != is_so(operand)).into(),
        AtomicOp::Read => before,
        AtomicOp::Write => operand,
        AtomicOp::Cswap => swapped_if(compare == before),
        AtomicOp::CswapNe => swapped_if(compare != before),
        AtomicOp::CswapLe => swapped_if(compare <= before),
        AtomicOp::CswapLt => swapped_if(compare < before),
        AtomicOp::CswapGe => swapped_if(compare >= before),
        AtomicOp::CswapGt => swapped_if(compare > before),
        AtomicOp::Bor | AtomicOp::Band | AtomicOp::Bxor | AtomicOp::Mswap => {
            unreachable!("it is about bits, not numbers")
        }
    }
}
