//! The lists of tests: each file has a macro that makes the tests of one list. A test is named after its
//! file and its function.

#[macro_use]
mod connections;
#[macro_use]
mod mapped_memory;
#[macro_use]
mod objects;
#[macro_use]
mod parties;
#[macro_use]
mod peer_processes;
#[macro_use]
mod send_buffers;
#[macro_use]
mod shared_contexts;
#[macro_use]
mod sleepers;
