//! The checks of modes.

use homespun::flags::{CompletionFlags, Mode};
use homespun::info::Info;

use super::Check;
use super::endpoint_pair::{ANY, EndpointPair, REMOTE};
use homespun::MrAttr;
use homespun_suite::payload::{marked_buffer, payload};

/// The check of each mode.
pub(crate) const CHECKS: &[(Mode, Check)] = &[(Mode::RX_CQ_DATA, check_remote_data_takes_receives)];

fn check_remote_data_takes_receives(info: &Info) {
    let pair = EndpointPair::open(info);
    let EndpointPair { alice, bob, domain } = &pair;
    let memory = domain.register(8, &MrAttr::granting(REMOTE)).unwrap();
    bob.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
    alice.endpoint.writedata(payload(1, 8), 70, alice.peer, memory.remote(), 9).unwrap();
    let told = pair.next_completion(bob);
    let flags = CompletionFlags::RMA | CompletionFlags::REMOTE_WRITE | CompletionFlags::REMOTE_CQ_DATA;
    assert_eq!((told.context, told.flags, told.len_bytes, told.data), (1, flags, 8, 70));
    assert_eq!(pair.next_completion(alice).context, 9);
}
