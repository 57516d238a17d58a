//! `homespun pingpong`.

use std::net::TcpListener;

use crate::command::{Outcome, domains_there, kill, run, start};

/// More round trips than any test waits for.
const ENDLESS: &str = "1000000000";

/// The first column of the table.
fn sizes(outcome: &Outcome) -> Vec<&str> {
    let table = outcome.stdout.lines().skip_while(|line| !line.trim_start().starts_with("size"));
    table.skip(1).filter_map(|line| line.split_whitespace().next()).collect()
}

fn measure_with_own_peer(arguments: &[&str]) {
    let common = ["pingpong", "--domain", "tcp", "--sizes", "1,8,4K,1M", "--iterations", "20", "--check"];
    let outcome = run(&[&common, arguments].concat());
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(sizes(&outcome), ["1", "8", "4K", "1M"], "{outcome:?}");
    assert_eq!(outcome.stderr, "");
}

#[test]
fn every_domain_is_measured_in_turn() {
    let outcome = run(&["pingpong", "--sizes", "8,64K", "--iterations", "20", "--check"]);
    assert!(outcome.status.success(), "{outcome:?}");
    let domains = outcome.stdout.lines().filter_map(|line| line.strip_prefix("domain ")?.split(',').next());
    assert_eq!(domains.collect::<Vec<_>>(), domains_there(), "{outcome:?}");
    let rows = outcome.stdout.lines().filter(|line| line.trim_start().starts_with("64K"));
    assert_eq!(rows.count(), domains_there().len(), "{outcome:?}");
    assert_eq!(outcome.stderr, "");
}

#[test]
fn untagged_messages_between_two_processes() {
    measure_with_own_peer(&[]);
}

#[test]
fn tagged_messages_between_two_processes() {
    measure_with_own_peer(&["--tagged"]);
}

#[test]
fn processes_that_are_not_pinned() {
    measure_with_own_peer(&["--no-pin"]);
}

#[test]
fn a_server_serves_one_client_and_ends() {
    let mut server = start(&["pingpong", "--listen", "127.0.0.1:0"]);
    let address = server.await_line("listening at ");
    let address = address.split(' ').next().expect("an address");
    let client = run(&["pingpong", address, "--sizes", "0,8,64K", "--iterations", "20", "--check"]);
    assert!(client.status.success(), "{client:?}");
    assert_eq!(sizes(&client), ["0", "8", "64K"]);
    let server = server.finish();
    assert!(server.status.success(), "{server:?}");
    assert!(server.stdout.contains("untagged messages, every byte checked, 3 sizes\n"), "{server:?}");
    assert_eq!(server.stderr, "");
}

#[test]
fn a_server_goes_on_if_told_so_also_after_a_client_that_dies() {
    let mut server = start(&["pingpong", "--listen", "127.0.0.1:0", "--keep", "--timeout", "5"]);
    let address = server.await_line("listening at ");
    let address = address.split(' ').next().expect("an address");
    let measure = ["pingpong", address, "--sizes", "8,64K", "--iterations", "20", "--check"];
    for _ in 0..2 {
        let client = run(&measure);
        assert!(client.status.success(), "{client:?}");
        server.await_line("served ");
    }
    let client = start(&["pingpong", address, "--sizes", "8", "--iterations", ENDLESS]);
    server.await_line("serving ");
    drop(client);
    // The server may still be with the client that died; the next one waits its turn.
    let client = run(&measure);
    assert!(client.status.success(), "{client:?}");
    assert_eq!(sizes(&client), ["8", "64K"]);
}

#[test]
fn nobody_answers_where_nobody_listens() {
    // A port that was free a moment ago.
    let address = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port");
    let outcome = run(&["pingpong", &address.to_string()]);
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    let complaint = format!("homespun: nobody answers at {address}: Connection refused\n");
    assert_eq!((outcome.stdout.as_str(), outcome.stderr), ("", complaint));
}

#[test]
fn who_answers_but_never_speaks_is_given_up() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("its address").to_string();
    let outcome = run(&["pingpong", &address, "--timeout", "1"]);
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    assert_eq!(outcome.stderr, format!("homespun: nothing came from {address} for 1 s\n"));
}

#[test]
fn an_address_that_is_taken_cannot_be_listened_at() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let outcome = run(&["pingpong", "--listen", &address]);
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    assert_eq!(outcome.stderr, format!("homespun: cannot listen at {address}: Address already in use\n"));
}

#[test]
fn a_domain_that_is_not_there_cannot_be_measured() {
    let outcome = run(&["pingpong", "--domain", "token-ring"]);
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    let complaint = "homespun: there is no domain token-ring, only shm and tcp (ENODATA)\n";
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("", complaint));
}

#[test]
fn a_killed_peer_process_is_noticed() {
    let mut parent = start(&["pingpong", "--sizes", "64", "--iterations", ENDLESS, "--domain", "tcp"]);
    parent.await_line("    size");
    kill(parent.peer_process());
    let outcome = parent.finish();
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    assert!(outcome.stderr.contains("the peer process ended too early (signal: 9 (SIGKILL)"), "{outcome:?}");
}

#[test]
fn a_killed_parent_takes_its_peer_process_along() {
    let mut parent = start(&["pingpong", "--sizes", "64", "--iterations", ENDLESS, "--domain", "tcp"]);
    parent.await_line("    size");
    parent.child.kill().expect("it runs");
    // Ends with the last process that has the standard error of the first.
    let outcome = parent.finish();
    assert_eq!(outcome.status.code(), None, "{outcome:?}");
}

#[test]
fn a_killed_server_is_noticed() {
    let mut server = start(&["pingpong", "--listen", "127.0.0.1:0"]);
    let address = server.await_line("listening at ");
    let address = address.split(' ').next().expect("an address").to_owned();
    let mut client = start(&["pingpong", &address, "--sizes", "64", "--iterations", ENDLESS]);
    client.await_line("    size");
    drop(server);
    let outcome = client.finish();
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    assert!(outcome.stderr.starts_with(&format!("homespun: lost the peer at {address}: ")), "{outcome:?}");
}

#[test]
fn commands_that_make_no_sense_are_refused() {
    for arguments in [
        ["--sizes", "1X"].as_slice(),
        &["--sizes", "65M"],
        &["--iterations", "0"],
        &["--timeout", "0"],
        &["--keep"],
        &["--core", "0"],
        &["--listen", "127.0.0.1:0", "--sizes", "1"],
        &["127.0.0.1:1", "--listen", "127.0.0.1:0"],
        &["127.0.0.1:"],
    ] {
        let outcome = run(&[&["pingpong"], arguments].concat());
        assert_eq!(outcome.status.code(), Some(2), "{arguments:?}: {outcome:?}");
    }
}
