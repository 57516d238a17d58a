//! Opening endpoints.

use homespun_engine::errno::Errno;
use homespun_engine::limits::MESSAGE_MAX_BYTES;
use homespun_engine::transport::{Provider, Transport};

use crate::transport::Backend;

/// [`Provider::attr`] names a domain, at least one address format, and the length of the largest message. A
/// frame can carry that length. The attributes never change.
pub fn provider_attr_is_complete_and_constant<P: Provider>(backend: Backend<'_, P>) {
    let attr = backend.provider().attr();
    assert!(!attr.domain.is_empty());
    assert!(!attr.formats.is_empty());
    assert!(attr.local || attr.remote, "the provider reaches no peer");
    assert!((1..=MESSAGE_MAX_BYTES).contains(&attr.max_message_bytes));
    assert_eq!(backend.provider().attr(), attr, "the attributes changed");
}

/// For every address format of the provider, an endpoint that is bound to a wildcard has a specific address
/// of this host, with a port ([`Transport::address`]). Two open endpoints have different addresses.
pub fn wildcard_bind_resolves_to_a_specific_address<P: Provider>(backend: Backend<'_, P>) {
    for format in backend.provider().attr().formats {
        let [a, b] = [11, 22].map(|instance| backend.open_endpoint_at(format.wildcard(), instance));
        for endpoint in [&a, &b] {
            assert!(endpoint.address().is_specific());
            assert_ne!(endpoint.address().port(), 0);
            assert_eq!(endpoint.address().format(), format);
        }
        assert_ne!(a.address(), b.address());
    }
}

/// [`Provider::open`] binds an endpoint to the requested address and port.
pub fn open_binds_to_the_requested_address<P: Provider>(backend: Backend<'_, P>) {
    for format in backend.provider().attr().formats {
        let free = backend.open_endpoint_at(format.wildcard(), 11).address();
        assert_eq!(backend.open_endpoint_at(free, 22).address(), free);
        let somewhere = backend.open_endpoint_at(free.with_port(0), 33).address();
        assert_eq!(somewhere.ip(), free.ip());
        assert_ne!(somewhere.port(), 0);
    }
}

/// [`Provider::open`] fails with EADDRINUSE at the address of an open endpoint. Once that endpoint's
/// transport was dropped, it succeeds.
pub fn open_at_an_address_in_use_fails_with_eaddrinuse<P: Provider>(backend: Backend<'_, P>) {
    for format in backend.provider().attr().formats {
        let a = backend.open_endpoint_at(format.wildcard(), 11);
        let address = a.address();
        assert_eq!(backend.provider().open(address, 22).err(), Some(Errno::EADDRINUSE));
        drop(a);
        let successor = backend.provider().open(address, 22).expect("the address is free again");
        assert_eq!(successor.address(), address);
    }
}
