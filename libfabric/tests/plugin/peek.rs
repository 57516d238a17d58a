//! `FI_PEEK`, `FI_CLAIM` and `FI_DISCARD`; and sends with flags.

use std::ptr;
use std::thread;
use std::time::Duration;

use homespun_fi::abi::endpoint::FiMsg;
use homespun_fi::abi::eq::FiCqTaggedEntry;
use homespun_fi::abi::tagged::FiMsgTagged;
use homespun_fi::abi::{FI_ADDR_UNSPEC, FI_CQ_FORMAT_TAGGED, FI_GETOPSFLAG, FI_SETOPSFLAG, FI_TRANSMIT};
use libc::iovec;

use crate::host::{API_VERSION, Node, Pair, numbered_context};
use crate::messages::patterned_error_entry;

const MSG: u64 = 1 << 1;
const TAGGED: u64 = 1 << 3;
const MULTICAST: u64 = 1 << 5;
const RECV: u64 = 1 << 10;
const SEND: u64 = 1 << 11;
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

/// The number of empty reads that show that no entry comes.
const SILENT_READS: usize = 400;

/// The number of peeks before a test sleeps between peeks.
const EAGER_PEEKS: u32 = 1000;

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

/// Checks that no message with the tag is waiting.
fn check_no_message_waits(pair: &Pair) {
    assert_eq!(trecvmsg(&pair.right, None, PEEK, 99), 0);
    assert_eq!(await_entry(pair).err(), Some((ENOMSG, 99)));
}

fn entry_fields(entry: &FiCqTaggedEntry) -> (usize, u64, usize, u64, u64) {
    assert!(entry.buf.is_null(), "no data is there");
    (entry.op_context.addr(), entry.flags, entry.len, entry.data, entry.tag)
}

#[test]
fn peek_without_a_message_fails() {
    let pair = open_pair();
    assert_eq!(trecvmsg(&pair.right, None, PEEK, 7), 0);
    assert_eq!(await_entry(&pair).err(), Some((ENOMSG, 7)));
    assert_eq!(pair.right.error_text(ENOMSG), c"No message of desired type");
    assert_eq!(pair.right.try_read::<FiCqTaggedEntry>().err(), Some(EAGAIN), "told once");
}

#[test]
fn peeks_without_queue_reads_make_progress() {
    let pair = open_pair();
    assert_eq!(tsendmsg(&pair, b"hello", 0, 1), 0);
    let mut peeks = 0;
    // The plugin refuses a context that already has a claimed message. So a refusal shows that the peek
    // has claimed the message, and the test need not read the queue.
    let refused = loop {
        let answer = trecvmsg(&pair.right, None, PEEK | CLAIM, 2);
        if answer != 0 {
            break answer;
        }
        assert_eq!(trecvmsg(&pair.left, None, PEEK, 3), 0);
        peeks += 1;
        if peeks > EAGER_PEEKS {
            thread::sleep(Duration::from_millis(1));
        }
    };
    assert_eq!(refused, EINVAL);
}

#[test]
fn peek_finds_a_message_and_leaves_it() {
    let pair = open_pair();
    assert_eq!(tsendmsg(&pair, b"hello", REMOTE_CQ_DATA, 1), 0);
    for number in [2, 3] {
        let (entry, source) = peek_until_found(&pair, 0, number);
        assert_eq!(entry_fields(&entry), (number, RECV | TAGGED | REMOTE_CQ_DATA, 5, 99, TAG));
        assert_eq!(source, pair.to_left);
    }
    let mut room = [0; 8];
    assert_eq!(trecvmsg(&pair.right, Some(&mut room), 0, 4), 0);
    let (entry, _) = await_entry(&pair).expect("the message");
    assert_eq!(entry_fields(&entry), (4, RECV | TAGGED | REMOTE_CQ_DATA, 5, 99, TAG));
    assert_eq!(&room, b"hello\0\0\0");
    check_no_message_waits(&pair);
}

#[test]
fn claimed_message_is_received_only_by_its_claim() {
    let pair = open_pair();
    assert_eq!(tsendmsg(&pair, b"first", 0, 1), 0);
    assert_eq!(tsendmsg(&pair, b"second", 0, 1), 0);
    assert_eq!(entry_fields(&peek_until_found(&pair, CLAIM, 2).0), (2, RECV | TAGGED, 5, 0, TAG));
    assert_eq!(trecvmsg(&pair.right, None, PEEK | CLAIM, 2), EINVAL, "one message for a context");

    let (mut other, mut room) = ([0; 8], [0; 8]);
    assert_eq!(trecvmsg(&pair.right, Some(&mut other), 0, 3), 0);
    assert_eq!(
        entry_fields(&await_entry(&pair).expect("the other message").0),
        (3, RECV | TAGGED, 6, 0, TAG)
    );
    assert_eq!(&other, b"second\0\0");

    assert_eq!(recvmsg(&pair.right, Some(&mut room), CLAIM, 2), ENOENT, "a tagged message was claimed");
    assert_eq!(trecvmsg(&pair.right, Some(&mut room), CLAIM, 2), 0);
    assert_eq!(
        entry_fields(&await_entry(&pair).expect("the claimed message").0),
        (2, RECV | TAGGED, 5, 0, TAG)
    );
    assert_eq!(&room, b"first\0\0\0");
    assert_eq!(trecvmsg(&pair.right, Some(&mut room), CLAIM, 2), ENOENT, "received already");
}

#[test]
fn discarded_message_is_never_received() {
    let pair = open_pair();
    assert_eq!(tsendmsg(&pair, b"not wanted", 0, 1), 0);
    assert_eq!(entry_fields(&peek_until_found(&pair, DISCARD, 2).0), (2, RECV | TAGGED, 10, 0, TAG));
    check_no_message_waits(&pair);

    assert_eq!(tsendmsg(&pair, b"nor this", 0, 1), 0);
    peek_until_found(&pair, CLAIM, 3);
    assert_eq!(trecvmsg(&pair.right, None, CLAIM | DISCARD, 3), 0);
    assert_eq!(
        entry_fields(&await_entry(&pair).expect("the discarded message").0),
        (3, RECV | TAGGED, 8, 0, TAG)
    );
    check_no_message_waits(&pair);
    assert_eq!(trecvmsg(&pair.right, None, CLAIM | DISCARD, 3), ENOENT);
}

#[test]
fn untagged_messages_may_be_claimed() {
    let pair = open_pair();
    assert_eq!(tsendmsg(&pair, b"tagged", 0, 1), 0);
    assert_eq!(sendmsg(&pair, b"untagged", 0, 1), 0);
    // Messages of one peer arrive in order, so the untagged one arrives last.
    let mut room = [0; 8];
    let entry = loop {
        assert_eq!(recvmsg(&pair.right, None, PEEK | CLAIM, 2), 0);
        let mut answer = None;
        pair.wait_until(|pair| {
            let _ = pair.left.try_read::<FiCqTaggedEntry>();
            match pair.right.try_read::<FiCqTaggedEntry>() {
                Ok((entry, _)) => answer = Some(Some(entry)),
                Err(EAVAIL) => {
                    let mut error = patterned_error_entry();
                    assert_eq!(pair.right.read_error(&mut error), 1);
                    assert_eq!((error.err, error.flags), (ENOMSG, RECV | MSG));
                    answer = Some(None);
                }
                Err(_) => {}
            }
            answer.is_some()
        });
        if let Some(entry) = answer.flatten() {
            break entry;
        }
    };
    assert_eq!(entry_fields(&entry), (2, RECV | MSG, 8, 0, 0));
    assert_eq!(recvmsg(&pair.right, Some(&mut room), CLAIM, 2), 0);
    assert_eq!(entry_fields(&await_entry(&pair).expect("the claimed message").0), (2, RECV | MSG, 8, 0, 0));
    assert_eq!(&room, b"untagged");
    assert_eq!(peek_until_found(&pair, DISCARD, 3).0.len, 6, "the tagged one is still there");
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
fn fenced_sends_wait_for_preceding_matches() {
    let pair = open_pair();
    let mut rooms = [[0; 8]; 3];
    assert_eq!(tsendmsg(&pair, b"first", MATCH_COMPLETE, 1), 0);
    assert_eq!(tsendmsg(&pair, b"second", FENCE | MATCH_COMPLETE, 2), 0);
    assert_eq!(sendmsg(&pair, b"third", FENCE, 3), 0);
    let [first, second, third] = &mut rooms;
    assert_eq!(recvmsg(&pair.right, Some(third), 0, 6), 0);
    let told = |entries: &[(FiCqTaggedEntry, u64)]| -> Vec<_> {
        entries.iter().map(|(entry, _)| (entry.op_context.addr(), entry.flags)).collect()
    };
    let nothing_ends = || {
        for node in [&pair.left, &pair.right].into_iter().cycle().take(SILENT_READS) {
            assert_eq!(node.try_read::<FiCqTaggedEntry>().err(), Some(EAGAIN));
        }
    };
    nothing_ends();
    assert_eq!(trecvmsg(&pair.right, Some(first), 0, 4), 0);
    let [sent, received] = pair.read_completions(1, 1);
    assert_eq!((told(&sent), told(&received)), (vec![(1, SEND | TAGGED)], vec![(4, RECV | TAGGED)]));
    nothing_ends();
    assert_eq!(trecvmsg(&pair.right, Some(second), 0, 5), 0);
    let [sent, received] = pair.read_completions(2, 2);
    assert_eq!(told(&sent), [(2, SEND | TAGGED), (3, SEND | MSG)]);
    assert_eq!(told(&received), [(5, RECV | TAGGED), (6, RECV | MSG)]);
    assert_eq!(rooms, [*b"first\0\0\0", *b"second\0\0", *b"third\0\0\0"]);
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
