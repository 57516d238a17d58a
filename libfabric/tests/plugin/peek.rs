//! `FI_PEEK`, `FI_CLAIM` and `FI_DISCARD`; and sends with flags.

use std::ptr;

use homespun_fi::abi::endpoint::FiMsg;
use homespun_fi::abi::eq::FiCqTaggedEntry;
use homespun_fi::abi::tagged::FiMsgTagged;
use homespun_fi::abi::{FI_ADDR_UNSPEC, FI_CQ_FORMAT_TAGGED, FI_GETOPSFLAG, FI_SETOPSFLAG, FI_TRANSMIT};
use libc::iovec;

use crate::host::{API_VERSION, Node, Pair, numbered_context};
use crate::messages::patterned_error_entry;

const TAGGED: u64 = 1 << 3;
const MULTICAST: u64 = 1 << 5;
const RECV: u64 = 1 << 10;
const REMOTE_CQ_DATA: u64 = 1 << 17;
const PEEK: u64 = 1 << 19;
const TRIGGER: u64 = 1 << 20;
const FENCE: u64 = 1 << 21;
const COMMIT_COMPLETE: u64 = 1 << 30;
const MATCH_COMPLETE: u64 = 1 << 31;
const DISCARD: u64 = 1 << 58;
const CLAIM: u64 = 1 << 59;

const ENOENT: isize = -2;
const EAGAIN: isize = -11;
const EINVAL: isize = -22;
const EAVAIL: isize = -259;
const EBADFLAGS: isize = -260;
const ENOMSG: i32 = 42;

const TAG: u64 = 0x17;

fn open_pair() -> Pair {
    Pair::open(API_VERSION, FI_CQ_FORMAT_TAGGED)
}

/// Returns memory for a receive. Without `room` the address is null and the count is wrong: the plugin
/// must use neither.
fn iov_and_count(room: Option<&mut [u8]>) -> (iovec, usize) {
    match room {
        Some(room) => (iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() }, 1),
        None => (iovec { iov_base: ptr::null_mut(), iov_len: 0 }, usize::MAX),
    }
}

/// Calls `fi_trecvmsg` with the test's tag. `room` must live until the completion is read.
fn trecvmsg(node: &Node, room: Option<&mut [u8]>, flags: u64, number: usize) -> isize {
    let (part, iov_count) = iov_and_count(room);
    let msg = FiMsgTagged {
        msg_iov: if iov_count == 1 { &raw const part } else { ptr::null() },
        desc: ptr::null_mut(),
        iov_count,
        addr: FI_ADDR_UNSPEC,
        tag: TAG,
        ignore: 0,
        context: numbered_context(number),
        data: 0,
    };
    let ep = node.ep.as_ptr();
    // SAFETY: the endpoint is open, and the parts of the message that the flags use are valid.
    unsafe { ((*(*ep).tagged).recvmsg)(ep, &raw const msg, flags) }
}

/// `fi_recvmsg`. The room must live until the completion is read.
fn recvmsg(node: &Node, room: Option<&mut [u8]>, flags: u64, number: usize) -> isize {
    let (part, iov_count) = iov_and_count(room);
    let msg = FiMsg {
        msg_iov: if iov_count == 1 { &raw const part } else { ptr::null() },
        desc: ptr::null_mut(),
        iov_count,
        addr: FI_ADDR_UNSPEC,
        context: numbered_context(number),
        data: 0,
    };
    let ep = node.ep.as_ptr();
    // SAFETY: the endpoint is open, and the parts of the message that the flags use are valid.
    unsafe { ((*(*ep).msg).recvmsg)(ep, &raw const msg, flags) }
}

/// `fi_tsendmsg` to the right endpoint, with the tag.
fn tsendmsg(pair: &Pair, message: &'static [u8], flags: u64, number: usize) -> isize {
    let part = iovec { iov_base: message.as_ptr().cast_mut().cast(), iov_len: message.len() };
    let msg = FiMsgTagged {
        msg_iov: &raw const part,
        desc: ptr::null_mut(),
        iov_count: 1,
        addr: pair.to_right,
        tag: TAG,
        ignore: 0,
        context: numbered_context(number),
        data: 99,
    };
    let ep = pair.left.ep.as_ptr();
    // SAFETY: the endpoint is open, and messages are static.
    unsafe { ((*(*ep).tagged).sendmsg)(ep, &raw const msg, flags) }
}

/// `fi_sendmsg` to the right endpoint.
fn sendmsg(pair: &Pair, message: &'static [u8], flags: u64, number: usize) -> isize {
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
    // SAFETY: the endpoint is open, and messages are static.
    unsafe { ((*(*ep).msg).sendmsg)(ep, &raw const msg, flags) }
}

/// Waits for the right side's next entry. Returns the entry and its source, or an error's number and
/// context.
fn await_entry(pair: &Pair) -> Result<(FiCqTaggedEntry, u64), (i32, usize)> {
    let mut answer = None;
    pair.wait_until(|pair| {
        match pair.right.try_read() {
            Ok(entry) => answer = Some(Ok(entry)),
            Err(EAGAIN) => {}
            Err(error) => {
                assert_eq!(error, EAVAIL);
                let mut entry = patterned_error_entry();
                assert_eq!(pair.right.read_error(&mut entry), 1);
                assert_eq!((entry.flags, entry.len, entry.olen), (RECV | TAGGED, 0, 0));
                answer = Some(Err((entry.err, entry.op_context.addr())));
            }
        }
        // The sender needs progress too.
        let _ = pair.left.try_read::<FiCqTaggedEntry>();
        answer.is_some()
    });
    answer.expect("an answer")
}

/// Peeks until a message is found.
fn peek_until_found(pair: &Pair, flags: u64, number: usize) -> (FiCqTaggedEntry, u64) {
    loop {
        assert_eq!(trecvmsg(&pair.right, None, PEEK | flags, number), 0);
        match await_entry(pair) {
            Ok(found) => return found,
            Err(error) => assert_eq!(error, (ENOMSG, number)),
        }
    }
}

#[test]
fn contradictory_flags_are_refused() {
    let pair = open_pair();
    for receive in [trecvmsg, recvmsg] {
        assert_eq!(receive(&pair.right, None, PEEK | CLAIM | DISCARD, 1), EINVAL);
        assert_eq!(receive(&pair.right, None, CLAIM | DISCARD, 1), ENOENT);
        assert_eq!(receive(&pair.right, Some(&mut [0; 8]), CLAIM, 1), ENOENT);
        for kind in [0, PEEK, CLAIM, DISCARD] {
            for flag in [TRIGGER, COMMIT_COMPLETE] {
                assert_eq!(receive(&pair.right, Some(&mut [0; 8]), kind | flag, 1), EBADFLAGS);
            }
        }
        // A receive needs a valid buffer.
        assert_eq!(receive(&pair.right, None, CLAIM, 1), EINVAL);
    }
    for send in [tsendmsg, sendmsg] {
        for flag in [TRIGGER, MULTICAST, COMMIT_COMPLETE, COMMIT_COMPLETE | FENCE] {
            assert_eq!(send(&pair, b"", flag, 1), EBADFLAGS);
        }
    }
    assert_eq!(pair.right.try_read::<FiCqTaggedEntry>().err(), Some(EAGAIN), "nothing was posted");
}

#[test]
fn meaningless_flags_are_ignored() {
    let pair = open_pair();
    let for_sends = [1 << 40, 1 << 63, PEEK, CLAIM, DISCARD];
    let for_receives = [1 << 40, 1 << 63, FENCE, MATCH_COMPLETE | REMOTE_CQ_DATA, DISCARD];
    type Send = fn(&Pair, &'static [u8], u64, usize) -> isize;
    type Receive = fn(&Node, Option<&mut [u8]>, u64, usize) -> isize;
    let calls: [(Send, Receive); 2] = [(tsendmsg, trecvmsg), (sendmsg, recvmsg)];
    for (send, receive) in calls {
        for (send_flag, receive_flag) in for_sends.into_iter().zip(for_receives) {
            let mut room = [0; 8];
            assert_eq!(receive(&pair.right, Some(&mut room), receive_flag, 2), 0);
            assert_eq!(send(&pair, b"8 bytes!", send_flag, 1), 0);
            let [sent, received] = pair.read_completions(1, 1);
            assert_eq!(sent[0].0.op_context.addr(), 1);
            assert_eq!((received[0].0.op_context.addr(), received[0].0.len), (2, 8));
            assert_eq!(&room, b"8 bytes!");
        }
    }
    assert_eq!(tsendmsg(&pair, b"8 bytes!", 0, 3), 0);
    assert_eq!(peek_until_found(&pair, FENCE | MATCH_COMPLETE | 1 << 40, 4).0.len, 8);
}

#[test]
fn match_complete_may_be_a_default_flag_and_fence_may_not() {
    let node = Node::open();
    let control = |command, mut flags: u64| (node.ep.control(command, &raw mut flags), flags);
    assert_eq!(control(FI_SETOPSFLAG, FI_TRANSMIT | MATCH_COMPLETE).0, 0);
    assert_eq!(control(FI_GETOPSFLAG, FI_TRANSMIT), (0, MATCH_COMPLETE));
    assert_eq!(control(FI_SETOPSFLAG, FI_TRANSMIT | FENCE).0, -260);
    assert_eq!(control(FI_SETOPSFLAG, RECV | PEEK).0, -260);
}
