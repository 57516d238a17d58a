//! Random numbers, from the system.

use homespun_engine::error::{Error, SystemRequest};

/// Returns 64 random bits, which no peer can guess.
pub(crate) fn draw_u64() -> Result<u64, Error> {
    getrandom::u64().map_err(|error| SystemRequest::RandomNumber.refused(error))
}
