//! Receives that name their source: `FI_DIRECTED_RECV`.

use super::failures::assert_link_ended;
use super::prelude::*;

/// Opens a receiver and two senders. In the receiver's address vector, the senders have the addresses 0 and
/// 1.
fn open_receiver_and_senders(net: &Net, caps: Caps) -> (Party, [Party; 2]) {
    let receiver = net.open_party_with(Setup { caps, ..Setup::default() });
    let senders = [net.open_party(), net.open_party()];
    senders.iter().for_each(|sender| _ = sender.meet(&receiver));
    (receiver, senders)
}

#[track_caller]
fn expect_message(receiver: &Party, context: u64, identity: u64, from: FabricAddress) {
    let (completion, source) = receiver.next_completion_with_source();
    assert_eq!((completion.context, source), (context, from));
    assert_eq!(received_bytes(&completion.buffer), payload(identity, 16));
}

/// Sends a message as [`Party::send_unexpected`] does. The receive with this context must take it.
#[track_caller]
fn deliver(sender: &Party, tag: Option<Tag>, receiver: &Party, context: u64, from: FabricAddress) {
    let identity = context + 100;
    sender.send_unexpected(SendMsg { tag, ..sender.message(identity, 16, OpFlags::empty()) });
    expect_message(receiver, context, identity, from);
}

/// Shows fi_msg/source-directs-receive, fi_msg/unspecified-source-matches-any, fi_tagged/tagged-source.
#[over(all)]
fn directed_and_undirected_receives_match_in_posting_order(net: &Net) {
    let (receiver, senders) = open_receiver_and_senders(net, net.info().caps);
    let [first, second] = [FabricAddress(0), FabricAddress(1)];
    for tag in [None, Some(Tag(7))] {
        for (context, from) in [(1, second), (2, ANY), (3, first), (4, second)] {
            let (buffers, tagged) = (vec![marked_buffer(16)], tag.map(Into::into));
            let receive = RecvMsg { buffers, from, tagged, context, ..RecvMsg::default() };
            receiver.endpoint.recvmsg(receive).unwrap();
        }
        for (context, from) in [(2, first), (1, second), (4, second), (3, first)] {
            deliver(&senders[from.0 as usize], tag, &receiver, context, from);
        }
    }
}

// Behind the C interface the source is ignored, as by other providers.
#[over(all, native)]
fn directed_receive_without_the_capability_is_refused(net: &Net) {
    let (receiver, senders) = open_receiver_and_senders(net, net.info().caps - Caps::DIRECTED_RECV);
    let (endpoint, only) = (&receiver.endpoint, FabricAddress(1));
    let peek = RecvMsg { from: only, flags: OpFlags::PEEK, ..RecvMsg::default() };
    let refusals = [
        endpoint.recv(marked_buffer(16), only, 1),
        endpoint.trecv(marked_buffer(16), only, Tag(7), 1),
        endpoint.recv_multi(marked_buffer(16), only, 1),
        endpoint.recvmsg(RecvMsg { buffers: vec![marked_buffer(16)], from: only, ..RecvMsg::default() }),
        endpoint.recvmsg(peek),
    ];
    refusals.into_iter().for_each(|refused| expect_error(refused, Errno::EOPNOTSUPP));
    // Nothing was posted.
    endpoint.recv(marked_buffer(16), ANY, 2).unwrap();
    deliver(&senders[0], None, &receiver, 2, FabricAddress(0));
    receiver.assert_no_completion();
}

#[over(all, own)]
fn directed_receive_fails_when_its_source_closes(net: &Net) {
    let (receiver, [first, second]) = open_receiver_and_senders(net, net.info().caps);
    let names = [FabricAddress(0), FabricAddress(1)];
    // Posting these receives opens no link. So the receiver does not learn whether the peers are there.
    receiver.endpoint.recv(marked_buffer(16), names[0], 1).unwrap();
    receiver.endpoint.trecv(marked_buffer(16), names[0], Tag(5), 2).unwrap();
    receiver.endpoint.recv(marked_buffer(16), names[1], 3).unwrap();
    receiver.endpoint.recv(marked_buffer(16), ANY, 4).unwrap();
    receiver.assert_no_completion();
    deliver(&first, None, &receiver, 1, names[0]);
    receiver.endpoint.recv(marked_buffer(16), names[0], 5).unwrap();
    // The receiver still gets messages that the source sent before it closed.
    first.endpoint.inject(&payload(11, 16), first.peer(), Some(Tag(5)), None).unwrap();
    drop(first);
    expect_message(&receiver, 2, 11, names[0]);
    let failed = receiver.next_failure();
    assert_eq!(failed.completion.context, 5);
    assert_link_ended(&failed);
    // When this receive is posted, the endpoint knows that the source is gone.
    receiver.endpoint.recv(marked_buffer(16), names[0], 6).unwrap();
    receiver.expect_failures(&[6], assert_link_ended);
    [3, 4].into_iter().for_each(|context| deliver(&second, None, &receiver, context, names[1]));
    receiver.assert_no_completion();
}

#[track_caller]
fn assert_refused(failed: &CompletionError) {
    assert_eq!(failed.errno(), Errno::ECONNREFUSED, "{failed:?}");
}

#[over(all, own)]
fn directed_receive_fails_when_a_send_to_its_source_is_refused(net: &Net) {
    let receiver = net.open_party();
    let vacancy = net.reserve_vacant_address();
    let address = vacancy.address;
    let absent = receiver.insert(address);
    receiver.endpoint.recv(marked_buffer(16), absent, 1).unwrap();
    receiver.endpoint.trecv(marked_buffer(16), absent, Tag(5), 2).unwrap();
    receiver.endpoint.recv_multi(marked_buffer(16), absent, 3).unwrap();
    receiver.endpoint.recv(marked_buffer(16), ANY, 4).unwrap();
    receiver.assert_no_completion();
    receiver.endpoint.send(payload(1, 16), absent, 5).unwrap();
    receiver.expect_failures(&[1, 2, 3, 5], assert_refused);
    // For a receive that is posted later, the endpoint connects again, and is refused again.
    receiver.endpoint.recv(marked_buffer(16), absent, 6).unwrap();
    receiver.expect_failures(&[6], assert_refused);
    receiver.endpoint.trecv(marked_buffer(16), absent, Tag(5), 7).unwrap();
    receiver.expect_failures(&[7], assert_refused);
    receiver.endpoint.recv_multi(marked_buffer(16), absent, 8).unwrap();
    receiver.expect_failures(&[8], assert_refused);
    // Once the peer has opened, a receive waits for its message.
    drop(vacancy);
    let source = net.open_party_with(Setup { at: Some(address), ..Setup::default() });
    receiver.endpoint.trecv(marked_buffer(16), absent, Tag(5), 7).unwrap();
    receiver.assert_no_completion();
    source.insert_address_of(&receiver);
    source.endpoint.inject(&payload(8, 16), source.peer(), Some(Tag(5)), None).unwrap();
    expect_message(&receiver, 7, 8, absent);
    deliver(&source, None, &receiver, 4, absent);
}
