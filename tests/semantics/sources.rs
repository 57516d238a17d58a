//! The source of a message: `fi_cq_readfrom`, `FI_SOURCE`, `FI_SOURCE_ERR`.

use std::thread;

use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::flags::{BindFlags, Caps, CompletionFlags, OpFlags};
use homespun::info::{Info, ResourceManagement};
use homespun::{
    AvAttr, Bytes, Completion, CompletionError, CqAttr, CqFormat, Errno, FabricAddress, OperationError,
    ReadError, Tag, WaitObject,
};

use homespun_suite::payload::{payload, received, room};
use homespun_suite::{Deadline, Net, Party, Setup};

const ANY: FabricAddress = FabricAddress::UNSPECIFIED;

/// The setup of an endpoint that reports senders outside its address vector.
fn reporting_unknown_sources(net: &Net) -> Setup {
    Setup { caps: net.info.caps | Caps::SOURCE_ERR, ..Setup::default() }
}

/// A sender, and a receiver with an empty address vector that reports unknown sources.
fn stranger_and_receiver(net: &Net, setup: Setup) -> (Party, Party) {
    let (stranger, receiver) =
        (net.party(), net.open(Setup { caps: reporting_unknown_sources(net).caps, ..setup }));
    stranger.meet(&receiver);
    (stranger, receiver)
}

/// Checks that an error reports this party as the unknown source of an otherwise successful receive.
#[track_caller]
fn assert_by_stranger(failed: &CompletionError, stranger: &Party) {
    let name = stranger.endpoint.name().unwrap();
    assert_eq!(failed.unknown_source(), Some(name));
    assert_eq!((failed.errno(), failed.overflow_bytes()), (Errno::EADDRNOTAVAIL, 0));
    assert_eq!(failed.source, FabricAddress::UNSPECIFIED);
}

/// Sends a message and returns the source that the receiver reads.
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

pub(crate) fn source_is_the_address_vector_entry_of_the_sender(net: &Net) {
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

pub(crate) fn unknown_source_is_unspecified(net: &Net) {
    let (sender, receiver) = (net.party(), net.party());
    sender.meet(&receiver);
    assert_eq!(source_of_message(&sender, &receiver), FabricAddress::UNSPECIFIED);
    let address = receiver.meet(&sender);
    assert_eq!(source_of_message(&sender, &receiver), address, "from now on it is known");
}

pub(crate) fn removed_source_is_unspecified(net: &Net) {
    let (sender, receiver) = net.pair();
    assert_eq!(source_of_message(&sender, &receiver), receiver.peer());
    receiver.av.remove(&[receiver.peer()]).unwrap();
    assert_eq!(source_of_message(&sender, &receiver), FabricAddress::UNSPECIFIED);
    let stranger = net.party();
    assert_eq!(receiver.meet(&stranger), FabricAddress(0), "the index is given out again");
    assert_eq!(
        source_of_message(&sender, &receiver),
        FabricAddress::UNSPECIFIED,
        "the entry is another peer's"
    );
    assert_eq!(receiver.meet(&sender), FabricAddress(1));
    assert_eq!(source_of_message(&sender, &receiver), FabricAddress(1));
}

pub(crate) fn source_is_the_lowest_of_several_entries(net: &Net) {
    let (sender, receiver) = (net.party(), net.party());
    sender.meet(&receiver);
    let (first, second) = (receiver.meet(&sender), receiver.meet(&sender));
    assert!(first < second);
    assert_eq!(source_of_message(&sender, &receiver), first);
    receiver.av.remove(&[first]).unwrap();
    assert_eq!(source_of_message(&sender, &receiver), second);
    // Each entry can be sent to.
    for _ in 0..2 {
        let address = receiver.meet(&sender);
        sender.endpoint.recv(room(4), FabricAddress::UNSPECIFIED, 3).unwrap();
        receiver.endpoint.send(Bytes::from_static(b"you"), address, 4).unwrap();
        assert_eq!(sender.completion().context, 3);
        assert_eq!(receiver.completion().context, 4);
    }
}

pub(crate) fn source_is_unspecified_without_the_capability(net: &Net) {
    let caps = net.info.caps - Caps::SOURCE;
    let (sender, receiver) = net.pair_of(Setup::default(), Setup { caps, ..Setup::default() });
    assert_eq!(source_of_message(&sender, &receiver), FabricAddress::UNSPECIFIED);
}

pub(crate) fn unknown_source_error_has_the_whole_completion(net: &Net) {
    for cq_format in [CqFormat::Tagged, CqFormat::Context] {
        let setup = Setup { cq_format: Some(cq_format), ..Setup::default() };
        let (stranger, receiver) = stranger_and_receiver(net, setup);
        for (context, len_bytes) in (1..).zip([0, 50, 9000, 300_000]) {
            receiver.endpoint.trecv(room(300_000), ANY, 0x1234, 0, context).unwrap();
            let message = payload(context, len_bytes);
            stranger.endpoint.tsenddata(message.clone(), 0xfeed, stranger.peer(), 0x1234, 100).unwrap();
            let failed = receiver.failure();
            assert_by_stranger(&failed, &stranger);
            assert!(received(&failed.completion.buffer) == message, "{len_bytes} bytes");
            let expected = Completion {
                context,
                flags: CompletionFlags::RECV | CompletionFlags::TAGGED | CompletionFlags::REMOTE_CQ_DATA,
                len_bytes,
                data: 0xfeed,
                tag: 0x1234,
                ..Completion::default()
            };
            assert_eq!(Completion { buffer: Default::default(), ..failed.completion }, expected);
            let (sent, source) = stranger.completion_from();
            assert_eq!((sent.context, source), (100, FabricAddress::UNSPECIFIED), "a send has no source");
        }
        assert_eq!(receiver.av.reverse_lookup(&stranger.endpoint.name().unwrap()), None);
    }
}

pub(crate) fn reported_source_address_can_be_inserted(net: &Net) {
    let (stranger, receiver) = stranger_and_receiver(net, Setup::default());
    let send = |context| {
        receiver.endpoint.recv(room(8), ANY, context).unwrap();
        stranger.endpoint.send(payload(context, 8), stranger.peer(), context).unwrap();
        assert_eq!(stranger.completion().context, context);
    };
    send(1);
    let told = receiver.failure();
    assert_by_stranger(&told, &stranger);
    let known = receiver.av.insert(&[told.unknown_source().unwrap()]).remove(0).unwrap();
    for context in 2..4 {
        send(context);
        let (completion, source) = receiver.completion_from();
        assert_eq!((completion.context, source), (context, known));
    }
    // Messages can be sent to it.
    stranger.endpoint.recv(room(8), ANY, 10).unwrap();
    receiver.endpoint.send(payload(10, 8), known, 11).unwrap();
    assert_eq!(received(&stranger.completion().buffer), payload(10, 8));
    assert_eq!(receiver.completion().context, 11);
    // The removed sender is unknown again.
    receiver.av.remove(&[known]).unwrap();
    send(4);
    assert_by_stranger(&receiver.failure(), &stranger);
}

pub(crate) fn unknown_source_errors_keep_completion_order(net: &Net) {
    let (stranger, receiver) = stranger_and_receiver(net, Setup::default());
    let friend = net.party();
    friend.meet(&receiver);
    let known = receiver.meet(&friend);
    for (context, from) in (1..).zip([&friend, &friend, &stranger, &friend, &stranger]) {
        receiver.endpoint.recv(room(8), ANY, context).unwrap();
        let send =
            SendMsg { buffers: vec![payload(context, 8)], to: from.peer(), context, ..SendMsg::default() };
        from.send_and_wait(send);
    }
    let batch = || {
        let mut contexts = Vec::new();
        let read = receiver.cq.read_each(16, |completion, source| {
            assert_eq!(source, known);
            contexts.push(completion.context);
        });
        read.map(|_| contexts)
    };
    // One by one, since the threads that drive the receiver may have been asleep.
    let mut contexts = Vec::new();
    while contexts.len() < 2 {
        receiver.progress_all();
        contexts.extend(batch().unwrap());
    }
    assert_eq!(contexts, [1, 2]);
    assert_eq!(batch(), Err(ReadError::ErrorAvailable));
    assert_eq!(batch(), Err(ReadError::ErrorAvailable), "until it is read");
    assert_eq!(receiver.cq.read_error().unwrap().unwrap().completion.context, 3);
    assert_eq!(receiver.cq.read_error(), Ok(None), "a success comes next");
    assert_eq!(batch(), Ok(vec![4]));
    assert_eq!(batch(), Err(ReadError::ErrorAvailable));
    assert_by_stranger(&receiver.failure(), &stranger);
    receiver.silence();
}

pub(crate) fn failed_receive_from_an_unknown_source_reports_the_failure(net: &Net) {
    let (stranger, receiver) = stranger_and_receiver(net, Setup::default());
    receiver.endpoint.recv(room(8), ANY, 1).unwrap();
    stranger.endpoint.send(payload(1, 20), stranger.peer(), 2).unwrap();
    let failed = receiver.failure();
    assert_eq!(failed.error, OperationError::Truncated { overflow_bytes: 12 });
    assert_eq!((failed.unknown_source(), failed.source), (None, FabricAddress::UNSPECIFIED));
    receiver.endpoint.recv(room(8), ANY, 3).unwrap();
    receiver.endpoint.cancel(3).unwrap();
    assert_eq!(receiver.failure().error, OperationError::Cancelled);
    receiver.meet(&stranger);
    receiver.endpoint.recv(room(8), ANY, 4).unwrap();
    stranger.endpoint.send(payload(1, 20), stranger.peer(), 5).unwrap();
    assert_eq!(receiver.failure().source, FabricAddress(0), "an error has a source as well");
}

pub(crate) fn source_is_looked_up_when_its_entry_is_written(net: &Net) {
    let setup = Setup { cq_depth_entries: 2, ..Setup::default() };
    let (stranger, receiver) = stranger_and_receiver(net, setup);
    for context in 0..6 {
        receiver.endpoint.recv(room(8), ANY, context).unwrap();
        let to = stranger.peer();
        stranger.send_and_wait(SendMsg {
            buffers: vec![payload(context, 8)],
            to,
            context,
            ..SendMsg::default()
        });
    }
    // Two entries have room in the queue. The sources of the others are looked up when they get room.
    let known = receiver.meet(&stranger);
    for context in 0..2 {
        let failed = receiver.failure();
        assert_by_stranger(&failed, &stranger);
        assert_eq!(failed.completion.context, context);
    }
    for context in 2..6 {
        let (completion, source) = receiver.completion_from();
        assert_eq!((completion.context, source), (context, known));
        assert_eq!(received(&completion.buffer), payload(context, 8));
    }
    receiver.silence();
}

pub(crate) fn unknown_source_errors_take_room_in_the_queue(net: &Net) {
    let resource_mgmt = Some(ResourceManagement::Disabled);
    let setup = Setup { cq_depth_entries: 2, resource_mgmt, ..Setup::default() };
    let (stranger, receiver) = stranger_and_receiver(net, setup);
    for context in 0..3 {
        receiver.endpoint.recv(room(8), ANY, context).unwrap();
        let to = stranger.peer();
        stranger.send_and_wait(SendMsg {
            buffers: vec![payload(context, 8)],
            to,
            context,
            ..SendMsg::default()
        });
    }
    for context in 0..2 {
        let failed = receiver.failure();
        assert_by_stranger(&failed, &stranger);
        assert_eq!(failed.completion.context, context);
    }
    assert_eq!(receiver.cq.read(), Err(ReadError::Overrun));
}

pub(crate) fn peek_reports_an_unknown_source(net: &Net) {
    let (stranger, receiver) = stranger_and_receiver(net, Setup::default());
    let to = stranger.peer();
    stranger.send_and_wait(SendMsg { buffers: vec![payload(7, 64)], to, tag: Some(9), ..SendMsg::default() });
    let look =
        RecvMsg { tagged: Some(Tag(9).into()), context: 1, flags: OpFlags::PEEK, ..RecvMsg::default() };
    receiver.endpoint.recvmsg(look.clone()).unwrap();
    let told = receiver.failure();
    assert_by_stranger(&told, &stranger);
    assert_eq!((told.completion.context, told.completion.len_bytes, told.completion.tag), (1, 64, 9));
    let known = receiver.meet(&stranger);
    receiver.endpoint.recvmsg(look).unwrap();
    assert_eq!(receiver.completion_from().1, known);
    // Once inserted, the sender can be named as the source of a receive.
    receiver.endpoint.trecv(room(64), known, 9, 0, 2).unwrap();
    let (completion, source) = receiver.completion_from();
    assert_eq!((completion.context, source), (2, known));
    assert_eq!(received(&completion.buffer), payload(7, 64));
}

pub(crate) fn unreported_success_reports_no_unknown_source(net: &Net) {
    let (stranger, receiver) = stranger_and_receiver(net, Setup { selective: true, ..Setup::default() });
    receiver.endpoint.recv(room(8), ANY, 1).unwrap();
    let (buffers, flags) = (vec![room(8)], OpFlags::COMPLETION);
    receiver.endpoint.recvmsg(RecvMsg { buffers, context: 2, flags, ..RecvMsg::default() }).unwrap();
    for context in 1..3 {
        stranger.endpoint.send(payload(context, 8), stranger.peer(), context).unwrap();
    }
    let told = receiver.failure();
    assert_by_stranger(&told, &stranger);
    assert_eq!(told.completion.context, 2, "the first has succeeded, and that was not to be told");
    receiver.silence();
}

pub(crate) fn separate_receive_queue_reports_unknown_sources(net: &Net) {
    let setup = Setup { separate_queues: true, ..Setup::default() };
    let (stranger, receiver) = stranger_and_receiver(net, setup);
    receiver.endpoint.recv(room(8), ANY, 1).unwrap();
    stranger.endpoint.send(payload(1, 8), stranger.peer(), 1).unwrap();
    let told = receiver.next_of(receiver.receive_cq.as_ref().unwrap()).unwrap_err();
    assert_by_stranger(&told, &stranger);
    receiver.silence();
}

pub(crate) fn unknown_source_wakes_a_blocked_reader(net: &Net) {
    let domain = net.domain();
    let attr = CqAttr { wait: WaitObject::Unspec, ..CqAttr::default() };
    let (cq, av) = (domain.open_cq(&attr).unwrap(), domain.open_av(&AvAttr::default()).unwrap());
    let endpoint =
        domain.endpoint(&Info { caps: reporting_unknown_sources(net).caps, ..net.info.clone() }).unwrap();
    endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV).unwrap();
    endpoint.bind_av(&av).unwrap();
    endpoint.enable().unwrap();
    let stranger = net.party();
    let to = stranger.av.insert(&[endpoint.name().unwrap()]).remove(0).unwrap();
    for context in 0..3 {
        endpoint.recv(room(8), ANY, context).unwrap();
        thread::scope(|scope| {
            let asleep = scope.spawn(|| cq.sread_from(None));
            stranger.endpoint.send(payload(context, 8), to, 7).unwrap();
            assert_eq!(stranger.completion().context, 7);
            let deadline = Deadline::new();
            while !asleep.is_finished() {
                stranger.progress_all();
                deadline.pause("the blocked reader to wake");
            }
            assert_eq!(asleep.join().expect("no panic"), Err(ReadError::ErrorAvailable));
        });
        let told = cq.read_error().unwrap().unwrap();
        assert_by_stranger(&told, &stranger);
        assert_eq!(told.completion.context, context);
    }
}
