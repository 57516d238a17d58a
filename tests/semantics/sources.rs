//! Who a message came from: `fi_cq_readfrom`, `FI_SOURCE`.

use homespun::flags::Caps;
use homespun::{Bytes, FabricAddress};

use crate::suite::payload::room;
use crate::suite::{Net, Party, Setup};

/// Sends a message and returns what the receiver calls its sender.
#[track_caller]
fn source_of_message(from: &Party, to: &Party) -> FabricAddress {
    to.endpoint.recv(room(8), FabricAddress::UNSPECIFIED, 1).unwrap();
    from.endpoint.send(Bytes::from_static(b"who am I"), from.address_of(to), 2).unwrap();
    let (completion, source) = to.completion_from();
    assert_eq!(completion.context, 1);
    let (completion, no_source) = from.completion_from();
    assert_eq!((completion.context, no_source), (2, FabricAddress::UNSPECIFIED));
    source
}

pub(crate) fn a_source_is_what_the_address_vector_calls_it(net: &Net) {
    let receiver = net.party();
    let senders: Vec<Party> = (0..3).map(|_| net.party()).collect();
    for sender in &senders {
        sender.meet(&receiver);
        receiver.meet(sender);
    }
    for round in 0..2 {
        for sender in &senders {
            assert_eq!(source_of_message(sender, &receiver), receiver.address_of(sender), "round {round}");
        }
    }
}

pub(crate) fn an_unknown_source_is_unspecified(net: &Net) {
    let (sender, receiver) = (net.party(), net.party());
    sender.meet(&receiver);
    assert_eq!(source_of_message(&sender, &receiver), FabricAddress::UNSPECIFIED);
    let address = receiver.meet(&sender);
    assert_eq!(source_of_message(&sender, &receiver), address, "from now on it is known");
}

pub(crate) fn a_removed_source_is_unspecified(net: &Net) {
    let (sender, receiver) = net.pair();
    assert_eq!(source_of_message(&sender, &receiver), receiver.peer());
    receiver.av.remove(&[receiver.peer()]).unwrap();
    assert_eq!(source_of_message(&sender, &receiver), FabricAddress::UNSPECIFIED);
    let stranger = net.party();
    assert_eq!(receiver.meet(&stranger), FabricAddress(0), "the index is given out again");
    assert_eq!(source_of_message(&sender, &receiver), FabricAddress::UNSPECIFIED, "to somebody else");
    assert_eq!(receiver.meet(&sender), FabricAddress(1));
    assert_eq!(source_of_message(&sender, &receiver), FabricAddress(1));
}

pub(crate) fn of_several_names_the_lowest_is_the_source(net: &Net) {
    let (sender, receiver) = (net.party(), net.party());
    sender.meet(&receiver);
    let (first, second) = (receiver.meet(&sender), receiver.meet(&sender));
    assert!(first < second);
    assert_eq!(source_of_message(&sender, &receiver), first);
    receiver.av.remove(&[first]).unwrap();
    assert_eq!(source_of_message(&sender, &receiver), second);
    // Sending works under each name.
    for _ in 0..2 {
        let address = receiver.meet(&sender);
        sender.endpoint.recv(room(4), FabricAddress::UNSPECIFIED, 3).unwrap();
        receiver.endpoint.send(Bytes::from_static(b"you"), address, 4).unwrap();
        assert_eq!(sender.completion().context, 3);
        assert_eq!(receiver.completion().context, 4);
    }
}

pub(crate) fn without_the_capability_no_source_is_named(net: &Net) {
    let caps = net.info.caps - Caps::SOURCE;
    let (sender, receiver) = net.pair_of(Setup::default(), Setup { caps, ..Setup::default() });
    assert_eq!(source_of_message(&sender, &receiver), FabricAddress::UNSPECIFIED);
}
