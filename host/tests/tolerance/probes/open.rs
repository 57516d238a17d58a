//! Probes of `fi_getinfo(3)` and of calls that open objects, besides those of their attributes.

use std::ffi::CStr;
use std::ptr;

use homespun_host::abi::domain::FiAvAttr;
use homespun_host::abi::eq::{FiCntrAttr, FiCqAttr, FiEqAttr};
use homespun_host::{API_VERSION, av_attr, counter_attr, cq_attr, eq_attr};
use libc::{c_int, c_void};

use super::Probes;
use crate::bits::flags;
use crate::outcome::describe_result;
use crate::setup::{
    Context, NULL, bind, call, control, leak_op_context as op_context, leak_zeroed_memory, open_counter_with,
    open_eq_with, provider_hints, source_arguments, try_open,
};

pub(super) fn add_probes(probes: &mut Probes) {
    add_getinfo_probes(probes);
    add_object_probes(probes);
    add_endpoint_probes(probes);
}

fn add_getinfo_probes(probes: &mut Probes) {
    type Text = Option<&'static CStr>;
    let call = |context: &Context, version: u32, texts: [Text; 2], flags: u64| {
        let hints = provider_hints(context.libfabric, &context.case);
        let (texts, hints) = (texts.map(|text| text.map_or(ptr::null(), CStr::as_ptr)), hints.as_ptr());
        try_open(|list| unsafe { context.libfabric.getinfo_raw(version, texts, flags, hints, list) })
    };
    for (bit, name) in flags() {
        probes.add_endpoint_probe(format!("fi_getinfo: flags {name}"), move |context| {
            call(context, API_VERSION, [None; 2], 1 << bit)
        });
        if bit >= 50 {
            probes.add_endpoint_probe(format!("fi_getinfo: node and flags {name}"), move |context| {
                call(context, API_VERSION, [Some(c"127.0.0.1"), None], 1 << bit)
            });
        }
    }
    for (text, version) in [("0", 0), ("1.0", 1 << 16), ("1.4", 1 << 16 | 4), ("1.5", 1 << 16 | 5)] {
        probes.add_endpoint_probe(format!("fi_getinfo: version {text}"), move |context| {
            call(context, version, [None; 2], 0)
        });
    }
    let named: [(&str, [Text; 2]); 9] = [
        ("node empty", [Some(c""), None]),
        ("service empty", [None, Some(c"")]),
        ("service 0", [None, Some(c"0")]),
        ("service 7471", [None, Some(c"7471")]),
        ("service without a meaning", [None, Some(c"no such service")]),
        ("service 99999", [None, Some(c"99999")]),
        ("node and service", [Some(c"127.0.0.1"), Some(c"7471")]),
        ("node localhost", [Some(c"localhost"), None]),
        ("node 0.0.0.0", [Some(c"0.0.0.0"), None]),
    ];
    for (name, texts) in named {
        for (text, flags) in [("", 0), (" as source", 1 << 57)] {
            probes.add_endpoint_probe(format!("fi_getinfo: {name}{text}"), move |context| {
                call(context, API_VERSION, texts, flags)
            });
        }
    }
    for (text, has_node) in [("", true), (", without a node", false)] {
        probes.add_endpoint_probe(format!("fi_getinfo: the answer as hints{text}"), move |context| {
            let (node, flags) = if has_node { source_arguments(&context.case) } else { (None, 0) };
            let again = context.libfabric.getinfo(node, None, flags, Some(&context.info));
            again.map_or_else(|error| describe_result(-error.raw()), |_| "0".to_owned())
        });
    }
    probes.add_endpoint_probe("fi_getinfo: src_addr short", |context| {
        let mut hints = provider_hints(context.libfabric, &context.case);
        (hints.first_mut().src_addr, hints.first_mut().src_addrlen) = (leak_zeroed_memory(16).cast(), 4);
        let answer = context.libfabric.getinfo(None, None, 0, Some(&hints));
        std::mem::forget(hints);
        answer.map_or_else(|error| describe_result(-error.raw()), |_| "0".to_owned())
    });
}

fn add_object_probes(probes: &mut Probes) {
    type Call = fn(&Context) -> c_int;
    let calls: [(&str, Call); 10] = [
        ("fi_fabric: twice", |context| {
            context.open_fabric();
            let attr = context.info.first().fabric_attr;
            try_open(|fabric| unsafe { context.libfabric.call_fi_fabric(attr, fabric, NULL) })
        }),
        ("fi_domain: twice", |context| {
            let (fabric, _) = context.open_domain();
            try_open(|domain| call!(fabric, ops.domain, context.info.as_ptr(), domain, NULL))
        }),
        ("fi_domain_bind: eq", |context| {
            let (fabric, domain) = context.open_domain();
            bind(domain, context.open_eq(fabric), 0)
        }),
        ("fi_cq_open: attr null", |context| {
            let domain = context.open_domain().1;
            try_open(|cq| call!(domain, ops.cq_open, ptr::null_mut(), cq, NULL))
        }),
        ("fi_cntr_open: attr null", |context| {
            let domain = context.open_domain().1;
            try_open(|counter| call!(domain, ops.cntr_open, ptr::null_mut(), counter, NULL))
        }),
        ("fi_eq_open: attr null", |context| {
            let fabric = context.open_fabric();
            try_open(|eq| call!(fabric, ops.eq_open, ptr::null_mut(), eq, NULL))
        }),
        ("fi_av_open: attr null", |context| {
            let domain = context.open_domain().1;
            try_open(|av| call!(domain, ops.av_open, ptr::null_mut(), av, NULL))
        }),
        ("fi_poll_open: attr null", |context| {
            let domain = context.open_domain().1;
            try_open(|poll| call!(domain, ops.poll_open, ptr::null_mut(), poll))
        }),
        ("fi_av_open: map_addr", |context| {
            let (domain, mut attr) =
                (context.open_domain().1, FiAvAttr { map_addr: op_context(), ..av_attr() });
            try_open(|av| call!(domain, ops.av_open, &raw mut attr, av, NULL))
        }),
        ("fi_av_open: name", |context| {
            let name = c"homespun-tolerance".as_ptr();
            let (domain, mut attr) = (context.open_domain().1, FiAvAttr { name, ..av_attr() });
            let result = try_open(|av| call!(domain, ops.av_open, &raw mut attr, av, NULL));
            unsafe { libc::shm_unlink(name) };
            result
        }),
    ];
    for (name, call) in calls {
        probes.add_object_probe(name, call);
    }
    for (bit, name) in flags() {
        probes.add_object_probe(format!("fi_domain2: flags {name}"), move |context| {
            let (fabric, info) = (context.open_fabric(), context.info.as_ptr());
            try_open(|domain| call!(fabric, ops.domain2, info, domain, 1 << bit, NULL))
        });
    }
    type Open = fn(&Context, u32) -> *mut c_void;
    let waitables: [(&str, Open); 3] = [
        ("fi_cq_open", |context, wait_obj| {
            context.open_cq(context.open_domain().1, FiCqAttr { wait_obj, ..cq_attr(4) }).cast()
        }),
        ("fi_cntr_open", |context, wait_obj| {
            open_counter_with(context.open_domain().1, FiCntrAttr { wait_obj, ..counter_attr() }).cast()
        }),
        ("fi_eq_open", |context, wait_obj| {
            open_eq_with(context.open_fabric(), FiEqAttr { wait_obj, ..eq_attr() }).cast()
        }),
    ];
    for (call, open) in waitables {
        for wait_obj in 0..9 {
            probes.add_object_probe(format!("{call}: wait_obj {wait_obj}, FI_GETWAIT"), move |context| {
                const FI_GETWAIT: c_int = 5;
                control(open(context, wait_obj), FI_GETWAIT, leak_zeroed_memory(256))
            });
        }
    }
}

fn add_endpoint_probes(probes: &mut Probes) {
    for (bit, name) in flags() {
        probes.add_endpoint_probe(format!("fi_endpoint2: flags {name}"), move |context| {
            let (domain, info) = (context.open_domain().1, context.info.as_ptr());
            try_open(|ep| call!(domain, ops.endpoint2, info, ep, 1 << bit, NULL))
        });
    }
    probes.add_endpoint_probe("fi_passive_ep: of this info", |context| {
        let fabric = context.open_fabric();
        try_open(|pep| call!(fabric, ops.passive_ep, context.info.as_ptr(), pep, NULL))
    });
    probes.add_endpoint_probe("fi_stx_context: attr of the info", |context| {
        let (domain, attr) = (context.open_domain().1, context.info.first().tx_attr);
        try_open(|stx| call!(domain, ops.stx_ctx, attr, stx, NULL))
    });
    probes.add_endpoint_probe("fi_srx_context: attr of the info", |context| {
        let (domain, attr) = (context.open_domain().1, context.info.first().rx_attr);
        try_open(|srx| call!(domain, ops.srx_ctx, attr, srx, NULL))
    });
    probes.add_endpoint_probe("fi_scalable_ep: of this info", |context| {
        let domain = context.open_domain().1;
        try_open(|ep| call!(domain, ops.scalable_ep, context.info.as_ptr(), ep, NULL))
    });
}
