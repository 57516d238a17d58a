//! Writes with remote data that take receives over a connection: `FI_RX_CQ_DATA` of `fi_getinfo(3)`.

use super::prelude::*;
use super::rx_cq_data::{NOTIFIED, RECEIVED, fields};

/// Shows rpma_cq_get_completion/op-recv-with-imm.
#[over(connected, native)]
fn connection_completes_receives_with_remote_data_in_order(net: &Net) {
    const LONG_BYTES: usize = 300_000;
    let (client, mut server) = (Side::new(net), Side::new(net));
    // The endpoints of requests have the mode of the passive endpoint.
    server.info.mode = Mode::RX_CQ_DATA;
    let (one, other) = connect_pair(&client, &server);
    let memory = server.domain.register(LONG_BYTES, &MrAttr::granting(MrAccess::REMOTE_WRITE)).unwrap();
    let write = |data: u64, len_bytes: usize| {
        let buffers = vec![payload(data, len_bytes)];
        let (memory, flags) = (memory.remote(), OpFlags::empty());
        one.writemsg(WriteMsg { buffers, to: ANY, memory, data: Some(data), context: data, flags }).unwrap();
    };
    write(70, 8);
    assert_eq!(next_completion_of_first_side(&[&client, &server]).context, 70);
    // The payload of this message is fetched. Its receive still completes before the next one.
    one.send(payload(1, LONG_BYTES), ANY, 1).unwrap();
    write(71, 100);
    (1..=4).for_each(|context| other.recv(marked_buffer(LONG_BYTES), ANY, context).unwrap());
    write(72, 0);
    let told: Vec<_> = (0..4).map(|_| fields(&next_completion_of_first_side(&[&server, &client]))).collect();
    let expected =
        [(1, NOTIFIED, 8, 70), (2, RECEIVED, LONG_BYTES, 0), (3, NOTIFIED, 100, 71), (4, NOTIFIED, 0, 72)];
    assert_eq!(told, expected);
    expect_each_of_first_side(&[&client, &server], [1, 71, 72]);
}
