//! What a test asks of the system that no safe interface has, because all threads of the process are concerned.

use std::io;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, set_parent_process_death_signal};

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
