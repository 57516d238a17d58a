//! `homespun info`.

use homespun::params::{PARAMS, Param};
use serde_json::Value;

use crate::command::{run, run_with_environment};

/// Checks that the command prints these texts, apart from line breaks and the number of spaces.
#[track_caller]
fn assert_shown(arguments: &[&str], parts: &[&str]) {
    let outcome = run(arguments);
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(outcome.stderr, "");
    for part in parts {
        assert!(outcome.unwrapped_stdout().contains(part), "{part:?} is not in:\n{}", outcome.stdout);
    }
}

#[test]
fn info_shows_attributes_addresses_and_ways() {
    let ways = ["take the way that their receiver measures to be the fastest", "with plain copies"];
    for (arguments, parts) in [
        (
            &["info"][..],
            &[
                "tcp: reliable messages (FI_EP_RDM) over IPv4",
                "FI_MSG FI_RMA FI_TAGGED FI_ATOMIC",
                "4 KiB if injected",
            ][..],
        ),
        (
            &["info", "127.0.0.1", "7471", "--numeric", "--domain", "tcp"],
            &["from 127.0.0.1, a port that the system chooses", "to 127.0.0.1:7471"],
        ),
        (&["info", "127.0.0.1", "7471", "--source"], &["from 127.0.0.1, port 7471"]),
        (
            &["info", "--domain", "auto"],
            &[
                "auto: reliable messages (FI_EP_RDM) over IPv4",
                "peers at 127.0.0.1",
                "(lo) are reached over shared memory if they are auto endpoints of this user",
                "peers at all other addresses are reached over TCP",
            ],
        ),
        (
            &["info", "--full"],
            &[" mem_tag_format ", " msg_order ", " cq_data_size ", " threading ", " prov_version "],
        ),
    ] {
        assert_shown(arguments, parts);
    }
    for domain in ["shm", "auto"] {
        let outcome = run(&["info", "--domain", domain, "-v"]);
        assert!(ways.iter().all(|way| outcome.unwrapped_stdout().contains(way)), "{outcome:?}");
    }
}

#[test]
fn info_begins_with_a_summary_of_the_domains() {
    let outcome = run(&["info"]);
    let (summary, _) = outcome.stdout.split_once("\n\n").expect("several sections");
    let rows: Vec<&str> = summary.lines().filter_map(|line| line.split_whitespace().next()).collect();
    // The rows are in the order in which `getinfo` offers the domains.
    assert_eq!(rows, ["domain", "auto", "tcp", "shm"], "{outcome:?}");
}

#[test]
fn domain_option_of_any_case_takes_precedence_over_the_domain_variable() {
    let variable = [("FI_HOMESPUN_DOMAIN", "shm")];
    let outcome = run_with_environment(&variable, &["info", "--domain", "TCP", "--json"]);
    let infos: Vec<homespun::Info> = serde_json::from_str(&outcome.stdout).expect("JSON");
    assert!(infos.iter().all(|info| info.domain.name.as_deref() == Some("tcp")), "{outcome:?}");
}

#[test]
fn interface_without_a_match_is_an_error_that_lists_the_others() {
    let variables = [("FI_HOMESPUN_IFACE", "no-such-interface")];
    for arguments in [["info"].as_slice(), &["pingpong"], &["bench"], &["run", "env"]] {
        let outcome = run_with_environment(&variables, arguments);
        assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
        assert_eq!(outcome.stdout, "", "{outcome:?}");
        let complaint = "homespun: FI_HOMESPUN_IFACE=no-such-interface matches no interface of this host";
        let [line] = outcome.stderr.lines().collect::<Vec<_>>()[..] else { panic!("{outcome:?}") };
        assert!(line.starts_with(complaint) && line.contains("lo (127.0.0.1"), "{outcome:?}");
    }
}

#[test]
fn host_that_does_not_resolve_is_named() {
    let outcome = run(&["info", "999.1.1.1", "7471", "--numeric"]);
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    let complaint = "homespun: host \"999.1.1.1\" with port \"7471\" does not resolve: ";
    assert!(outcome.stderr.starts_with(complaint), "{outcome:?}");
    let outcome = run(&["info", "127.0.0.1", "65536"]);
    let complaint = "homespun: host \"127.0.0.1\" with port \"65536\" does not resolve: ";
    assert!(outcome.stderr.starts_with(complaint), "{outcome:?}");
}

#[test]
fn json_info_parses_to_the_same_infos() {
    let outcome = run(&["info", "127.0.0.1", "7471", "--numeric", "--json"]);
    assert!(outcome.status.success(), "{outcome:?}");
    let infos: Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    let domains: Vec<_> =
        infos.as_array().expect("an array").iter().map(|info| &info["domain"]["name"]).collect();
    assert!(["auto", "tcp", "shm"].iter().all(|name| domains.contains(&&(*name).into())), "{domains:?}");
    assert_eq!(domains[0], "auto");
    assert_eq!(infos[0]["dest_addr"], "127.0.0.1:7471");
    assert_eq!(infos[0]["ep"]["ep_type"], "RDM");
    let back: Vec<homespun::Info> =
        serde_json::from_str(&outcome.stdout).expect("what was written can be read");
    assert!(back.iter().all(|info| info.caps.contains(homespun::Caps::TAGGED)));
    assert_eq!(run(&["info", "--json", "--full"]).status.code(), Some(2));
}

#[test]
fn env_info_shows_parameters_and_their_values() {
    let variables =
        [("FI_HOMESPUN_PORTS", "7000-7099"), ("FI_HOMESPUN_TX_SIZE", "many"), ("FI_HOMESPUN_TX_SIZES", "7")];
    let outcome = run_with_environment(&variables, &["info", "--env"]);
    assert!(outcome.status.success(), "{outcome:?}");
    for line in [
        "FI_HOMESPUN_PORTS = 7000-7099 (default: any port)\n",
        "FI_HOMESPUN_TX_SIZE = 65536 (the default)\n  ! FI_HOMESPUN_TX_SIZE=many is ignored: it should be",
        "FI_HOMESPUN_CQ_SIZE: not set (default: 2048)\n",
        "\nFI_HOMESPUN_TX_SIZES: no such parameter\n",
    ] {
        assert!(outcome.stdout.contains(line), "{line:?} is not in:\n{}", outcome.stdout);
    }
    assert_eq!(outcome.stderr, "", "the marks say it already");
    let outcome = run_with_environment(&variables, &["info", "--env", "--json"]);
    let settings: Vec<Value> = serde_json::from_str(&outcome.stdout).expect("an array");
    let names: Vec<&str> = settings.iter().filter_map(|setting| setting["variable"].as_str()).collect();
    let mut known: Vec<String> = PARAMS.iter().map(Param::env_variable).collect();
    known.push("FI_HOMESPUN_TX_SIZES".into());
    assert_eq!(names, known);
    let ports =
        settings.iter().find(|setting| setting["variable"] == "FI_HOMESPUN_PORTS").expect("it is listed");
    assert_eq!((&ports["value"], &ports["is_set"]), (&"7000-7099".into(), &true.into()));
    let unknown = &settings[settings.len() - 1];
    assert!(unknown["value"].is_null() && unknown["default"].is_null(), "{unknown}");
    assert!(unknown["problem"].as_str().is_some_and(|text| text.contains("no such parameter")), "{unknown}");
}

#[test]
fn unknown_domain_is_refused_by_every_command() {
    for (command, more) in [("info", &[][..]), ("pingpong", &[]), ("bench", &[]), ("run", &["--", "env"])] {
        let outcome = run(&[&[command, "--domain", "token-ring"], more].concat());
        assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
        let complaint = "homespun: there is no domain token-ring, only auto, shm, tcp (ENODATA)\n";
        assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("", complaint), "{command}");
    }
}

#[test]
fn info_without_a_match_names_the_reason() {
    let outcome = run(&["info", "--domain", "shm", "203.0.113.77", "80"]);
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    let complaint = "homespun: nothing meets the request: it needs a destination on this host (ENODATA)\n";
    assert_eq!(outcome.stderr, complaint);
}

#[test]
fn info_with_wrong_options_exits_with_2() {
    assert_eq!(run(&["info", "--no-such-option"]).status.code(), Some(2));
    assert_eq!(run(&["info", "--source"]).status.code(), Some(2));
}
