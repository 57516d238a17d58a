//! Open MPI, MPICH and Intel MPI over homespun, started by `homespun run`: programs of our own that check
//! every byte, and NetPIPE.
//!
//! Without Open MPI (Debian: `openmpi-bin`, `libopenmpi-dev`, `netpipe-openmpi`), MPICH or Intel MPI (both
//! in the Python package index, see `mpi.rs`) the tests print that they are skipped, and pass. In `./test`,
//! which installs these packages, the tests fail instead. Without the right to make network namespaces,
//! tests with ranks on two hosts print that they are skipped.

mod chosen_links;
mod every_byte;
mod fallback;
mod graph;
mod hosts;
mod launch;
mod mpi;
mod netpipe;
mod one_sided;
mod programs;
mod two_hosts;

/// The domains over which each program runs.
const DOMAINS: [&str; 2] = ["shm", "tcp"];
