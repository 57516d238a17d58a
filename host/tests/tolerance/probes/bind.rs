//! Probes that bind and enable: with each object and each flag, before and after `fi_enable(3)`, twice, and
//! without required objects.

use std::collections::BTreeMap;

use homespun_host::abi::{FI_RECV, FI_TRANSMIT};
use homespun_host::cq_attr;
use libc::{c_int, c_void};

use super::{Family, Probes};
use crate::bits::flags;
use crate::setup::{Context, NULL, Node, bind, enable};

pub(super) fn add_probes(probes: &mut Probes) {
    add_bind_probes(probes);
    add_enable_probes(probes);
}

/// The objects of a probe by name. A name that ends with 2 stands for another object of its class.
struct Objects<'a> {
    context: &'a Context,
    node: Node,
    opened: BTreeMap<&'static str, *mut c_void>,
}

impl Objects<'_> {
    /// The objects of an endpoint. If `is_enabled`, the required objects are bound and the endpoint is
    /// enabled. Otherwise no object is bound.
    fn new(context: &Context, is_enabled: bool) -> Objects<'_> {
        let node = if is_enabled { context.open_enabled_node() } else { context.open_unbound_node() };
        Objects { context, node, opened: BTreeMap::new() }
    }

    fn get(&mut self, name: &'static str) -> *mut c_void {
        let (context, node) = (self.context, self.node);
        *self.opened.entry(name).or_insert_with(|| match name.trim_end_matches('2') {
            "cq" if name == "cq2" => context.open_cq(node.domain, cq_attr(4)).cast(),
            "cq" => node.cq.cast(),
            "cq of another domain" => context.open_cq(context.open_domain_in(node.fabric), cq_attr(4)).cast(),
            "cntr" => context.open_counter(node.domain).cast(),
            "eq" => context.open_eq(node.fabric).cast(),
            "av" => context.open_av(node.domain).cast(),
            "av or eq" => context.av_or_eq(&node),
            "ep" => node.ep.cast(),
            "domain" => node.domain.cast(),
            "fabric" => node.fabric.cast(),
            _ => NULL,
        })
    }

    /// Binds objects to the endpoint, such as `cq: send recv, eq`. Returns the last result.
    fn bind(&mut self, binds: &'static str, more_flags: u64) -> c_int {
        let mut result = 0;
        for each in binds.split(", ") {
            let (name, flags) = each.split_once(": ").unwrap_or((each, ""));
            let flags = flags.split_whitespace().map(|flag| match flag {
                "send" => FI_TRANSMIT,
                "recv" => FI_RECV,
                _ => 1 << 59,
            });
            result = bind(self.node.ep, self.get(name), flags.sum::<u64>() | more_flags);
        }
        result
    }
}

fn add_bind_probes(probes: &mut Probes) {
    let mut add = |probe: String, is_enabled, binds, flags| {
        probes.add(Family::Endpoint, format!("fi_ep_bind: {probe}"), move |context| {
            Objects::new(context, is_enabled).bind(binds, flags)
        });
    };
    let states = [("before", false), ("after", true)];
    for (bit, name) in flags() {
        for (when, is_enabled) in states {
            add(format!("cq {name} {when} fi_enable"), is_enabled, "cq2", 1 << bit);
            add(format!("cntr {name} {when} fi_enable"), is_enabled, "cntr", 1 << bit);
        }
        for (what, binds) in [
            ("cq FI_TRANSMIT and FI_RECV and", "cq: send recv"),
            ("cntr FI_SEND and", "cntr: send"),
            ("eq flags", "eq"),
            ("av flags", "av"),
        ] {
            add(format!("{what} {name}"), false, binds, 1 << bit);
        }
    }
    for (name, binds) in [
        ("cq flags 0", "cq2"),
        ("cntr flags 0", "cntr"),
        ("eq", "eq"),
        ("av", "av"),
        ("the same eq twice", "eq, eq"),
        ("two avs", "av, av2"),
        ("the same cq twice", "cq: send recv, cq: send recv"),
        ("two cqs for sending", "cq: send, cq2: send"),
        ("cq once for each direction", "cq: send, cq: recv"),
        ("two cntrs for sending", "cntr: send, cntr2: send"),
        ("itself", "ep"),
        ("its domain", "domain"),
        ("its fabric", "fabric"),
        ("null", "null"),
    ] {
        for (when, is_enabled) in states {
            add(format!("{name} {when} fi_enable"), is_enabled, binds, 0);
        }
    }
    add("cq of another domain".to_owned(), false, "cq of another domain: send recv", 0);
    let objects = ["cq", "cntr", "eq", "av", "domain", "fabric"];
    for (to, what) in objects.into_iter().flat_map(|to| objects.map(|what| (to, what))) {
        probes.add(Family::Endpoint, format!("fi_bind: {what} to {to}"), move |context| {
            let mut objects = Objects::new(context, false);
            bind(objects.get(to), objects.get(what), 0)
        });
    }
}

/// Enables an endpoint twice and with only some objects bound.
fn add_enable_probes(probes: &mut Probes) {
    for (name, binds) in [
        ("cq alone", "cq: send recv"),
        ("av alone", "av"),
        ("eq alone", "eq"),
        ("cq for sending alone", "av or eq, cq: send"),
        ("cq for receiving alone", "av or eq, cq: recv"),
        ("counters in place of cqs", "av or eq, cntr: send recv"),
        ("cq for sending, counter for receiving", "av or eq, cq: send, cntr: recv"),
        ("cq with FI_SELECTIVE_COMPLETION", "av or eq, cq: send recv selective"),
    ] {
        probes.add(Family::Endpoint, format!("fi_enable: {name}"), move |context| {
            let mut objects = Objects::new(context, false);
            objects.bind(binds, 0);
            enable(objects.node.ep)
        });
    }
    probes.add(Family::Endpoint, "fi_enable: twice", |context| enable(context.open_enabled_node().ep));
    probes
        .add(Family::Endpoint, "fi_enable: nothing bound", |context| enable(context.open_unbound_node().ep));
}
