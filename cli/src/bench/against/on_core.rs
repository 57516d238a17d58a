//! `homespun bench-program`: replaces this process by a program. Before that, pins this process to a
//! core if one is given. Also makes the kernel kill this process when the parent process ends.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::cores;
use crate::failure::CommandFailure;

/// The name of this hidden command.
pub(super) const COMMAND: &str = "bench-program";

/// Execute a program that is measured.
#[derive(Debug, Args)]
pub(crate) struct ProgramArguments {
    /// The core to stay on.
    #[arg(long)]
    core: Option<usize>,
    /// The process id of the parent. The program is killed when the parent ends.
    #[arg(long)]
    parent: i32,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    program: Vec<OsString>,
}

/// Pins this process, and executes the program in its place.
///
/// # Errors
///
/// The reason why the program could not be executed. After success this function does not return.
pub(crate) fn run(arguments: &ProgramArguments) -> Result<(), CommandFailure> {
    let failed = |error| CommandFailure::NotExecuted { command: arguments.program[0].clone(), error };
    // The death signal stays set across `execve(2)`.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|errno| failed(errno.into()))?;
    // The parent may have ended before the death signal was set.
    if getppid().map(Pid::as_raw_pid) != Some(arguments.parent) {
        return Err(CommandFailure::PeerGone);
    }
    if let Some(core) = arguments.core {
        cores::pin_thread_to_core(core)?;
    }
    let (program, rest) = arguments.program.split_first().ok_or(CommandFailure::PeerProtocol)?;
    Err(failed(Command::new(program).args(rest).exec()))
}
