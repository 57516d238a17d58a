//! The tests of what applications may rely on: how one says over which networks it runs, and how all are run.

use std::panic::{self, AssertUnwindSafe, RefUnwindSafe, UnwindSafe};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use bitflags::bitflags;
use homespun_conformance::{Contract, run_tests};
use homespun_engine::transport::Provider;
use libtest_mimic::Trial;

use super::call::{RemoteAnswer, RemoteCall, TestInProcess};
use super::deadline::{self, set_patience};
use super::net::Net;
use super::party_server::serve_party;
use super::prerequisites;
use super::process;
pub use super::provider::Outcome;
use super::remote_party::{call_process, spawn_process};
use super::transport::{Backend, TransportKind, Turns};

bitflags! {
    /// The networks over which a test runs: those with one of these drivers, and with all that it needs. The
    /// attribute [`over`](crate::over) takes these names in lower case.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Over: u32 {
        /// One thread drives all parties in turn.
        const IN_TURNS = 1;
        /// Each party has a thread that drives it all the time.
        const IN_THREADS = 1 << 1;
        /// Each party has a process of its own.
        const ACROSS_PROCESSES = 1 << 2;
        /// The library's progress thread drives the parties.
        const AUTOMATIC = 1 << 3;
        /// The test uses objects of its own process: a queue that two parties share, a thread that sleeps.
        const ONE_PROCESS = Self::IN_TURNS.bits() | Self::IN_THREADS.bits();
        /// As `ONE_PROCESS`, and the endpoints have connections, which another provider need not offer.
        /// Behind the C interface, a side of the connections may have a process of its own.
        const CONNECTED = Self::ONE_PROCESS.bits() | Self::SIDES.bits();
        /// The test decides when a party makes progress.
        const DRIVEN = Self::ONE_PROCESS.bits() | Self::ACROSS_PROCESSES.bits();
        /// The test uses nothing but parties, wherever they are and whatever drives them.
        const ALL = Self::DRIVEN.bits() | Self::AUTOMATIC.bits();

        /// What [`CONNECTED`](Self::CONNECTED) has beyond `ONE_PROCESS`.
        const SIDES = 1 << 9;
        /// Needs endpoints that map memory of each other.
        const MAPPED_MEMORY = 1 << 4;
        /// Needs a transport that reaches other processes.
        const OTHER_PROCESSES = 1 << 5;
        /// Needs links that take a burst of small frames at once.
        const ROOM = 1 << 6;
        /// Tests what homespun promises beyond the man pages. No other provider is asked for it.
        const OWN = 1 << 7;
        /// Uses the library's own calls or objects, which are not behind the C interface.
        const NATIVE = 1 << 8;
    }
}

/// A test over networks. The attribute [`over`](crate::over) makes one of a function.
#[derive(Debug)]
pub struct Test {
    /// The path of the function's module, which begins with its crate.
    pub module: &'static str,
    /// The name of the function.
    pub name: &'static str,
    /// The networks over which it runs.
    pub over: Over,
    /// The [clauses](crate::clauses) that it shows.
    pub clauses: &'static [&'static str],
    /// The function.
    pub run: fn(&Net),
}

inventory::collect!(Test);

impl Test {
    /// All tests that this program links.
    pub fn iter() -> impl Iterator<Item = &'static Test> {
        inventory::iter::<Test>.into_iter()
    }

    /// What the test is about: its module, without the crate and, for the tests of this crate, without
    /// `semantics`.
    pub fn topic(&self) -> &'static str {
        let path = self.module.split_once("::").map_or("", |(_crate, path)| path);
        let path = path.strip_prefix("semantics::").unwrap_or(path);
        path.strip_prefix("connected::").unwrap_or(path)
    }
}

/// A network over which tests run.
#[derive(Debug, Clone)]
pub struct TestedNetwork {
    /// The transport's name in the names of its tests.
    pub name: &'static str,
    /// The transport.
    pub transport: TransportKind,
    /// What drives the parties.
    pub turns: Turns,
    /// Whether all parties send long messages from send buffers. Then only the tests of [`Over::ALL`] run.
    pub sends_from_buffers: bool,
    /// With what a reason may begin for which a test is not offered. In a test program, any other reason is a
    /// failure.
    pub may_lack: &'static [&'static str],
}

impl TestedNetwork {
    /// Returns a network for each of these drivers.
    pub fn driven_by(name: &'static str, transport: &TransportKind, drivers: &[Turns]) -> Vec<TestedNetwork> {
        let network = |&turns| TestedNetwork {
            name,
            transport: transport.clone(),
            turns,
            sends_from_buffers: false,
            may_lack: &[],
        };
        drivers.iter().map(network).collect()
    }

    /// Whether a test over these networks runs over this one.
    pub fn runs(&self, over: Over) -> bool {
        let driver = match self.turns {
            Turns::Alternate => Over::IN_TURNS,
            Turns::Threads => Over::IN_THREADS,
            Turns::Processes => Over::ACROSS_PROCESSES,
            Turns::Automatic => Over::AUTOMATIC,
        };
        let is_native = !matches!(self.transport, TransportKind::Provider(_));
        let lacks = |needed: Over, has: bool| over.contains(needed) && !has;
        // Behind the C interface, sides may have processes of their own.
        let has_driver = over.contains(driver)
            || !is_native && over.contains(Over::SIDES) && driver == Over::ACROSS_PROCESSES;
        if !has_driver
            || lacks(Over::MAPPED_MEMORY, self.transport.maps_peer_memory())
            || lacks(Over::OTHER_PROCESSES, self.transport.reaches_other_processes())
            || lacks(Over::OWN, self.transport.is_homespun())
            || lacks(Over::NATIVE, is_native)
            || !is_native && !over.intersects(Over::ACROSS_PROCESSES | Over::SIDES)
            || lacks(Over::ROOM, !matches!(self.transport, TransportKind::Loopback { .. }))
        {
            return false;
        }
        // Most tests of objects with automatic progress sleep.
        let may_sleep = self.turns == Turns::Automatic && !over.contains(Over::ALL);
        let takes_all = !self.sends_from_buffers || over.contains(Over::ALL);
        takes_all && (!may_sleep || self.transport.reaches_other_processes())
    }

    /// Makes each test that runs over this network a test of a program, called `network::topic::test`.
    fn tests(&self) -> Vec<Trial> {
        let make_trial = |test: &'static Test| {
            let (network, name) = (self.clone(), self.name_test(test));
            Trial::test(name.clone(), move || network.run_named_test(&name, test))
        };
        Test::iter().filter(|test| self.runs(test.over)).map(make_trial).collect()
    }

    /// Runs a test over a new network. A test whose parties are in its own process, behind the C interface,
    /// has a process for itself: a provider may crash, and looks for its hardware.
    pub fn run_test(&self, test: &Test) -> Outcome {
        if self.turns == Turns::Processes || !matches!(self.transport, TransportKind::Provider(_)) {
            return self.run_over_new_network(test.run);
        }
        let (transport, turns) = (self.transport.clone(), self.turns);
        let (module, name) = (test.module.to_owned(), test.name.to_owned());
        let test = TestInProcess { transport, turns, module, name, patience: deadline::patience() };
        let mut found = Outcome::Passed;
        let asked = Outcome::of(AssertUnwindSafe(|| {
            let mut process = spawn_process(&test.transport);
            match call_process(&mut process, &RemoteCall::RunTest(test)) {
                RemoteAnswer::Outcome(outcome) => found = outcome,
                other => panic!("{other:?}"),
            }
        }));
        if asked == Outcome::Passed { found } else { asked }
    }

    /// Runs a test of a test program. What may not be offered is noted for the summary of `./test`.
    fn run_named_test(&self, name: &str, test: &Test) -> Result<(), libtest_mimic::Failed> {
        prerequisites::set_test_name(name);
        match self.run_test(test) {
            Outcome::Passed => Ok(()),
            Outcome::NotOffered(what) if self.may_lack.iter().any(|may| what.starts_with(may)) => {
                prerequisites::record_not_offered(self.name, &what);
                Ok(())
            }
            Outcome::NotOffered(what) => Err(format!("not offered: {what}").into()),
            Outcome::Failed(text) | Outcome::Crashed(text) => Err(text.into()),
        }
    }

    /// Opens one party. Its outcome says whether there is such a network.
    pub fn open_and_close_party(&self) -> Outcome {
        self.run_over_new_network(|net| drop(net.open_party()))
    }

    fn run_over_new_network(&self, run: impl Fn(&Net) + UnwindSafe + RefUnwindSafe) -> Outcome {
        Outcome::of(|| {
            let net = Net::new(&self.transport, self.turns);
            run(&if self.sends_from_buffers { net.sending_from_buffers() } else { net });
        })
    }

    fn name_test(&self, test: &Test) -> String {
        let driver = match self.turns {
            Turns::Alternate => "",
            Turns::Threads => "_in_threads",
            Turns::Processes => "_across_processes",
            Turns::Automatic => "_by_itself",
        };
        format!("{}{driver}::{}::{}", self.name, test.topic(), test.name)
    }
}

impl TestInProcess {
    /// Runs the test. The outcome says where it has failed, since this process prints nothing.
    pub(super) fn run(self) -> Outcome {
        static FAILED_AT: Mutex<String> = Mutex::new(String::new());
        set_patience(self.patience);
        panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string).unwrap_or_default();
            *FAILED_AT.lock().unwrap_or_else(PoisonError::into_inner) = place;
        }));
        let is_wanted = |test: &&Test| (test.module, test.name) == (&self.module, &self.name);
        let test = Test::iter().find(is_wanted).expect("the programs are the same");
        match Outcome::of(|| (test.run)(&Net::new(&self.transport, self.turns))) {
            Outcome::Failed(text) => {
                let place = FAILED_AT.lock().unwrap_or_else(PoisonError::into_inner);
                Outcome::Failed(format!("{text} ({place})"))
            }
            other => other,
        }
    }
}

/// Serves a party, if a test of this program has started this process for one. A program that runs tests over
/// [`Turns::Processes`] calls this first, and ends if it returns true.
pub fn serve_party_if_started_by_test() -> bool {
    let is_party = process::is_started_by_test();
    if is_party {
        serve_party();
    }
    is_party
}

/// Runs each test of this program over each network that it names, as the arguments of the program say, which
/// are those of `cargo test`. A test is called `network::topic::test`. In a process that a test has started
/// for a party, serves the party instead.
pub fn run_tests_over(networks: &[TestedNetwork]) -> ExitCode {
    if serve_party_if_started_by_test() {
        return ExitCode::SUCCESS;
    }
    run_tests(networks.iter().flat_map(TestedNetwork::tests).collect())
}

/// Runs the contract of a backend and what applications may rely on over it, as
/// [`backend_tests`](crate::backend_tests) says.
#[doc(hidden)]
pub fn run_backend_tests<P: Provider + 'static>(backend: Backend, contract: Contract<P>) -> ExitCode {
    let transport = TransportKind::Backend(backend);
    let networks =
        TestedNetwork::driven_by(backend.domain, &transport, &[Turns::Alternate, Turns::Automatic]);
    run_tests(networks.iter().flat_map(TestedNetwork::tests).chain(contract.tests()).collect())
}
