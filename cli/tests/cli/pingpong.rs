//! `homespun pingpong`.

use std::net::TcpListener;

use rustix::process::Signal;
use serde_json::Value;

use crate::command::{Outcome, Running, available_domains, run, send_signal, start};

/// More round trips than a test waits for.
const ENDLESS: &str = "1000000000";

/// Starts a server. Returns its address, too.
fn start_server(more: &[&str]) -> (Running, String) {
    let mut server = start(&[&["pingpong", "--listen", "127.0.0.1:0"], more].concat());
    let address = server.await_line_rest("listening at ");
    let address = address.split(' ').next().expect("an address").to_owned();
    (server, address)
}

/// The first column of the table.
fn parse_table_sizes(outcome: &Outcome) -> Vec<&str> {
    let table = outcome.stdout.lines().skip_while(|line| !line.trim_start().starts_with("size"));
    table.skip(1).filter_map(|line| line.split_whitespace().next()).collect()
}

#[test]
fn every_size_is_measured_between_two_processes() {
    for more in [&[][..], &["--tagged"], &["--no-pin"]] {
        let common = ["pingpong", "--domain", "tcp", "--sizes", "1,8,4K,1M", "--iterations", "20", "--check"];
        let outcome = run(&[&common, more].concat());
        assert!(outcome.status.success(), "{outcome:?}");
        assert_eq!(parse_table_sizes(&outcome), ["1", "8", "4K", "1M"], "{outcome:?}");
        assert_eq!(outcome.stderr, "");
    }
}

#[test]
fn json_pingpong_is_one_document_with_every_domain() {
    let sizes = ["--sizes", "0,8,1.5K", "--iterations", "20", "--tagged", "--json"];
    let outcome = run(&[&["pingpong"], &sizes[..]].concat());
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(outcome.stderr, "");
    let document: Value = serde_json::from_str(&outcome.stdout).expect("one JSON document");
    assert_eq!(document["homespun_version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&document["tagged"], &document["checked"]), (&true.into(), &false.into()));
    let measured = document["domains"].as_array().expect("a list");
    let names: Vec<&str> = measured.iter().filter_map(|domain| domain["domain"].as_str()).collect();
    assert_eq!(names, available_domains());
    for domain in measured {
        for end in ["client_address", "server_address"] {
            assert!(domain[end].as_str().is_some_and(|at| at.starts_with("127.0.0.1:")), "{domain}");
        }
        let sizes = domain["sizes"].as_array().expect("a list");
        let lengths: Vec<u64> = sizes.iter().filter_map(|size| size["size_bytes"].as_u64()).collect();
        assert_eq!(lengths, [0, 8, 1536]);
        for size in sizes {
            assert_eq!((&size["round_trips"], &size["messages"]), (&20.into(), &20.into()), "{size}");
            assert!(
                size["latency_us"].as_f64() > Some(0.0) && size["message_us"].as_f64() > Some(0.0),
                "{size}"
            );
            assert_eq!(size["bandwidth_mb_per_s"].is_f64(), size["size_bytes"] != 0, "{size}");
        }
    }
}

#[test]
fn json_client_prints_the_document_of_its_domain() {
    let (_server, address) = start_server(&["--domain", "SHM"]);
    let client = ["pingpong", &address, "-d", "Shm", "--sizes", "8", "--iterations", "20", "--json"];
    let outcome = run(&client);
    assert!(outcome.status.success(), "{outcome:?}");
    let document: Value = serde_json::from_str(&outcome.stdout).expect("one JSON document");
    let domain = &document["domains"][0];
    assert_eq!((&domain["domain"], &domain["server_address"]), (&"shm".into(), &address.into()));
    assert!(domain["client_core"].is_null() && domain["server_core"].is_null(), "{domain}");
}

#[test]
fn server_serves_one_client_and_ends() {
    let (server, address) = start_server(&[]);
    let client = run(&["pingpong", &address, "--sizes", "0,8,64K", "--iterations", "20", "--check"]);
    assert!(client.status.success(), "{client:?}");
    assert_eq!(parse_table_sizes(&client), ["0", "8", "64K"]);
    let server = server.wait_with_output();
    assert!(server.status.success(), "{server:?}");
    assert!(server.stdout.contains("untagged messages, every byte checked, 3 sizes\n"), "{server:?}");
    assert_eq!(server.stderr, "");
}

#[test]
fn keep_option_serves_further_clients_after_one_dies() {
    let (mut server, address) = start_server(&["--keep", "--timeout", "5"]);
    let measure = ["pingpong", &address, "--sizes", "8,64K", "--iterations", "20", "--check"];
    for _ in 0..2 {
        let client = run(&measure);
        assert!(client.status.success(), "{client:?}");
        server.await_line_rest("served ");
    }
    let client = start(&["pingpong", &address, "--sizes", "8", "--iterations", ENDLESS]);
    server.await_line_rest("serving ");
    drop(client);
    // If the server is still busy with the dead client, the next client waits.
    let client = run(&measure);
    assert!(client.status.success(), "{client:?}");
    assert_eq!(parse_table_sizes(&client), ["8", "64K"]);
}

#[test]
fn client_without_a_server_fails_with_econnrefused() {
    // No server listens at this port, which was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
    let outcome = run(&["pingpong", &address.to_string()]);
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    let complaint =
        format!("homespun: no answer from {address}: Connection refused: no endpoint is there over TCP");
    assert!(outcome.stdout.is_empty() && outcome.stderr.starts_with(&complaint), "{outcome:?}");
    assert!(outcome.stderr.contains("uses another domain"), "{outcome:?}");
}

#[test]
fn taken_address_and_silent_server_are_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    for (arguments, complaint) in [
        (&["--listen", &address][..], format!("cannot listen at {address}: Address already in use")),
        (&[&address, "--timeout", "1"], format!("nothing came from {address} for 1 s")),
    ] {
        let outcome = run(&[&["pingpong"], arguments].concat());
        assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
        assert_eq!(outcome.stderr, format!("homespun: {complaint}\n"));
    }
}

#[test]
fn killed_peer_process_is_reported_and_ends_with_a_killed_parent() {
    for kills_parent in [false, true] {
        let mut parent = start(&["pingpong", "--sizes", "64", "--iterations", ENDLESS, "--domain", "tcp"]);
        parent.await_line_rest("    size");
        let peer = parent.await_peer_processes(1)[0];
        send_signal(if kills_parent { parent.child.id().cast_signed() } else { peer }, Signal::KILL);
        // This call returns when the last process with the parent's standard error has ended.
        let outcome = parent.wait_with_output();
        assert_eq!(outcome.status.code(), (!kills_parent).then_some(1), "{outcome:?}");
        let complaint = "the peer process ended too early (signal: 9 (SIGKILL)";
        assert_eq!(outcome.stderr.contains(complaint), !kills_parent, "{outcome:?}");
    }
}

#[test]
fn killed_server_is_reported() {
    let (server, address) = start_server(&[]);
    let mut client = start(&["pingpong", &address, "--sizes", "64", "--iterations", ENDLESS]);
    client.await_line_rest("    size");
    drop(server);
    let outcome = client.wait_with_output();
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    assert!(outcome.stderr.starts_with(&format!("homespun: lost the peer at {address}: ")), "{outcome:?}");
}

#[test]
fn pingpong_with_wrong_options_is_refused() {
    for arguments in [
        ["--sizes", "1X"].as_slice(),
        &["--sizes", "65M"],
        &["--iterations", "0"],
        &["--timeout", "0"],
        &["--keep"],
        &["--core", "0"],
        &["--listen", "127.0.0.1:0", "--sizes", "1"],
        &["--listen", "127.0.0.1:0", "--json"],
        &["127.0.0.1:1", "--listen", "127.0.0.1:0"],
        &["127.0.0.1:"],
    ] {
        let outcome = run(&[&["pingpong"], arguments].concat());
        assert_eq!(outcome.status.code(), Some(2), "{arguments:?}: {outcome:?}");
    }
}
