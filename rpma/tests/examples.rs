//! The example works, each of its processes started by the test.

#[allow(dead_code, reason = "its main function is another program's")]
#[path = "../examples/remote_log.rs"]
mod remote_log;

use std::fs;
use std::path::Path;

use homespun_suite::example::{self, FAILED, Program};

/// The length of the log's file, and the place of the first record.
const LOG_BYTES: usize = 64 * 1024;
const RECORDS: usize = 64;

#[test]
#[ignore = "a process that the tests start"]
fn example_process_entry() {
    example::run_chosen_example(|name, arguments| match name {
        "remote_log" => remote_log::run(arguments),
        other => panic!("no example {other}"),
    });
}

/// A server, and the address at which it listens.
struct Server {
    address: String,
    program: Program,
}

impl Server {
    fn start(log: &Path) -> Server {
        let path = log.to_str().expect("a name in UTF-8");
        let mut program = Program::start("remote_log", "auto", &["serve", path]);
        let address = program.await_rest_after_text("listening at ");
        Server { address, program }
    }

    fn append(&self, texts: &[&str]) -> Program {
        Program::start("remote_log", "auto", &[&["append", &self.address][..], texts].concat())
    }

    fn list(&self) -> Vec<String> {
        let mut client = Program::start("remote_log", "auto", &["list", &self.address]);
        let count = client.await_rest_after_text("the log has ");
        let count: usize = count.trim_end_matches(" records").parse().expect("a number");
        let record = |number| client.await_rest_after_text(&format!("record {number}: "));
        let records = (0..count).map(record).collect();
        client.assert_ends_in_success();
        records
    }

    /// Kills the server.
    fn kill(self) {
        drop(self.program);
    }
}

/// The records that the file has, by its tail.
fn parse_file(log: &Path) -> Vec<String> {
    let content = fs::read(log).expect("the log");
    assert_eq!(content.len(), LOG_BYTES);
    let tail = u64::from_le_bytes(content[..8].try_into().expect("8 bytes"));
    let mut rest = &content[RECORDS..RECORDS + usize::try_from(tail).expect("a length")];
    let mut records = Vec::new();
    while !rest.is_empty() {
        let (length, behind) = rest.split_first_chunk().expect("the length of a record");
        let (text, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
        records.push(String::from_utf8(text.to_vec()).expect("a text"));
        rest = behind;
    }
    records
}

#[test]
fn log_example_keeps_its_records_when_the_server_is_killed() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("log.bin");
    let server = Server::start(&log);
    assert_eq!(server.list(), [""; 0]);
    server.append(&["one", "", "three"]).assert_ends_in_success();
    server.kill();
    assert_eq!(parse_file(&log), ["one", "", "three"]);
    let server = Server::start(&log);
    server.append(&["four"]).assert_ends_in_success();
    assert_eq!(server.list(), ["one", "", "three", "four"]);
    assert_eq!(parse_file(&log), ["one", "", "three", "four"]);
}

#[test]
fn log_example_ends_its_client_when_the_server_is_killed() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("log.bin");
    let server = Server::start(&log);
    // More than the log holds.
    let texts: Vec<String> = (0..6000).map(|number| format!("text {number}")).collect();
    let mut client = server.append(&texts.iter().map(String::as_str).collect::<Vec<_>>());
    client.await_rest_after_text("stored: text 20");
    server.kill();
    let reason = client.await_rest_after_text(FAILED);
    assert!(!reason.is_empty());
    assert!(!client.wait_for_success_or_failure());
    let records = parse_file(&log);
    assert!(records.len() > 20, "{records:?}");
    assert_eq!(records, texts[..records.len()]);
}
