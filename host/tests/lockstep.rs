//! `Lockstep` endpoints over the plugin in the installed libfabric. Debian's `libfabric-bin` has the library.

use std::env;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use homespun::Errno;
use homespun_host::{Accepted, CallError, Completion, Libfabric, Lockstep, WaitObject};

/// The time limit of a message. It is longer than any message takes to reach a posted receive.
const PATIENCE: Duration = Duration::from_secs(60);

/// The size of the buffers, larger than messages that are injected.
const MESSAGE_BYTES: usize = 100_000;

/// Drives both endpoints until the message has arrived at `to`.
fn drive_until_received(from: &mut Lockstep, to: &mut Lockstep) -> (usize, u64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        from.read().expect("a queue without errors");
        if let Some(Completion::Received { len_bytes, tag }) = to.read().expect("a queue without errors") {
            return (len_bytes, tag);
        }
        assert!(Instant::now() < deadline, "no message comes");
    }
}

fn send_retrying(from: &mut Lockstep, to: &mut Lockstep, len_bytes: usize, tag: u64) -> Accepted {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(accepted) = from.try_send(len_bytes, tag).expect("a message is accepted") {
            return accepted;
        }
        for endpoint in [&mut *from, &mut *to] {
            assert_eq!(endpoint.read().expect("a queue without errors"), None);
        }
        assert!(Instant::now() < deadline, "no message is accepted");
    }
}

#[test]
fn lockstep_endpoints_exchange_one_message_at_a_time_and_sleep() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    // Cargo builds the plugin before its tests, and puts both into one directory.
    let plugin = env::current_exe().expect("this test's path").with_file_name("libhomespun_fi.so");
    symlink(plugin, directory.path().join("libhomespun_fi.so")).expect("a temporary directory");
    // SAFETY: this is the only test of this program, and no other thread accesses the environment.
    unsafe { env::set_var("FI_PROVIDER_PATH", directory.path()) };
    let libfabric = Libfabric::load("libfabric.so.1").expect("libfabric (Debian: libfabric-bin)");
    assert!(libfabric.tagged_info("no-such").expect("an answer").is_none());
    let info = libfabric.tagged_info("homespun").expect("an answer").expect("the plugin");

    let open = |wait_object| Lockstep::open(libfabric, &info, wait_object, MESSAGE_BYTES);
    let mut left = open(WaitObject::Descriptor).expect("an endpoint");
    let mut right = open(WaitObject::Unspecified).expect("an endpoint");
    assert!(left.cq_wait_fd().is_some() && right.cq_wait_fd().is_none());
    let no_peer = CallError { call: "fi_tsend", errno: Errno::ENOTCONN };
    assert_eq!(left.try_send(8, 7), Err(no_peer), "before set_peer");
    left.set_peer(&right.address().expect("a name")).expect("an address");
    right.set_peer(&left.address().expect("a name")).expect("an address");

    assert_eq!(right.try_post_receive(7), Ok(true));
    let busy = CallError { call: "fi_trecv", errno: Errno::EBUSY };
    assert_eq!(right.try_post_receive(8), Err(busy), "one receive at a time");
    assert_eq!(send_retrying(&mut left, &mut right, 8, 7), Accepted::Injected);
    assert_eq!(drive_until_received(&mut left, &mut right), (8, 7));

    assert_eq!(left.try_post_receive(9), Ok(true));
    // A longer message is sent with the length of the buffer.
    assert_eq!(send_retrying(&mut right, &mut left, MESSAGE_BYTES + 1, 9), Accepted::Posted);
    assert_eq!(drive_until_received(&mut right, &mut left), (MESSAGE_BYTES, 9));

    // Nothing is in flight, so only the time-out or a signal ends a sleep.
    while right.read().expect("a queue without errors").is_some() {}
    assert_eq!(right.sread_one(Duration::from_millis(1)), Ok(None));
    let wake_handle = right.wake_handle();
    wake_handle.wake().expect("homespun has signals");
    assert_eq!(right.sread_one(PATIENCE), Ok(None));
    let deadline = Instant::now() + PATIENCE;
    while !left.try_wait().expect("homespun has fi_trywait") {
        assert_eq!(left.read(), Ok(None));
        assert!(Instant::now() < deadline, "it is never safe to sleep");
    }
}
