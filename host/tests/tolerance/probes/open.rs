//! Probes that open fabrics, domains, queues, counters, vectors, sets and endpoints, with unusual values of
//! each attribute and with null pointers.

use std::ptr;

use homespun_host::abi::domain::FiAvAttr;
use homespun_host::abi::eq::{FiCntrAttr, FiCqAttr, FiEqAttr, FiPollAttr, FiWaitAttr};
use homespun_host::abi::info::{FiFabricAttr, FiInfo};
use homespun_host::{InfoList, av_attr, counter_attr, cq_attr, eq_attr};

use super::Probes;
use crate::bits::FLAGS;
use crate::outcome::describe_result;
use crate::setup::{Context, control, leak_op_context as op_context, leak_zeroed_memory};

const SIZES: [(&str, usize); 4] = [("1", 1), ("3", 3), ("1000", 1000), ("1 << 20", 1 << 20)];

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
            let mut fabric = ptr::null_mut();
            unsafe {
                let attr = context.info.first().fabric_attr;
                change(&mut *attr);
                describe_result(context.libfabric.call_fi_fabric(attr, &raw mut fabric, ptr::null_mut()))
            }
        });
    }
    probes.add_object_probe("fi_fabric: twice", |context| {
        context.open_fabric();
        let mut fabric = ptr::null_mut();
        let attr = context.info.first().fabric_attr;
        unsafe { describe_result(context.libfabric.call_fi_fabric(attr, &raw mut fabric, ptr::null_mut())) }
    });
}

fn add_domain_probes(probes: &mut Probes) {
    let mut change = |name: String, change: Box<dyn Fn(&mut FiInfo)>| {
        probes.add_object_probe(format!("fi_domain: {name}"), move |context| {
            let fabric = context.open_fabric();
            let mut info = unsafe { ptr::read(context.info.first()) };
            change(&mut info);
            let mut domain = ptr::null_mut();
            unsafe {
                describe_result(((*(*fabric).ops).domain)(
                    fabric,
                    &raw mut info,
                    &raw mut domain,
                    ptr::null_mut(),
                ))
            }
        });
    };
    change("info.tx_attr null".into(), Box::new(|info| info.tx_attr = ptr::null_mut()));
    change("info.rx_attr null".into(), Box::new(|info| info.rx_attr = ptr::null_mut()));
    change("info.ep_attr null".into(), Box::new(|info| info.ep_attr = ptr::null_mut()));
    change("info.fabric_attr null".into(), Box::new(|info| info.fabric_attr = ptr::null_mut()));
    change(
        "info.src_addr null".into(),
        Box::new(|info| {
            info.src_addr = ptr::null_mut();
            info.src_addrlen = 0;
        }),
    );
    change("info.caps 0".into(), Box::new(|info| info.caps = 0));
    change("name null".into(), Box::new(|info| unsafe { (*info.domain_attr).name = ptr::null_mut() }));
    change(
        "name of nothing".into(),
        Box::new(|info| unsafe { (*info.domain_attr).name = c"nothing".as_ptr().cast_mut() }),
    );
    for value in 0..8 {
        change(
            format!("threading {value}"),
            Box::new(move |info| unsafe { (*info.domain_attr).threading = value }),
        );
    }
    for value in 0..5 {
        change(
            format!("control_progress {value}"),
            Box::new(move |info| unsafe { (*info.domain_attr).control_progress = value }),
        );
        change(
            format!("data_progress {value}"),
            Box::new(move |info| unsafe { (*info.domain_attr).data_progress = value }),
        );
        change(
            format!("resource_mgmt {value}"),
            Box::new(move |info| unsafe { (*info.domain_attr).resource_mgmt = value }),
        );
        change(
            format!("av_type {value}"),
            Box::new(move |info| unsafe { (*info.domain_attr).av_type = value }),
        );
    }
    for (text, size) in [("0", 0), ("1", 1), ("2", 2), ("3", 3), ("max", usize::MAX)] {
        change(
            format!("mr_key_size {text}"),
            Box::new(move |info| unsafe { (*info.domain_attr).mr_key_size = size }),
        );
        change(
            format!("cq_data_size {text}"),
            Box::new(move |info| unsafe { (*info.domain_attr).cq_data_size = size }),
        );
        change(format!("cq_cnt {text}"), Box::new(move |info| unsafe { (*info.domain_attr).cq_cnt = size }));
        change(format!("ep_cnt {text}"), Box::new(move |info| unsafe { (*info.domain_attr).ep_cnt = size }));
        change(
            format!("mr_iov_limit {text}"),
            Box::new(move |info| unsafe { (*info.domain_attr).mr_iov_limit = size }),
        );
        change(
            format!("cntr_cnt {text}"),
            Box::new(move |info| unsafe { (*info.domain_attr).cntr_cnt = size }),
        );
    }
    for (bit, name) in crate::bits::MR_MODES.iter().copied() {
        change(
            format!("mr_mode {name}"),
            Box::new(move |info| unsafe { (*info.domain_attr).mr_mode |= 1 << bit }),
        );
    }
    for (bit, name) in FLAGS.iter().copied() {
        change(format!("caps {name}"), Box::new(move |info| unsafe { (*info.domain_attr).caps |= 1 << bit }));
    }
    probes.add_object_probe("fi_domain: twice", |context| {
        let (fabric, _) = context.open_domain();
        let mut domain = ptr::null_mut();
        let info = context.info.as_ptr();
        unsafe { describe_result(((*(*fabric).ops).domain)(fabric, info, &raw mut domain, ptr::null_mut())) }
    });
    for (bit, name) in FLAGS.iter().copied() {
        probes.add_object_probe(format!("fi_domain2: flags {name}"), move |context| {
            let fabric = context.open_fabric();
            let mut domain = ptr::null_mut();
            let info = context.info.as_ptr();
            unsafe {
                let domain2 = (*(*fabric).ops).domain2;
                describe_result(domain2(fabric, info, &raw mut domain, 1 << bit, ptr::null_mut()))
            }
        });
    }
    probes.add_object_probe("fi_domain_bind: eq", |context| {
        let (fabric, domain) = context.open_domain();
        let eq = context.open_eq(fabric);
        unsafe { describe_result(crate::setup::bind(domain, eq, 0)) }
    });
    probes.add_object_probe("fi_domain_bind: eq, FI_REG_MR", |context| {
        let (fabric, domain) = context.open_domain();
        let eq = context.open_eq(fabric);
        unsafe { describe_result(crate::setup::bind(domain, eq, 1 << 59)) }
    });
}

fn add_cq_probes(probes: &mut Probes) {
    let open = |context: &Context, attr: *mut FiCqAttr| {
        let (_, domain) = context.open_domain();
        let mut cq = ptr::null_mut();
        unsafe { describe_result(((*(*domain).ops).cq_open)(domain, attr, &raw mut cq, ptr::null_mut())) }
    };
    for value in 0..7 {
        probes.add_object_probe(format!("fi_cq_open: format {value}"), move |context| {
            open(context, &mut cq_attr(value))
        });
    }
    for value in 0..9 {
        probes.add_object_probe(format!("fi_cq_open: wait_obj {value}"), move |context| {
            open(context, &mut FiCqAttr { wait_obj: value, ..cq_attr(4) })
        });
        probes.add_object_probe(format!("fi_cq_open: wait_obj {value}, FI_GETWAIT"), move |context| {
            let (_, domain) = context.open_domain();
            let cq = context.open_cq(domain, FiCqAttr { wait_obj: value, ..cq_attr(4) });
            let room = leak_zeroed_memory(256);
            unsafe { describe_result(control(cq, 5, room)) }
        });
        probes.add_object_probe(format!("fi_cq_open: wait_obj {value}, wait_cond 1"), move |context| {
            open(context, &mut FiCqAttr { wait_obj: value, wait_cond: 1, ..cq_attr(4) })
        });
    }
    for value in [1, 2, 100] {
        probes.add_object_probe(format!("fi_cq_open: wait_cond {value}"), move |context| {
            open(context, &mut FiCqAttr { wait_cond: value, ..cq_attr(4) })
        });
    }
    for (text, size) in SIZES {
        probes.add_object_probe(format!("fi_cq_open: size {text}"), move |context| {
            open(context, &mut FiCqAttr { size, ..cq_attr(4) })
        });
    }
    for &(bit, name) in FLAGS {
        probes.add_object_probe(format!("fi_cq_open: flags {name}"), move |context| {
            open(context, &mut FiCqAttr { flags: 1 << bit, ..cq_attr(4) })
        });
    }
    for value in [-1, 0, 1, 1000] {
        probes.add_object_probe(
            format!("fi_cq_open: FI_AFFINITY signaling_vector {value}"),
            move |context| {
                open(context, &mut FiCqAttr { flags: 1 << 29, signaling_vector: value, ..cq_attr(4) })
            },
        );
    }
    probes.add_object_probe("fi_cq_open: attr null", move |context| open(context, ptr::null_mut()));
    probes.add_object_probe("fi_cq_open: wait_set null", move |context| {
        open(context, &mut FiCqAttr { wait_obj: 2, ..cq_attr(4) })
    });
    probes.add_object_probe("fi_cq_open: wait_set that is not used", move |context| {
        let attr = FiCqAttr { wait_set: op_context().cast(), ..cq_attr(4) };
        open(context, &mut { attr })
    });
}

fn add_counter_probes(probes: &mut Probes) {
    let open = |context: &Context, attr: *mut FiCntrAttr| {
        let (_, domain) = context.open_domain();
        let mut counter = ptr::null_mut();
        unsafe {
            describe_result(((*(*domain).ops).cntr_open)(domain, attr, &raw mut counter, ptr::null_mut()))
        }
    };
    for value in 0..3 {
        probes.add_object_probe(format!("fi_cntr_open: events {value}"), move |context| {
            open(context, &mut FiCntrAttr { events: value, ..counter_attr() })
        });
    }
    for value in 0..9 {
        probes.add_object_probe(format!("fi_cntr_open: wait_obj {value}"), move |context| {
            open(context, &mut FiCntrAttr { wait_obj: value, ..counter_attr() })
        });
        probes.add_object_probe(format!("fi_cntr_open: wait_obj {value}, FI_GETWAIT"), move |context| {
            let (_, domain) = context.open_domain();
            let mut attr = FiCntrAttr { wait_obj: value, ..counter_attr() };
            let counter = crate::setup::open_object("fi_cntr_open", |counter| unsafe {
                ((*(*domain).ops).cntr_open)(domain, &raw mut attr, counter, ptr::null_mut())
            });
            unsafe { describe_result(control(counter, 5, leak_zeroed_memory(256))) }
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
        let mut eq = ptr::null_mut();
        unsafe { describe_result(((*(*fabric).ops).eq_open)(fabric, attr, &raw mut eq, ptr::null_mut())) }
    };
    for value in 0..9 {
        probes.add_object_probe(format!("fi_eq_open: wait_obj {value}"), move |context| {
            open(context, &mut FiEqAttr { wait_obj: value, ..eq_attr() })
        });
        probes.add_object_probe(format!("fi_eq_open: wait_obj {value}, FI_GETWAIT"), move |context| {
            let fabric = context.open_fabric();
            let mut attr = FiEqAttr { wait_obj: value, ..eq_attr() };
            let eq = crate::setup::open_object("fi_eq_open", |eq| unsafe {
                ((*(*fabric).ops).eq_open)(fabric, &raw mut attr, eq, ptr::null_mut())
            });
            unsafe { describe_result(control(eq, 5, leak_zeroed_memory(256))) }
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
        let (_, domain) = context.open_domain();
        let mut av = ptr::null_mut();
        unsafe { describe_result(((*(*domain).ops).av_open)(domain, attr, &raw mut av, ptr::null_mut())) }
    };
    for value in 0..4 {
        probes.add_object_probe(format!("fi_av_open: type {value}"), move |context| {
            open(context, &mut FiAvAttr { r#type: value, ..av_attr() })
        });
    }
    for value in [1, 4, 16, 64, -1] {
        probes.add_object_probe(format!("fi_av_open: rx_ctx_bits {value}"), move |context| {
            open(context, &mut FiAvAttr { rx_ctx_bits: value, ..av_attr() })
        });
    }
    for (text, count) in SIZES {
        probes.add_object_probe(format!("fi_av_open: count {text}"), move |context| {
            open(context, &mut FiAvAttr { count, ..av_attr() })
        });
        probes.add_object_probe(format!("fi_av_open: ep_per_node {text}"), move |context| {
            open(context, &mut FiAvAttr { ep_per_node: count, ..av_attr() })
        });
    }
    for &(bit, name) in FLAGS {
        probes.add_object_probe(format!("fi_av_open: flags {name}"), move |context| {
            open(context, &mut FiAvAttr { flags: 1 << bit, ..av_attr() })
        });
    }
    probes.add_object_probe("fi_av_open: name", move |context| {
        let name = c"homespun-tolerance".as_ptr();
        let result = open(context, &mut FiAvAttr { name, ..av_attr() });
        unsafe { libc::shm_unlink(name) };
        result
    });
    probes.add_object_probe("fi_av_open: map_addr", move |context| {
        open(context, &mut FiAvAttr { map_addr: op_context(), ..av_attr() })
    });
    probes.add_object_probe("fi_av_open: attr null", move |context| open(context, ptr::null_mut()));
}

fn add_set_probes(probes: &mut Probes) {
    for value in 0..9 {
        probes.add_object_probe(format!("fi_wait_open: wait_obj {value}"), move |context| {
            let fabric = context.open_fabric();
            let mut attr = FiWaitAttr { wait_obj: value, flags: 0 };
            let mut wait = ptr::null_mut();
            unsafe { describe_result(((*(*fabric).ops).wait_open)(fabric, &raw mut attr, &raw mut wait)) }
        });
    }
    for &(bit, name) in FLAGS {
        probes.add_object_probe(format!("fi_wait_open: flags {name}"), move |context| {
            let fabric = context.open_fabric();
            let mut attr = FiWaitAttr { wait_obj: 1, flags: 1 << bit };
            let mut wait = ptr::null_mut();
            unsafe { describe_result(((*(*fabric).ops).wait_open)(fabric, &raw mut attr, &raw mut wait)) }
        });
        probes.add_object_probe(format!("fi_poll_open: flags {name}"), move |context| {
            let (_, domain) = context.open_domain();
            let mut attr = FiPollAttr { flags: 1 << bit };
            let mut poll = ptr::null_mut();
            unsafe { describe_result(((*(*domain).ops).poll_open)(domain, &raw mut attr, &raw mut poll)) }
        });
    }
    probes.add_object_probe("fi_poll_open: flags 0", |context| {
        let (_, domain) = context.open_domain();
        let mut attr = FiPollAttr { flags: 0 };
        let mut poll = ptr::null_mut();
        unsafe { describe_result(((*(*domain).ops).poll_open)(domain, &raw mut attr, &raw mut poll)) }
    });
    probes.add_object_probe("fi_poll_open: attr null", |context| {
        let (_, domain) = context.open_domain();
        let mut poll = ptr::null_mut();
        unsafe { describe_result(((*(*domain).ops).poll_open)(domain, ptr::null_mut(), &raw mut poll)) }
    });
}

type Change = Box<dyn Fn(&mut InfoList)>;

fn add_endpoint_probes(probes: &mut Probes) {
    let mut changes: Vec<(String, Change)> = Vec::new();
    let mut push = |name: String, change: Change| changes.push((name, change));
    push(
        "src_addr null".into(),
        Box::new(|info| {
            info.first_mut().src_addr = ptr::null_mut();
            info.first_mut().src_addrlen = 0;
        }),
    );
    push("tx_attr null".into(), Box::new(|info| info.first_mut().tx_attr = ptr::null_mut()));
    push("rx_attr null".into(), Box::new(|info| info.first_mut().rx_attr = ptr::null_mut()));
    push("domain_attr null".into(), Box::new(|info| info.first_mut().domain_attr = ptr::null_mut()));
    push("fabric_attr null".into(), Box::new(|info| info.first_mut().fabric_attr = ptr::null_mut()));
    push("caps 0".into(), Box::new(|info| info.first_mut().caps = 0));
    push("tx_attr.caps 0".into(), Box::new(|info| info.tx_attr_mut().caps = 0));
    push("rx_attr.caps 0".into(), Box::new(|info| info.rx_attr_mut().caps = 0));
    push("addr_format 0".into(), Box::new(|info| info.first_mut().addr_format = 0));
    for value in 0..7 {
        push(format!("ep_attr.type {value}"), Box::new(move |info| info.ep_attr_mut().r#type = value));
    }
    for (text, size) in [("0", 0), ("1", 1), ("4096", 4096), ("max", usize::MAX)] {
        push(format!("tx_attr.size {text}"), Box::new(move |info| info.tx_attr_mut().size = size));
        push(format!("rx_attr.size {text}"), Box::new(move |info| info.rx_attr_mut().size = size));
        push(
            format!("tx_attr.inject_size {text}"),
            Box::new(move |info| info.tx_attr_mut().inject_size = size),
        );
        push(format!("tx_attr.iov_limit {text}"), Box::new(move |info| info.tx_attr_mut().iov_limit = size));
        push(
            format!("rx_attr.total_buffered_recv {text}"),
            Box::new(move |info| info.rx_attr_mut().total_buffered_recv = size),
        );
        push(
            format!("ep_attr.max_msg_size {text}"),
            Box::new(move |info| info.ep_attr_mut().max_msg_size = size),
        );
        push(
            format!("ep_attr.tx_ctx_cnt {text}"),
            Box::new(move |info| info.ep_attr_mut().tx_ctx_cnt = size),
        );
        push(
            format!("ep_attr.rx_ctx_cnt {text}"),
            Box::new(move |info| info.ep_attr_mut().rx_ctx_cnt = size),
        );
    }
    for value in [1_u32, 2, u32::MAX] {
        push(format!("ep_attr.protocol {value}"), Box::new(move |info| info.ep_attr_mut().protocol = value));
        push(
            format!("ep_attr.protocol_version {value}"),
            Box::new(move |info| info.ep_attr_mut().protocol_version = value),
        );
    }
    push("ep_attr.mem_tag_format max".into(), Box::new(|info| info.ep_attr_mut().mem_tag_format = u64::MAX));
    push(
        "ep_attr.auth_key".into(),
        Box::new(|info| {
            info.ep_attr_mut().auth_key_size = 8;
            info.ep_attr_mut().auth_key = leak_zeroed_memory(8);
        }),
    );
    for &(bit, name) in FLAGS {
        push(format!("caps {name}"), Box::new(move |info| info.first_mut().caps |= 1 << bit));
        push(format!("tx_attr.caps {name}"), Box::new(move |info| info.tx_attr_mut().caps |= 1 << bit));
        push(format!("rx_attr.caps {name}"), Box::new(move |info| info.rx_attr_mut().caps |= 1 << bit));
        push(
            format!("tx_attr.op_flags {name}"),
            Box::new(move |info| info.tx_attr_mut().op_flags |= 1 << bit),
        );
        push(
            format!("rx_attr.op_flags {name}"),
            Box::new(move |info| info.rx_attr_mut().op_flags |= 1 << bit),
        );
    }
    for &(bit, name) in crate::bits::ORDERS {
        push(
            format!("tx_attr.msg_order {name}"),
            Box::new(move |info| info.tx_attr_mut().msg_order |= 1 << bit),
        );
        push(
            format!("rx_attr.msg_order {name}"),
            Box::new(move |info| info.rx_attr_mut().msg_order |= 1 << bit),
        );
        push(
            format!("tx_attr.comp_order {name}"),
            Box::new(move |info| info.tx_attr_mut().comp_order |= 1 << bit),
        );
        push(
            format!("rx_attr.comp_order {name}"),
            Box::new(move |info| info.rx_attr_mut().comp_order |= 1 << bit),
        );
    }
    for &(bit, name) in crate::bits::MODES {
        push(format!("mode {name}"), Box::new(move |info| info.first_mut().mode |= 1 << bit));
        push(format!("tx_attr.mode {name}"), Box::new(move |info| info.tx_attr_mut().mode |= 1 << bit));
        push(format!("rx_attr.mode {name}"), Box::new(move |info| info.rx_attr_mut().mode |= 1 << bit));
    }
    for (name, change) in changes {
        probes.add_endpoint_probe(format!("fi_endpoint: {name}"), move |context| {
            let (_, domain) = context.open_domain();
            let mut info = unsafe { context.libfabric.dupinfo(context.info.as_ptr()) };
            change(&mut info);
            let mut ep = ptr::null_mut();
            let result =
                unsafe { ((*(*domain).ops).endpoint)(domain, info.as_ptr(), &raw mut ep, ptr::null_mut()) };
            std::mem::forget(info);
            describe_result(result)
        });
    }
    for &(bit, name) in FLAGS {
        probes.add_endpoint_probe(format!("fi_endpoint2: flags {name}"), move |context| {
            let (_, domain) = context.open_domain();
            let mut ep = ptr::null_mut();
            let info = context.info.as_ptr();
            unsafe {
                let endpoint2 = (*(*domain).ops).endpoint2;
                describe_result(endpoint2(domain, info, &raw mut ep, 1 << bit, ptr::null_mut()))
            }
        });
    }
    probes.add_endpoint_probe("fi_passive_ep: of this info", |context| {
        let fabric = context.open_fabric();
        let mut pep = ptr::null_mut();
        let info = context.info.as_ptr();
        unsafe { describe_result(((*(*fabric).ops).passive_ep)(fabric, info, &raw mut pep, ptr::null_mut())) }
    });
    probes.add_endpoint_probe("fi_stx_context: attr of the info", |context| {
        let (_, domain) = context.open_domain();
        let mut stx = ptr::null_mut();
        let attr = context.info.first().tx_attr;
        unsafe { describe_result(((*(*domain).ops).stx_ctx)(domain, attr, &raw mut stx, ptr::null_mut())) }
    });
    probes.add_endpoint_probe("fi_srx_context: attr of the info", |context| {
        let (_, domain) = context.open_domain();
        let mut srx = ptr::null_mut();
        let attr = context.info.first().rx_attr;
        unsafe { describe_result(((*(*domain).ops).srx_ctx)(domain, attr, &raw mut srx, ptr::null_mut())) }
    });
    probes.add_endpoint_probe("fi_scalable_ep: of this info", |context| {
        let (_, domain) = context.open_domain();
        let mut ep = ptr::null_mut();
        let info = context.info.as_ptr();
        unsafe { describe_result(((*(*domain).ops).scalable_ep)(domain, info, &raw mut ep, ptr::null_mut())) }
    });
}
