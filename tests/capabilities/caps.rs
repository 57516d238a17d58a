//! Capabilities: `fi_getinfo(3)`.

use std::process;

use homespun::atomic::{AtomicOp, Datatype};
use homespun::endpoint::{AtomicTarget, SendMsg};
use homespun::flags::{CompletionFlags, CounterEvents, OpFlags};
use homespun::info::Info;
use homespun::trigger::{Operation, Trigger};
use homespun::{Bytes, BytesMut, Caps, CounterAttr, Errno, Fabric, Hints, MemoryRegion, Tag};

use crate::Check;
use crate::endpoint_pair::{ANY, EndpointPair, OpenAttr, TestEndpoint, read_content, with_caps};
use homespun_suite::files::NamedFile;
use homespun_suite::payload::{marked_buffer, payload, received_bytes};

/// The check of each capability.
pub(crate) const TABLE: &[(Caps, Check)] = &[
    (Caps::MSG, check_messages),
    (Caps::TAGGED, check_tagged_messages),
    (Caps::SEND, check_one_way_pair),
    (Caps::RECV, check_one_way_pair),
    (Caps::RMA, check_access_to_memory),
    (Caps::READ, check_read_only_initiator),
    (Caps::WRITE, check_write_only_initiator),
    (Caps::REMOTE_READ, check_read_only_target),
    (Caps::REMOTE_WRITE, check_write_only_target),
    (Caps::ATOMIC, check_atomic_operations),
    (Caps::RMA_EVENT, check_counted_accesses),
    (Caps::RMA_PMEM, check_durable_writes),
    (Caps::MULTI_RECV, check_multi_receive_buffer),
    (Caps::TRIGGER, check_triggered_operations),
    (Caps::FENCE, check_fence),
    (Caps::SOURCE, check_sources),
    (Caps::SOURCE_ERR, check_unknown_sources),
    (Caps::DIRECTED_RECV, check_directed_receives),
    (Caps::LOCAL_COMM, check_peers_on_this_host),
    (Caps::REMOTE_COMM, check_peers_on_other_hosts),
];

fn check_messages(info: &Info) {
    EndpointPair::open_with_caps(info, Caps::MSG).exchange_messages();
}

fn check_tagged_messages(info: &Info) {
    let pair = EndpointPair::open_with_caps(info, Caps::TAGGED);
    let EndpointPair { alice, bob, .. } = &pair;
    for (tag, ignore, context) in [(7, 0, 1), (0x30, 0xf, 2)] {
        bob.endpoint.trecv(marked_buffer(16), ANY, Tag(tag).ignoring(ignore), context).unwrap();
    }
    alice.endpoint.tsend(payload(1, 16), alice.peer, Tag(0x35), 1).unwrap();
    alice.endpoint.tsend(payload(2, 16), alice.peer, Tag(7), 2).unwrap();
    for (context, tag, identity) in [(2, 0x35, 1), (1, 7, 2)] {
        let completion = pair.next_completion(bob);
        assert_eq!((completion.context, completion.tag.0), (context, tag));
        assert!(received_bytes(&completion.buffer) == payload(identity, 16));
    }
}

/// Opens a pair. Alice has the capabilities of an initiator, and bob those of a target.
fn open_initiator_and_target(info: &Info, alice: Caps, bob: Caps) -> EndpointPair {
    EndpointPair::open_with_infos(&with_caps(info, alice), &with_caps(info, bob), &OpenAttr::default())
}

fn check_one_way_pair(info: &Info) {
    let pair = open_initiator_and_target(info, Caps::MSG | Caps::SEND, Caps::MSG | Caps::RECV);
    pair.send_and_receive(&pair.alice, &pair.bob, 5, 3000);
}

fn check_access_to_memory(info: &Info) {
    let pair = EndpointPair::open_with_caps(info, Caps::RMA);
    let region = pair.register_region(400_000, 7);
    for len_bytes in [1, 8, 20_000, 400_000] {
        pair.write_and_read(&region, &payload(len_bytes as u64, len_bytes));
    }
}

/// Writes to a region of bob's. Returns the result.
fn write_and_wait(pair: &EndpointPair, region: &MemoryRegion, message: Bytes) -> Result<(), Errno> {
    let TestEndpoint { endpoint, peer, .. } = &pair.alice;
    endpoint.write(message, *peer, region.remote(), 1).map_err(|refused| refused.errno())?;
    pair.next_operation_end(&pair.alice).map(|_| ()).map_err(|failed| failed.errno())
}

/// Reads from a region of bob's.
fn read_and_wait(pair: &EndpointPair, region: &MemoryRegion, len_bytes: usize) -> Result<Vec<u8>, Errno> {
    let TestEndpoint { endpoint, peer, .. } = &pair.alice;
    let into = marked_buffer(len_bytes);
    endpoint.read(into, *peer, region.remote(), 1).map_err(|refused| refused.errno())?;
    pair.next_operation_end(&pair.alice)
        .map(|(read, _)| received_bytes(&read.buffer))
        .map_err(|failed| failed.errno())
}

fn check_read_only_initiator(info: &Info) {
    let pair = open_initiator_and_target(info, Caps::RMA | Caps::READ, Caps::RMA);
    let region = pair.register_region(64, 7);
    region.write_at(0, &payload(1, 64)).unwrap();
    assert_eq!(read_and_wait(&pair, &region, 64), Ok(payload(1, 64).to_vec()));
}

fn check_write_only_initiator(info: &Info) {
    let pair = open_initiator_and_target(info, Caps::RMA | Caps::WRITE, Caps::RMA);
    let region = pair.register_region(64, 7);
    assert_eq!(write_and_wait(&pair, &region, payload(1, 64)), Ok(()));
    assert!(read_content(&region, 64) == payload(1, 64));
}

fn check_read_only_target(info: &Info) {
    let pair = open_initiator_and_target(info, Caps::RMA, Caps::RMA | Caps::REMOTE_READ);
    let region = pair.register_region(64, 7);
    region.write_at(0, &payload(1, 64)).unwrap();
    assert_eq!(read_and_wait(&pair, &region, 64), Ok(payload(1, 64).to_vec()));
    assert!(write_and_wait(&pair, &region, payload(2, 64)).is_err());
    assert!(read_content(&region, 64) == payload(1, 64));
}

fn check_write_only_target(info: &Info) {
    let pair = open_initiator_and_target(info, Caps::RMA, Caps::RMA | Caps::REMOTE_WRITE);
    let region = pair.register_region(64, 7);
    assert_eq!(write_and_wait(&pair, &region, payload(1, 64)), Ok(()));
    assert!(read_content(&region, 64) == payload(1, 64));
    assert!(read_and_wait(&pair, &region, 64).is_err());
}

fn check_atomic_operations(info: &Info) {
    let pair = EndpointPair::open_with_caps(info, Caps::ATOMIC);
    let TestEndpoint { endpoint, peer, .. } = &pair.alice;
    let region = pair.register_region(64, 7);
    let at = |op| AtomicTarget { peer: *peer, memory: region.remote(), datatype: Datatype::Uint64, op };
    let number = |number: u64| Bytes::copy_from_slice(&number.to_le_bytes());
    let room = || BytesMut::zeroed(8);
    endpoint.atomic(number(5), at(AtomicOp::Sum), 1).unwrap();
    assert_eq!(pair.next_completion(&pair.alice).context, 1);
    endpoint.fetch_atomic(number(2), room(), at(AtomicOp::Prod), 2).unwrap();
    assert_eq!(received_bytes(&pair.next_completion(&pair.alice).buffer), number(5));
    endpoint.compare_atomic(number(7), number(10), room(), at(AtomicOp::Cswap), 3).unwrap();
    assert_eq!(received_bytes(&pair.next_completion(&pair.alice).buffer), number(10));
    assert!(read_content(&region, 8) == number(7));
}

fn check_counted_accesses(info: &Info) {
    let pair = EndpointPair::open_with_caps(info, Caps::RMA | Caps::RMA_EVENT);
    let TestEndpoint { endpoint, peer, .. } = &pair.alice;
    let region = pair.register_region(64, 7);
    let [written, read] = [CounterEvents::REMOTE_WRITE, CounterEvents::REMOTE_READ].map(|events| {
        let counter = pair.domain.open_counter(&CounterAttr::default()).unwrap();
        region.bind_counter(&counter, events).unwrap();
        counter
    });
    for context in 1..=3 {
        endpoint.write(payload(context, 64), *peer, region.remote(), context).unwrap();
        pair.next_completion(&pair.alice);
    }
    endpoint.read(marked_buffer(64), *peer, region.remote(), 4).unwrap();
    pair.next_completion(&pair.alice);
    assert_eq!((written.read(), read.read()), (3, 1));
}

fn check_triggered_operations(info: &Info) {
    let pair = EndpointPair::open_with_caps(info, Caps::MSG | Caps::TRIGGER);
    let EndpointPair { alice, bob, .. } = &pair;
    let counter = pair.domain.open_counter(&CounterAttr::default()).unwrap();
    let send = |context| {
        let buffers = vec![payload(context, 16)];
        Operation::Send(SendMsg { buffers, to: alice.peer, context, ..SendMsg::default() })
    };
    bob.endpoint.recv(marked_buffer(16), ANY, 1).unwrap();
    bob.endpoint.recv(marked_buffer(16), ANY, 2).unwrap();
    let trigger = |threshold| Trigger { counter: counter.clone(), threshold };
    alice.endpoint.trigger(&trigger(2), send(2)).unwrap();
    alice.endpoint.trigger(&trigger(1), send(1)).unwrap();
    counter.add(2);
    for context in [1, 2] {
        assert_eq!(pair.next_completion(&pair.alice).context, context);
        let completion = pair.next_completion(bob);
        assert!(completion.context == context && received_bytes(&completion.buffer) == payload(context, 16));
    }
    let without = EndpointPair::open_with_caps(info, Caps::MSG);
    let counter = without.domain.open_counter(&CounterAttr::default()).unwrap();
    let refused = without.alice.endpoint.trigger(&Trigger { counter, threshold: 1 }, send(3)).unwrap_err();
    assert_eq!(refused.errno(), Errno::EOPNOTSUPP);
}

fn check_durable_writes(info: &Info) {
    let pair = EndpointPair::open_with_caps(info, Caps::RMA | Caps::RMA_PMEM);
    let (region, file) = pair.register_persistent_region(100_000, 7);
    for len_bytes in [8, 100_000] {
        pair.write_with_flags_and_wait(&region, &payload(1, len_bytes), OpFlags::DELIVERY_COMPLETE);
        assert_not_written_back_or_skip(&file);
        pair.write_with_flags_and_wait(&region, &payload(2, len_bytes), OpFlags::COMMIT_COMPLETE);
        assert_written_back_or_skip(&file);
        assert!(file.read_content()[..len_bytes] == payload(2, len_bytes));
    }
}

/// Asserts that some changed pages of the file are not on the device. Skips the check if the system cannot
/// tell.
#[track_caller]
fn assert_not_written_back_or_skip(file: &NamedFile) {
    file.assert_not_written_back_or_skip(process::id());
}

/// Asserts that all pages of the file are on the device. Skips the check if the system cannot tell.
#[track_caller]
pub(crate) fn assert_written_back_or_skip(file: &NamedFile) {
    file.assert_written_back_or_skip(process::id());
}

fn check_multi_receive_buffer(info: &Info) {
    let pair = EndpointPair::open_with_caps(info, Caps::MSG | Caps::MULTI_RECV);
    let EndpointPair { alice, bob, .. } = &pair;
    bob.endpoint.set_min_multi_recv_bytes(16);
    bob.endpoint.recv_multi(BytesMut::zeroed(40), ANY, 9).unwrap();
    for identity in 1..=4 {
        alice.endpoint.send(payload(identity, 8), alice.peer, identity).unwrap();
    }
    for identity in 1..=4 {
        let completion = pair.next_completion(bob);
        assert_eq!(
            (completion.context, completion.flags.contains(CompletionFlags::MULTI_RECV)),
            (9, identity == 4)
        );
        assert!(received_bytes(&completion.buffer) == payload(identity, 8));
    }
}

fn check_fence(info: &Info) {
    let pair = EndpointPair::open_with_caps(info, Caps::MSG | Caps::FENCE);
    let EndpointPair { alice, bob, .. } = &pair;
    let send = |context, flags| {
        let buffers = vec![payload(context, 8)];
        alice
            .endpoint
            .sendmsg(SendMsg { buffers, to: alice.peer, context, flags, ..SendMsg::default() })
            .unwrap();
    };
    // The second message is sent only once the first is matched.
    send(1, OpFlags::MATCH_COMPLETE);
    send(2, OpFlags::FENCE | OpFlags::MATCH_COMPLETE);
    pair.assert_no_completion(alice);
    for context in 1..=2 {
        bob.endpoint.recv(marked_buffer(8), ANY, context).unwrap();
        assert!(received_bytes(&pair.next_completion(bob).buffer) == payload(context, 8));
        assert_eq!(pair.next_completion(alice).context, context);
    }
}

fn check_sources(info: &Info) {
    let pair = EndpointPair::open_with_caps(info, Caps::MSG | Caps::SOURCE);
    let EndpointPair { alice, bob, .. } = &pair;
    // The second sender is bob himself.
    let own = bob.av().insert_one(bob.endpoint.name().unwrap()).unwrap();
    for (from, name) in [(alice, bob.peer), (bob, own)] {
        bob.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
        let to = if name == own { own } else { alice.peer };
        from.endpoint.inject(b"message", to, None, None).unwrap();
        let (completion, source) = pair.next_operation_end(bob).expect("success");
        assert_eq!((completion.len_bytes, source), (7, name));
    }
}

fn check_unknown_sources(info: &Info) {
    let pair = EndpointPair::open_with_caps(info, Caps::MSG | Caps::SOURCE | Caps::SOURCE_ERR);
    let EndpointPair { alice, bob, .. } = &pair;
    bob.av().remove(&[bob.peer]);
    bob.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
    alice.endpoint.inject(b"message", alice.peer, None, None).unwrap();
    let failed = pair.next_operation_end(bob).expect_err("a source that is not known");
    assert_eq!((failed.errno(), failed.completion.len_bytes), (Errno::EADDRNOTAVAIL, 7));
    assert_eq!(failed.unknown_source(), alice.endpoint.name().ok());
    let bytes = failed.unknown_source().unwrap().format().len_bytes();
    assert!(bytes <= info.domain.max_err_data_bytes, "{bytes} are more than error data may have");
}

fn check_directed_receives(info: &Info) {
    let pair = EndpointPair::open_with_caps(info, Caps::MSG | Caps::DIRECTED_RECV);
    let EndpointPair { alice, bob, .. } = &pair;
    let own = bob.av().insert_one(bob.endpoint.name().unwrap()).unwrap();
    bob.endpoint.recv(marked_buffer(8), own, 1).unwrap();
    bob.endpoint.recv(marked_buffer(8), bob.peer, 2).unwrap();
    alice.endpoint.inject(b"alice's", alice.peer, None, None).unwrap();
    let completion = pair.next_completion(bob);
    assert_eq!((completion.context, received_bytes(&completion.buffer)), (2, b"alice's".to_vec()));
    bob.endpoint.inject(b"bob's", own, None, None).unwrap();
    let completion = pair.next_completion(bob);
    assert_eq!((completion.context, received_bytes(&completion.buffer)), (1, b"bob's".to_vec()));
}

fn check_peers_on_this_host(info: &Info) {
    EndpointPair::open_with_caps(info, Caps::MSG | Caps::LOCAL_COMM).exchange_messages();
}

/// Checks the infos for peers on other hosts, without sending to another host. The test has only this host.
fn check_peers_on_other_hosts(info: &Info) {
    EndpointPair::open_with_caps(info, Caps::MSG | Caps::REMOTE_COMM).exchange_messages();
    let elsewhere = Hints::new().node("192.0.2.1").service(1).numeric_host();
    for other in Fabric::new().infos(&elsewhere).expect("an address for documentation") {
        assert!(other.caps.contains(Caps::REMOTE_COMM), "{:?}", other.domain.name);
    }
    let name = info.domain.name.clone().unwrap();
    if info.addr_format == Some(homespun::AddressFormat::SockaddrIn) {
        assert!(Fabric::new().info(&elsewhere.domain(name)).is_ok());
    }
}
