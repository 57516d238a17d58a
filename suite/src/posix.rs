//! System calls without a safe interface that tests need. Some of them affect all threads of the process.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use homespun::cq::MutexCond;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid};

use super::deadline::Deadline;

/// Changes the user of this process, permanently.
pub fn become_user(uid: u32) {
    // SAFETY: these calls take numbers and no memory.
    let results = unsafe { [libc::setresgid(uid, uid, uid), libc::setresuid(uid, uid, uid)] };
    assert_eq!(results, [0; 2], "only the superuser may become another: {}", io::Error::last_os_error());
    // The change of the user has reset the parent-death signal.
    set_parent_process_death_signal(Some(Signal::KILL)).expect("Linux knows this");
}

/// Puts the processes that this thread starts later into a new PID namespace (`pid_namespaces(7)`). After
/// this call the thread cannot start threads.
///
/// # Errors
///
/// EPERM, unless this process is the superuser's.
pub fn put_children_into_pid_namespace() -> io::Result<()> {
    // SAFETY: the call takes a number, and affects only processes that this thread starts later.
    match unsafe { libc::unshare(libc::CLONE_NEWPID) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Forks this process. The child does nothing. A child that lingers ends when the other end of standard
/// input is closed. Otherwise the child ends at once.
pub fn fork_idle_child(lingers: bool) {
    // SAFETY: the child only makes system calls, uses only the stack, and exits without exit handlers.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no child: {}", io::Error::last_os_error());
    if child > 0 {
        return;
    }
    if lingers {
        let stdin = io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::RDHUP)];
        while let Err(rustix::io::Errno::INTR) = poll(&mut fds, None) {}
    }
    // SAFETY: the call ends the child and does nothing else.
    unsafe { libc::_exit(0) };
}

/// Forks this process, runs `work` in the child, and waits for the end of the child. Panics if `work`
/// panics.
///
/// The child has only the calling thread. So no other thread may hold a lock that `work` needs.
pub fn run_in_forked_child(work: impl FnOnce()) {
    // SAFETY: the C library keeps its heap consistent over a fork. The caller promises that no other thread
    // holds a lock that the work needs.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no child: {}", io::Error::last_os_error());
    if child == 0 {
        let has_failed = catch_unwind(AssertUnwindSafe(work)).is_err();
        // SAFETY: the call ends the child and does nothing else.
        unsafe { libc::_exit(i32::from(has_failed)) };
    }
    let ended = waitpid(Pid::from_raw(child), WaitOptions::empty()).expect("a child");
    let (_, status) = ended.expect("it was waited for until the end");
    assert_eq!(status.exit_status(), Some(0), "the child has failed: {status:?}");
}

/// Stops a child of this process. Returns when it has stopped.
pub fn stop_child(child: Pid) {
    kill_process(child, Signal::STOP).expect("it was not waited for");
    let stopped = waitpid(Some(child), WaitOptions::UNTRACED).expect("a child");
    let (_, status) = stopped.expect("it was waited for until it had stopped");
    assert!(status.stopped(), "the child did something else: {status:?}");
}

/// Resumes a stopped child.
pub fn resume_child(child: Pid) {
    kill_process(child, Signal::CONT).expect("it was not waited for");
}

/// Runs a wait in a thread of its own, and sends SIGUSR2 to this thread until the wait ends. Returns the
/// result of the wait. The signal has a handler that does nothing, with `SA_RESTART` or without.
///
/// A wait that no signal ends fails the test, but must have a timeout of its own, longer than
/// [`PATIENCE`](super::deadline::PATIENCE).
pub fn interrupt_wait<R: Send>(restarts: bool, wait: impl FnOnce() -> R + Send) -> R {
    extern "C" fn ignore(_: libc::c_int) {}
    // SAFETY: zeros are an action, and the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ignore as *const () as libc::sighandler_t;
        action.sa_flags = if restarts { libc::SA_RESTART } else { 0 };
        assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()), 0);
    }
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        let waiting = scope.spawn(move || {
            // SAFETY: every thread has an id.
            sender.send(unsafe { libc::pthread_self() }).expect("the test listens");
            wait()
        });
        let id = receiver.recv().expect("the thread has started");
        let deadline = Deadline::new();
        // A handler that runs before the thread sleeps ends no wait.
        while !waiting.is_finished() {
            // SAFETY: the thread was not joined.
            assert_eq!(unsafe { libc::pthread_kill(id, libc::SIGUSR2) }, 0);
            thread::sleep(Duration::from_millis(1));
            deadline.yield_or_panic("a signal handler to end a wait");
        }
        waiting.join().expect("no panic")
    })
}

/// Returns the used bytes of the heap, if the C library counts them.
pub fn heap_bytes() -> Option<u64> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the call takes no argument and returns numbers.
        let info = unsafe { libc::mallinfo2() };
        Some((info.uordblks + info.hblkhd) as u64)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// Returns free memory of the heap to the system, if the C library can.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call takes a number, and changes no memory in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Locks the mutex, and calls `needs_wait`. If `needs_wait` returns true, waits for the condition. Returns
/// false if the wait timed out, otherwise true.
pub fn wait_on_condition_variable(
    of: MutexCond,
    at_most: Duration,
    needs_wait: impl FnOnce() -> bool,
) -> bool {
    let then = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that is set") + at_most;
    let deadline = libc::timespec {
        tv_sec: libc::time_t::try_from(then.as_secs()).expect("not so long"),
        tv_nsec: then.subsec_nanos().into(),
    };
    // SAFETY: the caller promises that the queue that owns the mutex and the condition is open.
    unsafe {
        assert_eq!(libc::pthread_mutex_lock(of.mutex), 0);
        let waited = if needs_wait() {
            libc::pthread_cond_timedwait(of.cond, of.mutex, &raw const deadline)
        } else {
            0
        };
        assert_eq!(libc::pthread_mutex_unlock(of.mutex), 0);
        waited == 0
    }
}

/// Returns the processor time that this thread (`RUSAGE_THREAD`) or this process (`RUSAGE_SELF`) has used.
pub fn processor_time(of: libc::c_int) -> Duration {
    // SAFETY: all zeros are a valid `rusage`, which the call overwrites.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(of, &raw mut usage), 0);
        usage
    };
    [usage.ru_utime, usage.ru_stime]
        .into_iter()
        .map(|time| Duration::new(time.tv_sec.unsigned_abs(), time.tv_usec.unsigned_abs() as u32 * 1000))
        .sum()
}
