//! Multi-receive buffers, and the option for their release.

use std::{mem, ptr};

use homespun_fi::abi::endpoint::FiMsg;
use homespun_fi::abi::eq::{FiCqErrEntry, FiCqTaggedEntry};
use homespun_fi::abi::tagged::FiMsgTagged;
use homespun_fi::abi::{
    FI_ADDR_UNSPEC, FI_CQ_FORMAT_TAGGED, FI_OPT_CM_DATA_SIZE, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV,
    FI_RECV, FI_SETOPSFLAG,
};
use libc::{c_int, c_void, iovec};

use crate::host::{API_VERSION, CqEntry, Node, Pair, Plugin, numbered_context};

const MSG: u64 = 1 << 1;
const TAGGED: u64 = 1 << 3;
const RECV: u64 = 1 << 10;
const MULTI_RECV: u64 = 1 << 16;

const EINVAL: c_int = -22;
const EAVAIL: isize = -259;
const ECANCELED: c_int = 125;
const ENOPROTOOPT: c_int = -92;
const ETOOSMALL: c_int = -257;

/// An aligned buffer.
#[repr(align(8))]
struct Memory([u8; 64]);

fn recvmsg(node: &Node, memory: &mut [u8], pieces: usize, number: usize) -> isize {
    let ep = node.ep.as_ptr();
    let parts: Vec<iovec> = memory
        .chunks_mut(memory.len() / pieces)
        .map(|part| iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() })
        .collect();
    let msg = FiMsg {
        msg_iov: parts.as_ptr(),
        desc: ptr::null_mut(),
        iov_count: parts.len(),
        addr: FI_ADDR_UNSPEC,
        context: numbered_context(number),
        data: 0,
    };
    // SAFETY: the endpoint is open, and the memory lives until the buffer is released.
    unsafe { ((*(*ep).msg).recvmsg)(ep, &raw const msg, MULTI_RECV) }
}

fn inject<E: CqEntry>(pair: &Pair<E>, message: &'static [u8]) {
    let ep = pair.left.ep.as_ptr();
    // SAFETY: the endpoint is open, and the message is static.
    let sent = unsafe {
        let inject = (*(*ep).msg).inject;
        inject(ep, message.as_ptr().cast(), message.len(), pair.to_right)
    };
    assert_eq!(sent, 0);
}

fn getopt(node: &Node, level: c_int, name: c_int, value: *mut usize, len: *mut usize) -> c_int {
    let ep = node.ep.as_ptr();
    // SAFETY: the endpoint is open; the other pointers are null or valid.
    unsafe { ((*(*ep).ops).getopt)(ep.cast(), level, name, value.cast(), len) }
}

fn setopt(node: &Node, level: c_int, name: c_int, value: *const usize, len: usize) -> c_int {
    let ep = node.ep.as_ptr();
    // SAFETY: the endpoint is open; the value is null or valid for `len` bytes.
    unsafe { ((*(*ep).ops).setopt)(ep.cast(), level, name, value.cast(), len) }
}

fn set_min_multi_recv(node: &Node, bytes: usize) {
    let len = size_of::<usize>();
    assert_eq!(setopt(node, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &raw const bytes, len), 0);
}

/// Returns the offset and length of an entry's message in its buffer.
fn offset_and_len(memory: &Memory, buf: *mut c_void, len: usize) -> (usize, usize) {
    (buf.addr() - memory.0.as_ptr().addr(), len)
}

#[test]
fn release_without_a_message_has_no_buffer() {
    let pair: Pair = Pair::open(API_VERSION, FI_CQ_FORMAT_TAGGED);
    set_min_multi_recv(&pair.right, 0);
    let (mut first, mut second) = (Memory([0; 64]), Memory([0; 64]));
    assert_eq!(recvmsg(&pair.right, &mut first.0, 1, 5), 0);
    assert_eq!(recvmsg(&pair.right, &mut second.0, 1, 6), 0);
    inject(&pair, &[1; 60]);
    inject(&pair, &[2; 60]);
    let [_, received] = pair.read_completions(0, 3);
    let told: Vec<_> = received.iter().map(|(entry, _)| (entry.op_context.addr(), entry.flags)).collect();
    assert_eq!(told, [(5, RECV | MSG), (5, MULTI_RECV), (6, RECV | MSG)]);
    let release = &received[1].0;
    assert!(release.buf.is_null() && (release.len, release.data, release.tag) == (0, 0, 0));
    assert_eq!(second.0[..60], [2; 60]);
    assert_eq!(received[1].1, FI_ADDR_UNSPEC);

    // Cancelling the other buffer releases it with an error.
    let ep = pair.right.ep.as_ptr();
    // SAFETY: the endpoint is open.
    assert_eq!(unsafe { ((*(*ep).ops).cancel)(ep.cast(), numbered_context(6)) }, 0);
    // SAFETY: all zeroes are an entry.
    let mut entry: FiCqErrEntry = unsafe { mem::zeroed() };
    pair.wait_until(|pair| pair.right.try_read::<FiCqTaggedEntry>().err() == Some(EAVAIL));
    assert_eq!(pair.right.read_error(&mut entry), 1);
    assert_eq!((entry.op_context, entry.err), (numbered_context(6), ECANCELED));
    assert_eq!(entry.flags, RECV | MSG | MULTI_RECV);
    assert!(entry.buf.is_null());
}

#[test]
fn multi_recv_may_be_the_default_of_untagged_receives() {
    let pair: Pair = Pair::open(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let mut flags = FI_RECV | MULTI_RECV;
    assert_eq!(pair.right.ep.control(FI_SETOPSFLAG, &raw mut flags), 0);
    set_min_multi_recv(&pair.right, 8);
    let ep = pair.right.ep.as_ptr();
    let mut memory = Memory([0; 64]);
    let buf = memory.0.as_mut_ptr().cast();
    // SAFETY: the endpoint is open, and the memory lives until the buffer is released.
    let posted =
        unsafe { ((*(*ep).msg).recv)(ep, buf, 64, ptr::null_mut(), FI_ADDR_UNSPEC, numbered_context(5)) };
    assert_eq!(posted, 0);
    inject(&pair, &[1; 30]);
    inject(&pair, &[2; 30]);
    let [_, received] = pair.read_completions(0, 2);
    let places: Vec<_> = received
        .iter()
        .map(|(entry, _)| (entry.flags, offset_and_len(&memory, entry.buf, entry.len)))
        .collect();
    assert_eq!(places, [(RECV | MSG, (0, 30)), (RECV | MSG | MULTI_RECV, (32, 30))]);
}

#[test]
fn invalid_multi_receive_buffers_are_refused() {
    let node = Node::open();
    let mut memory = Memory([0; 64]);
    assert_eq!(recvmsg(&node, &mut memory.0, 2, 5), EINVAL as isize);
}

#[test]
fn tagged_receive_ignores_multi_recv() {
    let pair: Pair = Pair::open(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let mut memory = Memory([0; 64]);
    let part = iovec { iov_base: memory.0.as_mut_ptr().cast(), iov_len: 64 };
    let msg = FiMsgTagged {
        msg_iov: &raw const part,
        desc: ptr::null_mut(),
        iov_count: 1,
        addr: FI_ADDR_UNSPEC,
        tag: 1,
        ignore: 0,
        context: numbered_context(5),
        data: 0,
    };
    let (left, right) = (pair.left.ep.as_ptr(), pair.right.ep.as_ptr());
    // SAFETY: the endpoint is open, and the memory lives until the completion is read.
    assert_eq!(unsafe { ((*(*right).tagged).recvmsg)(right, &raw const msg, MULTI_RECV) }, 0);
    let message = [7u8; 30];
    // SAFETY: the endpoint is open, and the message lives until the completion is read.
    let sent = unsafe {
        let buf = message.as_ptr().cast();
        ((*(*left).tagged).send)(left, buf, 30, ptr::null_mut(), pair.to_right, 1, numbered_context(6))
    };
    assert_eq!(sent, 0);
    let [_, received] = pair.read_completions(1, 1);
    let entry = &received[0].0;
    assert_eq!((entry.op_context.addr(), entry.flags, entry.len), (5, RECV | TAGGED, 30));
    assert_eq!(memory.0[..30], message);
}

#[test]
fn min_multi_recv_is_an_endpoint_option() {
    let node = Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED);
    let (mut value, mut len) = (0, size_of::<usize>());
    let read = |value: &mut usize, len: &mut usize| {
        getopt(&node, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, value, len)
    };
    assert_eq!((read(&mut value, &mut len), value, len), (0, 64, 8), "the default");
    set_min_multi_recv(&node, 1000);
    len = 100;
    assert_eq!((read(&mut value, &mut len), value, len), (0, 1000, 8));
    len = 7;
    assert_eq!((read(&mut value, &mut len), len), (ETOOSMALL, 8));

    let minimum = |value, len| setopt(&node, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, value, len);
    for len in [0, 4, 9] {
        assert_eq!(minimum(&raw const value, len), EINVAL);
    }
    assert_eq!(minimum(ptr::null(), 8), EINVAL);
    for (value, len) in [(ptr::null_mut(), &raw mut len), (&raw mut value, ptr::null_mut())] {
        assert_eq!(getopt(&node, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, value, len), EINVAL);
    }
    for (level, name) in [(FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE), (FI_OPT_ENDPOINT, -1), (1, 0), (-1, 0)] {
        assert_eq!(getopt(&node, level, name, &raw mut value, &raw mut len), ENOPROTOOPT);
        assert_eq!(setopt(&node, level, name, &raw const value, 8), ENOPROTOOPT);
    }
    len = 8;
    assert_eq!((read(&mut value, &mut len), value), (0, 1000), "nothing has changed");
}

#[test]
fn getinfo_offers_multi_recv() {
    for info in Plugin::get().loopback_infos().iter() {
        // SAFETY: answers have all their attributes.
        let rx_caps = unsafe { (*info.rx_attr).caps };
        assert!(info.caps & MULTI_RECV != 0 && rx_caps & MULTI_RECV != 0);
    }
}
