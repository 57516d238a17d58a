//! Worker processes. Each runs a share of the probes over one provider.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Arguments;
use crate::compare::OutcomeTable;
use crate::provider_case::{COLUMNS, ProviderCase, provider_cases};

/// The number of shares into which the probes are divided.
const SHARES: usize = 4;
/// The number of concurrent workers. It may exceed the number of processors, since probes mostly wait.
const WORKERS: usize = 8;
/// The number of concurrent workers in the second run, whose probes do little else than wait.
const WAITING: usize = 4 * WORKERS;

/// The time limit of a worker in seconds, ten times what the slowest worker takes on a busy machine. Probes
/// have their own limits. This limit ends a worker whose provider hangs before the first probe.
pub(crate) const WORKER_MAX_S: u32 = 600;

/// A worker prints this mark for a probe in which a wait timed out.
pub(crate) const TIMED_OUT: &str = "timed out";
/// A worker prints this mark for a probe without a time-out.
pub(crate) const NO_TIMEOUT: &str = "in time";

/// Parameters of rxm with which a pair connects in a few milliseconds instead of a hundred: the interval of
/// rxm's connection progress in microseconds, and the numbers and the size of the buffers that rxm allocates
/// for each connection. They do not change outcomes.
const RXM: [(&str, &str); 4] = [
    ("FI_OFI_RXM_CM_PROGRESS_INTERVAL", "100"),
    ("FI_OFI_RXM_MSG_TX_SIZE", "16"),
    ("FI_OFI_RXM_MSG_RX_SIZE", "16"),
    ("FI_OFI_RXM_BUFFER_SIZE", "1024"),
];

/// The results of the probes.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) table: OutcomeTable,
    /// The probes in which a wait timed out with some provider.
    pub(crate) timed_out: BTreeSet<String>,
}

impl Results {
    /// Replaces results of the first run by those of the second run.
    pub(crate) fn replace_with_rerun(&mut self, rerun: Results) {
        self.table.extend(rerun.table);
    }

    /// The providers without any outcome.
    pub(crate) fn missing_providers(&self) -> Vec<&'static str> {
        let is_missing = |column: &&str| !self.table.values().any(|row| row.contains_key(column));
        COLUMNS.into_iter().filter(is_missing).collect()
    }

    fn add_output_line(&mut self, case: &ProviderCase, line: &str) {
        let mut cells = line.splitn(3, '\t');
        let (Some(name), Some(time), Some(outcome)) = (cells.next(), cells.next(), cells.next()) else {
            return;
        };
        if time == TIMED_OUT {
            self.timed_out.insert(name.to_owned());
        }
        // Probes that do not depend on the endpoint type run once for each provider, except that they run
        // for both types of `tcp`. The first outcome counts.
        let row = self.table.entry(name.to_owned()).or_default();
        row.entry(case.name).or_insert_with(|| outcome.to_owned());
    }
}

/// Runs the selected probes over all providers. If `rerun` is given, runs those probes instead, with long
/// time-outs.
pub(crate) fn run_probes(arguments: &Arguments, rerun: Option<&[String]>) -> Results {
    if rerun.is_some_and(<[String]>::is_empty) {
        return Results::default();
    }
    let workers = if rerun.is_some() { WAITING } else { WORKERS };
    let rerun = rerun.unwrap_or_default();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let program = env::current_exe().expect("this test's path");
    // Cargo builds the plugin before its tests, and puts both into one directory.
    symlink(program.with_file_name("libhomespun_fi.so"), directory.path().join("libhomespun_fi.so"))
        .expect("a temporary directory");
    let jobs: Vec<(ProviderCase, usize)> =
        (0..SHARES).flat_map(|share| provider_cases().map(move |case| (case, share))).collect();
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(BTreeMap::<String, String>::new());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((case, share)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let text = run_worker_process(&program, arguments, rerun, case, *share, directory.path());
                    *answers.lock().expect("no worker panics").entry(case.id()).or_default() += &text;
                }
            });
        }
    });
    let answers = answers.into_inner().expect("no worker panics");
    let mut results = Results::default();
    for case in provider_cases() {
        answers[&case.id()].lines().for_each(|line| results.add_output_line(&case, line));
    }
    results
}

fn run_worker_process(
    program: &Path,
    arguments: &Arguments,
    rerun: &[String],
    case: &ProviderCase,
    share: usize,
    plugins: &Path,
) -> String {
    let mut command = Command::new(program);
    command.args(["--provider-case", &case.id(), "--libfabric", &arguments.libfabric]);
    command.args(["--share", &format!("{share}/{SHARES}")]);
    command.args(rerun.iter().flat_map(|probe| ["--rerun", probe]));
    // Outcomes must not depend on the caller's settings of libfabric, except for logging.
    let is_setting = |name: &str| name.starts_with("FI_") && !name.starts_with("FI_LOG_");
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_setting)) {
        command.env_remove(name);
    }
    command.args(&arguments.filters).env("FI_PROVIDER_PATH", plugins).envs(RXM);
    command.stdout(Stdio::piped());
    let output = command.output().expect("a worker");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // The missing output of a failed worker would leave unnoticed gaps in the table.
    assert!(output.status.success(), "the worker of {} ends with {}: {text}", case.id(), output.status);
    text
}
