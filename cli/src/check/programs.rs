//! Random programs over a provider, and the ones that have failed.

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use homespun_suite::model::{Disruption, Offer, Program, Promise, any_program, run_and_check};
use homespun_suite::{Outcome, TestedNetwork, TransportKind};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::failed_at;
use crate::failure::CommandFailure;

/// How many smaller programs are tried for one that has failed.
const SHRINK_MAX_RUNS: u32 = 300;

/// How long this may take.
const SHRINK_MAX_MS: u32 = 60_000;

/// Programs for one provider.
pub(super) struct Programs<'a> {
    network: &'a TestedNetwork,
    offer: Offer,
    seed: u64,
}

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
        Programs { network, offer: Offer::of(&network.transport), seed }
    }

    /// Runs the program with this number.
    pub(super) fn run(&self, number: u64) -> Outcome {
        self.run_program(&self.tree(number).1.current())
    }

    /// Runs the program with this number again, and then smaller ones as long as they fail. Returns `None` if
    /// it has not failed again.
    pub(super) fn shrink(&self, number: u64) -> Option<FailedProgram> {
        let (mut runner, tree) = self.tree(number);
        let last = RefCell::new(None);
        // Panics are the outcomes of programs.
        let _ = runner.run_one(tree, |program| match self.run_program(&program) {
            Outcome::Failed(text) | Outcome::Crashed(text) => {
                *last.borrow_mut() = Some(FailedProgram {
                    text,
                    place: failed_at(),
                    program: serde_json::to_string(&program).expect("a program can be written down"),
                });
                Err(TestCaseError::fail("it has failed"))
            }
            Outcome::Passed | Outcome::NotOffered(_) => Ok(()),
        });
        last.into_inner()
    }

    fn tree(&self, number: u64) -> (TestRunner, impl ValueTree<Value = Program> + use<>) {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.seed.to_le_bytes());
        seed[8..16].copy_from_slice(&number.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        let config = Config {
            max_shrink_iters: SHRINK_MAX_RUNS,
            max_shrink_time: SHRINK_MAX_MS,
            failure_persistence: None,
            ..Config::default()
        };
        let mut runner = TestRunner::new_with_rng(config, rng);
        let offer = self.offer;
        let programs = any_program(Disruption::None).prop_map(move |program| program.within(&offer));
        let tree = programs.new_tree(&mut runner).expect("every choice is a program");
        (runner, tree)
    }

    /// Runs a program.
    pub(super) fn run_program(&self, program: &Program) -> Outcome {
        let TestedNetwork { transport, turns, .. } = self.network;
        let transport = match transport {
            TransportKind::Loopback { faults, .. } => {
                TransportKind::Loopback { seed: program.seed(), faults: faults.clone() }
            }
            transport => transport.clone(),
        };
        Outcome::of(|| run_and_check(*turns, &transport, &self.offer, program, Promise::Everything))
    }
}
