//! Writes with remote data that take receives of a shared context: `FI_RX_CQ_DATA` of `fi_getinfo(3)`.

use super::prelude::*;
use super::rx_cq_data::{NOTIFIED, ROOM_BYTES, fields};
use super::shared_contexts::Sharers;

/// One endpoint of the context has the mode, and the other does not.
#[over(one_process, automatic)]
fn remote_data_takes_receives_of_a_shared_context_by_the_mode_of_its_endpoint(net: &Net) {
    let mut sharers = Sharers::new(net, 1);
    sharers.info.mode = Mode::RX_CQ_DATA;
    sharers.add_member();
    let (peer, _) = sharers.open_peer();
    let memory = sharers.domain.register(8, &MrAttr::granting(MrAccess::REMOTE_WRITE)).unwrap();
    let write = |member: usize, data: u64| {
        let (endpoint, to) = (peer.endpoint.expect_local(), FabricAddress(member as u64));
        endpoint.writedata(payload(data, 8), data, to, memory.remote(), data).unwrap();
    };
    let next_fields = |member| fields(&sharers.next_ended(member).unwrap().0);
    sharers.context.recv(marked_buffer(ROOM_BYTES), ANY, 1).unwrap();
    write(0, 70);
    assert_eq!(next_fields(0), (0, NOTIFIED, 8, 70));
    write(1, 71);
    assert_eq!(next_fields(1), (1, NOTIFIED, 8, 71));
    write(1, 72);
    sharers.drive_repeatedly();
    sharers.context.recv(marked_buffer(ROOM_BYTES), ANY, 2).unwrap();
    assert_eq!(next_fields(1), (2, NOTIFIED, 8, 72));
}
