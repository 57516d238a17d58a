//! What a test asks of the system that no safe interface has, such as what concerns all threads of the process.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use homespun::cq::MutexCond;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid};

/// Makes this process one of another user, for good.
pub(crate) fn become_user(uid: u32) {
    // SAFETY: these calls take numbers and no memory.
    let results = unsafe { [libc::setresgid(uid, uid, uid), libc::setresuid(uid, uid, uid)] };
    assert_eq!(results, [0; 2], "only the superuser may become another: {}", io::Error::last_os_error());
    // The system has forgotten it together with the rights.
    set_parent_process_death_signal(Some(Signal::KILL)).expect("Linux knows this");
}

/// Forks this process. The child does nothing: it ends at once, or lingers until standard input is closed at its other
/// end.
pub(crate) fn fork_idle_child(lingers: bool) {
    // SAFETY: the child makes system calls, on the stack alone, and exits without running anything that was registered.
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
    // SAFETY: ends the child and nothing else.
    unsafe { libc::_exit(0) };
}

/// Forks this process, has the child do some work, and waits until it has ended. Fails if the work did.
///
/// The child has the calling thread alone, so no other may be in the middle of something that the work needs.
pub(crate) fn in_forked_child(work: impl FnOnce()) {
    // SAFETY: the C library keeps its heap in order over a fork, and the caller answers for everything else that another
    // thread might have locked.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no child: {}", io::Error::last_os_error());
    if child == 0 {
        let has_failed = catch_unwind(AssertUnwindSafe(work)).is_err();
        // SAFETY: ends the child and nothing else.
        unsafe { libc::_exit(i32::from(has_failed)) };
    }
    let ended = waitpid(Pid::from_raw(child), WaitOptions::empty()).expect("a child");
    let (_, status) = ended.expect("it was waited for until the end");
    assert_eq!(status.exit_status(), Some(0), "the child has failed: {status:?}");
}

/// Has a child of this process stop where it is. Returns when it has.
pub(crate) fn stop(child: Pid) {
    kill_process(child, Signal::STOP).expect("it was not waited for");
    let stopped = waitpid(Some(child), WaitOptions::UNTRACED).expect("a child");
    let (_, status) = stopped.expect("it was waited for until it had stopped");
    assert!(status.stopped(), "the child did something else: {status:?}");
}

/// Has a child that was stopped go on.
pub(crate) fn resume(child: Pid) {
    kill_process(child, Signal::CONT).expect("it was not waited for");
}

/// How much of the heap is in use, in bytes, where the C library counts it.
pub(crate) fn heap_bytes() -> Option<u64> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: takes nothing and returns numbers.
        let info = unsafe { libc::mallinfo2() };
        Some((info.uordblks + info.hblkhd) as u64)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// Returns to the system what is free of the heap, where the C library knows how.
pub(crate) fn give_free_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes a number, and changes nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Waits for the condition, if it is still to be waited for once the mutex is held. Whether it was signalled, or was not to
/// be waited for.
pub(crate) fn wait_for_condition(
    of: MutexCond,
    at_most: Duration,
    is_to_be_waited_for: impl FnOnce() -> bool,
) -> bool {
    let then = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that is set") + at_most;
    let deadline = libc::timespec {
        tv_sec: libc::time_t::try_from(then.as_secs()).expect("not so long"),
        tv_nsec: then.subsec_nanos().into(),
    };
    // SAFETY: the queue that these belong to is open, says the caller.
    unsafe {
        assert_eq!(libc::pthread_mutex_lock(of.mutex), 0);
        let waited = if is_to_be_waited_for() {
            libc::pthread_cond_timedwait(of.cond, of.mutex, &raw const deadline)
        } else {
            0
        };
        assert_eq!(libc::pthread_mutex_unlock(of.mutex), 0);
        waited == 0
    }
}

/// How much processor time this thread, or this process, has used.
pub(crate) fn processor_time(of: libc::c_int) -> Duration {
    // SAFETY: all zeroes are a valid value of it, which the call overwrites.
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
