//! `homespun info`.

use crate::command::{run, run_in};

#[test]
fn without_arguments_every_address_format_is_shown() {
    let outcome = run(&["info"]);
    assert!(outcome.status.success(), "{outcome:?}");
    for part in [
        "tcp: reliable messages (FI_EP_RDM) over IPv4",
        "FI_MSG FI_RMA FI_TAGGED FI_ATOMIC",
        "4 KiB if injected",
    ] {
        assert!(outcome.stdout.contains(part), "{part:?} is not in:\n{}", outcome.stdout);
    }
    assert_eq!(outcome.stderr, "");
}

#[test]
fn a_peer_is_shown_with_both_ends() {
    let outcome = run(&["info", "127.0.0.1", "7471", "--numeric", "--domain", "tcp"]);
    assert!(outcome.status.success(), "{outcome:?}");
    assert!(
        outcome.stdout.contains("    from          127.0.0.1, a port that the system chooses\n"),
        "{outcome:?}"
    );
    assert!(outcome.stdout.contains("    to            127.0.0.1:7471\n"), "{outcome:?}");
}

#[test]
fn a_source_is_shown_as_the_near_end() {
    let outcome = run(&["info", "127.0.0.1", "7471", "--source"]);
    assert!(outcome.status.success(), "{outcome:?}");
    assert!(outcome.stdout.contains("    from          127.0.0.1, port 7471\n"), "{outcome:?}");
}

#[test]
fn the_long_form_shows_every_attribute() {
    let outcome = run(&["info", "-v"]);
    assert!(outcome.status.success(), "{outcome:?}");
    for name in ["mem_tag_format", "msg_order", "cq_data_size", "threading", "prov_version"] {
        let shown = outcome.stdout.lines().any(|line| line.trim_start().starts_with(name));
        assert!(shown, "{name} is not in:\n{}", outcome.stdout);
    }
}

#[test]
fn programs_get_json() {
    let outcome = run(&["info", "127.0.0.1", "7471", "--numeric", "--json"]);
    assert!(outcome.status.success(), "{outcome:?}");
    let infos: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    let domains: Vec<_> =
        infos.as_array().expect("an array").iter().map(|info| &info["domain"]["name"]).collect();
    assert!(domains.contains(&&"tcp".into()) && domains.contains(&&"shm".into()), "{domains:?}");
    assert_eq!(infos[0]["dest_addr"], "127.0.0.1:7471");
    assert_eq!(infos[0]["ep"]["ep_type"], "RDM");
    let back: Vec<homespun::Info> =
        serde_json::from_str(&outcome.stdout).expect("what was written can be read");
    assert!(back.iter().all(|info| info.caps.contains(homespun::Caps::TAGGED)));
    assert_eq!(run(&["info", "--json", "--verbose"]).status.code(), Some(2));
}

#[test]
fn parameters_are_shown_as_they_are_set() {
    let variables = [("FI_HOMESPUN_PORTS", "7000-7099"), ("FI_HOMESPUN_TX_SIZE", "many")];
    let outcome = run_in(&variables, &["info", "--env"]);
    assert!(outcome.status.success(), "{outcome:?}");
    for line in [
        "FI_HOMESPUN_PORTS = 7000-7099 (default: any port)\n",
        "FI_HOMESPUN_TX_SIZE = 65536 (default: 65536)\n",
        "FI_HOMESPUN_CQ_SIZE: not set (default: 2048)\n",
    ] {
        assert!(outcome.stdout.contains(line), "{line:?} is not in:\n{}", outcome.stdout);
    }
    let outcome = run_in(&variables, &["info", "--env", "--json"]);
    let settings: Vec<serde_json::Value> = serde_json::from_str(&outcome.stdout).expect("an array");
    let names: Vec<&str> =
        settings.iter().map(|setting| setting["variable"].as_str().expect("a text")).collect();
    assert_eq!(
        names,
        homespun::params::PARAMS.iter().map(homespun::params::Param::variable).collect::<Vec<_>>()
    );
    let ports =
        settings.iter().find(|setting| setting["variable"] == "FI_HOMESPUN_PORTS").expect("it is listed");
    assert_eq!((&ports["value"], &ports["is_set"]), (&"7000-7099".into(), &true.into()));
}

#[test]
fn what_nothing_offers_is_said() {
    let outcome = run(&["info", "--domain", "token-ring"]);
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    assert_eq!(outcome.stdout, "");
    assert_eq!(outcome.stderr, "homespun: there is no domain token-ring, only shm and tcp (ENODATA)\n");
    let outcome = run(&["info", "--domain", "shm", "203.0.113.77", "80"]);
    assert_eq!(outcome.status.code(), Some(1), "{outcome:?}");
    let complaint = "homespun: nothing meets the request: it needs a destination on this host (ENODATA)\n";
    assert_eq!(outcome.stderr, complaint);
}

#[test]
fn a_command_that_is_not_understood_has_a_status_of_its_own() {
    assert_eq!(run(&["info", "--no-such-option"]).status.code(), Some(2));
    assert_eq!(run(&["info", "--source"]).status.code(), Some(2));
}
