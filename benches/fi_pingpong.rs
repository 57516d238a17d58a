//! Half round trips of an unmodified `fi_pingpong` over each of homespun's domains, over libfabric's own provider for the
//! same, and of a bare loop that does only what physics asks, side by side in one run.
//!
//! ```text
//! cargo build --release && cargo bench --bench fi_pingpong -- [shm|tcp|all] [ROUNDS] [SIZE ...]
//! ```
//!
//! Server and client are processes pinned to two processors. Every round measures every contender once; the tables have
//! the medians over the rounds, and their ratios. The bare loops are those of `homespun bench`: a ring of cache lines in
//! shared memory, one cross-memory copy by the receiver, a busy-polled socket. `FI_PINGPONG` names another `fi_pingpong`
//! than the installed one. Needs Debian's `libfabric-bin`, and `taskset` of util-linux.

#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

/// What is measured over one kind of link.
struct Comparison {
    /// The domain of homespun, and libfabric's provider for the same.
    domain: &'static str,
    /// The bare loop for messages below [`COPY_MIN_BYTES`], and for others.
    bare: [&'static str; 2],
    sizes: [usize; 4],
}

const COMPARISONS: [Comparison; 2] = [
    Comparison { domain: "shm", bare: ["ring-pingpong", "vm-pingpong"], sizes: [8, 4096, 65_536, 1 << 20] },
    Comparison { domain: "tcp", bare: ["tcp-pingpong", "tcp-pingpong"], sizes: [8, 4096, 65_536, 1 << 20] },
];

/// From this size on one copy across processes is what shared memory is compared with.
const COPY_MIN_BYTES: usize = 16 * 1024;

const ROUNDS: usize = 5;
const SERVER_CPU: &str = "0";
const CLIENT_CPU: &str = "1";

/// How long one measurement may take before it counts as failed.
const TIMEOUT: Duration = Duration::from_secs(60);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let (domain, numbers) = match arguments.split_first() {
        Some((first, rest)) if first.parse::<usize>().is_err() => (first.as_str(), rest),
        _ => ("all", &arguments[..]),
    };
    let numbers = numbers.iter().map(|number| number.parse()).collect::<std::result::Result<Vec<_>, _>>()?;
    let (rounds, sizes) = numbers.split_first().map_or((ROUNDS, &[][..]), |(rounds, sizes)| (*rounds, sizes));
    let meant = |comparison: &&Comparison| domain == "all" || domain == comparison.domain;
    for comparison in COMPARISONS.iter().filter(meant) {
        compare(comparison, rounds, if sizes.is_empty() { &comparison.sizes } else { sizes })?;
    }
    Ok(())
}

fn compare(comparison: &Comparison, rounds: usize, sizes: &[usize]) -> Result<()> {
    let domain = comparison.domain;
    println!(
        "{:>9} {:>14} {:>14} {:>18}   {:>13}   {:>18}",
        "bytes",
        "bare loop us",
        "homespun us",
        format!("libfabric {domain} us"),
        "homespun/bare",
        "homespun/libfabric"
    );
    for &size in sizes {
        let iterations =
            (400_000_000 / (size + 20_000)).clamp(200, 20_000) * if domain == "shm" { 5 } else { 1 };
        let bare = comparison.bare[usize::from(size >= COPY_MIN_BYTES)];
        let mut micros: [Vec<f64>; 3] = Default::default();
        for _ in 0..rounds {
            let context = |error| format!("{domain}, {size} bytes: {error}");
            micros[0].push(measure_bare(bare, size, iterations).map_err(context)?);
            micros[1].push(measure_provider("homespun", Some(domain), size, iterations).map_err(context)?);
            micros[2].push(measure_provider(domain, None, size, iterations).map_err(context)?);
        }
        let [bare, homespun, libfabric] = micros.map(median);
        println!(
            "{size:>9} {bare:>14.3} {homespun:>14.3} {libfabric:>18.3}   {:>13.2}   {:>18.2}",
            homespun / bare,
            homespun / libfabric
        );
    }
    println!();
    Ok(())
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// A child process that does not outlive its measurement.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Result<Process> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        Ok(Process(command.spawn()?))
    }

    /// What it printed, once it has ended.
    fn finish(mut self) -> Result<String> {
        let deadline = Instant::now() + TIMEOUT;
        while self.0.try_wait()?.is_none() {
            if Instant::now() > deadline {
                return Err("no end in sight".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let output = self.0.stdout.take().expect("the output is a pipe and was not taken before");
        Ok(io::read_to_string(output)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only where the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where the plugin and the `homespun` command are.
fn build_directory() -> Result<PathBuf> {
    let executable = env::current_exe()?;
    let directory = executable.parent().and_then(Path::parent).ok_or("no target directory")?;
    for needed in ["libhomespun_fi.so", "homespun"] {
        if !fs::exists(directory.join(needed))? {
            return Err(format!("{needed} is not built: cargo build --release").into());
        }
    }
    Ok(directory.to_owned())
}

fn measure_bare(way: &str, size: usize, iterations: usize) -> Result<f64> {
    let mut command = Command::new(build_directory()?.join("homespun"));
    command.args(["bare", way, "--size", &size.to_string(), "--iterations", &iterations.to_string()]);
    command.args(["--cores", &format!("{SERVER_CPU},{CLIENT_CPU}")]);
    let output = Process::start(&mut command)?.finish()?;
    output.trim().parse().map_err(|_| format!("homespun bare {way} measured nothing").into())
}

fn measure_provider(provider: &str, domain: Option<&str>, size: usize, iterations: usize) -> Result<f64> {
    let program = env::var_os("FI_PINGPONG").unwrap_or_else(|| "fi_pingpong".into());
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port().to_string();
    let directory = build_directory()?;
    let pingpong = |cpu: &str| {
        let mut command = Command::new("taskset");
        command.args(["-c", cpu]).arg(&program).env("FI_PROVIDER_PATH", &directory);
        command.args(["-p", provider, "-e", "rdm", "-S", &size.to_string(), "-I", &iterations.to_string()]);
        command.args(domain.iter().flat_map(|domain| ["-d", domain]));
        command
    };
    let _server = Process::start(pingpong(SERVER_CPU).args(["-B", &port]))?;
    // The server gives no sign when it listens; a client that comes early is refused and tries again.
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let client = Process::start(pingpong(CLIENT_CPU).args(["-P", &port, "127.0.0.1"]))?;
        let output = client.finish()?;
        if let Some(micros) = micros_per_transfer(&output, size) {
            return Ok(micros);
        }
        if Instant::now() > deadline {
            return Err(format!("fi_pingpong says: {output}").into());
        }
    }
}

/// From the column `MB/sec` of fi_pingpong's last line, which has more digits than `usec/xfer`.
fn micros_per_transfer(output: &str, size: usize) -> Option<f64> {
    let fields: Vec<&str> = output.lines().last()?.split_whitespace().collect();
    let megabytes_per_second: f64 = fields.get(5)?.parse().ok()?;
    Some(size as f64 / megabytes_per_second)
}
