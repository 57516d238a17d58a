//! Problems of the variables `FI_HOMESPUN_*` in the environment.

use std::collections::BTreeSet;
use std::fmt;

use parking_lot::Mutex;
use tracing::{Level, warn};

/// A variable that homespun ignores, or whose value homespun replaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamProblem {
    /// The name of the variable.
    pub variable: String,
    /// Its value.
    pub value: String,
    /// What is wrong with it.
    pub kind: ParamProblemKind,
}

/// What is wrong with a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParamProblemKind {
    /// There is no parameter of this name. The variable is ignored.
    Unknown,
    /// The parameter cannot have this value. The default applies.
    Malformed {
        /// What the value should be.
        expected: String,
    },
    /// The number is outside the range of the parameter. The nearest number of the range applies.
    OutOfRange {
        /// The number that applies.
        taken: usize,
    },
}

impl fmt::Display for ParamProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ParamProblem { variable, value, kind } = self;
        match kind {
            ParamProblemKind::Unknown => write!(f, "{variable} is ignored: homespun has no such parameter"),
            ParamProblemKind::Malformed { expected } => {
                write!(f, "{variable}={value} is ignored: it should be {expected}")
            }
            ParamProblemKind::OutOfRange { taken } => {
                write!(f, "{variable}={value} is out of range: {taken} is used instead")
            }
        }
    }
}

/// Warns of each problem once in this process, since an application may read the parameters often.
pub(super) fn warn_once(problems: &[ParamProblem]) {
    static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    // Before the application installs a subscriber, a warning would be lost: a later call will warn.
    if problems.is_empty() || !tracing::event_enabled!(Level::WARN) {
        return;
    }
    for problem in problems {
        let text = problem.to_string();
        // The lock is released before the subscriber runs, since the subscriber may read parameters, too.
        let is_new = WARNED.lock().insert(text.clone());
        if is_new {
            warn!("{text}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problem_names_its_variable_and_the_consequence() {
        let text =
            |kind| ParamProblem { variable: "FI_HOMESPUN_X".into(), value: "7".into(), kind }.to_string();
        assert_eq!(
            text(ParamProblemKind::Unknown),
            "FI_HOMESPUN_X is ignored: homespun has no such parameter"
        );
        assert_eq!(
            text(ParamProblemKind::Malformed { expected: "a colour".into() }),
            "FI_HOMESPUN_X=7 is ignored: it should be a colour"
        );
        assert_eq!(
            text(ParamProblemKind::OutOfRange { taken: 8 }),
            "FI_HOMESPUN_X=7 is out of range: 8 is used instead"
        );
    }
}
