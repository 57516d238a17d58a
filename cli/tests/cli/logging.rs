//! What the command reports on standard error.

use crate::command::{run, run_with_environment};

#[test]
fn bad_parameter_is_warned_of_once_by_every_command() {
    let variables = [("FI_HOMESPUN_TX_SIZES", "7")];
    let quick: [&str; 4] = ["--sizes", "8", "--domain", "tcp"];
    for arguments in [
        vec!["info"],
        [&["pingpong", "--iterations", "20"], &quick[..]].concat(),
        [&["bench", "--quick", "--rounds", "1", "--only", "messages"], &quick[..]].concat(),
    ] {
        let outcome = run_with_environment(&variables, &arguments);
        assert!(outcome.status.success(), "{outcome:?}");
        let warning = "homespun: warning: FI_HOMESPUN_TX_SIZES is ignored: homespun has no such parameter\n";
        assert_eq!(outcome.stderr, warning, "{arguments:?}");
    }
}

#[test]
fn verbose_option_shows_why_hints_are_refused() {
    let reach_other_host = ["info", "--domain", "shm", "203.0.113.77", "80"];
    let quiet = run(&reach_other_host);
    assert_eq!(quiet.stderr.lines().count(), 1, "{quiet:?}");
    let verbose = run(&[&reach_other_host, &["-v"][..]].concat());
    let reason =
        "homespun: info: homespun::fabric: getinfo finds nothing error=nothing offers this: a destination";
    assert!(verbose.stderr.contains(reason), "{verbose:?}");
    assert_eq!(verbose.status.code(), Some(1), "{verbose:?}");
}

#[test]
fn more_verbose_options_show_more() {
    let measure = ["pingpong", "--domain", "tcp", "--sizes", "8", "--iterations", "20"];
    let levels = |option: &str| {
        let outcome = run(&[&["-v", option], &measure[..]].concat());
        assert!(outcome.status.success(), "{outcome:?}");
        ["info", "debug", "trace"]
            .map(|level| outcome.stderr.contains(&format!("homespun: {level}: homespun")))
    };
    assert!(!levels("-v")[2], "-vv shows no traces");
    assert!(levels("-v")[1], "-vv shows the life of links");
    assert!(levels("-vv")[1], "-vvv shows it as well");
}

#[test]
fn trace_names_the_peer_whose_large_messages_take_another_way() {
    let ways = run(&["info", "--domain", "shm"]);
    if ways.stdout.contains("barred") {
        return; // There may be only one way.
    }
    let measure = ["pingpong", "--domain", "shm", "--sizes", "65536", "--iterations", "200"];
    let outcome = run(&[&["-vvv"][..], &measure].concat());
    assert!(outcome.status.success(), "{outcome:?}");
    let change = "large payload takes another way peer=127.0.0.1:";
    assert!(outcome.stderr.contains(change), "{change:?} is not in:\n{}", outcome.stderr);
}
