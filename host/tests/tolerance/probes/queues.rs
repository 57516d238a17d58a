//! Probes that read completion queues, counters and event queues: without room, with null pointers, with each
//! flag, and with a time-out of 0.

use std::ptr;

use homespun_host::abi::eq::{FiCqAttr, FiCqErrEntry, FiEqEntry, FiEqErrEntry};
use homespun_host::cq_attr;

use super::Probes;
use crate::bits::FLAGS;
use crate::outcome::describe_result;
use crate::patience::{Deadline, Pauses, absence_timeout};
use crate::setup::{Context, Pair, leak_op_context as op_context, leak_zeroed_memory};

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
    let ep = pair.right.ep;
    let receive = op_context();
    unsafe {
        if !matches!(filled, Filled::Empty) {
            let recv = (*(*ep).msg).recv;
            let posted = recv(ep, leak_zeroed_memory(64).cast(), 64, ptr::null_mut(), u64::MAX, receive);
            assert!(posted == 0, "fi_recv: {}", describe_result(posted as i64));
        }
        match filled {
            Filled::Empty => {}
            Filled::Error => {
                ((*(*ep).ops).cancel)(ep.cast(), receive);
            }
            Filled::Completion => {
                let (left, to_right) = (pair.left.ep, pair.to_right);
                let send = (*(*left).msg).send;
                let sent =
                    send(left, leak_zeroed_memory(64).cast(), 64, ptr::null_mut(), to_right, op_context());
                assert!(sent == 0, "fi_send: {}", describe_result(sent as i64));
                // This loop must leave the completion at the right for the probe, so it makes progress there
                // by reading 0 entries. It goes on for 40 rounds after the completion at the left, because
                // the completion at the right may come later.
                let deadline = Deadline::after(absence_timeout());
                let (mut rounds, mut pauses) = (0, Pauses::default());
                while rounds < 40 && !deadline.record_if_expired() {
                    crate::setup::drain_cq(pair.left.cq, &mut pair.at_left);
                    ((*(*pair.right.cq).ops).read)(pair.right.cq, ptr::null_mut(), 0);
                    rounds += u32::from(!pair.at_left.is_empty());
                    pauses.sleep_and_back_off();
                }
            }
        }
    }
    pair
}

fn add_completion_probes(probes: &mut Probes) {
    let states =
        [("empty", Filled::Empty), ("a completion", Filled::Completion), ("an error", Filled::Error)];
    for (state, fill) in states {
        for (text, count, has_buf) in
            [("count 0", 0, true), ("count 0, buf null", 0, false), ("count 8", 8, true)]
        {
            let buf = move || if has_buf { leak_zeroed_memory(1024).cast() } else { ptr::null_mut() };
            probes.add_endpoint_probe(format!("fi_cq_read: {state}, {text}"), move |context| {
                let cq = open_filled_pair(context, fill).right.cq;
                unsafe { describe_result(((*(*cq).ops).read)(cq, buf(), count) as i64) }
            });
            probes.add_endpoint_probe(format!("fi_cq_readfrom: {state}, {text}"), move |context| {
                let cq = open_filled_pair(context, fill).right.cq;
                let mut from = [0; 8];
                unsafe {
                    describe_result(((*(*cq).ops).readfrom)(cq, buf(), count, from.as_mut_ptr()) as i64)
                }
            });
            probes.add_endpoint_probe(
                format!("fi_cq_readfrom: {state}, {text}, addresses null"),
                move |context| {
                    let cq = open_filled_pair(context, fill).right.cq;
                    unsafe {
                        describe_result(((*(*cq).ops).readfrom)(cq, buf(), count, ptr::null_mut()) as i64)
                    }
                },
            );
            for timeout in [0, 1] {
                probes.add_endpoint_probe(
                    format!("fi_cq_sread: {state}, {text}, timeout {timeout}"),
                    move |context| {
                        let cq = open_filled_pair(context, fill).right.cq;
                        unsafe {
                            describe_result(
                                ((*(*cq).ops).sread)(cq, buf(), count, ptr::null(), timeout) as i64
                            )
                        }
                    },
                );
            }
        }
        probes.add_endpoint_probe(format!("fi_cq_readerr: {state}"), move |context| {
            let cq = open_filled_pair(context, fill).right.cq;
            let mut entry: FiCqErrEntry = unsafe { std::mem::zeroed() };
            unsafe { describe_result(((*(*cq).ops).readerr)(cq, &raw mut entry, 0) as i64) }
        });
    }
    for &(bit, name) in FLAGS {
        probes.add_object_probe(format!("fi_cq_readerr: empty, flags {name}"), move |context| {
            let (_, domain) = context.open_domain();
            let cq = context.open_cq(domain, cq_attr(4));
            let mut entry: FiCqErrEntry = unsafe { std::mem::zeroed() };
            unsafe { describe_result(((*(*cq).ops).readerr)(cq, &raw mut entry, 1 << bit) as i64) }
        });
    }
    for wait_obj in [1, 3, 4, 5] {
        for timeout in [0, 1] {
            probes.add_object_probe(
                format!("fi_cq_sread: wait_obj {wait_obj}, timeout {timeout}"),
                move |context| {
                    let (_, domain) = context.open_domain();
                    let cq = context.open_cq(domain, FiCqAttr { wait_obj, ..cq_attr(4) });
                    unsafe {
                        let sread = (*(*cq).ops).sread;
                        describe_result(
                            sread(cq, leak_zeroed_memory(64).cast(), 1, ptr::null(), timeout) as i64
                        )
                    }
                },
            );
        }
        probes.add_object_probe(format!("fi_cq_signal: wait_obj {wait_obj}"), move |context| {
            let (_, domain) = context.open_domain();
            let cq = context.open_cq(domain, FiCqAttr { wait_obj, ..cq_attr(4) });
            unsafe { describe_result(((*(*cq).ops).signal)(cq)) }
        });
        probes.add_object_probe(format!("fi_trywait: cq wait_obj {wait_obj}"), move |context| {
            let (fabric, domain) = context.open_domain();
            let cq = context.open_cq(domain, FiCqAttr { wait_obj, ..cq_attr(4) });
            let mut fid = cq.cast();
            unsafe { describe_result(((*(*fabric).ops).trywait)(fabric, &raw mut fid, 1)) }
        });
    }
    probes.add_object_probe("fi_cq_signal: no wait_obj", |context| {
        let (_, domain) = context.open_domain();
        let cq = context.open_cq(domain, cq_attr(4));
        unsafe { describe_result(((*(*cq).ops).signal)(cq)) }
    });
    probes.add_object_probe("fi_trywait: cq without wait_obj", |context| {
        let (fabric, domain) = context.open_domain();
        let mut fid = context.open_cq(domain, cq_attr(4)).cast();
        unsafe { describe_result(((*(*fabric).ops).trywait)(fabric, &raw mut fid, 1)) }
    });
    probes.add_object_probe("fi_trywait: count 0", |context| {
        let (fabric, _) = context.open_domain();
        unsafe { describe_result(((*(*fabric).ops).trywait)(fabric, ptr::null_mut(), 0)) }
    });
    for (text, len, has_buf) in [("buf null", 0, false), ("len 0", 0, true), ("len 4", 4, true)] {
        probes.add_object_probe(format!("fi_cq_strerror: {text}"), move |context| {
            let (_, domain) = context.open_domain();
            let cq = context.open_cq(domain, cq_attr(4));
            let buf = if has_buf { leak_zeroed_memory(64).cast() } else { ptr::null_mut() };
            let text = unsafe { ((*(*cq).ops).strerror)(cq, 5, ptr::null(), buf, len) };
            if text.is_null() { "0 null".to_owned() } else { "0 text".to_owned() }
        });
    }
}

fn add_counter_probes(probes: &mut Probes) {
    probes.add_object_probe("fi_cntr_wait: threshold 0, timeout 0", |context| {
        let counter = context.open_counter(context.open_domain().1);
        unsafe { describe_result(((*(*counter).ops).wait)(counter, 0, 0)) }
    });
    for wait_obj in [0, 1, 3, 4, 5] {
        for (text, threshold, timeout) in
            [("reached", 1, 0), ("not reached", 5, 0), ("not reached in time", 5, 1)]
        {
            probes.add_object_probe(format!("fi_cntr_wait: wait_obj {wait_obj}, {text}"), move |context| {
                let (_, domain) = context.open_domain();
                let mut attr = homespun_host::counter_attr();
                attr.wait_obj = wait_obj;
                let counter = crate::setup::open_object("fi_cntr_open", |counter| unsafe {
                    ((*(*domain).ops).cntr_open)(domain, &raw mut attr, counter, ptr::null_mut())
                });
                unsafe {
                    ((*(*counter).ops).set)(counter, 1);
                    describe_result(((*(*counter).ops).wait)(counter, threshold, timeout))
                }
            });
        }
    }
    for value in [0_u64, 1, u64::MAX] {
        probes.add_object_probe(format!("fi_cntr_set: {value}"), move |context| {
            let counter = context.open_counter(context.open_domain().1);
            unsafe {
                let result = ((*(*counter).ops).set)(counter, value);
                let read = ((*(*counter).ops).read)(counter);
                format!("{} {}", describe_result(result), if read == value { "as set" } else { "otherwise" })
            }
        });
        probes.add_object_probe(format!("fi_cntr_add: {value} to 5"), move |context| {
            let counter = context.open_counter(context.open_domain().1);
            unsafe {
                ((*(*counter).ops).set)(counter, 5);
                let result = ((*(*counter).ops).add)(counter, value);
                let read = ((*(*counter).ops).read)(counter);
                let is_sum = read == value.wrapping_add(5);
                format!("{} {}", describe_result(result), if is_sum { "as added" } else { "otherwise" })
            }
        });
        probes.add_object_probe(format!("fi_cntr_seterr: {value}"), move |context| {
            let counter = context.open_counter(context.open_domain().1);
            unsafe {
                let result = ((*(*counter).ops).seterr)(counter, value);
                let read = ((*(*counter).ops).readerr)(counter);
                format!("{} {}", describe_result(result), if read == value { "as set" } else { "otherwise" })
            }
        });
        probes.add_object_probe(format!("fi_cntr_adderr: {value}"), move |context| {
            let counter = context.open_counter(context.open_domain().1);
            unsafe {
                let result = ((*(*counter).ops).adderr)(counter, value);
                let read = ((*(*counter).ops).readerr)(counter);
                format!(
                    "{} {}",
                    describe_result(result),
                    if read == value { "as added" } else { "otherwise" }
                )
            }
        });
    }
    probes.add_object_probe("fi_cntr_wait: an error counted", |context| {
        let (_, domain) = context.open_domain();
        let mut attr = homespun_host::counter_attr();
        attr.wait_obj = 1;
        let counter = crate::setup::open_object("fi_cntr_open", |counter| unsafe {
            ((*(*domain).ops).cntr_open)(domain, &raw mut attr, counter, ptr::null_mut())
        });
        unsafe {
            ((*(*counter).ops).adderr)(counter, 1);
            describe_result(((*(*counter).ops).wait)(counter, 5, 1))
        }
    });
}

fn add_event_probes(probes: &mut Probes) {
    for (text, room) in [("room 0", 0), ("room 4", 4), ("room 64", 64)] {
        probes.add_object_probe(format!("fi_eq_read: empty, {text}"), move |context| {
            let eq = context.open_eq(context.open_fabric());
            let mut event = 0;
            unsafe {
                describe_result(((*(*eq).ops).read)(
                    eq,
                    &raw mut event,
                    leak_zeroed_memory(64).cast(),
                    room,
                    0,
                ) as i64)
            }
        });
        for timeout in [0, 1] {
            probes.add_object_probe(
                format!("fi_eq_sread: empty, {text}, timeout {timeout}"),
                move |context| {
                    let eq = context.open_eq(context.open_fabric());
                    let mut event = 0;
                    unsafe {
                        let sread = (*(*eq).ops).sread;
                        describe_result(sread(
                            eq,
                            &raw mut event,
                            leak_zeroed_memory(64).cast(),
                            room,
                            timeout,
                            0,
                        ) as i64)
                    }
                },
            );
        }
    }
    for &(bit, name) in FLAGS {
        probes.add_object_probe(format!("fi_eq_read: empty, flags {name}"), move |context| {
            let eq = context.open_eq(context.open_fabric());
            let mut event = 0;
            unsafe {
                describe_result(((*(*eq).ops).read)(
                    eq,
                    &raw mut event,
                    leak_zeroed_memory(64).cast(),
                    64,
                    1 << bit,
                ) as i64)
            }
        });
        probes.add_object_probe(format!("fi_eq_write: flags {name}"), move |context| {
            probe_eq_write(context, 1 << 9, 24, 1 << bit)
        });
    }
    probes.add_object_probe("fi_eq_readerr: empty", |context| {
        let eq = context.open_eq(context.open_fabric());
        let mut entry: FiEqErrEntry = unsafe { std::mem::zeroed() };
        unsafe { describe_result(((*(*eq).ops).readerr)(eq, &raw mut entry, 0) as i64) }
    });
    for event in [0, 1, 4, 5, 100, 1 << 30] {
        probes.add_object_probe(format!("fi_eq_write: event {event}"), move |context| {
            probe_eq_write_and_read(context, event, 24)
        });
    }
    for len_bytes in [0, 1, 16, 24, 64, 512] {
        probes.add_object_probe(format!("fi_eq_write: {len_bytes} bytes"), move |context| {
            probe_eq_write_and_read(context, 5, len_bytes)
        });
    }
}

/// Calls `fi_eq_write` on a queue that was opened with these flags.
fn probe_eq_write(context: &Context, open_flags: u64, len_bytes: usize, flags: u64) -> String {
    let fabric = context.open_fabric();
    let mut attr = homespun_host::eq_attr();
    attr.flags = open_flags;
    let eq = crate::setup::open_object("fi_eq_open", |eq| unsafe {
        ((*(*fabric).ops).eq_open)(fabric, &raw mut attr, eq, ptr::null_mut())
    });
    let entry: [u8; size_of::<FiEqEntry>()] = [0; size_of::<FiEqEntry>()];
    unsafe { describe_result(((*(*eq).ops).write)(eq, 5, entry.as_ptr().cast(), len_bytes, flags) as i64) }
}

/// Calls `fi_eq_write` on a queue that was opened with `FI_WRITE`, and reads the event.
fn probe_eq_write_and_read(context: &Context, event: u32, len_bytes: usize) -> String {
    let fabric = context.open_fabric();
    let mut attr = homespun_host::eq_attr();
    attr.flags = 1 << 9;
    let eq = crate::setup::open_object("fi_eq_open", |eq| unsafe {
        ((*(*fabric).ops).eq_open)(fabric, &raw mut attr, eq, ptr::null_mut())
    });
    let entry = leak_zeroed_memory(1024);
    unsafe {
        let wrote = ((*(*eq).ops).write)(eq, event, entry.cast(), len_bytes, 0);
        if wrote < 0 {
            return describe_result(wrote as i64);
        }
        let mut found = u32::MAX;
        let read = ((*(*eq).ops).read)(eq, &raw mut found, entry.cast(), 1024, 0);
        format!("{wrote} read {}", describe_result(read as i64))
    }
}
