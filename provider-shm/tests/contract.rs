//! The contract of a transport over shared memory.

use homespun_conformance::transport::Backend;
use homespun_shm::ShmProvider;

homespun_conformance::transport_contract!(ShmProvider::new());

/// The contract tests pulling and waking only if the provider offers them.
#[test]
fn provider_pulls_and_wakes() {
    assert!(homespun_conformance::transport::pulls(Backend::new(&ShmProvider::new())));
    assert!(homespun_conformance::transport::wakes(Backend::new(&ShmProvider::new())));
}
