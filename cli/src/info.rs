//! `homespun info`: what `getinfo` answers, for people.

mod env;
mod render;

use clap::Args;
use homespun::{Fabric, Hints};

use crate::console::Console;
use crate::exchange::port;
use crate::failure::Failure;

/// Show what there is to communicate with.
///
/// Asks getinfo, as fi_getinfo(3) describes it, and shows each answer: the domain and the kind of endpoint, the
/// addresses at both ends, what an endpoint can do, and how much of it. Without NODE and SERVICE, each address format
/// of each domain is shown once, without addresses. Last comes what was found on this host that makes a domain faster or
/// slower: for shm, whether large messages can be copied straight from process to process.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The peer's host: a name or a numeric address.
    node: Option<String>,
    /// The peer's port, or the name of a service.
    service: Option<String>,
    /// Only this domain: shm or tcp.
    #[arg(short, long, value_name = "NAME")]
    domain: Option<String>,
    /// NODE and SERVICE are the local end, where an endpoint would listen.
    #[arg(long, requires = "node")]
    source: bool,
    /// NODE is a numeric address; no name is looked up.
    #[arg(long, requires = "node")]
    numeric: bool,
    /// Show every attribute.
    #[arg(short, long)]
    verbose: bool,
    /// Print the answers, with every attribute, as a JSON array for programs.
    #[arg(long, conflicts_with = "verbose")]
    json: bool,
    /// Show instead the parameters that are set in the environment, FI_HOMESPUN_*: the value in force of each, whether it
    /// was set or is the default, and what it does.
    #[arg(long, conflicts_with_all = ["node", "domain", "verbose"])]
    env: bool,
}

const EXAMPLES: &str = "\
Examples:
  homespun info                      everything that there is
  homespun info localhost 7471       how a peer on this host is reached
  homespun info --source 0.0.0.0 -v  what an endpoint on every interface would be
  homespun info --json --domain shm  what a program wants to know about shared memory
  homespun info --env                what can be set, and how it is set

Exit status: 0 if something was found, 1 if nothing meets the request, 2 if the command was not understood.";

/// What is asked for.
fn hints(arguments: &Arguments) -> Hints {
    let mut hints = Hints::new();
    if let Some(node) = &arguments.node {
        hints = hints.node(node);
    }
    if let Some(service) = &arguments.service {
        hints = hints.service(service);
    }
    if let Some(domain) = &arguments.domain {
        hints = hints.domain(domain);
    }
    if arguments.source {
        hints = hints.source();
    }
    if arguments.numeric { hints.numeric_host() } else { hints }
}

/// Asks and shows.
pub(crate) fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    if arguments.env {
        return env::show(arguments.json, console);
    }
    port::require_domain(arguments.domain.as_deref())?;
    let fabric = Fabric::new();
    let infos = fabric.infos(&hints(arguments))?;
    if arguments.json {
        return console.json(&infos);
    }
    let mut domains = Vec::new();
    for (index, info) in infos.iter().enumerate() {
        if index > 0 {
            console.line("")?;
        }
        let text = if arguments.verbose { render::in_full(info) } else { render::in_short(info) };
        console.line(text.trim_end())?;
        if let Some(name) = info.domain.name.as_deref().filter(|name| !domains.contains(name)) {
            domains.push(name);
        }
    }
    let findings: Vec<(&str, String)> = domains
        .into_iter()
        .flat_map(|name| fabric.findings(name).into_iter().map(move |finding| (name, finding)))
        .collect();
    if findings.is_empty() { Ok(()) } else { console.line(render::found(&findings).trim_end()) }
}
