//! Atomic operations: `fi_atomic(3)`.
//!
//! An atomic operation changes or reads an array of elements in a [region](crate::region) of a
//! peer. The target's engine carries out every atomic operation, whatever the transport.
//!
//! # What is atomic
//!
//! Each element is atomic; the array is not. No update of an element is lost or seen in part,
//! whichever endpoints, transports and threads of the target's process carry out the updates. Two
//! different elements may share memory. Their updates exclude each other in two cases:
//!
//! - Both elements have 1, 2, 4 or 8 bytes and are naturally aligned, or lie in one naturally
//!   aligned word of 8 bytes of a region that is not raw memory. The processor's atomic
//!   instructions update these elements. So the updates also exclude atomic instructions of the
//!   application, and of other processes that share the memory.
//! - Both elements are too large, misaligned, or split by the segments of their region. The target
//!   updates these elements under a lock. The process keeps the lock for the element's address or,
//!   if the region is a file, for the element's offset in the file. Raw memory that is mapped at
//!   two addresses has two locks.
//!
//! Atomic operations do not exclude reads and writes of a region (`fi_rma(3)`), nor plain loads and
//! stores.
//!
//! ```
//! # use homespun_engine::atomic::{AtomicKind, AtomicOp, Datatype};
//! // fi_fetch_atomicvalid
//! assert_eq!(AtomicKind::Fetch.count_max(AtomicOp::Sum, Datatype::Uint64), Some(2048));
//! // Complex numbers have no order, so they have no minimum.
//! assert_eq!(AtomicKind::Fetch.count_max(AtomicOp::Min, Datatype::DoubleComplex), None);
//! ```

mod arithmetic;
#[cfg(target_arch = "x86_64")]
mod long_double;
#[cfg(test)]
mod tests;

use std::fmt;

pub(crate) use self::arithmetic::Combine;
use crate::limits::ATOMIC_MAX_BYTES;
use crate::mutated;

/// The type of the elements: `enum fi_datatype`, with its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Datatype {
    /// A signed integer of 8 bits.
    Int8 = 0,
    /// An unsigned integer of 8 bits.
    Uint8 = 1,
    /// A signed integer of 16 bits.
    Int16 = 2,
    /// An unsigned integer of 16 bits.
    Uint16 = 3,
    /// A signed integer of 32 bits.
    Int32 = 4,
    /// An unsigned integer of 32 bits.
    Uint32 = 5,
    /// A signed integer of 64 bits.
    Int64 = 6,
    /// An unsigned integer of 64 bits.
    Uint64 = 7,
    /// An IEEE 754 number of single precision.
    Float = 8,
    /// An IEEE 754 number of double precision.
    Double = 9,
    /// A complex number, of two [`Float`](Datatype::Float), the real part first.
    FloatComplex = 10,
    /// A complex number, of two [`Double`](Datatype::Double), the real part first.
    DoubleComplex = 11,
    /// C's `long double`: an extended number of 80 bits, in 16 bytes. Only x86-64 offers it.
    LongDouble = 12,
    /// A complex number of two [`LongDouble`](Datatype::LongDouble)s, the real part first. Only
    /// x86-64 offers it.
    LongDoubleComplex = 13,
    /// A signed integer of 128 bits.
    Int128 = 14,
    /// An unsigned integer of 128 bits.
    Uint128 = 15,
}

/// The operation on each element: `enum fi_op`, with its numbers.
///
/// Integers wrap around. Other numbers compare as in C: a NaN is neither less than nor equal to any
/// number. Logical operations treat a NaN as true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AtomicOp {
    /// The smaller of element and operand.
    Min = 0,
    /// The larger of element and operand.
    Max = 1,
    /// The sum of element and operand.
    Sum = 2,
    /// The product of element and operand.
    Prod = 3,
    /// 1 if at least one of element and operand is not zero, else 0.
    Lor = 4,
    /// 1 if both element and operand are not zero, else 0.
    Land = 5,
    /// The bits that are set in element or operand.
    Bor = 6,
    /// The bits that are set in both element and operand.
    Band = 7,
    /// 1 if exactly one of element and operand is not zero, else 0.
    Lxor = 8,
    /// The bits that are set in exactly one of element and operand.
    Bxor = 9,
    /// No change: the element is only fetched (`FI_ATOMIC_READ`). There is no operand.
    Read = 10,
    /// The element becomes the operand (`FI_ATOMIC_WRITE`).
    Write = 11,
    /// The element becomes the operand if the compare operand equals the element.
    Cswap = 12,
    /// The element becomes the operand if the compare operand differs from the element.
    CswapNe = 13,
    /// The element becomes the operand if the compare operand is less than or equal to the element.
    CswapLe = 14,
    /// The element becomes the operand if the compare operand is less than the element.
    CswapLt = 15,
    /// The element becomes the operand if the compare operand is greater than or equal to the
    /// element.
    CswapGe = 16,
    /// The element becomes the operand if the compare operand is greater than the element.
    CswapGt = 17,
    /// The element takes the operand's bits at the positions where the compare operand's bits are
    /// set.
    Mswap = 18,
}

/// The three sets of atomic calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AtomicKind {
    /// `fi_atomic`: returns no data.
    Base = 0,
    /// `fi_fetch_atomic`: returns the former elements (`FI_FETCH_ATOMIC`).
    Fetch = 1,
    /// `fi_compare_atomic`: has a compare operand, and returns the former elements
    /// (`FI_COMPARE_ATOMIC`).
    Compare = 2,
}

/// The size of the largest element in bytes.
pub(crate) const ELEMENT_MAX_BYTES: usize = 32;

/// The classes of datatypes that offer different operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Integer,
    Real,
    /// Complex numbers have no order.
    Complex,
}

impl Datatype {
    /// All datatypes, in the order of their numbers.
    pub const ALL: [Datatype; 16] = [
        Datatype::Int8,
        Datatype::Uint8,
        Datatype::Int16,
        Datatype::Uint16,
        Datatype::Int32,
        Datatype::Uint32,
        Datatype::Int64,
        Datatype::Uint64,
        Datatype::Float,
        Datatype::Double,
        Datatype::FloatComplex,
        Datatype::DoubleComplex,
        Datatype::LongDouble,
        Datatype::LongDoubleComplex,
        Datatype::Int128,
        Datatype::Uint128,
    ];

    /// Returns the datatype with this number.
    pub fn from_number(number: u32) -> Option<Datatype> {
        Datatype::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Returns the size of an element in bytes, as in C on x86-64.
    pub const fn size_bytes(self) -> usize {
        match self {
            Datatype::Int8 | Datatype::Uint8 => 1,
            Datatype::Int16 | Datatype::Uint16 => 2,
            Datatype::Int32 | Datatype::Uint32 | Datatype::Float => 4,
            Datatype::Int64 | Datatype::Uint64 | Datatype::Double | Datatype::FloatComplex => 8,
            Datatype::DoubleComplex | Datatype::LongDouble | Datatype::Int128 | Datatype::Uint128 => 16,
            Datatype::LongDoubleComplex => 32,
        }
    }

    /// Returns how many elements one operation covers at most.
    pub const fn count_max(self) -> usize {
        ATOMIC_MAX_BYTES / self.size_bytes()
    }

    fn class(self) -> Class {
        match self {
            Datatype::Float | Datatype::Double | Datatype::LongDouble => Class::Real,
            Datatype::FloatComplex | Datatype::DoubleComplex | Datatype::LongDoubleComplex => Class::Complex,
            _ => Class::Integer,
        }
    }

    /// Whether this host can calculate with the datatype.
    fn is_native(self) -> bool {
        cfg!(target_arch = "x86_64") || !matches!(self, Datatype::LongDouble | Datatype::LongDoubleComplex)
    }
}

impl AtomicOp {
    /// All operations, in the order of their numbers.
    pub const ALL: [AtomicOp; 19] = [
        AtomicOp::Min,
        AtomicOp::Max,
        AtomicOp::Sum,
        AtomicOp::Prod,
        AtomicOp::Lor,
        AtomicOp::Land,
        AtomicOp::Bor,
        AtomicOp::Band,
        AtomicOp::Lxor,
        AtomicOp::Bxor,
        AtomicOp::Read,
        AtomicOp::Write,
        AtomicOp::Cswap,
        AtomicOp::CswapNe,
        AtomicOp::CswapLe,
        AtomicOp::CswapLt,
        AtomicOp::CswapGe,
        AtomicOp::CswapGt,
        AtomicOp::Mswap,
    ];

    /// Returns the operation with this number.
    pub fn from_number(number: u32) -> Option<AtomicOp> {
        AtomicOp::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Whether the operation may change elements.
    pub fn can_write(self) -> bool {
        self != AtomicOp::Read
    }

    /// Whether the operation has an operand.
    pub fn has_operand(self) -> bool {
        self != AtomicOp::Read || mutated!("fi_atomic/atomic-read-needs-no-operand")
    }

    /// Whether the operation has a compare operand.
    pub fn has_compare_operand(self) -> bool {
        self as u8 >= AtomicOp::Cswap as u8
    }

    /// Whether the operation is defined for this datatype.
    fn supports_datatype(self, datatype: Datatype) -> bool {
        match self {
            AtomicOp::Sum
            | AtomicOp::Prod
            | AtomicOp::Lor
            | AtomicOp::Land
            | AtomicOp::Lxor
            | AtomicOp::Read
            | AtomicOp::Write
            | AtomicOp::Cswap
            | AtomicOp::CswapNe => true,
            AtomicOp::Min
            | AtomicOp::Max
            | AtomicOp::CswapLe
            | AtomicOp::CswapLt
            | AtomicOp::CswapGe
            | AtomicOp::CswapGt => datatype.class() != Class::Complex,
            AtomicOp::Bor | AtomicOp::Band | AtomicOp::Bxor | AtomicOp::Mswap => {
                datatype.class() == Class::Integer
            }
        }
    }
}

impl AtomicKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [AtomicKind; 3] = [AtomicKind::Base, AtomicKind::Fetch, AtomicKind::Compare];

    /// Returns the kind with this number.
    pub fn from_number(number: u32) -> Option<AtomicKind> {
        AtomicKind::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Whether the call returns the former elements.
    pub fn fetches(self) -> bool {
        self != AtomicKind::Base
    }

    /// Returns how many elements a call may cover: `fi_atomicvalid`, `fi_fetch_atomicvalid`,
    /// `fi_compare_atomicvalid`. Returns `None` if this host does not offer the call.
    pub fn count_max(self, op: AtomicOp, datatype: Datatype) -> Option<usize> {
        (self.can_apply(op, datatype) && datatype.is_native()).then(|| datatype.count_max())
    }

    /// Whether any host offers such a call.
    pub(crate) fn can_apply(self, op: AtomicOp, datatype: Datatype) -> bool {
        let is_of_kind = match self {
            AtomicKind::Base => !op.has_compare_operand() && op != AtomicOp::Read,
            AtomicKind::Fetch => !op.has_compare_operand(),
            AtomicKind::Compare => op.has_compare_operand(),
        };
        is_of_kind && op.supports_datatype(datatype)
    }
}

impl fmt::Display for AtomicKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AtomicKind::Base => "base",
            AtomicKind::Fetch => "fetch",
            AtomicKind::Compare => "compare",
        })
    }
}

impl fmt::Display for Datatype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Datatype::Int8 => "FI_INT8",
            Datatype::Uint8 => "FI_UINT8",
            Datatype::Int16 => "FI_INT16",
            Datatype::Uint16 => "FI_UINT16",
            Datatype::Int32 => "FI_INT32",
            Datatype::Uint32 => "FI_UINT32",
            Datatype::Int64 => "FI_INT64",
            Datatype::Uint64 => "FI_UINT64",
            Datatype::Float => "FI_FLOAT",
            Datatype::Double => "FI_DOUBLE",
            Datatype::FloatComplex => "FI_FLOAT_COMPLEX",
            Datatype::DoubleComplex => "FI_DOUBLE_COMPLEX",
            Datatype::LongDouble => "FI_LONG_DOUBLE",
            Datatype::LongDoubleComplex => "FI_LONG_DOUBLE_COMPLEX",
            Datatype::Int128 => "FI_INT128",
            Datatype::Uint128 => "FI_UINT128",
        })
    }
}

impl fmt::Display for AtomicOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AtomicOp::Min => "FI_MIN",
            AtomicOp::Max => "FI_MAX",
            AtomicOp::Sum => "FI_SUM",
            AtomicOp::Prod => "FI_PROD",
            AtomicOp::Lor => "FI_LOR",
            AtomicOp::Land => "FI_LAND",
            AtomicOp::Bor => "FI_BOR",
            AtomicOp::Band => "FI_BAND",
            AtomicOp::Lxor => "FI_LXOR",
            AtomicOp::Bxor => "FI_BXOR",
            AtomicOp::Read => "FI_ATOMIC_READ",
            AtomicOp::Write => "FI_ATOMIC_WRITE",
            AtomicOp::Cswap => "FI_CSWAP",
            AtomicOp::CswapNe => "FI_CSWAP_NE",
            AtomicOp::CswapLe => "FI_CSWAP_LE",
            AtomicOp::CswapLt => "FI_CSWAP_LT",
            AtomicOp::CswapGe => "FI_CSWAP_GE",
            AtomicOp::CswapGt => "FI_CSWAP_GT",
            AtomicOp::Mswap => "FI_MSWAP",
        })
    }
}
