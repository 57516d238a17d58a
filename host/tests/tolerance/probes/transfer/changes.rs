//! The unusual arguments of calls. No count is far beyond a limit: some providers would then overwrite their
//! own memory, and outcomes would be random.

use std::ptr;

use homespun_host::abi::info::{FiEpAttr, FiTxAttr};

use super::call::{
    CallArguments, is_atomic, is_compare, is_inject, is_one_sided, is_tagged, takes_flags, takes_vector,
};
use crate::setup::Context;

/// Whether a change applies to the call of this name.
type Applies = fn(&str) -> bool;

/// A change to the arguments of a call.
type ArgumentChange = fn(&Context, &mut CallArguments);

const ANY: Applies = |_| true;
const WITH_CONTEXT: Applies = |call| !is_inject(call);
const WITH_REMOTE_VECTOR: Applies = |call| is_one_sided(call) && takes_flags(call);

fn tx_attr(context: &Context) -> &FiTxAttr {
    unsafe { &*context.info.first().tx_attr }
}

fn ep_attr(context: &Context) -> &FiEpAttr {
    unsafe { &*context.info.first().ep_attr }
}

pub(super) const CHANGES: &[(&str, Applies, ArgumentChange)] = &[
    ("as usual", ANY, |_, _| ()),
    ("buf null, len 0", ANY, |_, a| (a.buf, a.len) = (ptr::null_mut(), 0)),
    ("buf null", ANY, |_, a| a.buf = ptr::null_mut()),
    ("len 0", ANY, |_, a| a.len = 0),
    ("desc null", WITH_CONTEXT, |_, a| a.desc = ptr::null_mut()),
    ("array of desc null", takes_vector, |_, a| a.has_descs = false),
    ("context null", WITH_CONTEXT, |_, a| a.context = ptr::null_mut()),
    ("addr FI_ADDR_UNSPEC", ANY, |_, a| a.addr = u64::MAX),
    ("addr 12345", ANY, |_, a| a.addr = 12345),
    ("addr 0", ANY, |_, a| a.addr = 0),
    ("count 0", takes_vector, |_, a| (a.vector_count, a.len) = (0, 0)),
    ("count 0, vector null", takes_vector, |_, a| (a.vector_count, a.len, a.has_vector) = (0, 0, false)),
    ("vector null", takes_vector, |_, a| a.has_vector = false),
    ("count 2", takes_vector, |_, a| a.vector_count = 2),
    ("count iov_limit + 1", takes_vector, |context, a| {
        a.vector_count = tx_attr(context).iov_limit.min(31) + 1;
    }),
    ("message null", takes_flags, |_, a| a.has_message = false),
    ("tag max", is_tagged, |_, a| (a.tag, a.ignore) = (u64::MAX, u64::MAX)),
    ("ignore max", |call| is_tagged(call) && call.contains("recv"), |_, a| a.ignore = u64::MAX),
    ("data max", |call| call.contains("data"), |_, a| a.data = u64::MAX),
    ("len inject_size", is_inject, |context, a| a.len = tx_attr(context).inject_size.min(4096)),
    ("len inject_size + 1", is_inject, |context, a| {
        a.len = tx_attr(context).inject_size.saturating_add(1).min(1 << 20);
    }),
    // Not of reads: others write beyond the buffer, and what that breaks differs from run to run.
    (
        "len max_msg_size + 1",
        |call| WITH_CONTEXT(call) && !call.contains("read"),
        |context, a| {
            a.len = ep_attr(context).max_msg_size.saturating_add(1);
        },
    ),
    ("key of nothing", is_one_sided, |_, a| a.key = 0x1234_5678),
    ("beyond the region", is_one_sided, |_, a| a.remote = a.remote.wrapping_add(1 << 16)),
    ("rma_count 0", WITH_REMOTE_VECTOR, |_, a| a.rma_count = 0),
    ("rma_count 2", WITH_REMOTE_VECTOR, |_, a| a.rma_count = 2),
    ("rma vector null", WITH_REMOTE_VECTOR, |_, a| a.has_rma_vector = false),
    ("rma vector null, both counts 0", WITH_REMOTE_VECTOR, |_, a| {
        (a.has_rma_vector, a.rma_count, a.vector_count, a.len) = (false, 0, 0, 0);
    }),
    (
        "result null",
        |call| call.contains("fetch") || is_compare(call),
        |_, a| {
            (a.result, a.has_result_vector) = (ptr::null_mut(), false);
        },
    ),
    ("compare null", is_compare, |_, a| a.compare = ptr::null_mut()),
    ("datatype 14", is_atomic, |_, a| a.datatype = 14),
    ("datatype 100", is_atomic, |_, a| a.datatype = 100),
    ("op 100", is_atomic, |_, a| a.op = 100),
    ("op FI_ATOMIC_READ", is_atomic, |_, a| a.op = 10),
    ("op FI_ATOMIC_READ, buf null", is_atomic, |_, a| (a.op, a.buf) = (10, ptr::null_mut())),
    ("op FI_ATOMIC_WRITE", is_atomic, |_, a| a.op = 11),
    ("op FI_CSWAP", is_atomic, |_, a| a.op = 12),
];
