//! Runs each probe in its own process, since providers crash and hang. A worker loads one provider, and forks
//! a process for each probe.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime};

use libc::{c_int, pid_t};

use crate::patience;
use crate::probes::Probe;
use crate::setup::Context;

/// The result of a probe.
#[derive(Debug)]
pub(crate) struct ProbeResult {
    pub(crate) outcome: String,
    /// Whether a wait of the probe timed out, which may be the fault of a busy machine.
    pub(crate) has_timed_out: bool,
}

/// The character before the outcome of a probe in which a wait timed out.
const TIMED_OUT_MARK: char = '~';

/// Runs a probe in a forked process, and returns its result.
pub(crate) fn run_forked(probe: &Probe, context: &Context) -> ProbeResult {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0, "a pipe");
    // SAFETY: the descriptors are new, and nothing else owns them.
    let [reader, writer] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    // The time stamps of files lag behind the clock by up to a tick.
    let forked_at = SystemTime::now() - Duration::from_millis(20);
    // SAFETY: a worker has one thread, so the child may call any function.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a process");
    if child == 0 {
        drop(reader);
        run_and_exit(probe, context, writer);
    }
    drop(writer);
    let has_ended = wait_readable(&reader, patience::probe_timeout());
    if !has_ended {
        // SAFETY: `child` is a child of this process, and nothing has waited for its end yet.
        unsafe { libc::kill(child, libc::SIGKILL) };
    }
    let mut status = 0;
    let mut text = String::new();
    if has_ended {
        let mut pipe = fs::File::from(reader);
        let _ = pipe.read_to_string(&mut text);
    }
    // SAFETY: as above.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    remove_shared_memory(child, forked_at);
    let has_timed_out = !has_ended || text.starts_with(TIMED_OUT_MARK);
    let text = text.trim_start_matches(TIMED_OUT_MARK);
    let outcome = match () {
        () if !has_ended => "hangs".to_owned(),
        () if !text.is_empty() => text.to_owned(),
        () if libc::WIFSIGNALED(status) => match libc::WTERMSIG(status) {
            libc::SIGSEGV | libc::SIGBUS => "crashes".to_owned(),
            libc::SIGABRT => "aborts".to_owned(),
            signal => format!("signal {signal}"),
        },
        () => format!("exits with {}", libc::WEXITSTATUS(status)),
    };
    ProbeResult { outcome, has_timed_out }
}

/// Called in the forked process: runs the probe, writes its outcome, and exits without closing anything.
fn run_and_exit(probe: &Probe, context: &Context, writer: OwnedFd) -> ! {
    // SAFETY: the process has one thread, so nothing else uses the standard streams or the signal handlers
    // while these calls change them.
    unsafe {
        // A crash must write no core dump. The output of a provider is discarded below.
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        // Reset handlers, since a provider that handles signals would catch its own crash.
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT, libc::SIGTERM, libc::SIGINT] {
            libc::signal(signal, libc::SIG_DFL);
        }
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY);
        libc::dup2(null, 1);
        libc::dup2(null, 2);
    }
    let text = catch_unwind(AssertUnwindSafe(|| (probe.run)(context))).unwrap_or_else(|panic| {
        let why = panic.downcast_ref::<String>().map(String::as_str);
        let why = why.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panic");
        format!("not tried: {why}")
    });
    let mut pipe = fs::File::from(writer);
    let mark = if patience::has_any_wait_timed_out() { String::from(TIMED_OUT_MARK) } else { String::new() };
    let _ = pipe.write_all((mark + &text).as_bytes());
    // SAFETY: the call has no precondition. It skips the destructors of providers, which may hang.
    unsafe { libc::_exit(0) }
}

fn wait_readable(pipe: &OwnedFd, limit: Duration) -> bool {
    let mut entry = libc::pollfd { fd: pipe.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the call gets one entry and the count 1.
    unsafe { libc::poll(&raw mut entry, 1, limit.as_millis() as c_int) > 0 }
}

/// Removes the files in `/dev/shm` that libfabric's shm provider has created in a process and left behind.
/// The provider names them `PROCESS:USER:ENDPOINT`. A file from before `forked_at` belongs to an earlier
/// process with the same process id, and stays.
fn remove_shared_memory(process: pid_t, forked_at: SystemTime) {
    let Ok(entries) = fs::read_dir("/dev/shm") else { return };
    // SAFETY: the call has no precondition.
    let user = unsafe { libc::getuid() };
    let prefix = format!("{process}:{user}:");
    for entry in entries.flatten() {
        let name = entry.file_name();
        let endpoint = name.to_str().and_then(|name| name.strip_prefix(&prefix));
        let is_name = endpoint.is_some_and(|index| index.parse::<u32>().is_ok());
        let is_of_process = is_name
            && entry
                .metadata()
                .is_ok_and(|file| file.uid() == user && file.modified().is_ok_and(|time| time >= forked_at));
        if is_of_process {
            let _ = fs::remove_file(entry.path());
        }
    }
}
