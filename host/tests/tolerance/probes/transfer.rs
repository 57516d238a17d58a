//! Data transfer calls: each of them with each flag, and with each argument null, zero or too large. What is
//! accepted is watched until a message sent after it has come.

use std::ptr;

use homespun_host::abi::atomic::{FiIoc, FiMsgAtomic, FiRmaIoc};
use homespun_host::abi::endpoint::{FiMsg, FidEp};
use homespun_host::abi::rma::{FiMsgRma, FiRmaIov};
use homespun_host::abi::tagged::FiMsgTagged;
use libc::{c_void, iovec};

use super::Probes;
use crate::bits::FLAGS;
use crate::outcome::errno;
use crate::patience::glimpse;
use crate::setup::{Completion, Context, Pair, Region, context as op_context, memory};

/// What every message and access of a probe is filled with, and what comes after it.
const PROBE: u8 = 0x5a;
const AFTER: u8 = 0xa5;

const LEN_BYTES: usize = 64;
const TAG: u64 = 7;

/// Where data goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// From the left to a receive.
    Send,
    /// From the left to the receive that is probed.
    Receive,
    /// From the left to memory of the right.
    Write,
    /// From memory of the right to the left.
    Read,
}

/// The functions of `struct fi_ops_msg` and its like.
macro_rules! calls {
    ($($name:ident $text:literal $way:ident,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        enum Call { $($name,)* }
        const CALLS: &[(Call, &str, Way)] = &[$((Call::$name, $text, Way::$way),)*];
    };
}

calls! {
    Recv "fi_recv" Receive,
    Recvv "fi_recvv" Receive,
    Recvmsg "fi_recvmsg" Receive,
    Send "fi_send" Send,
    Sendv "fi_sendv" Send,
    Sendmsg "fi_sendmsg" Send,
    Inject "fi_inject" Send,
    Senddata "fi_senddata" Send,
    Injectdata "fi_injectdata" Send,
    Trecv "fi_trecv" Receive,
    Trecvv "fi_trecvv" Receive,
    Trecvmsg "fi_trecvmsg" Receive,
    Tsend "fi_tsend" Send,
    Tsendv "fi_tsendv" Send,
    Tsendmsg "fi_tsendmsg" Send,
    Tinject "fi_tinject" Send,
    Tsenddata "fi_tsenddata" Send,
    Tinjectdata "fi_tinjectdata" Send,
    Read "fi_read" Read,
    Readv "fi_readv" Read,
    Readmsg "fi_readmsg" Read,
    Write "fi_write" Write,
    Writev "fi_writev" Write,
    Writemsg "fi_writemsg" Write,
    InjectWrite "fi_inject_write" Write,
    Writedata "fi_writedata" Write,
    InjectWritedata "fi_inject_writedata" Write,
    Atomic "fi_atomic" Write,
    Atomicv "fi_atomicv" Write,
    Atomicmsg "fi_atomicmsg" Write,
    InjectAtomic "fi_inject_atomic" Write,
    FetchAtomic "fi_fetch_atomic" Read,
    FetchAtomicv "fi_fetch_atomicv" Read,
    FetchAtomicmsg "fi_fetch_atomicmsg" Read,
    CompareAtomic "fi_compare_atomic" Read,
    CompareAtomicv "fi_compare_atomicv" Read,
    CompareAtomicmsg "fi_compare_atomicmsg" Read,
}

impl Call {
    fn is_tagged(self) -> bool {
        (Call::Trecv as u8..=Call::Tinjectdata as u8).contains(&(self as u8))
    }

    fn is_atomic(self) -> bool {
        self as u8 >= Call::Atomic as u8
    }

    fn is_one_sided(self) -> bool {
        self as u8 >= Call::Read as u8
    }

    fn is_compare(self) -> bool {
        self as u8 >= Call::CompareAtomic as u8
    }

    fn takes_flags(self, name: &str) -> bool {
        name.ends_with("msg")
    }

    fn takes_vector(self, name: &str) -> bool {
        name.ends_with('v') && !name.ends_with("recv") || name.ends_with("recvv") || name.ends_with("msg")
    }

    fn is_inject(self, name: &str) -> bool {
        name.contains("inject")
    }
}

/// Every argument that a call may take.
#[derive(Debug, Clone, Copy)]
struct Arguments {
    buf: *mut u8,
    /// In bytes, of atomics in elements of 8 bytes.
    len: usize,
    desc: *mut c_void,
    has_descs: bool,
    has_vector: bool,
    vector_count: usize,
    rma_count: usize,
    has_rma_vector: bool,
    has_message: bool,
    addr: u64,
    tag: u64,
    ignore: u64,
    data: u64,
    context: *mut c_void,
    flags: u64,
    remote: u64,
    key: u64,
    result: *mut u8,
    has_result_vector: bool,
    compare: *mut u8,
    datatype: u32,
    op: u32,
}

/// A vtable. Without one a C program crashes.
fn table<'a, T>(table: *const T) -> &'a T {
    if table.is_null() {
        unsafe { libc::raise(libc::SIGSEGV) };
    }
    unsafe { &*table }
}

unsafe fn call(call: Call, ep: *mut FidEp, a: &Arguments) -> isize {
    // Vectors are long enough for every count that probes give.
    let mut descs = [a.desc; 64];
    let descs = if a.has_descs { descs.as_mut_ptr() } else { ptr::null_mut() };
    let split = a.vector_count.clamp(1, 64);
    let each = a.len / split;
    let unit = if call.is_atomic() { 8 } else { 1 };
    let place = |base: *mut u8, index: usize| {
        if base.is_null() { base } else { base.wrapping_add(each.wrapping_mul(index * unit)) }
    };
    let iov: Vec<iovec> =
        (0..64).map(|index| iovec { iov_base: place(a.buf, index).cast(), iov_len: each }).collect();
    let ioc = |base: *mut u8| -> Vec<FiIoc> {
        (0..64).map(|index| FiIoc { addr: place(base, index).cast(), count: each }).collect()
    };
    let (operands, results, compares) = (ioc(a.buf), ioc(a.result), ioc(a.compare));
    let vector = |vector: *const c_void| if a.has_vector { vector } else { ptr::null() };
    let iov = vector(iov.as_ptr().cast()).cast::<iovec>();
    let operands = vector(operands.as_ptr().cast()).cast::<FiIoc>();
    let compares = compares.as_ptr();
    let results = if a.has_result_vector { results.as_ptr().cast_mut() } else { ptr::null_mut() };
    let remote_each = a.len / a.rma_count.clamp(1, 64);
    let rma: Vec<FiRmaIov> = (0..64)
        .map(|index| FiRmaIov {
            addr: a.remote.wrapping_add(remote_each.wrapping_mul(index) as u64),
            len: remote_each,
            key: a.key,
        })
        .collect();
    let rma_iocs: Vec<FiRmaIoc> = (0..64)
        .map(|index| FiRmaIoc {
            addr: a.remote.wrapping_add(remote_each.wrapping_mul(index * 8) as u64),
            count: remote_each,
            key: a.key,
        })
        .collect();
    let rma = if a.has_rma_vector { rma.as_ptr() } else { ptr::null() };
    let rma_iocs = if a.has_rma_vector { rma_iocs.as_ptr() } else { ptr::null() };
    let n = a.vector_count;
    let buf = a.buf.cast::<c_void>();
    let message =
        FiMsg { msg_iov: iov, desc: descs, iov_count: n, addr: a.addr, context: a.context, data: a.data };
    let tagged = FiMsgTagged {
        msg_iov: iov,
        desc: descs,
        iov_count: n,
        addr: a.addr,
        tag: a.tag,
        ignore: a.ignore,
        context: a.context,
        data: a.data,
    };
    let access = FiMsgRma {
        msg_iov: iov,
        desc: descs,
        iov_count: n,
        addr: a.addr,
        rma_iov: rma,
        rma_iov_count: a.rma_count,
        context: a.context,
        data: a.data,
    };
    let atomic = FiMsgAtomic {
        msg_iov: operands,
        desc: descs,
        iov_count: n,
        addr: a.addr,
        rma_iov: rma_iocs,
        rma_iov_count: a.rma_count,
        datatype: a.datatype,
        op: a.op,
        context: a.context,
        data: a.data,
    };
    let shown = |message: *const c_void| if a.has_message { message } else { ptr::null() };
    let message = shown((&raw const message).cast()).cast::<FiMsg>();
    let tagged = shown((&raw const tagged).cast()).cast::<FiMsgTagged>();
    let access = shown((&raw const access).cast()).cast::<FiMsgRma>();
    let atomic = shown((&raw const atomic).cast()).cast::<FiMsgAtomic>();
    let (result, compare) = (a.result.cast::<c_void>(), a.compare.cast::<c_void>());
    let Arguments { len, desc, addr, tag, ignore, data, context, flags, remote, key, datatype, op, .. } = *a;
    unsafe {
        match call {
            Call::Recv => (table((*ep).msg).recv)(ep, buf, len, desc, addr, context),
            Call::Recvv => (table((*ep).msg).recvv)(ep, iov, descs, n, addr, context),
            Call::Recvmsg => (table((*ep).msg).recvmsg)(ep, message, flags),
            Call::Send => (table((*ep).msg).send)(ep, buf, len, desc, addr, context),
            Call::Sendv => (table((*ep).msg).sendv)(ep, iov, descs, n, addr, context),
            Call::Sendmsg => (table((*ep).msg).sendmsg)(ep, message, flags),
            Call::Inject => (table((*ep).msg).inject)(ep, buf, len, addr),
            Call::Senddata => (table((*ep).msg).senddata)(ep, buf, len, desc, data, addr, context),
            Call::Injectdata => (table((*ep).msg).injectdata)(ep, buf, len, data, addr),
            Call::Trecv => (table((*ep).tagged).recv)(ep, buf, len, desc, addr, tag, ignore, context),
            Call::Trecvv => (table((*ep).tagged).recvv)(ep, iov, descs, n, addr, tag, ignore, context),
            Call::Trecvmsg => (table((*ep).tagged).recvmsg)(ep, tagged, flags),
            Call::Tsend => (table((*ep).tagged).send)(ep, buf, len, desc, addr, tag, context),
            Call::Tsendv => (table((*ep).tagged).sendv)(ep, iov, descs, n, addr, tag, context),
            Call::Tsendmsg => (table((*ep).tagged).sendmsg)(ep, tagged, flags),
            Call::Tinject => (table((*ep).tagged).inject)(ep, buf, len, addr, tag),
            Call::Tsenddata => (table((*ep).tagged).senddata)(ep, buf, len, desc, data, addr, tag, context),
            Call::Tinjectdata => (table((*ep).tagged).injectdata)(ep, buf, len, data, addr, tag),
            Call::Read => (table((*ep).rma).read)(ep, buf, len, desc, addr, remote, key, context),
            Call::Readv => (table((*ep).rma).readv)(ep, iov, descs, n, addr, remote, key, context),
            Call::Readmsg => (table((*ep).rma).readmsg)(ep, access, flags),
            Call::Write => (table((*ep).rma).write)(ep, buf, len, desc, addr, remote, key, context),
            Call::Writev => (table((*ep).rma).writev)(ep, iov, descs, n, addr, remote, key, context),
            Call::Writemsg => (table((*ep).rma).writemsg)(ep, access, flags),
            Call::InjectWrite => (table((*ep).rma).inject)(ep, buf, len, addr, remote, key),
            Call::Writedata => {
                (table((*ep).rma).writedata)(ep, buf, len, desc, data, addr, remote, key, context)
            }
            Call::InjectWritedata => (table((*ep).rma).injectdata)(ep, buf, len, data, addr, remote, key),
            Call::Atomic => {
                (table((*ep).atomic).write)(ep, buf, len, desc, addr, remote, key, datatype, op, context)
            }
            Call::Atomicv => {
                (table((*ep).atomic).writev)(ep, operands, descs, n, addr, remote, key, datatype, op, context)
            }
            Call::Atomicmsg => (table((*ep).atomic).writemsg)(ep, atomic, flags),
            Call::InjectAtomic => (table((*ep).atomic).inject)(ep, buf, len, addr, remote, key, datatype, op),
            Call::FetchAtomic => (table((*ep).atomic).readwrite)(
                ep, buf, len, desc, result, desc, addr, remote, key, datatype, op, context,
            ),
            Call::FetchAtomicv => (table((*ep).atomic).readwritev)(
                ep, operands, descs, n, results, descs, n, addr, remote, key, datatype, op, context,
            ),
            Call::FetchAtomicmsg => (table((*ep).atomic).readwritemsg)(ep, atomic, results, descs, n, flags),
            Call::CompareAtomic => (table((*ep).atomic).compwrite)(
                ep, buf, len, desc, compare, desc, result, desc, addr, remote, key, datatype, op, context,
            ),
            Call::CompareAtomicv => (table((*ep).atomic).compwritev)(
                ep, operands, descs, n, compares, descs, n, results, descs, n, addr, remote, key, datatype,
                op, context,
            ),
            Call::CompareAtomicmsg => {
                (table((*ep).atomic).compwritemsg)(ep, atomic, compares, descs, n, results, descs, n, flags)
            }
        }
    }
}

/// A change to the arguments of a call.
type Change = fn(&Context, &mut Arguments);

const CHANGES: &[(&str, Applies, Change)] = &[
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
    ("count 64", Call::takes_vector, |_, a| a.vector_count = 64),
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
        |_, _| true,
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
    ("rma_count 64", |call, name| call.is_one_sided() && call.takes_flags(name), |_, a| a.rma_count = 64),
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

/// Whether a change is about this call.
type Applies = fn(Call, &str) -> bool;

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

/// What a probe works with.
struct Scene {
    pair: Pair,
    /// Of the left, which reads and sends from it.
    near: *mut u8,
    near_region: Option<Region>,
    /// Of the right, in which data arrives.
    far: *mut u8,
    far_region: Option<Region>,
    is_tagged: bool,
}

/// What is allocated of each, so that a length that is a little too large stays inside.
const ROOM_BYTES: usize = 1 << 17;
/// What is registered of it.
const REGION_BYTES: usize = 4096;

impl Scene {
    fn new(context: &Context, call: Call) -> Scene {
        let pair = context.pair();
        let (near, far) = (memory(ROOM_BYTES), memory(ROOM_BYTES));
        let (mut near_region, mut far_region) = (None, None);
        if call.is_one_sided() {
            near_region = Some(context.region(&pair.left, near, ROOM_BYTES, 11));
            far_region = Some(context.region(&pair.right, far, REGION_BYTES, 12));
        }
        Scene { pair, near, near_region, far, far_region, is_tagged: call.is_tagged() }
    }

    /// Posts a receive of the ordinary kind.
    fn receive(&mut self, buf: *mut u8) -> *mut c_void {
        let context = op_context();
        let (ep, none) = (self.pair.right.ep, ptr::null_mut());
        let result = unsafe {
            if self.is_tagged {
                ((*(*ep).tagged).recv)(ep, buf.cast(), LEN_BYTES, none, u64::MAX, TAG, 0, context)
            } else {
                ((*(*ep).msg).recv)(ep, buf.cast(), LEN_BYTES, none, u64::MAX, context)
            }
        };
        assert!(result == 0, "a receive: {}", errno(result as i64));
        context
    }

    /// Sends a message of the ordinary kind. Returns its context, or nothing if that is impossible now.
    fn send(&mut self, fill: u8) -> Option<*mut c_void> {
        let context = op_context();
        let buf = memory(LEN_BYTES);
        unsafe { ptr::write_bytes(buf, fill, LEN_BYTES) };
        let (ep, addr, none) = (self.pair.left.ep, self.pair.to_right, ptr::null_mut());
        let is_tagged = self.is_tagged;
        let result = self.pair.retry(|| unsafe {
            let buf = buf.cast::<c_void>();
            if is_tagged {
                ((*(*ep).tagged).send)(ep, buf, LEN_BYTES, none, addr, TAG, context)
            } else {
                ((*(*ep).msg).send)(ep, buf, LEN_BYTES, none, addr, context)
            }
        });
        (result == 0).then_some(context)
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

fn has_error(done: &[Completion], context: *mut c_void) -> Option<&Completion> {
    done.iter().find(|done| done.context == context)
}

fn completed(done: &[Completion], context: *mut c_void) -> String {
    match has_error(done, context) {
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
    scene.pair.until(glimpse(), |pair| {
        let has_come = after.is_some_and(|after| has_error(&pair.at_left, after).is_some())
            && landing.iter().any(|buf| unsafe { **buf } == AFTER);
        let is_done = !is_expected || has_error(&pair.at_left, arguments.context).is_some();
        // The message after it may be matched by the receive before the probe's has completed.
        let is_received = which.is_one_sided()
            || receives.iter().filter(|context| has_error(&pair.at_right, **context).is_some()).count() == 2;
        has_come && is_done && is_received
    });
    let effect = match way {
        Way::Write => is_filled(scene.far),
        Way::Read if which.is_atomic() => is_filled(arguments.result),
        Way::Read => is_filled(arguments.buf),
        _ => landing.iter().any(|buf| is_filled(*buf)),
    };
    let effect = if way == Way::Send {
        let arrived = receives.iter().filter(|context| has_error(&scene.pair.at_right, **context).is_some());
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
        if after.is_some_and(|after| has_error(&scene.pair.at_left, after).is_some_and(|it| it.error == 0)) {
            ""
        } else {
            ", and nothing works after it"
        };
    let completion = if is_expected {
        completed(&scene.pair.at_left, arguments.context)
    } else {
        // What reports no success may report a failure, of an unknown operation.
        let failed = scene.pair.at_left.iter().find(|done| done.error != 0);
        failed.map_or("silent".to_owned(), |done| format!("fails with {}", errno(-done.error)))
    };
    format!("0 {completion}, {effect}{after}")
}

fn is_filled(buf: *mut u8) -> bool {
    !buf.is_null() && unsafe { *buf } == PROBE
}

/// A receive at the right, and two ordinary messages: one for it, and one for the receive after it.
fn received(scene: &mut Scene, which: Call, arguments: &Arguments) -> String {
    let ep = scene.pair.right.ep;
    let result = scene.pair.retry(|| unsafe { call(which, ep, arguments) });
    if result != 0 {
        return errno(result as i64);
    }
    let landing = memory(ROOM_BYTES);
    let next = scene.receive(landing);
    let sends = [scene.send(PROBE), scene.send(AFTER)];
    scene.pair.until(glimpse(), |pair| {
        let is_sent =
            sends.iter().all(|send| send.is_some_and(|send| has_error(&pair.at_left, send).is_some()));
        let done = pair.at_right.iter().filter(|done| [arguments.context, next].contains(&done.context));
        is_sent && done.count() >= 2
    });
    let found = has_error(&scene.pair.at_right, arguments.context);
    let len = found.map_or(String::new(), |found| format!(" len {}", found.len));
    let into_next = unsafe { *landing };
    let next = match into_next {
        PROBE => ", message goes to the next",
        AFTER => "",
        _ => ", next gets nothing",
    };
    format!("0 {}{len}{next}", completed(&scene.pair.at_right, arguments.context))
}
