//! Checks through the C interface every feature that `fi_info -v` prints.
//!
//! Tables contain a check for each capability, flag and order. A bit that no table contains fails the
//! test. For each limit, an operation within the limit must succeed, and one beyond it must fail.

mod calls;
mod connected;
mod numbers;

use std::{fs, ptr};

use homespun_fi::abi::endpoint::FiMsg;
use homespun_fi::abi::eq::{FiCqErrEntry, FiCqTaggedEntry};
use homespun_fi::abi::rma::{FiMsgRma, FiRmaIov};
use homespun_fi::abi::{FI_ADDR_UNSPEC, FI_WAIT_NONE};
use libc::c_void;

use self::calls::{
    Access, Answer, KEY, Kind, SUM, UINT64, fetch_and_add, inject, iov, post_access, recv, regv, send,
    sendmsg, tinject, trecv,
};
use crate::host::{Pair, Plugin, counter_attr, numbered_context};
use crate::rma::{make_mapped_file, reg};

const MSG: u64 = 1 << 1;
const RMA: u64 = 1 << 2;
const TAGGED: u64 = 1 << 3;
const ATOMIC: u64 = 1 << 4;
const READ: u64 = 1 << 8;
const WRITE: u64 = 1 << 9;
const RECV: u64 = 1 << 10;
const SEND: u64 = 1 << 11;
const REMOTE_READ: u64 = 1 << 12;
const REMOTE_WRITE: u64 = 1 << 13;
const MULTI_RECV: u64 = 1 << 16;
const FENCE: u64 = 1 << 21;
const RMA_PMEM: u64 = 1 << 49;
const LOCAL_COMM: u64 = 1 << 51;
const REMOTE_COMM: u64 = 1 << 52;
const RMA_EVENT: u64 = 1 << 56;
const SOURCE: u64 = 1 << 57;
const DIRECTED_RECV: u64 = 1 << 59;

const COMMIT_COMPLETE: u64 = 1 << 30;
const MATCH_COMPLETE: u64 = 1 << 31;
const ORDER_SAS: u64 = 1 << 8;
const ORDER_RMA_RAR: u64 = 1 << 32;
const ORDER_ATOMIC_RAR: u64 = 1 << 36;

const EAGAIN: isize = -11;

/// A check of a feature with endpoints of this type.
type Check = fn(Kind);

/// The check of each capability.
const CAPABILITIES: &[(u64, Check)] = &[
    (MSG, |kind| check_message(kind, MSG, MSG)),
    (SEND, check_send_only_and_receive_only),
    (RECV, check_send_only_and_receive_only),
    (TAGGED, check_tagged_message),
    (RMA, |kind| check_allowed_accesses(kind, RMA, RMA, &[Access::Write, Access::Read])),
    (READ, |kind| check_allowed_accesses(kind, RMA | READ, RMA, &[Access::Write, Access::Read])),
    (WRITE, |kind| check_allowed_accesses(kind, RMA | WRITE, RMA, &[Access::Write, Access::Read])),
    (REMOTE_READ, |kind| check_allowed_accesses(kind, RMA, RMA | REMOTE_READ, &[Access::Read])),
    (REMOTE_WRITE, |kind| check_allowed_accesses(kind, RMA, RMA | REMOTE_WRITE, &[Access::Write])),
    (ATOMIC, check_atomic_operations),
    (RMA_EVENT, check_counted_accesses),
    (RMA_PMEM, check_durable_writes),
    (MULTI_RECV, check_multi_receive_buffer),
    (FENCE, check_fenced_send),
    (SOURCE, |kind| check_message(kind, MSG | SOURCE, MSG | SOURCE)),
    (DIRECTED_RECV, check_directed_receive),
    (LOCAL_COMM, |kind| check_message(kind, MSG | LOCAL_COMM, MSG | LOCAL_COMM)),
    // The test has only one host.
    (REMOTE_COMM, |kind| check_message(kind, MSG | REMOTE_COMM, MSG | REMOTE_COMM)),
];

/// The check of each message order.
const ORDERS: &[(u64, Check)] = &[
    (ORDER_SAS, check_sends_after_sends),
    (ORDER_RMA_RAR, check_reads_after_reads),
    (ORDER_ATOMIC_RAR, check_fetches_after_fetches),
];

fn exercise_each_bit(kind: Kind, what: &str, bits: u64, table: &[(u64, Check)]) {
    for bit in (0..u64::BITS).map(|place| 1 << place).filter(|bit| bits & bit != 0) {
        let entry = table.iter().find(|(flag, _)| *flag == bit);
        let (_, check) = entry
            .unwrap_or_else(|| panic!("the {what} {bit:#x} of {kind:?} is there, and nothing exercises it"));
        check(kind);
    }
}

/// Sends a message from left to right.
fn check_message(kind: Kind, left: u64, right: u64) {
    let pair = kind.open_pair_with_caps(left, right);
    let (message, mut buf) = (*b"message", [0; 7]);
    assert_eq!(recv(&pair.right, &mut buf, FI_ADDR_UNSPEC, 2), 0);
    assert_eq!(send(&pair.left, &message, pair.to_right, 1), 0);
    let [sent, received] = pair.read_completions(1, 1);
    assert_eq!((sent[0].0.op_context.addr(), received[0].0.op_context.addr(), buf), (1, 2, message));
    if right & SOURCE != 0 {
        assert_eq!(received[0].1, pair.to_left);
    }
}

fn check_send_only_and_receive_only(kind: Kind) {
    check_message(kind, MSG | SEND, MSG | RECV);
}

fn check_tagged_message(kind: Kind) {
    let pair = kind.open_pair_with_caps(TAGGED, TAGGED);
    let mut bufs = [[0u8; 4]; 2];
    for (number, buf) in bufs.iter_mut().enumerate() {
        trecv(&pair.right, buf, number as u64, 0, number);
    }
    tinject(&pair.left, b"one!", pair.to_right, 1);
    tinject(&pair.left, b"zero", pair.to_right, 0);
    let [_, received] = pair.read_completions(0, 2);
    let told: Vec<_> = received.iter().map(|(entry, _)| (entry.op_context.addr(), entry.tag)).collect();
    assert_eq!((told, bufs), (vec![(1, 1), (0, 0)], [*b"zero", *b"one!"]));
}

/// Waits for the left endpoint's next completion or error. Returns whether the operation succeeded.
fn await_success_or_error_at_left(pair: &Pair) -> bool {
    let mut read = Err(EAGAIN);
    pair.wait_until(|pair| {
        assert!(pair.right.try_read::<FiCqTaggedEntry>().is_err());
        read = pair.left.try_read::<FiCqTaggedEntry>();
        !matches!(read, Err(EAGAIN))
    });
    if read.is_err() {
        // SAFETY: all fields are integers and pointers.
        let mut failed: FiCqErrEntry = unsafe { std::mem::zeroed() };
        assert_eq!(pair.left.read_error(&mut failed), 1);
    }
    read.is_ok()
}

/// Checks that only the allowed accesses succeed. The target refuses what its capabilities leave out; the
/// initiator posts all.
fn check_allowed_accesses(kind: Kind, left: u64, right: u64, allowed: &[Access]) {
    let pair = kind.open_pair_with_caps(left, right);
    let mut memory = *b"the memory";
    let region = regv(&pair.right, &mut [iov(&mut memory)]).expect("a region");
    let mut buf = *b"other text";
    for how in [Access::Write, Access::Read] {
        let is_allowed = allowed.contains(&how);
        assert_eq!(post_access(&pair, how, &mut buf, 3), 0);
        assert_eq!(await_success_or_error_at_left(&pair), is_allowed);
    }
    drop(region);
    if allowed.contains(&Access::Write) {
        assert_eq!(&memory, b"other text");
    } else {
        assert_eq!((&memory, &buf), (b"the memory", b"the memory"));
    }
}

const CSWAP: u32 = 12;

fn check_atomic_operations(kind: Kind) {
    let pair = kind.open_pair_with_caps(ATOMIC, ATOMIC);
    let mut memory = 40u64.to_le_bytes();
    let region = regv(&pair.right, &mut [iov(&mut memory)]).expect("a region");
    let (two, five, mut fetched, mut compared) = (2u64, 5u64, 0u64, 0u64);
    let (ep, to, none): (_, u64, *mut c_void) = (pair.left.ep.as_ptr(), pair.to_right, ptr::null_mut());
    // SAFETY: the endpoint is open, and the number lives until the completion is read.
    let posted = unsafe {
        let update = (*(*ep).atomic).write;
        update(ep, (&raw const two).cast(), 1, none, to, 0, KEY, UINT64, SUM, numbered_context(1))
    };
    assert_eq!(posted, 0);
    pair.read_completions(1, 0);
    fetch_and_add(&pair, &two, &mut fetched, 2);
    pair.read_completions(1, 0);
    // SAFETY: as above, for all three numbers.
    let posted = unsafe {
        let (operand, compare, result) =
            ((&raw const five).cast(), (&raw const fetched).cast(), (&raw mut compared).cast());
        let swap = (*(*ep).atomic).compwrite;
        swap(
            ep,
            operand,
            1,
            none,
            compare,
            none,
            result,
            none,
            to,
            0,
            KEY,
            UINT64,
            CSWAP,
            numbered_context(3),
        )
    };
    assert_eq!(posted, 0);
    pair.read_completions(1, 0);
    drop(region);
    // The fetch returned the value before the second addition. The compare returned the value after it.
    assert_eq!((fetched, compared, u64::from_le_bytes(memory)), (42, 44, 44));
}

fn check_counted_accesses(kind: Kind) {
    let pair = kind.open_pair_with_caps(RMA, RMA | RMA_EVENT);
    let mut memory = *b"the memory";
    let region = regv(&pair.right, &mut [iov(&mut memory)]).expect("a region");
    let counters = [REMOTE_WRITE, REMOTE_READ].map(|event| {
        let counter = pair.right.domain.open_counter(&mut counter_attr(FI_WAIT_NONE)).expect("a counter");
        assert_eq!(region.bind(&counter, event), 0);
        counter
    });
    let mut buf = *b"other text";
    for how in [Access::Write, Access::Write, Access::Read] {
        assert_eq!(post_access(&pair, how, &mut buf, 1), 0);
        pair.read_completions(1, 0);
    }
    drop(region);
    let values = counters.map(|counter| {
        let counter = counter.as_ptr();
        // SAFETY: the counter is open until the end of this call.
        unsafe { ((*(*counter).ops).read)(counter) }
    });
    assert_eq!(values, [2, 1]);
}

fn check_durable_writes(kind: Kind) {
    let pair = kind.open_pair_with_caps(RMA | RMA_PMEM, RMA | RMA_PMEM);
    let (file, mapped) = make_mapped_file(8192);
    let region = reg(&pair.right.domain, mapped, KEY, RMA_PMEM).expect("a region");
    let mut message = [7; 5000];
    let parts = [iov(&mut message)];
    let target = FiRmaIov { addr: 3000, len: 5000, key: KEY };
    let msg = FiMsgRma {
        msg_iov: parts.as_ptr(),
        desc: ptr::null_mut(),
        iov_count: 1,
        addr: pair.to_right,
        rma_iov: &raw const target,
        rma_iov_count: 1,
        context: numbered_context(1),
        data: 0,
    };
    let ep = pair.left.ep.as_ptr();
    // SAFETY: the endpoint is open, and the buffer lives until the completion is read.
    assert_eq!(unsafe { ((*(*ep).rma).writemsg)(ep, &raw const msg, COMMIT_COMPLETE) }, 0);
    pair.read_completions(1, 0);
    // `tests/capabilities` checks that the bytes are on the device.
    let content = fs::read(file.path()).expect("the file");
    assert_eq!(
        (&content[..3000], &content[3000..8000], &content[8000..]),
        (&[0; 3000][..], &[7; 5000][..], &[0; 192][..])
    );
    drop(region);
}

fn check_reads_after_reads(kind: Kind) {
    let pair = kind.open_pair();
    let mut memory = [7u8; 100_000];
    let region = regv(&pair.right, &mut [iov(&mut memory)]).expect("a region");
    let (mut long, mut short) = (vec![0; 100_000], [0; 8]);
    assert_eq!(post_access(&pair, Access::Read, &mut long, 1), 0);
    assert_eq!(post_access(&pair, Access::Read, &mut short, 2), 0);
    pair.read_completions(2, 0);
    drop(region);
    assert!(long == memory && short == memory[..8]);
}

fn check_fetches_after_fetches(kind: Kind) {
    let pair = kind.open_pair();
    let mut memory = [0u8; 8];
    let region = regv(&pair.right, &mut [iov(&mut memory)]).expect("a region");
    let (one, mut fetched) = (1, [0; 20]);
    for (number, result) in fetched.iter_mut().enumerate() {
        fetch_and_add(&pair, &one, result, number);
    }
    pair.read_completions(20, 0);
    drop(region);
    assert!(fetched.is_sorted() && fetched[19] == 19, "{fetched:?}");
}

fn check_multi_receive_buffer(kind: Kind) {
    let pair = kind.open_pair_with_caps(MSG, MSG | MULTI_RECV);
    let mut buf = [0u8; 128];
    let (ep, parts) = (pair.right.ep.as_ptr(), [iov(&mut buf)]);
    let msg = FiMsg {
        msg_iov: parts.as_ptr(),
        desc: ptr::null_mut(),
        iov_count: 1,
        addr: FI_ADDR_UNSPEC,
        context: numbered_context(9),
        data: 0,
    };
    // SAFETY: the endpoint is open, and the buffer lives until it is released.
    assert_eq!(unsafe { ((*(*ep).msg).recvmsg)(ep, &raw const msg, MULTI_RECV) }, 0);
    for message in [[b'a'; 32], [b'b'; 32], [b'c'; 32]] {
        assert_eq!(inject(&pair.left, &message, pair.to_right), 0);
    }
    let [_, told] = pair.read_completions(0, 3);
    let released: Vec<_> = told.iter().map(|(entry, _)| entry.flags & MULTI_RECV != 0).collect();
    // After the third message, the buffer has less room than the default minimum.
    assert_eq!(released, [false, false, true]);
    assert_eq!((buf[0], buf[32], buf[64], buf[95]), (b'a', b'b', b'c', b'c'));
}

fn check_fenced_send(kind: Kind) {
    let pair = kind.open_pair_with_caps(MSG | FENCE, MSG);
    let (mut first, mut second, mut bufs) = (*b"first", *b"other", [[0u8; 5]; 2]);
    assert_eq!(sendmsg(&pair.left, &mut first, pair.to_right, 1, MATCH_COMPLETE), 0);
    assert_eq!(sendmsg(&pair.left, &mut second, pair.to_right, 2, MATCH_COMPLETE | FENCE), 0);
    for (number, buf) in bufs.iter_mut().enumerate() {
        assert_eq!(recv(&pair.right, buf, FI_ADDR_UNSPEC, number), 0);
    }
    let [sent, _] = pair.read_completions(2, 2);
    // Without the fence they could complete in any order.
    assert_eq!([&sent[0], &sent[1]].map(|(entry, _)| entry.op_context.addr()), [1, 2]);
    assert_eq!(bufs, [first, second]);
}

fn check_directed_receive(kind: Kind) {
    let pair = kind.open_pair_with_caps(MSG, MSG | DIRECTED_RECV);
    let own = pair.right.insert(&pair.right.name());
    let mut bufs = [[0u8; 5]; 2];
    let [from_own, from_left] = &mut bufs;
    assert_eq!(recv(&pair.right, from_own, own, 1), 0);
    assert_eq!(recv(&pair.right, from_left, pair.to_left, 2), 0);
    assert_eq!(inject(&pair.left, b"left!", pair.to_right), 0);
    let [_, told] = pair.read_completions(0, 1);
    assert_eq!(told[0].0.op_context.addr(), 2);
    assert_eq!(inject(&pair.right, b"right", own), 0);
    let [_, told] = pair.read_completions(0, 1);
    assert_eq!((told[0].0.op_context.addr(), bufs), (1, [*b"right", *b"left!"]));
}

#[test]
fn source_is_ignored_without_directed_receives() {
    for kind in Kind::ALL {
        let pair = kind.open_pair_with_caps(MSG | TAGGED, MSG | TAGGED);
        let mut buf = [0u8; 5];
        // No address vector contains this address.
        assert_eq!(recv(&pair.right, &mut buf, 12345, 1), 0);
        assert_eq!(inject(&pair.left, b"left!", pair.to_right), 0);
        let [_, told] = pair.read_completions(0, 1);
        assert_eq!((told[0].0.op_context.addr(), buf), (1, *b"left!"));
    }
}

fn check_sends_after_sends(kind: Kind) {
    let pair = kind.open_pair();
    let messages = [vec![1u8; 300_000], vec![2; 8], vec![3; 20_000], vec![4; 1]];
    let mut bufs = messages.clone().map(|message| vec![0; message.len()]);
    for message in &messages {
        assert_eq!(send(&pair.left, message, pair.to_right, 1), 0);
    }
    for buf in &mut bufs {
        assert_eq!(recv(&pair.right, buf, FI_ADDR_UNSPEC, 2), 0);
    }
    pair.read_completions(messages.len(), messages.len());
    assert!(bufs == messages);
}

#[test]
fn every_endpoint_type_is_exercised() {
    let (infos, mut types) = (Plugin::get().loopback_infos(), Vec::new());
    for info in infos.iter() {
        // SAFETY: answers have all their attributes.
        types.push(unsafe { (*info.ep_attr).r#type });
    }
    types.sort_unstable();
    types.dedup();
    let walked = [Kind::Connected, Kind::Unconnected].map(|kind| Answer::from_getinfo(kind).attrs().2.r#type);
    assert_eq!(types, walked);
}

#[test]
fn every_capability_is_exercised() {
    for kind in Kind::ALL {
        let answer = Answer::from_getinfo(kind);
        let (tx, rx, _, domain) = answer.attrs();
        let caps = answer.info().caps;
        assert_eq!((tx.caps | rx.caps | domain.caps) & !caps, 0);
        exercise_each_bit(kind, "capability", caps, CAPABILITIES);
        assert_eq!([answer.info().mode, tx.mode, rx.mode, domain.mode], [0; 4], "nothing here heeds it");
        assert_eq!([tx.op_flags, rx.op_flags], [0; 2], "who asks for none has none");
    }
}

#[test]
fn every_order_is_exercised() {
    for kind in Kind::ALL {
        let answer = Answer::from_getinfo(kind);
        let (tx, rx, ..) = answer.attrs();
        exercise_each_bit(kind, "order", tx.msg_order | rx.msg_order, ORDERS);
        exercise_each_bit(kind, "order of completions", tx.comp_order | rx.comp_order, &[]);
    }
}
