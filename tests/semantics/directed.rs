//! Receives that name their source: `FI_DIRECTED_RECV`.

use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::flags::{Caps, OpFlags};
use homespun::{Errno, Error, FabricAddress, Misuse, OperationError};

use homespun_suite::payload::{payload, received, room};
use homespun_suite::{Net, Party, Setup};

/// A receiver, and two senders that it knows as 0 and 1.
fn three(net: &Net, caps: Caps) -> (Party, [Party; 2]) {
    let receiver = net.open(Setup { caps, ..Setup::default() });
    let senders = [net.party(), net.party()];
    for sender in &senders {
        sender.meet(&receiver);
        receiver.meet(sender);
    }
    (receiver, senders)
}

/// Sends a message that is there when this returns.
fn deliver(from: &Party, identity: u64) {
    from.send_and_wait(SendMsg {
        buffers: vec![payload(identity, 16)],
        to: from.peer(),
        ..SendMsg::default()
    });
}

#[track_caller]
fn expect_message(receiver: &Party, context: u64, identity: u64, from: FabricAddress) {
    let (completion, source) = receiver.completion_from();
    assert_eq!((completion.context, source), (context, from));
    assert_eq!(received(&completion.buffer), payload(identity, 16));
}

pub(crate) fn directed_receive_takes_messages_of_its_source_alone(net: &Net) {
    let (receiver, senders) = three(net, net.info.caps);
    let [first, second] = [FabricAddress(0), FabricAddress(1)];
    // The receive is there first.
    receiver.endpoint.recv(room(16), second, 1).unwrap();
    deliver(&senders[0], 10);
    receiver.silence();
    deliver(&senders[1], 11);
    expect_message(&receiver, 1, 11, second);
    // The messages are there first.
    deliver(&senders[1], 12);
    receiver.endpoint.recv(room(16), first, 2).unwrap();
    expect_message(&receiver, 2, 10, first);
    receiver.endpoint.recv(room(16), first, 3).unwrap();
    receiver.silence();
    receiver.endpoint.recv(room(16), second, 4).unwrap();
    expect_message(&receiver, 4, 12, second);
    let unknown = receiver.endpoint.recv(room(16), FabricAddress(2), 5);
    assert_eq!(unknown, Err(Error::Misuse(Misuse::UnknownAddress(2))));
}

pub(crate) fn receive_from_unspecified_source_takes_any_message(net: &Net) {
    let (receiver, senders) = three(net, net.info.caps);
    for (identity, sender) in (10..).zip(&senders) {
        receiver.endpoint.recv(room(16), FabricAddress::UNSPECIFIED, identity).unwrap();
        deliver(sender, identity);
        expect_message(&receiver, identity, identity, receiver.address_of(sender));
    }
    let stranger = net.party();
    stranger.meet(&receiver);
    deliver(&stranger, 20);
    receiver.endpoint.recv(room(16), FabricAddress::UNSPECIFIED, 20).unwrap();
    expect_message(&receiver, 20, 20, FabricAddress::UNSPECIFIED);
}

pub(crate) fn directed_and_undirected_receives_match_in_posting_order(net: &Net) {
    let (receiver, senders) = three(net, net.info.caps);
    let [first, second] = [FabricAddress(0), FabricAddress(1)];
    for (context, from) in [(1, second), (2, FabricAddress::UNSPECIFIED), (3, first), (4, second)] {
        receiver.endpoint.recv(room(16), from, context).unwrap();
    }
    deliver(&senders[0], 10);
    expect_message(&receiver, 2, 10, first);
    deliver(&senders[1], 11);
    expect_message(&receiver, 1, 11, second);
    deliver(&senders[1], 12);
    expect_message(&receiver, 4, 12, second);
    deliver(&senders[0], 13);
    expect_message(&receiver, 3, 13, first);
}

pub(crate) fn source_without_the_capability_is_refused(net: &Net) {
    let (receiver, senders) = three(net, net.info.caps - Caps::DIRECTED_RECV);
    let (endpoint, only) = (&receiver.endpoint, FabricAddress(1));
    let lacks = Error::Misuse(Misuse::NoCapability(Caps::DIRECTED_RECV));
    let peek = RecvMsg { from: only, flags: OpFlags::PEEK, ..RecvMsg::default() };
    let refusals = [
        endpoint.recv(room(16), only, 1),
        endpoint.trecv(room(16), only, 7, 0, 1),
        endpoint.recv_multi(room(16), only, 1),
        endpoint.recvmsg(RecvMsg { buffers: vec![room(16)], from: only, ..RecvMsg::default() }),
        endpoint.recvmsg(peek),
    ];
    for refused in refusals {
        assert_eq!(refused, Err(lacks.clone()));
    }
    // Nothing was posted.
    endpoint.recv(room(16), FabricAddress::UNSPECIFIED, 2).unwrap();
    deliver(&senders[0], 10);
    expect_message(&receiver, 2, 10, FabricAddress(0));
    receiver.silence();
}

pub(crate) fn directed_receive_fails_when_its_source_closes(net: &Net) {
    let (receiver, [first, second]) = three(net, net.info.caps);
    let names = [FabricAddress(0), FabricAddress(1)];
    // A receive alone connects to no peer, so the absence of one goes unnoticed.
    receiver.endpoint.recv(room(16), names[0], 1).unwrap();
    receiver.endpoint.trecv(room(16), names[0], 5, 0, 2).unwrap();
    receiver.endpoint.recv(room(16), names[1], 3).unwrap();
    receiver.endpoint.recv(room(16), FabricAddress::UNSPECIFIED, 4).unwrap();
    receiver.silence();
    deliver(&first, 10);
    expect_message(&receiver, 1, 10, names[0]);
    receiver.endpoint.recv(room(16), names[0], 5).unwrap();
    // Messages that it sent before closing are still received.
    first.endpoint.inject(&payload(11, 16), first.peer(), Some(5), None).unwrap();
    drop(first);
    expect_message(&receiver, 2, 11, names[0]);
    let failed = receiver.failure();
    assert_eq!(failed.completion.context, 5);
    assert!(matches!(failed.error, OperationError::Link(_)), "{failed:?}");
    receiver.silence();
    deliver(&second, 12);
    expect_message(&receiver, 3, 12, names[1]);
    deliver(&second, 13);
    expect_message(&receiver, 4, 13, names[1]);
    receiver.silence();
}

/// The contexts of so many failures with a broken link, in the order of the contexts.
#[track_caller]
fn failed_contexts(party: &Party, count: usize, errors: &[Errno]) -> Vec<u64> {
    let mut contexts: Vec<u64> = (0..count)
        .map(|_| {
            let failed = party.failure();
            assert!(matches!(failed.error, OperationError::Link(_)), "{failed:?}");
            assert!(errors.contains(&failed.errno()), "{failed:?}");
            failed.completion.context
        })
        .collect();
    contexts.sort_unstable();
    party.silence();
    contexts
}

pub(crate) fn directed_receive_fails_when_a_send_to_its_source_is_refused(net: &Net) {
    let receiver = net.party();
    let vacancy = net.vacancy();
    let address = vacancy.address;
    let absent = receiver.av.insert(&[address]).remove(0).unwrap();
    receiver.endpoint.recv(room(16), absent, 1).unwrap();
    receiver.endpoint.trecv(room(16), absent, 5, 0, 2).unwrap();
    receiver.endpoint.recv_multi(room(16), absent, 3).unwrap();
    receiver.endpoint.recv(room(16), FabricAddress::UNSPECIFIED, 4).unwrap();
    receiver.silence();
    receiver.endpoint.send(payload(1, 16), absent, 5).unwrap();
    assert_eq!(failed_contexts(&receiver, 4, &[Errno::ECONNREFUSED]), [1, 2, 3, 5]);
    // A receive that is posted later waits for the next attempt, which fails too.
    receiver.endpoint.recv(room(16), absent, 6).unwrap();
    receiver.silence();
    receiver.endpoint.inject(&payload(2, 16), absent, Some(5), None).unwrap();
    assert_eq!(failed_contexts(&receiver, 2, &[Errno::ECONNREFUSED]), [0, 6]);
    // The peer comes, and a receive that is waiting then takes its message.
    receiver.endpoint.trecv(room(16), absent, 5, 0, 7).unwrap();
    drop(vacancy);
    let source = net.open(Setup { at: Some(address), ..Setup::default() });
    source.meet(&receiver);
    source.endpoint.inject(&payload(8, 16), source.peer(), Some(5), None).unwrap();
    expect_message(&receiver, 7, 8, absent);
    deliver(&source, 9);
    expect_message(&receiver, 4, 9, absent);
}

pub(crate) fn directed_receive_fails_when_its_source_closed_before_the_first_send(net: &Net) {
    const GONE: [Errno; 4] = [Errno::ECONNREFUSED, Errno::ECONNRESET, Errno::ESHUTDOWN, Errno::EPIPE];
    let (receiver, [first, second]) = three(net, net.info.caps);
    let names = [FabricAddress(0), FabricAddress(1)];
    for (context, name) in (1..).zip(names) {
        receiver.endpoint.recv(room(16), name, context).unwrap();
    }
    drop(first);
    receiver.silence();
    receiver.endpoint.send(payload(1, 16), names[0], 3).unwrap();
    assert_eq!(failed_contexts(&receiver, 2, &GONE), [1, 3]);
    deliver(&second, 10);
    expect_message(&receiver, 2, 10, names[1]);
    // This one closes while the link to it is being made, or just after.
    let third = net.party();
    let to = receiver.meet(&third);
    receiver.endpoint.recv(room(16), to, 4).unwrap();
    let (buffers, flags) = (vec![payload(2, 16)], OpFlags::MATCH_COMPLETE);
    receiver.endpoint.sendmsg(SendMsg { buffers, to, context: 5, flags, ..SendMsg::default() }).unwrap();
    drop(third);
    assert_eq!(failed_contexts(&receiver, 2, &GONE), [4, 5]);
}
