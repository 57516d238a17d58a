//! Runs `homespun run -- mpirun …` of each MPI, and leaves nothing behind, whatever comes of it.

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

use crate::mpi::Mpi;

/// How long one run may take. Those that pass take seconds, and minutes where much else runs: ranks that wait only yield.
const RUN_MAX: Duration = Duration::from_secs(600);

/// How long `mpirun` may take to end its ranks when it is told to end.
const END_MAX: Duration = Duration::from_secs(10);

/// How often the end of a process is looked for.
const INTERVAL: Duration = Duration::from_millis(5);

/// Ranks look for messages all the time, so two runs at once would only take each other's cores.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// What a run did.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// How it ended, or `None` if it had to be killed because it took too long.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A run of `homespun run -- mpirun …`.
#[derive(Debug)]
pub(crate) struct Launch {
    mpi: Mpi,
    domain: Option<&'static str>,
    variables: Vec<(&'static str, &'static str)>,
    options: &'static [&'static str],
    ranks: usize,
    run_max: Duration,
}

impl Launch {
    /// So many ranks, with this domain asked for.
    pub(crate) fn over(mpi: Mpi, domain: &'static str, ranks: usize) -> Launch {
        Launch { mpi, domain: Some(domain), variables: Vec::new(), options: &[], ranks, run_max: RUN_MAX }
    }

    /// So many ranks, in whatever domain the MPI takes, with this variable in the environment.
    pub(crate) fn with(mpi: Mpi, variable: (&'static str, &'static str), ranks: usize) -> Launch {
        Launch { mpi, domain: None, variables: vec![variable], options: &[], ranks, run_max: RUN_MAX }
    }

    /// With these options of `mpirun`.
    pub(crate) fn options(self, options: &'static [&'static str]) -> Launch {
        Launch { options, ..self }
    }

    /// Killed after this time.
    pub(crate) fn at_most(self, run_max: Duration) -> Launch {
        Launch { run_max, ..self }
    }

    /// Runs a program in each rank, to its end.
    pub(crate) fn run(&self, program: &Path, arguments: &[&str]) -> Outcome {
        // A test that failed holds nobody else up.
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let mut running = Running::start(self.command().arg(program).args(arguments), turn);
        let status = running.end_within(self.run_max);
        if status.is_none() {
            running.kill();
        }
        let [stdout, stderr] = [&running.stdout, &running.stderr]
            .map(|pipe| pipe.recv_timeout(END_MAX).expect("no process is left that could write"));
        Outcome { status, stdout, stderr }
    }

    fn command(&self) -> Command {
        // Cargo builds the plugin before this test, and puts both into one directory.
        let plugin = env::current_exe().expect("this test's path");
        let plugin = plugin.parent().expect("a file is in a directory");
        let mut command = Command::new(env!("CARGO_BIN_EXE_homespun"));
        command.arg("run").arg("--provider-dir").arg(plugin);
        command.args(self.domain.iter().flat_map(|domain| ["--domain", domain]));
        command.arg("--").arg(self.mpi.launcher().expect("it was looked for"));
        command.args(["-np", &self.ranks.to_string()]).args(self.options);
        command.envs(self.mpi.environment()).envs(self.variables.iter().copied());
        command
    }
}

impl Outcome {
    /// Fails the test unless the run succeeded, and all ranks had this domain of homespun.
    #[track_caller]
    pub(crate) fn require_over(&self, mpi: Mpi, domain: &str, ranks: usize) {
        assert!(self.status.is_some_and(|status| status.success()), "{self}");
        match mpi {
            Mpi::Open => {
                for chosen in ["mtl:ofi:prov: homespun\n".to_owned(), format!("mtl:ofi:provider: {domain}\n")]
                {
                    assert_eq!(self.stderr.matches(&chosen).count(), ranks, "{chosen:?}: {self}");
                }
            }
            // One rank speaks for all, and knows no more than the provider; it was offered this domain alone.
            Mpi::Mpich => {
                let chosen = "libfabric provider: homespun - homespun";
                assert!(self.stdout.lines().any(|line| line == chosen), "{self}");
            }
            // Rank 0 lists the domain of each under the name of a network interface.
            Mpi::Intel => {
                assert!(self.line("[0] MPI startup(): libfabric provider: homespun").is_some(), "{self}");
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

    /// The line that begins like this, of what was written to standard output.
    pub(crate) fn line(&self, beginning: &str) -> Option<&str> {
        self.stdout.lines().find(|line| line.starts_with(beginning))
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:?}, where none means killed", self.status)?;
        writeln!(f, "standard output:\n{}\nstandard error:\n{}", self.stdout, self.stderr)
    }
}

/// `mpirun`, while it runs.
struct Running {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    has_ended: bool,
    /// Holds what it leaves behind if it is killed.
    _directory: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Running {
    fn start(command: &mut Command, turn: MutexGuard<'static, ()>) -> Running {
        let directory = tempfile::tempdir().expect("a temporary directory");
        command.env("TMPDIR", directory.path()).current_dir(directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.process_group(0).spawn().expect("the command starts");
        let stdout = text(child.stdout.take().expect("a pipe"));
        let stderr = text(child.stderr.take().expect("a pipe"));
        Running { child, stdout, stderr, has_ended: false, _directory: directory, _turn: turn }
    }

    fn end_within(&mut self, limit: Duration) -> Option<ExitStatus> {
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

    /// Ends `mpirun` and its ranks: it is told to, and what is left of them then is killed.
    fn kill(&mut self) {
        let pid = Pid::from_child(&self.child);
        // Each rank is a process group of its own, and would outlive the one that started it.
        let ranks = descendants(pid);
        let _ = kill_process_group(pid, Signal::TERM);
        if self.end_within(END_MAX).is_none() {
            let _ = kill_process_group(pid, Signal::KILL);
            for rank in ranks {
                // Fails for those that have ended.
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

/// The processes that a process has started, and those that they have started.
fn descendants(pid: Pid) -> Vec<Pid> {
    let number = pid.as_raw_nonzero();
    let threads = fs::read_dir(format!("/proc/{number}/task")).into_iter().flatten().flatten();
    let children =
        threads.map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    let children = children.collect::<Vec<_>>().join(" ");
    let children = children.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?));
    children.flat_map(|child| [vec![child], descendants(child)].concat()).collect()
}

/// Everything that comes out of a pipe, once it is closed.
fn text(mut pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, text) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is shown all the same, and nobody may be there to see it.
        let _ = pipe.read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    text
}

#[test]
fn ranks_that_take_too_long_are_ended() {
    for mpi in Mpi::ALL {
        if mpi.launcher().is_some() {
            end_of_ranks_that_take_too_long(mpi);
        }
    }
}

fn end_of_ranks_that_take_too_long(mpi: Mpi) {
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut running = Running::start(Launch::over(mpi, "shm", 2).command().args(["sleep", LONG]), turn);
    let deadline = Instant::now() + RUN_MAX;
    let ranks = loop {
        let mut ranks = descendants(Pid::from_child(&running.child));
        ranks.retain(|rank| sleeps_long(*rank));
        if ranks.len() == 2 {
            break ranks;
        }
        assert!(Instant::now() < deadline, "only {} ranks have started", ranks.len());
        thread::sleep(INTERVAL);
    };
    assert!(running.end_within(Duration::ZERO).is_none(), "it has ended by itself");
    running.kill();
    for rank in ranks {
        assert!(!sleeps_long(rank), "rank {rank:?} still runs");
    }
}

/// How many seconds a rank sleeps that is not to end by itself: longer than any test.
const LONG: &str = "98765";

/// Whether a process is such a rank.
fn sleeps_long(pid: Pid) -> bool {
    let command = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    command == format!("sleep\0{LONG}\0").into_bytes()
}
