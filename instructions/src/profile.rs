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

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "# callgrind format\nversion: 1\ncreator: callgrind-3.19.0\npid: 1\n\
        cmd:  ./instructions\npart: 1\n\ndesc: I1 cache: \ndesc: Trigger: Program termination\n\n\
        positions: line\nevents: Ir\nsummary: 30\n\n";

    fn parse_body(body: &str) -> Result<Profile, ProfileError> {
        Profile::parse(&format!("{HEAD}{body}"))
    }

    fn make_profile(total: u64, functions: &[(&str, u64)]) -> Profile {
        let by_function = functions.iter().map(|(name, count)| ((*name).into(), *count)).collect();
        Profile { total, by_function }
    }

    #[test]
    fn costs_of_callees_are_not_counted_twice() {
        let body = "ob=/lib/a.so\nfl=a.rs\nfn=outer\n10 5\ncfn=inner\ncalls=1 20\n11 20\n12 3\n\nfn=inner\n\
            20 20\n\ntotals: 28\n";
        assert_eq!(parse_body(body), Ok(make_profile(28, &[("inner", 20), ("outer", 8)])));
    }

    #[test]
    fn costs_of_one_function_in_several_files_add_up() {
        let body =
            "fl=a.rs\nfn=outer\n10 5\nfi=b.rs\n7 2\nfe=a.rs\n12 3\n\nfl=c.rs\nfn=outer\n1 4\ntotals: 14\n";
        assert_eq!(parse_body(body), Ok(make_profile(14, &[("outer", 14)])));
    }

    #[test]
    fn names_are_demangled_and_have_no_hash() {
        let legacy = "fn=_ZN8homespun4pump4post17h0123456789abcdefE\n1 2\n";
        let current = "fn=_RNvNtCs1234_8homespun4pump4look\n1 3\n";
        let c = "fn=memcpy\n0 1\n";
        let expected = [("homespun::pump::look", 3), ("homespun::pump::post", 2), ("memcpy", 1)];
        assert_eq!(parse_body(&format!("{legacy}{current}{c}totals: 6\n")), Ok(make_profile(6, &expected)));
    }

    #[test]
    fn functions_without_symbols_are_grouped_by_object() {
        let body = "ob=/lib/libc.so.6\nfn=0x00000000000a1230\n0 4\nfn=0x00000000000b1230\n0 5\nob=/a/b.so\n\
            fn=???\n0 1\ntotals: 10\n";
        let expected =
            [("functions of b.so without symbols", 1), ("functions of libc.so.6 without symbols", 9)];
        assert_eq!(parse_body(body), Ok(make_profile(10, &expected)));
    }

    #[test]
    fn profile_without_costs_is_empty() {
        assert_eq!(parse_body("totals: 0\n"), Ok(Profile::default()));
    }

    #[test]
    fn profile_without_totals_is_refused() {
        assert_eq!(parse_body("fn=a\n1 2\n"), Err(ProfileError::NoTotals));
    }

    #[test]
    fn counts_that_do_not_add_up_are_refused() {
        let sum = ProfileError::Sum { total: 3, of_functions: 2 };
        assert_eq!(parse_body("fn=a\n1 2\ntotals: 3\n"), Err(sum));
    }

    #[test]
    fn malformed_line_is_refused() {
        for line in
            ["1 2", "fn=a\n+1 2 3", "fn=a\n1 two", "fn=a\n1 2 3", "jump=3", "nonsense", "events: Ir Dr"]
        {
            let result = parse_body(&format!("{line}\ntotals: 2\n"));
            assert!(matches!(result, Err(ProfileError::Line { .. })), "{line}: {result:?}");
        }
    }
}
