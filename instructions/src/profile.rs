//! Parses callgrind's profiles that are written with `--compress-strings=no --compress-pos=no`. Valgrind's
//! manual describes the format under "Callgrind Format Specification".

use std::collections::BTreeMap;

/// The number of executed instructions, in total and by function.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// All instructions.
    pub total: u64,
    /// The instructions of each function, without those of the functions that it calls. The names are
    /// demangled and have no hashes. So they are the same in every build.
    pub by_function: BTreeMap<String, u64>,
}

/// A profile that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// A line that violates the format.
    #[error("malformed line {number} of the profile: {text:?}")]
    Line {
        /// The line's number, from 1.
        number: usize,
        /// The line.
        text: String,
    },
    /// The profile has no total, so its end is missing.
    #[error("the profile has no totals")]
    NoTotals,
    /// The functions' counts do not add up.
    #[error("the profile has {total} instructions, but its functions have {of_functions}")]
    Sum {
        /// The profile's total.
        total: u64,
        /// The sum over its functions.
        of_functions: u64,
    },
}

impl Profile {
    /// Reads a profile of one event, `Ir`.
    ///
    /// # Errors
    ///
    /// [`ProfileError`] if the text is not such a profile, or is cut short.
    pub fn parse(text: &str) -> Result<Profile, ProfileError> {
        let mut by_function = BTreeMap::<String, u64>::new();
        let mut total = None;
        let (mut object, mut function) = (String::new(), None);
        let mut follows_call = false;
        for (index, line) in text.lines().enumerate() {
            let senseless = || ProfileError::Line { number: index + 1, text: line.into() };
            if let Some((key, value)) = line.split_once('=') {
                match key {
                    "ob" => object = value.into(),
                    "fn" => function = Some(function_name(value, &object)),
                    "calls" => follows_call = true,
                    "fl" | "fi" | "fe" | "cob" | "cfi" | "cfl" | "cfn" => {}
                    _ => return Err(senseless()),
                }
            } else if line.starts_with(|first: char| first.is_ascii_digit()) {
                // Skip the line after a call. That line has the cost of the called function, which the
                // function's own lines also have.
                if !std::mem::take(&mut follows_call) {
                    let function = function.as_ref().ok_or_else(senseless)?;
                    let cost = parse_cost(line).ok_or_else(senseless)?;
                    *by_function.entry(function.clone()).or_default() += cost;
                }
            } else if let Some((key, value)) = line.split_once(':') {
                match (key, value.trim()) {
                    ("events", event) if event != "Ir" => return Err(senseless()),
                    ("totals", value) => total = Some(value.parse().map_err(|_| senseless())?),
                    _ => {}
                }
            } else if !line.is_empty() && !line.starts_with('#') {
                return Err(senseless());
            }
        }
        let total = total.ok_or(ProfileError::NoTotals)?;
        let of_functions = by_function.values().sum();
        if total != of_functions {
            return Err(ProfileError::Sum { total, of_functions });
        }
        Ok(Profile { total, by_function })
    }
}

/// Parses the cost in a line of a position and a cost. If the cost is absent, it is 0.
fn parse_cost(line: &str) -> Option<u64> {
    let mut numbers = line.split_ascii_whitespace().skip(1);
    let cost = numbers.next().map_or(Some(0), |cost| cost.parse().ok())?;
    numbers.next().is_none().then_some(cost)
}

/// Converts a symbol to the function's name, which is the same in every build.
fn function_name(symbol: &str, object: &str) -> String {
    if symbol.starts_with("0x") || symbol == "???" {
        // A function without a symbol has only an address, and the address differs from run to run.
        let object = object.rsplit('/').next().unwrap_or(object);
        return format!("functions of {object} without symbols");
    }
    format!("{:#}", rustc_demangle::demangle(symbol))
}
