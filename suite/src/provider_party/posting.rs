//! The calls that post operations, through the vtables of an endpoint.

use std::ptr;

use homespun::atomic::AtomicKind;
use homespun::endpoint::AtomicTarget;
use homespun::flags::OpFlags;
use homespun::{Bytes, BytesMut, Errno, RemoteMemory, TagMatch};
use homespun_host::abi::FI_ADDR_UNSPEC;
use homespun_host::abi::atomic::{FiIoc, FiMsgAtomic, FiRmaIoc};
use homespun_host::abi::endpoint::{FiMsg, FidEp};
use homespun_host::abi::rma::{FiMsgRma, FiRmaIov};
use homespun_host::abi::tagged::FiMsgTagged;
use libc::c_void;

use super::posted::{Memory, Posted, iovecs};
use crate::atomic_call::{AtomicBy, AtomicCall};
use crate::call::{ReceiveBy, RemoteReceive, RemoteSend, SendBy};
use crate::raw::{Piece, Post};
use crate::rma_call::{RmaBy, RmaCall};

/// No descriptors: no provider was asked for `FI_MR_LOCAL`.
const NO_DESC: *mut *mut c_void = ptr::null_mut();

/// Posts operations to an endpoint. All memory that the calls name is leaked, so that it outlives the
/// operations.
pub(super) struct Poster<'a> {
    /// An open endpoint.
    pub(super) ep: *mut FidEp,
    pub(super) posted: &'a mut Posted,
}

impl Poster<'_> {
    pub(super) fn send(&mut self, send: RemoteSend) -> Result<(), Errno> {
        let RemoteSend { by, buffers, post } = send;
        let Post { peer, tag, data, context, flags } = post;
        let pieces = leak_copies(&buffers);
        let (ep, to) = (self.ep, peer.0);
        // A call without flags has the endpoint's default flags.
        let is_raw_vector = matches!(by, SendBy::Raw) && flags.is_none() && data.is_none();
        let op_context = match by {
            SendBy::Inject => ptr::null_mut(),
            SendBy::Raw => self.posted.add(context, Memory::None),
            SendBy::Single => self.posted.add(context, Memory::Sent { pieces: buffers, is_vector: false }),
            SendBy::Vector | SendBy::Message => {
                self.posted.add(context, Memory::Sent { pieces: buffers, is_vector: true })
            }
        };
        let iov = iovecs(&pieces);
        let (buf, len) = first_of(&pieces);
        let desc = ptr::null_mut();
        // SAFETY: the endpoint is open, and has the capability of the call, so that its vtable is there. The
        // memory of the message and the context are leaked.
        let result = unsafe {
            use SendBy::{Inject, Message, Raw, Single, Vector};
            let (msg, tagged) = ((*ep).msg, (*ep).tagged);
            let by = if is_raw_vector { Vector } else { by };
            match (by, tag, data) {
                (Single, None, None) => ((*msg).send)(ep, buf, len, desc, to, op_context),
                (Single, None, Some(data)) => ((*msg).senddata)(ep, buf, len, desc, data, to, op_context),
                (Single, Some(tag), None) => ((*tagged).send)(ep, buf, len, desc, to, tag, op_context),
                (Single, Some(tag), Some(data)) => {
                    ((*tagged).senddata)(ep, buf, len, desc, data, to, tag, op_context)
                }
                (Vector, None, _) => ((*msg).sendv)(ep, iov.as_ptr(), NO_DESC, iov.len(), to, op_context),
                (Vector, Some(tag), _) => {
                    ((*tagged).sendv)(ep, iov.as_ptr(), NO_DESC, iov.len(), to, tag, op_context)
                }
                (Inject, None, None) => ((*msg).inject)(ep, buf, len, to),
                (Inject, None, Some(data)) => ((*msg).injectdata)(ep, buf, len, data, to),
                (Inject, Some(tag), None) => ((*tagged).inject)(ep, buf, len, to, tag),
                (Inject, Some(tag), Some(data)) => ((*tagged).injectdata)(ep, buf, len, data, to, tag),
                (Message | Raw, None, data) => {
                    let message = untagged(&iov, to, op_context, data.unwrap_or_default());
                    ((*msg).sendmsg)(ep, &raw const message, with_data(flags, data))
                }
                (Message | Raw, Some(tag), data) => {
                    let matched = TagMatch { tag, ignore: 0 };
                    let message = tagged_message(&iov, to, matched, op_context, data.unwrap_or_default());
                    ((*tagged).sendmsg)(ep, &raw const message, with_data(flags, data))
                }
            }
        };
        if matches!(by, SendBy::Inject) {
            overwrite(&pieces);
        }
        self.check(result, op_context)
    }

    pub(super) fn receive(&mut self, receive: RemoteReceive) -> Result<(), Errno> {
        let RemoteReceive { by, buffers, from, tagged, context, flags } = receive;
        let pieces = leak_rooms(buffers.iter().map(BytesMut::len));
        let by_default = by == ReceiveBy::Single && tagged.is_none() && self.posted.takes_many_by_default;
        let takes_many = by_default || by == ReceiveBy::Multi || flags.contains(OpFlags::MULTI_RECV);
        let memory = match by {
            _ if takes_many && pieces.len() == 1 => Memory::Many { piece: pieces[0], used_bytes: 0 },
            ReceiveBy::Single => Memory::Received { pieces: pieces.clone(), is_vector: false },
            ReceiveBy::Vector | ReceiveBy::Message | ReceiveBy::Multi => {
                Memory::Received { pieces: pieces.clone(), is_vector: true }
            }
        };
        let op_context = self.posted.add_receive(context, flags, memory);
        let flags = if by == ReceiveBy::Multi { OpFlags::MULTI_RECV } else { flags };
        let by_message = matches!(by, ReceiveBy::Multi | ReceiveBy::Message);
        self.post_receive(by_message, &pieces, from.0, tagged, op_context, flags)
    }

    /// Posts a receive into memory that the test reads by itself.
    pub(super) fn receive_raw(
        &mut self,
        lens_bytes: &[usize],
        ignore: u64,
        post: Post,
    ) -> Result<Vec<Piece>, Errno> {
        let Post { peer, tag, context, flags, .. } = post;
        let pieces = leak_rooms(lens_bytes.iter().copied());
        let is_many = match flags {
            Some(flags) => flags.contains(OpFlags::MULTI_RECV),
            None => tag.is_none() && self.posted.takes_many_by_default,
        };
        let memory = if is_many { Memory::RawMany } else { Memory::None };
        let op_context = self.posted.add_receive(context, flags.unwrap_or_default(), memory);
        let tagged = tag.map(|tag| TagMatch { tag, ignore });
        // A call without flags has the endpoint's default flags.
        let (by_message, flags) = (flags.is_some(), flags.unwrap_or_default());
        self.post_receive(by_message, &pieces, peer.0, tagged, op_context, flags)?;
        Ok(pieces)
    }

    fn post_receive(
        &mut self,
        by_message: bool,
        pieces: &[Piece],
        from: u64,
        tagged: Option<TagMatch>,
        op_context: *mut c_void,
        flags: OpFlags,
    ) -> Result<(), Errno> {
        let ep = self.ep;
        let iov = iovecs(pieces);
        let (buf, len) = first_of(pieces);
        let (buf, desc) = (buf.cast_mut(), ptr::null_mut());
        let is_single = pieces.len() == 1;
        // SAFETY: as for `send`.
        let result = unsafe {
            let (msg, tags) = ((*ep).msg, (*ep).tagged);
            match tagged {
                None if by_message => {
                    let message = untagged(&iov, from, op_context, 0);
                    ((*msg).recvmsg)(ep, &raw const message, flags.bits())
                }
                None if is_single => ((*msg).recv)(ep, buf, len, desc, from, op_context),
                None => ((*msg).recvv)(ep, iov.as_ptr(), NO_DESC, iov.len(), from, op_context),
                Some(matched) if by_message => {
                    let message = tagged_message(&iov, from, matched, op_context, 0);
                    ((*tags).recvmsg)(ep, &raw const message, flags.bits())
                }
                Some(TagMatch { tag, ignore }) if is_single => {
                    ((*tags).recv)(ep, buf, len, desc, from, tag, ignore, op_context)
                }
                Some(TagMatch { tag, ignore }) => {
                    ((*tags).recvv)(ep, iov.as_ptr(), NO_DESC, iov.len(), from, tag, ignore, op_context)
                }
            }
        };
        self.check(result, op_context)
    }

    pub(super) fn access(&mut self, call: RmaCall) -> Result<(), Errno> {
        let RmaCall { by, buffers, peer, address, key, data, context, flags } = call;
        let (ep, peer) = (self.ep, peer.0);
        let reads = matches!(by, RmaBy::Read | RmaBy::Readv | RmaBy::Readmsg);
        // The calls of one buffer write all pieces as one.
        let buffers = match by {
            RmaBy::Write | RmaBy::InjectWrite => vec![Bytes::from(buffers.concat())],
            RmaBy::Read => buffers[..1].to_vec(),
            _ => buffers,
        };
        let pieces = if reads { leak_rooms(buffers.iter().map(Bytes::len)) } else { leak_copies(&buffers) };
        let is_vector = !matches!(by, RmaBy::Write | RmaBy::Read);
        let op_context = match by {
            RmaBy::InjectWrite => ptr::null_mut(),
            RmaBy::WriteRaw => self.posted.add(context, Memory::None),
            _ if reads => self.posted.add(context, Memory::Read { pieces: pieces.clone(), is_vector }),
            _ => self.posted.add(context, Memory::Sent { pieces: buffers, is_vector }),
        };
        let iov = iovecs(&pieces);
        let (buf, len) = first_of(&pieces);
        let remote = FiRmaIov { addr: address, len: pieces.iter().map(|piece| piece.len_bytes).sum(), key };
        let message = FiMsgRma {
            msg_iov: iov.as_ptr(),
            desc: NO_DESC,
            iov_count: iov.len(),
            addr: peer,
            rma_iov: &raw const remote,
            rma_iov_count: 1,
            context: op_context,
            data: data.unwrap_or_default(),
        };
        let (desc, none) = (ptr::null_mut(), NO_DESC);
        // SAFETY: as for `send`; the structures live until the call has returned.
        let result = unsafe {
            use RmaBy::{InjectWrite, Read, Readmsg, Readv, Write, WriteRaw, Writemsg, Writev};
            let rma = &*(*ep).rma;
            match (by, data) {
                (Write, None) => (rma.write)(ep, buf, len, desc, peer, address, key, op_context),
                (Write, Some(data)) => {
                    (rma.writedata)(ep, buf, len, desc, data, peer, address, key, op_context)
                }
                (Writev, _) => {
                    (rma.writev)(ep, iov.as_ptr(), none, iov.len(), peer, address, key, op_context)
                }
                (Writemsg | WriteRaw, data) => {
                    (rma.writemsg)(ep, &raw const message, with_data(Some(flags), data))
                }
                (InjectWrite, None) => (rma.inject)(ep, buf, len, peer, address, key),
                (InjectWrite, Some(data)) => (rma.injectdata)(ep, buf, len, data, peer, address, key),
                (Read, _) => (rma.read)(ep, buf.cast_mut(), len, desc, peer, address, key, op_context),
                (Readv, _) => (rma.readv)(ep, iov.as_ptr(), none, iov.len(), peer, address, key, op_context),
                (Readmsg, _) => (rma.readmsg)(ep, &raw const message, flags.bits()),
            }
        };
        if by == RmaBy::InjectWrite {
            overwrite(&pieces);
        }
        self.check(result, op_context)
    }

    /// The largest number of elements of such an operation: `fi_atomicvalid` and its siblings of
    /// `fi_atomic(3)`.
    pub(super) fn max_atomic_count(&self, call: &AtomicCall) -> Result<usize, Errno> {
        let (datatype, op) = (call.target.datatype as u32, call.target.op as u32);
        let mut count = 0;
        // SAFETY: the endpoint is open and has atomic operations, and the call writes the count.
        let result = unsafe {
            let atomic = &*(*self.ep).atomic;
            let valid = match call.kind {
                AtomicKind::Base => atomic.writevalid,
                AtomicKind::Fetch => atomic.readwritevalid,
                AtomicKind::Compare => atomic.compwritevalid,
            };
            valid(self.ep, datatype, op, &raw mut count)
        };
        check(result as isize)?;
        Ok(count)
    }

    /// Posts an atomic operation. Returns the memory of its results if the test reads it by itself.
    pub(super) fn atomic(&mut self, call: AtomicCall) -> Result<Option<Vec<Piece>>, Errno> {
        let AtomicCall { by, kind, operands, compares, results_bytes, target, context, flags } = call;
        let AtomicTarget { peer, memory: RemoteMemory { address, key }, datatype, op } = target;
        let (ep, peer) = (self.ep, peer.0);
        let is_single = matches!(by, AtomicBy::Single | AtomicBy::Inject);
        let joined = |pieces: Vec<Bytes>| if is_single { vec![Bytes::from(pieces.concat())] } else { pieces };
        let (operands, compares) = (joined(operands), joined(compares));
        let results_bytes = if is_single { vec![results_bytes.iter().sum()] } else { results_bytes };
        let results = if kind.fetches() { leak_rooms(results_bytes) } else { Vec::new() };
        let element_bytes = datatype.size_bytes();
        let iocs = |pieces: &[Piece]| -> Vec<FiIoc> {
            let ioc =
                |piece: &Piece| FiIoc { addr: piece.address.cast(), count: piece.len_bytes / element_bytes };
            pieces.iter().map(ioc).collect()
        };
        let operand_pieces = leak_copies(&operands);
        let operand = iocs(&operand_pieces);
        let compare = iocs(&leak_copies(&compares));
        let mut result = iocs(&results);
        // An atomic read has no operand.
        let counted = if operands.concat().is_empty() { &result } else { &operand };
        let count: usize = counted.iter().map(|ioc| ioc.count).sum();
        let is_raw = by == AtomicBy::Raw;
        let ctx = match (by, kind) {
            (AtomicBy::Inject, _) => ptr::null_mut(),
            (AtomicBy::Raw, _) => self.posted.add(context, Memory::None),
            (_, AtomicKind::Base) => {
                self.posted.add(context, Memory::Sent { pieces: operands, is_vector: !is_single })
            }
            (_, AtomicKind::Fetch | AtomicKind::Compare) => {
                let memory = Memory::Fetched {
                    operands,
                    compares,
                    results: results.clone(),
                    is_vector: !is_single,
                    compares_any: kind == AtomicKind::Compare,
                };
                self.posted.add(context, memory)
            }
        };
        let remote = FiRmaIoc { addr: address, count, key };
        let (datatype, op, none) = (datatype as u32, op as u32, NO_DESC);
        let message = FiMsgAtomic {
            msg_iov: operand.as_ptr(),
            desc: NO_DESC,
            iov_count: operand.len(),
            addr: peer,
            rma_iov: &raw const remote,
            rma_iov_count: 1,
            datatype,
            op,
            context: ctx,
            data: 0,
        };
        let first = |iocs: &[FiIoc]| iocs.first().map_or(ptr::null_mut(), |ioc| ioc.addr);
        let (buf, cmp, res) = (first(&operand), first(&compare), first(&result));
        let (op_iov, op_count) = (operand.as_ptr(), operand.len());
        let (cmp_iov, cmp_count) = (compare.as_ptr(), compare.len());
        let (res_iov, res_count) = (result.as_mut_ptr(), result.len());
        let (desc, msg, flags) = (ptr::null_mut(), &raw const message, flags.bits());
        // SAFETY: as for `access`.
        let outcome = unsafe {
            use AtomicBy::{Inject, Message, Raw, Single, Vector};
            use AtomicKind::{Base, Compare, Fetch};
            let atomic = &*(*ep).atomic;
            match (by, kind) {
                (Inject, _) => (atomic.inject)(ep, buf, count, peer, address, key, datatype, op),
                (Single, Base) => (atomic.write)(ep, buf, count, desc, peer, address, key, datatype, op, ctx),
                (Vector, Base) => {
                    (atomic.writev)(ep, op_iov, none, op_count, peer, address, key, datatype, op, ctx)
                }
                (Message | Raw, Base) => (atomic.writemsg)(ep, msg, flags),
                (Single, Fetch) => {
                    (atomic.readwrite)(ep, buf, count, desc, res, desc, peer, address, key, datatype, op, ctx)
                }
                (Vector, Fetch) => (atomic.readwritev)(
                    ep, op_iov, none, op_count, res_iov, none, res_count, peer, address, key, datatype, op,
                    ctx,
                ),
                (Message | Raw, Fetch) => (atomic.readwritemsg)(ep, msg, res_iov, none, res_count, flags),
                (Single, Compare) => (atomic.compwrite)(
                    ep, buf, count, desc, cmp, desc, res, desc, peer, address, key, datatype, op, ctx,
                ),
                (Vector, Compare) => (atomic.compwritev)(
                    ep, op_iov, none, op_count, cmp_iov, none, cmp_count, res_iov, none, res_count, peer,
                    address, key, datatype, op, ctx,
                ),
                (Message | Raw, Compare) => {
                    (atomic.compwritemsg)(ep, msg, cmp_iov, none, cmp_count, res_iov, none, res_count, flags)
                }
            }
        };
        if by == AtomicBy::Inject {
            overwrite(&operand_pieces);
        }
        self.check(outcome, ctx)?;
        Ok((is_raw && kind.fetches()).then_some(results))
    }

    /// `fi_cancel(3)`.
    pub(super) fn cancel(&mut self, context: u64) -> Result<(), Errno> {
        let op_context = self.posted.find_or_invent(context);
        // SAFETY: the endpoint is open, and the context is only a name here.
        check(unsafe { ((*(*self.ep).ops).cancel)(&raw mut (*self.ep).fid, op_context) })
    }

    fn check(&mut self, result: isize, op_context: *mut c_void) -> Result<(), Errno> {
        let checked = check(result);
        if checked.is_err() {
            self.posted.forget(op_context);
        }
        checked
    }
}

fn leak_copies(buffers: &[Bytes]) -> Vec<Piece> {
    buffers.iter().map(Piece::copy_of).collect()
}

fn leak_rooms(lens_bytes: impl IntoIterator<Item = usize>) -> Vec<Piece> {
    lens_bytes.into_iter().map(Piece::allocate).collect()
}

/// Overwrites memory that an inject has read: it is the application's again when the call returns.
fn overwrite(pieces: &[Piece]) {
    for piece in pieces {
        piece.write(0, &vec![0xa5; piece.len_bytes]);
    }
}

/// Converts the result of a call.
pub(super) fn check(result: isize) -> Result<(), Errno> {
    if result >= 0 { Ok(()) } else { Err(Errno::new(i32::try_from(-result).unwrap_or(i32::MAX))) }
}

/// The flags of a message; `None` for those that the endpoint has by default.
fn with_data(flags: Option<OpFlags>, data: Option<u64>) -> u64 {
    let data = if data.is_some() { OpFlags::REMOTE_CQ_DATA } else { OpFlags::empty() };
    (flags.unwrap_or(OpFlags::COMPLETION) | data).bits()
}

fn first_of(pieces: &[Piece]) -> (*const c_void, usize) {
    pieces.first().map_or((ptr::null(), 0), |piece| (piece.address.cast_const().cast(), piece.len_bytes))
}

fn untagged(iov: &[libc::iovec], addr: u64, context: *mut c_void, data: u64) -> FiMsg {
    FiMsg { msg_iov: iov.as_ptr(), desc: NO_DESC, iov_count: iov.len(), addr, context, data }
}

fn tagged_message(
    iov: &[libc::iovec],
    addr: u64,
    TagMatch { tag, ignore }: TagMatch,
    context: *mut c_void,
    data: u64,
) -> FiMsgTagged {
    let (msg_iov, iov_count) = (iov.as_ptr(), iov.len());
    FiMsgTagged { msg_iov, desc: NO_DESC, iov_count, addr, tag, ignore, context, data }
}

/// The address that names no peer.
pub(super) const ANY: u64 = FI_ADDR_UNSPEC;
