//! Sizes as users write them: in powers of 1024, with a letter.

/// The letters of the powers of 1024, starting with the first power.
const LETTERS: [char; 4] = ['K', 'M', 'G', 'T'];

/// Reads a number of bytes: `64`, `4K`, `1M`.
///
/// # Errors
///
/// A message for the user, if the text is no such number or the number does not fit into 64 bits.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let (digits, power) = match text.chars().last().map(|last| last.to_ascii_uppercase()) {
        Some(last) => match LETTERS.iter().position(|letter| *letter == last) {
            // All letters are one byte long.
            Some(index) => (&text[..text.len() - 1], index as u32 + 1),
            None => (text, 0),
        },
        None => (text, 0),
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    if !is_number {
        return Err("a size is a number of bytes, such as 64, 4K or 1M".into());
    }
    let number: Option<u64> = digits.parse().ok();
    number
        .and_then(|number| number.checked_mul(1 << (10 * power)))
        .ok_or_else(|| "the size is too large".into())
}

/// Writes a number of bytes in the form that [`parse`] reads, as short as possible without rounding.
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

/// Divides by 1024 while there is no remainder, at most once for each of [`LETTERS`]. Returns the quotient
/// and the number of divisions.
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
    fn letters_of_either_case_are_accepted() {
        let read = ["0", "64", "4K", "4k", "1M", "3g", "1T"].map(|text| parse(text).unwrap());
        assert_eq!(read, [0, 64, 4096, 4096, 1 << 20, 3 << 30, 1 << 40]);
    }

    #[test]
    fn malformed_size_is_refused() {
        for text in ["", "K", "-1", "+1", "1.5K", "4KB", "4 K", "0x10", "K4", "4é", "é"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert_eq!(parse("99999999999T"), Err("the size is too large".into()));
        assert_eq!(parse("99999999999999999999"), Err("the size is too large".into()));
    }

    #[test]
    fn written_size_parses_to_the_same_size() {
        for bytes in
            [0, 1, 1000, 1023, 1024, 1536, 1 << 20, (1 << 20) + 1, 5 << 30, 1 << 40, 1 << 50, u64::MAX]
        {
            assert_eq!(parse(&format(bytes)), Ok(bytes));
        }
        assert_eq!([0, 1000, 4096, 1 << 20].map(format), ["0", "1000", "4K", "1M"]);
        assert_eq!([0, 1000, 4096, 1 << 40].map(format_with_unit), ["0 B", "1000 B", "4 KiB", "1 TiB"]);
    }
}
