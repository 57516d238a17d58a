//! Counts the instructions of operations, by the Rust interface and by the plugin. Compares the counts with
//! the record in `counts.json`, and with those of libfabric's provider `shm`. CONTRIBUTING.md explains how to
//! use this benchmark. docs/decisions/instruction-counts.md gives the reasons for its design.

#![deny(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its result")]

#[expect(unsafe_code, reason = "it calls libraries as C programs do")]
mod c_node;
mod callgrind;
mod collection;
mod native;
mod node;
mod path;
mod perform;
#[expect(unsafe_code, reason = "it polls descriptors that others own")]
mod sockets;
#[expect(unsafe_code, reason = "the C library tells its version by a pointer")]
mod tools;

use std::env;
use std::fs::File;
use std::io::Write;
use std::path::Path as FilePath;
use std::process::ExitCode;

use clap::Parser;
use homespun_instructions::comparison::{PathChange, changed_tools, compare};
use homespun_instructions::record::Record;
use homespun_instructions::report;

use crate::path::Path;

/// The file of the record.
const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/counts.json");

/// How often a path is counted before its count is said to differ from the record. Polls look for another
/// program that keeps their core, and do more if they find one.
const COUNTS_MAX: usize = 3;

/// The command that records the current counts.
const HOW_TO_WRITE: &str = "cargo bench --bench instructions -- --write";

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Counts the instructions of homespun's operations, and compares them with the recorded counts.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only paths whose name contains one of these, such as shm/plugin or tagged.
    only: Vec<String>,
    /// Records the counts instead of comparing them. With names of paths, the record of other paths stays.
    #[arg(long)]
    write: bool,
    /// Performs a path's operations, under callgrind.
    #[arg(long, hide = true, conflicts_with = "write")]
    perform: Option<Path>,
    /// Passed by Cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.perform {
        Some(path) => perform::perform(path),
        None if arguments.write => record_counts(&arguments.only),
        None => count_and_compare(&arguments.only),
    };
    result.unwrap_or_else(|error| {
        eprintln!("instructions: {error}");
        ExitCode::FAILURE
    })
}

/// Whether the user has chosen this path: its name contains one of the given parts, or none is given.
fn is_meant(name: &str, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|part| name.contains(part))
}

fn meant_paths(only: &[String]) -> Vec<Path> {
    Path::all().into_iter().filter(|path| is_meant(&path.to_string(), only)).collect()
}

fn record_counts(only: &[String]) -> Result<ExitCode> {
    let before = Record::read(FilePath::new(RECORD))?.unwrap_or_default();
    let mut now = Record { tools: tools::versions()?, ..Record::default() };
    if !only.is_empty() && !changed_tools(&before, &now).is_empty() {
        return Err("the other paths were counted with other tools, so all must be counted again".into());
    }
    now.paths = callgrind::count_paths(meant_paths(only))?;
    let others = before.paths.iter().filter(|(name, _)| !is_meant(name, only));
    now.paths.extend(others.map(|(name, count)| (name.clone(), count.clone())));
    now.write(FilePath::new(RECORD))?;
    println!("{}", report::format_table(&compare(&before, &now)));
    println!("The current counts are recorded in {RECORD}.");
    Ok(ExitCode::SUCCESS)
}

fn count_and_compare(only: &[String]) -> Result<ExitCode> {
    let mut recorded = Record::read(FilePath::new(RECORD))?.unwrap_or_default();
    recorded.paths.retain(|name, _| is_meant(name, only));
    let tools = tools::versions()?;
    let changed = changed_tools(&recorded, &Record { tools: tools.clone(), ..Record::default() });
    if !changed.is_empty() {
        eprintln!(
            "{}\nTo record counts with the current tools: {HOW_TO_WRITE}",
            report::describe_changed_tools(&changed)
        );
        // CI installs the recorded versions, so another version is a failure there.
        if env::var_os("CI").is_some_and(|value| !value.is_empty()) {
            return Ok(ExitCode::FAILURE);
        }
        report_skipped("instruction counts: the record was made with other tools")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut now = Record { tools, paths: callgrind::count_paths(meant_paths(only))? };
    let mut changes = compare(&recorded, &now);
    for _ in 1..COUNTS_MAX {
        let has_changed = |path: &Path| changes.get(&path.to_string()).is_some_and(PathChange::has_changed);
        let changed: Vec<Path> = Path::all().into_iter().filter(has_changed).collect();
        if changed.is_empty() {
            break;
        }
        now.paths.extend(callgrind::count_paths(changed)?);
        changes = compare(&recorded, &now);
    }
    println!("{}", report::format_table(&changes));
    let findings = report::describe_changes(&changes);
    if let Err(error) = print_beside_libfabric(&now, only) {
        report_skipped(&format!("instruction counts beside libfabric: {error}"))?;
    }
    if findings.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("\n{}\n\nIf this is intended, record it: {HOW_TO_WRITE}", findings.join("\n\n"));
    Ok(ExitCode::FAILURE)
}

/// Counts the meant paths through libfabric's provider `shm`, and prints the counts beside those of the
/// plugin.
fn print_beside_libfabric(now: &Record, only: &[String]) -> Result<()> {
    let (version, paths) = (c_node::version_of_libfabric()?, Path::all_of_libfabric());
    let is_meant = |path: &Path| is_meant(&path.to_string().replace("libfabric", "plugin"), only);
    let theirs = callgrind::count_paths(paths.into_iter().filter(is_meant).collect())?;
    println!("\n{}", report::format_beside_libfabric(&version, &now.paths, &theirs));
    Ok(())
}

/// Reports what is skipped: on standard error, and in the file from which `./test` makes its summary.
fn report_skipped(what: &str) -> Result<()> {
    eprintln!("skipped: {what}");
    if let Some(path) = env::var_os("HOMESPUN_SKIPPED") {
        let mut file = File::options().create(true).append(true).open(path)?;
        writeln!(file, "skipped: {what}")?;
    }
    Ok(())
}
