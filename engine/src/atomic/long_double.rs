//! C's `long double` on x86-64: the extended numbers of the processor's floating-point stack.

use std::arch::asm;
use std::cmp::Ordering;

use super::arithmetic::{Number, Real};

/// An extended number: a significand of 64 bits, an exponent of 15 bits and a sign bit. The first
/// bit of the significand is the integer bit. In memory, 6 bytes of padding follow.
#[derive(Clone, Copy)]
pub(super) struct LongDouble([u8; VALUE_BYTES]);

/// The size of the value in memory, without the padding.
const VALUE_BYTES: usize = 10;

const SIGN: u16 = 1 << 15;

/// The exponent of infinities and NaNs.
const EXPONENT_MAX: u16 = SIGN - 1;

/// The exponent of numbers that are at least 1 and less than 2.
const EXPONENT_OF_ONE: u16 = 16_383;

const INTEGER_BIT: u64 = 1 << 63;

/// Runs an instruction with two operands on the processor's floating-point stack. The stack is
/// empty before and after.
macro_rules! on_the_stack {
    ($instruction:literal, $left:expr, $right:expr) => {{
        let mut result = [0; VALUE_BYTES];
        // SAFETY: the code reads 10 bytes from each operand and writes 10 bytes to the result. These are the
        // sizes of the operands and the result. The code declares that it changes all registers of the
        // stack, so the stack is empty before. The stack is empty again afterwards: the code loads two
        // values, the instruction pops one value, and the store pops the other value. The code touches
        // nothing else.
        unsafe {
            asm!(
                "fld tbyte ptr [{left}]",
                "fld tbyte ptr [{right}]",
                $instruction,
                "fstp tbyte ptr [{result}]",
                left = in(reg) $left.0.as_ptr(),
                right = in(reg) $right.0.as_ptr(),
                result = in(reg) result.as_mut_ptr(),
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack),
            );
        }
        LongDouble(result)
    }};
}

impl LongDouble {
    const fn new(sign_and_exponent: u16, significand: u64) -> LongDouble {
        let mut bytes = [0; VALUE_BYTES];
        let (significand, sign_and_exponent) = (significand.to_le_bytes(), sign_and_exponent.to_le_bytes());
        let mut place = 0;
        while place < significand.len() {
            bytes[place] = significand[place];
            place += 1;
        }
        bytes[8] = sign_and_exponent[0];
        bytes[9] = sign_and_exponent[1];
        LongDouble(bytes)
    }

    fn sign_exponent_and_significand(self) -> (u16, u64) {
        let [a, b, c, d, e, f, g, h, low, high] = self.0;
        (u16::from_le_bytes([low, high]), u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }
}

impl PartialEq for LongDouble {
    fn eq(&self, other: &LongDouble) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

impl PartialOrd for LongDouble {
    fn partial_cmp(&self, other: &LongDouble) -> Option<Ordering> {
        let (is_unordered, is_greater, is_less): (u8, u8, u8);
        // SAFETY: the code reads 10 bytes from each operand, which is the size of an operand. The code
        // declares that it changes all registers of the stack, so the stack is empty before. The stack is
        // empty again afterwards: the code loads two values, the comparison pops one value, and `fstp` pops
        // the other value. The code writes no memory.
        unsafe {
            asm!(
                "fld tbyte ptr [{right}]",
                "fld tbyte ptr [{left}]",
                "fucomip st, st(1)",
                "fstp st(0)",
                "setp {is_unordered}",
                "seta {is_greater}",
                "setb {is_less}",
                left = in(reg) self.0.as_ptr(),
                right = in(reg) other.0.as_ptr(),
                is_unordered = lateout(reg_byte) is_unordered,
                is_greater = lateout(reg_byte) is_greater,
                is_less = lateout(reg_byte) is_less,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack, readonly),
            );
        }
        match (is_unordered, is_greater, is_less) {
            (0, 0, 0) => Some(Ordering::Equal),
            (0, 0, _) => Some(Ordering::Less),
            (0, _, _) => Some(Ordering::Greater),
            _ => None,
        }
    }
}

impl Number for LongDouble {
    fn read(bytes: &[u8]) -> LongDouble {
        let mut value = [0; VALUE_BYTES];
        value.copy_from_slice(&bytes[..VALUE_BYTES]);
        LongDouble(value)
    }

    fn write(self, bytes: &mut [u8]) {
        bytes[..VALUE_BYTES].copy_from_slice(&self.0);
    }

    fn sum(self, other: LongDouble) -> LongDouble {
        on_the_stack!("faddp st(1), st", self, other)
    }

    fn product(self, other: LongDouble) -> LongDouble {
        on_the_stack!("fmulp st(1), st", self, other)
    }

    fn is_true(self) -> bool {
        let (sign_and_exponent, significand) = self.sign_exponent_and_significand();
        sign_and_exponent & !SIGN != 0 || significand != 0
    }

    fn from_bool(truth: bool) -> LongDouble {
        if truth { LongDouble::ONE } else { LongDouble::ZERO }
    }
}

impl Real for LongDouble {
    const ZERO: LongDouble = LongDouble::new(0, 0);
    const ONE: LongDouble = LongDouble::new(EXPONENT_OF_ONE, INTEGER_BIT);
    const INFINITY: LongDouble = LongDouble::new(EXPONENT_MAX, INTEGER_BIT);
    const SIZE_BYTES: usize = 16;

    fn negated(self) -> LongDouble {
        let (sign_and_exponent, significand) = self.sign_exponent_and_significand();
        LongDouble::new(sign_and_exponent ^ SIGN, significand)
    }

    fn is_nan(self) -> bool {
        let (sign_and_exponent, significand) = self.sign_exponent_and_significand();
        sign_and_exponent & !SIGN == EXPONENT_MAX && significand != INTEGER_BIT
    }

    fn is_infinite(self) -> bool {
        let (sign_and_exponent, significand) = self.sign_exponent_and_significand();
        sign_and_exponent & !SIGN == EXPONENT_MAX && significand == INTEGER_BIT
    }

    fn with_sign_of(self, other: LongDouble) -> LongDouble {
        let ((own, significand), (others, _)) =
            (self.sign_exponent_and_significand(), other.sign_exponent_and_significand());
        LongDouble::new(own & !SIGN | others & SIGN, significand)
    }
}
