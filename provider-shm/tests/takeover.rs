//! A process greets with the address of an endpoint of another process of the same user.

#[allow(dead_code, reason = "each test uses a part of it")]
mod raw;

use std::env;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use homespun_conformance::transport::{
    BUDGET_FRAMES, Backend, Deadline, TestEndpoint, drive_until, pseudo_random_payload,
};
use homespun_engine::address::Address;
use homespun_shm::{ShmProvider, ShmTransport};

use crate::raw::{RawSocket, encode_greeting, listen_at, make_doorbell, make_ring_memfd, vacant_address};

/// The variables that hold the address to greet, and the address to claim. Without the latter, the process
/// claims an address of its own.
const GREETS: &str = "HOMESPUN_TEST_GREETS";
const CLAIMS: &str = "HOMESPUN_TEST_CLAIMS";

fn address_from_environment(variable: &str) -> Option<Address> {
    env::var(variable).ok().map(|text| text.parse::<SocketAddr>().expect("an address").into())
}

#[test]
#[ignore = "an entry: another test runs it, in a process of its own"]
#[expect(clippy::print_stdout, reason = "the other test reads it")]
fn greeter_entry() {
    let own = vacant_address();
    let _listener = listen_at(own, 8);
    let raw = RawSocket::connect(address_from_environment(GREETS).expect("an endpoint"));
    let claimed = address_from_environment(CLAIMS).unwrap_or(own);
    raw.send(&encode_greeting(claimed, 5), &[make_ring_memfd().as_fd(), make_doorbell().as_fd()]);
    let deadline = Deadline::new();
    let answer = loop {
        match raw.try_receive() {
            Some(answer) => break answer.bytes,
            None => deadline.yield_or_panic("an answer"),
        }
    };
    println!("\nanswer {}", String::from_utf8_lossy(&answer).escape_debug());
    // The input ends with the test.
    io::stdin().read_to_end(&mut Vec::new()).expect("the end of the input");
}

/// Lets another process greet an endpoint. Returns the first message that the process gets.
fn greet_from_other_process(to: &mut TestEndpoint<ShmTransport>, claim: Option<Address>) -> String {
    let mut command = Command::new(env::current_exe().expect("the test has a file"));
    command.args(["greeter_entry", "--exact", "--ignored", "--nocapture"]);
    command.env(GREETS, to.address().socket_addr().to_string());
    claim.iter().for_each(|claim| _ = command.env(CLAIMS, claim.socket_addr().to_string()));
    let mut greeter = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process");
    let (told, heard) = mpsc::channel();
    let output = BufReader::new(greeter.stdout.take().expect("a pipe"));
    let reader = thread::spawn(move || {
        let mut lines = output.lines().map_while(Result::ok);
        let answer = lines.find_map(|line| line.strip_prefix("answer ").map(str::to_owned));
        told.send(answer).expect("the test waits for it");
        lines.for_each(drop);
    });
    let deadline = Deadline::new();
    let answer = loop {
        to.receive(BUDGET_FRAMES);
        match heard.try_recv() {
            Ok(answer) => break answer.expect("the process prints its answer"),
            Err(_) => deadline.yield_or_panic("an answer"),
        }
    };
    drop(greeter.stdin.take());
    assert!(greeter.wait().expect("a child").success());
    reader.join().expect("no panic");
    answer
}

#[test]
fn greeting_with_the_address_of_another_process_is_refused() {
    let provider = ShmProvider::new();
    let (mut endpoints, link, _) = Backend::new(&provider).open_linked_pair();
    let others = [endpoints[0].address(), endpoints[1].address()];
    for claimed in others {
        let answer = greet_from_other_process(&mut endpoints[1], Some(claimed));
        assert!(answer.starts_with("no-addr"), "{claimed}: {answer}");
        assert_eq!(endpoints[1].recorder.live_link_count(), 1, "{claimed}");
    }
    endpoints[0].post(link, pseudo_random_payload(100_000, 1));
    drive_until(&mut endpoints, "the frame", |[a, _]| a.has_sent_all());

    let ups = endpoints[1].recorder.log().len();
    let answer = greet_from_other_process(&mut endpoints[1], None);
    assert!(!answer.starts_with("no-"), "{answer}");
    assert!(endpoints[1].recorder.log().len() > ups, "a peer at its own address was refused");
}
