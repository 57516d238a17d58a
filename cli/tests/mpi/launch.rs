//! Runs `homespun run -- mpirun …` with each MPI. Ends all processes, even after a failure.

use std::env;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

use crate::chosen_links::LOGGING;
use crate::hosts::Hosts;
use crate::mpi::Mpi;

/// The time limit of a run. A run takes seconds, but minutes on a busy host: waiting ranks keep polling.
const RUN_MAX: Duration = Duration::from_secs(600);

/// The time that `mpirun` may take to end its ranks after SIGTERM.
const END_MAX: Duration = Duration::from_secs(10);

/// The interval between checks for the end of a process.
const INTERVAL: Duration = Duration::from_millis(5);

/// Locked during a run. Ranks poll for messages, so two runs at once would compete for cores.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The exit status, or `None` if the run was killed after the time limit.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A run of `homespun run -- mpirun …`.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) mpi: Mpi,
    /// The hosts of the ranks, unless all are on this host.
    pub(crate) hosts: Option<&'a Hosts>,
    pub(crate) domain: Option<&'static str>,
    pub(crate) variables: Vec<(&'static str, &'static str)>,
    /// Environment variables that only the launcher gets. `homespun run` must not get them, because it
    /// would check them.
    pub(crate) launcher_variables: Vec<(&'static str, &'static str)>,
    pub(crate) options: Vec<String>,
    pub(crate) ranks: usize,
    pub(crate) run_max: Duration,
}

impl<'a> Launch<'a> {
    /// A launch of this many ranks on this host, without `--domain`.
    pub(crate) fn new(mpi: Mpi, ranks: usize) -> Launch<'a> {
        Launch {
            mpi,
            hosts: None,
            domain: None,
            variables: Vec::new(),
            launcher_variables: Vec::new(),
            options: Vec::new(),
            ranks,
            run_max: RUN_MAX,
        }
    }

    /// Runs a program in each rank. Kills the ranks if they still run after the time limit.
    pub(crate) fn run(&self, program: &Path, arguments: &[&str]) -> Outcome {
        // A failed test poisons the lock, which must not make the next test fail.
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let mut running = Running::start(self.build_command().arg(program).args(arguments), turn);
        let status = running.wait_at_most(self.run_max);
        if status.is_none() {
            running.kill();
        }
        let [stdout, stderr] = [&running.stdout, &running.stderr]
            .map(|pipe| pipe.recv_timeout(END_MAX).expect("no process is left that could write"));
        Outcome { status, stdout, stderr }
    }

    /// As [`run`](Self::run), but with homespun's log. Also returns the standard error of each rank, as
    /// one text for each. The outcome contains these texts, too.
    pub(crate) fn run_with_logs(mut self, program: &Path) -> (Outcome, Vec<String>) {
        self.variables.extend(LOGGING);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let [program, place] =
            [program, directory.path()].map(|path| path.to_str().expect("cargo's paths are text"));
        let mut outcome =
            self.run(Path::new("sh"), &["-c", "exec \"$1\" 2>\"$2/$$\"", "rank", program, place]);
        let files = fs::read_dir(directory.path()).expect("the directory is there");
        let logs: Vec<String> = files
            .map(|file| {
                fs::read(file.expect("the directory can be read").path()).expect("a rank has made it")
            })
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .collect();
        outcome.stderr.extend(logs.iter().map(String::as_str));
        (outcome, logs)
    }

    fn build_command(&self) -> Command {
        // Cargo builds the plugin before this test, and puts both into one directory.
        let plugin = env::current_exe().expect("this test's path");
        let plugin = plugin.parent().expect("a file is in a directory");
        let homespun = env!("CARGO_BIN_EXE_homespun");
        let mut command = match self.hosts {
            None => Command::new(homespun),
            Some(hosts) => hosts.command_on_first(),
        };
        command.args(self.hosts.map(|_| homespun));
        command.arg("run").arg("--provider-dir").arg(plugin);
        command.args(self.domain.iter().flat_map(|domain| ["--domain", domain]));
        command.arg("--");
        if !self.launcher_variables.is_empty() {
            command.arg("env");
            command.args(self.launcher_variables.iter().map(|(name, value)| format!("{name}={value}")));
        }
        command.arg(self.mpi.find_launcher().expect("it was looked for"));
        command.args(["-np", &self.ranks.to_string()]).args(&self.options);
        command.envs(self.mpi.environment()).envs(self.variables.iter().copied());
        command
    }
}

impl Outcome {
    /// Fails the test unless the run succeeded, and the MPI reports this domain of homespun for all
    /// ranks.
    #[track_caller]
    pub(crate) fn assert_success_over(&self, mpi: Mpi, domain: &str, ranks: usize) {
        assert!(self.status.is_some_and(|status| status.success()), "{self}");
        match mpi {
            Mpi::Open => {
                for chosen in ["mtl:ofi:prov: homespun\n".to_owned(), format!("mtl:ofi:provider: {domain}\n")]
                {
                    assert_eq!(self.stderr.matches(&chosen).count(), ranks, "{chosen:?}: {self}");
                }
            }
            // One rank reports for all, and reports only the provider. The domain is right: `--domain`
            // leaves no other.
            Mpi::Mpich => {
                let chosen = "libfabric provider: homespun - homespun";
                assert!(self.stdout.lines().any(|line| line == chosen), "{self}");
            }
            // Rank 0 lists the domain of each rank. Intel MPI calls it the name of a network interface.
            Mpi::Intel => {
                assert!(
                    self.find_line("[0] MPI startup(): libfabric provider: homespun").is_some(),
                    "{self}"
                );
                let listed = self.stdout.lines().skip_while(|line| !line.ends_with("Pin nic")).skip(1);
                let listed = listed.map_while(|line| line.strip_prefix("[0] MPI startup(): "));
                let chosen: Vec<Vec<&str>> =
                    listed.take(ranks).map(|line| line.split_whitespace().collect()).collect();
                let expected: Vec<String> = (0..ranks).map(|rank| rank.to_string()).collect();
                let expected: Vec<Vec<&str>> =
                    expected.iter().map(|rank| vec![rank.as_str(), "0", domain]).collect();
                assert_eq!(chosen, expected, "{self}");
            }
        }
    }

    /// The line of standard output with this beginning.
    pub(crate) fn find_line(&self, beginning: &str) -> Option<&str> {
        self.stdout.lines().find(|line| line.starts_with(beginning))
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:?} (None: killed)", self.status)?;
        writeln!(f, "standard output:\n{}\nstandard error:\n{}", self.stdout, self.stderr)
    }
}

/// `mpirun`, while it runs.
struct Running {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    has_ended: bool,
    /// Holds the files that a killed run leaves behind.
    _directory: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Running {
    fn start(command: &mut Command, turn: MutexGuard<'static, ()>) -> Running {
        let directory = tempfile::tempdir().expect("a temporary directory");
        command.env("TMPDIR", directory.path()).current_dir(directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.process_group(0).spawn().expect("the command starts");
        let stdout = read_in_thread(child.stdout.take().expect("a pipe"));
        let stderr = read_in_thread(child.stderr.take().expect("a pipe"));
        Running { child, stdout, stderr, has_ended: false, _directory: directory, _turn: turn }
    }

    fn wait_at_most(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            let status = self.child.try_wait().expect("a child can be waited for");
            self.has_ended = status.is_some();
            if self.has_ended || Instant::now() >= deadline {
                return status;
            }
            thread::sleep(INTERVAL);
        }
    }

    /// Ends `mpirun` and its ranks by SIGTERM. If `mpirun` does not end in time, kills all of them.
    fn kill(&mut self) {
        let pid = Pid::from_child(&self.child);
        // Each rank has its own process group, so a signal to the group of `mpirun` does not reach the
        // rank.
        let ranks = descendants(pid);
        let _ = kill_process_group(pid, Signal::TERM);
        if self.wait_at_most(END_MAX).is_none() {
            let _ = kill_process_group(pid, Signal::KILL);
            for rank in ranks {
                // This fails for a rank that has ended.
                let _ = kill_process(rank, Signal::KILL);
            }
            let _ = self.child.wait();
            self.has_ended = true;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended {
            self.kill();
        }
    }
}

/// The children of a process, and all their descendants.
fn descendants(pid: Pid) -> Vec<Pid> {
    let number = pid.as_raw_nonzero();
    let threads = fs::read_dir(format!("/proc/{number}/task")).into_iter().flatten().flatten();
    let children =
        threads.map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let children = children.collect::<Vec<_>>().join(" ");
    let children = children.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?));
    children.flat_map(|child| [vec![child], descendants(child)].concat()).collect()
}

/// Reads a pipe until it is closed.
fn read_in_thread(mut pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, text) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // After a read error, pass on the bytes that were read. The receiver may be gone.
        let _ = pipe.read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    text
}
