//! `homespun check`: the suite's tests over homespun or any other provider.

mod table;

use std::collections::BTreeMap;
use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Args;
use homespun_semantics as _;
use homespun_suite::{Outcome, Provider, Test, TestedNetwork, TransportKind, Turns, set_patience};

use self::table::{by_topic, render};
use crate::console::Console;
use crate::failure::CommandFailure;

/// Run the semantic tests over a provider
///
/// Each endpoint has a process of its own. What a provider does not offer is counted, and is no failure. A
/// test that fails says what it expected and what it got.
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// A provider of the installed libfabric, such as tcp, "tcp;ofi_rxm", sockets, shm, or homespun with
    /// FI_PROVIDER_PATH
    #[arg(value_name = "PROVIDER", required_unless_present = "native")]
    provider: Option<String>,
    /// Ask homespun's own library instead, without libfabric
    #[arg(long, value_name = "DOMAIN", value_parser = ["shm", "tcp", "auto"], conflicts_with = "provider")]
    native: Option<String>,
    /// The provider's domain, if it has several
    #[arg(long, value_name = "NAME", requires = "provider")]
    domain: Option<String>,
    /// The libfabric to load: a path, or a name that the dynamic loader searches for
    #[arg(long, value_name = "LIBRARY", default_value = "libfabric.so.1")]
    libfabric: String,
    /// Run only the tests whose name contains this, such as ordering:: or cancel
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// How many seconds a test waits for an event before it fails
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    patience: u64,
    /// How many tests run at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    jobs: usize,
}

impl CheckArguments {
    fn network(&self) -> TestedNetwork {
        let transport = match (&self.provider, self.native.as_deref()) {
            (_, Some("shm")) => TransportKind::Shm4,
            (_, Some("tcp")) => TransportKind::Tcp4,
            (_, Some(_)) => TransportKind::Auto4,
            (provider, None) => TransportKind::Provider(Provider {
                libfabric: self.libfabric.clone(),
                name: provider.clone().unwrap_or_default(),
                domain: self.domain.clone(),
            }),
        };
        TestedNetwork {
            name: "checked",
            transport,
            turns: Turns::Processes,
            sends_from_buffers: false,
            may_lack: &[],
        }
    }
}

/// Runs the command.
///
/// # Errors
///
/// [`CommandFailure::Check`] if a test has failed.
pub(crate) fn run(arguments: &CheckArguments, console: &mut Console) -> Result<(), CommandFailure> {
    let network = arguments.network();
    if let Outcome::NotOffered(what) = network.open_and_close_party() {
        return Err(CommandFailure::NothingToCheck(what));
    }
    let is_chosen = |test: &&Test| {
        network.runs(test.over) && format!("{}::{}", test.topic(), test.name).contains(&arguments.only)
    };
    let mut tests: Vec<&'static Test> = Test::iter().filter(is_chosen).collect();
    tests.sort_by_key(|test| (test.topic(), test.name));
    if tests.is_empty() {
        return Err(CommandFailure::NothingToCheck(format!("no test has {} in its name", arguments.only)));
    }
    set_patience(Duration::from_secs(arguments.patience));
    // The outcome says what a test has panicked with.
    panic::set_hook(Box::new(|_| {}));
    console.start_progress(tests.len());
    let (next, (sender, outcomes)) = (AtomicUsize::new(0), mpsc::channel());
    let mut results = Vec::new();
    thread::scope(|scope| {
        for _ in 0..arguments.jobs.max(1) {
            let (sender, next, tests, network) = (sender.clone(), &next, &tests, &network);
            scope.spawn(move || {
                while let Some(test) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // The receiver waits for all outcomes.
                    let _ = sender.send((*test, network.run_test(test)));
                }
            });
        }
        drop(sender);
        for (test, outcome) in outcomes {
            if let Outcome::Failed(text) | Outcome::Crashed(text) = &outcome {
                let kind = if matches!(outcome, Outcome::Crashed(_)) { "crashed" } else { "failed" };
                console.print_line(format!("{kind}: {}::{}\n{text}\n", test.topic(), test.name))?;
            }
            console.show_step(test.name.to_owned());
            console.advance_progress();
            results.push((test, outcome));
        }
        Ok::<(), CommandFailure>(())
    })?;
    console.end_progress();
    let _ = panic::take_hook();
    console.print_line(render(&by_topic(&results)))?;
    for (what, tests) in not_offered(&results) {
        console.print_wrapped(format!("not offered, which {tests} tests need: {what}"))?;
    }
    let count = |wanted: fn(&Outcome) -> bool| results.iter().filter(|(_, outcome)| wanted(outcome)).count();
    let failed = count(|outcome| matches!(outcome, Outcome::Failed(_) | Outcome::Crashed(_)));
    if failed > 0 { Err(CommandFailure::Check { failed, tests: results.len() }) } else { Ok(()) }
}

/// What the provider does not offer, and how many tests need it.
fn not_offered<'a>(results: &'a [(&'static Test, Outcome)]) -> BTreeMap<&'a str, usize> {
    let mut needed = BTreeMap::new();
    for (_, outcome) in results {
        if let Outcome::NotOffered(what) = outcome {
            *needed.entry(what.as_str()).or_default() += 1;
        }
    }
    needed
}
