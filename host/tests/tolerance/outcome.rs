//! The outcome of a probe, in words.

use homespun::Errno;

/// What a probe returns: the result of a call, or its outcome in words.
pub(crate) trait IntoOutcome {
    fn into_outcome(self) -> String;
}

impl IntoOutcome for String {
    fn into_outcome(self) -> String {
        self
    }
}

impl IntoOutcome for i32 {
    fn into_outcome(self) -> String {
        describe_result(self)
    }
}

impl IntoOutcome for isize {
    fn into_outcome(self) -> String {
        describe_result(self)
    }
}

/// The result of a call: `0`, a count, or the name of the error number.
pub(crate) fn describe_result(result: impl TryInto<i64>) -> String {
    let Ok(result) = result.try_into() else { unreachable!("results have at most 64 bits") };
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
