//! The topics of `suite/src/semantics/` that test what `getinfo` offers.

use homespun::flags::{Mode, OpFlags, Order};
use homespun::info::{
    AvType, DomainAttr, EpAttr, Info, MrMode, PROTOCOL, PROTOCOL_VERSION, Progress, ResourceManagement,
    RxAttr, TAG_GENERIC, Threading, TxAttr,
};
use homespun::{Caps, CqFormat, WaitObject};

pub(crate) type Table<F> = &'static [(F, &'static str)];

pub(crate) const CAPS: Table<Caps> = &[
    (Caps::MSG, "calls"),
    (Caps::TAGGED, "ordering"),
    (Caps::SEND, "misuse"),
    (Caps::RECV, "misuse"),
    (Caps::RMA, "rma"),
    (Caps::READ, "rma"),
    (Caps::WRITE, "rma"),
    (Caps::REMOTE_READ, "rma"),
    (Caps::REMOTE_WRITE, "rma"),
    (Caps::ATOMIC, "atomics"),
    (Caps::RMA_EVENT, "counters"),
    (Caps::RMA_PMEM, "durability"),
    (Caps::MULTI_RECV, "multi_receive"),
    (Caps::TRIGGER, "triggered"),
    (Caps::FENCE, "fence"),
    (Caps::SOURCE, "sources"),
    (Caps::SOURCE_ERR, "sources"),
    (Caps::DIRECTED_RECV, "directed"),
    (Caps::LOCAL_COMM, "calls"),
    (Caps::REMOTE_COMM, "calls"),
];

pub(crate) const TRANSMIT_FLAGS: Table<OpFlags> = &[
    (OpFlags::COMPLETION, "selective"),
    (OpFlags::INJECT, "misuse"),
    (OpFlags::MORE, "calls"),
    (OpFlags::INJECT_COMPLETE, "levels"),
    (OpFlags::TRANSMIT_COMPLETE, "levels"),
    (OpFlags::DELIVERY_COMPLETE, "levels"),
    (OpFlags::MATCH_COMPLETE, "levels"),
    (OpFlags::COMMIT_COMPLETE, "durability"),
];

pub(crate) const RECEIVE_FLAGS: Table<OpFlags> = &[
    (OpFlags::COMPLETION, "selective"),
    (OpFlags::MORE, "ignored_flags"),
    (OpFlags::MULTI_RECV, "multi_receive"),
    (OpFlags::INJECT_COMPLETE, "levels"),
    (OpFlags::TRANSMIT_COMPLETE, "levels"),
    (OpFlags::DELIVERY_COMPLETE, "levels"),
];

pub(crate) const MESSAGE_ORDERS: Table<Order> = &[
    (Order::SAS, "ordering"),
    (Order::SAW, "ordering"),
    (Order::SAR, "ordering"),
    (Order::WAS, "ordering"),
    (Order::RAS, "ordering"),
    (Order::RAR, "ordering"),
    (Order::RAW, "ordering"),
    (Order::WAR, "ordering"),
    (Order::WAW, "ordering"),
    (Order::RMA_RAR, "ordering"),
    (Order::RMA_RAW, "ordering"),
    (Order::RMA_WAR, "ordering"),
    (Order::RMA_WAW, "ordering"),
    (Order::ATOMIC_RAR, "atomics"),
    (Order::ATOMIC_RAW, "atomics"),
    (Order::ATOMIC_WAR, "atomics"),
    (Order::ATOMIC_WAW, "atomics"),
];

/// An application that asks for one of these orders gets all of them.
pub(crate) const TRANSMIT_COMPLETION_ORDERS: Table<Order> = &[
    (Order::RAR, "completion_order"),
    (Order::RAW, "completion_order"),
    (Order::RAS, "completion_order"),
    (Order::WAR, "completion_order"),
    (Order::WAW, "completion_order"),
    (Order::WAS, "completion_order"),
    (Order::SAR, "completion_order"),
    (Order::SAW, "completion_order"),
    (Order::SAS, "completion_order"),
];

/// None is offered.
pub(crate) const RECEIVE_COMPLETION_ORDERS: Table<Order> = &[];

pub(crate) const MODES: Table<Mode> = &[(Mode::RX_CQ_DATA, "rx_cq_data")];

pub(crate) const MR_MODES: Table<MrMode> = &[(MrMode::BASIC, "rma"), (MrMode::SCALABLE, "rma")];

// A new variant of these enumerations stops the compilation until a topic tests it.

pub(crate) fn topic_of_threading(threading: Threading) -> &'static str {
    match threading {
        Threading::Safe
        | Threading::Fid
        | Threading::Domain
        | Threading::Completion
        | Threading::Endpoint => "threads",
    }
}

/// How data progresses.
pub(crate) fn topic_of_progress(progress: Progress) -> &'static str {
    match progress {
        Progress::Manual | Progress::Auto => "calls",
        Progress::ControlUnified => panic!("it is granted for data, and nothing exercises it"),
    }
}

pub(crate) fn topic_of_resource_mgmt(resource_mgmt: ResourceManagement) -> &'static str {
    match resource_mgmt {
        ResourceManagement::Enabled => "bounds",
        ResourceManagement::Disabled => "overrun",
    }
}

pub(crate) fn topic_of_av_type(av_type: AvType) -> &'static str {
    match av_type {
        AvType::Map | AvType::Table => "sources",
    }
}

pub(crate) fn topic_of_cq_format(format: CqFormat) -> &'static str {
    match format {
        CqFormat::Context | CqFormat::Msg | CqFormat::Data | CqFormat::Tagged => "entries",
    }
}

/// The topic of a wait object, or `None` if no queue has it.
pub(crate) fn topic_of_wait_object(wait: WaitObject) -> Option<&'static str> {
    match wait {
        WaitObject::Set => Some("wait_sets"),
        WaitObject::None
        | WaitObject::Unspec
        | WaitObject::Fd
        | WaitObject::MutexCond
        | WaitObject::Yield => Some("waiting"),
        WaitObject::PollFd => None,
    }
}

/// Names all numbers of an info. A new one stops the compilation until a test tests it.
pub(crate) fn assert_numbers_are_known(info: &Info) {
    let Info {
        caps: _,
        mode: _,
        addr_format: _,
        src_addr: _,
        dest_addr: _,
        tx:
            TxAttr {
                caps: _,
                mode: _,
                op_flags: _,
                msg_order: _,
                comp_order: _,
                // misuse.rs: `inject_beyond_its_limit_is_refused`.
                inject_size_bytes: _,
                // bounds.rs: `sends_beyond_the_transmit_depth_are_refused`.
                size_ops: _,
                // misuse.rs: `vectors_beyond_the_segment_limit_are_refused`.
                iov_limit: _,
                // A call of the crate names one remote segment. Only a call of the plugin may name several.
                rma_iov_limit: 0..=1,
                tclass: 0,
            },
        rx:
            RxAttr {
                caps: _,
                mode: _,
                op_flags: _,
                msg_order: _,
                comp_order: _,
                // Messages beyond this number wait at the sender: `tests/flood.rs`.
                total_buffered_recv_bytes: _,
                // bounds.rs: `receives_beyond_the_receive_depth_are_refused`.
                size_ops: _,
                iov_limit: _,
            },
        ep:
            EpAttr {
                ep_type: _,
                protocol: PROTOCOL,
                protocol_version: PROTOCOL_VERSION,
                // No Rust buffer is longer than this limit. The plugin's tests pass a longer length:
                // `message_beyond_max_msg_size_is_refused`.
                max_msg_size_bytes: _,
                msg_prefix_size_bytes: 0,
                // ordering.rs uses long accesses.
                max_order_raw_size_bytes: _,
                max_order_war_size_bytes: _,
                max_order_waw_size_bytes: _,
                // ordering.rs: `tags_are_matched_bit_by_bit`.
                mem_tag_format: TAG_GENERIC,
                tx_ctx_cnt: 1,
                rx_ctx_cnt: 1,
                auth_key,
            },
        domain:
            DomainAttr {
                name: _,
                threading: _,
                control_progress: _,
                data_progress: _,
                resource_mgmt: _,
                av_type: _,
                mr_mode: _,
                // The plugin's tests of memory use shorter keys.
                mr_key_size_bytes: 8,
                // cq_fields.rs: `every_remote_data_value_arrives_with_its_flag`.
                cq_data_size_bytes: 8,
                cq_cnt: _,
                ep_cnt: _,
                tx_ctx_cnt: 1,
                rx_ctx_cnt: 1,
                max_ep_tx_ctx: 1,
                max_ep_rx_ctx: 1,
                // transmit_contexts.rs and shared_contexts.rs.
                max_ep_stx_ctx: _,
                max_ep_srx_ctx: _,
                cntr_cnt: _,
                // The plugin's tests check this limit. Only raw memory can have several segments.
                mr_iov_limit: _,
                caps: _,
                mode: _,
                auth_key: domain_key,
                // connections.rs rejects a request with as much data.
                max_err_data_bytes: _,
                mr_cnt: 0,
                tclass: 0,
            },
        fabric: _,
    } = info
    else {
        panic!("a number that nothing exercises: {info:?}");
    };
    assert!(auth_key.is_empty() && domain_key.is_empty());
}
