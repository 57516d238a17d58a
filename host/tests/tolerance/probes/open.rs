//! Probes that open fabrics, domains, queues, counters, vectors, sets and endpoints, with unusual values of
//! each attribute and with null pointers.

use std::ptr;

use homespun_host::abi::domain::FiAvAttr;
use homespun_host::abi::eq::{FiCntrAttr, FiCqAttr, FiEqAttr, FiPollAttr, FiWaitAttr};
use homespun_host::abi::info::{FiDomainAttr, FiFabricAttr, FiInfo};
use homespun_host::{InfoList, av_attr, counter_attr, cq_attr, eq_attr};
use libc::c_int;

use super::Probes;
use crate::bits::{FLAGS, MODES, MR_MODES, ORDERS};
use crate::setup::{
    Context, NULL, bind, call, control, leak_op_context as op_context, leak_zeroed_memory, open_counter_with,
    open_eq_with, try_open,
};

const SIZES: [(&str, usize); 4] = [("1", 1), ("3", 3), ("1000", 1000), ("1 << 20", 1 << 20)];

const FI_GETWAIT: c_int = 5;

pub(super) fn add_probes(probes: &mut Probes) {
    add_fabric_probes(probes);
    add_domain_probes(probes);
    add_cq_probes(probes);
    add_counter_probes(probes);
    add_eq_probes(probes);
    add_av_probes(probes);
    add_set_probes(probes);
    add_endpoint_probes(probes);
}

fn add_fabric_probes(probes: &mut Probes) {
    let open = |context: &Context| {
        let attr = context.info.first().fabric_attr;
        try_open(|fabric| unsafe { context.libfabric.call_fi_fabric(attr, fabric, NULL) })
    };
    type Change = fn(&mut FiFabricAttr);
    let changes: [(&str, Change); 5] = [
        ("name null", |attr| attr.name = ptr::null_mut()),
        ("prov_name null", |attr| attr.prov_name = ptr::null_mut()),
        ("prov_version 0", |attr| attr.prov_version = 0),
        ("api_version 0", |attr| attr.api_version = 0),
        ("api_version 1.4", |attr| attr.api_version = 1 << 16 | 4),
    ];
    for (name, change) in changes {
        probes.add_object_probe(format!("fi_fabric: {name}"), move |context| {
            change(unsafe { &mut *context.info.first().fabric_attr });
            open(context)
        });
    }
    probes.add_object_probe("fi_fabric: twice", move |context| {
        context.open_fabric();
        open(context)
    });
}

/// A change of the info and of the attributes of its domain.
type DomainChange = Box<dyn Fn(&mut FiInfo, &mut FiDomainAttr)>;

fn add_domain_probes(probes: &mut Probes) {
    let mut change = |name: String, change: DomainChange| {
        probes.add_object_probe(format!("fi_domain: {name}"), move |context| {
            let fabric = context.open_fabric();
            let mut info = unsafe { ptr::read(context.info.first()) };
            let attr = unsafe { &mut *info.domain_attr };
            change(&mut info, attr);
            try_open(|domain| call!(fabric, ops.domain, &raw mut info, domain, NULL))
        });
    };
    type Change = fn(&mut FiInfo, &mut FiDomainAttr);
    let changes: [(&str, Change); 8] = [
        ("info.tx_attr null", |info, _| info.tx_attr = ptr::null_mut()),
        ("info.rx_attr null", |info, _| info.rx_attr = ptr::null_mut()),
        ("info.ep_attr null", |info, _| info.ep_attr = ptr::null_mut()),
        ("info.fabric_attr null", |info, _| info.fabric_attr = ptr::null_mut()),
        ("info.src_addr null", |info, _| (info.src_addr, info.src_addrlen) = (NULL, 0)),
        ("info.caps 0", |info, _| info.caps = 0),
        ("name null", |_, attr| attr.name = ptr::null_mut()),
        ("name of nothing", |_, attr| attr.name = c"nothing".as_ptr().cast_mut()),
    ];
    for (name, set) in changes {
        change(name.to_owned(), Box::new(set));
    }
    type Number = fn(&mut FiDomainAttr, u32);
    let numbers: [(&str, u32, Number); 5] = [
        ("threading", 8, |attr, value| attr.threading = value),
        ("control_progress", 5, |attr, value| attr.control_progress = value),
        ("data_progress", 5, |attr, value| attr.data_progress = value),
        ("resource_mgmt", 5, |attr, value| attr.resource_mgmt = value),
        ("av_type", 5, |attr, value| attr.av_type = value),
    ];
    for (field, count, set) in numbers {
        for value in 0..count {
            change(format!("{field} {value}"), Box::new(move |_, attr| set(attr, value)));
        }
    }
    type Size = fn(&mut FiDomainAttr, usize);
    let sizes: [(&str, Size); 6] = [
        ("mr_key_size", |attr, size| attr.mr_key_size = size),
        ("cq_data_size", |attr, size| attr.cq_data_size = size),
        ("cq_cnt", |attr, size| attr.cq_cnt = size),
        ("ep_cnt", |attr, size| attr.ep_cnt = size),
        ("mr_iov_limit", |attr, size| attr.mr_iov_limit = size),
        ("cntr_cnt", |attr, size| attr.cntr_cnt = size),
    ];
    for (field, set) in sizes {
        for (text, size) in [("0", 0), ("1", 1), ("2", 2), ("3", 3), ("max", usize::MAX)] {
            change(format!("{field} {text}"), Box::new(move |_, attr| set(attr, size)));
        }
    }
    for &(bit, name) in MR_MODES {
        change(format!("mr_mode {name}"), Box::new(move |_, attr| attr.mr_mode |= 1 << bit));
    }
    for &(bit, name) in FLAGS {
        change(format!("caps {name}"), Box::new(move |_, attr| attr.caps |= 1 << bit));
    }
    probes.add_object_probe("fi_domain: twice", |context| {
        let (fabric, _) = context.open_domain();
        try_open(|domain| call!(fabric, ops.domain, context.info.as_ptr(), domain, NULL))
    });
    for &(bit, name) in FLAGS {
        probes.add_object_probe(format!("fi_domain2: flags {name}"), move |context| {
            let (fabric, info) = (context.open_fabric(), context.info.as_ptr());
            try_open(|domain| call!(fabric, ops.domain2, info, domain, 1 << bit, NULL))
        });
    }
    for (name, flags) in [("eq", 0), ("eq, FI_REG_MR", 1 << 59)] {
        probes.add_object_probe(format!("fi_domain_bind: {name}"), move |context| {
            let (fabric, domain) = context.open_domain();
            bind(domain, context.open_eq(fabric), flags)
        });
    }
}

fn add_cq_probes(probes: &mut Probes) {
    let open = |context: &Context, attr: *mut FiCqAttr| {
        let domain = context.open_domain().1;
        try_open(|cq| call!(domain, ops.cq_open, attr, cq, NULL))
    };
    let mut add = |name: String, make: Box<dyn Fn() -> FiCqAttr>| {
        probes.add_object_probe(format!("fi_cq_open: {name}"), move |context| open(context, &mut make()));
    };
    for value in 0..7 {
        add(format!("format {value}"), Box::new(move || cq_attr(value)));
    }
    let with_wait = |wait_obj| FiCqAttr { wait_obj, ..cq_attr(4) };
    for value in 0..9 {
        add(format!("wait_obj {value}"), Box::new(move || with_wait(value)));
        let make = move || FiCqAttr { wait_cond: 1, ..with_wait(value) };
        add(format!("wait_obj {value}, wait_cond 1"), Box::new(make));
    }
    for wait_cond in [1, 2, 100] {
        add(format!("wait_cond {wait_cond}"), Box::new(move || FiCqAttr { wait_cond, ..cq_attr(4) }));
    }
    for (text, size) in SIZES {
        add(format!("size {text}"), Box::new(move || FiCqAttr { size, ..cq_attr(4) }));
    }
    for &(bit, name) in FLAGS {
        add(format!("flags {name}"), Box::new(move || FiCqAttr { flags: 1 << bit, ..cq_attr(4) }));
    }
    for signaling_vector in [-1, 0, 1, 1000] {
        let make = move || FiCqAttr { flags: 1 << 29, signaling_vector, ..cq_attr(4) };
        add(format!("FI_AFFINITY signaling_vector {signaling_vector}"), Box::new(make));
    }
    add("wait_set null".to_owned(), Box::new(move || with_wait(2)));
    let unused = || FiCqAttr { wait_set: op_context().cast(), ..cq_attr(4) };
    add("wait_set that is not used".to_owned(), Box::new(unused));
    probes.add_object_probe("fi_cq_open: attr null", move |context| open(context, ptr::null_mut()));
    for value in 0..9 {
        probes.add_object_probe(format!("fi_cq_open: wait_obj {value}, FI_GETWAIT"), move |context| {
            let cq = context.open_cq(context.open_domain().1, with_wait(value));
            control(cq, FI_GETWAIT, leak_zeroed_memory(256))
        });
    }
}

fn add_counter_probes(probes: &mut Probes) {
    let open = |context: &Context, attr: *mut FiCntrAttr| {
        let domain = context.open_domain().1;
        try_open(|counter| call!(domain, ops.cntr_open, attr, counter, NULL))
    };
    for events in 0..3 {
        probes.add_object_probe(format!("fi_cntr_open: events {events}"), move |context| {
            open(context, &mut FiCntrAttr { events, ..counter_attr() })
        });
    }
    for wait_obj in 0..9 {
        let attr = move || FiCntrAttr { wait_obj, ..counter_attr() };
        probes.add_object_probe(format!("fi_cntr_open: wait_obj {wait_obj}"), move |context| {
            open(context, &mut attr())
        });
        probes.add_object_probe(format!("fi_cntr_open: wait_obj {wait_obj}, FI_GETWAIT"), move |context| {
            let counter = open_counter_with(context.open_domain().1, attr());
            control(counter, FI_GETWAIT, leak_zeroed_memory(256))
        });
    }
    for &(bit, name) in FLAGS {
        probes.add_object_probe(format!("fi_cntr_open: flags {name}"), move |context| {
            open(context, &mut FiCntrAttr { flags: 1 << bit, ..counter_attr() })
        });
    }
    probes.add_object_probe("fi_cntr_open: attr null", move |context| open(context, ptr::null_mut()));
}

fn add_eq_probes(probes: &mut Probes) {
    let open = |context: &Context, attr: *mut FiEqAttr| {
        let fabric = context.open_fabric();
        try_open(|eq| call!(fabric, ops.eq_open, attr, eq, NULL))
    };
    for wait_obj in 0..9 {
        let attr = move || FiEqAttr { wait_obj, ..eq_attr() };
        probes.add_object_probe(format!("fi_eq_open: wait_obj {wait_obj}"), move |context| {
            open(context, &mut attr())
        });
        probes.add_object_probe(format!("fi_eq_open: wait_obj {wait_obj}, FI_GETWAIT"), move |context| {
            let eq = open_eq_with(context.open_fabric(), attr());
            control(eq, FI_GETWAIT, leak_zeroed_memory(256))
        });
    }
    for (text, size) in SIZES {
        probes.add_object_probe(format!("fi_eq_open: size {text}"), move |context| {
            open(context, &mut FiEqAttr { size, ..eq_attr() })
        });
    }
    for &(bit, name) in FLAGS {
        probes.add_object_probe(format!("fi_eq_open: flags {name}"), move |context| {
            open(context, &mut FiEqAttr { flags: 1 << bit, ..eq_attr() })
        });
    }
    probes.add_object_probe("fi_eq_open: attr null", move |context| open(context, ptr::null_mut()));
}

fn add_av_probes(probes: &mut Probes) {
    let open = |context: &Context, attr: *mut FiAvAttr| {
        let domain = context.open_domain().1;
        try_open(|av| call!(domain, ops.av_open, attr, av, NULL))
    };
    let mut add = |name: String, make: Box<dyn Fn() -> FiAvAttr>| {
        probes.add_object_probe(format!("fi_av_open: {name}"), move |context| open(context, &mut make()));
    };
    for value in 0..4 {
        add(format!("type {value}"), Box::new(move || FiAvAttr { r#type: value, ..av_attr() }));
    }
    for rx_ctx_bits in [1, 4, 16, 64, -1] {
        add(format!("rx_ctx_bits {rx_ctx_bits}"), Box::new(move || FiAvAttr { rx_ctx_bits, ..av_attr() }));
    }
    for (text, count) in SIZES {
        add(format!("count {text}"), Box::new(move || FiAvAttr { count, ..av_attr() }));
        add(format!("ep_per_node {text}"), Box::new(move || FiAvAttr { ep_per_node: count, ..av_attr() }));
    }
    for &(bit, name) in FLAGS {
        add(format!("flags {name}"), Box::new(move || FiAvAttr { flags: 1 << bit, ..av_attr() }));
    }
    add("map_addr".to_owned(), Box::new(|| FiAvAttr { map_addr: op_context(), ..av_attr() }));
    probes.add_object_probe("fi_av_open: name", move |context| {
        let name = c"homespun-tolerance".as_ptr();
        let result = open(context, &mut FiAvAttr { name, ..av_attr() });
        unsafe { libc::shm_unlink(name) };
        result
    });
    probes.add_object_probe("fi_av_open: attr null", move |context| open(context, ptr::null_mut()));
}

fn add_set_probes(probes: &mut Probes) {
    let open_wait = |context: &Context, wait_obj, flags| {
        let (fabric, mut attr) = (context.open_fabric(), FiWaitAttr { wait_obj, flags });
        try_open(|wait| call!(fabric, ops.wait_open, &raw mut attr, wait))
    };
    let open_poll = |context: &Context, attr: *mut FiPollAttr| {
        let domain = context.open_domain().1;
        try_open(|poll| call!(domain, ops.poll_open, attr, poll))
    };
    for value in 0..9 {
        probes.add_object_probe(format!("fi_wait_open: wait_obj {value}"), move |context| {
            open_wait(context, value, 0)
        });
    }
    for &(bit, name) in FLAGS {
        probes.add_object_probe(format!("fi_wait_open: flags {name}"), move |context| {
            open_wait(context, 1, 1 << bit)
        });
        probes.add_object_probe(format!("fi_poll_open: flags {name}"), move |context| {
            open_poll(context, &mut FiPollAttr { flags: 1 << bit })
        });
    }
    probes.add_object_probe("fi_poll_open: flags 0", move |context| {
        open_poll(context, &mut FiPollAttr { flags: 0 })
    });
    probes.add_object_probe("fi_poll_open: attr null", move |context| open_poll(context, ptr::null_mut()));
}

fn add_endpoint_probes(probes: &mut Probes) {
    let mut push = |name: String, change: Box<dyn Fn(&mut InfoList)>| {
        probes.add_endpoint_probe(format!("fi_endpoint: {name}"), move |context| {
            let domain = context.open_domain().1;
            let mut info = unsafe { context.libfabric.dupinfo(context.info.as_ptr()) };
            change(&mut info);
            let result = try_open(|ep| call!(domain, ops.endpoint, info.as_ptr(), ep, NULL));
            std::mem::forget(info);
            result
        });
    };
    type Change = fn(&mut InfoList);
    let changes: [(&str, Change); 11] = [
        ("src_addr null", |info| {
            (info.first_mut().src_addr, info.first_mut().src_addrlen) = (NULL, 0);
        }),
        ("tx_attr null", |info| info.first_mut().tx_attr = ptr::null_mut()),
        ("rx_attr null", |info| info.first_mut().rx_attr = ptr::null_mut()),
        ("domain_attr null", |info| info.first_mut().domain_attr = ptr::null_mut()),
        ("fabric_attr null", |info| info.first_mut().fabric_attr = ptr::null_mut()),
        ("caps 0", |info| info.first_mut().caps = 0),
        ("tx_attr.caps 0", |info| info.tx_attr_mut().caps = 0),
        ("rx_attr.caps 0", |info| info.rx_attr_mut().caps = 0),
        ("addr_format 0", |info| info.first_mut().addr_format = 0),
        ("ep_attr.mem_tag_format max", |info| info.ep_attr_mut().mem_tag_format = u64::MAX),
        ("ep_attr.auth_key", |info| {
            let attr = info.ep_attr_mut();
            (attr.auth_key_size, attr.auth_key) = (8, leak_zeroed_memory(8));
        }),
    ];
    for (name, change) in changes {
        push(name.to_owned(), Box::new(change));
    }
    for value in 0..7 {
        push(format!("ep_attr.type {value}"), Box::new(move |info| info.ep_attr_mut().r#type = value));
    }
    type Size = fn(&mut InfoList, usize);
    let sizes: [(&str, Size); 8] = [
        ("tx_attr.size", |info, size| info.tx_attr_mut().size = size),
        ("rx_attr.size", |info, size| info.rx_attr_mut().size = size),
        ("tx_attr.inject_size", |info, size| info.tx_attr_mut().inject_size = size),
        ("tx_attr.iov_limit", |info, size| info.tx_attr_mut().iov_limit = size),
        ("rx_attr.total_buffered_recv", |info, size| info.rx_attr_mut().total_buffered_recv = size),
        ("ep_attr.max_msg_size", |info, size| info.ep_attr_mut().max_msg_size = size),
        ("ep_attr.tx_ctx_cnt", |info, size| info.ep_attr_mut().tx_ctx_cnt = size),
        ("ep_attr.rx_ctx_cnt", |info, size| info.ep_attr_mut().rx_ctx_cnt = size),
    ];
    for (field, set) in sizes {
        for (text, size) in [("0", 0), ("1", 1), ("4096", 4096), ("max", usize::MAX)] {
            push(format!("{field} {text}"), Box::new(move |info| set(info, size)));
        }
    }
    type Number = fn(&mut InfoList, u32);
    let numbers: [(&str, Number); 2] = [
        ("ep_attr.protocol", |info, value| info.ep_attr_mut().protocol = value),
        ("ep_attr.protocol_version", |info, value| info.ep_attr_mut().protocol_version = value),
    ];
    for (field, set) in numbers {
        for value in [1_u32, 2, u32::MAX] {
            push(format!("{field} {value}"), Box::new(move |info| set(info, value)));
        }
    }
    type Bits = &'static [(u32, &'static str)];
    type Word = fn(&mut InfoList) -> &mut u64;
    let words: [(&str, Bits, Word); 12] = [
        ("caps", FLAGS, |info| &mut info.first_mut().caps),
        ("tx_attr.caps", FLAGS, |info| &mut info.tx_attr_mut().caps),
        ("rx_attr.caps", FLAGS, |info| &mut info.rx_attr_mut().caps),
        ("tx_attr.op_flags", FLAGS, |info| &mut info.tx_attr_mut().op_flags),
        ("rx_attr.op_flags", FLAGS, |info| &mut info.rx_attr_mut().op_flags),
        ("tx_attr.msg_order", ORDERS, |info| &mut info.tx_attr_mut().msg_order),
        ("rx_attr.msg_order", ORDERS, |info| &mut info.rx_attr_mut().msg_order),
        ("tx_attr.comp_order", ORDERS, |info| &mut info.tx_attr_mut().comp_order),
        ("rx_attr.comp_order", ORDERS, |info| &mut info.rx_attr_mut().comp_order),
        ("mode", MODES, |info| &mut info.first_mut().mode),
        ("tx_attr.mode", MODES, |info| &mut info.tx_attr_mut().mode),
        ("rx_attr.mode", MODES, |info| &mut info.rx_attr_mut().mode),
    ];
    for (field, bits, word) in words {
        for &(bit, name) in bits {
            push(format!("{field} {name}"), Box::new(move |info| *word(info) |= 1 << bit));
        }
    }
    for &(bit, name) in FLAGS {
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
