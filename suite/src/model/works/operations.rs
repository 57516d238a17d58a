//! The operations of works: posts and completions.

use homespun::atomic::{AtomicOp, Datatype};
use homespun::endpoint::{
    AtomicMsg, AtomicTarget, CompareAtomicMsg, FetchAtomicMsg, ReadMsg, RecvMsg, SendMsg, WriteMsg,
};
use homespun::flags::OpFlags;
use homespun::trigger::Operation;
use homespun::{Bytes, FabricAddress, RemoteMemory, Tag};

use super::fixture::{CONSTANT_AT, PEER, SUM_AT, WorkFixture, own_number_offset};
use super::program::Action;
use crate::payload::{marked_buffer, payload};

/// A key that no region has.
const NO_KEY: u64 = 99;
pub(super) const LEN_BYTES: usize = 8;

/// Returns the context of a work's operation. The context is small, like the number of a work in the
/// library's queue. So the checks notice if the library confuses the two.
pub(super) fn context_of(work: usize) -> u64 {
    work as u64
}

/// Returns the work of an operation with this context.
pub(super) fn work_of(context: u64) -> usize {
    context as usize
}

/// Returns the tag of a message, or `None` for an untagged one. All tagged messages have the same tag.
pub(super) fn tag_of_kind(is_tagged: bool) -> Option<u64> {
    is_tagged.then_some(7)
}

pub(super) fn make_receive(is_tagged: bool, context: u64, flags: OpFlags) -> RecvMsg {
    let tagged = tag_of_kind(is_tagged).map(|tag| Tag(tag).into());
    RecvMsg {
        buffers: vec![marked_buffer(LEN_BYTES)],
        from: FabricAddress::UNSPECIFIED,
        tagged,
        context,
        flags,
    }
}

pub(super) fn make_send(is_tagged: bool, identity: usize, context: u64, flags: OpFlags) -> SendMsg {
    let data = Some(identity as u64);
    let buffers = vec![payload(identity as u64, LEN_BYTES)];
    SendMsg { buffers, to: PEER, tag: tag_of_kind(is_tagged).map(Tag), data, context, flags }
}

/// Returns the number that a work writes to its own offset.
pub(super) fn number_written_by(work: usize) -> u64 {
    work as u64 + 1
}

pub(super) fn make_operation(
    fixture: &WorkFixture<'_>,
    work: usize,
    action: Action,
    flags: OpFlags,
) -> Operation {
    let (region, context) = (&fixture.region, context_of(work));
    let word = |word: u64| vec![Bytes::copy_from_slice(&word.to_le_bytes())];
    let target = |at: usize, op| AtomicTarget {
        peer: PEER,
        memory: RemoteMemory { address: region.address_at(at), key: region.key() },
        datatype: Datatype::Uint64,
        op,
    };
    let results = || vec![marked_buffer(LEN_BYTES)];
    match action {
        Action::Send { is_tagged } => Operation::Send(make_send(is_tagged, work, context, flags)),
        Action::Receive { is_tagged } => Operation::Receive(make_receive(is_tagged, context, flags)),
        Action::Write | Action::WriteInVain => Operation::Write(WriteMsg {
            buffers: word(number_written_by(work)),
            to: PEER,
            memory: RemoteMemory {
                address: region.address_at(own_number_offset(work)),
                key: if action == Action::Write { region.key() } else { NO_KEY },
            },
            data: None,
            context,
            flags,
        }),
        Action::Read => Operation::Read(ReadMsg {
            buffers: results(),
            from: PEER,
            memory: RemoteMemory { address: region.address_at(CONSTANT_AT), key: region.key() },
            context,
            flags,
        }),
        Action::Add => Operation::Atomic(AtomicMsg {
            operands: word(1),
            target: target(SUM_AT, AtomicOp::Sum),
            context,
            flags,
        }),
        Action::FetchAdd => Operation::FetchAtomic(FetchAtomicMsg {
            operands: word(1),
            results: results(),
            target: target(SUM_AT, AtomicOp::Sum),
            context,
            flags,
        }),
        Action::CompareSwap => Operation::CompareAtomic(CompareAtomicMsg {
            operands: word(number_written_by(work)),
            compares: word(0),
            results: results(),
            target: target(own_number_offset(work), AtomicOp::Cswap),
            context,
            flags,
        }),
    }
}
