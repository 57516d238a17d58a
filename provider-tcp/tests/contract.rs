//! The contract of a transport over TCP.

use homespun_tcp::TcpProvider;

homespun_conformance::transport_contract!(TcpProvider::new(), features: [splits, wakes]);

/// The socket buffers are small. So links are often full, and frames are often cut.
mod tight {
    use super::*;

    homespun_conformance::transport_contract!(
        TcpProvider::new().with_send_buffer_bytes(4 * 1024).with_receive_buffer_bytes(4 * 1024),
        features: [splits, wakes],
    );
}
