//! Probes of `fi_getinfo(3)` and of calls that open objects, besides those of their attributes.

use std::ffi::CStr;
use std::ptr;

use homespun_host::cq_attr;
use libc::c_int;

use super::{Family, Probes};
use crate::setup::{Context, NULL, bind, call, leak_zeroed_memory, provider_hints, try_open};

pub(super) fn add_probes(probes: &mut Probes) {
    add_getinfo_probes(probes);
    add_object_probes(probes);
}

fn add_getinfo_probes(probes: &mut Probes) {
    type Text = Option<&'static CStr>;
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
            probes.add(Family::Endpoint, format!("fi_getinfo: {name}{text}"), move |context| {
                let hints = provider_hints(context.libfabric, &context.case);
                let answer = context.libfabric.getinfo(texts[0], texts[1], flags, Some(&hints));
                answer.map_or_else(|error| -error.raw(), |_| 0)
            });
        }
    }
    probes.add(Family::Endpoint, "fi_getinfo: src_addr short", |context| {
        let mut hints = provider_hints(context.libfabric, &context.case);
        (hints.first_mut().src_addr, hints.first_mut().src_addrlen) = (leak_zeroed_memory(16).cast(), 4);
        let answer = context.libfabric.getinfo(None, None, 0, Some(&hints));
        std::mem::forget(hints);
        answer.map_or_else(|error| -error.raw(), |_| 0)
    });
}

fn add_object_probes(probes: &mut Probes) {
    type Call = fn(&Context) -> c_int;
    let calls: [(&str, Call); 9] = [
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
        ("fi_trywait: cq without wait_obj", |context| {
            let (fabric, domain) = context.open_domain();
            let cq = context.open_cq(domain, cq_attr(4));
            call!(fabric, ops.trywait, ptr::from_mut(&mut cq.cast()), 1)
        }),
    ];
    for (name, call) in calls {
        probes.add(Family::Object, name, call);
    }
}
