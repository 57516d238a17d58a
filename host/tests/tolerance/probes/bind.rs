//! Probes that bind and enable: with each object and each flag, before and after `fi_enable(3)`, twice, and
//! without required objects.

use std::ptr;

use homespun_host::abi::{FI_RECV, FI_TRANSMIT};
use libc::c_void;

use super::Probes;
use crate::bits::FLAGS;
use crate::outcome::describe_result;
use crate::setup::{Context, Node, bind, close, enable};

pub(super) fn add_probes(probes: &mut Probes) {
    add_flag_probes(probes);
    add_object_probes(probes);
    add_order_probes(probes);
    add_close_probes(probes);
}

/// An endpoint with its other objects. If `is_enabled`, the required objects are bound and the endpoint is
/// enabled. Otherwise no object is bound.
fn open_enabled_or_unbound_node(context: &Context, is_enabled: bool) -> Node {
    if is_enabled { context.open_enabled_node() } else { context.open_unbound_node() }
}

/// Binds objects to an endpoint with each flag. Before `fi_enable(3)`, also binds queues and counters with
/// each flag in addition to a direction.
fn add_flag_probes(probes: &mut Probes) {
    for (when, is_enabled) in [("before", false), ("after", true)] {
        for &(bit, name) in FLAGS {
            probes.add_endpoint_probe(format!("fi_ep_bind: cq {name} {when} fi_enable"), move |context| {
                let node = open_enabled_or_unbound_node(context, is_enabled);
                let cq = context.open_cq(node.domain, homespun_host::cq_attr(4));
                unsafe { describe_result(bind(node.ep, cq, 1 << bit)) }
            });
            probes.add_endpoint_probe(format!("fi_ep_bind: cntr {name} {when} fi_enable"), move |context| {
                let node = open_enabled_or_unbound_node(context, is_enabled);
                let counter = context.open_counter(node.domain);
                unsafe { describe_result(bind(node.ep, counter, 1 << bit)) }
            });
            if !is_enabled {
                probes.add_endpoint_probe(
                    format!("fi_ep_bind: cq FI_TRANSMIT and FI_RECV and {name}"),
                    move |context| {
                        let node = open_enabled_or_unbound_node(context, false);
                        unsafe { describe_result(bind(node.ep, node.cq, FI_TRANSMIT | FI_RECV | 1 << bit)) }
                    },
                );
                probes.add_endpoint_probe(format!("fi_ep_bind: cntr FI_SEND and {name}"), move |context| {
                    let node = open_enabled_or_unbound_node(context, false);
                    let counter = context.open_counter(node.domain);
                    unsafe { describe_result(bind(node.ep, counter, FI_TRANSMIT | 1 << bit)) }
                });
                probes.add_endpoint_probe(format!("fi_ep_bind: eq flags {name}"), move |context| {
                    let node = open_enabled_or_unbound_node(context, false);
                    let eq = context.open_eq(node.fabric);
                    unsafe { describe_result(bind(node.ep, eq, 1 << bit)) }
                });
                probes.add_endpoint_probe(format!("fi_ep_bind: av flags {name}"), move |context| {
                    let node = open_enabled_or_unbound_node(context, false);
                    let av = context.open_av(node.domain);
                    unsafe { describe_result(bind(node.ep, av, 1 << bit)) }
                });
            }
        }
    }
}

/// Binds objects in unusual ways: without flags, twice, two of one kind, and objects that cannot be bound to
/// each other.
fn add_object_probes(probes: &mut Probes) {
    for (when, is_enabled) in [("before", false), ("after", true)] {
        type Bind = fn(&Context, Node) -> i32;
        let binds: [(&str, Bind); 14] = [
            ("cq flags 0", |context, node| unsafe {
                bind(node.ep, context.open_cq(node.domain, homespun_host::cq_attr(4)), 0)
            }),
            ("cntr flags 0", |context, node| unsafe { bind(node.ep, context.open_counter(node.domain), 0) }),
            ("eq", |context, node| unsafe { bind(node.ep, context.open_eq(node.fabric), 0) }),
            ("av", |context, node| unsafe { bind(node.ep, context.open_av(node.domain), 0) }),
            ("the same eq twice", |context, node| unsafe {
                let eq = context.open_eq(node.fabric);
                bind(node.ep, eq, 0);
                bind(node.ep, eq, 0)
            }),
            ("two avs", |context, node| unsafe {
                bind(node.ep, context.open_av(node.domain), 0);
                bind(node.ep, context.open_av(node.domain), 0)
            }),
            ("the same cq twice", |_, node| unsafe {
                bind(node.ep, node.cq, FI_TRANSMIT | FI_RECV);
                bind(node.ep, node.cq, FI_TRANSMIT | FI_RECV)
            }),
            ("two cqs for sending", |context, node| unsafe {
                bind(node.ep, node.cq, FI_TRANSMIT);
                bind(node.ep, context.open_cq(node.domain, homespun_host::cq_attr(4)), FI_TRANSMIT)
            }),
            ("cq once for each direction", |_, node| unsafe {
                bind(node.ep, node.cq, FI_TRANSMIT);
                bind(node.ep, node.cq, FI_RECV)
            }),
            ("two cntrs for sending", |context, node| unsafe {
                bind(node.ep, context.open_counter(node.domain), FI_TRANSMIT);
                bind(node.ep, context.open_counter(node.domain), FI_TRANSMIT)
            }),
            ("itself", |_, node| unsafe { bind(node.ep, node.ep, 0) }),
            ("its domain", |_, node| unsafe { bind(node.ep, node.domain, 0) }),
            ("its fabric", |_, node| unsafe { bind(node.ep, node.fabric, 0) }),
            ("null", |_, node| unsafe { bind(node.ep, ptr::null_mut::<c_void>(), 0) }),
        ];
        for (name, call) in binds {
            probes.add_endpoint_probe(format!("fi_ep_bind: {name} {when} fi_enable"), move |context| {
                describe_result(call(context, open_enabled_or_unbound_node(context, is_enabled)))
            });
        }
    }
    probes.add_endpoint_probe("fi_ep_bind: cq of another domain", |context| {
        let node = context.open_unbound_node();
        let other = context.open_domain_in(node.fabric);
        let cq = context.open_cq(other, homespun_host::cq_attr(4));
        unsafe { describe_result(bind(node.ep, cq, FI_TRANSMIT | FI_RECV)) }
    });
    type Open = fn(&Context, Node) -> *mut c_void;
    let objects: [(&str, Open); 6] = [
        ("cq", |_, node| node.cq.cast()),
        ("cntr", |context, node| context.open_counter(node.domain).cast()),
        ("eq", |context, node| context.open_eq(node.fabric).cast()),
        ("av", |context, node| context.open_av(node.domain).cast()),
        ("domain", |_, node| node.domain.cast()),
        ("fabric", |_, node| node.fabric.cast()),
    ];
    for (to, open) in objects {
        for (what, other) in objects {
            probes.add_endpoint_probe(format!("fi_bind: {what} to {to}"), move |context| {
                let node = context.open_unbound_node();
                unsafe { describe_result(bind(open(context, node), other(context, node), 0)) }
            });
        }
    }
}

/// Enables an endpoint twice and with only some objects bound, and calls functions before `fi_enable(3)`.
fn add_order_probes(probes: &mut Probes) {
    probes.add_endpoint_probe("fi_enable: twice", |context| unsafe {
        describe_result(enable(context.open_enabled_node().ep))
    });
    probes.add_endpoint_probe("fi_enable: nothing bound", |context| unsafe {
        describe_result(enable(context.open_unbound_node().ep))
    });
    type Some = fn(&Context, &Node);
    let some: [(&str, Some); 8] = [
        ("cq alone", |_, node| unsafe {
            bind(node.ep, node.cq, FI_TRANSMIT | FI_RECV);
        }),
        ("av alone", |context, node| unsafe {
            bind(node.ep, context.open_av(node.domain), 0);
        }),
        ("eq alone", |context, node| unsafe {
            bind(node.ep, context.open_eq(node.fabric), 0);
        }),
        ("cq for sending alone", |context, node| unsafe {
            bind_required(context, node);
            bind(node.ep, node.cq, FI_TRANSMIT);
        }),
        ("cq for receiving alone", |context, node| unsafe {
            bind_required(context, node);
            bind(node.ep, node.cq, FI_RECV);
        }),
        ("counters in place of cqs", |context, node| unsafe {
            bind_required(context, node);
            bind(node.ep, context.open_counter(node.domain), FI_TRANSMIT | FI_RECV);
        }),
        ("cq for sending, counter for receiving", |context, node| unsafe {
            bind_required(context, node);
            bind(node.ep, node.cq, FI_TRANSMIT);
            bind(node.ep, context.open_counter(node.domain), FI_RECV);
        }),
        ("cq with FI_SELECTIVE_COMPLETION", |context, node| unsafe {
            bind_required(context, node);
            bind(node.ep, node.cq, FI_TRANSMIT | FI_RECV | 1 << 59);
        }),
    ];
    for (name, prepare) in some {
        probes.add_endpoint_probe(format!("fi_enable: {name}"), move |context| {
            let node = context.open_unbound_node();
            prepare(context, &node);
            unsafe { describe_result(enable(node.ep)) }
        });
    }
    probes.add_endpoint_probe("fi_enable: an argument", |context| {
        let node = context.bind_required_objects(context.open_unbound_node());
        let mut argument = 1_u64;
        unsafe { describe_result(crate::setup::control(node.ep, 6, &raw mut argument)) }
    });
    // These probes call functions of an endpoint that is not enabled yet.
    probes.add_endpoint_probe("fi_getname: before fi_enable", |context| {
        let node = context.open_unbound_node();
        let mut name = [0_u8; 64];
        let mut len_bytes = name.len();
        unsafe {
            let getname = (*(*node.ep).cm).getname;
            describe_result(getname(node.ep.cast(), name.as_mut_ptr().cast(), &raw mut len_bytes))
        }
    });
    for (name, is_bound) in [("nothing bound", false), ("all bound", true)] {
        probes.add_endpoint_probe(format!("fi_recv: before fi_enable, {name}"), move |context| {
            let node = context.open_unbound_node();
            let node = if is_bound { context.bind_required_objects(node) } else { node };
            let buf = crate::setup::leak_zeroed_memory(64).cast();
            unsafe {
                let recv = (*(*node.ep).msg).recv;
                describe_result(recv(
                    node.ep,
                    buf,
                    64,
                    ptr::null_mut(),
                    u64::MAX,
                    crate::setup::leak_op_context(),
                ) as i64)
            }
        });
        probes.add_endpoint_probe(format!("fi_send: before fi_enable, {name}"), move |context| {
            let node = context.open_unbound_node();
            let node = if is_bound { context.bind_required_objects(node) } else { node };
            let buf = crate::setup::leak_zeroed_memory(64).cast();
            unsafe {
                let send = (*(*node.ep).msg).send;
                describe_result(
                    send(node.ep, buf, 64, ptr::null_mut(), 0, crate::setup::leak_op_context()) as i64
                )
            }
        });
    }
    probes.add_endpoint_probe("fi_recv: before fi_enable, then enabled", |context| {
        let node = context.bind_required_objects(context.open_unbound_node());
        let buf = crate::setup::leak_zeroed_memory(64).cast();
        unsafe {
            let recv = (*(*node.ep).msg).recv;
            let posted = recv(node.ep, buf, 64, ptr::null_mut(), u64::MAX, crate::setup::leak_op_context());
            format!("{} {}", describe_result(posted as i64), describe_result(enable(node.ep)))
        }
    });
}

/// Binds the required objects, except queues and counters.
unsafe fn bind_required(context: &Context, node: &Node) {
    unsafe {
        if context.is_connection_oriented() {
            bind(node.ep, node.eq, 0);
        } else {
            bind(node.ep, node.av, 0);
        }
    }
}

/// Calls `fi_close` in each order, even for objects that others need.
fn add_close_probes(probes: &mut Probes) {
    type Pick = fn(&Context, &Node) -> *mut c_void;
    let parts: [(&str, Pick); 5] = [
        ("ep", |_, node| node.ep.cast()),
        ("cq", |_, node| node.cq.cast()),
        (
            "av or eq",
            |context, node| if context.is_connection_oriented() { node.eq.cast() } else { node.av.cast() },
        ),
        ("domain", |_, node| node.domain.cast()),
        ("fabric", |_, node| node.fabric.cast()),
    ];
    for (first, pick) in parts {
        for (state, is_enabled) in [("unbound", false), ("enabled", true)] {
            probes.add_endpoint_probe(format!("fi_close: {first} of an endpoint, {state}"), move |context| {
                let node = open_enabled_or_unbound_node(context, is_enabled);
                unsafe { describe_result(close(pick(context, &node))) }
            });
        }
        for (second, next) in parts {
            if first != second {
                probes.add_endpoint_probe(format!("fi_close: {first}, then {second}"), move |context| {
                    let node = context.open_enabled_node();
                    unsafe {
                        let first = close(pick(context, &node));
                        if first != 0 {
                            return format!("{} at once", describe_result(first));
                        }
                        format!("0 {}", describe_result(close(next(context, &node))))
                    }
                });
            }
        }
    }
    probes.add_endpoint_probe("fi_close: all in order, a receive posted", |context| {
        let node = context.open_enabled_node();
        let buf = crate::setup::leak_zeroed_memory(64).cast();
        unsafe {
            let recv = (*(*node.ep).msg).recv;
            recv(node.ep, buf, 64, ptr::null_mut(), u64::MAX, crate::setup::leak_op_context());
            let needed: *mut c_void =
                if context.is_connection_oriented() { node.eq.cast() } else { node.av.cast() };
            let results =
                [close(node.ep), close(node.cq), close(needed), close(node.domain), close(node.fabric)];
            results.map(describe_result).join(" ")
        }
    });
    probes.add_endpoint_probe("fi_close: a counter that is bound", |context| {
        let node = context.open_unbound_node();
        let counter = context.open_counter(node.domain);
        unsafe {
            bind(node.ep, counter, FI_TRANSMIT);
            describe_result(close(counter))
        }
    });
    probes.add_endpoint_probe("fi_close: ep of a pair with a message under way", |context| {
        let pair = context.open_pair_after_exchange();
        let buf = crate::setup::leak_zeroed_memory(64).cast();
        unsafe {
            let send = (*(*pair.left.ep).msg).send;
            send(pair.left.ep, buf, 64, ptr::null_mut(), pair.to_right, crate::setup::leak_op_context());
            describe_result(close(pair.left.ep))
        }
    });
}
