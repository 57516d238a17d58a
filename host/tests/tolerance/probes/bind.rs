//! Binding and enabling: each object, each flag, before and after `fi_enable(3)`, twice, and with required
//! objects missing.

use std::ptr;

use homespun_host::abi::{FI_RECV, FI_TRANSMIT};
use libc::c_void;

use super::Probes;
use crate::bits::FLAGS;
use crate::outcome::errno;
use crate::setup::{Context, Node, bind, close, enable};

pub(super) fn add(probes: &mut Probes) {
    flags(probes);
    others(probes);
    orders(probes);
    closing(probes);
}

/// An endpoint with all required objects, before or after `fi_enable`.
fn made(context: &Context, is_enabled: bool) -> Node {
    if is_enabled { context.node() } else { context.parts() }
}

/// Each flag for each object, alone and together with the flags that give the direction.
fn flags(probes: &mut Probes) {
    for (when, is_enabled) in [("before", false), ("after", true)] {
        for &(bit, name) in FLAGS {
            probes.endpoint(format!("fi_ep_bind: cq {name} {when} fi_enable"), move |context| {
                let node = made(context, is_enabled);
                let cq = context.cq(node.domain, homespun_host::cq_attr(4));
                unsafe { errno(bind(node.ep, cq, 1 << bit)) }
            });
            probes.endpoint(format!("fi_ep_bind: cntr {name} {when} fi_enable"), move |context| {
                let node = made(context, is_enabled);
                let counter = context.counter(node.domain);
                unsafe { errno(bind(node.ep, counter, 1 << bit)) }
            });
            if !is_enabled {
                probes.endpoint(
                    format!("fi_ep_bind: cq FI_TRANSMIT and FI_RECV and {name}"),
                    move |context| {
                        let node = made(context, false);
                        unsafe { errno(bind(node.ep, node.cq, FI_TRANSMIT | FI_RECV | 1 << bit)) }
                    },
                );
                probes.endpoint(format!("fi_ep_bind: cntr FI_SEND and {name}"), move |context| {
                    let node = made(context, false);
                    let counter = context.counter(node.domain);
                    unsafe { errno(bind(node.ep, counter, FI_TRANSMIT | 1 << bit)) }
                });
                probes.endpoint(format!("fi_ep_bind: eq flags {name}"), move |context| {
                    let node = made(context, false);
                    let eq = context.eq(node.fabric);
                    unsafe { errno(bind(node.ep, eq, 1 << bit)) }
                });
                probes.endpoint(format!("fi_ep_bind: av flags {name}"), move |context| {
                    let node = made(context, false);
                    let av = context.av(node.domain);
                    unsafe { errno(bind(node.ep, av, 1 << bit)) }
                });
            }
        }
    }
}

/// Objects that cannot be bound, and the same object twice.
fn others(probes: &mut Probes) {
    for (when, is_enabled) in [("before", false), ("after", true)] {
        type Bind = fn(&Context, Node) -> i32;
        let binds: [(&str, Bind); 14] = [
            ("cq flags 0", |context, node| unsafe {
                bind(node.ep, context.cq(node.domain, homespun_host::cq_attr(4)), 0)
            }),
            ("cntr flags 0", |context, node| unsafe { bind(node.ep, context.counter(node.domain), 0) }),
            ("eq", |context, node| unsafe { bind(node.ep, context.eq(node.fabric), 0) }),
            ("av", |context, node| unsafe { bind(node.ep, context.av(node.domain), 0) }),
            ("the same eq twice", |context, node| unsafe {
                let eq = context.eq(node.fabric);
                bind(node.ep, eq, 0);
                bind(node.ep, eq, 0)
            }),
            ("two avs", |context, node| unsafe {
                bind(node.ep, context.av(node.domain), 0);
                bind(node.ep, context.av(node.domain), 0)
            }),
            ("the same cq twice", |_, node| unsafe {
                bind(node.ep, node.cq, FI_TRANSMIT | FI_RECV);
                bind(node.ep, node.cq, FI_TRANSMIT | FI_RECV)
            }),
            ("two cqs for sending", |context, node| unsafe {
                bind(node.ep, node.cq, FI_TRANSMIT);
                bind(node.ep, context.cq(node.domain, homespun_host::cq_attr(4)), FI_TRANSMIT)
            }),
            ("cq once for each direction", |_, node| unsafe {
                bind(node.ep, node.cq, FI_TRANSMIT);
                bind(node.ep, node.cq, FI_RECV)
            }),
            ("two cntrs for sending", |context, node| unsafe {
                bind(node.ep, context.counter(node.domain), FI_TRANSMIT);
                bind(node.ep, context.counter(node.domain), FI_TRANSMIT)
            }),
            ("itself", |_, node| unsafe { bind(node.ep, node.ep, 0) }),
            ("its domain", |_, node| unsafe { bind(node.ep, node.domain, 0) }),
            ("its fabric", |_, node| unsafe { bind(node.ep, node.fabric, 0) }),
            ("null", |_, node| unsafe { bind(node.ep, ptr::null_mut::<c_void>(), 0) }),
        ];
        for (name, call) in binds {
            probes.endpoint(format!("fi_ep_bind: {name} {when} fi_enable"), move |context| {
                errno(call(context, made(context, is_enabled)))
            });
        }
    }
    probes.endpoint("fi_ep_bind: cq of another domain", |context| {
        let node = context.parts();
        let other = context.domain_in(node.fabric);
        let cq = context.cq(other, homespun_host::cq_attr(4));
        unsafe { errno(bind(node.ep, cq, FI_TRANSMIT | FI_RECV)) }
    });
    type Open = fn(&Context, Node) -> *mut c_void;
    let objects: [(&str, Open); 6] = [
        ("cq", |_, node| node.cq.cast()),
        ("cntr", |context, node| context.counter(node.domain).cast()),
        ("eq", |context, node| context.eq(node.fabric).cast()),
        ("av", |context, node| context.av(node.domain).cast()),
        ("domain", |_, node| node.domain.cast()),
        ("fabric", |_, node| node.fabric.cast()),
    ];
    for (to, open) in objects {
        for (what, other) in objects {
            probes.endpoint(format!("fi_bind: {what} to {to}"), move |context| {
                let node = context.parts();
                unsafe { errno(bind(open(context, node), other(context, node), 0)) }
            });
        }
    }
}

/// The orders of binding and enabling.
fn orders(probes: &mut Probes) {
    probes.endpoint("fi_enable: twice", |context| unsafe { errno(enable(context.node().ep)) });
    probes.endpoint("fi_enable: nothing bound", |context| unsafe { errno(enable(context.parts().ep)) });
    type Some = fn(&Context, &Node);
    let some: [(&str, Some); 8] = [
        ("cq alone", |_, node| unsafe {
            bind(node.ep, node.cq, FI_TRANSMIT | FI_RECV);
        }),
        ("av alone", |context, node| unsafe {
            bind(node.ep, context.av(node.domain), 0);
        }),
        ("eq alone", |context, node| unsafe {
            bind(node.ep, context.eq(node.fabric), 0);
        }),
        ("cq for sending alone", |context, node| unsafe {
            needed(context, node);
            bind(node.ep, node.cq, FI_TRANSMIT);
        }),
        ("cq for receiving alone", |context, node| unsafe {
            needed(context, node);
            bind(node.ep, node.cq, FI_RECV);
        }),
        ("counters in place of cqs", |context, node| unsafe {
            needed(context, node);
            bind(node.ep, context.counter(node.domain), FI_TRANSMIT | FI_RECV);
        }),
        ("cq for sending, counter for receiving", |context, node| unsafe {
            needed(context, node);
            bind(node.ep, node.cq, FI_TRANSMIT);
            bind(node.ep, context.counter(node.domain), FI_RECV);
        }),
        ("cq with FI_SELECTIVE_COMPLETION", |context, node| unsafe {
            needed(context, node);
            bind(node.ep, node.cq, FI_TRANSMIT | FI_RECV | 1 << 59);
        }),
    ];
    for (name, prepare) in some {
        probes.endpoint(format!("fi_enable: {name}"), move |context| {
            let node = context.parts();
            prepare(context, &node);
            unsafe { errno(enable(node.ep)) }
        });
    }
    probes.endpoint("fi_enable: an argument", |context| {
        let node = context.bound(context.parts());
        let mut argument = 1_u64;
        unsafe { errno(crate::setup::control(node.ep, 6, &raw mut argument)) }
    });
    // Calls on an endpoint that is not enabled yet.
    probes.endpoint("fi_getname: before fi_enable", |context| {
        let node = context.parts();
        let mut name = [0_u8; 64];
        let mut len_bytes = name.len();
        unsafe {
            let getname = (*(*node.ep).cm).getname;
            errno(getname(node.ep.cast(), name.as_mut_ptr().cast(), &raw mut len_bytes))
        }
    });
    for (name, is_bound) in [("nothing bound", false), ("all bound", true)] {
        probes.endpoint(format!("fi_recv: before fi_enable, {name}"), move |context| {
            let node = context.parts();
            let node = if is_bound { context.bound(node) } else { node };
            let buf = crate::setup::memory(64).cast();
            unsafe {
                let recv = (*(*node.ep).msg).recv;
                errno(recv(node.ep, buf, 64, ptr::null_mut(), u64::MAX, crate::setup::context()) as i64)
            }
        });
        probes.endpoint(format!("fi_send: before fi_enable, {name}"), move |context| {
            let node = context.parts();
            let node = if is_bound { context.bound(node) } else { node };
            let buf = crate::setup::memory(64).cast();
            unsafe {
                let send = (*(*node.ep).msg).send;
                errno(send(node.ep, buf, 64, ptr::null_mut(), 0, crate::setup::context()) as i64)
            }
        });
    }
    probes.endpoint("fi_recv: before fi_enable, then enabled", |context| {
        let node = context.bound(context.parts());
        let buf = crate::setup::memory(64).cast();
        unsafe {
            let recv = (*(*node.ep).msg).recv;
            let posted = recv(node.ep, buf, 64, ptr::null_mut(), u64::MAX, crate::setup::context());
            format!("{} {}", errno(posted as i64), errno(enable(node.ep)))
        }
    });
}

/// Binds the required objects, except queues and counters.
unsafe fn needed(context: &Context, node: &Node) {
    unsafe {
        if context.is_connected() {
            bind(node.ep, node.eq, 0);
        } else {
            bind(node.ep, node.av, 0);
        }
    }
}

/// `fi_close` in each order, also of objects that others need.
fn closing(probes: &mut Probes) {
    type Pick = fn(&Context, &Node) -> *mut c_void;
    let parts: [(&str, Pick); 5] = [
        ("ep", |_, node| node.ep.cast()),
        ("cq", |_, node| node.cq.cast()),
        ("av or eq", |context, node| if context.is_connected() { node.eq.cast() } else { node.av.cast() }),
        ("domain", |_, node| node.domain.cast()),
        ("fabric", |_, node| node.fabric.cast()),
    ];
    for (first, pick) in parts {
        for (state, is_enabled) in [("unbound", false), ("enabled", true)] {
            probes.endpoint(format!("fi_close: {first} of an endpoint, {state}"), move |context| {
                let node = made(context, is_enabled);
                unsafe { errno(close(pick(context, &node))) }
            });
        }
        for (second, next) in parts {
            if first != second {
                probes.endpoint(format!("fi_close: {first}, then {second}"), move |context| {
                    let node = context.node();
                    unsafe {
                        let first = close(pick(context, &node));
                        if first != 0 {
                            return format!("{} at once", errno(first));
                        }
                        format!("0 {}", errno(close(next(context, &node))))
                    }
                });
            }
        }
    }
    probes.endpoint("fi_close: all in order, a receive posted", |context| {
        let node = context.node();
        let buf = crate::setup::memory(64).cast();
        unsafe {
            let recv = (*(*node.ep).msg).recv;
            recv(node.ep, buf, 64, ptr::null_mut(), u64::MAX, crate::setup::context());
            let needed: *mut c_void = if context.is_connected() { node.eq.cast() } else { node.av.cast() };
            let results =
                [close(node.ep), close(node.cq), close(needed), close(node.domain), close(node.fabric)];
            results.map(errno).join(" ")
        }
    });
    probes.endpoint("fi_close: a counter that is bound", |context| {
        let node = context.parts();
        let counter = context.counter(node.domain);
        unsafe {
            bind(node.ep, counter, FI_TRANSMIT);
            errno(close(counter))
        }
    });
    probes.endpoint("fi_close: ep of a pair with a message under way", |context| {
        let pair = context.pair();
        let buf = crate::setup::memory(64).cast();
        unsafe {
            let send = (*(*pair.left.ep).msg).send;
            send(pair.left.ep, buf, 64, ptr::null_mut(), pair.to_right, crate::setup::context());
            errno(close(pair.left.ep))
        }
    });
}
