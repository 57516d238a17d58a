//! `homespun check`: the suite's tests over homespun or any other provider.

mod programs;
mod table;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Args;
use homespun_semantics as _;
use homespun_suite::{Faults, Outcome, Provider, Test, TestedNetwork, TransportKind, Turns, set_patience};

use self::programs::{FailedProgram, Programs};
use self::table::{by_topic, render};
use crate::console::Console;
use crate::failure::CommandFailure;

/// The topic of random programs.
const PROGRAMS: &str = "programs::";

/// Run the semantic tests and random programs over a provider
///
/// Each endpoint has a process of its own, but with --sim. What a provider does not offer is counted, and is
/// no failure. A test that fails says what it expected and what it got. A random program that fails is made
/// as small as possible.
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// A provider of the installed libfabric, such as tcp, "tcp;ofi_rxm", sockets, shm, or homespun with
    /// FI_PROVIDER_PATH
    #[arg(value_name = "PROVIDER", required_unless_present_any = ["native", "sim"])]
    provider: Option<String>,
    /// Ask homespun's own library instead, without libfabric
    #[arg(long, value_name = "DOMAIN", value_parser = ["shm", "tcp", "auto"], conflicts_with = "provider")]
    native: Option<String>,
    /// Ask homespun's own library over a simulated network that splits and delays what it carries, in one
    /// process
    #[arg(long, conflicts_with_all = ["provider", "native"])]
    sim: bool,
    /// The provider's domain, if it has several
    #[arg(long, value_name = "NAME", requires = "provider")]
    domain: Option<String>,
    /// The libfabric to load: a path, or a name that the dynamic loader searches for
    #[arg(long, value_name = "LIBRARY", default_value = "libfabric.so.1")]
    libfabric: String,
    /// Run only the tests whose name contains this, such as ordering::, cancel or programs::
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// How many random programs to run
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    programs: u64,
    /// What decides which programs are run
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// Run only the program in this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "programs", "seed"])]
    replay: Option<PathBuf>,
    /// How many seconds a test waits for an event before it fails
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    patience: u64,
    /// How many tests run at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    jobs: usize,
}

thread_local! {
    /// Where this thread's test has failed last.
    static FAILED_AT: Cell<Option<String>> = const { Cell::new(None) };
}

impl CheckArguments {
    fn network(&self) -> TestedNetwork {
        let transport = match (&self.provider, self.native.as_deref()) {
            _ if self.sim => TransportKind::Loopback { seed: self.seed, faults: Faults::choppy() },
            (_, Some("shm")) => TransportKind::Shm4,
            (_, Some("tcp")) => TransportKind::Tcp4,
            (_, Some(_)) => TransportKind::Auto4,
            (provider, None) => TransportKind::Provider(Provider {
                libfabric: self.libfabric.clone(),
                name: provider.clone().unwrap_or_default(),
                domain: self.domain.clone(),
            }),
        };
        TestedNetwork {
            name: "checked",
            transport,
            turns: if self.sim { Turns::Alternate } else { Turns::Processes },
            sends_from_buffers: false,
            may_lack: &[],
        }
    }
}

/// Where the last test of this thread has failed, unless this was asked before.
fn failed_at() -> Option<String> {
    FAILED_AT.take()
}

/// How one test has ended: its topic and its name, the outcome, and where it has failed.
struct Finding {
    topic: &'static str,
    name: String,
    outcome: Outcome,
    place: Option<String>,
}

/// What a thread does next.
enum Task<'a> {
    Test(&'static Test),
    Program(&'a Programs<'a>, u64),
}

impl Task<'_> {
    fn run(&self, network: &TestedNetwork) -> Finding {
        let (topic, name, outcome) = match self {
            Task::Test(test) => (test.topic(), test.name.to_owned(), network.run_test(test)),
            Task::Program(programs, number) => (PROGRAMS, number.to_string(), programs.run(*number)),
        };
        Finding { topic, name, outcome, place: failed_at() }
    }
}

/// Runs the command.
///
/// # Errors
///
/// [`CommandFailure::Check`] if a test has failed.
pub(crate) fn run(arguments: &CheckArguments, console: &mut Console) -> Result<(), CommandFailure> {
    let network = arguments.network();
    if let Outcome::NotOffered(what) = network.open_and_close_party() {
        return Err(CommandFailure::NothingToCheck(what));
    }
    set_patience(Duration::from_secs(arguments.patience));
    // The outcome says what a test has panicked with.
    panic::set_hook(Box::new(|panic| FAILED_AT.set(panic.location().map(ToString::to_string))));
    let programs = Programs::new(&network, arguments.seed);
    let (findings, unasked) = match &arguments.replay {
        Some(file) => {
            let outcome = programs.replay(file)?;
            let name = file.display().to_string();
            (vec![Finding { topic: PROGRAMS, name, outcome, place: failed_at() }], 0)
        }
        None => run_tests(arguments, &network, &programs, console)?,
    };
    print_failed_programs(&findings, &programs, console)?;
    let _ = panic::take_hook();
    console.print_line(render(&by_topic(&findings)))?;
    for (what, tests) in not_offered(&findings) {
        console.print_wrapped(format!("not offered, which {tests} tests need: {what}"))?;
    }
    if unasked > 0 {
        console.print_wrapped(format!(
            "not asked here: {unasked} tests, which need endpoints of one process, or of homespun"
        ))?;
    }
    let count = |wanted: fn(&Outcome) -> bool| findings.iter().filter(|it| wanted(&it.outcome)).count();
    let failed = count(|outcome| matches!(outcome, Outcome::Failed(_) | Outcome::Crashed(_)));
    if failed > 0 { Err(CommandFailure::Check { failed, tests: findings.len() }) } else { Ok(()) }
}

/// Runs the chosen tests and programs, and prints the tests that fail, as they do. Returns all outcomes, and
/// how many chosen tests the network does not run.
fn run_tests(
    arguments: &CheckArguments,
    network: &TestedNetwork,
    programs: &Programs<'_>,
    console: &mut Console,
) -> Result<(Vec<Finding>, usize), CommandFailure> {
    let is_chosen = |test: &&Test| format!("{}::{}", test.topic(), test.name).contains(&arguments.only);
    let (mut tests, unasked): (Vec<&'static Test>, Vec<&'static Test>) =
        Test::iter().filter(is_chosen).partition(|test| network.runs(test.over));
    tests.sort_by_key(|test| (test.topic(), test.name));
    let chosen_programs = if PROGRAMS.contains(&arguments.only) { arguments.programs } else { 0 };
    let mut tasks: Vec<Task<'_>> = tests.into_iter().map(Task::Test).collect();
    tasks.extend((0..chosen_programs).map(|number| Task::Program(programs, number)));
    if tasks.is_empty() {
        return Err(CommandFailure::NothingToCheck(format!("no test has {} in its name", arguments.only)));
    }
    console.start_progress(tasks.len());
    let (next, (sender, results)) = (AtomicUsize::new(0), mpsc::channel());
    let mut findings = Vec::new();
    thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            let (sender, next, tasks) = (sender.clone(), &next, &tasks);
            scope.spawn(move || {
                while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // The receiver waits for all of them.
                    let _ = sender.send(task.run(network));
                }
            });
        }
        drop(sender);
        for finding in results {
            let Finding { topic, name, outcome, place } = &finding;
            match outcome {
                Outcome::Failed(text) if *topic != PROGRAMS => {
                    let place = place.as_ref().map_or(String::new(), |place| format!(" ({place})"));
                    console.print_line(format!("failed: {topic}::{name}{place}\n{text}\n"))?;
                }
                Outcome::Crashed(call) if *topic != PROGRAMS => {
                    console.print_line(format!("crashed: {topic}::{name}\n{call}\n"))?;
                }
                _ => {}
            }
            console.show_step(name.clone());
            console.advance_progress();
            findings.push(finding);
        }
        Ok::<(), CommandFailure>(())
    })?;
    console.end_progress();
    Ok((findings, unasked.len()))
}

/// Prints why programs have failed, and for each reason the smallest program that fails.
fn print_failed_programs(
    findings: &[Finding],
    programs: &Programs<'_>,
    console: &Console,
) -> Result<(), CommandFailure> {
    // Programs that fail at the same place mostly fail for the same reason.
    let mut places = BTreeSet::new();
    for finding in findings.iter().filter(|finding| finding.topic == PROGRAMS) {
        let (Outcome::Failed(text) | Outcome::Crashed(text)) = &finding.outcome else { continue };
        if !places.insert(finding.place.clone()) {
            continue;
        }
        let number = &finding.name;
        let Some(shrunk) = number.parse().ok().and_then(|number| programs.shrink(number)) else {
            let place = finding.place.as_deref().unwrap_or_default();
            console.print_line(format!("failed once: program {number} ({place})\n{text}\n"))?;
            continue;
        };
        let FailedProgram { text, place, program } = shrunk;
        if place == finding.place || places.insert(place.clone()) {
            let place = place.as_deref().unwrap_or("crashed");
            console.print_line(format!("failed: program {number} ({place})\n{text}"))?;
            console.print_line(format!("--replay runs it again from a file with this:\n{program}\n"))?;
        }
    }
    Ok(())
}

/// What the provider does not offer, and how many tests need it.
fn not_offered(findings: &[Finding]) -> BTreeMap<&str, usize> {
    let mut needed = BTreeMap::new();
    for finding in findings {
        if let Outcome::NotOffered(what) = &finding.outcome {
            *needed.entry(what.as_str()).or_default() += 1;
        }
    }
    needed
}
