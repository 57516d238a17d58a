//! homespun beside other providers of an installed libfabric, call by call: where two of them accept what
//! homespun refuses, or do otherwise, `docs/tolerance.md` says so, and why.
//!
//! Without arguments this is a test: it fails when there is a difference that the document does not list, and
//! when the document lists one that there is not. Without a libfabric (Debian: `libfabric-bin`), or without
//! one of its providers, it says so and passes; where `CI` is set it fails.
//!
//! ```sh
//! cargo test -p homespun-host --test tolerance -- --list             # differences, as rows of the document
//! cargo test -p homespun-host --test tolerance -- --all fi_cq_open   # all outcomes of some probes
//! cargo test -p homespun-host --test tolerance -- --list --libfabric /opt/libfabric/lib/libfabric.so.1
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints tables")]

mod bed;
mod bits;
mod compare;
mod document;
mod isolation;
mod outcome;
mod probes;
mod setup;

use std::collections::BTreeMap;
use std::env;
use std::os::unix::fs::symlink;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use homespun_host::Libfabric;

use bed::{BEDS, Bed, COLUMNS, Endpoint};
use compare::{Difference, Table};
use probes::{Family, probes};
use setup::Context;

/// What the command line asks for.
#[derive(Debug, Default)]
struct Arguments {
    libfabric: String,
    filters: Vec<String>,
    lists_differences: bool,
    lists_all: bool,
    /// Set in workers: the provider.
    bed: Option<String>,
    /// Set in workers: which of the probes, and of how many workers.
    share: (usize, usize),
}

impl Arguments {
    fn parse() -> Arguments {
        let mut parsed =
            Arguments { libfabric: "libfabric.so.1".to_owned(), share: (0, 1), ..Arguments::default() };
        let mut words = env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--list" => parsed.lists_differences = true,
                "--all" => parsed.lists_all = true,
                "--libfabric" => parsed.libfabric = words.next().expect("a library after --libfabric"),
                "--bed" => parsed.bed = words.next(),
                "--share" => {
                    let share = words.next().expect("a share after --share");
                    let (index, count) = share.split_once('/').expect("an index and a count");
                    parsed.share = (index.parse().expect("an index"), count.parse().expect("a count"));
                }
                // What `cargo test` passes to every test.
                option if option.starts_with('-') => {}
                filter => parsed.filters.push(filter.to_owned()),
            }
        }
        parsed
    }

    fn wants(&self, name: &str) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| name.contains(filter.as_str()))
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(id) = &arguments.bed {
        let bed = BEDS.iter().find(|bed| bed.id() == *id).expect("a provider of this test");
        return work(&arguments, bed);
    }
    if let Err(error) = Libfabric::load(&arguments.libfabric) {
        eprintln!("SKIPPED: no libfabric (Debian: libfabric-bin): {error}");
        return if env::var_os("CI").is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    let (table, missing) = run(&arguments);
    let differences = compare::differences(&table);
    if arguments.lists_all {
        print!("{}", document::all(&table));
    }
    if arguments.lists_differences {
        print!("{}", document::rows(&differences));
    }
    if arguments.lists_all || arguments.lists_differences {
        return ExitCode::SUCCESS;
    }
    verdict(&arguments, &differences, &table, &missing)
}

/// Compares with the document.
fn verdict(arguments: &Arguments, differences: &[Difference], table: &Table, missing: &[&str]) -> ExitCode {
    for provider in missing {
        eprintln!("SKIPPED: this libfabric has no provider {provider}");
    }
    if !missing.is_empty() {
        return if env::var_os("CI").is_some() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    }
    let complaints = document::complaints(differences, table, &arguments.filters);
    for complaint in &complaints {
        eprintln!("{complaint}");
    }
    let probes = table.len();
    println!(
        "tolerance: {probes} probes, {} differences, {} not as documented",
        differences.len(),
        complaints.len()
    );
    if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Into how many parts the probes are divided.
const SHARES: usize = 16;
/// How many parts run at a time: more than there are processors, since most of the time is spent waiting.
const WORKERS: usize = 12;

/// Runs all probes over all providers, each part of the probes over one provider in a process of its own.
fn run(arguments: &Arguments) -> (Table, Vec<&'static str>) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = env::current_exe().expect("this test's path");
    // Cargo builds the plugin before its tests, and puts both into one directory.
    let plugin = program.with_file_name("libhomespun_fi.so");
    symlink(plugin, directory.path().join("libhomespun_fi.so")).expect("a temporary directory");
    let jobs: Vec<(&Bed, usize)> =
        (0..SHARES).flat_map(|share| BEDS.iter().map(move |bed| (bed, share))).collect();
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(BTreeMap::<String, String>::new());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some((bed, share)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut command = Command::new(&program);
                    command.args(["--bed", &bed.id(), "--libfabric", &arguments.libfabric]);
                    command.args(["--share", &format!("{share}/{SHARES}")]);
                    command.args(&arguments.filters).env("FI_PROVIDER_PATH", directory.path());
                    command.stdout(Stdio::piped());
                    let output = command.output().expect("a worker");
                    let text = String::from_utf8_lossy(&output.stdout);
                    assert!(output.status.success() || !bed.is_ours(), "{}: {text}", bed.id());
                    *answers.lock().expect("no worker panics").entry(bed.id()).or_default() += &text;
                }
            });
        }
    });
    let answers = answers.into_inner().expect("no worker panics");
    let mut table = Table::new();
    for bed in BEDS {
        for line in answers[&bed.id()].lines() {
            if let Some((name, outcome)) = line.split_once('\t') {
                // A provider with both kinds of endpoint answers for its other objects once.
                let row = table.entry(name.to_owned()).or_default();
                row.entry(bed.name).or_insert_with(|| outcome.to_owned());
            }
        }
    }
    let missing = COLUMNS.into_iter().filter(|column| !table.values().any(|row| row.contains_key(column)));
    let missing = missing.collect();
    (table, missing)
}

/// A worker: all probes over one provider, a line for each.
fn work(arguments: &Arguments, bed: &Bed) -> ExitCode {
    let libfabric = Libfabric::load(&arguments.libfabric).expect("what the test has loaded");
    let Ok(info) = setup::find(libfabric, bed) else {
        // This version of the provider has no such endpoints.
        return ExitCode::from(u8::from(bed.is_ours()));
    };
    let context = Context { libfabric, bed: *bed, info };
    std::panic::set_hook(Box::new(|_| ()));
    let (share, shares) = arguments.share;
    for (index, probe) in probes().into_iter().enumerate() {
        if index % shares != share {
            continue;
        }
        let name = match probe.family {
            Family::Object if bed.endpoint == Endpoint::Msg && bed.name != "tcp" => continue,
            Family::Object => probe.name.clone(),
            Family::Endpoint => format!("{} {}", bed.endpoint.name(), probe.name),
        };
        if arguments.wants(&name) {
            println!("{name}\t{}", isolation::outcome(&probe, &context));
        }
    }
    ExitCode::SUCCESS
}
