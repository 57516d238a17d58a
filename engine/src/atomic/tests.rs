#![expect(clippy::host_endian_bytes, reason = "elements lie in memory as the application has them")]

use proptest::prelude::*;

use super::*;

/// Returns the element after an operation, or `None` if the operation leaves it unchanged. The parts are the
/// element, the operand and the compared value.
fn combined_element(op: AtomicOp, datatype: Datatype, parts: &[impl AsRef<[u8]>; 3]) -> Option<Vec<u8>> {
    let combine = op.combine_fn(datatype).unwrap_or_else(|| panic!("no {op} of {datatype}"));
    let [element, operand, compare]: [&[u8]; 3] = parts.each_ref().map(AsRef::as_ref);
    let mut after = element.to_vec();
    let is_stored = combine(&mut after, operand, compare);
    assert!(is_stored || after == element, "{op} of {datatype} changes what it does not store");
    is_stored.then_some(after)
}

#[test]
fn numbers_of_datatypes_ops_and_kinds_are_positions_in_all() {
    for (number, datatype) in (0..).zip(Datatype::ALL) {
        assert_eq!((datatype as u32, Datatype::from_number(number)), (number, Some(datatype)));
        assert!(datatype.size_bytes() <= ELEMENT_MAX_BYTES);
    }
    for (number, op) in (0..).zip(AtomicOp::ALL) {
        assert_eq!((op as u32, AtomicOp::from_number(number)), (number, Some(op)));
    }
    for (number, kind) in (0..).zip(AtomicKind::ALL) {
        assert_eq!((kind as u32, AtomicKind::from_number(number)), (number, Some(kind)));
    }
    assert_eq!((Datatype::from_number(16), AtomicOp::from_number(19)), (None, None));
    assert_eq!(AtomicKind::from_number(u32::MAX), None);
}

#[test]
fn combine_fn_exists_exactly_for_offered_ops_and_datatypes() {
    for datatype in Datatype::ALL {
        for op in AtomicOp::ALL {
            let is_offered = AtomicKind::ALL.map(|kind| kind.count_max(op, datatype).is_some());
            assert_eq!(op.combine_fn(datatype).is_some(), is_offered.contains(&true), "{op} of {datatype}");
            let [base, fetch, compare] = is_offered;
            assert!(!compare || !base && !fetch, "{op} both compares and does not");
            assert_eq!(base, fetch && op != AtomicOp::Read, "{op} of {datatype}");
        }
    }
}

/// Decodes a little-endian integer.
fn decode_integer(bytes: &[u8], is_signed: bool) -> i128 {
    let mut whole = [0; 16];
    let (low, high) = whole.split_at_mut(bytes.len());
    low.copy_from_slice(bytes);
    let is_negative = is_signed && bytes.last().is_some_and(|last| last & 0x80 != 0);
    high.fill(if is_negative { 0xff } else { 0 });
    i128::from_le_bytes(whole)
}

/// Returns the new element according to the manual page, for the logical operations and those that store the
/// operand or nothing.
fn expected_number<T: Copy + PartialEq>(
    op: AtomicOp,
    [e, o, c]: [T; 3],
    [zero, one]: [T; 2],
    is_less: impl Fn(T, T) -> bool,
) -> Option<T> {
    let truth = |truth: bool| Some(if truth { one } else { zero });
    let operand_if = |is_stored: bool| is_stored.then_some(o);
    match op {
        AtomicOp::Min => operand_if(is_less(o, e)),
        AtomicOp::Max => operand_if(is_less(e, o)),
        AtomicOp::Lor => truth(e != zero || o != zero),
        AtomicOp::Land => truth(e != zero && o != zero),
        AtomicOp::Lxor => truth((e != zero) != (o != zero)),
        AtomicOp::Read => None,
        AtomicOp::Write => Some(o),
        AtomicOp::Cswap => operand_if(c == e),
        AtomicOp::CswapNe => operand_if(c != e),
        AtomicOp::CswapLe => operand_if(is_less(c, e) || c == e),
        AtomicOp::CswapLt => operand_if(is_less(c, e)),
        AtomicOp::CswapGe => operand_if(is_less(e, c) || c == e),
        AtomicOp::CswapGt => operand_if(is_less(e, c)),
        other => panic!("{other} is not of all numbers"),
    }
}

/// Returns the new element according to the manual page, for integers. Unsigned integers are
/// compared as `u128`, since `i128` cannot hold all values of 128 bits.
fn expected_integer(op: AtomicOp, datatype: Datatype, parts: [&[u8]; 3]) -> Option<Vec<u8>> {
    let is_signed = matches!(
        datatype,
        Datatype::Int8 | Datatype::Int16 | Datatype::Int32 | Datatype::Int64 | Datatype::Int128
    );
    let [e, o, c] = parts.map(|bytes| decode_integer(bytes, is_signed));
    let is_less = |a: i128, b: i128| if is_signed { a < b } else { a.cast_unsigned() < b.cast_unsigned() };
    let after = match op {
        AtomicOp::Sum => Some(e.wrapping_add(o)),
        AtomicOp::Prod => Some(e.wrapping_mul(o)),
        AtomicOp::Bor => Some(e | o),
        AtomicOp::Band => Some(e & o),
        AtomicOp::Bxor => Some(e ^ o),
        AtomicOp::Mswap => Some(o & c | e & !c),
        _ => expected_number(op, [e, o, c], [0, 1], is_less),
    };
    after.map(|after| after.to_le_bytes()[..parts[0].len()].to_vec())
}

/// Returns the new element according to the manual page, for real numbers. A double holds each of
/// the numbers exactly, and `round` rounds to the datatype.
fn expected_real(op: AtomicOp, [e, o, c]: [f64; 3], round: fn(f64) -> f64) -> Option<f64> {
    match op {
        // The sum or product of two floats is the same whether it is rounded once or twice.
        AtomicOp::Sum => Some(round(e + o)),
        AtomicOp::Prod => Some(round(e * o)),
        _ => expected_number(op, [e, o, c], [0.0, 1.0], |a, b| a < b),
    }
}

/// Generates three elements. They are often equal, or special values.
fn any_three_elements<T: Clone + std::fmt::Debug + 'static>(
    any: impl Strategy<Value = T> + Clone + 'static,
    special: Vec<T>,
) -> impl Strategy<Value = [T; 3]> {
    let one = prop_oneof![2 => any, 1 => prop::sample::select(special)];
    (prop::array::uniform3(one), prop::array::uniform3(0_usize..3))
        .prop_map(|(values, places)| places.map(|place| values[place].clone()))
}

const SPECIAL: [f64; 9] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f32::MAX as f64,
    f32::MIN_POSITIVE as f64,
];

fn are_same_or_both_nan(left: Option<f64>, right: Option<f64>) -> bool {
    let is_nan = |number: Option<f64>| number.is_some_and(f64::is_nan);
    left.map(f64::to_bits) == right.map(f64::to_bits) || is_nan(left) && is_nan(right)
}

proptest! {
    #[test]
    fn integer_operations_match_the_manual_page(
        values in any_three_elements(any::<u128>(), vec![0, 1, u128::MAX, 1 << 127, 0x80, 0x8000]),
    ) {
        // Bits can be combined exactly in the signed and unsigned integers of 8 to 128 bits.
        let has_bits = |datatype: &Datatype| AtomicOp::Bxor.supports_datatype(*datatype);
        let integers: Vec<Datatype> = Datatype::ALL.into_iter().filter(has_bits).collect();
        prop_assert_eq!(integers.len(), 2 * 5);
        for datatype in integers {
            let size_bytes = datatype.size_bytes();
            let bytes = values.map(u128::to_le_bytes);
            let least = bytes.each_ref().map(|bytes| &bytes[..size_bytes]);
            let mut parts = least.map(<[u8]>::to_vec);
            if cfg!(target_endian = "big") {
                parts.iter_mut().for_each(|part| part.reverse());
            }
            for op in AtomicOp::ALL {
                let mut expected = expected_integer(op, datatype, least);
                if cfg!(target_endian = "big") && let Some(expected) = &mut expected {
                    expected.reverse();
                }
                let after = combined_element(op, datatype, &parts);
                prop_assert_eq!(after, expected, "{} of {}", op, datatype);
            }
        }
    }

    #[test]
    fn real_operations_match_the_manual_page(
        values in any_three_elements(any::<f32>().prop_map(f64::from), SPECIAL.to_vec()),
    ) {
        for op in AtomicOp::ALL.into_iter().filter(|op| op.supports_datatype(Datatype::Float)) {
            let expected = expected_real(op, values, |sum| f64::from(sum as f32));
            let floats = values.map(|value| (value as f32).to_ne_bytes());
            let after = combined_element(op, Datatype::Float, &floats);
            let after = after.map(|after| f64::from(f32::from_ne_bytes(after.try_into().unwrap())));
            prop_assert!(are_same_or_both_nan(after, expected), "{op} of {values:?}: {after:?}");

            let expected = expected_real(op, values, |sum| sum);
            let after = combined_element(op, Datatype::Double, &values.map(f64::to_ne_bytes));
            let after = after.map(|after| f64::from_ne_bytes(after.try_into().unwrap()));
            prop_assert!(are_same_or_both_nan(after, expected), "{op} of {values:?}: {after:?}");
        }
    }

    #[test]
    fn complex_operations_match_pairs_of_reals(
        values in any_three_elements((-1000_i32..1000, -1000_i32..1000), vec![(0, 0), (0, 1), (1, 0)]),
    ) {
        // The numbers are so small that nothing is rounded.
        let [(a, b), (c, d), _] = values;
        let parts_of = |(real, imaginary): (i32, i32)| [real, imaginary].map(f64::from);
        for op in AtomicOp::ALL.into_iter().filter(|op| op.supports_datatype(Datatype::FloatComplex)) {
            let expected = match op {
                AtomicOp::Sum => Some((a + c, b + d)),
                AtomicOp::Prod => Some((a * c - b * d, a * d + b * c)),
                _ => expected_number(op, values, [(0, 0), (1, 0)], |_, _| panic!("{op} needs an order")),
            };
            let expected = expected.map(parts_of);
            let float_of = |part: f64| (part as f32).to_ne_bytes();
            let floats = values.map(|number| parts_of(number).map(float_of).concat());
            let after = combined_element(op, Datatype::FloatComplex, &floats).map(|after| {
                let (parts, _) = after.as_chunks();
                [parts[0], parts[1]].map(|part| f64::from(f32::from_ne_bytes(part)))
            });
            prop_assert_eq!(after, expected, "{} of float complex", op);

            let doubles = values.map(|number| parts_of(number).map(f64::to_ne_bytes).concat());
            let after = combined_element(op, Datatype::DoubleComplex, &doubles).map(|after| {
                let (parts, _) = after.as_chunks();
                [parts[0], parts[1]].map(f64::from_ne_bytes)
            });
            prop_assert_eq!(after, expected, "{} of double complex", op);
        }
    }
}

#[test]
fn nan_is_stored_bit_by_bit() {
    let [one, nan] = [1.0, f64::from_bits(0x7ff8_0000_0000_1234)].map(f64::to_ne_bytes);
    let [zero, negative_zero] = [0.0, -0.0].map(f64::to_ne_bytes);
    for (op, parts, expected) in [
        (AtomicOp::Write, [one, nan, nan], Some(nan)),
        (AtomicOp::CswapNe, [one, nan, nan], Some(nan)),
        (AtomicOp::Cswap, [nan, one, nan], None),
        (AtomicOp::Max, [one, nan, nan], None),
        // Positive and negative zero are equal.
        (AtomicOp::Cswap, [zero, one, negative_zero], Some(one)),
    ] {
        assert_eq!(combined_element(op, Datatype::Double, &parts), expected.map(Vec::from), "{op}");
    }
}

/// Compares products of complex numbers with those of a C compiler. Parts of the numbers are
/// infinite or NaN. `NAN` stands for a NaN of either sign.
#[test]
fn product_of_infinite_complex_number_is_infinite() {
    const INF: f64 = f64::INFINITY;
    const NAN: f64 = f64::NAN;
    type Complex = (f64, f64);
    let cases: [(Complex, Complex, Complex); 14] = [
        ((INF, NAN), (INF, NAN), (INF, NAN)),
        ((INF, NAN), (1.0, 2.0), (INF, INF)),
        ((INF, NAN), (0.0, INF), (NAN, INF)),
        ((INF, NAN), (-INF, 3.0), (-INF, NAN)),
        ((INF, INF), (INF, INF), (NAN, INF)),
        ((INF, INF), (NAN, NAN), (NAN, NAN)),
        ((NAN, NAN), (1.0, 2.0), (NAN, NAN)),
        ((1e308, 1e308), (1e308, 1e308), (NAN, INF)),
        ((1e308, 1e308), (-INF, 3.0), (-INF, NAN)),
        ((0.0, INF), (0.0, INF), (-INF, NAN)),
        ((0.0, INF), (-INF, 3.0), (NAN, -INF)),
        ((-INF, 3.0), (-INF, 3.0), (INF, -INF)),
        ((-INF, 3.0), (1.0, 2.0), (-INF, -INF)),
        ((1.0, 2.0), (1.0, 2.0), (-3.0, 4.0)),
    ];
    let bytes = |(real, imaginary): Complex| [real.to_ne_bytes(), imaginary.to_ne_bytes()].concat();
    for (left, right, expected) in cases {
        let numbers = [left, right, left].map(bytes);
        let product = combined_element(AtomicOp::Prod, Datatype::DoubleComplex, &numbers).unwrap();
        let (parts, _) = product.as_chunks();
        let [real, imaginary] = [parts[0], parts[1]].map(f64::from_ne_bytes);
        let is_right = are_same_or_both_nan(Some(real), Some(expected.0))
            && are_same_or_both_nan(Some(imaginary), Some(expected.1));
        assert!(is_right, "{left:?} * {right:?} = {real} + {imaginary} i");
    }
}

#[cfg(target_arch = "x86_64")]
mod long_doubles {
    use super::*;

    /// Sign and exponent in one word, then the significand.
    type Parts = (u16, u64);

    const ZERO: Parts = (0, 0);
    const MINUS_ZERO: Parts = (0x8000, 0);
    const LEAST: Parts = (0, 1);
    const TENTH: Parts = (0x3ffb, 0xcccc_cccc_cccc_cccd);
    const ONE: Parts = (0x3fff, 1 << 63);
    const MINUS_ONE: Parts = (0xbfff, 1 << 63);
    const AFTER_ONE: Parts = (0x3fff, (1 << 63) + 1);
    const INTEGER_MAX: Parts = (0x403e, u64::MAX);
    const MAX: Parts = (0x7ffe, u64::MAX);
    const INFINITY: Parts = (0x7fff, 1 << 63);
    const MINUS_INFINITY: Parts = (0xffff, 1 << 63);
    const NAN: Parts = (0x7fff, 3 << 62);

    /// Encodes an extended number. Its padding bytes are not zero.
    fn encode_with_dirty_padding((sign_and_exponent, significand): Parts) -> Vec<u8> {
        [&significand.to_le_bytes()[..], &sign_and_exponent.to_le_bytes(), &[0xaa; 6]].concat()
    }

    /// Converts an integer to an extended number. The result is exact for up to 64 bits.
    fn extended_from_integer(integer: i128) -> Parts {
        let sign = if integer < 0 { 1 << 15 } else { 0 };
        let significand = integer.unsigned_abs();
        if significand == 0 {
            return ZERO;
        }
        let shift = significand.leading_zeros();
        let normal = significand << shift;
        assert_eq!(normal as u64, 0, "it needs no more than 64 bits");
        (sign | (16_383 + 127 - shift) as u16, (normal >> 64) as u64)
    }

    /// As [`combined_element`], for extended numbers.
    fn combine_long_doubles(op: AtomicOp, numbers: [Parts; 3]) -> Option<Vec<u8>> {
        combined_element(op, Datatype::LongDouble, &numbers.map(encode_with_dirty_padding))
    }

    /// Compares sums and products with those of a C compiler: rounded to 64 bits of significand,
    /// subnormal, and infinite.
    #[test]
    fn sums_and_products_match_c() {
        let huge = |exponent: u16| (exponent, 0xd1ba_8323_fe55_8c61);
        let negative = (0xc00c, 0xc0e6_b731_e29e_bb82);
        let cases: [[Parts; 4]; 17] = [
            [ONE, AFTER_ONE, (0x4000, 1 << 63), AFTER_ONE],
            [AFTER_ONE, AFTER_ONE, (0x4000, (1 << 63) + 1), (0x3fff, (1 << 63) + 2)],
            [TENTH, TENTH, (0x3ffc, 0xcccc_cccc_cccc_cccd), (0x3ff8, 0xa3d7_0a3d_70a3_d70b)],
            [INTEGER_MAX, ONE, (0x403f, 1 << 63), INTEGER_MAX],
            [INTEGER_MAX, INTEGER_MAX, (0x403f, u64::MAX), (0x407e, u64::MAX - 1)],
            [huge(0xf3e6), huge(0xf3e6), huge(0xf3e7), INFINITY],
            [MAX, MAX, INFINITY, INFINITY],
            [(0, 0x15_1402_8911), TENTH, TENTH, (0, 0x2_1b99_da82)],
            [(1, 1 << 63), LEAST, (1, (1 << 63) + 1), ZERO],
            [LEAST, LEAST, (0, 2), ZERO],
            [INFINITY, MINUS_ONE, INFINITY, MINUS_INFINITY],
            [MINUS_INFINITY, ONE, MINUS_INFINITY, MINUS_INFINITY],
            [MINUS_ZERO, ZERO, ZERO, MINUS_ZERO],
            [negative, TENTH, (0xc00c, 0xc0e6_50cb_7c38_551c), (0xc009, 0x9a52_2c27_e87e_fc68)],
            [negative, INTEGER_MAX, (0x403e, 0xffff_ffff_ffff_cfc5), (0xc04c, 0xc0e6_b731_e29e_bb81)],
            [MINUS_ONE, ONE, ZERO, MINUS_ONE],
            [MAX, negative, MAX, MINUS_INFINITY],
        ];
        for [left, right, sum, product] in cases {
            for (op, numbers, expected) in [
                (AtomicOp::Sum, [left, right, left], sum),
                (AtomicOp::Prod, [left, right, left], product),
                (AtomicOp::Sum, [right, left, left], sum),
            ] {
                let expected = Some(encode_with_dirty_padding(expected));
                assert_eq!(combine_long_doubles(op, numbers), expected, "{op} of {numbers:x?}");
            }
        }
    }

    #[test]
    fn complex_products_match_c() {
        let complex = |real, imaginary| [real, imaginary].map(encode_with_dirty_padding).concat();
        let product = |left: &[u8], right: &[u8]| {
            combined_element(AtomicOp::Prod, Datatype::LongDoubleComplex, &[left, right, left])
        };
        let left = complex((0x3fff, 0xc << 60), (0x4000, 0x9 << 60));
        let right = complex((0xbffb, TENTH.1), (0x4000, 0xc << 60));
        let expected = complex((0xc001, 0xdccc_cccc_cccc_cccd), (0x4001, 0x88cc_cccc_cccc_cccd));
        assert_eq!(product(&left, &right), Some(expected));
        let expected = complex((0xc002, 0x8fd7_0a3d_70a3_d70a), (0xbffe, 0x9999_9999_9999_999a));
        assert_eq!(product(&right, &right), Some(expected));
        // An infinite number times one, and times i.
        let infinite = complex(INFINITY, NAN);
        let [one, i] = [complex(ONE, ZERO), complex(ZERO, ONE)];
        let [by_one, by_i] = [one, i].map(|other| product(&infinite, &other).unwrap());
        assert_eq!(by_one[..16], encode_with_dirty_padding(INFINITY));
        assert_eq!(by_i[16..], encode_with_dirty_padding(INFINITY));
    }

    #[test]
    fn nan_is_true_and_equal_to_nothing() {
        for (op, numbers, expected) in [
            (AtomicOp::Land, [NAN, ONE, ONE], Some(ONE)),
            (AtomicOp::Land, [ONE, MINUS_ZERO, ONE], Some(ZERO)),
            (AtomicOp::Min, [ONE, NAN, ONE], None),
            (AtomicOp::Max, [NAN, ONE, ONE], None),
            (AtomicOp::Cswap, [ZERO, ONE, MINUS_ZERO], Some(ONE)),
        ] {
            let expected = expected.map(encode_with_dirty_padding);
            assert_eq!(combine_long_doubles(op, numbers), expected, "{op} of {numbers:x?}");
        }
        for op in AtomicOp::ALL.into_iter().filter(|op| op.has_compare_operand() && *op != AtomicOp::Mswap) {
            for numbers in [[ONE, TENTH, NAN], [NAN, TENTH, ONE]] {
                let is_stored = combine_long_doubles(op, numbers).is_some();
                assert_eq!(is_stored, op == AtomicOp::CswapNe, "{op} of {numbers:x?}");
            }
        }
    }

    #[test]
    fn negative_long_doubles_are_ordered() {
        for pair in [(-2, -1), (-3, -2), (-1, 0), (-1, 1)] {
            let [less, more] = [pair.0, pair.1].map(extended_from_integer);
            // Each case has the element that the operation stores into, and the other as operand and as
            // compared value.
            for (op, element, other, is_stored) in [
                (AtomicOp::Min, more, less, true),
                (AtomicOp::Min, less, more, false),
                (AtomicOp::Max, less, more, true),
                (AtomicOp::Max, more, less, false),
                (AtomicOp::CswapLt, more, less, true),
                (AtomicOp::CswapLt, less, more, false),
                (AtomicOp::CswapGt, less, more, true),
                (AtomicOp::CswapGt, more, less, false),
            ] {
                let expected = is_stored.then(|| encode_with_dirty_padding(other));
                assert_eq!(combine_long_doubles(op, [element, other, other]), expected, "{op} of {pair:?}");
            }
        }
    }

    #[test]
    fn long_double_padding_is_copied_with_operand_and_kept_by_sum() {
        let element = encode_with_dirty_padding(extended_from_integer(5));
        let mut operand = encode_with_dirty_padding(extended_from_integer(7));
        operand[10..].fill(0x55);
        let combined =
            |op| combined_element(op, Datatype::LongDouble, &[&element, &operand, &element]).unwrap();
        for op in [AtomicOp::Write, AtomicOp::Max, AtomicOp::Cswap] {
            assert_eq!(combined(op), operand, "{op}");
        }
        assert_eq!(combined(AtomicOp::Sum), encode_with_dirty_padding(extended_from_integer(12)));
    }
}
