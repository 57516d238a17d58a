//! Messages of an application that makes no further call: it waits for something else.

use std::io::{self, Read, Write};
use std::thread;

use homespun_fi::abi::FI_ADDR_UNSPEC;
use homespun_fi::abi::eq::FiCqTaggedEntry;

use crate::host::{Node, Pair, numbered_context, wait_until};

/// An endpoint that another thread uses.
struct SentNode<'a>(&'a Node);

// SAFETY: the plugin's functions may be called from any thread.
unsafe impl Send for SentNode<'_> {}

impl SentNode<'_> {
    fn try_read(&self) -> Option<usize> {
        match self.0.try_read::<FiCqTaggedEntry>() {
            Ok((entry, _)) => Some(entry.len),
            Err(error) => {
                assert_eq!(error, -11, "fi_cq_read");
                None
            }
        }
    }
}

fn post_recv(node: &Node, room: &mut [u8]) {
    let ep = node.ep.as_ptr();
    // SAFETY: the endpoint is open, and the room lives until the completion is read.
    let posted = unsafe {
        let recv = (*(*ep).msg).recv;
        let (at, len_bytes) = (room.as_mut_ptr().cast(), room.len());
        recv(ep, at, len_bytes, std::ptr::null_mut(), FI_ADDR_UNSPEC, numbered_context(1))
    };
    assert_eq!(posted, 0);
}

fn inject(pair: &Pair, message: &[u8]) {
    let ep = pair.left.ep.as_ptr();
    // SAFETY: the endpoint is open, and the call copies the message.
    let sent = unsafe {
        let inject = (*(*ep).msg).inject;
        inject(ep, message.as_ptr().cast(), message.len(), pair.to_right)
    };
    assert_eq!(sent, 0);
}

/// Injects messages, and then blocks in read(2) until the peer has them all. If frames stayed in the memory
/// of this process, the peer would wait in vain.
fn inject_and_read_pipe(count: usize) {
    let pair = Pair::from_nodes(Node::open(), Node::open());
    let mut rooms = vec![[0; 8]; count + 1];
    rooms.iter_mut().for_each(|room| post_recv(&pair.right, room));
    // The first message brings the link up.
    inject(&pair, b"first");
    pair.read_completions(0, 1);
    let (mut reader, mut writer) = io::pipe().expect("two descriptors");
    let right = SentNode(&pair.right);
    thread::scope(|scope| {
        let peer = scope.spawn(move || {
            let right = right;
            let mut lens = Vec::new();
            wait_until(|| {
                lens.extend(right.try_read());
                lens.len() == count
            });
            writer.write_all(b"!").expect("the reader waits");
            lens
        });
        (1..=count).for_each(|len_bytes| inject(&pair, &b"message."[..len_bytes]));
        let mut told = [0];
        reader.read_exact(&mut told).expect("the messages have arrived");
        assert_eq!(peer.join().expect("no panic"), Vec::from_iter(1..=count));
    });
}

#[test]
fn two_injects_before_a_blocking_read_of_a_pipe_arrive() {
    inject_and_read_pipe(2);
}

#[test]
fn held_injects_before_a_blocking_read_of_a_pipe_arrive() {
    for count in [3, 8] {
        inject_and_read_pipe(count);
    }
}
