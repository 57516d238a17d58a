//! Probes that read completion queues, counters and event queues: without room, with null pointers, with each
//! flag, and with a time-out of 0.

use std::{mem, ptr};

use homespun_host::abi::eq::{FiCntrAttr, FiCqAttr, FiCqErrEntry, FiEqAttr, FiEqErrEntry, FidCntr, FidCq};
use homespun_host::{counter_attr, cq_attr, eq_attr};
use libc::{c_int, c_void};

use super::Probes;
use crate::bits::flags;
use crate::outcome::describe_result;
use crate::patience::{Deadline, absence_timeout, pause};
use crate::setup::{
    Context, NULL, Pair, assert_success, call, drain_cq, leak_op_context as op_context, leak_zeroed_memory,
    open_counter_with, open_eq_with, recv, send,
};

pub(super) fn add_probes(probes: &mut Probes) {
    add_completion_probes(probes);
    add_counter_probes(probes);
    add_event_probes(probes);
}

/// The content of the completion queue when a probe reads it.
#[derive(Clone, Copy)]
enum Filled {
    Empty,
    Completion,
    Error,
}

fn open_filled_pair(context: &Context, filled: Filled) -> Pair {
    let mut pair = context.open_pair_after_exchange();
    let (ep, receive) = (pair.right.ep, op_context());
    if !matches!(filled, Filled::Empty) {
        assert_success("fi_recv", recv(ep, receive));
    }
    match filled {
        Filled::Empty => {}
        Filled::Error => {
            call!(ep, ops.cancel, receive);
        }
        Filled::Completion => {
            assert_success("fi_send", send(pair.left.ep, pair.to_right, op_context()));
            // This loop must leave the completion at the right for the probe, so it makes progress there by
            // reading 0 entries. It goes on for 40 rounds after the completion at the left, because the
            // completion at the right may come later.
            let deadline = Deadline::after(absence_timeout());
            let mut rounds = 0;
            while rounds < 40 && !deadline.record_if_expired() {
                drain_cq(pair.left.cq, &mut pair.at_left);
                call!(pair.right.cq, ops.read, NULL, 0);
                rounds += u32::from(!pair.at_left.is_empty());
                pause();
            }
        }
    }
    pair
}

fn add_completion_probes(probes: &mut Probes) {
    type Read = fn(*mut FidCq, *mut c_void, usize) -> isize;
    let reads: [(&str, &str, Read); 5] = [
        ("fi_cq_read", "", |cq, buf, count| call!(cq, ops.read, buf, count)),
        ("fi_cq_readfrom", "", |cq, buf, count| call!(cq, ops.readfrom, buf, count, [0; 8].as_mut_ptr())),
        ("fi_cq_readfrom", ", addresses null", |cq, buf, count| {
            call!(cq, ops.readfrom, buf, count, ptr::null_mut())
        }),
        ("fi_cq_sread", ", timeout 0", |cq, buf, count| call!(cq, ops.sread, buf, count, ptr::null(), 0)),
        ("fi_cq_sread", ", timeout 1", |cq, buf, count| call!(cq, ops.sread, buf, count, ptr::null(), 1)),
    ];
    let read_error = |cq: *mut FidCq, flags: u64| {
        let mut entry = unsafe { mem::zeroed::<FiCqErrEntry>() };
        call!(cq, ops.readerr, &raw mut entry, flags)
    };
    for (state, fill) in
        [("empty", Filled::Empty), ("a completion", Filled::Completion), ("an error", Filled::Error)]
    {
        for (text, count, has_buf) in
            [("count 0", 0, true), ("count 0, buf null", 0, false), ("count 8", 8, true)]
        {
            for (call, more, read) in reads {
                probes.add_endpoint_probe(format!("{call}: {state}, {text}{more}"), move |context| {
                    let buf = if has_buf { leak_zeroed_memory(1024).cast() } else { NULL };
                    read(open_filled_pair(context, fill).right.cq, buf, count)
                });
            }
        }
        probes.add_endpoint_probe(format!("fi_cq_readerr: {state}"), move |context| {
            read_error(open_filled_pair(context, fill).right.cq, 0)
        });
    }
    let open = |context: &Context, wait_obj| {
        let (fabric, domain) = context.open_domain();
        (fabric, context.open_cq(domain, FiCqAttr { wait_obj, ..cq_attr(4) }))
    };
    for (bit, name) in flags() {
        probes.add_object_probe(format!("fi_cq_readerr: empty, flags {name}"), move |context| {
            read_error(open(context, 0).1, 1 << bit)
        });
    }
    for (wait_obj, text) in
        [(0, "without wait_obj"), (1, "wait_obj 1"), (3, "wait_obj 3"), (4, "wait_obj 4"), (5, "wait_obj 5")]
    {
        for timeout in [0, 1] {
            probes.add_object_probe(format!("fi_cq_sread: {text}, timeout {timeout}"), move |context| {
                let cq = open(context, wait_obj).1;
                call!(cq, ops.sread, leak_zeroed_memory(64).cast(), 1, ptr::null(), timeout)
            });
        }
        probes.add_object_probe(format!("fi_cq_signal: {text}"), move |context| {
            call!(open(context, wait_obj).1, ops.signal)
        });
        probes.add_object_probe(format!("fi_trywait: cq {text}"), move |context| {
            let (fabric, cq) = open(context, wait_obj);
            call!(fabric, ops.trywait, ptr::from_mut(&mut cq.cast()), 1)
        });
    }
    probes.add_object_probe("fi_trywait: count 0", |context| {
        call!(context.open_fabric(), ops.trywait, ptr::null_mut(), 0)
    });
    for (text, len, has_buf) in [("buf null", 0, false), ("len 0", 0, true), ("len 4", 4, true)] {
        probes.add_object_probe(format!("fi_cq_strerror: {text}"), move |context| {
            let buf = if has_buf { leak_zeroed_memory(64).cast() } else { ptr::null_mut() };
            let text = call!(open(context, 0).1, ops.strerror, 5, ptr::null(), buf, len);
            if text.is_null() { "0 null" } else { "0 text" }.to_owned()
        });
    }
}

fn add_counter_probes(probes: &mut Probes) {
    let open = |context: &Context, wait_obj| {
        open_counter_with(context.open_domain().1, FiCntrAttr { wait_obj, ..counter_attr() })
    };
    for (wait_obj, (text, threshold, timeout)) in [0, 1, 3, 4, 5].into_iter().flat_map(|wait_obj| {
        [("reached", 1, 0), ("not reached", 5, 0), ("not reached in time", 5, 1)].map(|wait| (wait_obj, wait))
    }) {
        probes.add_object_probe(format!("fi_cntr_wait: wait_obj {wait_obj}, {text}"), move |context| {
            let counter = open(context, wait_obj);
            call!(counter, ops.set, 1);
            call!(counter, ops.wait, threshold, timeout)
        });
    }
    probes.add_object_probe("fi_cntr_wait: an error counted", move |context| {
        let counter = open(context, 1);
        call!(counter, ops.adderr, 1);
        call!(counter, ops.wait, 5, 1)
    });
    type Change = fn(*mut FidCntr, u64) -> c_int;
    let changes: [(&str, Change); 4] = [
        ("set", |it, value| call!(it, ops.set, value)),
        ("add", |it, value| call!(it, ops.add, value)),
        ("seterr", |it, value| call!(it, ops.seterr, value)),
        ("adderr", |it, value| call!(it, ops.adderr, value)),
    ];
    for (name, change) in changes {
        for value in [0_u64, 1, u64::MAX] {
            probes.add_object_probe(format!("fi_cntr_{name}: {value}"), move |context| {
                let counter = context.open_counter(context.open_domain().1);
                let result = change(counter, value);
                let values = (call!(counter, ops.read), call!(counter, ops.readerr));
                format!("{} {values:?}", describe_result(result))
            });
        }
    }
}

fn add_event_probes(probes: &mut Probes) {
    for (text, room) in [("room 0", 0), ("room 4", 4), ("room 64", 64)] {
        probes.add_object_probe(format!("fi_eq_read: empty, {text}"), move |context| {
            read_event(context, room, 0)
        });
        for timeout in [0, 1] {
            let name = format!("fi_eq_sread: empty, {text}, timeout {timeout}");
            probes.add_object_probe(name, move |context| {
                let (eq, mut event) = (context.open_eq(context.open_fabric()), 0);
                call!(eq, ops.sread, &raw mut event, leak_zeroed_memory(64).cast(), room, timeout, 0)
            });
        }
    }
    for (bit, name) in flags() {
        probes.add_object_probe(format!("fi_eq_read: empty, flags {name}"), move |context| {
            read_event(context, 64, 1 << bit)
        });
        probes.add_object_probe(format!("fi_eq_write: flags {name}"), move |context| {
            write_and_read_event(context, 5, 24, 1 << bit)
        });
    }
    probes.add_object_probe("fi_eq_readerr: empty", |context| {
        let mut entry = unsafe { mem::zeroed::<FiEqErrEntry>() };
        call!(context.open_eq(context.open_fabric()), ops.readerr, &raw mut entry, 0)
    });
    for event in [0, 1, 4, 5, 100, 1 << 30] {
        probes.add_object_probe(format!("fi_eq_write: event {event}"), move |context| {
            write_and_read_event(context, event, 24, 0)
        });
    }
    for len_bytes in [0, 1, 16, 24, 64, 512] {
        probes.add_object_probe(format!("fi_eq_write: {len_bytes} bytes"), move |context| {
            write_and_read_event(context, 5, len_bytes, 0)
        });
    }
}

fn read_event(context: &Context, room: usize, flags: u64) -> isize {
    let (eq, mut event) = (context.open_eq(context.open_fabric()), 0);
    call!(eq, ops.read, &raw mut event, leak_zeroed_memory(64).cast(), room, flags)
}

/// Calls `fi_eq_write` on a queue that was opened with `FI_WRITE`, and reads the event.
fn write_and_read_event(context: &Context, event: u32, len_bytes: usize, flags: u64) -> String {
    let eq = open_eq_with(context.open_fabric(), FiEqAttr { flags: 1 << 9, ..eq_attr() });
    let (entry, mut found) = (leak_zeroed_memory(1024), u32::MAX);
    let wrote = call!(eq, ops.write, event, entry.cast_const().cast(), len_bytes, flags);
    if wrote < 0 {
        return describe_result(wrote);
    }
    let read = call!(eq, ops.read, &raw mut found, entry.cast(), 1024, 0);
    format!("{wrote} read {}", describe_result(read))
}
