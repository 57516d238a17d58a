//! Probes of data transfers: each call with each flag, and with each argument null, zero or too large. If
//! the provider accepts the call, the probe sends an ordinary message after it, and waits for this message
//! to arrive.

mod call;
mod changes;
mod fixture;

use std::ptr;

use libc::c_void;

use self::call::{
    CALLS, CallArguments, TransferKind, is_atomic, is_compare, is_inject, is_one_sided, make_call,
    takes_flags,
};
use self::changes::CHANGES;
use self::fixture::{AFTER, LEN_BYTES, PROBE, ROOM_BYTES, TAG, TransferFixture};
use super::{Family, Probes};
use crate::bits::flags;
use crate::outcome::describe_result;
use crate::patience::absence_timeout;
use crate::setup::{Completion, Context, leak_op_context as op_context, leak_zeroed_memory};

pub(super) fn add_probes(probes: &mut Probes) {
    for (way, calls) in CALLS {
        for call in calls.split(' ') {
            for &(text, _, change) in CHANGES.iter().filter(|(_, applies, _)| applies(call)) {
                probes.add(Family::Endpoint, format!("{call}: {text}"), move |context| {
                    probe_call(context, call, way, |arguments| change(context, arguments))
                });
            }
            for (bit, flag) in flags().filter(|_| takes_flags(call)) {
                probes.add(Family::Endpoint, format!("{call}: flags {flag}"), move |context| {
                    probe_call(context, call, way, |arguments| arguments.flags = 1 << bit)
                });
            }
        }
    }
}

fn probe_call(
    context: &Context,
    call: &str,
    way: TransferKind,
    change: impl Fn(&mut CallArguments),
) -> String {
    let mut fixture = TransferFixture::new(context, call);
    let atomic_len = if is_atomic(call) { 1 } else { LEN_BYTES };
    let mut arguments = CallArguments {
        buf: if way == TransferKind::Receive { fixture.far } else { fixture.near },
        len: atomic_len,
        desc: fixture.near_region.map_or(ptr::null_mut(), |region| region.desc),
        has_descs: true,
        has_vector: true,
        vector_count: 1,
        rma_count: 1,
        has_rma_vector: true,
        has_message: true,
        addr: if way == TransferKind::Receive { u64::MAX } else { fixture.pair.to_right },
        tag: TAG,
        ignore: 0,
        data: 0x1122,
        context: op_context(),
        flags: 0,
        remote: fixture.far_region.map_or(0, |region| region.address),
        key: fixture.far_region.map_or(0, |region| region.key),
        result: fixture.near.wrapping_add(ROOM_BYTES / 2),
        has_result_vector: true,
        compare: fixture.near.wrapping_add(ROOM_BYTES / 4),
        // The datatype is FI_UINT64. The operation is FI_CSWAP_NE if the call compares and swaps, or else
        // FI_SUM.
        datatype: 7,
        op: if is_compare(call) { 13 } else { 2 },
    };
    unsafe {
        let source = if way == TransferKind::Read { fixture.far } else { fixture.near };
        ptr::write_bytes(source, PROBE, ROOM_BYTES / 8);
    }
    change(&mut arguments);
    match way {
        TransferKind::Receive => probe_receive_call(&mut fixture, call, &arguments),
        _ => probe_initiator_call(&mut fixture, call, way, &arguments),
    }
}

fn find_completion(done: &[Completion], context: *mut c_void) -> Option<&Completion> {
    done.iter().find(|done| done.context == context)
}

fn describe_completion(done: &[Completion], context: *mut c_void) -> String {
    match find_completion(done, context) {
        None => "silent".to_owned(),
        Some(done) => describe_failure(&[*done]).unwrap_or("completes".to_owned()),
    }
}

/// Describes the first failure among these completions, if there is one.
fn describe_failure(done: &[Completion]) -> Option<String> {
    let failed = done.iter().find(|done| done.error != 0)?;
    Some(format!("fails with {}", describe_result(-failed.error)))
}

/// Makes the call at the left, and sends an ordinary message after it.
fn probe_initiator_call(
    fixture: &mut TransferFixture,
    which: &str,
    way: TransferKind,
    arguments: &CallArguments,
) -> String {
    let landing = [leak_zeroed_memory(ROOM_BYTES), leak_zeroed_memory(ROOM_BYTES)];
    let receives = landing.map(|buf| fixture.post_ordinary_receive(buf));
    let ep = fixture.pair.left.ep;
    let result = fixture.pair.retry_while_eagain(|| unsafe { make_call(which, ep, arguments) });
    if result != 0 {
        return describe_result(result);
    }
    let after = fixture.send_ordinary_message(AFTER);
    let is_expected = !is_inject(which);
    fixture.pair.drive_until(absence_timeout(), |pair| {
        let has_come = after.is_some_and(|after| find_completion(&pair.at_left, after).is_some())
            && landing.iter().any(|buf| unsafe { **buf } == AFTER);
        let is_done = !is_expected || find_completion(&pair.at_left, arguments.context).is_some();
        // The receive of the ordinary message may complete before that of the probe's message, so wait for
        // both.
        let is_received = is_one_sided(which)
            || receives.iter().filter(|context| find_completion(&pair.at_right, **context).is_some()).count()
                == 2;
        has_come && is_done && is_received
    });
    let effect = match way {
        TransferKind::Write => has_probe_byte(fixture.far),
        TransferKind::Read if is_atomic(which) => has_probe_byte(arguments.result),
        TransferKind::Read => has_probe_byte(arguments.buf),
        _ => landing.iter().any(|buf| has_probe_byte(*buf)),
    };
    let effect = if way == TransferKind::Send {
        let arrived =
            receives.iter().filter(|context| find_completion(&fixture.pair.at_right, **context).is_some());
        let with_data = fixture.pair.at_right.iter().any(|done| done.flags & 1 << 17 != 0);
        let failed = describe_failure(&fixture.pair.at_right);
        let failed = failed.map_or(String::new(), |failure| format!(", receive {failure}"));
        let text = match (arrived.count(), effect) {
            (2, true) => "arrives",
            (2, false) => "arrives empty",
            (_, _) => "does not arrive",
        };
        format!("{text}{}{failed}", if with_data { " with data" } else { "" })
    } else if effect {
        "takes effect".to_owned()
    } else {
        "has no effect".to_owned()
    };
    let after = if after
        .is_some_and(|after| find_completion(&fixture.pair.at_left, after).is_some_and(|it| it.error == 0))
    {
        ""
    } else {
        ", and nothing works after it"
    };
    let completion = if is_expected {
        describe_completion(&fixture.pair.at_left, arguments.context)
    } else {
        // A call without a completion may still report a failure. The context of the error entry does not
        // identify the operation.
        describe_failure(&fixture.pair.at_left).unwrap_or("silent".to_owned())
    };
    format!("0 {completion}, {effect}{after}")
}

fn has_probe_byte(buf: *mut u8) -> bool {
    !buf.is_null() && unsafe { *buf } == PROBE
}

/// Posts the probed receive at the right, and an ordinary receive after it. Sends two ordinary messages, one
/// for each receive.
fn probe_receive_call(fixture: &mut TransferFixture, which: &str, arguments: &CallArguments) -> String {
    let ep = fixture.pair.right.ep;
    let result = fixture.pair.retry_while_eagain(|| unsafe { make_call(which, ep, arguments) });
    if result != 0 {
        return describe_result(result);
    }
    let landing = leak_zeroed_memory(ROOM_BYTES);
    let next = fixture.post_ordinary_receive(landing);
    let sends = [fixture.send_ordinary_message(PROBE), fixture.send_ordinary_message(AFTER)];
    fixture.pair.drive_until(absence_timeout(), |pair| {
        let is_sent =
            sends.iter().all(|send| send.is_some_and(|send| find_completion(&pair.at_left, send).is_some()));
        let done = pair.at_right.iter().filter(|done| [arguments.context, next].contains(&done.context));
        is_sent && done.count() >= 2
    });
    let found = find_completion(&fixture.pair.at_right, arguments.context);
    let len = found.map_or(String::new(), |found| format!(" len {}", found.len));
    let into_next = unsafe { *landing };
    let next = match into_next {
        PROBE => ", message goes to the next",
        AFTER => "",
        _ => ", next gets nothing",
    };
    format!("0 {}{len}{next}", describe_completion(&fixture.pair.at_right, arguments.context))
}
