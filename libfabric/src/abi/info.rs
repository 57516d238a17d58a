//! Hints and answers: `struct fi_info` and its attributes, of `rdma/fabric.h`.
//!
//! Newer versions of libfabric append fields to these structures. The declarations here have the
//! fields of 1.17. A structure from the application or the host may be shorter than its
//! declaration, so code must not form a reference to a whole structure.

use libc::{c_char, c_int, c_void};

use super::c_structs;
use super::fid::Fid;

c_structs! {
    struct FiInfo = "struct fi_info", 120 bytes {
        next: *mut FiInfo,
        caps: u64,
        mode: u64,
        addr_format: u32,
        src_addrlen: usize,
        dest_addrlen: usize,
        src_addr: *mut c_void,
        dest_addr: *mut c_void,
        handle: *mut Fid,
        tx_attr: *mut FiTxAttr,
        rx_attr: *mut FiRxAttr,
        ep_attr: *mut FiEpAttr,
        domain_attr: *mut FiDomainAttr,
        fabric_attr: *mut FiFabricAttr,
        nic: *mut c_void,
    }

    struct FiTxAttr = "struct fi_tx_attr", 80 bytes {
        caps: u64,
        mode: u64,
        op_flags: u64,
        msg_order: u64,
        comp_order: u64,
        inject_size: usize,
        size: usize,
        iov_limit: usize,
        rma_iov_limit: usize,
        tclass: u32,
    }

    struct FiRxAttr = "struct fi_rx_attr", 64 bytes {
        caps: u64,
        mode: u64,
        op_flags: u64,
        msg_order: u64,
        comp_order: u64,
        total_buffered_recv: usize,
        size: usize,
        iov_limit: usize,
    }

    struct FiEpAttr = "struct fi_ep_attr", 96 bytes {
        r#type: u32,
        protocol: u32,
        protocol_version: u32,
        max_msg_size: usize,
        msg_prefix_size: usize,
        max_order_raw_size: usize,
        max_order_war_size: usize,
        max_order_waw_size: usize,
        mem_tag_format: u64,
        tx_ctx_cnt: usize,
        rx_ctx_cnt: usize,
        auth_key_size: usize,
        auth_key: *mut u8,
    }

    struct FiDomainAttr = "struct fi_domain_attr", 192 bytes {
        domain: *mut c_void,
        name: *mut c_char,
        threading: u32,
        control_progress: u32,
        data_progress: u32,
        resource_mgmt: u32,
        av_type: u32,
        mr_mode: c_int,
        mr_key_size: usize,
        cq_data_size: usize,
        cq_cnt: usize,
        ep_cnt: usize,
        tx_ctx_cnt: usize,
        rx_ctx_cnt: usize,
        max_ep_tx_ctx: usize,
        max_ep_rx_ctx: usize,
        max_ep_stx_ctx: usize,
        max_ep_srx_ctx: usize,
        cntr_cnt: usize,
        mr_iov_limit: usize,
        caps: u64,
        mode: u64,
        auth_key: *mut u8,
        auth_key_size: usize,
        max_err_data: usize,
        mr_cnt: usize,
        tclass: u32,
    }

    struct FiFabricAttr = "struct fi_fabric_attr", 32 bytes {
        fabric: *mut c_void,
        name: *mut c_char,
        prov_name: *mut c_char,
        prov_version: u32,
        api_version: u32,
    }
}
