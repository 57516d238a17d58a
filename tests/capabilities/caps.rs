//! Capabilities: `fi_getinfo(3)`.

use std::process;

use homespun::atomic::{AtomicOp, Datatype};
use homespun::endpoint::{AtomicTarget, SendMsg};
use homespun::flags::{CompletionFlags, CounterEvents, OpFlags};
use homespun::info::Info;
use homespun::trigger::{Operation, Trigger};
use homespun::{Bytes, BytesMut, Caps, CounterAttr, Errno, Fabric, Hints, MemoryRegion};

use crate::Check;
use crate::stage::{ANY, Actor, Role, Stage, content, with_caps};
use crate::suite::files::Named;
use crate::suite::payload::{payload, received, room};

/// What exercises each capability.
pub(crate) const TABLE: &[(Caps, Check)] = &[
    (Caps::MSG, messages),
    (Caps::TAGGED, tagged_messages),
    (Caps::SEND, one_who_only_sends),
    (Caps::RECV, one_who_only_receives),
    (Caps::RMA, access_to_memory),
    (Caps::READ, one_who_only_reads),
    (Caps::WRITE, one_who_only_writes),
    (Caps::REMOTE_READ, one_who_is_only_read),
    (Caps::REMOTE_WRITE, one_who_is_only_written_to),
    (Caps::ATOMIC, atomic_operations),
    (Caps::RMA_EVENT, accesses_that_are_counted),
    (Caps::RMA_PMEM, writes_that_are_durable),
    (Caps::MULTI_RECV, many_messages_in_a_buffer),
    (Caps::TRIGGER, triggered_operations),
    (Caps::FENCE, a_fence),
    (Caps::SOURCE, sources),
    (Caps::SOURCE_ERR, unknown_sources),
    (Caps::DIRECTED_RECV, directed_receives),
    (Caps::LOCAL_COMM, peers_on_this_host),
    (Caps::REMOTE_COMM, peers_on_other_hosts),
];

fn messages(info: &Info) {
    Stage::with_caps(info, Caps::MSG).exchange();
}

fn tagged_messages(info: &Info) {
    let stage = Stage::with_caps(info, Caps::TAGGED);
    let Stage { alice, bob, .. } = &stage;
    for (tag, ignore, context) in [(7, 0, 1), (0x30, 0xf, 2)] {
        bob.endpoint.trecv(room(16), ANY, tag, ignore, context).unwrap();
    }
    alice.endpoint.tsend(payload(1, 16), alice.peer, 0x35, 1).unwrap();
    alice.endpoint.tsend(payload(2, 16), alice.peer, 7, 2).unwrap();
    for (context, tag, identity) in [(2, 0x35, 1), (1, 7, 2)] {
        let completion = stage.completion(bob);
        assert_eq!((completion.context, completion.tag), (context, tag));
        assert!(received(&completion.buffer) == payload(identity, 16));
    }
    assert_eq!(alice.endpoint.send(payload(1, 8), alice.peer, 3).unwrap_err().errno(), Errno::EOPNOTSUPP);
}

/// Two of whom each has the capabilities that it needs, and no others: alice begins, bob is what she begins it with.
fn one_sided(info: &Info, alice: Caps, bob: Caps) -> Stage {
    Stage::between(&with_caps(info, alice), &with_caps(info, bob), &Role::default())
}

fn one_way(info: &Info) -> Stage {
    let stage = one_sided(info, Caps::MSG | Caps::SEND, Caps::MSG | Caps::RECV);
    stage.message(&stage.alice, &stage.bob, 5, 3000);
    stage
}

fn one_who_only_sends(info: &Info) {
    let Stage { alice, .. } = one_way(info);
    assert_eq!(alice.endpoint.recv(room(8), ANY, 1).unwrap_err().errno(), Errno::EOPNOTSUPP);
}

fn one_who_only_receives(info: &Info) {
    let Stage { bob, .. } = one_way(info);
    assert_eq!(bob.endpoint.send(payload(1, 8), bob.peer, 1).unwrap_err().errno(), Errno::EOPNOTSUPP);
}

fn access_to_memory(info: &Info) {
    let stage = Stage::with_caps(info, Caps::RMA);
    let region = stage.region(400_000, 7);
    for len_bytes in [1, 8, 20_000, 400_000] {
        stage.write_and_read(&region, &payload(len_bytes as u64, len_bytes));
    }
}

/// Writes to a region of bob's. Says what became of it.
fn write(stage: &Stage, region: &MemoryRegion, message: Bytes) -> Result<(), Errno> {
    let Actor { endpoint, peer, .. } = &stage.alice;
    endpoint.write(message, *peer, region.address(), region.key(), 1).map_err(|refused| refused.errno())?;
    stage.ended(&stage.alice).map(|_| ()).map_err(|failed| failed.errno())
}

/// Reads from a region of bob's.
fn read(stage: &Stage, region: &MemoryRegion, len_bytes: usize) -> Result<Vec<u8>, Errno> {
    let Actor { endpoint, peer, .. } = &stage.alice;
    let into = room(len_bytes);
    endpoint.read(into, *peer, region.address(), region.key(), 1).map_err(|refused| refused.errno())?;
    stage.ended(&stage.alice).map(|(read, _)| received(&read.buffer)).map_err(|failed| failed.errno())
}

fn one_who_only_reads(info: &Info) {
    let stage = one_sided(info, Caps::RMA | Caps::READ, Caps::RMA);
    let region = stage.region(64, 7);
    region.write_at(0, &payload(1, 64)).unwrap();
    assert_eq!(read(&stage, &region, 64), Ok(payload(1, 64).to_vec()));
    assert_eq!(write(&stage, &region, payload(2, 64)), Err(Errno::EOPNOTSUPP));
}

fn one_who_only_writes(info: &Info) {
    let stage = one_sided(info, Caps::RMA | Caps::WRITE, Caps::RMA);
    let region = stage.region(64, 7);
    assert_eq!(write(&stage, &region, payload(1, 64)), Ok(()));
    assert!(content(&region, 64) == payload(1, 64));
    assert_eq!(read(&stage, &region, 64), Err(Errno::EOPNOTSUPP));
}

fn one_who_is_only_read(info: &Info) {
    let stage = one_sided(info, Caps::RMA, Caps::RMA | Caps::REMOTE_READ);
    let region = stage.region(64, 7);
    region.write_at(0, &payload(1, 64)).unwrap();
    assert_eq!(read(&stage, &region, 64), Ok(payload(1, 64).to_vec()));
    assert!(write(&stage, &region, payload(2, 64)).is_err());
    assert!(content(&region, 64) == payload(1, 64));
}

fn one_who_is_only_written_to(info: &Info) {
    let stage = one_sided(info, Caps::RMA, Caps::RMA | Caps::REMOTE_WRITE);
    let region = stage.region(64, 7);
    assert_eq!(write(&stage, &region, payload(1, 64)), Ok(()));
    assert!(content(&region, 64) == payload(1, 64));
    assert!(read(&stage, &region, 64).is_err());
}

fn atomic_operations(info: &Info) {
    let stage = Stage::with_caps(info, Caps::ATOMIC);
    let Actor { endpoint, peer, .. } = &stage.alice;
    let region = stage.region(64, 7);
    let at = |op| AtomicTarget {
        peer: *peer,
        address: region.address(),
        key: region.key(),
        datatype: Datatype::Uint64,
        op,
    };
    let number = |number: u64| Bytes::copy_from_slice(&number.to_le_bytes());
    let room = || BytesMut::zeroed(8);
    endpoint.atomic(number(5), at(AtomicOp::Sum), 1).unwrap();
    assert_eq!(stage.completion(&stage.alice).context, 1);
    endpoint.fetch_atomic(number(2), room(), at(AtomicOp::Prod), 2).unwrap();
    assert_eq!(received(&stage.completion(&stage.alice).buffer), number(5));
    endpoint.compare_atomic(number(7), number(10), room(), at(AtomicOp::Cswap), 3).unwrap();
    assert_eq!(received(&stage.completion(&stage.alice).buffer), number(10));
    assert!(content(&region, 8) == number(7));
    let refused = endpoint.write(number(1), *peer, region.address(), region.key(), 4).unwrap_err();
    assert_eq!(refused.errno(), Errno::EOPNOTSUPP);
}

fn accesses_that_are_counted(info: &Info) {
    let stage = Stage::with_caps(info, Caps::RMA | Caps::RMA_EVENT);
    let Actor { endpoint, peer, .. } = &stage.alice;
    let region = stage.region(64, 7);
    let [written, read] = [CounterEvents::REMOTE_WRITE, CounterEvents::REMOTE_READ].map(|events| {
        let counter = stage.domain.open_counter(&CounterAttr::default()).unwrap();
        region.bind_counter(&counter, events).unwrap();
        counter
    });
    for context in 1..=3 {
        endpoint.write(payload(context, 64), *peer, region.address(), region.key(), context).unwrap();
        stage.completion(&stage.alice);
    }
    endpoint.read(room(64), *peer, region.address(), region.key(), 4).unwrap();
    stage.completion(&stage.alice);
    assert_eq!((written.read(), read.read()), (3, 1));
}

fn triggered_operations(info: &Info) {
    let stage = Stage::with_caps(info, Caps::MSG | Caps::TRIGGER);
    let Stage { alice, bob, .. } = &stage;
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
    let without = Stage::with_caps(info, Caps::MSG);
    let counter = without.domain.open_counter(&CounterAttr::default()).unwrap();
    let refused = without.alice.endpoint.trigger(&Trigger { counter, threshold: 1 }, send(3)).unwrap_err();
    assert_eq!(refused.errno(), Errno::EOPNOTSUPP);
}

fn writes_that_are_durable(info: &Info) {
    let stage = Stage::with_caps(info, Caps::RMA | Caps::RMA_PMEM);
    let (region, file) = stage.persistent_region(100_000, 7);
    for len_bytes in [8, 100_000] {
        stage.write_at_level(&region, &payload(1, len_bytes), OpFlags::DELIVERY_COMPLETE);
        is_to_be_written(&file);
        stage.write_at_level(&region, &payload(2, len_bytes), OpFlags::COMMIT_COMPLETE);
        is_written(&file);
        assert!(file.content()[..len_bytes] == payload(2, len_bytes));
    }
}

/// The file has changed, and not all of it is on the device, as far as the system tells.
#[track_caller]
fn is_to_be_written(file: &Named) {
    assert_ne!(file.dirty_bytes(process::id()).unwrap_or(1), 0, "nobody has asked for it to be durable");
}

/// All of the file is on the device, as far as the system tells.
#[track_caller]
pub(crate) fn is_written(file: &Named) {
    assert_eq!(file.dirty_bytes(process::id()).unwrap_or(0), 0, "pages that are not on the device");
}

fn many_messages_in_a_buffer(info: &Info) {
    let stage = Stage::with_caps(info, Caps::MSG | Caps::MULTI_RECV);
    let Stage { alice, bob, .. } = &stage;
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

fn a_fence(info: &Info) {
    let stage = Stage::with_caps(info, Caps::MSG | Caps::FENCE);
    let Stage { alice, bob, .. } = &stage;
    let send = |context, flags| {
        let buffers = vec![payload(context, 8)];
        alice
            .endpoint
            .sendmsg(SendMsg { buffers, to: alice.peer, context, flags, ..SendMsg::default() })
            .unwrap();
    };
    // It takes the first one to be matched, and only then is the second one sent.
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
    let stage = Stage::with_caps(info, Caps::MSG | Caps::SOURCE);
    let Stage { alice, bob, .. } = &stage;
    // Another name that comes later.
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
    let stage = Stage::with_caps(info, Caps::MSG | Caps::SOURCE | Caps::SOURCE_ERR);
    let Stage { alice, bob, .. } = &stage;
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
    let stage = Stage::with_caps(info, Caps::MSG | Caps::DIRECTED_RECV);
    let Stage { alice, bob, .. } = &stage;
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
    Stage::with_caps(info, Caps::MSG | Caps::LOCAL_COMM).exchange();
}

/// Nobody is there on any other host; but one may be asked for, which is refused where it could not be reached.
fn peers_on_other_hosts(info: &Info) {
    Stage::with_caps(info, Caps::MSG | Caps::REMOTE_COMM).exchange();
    let elsewhere = Hints::new().node("192.0.2.1").service(1).numeric_host();
    for other in Fabric::new().infos(&elsewhere).expect("an address for documentation") {
        assert!(other.caps.contains(Caps::REMOTE_COMM), "{:?}", other.domain.name);
    }
    let name = info.domain.name.clone().unwrap();
    if info.addr_format == Some(homespun::AddressFormat::SockaddrIn) {
        assert!(Fabric::new().info(&elsewhere.domain(name)).is_ok());
    }
}
