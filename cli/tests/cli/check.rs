//! `homespun check`.

use crate::command::run;

#[test]
fn check_shows_a_row_for_each_topic_and_their_sum() {
    for domain in ["shm", "tcp"] {
        let outcome = run(&["check", "--native", domain, "--only", "naming::"]);
        assert_eq!(outcome.status.code(), Some(0), "{outcome:?}");
        let rows: Vec<Vec<&str>> =
            outcome.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
        let [heading, naming, all] = &rows[..] else { panic!("{outcome:?}") };
        assert_eq!(heading[..], ["topic", "passed", "not", "offered", "failed", "crashed"]);
        assert_eq!((naming[0], all[0]), ("naming", "all"));
        assert_eq!(naming[1..], all[1..]);
        assert!(naming[1].parse::<usize>().is_ok_and(|passed| passed > 2), "{outcome:?}");
    }
}

#[test]
fn check_of_what_is_not_there_names_it() {
    for (arguments, named) in [
        (&["no-such-provider"][..], "there is nothing to check"),
        (&["tcp", "--libfabric", "/no/such/library"], "/no/such/library"),
        (&["--native", "tcp", "--only", "no::such::test"], "no::such::test"),
    ] {
        let outcome = run(&[&["check"], arguments].concat());
        assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
        assert!(outcome.stderr.contains(named), "{outcome:?}");
    }
}
