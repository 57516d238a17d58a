//! Half round trips of an unmodified `fi_pingpong` over homespun, over libfabric's own tcp provider, and of a raw
//! busy-polled TCP socket, side by side in one run.
//!
//! ```text
//! cargo build --release && cargo bench --bench fi_pingpong -- [ROUNDS] [SIZE ...]
//! ```
//!
//! Server and client are processes pinned to two processors. Every round measures every contender once; the table has
//! the medians over the rounds, and their ratio to the raw socket. `FI_PINGPONG` names another `fi_pingpong` than the
//! installed one. Needs Debian's `libfabric-bin`, and `taskset` of util-linux.

#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

/// What is measured.
#[derive(Clone, Copy)]
enum Contender {
    Raw,
    Provider(&'static str),
}

const CONTENDERS: [(&str, Contender); 3] = [
    ("raw socket", Contender::Raw),
    ("homespun", Contender::Provider("homespun")),
    ("libfabric tcp", Contender::Provider("tcp")),
];

const SERVER_CPU: &str = "0";
const CLIENT_CPU: &str = "1";

/// How long one measurement may take before it counts as failed.
const TIMEOUT: Duration = Duration::from_secs(60);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["raw-server", size, iterations] => raw_server(size.parse()?, iterations.parse()?),
        ["raw-client", port, size, iterations] => {
            raw_client(port.parse()?, size.parse()?, iterations.parse()?)
        }
        _ => compare(&arguments),
    }
}

fn compare(arguments: &[String]) -> Result<()> {
    let numbers =
        arguments.iter().map(|argument| argument.parse()).collect::<std::result::Result<Vec<_>, _>>()?;
    let (rounds, sizes) = match &numbers[..] {
        [] => (5, &[8, 4096, 65_536, 1_048_576][..]),
        [rounds] => (*rounds, &[8, 4096, 65_536, 1_048_576][..]),
        [rounds, sizes @ ..] => (*rounds, sizes),
    };
    print!("{:>9}", "bytes");
    for (name, _) in CONTENDERS {
        print!(" {:>20}", format!("{name} us"));
    }
    println!("   homespun/raw   homespun/tcp");
    for &size in sizes {
        let iterations = (400_000_000 / (size + 20_000)).clamp(200, 20_000);
        let mut micros: [Vec<f64>; CONTENDERS.len()] = Default::default();
        for _ in 0..rounds {
            for (samples, (name, contender)) in micros.iter_mut().zip(CONTENDERS) {
                let sample = match contender {
                    Contender::Raw => measure_raw(size, iterations),
                    Contender::Provider(provider) => measure_provider(provider, size, iterations),
                };
                samples.push(sample.map_err(|error| format!("{name}, {size} bytes: {error}"))?);
            }
        }
        let medians = micros.map(median);
        print!("{size:>9}");
        for median in medians {
            print!(" {median:>20.2}");
        }
        println!("   {:>12.2}   {:>12.2}", medians[1] / medians[0], medians[1] / medians[2]);
    }
    Ok(())
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// A child process that does not outlive its measurement.
struct Process(Child);

impl Process {
    fn start(cpu: &str, program: &Path, arguments: &[&str]) -> Result<Process> {
        let child = Command::new("taskset")
            .args(["-c", cpu])
            .arg(program)
            .args(arguments)
            .env("FI_PROVIDER_PATH", plugin_directory()?)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Process(child))
    }

    fn output(&mut self) -> BufReader<impl Read + use<>> {
        BufReader::new(self.0.stdout.take().expect("the output is a pipe and was not taken before"))
    }

    fn finish(mut self) -> Result<String> {
        let deadline = Instant::now() + TIMEOUT;
        while self.0.try_wait()?.is_none() {
            if Instant::now() > deadline {
                return Err("no end in sight".into());
            }
            std::thread::yield_now();
        }
        Ok(io::read_to_string(self.output())?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only where the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn plugin_directory() -> Result<PathBuf> {
    let executable = env::current_exe()?;
    let directory = executable.parent().and_then(Path::parent).ok_or("no target directory")?;
    if !fs::exists(directory.join("libhomespun_fi.so"))? {
        return Err("libhomespun_fi.so is not built: cargo build --release".into());
    }
    Ok(directory.to_owned())
}

fn measure_provider(provider: &str, size: usize, iterations: usize) -> Result<f64> {
    let program = PathBuf::from(env::var_os("FI_PINGPONG").unwrap_or_else(|| "fi_pingpong".into()));
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port().to_string();
    let (size, iterations) = (size.to_string(), iterations.to_string());
    let common = ["-p", provider, "-e", "rdm", "-S", &size, "-I", &iterations];
    let common: Vec<&str> = match provider {
        "homespun" => common.iter().chain(&["-d", "tcp"]).copied().collect(),
        _ => common.into(),
    };
    let _server = Process::start(SERVER_CPU, &program, &[&common[..], &["-B", &port]].concat())?;
    // The server gives no sign when it listens; a client that comes early is refused and tries again.
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let client =
            Process::start(CLIENT_CPU, &program, &[&common[..], &["-P", &port, "127.0.0.1"]].concat())?;
        let output = client.finish()?;
        if let Some(micros) = micros_per_transfer(&output) {
            return Ok(micros);
        }
        if Instant::now() > deadline {
            return Err(format!("fi_pingpong says: {output}").into());
        }
    }
}

/// The column `usec/xfer` of fi_pingpong's last line.
fn micros_per_transfer(output: &str) -> Option<f64> {
    let fields: Vec<&str> = output.lines().last()?.split_whitespace().collect();
    fields.get(6)?.parse().ok()
}

fn measure_raw(size: usize, iterations: usize) -> Result<f64> {
    let program = env::current_exe()?;
    let (size, iterations) = (size.to_string(), iterations.to_string());
    let mut server = Process::start(SERVER_CPU, &program, &["raw-server", &size, &iterations])?;
    let mut port = String::new();
    server.output().read_line(&mut port)?;
    let client = Process::start(CLIENT_CPU, &program, &["raw-client", port.trim(), &size, &iterations])?;
    Ok(client.finish()?.trim().parse()?)
}

fn raw_server(size: usize, iterations: usize) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    println!("{}", listener.local_addr()?.port());
    let mut stream = polled(listener.accept()?.0)?;
    let mut message = vec![0; size];
    for _ in 0..warm_up(iterations) + iterations {
        receive(&mut stream, &mut message)?;
        send(&mut stream, &message)?;
    }
    Ok(())
}

fn raw_client(port: u16, size: usize, iterations: usize) -> Result<()> {
    let mut stream = polled(TcpStream::connect((Ipv4Addr::LOCALHOST, port))?)?;
    let mut message = vec![0; size];
    let mut start = Instant::now();
    for round in 0..warm_up(iterations) + iterations {
        if round == warm_up(iterations) {
            start = Instant::now();
        }
        send(&mut stream, &message)?;
        receive(&mut stream, &mut message)?;
    }
    println!("{}", start.elapsed().as_secs_f64() * 1e6 / iterations as f64 / 2.0);
    Ok(())
}

/// As many rounds as fi_pingpong makes before it looks at the clock.
fn warm_up(iterations: usize) -> usize {
    iterations.min(10)
}

fn polled(stream: TcpStream) -> Result<TcpStream> {
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn send(stream: &mut TcpStream, mut message: &[u8]) -> Result<()> {
    while !message.is_empty() {
        match stream.write(message) {
            Ok(count) => message = &message[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn receive(stream: &mut TcpStream, message: &mut [u8]) -> Result<()> {
    let mut received = 0;
    while received < message.len() {
        match stream.read(&mut message[received..]) {
            Ok(0) => return Err("the peer has gone".into()),
            Ok(count) => received += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
