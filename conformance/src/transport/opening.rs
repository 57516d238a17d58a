//! How endpoints are opened, and where.

use homespun_engine::errno::Errno;
use homespun_engine::limits::MESSAGE_MAX_BYTES;
use homespun_engine::transport::{Provider, Transport};

use crate::transport::TestEndpoint;

/// [`Provider::attr`] names a domain, at least one address format, and a largest message that a frame can carry.
pub fn a_provider_says_what_it_can_do<P: Provider>(provider: &P) {
    let attr = provider.attr();
    assert!(!attr.domain.is_empty());
    assert!(!attr.formats.is_empty());
    assert!(attr.local || attr.remote, "nobody is reached");
    assert!((1..=MESSAGE_MAX_BYTES).contains(&attr.max_message_bytes));
    assert_eq!(provider.attr(), attr, "asked twice, answered in two ways");
}

/// Where an endpoint was bound to a wildcard, [`Transport::address`] names an interface of this host and a port, for every
/// format that the provider has. Ports of endpoints that are open at the same time differ.
pub fn a_wildcard_becomes_an_address_that_others_can_use<P: Provider>(provider: &P) {
    for format in provider.attr().formats {
        let [a, b] = [11, 22].map(|instance| TestEndpoint::open_at(provider, format.wildcard(), instance));
        for endpoint in [&a, &b] {
            assert!(endpoint.address().is_specific());
            assert_ne!(endpoint.address().port(), 0);
            assert_eq!(endpoint.address().format(), format);
        }
        assert_ne!(a.address(), b.address());
    }
}

/// [`Provider::open`] binds an endpoint to the address and the port that it is given.
pub fn an_endpoint_is_bound_where_it_is_told<P: Provider>(provider: &P) {
    for format in provider.attr().formats {
        let free = TestEndpoint::open_at(provider, format.wildcard(), 11).address();
        assert_eq!(TestEndpoint::open_at(provider, free, 22).address(), free);
        let somewhere = TestEndpoint::open_at(provider, free.with_port(0), 33).address();
        assert_eq!(somewhere.ip(), free.ip());
        assert_ne!(somewhere.port(), 0);
    }
}

/// [`Provider::open`] answers EADDRINUSE for an address that has an endpoint, and opens another there once the transport
/// of the first was dropped.
pub fn an_address_has_one_endpoint_at_a_time<P: Provider>(provider: &P) {
    for format in provider.attr().formats {
        let a = TestEndpoint::open_at(provider, format.wildcard(), 11);
        let address = a.address();
        assert_eq!(provider.open(address, 22).err(), Some(Errno::EADDRINUSE));
        drop(a);
        let successor = provider.open(address, 22).expect("the address is free again");
        assert_eq!(successor.address(), address);
    }
}
