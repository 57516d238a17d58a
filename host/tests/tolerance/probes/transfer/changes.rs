//! The unusual arguments of calls. No count is far beyond a limit: some providers would then overwrite their
//! own memory, and outcomes would be random.

use std::ptr;

use super::call::{Call, CallArguments};
use crate::setup::Context;

/// A change to the arguments of a call.
pub(super) type ArgumentChange = fn(&Context, &mut CallArguments);

pub(super) const CHANGES: &[(&str, Applies, ArgumentChange)] = &[
    ("as usual", |_, _| true, |_, _| ()),
    ("buf null, len 0", |_, _| true, |_, a| (a.buf, a.len) = (ptr::null_mut(), 0)),
    ("buf null", |_, _| true, |_, a| a.buf = ptr::null_mut()),
    ("len 0", |_, _| true, |_, a| a.len = 0),
    ("desc null", |_, name| !name.contains("inject"), |_, a| a.desc = ptr::null_mut()),
    ("array of desc null", Call::takes_vector, |_, a| a.has_descs = false),
    ("context null", |_, name| !name.contains("inject"), |_, a| a.context = ptr::null_mut()),
    ("addr FI_ADDR_UNSPEC", |_, _| true, |_, a| a.addr = u64::MAX),
    ("addr 12345", |_, _| true, |_, a| a.addr = 12345),
    ("addr 0", |_, _| true, |_, a| a.addr = 0),
    ("count 0", Call::takes_vector, |_, a| (a.vector_count, a.len) = (0, 0)),
    ("count 0, vector null", Call::takes_vector, |_, a| {
        (a.vector_count, a.len, a.has_vector) = (0, 0, false);
    }),
    ("vector null", Call::takes_vector, |_, a| a.has_vector = false),
    ("count 2", Call::takes_vector, |_, a| a.vector_count = 2),
    ("count iov_limit + 1", Call::takes_vector, |context, a| {
        let limit = unsafe { (*context.info.first().tx_attr).iov_limit };
        a.vector_count = limit.min(31) + 1;
    }),
    ("message null", Call::takes_flags, |_, a| a.has_message = false),
    ("tag max", |call, _| call.is_tagged(), |_, a| (a.tag, a.ignore) = (u64::MAX, u64::MAX)),
    ("ignore max", |call, name| call.is_tagged() && name.contains("recv"), |_, a| a.ignore = u64::MAX),
    ("data max", |_, name| name.contains("data"), |_, a| a.data = u64::MAX),
    ("len inject_size", Call::is_inject, |context, a| {
        let limit = unsafe { (*context.info.first().tx_attr).inject_size };
        a.len = limit.min(4096);
    }),
    ("len inject_size + 1", Call::is_inject, |context, a| {
        let limit = unsafe { (*context.info.first().tx_attr).inject_size };
        a.len = limit.saturating_add(1).min(1 << 20);
    }),
    (
        "len max_msg_size + 1",
        |call, name| !call.is_inject(name),
        |context, a| {
            let limit = unsafe { (*context.info.first().ep_attr).max_msg_size };
            a.len = limit.saturating_add(1);
        },
    ),
    ("key of nothing", |call, _| call.is_one_sided(), |_, a| a.key = 0x1234_5678),
    (
        "beyond the region",
        |call, _| call.is_one_sided(),
        |_, a| {
            a.remote = a.remote.wrapping_add(1 << 16);
        },
    ),
    ("rma_count 0", |call, name| call.is_one_sided() && call.takes_flags(name), |_, a| a.rma_count = 0),
    ("rma_count 2", |call, name| call.is_one_sided() && call.takes_flags(name), |_, a| a.rma_count = 2),
    (
        "rma vector null",
        |call, name| call.is_one_sided() && call.takes_flags(name),
        |_, a| {
            a.has_rma_vector = false;
        },
    ),
    (
        "rma vector null, both counts 0",
        |call, name| call.is_one_sided() && call.takes_flags(name),
        |_, a| {
            (a.has_rma_vector, a.rma_count, a.vector_count, a.len) = (false, 0, 0, 0);
        },
    ),
    (
        "result null",
        |_, name| name.contains("fetch") || name.contains("compare"),
        |_, a| {
            (a.result, a.has_result_vector) = (ptr::null_mut(), false);
        },
    ),
    ("compare null", |call, _| call.is_compare(), |_, a| a.compare = ptr::null_mut()),
    ("datatype 14", |call, _| call.is_atomic(), |_, a| a.datatype = 14),
    ("datatype 100", |call, _| call.is_atomic(), |_, a| a.datatype = 100),
    ("op 100", |call, _| call.is_atomic(), |_, a| a.op = 100),
    ("op FI_ATOMIC_READ", |call, _| call.is_atomic(), |_, a| a.op = 10),
    ("op FI_ATOMIC_READ, buf null", |call, _| call.is_atomic(), |_, a| (a.op, a.buf) = (10, ptr::null_mut())),
    ("op FI_ATOMIC_WRITE", |call, _| call.is_atomic(), |_, a| a.op = 11),
    ("op FI_CSWAP", |call, _| call.is_atomic(), |_, a| a.op = 12),
];

/// Whether a change applies to this call.
pub(super) type Applies = fn(Call, &str) -> bool;
