//! Open MPI, MPICH and Intel MPI over homespun, started by `homespun run`. The programs are NetPIPE, and
//! test programs that check every byte.
//!
//! The tests need Open MPI (Debian: `openmpi-bin`, `libopenmpi-dev`, `netpipe-openmpi`), MPICH and Intel
//! MPI (both in the Python package index, see `mpi.rs`). Tests of a missing MPI print that they are
//! skipped, and pass. `./test` installs these packages, and there such tests fail. Tests with two hosts
//! need the right to make network namespaces. Without it they print that they are skipped.

mod chosen_links;
mod every_byte;
mod fallback;
mod hosts;
mod launch;
mod mpi;
mod netpipe;
mod one_sided;
mod programs;
mod two_hosts;

/// The domains over which each program runs.
const DOMAINS: [&str; 2] = ["shm", "tcp"];
