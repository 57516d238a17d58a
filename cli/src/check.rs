//! `homespun check`: the suite's tests over homespun or any other provider.

mod clauses;
mod junit;
mod programs;
mod table;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::panic;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use homespun_suite::{Faults, Outcome, Provider, Test, TestedNetwork, TransportKind, Turns, set_patience};

use self::programs::{FailedProgram, Programs};
use self::table::{by_topic, render};
use crate::console::Console;
use crate::failure::CommandFailure;

/// The topic of random programs.
const PROGRAMS: &str = "programs::";

/// Run the semantic tests and random programs over a provider
///
/// Except with --sim and --together, each endpoint has a process of its own. What a provider does not offer
/// is counted, and is no failure. A test that fails says what it expected and what it got. A random program
/// that fails is made as small as possible.
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// A provider of the installed libfabric, such as tcp, "tcp;ofi_rxm", sockets, shm, or homespun with
    /// FI_PROVIDER_PATH
    #[arg(value_name = "PROVIDER", required_unless_present_any = ["native", "sim"])]
    provider: Option<String>,
    /// Test homespun's own library instead, without libfabric
    #[arg(long, value_name = "DOMAIN", value_parser = ["shm", "tcp", "auto"], conflicts_with = "provider")]
    native: Option<String>,
    /// Test homespun's own library over a network inside one process, which splits and delays what it carries
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
    /// The seed of the random programs
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// Run only the program in this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "programs", "seed"])]
    replay: Option<PathBuf>,
    /// Also print how many promises of each manual page the tests have shown, and which have failed
    #[arg(long)]
    clauses: bool,
    /// Also write the outcomes to this file, in JUnit's XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Keep the endpoints of each test in one process
    #[arg(long, requires = "provider")]
    together: bool,
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
    /// What is checked, as the arguments say it.
    fn name_checked(&self) -> String {
        match (&self.provider, &self.native) {
            (Some(provider), _) => provider.clone(),
            (None, Some(domain)) => format!("--native {domain}"),
            (None, None) => "--sim".to_owned(),
        }
    }

    fn network(&self, together: bool) -> TestedNetwork {
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
            turns: if self.sim || together { Turns::Alternate } else { Turns::Processes },
            sends_from_buffers: false,
            may_lack: &[],
        }
    }
}

/// Where the last test of this thread has failed, unless this was asked before.
fn failed_at() -> Option<String> {
    FAILED_AT.take()
}

/// What was run.
enum Subject {
    Test(&'static Test),
    /// The random program with this number.
    Program(u64),
    /// The program in this file.
    Replayed(PathBuf),
}

impl Subject {
    fn topic(&self) -> &'static str {
        match self {
            Subject::Test(test) => test.topic(),
            Subject::Program(_) | Subject::Replayed(_) => PROGRAMS,
        }
    }
}

impl Display for Subject {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Test(test) => write!(f, "{}::{}", test.topic(), test.name),
            Subject::Program(number) => write!(f, "program {number}"),
            Subject::Replayed(file) => write!(f, "the program in {}", file.display()),
        }
    }
}

/// How something has ended, and where it has failed.
struct Finding {
    subject: Subject,
    outcome: Outcome,
    place: Option<String>,
    took: Duration,
}

impl Finding {
    /// Runs what ends with an outcome, on this thread.
    fn of(subject: Subject, run: impl FnOnce(&Subject) -> Outcome) -> Finding {
        let started_at = Instant::now();
        let outcome = run(&subject);
        Finding { subject, outcome, place: failed_at(), took: started_at.elapsed() }
    }

    /// Says that it has failed, unless it has not.
    fn describe_failure(&self) -> Option<String> {
        let subject = &self.subject;
        let place = self.place.as_ref().map_or(String::new(), |place| format!(" ({place})"));
        let clauses = match subject {
            Subject::Test(test) if !test.clauses.is_empty() => format!("\nshows {}", test.clauses.join(", ")),
            _ => String::new(),
        };
        match &self.outcome {
            Outcome::Failed(text) => Some(format!("failed: {subject}{place}{clauses}\n{text}\n")),
            Outcome::Crashed(call) => Some(format!("crashed: {subject}{clauses}\n{call}\n")),
            Outcome::Passed | Outcome::NotOffered(_) => None,
        }
    }

    /// What failures of the same cause mostly have in common.
    fn cause(&self) -> Option<String> {
        match &self.outcome {
            Outcome::Failed(_) => self.place.clone(),
            Outcome::Crashed(call) => Some(call.clone()),
            Outcome::Passed | Outcome::NotOffered(_) => None,
        }
    }
}

/// Runs the command.
///
/// # Errors
///
/// [`CommandFailure::Check`] if a test has failed.
pub(crate) fn run(arguments: &CheckArguments, console: &mut Console) -> Result<(), CommandFailure> {
    let (network, apart) = (arguments.network(arguments.together), arguments.network(false));
    if let Outcome::NotOffered(what) = apart.open_and_close_party() {
        return Err(CommandFailure::NothingToCheck(what));
    }
    let unwritable = |file: &PathBuf, error| CommandFailure::NoReport { file: file.clone(), error };
    let report = match &arguments.junit {
        Some(path) => Some((path, File::create(path).map_err(|error| unwritable(path, error))?)),
        None => None,
    };
    set_patience(Duration::from_secs(arguments.patience));
    // The outcome says what a test has panicked with.
    panic::set_hook(Box::new(|panic| FAILED_AT.set(panic.location().map(ToString::to_string))));
    let programs = Programs::new(&apart, arguments.seed);
    let (findings, unasked) = match &arguments.replay {
        Some(file) => {
            let program = programs::read(file)?;
            (vec![Finding::of(Subject::Replayed(file.clone()), |_| programs.run_program(&program))], 0)
        }
        None => run_tests(arguments, &network, &programs, console)?,
    };
    if let Some((path, file)) = report {
        junit::write_report(file, &arguments.name_checked(), &findings)
            .map_err(|error| unwritable(path, error))?;
    }
    print_failed_programs(&findings, &programs, console)?;
    let _ = panic::take_hook();
    console.print_line(render(&by_topic(&findings)))?;
    if arguments.clauses {
        console.print_line(clauses::render(&findings))?;
    }
    for (what, tests) in not_offered(&findings) {
        console.print_wrapped(format!("not offered, which {tests} tests need: {what}"))?;
    }
    if unasked > 0 {
        console.print_wrapped(format!(
            "left out, and not counted: {unasked} tests, which need objects of homespun, or promises that it \
             alone makes"
        ))?;
    }
    let count = |wanted: fn(&Outcome) -> bool| findings.iter().filter(|it| wanted(&it.outcome)).count();
    let failed = count(|outcome| matches!(outcome, Outcome::Failed(_) | Outcome::Crashed(_)));
    if failed > 0 { Err(CommandFailure::Check { failed, tests: findings.len() }) } else { Ok(()) }
}

/// Runs the chosen tests and programs. Prints the tests that fail, as they do, and names the first program
/// that fails of a cause. Returns all outcomes, and how many chosen tests the network does not run.
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
    let mut subjects: Vec<Subject> = tests.into_iter().map(Subject::Test).collect();
    subjects.extend((0..chosen_programs).map(Subject::Program));
    if subjects.is_empty() {
        return Err(CommandFailure::NothingToCheck(format!("no test has {} in its name", arguments.only)));
    }
    console.start_progress(subjects.len());
    let (subjects, (sender, results)) = (Mutex::new(subjects.into_iter()), mpsc::channel());
    let next = || subjects.lock().unwrap_or_else(PoisonError::into_inner).next();
    let (mut findings, mut causes) = (Vec::new(), BTreeSet::new());
    thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            let sender = sender.clone();
            scope.spawn(move || {
                while let Some(subject) = next() {
                    let finding = Finding::of(subject, |subject| match subject {
                        Subject::Test(test) => network.run_test(test),
                        Subject::Program(number) => programs.run(*number),
                        Subject::Replayed(_) => unreachable!("a replayed program is run alone"),
                    });
                    // The receiver waits for all of them.
                    let _ = sender.send(finding);
                }
            });
        }
        drop(sender);
        for finding in results {
            if let Some(failure) = finding.describe_failure() {
                if let Subject::Test(_) = finding.subject {
                    console.print_line(failure)?;
                } else if causes.insert(finding.cause()) {
                    console.print_line(format!("{} has failed; more at the end", finding.subject))?;
                }
            }
            console.show_step(finding.subject.to_string());
            console.advance_progress();
            findings.push(finding);
        }
        Ok::<(), CommandFailure>(())
    })?;
    console.end_progress();
    Ok((findings, unasked.len()))
}

/// Prints why programs have failed: for each cause the smallest program that fails of it, and how many do.
fn print_failed_programs(
    findings: &[Finding],
    programs: &Programs<'_>,
    console: &Console,
) -> Result<(), CommandFailure> {
    let mut by_cause: BTreeMap<Option<String>, Vec<&Finding>> = BTreeMap::new();
    for finding in findings.iter().filter(|finding| finding.subject.topic() == PROGRAMS) {
        if finding.describe_failure().is_some() {
            by_cause.entry(finding.cause()).or_default().push(finding);
        }
    }
    for failed in by_cause.values() {
        let first = failed[0];
        let shrunk = match first.subject {
            Subject::Program(number) => {
                console.print_line(format!("making program {number} small ..."))?;
                programs.shrink(number)
            }
            Subject::Test(_) | Subject::Replayed(_) => None,
        };
        console.print_line(first.describe_failure().unwrap_or_default())?;
        match (shrunk, &first.subject) {
            (Some(FailedProgram { text, place, program }), _) => {
                if place != first.place {
                    let place = place.as_deref().unwrap_or("a crash");
                    console.print_line(format!("made small, it fails otherwise ({place}):\n{text}\n"))?;
                }
                console.print_line(format!("--replay runs it from a file with this line:\n{program}\n"))?;
            }
            (None, Subject::Program(number)) => {
                let program = programs.as_json(*number);
                console.print_line(format!(
                    "run again, it has not failed; --replay runs it from a file with this line:\n{program}\n"
                ))?;
            }
            (None, _) => {}
        }
        if failed.len() > 1 {
            let others: Vec<String> = failed[1..].iter().map(|finding| finding.subject.to_string()).collect();
            console.print_wrapped(format!("the same cause, as it seems: {}", others.join(", ")))?;
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
