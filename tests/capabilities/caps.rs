//! Capabilities: `fi_getinfo(3)`.

use std::process;

use homespun::atomic::{AtomicOp, Datatype};
use homespun::endpoint::{AtomicTarget, SendMsg};
use homespun::flags::{CompletionFlags, CounterEvents, OpFlags};
use homespun::info::Info;
use homespun::trigger::{Operation, Trigger};
use homespun::{Bytes, BytesMut, Caps, CounterAttr, Errno, Fabric, Hints, MemoryRegion, Tag};

use crate::Check;
use crate::endpoint_pair::{ANY, EndpointPair, OpenAttr, TestEndpoint, content, with_caps};
use homespun_suite::files::NamedFile;
use homespun_suite::payload::{payload, received, room};

/// The check of each capability.
pub(crate) const TABLE: &[(Caps, Check)] = &[
    (Caps::MSG, messages),
    (Caps::TAGGED, tagged_messages),
    (Caps::SEND, send_only_endpoint),
    (Caps::RECV, receive_only_endpoint),
    (Caps::RMA, access_to_memory),
    (Caps::READ, read_only_initiator),
    (Caps::WRITE, write_only_initiator),
    (Caps::REMOTE_READ, read_only_target),
    (Caps::REMOTE_WRITE, write_only_target),
    (Caps::ATOMIC, atomic_operations),
    (Caps::RMA_EVENT, counted_accesses),
    (Caps::RMA_PMEM, durable_writes),
    (Caps::MULTI_RECV, multi_receive_buffer),
    (Caps::TRIGGER, triggered_operations),
    (Caps::FENCE, fence),
    (Caps::SOURCE, sources),
    (Caps::SOURCE_ERR, unknown_sources),
    (Caps::DIRECTED_RECV, directed_receives),
    (Caps::LOCAL_COMM, peers_on_this_host),
    (Caps::REMOTE_COMM, peers_on_other_hosts),
];

fn messages(info: &Info) {
    EndpointPair::with_caps(info, Caps::MSG).exchange();
}

fn tagged_messages(info: &Info) {
    let stage = EndpointPair::with_caps(info, Caps::TAGGED);
    let EndpointPair { alice, bob, .. } = &stage;
    for (tag, ignore, context) in [(7, 0, 1), (0x30, 0xf, 2)] {
        bob.endpoint.trecv(room(16), ANY, Tag(tag).ignoring(ignore), context).unwrap();
    }
    alice.endpoint.tsend(payload(1, 16), alice.peer, Tag(0x35), 1).unwrap();
    alice.endpoint.tsend(payload(2, 16), alice.peer, Tag(7), 2).unwrap();
    for (context, tag, identity) in [(2, 0x35, 1), (1, 7, 2)] {
        let completion = stage.completion(bob);
        assert_eq!((completion.context, completion.tag), (context, tag));
        assert!(received(&completion.buffer) == payload(identity, 16));
    }
    assert_eq!(alice.endpoint.send(payload(1, 8), alice.peer, 3).unwrap_err().errno(), Errno::EOPNOTSUPP);
}

/// A pair with minimal capabilities: alice has those of an initiator, bob those of a target.
fn one_sided(info: &Info, alice: Caps, bob: Caps) -> EndpointPair {
    EndpointPair::between(&with_caps(info, alice), &with_caps(info, bob), &OpenAttr::default())
}

fn one_way(info: &Info) -> EndpointPair {
    let stage = one_sided(info, Caps::MSG | Caps::SEND, Caps::MSG | Caps::RECV);
    stage.message(&stage.alice, &stage.bob, 5, 3000);
    stage
}

fn send_only_endpoint(info: &Info) {
    let EndpointPair { alice, .. } = one_way(info);
    assert_eq!(alice.endpoint.recv(room(8), ANY, 1).unwrap_err().errno(), Errno::EOPNOTSUPP);
}

fn receive_only_endpoint(info: &Info) {
    let EndpointPair { bob, .. } = one_way(info);
    assert_eq!(bob.endpoint.send(payload(1, 8), bob.peer, 1).unwrap_err().errno(), Errno::EOPNOTSUPP);
}

fn access_to_memory(info: &Info) {
    let stage = EndpointPair::with_caps(info, Caps::RMA);
    let region = stage.region(400_000, 7);
    for len_bytes in [1, 8, 20_000, 400_000] {
        stage.write_and_read(&region, &payload(len_bytes as u64, len_bytes));
    }
}

/// Writes to a region of bob's. Returns the result.
fn write(stage: &EndpointPair, region: &MemoryRegion, message: Bytes) -> Result<(), Errno> {
    let TestEndpoint { endpoint, peer, .. } = &stage.alice;
    endpoint.write(message, *peer, region.remote(), 1).map_err(|refused| refused.errno())?;
    stage.ended(&stage.alice).map(|_| ()).map_err(|failed| failed.errno())
}

/// Reads from a region of bob's.
fn read(stage: &EndpointPair, region: &MemoryRegion, len_bytes: usize) -> Result<Vec<u8>, Errno> {
    let TestEndpoint { endpoint, peer, .. } = &stage.alice;
    let into = room(len_bytes);
    endpoint.read(into, *peer, region.remote(), 1).map_err(|refused| refused.errno())?;
    stage.ended(&stage.alice).map(|(read, _)| received(&read.buffer)).map_err(|failed| failed.errno())
}

fn read_only_initiator(info: &Info) {
    let stage = one_sided(info, Caps::RMA | Caps::READ, Caps::RMA);
    let region = stage.region(64, 7);
    region.write_at(0, &payload(1, 64)).unwrap();
    assert_eq!(read(&stage, &region, 64), Ok(payload(1, 64).to_vec()));
    assert_eq!(write(&stage, &region, payload(2, 64)), Err(Errno::EOPNOTSUPP));
}

fn write_only_initiator(info: &Info) {
    let stage = one_sided(info, Caps::RMA | Caps::WRITE, Caps::RMA);
    let region = stage.region(64, 7);
    assert_eq!(write(&stage, &region, payload(1, 64)), Ok(()));
    assert!(content(&region, 64) == payload(1, 64));
    assert_eq!(read(&stage, &region, 64), Err(Errno::EOPNOTSUPP));
}

fn read_only_target(info: &Info) {
    let stage = one_sided(info, Caps::RMA, Caps::RMA | Caps::REMOTE_READ);
    let region = stage.region(64, 7);
    region.write_at(0, &payload(1, 64)).unwrap();
    assert_eq!(read(&stage, &region, 64), Ok(payload(1, 64).to_vec()));
    assert!(write(&stage, &region, payload(2, 64)).is_err());
    assert!(content(&region, 64) == payload(1, 64));
}

fn write_only_target(info: &Info) {
    let stage = one_sided(info, Caps::RMA, Caps::RMA | Caps::REMOTE_WRITE);
    let region = stage.region(64, 7);
    assert_eq!(write(&stage, &region, payload(1, 64)), Ok(()));
    assert!(content(&region, 64) == payload(1, 64));
    assert!(read(&stage, &region, 64).is_err());
}

fn atomic_operations(info: &Info) {
    let stage = EndpointPair::with_caps(info, Caps::ATOMIC);
    let TestEndpoint { endpoint, peer, .. } = &stage.alice;
    let region = stage.region(64, 7);
    let at = |op| AtomicTarget { peer: *peer, memory: region.remote(), datatype: Datatype::Uint64, op };
    let number = |number: u64| Bytes::copy_from_slice(&number.to_le_bytes());
    let room = || BytesMut::zeroed(8);
    endpoint.atomic(number(5), at(AtomicOp::Sum), 1).unwrap();
    assert_eq!(stage.completion(&stage.alice).context, 1);
    endpoint.fetch_atomic(number(2), room(), at(AtomicOp::Prod), 2).unwrap();
    assert_eq!(received(&stage.completion(&stage.alice).buffer), number(5));
    endpoint.compare_atomic(number(7), number(10), room(), at(AtomicOp::Cswap), 3).unwrap();
    assert_eq!(received(&stage.completion(&stage.alice).buffer), number(10));
    assert!(content(&region, 8) == number(7));
    let refused = endpoint.write(number(1), *peer, region.remote(), 4).unwrap_err();
    assert_eq!(refused.errno(), Errno::EOPNOTSUPP);
}

fn counted_accesses(info: &Info) {
    let stage = EndpointPair::with_caps(info, Caps::RMA | Caps::RMA_EVENT);
    let TestEndpoint { endpoint, peer, .. } = &stage.alice;
    let region = stage.region(64, 7);
    let [written, read] = [CounterEvents::REMOTE_WRITE, CounterEvents::REMOTE_READ].map(|events| {
        let counter = stage.domain.open_counter(&CounterAttr::default()).unwrap();
        region.bind_counter(&counter, events).unwrap();
        counter
    });
    for context in 1..=3 {
        endpoint.write(payload(context, 64), *peer, region.remote(), context).unwrap();
        stage.completion(&stage.alice);
    }
    endpoint.read(room(64), *peer, region.remote(), 4).unwrap();
    stage.completion(&stage.alice);
    assert_eq!((written.read(), read.read()), (3, 1));
}

fn triggered_operations(info: &Info) {
    let stage = EndpointPair::with_caps(info, Caps::MSG | Caps::TRIGGER);
    let EndpointPair { alice, bob, .. } = &stage;
    let counter = stage.domain.open_counter(&CounterAttr::default()).unwrap();
    let send = |context| {
        let buffers = vec![payload(context, 16)];
        Operation::Send(SendMsg { buffers, to: alice.peer, context, ..SendMsg::default() })
    };
    bob.endpoint.recv(room(16), ANY, 1).unwrap();
    bob.endpoint.recv(room(16), ANY, 2).unwrap();
    let trigger = |threshold| Trigger { counter: counter.clone(), threshold };
    alice.endpoint.trigger(&trigger(2), send(2)).unwrap();
    alice.endpoint.trigger(&trigger(1), send(1)).unwrap();
    counter.add(2);
    for context in [1, 2] {
        assert_eq!(stage.completion(&stage.alice).context, context);
        let completion = stage.completion(bob);
        assert!(completion.context == context && received(&completion.buffer) == payload(context, 16));
    }
    let without = EndpointPair::with_caps(info, Caps::MSG);
    let counter = without.domain.open_counter(&CounterAttr::default()).unwrap();
    let refused = without.alice.endpoint.trigger(&Trigger { counter, threshold: 1 }, send(3)).unwrap_err();
    assert_eq!(refused.errno(), Errno::EOPNOTSUPP);
}

fn durable_writes(info: &Info) {
    let stage = EndpointPair::with_caps(info, Caps::RMA | Caps::RMA_PMEM);
    let (region, file) = stage.persistent_region(100_000, 7);
    for len_bytes in [8, 100_000] {
        stage.write_at_level(&region, &payload(1, len_bytes), OpFlags::DELIVERY_COMPLETE);
        assert_dirty(&file);
        stage.write_at_level(&region, &payload(2, len_bytes), OpFlags::COMMIT_COMPLETE);
        assert_clean(&file);
        assert!(file.content()[..len_bytes] == payload(2, len_bytes));
    }
}

/// The file has changed, and not all of it is on the device, as far as the system tells.
#[track_caller]
fn assert_dirty(file: &NamedFile) {
    file.assert_dirty(process::id());
}

/// All of the file is on the device, as far as the system tells.
#[track_caller]
pub(crate) fn assert_clean(file: &NamedFile) {
    file.assert_clean(process::id());
}

fn multi_receive_buffer(info: &Info) {
    let stage = EndpointPair::with_caps(info, Caps::MSG | Caps::MULTI_RECV);
    let EndpointPair { alice, bob, .. } = &stage;
    bob.endpoint.set_min_multi_recv_bytes(16);
    bob.endpoint.recv_multi(BytesMut::zeroed(40), ANY, 9).unwrap();
    for identity in 1..=4 {
        alice.endpoint.send(payload(identity, 8), alice.peer, identity).unwrap();
    }
    for identity in 1..=4 {
        let completion = stage.completion(bob);
        assert_eq!(
            (completion.context, completion.flags.contains(CompletionFlags::MULTI_RECV)),
            (9, identity == 4)
        );
        assert!(received(&completion.buffer) == payload(identity, 8));
    }
}

fn fence(info: &Info) {
    let stage = EndpointPair::with_caps(info, Caps::MSG | Caps::FENCE);
    let EndpointPair { alice, bob, .. } = &stage;
    let send = |context, flags| {
        let buffers = vec![payload(context, 8)];
        alice
            .endpoint
            .sendmsg(SendMsg { buffers, to: alice.peer, context, flags, ..SendMsg::default() })
            .unwrap();
    };
    // The second is sent only when the first is matched.
    send(1, OpFlags::MATCH_COMPLETE);
    send(2, OpFlags::FENCE | OpFlags::MATCH_COMPLETE);
    stage.silence(alice);
    for context in 1..=2 {
        bob.endpoint.recv(room(8), ANY, context).unwrap();
        assert!(received(&stage.completion(bob).buffer) == payload(context, 8));
        assert_eq!(stage.completion(alice).context, context);
    }
}

fn sources(info: &Info) {
    let stage = EndpointPair::with_caps(info, Caps::MSG | Caps::SOURCE);
    let EndpointPair { alice, bob, .. } = &stage;
    // A second entry for the same sender.
    let own = bob.av().insert_one(bob.endpoint.name().unwrap()).unwrap();
    for (from, name) in [(alice, bob.peer), (bob, own)] {
        bob.endpoint.recv(room(8), ANY, 1).unwrap();
        let to = if name == own { own } else { alice.peer };
        from.endpoint.inject(b"message", to, None, None).unwrap();
        let (completion, source) = stage.ended(bob).expect("success");
        assert_eq!((completion.len_bytes, source), (7, name));
    }
}

fn unknown_sources(info: &Info) {
    let stage = EndpointPair::with_caps(info, Caps::MSG | Caps::SOURCE | Caps::SOURCE_ERR);
    let EndpointPair { alice, bob, .. } = &stage;
    bob.av().remove(&[bob.peer]).unwrap();
    bob.endpoint.recv(room(8), ANY, 1).unwrap();
    alice.endpoint.inject(b"message", alice.peer, None, None).unwrap();
    let failed = stage.ended(bob).expect_err("a source that is not known");
    assert_eq!((failed.errno(), failed.completion.len_bytes), (Errno::EADDRNOTAVAIL, 7));
    assert_eq!(failed.unknown_source(), alice.endpoint.name().ok());
    let bytes = failed.unknown_source().unwrap().format().len_bytes();
    assert!(bytes <= info.domain.max_err_data_bytes, "{bytes} are more than error data may have");
}

fn directed_receives(info: &Info) {
    let stage = EndpointPair::with_caps(info, Caps::MSG | Caps::DIRECTED_RECV);
    let EndpointPair { alice, bob, .. } = &stage;
    let own = bob.av().insert_one(bob.endpoint.name().unwrap()).unwrap();
    bob.endpoint.recv(room(8), own, 1).unwrap();
    bob.endpoint.recv(room(8), bob.peer, 2).unwrap();
    alice.endpoint.inject(b"alice's", alice.peer, None, None).unwrap();
    let completion = stage.completion(bob);
    assert_eq!((completion.context, received(&completion.buffer)), (2, b"alice's".to_vec()));
    bob.endpoint.inject(b"bob's", own, None, None).unwrap();
    let completion = stage.completion(bob);
    assert_eq!((completion.context, received(&completion.buffer)), (1, b"bob's".to_vec()));
}

fn peers_on_this_host(info: &Info) {
    EndpointPair::with_caps(info, Caps::MSG | Caps::LOCAL_COMM).exchange();
}

/// The test has no other host; a request for peers there is granted, or refused where no transport
/// reaches them.
fn peers_on_other_hosts(info: &Info) {
    EndpointPair::with_caps(info, Caps::MSG | Caps::REMOTE_COMM).exchange();
    let elsewhere = Hints::new().node("192.0.2.1").service(1).numeric_host();
    for other in Fabric::new().infos(&elsewhere).expect("an address for documentation") {
        assert!(other.caps.contains(Caps::REMOTE_COMM), "{:?}", other.domain.name);
    }
    let name = info.domain.name.clone().unwrap();
    if info.addr_format == Some(homespun::AddressFormat::SockaddrIn) {
        assert!(Fabric::new().info(&elsewhere.domain(name)).is_ok());
    }
}
