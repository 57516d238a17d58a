//! The memory of operations behind the C interface. None of it is ever freed: a provider may keep pointers.

use std::collections::HashMap;

use homespun::flags::OpFlags;
use homespun::{Buffer, Bytes, BytesMut, Fetched, ReceivedLast, SegmentMut};
use libc::{c_void, iovec};

use crate::raw::Piece;

/// The memory that a provider may use for itself while it carries out an operation (`FI_CONTEXT2`).
const CONTEXT_WORDS: usize = 8;

/// The operations of an endpoint that have not ended, by the address of their context.
#[derive(Debug, Default)]
pub(super) struct Posted {
    operations: HashMap<usize, Operation>,
    /// Whether receives without flags take many messages.
    pub(super) takes_many_by_default: bool,
    /// How many were posted.
    count: u64,
    /// The address of the context of the last peek with each context that claims its message.
    peeks: HashMap<u64, usize>,
}

/// An operation that was posted.
#[derive(Debug)]
struct Operation {
    /// How many were posted before.
    number: u64,
    /// The context as the test calls it.
    context: u64,
    memory: Memory,
    /// Whether an entry has released the buffer of many messages. A provider may report errors before older
    /// successes, so others may follow.
    is_released: bool,
}

/// The memory of an operation, and the form in which its completion returns it.
#[derive(Debug)]
pub(super) enum Memory {
    /// Nothing that the completion returns.
    None,
    Sent {
        pieces: Vec<Bytes>,
        is_vector: bool,
    },
    Received {
        pieces: Vec<Piece>,
        is_vector: bool,
    },
    Read {
        pieces: Vec<Piece>,
        is_vector: bool,
    },
    /// A receive buffer for many messages, of which so many bytes are known to be used.
    Many {
        piece: Piece,
        used_bytes: usize,
    },
    /// A raw receive buffer for many messages.
    RawMany,
    Fetched {
        operands: Vec<Bytes>,
        compares: Vec<Bytes>,
        results: Vec<Piece>,
        is_vector: bool,
        compares_any: bool,
    },
}

/// What a queue says about the end of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) op_context: *mut c_void,
    pub(super) len_bytes: usize,
    pub(super) buf: *mut u8,
    /// The buffer of many messages is given back.
    pub(super) is_released: bool,
    /// A message or a result has been placed.
    pub(super) has_payload: bool,
}

impl Posted {
    /// Records an operation that is about to be posted. Returns its context for the C interface.
    pub(super) fn add(&mut self, context: u64, memory: Memory) -> *mut c_void {
        self.add_at(allocate_context().expose_provenance(), context, memory)
    }

    /// As [`add`](Self::add), for a receive with these flags: a claim has the context of the peek that has
    /// found its message.
    pub(super) fn add_receive(&mut self, context: u64, flags: OpFlags, memory: Memory) -> *mut c_void {
        let (looks, claims) = (flags.contains(OpFlags::PEEK), flags.contains(OpFlags::CLAIM));
        if claims
            && !looks
            && let Some(&address) = self.peeks.get(&context)
        {
            return self.add_at(address, context, memory);
        }
        let op_context = self.add(context, memory);
        if claims && looks {
            self.peeks.insert(context, op_context.addr());
        }
        op_context
    }

    fn add_at(&mut self, address: usize, context: u64, memory: Memory) -> *mut c_void {
        self.operations
            .insert(address, Operation { number: self.count, context, memory, is_released: false });
        self.count += 1;
        std::ptr::with_exposed_provenance_mut(address)
    }

    /// The address of the context of the oldest operation with this context. If there is none, one that no
    /// operation has.
    pub(super) fn find_or_invent(&self, context: u64) -> *mut c_void {
        let same = self.operations.iter().filter(|(_, it)| it.context == context && !it.is_released);
        match same.min_by_key(|(_, operation)| operation.number) {
            Some((&address, _)) => std::ptr::with_exposed_provenance_mut(address),
            None => allocate_context(),
        }
    }

    /// The test's context and the buffer of the operation that an entry reports.
    pub(super) fn context_and_buffer(&mut self, entry: Entry) -> (u64, Buffer) {
        let address = entry.op_context.addr();
        if entry.op_context.is_null() {
            return (0, Buffer::None);
        }
        let operation =
            self.operations.get_mut(&address).expect("an entry reports an operation that was posted");
        let found = (operation.context, operation.memory.buffer(entry));
        let takes_many = matches!(operation.memory, Memory::Many { .. } | Memory::RawMany);
        if takes_many {
            operation.is_released |= entry.is_released;
        } else {
            self.operations.remove(&address);
        }
        found
    }

    /// Forgets an operation whose post was refused.
    pub(super) fn forget(&mut self, op_context: *mut c_void) {
        self.operations.remove(&op_context.addr());
    }
}

impl Memory {
    fn buffer(&mut self, entry: Entry) -> Buffer {
        match self {
            Memory::None => Buffer::None,
            Memory::Sent { pieces, is_vector } => sent(pieces, *is_vector),
            Memory::Received { pieces, is_vector } => received(pieces, *is_vector, entry.len_bytes),
            // `fi_cq(3)` gives the entry of a read no length.
            Memory::Read { pieces, is_vector } => {
                received(pieces, *is_vector, if entry.has_payload { usize::MAX } else { 0 })
            }
            Memory::Many { piece, used_bytes } => {
                piece.check_guard();
                let offset =
                    if entry.buf.is_null() { *used_bytes } else { entry.buf.addr() - piece.address.addr() };
                let end = offset + if entry.has_payload { entry.len_bytes } else { 0 };
                *used_bytes = end.max(*used_bytes);
                let message = BytesMut::from(&piece.bytes()[offset..end]);
                let unused = BytesMut::from(&piece.bytes()[*used_bytes..]);
                match (entry.has_payload, entry.is_released) {
                    (true, false) => Buffer::Received(message),
                    (true, true) => Buffer::ReceivedLast(Box::new(ReceivedLast { message, unused })),
                    (false, _) => Buffer::Unused(unused),
                }
            }
            Memory::RawMany if entry.has_payload && !entry.buf.is_null() => {
                Buffer::Within(SegmentMut { address: entry.buf, len_bytes: entry.len_bytes })
            }
            Memory::RawMany => Buffer::None,
            Memory::Fetched { operands, compares, results, is_vector, compares_any } => {
                Buffer::Fetched(Box::new(Fetched {
                    result: received(results, *is_vector, usize::MAX),
                    operand: sent(operands, *is_vector),
                    compare: if *compares_any { sent(compares, *is_vector) } else { Buffer::None },
                }))
            }
        }
    }
}

pub(super) fn iovecs(pieces: &[Piece]) -> Vec<iovec> {
    let iovec = |piece: &Piece| iovec { iov_base: piece.address.cast(), iov_len: piece.len_bytes };
    pieces.iter().map(iovec).collect()
}

fn allocate_context() -> *mut c_void {
    let room: &'static mut [usize] = Box::leak(vec![0_usize; CONTEXT_WORDS].into_boxed_slice());
    room.as_mut_ptr().cast()
}

fn sent(pieces: &[Bytes], is_vector: bool) -> Buffer {
    match pieces {
        [piece] if !is_vector => Buffer::Sent(piece.clone()),
        pieces => Buffer::SentVector(pieces.to_vec()),
    }
}

/// The pieces of a received message of this length.
fn received(pieces: &[Piece], is_vector: bool, len_bytes: usize) -> Buffer {
    let mut left_bytes = len_bytes;
    let mut cut = pieces.iter().map(|piece| {
        piece.check_guard();
        let taken_bytes = left_bytes.min(piece.len_bytes);
        left_bytes -= taken_bytes;
        BytesMut::from(&piece.part(0, taken_bytes)[..])
    });
    if !is_vector && pieces.len() == 1 {
        return Buffer::Received(cut.next().expect("one piece"));
    }
    Buffer::ReceivedVector(cut.collect())
}
