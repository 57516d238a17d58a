//! The outcome of a probe, in words.

use homespun::Errno;

/// The result of a call: `0`, a count, or the name of the error number.
pub(crate) fn describe_result(result: impl Into<i64>) -> String {
    let result: i64 = result.into();
    if result >= 0 {
        return result.to_string();
    }
    let name = i32::try_from(-result).ok().and_then(|errno| Errno::new(errno).name());
    name.map_or_else(|| result.to_string(), str::to_owned)
}

/// The outcome of hints that are granted as asked.
pub(crate) const AS_ASKED: &str = "0 as asked";

/// Whether the provider has accepted the call, with any result.
pub(crate) fn is_accepted(outcome: &str) -> bool {
    outcome.starts_with(|first: char| first.is_ascii_digit())
}

/// Whether the probe has reached the call under test.
pub(crate) fn has_reached_call(outcome: &str) -> bool {
    !outcome.starts_with("not tried")
}
