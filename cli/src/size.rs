//! Sizes as users write them: in powers of 1024, with a letter.

/// The letters of the powers of 1024, starting with the first power.
const LETTERS: [char; 4] = ['K', 'M', 'G', 'T'];

/// The largest number of digits that a size may have after the decimal point, without zeros at the end.
/// The largest unit is 2^40, so a whole number of bytes needs no more digits.
const DECIMALS_MAX: usize = 40;

/// Reads a number of bytes: `64`, `4K`, `1.5K`, `1KiB`, and what [`format_with_unit`] writes.
///
/// # Errors
///
/// A message for the user, if the text is no whole number of bytes, or the number does not fit into 64 bits.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    const NO_SIZE: &str = "a size is a number of bytes, such as 64, 4K, 1.5K or 1MiB";
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let power = parse_unit(unit.trim_start()).ok_or(NO_SIZE)?;
    let (whole, decimals) =
        number.split_once('.').map_or((number, None), |(whole, rest)| (whole, Some(rest)));
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number(whole) || !decimals.is_none_or(is_number) {
        return Err(NO_SIZE.into());
    }
    let unit_bytes = 1_u64 << (10 * power);
    let whole = whole.parse().ok().and_then(|whole: u64| whole.checked_mul(unit_bytes));
    let part = multiply_decimals(decimals.unwrap_or_default(), unit_bytes)
        .ok_or_else(|| format!("{text} is no whole number of bytes"))?;
    whole.and_then(|whole| whole.checked_add(part)).ok_or_else(|| "the size is too large".into())
}

/// The power of 1024 that a unit stands for. The power is 0 for no unit and for `B`, and 1 for `K` and
/// `KiB`.
fn parse_unit(unit: &str) -> Option<usize> {
    let unit = unit.to_ascii_uppercase();
    let mut letters = unit.chars();
    let Some(first) = letters.next() else { return Some(0) };
    match (LETTERS.iter().position(|letter| *letter == first), letters.as_str()) {
        (Some(index), "" | "IB") => Some(index + 1),
        (None, "") if first == 'B' => Some(0),
        _ => None,
    }
}

/// Multiplies a fraction by a power of two. `digits` are the fraction's decimal digits. `None` unless
/// the result is a whole number.
fn multiply_decimals(digits: &str, mut factor: u64) -> Option<u64> {
    let mut digits: Vec<u8> = digits.trim_end_matches('0').bytes().map(|digit| digit - b'0').collect();
    if digits.len() > DECIMALS_MAX {
        return None;
    }
    // Each doubling moves one bit of the fraction before the point.
    let mut product = 0;
    while factor > 1 {
        let mut carry = 0;
        for digit in digits.iter_mut().rev() {
            let doubled = 2 * *digit + carry;
            (*digit, carry) = (doubled % 10, doubled / 10);
        }
        product = 2 * product + u64::from(carry);
        factor /= 2;
    }
    digits.iter().all(|digit| *digit == 0).then_some(product)
}

/// Writes a number of bytes in the form that [`parse`] reads: a whole number of the largest unit that
/// divides it.
pub(crate) fn format(bytes: u64) -> String {
    let (number, power) = divide_by_1024(bytes);
    match power.checked_sub(1) {
        Some(index) => format!("{number}{}", LETTERS[index]),
        None => number.to_string(),
    }
}

/// Writes a number of bytes with its unit: `64 B`, `4 KiB`.
pub(crate) fn format_with_unit(bytes: u64) -> String {
    let (number, power) = divide_by_1024(bytes);
    match power.checked_sub(1) {
        Some(index) => format!("{number} {}iB", LETTERS[index]),
        None => format!("{number} B"),
    }
}

/// Divides by 1024 until there is a remainder, at most once for each of [`LETTERS`]. Returns the
/// quotient and the number of divisions.
fn divide_by_1024(mut bytes: u64) -> (u64, usize) {
    let mut power = 0;
    while bytes != 0 && bytes.is_multiple_of(1024) && power < LETTERS.len() {
        bytes /= 1024;
        power += 1;
    }
    (bytes, power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_either_case_are_accepted() {
        let read = ["0", "64", "64B", "4K", "4k", "1M", "3g", "1T"].map(|text| parse(text).unwrap());
        assert_eq!(read, [0, 64, 64, 4096, 4096, 1 << 20, 3 << 30, 1 << 40]);
        let read = ["0KiB", "1KiB", "1kib", "4 KiB", "64 MiB", "1 TiB"].map(|text| parse(text).unwrap());
        assert_eq!(read, [0, 1024, 1024, 4096, 64 << 20, 1 << 40]);
    }

    #[test]
    fn decimals_of_a_whole_number_of_bytes_are_accepted() {
        let read = ["1.5K", "0.5k", "1.50KiB", "2.0", "1.25M", "0.0009765625K", "0.000000000000K"]
            .map(|text| parse(text).unwrap());
        assert_eq!(read, [1536, 512, 1536, 2, 5 << 18, 1, 0]);
        for text in ["1.3K", "0.5", "1.00001K", "0.00048828125K"] {
            assert_eq!(parse(text), Err(format!("{text} is no whole number of bytes")));
        }
    }

    #[test]
    fn malformed_size_is_refused() {
        for text in [
            "", "K", "-1", "+1", "4KB", "0x10", "K4", "4é", "é", "1.", ".5K", "1.5.5K", "1,5K", "4KiBB",
            "1E3", " 4", "B", "iB", "4i", "4Ki",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert_eq!(parse("99999999999T"), Err("the size is too large".into()));
        assert_eq!(parse("99999999999999999999"), Err("the size is too large".into()));
        assert!(parse(&format!("0.{}1K", "0".repeat(1000))).is_err());
    }

    #[test]
    fn written_size_parses_to_the_same_size() {
        for bytes in
            [0, 1, 1000, 1023, 1024, 1536, 1 << 20, (1 << 20) + 1, 5 << 30, 1 << 40, 1 << 50, u64::MAX]
        {
            assert_eq!(parse(&format(bytes)), Ok(bytes));
            assert_eq!(parse(&format_with_unit(bytes)), Ok(bytes));
        }
        assert_eq!([0, 1000, 4096, 1 << 20].map(format), ["0", "1000", "4K", "1M"]);
        assert_eq!([0, 1000, 4096, 1 << 40].map(format_with_unit), ["0 B", "1000 B", "4 KiB", "1 TiB"]);
    }
}
