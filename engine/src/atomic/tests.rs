#![expect(clippy::host_endian_bytes, reason = "elements lie in memory as the application has them")]

use proptest::prelude::*;

use super::*;

/// Returns the element after an operation, or `None` if the operation leaves it unchanged.
fn combined_element(
    op: AtomicOp,
    datatype: Datatype,
    element: &[u8],
    operand: &[u8],
    compare: &[u8],
) -> Option<Vec<u8>> {
    let combine = op.combine_fn(datatype).unwrap_or_else(|| panic!("no {op} of {datatype}"));
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

/// Returns the new element according to the manual page, for integers. Unsigned integers are
/// compared as `u128`, since `i128` cannot hold all values of 128 bits.
fn expected_integer(
    op: AtomicOp,
    datatype: Datatype,
    element: &[u8],
    operand: &[u8],
    compare: &[u8],
) -> Option<Vec<u8>> {
    let is_signed = matches!(
        datatype,
        Datatype::Int8 | Datatype::Int16 | Datatype::Int32 | Datatype::Int64 | Datatype::Int128
    );
    let [e, o, c] = [element, operand, compare].map(|bytes| decode_integer(bytes, is_signed));
    let is_less = |a: i128, b: i128| if is_signed { a < b } else { a.cast_unsigned() < b.cast_unsigned() };
    let after = match op {
        AtomicOp::Min => is_less(o, e).then_some(o),
        AtomicOp::Max => is_less(e, o).then_some(o),
        AtomicOp::Sum => Some(e.wrapping_add(o)),
        AtomicOp::Prod => Some(e.wrapping_mul(o)),
        AtomicOp::Lor => Some(i128::from(e != 0 || o != 0)),
        AtomicOp::Land => Some(i128::from(e != 0 && o != 0)),
        AtomicOp::Bor => Some(e | o),
        AtomicOp::Band => Some(e & o),
        AtomicOp::Lxor => Some(i128::from((e != 0) != (o != 0))),
        AtomicOp::Bxor => Some(e ^ o),
        AtomicOp::Read => None,
        AtomicOp::Write => Some(o),
        AtomicOp::Cswap => (c == e).then_some(o),
        AtomicOp::CswapNe => (c != e).then_some(o),
        AtomicOp::CswapLe => (!is_less(e, c)).then_some(o),
        AtomicOp::CswapLt => is_less(c, e).then_some(o),
        AtomicOp::CswapGe => (!is_less(c, e)).then_some(o),
        AtomicOp::CswapGt => is_less(e, c).then_some(o),
        AtomicOp::Mswap => Some(o & c | e & !c),
    };
    after.map(|after| after.to_le_bytes()[..element.len()].to_vec())
}

/// Returns the new element according to the manual page, for real numbers. A double holds each of
/// the numbers exactly, and `round` rounds to the datatype.
fn expected_real(op: AtomicOp, [e, o, c]: [f64; 3], round: fn(f64) -> f64) -> Option<f64> {
    let truth = |truth: bool| Some(f64::from(u8::from(truth)));
    match op {
        AtomicOp::Min => (o < e).then_some(o),
        AtomicOp::Max => (o > e).then_some(o),
        // The sum or product of two floats is the same whether it is rounded once or twice.
        AtomicOp::Sum => Some(round(e + o)),
        AtomicOp::Prod => Some(round(e * o)),
        AtomicOp::Lor => truth(e != 0.0 || o != 0.0),
        AtomicOp::Land => truth(e != 0.0 && o != 0.0),
        AtomicOp::Lxor => truth((e != 0.0) != (o != 0.0)),
        AtomicOp::Read => None,
        AtomicOp::Write => Some(o),
        AtomicOp::Cswap => (c == e).then_some(o),
        AtomicOp::CswapNe => (c != e).then_some(o),
        AtomicOp::CswapLe => (c <= e).then_some(o),
        AtomicOp::CswapLt => (c < e).then_some(o),
        AtomicOp::CswapGe => (c >= e).then_some(o),
        AtomicOp::CswapGt => (c > e).then_some(o),
        AtomicOp::Bor | AtomicOp::Band | AtomicOp::Bxor | AtomicOp::Mswap => panic!("not of real numbers"),
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

const INTEGERS: [Datatype; 10] = [
    Datatype::Int8,
    Datatype::Uint8,
    Datatype::Int16,
    Datatype::Uint16,
    Datatype::Int32,
    Datatype::Uint32,
    Datatype::Int64,
    Datatype::Uint64,
    Datatype::Int128,
    Datatype::Uint128,
];

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

fn is_same_or_both_nan(left: f64, right: f64) -> bool {
    left.to_bits() == right.to_bits() || left.is_nan() && right.is_nan()
}

fn are_same_or_both_nan(left: Option<f64>, right: Option<f64>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => is_same_or_both_nan(left, right),
        _ => left.is_none() && right.is_none(),
    }
}

proptest! {
    #[test]
    fn integer_operations_match_the_manual_page(
        values in any_three_elements(any::<u128>(), vec![0, 1, u128::MAX, 1 << 127, 0x80, 0x8000]),
    ) {
        for datatype in INTEGERS {
            let size_bytes = datatype.size_bytes();
            let bytes = values.map(u128::to_le_bytes);
            let least = bytes.each_ref().map(|bytes| &bytes[..size_bytes]);
            let mut parts = least.map(<[u8]>::to_vec);
            if cfg!(target_endian = "big") {
                parts.iter_mut().for_each(|part| part.reverse());
            }
            let [element, operand, compare] = &parts;
            for op in AtomicOp::ALL {
                let mut expected = expected_integer(op, datatype, least[0], least[1], least[2]);
                if cfg!(target_endian = "big") && let Some(expected) = &mut expected {
                    expected.reverse();
                }
                let after = combined_element(op, datatype, element, operand, compare);
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
            let [element, operand, compare] = values.map(|value| (value as f32).to_ne_bytes());
            let after = combined_element(op, Datatype::Float, &element, &operand, &compare);
            let after = after.map(|after| f64::from(f32::from_ne_bytes(after.try_into().unwrap())));
            prop_assert!(are_same_or_both_nan(after, expected), "{op} of {values:?}: {after:?}");

            let expected = expected_real(op, values, |sum| sum);
            let [element, operand, compare] = values.map(f64::to_ne_bytes);
            let after = combined_element(op, Datatype::Double, &element, &operand, &compare);
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
        let [e, o, x] = values;
        let truth = |truth: bool| Some((i32::from(truth), 0));
        let is_true = |number| number != (0, 0);
        for op in AtomicOp::ALL.into_iter().filter(|op| op.supports_datatype(Datatype::FloatComplex)) {
            let expected = match op {
                AtomicOp::Sum => Some((a + c, b + d)),
                AtomicOp::Prod => Some((a * c - b * d, a * d + b * c)),
                AtomicOp::Lor => truth(is_true(e) || is_true(o)),
                AtomicOp::Land => truth(is_true(e) && is_true(o)),
                AtomicOp::Lxor => truth(is_true(e) != is_true(o)),
                AtomicOp::Read => None,
                AtomicOp::Write => Some(o),
                AtomicOp::Cswap => (x == e).then_some(o),
                AtomicOp::CswapNe => (x != e).then_some(o),
                other => panic!("{other} is not of complex numbers"),
            };
            let floats = |(real, imaginary): (i32, i32)| {
                [(real as f32).to_ne_bytes(), (imaginary as f32).to_ne_bytes()].concat()
            };
            let doubles = |(real, imaginary): (i32, i32)| {
                [f64::from(real).to_ne_bytes(), f64::from(imaginary).to_ne_bytes()].concat()
            };
            // A zero part may have either sign.
            let without_sign_of_zero = |mut bytes: Vec<u8>, size_bytes: usize| {
                for part in bytes.chunks_exact_mut(size_bytes / 2) {
                    let sign = if cfg!(target_endian = "big") { 0 } else { part.len() - 1 };
                    if (0..part.len()).all(|at| part[at] == if at == sign { part[sign] & 0x80 } else { 0 }) {
                        part[sign] = 0;
                    }
                }
                bytes
            };
            let kinds: [(_, &dyn Fn(_) -> _); 2] =
                [(Datatype::FloatComplex, &floats), (Datatype::DoubleComplex, &doubles)];
            for (datatype, of) in kinds {
                let [element, operand, compare] = values.map(of);
                let after = combined_element(op, datatype, &element, &operand, &compare)
                    .map(|after| without_sign_of_zero(after, datatype.size_bytes()));
                prop_assert_eq!(after, expected.map(of), "{} of {}", op, datatype);
            }
        }
    }
}

#[test]
fn nan_is_stored_bit_by_bit() {
    let [element, nan] = [1.0, f64::from_bits(0x7ff8_0000_0000_1234)].map(f64::to_ne_bytes);
    assert_eq!(combined_element(AtomicOp::Write, Datatype::Double, &element, &nan, &[]), Some(nan.to_vec()));
    assert_eq!(
        combined_element(AtomicOp::CswapNe, Datatype::Double, &element, &nan, &nan),
        Some(nan.to_vec())
    );
    assert_eq!(combined_element(AtomicOp::Cswap, Datatype::Double, &nan, &element, &nan), None);
    assert_eq!(combined_element(AtomicOp::Max, Datatype::Double, &element, &nan, &[]), None);
    // Positive and negative zero are equal.
    let [zero, negative] = [0.0, -0.0].map(f64::to_ne_bytes);
    assert_eq!(
        combined_element(AtomicOp::Cswap, Datatype::Double, &zero, &element, &negative),
        Some(element.to_vec())
    );
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
        let product =
            combined_element(AtomicOp::Prod, Datatype::DoubleComplex, &bytes(left), &bytes(right), &[]);
        let (parts, _) = product.as_deref().unwrap().as_chunks();
        let [real, imaginary] = [parts[0], parts[1]].map(f64::from_ne_bytes);
        let is_right = is_same_or_both_nan(real, expected.0) && is_same_or_both_nan(imaginary, expected.1);
        assert!(is_right, "{left:?} * {right:?} = {real} + {imaginary} i");
    }
}

#[cfg(target_arch = "x86_64")]
mod long_doubles {
    use super::*;

    /// Sign and exponent in one word, then the significand.
    type Parts = (u16, u64);

    /// Encodes an extended number. Its padding bytes are not zero.
    fn encode_with_dirty_padding((sign_and_exponent, significand): Parts) -> Vec<u8> {
        [&significand.to_le_bytes()[..], &sign_and_exponent.to_le_bytes(), &[0xaa; 6]].concat()
    }

    /// Converts an integer to an extended number. The result is exact for up to 64 bits.
    fn extended_from_integer(integer: i128) -> Parts {
        let sign = if integer < 0 { 1 << 15 } else { 0 };
        let significand = integer.unsigned_abs();
        if significand == 0 {
            return (0, 0);
        }
        let shift = significand.leading_zeros();
        let normal = significand << shift;
        assert_eq!(normal as u64, 0, "it needs no more than 64 bits");
        (sign | (16_383 + 127 - shift) as u16, (normal >> 64) as u64)
    }

    fn combine_long_doubles(op: AtomicOp, element: Parts, operand: Parts, compare: Parts) -> Option<Vec<u8>> {
        combined_element(
            op,
            Datatype::LongDouble,
            &encode_with_dirty_padding(element),
            &encode_with_dirty_padding(operand),
            &encode_with_dirty_padding(compare),
        )
    }

    /// Compares sums and products with those of a C compiler: rounded to 64 bits of significand,
    /// subnormal, and infinite.
    #[test]
    fn sums_and_products_match_c() {
        let cases: [[Parts; 4]; 17] = [
            [(0x3fff, 1 << 63), (0x3fff, (1 << 63) + 1), (0x4000, 1 << 63), (0x3fff, (1 << 63) + 1)],
            [
                (0x3fff, (1 << 63) + 1),
                (0x3fff, (1 << 63) + 1),
                (0x4000, (1 << 63) + 1),
                (0x3fff, (1 << 63) + 2),
            ],
            [
                (0x3ffb, 0xcccc_cccc_cccc_cccd),
                (0x3ffb, 0xcccc_cccc_cccc_cccd),
                (0x3ffc, 0xcccc_cccc_cccc_cccd),
                (0x3ff8, 0xa3d7_0a3d_70a3_d70b),
            ],
            [(0x403e, u64::MAX), (0x3fff, 1 << 63), (0x403f, 1 << 63), (0x403e, u64::MAX)],
            [(0x403e, u64::MAX), (0x403e, u64::MAX), (0x403f, u64::MAX), (0x407e, u64::MAX - 1)],
            [
                (0xf3e6, 0xd1ba_8323_fe55_8c61),
                (0xf3e6, 0xd1ba_8323_fe55_8c61),
                (0xf3e7, 0xd1ba_8323_fe55_8c61),
                (0x7fff, 1 << 63),
            ],
            [(0x7ffe, u64::MAX), (0x7ffe, u64::MAX), (0x7fff, 1 << 63), (0x7fff, 1 << 63)],
            [
                (0, 0x15_1402_8911),
                (0x3ffb, 0xcccc_cccc_cccc_cccd),
                (0x3ffb, 0xcccc_cccc_cccc_cccd),
                (0, 0x2_1b99_da82),
            ],
            [(1, 1 << 63), (0, 1), (1, (1 << 63) + 1), (0, 0)],
            [(0, 1), (0, 1), (0, 2), (0, 0)],
            [(0x7fff, 1 << 63), (0xbfff, 1 << 63), (0x7fff, 1 << 63), (0xffff, 1 << 63)],
            [(0xffff, 1 << 63), (0x3fff, 1 << 63), (0xffff, 1 << 63), (0xffff, 1 << 63)],
            [(0x8000, 0), (0, 0), (0, 0), (0x8000, 0)],
            [
                (0xc00c, 0xc0e6_b731_e29e_bb82),
                (0x3ffb, 0xcccc_cccc_cccc_cccd),
                (0xc00c, 0xc0e6_50cb_7c38_551c),
                (0xc009, 0x9a52_2c27_e87e_fc68),
            ],
            [
                (0xc00c, 0xc0e6_b731_e29e_bb82),
                (0x403e, u64::MAX),
                (0x403e, 0xffff_ffff_ffff_cfc5),
                (0xc04c, 0xc0e6_b731_e29e_bb81),
            ],
            [(0xbfff, 1 << 63), (0x3fff, 1 << 63), (0, 0), (0xbfff, 1 << 63)],
            [(0x7ffe, u64::MAX), (0xc00c, 0xc0e6_b731_e29e_bb82), (0x7ffe, u64::MAX), (0xffff, 1 << 63)],
        ];
        for [left, right, sum, product] in cases {
            assert_eq!(
                combine_long_doubles(AtomicOp::Sum, left, right, left),
                Some(encode_with_dirty_padding(sum)),
                "{left:x?} + {right:x?}"
            );
            assert_eq!(
                combine_long_doubles(AtomicOp::Prod, left, right, left),
                Some(encode_with_dirty_padding(product)),
                "{left:x?} * {right:x?}"
            );
            assert_eq!(
                combine_long_doubles(AtomicOp::Sum, right, left, left),
                Some(encode_with_dirty_padding(sum)),
                "{right:x?} + {left:x?}"
            );
        }
    }

    #[test]
    fn complex_products_match_c() {
        let complex = |real, imaginary| {
            [encode_with_dirty_padding(real), encode_with_dirty_padding(imaginary)].concat()
        };
        let product = |left: Vec<u8>, right: Vec<u8>| {
            combined_element(AtomicOp::Prod, Datatype::LongDoubleComplex, &left, &right, &[])
        };
        let left = complex((0x3fff, 0xc << 60), (0x4000, 0x9 << 60));
        let right = complex((0xbffb, 0xcccc_cccc_cccc_cccd), (0x4000, 0xc << 60));
        let expected = complex((0xc001, 0xdccc_cccc_cccc_cccd), (0x4001, 0x88cc_cccc_cccc_cccd));
        assert_eq!(product(left, right.clone()), Some(expected));
        let expected = complex((0xc002, 0x8fd7_0a3d_70a3_d70a), (0xbffe, 0x9999_9999_9999_999a));
        assert_eq!(product(right.clone(), right), Some(expected));
        // An infinite number times one, and times i.
        let infinite = complex((0x7fff, 1 << 63), (0x7fff, 3 << 62));
        let [one, i] = [complex((0x3fff, 1 << 63), (0, 0)), complex((0, 0), (0x3fff, 1 << 63))];
        let [by_one, by_i] = [one, i].map(|other| product(infinite.clone(), other).unwrap());
        assert_eq!(by_one[..16], encode_with_dirty_padding((0x7fff, 1 << 63)));
        assert_eq!(by_i[16..], encode_with_dirty_padding((0x7fff, 1 << 63)));
    }

    #[test]
    fn nan_is_true_and_equal_to_nothing() {
        let (nan, one) = ((0x7fff, 3 << 62), extended_from_integer(1));
        assert_eq!(combine_long_doubles(AtomicOp::Land, nan, one, one), Some(encode_with_dirty_padding(one)));
        assert_eq!(
            combine_long_doubles(AtomicOp::Land, one, (0x8000, 0), one),
            Some(encode_with_dirty_padding((0, 0)))
        );
        for (op, is_stored) in [
            (AtomicOp::Cswap, false),
            (AtomicOp::CswapNe, true),
            (AtomicOp::CswapLe, false),
            (AtomicOp::CswapLt, false),
            (AtomicOp::CswapGe, false),
            (AtomicOp::CswapGt, false),
        ] {
            assert_eq!(
                combine_long_doubles(op, one, extended_from_integer(2), nan).is_some(),
                is_stored,
                "{op}"
            );
            assert_eq!(
                combine_long_doubles(op, nan, extended_from_integer(2), one).is_some(),
                is_stored,
                "{op}"
            );
        }
        assert_eq!(
            (
                combine_long_doubles(AtomicOp::Min, one, nan, one),
                combine_long_doubles(AtomicOp::Max, nan, one, one)
            ),
            (None, None)
        );
        assert_eq!(
            combine_long_doubles(AtomicOp::Cswap, (0, 0), one, (0x8000, 0)),
            Some(encode_with_dirty_padding(one))
        );
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
                assert_eq!(combine_long_doubles(op, element, other, other), expected, "{op} of {pair:?}");
            }
        }
    }

    #[test]
    fn long_double_padding_is_copied_with_operand_and_kept_by_sum() {
        let element = encode_with_dirty_padding(extended_from_integer(5));
        let mut operand = encode_with_dirty_padding(extended_from_integer(7));
        operand[10..].fill(0x55);
        let combined = |op| combined_element(op, Datatype::LongDouble, &element, &operand, &element).unwrap();
        for op in [AtomicOp::Write, AtomicOp::Max, AtomicOp::Cswap] {
            assert_eq!(combined(op), operand, "{op}");
        }
        assert_eq!(combined(AtomicOp::Sum), encode_with_dirty_padding(extended_from_integer(12)));
    }
}
