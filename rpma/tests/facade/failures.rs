//! Operations that fail: bad keys and ranges, missing rights, receives that are too short.

use crate::prelude::*;

/// What a test does to a peer's memory.
type Access = fn(&Connection, &Memory, RemotePlace) -> Result<(), Error>;

const READ: Access = |connection, here, there| connection.read(here.all(), there, Report::OnError, 7);
const WRITE: Access = |connection, here, there| connection.write(there, here.all(), Report::OnError, 7);
const WRITE_WITH_IMM: Access =
    |connection, here, there| connection.write_with_imm(there, here.all(), Report::OnError, 1, 7);
const ATOMIC_WRITE: Access =
    |connection, _here, there| connection.atomic_write(there, [1; 8], Report::OnError, 7);
const ACCESSES: [Access; 4] = [READ, WRITE, WRITE_WITH_IMM, ATOMIC_WRITE];

/// Makes an access on a connection of its own, and expects that the peer refuses it.
#[track_caller]
fn expect_refusal(net: &Net, access: Access, target: impl FnOnce(&Memory) -> RemotePlace, usage: Usage) {
    let Pair { client, server, client_peer, server_peer } = Pair::connect(net);
    let here = Memory::with(&client_peer, &payload(1, 8), Usage::READ_DST | Usage::WRITE_SRC);
    let there = Memory::with(&server_peer, &payload(2, 16), usage);
    access(&client, &here, target(&there)).unwrap();
    expect_failure(client.completion_queue(), Status::RemoteAccess, 7);
    expect_event(&client, ConnectionEvent::Closed);
    expect_event(&server, ConnectionEvent::Closed);
    assert_eq!((here.read(0, 8), there.read(0, 16)), (payload(1, 8), payload(2, 16)));
}

const BOTH: Usage = Usage::READ_SRC.union(Usage::WRITE_DST);

/// Shows rpma_cq_get_completion/access-error-completes, rpma_cq_get_completion/atomic-write-error-completes.
pub(crate) fn access_with_an_unknown_key_fails(net: &Net) {
    for access in ACCESSES {
        let with_other_key = |there: &Memory| {
            let mut descriptor = there.region().descriptor();
            descriptor[16] ^= 0x55;
            RemoteMemoryRegion::from_descriptor(&descriptor).unwrap().at(0)
        };
        expect_refusal(net, access, with_other_key, BOTH);
    }
}

/// Shows rpma_cq_get_completion/access-error-completes.
pub(crate) fn access_beyond_the_region_fails(net: &Net) {
    for access in ACCESSES {
        for offset_bytes in [16, 1 << 40, u64::MAX - 7] {
            expect_refusal(net, access, |there| there.remote().at(offset_bytes), BOTH);
        }
    }
    // Over the end, and before the start.
    for access in [READ, WRITE] {
        for offset_bytes in [9, u64::MAX] {
            expect_refusal(net, access, |there| there.remote().at(offset_bytes), BOTH);
        }
    }
}

/// Shows rpma_cq_get_completion/access-error-completes, rpma_cq_get_completion/atomic-write-error-completes.
pub(crate) fn access_without_the_right_fails(net: &Net) {
    for access in [WRITE, WRITE_WITH_IMM, ATOMIC_WRITE] {
        expect_refusal(net, access, |there| there.remote().at(0), Usage::READ_SRC);
    }
    expect_refusal(net, READ, |there| there.remote().at(0), Usage::WRITE_DST);
    for access in ACCESSES {
        expect_refusal(net, access, |there| there.remote().at(0), Usage::SEND | Usage::RECV);
    }
}

/// Shows rpma_cq_get_completion/flush-error-completes.
pub(crate) fn flush_beyond_the_region_fails(net: &Net) {
    for (offset_bytes, len_bytes) in [(0, 17), (16, 1), (u64::MAX - 3, 4), (1, 1 << 39)] {
        let Pair { client, server: _server, server_peer, .. } = Pair::connect(net);
        let usage = Usage::WRITE_DST | Usage::FLUSH_TYPE_VISIBILITY;
        let there = Memory::zeroed(&server_peer, 16, usage).remote();
        let flush_type = FlushType::Visibility;
        client.flush(&there, offset_bytes, len_bytes, flush_type, Report::OnError, 7).unwrap();
        expect_failure(client.completion_queue(), Status::RemoteAccess, 7);
    }
    let Pair { client, server: _server, server_peer, .. } = Pair::connect(net);
    let there = Memory::zeroed(&server_peer, 16, Usage::WRITE_DST | Usage::FLUSH_TYPE_VISIBILITY).remote();
    let refused = client.flush(&there, 0, u64::MAX, FlushType::Visibility, Report::OnError, 7);
    assert!(matches!(refused, Err(Error::Invalid(Invalid::TooLong { .. }))), "{refused:?}");
}

/// Shows rpma_cq_get_completion/later-operations-complete-after-error,
/// rpma_cq_get_completion/failed-status-leaves-context.
pub(crate) fn operations_after_a_failure_are_flushed(net: &Net) {
    let Pair { client, server, client_peer, server_peer } = Pair::connect_deep(net);
    let here_for = Usage::READ_DST | Usage::WRITE_SRC | Usage::SEND | Usage::RECV;
    let here = Memory::zeroed(&client_peer, 8, here_for);
    let there_for = BOTH | Usage::FLUSH_TYPE_VISIBILITY;
    let there = Memory::zeroed(&server_peer, 8, there_for).remote();
    for context in 0..3 {
        client.recv(here.slice(0, 0), 100 + context).unwrap();
    }
    client.write(there.at(8), here.all(), Report::OnError, 0).unwrap();
    // The failure may be there before the last of them is posted.
    for context in 1..11 {
        let posted = match context % 5 {
            0 => client.send(here.slice(0, 0), Report::OnError, context),
            1 => client.read(here.all(), there.at(0), Report::OnError, context),
            2 => client.flush(&there, 0, 8, FlushType::Visibility, Report::OnError, context),
            3 => client.atomic_write(there.at(0), [1; 8], Report::OnError, context),
            _ => client.write(there.at(0), here.all(), Report::OnError, context),
        };
        posted.unwrap();
    }
    let mut ended = Vec::new();
    while ended.len() < 4 + 10 {
        let completion = next_completion(client.completion_queue());
        ended.push((completion.op_context, completion.status));
    }
    let of_operations: Vec<_> = ended.iter().filter(|(context, _)| *context < 100).collect();
    assert_eq!(*of_operations[0], (0, Status::RemoteAccess));
    for (expected, (context, status)) in (1..).zip(&of_operations[1..]) {
        assert_eq!((*context, *status), (expected, Status::Flushed));
    }
    let of_receives: Vec<_> = ended.iter().filter(|(context, _)| *context >= 100).collect();
    assert_eq!(of_receives, [&(100, Status::Flushed), &(101, Status::Flushed), &(102, Status::Flushed)]);
    expect_event(&client, ConnectionEvent::Closed);
    // Posts after the failure have the same end, until this side disconnects.
    client.write(there.at(0), here.all(), Report::OnError, 11).unwrap();
    expect_failure(client.completion_queue(), Status::Flushed, 11);
    client.recv(here.slice(0, 0), 103).unwrap();
    expect_failure(client.completion_queue(), Status::Flushed, 103);
    assert_eq!(client.disconnect(), Ok(()));
    assert_eq!(client.write(there.at(0), here.all(), Report::Always, 1), Err(Error::NotConnected));
    assert_eq!(client.recv(here.slice(0, 0), 104), Err(Error::NotConnected));
    expect_event(&server, ConnectionEvent::Closed);
}

/// Shows rpma_cq_get_completion/receive-error-completes.
pub(crate) fn message_longer_than_its_receive_fails(net: &Net) {
    for len_bytes in [9, 300_000] {
        let Pair { client, server, client_peer, server_peer } = Pair::connect(net);
        let sent = Memory::with(&client_peer, &payload(1, len_bytes), Usage::SEND);
        let received = Memory::zeroed(&server_peer, 16, Usage::RECV);
        server.recv(received.slice(0, 8), 1).unwrap();
        server.recv(received.slice(8, 8), 2).unwrap();
        client.recv(LocalSlice::EMPTY, 3).unwrap();
        client.send(sent.all(), Report::OnError, 4).unwrap();
        expect_failure(server.completion_queue(), Status::LocalLength, 1);
        expect_failure(server.completion_queue(), Status::Flushed, 2);
        expect_event(&server, ConnectionEvent::Closed);
        expect_event(&client, ConnectionEvent::Closed);
        let mut failed = [(); 2].map(|()| next_completion(client.completion_queue()));
        failed.sort_by_key(|completion| completion.op_context);
        let failed = failed.map(|completion| (completion.op_context, completion.status));
        assert_eq!(failed, [(3, Status::Flushed), (4, Status::RemoteInvalidRequest)]);
        assert_eq!(received.read(8, 8), [0; 8]);
    }
}

pub(crate) fn deregistered_region_is_out_of_reach(net: &Net) {
    let Pair { client, server: _server, client_peer, server_peer } = Pair::connect(net);
    let here = Memory::with(&client_peer, &payload(1, 8), Usage::WRITE_SRC);
    let there = Memory::zeroed(&server_peer, 8, Usage::WRITE_DST);
    let remote = there.remote();
    client.write(remote.at(0), here.all(), Report::Always, 1).unwrap();
    expect_success(client.completion_queue(), Operation::Write, 1);
    drop(there);
    client.write(remote.at(0), here.all(), Report::Always, 2).unwrap();
    expect_failure(client.completion_queue(), Status::RemoteAccess, 2);
}
