//! `homespun bench-program`: becomes a program that stays on one core and ends with the process that started
//! it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::cores;
use crate::failure::Failure;

/// The hidden command.
pub(super) const COMMAND: &str = "bench-program";

/// Become a program that is measured.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The core to stay on.
    #[arg(long)]
    core: Option<usize>,
    /// The process whose end is the program's end.
    #[arg(long)]
    parent: i32,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

/// Becomes the program.
///
/// # Errors
///
/// The reason why it could not; it does not return otherwise.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let failed = |error| Failure::NotExecuted { command: arguments.program[0].clone(), error };
    // The signal stays set for the program that this process becomes.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|errno| failed(errno.into()))?;
    // The parent may have ended before.
    if getppid().map(Pid::as_raw_pid) != Some(arguments.parent) {
        return Err(Failure::PeerGone);
    }
    if let Some(core) = arguments.core {
        cores::pin(core)?;
    }
    let (program, rest) = arguments.program.split_first().ok_or(Failure::PeerTalk)?;
    Err(failed(Command::new(program).args(rest).exec()))
}
