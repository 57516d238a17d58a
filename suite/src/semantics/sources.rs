//! The source of a message: `fi_cq_readfrom`, `FI_SOURCE`, `FI_SOURCE_ERR`.

use super::prelude::*;
use super::rx_cq_data::fields;

/// Opens a sender and a receiver. The receiver has an empty address vector, and reports unknown sources.
fn open_stranger_and_receiver(net: &Net, setup: Setup) -> (Party, Party) {
    let caps = net.info().caps | Caps::SOURCE_ERR;
    let (stranger, receiver) = (net.open_party(), net.open_party_with(Setup { caps, ..setup }));
    stranger.insert_address_of(&receiver);
    (stranger, receiver)
}

/// Checks that an error entry reports this party as an unknown source, and no other error.
#[track_caller]
fn assert_unknown_source(failed: &CompletionError, stranger: &Party) {
    let name = stranger.endpoint.name().unwrap();
    assert_eq!(failed.unknown_source(), Some(name));
    assert_eq!((failed.errno(), failed.overflow_bytes()), (Errno::EADDRNOTAVAIL, 0));
    assert_eq!(failed.source, ANY);
}

/// Sends a message and returns the source that the receiver reads.
#[track_caller]
fn send_and_get_reported_source(from: &Party, to: &Party) -> FabricAddress {
    to.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
    from.endpoint.send(Bytes::from_static(b"who am I"), from.fabric_address_of(to), 2).unwrap();
    let (completion, source) = to.next_completion_with_source();
    assert_eq!(completion.context, 1);
    let (completion, no_source) = from.next_completion_with_source();
    assert_eq!(completion.context, 2);
    assert!(no_source == ANY || !from.is_homespun(), "a send has no source");
    source
}

/// Shows fi_cq/readfrom-tells-sources.
#[over(all)]
fn source_is_the_address_vector_entry_of_the_sender(net: &Net) {
    let receiver = net.open_party();
    let senders = [(); 3].map(|()| net.open_party());
    for sender in &senders {
        sender.meet(&receiver);
    }
    for sender in senders.iter().chain(&senders) {
        let source = send_and_get_reported_source(sender, &receiver);
        assert_eq!(source, receiver.fabric_address_of(sender));
    }
}

/// Shows fi_cq/source-is-in-table, fi_cq/unknown-source-notavail, fi_msg/unspecified-source-matches-any,
/// fi_av/removed-address-is-invalid.
#[over(all)]
fn unknown_or_removed_source_is_unspecified(net: &Net) {
    let (sender, receiver) = (net.open_party(), net.open_party());
    sender.insert_address_of(&receiver);
    assert_eq!(send_and_get_reported_source(&sender, &receiver), ANY);
    let address = receiver.insert_address_of(&sender);
    assert_eq!(send_and_get_reported_source(&sender, &receiver), address, "from now on it is known");
    receiver.av.remove(&[address]);
    receiver.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
    if let Err(error) = sender.endpoint.send(payload(1, 8), sender.peer(), 2) {
        // `fi_av(3)` leaves open whether another provider still receives from the removed peer.
        return assert!(!receiver.is_homespun() && error.errno() == Errno::EAGAIN, "{error}");
    }
    assert_eq!(receiver.next_completion_with_source().1, ANY);
    assert_eq!(sender.next_completion().context, 2);
    receiver.insert_address_of(&net.open_party());
    assert_eq!(send_and_get_reported_source(&sender, &receiver), ANY, "the entry is another peer's");
}

/// Shows fi_av/duplicates.
#[over(all, own)]
fn source_is_the_lowest_of_several_entries(net: &Net) {
    let (sender, receiver) = (net.open_party(), net.open_party());
    sender.insert_address_of(&receiver);
    let (first, second) = (receiver.insert_address_of(&sender), receiver.insert_address_of(&sender));
    assert!(first < second);
    assert_eq!(send_and_get_reported_source(&sender, &receiver), first);
    receiver.av.remove(&[first]);
    assert_eq!(send_and_get_reported_source(&sender, &receiver), second);
    // Messages can be sent to each entry.
    for _ in 0..2 {
        let address = receiver.insert_address_of(&sender);
        receiver.endpoint.send(payload(4, 8), address, 4).unwrap();
        sender.receive_message(3, 8, &payload(4, 8));
        assert_eq!(receiver.next_completion().context, 4);
    }
}

/// Shows fi_cq/source-needs-capability, fi_cq/source-notavail.
#[over(all)]
fn source_is_unspecified_without_the_capability(net: &Net) {
    let caps = net.info().caps - Caps::SOURCE;
    let (sender, receiver) = net.open_pair_with(Setup::default(), Setup { caps, ..Setup::default() });
    assert_eq!(send_and_get_reported_source(&sender, &receiver), ANY);
}

/// Shows fi_cq/source-notavail, fi_cq/no-insertion-by-provider, fi_cq/source-err-eavail,
/// fi_cq/source-err-errno, fi_cq/eaddrnotavail-means-unknown-source, fi_cq/eaddrnotavail-data-arrived.
#[over(all)]
fn unknown_source_error_has_the_whole_completion(net: &Net) {
    for cq_format in [CqFormat::Tagged, CqFormat::Context] {
        let setup = Setup { cq_format: Some(cq_format), ..Setup::default() };
        let (stranger, receiver) = open_stranger_and_receiver(net, setup);
        for (context, len_bytes) in (1..).zip([0, 50, 9000, 300_000]) {
            receiver.endpoint.trecv(marked_buffer(300_000), ANY, Tag(0x1234), context).unwrap();
            let message = payload(context, len_bytes);
            stranger.endpoint.tsenddata(message.clone(), 0xfeed, stranger.peer(), Tag(0x1234), 100).unwrap();
            let failed = receiver.next_failure();
            assert_unknown_source(&failed, &stranger);
            assert!(received_bytes(&failed.completion.buffer) == message, "{len_bytes} bytes");
            let flags = CompletionFlags::RECV | CompletionFlags::TAGGED | CompletionFlags::REMOTE_CQ_DATA;
            assert_eq!(fields(&failed.completion), (context, flags, len_bytes, 0xfeed));
            assert_eq!(failed.completion.tag, Tag(0x1234));
            let (sent, source) = stranger.next_completion_with_source();
            assert_eq!((sent.context, source), (100, ANY), "a send has no source");
        }
        assert_eq!(receiver.av.reverse_lookup(&stranger.endpoint.name().unwrap()), None);
    }
}

/// Shows fi_cq/source-is-usable, fi_cq/eaddrnotavail-address, fi_cq/eaddrnotavail-insertable.
#[over(all)]
fn reported_source_address_can_be_inserted(net: &Net) {
    let (stranger, receiver) = open_stranger_and_receiver(net, Setup::default());
    let send = |context| {
        receiver.endpoint.recv(marked_buffer(8), ANY, context).unwrap();
        stranger.send(context, payload(context, 8));
    };
    send(1);
    let told = receiver.next_failure();
    assert_unknown_source(&told, &stranger);
    let known = receiver.insert(told.unknown_source().unwrap());
    for context in 2..4 {
        send(context);
        let (completion, source) = receiver.next_completion_with_source();
        assert_eq!((completion.context, source), (context, known));
    }
    // Messages can be sent to this entry.
    receiver.endpoint.send(payload(10, 8), known, 11).unwrap();
    stranger.receive_message(10, 8, &payload(10, 8));
    assert_eq!(receiver.next_completion().context, 11);
    // The removed sender is unknown again.
    receiver.av.remove(&[known]);
    send(4);
    assert_unknown_source(&receiver.next_failure(), &stranger);
}

#[over(all)]
fn failed_receive_from_an_unknown_source_reports_the_failure(net: &Net) {
    let (stranger, receiver) = open_stranger_and_receiver(net, Setup::default());
    let truncate = |context| {
        receiver.post_receives([context], 8);
        stranger.post_send(context, 20, OpFlags::empty());
        receiver.next_failure()
    };
    let failed = truncate(1);
    assert_eq!(failed.error, OperationError::Truncated { overflow_bytes: 12 });
    assert_eq!((failed.unknown_source(), failed.source), (None, ANY));
    receiver.post_receives([2], 8);
    receiver.endpoint.cancel(2).unwrap();
    assert_eq!(receiver.next_failure().error, OperationError::Cancelled);
    let known = receiver.insert_address_of(&stranger);
    let failed = truncate(3);
    assert_eq!(failed.errno(), Errno::ETRUNC);
    assert!(failed.source == known || !receiver.is_native(), "an error has a source as well");
}

/// Shows fi_cq/eaddrnotavail-means-unknown-source.
#[over(all)]
fn source_is_looked_up_when_its_entry_is_written(net: &Net) {
    let setup = Setup { cq_depth_entries: 2, ..Setup::default() };
    let (stranger, receiver) = open_stranger_and_receiver(net, setup);
    receiver.post_receives(0..6, 8);
    (0..6).for_each(|context| stranger.deliver(context, 8));
    // The queue has room for two entries. The library looks up the other sources when their entries get
    // room.
    let known = receiver.insert_address_of(&stranger);
    for context in 0..2 {
        assert_unknown_source(&receiver.expect_failure(context, Errno::EADDRNOTAVAIL), &stranger);
    }
    for context in 2..6 {
        let (completion, source) = receiver.next_completion_with_source();
        assert_eq!((completion.context, source), (context, known));
        assert_eq!(received_bytes(&completion.buffer), payload(context, 8));
    }
    receiver.assert_no_completion();
}

/// Shows fi_tagged/peek-reports-metadata.
#[over(all)]
fn peek_reports_an_unknown_source(net: &Net) {
    let (stranger, receiver) = open_stranger_and_receiver(net, Setup::default());
    stranger.deliver_tagged(9, 7, 64);
    let peek = || receiver.post_receive(1, 0, Some(Tag(9)), OpFlags::PEEK);
    peek();
    let told = receiver.next_failure();
    assert_unknown_source(&told, &stranger);
    assert_eq!((told.completion.context, told.completion.len_bytes, told.completion.tag.0), (1, 64, 9));
    let known = receiver.insert_address_of(&stranger);
    peek();
    assert_eq!(receiver.next_completion_with_source().1, known);
    // Once inserted, the sender can be the source of a receive.
    receiver.endpoint.trecv(marked_buffer(64), known, Tag(9), 2).unwrap();
    let (completion, source) = receiver.next_completion_with_source();
    assert_eq!((completion.context, source), (2, known));
    assert_eq!(received_bytes(&completion.buffer), payload(7, 64));
}
