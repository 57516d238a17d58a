//! The `homespun` command.

#![deny(unsafe_code)]

mod bench;
mod cache_topology;
#[cfg(feature = "check")]
mod check;
mod console;
mod cores;
mod exchange;
mod failure;
mod host;
mod info;
mod logging;
mod peer_process;
mod pingpong;
mod plain_table;
mod run;
mod size;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgAction, Parser, Subcommand};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

use crate::console::Console;

/// The command line of homespun, a software fabric.
///
/// homespun offers the object model of libfabric (endpoints, completion queues, address vectors) over shared
/// memory (domain shm), TCP (domain tcp), or both (domain auto). This command shows what this host offers,
/// measures it, and runs programs over it.
#[derive(Debug, Parser)]
#[command(name = "homespun", version, max_term_width = HELP_WIDTH)]
#[command(after_help = EXIT_STATUS, after_long_help = EXIT_STATUS)]
struct Arguments {
    /// Report more on standard error. -v: what is refused, and why; -vv: also how links come up and end;
    /// -vvv: everything.
    #[arg(short, long, global = true, action = ArgAction::Count, display_order = LAST)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

/// The display order of the options that all commands have: after each command's own options and before
/// help.
const LAST: usize = 900;

/// The largest width of help texts, in characters.
const HELP_WIDTH: usize = 80;

const EXIT_STATUS: &str = "\
Exit status:
  0  success
  1  failure: nothing meets the request, no answer, the peer was lost, wrong
     data, and others
  2  the command line was wrong
The exit status of homespun run is that of the command it runs.";

#[derive(Debug, Subcommand)]
enum Command {
    Info(info::InfoArguments),
    Pingpong(pingpong::PingpongArguments),
    Bench(bench::BenchArguments),
    Run(run::RunArguments),
    #[cfg(feature = "check")]
    Check(check::CheckArguments),
    #[command(hide = true)]
    Bare(bench::single::BareArguments),
    #[command(hide = true)]
    BenchFollower(bench::follower::FollowerArguments),
    #[command(hide = true)]
    BenchProgram(bench::against::on_core::ProgramArguments),
    #[command(hide = true)]
    BenchPeer(bench::sleep::peer::PeerArguments),
    #[command(hide = true)]
    BenchTarget(bench::rpma::target::TargetArguments),
}

impl Command {
    /// Returns the log events that are shown without `-v`: errors, and mostly warnings. A command that
    /// another `homespun` command has started shows no warnings: the other one has shown them. `check` shows
    /// only those about homespun's parameters, since it brings about what others warn of.
    fn shown_events(&self) -> Targets {
        let errors = Targets::new().with_default(LevelFilter::ERROR);
        match self {
            Command::Info(_) | Command::Bench(_) | Command::Run(_) | Command::Bare(_) => {
                errors.with_default(LevelFilter::WARN)
            }
            Command::Pingpong(arguments) if !arguments.is_peer_process() => {
                errors.with_default(LevelFilter::WARN)
            }
            #[cfg(feature = "check")]
            Command::Check(_) => errors.with_target("homespun::params", LevelFilter::WARN),
            Command::Pingpong(_)
            | Command::BenchFollower(_)
            | Command::BenchProgram(_)
            | Command::BenchPeer(_)
            | Command::BenchTarget(_) => errors,
        }
    }
}

/// Returns the command line. Behind the command `help`, which takes no options, the option for help asks for
/// what the command prints anyway: `help run --help` is `help run`, and `help --help` is `help help`.
fn without_help_of_help(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.collect();
    let is_option = |argument: &OsString| argument.as_encoded_bytes().starts_with(b"-");
    let command = arguments.iter().skip(1).position(|argument| !is_option(argument)).map(|place| place + 1);
    let Some(command) = command.filter(|command| arguments[*command] == "help") else { return arguments };
    let mut asked = arguments.split_off(command + 1);
    let len = asked.len();
    asked.retain(|argument| argument != "--help" && argument != "-h");
    if asked.is_empty() && len > 0 {
        asked.push("help".into());
    }
    arguments.extend(asked);
    arguments
}

fn main() -> ExitCode {
    // A checked party runs in a process of its own, which is this program once more.
    #[cfg(feature = "check")]
    if homespun_suite::serve_party_if_started_by_test() {
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::parse_from(without_help_of_help(env::args_os()));
    logging::install_subscriber(arguments.verbose, arguments.command.shown_events());
    let mut console = Console::new();
    let result = match arguments.command {
        Command::Info(arguments) => info::run(&arguments, &console),
        Command::Pingpong(arguments) => pingpong::run(&arguments, &mut console),
        Command::Bench(arguments) => bench::run(&arguments, &mut console),
        Command::Run(arguments) => run::exec_command(&arguments, &console),
        #[cfg(feature = "check")]
        Command::Check(arguments) => check::run(&arguments, &mut console),
        Command::Bare(arguments) => bench::single::run(&arguments, &console),
        Command::BenchFollower(arguments) => bench::follower::run(&arguments, &console),
        Command::BenchProgram(arguments) => bench::against::on_core::run(&arguments),
        Command::BenchPeer(arguments) => bench::sleep::peer::run(&arguments, &console),
        Command::BenchTarget(arguments) => bench::rpma::target::run(&arguments, &console),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Print no error message if the reader of the results has closed the pipe early.
            if !failure.is_closed_pipe() {
                console.print_warning(&failure);
            }
            failure.exit_code()
        }
    }
}
