//! Posts: what C alone can get wrong, or leave out. What operations do is the subject of
//! `host/tests/semantics.rs`.

use std::ptr;

use homespun_fi::abi::FI_ADDR_UNSPEC;
use libc::{c_int, iovec};

use crate::host::{
    EBADFLAGS, EINVAL, EMSGSIZE, ENOENT, NULL, Node, TAG, call, messages, numbered_context, to_iovec,
};

const RECV: u64 = 1 << 10;
const TAGGED: u64 = 1 << 3;
const PEEK: u64 = 1 << 19;
const TRIGGER: u64 = 1 << 20;
const DISCARD: u64 = 1 << 58;
const CLAIM: u64 = 1 << 59;

#[test]
fn null_with_a_length_and_too_many_parts_are_refused() {
    let node = Node::open();
    let own = node.insert(&node.ep.name());
    let ep = &node.ep;
    let parts = [const { iovec { iov_base: NULL, iov_len: 0 } }; 5];
    let (iov, null, no_iov, descs) = (parts.as_ptr(), ptr::null(), ptr::null(), ptr::null_mut());
    let big = vec![0_u8; 1 << 20];
    let (big, big_bytes) = (big.as_ptr().cast(), big.len());
    let (no_iov_msg, no_iov_tagged) = messages(no_iov, 1, own, NULL);
    let (long_msg, long_tagged) = messages(iov, usize::MAX, own, NULL);
    let answers = [
        ("send", call!(ep, msg.send, null, 1, NULL, own, NULL), EINVAL),
        ("sendv", call!(ep, msg.sendv, no_iov, descs, 1, own, NULL), EINVAL),
        ("sendv of 5", call!(ep, msg.sendv, iov, descs, 5, own, NULL), EINVAL),
        ("sendmsg", call!(ep, msg.sendmsg, &raw const no_iov_msg, 0), EINVAL),
        ("sendmsg of many", call!(ep, msg.sendmsg, &raw const long_msg, 0), EINVAL),
        ("senddata", call!(ep, msg.senddata, null, 1, NULL, 0, own, NULL), EINVAL),
        ("inject", call!(ep, msg.inject, null, 1, own), EINVAL),
        ("inject of much", call!(ep, msg.inject, big, big_bytes, own), EMSGSIZE),
        ("inject of too much", call!(ep, msg.inject, big, usize::MAX, own), EMSGSIZE),
        ("injectdata", call!(ep, msg.injectdata, null, 1, 0, own), EINVAL),
        ("recvv", call!(ep, msg.recvv, no_iov, descs, 1, own, NULL), EINVAL),
        ("recvv of many", call!(ep, msg.recvv, iov, descs, usize::MAX, own, NULL), EINVAL),
        ("recvmsg", call!(ep, msg.recvmsg, &raw const no_iov_msg, 0), EINVAL),
        ("tsend", call!(ep, tagged.send, null, 1, NULL, own, TAG, NULL), EINVAL),
        ("tsendv", call!(ep, tagged.sendv, no_iov, descs, 1, own, TAG, NULL), EINVAL),
        ("tsendmsg", call!(ep, tagged.sendmsg, &raw const no_iov_tagged, 0), EINVAL),
        ("tsendmsg of many", call!(ep, tagged.sendmsg, &raw const long_tagged, 0), EINVAL),
        ("tinject", call!(ep, tagged.inject, null, 1, own, TAG), EINVAL),
        ("tinjectdata", call!(ep, tagged.injectdata, null, 1, 0, own, TAG), EINVAL),
        ("trecvv", call!(ep, tagged.recvv, no_iov, descs, 1, own, TAG, 0, NULL), EINVAL),
        ("write", call!(ep, rma.write, null, 1, NULL, own, 0, 0, NULL), EINVAL),
        ("read", call!(ep, rma.read, NULL, 1, NULL, own, 0, 0, NULL), EINVAL),
        ("writev of 5", call!(ep, rma.writev, iov, descs, 5, own, 0, 0, NULL), EINVAL),
        ("readv of many", call!(ep, rma.readv, iov, descs, usize::MAX, own, 0, 0, NULL), EINVAL),
        ("inject_write", call!(ep, rma.inject, null, 1, own, 0, 0), EINVAL),
        ("inject_writedata", call!(ep, rma.injectdata, null, 1, 0, own, 0, 0), EINVAL),
    ];
    for (call, answer, expected) in answers {
        assert_eq!(answer, expected as isize, "fi_{call}");
    }
}

#[test]
fn peek_reads_no_vector() {
    let node = Node::open();
    let own = node.insert(&node.ep.name());
    let mut room = [0; 8];
    let part = to_iovec(&mut room);
    // A count that would be refused.
    let (peek, tagged_peek) = messages(ptr::null(), usize::MAX, FI_ADDR_UNSPEC, numbered_context(1));
    let (message, tagged) = messages(&raw const part, 1, own, numbered_context(1));
    for (flags, expected) in
        [(PEEK | CLAIM | DISCARD, EINVAL), (CLAIM | DISCARD, ENOENT), (CLAIM, EINVAL), (PEEK, 0)]
    {
        let posted = call!(node.ep, msg.recvmsg, &raw const peek, flags) as c_int;
        let posted_tagged = call!(node.ep, tagged.recvmsg, &raw const tagged_peek, flags) as c_int;
        assert_eq!((posted, posted_tagged), (expected, expected), "{flags:#x}");
    }
    for flags in [0, RECV | TAGGED] {
        let failed = node.cq.await_error("the end of a peek", &node.cq);
        assert_eq!((failed.err, failed.flags & flags), (libc::ENOMSG, flags));
    }
    // With a trigger the context is another structure, which must not be read.
    for flags in [TRIGGER, PEEK | TRIGGER] {
        let answers = [
            call!(node.ep, msg.sendmsg, &raw const message, flags),
            call!(node.ep, msg.recvmsg, &raw const message, flags),
            call!(node.ep, tagged.sendmsg, &raw const tagged, flags),
            call!(node.ep, tagged.recvmsg, &raw const tagged, flags),
        ];
        assert_eq!(answers, [EBADFLAGS as isize; 4], "{flags:#x}");
    }
}
