//! Measures what strangers cost an endpoint over TCP and its honest peer. The two exchange messages
//! meanwhile:
//!
//! ```text
//! cargo bench --bench strangers                 # every attack; takes three minutes
//! cargo bench --bench strangers -- storm lose   # some of them
//! ```
//!
//! The endpoint, its honest peer and the strangers are separate processes. The strangers run with the lowest
//! priority: strangers on another host would take no processor time of this host. docs/strangers.md explains
//! the table.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its result")]

mod attack;
mod honest_peer;
#[path = "../process.rs"]
mod process;
mod victim;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{env, thread};

use crate::attack::Attack;
use crate::honest_peer::RoundTrips;
use crate::process::Process;
use crate::victim::Report;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The roles of the processes.
const VICTIM: &str = "victim";
const HONEST_PEER: &str = "peer";
const STRANGERS: &str = "strangers";

/// How long the round trips are measured without an attack. With an attack they are measured for this time
/// or longer.
const MEASURED_TIME: Duration = Duration::from_secs(5);

/// After this time an attack that is not ready is measured as it is.
const PREPARATION_MAX_TIME: Duration = Duration::from_secs(60);

/// With fewer links than this, the table shows no memory for each link.
const LINKS_MIN: u64 = 10;

/// What one attack costs.
struct Cost {
    before: Sample,
    during: Sample,
    /// How many connections of the strangers the endpoint has not ended.
    links: u64,
}

/// What was measured for some time.
struct Sample {
    round_trips: RoundTrips,
    report: Report,
}

fn main() -> ExitCode {
    let done = match process::role_of_this_process().as_deref() {
        Some(VICTIM) => victim::run(),
        Some(HONEST_PEER) => honest_peer::run(),
        Some(STRANGERS) => attack::run(),
        Some(role) => Err(format!("unknown role {role}").into()),
        None => measure_all(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("strangers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure_all() -> Result<()> {
    let names: Vec<String> = env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let chosen = |attack: &Attack| names.is_empty() || names.iter().any(|name| name == attack.name());
    println!("An honest peer exchanges 8 B with an endpoint over TCP, beside strangers.");
    println!("Each cell but the last three: during the attack, and how many times as much as before.");
    let descriptors = process::raise_descriptor_limit()?;
    println!("Each process may have {descriptors} descriptors.");
    println!();
    println!(
        "{:9} {:>14} {:>14} {:>15} {:>6} {:>7} {:>7}",
        "attack", "median, us", "p99, us", "longest pass", "links", "B/link", "descr."
    );
    for attack in Attack::ALL.into_iter().filter(chosen) {
        print_row(attack, &measure(attack)?);
    }
    Ok(())
}

fn measure(attack: Attack) -> Result<Cost> {
    let mut victim = Process::start(VICTIM, &[])?;
    let mut peer = Process::start(HONEST_PEER, &[])?;
    let (victim_at, peer_at) = (victim.read_answer("at")?, peer.read_answer("at")?);
    let (victim_address, peer_address): (SocketAddr, SocketAddr) = (victim_at.parse()?, peer_at.parse()?);
    victim.send(&format!("peer {peer_address}"))?;
    peer.send(&format!("victim {victim_address}"))?;
    peer.read_answer("connected")?;

    begin_sample(&mut victim, &mut peer)?;
    thread::sleep(MEASURED_TIME);
    let before = end_sample(&mut victim, &mut peer)?;

    begin_sample(&mut victim, &mut peer)?;
    let begin = Instant::now();
    let arguments = [attack.name().to_owned(), victim_address.to_string(), peer_address.to_string()];
    let mut strangers = Process::start(STRANGERS, &arguments)?;
    strangers.await_answer("ready", PREPARATION_MAX_TIME);
    thread::sleep(MEASURED_TIME.saturating_sub(begin.elapsed()).max(MEASURED_TIME / 2));
    let during = end_sample(&mut victim, &mut peer)?;
    strangers.send("count")?;
    let links = strangers.read_answer("links")?.parse()?;
    peer.send("quit")?;
    peer.read_answer("quit")?;
    Ok(Cost { before, during, links })
}

fn begin_sample(victim: &mut Process, peer: &mut Process) -> Result<()> {
    victim.send("reset")?;
    victim.read_answer("reset")?;
    peer.send("measure")
}

fn end_sample(victim: &mut Process, peer: &mut Process) -> Result<Sample> {
    peer.send("stop")?;
    let round_trips = RoundTrips::parse(&peer.read_answer("measured")?)?;
    victim.send("report")?;
    let report = Report::parse(&victim.read_answer("report")?)?;
    Ok(Sample { round_trips, report })
}

fn print_row(attack: Attack, Cost { before, during, links }: &Cost) {
    let compare = |before: u64, during: u64| {
        format!("{:.1} ({:.1}x)", during as f64 / 1000.0, during as f64 / before.max(1) as f64)
    };
    let (trips_before, trips_during) = (&before.round_trips, &during.round_trips);
    let (report_before, report_during) = (&before.report, &during.report);
    let grown_bytes = report_during.resident_bytes.saturating_sub(report_before.resident_bytes);
    println!(
        "{:9} {:>14} {:>14} {:>15} {:>6} {:>7} {:>7}",
        attack.name(),
        compare(trips_before.median_ns, trips_during.median_ns),
        compare(trips_before.p99_ns, trips_during.p99_ns),
        compare(report_before.longest_pass_ns, report_during.longest_pass_ns),
        links,
        if *links < LINKS_MIN { "-".to_owned() } else { (grown_bytes / links).to_string() },
        report_during.descriptors.saturating_sub(report_before.descriptors),
    );
}
