//! What the fabric reports while the command runs: `tracing` events, on standard error.

use std::io;

use tracing::level_filters::LevelFilter;

/// The levels by the number of `-v`.
const LEVELS: [LevelFilter; 4] =
    [LevelFilter::WARN, LevelFilter::INFO, LevelFilter::DEBUG, LevelFilter::TRACE];

/// Who reads the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Audience {
    /// The user of this process.
    User,
    /// The user of the process that started this one. That process has already shown the same warnings.
    ParentsUser,
}

/// Shows events from now on. Without `-v` these are warnings and errors.
pub(crate) fn install_subscriber(verbosity: u8, audience: Audience) {
    let level = match (verbosity, audience) {
        (0, Audience::ParentsUser) => LevelFilter::ERROR,
        _ => LEVELS[usize::from(verbosity).min(LEVELS.len() - 1)],
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .with_target(verbosity > 0)
        .with_ansi(false)
        .without_time();
    // Nothing installs another subscriber before.
    subscriber.init();
}

/// Returns the arguments that give a process which this one starts the same verbosity.
pub(crate) fn verbosity_arguments() -> impl Iterator<Item = &'static str> {
    let count = LEVELS.iter().position(|level| *level == LevelFilter::current());
    std::iter::repeat_n("-v", count.unwrap_or(0))
}
