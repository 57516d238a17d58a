//! `homespun bench`, and the bare loops on their own.

use rustix::process::Signal;
use serde_json::Value;

use crate::command::{Outcome, available_domains, run, send_signal, start};

/// More round trips than a test waits for.
const ENDLESS: &str = "1000000000";

const QUICK: [&str; 6] = ["bench", "--quick", "--rounds", "2", "--sizes", "0,8,1000,64K"];

/// The text that follows the name of a domain in the heading of accesses.
const ACCESS: &str = ", access to memory";

/// The text that follows the name of a domain in the heading of messages from send buffers.
const SEND_BUFFERS: &str = ", from send buffers";

/// The tables of an output. Each is the domain in the heading, and the words of each row.
fn parse_tables(outcome: &Outcome) -> Vec<(String, Vec<Vec<String>>)> {
    let blocks = outcome.stdout.split("\n\n").filter_map(|block| block.strip_prefix("domain "));
    let parsed = blocks.map(|block| {
        let mut lines = block.lines();
        let domain = lines.next().expect("a name").to_owned();
        let first = if domain.ends_with(ACCESS) { "operation" } else { "size" };
        assert!(lines.next().expect("a heading").trim_start().starts_with(first), "{outcome:?}");
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        // A note without leading spaces may follow the rows.
        let is_row = |line: &&str| line.starts_with(' ') || line.starts_with("fetch-add");
        (domain, lines.filter(is_row).map(words).collect())
    });
    parsed.collect()
}

#[test]
fn every_domain_has_tables_with_every_size() {
    for more in [["--tagged"].as_slice(), &["--no-pin"]] {
        let outcome = run(&[&QUICK, more].concat());
        assert!(outcome.status.success(), "{outcome:?}");
        assert_eq!(outcome.stderr, "");
        let tables = parse_tables(&outcome);
        let names: Vec<&str> = tables.iter().map(|(name, _)| name.as_str()).collect();
        let expected: Vec<String> = available_domains()
            .iter()
            .flat_map(|name| {
                let send_buffers = (*name == "shm").then(|| format!("{name}{SEND_BUFFERS}"));
                [Some(name.to_string()), send_buffers, Some(format!("{name}{ACCESS}"))]
            })
            .flatten()
            .collect();
        assert_eq!(names, expected, "{outcome:?}");
        for (domain, rows) in tables {
            let count = match () {
                () if domain.ends_with(ACCESS) => 9,
                () if domain.ends_with(SEND_BUFFERS) => 1,
                () => 4,
            };
            assert_eq!(rows.len(), count, "{outcome:?}");
            for row in rows {
                let numbers = row.iter().filter_map(|word| word.parse::<f64>().ok());
                assert!(numbers.filter(|number| *number >= 0.0).count() >= 7, "{domain}: {row:?}");
            }
        }
    }
}

#[test]
fn json_document_is_the_only_output() {
    let outcome = run(&[&QUICK[..], &["--json"]].concat());
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(outcome.stderr, "");
    let report: Value = serde_json::from_str(&outcome.stdout).expect("one JSON document");
    assert_eq!(report["homespun_version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&report["tagged"], &report["rounds"]), (&Value::Bool(false), &Value::from(2)));
    let measured = report["domains"].as_array().expect("a list");
    let names: Vec<&str> = measured.iter().filter_map(|domain| domain["domain"].as_str()).collect();
    assert_eq!(names, available_domains());
    for domain in measured {
        let is_shm = domain["domain"] == "shm";
        let list = |key: &str| domain[key].as_array().expect("a list").iter();
        let lengths: Vec<u64> = list("sizes").filter_map(|size| size["size_bytes"].as_u64()).collect();
        assert_eq!(lengths, [0, 8, 1000, 65_536]);
        assert_eq!(list("send_buffers").count(), usize::from(is_shm));
        let operations: Vec<&str> =
            list("accesses").filter_map(|access| access["operation"].as_str()).collect();
        assert_eq!(
            operations,
            [["write"; 4], ["read"; 4]].concat().into_iter().chain(["fetch-add"]).collect::<Vec<_>>()
        );
        for size in list("sizes").chain(list("accesses")).chain(list("send_buffers")) {
            for field in ["latency_us", "bare_latency_us", "latency_ratio"] {
                assert!(size[field].as_f64() > Some(0.0), "{field}: {size}");
            }
            // Which of the loops over shared memory is the fastest is measured.
            let bare_loop = size["bare_loop"].as_str().expect("a name");
            assert_eq!(bare_loop == "socket", !is_shm, "{size}");
        }
    }
}

#[test]
fn options_restrict_the_domains_and_the_operations() {
    for (more, names) in [
        (["--domain", "TCP"], vec!["tcp".to_owned(), format!("tcp{ACCESS}")]),
        (["--only", "messages"], available_domains().into_iter().map(str::to_owned).collect()),
        (["--only", "accesses"], available_domains().iter().map(|name| format!("{name}{ACCESS}")).collect()),
    ] {
        let outcome = run(&[&["bench", "--quick", "--rounds", "1", "--sizes", "8"][..], &more].concat());
        assert!(outcome.status.success(), "{outcome:?}");
        let found: Vec<String> = parse_tables(&outcome).into_iter().map(|(name, _)| name).collect();
        assert_eq!(found, names);
    }
}

#[test]
fn bench_with_wrong_options_is_refused() {
    for arguments in [
        ["--only", "gossip"].as_slice(),
        &["--sizes", "1X"],
        &["--sizes", "65M"],
        &["--sizes", ""],
        &["--rounds", "0"],
        &["--rounds", "1001"],
        &["--timeout", "0"],
        &["--against", ""],
        &["--against", "homespun"],
        &["--against", "shm", "--domain", "shm"],
        &["--against", "shm", "--tagged"],
        &["--libfabric", "/usr"],
        &["--plots", "somewhere"],
        &["--record", "somewhere"],
        &["--readme", "somewhere"],
        &["somewhere"],
        &["--only", "sleep", "--against", "tcp", "--record", "."],
        &["--only", "messages", "--against", "tcp"],
        &["--only", "sleep", "--against", "tcp,"],
        &["--rpma", "--only", "messages"],
        &["--rpma", "--only", "sleep"],
        &["--rpma", "--tagged"],
        &["--rpma", "--against", "shm"],
        &["--rpma", "--libfabric", "/usr"],
        &["--rpma", "--against", "shm", "--record", "."],
        &["--rpma", "somewhere"],
        &["--dir", "."],
        &["--rpma", "--dir"],
        &["--quick", "--against", "tcp", "--record", "somewhere"],
        &["--quick", "--against", "tcp", "--readme", "somewhere"],
    ] {
        let outcome = run(&[&["bench"], arguments].concat());
        assert_eq!(outcome.status.code(), Some(2), "{arguments:?}: {outcome:?}");
        assert_eq!(outcome.stdout, "");
        assert!(outcome.stderr.starts_with("error: "), "{outcome:?}");
    }
}

#[test]
fn killed_follower_is_reported() {
    // There are so many rounds that the test kills the follower before they end.
    for (arguments, last) in [
        (&["bench", "--domain", "shm", "--sizes", "8", "--rounds", "1000"][..], "bare loop"),
        (&["bench", "--domain", "tcp", "--sizes", "8", "--rounds", "1000"], "bare loop"),
        (&["bare", "ring-pingpong", "--size", "8", "--iterations", ENDLESS], ""),
        (&["bare", "tcp-pingpong", "--size", "8", "--iterations", ENDLESS], ""),
    ] {
        let parent = start(arguments);
        send_signal(parent.await_busy_peer_process(), Signal::KILL);
        let outcome = parent.wait_with_output();
        assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
        // The heading is printed, but no row.
        assert!(outcome.stdout.trim_end().ends_with(last), "{outcome:?}");
        let complaint = "homespun: the peer process ended too early (signal: 9 (SIGKILL)";
        assert!(outcome.stderr.starts_with(complaint), "{outcome:?}");
    }
}

#[test]
fn bare_loop_pins_to_the_given_cores() {
    let outcome =
        run(&["bare", "ring-pingpong", "--size", "8", "--iterations", "20", "--cores", "100000,100000"]);
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    assert!(outcome.stderr.starts_with("homespun: cannot pin to core 100000: "), "{outcome:?}");
    for cores in ["0", "0,", "0,x", "0,1,2"] {
        let outcome = run(&["bare", "ring-pingpong", "--size", "8", "--iterations", "1", "--cores", cores]);
        assert_eq!(outcome.status.code(), Some(2), "{cores}: {outcome:?}");
    }
}
