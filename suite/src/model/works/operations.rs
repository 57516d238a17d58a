//! The operations of works.

use homespun::atomic::{AtomicOp, Datatype};
use homespun::endpoint::{
    AtomicMsg, AtomicTarget, CompareAtomicMsg, FetchAtomicMsg, ReadMsg, RecvMsg, SendMsg, WriteMsg,
};
use homespun::flags::OpFlags;
use homespun::trigger::Operation;
use homespun::{Bytes, RemoteMemory, Tag};

use super::fixture::{CONSTANT_AT, PEER, SUM_AT, WorkFixture, own_number_offset};
use super::program::Action;
use crate::payload::{marked_buffer, payload};

/// A key that no region has.
const NO_KEY: u64 = 99;
pub(super) const LEN_BYTES: usize = 8;

/// Returns the tag of a message, or `None` for an untagged one. All tagged messages have the same tag.
fn tag_of_kind(is_tagged: bool) -> Option<Tag> {
    is_tagged.then_some(Tag(7))
}

pub(super) fn make_receive(is_tagged: bool, context: u64, flags: OpFlags) -> RecvMsg {
    let tagged = tag_of_kind(is_tagged).map(Into::into);
    RecvMsg { buffers: vec![marked_buffer(LEN_BYTES)], tagged, context, flags, ..RecvMsg::default() }
}

pub(super) fn make_send(is_tagged: bool, identity: usize, context: u64, flags: OpFlags) -> SendMsg {
    let data = Some(identity as u64);
    let buffers = vec![payload(identity as u64, LEN_BYTES)];
    SendMsg { buffers, to: PEER, tag: tag_of_kind(is_tagged), data, context, flags }
}

/// Returns the number that a work writes to its own offset.
pub(super) fn number_written_by(work: usize) -> u64 {
    work as u64 + 1
}

/// Makes the operation of a work. Its context is small, like the number of a work in the library's queue. So
/// the checks notice if the library confuses the two.
pub(super) fn make_operation(
    fixture: &WorkFixture<'_>,
    work: usize,
    action: Action,
    flags: OpFlags,
) -> Operation {
    let context = work as u64;
    let word = |word: u64| vec![Bytes::copy_from_slice(&word.to_le_bytes())];
    let memory = |at| RemoteMemory { address: fixture.region.address_at(at), key: fixture.region.key() };
    let target = |at, op| AtomicTarget { peer: PEER, memory: memory(at), datatype: Datatype::Uint64, op };
    let results = vec![marked_buffer(LEN_BYTES)];
    let own_at = own_number_offset(work);
    match action {
        Action::Send { is_tagged } => Operation::Send(make_send(is_tagged, work, context, flags)),
        Action::Receive { is_tagged } => Operation::Receive(make_receive(is_tagged, context, flags)),
        Action::Write | Action::WriteInVain => {
            let key = if action == Action::Write { fixture.region.key() } else { NO_KEY };
            let memory = RemoteMemory { key, ..memory(own_at) };
            let buffers = word(number_written_by(work));
            Operation::Write(WriteMsg { buffers, to: PEER, memory, data: None, context, flags })
        }
        Action::Read => {
            let memory = memory(CONSTANT_AT);
            Operation::Read(ReadMsg { buffers: results, from: PEER, memory, context, flags })
        }
        Action::Add => {
            let target = target(SUM_AT, AtomicOp::Sum);
            Operation::Atomic(AtomicMsg { operands: word(1), target, context, flags })
        }
        Action::FetchAdd => {
            let target = target(SUM_AT, AtomicOp::Sum);
            Operation::FetchAtomic(FetchAtomicMsg { operands: word(1), results, target, context, flags })
        }
        Action::CompareSwap => Operation::CompareAtomic(CompareAtomicMsg {
            operands: word(number_written_by(work)),
            compares: word(0),
            results,
            target: target(own_at, AtomicOp::Cswap),
            context,
            flags,
        }),
    }
}
