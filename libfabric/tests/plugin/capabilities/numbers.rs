//! The limits of an info: operations within them succeed, and operations beyond them are refused.

use std::ptr;

use homespun_fi::abi::FI_ADDR_UNSPEC;
use homespun_fi::abi::eq::FiCqTaggedEntry;
use homespun_fi::abi::rma::{FiMsgRma, FiRmaIov};
use libc::{c_void, iovec};

use super::calls::{Access, Answer, KEY, Kind, inject, iov, post_access, recv, regv, sendmsg, trecv};
use super::{EAGAIN, MATCH_COMPLETE};
use crate::host::numbered_context;
use crate::rma::reg;

const EINVAL: isize = -22;
const EMSGSIZE: isize = -90;

#[test]
fn inject_takes_up_to_inject_size() {
    for kind in Kind::ALL {
        let answer = Answer::from_getinfo(kind);
        let max_bytes = answer.attrs().0.inject_size;
        let pair = kind.open_pair();
        let (message, mut buf) = (vec![7u8; max_bytes + 1], vec![0; max_bytes]);
        assert_eq!(recv(&pair.right, &mut buf, FI_ADDR_UNSPEC, 1), 0);
        assert_eq!(inject(&pair.left, &message, pair.to_right), EMSGSIZE);
        assert_eq!(inject(&pair.left, &message[..max_bytes], pair.to_right), 0);
        pair.read_completions(0, 1);
        assert!(buf == message[..max_bytes]);
    }
}

/// No memory is so long. The plugin refuses the length before it reads the memory.
#[test]
fn message_beyond_max_msg_size_is_refused() {
    for kind in Kind::ALL {
        let answer = Answer::from_getinfo(kind);
        let too_long = answer.attrs().2.max_msg_size + 1;
        let pair = kind.open_pair();
        let (ep, to) = (pair.left.ep.as_ptr(), pair.to_right);
        let (none, byte): (*mut c_void, *mut c_void) = (ptr::null_mut(), [0u8; 1].as_mut_ptr().cast());
        // SAFETY: the endpoint is open; all calls are refused, so no memory is used.
        let refused = unsafe {
            let (msg, tagged, rma) = (&*(*ep).msg, &*(*ep).tagged, &*(*ep).rma);
            [
                (msg.send)(ep, byte, too_long, none, to, none),
                (tagged.send)(ep, byte, too_long, none, to, 0, none),
                (rma.write)(ep, byte, too_long, none, to, 0, KEY, none),
                (rma.read)(ep, byte, too_long, none, to, 0, KEY, none),
            ]
        };
        assert_eq!(refused, [EMSGSIZE; 4]);
    }
}

#[test]
fn vectors_take_up_to_iov_limit_segments() {
    for kind in Kind::ALL {
        let answer = Answer::from_getinfo(kind);
        let (tx, rx, ..) = answer.attrs();
        let pair = kind.open_pair();
        let (left, right, to) = (pair.left.ep.as_ptr(), pair.right.ep.as_ptr(), pair.to_right);
        let none: *mut *mut c_void = ptr::null_mut();
        let mut memory = [0u8; 64];
        let region = regv(&pair.right, &mut [iov(&mut memory)]).expect("a region");
        let mut text = *b"a text that lies in pieces";
        let mut room = [0u8; 26];
        for beyond in [0, 1] {
            let expected = if beyond == 0 { 0 } else { EINVAL };
            let outgoing: Vec<_> = split_in_pieces(&mut text, tx.iov_limit + beyond);
            let incoming: Vec<_> = split_in_pieces(&mut room, rx.iov_limit + beyond);
            // SAFETY: the endpoints are open, and all memory lives until the completions are read.
            let posted = unsafe {
                let (send, receive, rma) = (&*(*left).msg, &*(*right).msg, &*(*left).rma);
                [
                    (receive.recvv)(
                        right,
                        incoming.as_ptr(),
                        none,
                        incoming.len(),
                        FI_ADDR_UNSPEC,
                        numbered_context(1),
                    ),
                    (send.sendv)(left, outgoing.as_ptr(), none, outgoing.len(), to, numbered_context(2)),
                    (rma.writev)(
                        left,
                        outgoing.as_ptr(),
                        none,
                        outgoing.len(),
                        to,
                        0,
                        KEY,
                        numbered_context(3),
                    ),
                ]
            };
            assert_eq!(posted, [expected; 3]);
            if beyond == 0 {
                pair.read_completions(2, 1);
                assert_eq!(room, text);
            }
            // The maximum number of remote segments, and one more.
            let each = FiRmaIov { addr: 0, len: 26 / tx.rma_iov_limit, key: KEY };
            let targets: Vec<_> = (0..tx.rma_iov_limit + beyond).map(|_| FiRmaIov { ..each }).collect();
            let parts = [iov(&mut text)];
            let msg = FiMsgRma {
                msg_iov: parts.as_ptr(),
                desc: none,
                iov_count: 1,
                addr: to,
                rma_iov: targets.as_ptr(),
                rma_iov_count: targets.len(),
                context: numbered_context(4),
                data: 0,
            };
            // SAFETY: as above.
            assert_eq!(unsafe { ((*(*left).rma).writemsg)(left, &raw const msg, 0) }, expected);
            if beyond == 0 {
                pair.read_completions(1, 0);
            }
        }
        drop(region);
        assert_eq!(memory[..26], text);
    }
}

/// Splits memory into pieces, of which the last is the longest.
fn split_in_pieces(memory: &mut [u8], count: usize) -> Vec<iovec> {
    let mut rest = memory;
    let mut pieces = Vec::new();
    for left in (1..=count).rev() {
        let (piece, after) = rest.split_at_mut(if left == 1 { rest.len() } else { 2 });
        pieces.push(iov(piece));
        rest = after;
    }
    pieces
}

#[test]
fn regions_take_up_to_mr_iov_limit_segments() {
    for kind in Kind::ALL {
        let answer = Answer::from_getinfo(kind);
        let limit = answer.attrs().3.mr_iov_limit;
        let pair = kind.open_pair();
        let mut memory = [0u8; 32];
        assert!(regv(&pair.right, &mut split_in_pieces(&mut memory, limit + 1)).is_err());
        let region = regv(&pair.right, &mut split_in_pieces(&mut memory, limit)).expect("a region");
        let mut text = *b"text of which all pieces have a ";
        assert_eq!(post_access(&pair, Access::Write, &mut text, 1), 0);
        pair.read_completions(1, 0);
        drop(region);
        assert_eq!(memory, text);
    }
}

#[test]
fn keys_data_and_tags_keep_all_bits() {
    for kind in Kind::ALL {
        let answer = Answer::from_getinfo(kind);
        let (_, _, ep, domain) = answer.attrs();
        assert_eq!((domain.mr_key_size, domain.cq_data_size), (8, 8));
        assert_eq!(ep.mem_tag_format, 0xaaaa_aaaa_aaaa_aaaa, "fields of one bit each");
        let pair = kind.open_pair();
        let (mut buf, mut memory) = ([0u8; 8], [0u8; 8]);
        for bits in (0..u64::BITS).map(|place| 1 << place).chain([0, u64::MAX, KEY]) {
            trecv(&pair.right, &mut buf, bits, 0, 1);
            let (left, to, message) = (pair.left.ep.as_ptr(), pair.to_right, b"message".as_ptr().cast());
            // SAFETY: the endpoint is open; the message is copied before the call returns.
            let sent = unsafe { ((*(*left).tagged).injectdata)(left, message, 7, !bits, to, bits) };
            assert_eq!(sent, 0);
            let [_, told] = pair.read_completions(0, 1);
            assert_eq!((told[0].0.tag, told[0].0.data), (bits, !bits));
            let region = reg(&pair.right.domain, &mut memory, bits, 0).expect("a region");
            // SAFETY: the region is open.
            assert_eq!(unsafe { (*region.as_ptr()).key }, bits);
            assert!(region.close().is_ok());
        }
    }
}

#[test]
fn outstanding_operations_are_bounded_by_the_context_size() {
    for kind in Kind::ALL {
        let answer = Answer::from_getinfo(kind);
        let (tx, rx, ..) = answer.attrs();
        let pair = kind.open_pair();
        for number in 0..rx.size {
            assert_eq!(recv(&pair.left, &mut [], FI_ADDR_UNSPEC, number), 0);
        }
        assert_eq!(recv(&pair.left, &mut [], FI_ADDR_UNSPEC, 0), EAGAIN);
        for number in 0..tx.size {
            assert_eq!(sendmsg(&pair.left, &mut [], pair.to_right, number, MATCH_COMPLETE), 0);
        }
        assert_eq!(sendmsg(&pair.left, &mut [], pair.to_right, 0, MATCH_COMPLETE), EAGAIN);
        // Complete all operations, so that closing the endpoints does not wait.
        let (mut sent, mut received, mut posted) = (0, 0, 0);
        pair.wait_until(|pair| {
            while posted - received < 1000 && posted < tx.size {
                assert_eq!(recv(&pair.right, &mut [], FI_ADDR_UNSPEC, 1), 0);
                posted += 1;
            }
            for _ in 0..1000 {
                received += usize::from(pair.right.try_read::<FiCqTaggedEntry>().is_ok());
                sent += usize::from(pair.left.try_read::<FiCqTaggedEntry>().is_ok());
            }
            (sent, received) == (tx.size, tx.size)
        });
    }
}
