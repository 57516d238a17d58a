//! The calls of the capability checks, and the endpoint types that they cover.

use std::ptr;

use homespun_fi::abi::domain::FidMr;
use homespun_fi::abi::endpoint::FiMsg;
use homespun_fi::abi::info::{FiDomainAttr, FiEpAttr, FiInfo, FiRxAttr, FiTxAttr};
use homespun_fi::abi::{FI_ADDR_UNSPEC, FI_CQ_FORMAT_TAGGED};
use libc::{c_int, c_void, iovec};

use super::connected;
use crate::connections;
use crate::host::{API_VERSION, InfoList, Node, Object, Pair, Plugin, numbered_context};

const REMOTE_READ: u64 = 1 << 12;
const REMOTE_WRITE: u64 = 1 << 13;

/// The key of all regions, which has bits in each of its bytes.
pub(super) const KEY: u64 = 0xfedc_ba98_7654_3210;

pub(super) const UINT64: u32 = 7;
pub(super) const SUM: u32 = 2;

/// An endpoint type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Unconnected,
    Connected,
}

impl Kind {
    pub(super) const ALL: [Kind; 2] = [Kind::Unconnected, Kind::Connected];

    /// Opens two endpoints with these capabilities.
    pub(super) fn open_pair_with_caps(self, left: u64, right: u64) -> Pair {
        match self {
            Kind::Unconnected => Pair::from_nodes(Node::open_with_caps(left), Node::open_with_caps(right)),
            Kind::Connected => connected::open_connected_pair(Some(left), Some(right)),
        }
    }

    /// Opens two endpoints with all capabilities.
    pub(super) fn open_pair(self) -> Pair {
        match self {
            Kind::Unconnected => Pair::open(API_VERSION, FI_CQ_FORMAT_TAGGED),
            Kind::Connected => connected::open_connected_pair(None, None),
        }
    }
}

/// The first info of an answer, with its list.
pub(super) struct Answer(InfoList);

impl Answer {
    pub(super) fn from_getinfo(kind: Kind) -> Answer {
        Answer(match kind {
            Kind::Unconnected => Plugin::get().loopback_infos(),
            Kind::Connected => connections::loopback_msg_infos(),
        })
    }

    pub(super) fn info(&self) -> &FiInfo {
        self.0.first()
    }

    pub(super) fn attrs(&self) -> (&FiTxAttr, &FiRxAttr, &FiEpAttr, &FiDomainAttr) {
        let info = self.info();
        // SAFETY: answers have all their attributes.
        unsafe { (&*info.tx_attr, &*info.rx_attr, &*info.ep_attr, &*info.domain_attr) }
    }
}

pub(super) fn iov(part: &mut [u8]) -> iovec {
    iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() }
}

/// `fi_recv`. The test keeps the buffer until it has read the completion.
pub(super) fn recv(node: &Node, buf: &mut [u8], from: u64, number: usize) -> isize {
    let ep = node.ep.as_ptr();
    // SAFETY: the endpoint is open, and the test keeps the buffer alive.
    unsafe {
        let recv = (*(*ep).msg).recv;
        recv(ep, buf.as_mut_ptr().cast(), buf.len(), ptr::null_mut(), from, numbered_context(number))
    }
}

/// `fi_send`. The test keeps the message until it has read the completion.
pub(super) fn send(node: &Node, message: &[u8], to: u64, number: usize) -> isize {
    let ep = node.ep.as_ptr();
    // SAFETY: the endpoint is open, and the test keeps the message alive.
    unsafe {
        let send = (*(*ep).msg).send;
        send(ep, message.as_ptr().cast(), message.len(), ptr::null_mut(), to, numbered_context(number))
    }
}

/// `fi_inject`.
pub(super) fn inject(node: &Node, message: &[u8], to: u64) -> isize {
    let ep = node.ep.as_ptr();
    // SAFETY: the endpoint is open; the message is copied before the call returns.
    unsafe { ((*(*ep).msg).inject)(ep, message.as_ptr().cast(), message.len(), to) }
}

/// `fi_sendmsg` with flags.
pub(super) fn sendmsg(node: &Node, message: &mut [u8], to: u64, number: usize, flags: u64) -> isize {
    let ep = node.ep.as_ptr();
    let parts = [iov(message)];
    let msg = FiMsg {
        msg_iov: parts.as_ptr(),
        desc: ptr::null_mut(),
        iov_count: 1,
        addr: to,
        context: numbered_context(number),
        data: 0,
    };
    // SAFETY: the endpoint is open; the test keeps the message until it has read the completion.
    unsafe { ((*(*ep).msg).sendmsg)(ep, &raw const msg, flags) }
}

pub(super) fn trecv(node: &Node, buf: &mut [u8], tag: u64, ignore: u64, number: usize) {
    let ep = node.ep.as_ptr();
    let none: *mut c_void = ptr::null_mut();
    // SAFETY: the endpoint is open; the test keeps the buffer until it has read the completion.
    let posted = unsafe {
        let recv = (*(*ep).tagged).recv;
        recv(
            ep,
            buf.as_mut_ptr().cast(),
            buf.len(),
            none,
            FI_ADDR_UNSPEC,
            tag,
            ignore,
            numbered_context(number),
        )
    };
    assert_eq!(posted, 0);
}

pub(super) fn tinject(node: &Node, message: &[u8], to: u64, tag: u64) {
    let ep = node.ep.as_ptr();
    // SAFETY: the endpoint is open; the message is copied before the call returns.
    let sent = unsafe { ((*(*ep).tagged).inject)(ep, message.as_ptr().cast(), message.len(), to, tag) };
    assert_eq!(sent, 0);
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Write,
    Read,
}

/// `fi_mr_regv`. The test keeps the memory in place until it closes the region.
pub(super) fn regv(node: &Node, parts: &mut [iovec]) -> Result<Object<FidMr>, c_int> {
    let domain = node.domain.as_ptr();
    // SAFETY: the domain is open, and the test keeps the memory in place.
    Object::open(|mr| unsafe {
        let (regv, access) = ((*(*domain).mr).regv, REMOTE_READ | REMOTE_WRITE);
        regv(domain.cast(), parts.as_ptr(), parts.len(), access, 0, KEY, 0, mr, ptr::null_mut())
    })
}

/// `fi_write` or `fi_read` of the whole buffer, at the beginning of the right endpoint's region.
pub(super) fn post_access(pair: &Pair, how: Access, buf: &mut [u8], number: usize) -> isize {
    let ep = pair.left.ep.as_ptr();
    let (none, to): (*mut c_void, u64) = (ptr::null_mut(), pair.to_right);
    // SAFETY: the endpoint is open; the test keeps the buffer until it has read the completion.
    unsafe {
        let rma = &*(*ep).rma;
        match how {
            Access::Write => {
                (rma.write)(ep, buf.as_ptr().cast(), buf.len(), none, to, 0, KEY, numbered_context(number))
            }
            Access::Read => {
                (rma.read)(ep, buf.as_mut_ptr().cast(), buf.len(), none, to, 0, KEY, numbered_context(number))
            }
        }
    }
}

/// `fi_fetch_atomic` that adds to one number.
pub(super) fn fetch_and_add(pair: &Pair, operand: &u64, result: &mut u64, number: usize) {
    let (ep, to, none): (_, u64, *mut c_void) = (pair.left.ep.as_ptr(), pair.to_right, ptr::null_mut());
    let (operand, result) = (ptr::from_ref(operand).cast(), ptr::from_mut(result).cast());
    // SAFETY: the endpoint is open; the test keeps both numbers until it has read the completion.
    let posted = unsafe {
        let fetch = (*(*ep).atomic).readwrite;
        fetch(ep, operand, 1, none, result, none, to, 0, KEY, UINT64, SUM, numbered_context(number))
    };
    assert_eq!(posted, 0);
}
