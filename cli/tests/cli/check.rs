//! `homespun check`.

use std::fs;

use crate::command::run;

#[test]
fn check_shows_a_row_for_each_topic_and_their_sum() {
    let report = tempfile::NamedTempFile::new().unwrap();
    let path = report.path().to_str().unwrap();
    for domain in ["shm", "tcp"] {
        let outcome = run(&["check", "--native", domain, "--only", "naming::", "--junit", path, "--clauses"]);
        assert_eq!(outcome.status.code(), Some(0), "{outcome:?}");
        let rows: Vec<Vec<&str>> =
            outcome.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
        let [heading, naming, all, ..] = &rows[..] else { panic!("{outcome:?}") };
        assert_eq!(heading[..], ["topic", "passed", "not", "offered", "failed", "crashed"]);
        assert_eq!((naming[0], all[0]), ("naming", "all"));
        assert_eq!(naming[1..], all[1..]);
        assert!(naming[1].parse::<usize>().is_ok_and(|passed| passed > 1), "{outcome:?}");
        let row = |page| rows.iter().find(|row| row.first() == Some(&page)).expect("a page of its clauses");
        assert_eq!(row("fi_cm")[2..], ["1", "-", "-"], "{outcome:?}");
        let report = fs::read_to_string(path).unwrap();
        assert!(report.contains(&format!(r#"<testsuite name="naming" tests="{}""#, naming[1])), "{report}");
    }
}

#[test]
fn programs_follow_from_their_seed_and_are_replayed_from_a_file() {
    let outcome = run(&["check", "--sim", "--only", "programs::", "--programs", "30", "--seed", "7"]);
    assert_eq!(outcome.status.code(), Some(0), "{outcome:?}");
    assert!(outcome.stdout.contains("programs      30"), "{outcome:?}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let program = r#"{"seed":0,"parties":2,"with_data":true,"cq_depth_entries":0,"depth_ops":0,
        "unexpected_bytes":0,"with_matches":false,"with_fences":false,"order":"SAS",
        "completes_in_order":false,"memory":"Owned","topology":"Any","steps":[
            {"Receive":{"at":0,"tagged":[1,0],"from":null,"len_bytes":10,"in_pieces":false}},
            {"Send":{"from":1,"to":0,"tag":1,"len_bytes":10,"call":"Plain","fenced":false}}]}"#;
    for (text, status) in [(program, 0), ("{}", 1), ("not JSON", 1)] {
        fs::write(path, text).unwrap();
        let outcome = run(&["check", "--native", "tcp", "--replay", path]);
        assert_eq!(outcome.status.code(), Some(status), "{outcome:?}");
        assert_eq!(outcome.stderr.contains("has no program to replay"), status == 1, "{outcome:?}");
    }
}

#[test]
fn check_of_what_is_not_there_names_it() {
    for (arguments, named) in [
        (&["no-such-provider"][..], "there is nothing to check"),
        (&["tcp", "--libfabric", "/no/such/library"], "/no/such/library"),
        (&["--native", "tcp", "--only", "no::such::test"], "no::such::test"),
        (&["--native", "tcp", "--junit", "/no/such/directory/report.xml"], "/no/such/directory/report.xml"),
    ] {
        let outcome = run(&[&["check"], arguments].concat());
        assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
        assert!(outcome.stderr.contains(named), "{outcome:?}");
    }
}
