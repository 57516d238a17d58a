//! Address vectors.

use crate::prelude::*;

/// Returns the address 192.0.2.`host` in its C form.
fn make_address(host: u8) -> [u8; 16] {
    crate::host::make_address([192, 0, 2, host], 4711)
}

fn insert(av: &Object<FidAv>, addresses: &[[u8; 16]], flags: u64, errors: *mut c_int) -> (c_int, Vec<u64>) {
    let mut found = vec![77; addresses.len()];
    let (bytes, count) = (addresses.as_ptr().cast(), addresses.len());
    (call!(av, ops.insert, bytes, count, found.as_mut_ptr(), flags, errors.cast()), found)
}

fn lookup(av: &Object<FidAv>, fi_addr: u64, room_bytes: usize) -> (c_int, [u8; 16], usize) {
    let (mut found, mut len_bytes) = ([0; 16], room_bytes);
    let result = call!(av, ops.lookup, fi_addr, found.as_mut_ptr().cast(), &raw mut len_bytes);
    (result, found, len_bytes)
}

/// Shows fi_cq/source-in-map, fi_av/table-has-indices, fi_av/map-returns-addresses, fi_av/unspecified-type,
/// fi_av/removed-address-is-invalid,
/// fi_av/lookup-returns-inserted-address, fi_av/lookup-truncates.
#[test]
fn inserted_addresses_are_found_until_they_are_removed() {
    let none = ptr::null_mut();
    // FI_AV_UNSPEC, FI_AV_MAP and FI_AV_TABLE.
    for av_type in 0..=2 {
        let node = Node::open_disabled();
        let mut attr = FiAvAttr { r#type: av_type, ..av_attr() };
        let av = Object::open(|av| call!(node.domain, ops.av_open, &raw mut attr, av, NULL));
        let av = &av.expect("an address vector");
        assert!(if av_type == 0 { matches!(attr.r#type, 1 | 2) } else { attr.r#type == av_type });
        let addresses = [1, 2, 3].map(make_address);
        assert_eq!(insert(av, &addresses, 0, none), (3, vec![0, 1, 2]));
        assert_eq!(lookup(av, 1, 16), (0, addresses[1], 16));
        let (result, found, len_bytes) = lookup(av, 2, 8);
        assert_eq!((result, len_bytes, &found[..8], &found[8..]), (0, 16, &addresses[2][..8], &[0; 8][..]));
        assert_eq!(lookup(av, 3, 16).0, EINVAL);
        assert_eq!(insert(av, &[], 0, none).0, 0);
        // No flag has a meaning, and what is not there is ignored.
        assert_eq!([1 << 3, 0].map(|flags| call!(av, ops.remove, &mut 0, 1, flags)), [0; 2]);
        assert_eq!((lookup(av, 0, 16).0, lookup(av, 1, 16).0), (EINVAL, 0));
    }
}

/// Shows fi_av/index-without-result, fi_av/sync-err-reports-each, fi_av/insertion-returns-count,
/// fi_av/failed-insertion-notavail, fi_av/user-identifiers.
#[test]
fn invalid_address_is_reported_and_takes_an_index() {
    let av = &Node::open_disabled().av;
    let mut alien = make_address(2);
    alien[0] = libc::AF_UNIX as u8;
    let mut errors = [99; 3];
    let mixed = [make_address(1), alien, make_address(3)];
    let inserted = insert(av, &mixed, FI_SYNC_ERR, errors.as_mut_ptr());
    assert_eq!((inserted, errors), ((2, vec![0, FI_ADDR_NOTAVAIL, 2]), [0, -EINVAL, 0]));
    let insert = |flags| insert(av, &[make_address(4)], flags, ptr::null_mut());
    assert_eq!((insert(FI_SYNC_ERR).0, insert(FI_AV_USER_ID).0), (EINVAL, EBADFLAGS));
    assert_eq!(insert(1 << 3), (1, vec![1]), "a flag without a meaning");
    let address = make_address(5);
    let inserted = call!(av, ops.insert, address.as_ptr().cast(), 1, ptr::null_mut(), 0, NULL);
    assert_eq!((inserted, lookup(av, 3, 16)), (1, (0, address, 16)), "the index is known");
}

/// Shows fi_av/insertsvc, fi_av/insertsym-order.
#[test]
fn addresses_are_inserted_by_names() {
    let av = &Node::open_disabled().av;
    let mut found = [77; 4];
    let (node, service) = (c"192.0.2.9".as_ptr(), c"4711".as_ptr());
    for (node, nodes, service, services, answer) in [
        (ptr::null(), 1, service, 1, EINVAL),
        (node, 1, ptr::null(), 1, EINVAL),
        (node, usize::MAX, service, 2, EINVAL),
        (node, 1, c"65535".as_ptr(), 2, EINVAL),
        (node, 0, service, 2, 0),
        (node, 2, service, 2, 4),
    ] {
        let found = found.as_mut_ptr();
        let inserted = call!(av, ops.insertsym, node, nodes, service, services, found, 0, NULL);
        assert_eq!(inserted, answer, "{nodes} nodes, {services} services");
    }
    assert_eq!(found, [0, 1, 2, 3]);
    assert_eq!(lookup(av, 0, 16), (0, make_address(9), 16));
    let last = lookup(av, 3, 16).1;
    assert_eq!((&last[2..4], &last[4..8]), (&4712_u16.to_be_bytes()[..], &[192, 0, 2, 10][..]));

    let mut found = 77;
    let mut insertsvc = |node: *const c_char, service: *const c_char| {
        (call!(av, ops.insertsvc, node, service, &raw mut found, 0, NULL), found)
    };
    assert_eq!(insertsvc(node, service), (1, 4));
    let (result, found) = insertsvc(c"::1".as_ptr(), service);
    assert!(result < 0 && found == FI_ADDR_NOTAVAIL);
    assert_eq!(insertsvc(node, ptr::null()).0, EINVAL);
    assert_eq!(insertsvc(c"localhost".as_ptr(), service), (1, 5));
    assert_eq!(lookup(av, 4, 16), (0, make_address(9), 16));
}

/// Shows fi_av/straddr-truncates.
#[test]
fn straddr_prints_addresses() {
    let av = &Node::open_disabled().av;
    let (mut buf, address) = ([0x7f; 64], make_address(5));
    for (room_bytes, text) in [(64, "fi_sockaddr_in://192.0.2.5:4711"), (8, "fi_sock")] {
        let mut len_bytes = room_bytes;
        let printed = call!(av, ops.straddr, address.as_ptr().cast(), buf.as_mut_ptr(), &raw mut len_bytes);
        assert_eq!((printed, read_c_str(printed), len_bytes), (buf.as_ptr(), text, 32));
    }
}
