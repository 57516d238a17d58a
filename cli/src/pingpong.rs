//! `homespun pingpong`: latency and bandwidth between two processes.

mod client;
mod document;
mod plan;
mod server;
mod table;

use std::time::Duration;

use clap::{ArgGroup, Args};

use self::client::Client;
use self::document::{Document, DomainResult};
use self::plan::Plan;
use self::server::{LISTENING, Server};
use crate::console::Console;
use crate::cores::{self, AllowedCores};
use crate::exchange::host_and_port::HostAndPort;
use crate::exchange::port;
use crate::exchange::run::{ITERATIONS_MAX, Run};
use crate::exchange::sizes::Sizes;
use crate::failure::CommandFailure;
use crate::peer_process::{self, PeerProcess};

/// Measure latency and bandwidth between two processes.
///
/// Without SERVER and --listen, the command starts its own peer process on this host. It pins each of
/// the two processes to a core, and measures shared memory (domain shm) and TCP (domain tcp). With
/// --listen it is a server, which waits for a client on this host or another. With SERVER it is a client
/// of that server. Client and server need the same --domain. The client decides what to measure, and
/// prints the table.
///
/// Each size is measured twice. First latency: half of a round trip, the median over batches of round
/// trips. Then bandwidth, in 10^6 bytes a second: the client keeps many one-way messages in flight, each
/// flagged FI_MORE. It stops the clock when the server has confirmed all of them.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("by_address").args(["server", "listen"]))]
#[command(after_help = EXAMPLES, after_long_help = format!("{JSON}\n\n{EXAMPLES}"))]
pub(crate) struct PingpongArguments {
    /// Be the client of the server at HOST, HOST:PORT or [IPV6]:PORT; the default port is 7471.
    server: Option<HostAndPort>,
    /// Be a server at this address; with port 0 the system chooses the port. The first line printed has the
    /// address.
    ///
    /// Without an address, the server listens at port 7471 of every interface. It serves any client that
    /// reaches it, and a client can make it receive and send up to 64 MiB at a time.
    #[arg(long, value_name = "HOST:PORT", num_args = 0..=1, default_missing_value = "0.0.0.0:7471")]
    listen: Option<HostAndPort>,
    /// As a server, keep serving after the first client.
    #[arg(long, requires = "listen")]
    keep: bool,
    /// Measure only this domain: auto, shm or tcp. By default both shm and tcp are measured; a server and a
    /// client use auto.
    #[arg(short, long, value_name = "NAME")]
    domain: Option<String>,
    /// The sizes of messages, separated by commas: bytes, or with a unit such as 1.5K or 1MiB, at most 64M.
    #[arg(
        long,
        value_name = "LIST",
        default_value = "1,4,16,64,256,1K,4K,16K,64K,256K,1M,4M",
        conflicts_with = "listen"
    )]
    sizes: Sizes,
    /// The number of round trips of each size, and of one-way messages. By default there are as many as take
    /// about a quarter of a second in total.
    #[arg(
        long,
        value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(ITERATIONS_MAX)),
        conflicts_with = "listen"
    )]
    iterations: Option<u32>,
    /// Send tagged messages; each receive takes only the tag of its own message.
    #[arg(long, conflicts_with = "listen")]
    tagged: bool,
    /// Fill every message differently, and check every byte that arrives. The times include this work.
    #[arg(long, conflicts_with = "listen")]
    check: bool,
    /// Print the results as one JSON document instead of tables.
    #[arg(long, conflicts_with = "listen")]
    json: bool,
    /// Give up when nothing has happened for this long. A server waits for its client without limit.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    timeout: u64,
    /// Let the system choose the cores.
    #[arg(long, conflicts_with = "by_address")]
    no_pin: bool,
    /// As a server or a client, stay on this core.
    #[arg(long, value_name = "NUMBER", requires = "by_address")]
    core: Option<usize>,
    /// Be the peer process of the process at the other end of standard input.
    #[arg(long, hide = true, requires = "listen")]
    peer_process: bool,
}

const JSON: &str = "\
The JSON document: homespun_version, tagged, checked, domains; each of these has domain, client_address, \
server_address, client_core, server_core (null if the system chooses, or if it is not known) and sizes; \
each of these has size_bytes, round_trips, latency_us, messages, message_us (the time of each one-way \
message) and bandwidth_mb_per_s (10^6 bytes a second; null for empty messages).";

const EXAMPLES: &str = "\
Examples:
  homespun pingpong                          shared memory, then TCP
  homespun pingpong --sizes 8,1M --tagged    tagged messages of two sizes
  homespun pingpong --json > results.json    results for a program to read
  homespun pingpong --listen                 a server over auto, port 7471
  homespun pingpong server.example --check   the client of that server
  homespun pingpong -d shm --listen          a server over shared memory
  homespun pingpong -d shm localhost         the client of that server

Exit status: 0 if everything was measured (or served); 1 if a peer does not answer, is lost or is silent, or \
if checked data is wrong; 2 if the command line was wrong.";

/// Measures as a client, or serves clients.
pub(crate) fn run(arguments: &PingpongArguments, console: &mut Console) -> Result<(), CommandFailure> {
    let domain = port::find_domain(arguments.domain.as_deref())?;
    let domain = domain.as_deref();
    match (&arguments.listen, &arguments.server) {
        (Some(at), _) => serve(arguments, at, domain, console),
        (None, Some(server)) => {
            let measured = measure_as_client_of(arguments, server, domain, console)?;
            print_document_if_requested(arguments, vec![measured], console)
        }
        (None, None) => {
            let measured = measure_with_own_server(arguments, domain, console)?;
            print_document_if_requested(arguments, measured, console)
        }
    }
}

/// With `--json`, prints the results as a document. Otherwise the tables have already shown them.
fn print_document_if_requested(
    arguments: &PingpongArguments,
    domains: Vec<DomainResult>,
    console: &Console,
) -> Result<(), CommandFailure> {
    if !arguments.json {
        return Ok(());
    }
    let homespun_version = env!("CARGO_PKG_VERSION");
    console.print_json(&Document {
        homespun_version,
        tagged: arguments.tagged,
        checked: arguments.check,
        domains,
    })
}

fn serve(
    arguments: &PingpongArguments,
    at: &HostAndPort,
    domain: Option<&str>,
    console: &Console,
) -> Result<(), CommandFailure> {
    let PingpongArguments { keep, core, peer_process, .. } = arguments;
    if *peer_process {
        // This call makes the server end with its parent. The parent sends no lines, so drop the
        // receiver.
        drop(peer_process::read_parent_lines_or_exit());
    }
    let server =
        Server { at: at.clone(), domain, timeout: arguments.timeout(), keep: *keep, quiet: *peer_process };
    let pinned = core.map_or(Ok(()), cores::pin_thread_to_core);
    let served = pinned.and_then(|()| server.run(console));
    served.map_err(|failure| if *peer_process { CommandFailure::InPeer(Box::new(failure)) } else { failure })
}

fn measure_as_client_of(
    arguments: &PingpongArguments,
    server: &HostAndPort,
    domain: Option<&str>,
    console: &mut Console,
) -> Result<DomainResult, CommandFailure> {
    let cores = AllowedCores::of_this_process().describe_core_count();
    let about_cores = match arguments.core {
        Some(core) => {
            cores::pin_thread_to_core(core)?;
            format!("{cores} on this host; this process stays on core {core}")
        }
        None => format!("{cores} on this host"),
    };
    let client = Client {
        server: server.clone(),
        domain,
        timeout: arguments.timeout(),
        plan: &arguments.to_plan(),
        about_server: "",
        about_cores: &about_cores,
        cores: [arguments.core, None],
        shows_rows: !arguments.json,
    };
    client.run(console)
}

fn measure_with_own_server(
    arguments: &PingpongArguments,
    domain: Option<&str>,
    console: &mut Console,
) -> Result<Vec<DomainResult>, CommandFailure> {
    let cores = AllowedCores::of_this_process();
    let pair = cores.choose_pair().filter(|_| !arguments.no_pin);
    let count = cores.describe_core_count();
    let about_cores = match pair {
        Some((own, peer)) => format!("{count}; this process stays on core {own}, its peer on core {peer}"),
        None => format!("{count}; the system chooses where the two processes run"),
    };
    if let Some((own, _)) = pair {
        cores::pin_thread_to_core(own)?;
    }
    let mut domains = port::domain_names()?;
    match domain {
        Some(requested) => domains.retain(|domain| domain == requested),
        // `auto` reaches a peer on this host over shared memory, like `shm`. So skip `auto`.
        None if domains.len() > 1 => domains.retain(|domain| domain != "auto"),
        None => {}
    }
    let plan = arguments.to_plan();
    let mut measured = Vec::with_capacity(domains.len());
    for (index, domain) in domains.iter().enumerate() {
        if index > 0 && !arguments.json {
            console.print_line("")?;
        }
        let peer_core = pair.map(|(_, peer)| peer);
        let server = ["pingpong", "--listen", "127.0.0.1:0", "--peer-process", "--domain", domain];
        let mut peer = PeerProcess::start(&server, peer_core, arguments.timeout())?;
        let client = Client {
            server: parse_listening_address(&peer.await_line()?)?,
            domain: Some(domain),
            timeout: arguments.timeout(),
            plan: &plan,
            about_server: ", a process that this command started",
            about_cores: &about_cores,
            cores: [pair.map(|(own, _)| own), peer_core],
            shows_rows: !arguments.json,
        };
        measured.push(client.run(console).map_err(|failure| peer.add_exit_status(failure))?);
    }
    Ok(measured)
}

/// Reads the address from a server's first line.
fn parse_listening_address(line: &str) -> Result<HostAndPort, CommandFailure> {
    let address = line.strip_prefix(LISTENING).and_then(|rest| rest.split(' ').next()?.parse().ok());
    address.ok_or(CommandFailure::PeerProtocol)
}

impl PingpongArguments {
    /// Whether this process is the second process of another one.
    pub(crate) fn is_peer_process(&self) -> bool {
        self.peer_process
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    fn to_plan(&self) -> Plan {
        let runs = self.sizes.0.iter().map(|&size| Run::new(size, self.iterations));
        Plan { tagged: self.tagged, check: self.check, runs: runs.collect() }
    }
}
