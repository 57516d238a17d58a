//! Peers of which one runs over libfabric's own `tcp`, the other over homespun under that name.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::Program;

/// Returns the command that runs the program with these arguments. `offered` is the name under which the
/// plugin is offered; without a name, the plugin is not loaded.
fn command(program: &Program, arguments: &[&str], offered: Option<&str>) -> Command {
    let mut command = program.command(arguments);
    match offered {
        Some(name) => command.env("FI_HOMESPUN_AS", name).env("FI_PROVIDER", name),
        None => command.env_remove("FI_PROVIDER_PATH"),
    };
    command
}

/// A process that listens. Dropping this value kills the process.
struct Listener {
    process: Child,
    address: String,
    input: Option<ChildStdin>,
}

impl Listener {
    fn start(program: &Program, offered: Option<&str>) -> Listener {
        let mut command = command(program, &["listen"], offered);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the compiled program");
        let mut output = BufReader::new(process.stdout.take().expect("it is piped"));
        let mut address = String::new();
        output.read_line(&mut address).expect("an address");
        Listener { input: process.stdin.take(), process, address }
    }

    /// Closes the standard input of the process, so that the process ends. Returns its standard error.
    fn end_and_read_stderr(mut self) -> String {
        drop(self.input.take());
        let mut log = String::new();
        let mut stderr = self.process.stderr.take().expect("it is piped");
        stderr.read_to_string(&mut log).expect("text");
        log
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a process that connects to the listener or sends to it: `how` says which. Returns the process's
/// standard output and standard error.
fn run_against_listener(
    program: &Program,
    how: &str,
    offered: Option<&str>,
    listener: &Listener,
) -> [String; 2] {
    let mut command = command(program, &[how], offered);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("the compiled program");
    let mut input = process.stdin.take().expect("it is piped");
    input.write_all(listener.address.as_bytes()).expect("the program reads the address");
    let output = process.wait_with_output().expect("it was started");
    [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

#[test]
fn peer_over_libfabrics_tcp_is_refused_and_logged() {
    let Some(program) = Program::compile("foreign_peer", &["foreign_peer"]) else { return };
    let listener = Listener::start(&program, Some("tcp"));
    let [said, log] = run_against_listener(&program, "connect", None, &listener);
    assert_eq!(said, "failed: Connection refused\n", "{log}");
    let log = listener.end_and_read_stderr();
    assert_eq!(log.matches("does not speak homespun's protocol").count(), 1, "{log}");
}

#[test]
fn sends_to_a_peer_over_libfabrics_tcp_fail_with_the_reason_in_the_log() {
    let Some(program) = Program::compile("foreign_peer", &["foreign_peer"]) else { return };
    let listener = Listener::start(&program, None);
    let [said, log] = run_against_listener(&program, "dial", Some("tcp"), &listener);
    assert_eq!(said, "failed: Connection reset by peer\n", "{log}");
    assert!(log.contains("it may not speak homespun's protocol"), "{log}");
}
