//! The `homespun` command.

#![deny(unsafe_code)]

mod bench;
mod cache_topology;
mod console;
mod cores;
mod exchange;
mod failure;
mod host;
mod info;
mod peer_process;
mod pingpong;
mod run;
mod size;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::console::Console;

/// The command line of homespun, a software fabric.
///
/// homespun offers the object model of libfabric (endpoints, completion queues, address vectors) over shared
/// memory (domain shm), TCP (domain tcp), or both (domain auto). This command shows what this host offers,
/// measures it, and runs programs over it.
#[derive(Debug, Parser)]
#[command(name = "homespun", version, after_help = EXIT_STATUS, after_long_help = EXIT_STATUS)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXIT_STATUS: &str = "\
Exit status:
  0  success
  1  failure: nothing meets the request, no answer, the peer was lost, wrong data, and others
  2  the command line was wrong
The exit status of homespun run is that of the command it runs.";

#[derive(Debug, Subcommand)]
enum Command {
    Info(info::InfoArguments),
    Pingpong(pingpong::PingpongArguments),
    Bench(bench::BenchArguments),
    Run(run::RunArguments),
    #[command(hide = true)]
    Bare(bench::single::BareArguments),
    #[command(hide = true)]
    BenchFollower(bench::follower::FollowerArguments),
    #[command(hide = true)]
    BenchProgram(bench::against::on_core::ProgramArguments),
    #[command(hide = true)]
    BenchPeer(bench::sleep::peer::PeerArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut console = Console::new();
    let result = match arguments.command {
        Command::Info(arguments) => info::run(&arguments, &console),
        Command::Pingpong(arguments) => pingpong::run(&arguments, &mut console),
        Command::Bench(arguments) => bench::run(&arguments, &mut console),
        Command::Run(arguments) => run::run(&arguments, &console),
        Command::Bare(arguments) => bench::single::run(&arguments, &console),
        Command::BenchFollower(arguments) => bench::follower::run(&arguments, &console),
        Command::BenchProgram(arguments) => bench::against::on_core::run(&arguments),
        Command::BenchPeer(arguments) => bench::sleep::peer::run(&arguments, &console),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // If the reader of the results has closed the pipe early, print no error message.
            if !failure.is_closed_pipe() {
                console.print_warning(&failure);
            }
            failure.exit_code()
        }
    }
}
