//! The work of a forked child. Operations on the inherited endpoint fail, and a send on a new endpoint
//! succeeds.

use std::collections::BTreeSet;

use homespun::endpoint::SendMsg;
use homespun::flags::OpFlags;
use homespun::transport::LinkError;
use homespun::{Address, Bytes, CompletionQueue, FabricAddress, OperationError, RemoteMemory};

use super::deadline::Deadline;
use super::ended::poll_completion;
use super::net::Net;
use super::party::Party;
use super::payload::{marked_buffer, payload};
use super::rma_call::{RmaBy, RmaCall};
use super::transport::{TransportKind, Turns};

/// After this many rounds without an event, no further event is expected.
const SILENT_ROUNDS: usize = 200;

/// The first context of the child's own sends.
const SENDS: u64 = 1 << 32;

/// The context of the child's write to the memory of a peer.
const WRITE: u64 = SENDS + LENS_BYTES.len() as u64;

/// The context of the child's receives.
const RECEIVE: u64 = 2 << 32;

/// The lengths of the child's messages.
const LENS_BYTES: [usize; 4] = [0, 8, 5000, 100_000];

/// Posts sends, receives and a write at the inherited endpoint. Checks that the sends and the write fail,
/// and that the receives stay posted until the child cancels them. Then closes the endpoint, and checks that
/// the queue is empty.
///
/// The parent has accessed this region of the peer.
pub(super) fn check_inherited_endpoint_is_unusable(
    party: &mut Party,
    peer: Address,
    RemoteMemory { address, key }: RemoteMemory,
) {
    let to = party.insert(peer);
    let Party { endpoint, cq, .. } = party;
    for (context, len_bytes) in (SENDS..).zip(LENS_BYTES) {
        let (buffers, flags) = (vec![payload(context, len_bytes)], OpFlags::INJECT_COMPLETE);
        let send = SendMsg { buffers, to, context, flags, ..SendMsg::default() };
        endpoint.sendmsg(send).expect("room for a send");
        endpoint.inject(b"lost", to, None, None).expect("room for a send");
        endpoint.recv(marked_buffer(8), FabricAddress::UNSPECIFIED, RECEIVE).expect("room for a receive");
    }
    let write = RmaCall {
        by: RmaBy::Write,
        buffers: vec![payload(WRITE, 8)],
        peer: to,
        address,
        key,
        data: None,
        context: WRITE,
        flags: OpFlags::empty(),
    };
    endpoint.rma(write).expect("room for a write");
    wait_for_all_sends_failed(cq);
    for _ in LENS_BYTES {
        endpoint.cancel(RECEIVE).expect("the receive stays posted");
        let ended = poll_completion(cq).expect("a cancelled receive completes at once");
        let cancelled = ended.expect_err("it was cancelled");
        assert_eq!(cancelled.error, OperationError::Cancelled);
    }
    endpoint.close();
    assert!(poll_completion(cq).is_none(), "an operation has ended twice");
}

/// Waits until all sends and the write have failed. Operations that the parent had posted before the fork
/// also fail in the child. In the parent these operations continue.
fn wait_for_all_sends_failed(cq: &CompletionQueue) {
    let mut unended: BTreeSet<u64> = (SENDS..=WRITE).collect();
    let deadline = Deadline::new();
    let mut silent_rounds = 0;
    while !unended.is_empty() || silent_rounds < SILENT_ROUNDS {
        match poll_completion(cq) {
            // An operation of the parent had completed before the fork.
            Some(Ok((completion, _))) => assert!(completion.context < SENDS, "{completion:?}"),
            Some(Err(failed)) => {
                let is_denied = matches!(failed.error, OperationError::Link(LinkError::Denied(_)));
                assert!(is_denied, "{failed:?}");
                unended.remove(&failed.completion.context);
            }
            None => silent_rounds += 1,
        }
        deadline.yield_or_panic("the end of a child's sends");
    }
}

/// Sends a message from a new endpoint of the child.
pub(super) fn send_from_new_endpoint(transport: &TransportKind, peer: Address, message: Bytes) {
    let net = Net::new(transport, Turns::Alternate);
    let party = net.open_party();
    party.insert(peer);
    party.send(SENDS, message);
}
