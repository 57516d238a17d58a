//! Probes of `fi_getinfo(3)`: with each bit and value of hints, with each flag, and with null pointers.

use std::ffi::CStr;
use std::ptr;

use homespun_host::abi::info::{FiDomainAttr, FiInfo};
use homespun_host::{API_VERSION, InfoList};

use super::Probes;
use crate::bits::{FLAGS, MODES, MR_MODES, ORDERS};
use crate::outcome::describe_result;
use crate::setup::{Context, leak_zeroed_memory, provider_hints, source_arguments, try_open};

/// Makes a size to request from the size that the provider answers with.
type MakeSize = fn(usize) -> usize;

/// Sizes to request.
const SIZES: [(&str, MakeSize); 10] = [
    ("0", |_| 0),
    ("1", |_| 1),
    ("2", |_| 2),
    ("3", |_| 3),
    ("64", |_| 64),
    ("half of its own", |own| own / 2),
    ("its own - 1", |own| own.saturating_sub(1)),
    ("its own + 1", |own| own.saturating_add(1)),
    ("max - 1", |_| usize::MAX - 1),
    ("max", |_| usize::MAX),
];

pub(super) fn add_probes(probes: &mut Probes) {
    add_bit_probes(probes);
    add_number_probes(probes);
    add_size_probes(probes);
    add_argument_probes(probes);
}

/// Adds a probe of `fi_getinfo` whose hints differ from [`provider_hints`] in one attribute. The outcome
/// tells whether an answer has the requested value.
fn add_hint_probe<T: PartialEq + 'static>(
    probes: &mut Probes,
    name: impl Into<String>,
    change: impl Fn(&mut InfoList) + 'static,
    read: impl Fn(&FiInfo) -> T + 'static,
    is_met: impl Fn(T) -> bool + 'static,
) {
    let name = name.into();
    probes.add_endpoint_probe(format!("fi_getinfo: {name}"), move |context| {
        match getinfo_with(context, &change) {
            Err(error) => error,
            Ok(list) if list.iter().any(|info| is_met(read(info))) => "0 as asked".to_owned(),
            Ok(_) => "0".to_owned(),
        }
    });
}

/// Adds a probe of `fi_getinfo` whose hints differ from [`provider_hints`] in one attribute, which an answer
/// need not have.
fn add_plain_probe(probes: &mut Probes, name: impl Into<String>, change: impl Fn(&mut InfoList) + 'static) {
    add_hint_probe(probes, name, change, |_| (), |()| false);
}

/// Calls `fi_getinfo` with hints that differ from [`provider_hints`].
fn getinfo_with(context: &Context, change: impl Fn(&mut InfoList)) -> Result<InfoList, String> {
    let mut hints = provider_hints(context.libfabric, &context.case);
    change(&mut hints);
    let (node, flags) = source_arguments(&context.case);
    let answer = context.libfabric.getinfo(node, None, flags, Some(&hints));
    answer.map_err(|error| describe_result(-error.raw()))
}

type Bits = &'static [(u32, &'static str)];
type Word = fn(&mut FiInfo) -> &mut u64;

/// Adds a probe for each bit of each word of flags in the hints.
fn add_bit_probes(probes: &mut Probes) {
    let words: [(&str, Bits, Word); 11] = [
        ("caps", FLAGS, |info| &mut info.caps),
        ("mode", MODES, |info| &mut info.mode),
        ("tx_attr.caps", FLAGS, |info| unsafe { &mut (*info.tx_attr).caps }),
        ("tx_attr.op_flags", FLAGS, |info| unsafe { &mut (*info.tx_attr).op_flags }),
        ("tx_attr.msg_order", ORDERS, |info| unsafe { &mut (*info.tx_attr).msg_order }),
        ("tx_attr.comp_order", ORDERS, |info| unsafe { &mut (*info.tx_attr).comp_order }),
        ("rx_attr.caps", FLAGS, |info| unsafe { &mut (*info.rx_attr).caps }),
        ("rx_attr.op_flags", FLAGS, |info| unsafe { &mut (*info.rx_attr).op_flags }),
        ("rx_attr.msg_order", ORDERS, |info| unsafe { &mut (*info.rx_attr).msg_order }),
        ("rx_attr.comp_order", ORDERS, |info| unsafe { &mut (*info.rx_attr).comp_order }),
        ("domain_attr.caps", FLAGS, |info| unsafe { &mut (*info.domain_attr).caps }),
    ];
    for (field, bits, word) in words {
        for &(bit, name) in bits {
            let change = move |hints: &mut InfoList| *word(hints.first_mut()) |= 1 << bit;
            // `word` needs a mutable info, so read the word from a shallow copy of the answer.
            let read = move |info: &FiInfo| *word(&mut unsafe { ptr::read(info) });
            add_hint_probe(probes, format!("{field} {name}"), change, read, move |word| word & 1 << bit != 0);
        }
    }
    let modes: [(&str, Word); 3] = [
        ("tx_attr.mode", |info| unsafe { &mut (*info.tx_attr).mode }),
        ("rx_attr.mode", |info| unsafe { &mut (*info.rx_attr).mode }),
        ("domain_attr.mode", |info| unsafe { &mut (*info.domain_attr).mode }),
    ];
    for (field, word) in modes {
        for &(bit, name) in MODES {
            let change = move |hints: &mut InfoList| *word(hints.first_mut()) |= 1 << bit;
            add_plain_probe(probes, format!("{field} {name}"), change);
        }
    }
    for &(bit, name) in MR_MODES {
        let only = move |hints: &mut InfoList| hints.domain_attr_mut().mr_mode = 1 << bit;
        add_plain_probe(probes, format!("domain_attr.mr_mode {name}"), only);
    }
    add_plain_probe(probes, "domain_attr.mr_mode 0", |hints| hints.domain_attr_mut().mr_mode = 0);
}

/// Adds probes for numbers in the hints: several sizes from 0 to the largest; and each value of each
/// enumeration, and the value after the last.
fn add_number_probes(probes: &mut Probes) {
    type Domain = fn(&mut FiDomainAttr) -> &mut u32;
    let enums: [(&str, u32, Domain); 6] = [
        ("threading", 7, |attr| &mut attr.threading),
        ("control_progress", 4, |attr| &mut attr.control_progress),
        ("data_progress", 4, |attr| &mut attr.data_progress),
        ("resource_mgmt", 4, |attr| &mut attr.resource_mgmt),
        ("av_type", 4, |attr| &mut attr.av_type),
        ("tclass", 9, |attr| &mut attr.tclass),
    ];
    for (field, count, word) in enums {
        for value in 0..count {
            let change = move |hints: &mut InfoList| *word(hints.domain_attr_mut()) = value;
            let read = move |info: &FiInfo| unsafe { *word(&mut *info.domain_attr) };
            add_hint_probe(probes, format!("domain_attr.{field} {value}"), change, read, move |it| {
                it == value
            });
        }
    }
    type Set = fn(&mut InfoList, u32);
    let numbers: [(&str, &[u32], Set); 7] = [
        ("tx_attr.tclass", &[0, 1, 2, 512, 513, 514, 600, u32::MAX], |hints, value| {
            hints.tx_attr_mut().tclass = value;
        }),
        ("ep_attr.type", &[0, 1, 2, 3, 4, 5, 6, 7], |hints, value| hints.ep_attr_mut().r#type = value),
        ("ep_attr.protocol", &[1, 2, 5, 13, 100, u32::MAX], |hints, value| {
            hints.ep_attr_mut().protocol = value;
        }),
        ("ep_attr.protocol_version", &[1, 2, 3, u32::MAX], |hints, value| {
            hints.ep_attr_mut().protocol_version = value;
        }),
        ("addr_format", &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13], |hints, value| {
            hints.first_mut().addr_format = value;
        }),
        ("fabric_attr.prov_version", &[1, 100, u32::MAX], |hints, value| {
            hints.fabric_attr_mut().prov_version = value;
        }),
        ("fabric_attr.api_version", &[1, 100, u32::MAX], |hints, value| {
            hints.fabric_attr_mut().api_version = value;
        }),
    ];
    for (field, values, set) in numbers {
        for &value in values {
            add_plain_probe(probes, format!("{field} {value}"), move |hints| set(hints, value));
        }
    }
    for value in [1_u64, 0xff, 0xaaaa_aaaa_aaaa_aaaa, u64::MAX] {
        let change = move |hints: &mut InfoList| hints.ep_attr_mut().mem_tag_format = value;
        add_plain_probe(probes, format!("ep_attr.mem_tag_format {value:#x}"), change);
    }
}

/// Adds a probe for each size of each attribute that is a size or a count.
fn add_size_probes(probes: &mut Probes) {
    type Size = fn(&mut FiInfo) -> &mut usize;
    let sizes: [(&str, Size); 28] = [
        ("domain_attr.mr_key_size", |info| unsafe { &mut (*info.domain_attr).mr_key_size }),
        ("domain_attr.cq_data_size", |info| unsafe { &mut (*info.domain_attr).cq_data_size }),
        ("domain_attr.cq_cnt", |info| unsafe { &mut (*info.domain_attr).cq_cnt }),
        ("domain_attr.ep_cnt", |info| unsafe { &mut (*info.domain_attr).ep_cnt }),
        ("domain_attr.tx_ctx_cnt", |info| unsafe { &mut (*info.domain_attr).tx_ctx_cnt }),
        ("domain_attr.rx_ctx_cnt", |info| unsafe { &mut (*info.domain_attr).rx_ctx_cnt }),
        ("domain_attr.max_ep_tx_ctx", |info| unsafe { &mut (*info.domain_attr).max_ep_tx_ctx }),
        ("domain_attr.max_ep_rx_ctx", |info| unsafe { &mut (*info.domain_attr).max_ep_rx_ctx }),
        ("domain_attr.max_ep_stx_ctx", |info| unsafe { &mut (*info.domain_attr).max_ep_stx_ctx }),
        ("domain_attr.max_ep_srx_ctx", |info| unsafe { &mut (*info.domain_attr).max_ep_srx_ctx }),
        ("domain_attr.cntr_cnt", |info| unsafe { &mut (*info.domain_attr).cntr_cnt }),
        ("domain_attr.mr_iov_limit", |info| unsafe { &mut (*info.domain_attr).mr_iov_limit }),
        ("domain_attr.max_err_data", |info| unsafe { &mut (*info.domain_attr).max_err_data }),
        ("domain_attr.mr_cnt", |info| unsafe { &mut (*info.domain_attr).mr_cnt }),
        ("tx_attr.inject_size", |info| unsafe { &mut (*info.tx_attr).inject_size }),
        ("tx_attr.size", |info| unsafe { &mut (*info.tx_attr).size }),
        ("tx_attr.iov_limit", |info| unsafe { &mut (*info.tx_attr).iov_limit }),
        ("tx_attr.rma_iov_limit", |info| unsafe { &mut (*info.tx_attr).rma_iov_limit }),
        ("rx_attr.total_buffered_recv", |info| unsafe { &mut (*info.rx_attr).total_buffered_recv }),
        ("rx_attr.size", |info| unsafe { &mut (*info.rx_attr).size }),
        ("rx_attr.iov_limit", |info| unsafe { &mut (*info.rx_attr).iov_limit }),
        ("ep_attr.max_msg_size", |info| unsafe { &mut (*info.ep_attr).max_msg_size }),
        ("ep_attr.msg_prefix_size", |info| unsafe { &mut (*info.ep_attr).msg_prefix_size }),
        ("ep_attr.max_order_raw_size", |info| unsafe { &mut (*info.ep_attr).max_order_raw_size }),
        ("ep_attr.max_order_war_size", |info| unsafe { &mut (*info.ep_attr).max_order_war_size }),
        ("ep_attr.max_order_waw_size", |info| unsafe { &mut (*info.ep_attr).max_order_waw_size }),
        ("ep_attr.tx_ctx_cnt", |info| unsafe { &mut (*info.ep_attr).tx_ctx_cnt }),
        ("ep_attr.rx_ctx_cnt", |info| unsafe { &mut (*info.ep_attr).rx_ctx_cnt }),
    ];
    for (field, word) in sizes {
        for (text, size) in SIZES {
            probes.add_endpoint_probe(format!("fi_getinfo: {field} {text}"), move |context| {
                let own = unsafe { *word(&mut *context.info.as_ptr()) };
                let answer = getinfo_with(context, |hints| *word(hints.first_mut()) = size(own));
                answer.map_or_else(|error| error, |_| "0".to_owned())
            });
        }
    }
}

/// Adds probes of the function's other arguments.
fn add_argument_probes(probes: &mut Probes) {
    type Text = Option<&'static CStr>;
    let call = |context: &Context, version: u32, texts: [Text; 2], flags: u64, change: fn(&mut InfoList)| {
        let mut hints = provider_hints(context.libfabric, &context.case);
        change(&mut hints);
        let (texts, hints) = (texts.map(|text| text.map_or(ptr::null(), CStr::as_ptr)), hints.as_ptr());
        try_open(|list| unsafe { context.libfabric.getinfo_raw(version, texts, flags, hints, list) })
    };
    for &(bit, name) in FLAGS {
        probes.add_endpoint_probe(format!("fi_getinfo: flags {name}"), move |context| {
            call(context, API_VERSION, [None; 2], 1 << bit, |_| ())
        });
        if bit >= 50 {
            probes.add_endpoint_probe(format!("fi_getinfo: node and flags {name}"), move |context| {
                call(context, API_VERSION, [Some(c"127.0.0.1"), None], 1 << bit, |_| ())
            });
        }
    }
    for (text, version) in [("0", 0), ("1.0", 1 << 16), ("1.4", 1 << 16 | 4), ("1.5", 1 << 16 | 5)] {
        probes.add_endpoint_probe(format!("fi_getinfo: version {text}"), move |context| {
            call(context, version, [None; 2], 0, |_| ())
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
                call(context, API_VERSION, texts, flags, |_| ())
            });
        }
    }
    type Change = fn(&mut InfoList);
    let nulls: [(&str, Change); 7] = [
        ("tx_attr null", |hints| hints.first_mut().tx_attr = ptr::null_mut()),
        ("rx_attr null", |hints| hints.first_mut().rx_attr = ptr::null_mut()),
        ("ep_attr null", |hints| hints.first_mut().ep_attr = ptr::null_mut()),
        ("domain_attr null", |hints| hints.first_mut().domain_attr = ptr::null_mut()),
        ("domain_attr.name of nothing", |hints| hints.set_domain_name(c"no such domain")),
        ("fabric_attr.name of nothing", |hints| unsafe {
            hints.fabric_attr_mut().name = libc::strdup(c"no such fabric".as_ptr());
        }),
        ("auth_key", |hints| {
            hints.ep_attr_mut().auth_key_size = 8;
            hints.ep_attr_mut().auth_key = Box::leak(Box::new([1; 8])).as_mut_ptr();
        }),
    ];
    for (name, change) in nulls {
        probes.add_endpoint_probe(format!("fi_getinfo: {name}"), move |context| {
            call(context, API_VERSION, [None; 2], 0, change)
        });
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
        let (none, as_ptr) = ([ptr::null(); 2], hints.as_ptr());
        let result =
            try_open(|list| unsafe { context.libfabric.getinfo_raw(API_VERSION, none, 0, as_ptr, list) });
        std::mem::forget(hints);
        result
    });
}
