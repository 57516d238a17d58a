//! What applications may rely on, as tests over any network, with their parties, networks and processes.
//!
//! A [`Net`] opens endpoints over one transport ([`TransportKind`]). [`Turns`] decides who drives the
//! endpoints, that is, makes progress for them. A [`Party`] is an endpoint with its queues. Either all
//! parties are in this process, or each party has a process of its own. [`connecting`] opens endpoints with
//! connections. A [`Backend`] adds a transport of your own.
//!
//! What applications may rely on is a registry of tests ([`Test::iter`]): functions of a [`Net`] that say
//! themselves over which networks they run ([`over`]). [`model`] runs random programs.
//!
//! ```
//! use homespun_suite::payload::{marked_buffer, payload, received_bytes};
//! use homespun_suite::{Faults, Net, TransportKind, Turns};
//!
//! let net = Net::new(&TransportKind::Loopback { seed: 1, faults: Faults::choppy() }, Turns::Alternate);
//! let (alice, bob) = net.open_pair();
//! bob.endpoint.recv(marked_buffer(8), bob.peer(), 1).unwrap();
//! alice.endpoint.send(payload(7, 8), alice.peer(), 2).unwrap();
//! assert_eq!(received_bytes(&bob.next_completion().buffer), payload(7, 8));
//! ```

// The attribute `over` names this crate, in whose tests it stands too.
extern crate self as homespun_suite;

mod answering;
mod atomic_call;
mod call;
pub mod clauses;
pub mod connecting;
mod counters;
mod deadline;
mod driven_queues;
mod ended;
pub mod example;
pub mod files;
mod flush_call;
mod forked_child;
mod form;
mod handle;
pub mod hostile_peer;
pub mod model;
mod neighbours;
mod net;
mod party;
mod party_server;
pub mod payload;
pub mod posix;
pub mod prerequisites;
pub mod process;
pub mod process_resources;
mod provider;
#[cfg(feature = "providers")]
mod provider_party;
pub mod raw;
mod region_spec;
mod regions;
mod remote_party;
mod rma_call;
pub mod seccomp;
mod semantic_tests;
mod semantics;
mod setup;
mod sides;
pub mod sleeping;
mod transport;

pub use homespun_conformance::Contract;
pub use homespun_conformance::transport::Features;
pub use homespun_engine::loopback::Faults;
pub use homespun_suite_macros::over;
/// The attribute [`over`] registers tests with it.
#[doc(hidden)]
pub use inventory;

pub use atomic_call::{AtomicBy, AtomicCall};
pub use call::AddressForm;
pub use counters::Counted;
pub use deadline::{Deadline, set_patience};
pub use ended::{Ended, poll_completion};
pub use flush_call::FlushCall;
pub use handle::{Endpoint, Handle, Queue, ReceiveBuffer, Vector};
pub use neighbours::Neighbours;
pub use net::{Net, VacantAddress};
pub use party::Party;
pub use party_server::serve_party;
pub use provider::{Crashed, NotOffered, Provider};
pub use region_spec::{MemoryKind, RegionFile, RegionSpec};
pub use regions::{Closed, Region};
pub use rma_call::{RmaBy, RmaCall};
pub use semantic_tests::{
    Outcome, Over, Test, TestedNetwork, run_backend_tests, run_tests_over, serve_party_if_started_by_test,
};
pub use setup::Setup;
pub use transport::{Backend, TransportKind, Turns};

/// Makes a test program of a backend: its main function runs the
/// [contract](homespun_conformance::Contract) of a transport and all that applications may rely on, each over
/// an endpoint that the application drives and over one that a thread of the library drives.
///
/// Takes the name of the domain, an expression that creates the provider, and its optional
/// [features](homespun_conformance::transport::Features). The target has `harness = false` in `Cargo.toml`.
/// Its arguments are those of `cargo test`.
///
/// ```no_run
/// # mod mine {
/// #     pub use homespun_engine::loopback::{Faults, Network};
/// #     pub fn provider() -> Network { Network::new(1, Faults::default()) }
/// # }
/// use homespun_suite::Features;
///
/// homespun_suite::backend_tests!("loopback", mine::provider(), Features::MAPS | Features::SPLITS);
/// ```
#[macro_export]
macro_rules! backend_tests {
    ($domain:literal, $provider:expr, $features:expr $(,)?) => {
        fn main() -> ::std::process::ExitCode {
            let backend =
                $crate::Backend { domain: $domain, install: |fabric| fabric.with_provider($provider) };
            $crate::run_backend_tests(backend, $crate::Contract::new("contract", || $provider, $features))
        }
    };
}

/// Defines an ignored test at the root of the test's crate. With [`Turns::Processes`], a test starts its own
/// program again for each party, at this ignored test.
#[macro_export]
macro_rules! party_process_entry {
    () => {
        #[test]
        #[ignore = "an entry: other tests run it, in processes of their own"]
        fn party_process_entry() {
            $crate::serve_party();
        }
    };
}
