//! The symbols of the library, with their versions.
//!
//! rustc exports functions of Rust without a version. So each symbol is a jump in assembly language to its
//! function. The linker reads the version behind the `@` of its name, and in the version script
//! `librpma.map`: docs/decisions/rpma-library.md.

use std::arch::global_asm;

/// Makes a symbol at the current place. `$version` is behind two `@` for the version that programs get if
/// they are linked with this library, and behind one for an older version.
macro_rules! symbol {
    ($module:ident, $name:ident, $suffix:literal, $version:literal) => {
        symbol!($module, $name, $suffix, $version, $name);
    };
    ($module:ident, $name:ident, $suffix:literal, $version:literal, $function:ident) => {
        global_asm!(
            ".pushsection .text.librpma,\"ax\",@progbits",
            concat!(".globl ", stringify!($name), $suffix),
            concat!(".type ", stringify!($name), $suffix, ",@function"),
            concat!(stringify!($name), $suffix, ":"),
            "jmp {function}",
            concat!(".size ", stringify!($name), $suffix, ", . - ", stringify!($name), $suffix),
            concat!(".symver ", stringify!($name), $suffix, ", ", stringify!($name), $version, ", remove"),
            ".popsection",
            function = sym crate::$module::$function,
        );
    };
}

/// Makes the symbols of functions in each of some versions.
macro_rules! symbols {
    ($versions:tt: $($module:ident::$name:ident)*) => { $(symbols!(@each $versions $module $name);)* };
    (@each [$($version:ident)*] $module:ident $name:ident) => {
        $(symbols!(@one $version $module $name);)*
    };
    (@one v0_10 $module:ident $name:ident) => { symbol!($module, $name, "_at_0_10", "@LIBRPMA_0.10"); };
    (@one v0_11 $module:ident $name:ident) => { symbol!($module, $name, "_at_0_11", "@LIBRPMA_0.11"); };
    (@one v0_12 $module:ident $name:ident) => { symbol!($module, $name, "_at_0_12", "@LIBRPMA_0.12"); };
    (@one v0_13 $module:ident $name:ident) => { symbol!($module, $name, "_at_0_13", "@LIBRPMA_0.13"); };
    (@one v0_14 $module:ident $name:ident) => { symbol!($module, $name, "_at_0_14", "@LIBRPMA_0.14"); };
    (@one v1_0 $module:ident $name:ident) => { symbol!($module, $name, "_at_1_0", "@@LIBRPMA_1.0"); };
}

// Programs of 0.9 have the version of 1.0, and a shorter completion than those of 0.10. librpma 1.0 has no
// such function, so programs that are linked with this library get that of 0.10.
symbol!(conn, rpma_conn_completion_get, "_at_0_9", "@LIBRPMA_1.0", rpma_conn_completion_get_of_0_9);
symbol!(conn, rpma_conn_completion_get, "_at_0_10", "@@LIBRPMA_0.10");

// Programs of 0.10 to 0.13 know no RPMA_CONN_UNREACHABLE.
symbol!(conn, rpma_conn_next_event, "_at_0_10", "@LIBRPMA_0.10", rpma_conn_next_event_of_0_10);
symbol!(conn, rpma_conn_next_event, "_at_0_11", "@LIBRPMA_0.11", rpma_conn_next_event_of_0_10);
symbol!(conn, rpma_conn_next_event, "_at_0_12", "@LIBRPMA_0.12", rpma_conn_next_event_of_0_10);
symbol!(conn, rpma_conn_next_event, "_at_0_13", "@LIBRPMA_0.13", rpma_conn_next_event_of_0_10);
symbols! { [v0_14 v1_0]: conn::rpma_conn_next_event }

// Functions that librpma has no more. Those with the version of 1.0 are for programs that are linked with
// this library, which get all of them.
symbols! { [v0_10 v1_0]: conn::rpma_conn_completion_wait conn::rpma_conn_get_completion_fd }
symbols! { [v0_10 v0_11 v1_0]: cq::rpma_cq_get_completion }
symbols! { [v0_10 v0_11 v0_12 v0_13 v1_0]: access::rpma_write_atomic }

symbols! { [v0_11 v0_12 v0_13 v0_14 v1_0]: cq::rpma_cq_get_wc }
symbols! { [v0_13 v0_14 v1_0]: access::rpma_atomic_write }

symbols! { [v1_0]:
    conn_cfg::rpma_conn_cfg_get_compl_channel
    conn_cfg::rpma_conn_cfg_get_srq
    conn_cfg::rpma_conn_cfg_set_compl_channel
    conn_cfg::rpma_conn_cfg_set_srq
    conn::rpma_conn_get_compl_fd
    conn::rpma_conn_wait
    srq_cfg::rpma_srq_cfg_delete
    srq_cfg::rpma_srq_cfg_get_rcq_size
    srq_cfg::rpma_srq_cfg_get_rq_size
    srq_cfg::rpma_srq_cfg_new
    srq_cfg::rpma_srq_cfg_set_rcq_size
    srq_cfg::rpma_srq_cfg_set_rq_size
    srq::rpma_srq_delete
    srq::rpma_srq_get_rcq
    srq::rpma_srq_new
    srq::rpma_srq_recv
}

symbols! { [v0_10 v0_11 v0_12 v0_13 v0_14 v1_0]:
    conn::rpma_conn_apply_remote_peer_cfg
    conn_cfg::rpma_conn_cfg_delete
    conn_cfg::rpma_conn_cfg_get_cq_size
    conn_cfg::rpma_conn_cfg_get_rcq_size
    conn_cfg::rpma_conn_cfg_get_rq_size
    conn_cfg::rpma_conn_cfg_get_sq_size
    conn_cfg::rpma_conn_cfg_get_timeout
    conn_cfg::rpma_conn_cfg_new
    conn_cfg::rpma_conn_cfg_set_cq_size
    conn_cfg::rpma_conn_cfg_set_rcq_size
    conn_cfg::rpma_conn_cfg_set_rq_size
    conn_cfg::rpma_conn_cfg_set_sq_size
    conn_cfg::rpma_conn_cfg_set_timeout
    conn::rpma_conn_delete
    conn::rpma_conn_disconnect
    conn::rpma_conn_get_cq
    conn::rpma_conn_get_event_fd
    conn::rpma_conn_get_private_data
    conn::rpma_conn_get_qp_num
    conn::rpma_conn_get_rcq
    conn_req::rpma_conn_req_connect
    conn_req::rpma_conn_req_delete
    conn_req::rpma_conn_req_get_private_data
    conn_req::rpma_conn_req_new
    conn_req::rpma_conn_req_recv
    cq::rpma_cq_get_fd
    cq::rpma_cq_wait
    ep::rpma_ep_get_fd
    ep::rpma_ep_listen
    ep::rpma_ep_next_conn_req
    ep::rpma_ep_shutdown
    text::rpma_err_2str
    flush::rpma_flush
    log::rpma_log_get_threshold
    log::rpma_log_set_function
    log::rpma_log_set_threshold
    mr::rpma_mr_advise
    mr::rpma_mr_dereg
    mr::rpma_mr_get_descriptor
    mr::rpma_mr_get_descriptor_size
    mr::rpma_mr_get_ptr
    mr::rpma_mr_get_size
    mr::rpma_mr_reg
    remote_mr::rpma_mr_remote_delete
    remote_mr::rpma_mr_remote_from_descriptor
    remote_mr::rpma_mr_remote_get_flush_type
    remote_mr::rpma_mr_remote_get_size
    peer_cfg::rpma_peer_cfg_delete
    peer_cfg::rpma_peer_cfg_from_descriptor
    peer_cfg::rpma_peer_cfg_get_descriptor
    peer_cfg::rpma_peer_cfg_get_descriptor_size
    peer_cfg::rpma_peer_cfg_get_direct_write_to_pmem
    peer_cfg::rpma_peer_cfg_new
    peer_cfg::rpma_peer_cfg_set_direct_write_to_pmem
    peer::rpma_peer_delete
    peer::rpma_peer_new
    access::rpma_read
    message::rpma_recv
    message::rpma_send
    message::rpma_send_with_imm
    text::rpma_utils_conn_event_2str
    device::rpma_utils_get_ibv_context
    device::rpma_utils_ibv_context_is_odp_capable
    access::rpma_write
    access::rpma_write_with_imm
}
