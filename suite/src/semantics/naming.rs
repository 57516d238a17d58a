//! Names of endpoints, and messages to these names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::prelude::*;

#[track_caller]
fn send_and_check_source(from: &Party, to: &Party) {
    to.post_receives([1], 8);
    from.endpoint.send(payload(1, 8), from.fabric_address_of(to), 2).unwrap();
    let (completion, source) = to.next_completion_with_source();
    assert_eq!((completion.context, source), (1, to.fabric_address_of(from)));
    assert_eq!(received_bytes(&completion.buffer), payload(1, 8));
    assert_eq!(from.next_completion().context, 2);
}

/// Shows fi_cm/getname-after-enable, fi_cq/source-is-usable.
#[over(all, own)]
fn endpoint_is_reached_by_its_name(net: &Net) {
    let format = net.info().addr_format.expect("an answer has a format");
    for at in [None, Some(format.wildcard())] {
        let (alice, bob) = net.open_equal_pair(Setup { at, ..Setup::default() });
        for party in [&alice, &bob] {
            let name = party.endpoint.name().unwrap();
            assert!(name.is_specific() && name.port() != 0, "{name}");
            assert_eq!(name.format(), format);
            assert_eq!(party.endpoint.name().unwrap(), name, "it stays the same");
        }
        send_and_check_source(&alice, &bob);
        send_and_check_source(&bob, &alice);
    }
}

/// Shows fi_cm/setname.
#[over(one_process)]
fn endpoint_has_the_name_it_was_given(net: &Net) {
    // The address is free again at once.
    let address = net.reserve_vacant_address().address;
    let (endpoint, _cq, _av) = open_disabled_endpoint(&net.open_other_domain(), net.info());
    endpoint.set_name(address).unwrap();
    assert_eq!(endpoint.name().unwrap(), address);
    expect_error(endpoint.set_name(address), Errno::EOPBADSTATE);
    endpoint.enable().unwrap();
    assert_eq!(endpoint.name().unwrap(), address);
}

/// Shows fi_cm/setname-format, fi_cm/setname-without-service, fi_av/insert-has-domain-format.
#[over(one_process)]
fn names_have_the_format_of_the_domain_and_need_no_port(net: &Net) {
    let format = net.info().addr_format.expect("an answer has a format");
    let (other, ip) = match format {
        AddressFormat::SockaddrIn => (AddressFormat::SockaddrIn6, IpAddr::from(Ipv6Addr::LOCALHOST)),
        AddressFormat::SockaddrIn6 => (AddressFormat::SockaddrIn, IpAddr::from(Ipv4Addr::LOCALHOST)),
    };
    let domain = net.open_other_domain();
    let (endpoint, _cq, av) = open_disabled_endpoint(&domain, net.info());
    expect_error(endpoint.set_name(other.wildcard()), Errno::EINVAL);
    endpoint.set_name(format.wildcard()).unwrap();
    endpoint.enable().unwrap();
    let name = endpoint.name().unwrap();
    assert_ne!(name.port(), 0);
    expect_error(av.insert_one(SocketAddr::new(ip, name.port()).into()), Errno::EINVAL);
}

#[over(all, native)]
fn name_of_another_endpoint_fails_with_eaddrinuse(net: &Net) {
    let (alice, bob) = net.open_pair();
    let domain = net.open_other_domain();
    let second = domain.endpoint(net.info()).unwrap();
    let address = bob.endpoint.name().unwrap();
    second.set_name(address).unwrap();
    for refused in [second.name(), second.name()].map(Result::unwrap_err) {
        assert_eq!(refused.errno(), Errno::EADDRINUSE);
        assert!(refused.to_string().contains(&address.to_string()), "{refused} names the address");
    }
    send_and_check_source(&alice, &bob);
    // The failed endpoint may take another name.
    second.set_name(net.info().src_addr.expect("the transport has an address")).unwrap();
    second.name().unwrap();
}
