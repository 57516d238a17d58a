//! Completion queues in a domain without resource management.

use std::{mem, ptr};

use homespun_fi::abi::FI_ADDR_UNSPEC;
use homespun_fi::abi::eq::{FiCqErrEntry, FiCqTaggedEntry};

use crate::host::{Node, numbered_context, wait_until};

const EAGAIN: isize = -11;
const EAVAIL: isize = -259;
const EOVERRUN: isize = -268;

/// Posts and cancels a receive, which writes an error entry at once.
fn write_error_entry(node: &Node, number: usize) {
    let ep = node.ep.as_ptr();
    // SAFETY: the endpoint is open, and the receive has no memory.
    unsafe {
        let recv = (*(*ep).tagged).recv;
        let posted =
            recv(ep, ptr::null_mut(), 0, ptr::null_mut(), FI_ADDR_UNSPEC, 0, 0, numbered_context(number));
        assert_eq!(posted, 0);
        assert_eq!(((*(*ep).ops).cancel)(ep.cast(), numbered_context(number)), 0);
    }
}

/// Sends an empty message without a tag.
fn send_empty(node: &Node, to: u64, number: usize) {
    let ep = node.ep.as_ptr();
    // SAFETY: the endpoint is open, and the message has no memory.
    let posted =
        unsafe { ((*(*ep).msg).send)(ep, ptr::null(), 0, ptr::null_mut(), to, numbered_context(number)) };
    assert_eq!(posted, 0);
}

/// `fi_cq_read` of no entries, which drives progress and returns the state of the queue.
fn read_zero_entries(node: &Node) -> isize {
    let cq = node.cq.as_ptr();
    // SAFETY: the queue is open, and no room is needed.
    unsafe { ((*(*cq).ops).read)(cq, ptr::null_mut(), 0) }
}

fn try_read(node: &Node) -> Result<usize, isize> {
    node.try_read::<FiCqTaggedEntry>().map(|(entry, _)| entry.op_context.addr())
}

#[test]
fn overrun_queue_returns_its_entries_then_eoverrun_for_good() {
    let node = Node::open_without_resource_mgmt(2);
    let to = node.insert(&node.name());
    send_empty(&node, to, 1);
    wait_until(|| {
        let seen = read_zero_entries(&node);
        assert!([0, EAGAIN].contains(&seen), "{seen}");
        seen == 0
    });
    write_error_entry(&node, 2);
    write_error_entry(&node, 3);
    send_empty(&node, to, 4);

    // SAFETY: all zeroes are an entry.
    let mut entry: FiCqErrEntry = unsafe { mem::zeroed() };
    assert_eq!(node.read_error(&mut entry), EAGAIN, "a success is on top");
    assert_eq!(try_read(&node), Ok(1));
    assert_eq!(try_read(&node), Err(EAVAIL));
    assert_eq!(node.read_error(&mut entry), 1);
    assert_eq!((entry.op_context, entry.err), (numbered_context(2), 125));
    for number in 5..8 {
        assert_eq!(try_read(&node), Err(EOVERRUN));
        assert_eq!(read_zero_entries(&node), EOVERRUN);
        assert_eq!(node.read_error(&mut entry), EOVERRUN);
        // Posts still succeed, but report nothing.
        write_error_entry(&node, number);
    }
}

#[test]
fn errors_wait_for_room_under_resource_management() {
    let node = Node::open();
    // The queue has 64 entries.
    for number in 1..=100 {
        write_error_entry(&node, number);
    }
    // SAFETY: all zeroes are an entry.
    let mut entry: FiCqErrEntry = unsafe { mem::zeroed() };
    for number in 1..=100 {
        assert_eq!(try_read(&node), Err(EAVAIL));
        assert_eq!(node.read_error(&mut entry), 1);
        assert_eq!(entry.op_context, numbered_context(number));
    }
    assert_eq!((try_read(&node), node.read_error(&mut entry)), (Err(EAGAIN), EAGAIN));
}
