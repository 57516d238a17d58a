//! Address vectors.

use std::ptr;

use homespun_fi::abi::domain::FidAv;
use homespun_fi::abi::{FI_ADDR_NOTAVAIL, FI_AV_USER_ID, FI_CQ_FORMAT_TAGGED, FI_SYNC_ERR};
use libc::{c_char, c_int};

use crate::host::{API_VERSION, Node, Object, av_attr, read_c_str};

const EINVAL: c_int = -22;

fn open_disabled_node() -> Node {
    Node::open_disabled(API_VERSION, FI_CQ_FORMAT_TAGGED)
}

/// Returns the address 192.0.2.`host` in its C form.
fn make_address(host: u8) -> [u8; 16] {
    // SAFETY: all zeroes are an address, and any address is bytes.
    unsafe {
        let mut address: libc::sockaddr_in = std::mem::zeroed();
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_port = u16::to_be(4711);
        address.sin_addr.s_addr = u32::to_be(0xc000_0200 | u32::from(host));
        std::mem::transmute::<libc::sockaddr_in, [u8; 16]>(address)
    }
}

fn call_insert(
    av: &Object<FidAv>,
    addresses: &[[u8; 16]],
    flags: u64,
    errors: *mut c_int,
) -> (c_int, Vec<u64>) {
    let mut found = vec![77; addresses.len()];
    let (pointer, count) = (av.as_ptr(), addresses.len());
    // SAFETY: the vector is open, and `count` is the length of all arrays.
    let result = unsafe {
        let insert = (*(*pointer).ops).insert;
        insert(pointer, addresses.as_ptr().cast(), count, found.as_mut_ptr(), flags, errors.cast())
    };
    (result, found)
}

fn call_lookup(av: &Object<FidAv>, fi_addr: u64, room_bytes: usize) -> (c_int, [u8; 16], usize) {
    let mut found = [0; 16];
    let mut len_bytes = room_bytes;
    let pointer = av.as_ptr();
    // SAFETY: the vector is open, and `found` has at least `room_bytes`.
    let result = unsafe {
        ((*(*pointer).ops).lookup)(pointer, fi_addr, found.as_mut_ptr().cast(), &raw mut len_bytes)
    };
    (result, found, len_bytes)
}

#[test]
fn lookup_returns_inserted_addresses() {
    let av = &open_disabled_node().av;
    let addresses = [make_address(1), make_address(2), make_address(3)];
    assert_eq!(call_insert(av, &addresses, 0, ptr::null_mut()), (3, vec![0, 1, 2]));
    assert_eq!(call_lookup(av, 1, 16), (0, addresses[1], 16));
    let (result, found, len_bytes) = call_lookup(av, 2, 8);
    assert_eq!((result, len_bytes, &found[..8]), (0, 16, &addresses[2][..8]));
    assert_eq!(found[8..], [0; 8]);
    assert_eq!(call_lookup(av, 3, 16).0, EINVAL);
    assert_eq!(call_insert(av, &[], 0, ptr::null_mut()).0, 0);
}

#[test]
fn invalid_address_is_reported_and_takes_an_index() {
    let av = &open_disabled_node().av;
    let mut alien = make_address(2);
    alien[0] = libc::AF_UNIX as u8;
    let mut errors = [99; 3];
    let (inserted, found) =
        call_insert(av, &[make_address(1), alien, make_address(3)], FI_SYNC_ERR, errors.as_mut_ptr());
    assert_eq!((inserted, found), (2, vec![0, FI_ADDR_NOTAVAIL, 2]));
    assert_eq!(errors, [0, -EINVAL, 0]);
    assert_eq!(call_insert(av, &[make_address(4)], FI_SYNC_ERR, ptr::null_mut()).0, EINVAL);
    assert_eq!(
        call_insert(av, &[make_address(4)], 1 << 3, ptr::null_mut()),
        (1, vec![1]),
        "a flag without a meaning"
    );
    assert_eq!(call_insert(av, &[make_address(4)], FI_AV_USER_ID, ptr::null_mut()).0, -260);
}

#[test]
fn removed_address_is_not_found() {
    let av = &open_disabled_node().av;
    let (_, mut found) = call_insert(av, &[make_address(1), make_address(2)], 0, ptr::null_mut());
    let pointer = av.as_ptr();
    // SAFETY: the vector is open, and the array has at least `count` addresses.
    let mut remove =
        |count, flags| unsafe { ((*(*pointer).ops).remove)(pointer, found.as_mut_ptr(), count, flags) };
    assert_eq!(remove(1, 1 << 3), 0, "no flag has a meaning");
    assert_eq!(remove(1, 0), 0, "what is not there is ignored");
    assert_eq!(call_lookup(av, 0, 16).0, EINVAL);
    assert_eq!(call_lookup(av, 1, 16).0, 0);
}

#[test]
fn insertsym_inserts_ranges_of_nodes_and_services() {
    let av = &open_disabled_node().av;
    let pointer = av.as_ptr();
    let mut found = [77; 4];
    let mut insertsym = |node: *const c_char, nodes, service: *const c_char, services| {
        // SAFETY: the vector is open, and the strings are null or valid. `found` has room for all
        // addresses.
        unsafe {
            let insertsym = (*(*pointer).ops).insertsym;
            insertsym(pointer, node, nodes, service, services, found.as_mut_ptr(), 0, ptr::null_mut())
        }
    };
    let (node, service) = (c"192.0.2.9".as_ptr(), c"4711".as_ptr());
    assert_eq!(insertsym(ptr::null(), 1, service, 1), EINVAL);
    assert_eq!(insertsym(node, 1, ptr::null(), 1), EINVAL);
    assert_eq!(insertsym(node, usize::MAX, service, 2), EINVAL);
    assert_eq!(insertsym(node, 1, c"65535".as_ptr(), 2), EINVAL);
    assert_eq!(insertsym(node, 0, service, 2), 0);
    assert_eq!(insertsym(node, 2, service, 2), 4);
    assert_eq!(found, [0, 1, 2, 3]);
    let last = call_lookup(av, 3, 16).1;
    assert_eq!((&last[2..4], &last[4..8]), (&4712_u16.to_be_bytes()[..], &[192, 0, 2, 10][..]));
}

#[test]
fn insertsvc_resolves_node_and_service() {
    let av = &open_disabled_node().av;
    let pointer = av.as_ptr();
    let mut found = 77;
    // SAFETY: the vector is open and the strings are valid.
    unsafe {
        let insertsvc = (*(*pointer).ops).insertsvc;
        let (node, service) = (c"192.0.2.9".as_ptr(), c"4711".as_ptr());
        assert_eq!(insertsvc(pointer, node, service, &raw mut found, 0, ptr::null_mut()), 1);
        assert_eq!(call_lookup(av, found, 16), (0, make_address(9), 16));
        assert!(insertsvc(pointer, c"::1".as_ptr(), service, &raw mut found, 0, ptr::null_mut()) < 0);
        assert_eq!(found, FI_ADDR_NOTAVAIL);
        assert_eq!(insertsvc(pointer, node, ptr::null(), &raw mut found, 0, ptr::null_mut()), EINVAL);
    }
}

#[test]
fn straddr_prints_addresses() {
    let av = &open_disabled_node().av;
    let pointer = av.as_ptr();
    let mut buf = [0x7f; 64];
    let mut len_bytes = buf.len();
    // SAFETY: the vector is open, and the length is at most the buffer's.
    unsafe {
        let straddr = (*(*pointer).ops).straddr;
        let printed = straddr(pointer, make_address(5).as_ptr().cast(), buf.as_mut_ptr(), &raw mut len_bytes);
        assert_eq!(printed, buf.as_ptr());
        assert_eq!(read_c_str(printed), "fi_sockaddr_in://192.0.2.5:4711");
        assert_eq!(len_bytes, read_c_str(printed).len() + 1);
        len_bytes = 8;
        straddr(pointer, make_address(5).as_ptr().cast(), buf.as_mut_ptr(), &raw mut len_bytes);
        assert_eq!((read_c_str(buf.as_ptr()), len_bytes), ("fi_sock", 32));
    }
}

#[test]
fn av_open_returns_the_vector_type() {
    let node = open_disabled_node();
    let mut attr = av_attr();
    drop(node.domain.open_av(&mut attr).expect("an address vector"));
    assert!(matches!(attr.r#type, 1 | 2));
}
