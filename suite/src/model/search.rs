//! Looks for programs that fail over a network, and makes them smaller.

use std::time::{Duration, Instant};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::model::prelude::*;
use crate::model::program::any_program;
use crate::model::run_and_check;

/// How many smaller programs are tried for one that has failed.
const SHRINK_MAX_RUNS: u32 = 300;

/// In one of so many programs, endpoints are killed.
const KILLING_ONE_OF: u64 = 4;

/// Programs for one network. They follow from the seed and from what the provider offers.
#[derive(Debug)]
pub struct Search<'a> {
    /// Who drives the parties.
    pub turns: Turns,
    /// The network.
    pub transport: &'a TransportKind,
    /// What its provider offers.
    pub offer: Offer,
    /// The seed of all programs.
    pub seed: u64,
}

impl Search<'_> {
    /// Returns the program with this number.
    pub fn program(&self, number: u64) -> Program {
        self.tree(number).current()
    }

    /// Runs the program with this number.
    pub fn run(&self, number: u64) -> Outcome {
        self.run_program(&self.program(number))
    }

    /// Runs the program with this number again, and then smaller ones for this time, as long as they fail.
    /// Tells of each program that fails, and why. The last one is the smallest.
    pub fn shrink(&self, number: u64, time: Duration, mut failed: impl FnMut(&Program, String)) {
        let mut tree = self.tree(number);
        let mut fails = |program: Program| match self.run_program(&program) {
            Outcome::Failed(text) | Outcome::Crashed(text) => {
                failed(&program, text);
                true
            }
            Outcome::Passed | Outcome::NotOffered(_) => false,
        };
        if !fails(tree.current()) {
            return;
        }
        let begin = Instant::now();
        let mut runs = 0;
        let mut may_go_on = tree.simplify();
        while may_go_on && runs < SHRINK_MAX_RUNS && begin.elapsed() < time {
            runs += 1;
            may_go_on = if fails(tree.current()) { tree.simplify() } else { tree.complicate() };
        }
    }

    /// Runs a program.
    pub fn run_program(&self, program: &Program) -> Outcome {
        Outcome::of(|| run_and_check(self.turns, self.transport, &self.offer, program))
    }

    fn tree(&self, number: u64) -> impl ValueTree<Value = Program> + use<> {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.seed.to_le_bytes());
        seed[8..16].copy_from_slice(&number.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
        let mut runner = TestRunner::new_with_rng(Config::default(), rng);
        let offer = self.offer;
        let disruption = if number % KILLING_ONE_OF == 1 { Disruption::Killing } else { Disruption::None };
        let programs = any_program(disruption).prop_map(move |program| program.within(&offer));
        programs.new_tree(&mut runner).expect("every choice is a program")
    }
}
