//! The parties, networks and processes of the tests that run over every transport.
//!
//! A [`Net`] is a transport and the way in which its endpoints are driven ([`Turns`]). It opens [`Party`]s:
//! endpoints with their queues, in this process or each in a process of its own. [`connecting`] does the same
//! for endpoints with connections. A transport of your own takes part as a [`Backend`].
//!
//! ```
//! use homespun_suite::payload::{marked_buffer, payload, received_bytes};
//! use homespun_suite::{Faults, Net, Transport, Turns};
//!
//! let net = Net::new(&Transport::Loopback { seed: 1, faults: Faults::choppy() }, Turns::Alternate);
//! let (alice, bob) = net.open_pair();
//! bob.endpoint.recv(marked_buffer(8), bob.peer(), 1).unwrap();
//! alice.endpoint.send(payload(7, 8), alice.peer(), 2).unwrap();
//! assert_eq!(received_bytes(&bob.next_completion().buffer), payload(7, 8));
//! ```

mod atomics;
mod call;
mod child;
pub mod connecting;
mod counters;
pub mod files;
mod form;
mod handle;
mod net;
pub mod party;
pub mod payload;
pub mod posix;
pub mod prerequisites;
pub mod process;
pub mod process_resources;
pub mod raw;
mod regions;
pub mod seccomp;
pub mod sleeping;
mod worker;

pub use homespun_engine::loopback::Faults;

pub use atomics::{AtomicBy, AtomicCall};
pub use call::AddressForm;
pub use counters::Counted;
pub use handle::{Endpoint, Queue, ReceiveBuffer, Vector};
pub use net::{Backend, Net, Transport, Turns, VacantAddress};
pub use party::{Deadline, Ended, Party, Setup};
pub use regions::{Closed, FileKind, Kind, Region, RegionSpec, RmaBy, RmaCall};
pub use worker::serve_party;

/// The entry of processes with a party, [`Turns::Processes`]: an ignored test at the root of the test's crate.
///
/// A test starts its own program again for each such party, at this entry.
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
