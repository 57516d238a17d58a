//! Data transfer calls: each with each flag, and with each argument null, zero or too large. An accepted call
//! is observed until a message sent after it has arrived.

mod call;
mod changes;
mod scene;

use std::ptr;

use libc::c_void;

use self::call::{Arguments, CALLS, Call, Way, call};
use self::changes::CHANGES;
use self::scene::{AFTER, LEN_BYTES, PROBE, ROOM_BYTES, Scene, TAG};
use super::Probes;
use crate::bits::FLAGS;
use crate::outcome::errno;
use crate::patience::short_limit;
use crate::setup::{Completion, Context, context as op_context, memory};

pub(super) fn add(probes: &mut Probes) {
    for &(call, name, way) in CALLS {
        for &(text, applies, change) in CHANGES {
            if applies(call, name) {
                probes.endpoint(format!("{name}: {text}"), move |context| {
                    run(context, call, name, way, |arguments| change(context, arguments))
                });
            }
        }
        if call.takes_flags(name) {
            for &(bit, flag) in FLAGS {
                probes.endpoint(format!("{name}: flags {flag}"), move |context| {
                    run(context, call, name, way, |arguments| arguments.flags = 1 << bit)
                });
            }
        }
    }
}

fn run(context: &Context, call: Call, name: &str, way: Way, change: impl Fn(&mut Arguments)) -> String {
    let mut scene = Scene::new(context, call);
    let atomic_len = if call.is_atomic() { 1 } else { LEN_BYTES };
    let mut arguments = Arguments {
        buf: if way == Way::Receive { scene.far } else { scene.near },
        len: atomic_len,
        desc: scene.near_region.map_or(ptr::null_mut(), |region| region.desc),
        has_descs: true,
        has_vector: true,
        vector_count: 1,
        rma_count: 1,
        has_rma_vector: true,
        has_message: true,
        addr: if way == Way::Receive { u64::MAX } else { scene.pair.to_right },
        tag: TAG,
        ignore: 0,
        data: 0x1122,
        context: op_context(),
        flags: 0,
        remote: scene.far_region.map_or(0, |region| region.address),
        key: scene.far_region.map_or(0, |region| region.key),
        result: scene.near.wrapping_add(ROOM_BYTES / 2),
        has_result_vector: true,
        compare: scene.near.wrapping_add(ROOM_BYTES / 4),
        // FI_UINT64 and FI_SUM, and FI_CSWAP_NE where that is needed.
        datatype: 7,
        op: if call.is_compare() { 13 } else { 2 },
    };
    unsafe {
        let source = if way == Way::Read { scene.far } else { scene.near };
        ptr::write_bytes(source, PROBE, ROOM_BYTES / 8);
    }
    change(&mut arguments);
    match way {
        Way::Receive => received(&mut scene, call, &arguments),
        _ => sent(&mut scene, call, name, way, &arguments),
    }
}

fn end_of(done: &[Completion], context: *mut c_void) -> Option<&Completion> {
    done.iter().find(|done| done.context == context)
}

fn completed(done: &[Completion], context: *mut c_void) -> String {
    match end_of(done, context) {
        None => "silent".to_owned(),
        Some(done) if done.error != 0 => format!("fails with {}", errno(-done.error)),
        Some(_) => "completes".to_owned(),
    }
}

/// A call at the left, and an ordinary message after it.
fn sent(scene: &mut Scene, which: Call, name: &str, way: Way, arguments: &Arguments) -> String {
    let landing = [memory(ROOM_BYTES), memory(ROOM_BYTES)];
    let receives = landing.map(|buf| scene.receive(buf));
    let ep = scene.pair.left.ep;
    let result = scene.pair.retry(|| unsafe { call(which, ep, arguments) });
    if result != 0 {
        return errno(result as i64);
    }
    let after = scene.send(AFTER);
    let is_expected = !which.is_inject(name);
    scene.pair.until(short_limit(), |pair| {
        let has_come = after.is_some_and(|after| end_of(&pair.at_left, after).is_some())
            && landing.iter().any(|buf| unsafe { **buf } == AFTER);
        let is_done = !is_expected || end_of(&pair.at_left, arguments.context).is_some();
        // The receive of the message after it may complete before that of the probe.
        let is_received = which.is_one_sided()
            || receives.iter().filter(|context| end_of(&pair.at_right, **context).is_some()).count() == 2;
        has_come && is_done && is_received
    });
    let effect = match way {
        Way::Write => is_filled(scene.far),
        Way::Read if which.is_atomic() => is_filled(arguments.result),
        Way::Read => is_filled(arguments.buf),
        _ => landing.iter().any(|buf| is_filled(*buf)),
    };
    let effect = if way == Way::Send {
        let arrived = receives.iter().filter(|context| end_of(&scene.pair.at_right, **context).is_some());
        let with_data = scene.pair.at_right.iter().any(|done| done.flags & 1 << 17 != 0);
        let failed = scene.pair.at_right.iter().find(|done| done.error != 0);
        let failed =
            failed.map_or(String::new(), |done| format!(", receive fails with {}", errno(-done.error)));
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
    let after =
        if after.is_some_and(|after| end_of(&scene.pair.at_left, after).is_some_and(|it| it.error == 0)) {
            ""
        } else {
            ", and nothing works after it"
        };
    let completion = if is_expected {
        completed(&scene.pair.at_left, arguments.context)
    } else {
        // A call without a completion may report a failure, of an unknown operation.
        let failed = scene.pair.at_left.iter().find(|done| done.error != 0);
        failed.map_or("silent".to_owned(), |done| format!("fails with {}", errno(-done.error)))
    };
    format!("0 {completion}, {effect}{after}")
}

fn is_filled(buf: *mut u8) -> bool {
    !buf.is_null() && unsafe { *buf } == PROBE
}

/// A receive at the right, and two ordinary messages: one for it, and one for the next receive.
fn received(scene: &mut Scene, which: Call, arguments: &Arguments) -> String {
    let ep = scene.pair.right.ep;
    let result = scene.pair.retry(|| unsafe { call(which, ep, arguments) });
    if result != 0 {
        return errno(result as i64);
    }
    let landing = memory(ROOM_BYTES);
    let next = scene.receive(landing);
    let sends = [scene.send(PROBE), scene.send(AFTER)];
    scene.pair.until(short_limit(), |pair| {
        let is_sent = sends.iter().all(|send| send.is_some_and(|send| end_of(&pair.at_left, send).is_some()));
        let done = pair.at_right.iter().filter(|done| [arguments.context, next].contains(&done.context));
        is_sent && done.count() >= 2
    });
    let found = end_of(&scene.pair.at_right, arguments.context);
    let len = found.map_or(String::new(), |found| format!(" len {}", found.len));
    let into_next = unsafe { *landing };
    let next = match into_next {
        PROBE => ", message goes to the next",
        AFTER => "",
        _ => ", next gets nothing",
    };
    format!("0 {}{len}{next}", completed(&scene.pair.at_right, arguments.context))
}
