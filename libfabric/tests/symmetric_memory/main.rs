//! A program in C that uses memory as OpenSHMEM's programs do, over the plugin in the installed libfabric.
//!
//! Without libfabric's headers (Debian: `libfabric-dev`) the test says so and passes; where `CI` is set it
//! fails. It needs a C compiler.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use tempfile::TempDir;

const RANKS: usize = 3;

/// The program, and a directory of providers with the plugin alone.
struct Program {
    directory: TempDir,
}

impl Program {
    /// Compiles it once, if there is what it takes.
    fn get() -> Option<&'static Program> {
        static PROGRAM: OnceLock<Option<Program>> = OnceLock::new();
        PROGRAM.get_or_init(Program::compiled).as_ref()
    }

    #[expect(clippy::print_stderr, reason = "the reader has to see that nothing was tested")]
    fn compiled() -> Option<Program> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        // Cargo builds the plugin before its tests, and puts both into one directory.
        let plugin = env::current_exe().expect("this test's path").with_file_name("libhomespun_fi.so");
        symlink(plugin, directory.path().join("libhomespun_fi.so")).expect("a temporary directory");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/symmetric_memory/ring.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]);
        compiler.arg(directory.path().join("ring")).arg(source).arg("-lfabric");
        if Path::new("/usr/include/rdma/fabric.h").exists() {
            let compiled = compiler.status().expect("a C compiler");
            assert!(compiled.success(), "the program does not compile");
            return Some(Program { directory });
        }
        assert!(env::var_os("CI").is_none(), "in CI libfabric's headers must be there");
        eprintln!("SKIPPED: no headers of libfabric (Debian: libfabric-dev)");
        None
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("ring")
    }
}

/// A rank, which is killed if the test ends before it does.
struct Rank {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Rank {
    fn start(program: &Program, arguments: &[&str]) -> Rank {
        let mut command = Command::new(program.path());
        command.args(arguments).env("FI_PROVIDER_PATH", program.directory.path());
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program that was just compiled");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        Rank { process, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line of text");
        assert!(line.ends_with('\n'), "the program has ended early: {:?}", self.process.wait());
        line
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        // It fails for a process that has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn check(domain: &str, progress: &str, wait: &str) {
    let Some(program) = Program::get() else { return };
    let ranks = RANKS.to_string();
    let mut processes: Vec<_> = (0..RANKS)
        .map(|rank| Rank::start(program, &[domain, &rank.to_string(), &ranks, progress, wait]))
        .collect();
    let names: String = processes.iter_mut().map(Rank::line).collect();
    for rank in &mut processes {
        let input = rank.process.stdin.as_mut().expect("it is piped");
        input.write_all(names.as_bytes()).expect("the program reads the addresses");
    }
    for rank in &mut processes {
        assert_eq!(rank.line(), "done\n");
    }
    for rank in &mut processes {
        drop(rank.process.stdin.take());
    }
    for rank in &mut processes {
        assert!(rank.process.wait().expect("it was started").success());
    }
}

#[test]
fn waits_over_shm_end_with_updates_by_peers() {
    check("shm", "manual", "unspec");
}

#[test]
fn waits_over_tcp_end_with_updates_by_peers() {
    check("tcp", "manual", "unspec");
}

#[test]
fn waits_over_shm_end_with_updates_in_automatic_progress() {
    check("shm", "auto", "unspec");
}

#[test]
fn waits_over_tcp_end_with_updates_in_automatic_progress() {
    check("tcp", "auto", "unspec");
}

#[test]
fn polled_counters_see_updates_by_peers() {
    check("shm", "manual", "none");
    check("tcp", "manual", "none");
}
