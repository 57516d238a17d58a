//! Open MPI, MPICH and Intel MPI over homespun, started by `homespun run`: programs of our own that check
//! every byte, and NetPIPE.
//!
//! If Open MPI (Debian: `openmpi-bin`, `libopenmpi-dev`, `netpipe-openmpi`), MPICH or Intel MPI (both in the
//! Python package index, see `mpi.rs`) is missing, its tests print that they are skipped, and pass. They fail
//! if `CI` is set.

mod every_byte;
mod fallback;
mod graph;
mod launch;
mod mpi;
mod netpipe;
mod one_sided;
mod programs;

/// The domains over which each program runs.
const DOMAINS: [&str; 2] = ["shm", "tcp"];
