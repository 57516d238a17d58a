//! Compares homespun with other providers of an installed libfabric, call by call. `docs/tolerance.md` lists
//! two kinds of calls, with the reasons: those that homespun refuses and at least two other providers accept,
//! and those for which two other providers agree on another result than homespun's.
//!
//! Without arguments this program is a test. It fails if there is a difference that the document does not
//! list, if the document lists a difference that does not exist, or if it lists another outcome of homespun
//! than the one that was found. The test needs the libfabric version of the document (Debian:
//! `libfabric-bin`) with all its providers. Without them it prints that it is skipped, and passes. But
//! `./test` requires a libfabric, and CI requires this version with its providers: there the program fails
//! instead.
//!
//! ```sh
//! cargo test -p homespun-host --test tolerance -- --all fi_cq_open   # all outcomes of some probes
//! cargo test -p homespun-host --test tolerance -- --all --libfabric /opt/libfabric/lib/libfabric.so.1
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints tables")]

mod bits;
mod compare;
mod document;
mod isolation;
mod outcome;
mod patience;
mod probes;
mod provider_case;
mod setup;
mod workers;

use std::env;
use std::process::ExitCode;

use homespun_host::Libfabric;
use homespun_suite::prerequisites::Prerequisite;

use probes::{Family, all_probes};
use provider_case::{EndpointKind, ProviderCase, provider_cases};
use setup::Context;
use workers::{NO_TIMEOUT, Results, TIMED_OUT};

/// The major and minor version of the libfabric whose providers `docs/tolerance.md` lists.
const DOCUMENTED_VERSION: (u16, u16) = (1, 17);

/// The command line.
#[derive(Debug, Default)]
struct Arguments {
    libfabric: String,
    filters: Vec<String>,
    lists_all: bool,
    /// Set in workers: the provider and its type of endpoint.
    case: Option<String>,
    /// Set in workers: the share of the probes, as its index and the number of shares.
    share: (usize, usize),
    /// The only probes to run, with long time-outs. It is empty except in workers of the second run.
    rerun: Vec<String>,
}

impl Arguments {
    fn parse() -> Arguments {
        let mut parsed =
            Arguments { libfabric: "libfabric.so.1".to_owned(), share: (0, 1), ..Arguments::default() };
        let mut words = env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--all" => parsed.lists_all = true,
                "--libfabric" => parsed.libfabric = words.next().expect("a library after --libfabric"),
                "--rerun" => parsed.rerun.extend(words.next()),
                "--provider-case" => parsed.case = words.next(),
                "--share" => {
                    let share = words.next().expect("a share after --share");
                    let (index, count) = share.split_once('/').expect("an index and a count");
                    parsed.share = (index.parse().expect("an index"), count.parse().expect("a count"));
                }
                // Ignore options that `cargo test` passes to every test.
                option if option.starts_with('-') => {}
                filter => parsed.filters.push(filter.to_owned()),
            }
        }
        parsed
    }

    fn is_selected(&self, name: &str) -> bool {
        if !self.rerun.is_empty() {
            return self.rerun.iter().any(|rerun| rerun == name);
        }
        self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter.as_str()))
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(id) = &arguments.case {
        let case = provider_cases().find(|case| case.id() == *id).expect("a provider of this test");
        return run_as_worker(&arguments, &case);
    }
    let libfabric = match Libfabric::load(&arguments.libfabric) {
        Ok(libfabric) => libfabric,
        Err(error) => return skip_comparison(Prerequisite::LIBFABRIC, &error.to_string()),
    };
    let version = libfabric.version();
    if !arguments.lists_all && version != DOCUMENTED_VERSION {
        let (major, minor) = version;
        return skip_comparison(Prerequisite::DOCUMENTED_LIBFABRIC, &format!("this is {major}.{minor}"));
    }
    let mut results = workers::run_probes(&arguments, None);
    if arguments.lists_all {
        let timed_out: Vec<String> = results.timed_out.iter().cloned().collect();
        results.replace_with_rerun(workers::run_probes(&arguments, Some(&timed_out)));
        for (probe, outcomes) in results.table {
            println!("{probe}");
            outcomes.iter().for_each(|(provider, outcome)| println!("    {provider}: {outcome}"));
        }
        return ExitCode::SUCCESS;
    }
    compare_with_document(&arguments, results)
}

/// Reports why nothing is compared. The report panics where the missing prerequisite is required.
fn skip_comparison(lacking: Prerequisite, why: &str) -> ExitCode {
    lacking.report_skipped(why);
    ExitCode::SUCCESS
}

/// Compares the results with the document. A mismatch counts only if a second run confirms it.
fn compare_with_document(arguments: &Arguments, mut results: Results) -> ExitCode {
    let missing = results.missing_providers();
    if !missing.is_empty() {
        let why = format!("this libfabric has no provider {}", missing.join(", "));
        return skip_comparison(Prerequisite::DOCUMENTED_LIBFABRIC, &why);
    }
    let complaints =
        |results: &Results| document::find_mismatches_with_outcomes(&results.table, &arguments.filters);
    // Run again not only probes with a mismatch, but also those with a time-out, since a time-out of another
    // provider may hide a difference.
    let mut probes_to_rerun = results.timed_out.clone();
    probes_to_rerun
        .extend(complaints(&results).into_keys().filter(|probe| results.table.contains_key(probe)));
    let probes_to_rerun: Vec<String> = probes_to_rerun.into_iter().collect();
    results.replace_with_rerun(workers::run_probes(arguments, Some(&probes_to_rerun)));
    let complaints = complaints(&results);
    for complaint in complaints.values() {
        eprintln!("{complaint}");
    }
    let differences = compare::find_differences_from_others(&results.table).len();
    let (probes, complained) = (results.table.len(), complaints.len());
    println!("tolerance: {probes} probes, {differences} differences, {complained} not as documented");
    if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Called in a worker: runs a share of the probes over one provider, and prints a line for each.
fn run_as_worker(arguments: &Arguments, case: &ProviderCase) -> ExitCode {
    let libfabric = Libfabric::load(&arguments.libfabric).expect("what the test has loaded");
    // SAFETY: the call has no precondition. The forked processes of probes do not inherit the alarm.
    unsafe { libc::alarm(workers::WORKER_MAX_S) };
    let Ok(info) = setup::find_info(libfabric, case) else {
        // This version of the provider has no endpoints of this type. That is a failure only for homespun.
        return ExitCode::from(u8::from(case.is_ours()));
    };
    let context = Context { libfabric, case: *case, info };
    if !arguments.rerun.is_empty() {
        patience::extend_timeouts();
    }
    std::panic::set_hook(Box::new(|_| ()));
    let (share, shares) = arguments.share;
    for (index, probe) in all_probes().into_iter().enumerate() {
        if index % shares != share {
            continue;
        }
        let name = match probe.family {
            Family::Object if case.endpoint == EndpointKind::Msg && case.name != "tcp" => continue,
            Family::Object => probe.name.clone(),
            Family::Endpoint => format!("{} {}", case.endpoint.name(), probe.name),
        };
        if arguments.is_selected(&name) {
            let answer = isolation::run_forked(&probe, &context);
            let time = if answer.has_timed_out { TIMED_OUT } else { NO_TIMEOUT };
            println!("{name}\t{time}\t{}", answer.outcome);
        }
    }
    ExitCode::SUCCESS
}
