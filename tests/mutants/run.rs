//! How a fault fares with the tests that should find it.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::programs::CitedTests;

/// How often a running program is looked at.
const PAUSE: Duration = Duration::from_millis(5);

/// How a fault has ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// This test has failed.
    Killed(String),
    /// The tests of this program did not end, or one of them has waited in vain.
    Hung(String),
    /// All cited tests have passed.
    Survived,
    /// No test cites the clause.
    Uncited,
    /// This test fails without the fault too.
    Unsound(String),
}

impl Outcome {
    pub(crate) fn is_killed(&self) -> bool {
        matches!(self, Outcome::Killed(_) | Outcome::Hung(_))
    }

    pub(crate) fn word(&self) -> &'static str {
        match self {
            Outcome::Killed(_) => "killed",
            Outcome::Hung(_) => "deadline",
            Outcome::Survived => "survived",
            Outcome::Uncited => "uncited",
            Outcome::Unsound(_) => "unsound",
        }
    }

    pub(crate) fn detail(&self) -> String {
        match self {
            Outcome::Killed(test) | Outcome::Hung(test) => format!(" by {test}"),
            Outcome::Unsound(test) => format!(": {test} fails without the fault, too"),
            Outcome::Survived | Outcome::Uncited => String::new(),
        }
    }
}

/// Runs the tests of a clause with its fault, until one of them fails.
///
/// # Errors
///
/// Errors of starting the programs.
pub(crate) fn run_mutant(clause: &str, cited: &[CitedTests], limit: Duration) -> io::Result<Outcome> {
    if cited.is_empty() {
        return Ok(Outcome::Uncited);
    }
    for tests in cited {
        let Some(failure) = run(tests, Some(clause), limit)? else { continue };
        // A test that fails anyway shows nothing.
        let failed = match &failure {
            Failure::OfTests { names, .. } => tests.only(names),
            Failure::Died | Failure::Hung => tests.clone(),
        };
        let first = failed.names.first().map_or(tests.program.name.as_str(), String::as_str).to_owned();
        if run(&failed, None, limit)?.is_some() {
            return Ok(Outcome::Unsound(first));
        }
        return Ok(match failure {
            Failure::OfTests { waited_in_vain: false, .. } | Failure::Died => Outcome::Killed(first),
            Failure::OfTests { .. } | Failure::Hung => Outcome::Hung(first),
        });
    }
    Ok(Outcome::Survived)
}

/// How a run of tests has failed.
enum Failure {
    /// These tests have failed.
    OfTests { names: BTreeSet<String>, waited_in_vain: bool },
    /// The program has ended before its tests did.
    Died,
    /// The program did not end in time.
    Hung,
}

/// Runs tests of one program, with a fault or without.
fn run(tests: &CitedTests, fault: Option<&str>, limit: Duration) -> io::Result<Option<Failure>> {
    let mut command = Command::new(&tests.program.executable);
    command.current_dir(&tests.program.directory).arg("--exact").args(&tests.names);
    // As many random programs as with `./test --long`. What they find is not made small, nor written down.
    command.env("PROPTEST_CASES", "200");
    command.env("PROPTEST_MAX_SHRINK_ITERS", "0").env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true");
    command.env("RUST_BACKTRACE", "0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    if let Some(clause) = fault {
        command.env("HOMESPUN_MUTANT", clause);
    }
    let Some((status, output)) = run_within(command, limit)? else { return Ok(Some(Failure::Hung)) };
    if status.success() {
        return Ok(None);
    }
    // Blanks behind the names align the outcomes.
    let failed =
        |line: &str| Some(line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?.trim_end().to_owned());
    let names: BTreeSet<String> = output.lines().filter_map(failed).collect();
    if names.is_empty() {
        return Ok(Some(Failure::Died));
    }
    Ok(Some(Failure::OfTests { names, waited_in_vain: output.contains("no progress while waiting for") }))
}

/// Runs a program. Kills it, with what it has started, if it does not end in time, and returns `None` then.
fn run_within(mut command: Command, limit: Duration) -> io::Result<Option<(ExitStatus, String)>> {
    use std::os::unix::process::CommandExt;

    let mut child = command.process_group(0).spawn()?;
    let mut stdout = child.stdout.take().expect("it is a pipe");
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).map(|_| String::from_utf8_lossy(&bytes).into_owned())
    });
    let end = Instant::now() + limit;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if Instant::now() > end => break None,
            None => thread::sleep(PAUSE),
        }
    };
    // Parties of a test that has failed may still run.
    let group = Pid::from_raw(child.id().try_into().map_err(io::Error::other)?).expect("no process is 0");
    let _ = kill_process_group(group, Signal::KILL);
    child.wait()?;
    let output = reader.join().map_err(|_| io::Error::other("the reader has panicked"))??;
    Ok(status.map(|status| (status, output)))
}
