//! Sources that are not in the address vector: `FI_SOURCE_ERR`, and `err_data` of `fi_cq_readerr(3)`.

use std::ptr;

use homespun_fi::abi::domain::FiAvAttr;
use homespun_fi::abi::eq::{FiCqErrEntry, FiCqTaggedEntry};
use homespun_fi::abi::{FI_ADDR_NOTAVAIL, FI_ADDR_UNSPEC, FI_CQ_FORMAT_TAGGED, fi_version};

use crate::host::{API_VERSION, CqEntry, Node, Pair, av_attr, numbered_context, wait_until};
use crate::messages::patterned_error_entry;

/// `enum fi_av_type`.
const FI_AV_MAP: u32 = 1;
const FI_AV_TABLE: u32 = 2;

const EADDRNOTAVAIL: i32 = 99;
const EAGAIN: isize = -11;
const EAVAIL: isize = -259;
const FI_RECV_MSG_DATA: u64 = 1 << 10 | 1 << 1 | 1 << 17;

/// Posts a receive at `to`. Then injects a message with remote data, from `from` to `to`.
fn post_recv_and_send(from: &Node, to: &Node, buf: &mut [u8], number: usize) {
    let peer = from.insert(&to.name());
    let (left, right) = (from.ep.as_ptr(), to.ep.as_ptr());
    // SAFETY: the endpoints are open, and the memory lives until the completions are read.
    unsafe {
        let recv = (*(*right).msg).recv;
        let room = buf.as_mut_ptr().cast();
        let posted = recv(right, room, buf.len(), ptr::null_mut(), FI_ADDR_UNSPEC, numbered_context(number));
        assert_eq!(posted, 0);
        let injectdata = (*(*left).msg).injectdata;
        assert_eq!(injectdata(left, b"stranger".as_ptr().cast(), 8, 0xfeed, peer), 0);
    }
}

/// Waits until an error is at the head of the receiver's queue.
fn await_error_at_head(from: &Node, to: &Node) {
    wait_until(|| {
        assert_eq!(from.try_read::<FiCqTaggedEntry>().err(), Some(EAGAIN));
        match to.try_read::<FiCqTaggedEntry>() {
            Err(EAGAIN) => false,
            other => {
                assert_eq!(other.err(), Some(EAVAIL));
                true
            }
        }
    });
}

/// Opens a sender and a receiver. The next entry of the receiver's queue is the error of an unknown
/// source. Also returns the buffer of the failed receive.
fn open_with_unknown_source_error(api_version: u32) -> (Node, Node, Box<[u8; 16]>) {
    let (stranger, receiver) = (Node::open(), Node::open_reporting_unknown_sources(api_version));
    let mut buf = Box::new([0; 16]);
    post_recv_and_send(&stranger, &receiver, &mut *buf, 7);
    await_error_at_head(&stranger, &receiver);
    (stranger, receiver, buf)
}

fn check_unknown_source_error(entry: &FiCqErrEntry, buf: &[u8; 16]) {
    assert_eq!((entry.err, entry.olen), (EADDRNOTAVAIL, 0));
    assert_eq!((entry.op_context, entry.flags), (numbered_context(7), FI_RECV_MSG_DATA));
    assert_eq!((entry.len, entry.data, entry.tag), (8, 0xfeed, 0));
    assert_eq!(buf, b"stranger\0\0\0\0\0\0\0\0");
}

#[test]
fn unknown_source_error_contains_an_insertable_address() {
    let (stranger, receiver, buf) = open_with_unknown_source_error(fi_version(1, 20));
    let mut entry = patterned_error_entry();
    assert_eq!(receiver.read_error(&mut entry), 1);
    check_unknown_source_error(&entry, &buf);
    assert_eq!((entry.err_data_size, entry.src_addr), (16, FI_ADDR_NOTAVAIL));
    let said = receiver.error_text(entry.prov_errno).to_str().unwrap();
    assert!(said.contains("not in the address vector"), "{said}");

    // The address of the entry can be inserted as it is.
    let (av, mut known) = (receiver.av.as_ptr(), 99);
    // SAFETY: the error data is an address, and still valid.
    let inserted =
        unsafe { ((*(*av).ops).insert)(av, entry.err_data, 1, &raw mut known, 0, ptr::null_mut()) };
    assert_eq!((inserted, known), (1, 0));
    let mut buf = [0; 16];
    post_recv_and_send(&stranger, &receiver, &mut buf, 8);
    wait_until(|| {
        let _ = stranger.try_read::<FiCqTaggedEntry>();
        match receiver.try_read::<FiCqTaggedEntry>() {
            Ok((entry, source)) => {
                assert_eq!((entry.op_context, source), (numbered_context(8), known));
                true
            }
            Err(error) => error != EAGAIN,
        }
    });
}

#[test]
fn error_data_goes_into_the_applications_buffer() {
    for room_bytes in [28, 16, 4] {
        let (stranger, receiver, buf) = open_with_unknown_source_error(API_VERSION);
        let mut data = [0xffu8; 32];
        let mut entry = patterned_error_entry();
        (entry.err_data, entry.err_data_size) = (data.as_mut_ptr().cast(), room_bytes);
        assert_eq!(receiver.read_error(&mut entry), 1);
        check_unknown_source_error(&entry, &buf);
        let count_bytes = room_bytes.min(16);
        assert_eq!((entry.err_data.cast::<u8>(), entry.err_data_size), (data.as_mut_ptr(), count_bytes));
        assert_eq!(data[..count_bytes], stranger.name()[..count_bytes]);
        assert!(data[count_bytes..].iter().all(|&byte| byte == 0xff));
        assert_eq!(entry.src_addr, 99, "before 1.20 there is no such field");
    }
}

#[test]
fn error_data_without_a_buffer_stays_until_the_next_readerr() {
    for (api_version, has_size) in [(API_VERSION, true), (fi_version(1, 4), false)] {
        let (stranger, receiver, buf) = open_with_unknown_source_error(api_version);
        let mut entry = patterned_error_entry();
        entry.err_data_size = if has_size { 0 } else { 99 };
        assert_eq!(receiver.read_error(&mut entry), 1);
        check_unknown_source_error(&entry, &buf);
        assert_eq!(entry.err_data_size, if has_size { 16 } else { 99 });
        // Reads without an error leave the data alone.
        assert_eq!(receiver.read_error(&mut patterned_error_entry()), EAGAIN);
        // SAFETY: the provider keeps it until the next error is read.
        assert_eq!(unsafe { entry.err_data.cast::<[u8; 16]>().read() }, stranger.name());
    }
}

#[test]
fn readfrom_returns_the_source_of_each_entry() {
    let pair = Pair::<FiCqTaggedEntry>::open(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let mut bufs = [[0; 16]; 4];
    let [first @ .., last] = &mut bufs;
    for (number, buf) in first.iter_mut().enumerate() {
        post_recv_and_send(&pair.left, &pair.right, buf, number);
    }
    let cq = pair.right.cq.as_ptr();
    let mut entries = [FiCqTaggedEntry::EMPTY; 8];
    let mut found = 0;
    pair.wait_until(|pair| {
        assert_eq!(pair.left.try_read::<FiCqTaggedEntry>().err(), Some(EAGAIN));
        let mut sources = [99; 8];
        // SAFETY: the queue is open, and there is room for as many entries and sources.
        let read = unsafe {
            ((*(*cq).ops).readfrom)(cq, entries.as_mut_ptr().cast(), entries.len(), sources.as_mut_ptr())
        };
        let count = usize::try_from(read).unwrap_or(0);
        assert!(sources[..count].iter().all(|&source| source == pair.to_left));
        assert!(sources[count..].iter().all(|&source| source == 99), "no more sources than entries");
        found += count;
        found == 3
    });
    // Without an array for sources, `fi_cq_readfrom` returns entries alone.
    post_recv_and_send(&pair.left, &pair.right, last, 4);
    pair.wait_until(|pair| {
        assert_eq!(pair.left.try_read::<FiCqTaggedEntry>().err(), Some(EAGAIN));
        // SAFETY: the queue is open, and there is room for as many entries.
        unsafe {
            let readfrom = (*(*cq).ops).readfrom;
            readfrom(cq, entries.as_mut_ptr().cast(), entries.len(), ptr::null_mut()) == 1
        }
    });
}

#[test]
fn unknown_source_is_notavail_for_either_vector_type() {
    for av_type in [FI_AV_MAP, FI_AV_TABLE] {
        let mut attr = FiAvAttr { r#type: av_type, ..av_attr() };
        let node = || Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
        let (stranger, Node { ep, cq, av, eq, domain, fabric }) = (Node::open(), node());
        drop(av);
        let av = domain.open_av(&mut attr).expect("an address vector of either type");
        let receiver = Node { ep, cq, av, eq, domain, fabric }.bind_and_enable();
        let receive = |number| {
            let mut buf = [0; 16];
            post_recv_and_send(&stranger, &receiver, &mut buf, number);
            let mut found = None;
            wait_until(|| {
                assert_eq!(stranger.try_read::<FiCqTaggedEntry>().err(), Some(EAGAIN));
                found = receiver.try_read::<FiCqTaggedEntry>().ok();
                found.is_some()
            });
            let (entry, source) = found.expect("it was waited for");
            assert_eq!((entry.op_context, &buf[..8]), (numbered_context(number), &b"stranger"[..]));
            source
        };
        assert_eq!(receive(1), FI_ADDR_NOTAVAIL, "type {av_type}");
        let known = receiver.insert(&stranger.name());
        assert_eq!((known, receive(2)), (0, known), "type {av_type}: the first place of the vector");
    }
}

#[test]
fn strerror_truncates_its_text_to_the_buffer() {
    let (_stranger, receiver, _buf) = open_with_unknown_source_error(API_VERSION);
    let mut entry = patterned_error_entry();
    assert_eq!(receiver.read_error(&mut entry), 1);
    let whole = receiver.error_text(entry.prov_errno);
    for room_bytes in [0, 1, 5, 500] {
        let mut buf = [0x7f; 512];
        assert_eq!(receiver.error_text_in(entry.prov_errno, &mut buf[..room_bytes]), whole);
        let expected = whole.to_bytes().iter().copied().take(room_bytes.saturating_sub(1));
        let count_bytes = expected.clone().count();
        assert!(buf.iter().map(|&byte| byte as u8).take(count_bytes).eq(expected));
        if room_bytes > 0 {
            assert_eq!(buf[count_bytes], 0, "a text has an end");
        }
        assert!(buf[room_bytes..].iter().all(|&byte| byte == 0x7f));
    }
    for unknown in [0, -1, -99, 399, 511, 512, i32::MAX, i32::MIN] {
        assert_eq!(receiver.error_text(unknown), c"Unknown error");
    }
    assert_eq!(receiver.error_text(111), c"Connection refused");
}
