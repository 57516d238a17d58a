//! `fi_prov_ini` and `fi_getinfo`. What hints are granted is the subject of `src/getinfo/negotiate/tests.rs`
//! and `tests/capabilities/`; how hints and answers are converted, of `libfabric/src/info/tests.rs`.

use std::env;
use std::ffi::CString;
use std::process::Command;

use homespun::info::Threading;
use homespun_fi::fi_prov_ini;

use crate::prelude::*;

#[test]
fn provider_reports_its_name_and_versions() {
    let provider = provider();
    assert_eq!(read_c_str(provider.name), "homespun");
    // The version must be at least the newest API version that a host accepts.
    assert!(provider.version > 0 && provider.fi_version >= fi_version(2, 6));
    // A reloaded host gets the same provider.
    assert_eq!(fi_prov_ini().cast_const(), ptr::from_ref(provider));

    // The library that a host loads, which Cargo puts beside this program, exports the entry point.
    let path = env::current_exe().expect("this test's path").with_file_name("libhomespun_fi.so");
    let path = CString::new(path.into_os_string().into_encoded_bytes()).expect("no zero");
    // SAFETY: loading the library runs none of its code, and the entry point has this type.
    unsafe {
        let entry = libc::dlsym(libc::dlopen(path.as_ptr(), libc::RTLD_NOW), c"fi_prov_ini".as_ptr());
        assert!(!entry.is_null(), "{path:?}");
        let entry: extern "C" fn() -> *mut FiProvider = mem::transmute(entry);
        assert_eq!(read_c_str((*entry()).name), "homespun");
    }
}

#[test]
fn getinfo_fills_in_names_and_types() {
    let list = getinfo(None, None, 0, None).expect("an answer");
    let found = list.iter().map(|info| {
        assert!(info.nic.is_null() && info.handle.is_null() && !info.src_addr.is_null());
        // SAFETY: answers have all their attributes.
        let (ep, domain, fabric) = unsafe { (&*info.ep_attr, &*info.domain_attr, &*info.fabric_attr) };
        assert_eq!(read_c_str(fabric.name), "homespun");
        assert!(fabric.prov_name.is_null(), "the host writes it");
        (ep.r#type, read_c_str(domain.name))
    });
    let mut found = Vec::from_iter(found);
    found.dedup();
    assert_eq!(found, [(3, "auto"), (3, "tcp"), (3, "shm"), (1, "auto"), (1, "tcp"), (1, "shm")]);
}

/// A newer host has longer structures, and copies structures of that length. So the plugin must
/// allocate as many bytes.
#[test]
fn infos_leave_room_for_fields_of_newer_versions() {
    let list = loopback_infos();
    let info = list.info();
    // The sizes of 2.6.
    let rooms: [(*const c_void, usize, usize); 3] = [
        (info.ep_attr.cast(), size_of::<FiEpAttr>(), 104),
        (info.domain_attr.cast(), size_of::<FiDomainAttr>(), 232),
        (list.0.cast(), size_of::<FiInfo>(), 256),
    ];
    for (memory, size_bytes, newest_bytes) in rooms {
        // SAFETY: `memory` comes from `malloc`, and bytes up to the usable size may be read.
        unsafe {
            assert!(libc::malloc_usable_size(memory.cast_mut()) >= newest_bytes, "{newest_bytes}");
            let tail = slice::from_raw_parts(memory.cast::<u8>().add(size_bytes), newest_bytes - size_bytes);
            assert!(tail.iter().all(|&byte| byte == 0));
        }
    }
}

/// Shows fi_endpoint/socket-endpoints.
#[test]
fn getinfo_offers_nothing_to_other_layers_and_socket_endpoints() {
    /// The flag of libfabric's core for calls by a layer.
    const OFI_CORE_PROV_ONLY: u64 = 1 << 59;
    for (names, is_offered) in [
        (None, false),
        (Some(c"homespun2;^ofi_rxm"), false),
        (Some(c"tcp;^homespun"), false),
        (Some(c"^ofi_rxm"), false),
        (Some(c"homespun;^ofi_rxm"), true),
        (Some(c"Homespun"), true),
    ] {
        let mut hints = InfoList::hints();
        hints.ep().r#type = FI_EP_MSG;
        hints.fabric().prov_name = names.map_or(ptr::null_mut(), duplicate);
        let answer = getinfo(None, None, OFI_CORE_PROV_ONLY, Some(&hints));
        // SAFETY: answers have all their attributes.
        let is_msg = |info: &FiInfo| unsafe { (*info.ep_attr).r#type } == FI_EP_MSG;
        let found = answer.map(|list| list.iter().all(is_msg));
        assert_eq!(found, if is_offered { Ok(true) } else { Err(ENODATA) }, "{names:?}");
    }
    assert_eq!(getinfo(None, None, OFI_CORE_PROV_ONLY, None).err(), Some(ENODATA));
    // FI_EP_SOCK_STREAM and FI_EP_SOCK_DGRAM.
    for ep_type in [4, 5] {
        let mut hints = InfoList::hints();
        hints.ep().r#type = ep_type;
        assert_eq!(getinfo(None, None, 0, Some(&hints)).err(), Some(ENODATA), "{ep_type}");
    }
}

#[test]
fn getinfo_converts_node_and_service() {
    let list = getinfo(Some(c"127.0.0.1"), Some(c"7471"), 0, None).expect("an answer");
    let info = list.info();
    assert_eq!((info.addr_format, info.dest_addrlen), (FI_SOCKADDR_IN, 16));
    // SAFETY: the address has this length.
    let address = unsafe { info.dest_addr.cast::<libc::sockaddr_in>().read() };
    assert_eq!((u16::from_be(address.sin_port), u32::from_be(address.sin_addr.s_addr)), (7471, 0x7f00_0001));

    // An empty service is none.
    for (flags, node) in [(0, None), (SOURCE, None), (0, Some(c"127.0.0.1"))] {
        let list = getinfo(node, Some(c""), flags, None).expect("an answer");
        assert_eq!(list.info().dest_addr.is_null(), node.is_none());
    }
    assert!(getinfo(None, None, 0, Some(&list)).is_ok(), "the answer as hints");
    let getinfo = provider().getinfo;
    // The host checks the version.
    for version in [0, fi_version(1, 4)] {
        let mut list = ptr::null_mut();
        // SAFETY: only the place for the result is not null.
        let result = unsafe { getinfo(version, ptr::null(), ptr::null(), 0, ptr::null(), &raw mut list) };
        assert_eq!((result, list.is_null()), (0, false), "{version:#x}");
    }
    // SAFETY: null is checked.
    let result = unsafe { getinfo(API_VERSION, ptr::null(), ptr::null(), 0, ptr::null(), ptr::null_mut()) };
    assert_eq!(result, EINVAL, "no place for the answer");
}

/// The domain's name, the open fabric and the open domain of an info.
type Described = (String, *mut c_void, *mut c_void);

/// Calls `fi_getinfo` with hints that name a fabric and a domain.
fn getinfo_naming(fabric: *mut c_void, domain: *mut c_void) -> Result<Vec<Described>, i32> {
    let mut hints = InfoList::hints();
    (hints.fabric().fabric, hints.domain().domain) = (fabric, domain);
    let list = getinfo(None, None, 0, Some(&hints))?;
    // SAFETY: answers have all their attributes.
    let described = list.iter().map(|info| unsafe {
        let (fabric, domain) = (&*info.fabric_attr, &*info.domain_attr);
        (read_c_str(domain.name).to_owned(), fabric.fabric, domain.domain)
    });
    Ok(described.collect())
}

/// Runs the test in a process of its own, since other tests here open fabrics and domains too.
#[test]
fn getinfo_returns_open_fabrics_and_domains() {
    let mut test = Command::new(env::current_exe().expect("this test's path"));
    test.args(["--exact", "info::open_fabrics_and_domains_process_entry", "--ignored"]);
    let output = test.output().expect("this test's program runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains(" 1 passed"), "{said}");
}

#[test]
#[ignore = "another test runs it, in a process of its own"]
fn open_fabrics_and_domains_process_entry() {
    let getinfo_all = || getinfo_naming(NULL, NULL).expect("an answer");
    let first = getinfo_all();
    assert!(first.iter().all(|&(_, fabric, domain)| fabric.is_null() && domain.is_null()));

    let mut infos = loopback_infos();
    let fabric = open_fabric(&mut infos, API_VERSION);
    let domain = fabric.open_domain(&infos).expect("a domain");
    let second = fabric.open_domain(&infos).expect("another domain of the same name");
    let [own_fabric, own_domain, own_second]: [*mut c_void; 3] =
        [fabric.fid().cast(), domain.fid().cast(), second.fid().cast()];
    let found = getinfo_all();
    assert!(found.iter().all(|&(_, fabric, _)| fabric == own_fabric));
    // Infos with the name and address format of the first domain point to this domain. There are two:
    // one for connected endpoints, one for unconnected endpoints.
    let of_tcp = |domain| ("tcp".to_owned(), own_fabric, domain);
    let with_domain = Vec::from_iter(found.into_iter().filter(|(_, _, domain)| !domain.is_null()));
    assert_eq!(with_domain, [of_tcp(own_domain), of_tcp(own_domain)]);

    // Hints that name an object get only infos with that object.
    assert!(getinfo_naming(own_fabric, NULL).expect("an answer").len() > 1);
    for named in [own_domain, own_second] {
        assert_eq!(getinfo_naming(own_fabric, named), Ok(vec![of_tcp(named), of_tcp(named)]));
    }

    let mut hints = InfoList::hints();
    (hints.domain().domain, hints.domain().name) = (own_domain, duplicate(c"shm"));
    assert_eq!(getinfo(None, None, 0, Some(&hints)).err(), Some(ENODATA), "it has another name");

    // Hints that name the closed domain fail. Without such hints, infos point to the next open domain.
    assert!(domain.close().is_ok());
    assert_eq!(getinfo_naming(NULL, own_domain), Err(ENODATA));
    let named_domain =
        getinfo_all().into_iter().map(|(_, _, domain)| domain).find(|domain| !domain.is_null());
    assert_eq!(named_domain, Some(own_second));
    assert!(second.close().is_ok());

    // Infos point to a domain without locks only if the hints allow one. Such a domain has no connected
    // endpoints.
    infos.domain().threading = Threading::Domain.raw();
    let without_locks = fabric.open_domain(&infos).expect("a domain");
    assert!(getinfo_all().iter().all(|(_, _, domain)| domain.is_null()));
    let named = without_locks.fid().cast();
    assert_eq!(getinfo_naming(NULL, named), Ok(vec![of_tcp(named)]));
    let mut hints = InfoList::hints();
    (hints.domain().domain, hints.domain().threading) = (named, Threading::Safe.raw());
    assert_eq!(getinfo(None, None, 0, Some(&hints)).err(), Some(ENODATA), "it has no locks");
    assert!(without_locks.close().is_ok() && fabric.close().is_ok());
    assert_eq!(getinfo_naming(own_fabric, NULL), Err(ENODATA));
    assert_eq!(getinfo_all(), first);
}
