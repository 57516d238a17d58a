use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use homespun_engine::wire::Message;

use super::*;
use crate::limits::STAGING_MAX_BYTES;

/// A socket that takes the scripted number of bytes in each call. After the script, each call would block.
#[derive(Default)]
struct Script {
    steps: RefCell<VecDeque<Result<usize, Errno>>>,
    taken: RefCell<Vec<u8>>,
    calls: Cell<usize>,
    departures: RefCell<Vec<Departure>>,
    pushes: Cell<usize>,
}

impl Script {
    fn new(steps: &[Result<usize, Errno>]) -> Script {
        Script { steps: RefCell::new(steps.iter().copied().collect()), ..Script::default() }
    }

    fn push_result(&self, step: Result<usize, Errno>) {
        self.steps.borrow_mut().push_back(step);
    }
}

impl SendSocket for Script {
    fn send(&self, slices: &[IoSlice<'_>], departure: Departure) -> io::Result<usize> {
        self.departures.borrow_mut().push(departure);
        assert!(slices.iter().all(|slice| !slice.is_empty()), "an empty slice was offered");
        self.calls.set(self.calls.get() + 1);
        let step = self.steps.borrow_mut().pop_front().unwrap_or(Err(Errno::EAGAIN));
        let count = step.map_err(|errno| io::Error::from_raw_os_error(errno.raw()))?;
        let offered: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let count = count.min(offered.len());
        self.taken.borrow_mut().extend(&offered[..count]);
        Ok(count)
    }

    fn push(&self) -> io::Result<()> {
        self.pushes.set(self.pushes.get() + 1);
        Ok(())
    }
}

const HELLO: &[u8] = b"hello";
const LEN_BYTES: usize = INLINE_MAX_BYTES + 1;
const EVERYTHING: Result<usize, Errno> = Ok(usize::MAX);

fn make_header(len_bytes: usize) -> Header {
    Header::Message(Message { tag: Some(7), ..Message::of_len(len_bytes as u64) })
}

fn encode_header(len_bytes: usize) -> Vec<u8> {
    let mut bytes = [0; HEADER_MAX_BYTES];
    let count = frame::emit(&make_header(len_bytes), &mut bytes);
    bytes[..count].to_vec()
}

fn make_payload() -> Vec<u8> {
    (0..LEN_BYTES).map(|at| (at % 251) as u8).collect()
}

/// The bytes of the hello and one frame with the payload of [`make_payload`].
fn expected_stream() -> Vec<u8> {
    [HELLO, &encode_header(LEN_BYTES), &make_payload()].concat()
}

/// The sending half of a connected link, with the hello still staged.
fn make_connected() -> (Outbound, SpareBuffers) {
    make_outbound(true)
}

fn make_outbound(is_connected: bool) -> (Outbound, SpareBuffers) {
    let (mut outbound, mut spare) = (Outbound::new(is_connected), SpareBuffers::default());
    outbound.stage_bytes(HELLO, &mut spare);
    (outbound, spare)
}

#[test]
fn frame_cut_at_any_byte_arrives_whole() {
    let payload = make_payload();
    let stream = expected_stream();
    let head_bytes = stream.len() - HELLO.len() - LEN_BYTES;
    let cuts = (0..HELLO.len() + head_bytes + 3).chain([stream.len() - 1, stream.len()]);
    for cut in cuts {
        let (mut outbound, mut spare) = make_connected();
        let socket = Script::new(&[Ok(cut)]);
        let (first, second) = payload.split_at(100);
        let slices = [IoSlice::new(first), IoSlice::new(second)];
        let sent = outbound.send(&socket, &make_header(LEN_BYTES), &slices, &mut spare);

        let mut taken = match sent {
            Sent::Full => {
                assert!(cut <= HELLO.len(), "nothing of the frame was taken at {cut}");
                outbound.stage_frame(&socket, &make_header(0), &[], &mut spare).expect("a free link");
                outbound.staging.consume(encode_header(0).len(), &mut spare);
                continue;
            }
            Sent::Partial(taken) => {
                assert_eq!(taken, cut.saturating_sub(HELLO.len() + head_bytes), "cut at {cut}");
                assert!(!outbound.can_end_stream());
                taken
            }
            Sent::Whole => {
                assert_eq!(cut, stream.len());
                LEN_BYTES
            }
        };
        // Write the rest in small steps. Until the rest is written, the link takes no other frame.
        let mut steps = 0;
        while taken < LEN_BYTES {
            assert_eq!(outbound.stage_frame(&socket, &make_header(0), &[], &mut spare), Err(Full));
            assert_eq!(outbound.send(&socket, &make_header(0), &[], &mut spare), Sent::Full);
            socket.push_result(Ok(steps * 1000 + 1));
            outbound.mark_writable();
            match outbound.resume(&socket, &[IoSlice::new(&payload[taken..])], &mut spare) {
                Sent::Full => {}
                Sent::Partial(more) => taken += more,
                Sent::Whole => taken = LEN_BYTES,
            }
            steps += 1;
            assert!(steps < 100, "no end at cut {cut}");
        }
        assert!(outbound.can_end_stream());
        assert_eq!(*socket.taken.borrow(), stream, "cut at {cut}");
    }
}

#[test]
fn blocked_link_makes_no_system_call() {
    let ((mut outbound, mut spare), payload) = (make_connected(), make_payload());
    let socket = Script::new(&[Ok(1_000)]);
    let sent = outbound.send(&socket, &make_header(LEN_BYTES), &[IoSlice::new(&payload)], &mut spare);
    let Sent::Partial(taken) = sent else { panic!("{sent:?}") };
    for _ in 0..10 {
        let rest = [IoSlice::new(&payload[taken..])];
        assert_eq!(outbound.resume(&socket, &rest, &mut spare), Sent::Full);
        outbound.flush(&socket, Departure::Now, &mut spare);
    }
    assert_eq!(socket.calls.get(), 1);
    socket.push_result(EVERYTHING);
    outbound.mark_writable();
    assert_eq!(outbound.resume(&socket, &[IoSlice::new(&payload[taken..])], &mut spare), Sent::Whole);
    assert_eq!(socket.calls.get(), 2);
}

#[test]
fn hello_small_and_large_frames_leave_in_one_call() {
    let ((mut outbound, mut spare), payload) = (make_connected(), make_payload());
    let socket = Script::new(&[EVERYTHING]);
    outbound.stage_frame(&socket, &make_header(3), &[IoSlice::new(b"abc")], &mut spare).unwrap();
    let pieces = [IoSlice::new(b"d"), IoSlice::new(b""), IoSlice::new(b"ef")];
    assert_eq!(outbound.send(&socket, &make_header(3), &pieces, &mut spare), Sent::Whole);
    assert_eq!(socket.calls.get(), 0);
    let sent = outbound.send(&socket, &make_header(LEN_BYTES), &[IoSlice::new(&payload)], &mut spare);
    assert_eq!((sent, socket.calls.get()), (Sent::Whole, 1));
    let small = encode_header(3);
    let expected =
        [HELLO, &small, b"abc", &small, b"def", &encode_header(LEN_BYTES), payload.as_slice()].concat();
    assert_eq!(*socket.taken.borrow(), expected);
}

#[test]
fn full_staging_makes_room_by_writing() {
    let (mut outbound, mut spare) = make_connected();
    let socket = Script::default();
    let payload = [9; 1000];
    let mut count = 0;
    while outbound.stage_frame(&socket, &make_header(1000), &[IoSlice::new(&payload)], &mut spare).is_ok() {
        count += 1;
        assert!(count <= STAGING_MAX_BYTES / 1000, "more than the limit was taken");
    }
    assert!(count * (1000 + HEADER_MAX_BYTES) > STAGING_MAX_BYTES - 2 * (1000 + HEADER_MAX_BYTES));
    assert_eq!(socket.calls.get(), 1, "one attempt to make room");
    socket.push_result(EVERYTHING);
    outbound.mark_writable();
    outbound.stage_frame(&socket, &make_header(1000), &[IoSlice::new(&payload)], &mut spare).unwrap();
    assert_eq!(socket.calls.get(), 2);
}

#[test]
fn connecting_link_takes_and_writes_nothing() {
    let (mut outbound, mut spare) = make_outbound(false);
    let socket = Script::default();
    let large = make_payload();
    assert_eq!(outbound.stage_frame(&socket, &make_header(0), &[], &mut spare), Err(Full));
    assert_eq!(outbound.send(&socket, &make_header(1), &[IoSlice::new(b"x")], &mut spare), Sent::Full);
    let sent = outbound.send(&socket, &make_header(LEN_BYTES), &[IoSlice::new(&large)], &mut spare);
    assert_eq!(sent, Sent::Full);
    outbound.flush(&socket, Departure::Now, &mut spare);
    assert!(outbound.is_connecting() && socket.calls.get() == 0);
    socket.push_result(EVERYTHING);
    outbound.mark_writable();
    outbound.stage_frame(&socket, &make_header(0), &[], &mut spare).unwrap();
    outbound.flush(&socket, Departure::Now, &mut spare);
    assert!(outbound.can_end_stream() && socket.calls.get() == 1, "the hello leaves with the first frame");
    assert_eq!(*socket.taken.borrow(), [HELLO, &encode_header(0)].concat());
}

#[test]
fn failed_link_takes_and_writes_nothing() {
    let ((mut outbound, mut spare), payload) = (make_connected(), make_payload());
    let socket = Script::new(&[Err(Errno::EINTR), Err(Errno::EPIPE)]);
    outbound.flush(&socket, Departure::Now, &mut spare);
    assert_eq!((outbound.failure(), socket.calls.get()), (Some(Errno::EPIPE), 2));
    outbound.mark_writable();
    assert_eq!(outbound.stage_frame(&socket, &make_header(0), &[], &mut spare), Err(Full));
    let sent = outbound.send(&socket, &make_header(LEN_BYTES), &[IoSlice::new(&payload)], &mut spare);
    assert_eq!(sent, Sent::Full);
    outbound.flush(&socket, Departure::Now, &mut spare);
    assert_eq!(socket.calls.get(), 2);
    assert!(!outbound.can_end_stream());
}

#[test]
fn held_bytes_are_pushed_once() {
    let (mut outbound, mut spare) = make_connected();
    let socket = Script::new(&[EVERYTHING; 4]);
    outbound.flush(&socket, Departure::Now, &mut spare);
    outbound.push_held(&socket);
    assert_eq!(socket.pushes.get(), 0, "nothing is held");
    for _ in 0..2 {
        outbound.stage_frame(&socket, &make_header(0), &[], &mut spare).unwrap();
        outbound.flush(&socket, Departure::WithNext, &mut spare);
    }
    outbound.push_held(&socket);
    outbound.push_held(&socket);
    assert_eq!(socket.pushes.get(), 1);
    assert_eq!(*socket.departures.borrow(), [Departure::Now, Departure::WithNext, Departure::WithNext]);
}

#[test]
fn push_follows_a_write_that_the_kernel_refused() {
    let (mut outbound, mut spare) = make_connected();
    let socket = Script::new(&[EVERYTHING, Err(Errno::EAGAIN)]);
    outbound.flush(&socket, Departure::WithNext, &mut spare);
    outbound.stage_frame(&socket, &make_header(0), &[], &mut spare).unwrap();
    outbound.flush(&socket, Departure::Now, &mut spare);
    outbound.push_held(&socket);
    assert_eq!(socket.pushes.get(), 1, "the first bytes were still held");
}
