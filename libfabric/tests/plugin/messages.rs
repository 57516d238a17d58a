//! Messages between two endpoints of one process, and reads of their completions.

use std::ptr;

use homespun_fi::abi::endpoint::FiMsg;
use homespun_fi::abi::eq::{FiCqDataEntry, FiCqEntry, FiCqErrEntry, FiCqMsgEntry, FiCqTaggedEntry};
use homespun_fi::abi::{
    FI_ADDR_UNSPEC, FI_CQ_FORMAT_CONTEXT, FI_CQ_FORMAT_DATA, FI_CQ_FORMAT_MSG, FI_CQ_FORMAT_TAGGED,
    FI_CQ_FORMAT_UNSPEC, fi_version,
};
use libc::{c_void, iovec};

use crate::host::{API_VERSION, CqEntry, Node, Pair, numbered_context, wait_until};

const MSG: u64 = 1 << 1;
const RECV: u64 = 1 << 10;
const REMOTE_CQ_DATA: u64 = 1 << 17;

const EAGAIN: isize = -11;
const EAVAIL: isize = -259;

impl CqEntry for FiCqEntry {
    const EMPTY: Self = FiCqEntry { op_context: ptr::null_mut() };
}

impl CqEntry for FiCqMsgEntry {
    const EMPTY: Self = FiCqMsgEntry { op_context: ptr::null_mut(), flags: 0, len: 0 };
}

impl CqEntry for FiCqDataEntry {
    const EMPTY: Self =
        FiCqDataEntry { op_context: ptr::null_mut(), flags: 0, len: 0, buf: ptr::null_mut(), data: 0 };
}

fn open_pair() -> Pair {
    Pair::open(API_VERSION, FI_CQ_FORMAT_TAGGED)
}

fn recv(node: &Node, buf: &mut [u8], number: usize) {
    let ep = node.ep.as_ptr();
    // SAFETY: the endpoint is open, and the buffer lives until the completion is read.
    let posted = unsafe {
        let recv = (*(*ep).msg).recv;
        recv(
            ep,
            buf.as_mut_ptr().cast(),
            buf.len(),
            ptr::null_mut(),
            FI_ADDR_UNSPEC,
            numbered_context(number),
        )
    };
    assert_eq!(posted, 0);
}

fn send(node: &Node, message: &[u8], to: u64, number: usize) {
    let ep = node.ep.as_ptr();
    // SAFETY: the endpoint is open, and the message lives until the completion is read.
    let posted = unsafe {
        let send = (*(*ep).msg).send;
        send(ep, message.as_ptr().cast(), message.len(), ptr::null_mut(), to, numbered_context(number))
    };
    assert_eq!(posted, 0);
}

/// Sends a message with remote data. The queues have one format; returns the receiver's entry in this
/// format.
fn transfer_in_format<E: CqEntry>(format: u32) -> E {
    let pair = Pair::<E>::open(API_VERSION, format);
    let mut buf = [0; 16];
    recv(&pair.right, &mut buf, 7);
    let ep = pair.left.ep.as_ptr();
    // SAFETY: the endpoint is open, and the message is static.
    let posted = unsafe {
        let senddata = (*(*ep).msg).senddata;
        let text = b"hello".as_ptr().cast();
        senddata(ep, text, 5, ptr::null_mut(), 0xfeed, pair.to_right, numbered_context(1))
    };
    assert_eq!(posted, 0);
    let [_, mut received] = pair.read_completions(1, 1);
    assert_eq!(&buf[..5], b"hello");
    received.remove(0).0
}

#[test]
fn entries_have_the_format_of_their_queue() {
    assert_eq!(transfer_in_format::<FiCqEntry>(FI_CQ_FORMAT_CONTEXT).op_context, numbered_context(7));
    let flags = RECV | MSG | REMOTE_CQ_DATA;
    let entry: FiCqMsgEntry = transfer_in_format(FI_CQ_FORMAT_MSG);
    assert_eq!((entry.op_context, entry.flags, entry.len), (numbered_context(7), flags, 5));
    let entry: FiCqDataEntry = transfer_in_format(FI_CQ_FORMAT_DATA);
    assert_eq!(
        (entry.op_context, entry.flags, entry.len, entry.data),
        (numbered_context(7), flags, 5, 0xfeed)
    );
}

/// The bytes of memory that no entry was written to.
const PATTERN: u64 = 0x5a5a_5a5a_5a5a_5a5a;

/// Reads the completions of two sends by one call. Checks that the entries lie side by side, and that
/// the bytes after them are unchanged.
fn check_entry_size<E: CqEntry>(format: u32) {
    let pair = Pair::<E>::open(API_VERSION, format);
    let cq = pair.left.cq.as_ptr();
    let words = size_of::<E>() / size_of::<u64>();
    pair.wait_until(|pair| {
        for number in [7, 8] {
            send(&pair.left, b"hello", pair.to_right, number);
        }
        let (mut room, mut found) = ([PATTERN; 16], 0);
        wait_until(|| {
            room = [PATTERN; 16];
            // SAFETY: the queues are open, and there is room for two entries of any format. A read of no
            // entries only drives progress.
            let read = unsafe {
                let right = pair.right.cq.as_ptr();
                ((*(*right).ops).read)(right, ptr::null_mut(), 0);
                ((*(*cq).ops).read)(cq, room.as_mut_ptr().cast(), 2)
            };
            let count = usize::try_from(read).unwrap_or(0);
            assert!(room[count * words..].iter().all(|word| *word == PATTERN), "{count} entries: {room:x?}");
            found += count;
            found == 2
        });
        // If two reads returned one entry each, the loop sends another two messages.
        let both_by_one_read = room[words] != PATTERN;
        assert!(!both_by_one_read || [room[0], room[words]] == [7, 8], "{room:x?}");
        both_by_one_read
    });
}

#[test]
fn entries_take_the_size_of_their_format() {
    check_entry_size::<FiCqEntry>(FI_CQ_FORMAT_CONTEXT);
    check_entry_size::<FiCqMsgEntry>(FI_CQ_FORMAT_MSG);
    check_entry_size::<FiCqDataEntry>(FI_CQ_FORMAT_DATA);
    check_entry_size::<FiCqTaggedEntry>(FI_CQ_FORMAT_TAGGED);
}

/// With `FI_CQ_FORMAT_UNSPEC` an application cannot learn the format. It has room for the smallest
/// entry.
#[test]
fn unspecified_format_writes_the_smallest_entry() {
    let pair = Pair::<FiCqEntry>::open(API_VERSION, FI_CQ_FORMAT_UNSPEC);
    send(&pair.left, b"hello", pair.to_right, 7);
    let mut room =
        [FiCqEntry { op_context: ptr::null_mut() }, FiCqEntry { op_context: numbered_context(99) }];
    // SAFETY: the queue is open, and there is room for one entry of the smallest format.
    let count =
        unsafe { ((*(*pair.left.cq.as_ptr()).ops).read)(pair.left.cq.as_ptr(), room.as_mut_ptr().cast(), 1) };
    assert_eq!(count, 1);
    assert_eq!([room[0].op_context, room[1].op_context], [numbered_context(7), numbered_context(99)]);
}

#[test]
fn read_returns_at_most_the_entries_asked_for() {
    let pair = open_pair();
    let mut bufs = [[0; 1]; 4];
    for (number, buf) in bufs.iter_mut().enumerate() {
        recv(&pair.right, buf, number);
        send(&pair.left, &[number as u8], pair.to_right, 0);
    }
    let mut entries = [FiCqTaggedEntry::EMPTY; 8];
    let mut found = Vec::new();
    let (right, left) = (pair.right.cq.as_ptr(), pair.left.cq.as_ptr());
    pair.wait_until(|_| {
        // SAFETY: the queues are open, and there is room for more entries than the call requests.
        let read = unsafe {
            // A read of no entries only drives progress.
            let driven = ((*(*left).ops).read)(left, ptr::null_mut(), 0);
            assert!(driven == 0 || driven == EAGAIN, "{driven}");
            ((*(*right).ops).read)(right, entries.as_mut_ptr().cast(), 3)
        };
        assert!(read <= 3);
        let count = usize::try_from(read).unwrap_or(0);
        found.extend(entries[..count].iter().map(|entry| entry.op_context.addr()));
        found.len() == 4
    });
    assert_eq!(found, [0, 1, 2, 3]);
    assert!(entries[3..].iter().all(|entry| entry.op_context.is_null()));
    // SAFETY: the queue is open.
    assert_eq!(unsafe { ((*(*right).ops).read)(right, ptr::null_mut(), 1) }, -22);
}

/// Returns an error entry filled with a known pattern.
pub(crate) fn patterned_error_entry() -> FiCqErrEntry {
    FiCqErrEntry {
        op_context: ptr::null_mut(),
        flags: 0,
        len: 99,
        buf: ptr::dangling_mut(),
        data: 99,
        tag: 99,
        olen: 99,
        err: 99,
        prov_errno: 99,
        err_data: ptr::dangling_mut(),
        err_data_size: 0,
        src_addr: 99,
    }
}

/// Opens a pair. The next entry of the right queue is the error of a truncated message.
fn open_pair_with_truncation_error(api_version: u32, buf: &mut [u8; 3]) -> Pair {
    let pair = Pair::open(api_version, FI_CQ_FORMAT_TAGGED);
    recv(&pair.right, buf, 7);
    send(&pair.left, b"too long", pair.to_right, 1);
    pair.wait_until(|pair| {
        let _ = pair.left.try_read::<FiCqTaggedEntry>();
        match pair.right.try_read::<FiCqTaggedEntry>() {
            Err(EAGAIN) => false,
            other => {
                assert_eq!(other.err(), Some(EAVAIL));
                true
            }
        }
    });
    pair
}

#[test]
fn truncation_error_gives_the_excess_length() {
    let mut buf = [0; 3];
    let pair = open_pair_with_truncation_error(fi_version(1, 20), &mut buf);
    let mut entry = patterned_error_entry();
    assert_eq!(pair.right.read_error(&mut entry), 1);
    assert_eq!((entry.err, entry.olen, entry.len), (265, 5, 3));
    assert_eq!((entry.op_context, entry.flags, entry.tag), (numbered_context(7), RECV | MSG, 0));
    assert!(entry.buf.is_null() && entry.err_data.is_null());
    assert_eq!((entry.err_data_size, entry.src_addr), (0, pair.to_left));
    assert_eq!(&buf, b"too");
    let said = pair.right.error_text(entry.prov_errno).to_str().unwrap();
    assert!(said.contains("longer than the buffer"), "{said}");
    assert_eq!(pair.right.read_error(&mut entry), EAGAIN);
    assert_eq!(pair.right.try_read::<FiCqTaggedEntry>().err(), Some(EAGAIN));
}

#[test]
fn receive_into_null_truncates_any_payload() {
    let pair = open_pair();
    let (right, none) = (pair.right.ep.as_ptr(), ptr::null_mut::<c_void>());
    // SAFETY: the endpoint is open; there is no memory to write to.
    unsafe {
        assert_eq!(((*(*right).msg).recv)(right, none, 1024, none, FI_ADDR_UNSPEC, numbered_context(7)), 0);
        let parts = [const { iovec { iov_base: ptr::null_mut(), iov_len: 1024 } }; 2];
        let recvv = (*(*right).msg).recvv;
        assert_eq!(recvv(right, parts.as_ptr(), none.cast(), 2, FI_ADDR_UNSPEC, numbered_context(8)), 0);
    }
    send(&pair.left, b"", pair.to_right, 1);
    let [_, received] = pair.read_completions(1, 1);
    assert_eq!((received[0].0.op_context, received[0].0.len), (numbered_context(7), 0));
    send(&pair.left, b"too long", pair.to_right, 2);
    pair.wait_until(|pair| {
        let _ = pair.left.try_read::<FiCqTaggedEntry>();
        pair.right.try_read::<FiCqTaggedEntry>().err() == Some(EAVAIL)
    });
    let mut entry = patterned_error_entry();
    assert_eq!(pair.right.read_error(&mut entry), 1);
    assert_eq!((entry.err, entry.olen, entry.op_context), (265, 8, numbered_context(8)));
}

#[test]
fn error_entry_is_written_to_the_size_of_the_api_version() {
    let mut buf = [0; 3];
    let mut entry = patterned_error_entry();
    let mut data = [0u8; 4];
    // Since 1.5 the entry may have a buffer, which stays unused here.
    entry.err_data = data.as_mut_ptr().cast();
    entry.err_data_size = data.len();
    assert_eq!(open_pair_with_truncation_error(API_VERSION, &mut buf).right.read_error(&mut entry), 1);
    assert_eq!((entry.err_data.cast_const(), entry.err_data_size), (data.as_ptr().cast::<c_void>(), 0));
    assert_eq!(entry.src_addr, 99);

    entry = patterned_error_entry();
    entry.err_data_size = 99;
    assert_eq!(open_pair_with_truncation_error(fi_version(1, 4), &mut buf).right.read_error(&mut entry), 1);
    assert!(entry.err_data.is_null());
    assert_eq!((entry.err_data_size, entry.src_addr), (99, 99));
}

#[test]
fn invalid_posts_are_refused() {
    let node = Node::open();
    let to = node.insert(&node.name());
    let ep = node.ep.as_ptr();
    let mut byte = [0u8];
    let parts = [const { iovec { iov_base: ptr::null_mut(), iov_len: 0 } }; 5];
    let none: *mut c_void = ptr::null_mut();
    let big = vec![0u8; 1 << 20];
    // SAFETY: the endpoint is open, and refused calls use no buffers.
    unsafe {
        let msg = &*(*ep).msg;
        let byte = byte.as_mut_ptr().cast();
        assert_eq!((msg.send)(ep, byte, 1, none, to + 1, none), -22, "an address that is not in the vector");
        assert_eq!((msg.send)(ep, ptr::null(), 1, none, to, none), -22, "null with a length");
        assert_eq!((msg.inject)(ep, ptr::null(), 1, to), -22, "null with a length");
        assert_eq!((msg.inject)(ep, big.as_ptr().cast(), big.len(), to), -90, "more than can be injected");
        assert_eq!((msg.sendv)(ep, parts.as_ptr(), none.cast(), 5, to, none), -22, "too many segments");
        assert_eq!(
            (msg.recvv)(ep, parts.as_ptr(), none.cast(), usize::MAX, to, none),
            -22,
            "too many segments"
        );
        assert_eq!((msg.sendv)(ep, ptr::null(), none.cast(), 1, to, none), -22, "no segments");
        assert_eq!((msg.sendmsg)(ep, ptr::null(), 0), -22, "no message");
        let triggered = FiMsg {
            msg_iov: parts.as_ptr(),
            desc: none.cast(),
            iov_count: 1,
            addr: to,
            context: none,
            data: 0,
        };
        assert_eq!(
            (msg.sendmsg)(ep, &raw const triggered, 1 << 20),
            -260,
            "FI_TRIGGER: the context is another"
        );
        assert_eq!(
            (msg.recvmsg)(ep, &raw const triggered, 1 << 20),
            -260,
            "FI_TRIGGER: the context is another"
        );
    }
}
