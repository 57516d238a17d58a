//! Tests of infos that are converted to C and back.

use std::net::SocketAddr;
use std::ptr;

use homespun::flags::{Caps, OpFlags};
use homespun::info::{EndpointType, Info, Progress, ResourceManagement, Threading, Version};
use homespun::{Address, Errno};

use super::*;
use crate::abi::info::{FiDomainAttr, FiEpAttr, FiInfo};

fn round_trip_through_c(info: &Info) -> Info {
    // The list, which has the provider's name, frees all its memory.
    let list = malloc_request_info(info).expect("memory");
    // SAFETY: the list has the library's structures.
    unsafe { read_info(list.head(), Extent::Library) }.expect("a valid info")
}

#[test]
fn every_info_field_survives_a_round_trip_through_c() {
    let mut info = Info::default();
    let mut next = 1..;
    let mut number = || next.next().expect("enough numbers");
    info.src_addr = Some(Address::from("[::1]:1".parse::<SocketAddr>().expect("an address")));
    info.dest_addr = Some(Address::from("127.0.0.1:2".parse::<SocketAddr>().expect("an address")));
    info.tx.caps = Caps::TAGGED;
    info.tx.op_flags = OpFlags::COMPLETION;
    info.tx.inject_size_bytes = number();
    info.tx.size_ops = number();
    info.tx.iov_limit = number();
    info.tx.rma_iov_limit = number();
    info.tx.tclass = 0x203;
    info.rx.total_buffered_recv_bytes = number();
    info.rx.size_ops = number();
    info.rx.iov_limit = number();
    info.ep.ep_type = Some(EndpointType::Rdm);
    info.ep.protocol = 5;
    info.ep.protocol_version = 6;
    info.ep.max_msg_size_bytes = number();
    info.ep.msg_prefix_size_bytes = number();
    info.ep.max_order_raw_size_bytes = number();
    info.ep.max_order_war_size_bytes = number();
    info.ep.max_order_waw_size_bytes = number();
    info.ep.mem_tag_format = 0xff00;
    info.ep.tx_ctx_cnt = number();
    info.ep.rx_ctx_cnt = number();
    info.ep.auth_key = vec![1, 2, 3];
    info.domain.name = Some("tcp".into());
    info.domain.threading = Some(Threading::Domain);
    info.domain.control_progress = Some(Progress::Auto);
    info.domain.data_progress = Some(Progress::Manual);
    info.domain.resource_mgmt = Some(ResourceManagement::Disabled);
    info.domain.mr_key_size_bytes = number();
    info.domain.cq_data_size_bytes = number();
    info.domain.cq_cnt = number();
    info.domain.ep_cnt = number();
    info.domain.tx_ctx_cnt = number();
    info.domain.rx_ctx_cnt = number();
    info.domain.max_ep_tx_ctx = number();
    info.domain.max_ep_rx_ctx = number();
    info.domain.max_ep_stx_ctx = number();
    info.domain.max_ep_srx_ctx = number();
    info.domain.cntr_cnt = number();
    info.domain.mr_iov_limit = number();
    info.domain.caps = Caps::LOCAL_COMM;
    info.domain.auth_key = vec![4, 5];
    info.domain.max_err_data_bytes = number();
    info.domain.mr_cnt = number();
    info.domain.tclass = 0x204;
    info.fabric.name = Some("homespun".into());
    info.fabric.prov_name = Some("homespun".into());
    info.fabric.prov_version = Version::new(0, 1);
    info.fabric.api_version = Version::new(1, 17);
    assert_eq!(round_trip_through_c(&info), info);
}

#[test]
fn zeroed_fi_info_reads_as_unspecified() {
    // SAFETY: all zeroes are an `fi_info` that specifies nothing.
    let empty: FiInfo = unsafe { std::mem::zeroed() };
    // SAFETY: it is valid, and so are its null pointers.
    assert_eq!(unsafe { read_info(&raw const empty, Extent::Library) }, Ok(Info::default()));
    // Numbers without a meaning ask for nothing.
    // SAFETY: as above.
    let (mut unknown, mut domain): (FiInfo, FiDomainAttr) = unsafe { std::mem::zeroed() };
    (domain.resource_mgmt, domain.av_type) = (99, 99);
    unknown.domain_attr = &raw mut domain;
    // SAFETY: as above.
    assert_eq!(unsafe { read_info(&raw const unknown, Extent::Library) }, Ok(Info::default()));
}

#[test]
fn structures_of_an_older_api_version_are_shorter() {
    // SAFETY: all zeroes are valid attributes.
    let (mut info, mut ep, mut domain): (FiInfo, FiEpAttr, FiDomainAttr) = unsafe { std::mem::zeroed() };
    // These fields lie beyond the end of the old structures.
    ep.auth_key_size = 7;
    ep.auth_key = ptr::dangling_mut();
    domain.cntr_cnt = 1;
    domain.auth_key_size = 7;
    domain.auth_key = ptr::dangling_mut();
    domain.tclass = 3;
    info.ep_attr = &raw mut ep;
    info.domain_attr = &raw mut domain;
    let extent = Extent::Application { api_version: Version::new(1, 4) };
    // SAFETY: all fields within the extent are valid.
    assert_eq!(unsafe { read_info(&raw const info, extent) }, Ok(Info::default()));

    let extent = Extent::Application { api_version: Version::new(1, 5) };
    // SAFETY: as above.
    let read = unsafe {
        (*info.ep_attr).auth_key_size = 0;
        (*info.domain_attr).auth_key_size = 0;
        read_info(&raw const info, extent)
    };
    let read = read.expect("a valid info");
    assert_eq!((read.domain.cntr_cnt, read.domain.tclass), (1, 0));
}

#[test]
fn unknown_value_in_fi_info_is_refused_with_enodata() {
    let refused = |spoil: fn(&mut FiInfo, &mut FiEpAttr)| {
        // SAFETY: all zeroes are valid attributes.
        let (mut info, mut ep): (FiInfo, FiEpAttr) = unsafe { std::mem::zeroed() };
        spoil(&mut info, &mut ep);
        info.ep_attr = &raw mut ep;
        // SAFETY: the info is valid.
        unsafe { read_info(&raw const info, Extent::Library) }.err()
    };
    let unavailable = Some(Errno::ENODATA.into());
    assert_eq!(refused(|_, ep| ep.r#type = 77), unavailable);
    assert_eq!(refused(|info, _| info.addr_format = 9), unavailable);
    // Keys in the address vector.
    assert_eq!(refused(|_, ep| ep.auth_key_size = usize::MAX), unavailable);
    assert_eq!(refused(|_, _| ()), None);
}
