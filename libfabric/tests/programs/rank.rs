//! The processes of a program.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A process of a program. Dropping this value kills the process.
struct Rank {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Rank {
    fn start(program: &Path, providers: &Path, arguments: &[String]) -> Rank {
        let mut command = Command::new(program);
        command.args(arguments).env("FI_PROVIDER_PATH", providers);
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program that was just compiled");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        Rank { process, output }
    }

    fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line of text");
        assert!(line.ends_with('\n'), "the program has ended early: {:?}", self.process.wait());
        line
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a rank for each list of arguments. Each rank prints its address, reads the addresses of all
/// ranks, works, and prints "done". When all ranks have printed "done", closes their inputs, and they
/// end.
pub(super) fn run_ranks(program: &Path, providers: &Path, arguments: impl Iterator<Item = Vec<String>>) {
    let mut ranks: Vec<_> = arguments.map(|arguments| Rank::start(program, providers, &arguments)).collect();
    let names: String = ranks.iter_mut().map(Rank::read_line).collect();
    for rank in &mut ranks {
        let input = rank.process.stdin.as_mut().expect("it is piped");
        input.write_all(names.as_bytes()).expect("the program reads the addresses");
    }
    for rank in &mut ranks {
        assert_eq!(rank.read_line(), "done\n");
    }
    for rank in &mut ranks {
        drop(rank.process.stdin.take());
    }
    for rank in &mut ranks {
        assert!(rank.process.wait().expect("it was started").success());
    }
}
