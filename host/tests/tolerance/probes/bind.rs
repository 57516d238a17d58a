//! Probes that bind and enable: with each object and each flag, before and after `fi_enable(3)`, twice, and
//! without required objects.

use std::ptr;

use homespun_host::abi::eq::FidCq;
use homespun_host::abi::{FI_ENABLE, FI_RECV, FI_TRANSMIT};
use homespun_host::cq_attr;
use libc::c_void;

use super::Probes;
use crate::bits::FLAGS;
use crate::outcome::describe_result;
use crate::setup::{
    Context, NULL, Node, bind, call, close, control, enable, leak_op_context as op_context, recv, send,
};

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

fn another_cq(context: &Context, node: &Node) -> *mut FidCq {
    context.open_cq(node.domain, cq_attr(4))
}

/// Binds objects to an endpoint with each flag. Before `fi_enable(3)`, also binds queues and counters with
/// each flag in addition to a direction.
fn add_flag_probes(probes: &mut Probes) {
    type Bind = fn(&Context, Node, u64) -> i32;
    const CQ: Bind = |context, node, flags| bind(node.ep, another_cq(context, &node), flags);
    const COUNTER: Bind = |context, node, flags| bind(node.ep, context.open_counter(node.domain), flags);
    const OTHERS: [(&str, Bind); 4] = [
        ("cq FI_TRANSMIT and FI_RECV and", |_, node, flag| {
            bind(node.ep, node.cq, FI_TRANSMIT | FI_RECV | flag)
        }),
        ("cntr FI_SEND and", |context, node, flag| COUNTER(context, node, FI_TRANSMIT | flag)),
        ("eq flags", |context, node, flag| bind(node.ep, context.open_eq(node.fabric), flag)),
        ("av flags", |context, node, flag| bind(node.ep, context.open_av(node.domain), flag)),
    ];
    for &(bit, name) in FLAGS {
        let mut add = |probe: String, is_enabled, call: Bind| {
            probes.add_endpoint_probe(format!("fi_ep_bind: {probe}"), move |context| {
                call(context, open_enabled_or_unbound_node(context, is_enabled), 1 << bit)
            });
        };
        for (when, is_enabled) in [("before", false), ("after", true)] {
            add(format!("cq {name} {when} fi_enable"), is_enabled, CQ);
            add(format!("cntr {name} {when} fi_enable"), is_enabled, COUNTER);
        }
        for (what, call) in OTHERS {
            add(format!("{what} {name}"), false, call);
        }
    }
}

/// Binds objects in unusual ways: without flags, twice, two of one kind, and objects that cannot be bound to
/// each other.
fn add_object_probes(probes: &mut Probes) {
    type Bind = fn(&Context, Node) -> i32;
    let binds: [(&str, Bind); 14] = [
        ("cq flags 0", |context, node| bind(node.ep, another_cq(context, &node), 0)),
        ("cntr flags 0", |context, node| bind(node.ep, context.open_counter(node.domain), 0)),
        ("eq", |context, node| bind(node.ep, context.open_eq(node.fabric), 0)),
        ("av", |context, node| bind(node.ep, context.open_av(node.domain), 0)),
        ("the same eq twice", |context, node| {
            let eq = context.open_eq(node.fabric);
            bind(node.ep, eq, 0);
            bind(node.ep, eq, 0)
        }),
        ("two avs", |context, node| {
            bind(node.ep, context.open_av(node.domain), 0);
            bind(node.ep, context.open_av(node.domain), 0)
        }),
        ("the same cq twice", |_, node| {
            bind(node.ep, node.cq, FI_TRANSMIT | FI_RECV);
            bind(node.ep, node.cq, FI_TRANSMIT | FI_RECV)
        }),
        ("two cqs for sending", |context, node| {
            bind(node.ep, node.cq, FI_TRANSMIT);
            bind(node.ep, another_cq(context, &node), FI_TRANSMIT)
        }),
        ("cq once for each direction", |_, node| {
            bind(node.ep, node.cq, FI_TRANSMIT);
            bind(node.ep, node.cq, FI_RECV)
        }),
        ("two cntrs for sending", |context, node| {
            bind(node.ep, context.open_counter(node.domain), FI_TRANSMIT);
            bind(node.ep, context.open_counter(node.domain), FI_TRANSMIT)
        }),
        ("itself", |_, node| bind(node.ep, node.ep, 0)),
        ("its domain", |_, node| bind(node.ep, node.domain, 0)),
        ("its fabric", |_, node| bind(node.ep, node.fabric, 0)),
        ("null", |_, node| bind(node.ep, NULL, 0)),
    ];
    for (when, is_enabled) in [("before", false), ("after", true)] {
        for (name, call) in binds {
            probes.add_endpoint_probe(format!("fi_ep_bind: {name} {when} fi_enable"), move |context| {
                call(context, open_enabled_or_unbound_node(context, is_enabled))
            });
        }
    }
    probes.add_endpoint_probe("fi_ep_bind: cq of another domain", |context| {
        let node = context.open_unbound_node();
        let cq = context.open_cq(context.open_domain_in(node.fabric), cq_attr(4));
        bind(node.ep, cq, FI_TRANSMIT | FI_RECV)
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
                bind(open(context, node), other(context, node), 0)
            });
        }
    }
}

/// Enables an endpoint twice and with only some objects bound, and calls functions before `fi_enable(3)`.
fn add_order_probes(probes: &mut Probes) {
    probes.add_endpoint_probe("fi_enable: twice", |context| enable(context.open_enabled_node().ep));
    probes.add_endpoint_probe("fi_enable: nothing bound", |context| enable(context.open_unbound_node().ep));
    type Prepare = fn(&Context, &Node) -> i32;
    let alone: [(&str, Prepare); 3] = [
        ("cq", |_, node| bind(node.ep, node.cq, FI_TRANSMIT | FI_RECV)),
        ("av", |context, node| bind(node.ep, context.open_av(node.domain), 0)),
        ("eq", |context, node| bind(node.ep, context.open_eq(node.fabric), 0)),
    ];
    for (name, prepare) in alone {
        probes.add_endpoint_probe(format!("fi_enable: {name} alone"), move |context| {
            let node = context.open_unbound_node();
            prepare(context, &node);
            enable(node.ep)
        });
    }
    // The required objects are bound, except queues and counters.
    let beside: [(&str, Prepare); 5] = [
        ("cq for sending alone", |_, node| bind(node.ep, node.cq, FI_TRANSMIT)),
        ("cq for receiving alone", |_, node| bind(node.ep, node.cq, FI_RECV)),
        ("counters in place of cqs", |context, node| {
            bind(node.ep, context.open_counter(node.domain), FI_TRANSMIT | FI_RECV)
        }),
        ("cq for sending, counter for receiving", |context, node| {
            bind(node.ep, node.cq, FI_TRANSMIT);
            bind(node.ep, context.open_counter(node.domain), FI_RECV)
        }),
        ("cq with FI_SELECTIVE_COMPLETION", |_, node| {
            bind(node.ep, node.cq, FI_TRANSMIT | FI_RECV | 1 << 59)
        }),
    ];
    for (name, prepare) in beside {
        probes.add_endpoint_probe(format!("fi_enable: {name}"), move |context| {
            let node = context.open_unbound_node();
            bind(node.ep, context.av_or_eq(&node), 0);
            prepare(context, &node);
            enable(node.ep)
        });
    }
    probes.add_endpoint_probe("fi_enable: an argument", |context| {
        let node = context.bind_required_objects(context.open_unbound_node());
        control(node.ep, FI_ENABLE, ptr::from_mut(&mut 1_u64))
    });
    // These probes call functions of an endpoint that is not enabled yet.
    probes.add_endpoint_probe("fi_getname: before fi_enable", |context| {
        let (node, mut name, mut len_bytes) = (context.open_unbound_node(), [0_u8; 64], 64);
        call!(node.ep, cm.getname, name.as_mut_ptr().cast(), &raw mut len_bytes)
    });
    for (name, is_bound) in [("nothing bound", false), ("all bound", true)] {
        let open = move |context: &Context| {
            let node = context.open_unbound_node();
            if is_bound { context.bind_required_objects(node) } else { node }
        };
        probes.add_endpoint_probe(format!("fi_recv: before fi_enable, {name}"), move |context| {
            recv(open(context).ep, op_context())
        });
        probes.add_endpoint_probe(format!("fi_send: before fi_enable, {name}"), move |context| {
            send(open(context).ep, 0, op_context())
        });
    }
    probes.add_endpoint_probe("fi_recv: before fi_enable, then enabled", |context| {
        let node = context.bind_required_objects(context.open_unbound_node());
        let posted = recv(node.ep, op_context());
        format!("{} {}", describe_result(posted), describe_result(enable(node.ep)))
    });
}

/// Calls `fi_close` in each order, even for objects that others need.
fn add_close_probes(probes: &mut Probes) {
    type Pick = fn(&Context, &Node) -> *mut c_void;
    let parts: [(&str, Pick); 5] = [
        ("ep", |_, node| node.ep.cast()),
        ("cq", |_, node| node.cq.cast()),
        ("av or eq", Context::av_or_eq),
        ("domain", |_, node| node.domain.cast()),
        ("fabric", |_, node| node.fabric.cast()),
    ];
    for (first, pick) in parts {
        for (state, is_enabled) in [("unbound", false), ("enabled", true)] {
            probes.add_endpoint_probe(format!("fi_close: {first} of an endpoint, {state}"), move |context| {
                close(pick(context, &open_enabled_or_unbound_node(context, is_enabled)))
            });
        }
        for (second, next) in parts.into_iter().filter(|(second, _)| *second != first) {
            probes.add_endpoint_probe(format!("fi_close: {first}, then {second}"), move |context| {
                let node = context.open_enabled_node();
                match close(pick(context, &node)) {
                    0 => format!("0 {}", describe_result(close(next(context, &node)))),
                    refused => format!("{} at once", describe_result(refused)),
                }
            });
        }
    }
    probes.add_endpoint_probe("fi_close: all in order, a receive posted", |context| {
        let node = context.open_enabled_node();
        recv(node.ep, op_context());
        let needed = context.av_or_eq(&node);
        let results = [close(node.ep), close(node.cq), close(needed), close(node.domain), close(node.fabric)];
        results.map(describe_result).join(" ")
    });
    probes.add_endpoint_probe("fi_close: a counter that is bound", |context| {
        let node = context.open_unbound_node();
        let counter = context.open_counter(node.domain);
        bind(node.ep, counter, FI_TRANSMIT);
        close(counter)
    });
    probes.add_endpoint_probe("fi_close: ep of a pair with a message under way", |context| {
        let pair = context.open_pair_after_exchange();
        send(pair.left.ep, pair.to_right, op_context());
        close(pair.left.ep)
    });
}
