//! `homespun bench --rpma`: writes with a flush behind them, to memory and to a mapped file.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::command::{Outcome, available_domains, run, send_signal, start};

const QUICK: [&str; 7] = ["bench", "--rpma", "--quick", "--rounds", "2", "--sizes", "0,1000,64K"];

/// So many rounds that a test ends the measurement before they are over.
const ENDLESS: [&str; 6] = ["bench", "--rpma", "--sizes", "8", "--rounds", "1000"];

fn temporary_directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// The arguments that name a directory.
fn dir(directory: &TempDir) -> [&str; 2] {
    ["--dir", directory.path().to_str().expect("a name in UTF-8")]
}

#[track_caller]
fn assert_empty(directory: &Path) {
    let left: Vec<_> = fs::read_dir(directory).expect("a directory").collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The tables of an output. Each is the domain in the heading, and the words of each row.
fn parse_tables(outcome: &Outcome) -> Vec<(&str, Vec<Vec<&str>>)> {
    let blocks = outcome.stdout.split("\n\n").filter_map(|block| block.strip_prefix("domain "));
    let parsed = blocks.map(|block| {
        let mut lines = block.lines();
        let title = lines.next().expect("a title");
        let domain = title.strip_suffix(", write and flush").expect("the rest of a title");
        assert!(lines.next().expect("a heading").trim_start().starts_with("flush "), "{outcome:?}");
        (domain, lines.map(|line| line.split_whitespace().collect()).collect())
    });
    parsed.collect()
}

#[test]
fn every_domain_flush_and_size_has_a_row() {
    for more in [["--timeout", "60"].as_slice(), &["--no-pin"]] {
        let directory = temporary_directory();
        let outcome = run(&[&QUICK[..], &dir(&directory), more].concat());
        assert!(outcome.status.success(), "{outcome:?}");
        assert_eq!(outcome.stderr, "");
        let tables = parse_tables(&outcome);
        let domains: Vec<&str> = tables.iter().map(|(domain, _)| *domain).collect();
        assert_eq!(domains, available_domains());
        for (_, rows) in tables {
            let what: Vec<_> = rows.iter().map(|row| (row[0], row[1], row[8])).collect();
            let sizes = ["0", "1000", "64K"];
            let visible = sizes.map(|size| ("visibility", size, "memcpy"));
            let persistent = sizes.map(|size| ("persistent", size, "memcpy+msync"));
            assert_eq!(what, [visible, persistent].concat(), "{outcome:?}");
            for row in rows {
                let numbers: Vec<f64> =
                    row[2..8].iter().map(|word| word.parse().expect("a number")).collect();
                assert!(numbers.iter().all(|number| number.is_finite() && *number > 0.0), "{row:?}");
            }
        }
        assert_empty(directory.path());
    }
}

#[test]
fn json_document_is_the_only_output() {
    let directory = temporary_directory();
    let outcome = run(&[&QUICK[..], &dir(&directory), &["--json"]].concat());
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(outcome.stderr, "");
    let report: Value = serde_json::from_str(&outcome.stdout).expect("one JSON document");
    assert_eq!(report["homespun_version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report["rounds"], 2);
    assert!(report["file_system"].is_string(), "{report}");
    let domains = report["domains"].as_array().expect("a list");
    let names: Vec<&str> = domains.iter().filter_map(|domain| domain["domain"].as_str()).collect();
    assert_eq!(names, available_domains());
    for domain in domains {
        let flushes = domain["flushes"].as_array().expect("a list");
        let what: Vec<_> = flushes
            .iter()
            .filter_map(|flush| Some((flush["flush"].as_str()?, flush["size_bytes"].as_u64()?)))
            .collect();
        let each = |name| [0, 1000, 65_536].map(|size_bytes| (name, size_bytes));
        assert_eq!(what, [each("visibility"), each("persistent")].concat());
        assert!(flushes.iter().all(|flush| flush["latency_ratio"].as_f64() > Some(0.0)), "{domain}");
    }
}

#[test]
fn domain_option_measures_only_that_domain() {
    let directory = temporary_directory();
    let only = ["--domain", "TCP", "--sizes", "8"];
    let outcome = run(&[&QUICK[..5], &only, &dir(&directory)].concat());
    assert!(outcome.status.success(), "{outcome:?}");
    let domains: Vec<&str> = parse_tables(&outcome).iter().map(|(domain, _)| *domain).collect();
    assert_eq!(domains, ["tcp"]);
    for arguments in [["bench", "--rpma", "--domain", "auto"].as_slice(), &["bench", "--domain", "auto"]] {
        let refused = run(arguments);
        assert_eq!(refused.status.code(), Some(1), "{refused:?}");
        let complaint = "homespun: bench measures only the domains shm and tcp, not auto (ENODATA)\n";
        assert_eq!((refused.stdout.as_str(), refused.stderr.as_str()), ("", complaint));
    }
}

#[test]
fn directory_that_cannot_be_used_is_named() {
    for (name, reason) in
        [("/no/such/directory", "No such file or directory"), ("/dev/null", "Not a directory"), ("/proc", "")]
    {
        let outcome = run(&["bench", "--rpma", "--dir", name]);
        assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
        assert_eq!(outcome.stdout, "");
        let complaint = format!("homespun: cannot write {name}: {reason}");
        assert!(outcome.stderr.starts_with(&complaint), "{outcome:?}");
        assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
    }
}

#[test]
fn killed_target_or_command_leaves_no_file() {
    for (signal, is_target) in [(Signal::INT, false), (Signal::KILL, false), (Signal::KILL, true)] {
        let directory = temporary_directory();
        let parent = start(&[&ENDLESS[..], &["--domain", "shm"], &dir(&directory)].concat());
        let target = parent.await_busy_peer_process();
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1);
        send_signal(if is_target { target } else { parent.child.id().cast_signed() }, signal);
        let outcome = parent.wait_with_output();
        assert_eq!(outcome.status.signal(), (!is_target).then_some(signal.as_raw()), "{outcome:?}");
        let complaint = "homespun: the peer process ended too early (signal: 9 (SIGKILL)";
        assert_eq!(outcome.stderr.starts_with(complaint), is_target, "{outcome:?}");
        assert_empty(directory.path());
    }
}
