//! Completion order: `comp_order` of `fi_endpoint(3)`. Sends and accesses to one peer complete in
//! the order of their posting.

use homespun::endpoint::SendMsg;
use homespun::flags::{MrAccess, OpFlags};
use homespun::{Again, Error, FabricAddress, OperationError, Refusal};

use homespun_suite::payload::{payload, room};
use homespun_suite::{Kind, Net, Party, Region, RegionSpec, RmaBy, RmaCall, Setup};

const ANY: FabricAddress = FabricAddress::UNSPECIFIED;

fn in_order() -> Setup {
    Setup { completes_in_order: true, ..Setup::default() }
}

fn region_of(party: &Party, kind: Kind, key: u64) -> Region {
    let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    party.register(RegionSpec { len_bytes: 100_000, kind, access, key, is_counted: false }).unwrap()
}

fn send(party: &Party, to: FabricAddress, context: u64, len_bytes: usize, flags: OpFlags) {
    let buffers = vec![payload(context, len_bytes)];
    party.endpoint.sendmsg(SendMsg { buffers, to, context, flags, ..SendMsg::default() }).unwrap();
}

fn access(party: &Party, by: RmaBy, to: FabricAddress, region: &Region, context: u64, len_bytes: usize) {
    party.endpoint.rma(RmaCall::new(by, payload(context, len_bytes), to, region, context)).unwrap();
}

pub(crate) fn sends_and_accesses_complete_in_posting_order(net: &Net) {
    const COUNT: u64 = 60;
    let (alice, bob, carol) = (net.open(in_order()), net.party(), net.party());
    let peers = [(&bob, alice.meet(&bob)), (&carol, alice.meet(&carol))];
    let regions = [region_of(&bob, Kind::Raw, 1), region_of(&carol, Kind::Shareable, 2)];
    let mut posted = [Vec::new(), Vec::new()];
    let mut messages = [0, 0];
    for context in 0..COUNT {
        let whom = (context % 2) as usize;
        let (to, region) = (peers[whom].1, &regions[whom]);
        let len_bytes = [8, 60_000, 3000][context as usize % 3];
        match context / 2 % 6 {
            0 => access(&alice, RmaBy::Write, to, region, context, len_bytes),
            1 => send(&alice, to, context, len_bytes, OpFlags::INJECT_COMPLETE),
            2 => send(&alice, to, context, len_bytes, OpFlags::MATCH_COMPLETE),
            3 => access(&alice, RmaBy::Read, to, region, context, len_bytes),
            4 => send(&alice, to, context, len_bytes, OpFlags::DELIVERY_COMPLETE),
            _ => send(&alice, to, context, len_bytes, OpFlags::INJECT_COMPLETE),
        }
        posted[whom].push(context);
        messages[whom] += usize::from(![0, 3].contains(&(context / 2 % 6)));
    }
    // The peers receive one after the other, so only the completion order can delay a completion.
    for ((party, _), count) in peers.iter().zip(messages) {
        for context in 0..count {
            party.endpoint.recv(room(60_000), ANY, context as u64).unwrap();
        }
        for _ in 0..count {
            party.completion();
        }
    }
    let mut completed = [Vec::new(), Vec::new()];
    for _ in 0..COUNT {
        let context = alice.completion().context;
        completed[(context % 2) as usize].push(context);
    }
    assert_eq!(completed, posted);
    alice.silence();
}

pub(crate) fn failed_access_completes_in_posting_order(net: &Net) {
    let (alice, bob) = net.pair_of(in_order(), Setup::default());
    let region = region_of(&bob, Kind::Owned, 1);
    for key in [1, 99] {
        let call = RmaCall::new(RmaBy::Write, payload(1, 8), alice.peer(), &region, 1);
        alice.endpoint.rma(RmaCall { key, ..call }).unwrap();
        send(&alice, alice.peer(), 2, 8, OpFlags::INJECT_COMPLETE);
        bob.endpoint.recv(room(8), ANY, 3).unwrap();
        bob.completion();
        match alice.next() {
            Ok((completion, _)) => assert_eq!((completion.context, key), (1, 1)),
            Err(failed) => {
                assert_eq!((failed.completion.context, key), (1, 99));
                assert_eq!(failed.error, OperationError::Refused(Refusal::Key));
            }
        }
        assert_eq!(alice.completion().context, 2);
    }
}

pub(crate) fn unreported_operations_end_in_posting_order(net: &Net) {
    let (alice, bob) = net.pair_of(Setup { selective: true, ..in_order() }, Setup::default());
    let region = region_of(&bob, Kind::Owned, 1);
    // These report nothing, but the completion of the next send shows that they have ended.
    for context in 0..20 {
        send(&alice, alice.peer(), 1, 8, OpFlags::MATCH_COMPLETE);
        access(&alice, RmaBy::Write, alice.peer(), &region, 2, 60_000);
        send(&alice, alice.peer(), context, 8, OpFlags::INJECT_COMPLETE | OpFlags::COMPLETION);
        alice.endpoint.inject(&payload(3, 8), alice.peer(), None, None).unwrap();
        alice.silence();
        for _ in 0..3 {
            bob.endpoint.recv(room(8), ANY, 4).unwrap();
            bob.completion();
        }
        assert_eq!(alice.completion().context, context);
        assert!(region.content()[..60_000] == payload(2, 60_000));
        region.put(0, &room(60_000));
    }
    // A failure is reported in its turn although success would not be.
    let call = RmaCall::new(RmaBy::Write, payload(1, 8), alice.peer(), &region, 1);
    alice.endpoint.rma(RmaCall { key: 99, ..call }).unwrap();
    send(&alice, alice.peer(), 2, 8, OpFlags::INJECT_COMPLETE | OpFlags::COMPLETION);
    assert_eq!(alice.failure().completion.context, 1);
    assert_eq!(alice.completion().context, 2);
}

pub(crate) fn operation_awaiting_its_turn_counts_towards_the_depth(net: &Net) {
    let (alice, bob) =
        net.pair_of(Setup { tx_depth_ops: 3, ..in_order() }, Setup { asleep: true, ..Setup::default() });
    send(&alice, alice.peer(), 1, 8, OpFlags::DELIVERY_COMPLETE);
    send(&alice, alice.peer(), 2, 8, OpFlags::INJECT_COMPLETE);
    send(&alice, alice.peer(), 3, 8, OpFlags::INJECT_COMPLETE);
    alice.silence();
    let refused = alice.endpoint.send(payload(4, 8), alice.peer(), 4);
    assert_eq!(refused, Err(Error::Again(Again::QueueFull)));
    net.wake(&bob);
    for context in 1..=3 {
        assert_eq!(alice.completion().context, context);
    }
}
