//! The examples work, each in a process of its own.

#[allow(dead_code, reason = "the main functions of the examples are those of other programs")]
#[path = "../../examples"]
mod examples {
    #[allow(unreachable_pub, reason = "the example can be copied into a crate of its own")]
    #[path = "backend/main.rs"]
    pub(super) mod backend;
    pub(super) mod connected;
    pub(super) mod hello;
    pub(super) mod multi_receive_server;
    pub(super) mod remote_memory;
    pub(super) mod tagged_client_server;
    pub(super) mod tokio;
    pub(super) mod unknown_source;
    pub(super) mod wait_fd;
}

use std::io::Read;
use std::net::TcpStream;

use homespun_suite::example::{self, FAILED, Program};

use examples::{
    backend, connected, hello, multi_receive_server, remote_memory, tagged_client_server, tokio,
    unknown_source, wait_fd,
};

/// The domains over which the examples run.
const DOMAINS: [&str; 2] = ["tcp", "shm"];

#[test]
#[ignore = "a process that the tests start"]
fn example_process_entry() {
    example::run_chosen_example(|name, arguments| match name {
        "connected" => connected::run(arguments),
        "hello" => hello::run(arguments),
        "multi_receive_server" => multi_receive_server::run(arguments),
        "remote_memory" => remote_memory::run(arguments),
        "tagged_client_server" => tagged_client_server::run(arguments),
        "tokio" => tokio::run(arguments),
        "unknown_source" => unknown_source::run(arguments),
        "wait_fd" => wait_fd::run(arguments),
        other => panic!("no example {other}"),
    });
}

#[test]
fn backend_example_delivers_its_messages() {
    backend::run().expect("two messages arrive");
}

#[test]
fn hello_example_greets_its_peer() {
    for domain in DOMAINS {
        let mut listener = Program::start("hello", domain, &[]);
        let address = listener.await_rest_after_text("listening at ");
        let mut greeter = Program::start("hello", domain, &[&address]);
        assert_eq!(greeter.await_rest_after_text("said hello to "), address);
        assert_eq!(listener.await_rest_after_text("a peer says: "), "hello, fabric");
        greeter.assert_ends_in_success();
        listener.assert_ends_in_success();
    }
}

#[test]
fn tagged_client_server_example_answers_calls() {
    for domain in DOMAINS {
        let start = |arguments: &[&str]| Program::start("tagged_client_server", domain, arguments);
        let mut server = start(&["server"]);
        let address = server.await_rest_after_text("listening at ");
        let mut one = start(&["client", &address, "add 2 40", "reverse cirbaf"]);
        let mut other = start(&["client", &address, "add two 2", "dance"]);
        assert_eq!(one.await_rest_after_text("add 2 40 -> "), "42");
        assert_eq!(one.await_rest_after_text("reverse cirbaf -> "), "fabric");
        assert_eq!(other.await_rest_after_text("add two 2 -> "), "two numbers are needed");
        assert_eq!(other.await_rest_after_text("dance -> "), "there is no such call");
        one.assert_ends_in_success();
        other.assert_ends_in_success();
        let calls: Vec<String> = (0..40).map(|number| format!("add {number} 1000")).collect();
        let calls: Vec<&str> = calls.iter().map(String::as_str).chain(["stop"]).collect();
        let mut many = start(&[&["client", &address], &calls[..]].concat());
        for number in 0..40 {
            let answer = many.await_rest_after_text(&format!("add {number} 1000 -> "));
            assert_eq!(answer, (number + 1000).to_string());
        }
        assert_eq!(many.await_rest_after_text("stop -> "), "good bye");
        many.assert_ends_in_success();
        server.assert_ends_in_success();
    }
}

#[test]
fn remote_memory_example_writes_to_its_peer() {
    for domain in DOMAINS {
        let mut server = Program::start("remote_memory", domain, &[]);
        let address = server.await_rest_after_text("listening at ");
        let mut first = Program::start("remote_memory", domain, &[&address, "milk is out"]);
        assert_eq!(first.await_rest_after_text("note "), "0 is written");
        first.assert_ends_in_success();
        let second = Program::start("remote_memory", domain, &[&address, "bread too", "stop"]);
        for (number, note) in ["milk is out", "bread too", "stop"].into_iter().enumerate() {
            assert_eq!(server.await_rest_after_text(&format!("note {number}: ")), note);
        }
        assert_eq!(server.await_rest_after_text("peers have changed the board "), "6 times");
        second.assert_ends_in_success();
        server.assert_ends_in_success();
    }
}

#[test]
fn connected_example_rejects_one_client_and_answers_others() {
    for domain in DOMAINS {
        let mut server = Program::start("connected", domain, &[]);
        let address = server.await_rest_after_text("listening at ");
        let mut rejected = Program::start("connected", domain, &[&address, "mallory", "hello"]);
        assert_eq!(rejected.await_rest_after_text("not connected: "), "mallory is not welcome");
        let refused = format!("there is no connection to {address}: Connection refused");
        assert_eq!(rejected.await_rest_after_text(FAILED), refused);
        assert!(!rejected.wait_for_success_or_failure());
        for (client, last) in [("ann", "two"), ("bob", "stop")] {
            let mut program = Program::start("connected", domain, &[&address, client, "one", last]);
            assert_eq!(program.await_rest_after_text("connected: "), format!("welcome, {client}"));
            assert_eq!(program.await_rest_after_text("answer: "), "one");
            assert_eq!(program.await_rest_after_text("answer: "), last);
            program.assert_ends_in_success();
            assert_eq!(server.await_rest_after_text(&format!("{client} says: ")), "one");
            assert_eq!(server.await_rest_after_text(&format!("{client} says: ")), last);
        }
        server.assert_ends_in_success();
    }
}

#[test]
fn wait_fd_example_receives_messages_and_serves_their_count() {
    for domain in DOMAINS {
        let mut counter = Program::start("wait_fd", domain, &[]);
        let line = counter.await_rest_after_text("listening at ");
        let (address, status) = line.split_once(", status at ").expect("two addresses");
        let count = || {
            let mut text = String::new();
            let mut stream = TcpStream::connect(status).expect("it listens");
            stream.read_to_string(&mut text).expect("it answers");
            text
        };
        assert_eq!(count(), "0 messages\n");
        Program::start("wait_fd", domain, &[address, "one", "two"]).assert_ends_in_success();
        assert_eq!(counter.await_rest_after_text("message 2: "), "two");
        assert_eq!(count(), "2 messages\n");
        Program::start("wait_fd", domain, &[address, "three", "stop"]).assert_ends_in_success();
        assert_eq!(counter.await_rest_after_text("message 3: "), "three");
        counter.assert_ends_in_success();
    }
}

#[test]
fn tokio_example_answers_every_message_in_capitals() {
    for domain in DOMAINS {
        let mut server = Program::start("tokio", domain, &[]);
        let address = server.await_rest_after_text("listening at ");
        // Both programs sleep, and wake for each message.
        let texts: Vec<String> = (1..=300).map(|number| format!("text {number}")).collect();
        let texts: Vec<&str> = [&address[..]].into_iter().chain(texts.iter().map(String::as_str)).collect();
        let mut client = Program::start("tokio", domain, &texts);
        for (number, text) in (1..).zip(&texts[1..]) {
            assert_eq!(client.await_rest_after_text(&format!("{text} -> ")), text.to_uppercase());
            assert_eq!(server.await_rest_after_text(&format!("message {number}: ")), *text);
        }
        client.assert_ends_in_success();
        // The timer runs while no message comes.
        assert_eq!(server.await_rest_after_text("300 messages"), " so far");
        let mut client = Program::start("tokio", domain, &[&address, "stop"]);
        assert_eq!(client.await_rest_after_text("stop -> "), "STOP");
        client.assert_ends_in_success();
        server.assert_ends_in_success();
    }
}

#[test]
fn multi_receive_example_receives_every_message() {
    for domain in DOMAINS {
        let mut server = Program::start("multi_receive_server", domain, &[]);
        let address = server.await_rest_after_text("listening at ");
        let long = "x".repeat(1000);
        let many: Vec<&str> = [&address[..]].into_iter().chain((0..100).map(|_| &long[..])).collect();
        Program::start("multi_receive_server", domain, &many).assert_ends_in_success();
        assert_eq!(server.await_rest_after_text("message 100: "), long);
        Program::start("multi_receive_server", domain, &[&address, "stop"]).assert_ends_in_success();
        let rest = server.await_rest_after_text("101 messages, ");
        let used_up: u32 = rest.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
        assert!(used_up >= 1, "100 kB do not fit into one buffer");
        server.assert_ends_in_success();
    }
}

#[test]
fn unknown_source_example_answers_new_clients() {
    for domain in DOMAINS {
        let mut server = Program::start("unknown_source", domain, &[]);
        let address = server.await_rest_after_text("listening at ");
        for (index, last) in ["bye", "stop"].into_iter().enumerate() {
            let mut client = Program::start("unknown_source", domain, &[&address, "hello", last]);
            assert_eq!(client.await_rest_after_text("answer: "), "hello", "client {index}");
            assert_eq!(client.await_rest_after_text("answer: "), last);
            client.assert_ends_in_success();
            // Only the first message of a new client is reported as an error.
            server.await_rest_after_text(" is new here");
            assert_eq!(server.await_rest_after_text(" says: "), "hello");
            assert_eq!(server.await_rest_after_text(" says: "), last);
        }
        server.assert_ends_in_success();
    }
}
