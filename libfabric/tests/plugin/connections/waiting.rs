//! Blocking reads of an event queue, and its wait objects.

use std::mem::MaybeUninit;
use std::thread;

use homespun_fi::abi::eq::FiMutexCond;
use homespun_fi::abi::{FI_GETWAIT, FI_GETWAITOBJ, FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_UNSPEC};

use super::*;

/// The time-out of every wait, in milliseconds.
const PATIENCE_MS: c_int = 60_000;

/// A fixture that another thread may use too.
struct SharedFixture<'a>(&'a ConnectionFixture);

// SAFETY: the plugin's functions may be called from any thread.
unsafe impl Sync for SharedFixture<'_> {}

impl SharedFixture<'_> {
    /// `fi_eq_sread` of a connection event. Returns its number, or the error.
    fn sread(&self, timeout_ms: c_int) -> Result<u32, isize> {
        let (eq, mut number, mut room) = (self.0.eq.as_ptr(), 0, [0_u8; 1000]);
        // SAFETY: the queue is open, and the length is the buffer's.
        let read = unsafe {
            let sread = (*(*eq).ops).sread;
            sread(eq, &raw mut number, room.as_mut_ptr().cast(), room.len(), timeout_ms, 0)
        };
        if read < 0 {
            return Err(read);
        }
        drop(parse_event((read, number), &room));
        Ok(number)
    }
}

#[test]
fn blocking_reads_wake_for_events() {
    for wait_obj in [FI_WAIT_UNSPEC, FI_WAIT_FD, FI_WAIT_MUTEX_COND] {
        let desk = ConnectionFixture::open_with_eq_wait_obj(wait_obj);
        let shared = SharedFixture(&desk);
        assert_eq!(shared.sread(1), Err(EAGAIN));
        let (requester, _acceptor) = desk.open_pair();
        thread::scope(|scope| {
            let read = scope.spawn(|| shared.sread(PATIENCE_MS));
            assert_eq!(shutdown(&requester, 0), 0);
            assert_eq!(read.join().expect("no panic"), Ok(FI_SHUTDOWN));
        });
        assert_eq!(shared.sread(-1), Ok(FI_SHUTDOWN));
    }
    assert_eq!(
        SharedFixture(&ConnectionFixture::open()).sread(0),
        Err(EINVAL as isize),
        "it has no wait object"
    );
}

/// `fi_trywait` of the event queue.
fn trywait(desk: &ConnectionFixture) -> c_int {
    let (fabric, mut fids) = (desk.fabric.as_ptr(), [desk.eq.fid()]);
    // SAFETY: both objects are open.
    unsafe { ((*(*fabric).ops).trywait)(fabric, fids.as_mut_ptr(), 1) }
}

#[test]
fn descriptor_wakes_a_polling_thread() {
    let desk = ConnectionFixture::open_with_eq_wait_obj(FI_WAIT_FD);
    let (requester, _acceptor) = desk.open_pair();
    let mut fd: c_int = -1;
    assert_eq!(desk.eq.control(FI_GETWAIT, &raw mut fd), 0);
    let is_readable = |millis| {
        let mut asked = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: there is one `pollfd`.
        unsafe { libc::poll(&raw mut asked, 1, millis) > 0 }
    };
    wait_until(|| trywait(&desk) == 0);
    assert!(!is_readable(0), "nothing has happened");
    assert_eq!(shutdown(&requester, 0), 0);
    let mut room = [0; 1000];
    for _ in 0..2 {
        let mut read = desk.read_eq(&mut room, 0);
        while read.0 == EAGAIN {
            if trywait(&desk) == 0 {
                assert!(is_readable(PATIENCE_MS), "it was not woken");
            }
            read = desk.read_eq(&mut room, 0);
        }
        assert_eq!(parse_event(read, &room).number, FI_SHUTDOWN);
    }
}

#[test]
fn getwait_returns_the_wait_object_of_an_event_queue() {
    for wait_obj in [FI_WAIT_FD, FI_WAIT_MUTEX_COND, FI_WAIT_UNSPEC] {
        let desk = ConnectionFixture::open_with_eq_wait_obj(wait_obj);
        let mut of = MaybeUninit::<FiMutexCond>::uninit();
        assert_eq!(desk.eq.control(FI_GETWAIT, of.as_mut_ptr()), 0);
        assert_eq!(desk.eq.control::<c_void>(FI_GETWAIT, ptr::null_mut()), EINVAL);
        let mut found = 99_u32;
        assert_eq!((desk.eq.control(FI_GETWAITOBJ, &raw mut found), found), (0, wait_obj));
    }
    assert_eq!(trywait(&ConnectionFixture::open()), EINVAL, "it has no wait object");
}
