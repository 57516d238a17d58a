//! Domains with automatic progress, and domains without locks.

use std::ptr;

use homespun::info::{Progress, Threading};
use homespun_fi::abi::FI_ADDR_UNSPEC;
use homespun_fi::abi::endpoint::FiMsg;
use homespun_fi::abi::eq::FiCqTaggedEntry;
use libc::iovec;

use crate::host::{Node, numbered_context, wait_until};

/// A length that no eager protocol covers.
const LEN_BYTES: usize = 200_000;

/// The completion level that waits until the receiver has the whole message.
const FI_DELIVERY_COMPLETE: u64 = 1 << 28;

/// Opens two endpoints; the first has the address of the second.
fn open_pair(threading: Threading, data_progress: Progress) -> (Node, Node, u64) {
    let (left, right) = (
        Node::open_with_threading_and_progress(threading, data_progress),
        Node::open_with_threading_and_progress(threading, data_progress),
    );
    let to_right = left.insert(&right.name());
    (left, right, to_right)
}

fn recv(node: &Node, room: &mut [u8]) {
    let ep = node.ep.as_ptr();
    // SAFETY: the endpoint is open, and the room lives until the completion is read.
    let posted = unsafe {
        let recv = (*(*ep).msg).recv;
        recv(ep, room.as_mut_ptr().cast(), room.len(), ptr::null_mut(), FI_ADDR_UNSPEC, numbered_context(1))
    };
    assert_eq!(posted, 0);
}

fn send(node: &Node, message: &[u8], to: u64) {
    let ep = node.ep.as_ptr();
    let iov = iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: message.len() };
    let msg = FiMsg {
        msg_iov: &raw const iov,
        desc: ptr::null_mut(),
        iov_count: 1,
        addr: to,
        context: numbered_context(2),
        data: 0,
    };
    // SAFETY: the endpoint is open, and the message lives until the completion is read.
    let posted = unsafe { ((*(*ep).msg).sendmsg)(ep, &raw const msg, FI_DELIVERY_COMPLETE) };
    assert_eq!(posted, 0);
}

fn read(node: &Node) -> Option<usize> {
    match node.try_read::<FiCqTaggedEntry>() {
        Ok((entry, _)) => Some(entry.op_context.addr()),
        Err(error) => {
            assert_eq!(error, -11, "fi_cq_read");
            None
        }
    }
}

#[test]
fn idle_peer_receives_under_automatic_progress() {
    let (left, right, to_right) = open_pair(Threading::Safe, Progress::Auto);
    let (message, mut room) = (vec![7; LEN_BYTES], vec![0; LEN_BYTES]);
    recv(&right, &mut room);
    send(&left, &message, to_right);
    wait_until(|| read(&left) == Some(2));
    // No call has read this queue before, so the progress thread has received the message.
    wait_until(|| read(&right) == Some(1));
    assert!(room == message);
}

#[test]
fn automatic_progress_accepts_any_threading() {
    let (left, right, to_right) = open_pair(Threading::Domain, Progress::Auto);
    let (message, mut room) = (vec![7; LEN_BYTES], vec![0; LEN_BYTES]);
    recv(&right, &mut room);
    send(&left, &message, to_right);
    wait_until(|| read(&left) == Some(2));
    wait_until(|| read(&right) == Some(1));
    assert!(room == message);
}

#[test]
fn domain_threading_delivers_messages_without_locks() {
    let (left, right, to_right) = open_pair(Threading::Domain, Progress::Manual);
    for len_bytes in [0, 8, LEN_BYTES] {
        let (message, mut room) = (vec![7; len_bytes], vec![0; len_bytes]);
        recv(&right, &mut room);
        send(&left, &message, to_right);
        let (mut is_sent, mut is_received) = (false, false);
        wait_until(|| {
            is_sent |= read(&left) == Some(2);
            is_received |= read(&right) == Some(1);
            is_sent && is_received
        });
        assert!(room == message);
    }
}
