//! Random programs over a provider, and the ones that have failed.

use std::fs;
use std::path::Path;
use std::time::Duration;

use homespun_suite::model::{Offer, Program, Search};
use homespun_suite::{Outcome, TestedNetwork};

use super::failed_at;
use crate::failure::CommandFailure;

/// For how long smaller programs are tried for one that has failed.
const SHRINK_MAX: Duration = Duration::from_secs(60);

/// Programs for one provider.
pub(super) struct Programs<'a>(Search<'a>);

/// A program that has failed.
pub(super) struct FailedProgram {
    /// What was expected, and what has come.
    pub(super) text: String,
    /// Where the model has found the fault.
    pub(super) place: Option<String>,
    /// The smallest program found that fails, as JSON for `--replay`.
    pub(super) program: String,
}

/// Reads the program in this file.
pub(super) fn read(file: &Path) -> Result<Program, CommandFailure> {
    let unreadable = |error: String| CommandFailure::NoProgram { file: file.to_owned(), error };
    let text = fs::read_to_string(file).map_err(|error| unreadable(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| unreadable(error.to_string()))
}

impl Programs<'_> {
    /// Asks the provider what it offers to programs. The programs follow from the seed and from that.
    pub(super) fn new(network: &TestedNetwork, seed: u64) -> Programs<'_> {
        let TestedNetwork { transport, turns, .. } = network;
        Programs(Search { turns: *turns, transport, offer: Offer::of(transport), seed })
    }

    /// Runs the program with this number.
    pub(super) fn run(&self, number: u64) -> Outcome {
        self.0.run(number)
    }

    /// Runs the program with this number again, and then smaller ones as long as they fail. Returns `None` if
    /// it has not failed again.
    pub(super) fn shrink(&self, number: u64) -> Option<FailedProgram> {
        let mut smallest = None;
        self.0.shrink(number, SHRINK_MAX, |program, text| {
            smallest = Some(FailedProgram { text, place: failed_at(), program: to_json(program) });
        });
        smallest
    }

    /// Returns the program with this number, as JSON for `--replay`.
    pub(super) fn as_json(&self, number: u64) -> String {
        to_json(&self.0.program(number))
    }

    /// Runs this program.
    pub(super) fn run_program(&self, program: &Program) -> Outcome {
        self.0.run_program(program)
    }
}

fn to_json(program: &Program) -> String {
    serde_json::to_string(program).expect("a program can be written down")
}
