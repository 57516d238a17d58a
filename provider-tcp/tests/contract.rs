//! The contract of a transport over TCP.

use homespun_conformance::transport::Backend;
use homespun_tcp::TcpProvider;

homespun_conformance::transport_contract!(TcpProvider::new());

/// With small socket buffers, so that links are often full and frames are often cut.
mod tight {
    use super::*;

    homespun_conformance::transport_contract!(
        TcpProvider::new().with_send_buffer_bytes(4 * 1024).with_receive_buffer_bytes(4 * 1024)
    );
}

/// The contract tests waking only if the provider offers it.
#[test]
fn provider_wakes() {
    assert!(homespun_conformance::transport::wakes(Backend::new(&TcpProvider::new())));
}
