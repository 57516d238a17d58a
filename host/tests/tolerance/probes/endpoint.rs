//! Probes of options and cancellation.

use libc::c_void;

use super::{Family, Probes};
use crate::outcome::describe_result;
use crate::patience::absence_timeout;
use crate::setup::{
    Context, NULL, Node, assert_success, call, leak_op_context as op_context, leak_zeroed_memory, recv,
};

pub(super) fn add_probes(probes: &mut Probes) {
    add_option_probes(probes);
    add_cancel_probes(probes);
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
                probes.add(Family::Endpoint, format!("fi_getopt: {name}{end}"), move |context| {
                    getopt(&open(context), 0, option, len_bytes)
                });
                for value in [0_usize, 64, usize::MAX] {
                    probes.add(
                        Family::Endpoint,
                        format!("fi_setopt: {name} {value:#x}{end}"),
                        move |context| setopt(&open(context), 0, option, value, len_bytes),
                    );
                }
            }
        }
    }
}

fn add_cancel_probes(probes: &mut Probes) {
    for (text, context_of) in [("context null", (|| NULL) as fn() -> *mut c_void), ("of nothing", op_context)]
    {
        probes.add(Family::Endpoint, format!("fi_cancel: {text}"), move |context| {
            call!(context.open_enabled_node().ep, ops.cancel, context_of())
        });
    }
    for (text, times) in [("a receive", 1), ("a receive twice", 2)] {
        probes.add(Family::Endpoint, format!("fi_cancel: {text}"), move |context| {
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
