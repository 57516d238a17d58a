//! Runs a program over a contender, and reads the times that it prints.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;
use std::{io, thread};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::contender::Contender;
use crate::installed::Installed;
use crate::{Case, Program, Result};

/// How long a program may run.
const RUN_MAX_TIME: Duration = Duration::from_secs(60);

/// How long a launcher may take to end its ranks.
const END_MAX_TIME: Duration = Duration::from_secs(5);

/// The sizes of NetPIPE that the table shows, in bytes.
const NETPIPE_SIZES_BYTES: [u64; 5] = [8, 1024, 8192, 65536, 1_048_576];

/// Runs the program of a case. Returns sizes in bytes and times in microseconds.
pub(crate) fn run(
    case: Case,
    contender: &Contender,
    installed: &Installed,
    program: &Path,
) -> Result<Vec<(u64, f64)>> {
    let mut command = contender.launcher(case.mpi, installed, case.ranks);
    command.arg(program);
    let times = installed.directory().join("netpipe.out");
    if case.program == Program::NetPipe {
        // Without perturbations, up to the largest size of the table.
        command.args(["-p", "0", "-u", "1048576", "-o"]).arg(&times);
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (output, errors) = (read_to_end(child.stdout.take()), read_to_end(child.stderr.take()));
    let is_in_time = await_end(&mut child)?;
    let (output, errors) = (output.join().unwrap_or_default(), errors.join().unwrap_or_default());
    if !is_in_time {
        return Err(format!("did not end within {} s", RUN_MAX_TIME.as_secs()).into());
    }
    if !child.wait()?.success() {
        let reason =
            errors.lines().find(|line| line.contains(|c: char| c.is_alphabetic())).unwrap_or("failed");
        return Err(reason.to_owned().into());
    }
    match case.program {
        Program::NetPipe => parse_netpipe(&fs::read_to_string(times)?),
        _ => parse_lines(&output),
    }
}

/// Lines of a size in bytes and a time in microseconds.
fn parse_lines(output: &str) -> Result<Vec<(u64, f64)>> {
    let parse = |line: &str| -> Option<(u64, f64)> {
        let (size, time) = line.split_once(' ')?;
        Some((size.parse().ok()?, time.parse().ok()?))
    };
    let lines: Option<Vec<_>> = output.lines().map(parse).collect();
    lines.filter(|lines| !lines.is_empty()).ok_or_else(|| format!("unknown output {output:?}").into())
}

/// Lines of a size in bytes, a rate, and half of a round trip in seconds.
fn parse_netpipe(output: &str) -> Result<Vec<(u64, f64)>> {
    let parse = |line: &str| -> Option<(u64, f64)> {
        let mut fields = line.split_whitespace();
        let (size, time_s) = (fields.next()?, fields.nth(1)?);
        Some((size.parse().ok()?, time_s.parse::<f64>().ok()? * 1e6))
    };
    let lines: Vec<_> = output.lines().filter_map(parse).collect();
    let shown = lines.into_iter().filter(|(size, _)| NETPIPE_SIZES_BYTES.contains(size)).collect::<Vec<_>>();
    if shown.is_empty() { Err("NetPIPE has written no times".into()) } else { Ok(shown) }
}

fn read_to_end(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut pipe) = pipe {
            let _read = pipe.read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// Waits until a launcher ends. Returns whether it has ended in time. If not, ends it: the launchers end
/// their ranks when they get SIGTERM.
fn await_end(child: &mut Child) -> io::Result<bool> {
    if has_ended_within(child, RUN_MAX_TIME)? {
        return Ok(true);
    }
    kill_process(Pid::from_child(child), Signal::TERM)?;
    if !has_ended_within(child, END_MAX_TIME)? {
        child.kill()?;
    }
    Ok(false)
}

fn has_ended_within(child: &Child, time: Duration) -> io::Result<bool> {
    let end = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let limit = Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: 0 };
    Ok(poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&limit))? > 0)
}
