//! The arithmetic of atomic operations, on one element.

#![expect(clippy::host_endian_bytes, reason = "elements lie in memory as the application has them")]

use crate::mutated;
use std::ops::{BitAnd, BitOr, BitXor, Not};

#[cfg(target_arch = "x86_64")]
use super::long_double::LongDouble;
use super::{AtomicOp, Datatype};

/// Computes the new value of an element in `element`, which holds a copy of the old value. Returns whether
/// the caller must store the new value. Each slice has the length of the datatype. An operation without
/// operand or compare operand does not read that slice.
pub(crate) type Combine = fn(element: &mut [u8], operand: &[u8], compare: &[u8]) -> bool;

impl AtomicOp {
    /// Returns the function for elements of this datatype; `None` if no
    /// [`AtomicKind`](super::AtomicKind) offers the combination.
    pub(crate) fn combine_fn(self, datatype: Datatype) -> Option<Combine> {
        match datatype {
            Datatype::Int8 => integer_combine_fn::<i8>(self),
            Datatype::Uint8 => integer_combine_fn::<u8>(self),
            Datatype::Int16 => integer_combine_fn::<i16>(self),
            Datatype::Uint16 => integer_combine_fn::<u16>(self),
            Datatype::Int32 => integer_combine_fn::<i32>(self),
            Datatype::Uint32 => integer_combine_fn::<u32>(self),
            Datatype::Int64 => integer_combine_fn::<i64>(self),
            Datatype::Uint64 => integer_combine_fn::<u64>(self),
            Datatype::Int128 => integer_combine_fn::<i128>(self),
            Datatype::Uint128 if mutated!("fi_atomic/datatypes") => None,
            Datatype::Uint128 => integer_combine_fn::<u128>(self),
            Datatype::Float => ordered_combine_fn::<f32>(self),
            Datatype::Double => ordered_combine_fn::<f64>(self),
            Datatype::FloatComplex => number_combine_fn::<Complex<f32>>(self),
            Datatype::DoubleComplex => number_combine_fn::<Complex<f64>>(self),
            #[cfg(target_arch = "x86_64")]
            Datatype::LongDouble => ordered_combine_fn::<LongDouble>(self),
            #[cfg(target_arch = "x86_64")]
            Datatype::LongDoubleComplex => number_combine_fn::<Complex<LongDouble>>(self),
            #[cfg(not(target_arch = "x86_64"))]
            Datatype::LongDouble | Datatype::LongDoubleComplex => None,
        }
    }
}

/// Returns the function of an operation on integers.
fn integer_combine_fn<T: Bits + PartialOrd>(op: AtomicOp) -> Option<Combine> {
    let combine: Combine = match op {
        AtomicOp::Bor => |e, o, _| store_combined::<T>(e, o, T::bitor),
        AtomicOp::Band => |e, o, _| store_combined::<T>(e, o, T::bitand),
        AtomicOp::Bxor => |e, o, _| store_combined::<T>(e, o, T::bitxor),
        AtomicOp::Mswap => |e, o, c| {
            let mask = T::read(c);
            store_combined::<T>(e, o, |element, operand| operand & mask | element & !mask)
        },
        _ => return ordered_combine_fn::<T>(op),
    };
    Some(combine)
}

/// Returns the function of an operation on ordered numbers: all numbers except complex ones.
fn ordered_combine_fn<T: Number + PartialOrd>(op: AtomicOp) -> Option<Combine> {
    let combine: Combine = match op {
        AtomicOp::Min => |e, o, _| store_operand_if(e, o, T::read(o) < T::read(e)),
        AtomicOp::Max => |e, o, _| store_operand_if(e, o, T::read(o) > T::read(e)),
        AtomicOp::CswapLe => |e, o, c| store_operand_if(e, o, T::read(c) <= T::read(e)),
        AtomicOp::CswapLt => |e, o, c| store_operand_if(e, o, T::read(c) < T::read(e)),
        AtomicOp::CswapGe => |e, o, c| store_operand_if(e, o, T::read(c) >= T::read(e)),
        AtomicOp::CswapGt => |e, o, c| store_operand_if(e, o, T::read(c) > T::read(e)),
        _ => return number_combine_fn::<T>(op),
    };
    Some(combine)
}

/// Returns the function of an operation that all numbers have.
fn number_combine_fn<T: Number>(op: AtomicOp) -> Option<Combine> {
    let combine: Combine = match op {
        AtomicOp::Sum => |e, o, _| store_combined::<T>(e, o, T::sum),
        AtomicOp::Prod => |e, o, _| store_combined::<T>(e, o, T::product),
        AtomicOp::Lor => |e, o, _| combine_as_bools::<T>(e, o, |element, operand| element | operand),
        AtomicOp::Land => |e, o, _| combine_as_bools::<T>(e, o, |element, operand| element & operand),
        AtomicOp::Lxor => |e, o, _| combine_as_bools::<T>(e, o, |element, operand| element ^ operand),
        AtomicOp::Read => |_, _, _| false,
        AtomicOp::Write => |e, o, _| store_operand_if(e, o, true),
        AtomicOp::Cswap => |e, o, c| store_operand_if(e, o, T::read(c) == T::read(e)),
        AtomicOp::CswapNe => |e, o, c| store_operand_if(e, o, T::read(c) != T::read(e)),
        _ => return None,
    };
    Some(combine)
}

/// If `condition`, replaces the element by the operand, including the padding. Returns `condition`.
fn store_operand_if(element: &mut [u8], operand: &[u8], condition: bool) -> bool {
    if condition {
        element.copy_from_slice(operand);
    }
    condition
}

fn store_combined<T: Number>(element: &mut [u8], operand: &[u8], by: impl Fn(T, T) -> T) -> bool {
    by(T::read(element), T::read(operand)).write(element);
    true
}

fn combine_as_bools<T: Number>(element: &mut [u8], operand: &[u8], by: fn(bool, bool) -> bool) -> bool {
    store_combined::<T>(element, operand, |element, operand| {
        T::from_bool(by(element.is_true(), operand.is_true()))
    })
}

/// A number of some datatype.
pub(super) trait Number: Copy + PartialEq {
    /// Reads the number from memory.
    fn read(bytes: &[u8]) -> Self;
    /// Writes the number to memory. Padding bytes beside the number keep their values.
    fn write(self, bytes: &mut [u8]);
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    /// Whether C treats the number as true.
    fn is_true(self) -> bool;
    /// Returns the number to which C converts this truth value.
    fn from_bool(truth: bool) -> Self;
}

trait Bits:
    Number + BitOr<Output = Self> + BitAnd<Output = Self> + BitXor<Output = Self> + Not<Output = Self>
{
}

macro_rules! numbers {
    ($($type:ty: $sum:expr, $product:expr;)*) => {
        $(impl Number for $type {
            #[inline]
            fn read(bytes: &[u8]) -> $type {
                let mut whole = [0; size_of::<$type>()];
                whole.copy_from_slice(bytes);
                <$type>::from_ne_bytes(whole)
            }

            #[inline]
            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_ne_bytes());
            }

            #[inline]
            fn sum(self, other: $type) -> $type {
                $sum(self, other)
            }

            #[inline]
            fn product(self, other: $type) -> $type {
                $product(self, other)
            }

            #[inline]
            fn is_true(self) -> bool {
                self != <$type>::default()
            }

            #[inline]
            fn from_bool(truth: bool) -> $type {
                u8::from(truth) as $type
            }
        })*
    };
}

macro_rules! integers {
    ($($type:ty)*) => {
        numbers! { $($type: <$type>::wrapping_add, <$type>::wrapping_mul;)* }
        $(impl Bits for $type {})*
    };
}

integers! { i8 u8 i16 u16 i32 u32 i64 u64 i128 u128 }
numbers! {
    f32: |a, b| a + b, |a, b| a * b;
    f64: |a, b| a + b, |a, b| a * b;
}

/// A real number, such as each part of a complex number.
pub(super) trait Real: Number + PartialOrd {
    const ZERO: Self;
    const ONE: Self;
    const INFINITY: Self;
    /// The size of the number in memory.
    const SIZE_BYTES: usize;

    fn negated(self) -> Self;
    fn is_nan(self) -> bool;
    fn is_infinite(self) -> bool;
    /// Returns this number with the sign of `other`.
    fn with_sign_of(self, other: Self) -> Self;
}

macro_rules! reals {
    ($($type:ty)*) => {
        $(impl Real for $type {
            const ZERO: $type = 0.0;
            const ONE: $type = 1.0;
            const INFINITY: $type = <$type>::INFINITY;
            const SIZE_BYTES: usize = size_of::<$type>();

            fn negated(self) -> $type {
                -self
            }

            fn is_nan(self) -> bool {
                <$type>::is_nan(self)
            }

            fn is_infinite(self) -> bool {
                <$type>::is_infinite(self)
            }

            fn with_sign_of(self, other: $type) -> $type {
                self.copysign(other)
            }
        })*
    };
}

reals! { f32 f64 }

/// C's complex numbers.
#[derive(Clone, Copy, PartialEq)]
struct Complex<F> {
    real: F,
    imaginary: F,
}

impl<F: Real> Number for Complex<F> {
    fn read(bytes: &[u8]) -> Complex<F> {
        let (real, imaginary) = bytes.split_at(F::SIZE_BYTES);
        Complex { real: F::read(real), imaginary: F::read(imaginary) }
    }

    fn write(self, bytes: &mut [u8]) {
        let (real, imaginary) = bytes.split_at_mut(F::SIZE_BYTES);
        self.real.write(real);
        self.imaginary.write(imaginary);
    }

    fn sum(self, other: Complex<F>) -> Complex<F> {
        Complex { real: self.real.sum(other.real), imaginary: self.imaginary.sum(other.imaginary) }
    }

    fn product(self, other: Complex<F>) -> Complex<F> {
        let product = self.plain_product(other);
        if product.real.is_nan() && product.imaginary.is_nan() {
            self.infinite_product(other).unwrap_or(product)
        } else {
            product
        }
    }

    fn is_true(self) -> bool {
        self.real.is_true() || self.imaginary.is_true()
    }

    fn from_bool(truth: bool) -> Complex<F> {
        Complex { real: F::from_bool(truth), imaginary: F::ZERO }
    }
}

impl<F: Real> Complex<F> {
    fn plain_product(self, other: Complex<F>) -> Complex<F> {
        let of_imaginary = self.imaginary.product(other.imaginary);
        Complex {
            real: self.real.product(other.real).sum(of_imaginary.negated()),
            imaginary: self.real.product(other.imaginary).sum(self.imaginary.product(other.real)),
        }
    }

    /// Returns the product if a factor or a partial product is infinite: C11, annex G.5.1, requires an
    /// infinite product, even where the usual formula gives NaN. Otherwise returns `None`.
    #[cold]
    fn infinite_product(self, other: Complex<F>) -> Option<Complex<F>> {
        let (mut left, mut right) = (self, other);
        let mut is_infinite = false;
        if left.is_infinite() {
            (left, right) = (left.infinities_as_units(), right.without_nan());
            is_infinite = true;
        }
        if right.is_infinite() {
            (right, left) = (right.infinities_as_units(), left.without_nan());
            is_infinite = true;
        }
        let parts = [
            self.real.product(other.real),
            self.imaginary.product(other.imaginary),
            self.real.product(other.imaginary),
            self.imaginary.product(other.real),
        ];
        if !is_infinite && parts.into_iter().any(F::is_infinite) {
            (left, right) = (left.without_nan(), right.without_nan());
            is_infinite = true;
        }
        let finite = left.plain_product(right);
        is_infinite.then(|| Complex {
            real: F::INFINITY.product(finite.real),
            imaginary: F::INFINITY.product(finite.imaginary),
        })
    }

    fn is_infinite(self) -> bool {
        self.real.is_infinite() || self.imaginary.is_infinite()
    }

    /// Replaces infinite parts by 1 and other parts by 0, and keeps the signs.
    fn infinities_as_units(self) -> Complex<F> {
        let of = |part: F| if part.is_infinite() { F::ONE } else { F::ZERO }.with_sign_of(part);
        Complex { real: of(self.real), imaginary: of(self.imaginary) }
    }

    fn without_nan(self) -> Complex<F> {
        let of = |part: F| if part.is_nan() { F::ZERO.with_sign_of(part) } else { part };
        Complex { real: of(self.real), imaginary: of(self.imaginary) }
    }
}
