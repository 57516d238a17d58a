//! `fi_prov_ini` and `fi_getinfo`.

use std::ptr;

use homespun::info::Threading;
use homespun_fi::abi::info::{FiDomainAttr, FiEpAttr, FiFabricAttr, FiInfo, FiRxAttr, FiTxAttr};
use homespun_fi::abi::{FI_RM_DISABLED, FI_RM_ENABLED, FI_SOCKADDR, FI_SOCKADDR_IN, fi_version};

use crate::host::{API_VERSION, Plugin, open_fabric, read_c_str};

const ENODATA: i32 = -61;
const EINVAL: i32 = -22;

/// Hints that have all attributes, and specify nothing.
struct Hints {
    info: FiInfo,
    tx: Box<FiTxAttr>,
    rx: Box<FiRxAttr>,
    ep: Box<FiEpAttr>,
    domain: Box<FiDomainAttr>,
    fabric: Box<FiFabricAttr>,
}

impl Hints {
    fn new() -> Hints {
        // SAFETY: all zeroes are hints that specify nothing.
        unsafe {
            Hints {
                info: std::mem::zeroed(),
                tx: Box::new(std::mem::zeroed()),
                rx: Box::new(std::mem::zeroed()),
                ep: Box::new(std::mem::zeroed()),
                domain: Box::new(std::mem::zeroed()),
                fabric: Box::new(std::mem::zeroed()),
            }
        }
    }

    fn as_ptr(&mut self) -> *const FiInfo {
        self.info.tx_attr = &raw mut *self.tx;
        self.info.rx_attr = &raw mut *self.rx;
        self.info.ep_attr = &raw mut *self.ep;
        self.info.domain_attr = &raw mut *self.domain;
        self.info.fabric_attr = &raw mut *self.fabric;
        &raw const self.info
    }

    fn getinfo(&mut self) -> Result<crate::host::InfoList, i32> {
        Plugin::get().getinfo(None, None, 0, self.as_ptr())
    }
}

#[test]
fn provider_reports_its_name_and_versions() {
    let provider = Plugin::get().provider();
    assert_eq!(read_c_str(provider.name), "homespun");
    // The version must be at least the newest API version that a host accepts.
    assert!(provider.fi_version >= fi_version(2, 6));
    assert!(provider.version > 0);
    // A reloaded host gets the same provider.
    assert_eq!(Plugin::get().call_prov_ini_again().cast_const(), ptr::from_ref(provider));
}

#[test]
fn getinfo_fills_in_names_types_and_attributes() {
    let list = Plugin::get().getinfo(None, None, 0, ptr::null()).expect("an answer");
    let (mut domains, mut types) = (Vec::new(), Vec::new());
    for info in list.iter() {
        // SAFETY: answers have all their attributes.
        unsafe {
            let (ep, domain, fabric) = (&*info.ep_attr, &*info.domain_attr, &*info.fabric_attr);
            assert_eq!(read_c_str(fabric.name), "homespun");
            domains.push(read_c_str(domain.name).to_owned());
            assert!(fabric.prov_name.is_null(), "the host writes it");
            types.push(ep.r#type);
            assert!(info.nic.is_null() && info.handle.is_null());
            assert!(!info.tx_attr.is_null() && !info.rx_attr.is_null());
        }
    }
    // Unconnected endpoints come first. The domain `auto` comes first, because it reaches every peer in
    // the fastest way.
    domains.dedup();
    types.dedup();
    assert_eq!(
        (&domains[..], &types[..]),
        (&["auto", "tcp", "shm", "auto", "tcp", "shm"].map(str::to_owned)[..], &[3, 1][..])
    );
}

/// A newer host has longer structures, and copies structures of that length. So the plugin must
/// allocate as many bytes.
#[test]
fn infos_leave_room_for_fields_of_newer_versions() {
    let list = Plugin::get().loopback_infos();
    let info = list.first();
    let room = |memory: *mut libc::c_void, size_bytes: usize, newest_bytes: usize| {
        // SAFETY: `memory` comes from `malloc`, and bytes up to the usable size may be read.
        unsafe {
            assert!(libc::malloc_usable_size(memory) >= newest_bytes, "{newest_bytes}");
            let tail =
                std::slice::from_raw_parts(memory.cast::<u8>().add(size_bytes), newest_bytes - size_bytes);
            assert!(tail.iter().all(|&byte| byte == 0));
        }
    };
    // The sizes of 2.6.
    room(info.ep_attr.cast(), size_of::<FiEpAttr>(), 104);
    room(info.domain_attr.cast(), size_of::<FiDomainAttr>(), 232);
    room(list.as_ptr().cast(), size_of::<FiInfo>(), 256);
}

/// The flag of libfabric's core for calls by a layer.
const OFI_CORE_PROV_ONLY: u64 = 1 << 59;

#[test]
fn getinfo_for_a_layer_without_our_name_answers_enodata() {
    let refused = Plugin::get().getinfo(None, None, OFI_CORE_PROV_ONLY, ptr::null());
    assert_eq!(refused.err(), Some(ENODATA));
    for names in [None, Some(c"^ofi_rxm"), Some(c"homespun2;^ofi_rxm"), Some(c"tcp;^homespun")] {
        let mut hints = Hints::new();
        hints.fabric.prov_name = names.map_or(ptr::null_mut(), |names| names.as_ptr().cast_mut());
        let refused = Plugin::get().getinfo(None, None, OFI_CORE_PROV_ONLY, hints.as_ptr());
        assert_eq!(refused.err(), Some(ENODATA), "{names:?}");
    }
}

#[test]
fn getinfo_for_a_layer_that_names_homespun_returns_infos() {
    const FI_EP_MSG: u32 = 1;
    for names in [c"homespun;^ofi_rxm", c"Homespun"] {
        let mut hints = Hints::new();
        hints.fabric.prov_name = names.as_ptr().cast_mut();
        hints.ep.r#type = FI_EP_MSG;
        let list = Plugin::get().getinfo(None, None, OFI_CORE_PROV_ONLY, hints.as_ptr()).expect("an answer");
        for info in list.iter() {
            // SAFETY: answers have all their attributes.
            unsafe {
                assert_eq!((*info.ep_attr).r#type, FI_EP_MSG);
                assert!((*info.fabric_attr).prov_name.is_null(), "the host writes the name");
            }
        }
    }
}

/// Among these bits is `FI_RESCAN` (1 << 35), and bits that libfabric's core and its layers use
/// internally.
#[test]
fn getinfo_with_unknown_flags_ignores_them() {
    const FI_PROV_ATTR_ONLY: u32 = 54;
    const FI_SOURCE: u32 = 57;
    let of = |node, flags| {
        let list = Plugin::get().getinfo(node, None, flags, ptr::null())?;
        Ok::<usize, i32>(list.iter().count())
    };
    for node in [None, Some(c"127.0.0.1")] {
        let plain = of(node, 0);
        assert!(plain.is_ok(), "{plain:?}");
        for bit in (0..u64::BITS)
            .filter(|bit| ![OFI_CORE_PROV_ONLY.ilog2(), FI_PROV_ATTR_ONLY, FI_SOURCE].contains(bit))
        {
            assert_eq!(of(node, 1 << bit), plain, "bit {bit}");
        }
    }
}

#[test]
fn getinfo_treats_an_empty_service_as_none() {
    const FI_SOURCE: u64 = 1 << 57;
    for (flags, node) in [(0, None), (FI_SOURCE, None), (0, Some(c"127.0.0.1"))] {
        let list = Plugin::get().getinfo(node, Some(c""), flags, ptr::null()).expect("an answer");
        assert_eq!(list.first().dest_addr.is_null(), node.is_none());
    }
    assert_eq!(Plugin::get().getinfo(None, Some(c"99999"), 0, ptr::null()).err(), Some(ENODATA));
}

#[test]
fn getinfo_returns_domain_limits_for_larger_hints() {
    let mut hints = Hints::new();
    let domain = &mut *hints.domain;
    (domain.cq_cnt, domain.ep_cnt, domain.cntr_cnt, domain.mr_cnt) = (usize::MAX, usize::MAX, 1 << 40, 9);
    (domain.tx_ctx_cnt, domain.rx_ctx_cnt, domain.max_ep_tx_ctx, domain.max_ep_rx_ctx) = (64, 64, 64, 64);
    (domain.max_ep_stx_ctx, domain.max_ep_srx_ctx, domain.mr_key_size) = (1, 1, 64);
    hints.fabric.prov_version = u32::MAX;
    let list = hints.getinfo().expect("an answer");
    // SAFETY: answers have all their attributes.
    let (domain, fabric) = unsafe { (&*list.first().domain_attr, &*list.first().fabric_attr) };
    assert_eq!((domain.max_ep_tx_ctx, domain.max_ep_rx_ctx, domain.mr_key_size), (1, 1, 8));
    assert!(domain.cq_cnt < usize::MAX && domain.ep_cnt < usize::MAX && domain.cntr_cnt < 1 << 40);
    assert_eq!(fabric.prov_version, Plugin::get().provider().version);

    for (asked, granted) in [(1, Ok(8)), (3, Ok(8)), (4, Ok(4)), (8, Ok(8))] {
        let mut hints = Hints::new();
        hints.domain.mr_key_size = asked;
        // SAFETY: as above.
        let size = hints.getinfo().map(|list| unsafe { (*list.first().domain_attr).mr_key_size });
        assert_eq!(size, granted, "{asked}");
    }

    // Several receive contexts would mean a scalable endpoint. homespun refuses such a number instead
    // of reducing it.
    for count in [2, usize::MAX - 1] {
        let mut hints = Hints::new();
        hints.ep.rx_ctx_cnt = count;
        assert_eq!(hints.getinfo().err(), Some(ENODATA));
    }
}

#[test]
fn getinfo_with_a_secondary_capability_alone_grants_its_primary_one() {
    const FI_MSG: u64 = 1 << 1;
    const FI_RMA: u64 = 1 << 2;
    const FI_ATOMIC: u64 = 1 << 4;
    const FI_MULTI_RECV: u64 = 1 << 16;
    const FI_RMA_EVENT: u64 = 1 << 56;
    for (asked, primary) in [(FI_MULTI_RECV, FI_MSG), (FI_RMA_EVENT, FI_RMA | FI_ATOMIC)] {
        let mut hints = Hints::new();
        hints.info.caps = asked;
        let list = hints.getinfo().expect("an answer");
        let all = FI_MSG | FI_RMA | FI_ATOMIC | asked;
        assert!(list.iter().all(|info| info.caps & all == primary | asked));
    }
}

#[test]
fn getinfo_ignores_tx_capabilities_in_rx_and_the_reverse() {
    const FI_MULTICAST: u64 = 1 << 5;
    const FI_SEND: u64 = 1 << 11;
    const FI_SOURCE_ERR: u64 = 1 << 50;
    let plain = Hints::new().getinfo().expect("an answer");
    let mut hints = Hints::new();
    (hints.tx.caps, hints.rx.caps) = (FI_SOURCE_ERR, FI_SEND);
    let list = hints.getinfo().expect("an answer");
    for (info, plain) in list.iter().zip(plain.iter()) {
        // SAFETY: answers have all their attributes.
        let sides = |info: &FiInfo| unsafe { ((*info.tx_attr).caps, (*info.rx_attr).caps) };
        assert_eq!(sides(info), sides(plain));
    }
    hints.rx.caps = FI_MULTICAST;
    assert_eq!(hints.getinfo().err(), Some(ENODATA), "neither side has it");
}

#[test]
fn endpoint_with_an_unspecified_domain_and_type_opens() {
    let infos = Plugin::get().loopback_infos();
    let fabric = open_fabric(infos.first(), API_VERSION);
    let domain = fabric.open_domain(infos.as_ptr()).expect("a domain");
    // SAFETY: a copy of a valid info, which does not own its pointers.
    let (mut info, mut ep) = unsafe { (ptr::read(infos.first()), ptr::read(infos.first().ep_attr)) };
    info.domain_attr = ptr::null_mut();
    ep.r#type = 0;
    info.ep_attr = &raw mut ep;
    let endpoint = domain.open_endpoint(&raw mut info).expect("an endpoint");
    let second = domain.open_endpoint(&raw mut info).expect("another endpoint");
    for endpoint in [endpoint, second] {
        assert!(endpoint.close().is_ok());
    }
    assert!(domain.close().is_ok() && fabric.close().is_ok());
}

#[test]
fn getinfo_with_unmet_hints_answers_enodata() {
    const FI_MSG: u64 = 1 << 1;
    const FI_MULTICAST: u64 = 1 << 5;
    const FI_SOURCE: u64 = 1 << 57;
    const FI_EP_DGRAM: u32 = 2;
    const FI_EP_SOCK_STREAM: u32 = 4;
    const FI_EP_SOCK_DGRAM: u32 = 5;
    const FI_PROTO_SOCK_TCP: u32 = 6;
    let unmet: [fn(&mut Hints); 9] = [
        |hints| hints.ep.r#type = FI_EP_DGRAM,
        |hints| hints.ep.r#type = FI_EP_SOCK_STREAM,
        |hints| hints.ep.r#type = FI_EP_SOCK_DGRAM,
        |hints| hints.ep.r#type = 99,
        |hints| hints.ep.protocol = FI_PROTO_SOCK_TCP,
        |hints| hints.info.caps = FI_MULTICAST,
        |hints| hints.info.caps = FI_MSG | FI_MULTICAST | FI_SOURCE,
        |hints| hints.info.addr_format = 9,
        |hints| hints.ep.auth_key_size = usize::MAX,
    ];
    for unmet in unmet {
        let mut hints = Hints::new();
        unmet(&mut hints);
        assert_eq!(hints.getinfo().err(), Some(ENODATA));
    }
    assert!(Hints::new().getinfo().is_ok());
}

#[test]
fn getinfo_returns_the_choices_of_the_hints() {
    let mut hints = Hints::new();
    hints.domain.threading = 3;
    hints.domain.av_type = 2;
    hints.info.addr_format = FI_SOCKADDR;
    hints.tx.op_flags = 1 << 24;
    let list = hints.getinfo().expect("an answer");
    // SAFETY: answers have all their attributes.
    let (domain, tx) = unsafe { (&*list.first().domain_attr, &*list.first().tx_attr) };
    assert_eq!((domain.threading, domain.av_type, tx.op_flags), (3, 2, 1 << 24));
}

#[test]
fn getinfo_grants_fence_and_match_complete() {
    const FENCE: u64 = 1 << 21;
    const MATCH_COMPLETE: u64 = 1 << 31;
    let mut hints = Hints::new();
    hints.info.caps = 1 << 3 | FENCE;
    hints.tx.op_flags = MATCH_COMPLETE;
    let list = hints.getinfo().expect("an answer");
    for info in list.iter() {
        // SAFETY: answers have all their attributes.
        let tx = unsafe { &*info.tx_attr };
        assert_eq!((info.caps & FENCE, tx.caps & FENCE, tx.op_flags), (FENCE, FENCE, MATCH_COMPLETE));
    }
    hints.tx.op_flags = FENCE;
    assert_eq!(hints.getinfo().err(), Some(ENODATA), "only one by one");
}

#[test]
fn getinfo_grants_the_unexpected_budget_asked_for() {
    let budgets = |asked| {
        let mut hints = Hints::new();
        hints.rx.total_buffered_recv = asked;
        let list = hints.getinfo().expect("a hint is never refused");
        // SAFETY: answers have all their attributes.
        list.iter().map(|info| unsafe { (*info.rx_attr).total_buffered_recv }).collect::<Vec<_>>()
    };
    assert!(budgets(0).iter().all(|&bytes| bytes == 64 << 20));
    assert!(budgets(3 << 20).iter().all(|&bytes| bytes == 3 << 20));
    assert!(budgets(1).iter().all(|&bytes| bytes == 32 << 10), "the least");
}

#[test]
fn getinfo_enables_resource_management_by_default() {
    for (asked, answered) in
        [(0, FI_RM_ENABLED), (FI_RM_ENABLED, FI_RM_ENABLED), (FI_RM_DISABLED, FI_RM_DISABLED)]
    {
        let mut hints = Hints::new();
        hints.domain.resource_mgmt = asked;
        let list = hints.getinfo().expect("an answer");
        for info in list.iter() {
            // SAFETY: answers have all their attributes.
            assert_eq!(unsafe { (*info.domain_attr).resource_mgmt }, answered);
        }
    }
    let mut hints = Hints::new();
    (hints.domain.resource_mgmt, hints.domain.av_type) = (99, 99);
    let list = hints.getinfo().expect("numbers without a meaning ask for nothing");
    // SAFETY: answers have all their attributes.
    let domain = unsafe { &*list.first().domain_attr };
    assert_eq!((domain.resource_mgmt, domain.av_type), (FI_RM_ENABLED, 0));
}

#[test]
fn getinfo_converts_node_and_service_to_a_socket_address() {
    let list = Plugin::get().getinfo(Some(c"127.0.0.1"), Some(c"7471"), 0, ptr::null()).expect("an answer");
    let info = list.first();
    assert_eq!((info.addr_format, info.dest_addrlen), (FI_SOCKADDR_IN, 16));
    // SAFETY: the address has this length.
    let address = unsafe { info.dest_addr.cast::<libc::sockaddr_in>().read() };
    assert_eq!((u16::from_be(address.sin_port), u32::from_be(address.sin_addr.s_addr)), (7471, 0x7f00_0001));

    // `fi_pingpong` names its peer in this way.
    let mut hints = Hints::new();
    hints.info.dest_addr = info.dest_addr;
    hints.info.dest_addrlen = info.dest_addrlen;
    hints.info.addr_format = FI_SOCKADDR_IN;
    let list = hints.getinfo().expect("an answer");
    assert_eq!(list.first().dest_addrlen, 16);
    // A truncated address is refused.
    hints.info.dest_addrlen = 8;
    assert_eq!(hints.getinfo().err(), Some(EINVAL));
}

#[test]
fn getinfo_without_a_result_pointer_is_refused() {
    let getinfo = Plugin::get().provider().getinfo;
    // SAFETY: null is checked.
    let result = unsafe { getinfo(API_VERSION, ptr::null(), ptr::null(), 0, ptr::null(), ptr::null_mut()) };
    assert_eq!(result, EINVAL);
}

#[test]
fn source_err_is_granted_only_on_request() {
    const FI_MSG: u64 = 1 << 1;
    const FI_SOURCE_ERR: u64 = 1 << 50;
    const FI_SOURCE: u64 = 1 << 57;
    let all = Hints::new().getinfo().expect("an answer");
    // SAFETY: answers have all their attributes.
    assert!(all.iter().all(|info| unsafe { (info.caps | (*info.rx_attr).caps) & FI_SOURCE_ERR == 0 }));
    let mut hints = Hints::new();
    hints.info.caps = FI_MSG | FI_SOURCE | FI_SOURCE_ERR;
    let told = hints.getinfo().expect("an answer");
    assert!(told.iter().all(|info| info.caps & FI_SOURCE_ERR != 0));
    hints.info.caps = FI_MSG | FI_SOURCE_ERR;
    assert_eq!(hints.getinfo().err(), Some(ENODATA), "it goes with FI_SOURCE");

    for (asked, answered) in [(0, Ok(256)), (28, Ok(256)), (256, Ok(256)), (257, Err(ENODATA))] {
        let mut hints = Hints::new();
        hints.domain.max_err_data = asked;
        // SAFETY: answers have all their attributes.
        let size = hints.getinfo().map(|list| unsafe { (*list.first().domain_attr).max_err_data });
        assert_eq!(size, answered, "{asked} bytes");
    }
}

#[test]
fn device_memory_answers_enodata() {
    const FI_HMEM: u64 = 1 << 47;
    for caps in [FI_HMEM, FI_HMEM | 1 << 1] {
        let mut hints = Hints::new();
        hints.info.caps = caps;
        assert_eq!(hints.getinfo().err(), Some(ENODATA));
    }
}

#[test]
fn first_infos_have_no_mode_whatever_the_hints_allow() {
    const FI_NOTIFY_FLAGS_ONLY: u64 = 1 << 54;
    const FI_RX_CQ_DATA: u64 = 1 << 56;
    let plain_len = Hints::new().getinfo().expect("an answer").iter().count();
    let all = u64::MAX;
    for (mode, of_receives, offered) in [
        (FI_NOTIFY_FLAGS_ONLY, FI_NOTIFY_FLAGS_ONLY, 0),
        (FI_RX_CQ_DATA, 0, 0),
        (all, 0, 0),
        (0, all, 0),
        (FI_RX_CQ_DATA, FI_RX_CQ_DATA, FI_RX_CQ_DATA),
        (all, all, FI_RX_CQ_DATA),
    ] {
        let mut hints = Hints::new();
        (hints.info.mode, hints.rx.mode) = (mode, of_receives);
        let list = hints.getinfo().expect("an answer");
        // SAFETY: the answer has all its attributes.
        let modes = list.iter().map(|info| (info.mode, unsafe { (*info.rx_attr).mode }));
        let mut expected = vec![(0, 0); plain_len];
        if offered != 0 {
            expected.resize(2 * plain_len, (offered, offered));
        }
        assert_eq!(modes.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn sockaddr_ip_hint_means_any_socket_address() {
    const FI_SOCKADDR_IP: u32 = 17;
    let formats = |asked| {
        let mut hints = Hints::new();
        hints.info.addr_format = asked;
        hints.getinfo().expect("an answer").iter().map(|info| info.addr_format).collect::<Vec<_>>()
    };
    assert_eq!(formats(FI_SOCKADDR_IP), formats(FI_SOCKADDR));
}

#[test]
fn getinfo_without_names_returns_wildcard_sources() {
    let everywhere = Plugin::get().getinfo(None, None, 0, ptr::null()).expect("an answer");
    for info in everywhere.iter() {
        assert!(info.dest_addr.is_null() && !info.src_addr.is_null());
        let len_bytes = if info.addr_format == FI_SOCKADDR_IN { 16 } else { 28 };
        // SAFETY: the address has this length.
        let source = unsafe { std::slice::from_raw_parts(info.src_addr.cast::<u8>(), len_bytes) };
        assert_eq!(info.src_addrlen, len_bytes);
        assert!(source[2..].iter().all(|&byte| byte == 0), "every interface, and any port");
    }
}

/// Calls `fi_getinfo` with hints that name a fabric and a domain. Returns three texts for each info:
/// the domain's name, the fabric's address and the domain's address.
fn getinfo_naming_objects(
    fabric: *mut libc::c_void,
    domain: *mut libc::c_void,
) -> Result<Vec<[String; 3]>, i32> {
    let mut hints = Hints::new();
    (hints.fabric.fabric, hints.domain.domain) = (fabric, domain);
    let list = hints.getinfo()?;
    // SAFETY: answers have all their attributes.
    let described = list.iter().map(|info| unsafe {
        let (fabric, domain) = (&*info.fabric_attr, &*info.domain_attr);
        [read_c_str(domain.name).to_owned(), format!("{:?}", fabric.fabric), format!("{:?}", domain.domain)]
    });
    Ok(described.collect())
}

/// Runs the test in a process of its own, since other tests here open fabrics and domains too.
#[test]
fn getinfo_returns_open_fabrics_and_domains() {
    let mut test = std::process::Command::new(std::env::current_exe().expect("this test's path"));
    test.args(["--exact", "info::open_fabrics_and_domains_process_entry", "--ignored"])
        .env_remove("FI_HOMESPUN_DOMAIN");
    let output = test.output().expect("this test's program runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains(" 1 passed"), "{said}");
}

#[test]
#[ignore = "another test runs it, in a process of its own"]
fn open_fabrics_and_domains_process_entry() {
    let none: *mut libc::c_void = ptr::null_mut();
    let nothing = format!("{none:?}");
    let first = getinfo_naming_objects(none, none).expect("an answer");
    assert!(first.iter().all(|[_, fabric, domain]| *fabric == nothing && *domain == nothing));

    let infos = Plugin::get().loopback_infos();
    let fabric = open_fabric(infos.first(), API_VERSION);
    let domain = fabric.open_domain(infos.as_ptr()).expect("a domain");
    let second = fabric.open_domain(infos.as_ptr()).expect("another domain of the same name");
    let (own_fabric, own_domain) = (format!("{:?}", fabric.as_ptr()), format!("{:?}", domain.as_ptr()));
    let found = getinfo_naming_objects(none, none).expect("an answer");
    assert!(found.iter().all(|[_, fabric, _]| *fabric == own_fabric));
    // Infos with the name and address format of the first domain point to this domain. There are two:
    // one for connected endpoints, one for unconnected endpoints.
    let with_domain: Vec<_> = found.iter().filter(|[_, _, domain]| *domain != nothing).collect();
    assert_eq!(with_domain, [&["auto".to_owned(), own_fabric.clone(), own_domain.clone()]; 2]);

    // Hints that name an object get only infos with that object.
    for (fabric, domain) in [(fabric.as_ptr().cast(), none), (none, none)] {
        assert!(getinfo_naming_objects(fabric, domain).expect("an answer").len() > 1);
    }
    for named in [&domain, &second] {
        let found = getinfo_naming_objects(fabric.as_ptr().cast(), named.as_ptr().cast()).expect("an answer");
        let expected = ["auto".to_owned(), own_fabric.clone(), format!("{:?}", named.as_ptr())];
        assert_eq!(found, [expected.clone(), expected]);
    }
    let mut hints = Hints::new();
    hints.domain.domain = domain.as_ptr().cast();
    let mut name = *b"shm\0";
    hints.domain.name = name.as_mut_ptr().cast();
    assert_eq!(hints.getinfo().err(), Some(ENODATA), "it is not of that name");

    // Hints that name the closed domain fail. Without such hints, infos point to the next open domain.
    let stale = domain.as_ptr();
    assert!(domain.close().is_ok());
    assert_eq!(getinfo_naming_objects(none, stale.cast()).err(), Some(ENODATA));
    let [_, _, found] = &getinfo_naming_objects(none, none).expect("an answer")[0];
    assert_eq!(*found, format!("{:?}", second.as_ptr()));
    assert!(second.close().is_ok());

    // Infos point to a domain without locks only if the hints allow one. Such a domain has no connected
    // endpoints.
    let serialised = Threading::Domain.raw();
    // SAFETY: answers have all their attributes, and only this thread uses these.
    unsafe { (*infos.first().domain_attr).threading = serialised };
    let without_locks = fabric.open_domain(infos.as_ptr()).expect("a domain");
    assert!(
        getinfo_naming_objects(none, none)
            .expect("an answer")
            .iter()
            .all(|[_, _, domain]| *domain == nothing)
    );
    let named = getinfo_naming_objects(none, without_locks.as_ptr().cast()).expect("an answer");
    assert_eq!(named, [["auto".to_owned(), own_fabric.clone(), format!("{:?}", without_locks.as_ptr())]]);
    let mut hints = Hints::new();
    hints.domain.domain = without_locks.as_ptr().cast();
    hints.domain.threading = Threading::Safe.raw();
    assert_eq!(hints.getinfo().err(), Some(ENODATA), "it has no locks");
    assert!(without_locks.close().is_ok());

    let stale = fabric.as_ptr();
    assert!(fabric.close().is_ok());
    assert_eq!(getinfo_naming_objects(stale.cast(), none).err(), Some(ENODATA));
    assert_eq!(getinfo_naming_objects(none, none).expect("an answer"), first);
}
