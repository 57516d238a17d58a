//! Open MPI over homespun, started by `homespun run`: a program of our own that checks every byte, and NetPIPE.
//!
//! Without Open MPI (Debian: `openmpi-bin`, `libopenmpi-dev`, `netpipe-openmpi`) the tests say so and pass; where `CI`
//! is set they fail.

mod every_byte;
mod fallback;
mod launch;
mod netpipe;

/// The domains that messages are sent over.
const DOMAINS: [&str; 2] = ["shm", "tcp"];
