//! What a test asks of the system that no safe interface has, because all threads of the process are concerned.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

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
