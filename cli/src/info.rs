//! `homespun info`: what `getinfo` answers, for people.

mod render;

use clap::Args;
use homespun::Fabric;
use homespun::flags::InfoFlags;
use homespun::info::{DomainAttr, Info};

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
}

const EXAMPLES: &str = "\
Examples:
  homespun info                      everything that there is
  homespun info localhost 7471       how a peer on this host is reached
  homespun info --source 0.0.0.0 -v  what an endpoint on every interface would be

Exit status: 0 if something was found, 1 if nothing meets the request, 2 if the command was not understood.";

/// Asks and shows.
pub(crate) fn run(arguments: &Arguments, console: &Console) -> Result<(), Failure> {
    let mut flags = InfoFlags::empty();
    flags.set(InfoFlags::SOURCE, arguments.source);
    flags.set(InfoFlags::NUMERIC_HOST, arguments.numeric);
    port::require_domain(arguments.domain.as_deref())?;
    let domain = DomainAttr { name: arguments.domain.clone(), ..DomainAttr::default() };
    let hints = Info { domain, ..Info::default() };
    let node = arguments.node.as_deref();
    let fabric = Fabric::new();
    let infos = fabric.getinfo(node, arguments.service.as_deref(), flags, Some(&hints))?;
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
