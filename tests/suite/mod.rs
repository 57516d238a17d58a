//! What the suites that run over every transport have in common.

mod net;
mod party;
pub(crate) mod payload;
pub(crate) mod raw;

pub(crate) use net::{Net, Transport, Turns};
pub(crate) use party::{Deadline, Ended, Party, Setup};
