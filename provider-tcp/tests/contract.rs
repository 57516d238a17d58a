//! The contract of a transport over TCP.

use homespun_tcp::TcpProvider;

homespun_conformance::transport_contract!(TcpProvider::new());

/// With sockets whose buffers hold little, so that links are full and frames are cut all the time.
mod tight {
    use super::*;

    homespun_conformance::transport_contract!(
        TcpProvider::new().with_send_buffer_bytes(4 * 1024).with_receive_buffer_bytes(4 * 1024)
    );
}

/// Otherwise the contract demands nothing of the kind.
#[test]
fn provider_wakes() {
    assert!(homespun_conformance::transport::wakes(&TcpProvider::new()));
}
