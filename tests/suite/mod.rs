//! The common parts of the suites that run over every transport.

mod atomics;
#[path = "../../examples/backend.rs"]
mod backend;
mod call;
mod child;
pub(crate) mod connecting;
mod counters;
pub(crate) mod files;
pub(crate) mod form;
mod handle;
mod net;
pub(crate) mod party;
pub(crate) mod payload;
pub(crate) mod posix;
pub(crate) mod possessions;
pub(crate) mod process;
pub(crate) mod raw;
mod regions;
pub(crate) mod seccomp;
pub(crate) mod sleeping;
mod worker;

pub(crate) use atomics::{AtomicBy, AtomicCall};
pub(crate) use call::AddressForm;
pub(crate) use handle::{Endpoint, Queue, ReceiveBuffer};
pub(crate) use net::{Net, Transport, Turns};
pub(crate) use party::{Deadline, Ended, Party, Setup};
pub(crate) use regions::{FileKind, Kind, Region, RegionSpec, RmaBy, RmaCall};
