//! The contract of a transport over shared memory.

use homespun_shm::ShmProvider;

homespun_conformance::transport_contract!(ShmProvider::new());

/// Otherwise the contract demands nothing of the kind.
#[test]
fn provider_pulls_and_wakes() {
    assert!(homespun_conformance::transport::pulls(&ShmProvider::new()));
    assert!(homespun_conformance::transport::wakes(&ShmProvider::new()));
}
