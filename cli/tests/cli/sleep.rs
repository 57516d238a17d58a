//! `homespun bench --only sleep`: providers of the installed libfabric, polled, asleep and idle.
//! Debian's package `libfabric-bin` brings this library, with the providers shm, tcp and sockets.

use rustix::process::Signal;
use serde_json::Value;

use crate::command::{Outcome, available_domains, run, send_signal, start};

const QUICK: [&str; 7] = ["bench", "--only", "sleep", "--quick", "--rounds", "1", "--sizes"];

/// Returns the contenders whose domain is available. `named` has a domain and a name for each contender.
fn select_available_contenders(named: &[(&str, &'static str)]) -> Vec<&'static str> {
    let there = available_domains();
    named.iter().filter(|(domain, _)| there.contains(domain)).map(|(_, name)| *name).collect()
}

fn parse_json_output(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:?}"))
}

/// Asserts that `part` of a report has times of single round trips for these sizes.
fn assert_latencies(part: &Value, sizes: &[u64], has_ratio: bool) {
    assert_eq!((&part["not_offered"], &part["failure"]), (&Value::Null, &Value::Null), "{part}");
    let measured = part["sizes"].as_array().expect("a list");
    let lengths: Vec<u64> = measured.iter().filter_map(|size| size["size_bytes"].as_u64()).collect();
    assert_eq!(lengths, sizes, "{part}");
    for size in measured {
        let [p50, p99] = ["p50_us", "p99_us"].map(|field| size[field].as_f64().expect("a number"));
        assert!(0.0 < p50 && p50 <= p99, "{size}");
        assert!(size["samples"].as_u64() >= Some(8), "{size}");
        assert_eq!(size["p50_ratio"].is_f64(), has_ratio, "{size}");
        assert_eq!(size["p99_ratio"].is_f64(), has_ratio, "{size}");
    }
}

#[test]
fn every_provider_is_measured_polled_asleep_and_idle() {
    let outcome = run(&[&QUICK[..], &["0,8,4K", "--against", "shm,tcp,sockets", "--json"]].concat());
    assert!(outcome.status.success(), "{outcome:?}");
    let document = parse_json_output(&outcome);
    assert_eq!(document["homespun_version"], env!("CARGO_PKG_VERSION"));
    assert!(document["libfabric_version"].is_string(), "{document}");
    let measured = document["contenders"].as_array().expect("a list");
    let names: Vec<&str> = measured.iter().filter_map(|contender| contender["name"].as_str()).collect();
    let all = [
        ("shm", "homespun/shm"),
        ("shm", "shm"),
        ("tcp", "homespun/tcp"),
        ("tcp", "tcp"),
        ("tcp", "sockets"),
    ];
    assert_eq!(names, select_available_contenders(&all));
    for contender in measured {
        let is_rival = !contender["rival_of"].is_null();
        assert_latencies(&contender["polled"], &[0, 8, 4096], is_rival);
        // Whether libfabric's shm offers a descriptor depends on its version.
        let wait_object = match contender["descriptor"]["not_offered"].as_str() {
            Some(refusal) if contender["name"] == "shm" => {
                assert!(!refusal.trim().is_empty(), "{contender}");
                "FI_WAIT_UNSPEC"
            }
            _ => {
                assert_latencies(&contender["descriptor"], &[0, 8, 4096], is_rival);
                "FI_WAIT_FD"
            }
        };
        // Numbers exist only if the two processes exchanged a message after their sleep.
        let idle = &contender["idle"];
        assert_eq!((&idle["failure"], &idle["wait_object"]), (&Value::Null, &wait_object.into()), "{idle}");
        for field in ["processor_ms_per_s", "wake_ups_per_s"] {
            let both = idle[field].as_array().expect("two numbers");
            let are_numbers = both.iter().all(|number| number.as_f64() >= Some(0.0));
            assert!(both.len() == 2 && are_numbers, "{idle}");
        }
    }
}

#[test]
fn table_has_rows_for_a_provider_that_is_not_offered() {
    let outcome = run(&[&QUICK[..], &["8", "--domain", "tcp", "--against", "no-such"]].concat());
    assert!(outcome.status.success(), "{outcome:?}");
    let rows: Vec<Vec<&str>> = outcome.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    let rows_of = |name: &str| rows.iter().filter(|row| row.first() == Some(&name)).count();
    // A contender has three rows: polled, asleep and idle.
    assert_eq!(rows_of("homespun/tcp"), 3, "{outcome:?}");
    assert_eq!(rows_of("no-such"), 3, "{outcome:?}");
    let note = "no-such, FI_WAIT_FD: not offered: no such provider";
    assert!(outcome.stdout.lines().any(|line| line == note), "{outcome:?}");
}

#[test]
fn killed_process_is_reported_in_its_row() {
    let parent = start(&[&QUICK[..], &["8", "--domain", "tcp", "--against", "no-such"]].concat());
    let pids = parent.await_peer_processes(2);
    send_signal(pids[0], Signal::KILL);
    let outcome = parent.wait_with_output();
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("1 of 2 contenders failed"), "{outcome:?}");
    let reason = "homespun/tcp, polling: failed: the peer process ended too early (signal: 9 (SIGKILL)";
    assert!(outcome.unwrapped_stdout().contains(reason), "{outcome:?}");
}
