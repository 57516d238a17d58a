//! Tests the tests: breaks one clause of the manual pages after the other, and runs the tests that cite it.
//!
//! A build with the feature `mutants` has a fault for each clause where one place can break it
//! (`mutated!("page/id")`). This program builds all tests with that feature, and for each fault runs only the
//! tests whose comments say that they show the clause. They must fail:
//!
//! ```console
//! $ cargo test --test mutants --features mutants
//! $ cargo test --test mutants --features mutants -- fi_tagged/ fi_msg/ --jobs 1
//! ```

#![expect(clippy::print_stdout, reason = "a program says what it has found")]

#[expect(dead_code, reason = "over which networks a test runs is what the documents say")]
#[path = "../clauses/citations.rs"]
mod citations;
mod faults;
mod programs;
mod run;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use clap::Parser;
use homespun_suite::clauses;

use crate::programs::CitedTests;
use crate::run::Outcome;

/// Break one clause of the manual pages after the other, and run the tests that cite it
#[derive(Debug, Parser)]
struct Arguments {
    /// Break only clauses whose identifier contains one of these; all, if there is none
    #[arg(value_name = "TEXT")]
    only: Vec<String>,
    /// Break only so many of them, as the seed chooses
    #[arg(long, value_name = "COUNT")]
    sample: Option<usize>,
    /// The seed of --sample
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// How many clauses are tried at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    jobs: usize,
    /// After how many seconds a run of a test program counts as hanging
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    limit: u64,
}

/// A fault, and the tests that should find it.
struct Mutant {
    clause: String,
    tests: Vec<CitedTests>,
}

fn main() -> io::Result<ExitCode> {
    let arguments = Arguments::parse();
    let mut planted = faults::read_planted()?;
    let is_chosen = |clause: &String| arguments.only.iter().any(|text| clause.contains(text.as_str()));
    planted.retain(|clause| arguments.only.is_empty() || is_chosen(clause));
    if let Some(count) = arguments.sample {
        fastrand::Rng::with_seed(arguments.seed).shuffle(&mut planted);
        planted.truncate(count);
    }
    println!("building the tests ...");
    let programs = programs::build()?;
    let citations = citations::read_all();
    let find =
        |clause: String| Mutant { tests: programs::find_cited(&programs, &citations, &clause), clause };
    let mutants: Vec<Mutant> = planted.into_iter().map(find).collect();
    let outcomes = run_all(mutants, &arguments)?;
    let unexplained = print_summary(&outcomes);
    Ok(if unexplained == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Tries all mutants, and prints how each has ended as it does.
fn run_all(mutants: Vec<Mutant>, arguments: &Arguments) -> io::Result<BTreeMap<String, Outcome>> {
    let limit = Duration::from_secs(arguments.limit);
    let (mutants, (sender, results)) = (Mutex::new(mutants.into_iter()), mpsc::channel());
    let next = || mutants.lock().unwrap_or_else(PoisonError::into_inner).next();
    thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some(Mutant { clause, tests }) = next() {
                    let outcome = run::run_mutant(&clause, &tests, limit);
                    // The receiver waits for all of them.
                    let _ = sender.send((clause, outcome));
                }
            });
        }
        drop(sender);
        let mut outcomes = BTreeMap::new();
        for (clause, outcome) in results {
            let outcome = outcome?;
            println!("{:>9}  {clause}{}", outcome.word(), outcome.detail());
            io::stdout().flush()?;
            outcomes.insert(clause, outcome);
        }
        Ok(outcomes)
    })
}

/// Prints how many were killed, and those that were not. Returns how many of these have no reason in their
/// clause.
fn print_summary(outcomes: &BTreeMap<String, Outcome>) -> usize {
    let count = |wanted: fn(&Outcome) -> bool| outcomes.values().filter(|outcome| wanted(outcome)).count();
    let killed = count(|outcome| matches!(outcome, Outcome::Killed(_)));
    let hung = count(|outcome| matches!(outcome, Outcome::Hung(_)));
    println!("\n{} clauses broken: {killed} killed, {hung} killed by a deadline", outcomes.len());
    let mut unexplained = 0;
    for (clause, outcome) in outcomes {
        let reason = clauses::find(clause).and_then(|clause| clause.survives.as_deref());
        unexplained += usize::from(reason.is_none() != outcome.is_killed());
        match (outcome.is_killed(), reason) {
            (true, None) => {}
            (true, Some(_)) => println!("{clause} is killed, although its clause has a reason why not"),
            (false, reason) => {
                println!("{}: {clause}: {}", outcome.word(), reason.unwrap_or("no reason is known"));
            }
        }
    }
    unexplained
}
