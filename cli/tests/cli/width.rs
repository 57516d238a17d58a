//! Help, information and measurements fit a terminal of 80 columns.

use crate::command::{Outcome, run, run_with_environment};

const WIDTH: usize = 80;

fn assert_fits_80_columns(arguments: &[&str], outcome: &Outcome) {
    assert!(outcome.status.success(), "{outcome:?}");
    for line in outcome.stdout.lines() {
        let width = line.chars().count();
        assert!(width <= WIDTH, "{width} columns of {arguments:?}: {line:?}");
    }
}

#[test]
fn help_fits_80_columns() {
    // The help is no wider in a wider terminal.
    for columns in ["80", "200"] {
        for command in [None, Some("info"), Some("pingpong"), Some("bench"), Some("run")] {
            for help in ["-h", "--help"] {
                let arguments: Vec<&str> = command.into_iter().chain([help]).collect();
                assert_fits_80_columns(
                    &arguments,
                    &run_with_environment(&[("COLUMNS", columns)], &arguments),
                );
            }
        }
    }
}

#[test]
fn info_fits_80_columns() {
    for arguments in
        [["info"].as_slice(), &["info", "--full"], &["info", "127.0.0.1", "7471"], &["info", "--env"]]
    {
        assert_fits_80_columns(arguments, &run(arguments));
    }
    let variables = [("FI_HOMESPUN_IFACE", "127.0.0.0/8,^172.16.0.0/12,10.1.0.0/16,docker0,tailscale0")];
    assert_fits_80_columns(&["info", "--env"], &run_with_environment(&variables, &["info", "--env"]));
}

#[test]
fn measurements_fit_80_columns() {
    for arguments in [
        ["pingpong", "--sizes", "0,8,64K,1M", "--iterations", "20"].as_slice(),
        &["bench", "--quick", "--rounds", "1", "--sizes", "0,8,1000,1M"],
        &["bench", "--rpma", "--quick", "--rounds", "1", "--sizes", "8,1000,1M", "--dir", "/dev/shm"],
    ] {
        assert_fits_80_columns(arguments, &run(arguments));
    }
}
