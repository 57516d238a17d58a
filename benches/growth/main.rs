//! Measures what idle peers cost an endpoint, the hub:
//!
//! ```text
//! cargo bench --bench growth                     # all rows; takes a minute or two
//! cargo bench --bench growth -- tcp shm          # those of some transports
//! cargo bench --bench growth -- shm 64 255       # those with some numbers of peers
//! cargo bench --bench growth -- --write          # also writes their tables and drawings in docs/growth.md
//! ```
//!
//! The simulated peers are engines of this process, on the network of the tests. Over TCP and shared memory,
//! the hub is a process of its own, and the peers are in a few others. docs/growth.md explains the table.

#![deny(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its result")]

mod clock;
#[expect(unsafe_code, reason = "counts what the allocator is asked for")]
mod heap;
mod hub;
mod peers;
mod plot;
#[path = "../process.rs"]
mod process;
mod processors;
mod row;
mod simulated;

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use crate::process::Process;
use crate::row::Row;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The roles of the processes.
const HUB: &str = "hub";
const PEERS: &str = "peers";

const SIMULATED_PEERS: [usize; 5] = [1, 10, 100, 1_000, 10_000];

/// The numbers of peers over TCP and shared memory, in this many processes.
const REAL_PEERS: [usize; 4] = [1, 16, 64, 255];
const PEER_PROCESSES: usize = 4;

/// How long all peers may take to get connected.
const CONNECTING_MAX_TIME: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let done = match process::role_of_this_process().as_deref() {
        Some(HUB) => hub::run(),
        Some(PEERS) => peers::run(),
        Some(role) => Err(format!("unknown role {role}").into()),
        None => measure_all(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("growth: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure_all() -> Result<()> {
    process::raise_descriptor_limit()?;
    let (options, words): (Vec<String>, Vec<String>) =
        env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let numbers: Vec<usize> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let names: Vec<&String> = words.iter().filter(|word| word.parse::<usize>().is_err()).collect();
    let is_written = options.iter().any(|option| option == "--write");
    if is_written && !numbers.is_empty() {
        return Err("the page has tables with all numbers of peers".into());
    }
    for transport in ["simulated", "tcp", "shm"] {
        if !names.is_empty() && !names.iter().any(|name| *name == transport) {
            continue;
        }
        let rows = measure(transport, |peers| numbers.is_empty() || numbers.contains(&peers))?;
        println!("{transport}:\n\n{}", row::format_table(&rows));
        if is_written {
            row::write_table(transport, &rows)?;
            plot::draw(transport, &rows)?;
        }
    }
    Ok(())
}

/// Measures the rows of a transport whose numbers of peers are chosen.
fn measure(transport: &'static str, is_chosen: impl Fn(usize) -> bool) -> Result<Vec<Row>> {
    if transport == "simulated" {
        let chosen = SIMULATED_PEERS.into_iter().filter(|peers| is_chosen(*peers));
        return chosen.map(simulated::measure).collect();
    }
    let cases = ["hub", "peers"].into_iter().flat_map(|who| REAL_PEERS.map(|peers| (who, peers)));
    let chosen = cases.filter(|(_, peers)| is_chosen(*peers));
    chosen.map(|(who_connects, peers)| measure_processes(transport, who_connects, peers)).collect()
}

/// Measures a hub with peers in other processes.
fn measure_processes(transport: &'static str, who_connects: &'static str, count: usize) -> Result<Row> {
    let mut hub = Process::start(HUB, &[transport.to_owned()])?;
    let hub_address = hub.read_answer("at")?;
    let mut processes = Vec::new();
    let mut addresses = String::new();
    for number in 0..PEER_PROCESSES {
        let of_process = count / PEER_PROCESSES + usize::from(number < count % PEER_PROCESSES);
        if of_process > 0 {
            let mut process = Process::start(PEERS, &[transport.to_owned(), of_process.to_string()])?;
            addresses.push_str(&format!("{} ", process.read_answer("at")?));
            process.send(&hub_address)?;
            processes.push(process);
        }
    }
    hub.send(&addresses)?;
    let hub_connects = who_connects == "hub";
    if hub_connects {
        processes.iter_mut().try_for_each(|process| process.send("progress"))?;
        hub.send("connect")?;
    } else {
        hub.send("accept")?;
        hub.read_answer("accepting")?;
        processes.iter_mut().try_for_each(|process| process.send("connect"))?;
    }
    let connected = hub.await_answer("connected", CONNECTING_MAX_TIME).ok_or("the peers do not connect")?;
    let numbers = connected.split(' ').map(str::parse).collect::<std::result::Result<Vec<u64>, _>>()?;
    let [hub_time_ns, heap_bytes, mapped_bytes, resident_bytes] = numbers[..] else {
        return Err("the hub reports four numbers".into());
    };
    let mut peer_times_ns = Vec::new();
    for process in &mut processes {
        let answer = process.read_answer(if hub_connects { "connected" } else { "connecting" })?;
        peer_times_ns.push(answer.parse::<u64>()?);
    }
    let connecting_ns = if hub_connects {
        peer_times_ns.iter().max().map(|last_ns| last_ns.saturating_sub(hub_time_ns))
    } else {
        peer_times_ns.iter().min().map(|first_ns| hub_time_ns.saturating_sub(*first_ns))
    };
    let connecting_ns = connecting_ns.unwrap_or(0).max(1);
    for process in &mut processes {
        process.send("rest")?;
        process.read_answer("resting")?;
    }
    hub.send("idle")?;
    let idle_pass_ns = hub.read_answer("idle")?.parse()?;
    processes[0].send("echo")?;
    hub.send("active")?;
    let active_ns = hub.read_answer("active")?.parse()?;
    let close_ns = hub.read_answer("closed")?.parse()?;
    let peers = count as u64;
    Ok(Row {
        who_connects,
        peers: count,
        heap_bytes: heap_bytes / peers,
        mapped_bytes: (transport == "shm").then_some((mapped_bytes / peers, resident_bytes / peers)),
        idle_pass_ns,
        active_ns,
        blocked_pass_ns: None,
        send_ns: None,
        leave_ns: None,
        close_ns,
        connections_per_s: peers as f64 * 1e9 / connecting_ns as f64,
    })
}
