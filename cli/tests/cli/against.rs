//! `homespun bench --against`, with the installed libfabric and with fake ones.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::thread::sched_getaffinity;
use tempfile::TempDir;

use crate::command::{Outcome, run_with_environment};

/// The environment that excludes the programs of fabtests.
const WITHOUT_FABTESTS: [(&str, &str); 1] = [("FABTESTS", "")];

const QUICK: [&str; 6] = ["bench", "--quick", "--rounds", "1", "--sizes", "8,16K"];

/// Arguments for a record. They lack `--quick`, with which the command refuses to write a record.
const FOR_A_RECORD: [&str; 5] = ["bench", "--rounds", "1", "--sizes", "8,16K"];

const HOMESPUN: &str = env!("CARGO_BIN_EXE_homespun");

/// The script of a fake `fi_info`.
const INFO: &str = "echo 'libfabric: 9.9.9'";

/// Whether there are two cores, one for each process.
fn has_two_cores() -> bool {
    sched_getaffinity(None).expect("an affinity").count() > 1
}

fn path_str(path: &Path) -> &str {
    path.to_str().expect("a name in UTF-8")
}

/// Makes an installation prefix. The programs are these scripts, the library is an empty file.
fn make_fake_libfabric(pingpong: &str, info: &str) -> TempDir {
    let prefix = tempfile::tempdir().expect("a temporary directory");
    for directory in ["bin", "lib"] {
        fs::create_dir(prefix.path().join(directory)).expect("a temporary directory");
    }
    fs::write(prefix.path().join("lib/libfabric.so.1"), "").expect("a temporary file");
    for (name, script) in [("fi_pingpong", pingpong), ("fi_info", info)] {
        let path = prefix.path().join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("a temporary file");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("a temporary file");
    }
    prefix
}

/// The script of a fake `fi_pingpong` whose server listens, and whose client does this.
fn make_script_of_client(client: &str) -> String {
    format!(
        r#"case "$*" in
        *-B*) for word in "$@"; do [ "$previous" = -B ] && port=$word; previous=$word; done
            exec {HOMESPUN} pingpong --listen 127.0.0.1:$port;;
        *) {client};;
        esac"#
    )
}

/// Runs a comparison of one size with a fake libfabric, whose `fi_pingpong` is this script. Returns its
/// prefix, too.
fn bench_against_fake(pingpong: &str, more: &[&str]) -> (TempDir, Outcome) {
    let libfabric = make_fake_libfabric(pingpong, INFO);
    let outcome = run_with_environment(&WITHOUT_FABTESTS, &[&of_fake(&libfabric)[..], more].concat());
    (libfabric, outcome)
}

/// The arguments of a comparison of one size with a fake libfabric.
fn of_fake(libfabric: &TempDir) -> [&str; 9] {
    let prefix = path_str(libfabric.path());
    ["bench", "--quick", "--sizes", "8", "--against", "tcp", "--no-pin", "--libfabric", prefix]
}

/// The only line on standard error.
fn assert_failed_with_one_stderr_line(outcome: &Outcome) -> &str {
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    let mut lines = outcome.stderr.lines();
    let line = lines.next().expect("a complaint");
    assert_eq!(lines.next(), None, "{outcome:?}");
    line
}

#[test]
fn shm_contenders_have_rows_lines_and_a_record() {
    let pinned_or_not: &[&str] = if has_two_cores() { &[] } else { &["--no-pin"] };
    run_and_check_record_against("shm", "shared memory", pinned_or_not);
}

#[test]
fn tcp_contenders_have_rows_lines_and_a_record() {
    run_and_check_record_against("tcp", "TCP", &["--no-pin"]);
}

/// Runs a comparison with a record. Checks that every output shows every contender.
fn run_and_check_record_against(provider: &str, medium: &str, more: &[&str]) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let page = directory.path().join("PAGE.md");
    fs::write(&page, "above\n<!-- speed -->\n<!-- /speed -->\nbelow\n").expect("a temporary file");
    let own = ["--against", provider, "--record", path_str(directory.path()), "--readme", path_str(&page)];
    let outcome = run_with_environment(&WITHOUT_FABTESTS, &[&FOR_A_RECORD[..], &own, more].concat());
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(outcome.stderr, "");
    assert!(outcome.stdout.starts_with("libfabric "), "{outcome:?}");

    let record = fs::read_to_string(directory.path().join("RESULTS.md")).expect("a record");
    assert!(!record.contains(path_str(directory.path())), "a path of this host: {record}");
    let title = format!("fi_pingpong over {medium}: messages back and forth");
    let blocks: Vec<&str> = outcome.stdout.split("\n\n").filter(|block| block.starts_with(&title)).collect();
    assert!(!blocks.is_empty(), "{outcome:?}");
    for block in &blocks {
        // The title may take several lines.
        let rows: Vec<&str> = block.lines().rev().take(2).map(str::trim_start).collect();
        assert!(rows[0].starts_with("16 KiB ") && rows[1].starts_with("8 B "), "{outcome:?}");
    }
    assert!(record.contains(&format!("## {title}")), "{record}");
    // Each figure of `fi_pingpong` has two drawings: latency and bandwidth.
    let drawings = fs::read_dir(directory.path().join("plots")).expect("drawings");
    assert_eq!(drawings.count(), 2 * blocks.len(), "{record}");
    let (_, asleep) = record.split_once("\n## Asleep and idle\n").expect("a section");
    let rows_of = |contender: &str, waits_by: &str, size: &str| {
        let rows = asleep.lines().filter(|line| line.starts_with(&format!("| {contender} ")));
        rows.filter(|row| row.contains(&format!(" | {waits_by}")) && row.contains(size)).count()
    };
    for contender in [format!("homespun/{provider}"), provider.to_owned()] {
        for size in [" | 8 B | ", " | 16 KiB | "] {
            assert_eq!(rows_of(&contender, "polling", size), 1, "{record}");
        }
        // The contender has a row for exchanges in which it sleeps, and a row while it idles.
        assert!(rows_of(&contender, "FI_WAIT_", "") >= 2, "{record}");
    }
    let (_, brief) = record.split_once("\n## In short\n").expect("a section");
    let (brief, _) = brief.split_once("\n## ").expect("another section");
    let page = fs::read_to_string(&page).expect("a page");
    assert_eq!(page, format!("above\n<!-- speed -->\n{brief}\n<!-- /speed -->\nbelow\n"));
}

#[test]
fn missing_fi_pingpong_is_reported_with_its_package() {
    let nowhere = tempfile::tempdir().expect("a temporary directory");
    let variables = [("PATH", path_str(nowhere.path())), WITHOUT_FABTESTS[0]];
    let outcome = run_with_environment(&variables, &[&QUICK[..], &["--against", "shm"]].concat());
    let expected =
        "homespun: there is no fi_pingpong (searched: PATH): install libfabric's programs (libfabric-bin in";
    assert!(assert_failed_with_one_stderr_line(&outcome).starts_with(expected), "{outcome:?}");

    let outcome = run_with_environment(
        &WITHOUT_FABTESTS,
        &[&QUICK[..], &["--against", "shm", "--libfabric", path_str(nowhere.path())]].concat(),
    );
    let expected =
        format!("homespun: there is no fi_pingpong (searched: {}/bin): ", path_str(nowhere.path()));
    assert!(assert_failed_with_one_stderr_line(&outcome).starts_with(&expected), "{outcome:?}");
}

#[test]
fn missing_provider_is_reported_with_the_available_ones() {
    let arguments = ["bench", "--quick", "--against", "shm,token-ring"];
    let outcome = run_with_environment(&WITHOUT_FABTESTS, &arguments);
    let line = assert_failed_with_one_stderr_line(&outcome);
    assert!(
        line.contains("has no provider token-ring for reliable unconnected endpoints; it has "),
        "{line}"
    );
    assert!(line.contains("shm") && line.contains("tcp"), "{line}");
}

#[test]
fn failing_program_leaves_a_gap_and_the_command_fails_at_the_end() {
    let libfabric = make_fake_libfabric("echo out of luck >&2; exit 3", INFO);
    let arguments = of_fake(&libfabric).map(|word| if word == "8" { "8,64" } else { word });
    let outcome = run_with_environment(&WITHOUT_FABTESTS, &arguments);
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    assert!(outcome.stdout.starts_with("libfabric 9.9.9 ("), "{outcome:?}");
    let rows: Vec<Vec<&str>> =
        outcome.stdout.lines().rev().take(2).map(|line| line.split_whitespace().collect()).collect();
    for row in rows {
        assert_eq!(row[4..], ["-", "-", "-", "-", "-", "-", "socket"], "{outcome:?}");
    }
    let complaints: Vec<&str> = outcome.stderr.lines().collect();
    // A contender that has failed is not tried with other sizes, so each contender has only one line.
    let reason = "gave no result: the server ended early (exit status: 3): out of luck";
    let expected = [
        format!("homespun: fi_pingpong, 8 B, over homespun (tcp) {reason}"),
        format!("homespun: fi_pingpong, 8 B, over tcp {reason}"),
        // The sleep measurement loads the library itself, and fails because the library is an empty
        // file.
        complaints.get(2).copied().unwrap_or_default().to_owned(),
        "homespun: 2 of 2 sizes could not be measured for every contender".to_owned(),
    ];
    assert_eq!(complaints, expected);
    assert!(complaints[2].starts_with("homespun: cannot load libfabric: "), "{outcome:?}");
}

/// Asserts that a comparison has failed, and says that a program gave no result for this reason.
fn assert_gave_no_result(outcome: &Outcome, reason: &str) {
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    let expected = format!("homespun: fi_pingpong, 8 B, over tcp gave no result: {reason}");
    assert!(outcome.stderr.lines().any(|line| line == expected), "{outcome:?}");
}

#[test]
fn server_that_does_not_listen_in_time_is_terminated_and_reported() {
    let silent = r#"trap ': >"${0%/*}/cleaned-up"; exit 0' TERM; while :; do sleep 0.02; done"#;
    let (libfabric, outcome) = bench_against_fake(silent, &["--rounds", "1", "--timeout", "1"]);
    assert_gave_no_result(&outcome, "the server does not listen");
    assert!(libfabric.path().join("bin/cleaned-up").exists(), "{outcome:?}");
}

#[test]
fn client_that_closes_its_output_but_does_not_end_is_reported() {
    let closes_its_output = make_script_of_client("exec sleep 1000 >/dev/null 2>&1");
    let (_libfabric, outcome) = bench_against_fake(&closes_its_output, &["--rounds", "1"]);
    assert_gave_no_result(&outcome, "the client closed its output but did not end");
}

#[test]
fn page_without_markers_is_refused_before_the_measurement() {
    let page = tempfile::NamedTempFile::new().expect("a temporary file");
    let outcome = run_with_environment(
        &WITHOUT_FABTESTS,
        &[&FOR_A_RECORD[..], &["--against", "tcp", "--readme", path_str(page.path())]].concat(),
    );
    let line = assert_failed_with_one_stderr_line(&outcome);
    assert!(line.contains("it has no lines <!-- speed --> and <!-- /speed -->"), "{line}");
    assert_eq!(outcome.stdout, "");
}
