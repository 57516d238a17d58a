//! `homespun info`: the answers of `getinfo` as text or JSON.

mod env;
mod render;
mod summary;

use clap::Args;
use homespun::{Fabric, Hints};

use crate::console::Console;
use crate::exchange::port;
use crate::failure::CommandFailure;

/// Show the domains and endpoints that this host offers.
///
/// Calls getinfo, which fi_getinfo(3) describes. Shows a summary of the domains. Then shows each answer
/// with its domain, endpoint type, addresses at both ends, capabilities and limits. Without NODE and
/// SERVICE, shows each address format of each domain once, without addresses.
///
/// The last section is about this host. For auto it shows how, and why, peers at the addresses of each
/// interface are reached. For auto and shm it shows whether large messages can be copied directly from
/// process to process, and between which ways each link chooses by measuring them.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, after_long_help = EXAMPLES)]
pub(crate) struct InfoArguments {
    /// The peer's host: a name or a numeric address.
    node: Option<String>,
    /// The peer's port, or the name of a service.
    service: Option<String>,
    /// Show only this domain: auto, shm or tcp.
    #[arg(short, long, value_name = "NAME")]
    domain: Option<String>,
    /// NODE and SERVICE name the local address, at which an endpoint would listen.
    #[arg(long, requires = "node")]
    source: bool,
    /// NODE is a numeric address; do not look up a name.
    #[arg(long, requires = "node")]
    numeric: bool,
    /// Show every attribute.
    #[arg(long)]
    full: bool,
    /// Print the answers, with every attribute, as a JSON array.
    #[arg(long, conflicts_with = "full")]
    json: bool,
    /// Show the parameters instead. Parameters are environment variables (FI_HOMESPUN_*). Each is shown
    /// with the value in force, the default and the purpose.
    #[arg(long, conflicts_with_all = ["node", "domain", "full"])]
    env: bool,
}

const EXAMPLES: &str = "\
Examples:
  homespun info                          all domains, types and formats
  homespun info localhost 7471           how to reach a peer on this host
  homespun info --source 0.0.0.0 --full  every attribute of a listening endpoint
  homespun info --json --domain shm      shared memory, for a program to read
  homespun info --env                    the parameters and their values

Exit status: 0 if something was found, 1 if not, 2 if the command line was wrong.";

/// Converts the arguments to hints.
fn build_hints(arguments: &InfoArguments, domain: Option<&str>) -> Hints {
    let mut hints = Hints::new();
    if let Some(node) = &arguments.node {
        hints = hints.node(node);
    }
    if let Some(service) = &arguments.service {
        hints = hints.service(service);
    }
    if let Some(domain) = domain {
        hints = hints.domain(domain);
    }
    if arguments.source {
        hints = hints.source();
    }
    if arguments.numeric { hints.numeric_host() } else { hints }
}

/// Calls `getinfo` and shows the answers.
pub(crate) fn run(arguments: &InfoArguments, console: &Console) -> Result<(), CommandFailure> {
    if arguments.env {
        return env::show_parameters(arguments.json, console);
    }
    let domain = port::find_domain(arguments.domain.as_deref())?;
    let fabric = Fabric::new();
    let infos = fabric.infos(&build_hints(arguments, domain.as_deref()))?;
    if arguments.json {
        return console.print_json(&infos);
    }
    let mut sections = vec![summary::render_summary(&infos)];
    let render = if arguments.full { render::render_full } else { render::render_short };
    sections.extend(infos.iter().map(render));
    let mut domains: Vec<&str> = Vec::new();
    for name in infos.iter().filter_map(|info| info.domain.name.as_deref()) {
        if !domains.contains(&name) {
            domains.push(name);
        }
    }
    let findings: Vec<(&str, String)> = domains
        .into_iter()
        .flat_map(|name| fabric.host_findings(name).into_iter().map(move |finding| (name, finding)))
        .collect();
    if !findings.is_empty() {
        sections.push(render::render_findings(&findings));
    }
    let sections: Vec<&str> = sections.iter().map(|section| section.trim_end()).collect();
    console.print_line(sections.join("\n\n"))
}
