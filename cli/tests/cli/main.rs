//! The command from its user's view: results, error messages, exit status.

mod against;
mod bench;
#[cfg(feature = "check")]
mod check;
mod command;
mod confined;
mod info;
mod logging;
mod pingpong;
mod rpma;
mod run;
mod sleep;
mod width;
