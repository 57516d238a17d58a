//! Probes of names, options, control commands and cancellation, mostly of an enabled endpoint.

use std::ptr;

use homespun_host::abi::FI_ALIAS;
use homespun_host::abi::fid::FiAlias;
use libc::c_void;

use super::Probes;
use crate::outcome::describe_result;
use crate::patience::absence_timeout;
use crate::setup::{
    Context, NULL, Node, assert_success, call, control, leak_op_context as op_context, leak_zeroed_memory,
    recv,
};

pub(super) fn add_probes(probes: &mut Probes) {
    add_name_probes(probes);
    add_option_probes(probes);
    add_control_probes(probes);
    add_cancel_probes(probes);
}

fn add_name_probes(probes: &mut Probes) {
    for (text, room, has_buf) in
        [("room 0", 0, true), ("buf null, room 0", 0, false), ("room 4", 4, true), ("room 256", 256, true)]
    {
        let buf = move || if has_buf { leak_zeroed_memory(256).cast() } else { NULL };
        probes.add_endpoint_probe(format!("fi_getname: {text}"), move |context| {
            let (node, mut len_bytes) = (context.open_enabled_node(), room);
            call!(node.ep, cm.getname, buf(), &raw mut len_bytes)
        });
        probes.add_endpoint_probe(format!("fi_getpeer: {text}"), move |context| {
            let (pair, mut len_bytes) = (context.open_pair_after_exchange(), room);
            call!(pair.left.ep, cm.getpeer, buf(), &raw mut len_bytes)
        });
        probes.add_endpoint_probe(format!("fi_setname: {text}"), move |context| {
            let node = context.bind_required_objects(context.open_unbound_node());
            let info = context.info.first();
            let name = if has_buf { info.src_addr } else { NULL };
            let len_bytes = if room == 256 { info.src_addrlen } else { room };
            call!(node.ep, cm.setname, name, len_bytes)
        });
    }
    probes.add_endpoint_probe("fi_setname: after fi_enable", |context| {
        let (node, info) = (context.open_enabled_node(), context.info.first());
        call!(node.ep, cm.setname, info.src_addr, info.src_addrlen)
    });
    probes.add_endpoint_probe("fi_getpeer: without a connection", |context| {
        let (node, mut len_bytes) = (context.open_enabled_node(), 256);
        call!(node.ep, cm.getpeer, leak_zeroed_memory(256).cast(), &raw mut len_bytes)
    });
}

/// The options of 1.17, in the order of their numbers.
const OPTIONS: &str = "FI_OPT_MIN_MULTI_RECV FI_OPT_CM_DATA_SIZE FI_OPT_BUFFERED_MIN FI_OPT_BUFFERED_LIMIT \
    FI_OPT_SEND_BUF_SIZE FI_OPT_RECV_BUF_SIZE FI_OPT_TX_SIZE FI_OPT_RX_SIZE FI_OPT_FI_HMEM_P2P \
    FI_OPT_XPU_TRIGGER";

fn getopt(node: &Node, level: i32, option: i32, mut len_bytes: usize) -> i32 {
    call!(node.ep, ops.getopt, level, option, leak_zeroed_memory(64).cast(), &raw mut len_bytes)
}

fn setopt(node: &Node, level: i32, option: i32, value: usize, len_bytes: usize) -> i32 {
    call!(node.ep, ops.setopt, level, option, (&raw const value).cast(), len_bytes)
}

fn add_option_probes(probes: &mut Probes) {
    for (option, name) in (0..).zip(OPTIONS.split(' ')) {
        for (when, is_enabled) in [("before", false), ("after", true)] {
            let open = move |context: &Context| {
                if is_enabled { context.open_enabled_node() } else { context.open_unbound_node() }
            };
            for (text, len_bytes) in [("", 8_usize), (", 4 bytes", 4), (", 0 bytes", 0)] {
                let end = format!("{text} {when} fi_enable");
                probes.add_endpoint_probe(format!("fi_getopt: {name}{end}"), move |context| {
                    getopt(&open(context), 0, option, len_bytes)
                });
                for value in [0_usize, 64, usize::MAX] {
                    probes.add_endpoint_probe(format!("fi_setopt: {name} {value:#x}{end}"), move |context| {
                        setopt(&open(context), 0, option, value, len_bytes)
                    });
                }
            }
        }
    }
    for (text, level, option) in [("level 1", 1, 0), ("option 1000", 0, 1000), ("option -1", 0, -1)] {
        probes.add_endpoint_probe(format!("fi_setopt: {text}"), move |context| {
            setopt(&context.open_enabled_node(), level, option, 64, 8)
        });
        probes.add_endpoint_probe(format!("fi_getopt: {text}"), move |context| {
            getopt(&context.open_enabled_node(), level, option, 8)
        });
    }
    let describe_left = |left: isize| if left > 0 { "0 some".to_owned() } else { describe_result(left) };
    probes.add_endpoint_probe("fi_tx_size_left: enabled", move |context| {
        describe_left(call!(context.open_enabled_node().ep, ops.tx_size_left))
    });
    probes.add_endpoint_probe("fi_rx_size_left: enabled", move |context| {
        describe_left(call!(context.open_enabled_node().ep, ops.rx_size_left))
    });
}

/// The control commands of 1.17, in the order of their numbers.
const COMMANDS: &str = "FI_GETFIDFLAG FI_SETFIDFLAG FI_GETOPSFLAG FI_SETOPSFLAG FI_ALIAS FI_GETWAIT \
    FI_ENABLE FI_BACKLOG FI_GET_RAW_MR FI_MAP_RAW_MR FI_UNMAP_KEY FI_QUEUE_WORK FI_CANCEL_WORK \
    FI_FLUSH_WORK FI_REFRESH FI_DUP FI_GETWAITOBJ FI_GET_VAL FI_SET_VAL FI_EXPORT_FID";

fn add_control_probes(probes: &mut Probes) {
    for (command, name) in (0..).zip(COMMANDS.split(' ')) {
        for (text, has_argument) in [("", true), (" null", false)] {
            let argument = move || if has_argument { leak_zeroed_memory(256) } else { ptr::null_mut() };
            let mut of = |class: &str, object: fn(&Context) -> *mut c_void| {
                probes.add_endpoint_probe(format!("fi_control: {class} {name}{text}"), move |context| {
                    control(object(context), command, argument())
                });
            };
            of("ep", |context| context.open_enabled_node().ep.cast());
            of("cq", |context| context.open_enabled_node().cq.cast());
            of("eq", |context| context.open_eq(context.open_fabric()).cast());
            of("domain", |context| context.open_domain().1.cast());
            of("fabric", |context| context.open_fabric().cast());
            of("av", |context| context.open_av(context.open_domain().1).cast());
            of("cntr", |context| context.open_counter(context.open_domain().1).cast());
            of("mr", |context| {
                let node = context.open_enabled_node();
                context.register_region(&node, leak_zeroed_memory(64), 64, 5).mr.cast()
            });
        }
    }
    for (text, flags) in [
        ("FI_TRANSMIT", 1_u64 << 11),
        ("FI_RECV", 1 << 10),
        ("FI_TRANSMIT and FI_RECV", 3 << 10),
        ("FI_TRANSMIT and FI_COMPLETION", 1 << 11 | 1 << 24),
        ("FI_TRANSMIT and FI_INJECT", 1 << 11 | 1 << 25),
        ("FI_TRANSMIT and FI_DELIVERY_COMPLETE", 1 << 11 | 1 << 28),
        ("FI_RECV and FI_MULTI_RECV", 1 << 10 | 1 << 16),
        ("FI_TRANSMIT and bit 63", 1 << 11 | 1 << 63),
    ] {
        for (name, command) in [("FI_GETOPSFLAG", 2), ("FI_SETOPSFLAG", 3)] {
            probes.add_endpoint_probe(format!("fi_control: ep {name} {text}"), move |context| {
                let (node, mut flags) = (context.open_enabled_node(), flags);
                control(node.ep, command, &raw mut flags)
            });
        }
        probes.add_endpoint_probe(format!("fi_ep_alias: {text}"), move |context| {
            let mut fid = ptr::null_mut();
            control(context.open_enabled_node().ep, FI_ALIAS, &mut FiAlias { fid: &raw mut fid, flags })
        });
    }
}

fn add_cancel_probes(probes: &mut Probes) {
    for (text, context_of) in [("context null", (|| NULL) as fn() -> *mut c_void), ("of nothing", op_context)]
    {
        probes.add_endpoint_probe(format!("fi_cancel: {text}"), move |context| {
            call!(context.open_enabled_node().ep, ops.cancel, context_of())
        });
    }
    for (text, times) in [("a receive", 1), ("a receive twice", 2)] {
        probes.add_endpoint_probe(format!("fi_cancel: {text}"), move |context| {
            let mut pair = context.open_pair_after_exchange();
            let (ep, receive) = (pair.right.ep, op_context());
            assert_success("fi_recv", recv(ep, receive));
            let result = (0..times).fold(0, |_, _| call!(ep, ops.cancel, receive));
            pair.drive_until(absence_timeout(), |pair| !pair.at_right.is_empty());
            let completion =
                pair.at_right.first().map_or("silent".to_owned(), |done| describe_result(-done.error));
            format!("{} {completion}", describe_result(result))
        });
    }
}
