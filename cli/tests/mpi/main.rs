//! Open MPI, MPICH and Intel MPI over homespun, started by `homespun run`: programs of our own that check
//! every byte, and NetPIPE.
//!
//! Without Open MPI (Debian: `openmpi-bin`, `libopenmpi-dev`, `netpipe-openmpi`), MPICH and Intel MPI (both of
//! the Python package index, see `mpi.rs`) the tests say so and pass; where `CI` is set they fail.

mod every_byte;
mod fallback;
mod graph;
mod launch;
mod mpi;
mod netpipe;
mod one_sided;
mod programs;

/// The domains that messages are sent over.
const DOMAINS: [&str; 2] = ["shm", "tcp"];
