//! The rules of `fi_cq(3)` for the memory of completed operations, and for ignored arguments.

use std::ptr;

use homespun_fi::abi::FI_ADDR_UNSPEC;
use homespun_fi::abi::FI_CQ_FORMAT_TAGGED;
use homespun_fi::abi::endpoint::FiMsg;
use homespun_fi::abi::eq::FiCqTaggedEntry;
use libc::iovec;

use crate::host::{API_VERSION, Node, Pair, numbered_context};
use crate::messages::patterned_error_entry;

const SEND: u64 = 1 << 11;
const RECV: u64 = 1 << 10;
const FI_INJECT_COMPLETE: u64 = 1 << 26;
const FI_DELIVERY_COMPLETE: u64 = 1 << 28;

const EAGAIN: isize = -11;

/// Message lengths for every protocol. All fit into the receiver's budget for unexpected messages.
const LENS_BYTES: [usize; 6] = [0, 8, 9000, 70_000, 300_000, 5 << 20];

/// Returns the message of this number, which repeats one byte.
fn make_message(number: usize, len_bytes: usize) -> Vec<u8> {
    vec![u8::try_from(number).expect("few messages") + 1; len_bytes]
}

fn send(pair: &Pair, message: &[u8], number: usize, flags: u64) {
    let part = iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: message.len() };
    let msg = FiMsg {
        msg_iov: &raw const part,
        desc: ptr::null_mut(),
        iov_count: 1,
        addr: pair.to_right,
        context: numbered_context(number),
        data: 0,
    };
    let ep = pair.left.ep.as_ptr();
    // SAFETY: the endpoint is open, and the message stays unchanged until the send completes.
    assert_eq!(unsafe { ((*(*ep).msg).sendmsg)(ep, &raw const msg, flags) }, 0);
}

/// Posts a receive. The test keeps the memory until the receive completes, and reads only delivered
/// bytes.
fn recv(node: &Node, room: *mut u8, len_bytes: usize, number: usize) {
    let ep = node.ep.as_ptr();
    // SAFETY: the endpoint is open, and the memory lives until the receive completes.
    let posted = unsafe {
        let recv = (*(*ep).msg).recv;
        recv(ep, room.cast(), len_bytes, ptr::null_mut(), FI_ADDR_UNSPEC, numbered_context(number))
    };
    assert_eq!(posted, 0);
}

/// Calls `fi_cq_read` for no entries. This makes progress, and leaves the completions in the queue.
fn make_progress(node: &Node) {
    let cq = node.cq.as_ptr();
    // SAFETY: the queue is open, and nothing is read.
    let read = unsafe { ((*(*cq).ops).read)(cq, ptr::null_mut(), 0) };
    assert!([0, EAGAIN].contains(&read), "{read}");
}

/// Waits for the next completion of the left endpoint, and drives the right endpoint meanwhile.
fn await_completion_at_left(pair: &Pair) -> FiCqTaggedEntry {
    let mut found = None;
    pair.wait_until(|pair| {
        make_progress(&pair.right);
        found = pair.left.try_read::<FiCqTaggedEntry>().ok();
        found.is_some()
    });
    found.expect("it was waited for").0
}

#[test]
fn source_may_be_overwritten_after_inject_complete() {
    let pair = Pair::open(API_VERSION, FI_CQ_FORMAT_TAGGED);
    for (number, len_bytes) in LENS_BYTES.into_iter().enumerate() {
        let mut message = make_message(number, len_bytes);
        send(&pair, &message, number, FI_INJECT_COMPLETE);
        let sent = await_completion_at_left(&pair);
        assert_eq!((sent.op_context, sent.flags & SEND), (numbered_context(number), SEND));
        // The application owns the buffer again, whether or not the message has been received.
        message.fill(0xff);
        let mut room = vec![0; len_bytes];
        recv(&pair.right, room.as_mut_ptr(), len_bytes, number);
        let [_, received] = pair.read_completions(0, 1);
        assert_eq!((received[0].0.op_context, received[0].0.len), (numbered_context(number), len_bytes));
        assert!(room == make_message(number, len_bytes), "{len_bytes} bytes were read after the completion");
    }
}

#[test]
fn delivered_message_is_in_the_buffer_that_was_posted_for_it() {
    let pair = Pair::open(API_VERSION, FI_CQ_FORMAT_TAGGED);
    for (number, len_bytes) in LENS_BYTES.into_iter().enumerate() {
        let message = make_message(number, len_bytes);
        let mut room = vec![0_u8; len_bytes];
        let start = room.as_mut_ptr();
        recv(&pair.right, start, len_bytes, number);
        send(&pair, &message, number, FI_DELIVERY_COMPLETE);
        assert_eq!(await_completion_at_left(&pair).op_context, numbered_context(number));
        // Only the sender's completion has been read. This completion alone guarantees that the bytes
        // have arrived.
        // SAFETY: the memory is alive, and delivered bytes are not written again.
        let there: Vec<u8> =
            (0..len_bytes).map(|place| unsafe { start.add(place).read_volatile() }).collect();
        assert!(there == message, "{len_bytes} bytes were not delivered");
        let [_, received] = pair.read_completions(0, 1);
        assert_eq!((received[0].0.op_context, received[0].0.flags & RECV), (numbered_context(number), RECV));
        drop(room);
    }
}

#[test]
fn readerr_ignores_its_flags() {
    let node = Node::open();
    let cq = node.cq.as_ptr();
    for flags in [0, 1, 1 << 19, u64::MAX] {
        let mut entry = patterned_error_entry();
        // SAFETY: the queue is open, and there is room for an entry.
        let mut readerr = || unsafe { ((*(*cq).ops).readerr)(cq, &raw mut entry, flags) };
        assert_eq!(readerr(), EAGAIN, "{flags:#x}");
        recv(&node, ptr::null_mut(), 0, 7);
        let ep = node.ep.as_ptr();
        // SAFETY: the endpoint is open.
        assert_eq!(unsafe { ((*(*ep).ops).cancel)(ep.cast(), numbered_context(7)) }, 0);
        assert_eq!((readerr(), readerr()), (1, EAGAIN), "the error is read, and read once: {flags:#x}");
        assert_eq!((entry.op_context, entry.err), (numbered_context(7), libc::ECANCELED));
    }
}

#[test]
fn strerror_ignores_error_data() {
    let node = Node::open();
    recv(&node, ptr::null_mut(), 0, 7);
    let (cq, ep) = (node.cq.as_ptr(), node.ep.as_ptr());
    // SAFETY: the endpoint is open.
    assert_eq!(unsafe { ((*(*ep).ops).cancel)(ep.cast(), numbered_context(7)) }, 0);
    let mut entry = patterned_error_entry();
    assert_eq!(node.read_error(&mut entry), 1);
    let text = node.error_text(entry.prov_errno);
    // The call ignores the data, so any pointer is valid.
    for data in
        [ptr::null(), entry.err_data.cast_const(), b"some".as_ptr().cast(), ptr::without_provenance(1)]
    {
        // SAFETY: the queue is open; the text is static.
        let said = unsafe {
            let strerror = (*(*cq).ops).strerror;
            std::ffi::CStr::from_ptr(strerror(cq, entry.prov_errno, data, ptr::null_mut(), 0))
        };
        assert_eq!(said, text);
    }
}
