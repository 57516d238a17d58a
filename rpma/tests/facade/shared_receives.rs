//! Receives that several connections share.

use crate::prelude::*;

/// A server whose connections share receives, and the peer of its clients.
struct Server {
    client_peer: Peer,
    peer: Peer,
    endpoint: Endpoint,
    receives: SharedReceiveQueue,
    config: ConnectionConfig,
}

impl Server {
    fn open(net: &Net, config: Option<&SharedReceiveQueueConfig>) -> Server {
        let peer = net.open_peer();
        let receives = SharedReceiveQueue::new(&peer, config).expect("a valid configuration");
        let config = ConnectionConfig {
            shared_receive_queue: Some(receives.clone()),
            receive_completion_queue_size: 5,
            ..ConnectionConfig::default()
        };
        Server { client_peer: net.open_peer(), endpoint: listen(&peer), peer, receives, config }
    }

    /// The completion queue of the shared receives.
    fn queue(&self) -> &CompletionQueue {
        self.receives.completion_queue().expect("the configuration asks for it")
    }

    /// Posts an empty receive.
    fn recv(&self, op_context: u64) {
        self.receives.recv(LocalSlice::EMPTY, op_context).expect("room for a receive");
    }

    /// Connects a client. Returns its end, and the server's.
    fn connect(&self) -> (Connection, Connection) {
        let request = request(&self.client_peer, &self.endpoint, None);
        let client = request.connect(b"").expect("a valid request");
        let incoming = next_request(&self.endpoint, Some(&self.config));
        let server = incoming.connect(b"").expect("a request that waits");
        expect_event(&server, ConnectionEvent::Established);
        expect_event(&client, ConnectionEvent::Established);
        (client, server)
    }
}

/// Sends an empty message, and waits for its end.
fn send(client: &Connection) {
    client.send(LocalSlice::EMPTY, Report::Always, 9).expect("room for a send");
    expect_success(client.completion_queue(), Operation::Send, 9);
}

const WITHOUT_QUEUE: SharedReceiveQueueConfig =
    SharedReceiveQueueConfig { receive_queue_size: 20, receive_completion_queue_size: 0 };

/// Shows rpma_cq_get_wc/queue-pair-number, rpma_srq_new/connections-share-receives,
/// rpma_srq_new/completions-of-shared-receives.
pub(crate) fn messages_of_all_connections_take_shared_receives(net: &Net) {
    let server = Server::open(net, None);
    let memory = Memory::zeroed(&server.peer, 4 * 8, Usage::RECV);
    for place in 0..4 {
        server.receives.recv(memory.slice(place * 8, 8), place as u64).unwrap();
    }
    let connections = [(); 2].map(|()| server.connect());
    let queue = server.queue();
    for (place, sender) in [0, 1, 1, 0].into_iter().enumerate() {
        let (client, at_server) = &connections[sender];
        let sent = Memory::with(&server.client_peer, &payload(place as u64, 8), Usage::SEND);
        client.send(sent.all(), Report::Always, 9).unwrap();
        let received = expect_success(queue, Operation::Recv, place as u64);
        assert_eq!((received.qp_number, received.byte_len), (at_server.qp_number(), 8));
        assert_eq!(memory.read(place * 8, 8), payload(place as u64, 8));
        expect_success(client.completion_queue(), Operation::Send, 9);
    }
    for (_, at_server) in &connections {
        assert!(at_server.receive_completion_queue().is_none());
        expect_no_completion(at_server.completion_queue());
    }
}

pub(crate) fn deregistration_ends_shared_receives(net: &Net) {
    let server = Server::open(net, None);
    let (freed, kept) =
        (Memory::zeroed(&server.peer, 8, Usage::RECV), Memory::zeroed(&server.peer, 8, Usage::RECV));
    server.receives.recv(freed.all(), 1).unwrap();
    server.receives.recv(kept.all(), 2).unwrap();
    // Before there is a connection. The first one reports it.
    drop(freed);
    let (client, _at_server) = server.connect();
    let queue = server.queue();
    expect_failure(queue, Status::Flushed, 1);
    let sent = Memory::with(&server.client_peer, b"message!", Usage::SEND);
    client.send(sent.all(), Report::Always, 3).unwrap();
    expect_success(queue, Operation::Recv, 2);
    assert_eq!(kept.read(0, 8), b"message!");
}

/// Shows rpma_srq_new/completions-of-shared-receives.
pub(crate) fn shared_receives_complete_in_the_connection_without_a_queue(net: &Net) {
    let mut server = Server::open(net, Some(&WITHOUT_QUEUE));
    assert!(server.receives.completion_queue().is_none());
    let with_queue = server.connect();
    server.config.receive_completion_queue_size = 0;
    let without_queue = server.connect();
    for (context, (client, at_server)) in (0..).zip([&with_queue, &without_queue, &with_queue]) {
        server.recv(context);
        client.send_with_imm(LocalSlice::EMPTY, Report::OnError, 5, 9).unwrap();
        let queue = at_server.receive_completion_queue().unwrap_or(at_server.completion_queue());
        let received = expect_success(queue, Operation::Recv, context);
        assert_eq!((received.qp_number, received.imm), (at_server.qp_number(), 5));
    }
    assert!(with_queue.1.receive_completion_queue().is_some());
    assert!(without_queue.1.receive_completion_queue().is_none());
}

pub(crate) fn shared_receives_outlive_a_connection(net: &Net) {
    let server = Server::open(net, None);
    let queue = server.queue();
    for context in 0..3 {
        server.recv(context);
    }
    let (first, at_server) = server.connect();
    send(&first);
    first.disconnect().unwrap();
    expect_event(&at_server, ConnectionEvent::Closed);
    let number = at_server.qp_number();
    drop((first, at_server));
    // Its message can still be received, and the other receives are there for others.
    let received = expect_success(queue, Operation::Recv, 0);
    assert_eq!(received.qp_number, number);
    expect_no_completion(queue);
    let (second, at_server) = server.connect();
    for context in 1..3 {
        second.send(LocalSlice::EMPTY, Report::OnError, 9).unwrap();
        assert_eq!(expect_success(queue, Operation::Recv, context).qp_number, at_server.qp_number());
    }
}

pub(crate) fn shared_receive_queue_wakes_for_every_connection(net: &Net) {
    let server = Server::open(net, None);
    let queue = server.queue();
    let descriptor = queue.fd().unwrap();
    assert!(!is_readable(descriptor));
    // A thread that waits before there is a connection.
    let waiting = queue.clone();
    let sleeper = spawn_sleeper(move || {
        let numbers = [(); 3].map(|()| {
            waiting.wait().unwrap();
            waiting.next().expect("nothing else reads").qp_number
        });
        Vec::from(numbers)
    });
    let expected = Vec::from_iter((0..3).map(|context| {
        server.recv(context);
        let (client, at_server) = server.connect();
        send(&client);
        at_server.qp_number()
    }));
    let mut numbers = join_in_time(sleeper);
    numbers.sort_unstable();
    assert_eq!(numbers, expected);
    server.recv(1);
    let (client, at_server) = server.connect();
    assert!(!is_readable(descriptor));
    client.send(LocalSlice::EMPTY, Report::Always, 1).unwrap();
    wait_readable(descriptor);
    // The connection goes, and its completion stays.
    drop(at_server);
    assert!(is_readable(descriptor));
    assert_eq!(queue.wait(), Ok(()));
    assert!(is_readable(descriptor));
    expect_success(queue, Operation::Recv, 1);
    assert!(!is_readable(descriptor));
}

/// Shows rpma_srq_new/connections-share-receives.
pub(crate) fn writes_with_immediate_data_take_shared_receives(net: &Net) {
    let server = Server::open(net, None);
    let (client, at_server) = server.connect();
    server.recv(3);
    client.write_with_imm(RemotePlace::NONE, LocalSlice::EMPTY, Report::Always, 7, 4).unwrap();
    let queue = server.queue();
    let received = expect_success(queue, Operation::RecvRdmaWithImm, 3);
    assert_eq!((received.imm, received.qp_number), (7, at_server.qp_number()));
    // A message that is too long fails the receive and the connection, but leaves the other receives.
    server.recv(5);
    server.recv(6);
    let sent = Memory::zeroed(&server.client_peer, 8, Usage::SEND);
    client.send(sent.all(), Report::OnError, 8).unwrap();
    expect_failure(queue, Status::LocalLength, 5);
    expect_event(&at_server, ConnectionEvent::Closed);
    expect_no_completion(queue);
    let (client, _at_server) = server.connect();
    client.send(LocalSlice::EMPTY, Report::OnError, 8).unwrap();
    assert_eq!(next_completion(queue).op_context, 6);
}

pub(crate) fn connection_with_shared_receives_refuses_its_own(net: &Net) {
    let server = Server::open(net, None);
    let (_client, at_server) = server.connect();
    let refused = Err(Error::Invalid(Invalid::SharedReceives));
    assert_eq!(at_server.recv(LocalSlice::EMPTY, 1), refused);
    let memory = Memory::zeroed(&server.peer, 8, Usage::SEND);
    let missing = Err(Error::Invalid(Invalid::LocalUsage { needed: Usage::RECV }));
    assert_eq!(server.receives.recv(memory.all(), 1), missing);
    let few = SharedReceiveQueueConfig { receive_queue_size: 2, ..WITHOUT_QUEUE };
    let full = SharedReceiveQueue::new(&server.peer, Some(&few)).unwrap();
    full.recv(LocalSlice::EMPTY, 1).unwrap();
    full.recv(LocalSlice::EMPTY, 2).unwrap();
    assert_eq!(full.recv(LocalSlice::EMPTY, 3), Err(Error::QueueFull));
}

/// Shows rpma_srq_new/shared-channel-is-refused.
pub(crate) fn shared_channel_beside_a_shared_queue_is_refused(net: &Net) {
    let mut server = Server::open(net, None);
    server.config.shared_completion_channel = true;
    let config = Some(&server.config);
    let prepared = ConnectionRequest::new(&server.peer, "127.0.0.1", 1, config);
    assert_eq!(prepared.unwrap_err(), Error::Invalid(Invalid::SharedChannel));
    // The same at the accepting side, which rejects the request.
    let client = request(&server.client_peer, &server.endpoint, None).connect(b"").unwrap();
    let refused = server.endpoint.next_connection_request(config);
    assert_eq!(refused.unwrap_err(), Error::Invalid(Invalid::SharedChannel));
    expect_event(&client, ConnectionEvent::Rejected);
    // Objects of two peers do not fit.
    let config = ConnectionConfig { shared_completion_channel: false, ..server.config.clone() };
    let foreign = ConnectionRequest::new(&server.client_peer, "127.0.0.1", 1, Some(&config));
    assert_eq!(foreign.unwrap_err(), Error::Invalid(Invalid::OtherPeer));
}

/// How many completions of receives are kept.
const KEPT_MAX: u64 = (SharedReceiveQueue::KEPT_COMPLETIONS_MAX_BYTES / size_of::<Completion>()) as u64;

/// Shows rpma_srq_new/unread-completions-are-limited.
pub(crate) fn receives_are_refused_while_a_shared_channel_keeps_too_many(net: &Net) {
    let mut server = Server::open(net, Some(&WITHOUT_QUEUE));
    server.config.shared_completion_channel = true;
    let (client, at_server) = server.connect();
    let mut count = 0;
    while server.receives.recv(LocalSlice::EMPTY, count) != Err(Error::QueueFull) {
        send(&client);
        // The application reads the other queue.
        expect_no_completion(at_server.completion_queue());
        count += 1;
        assert!(count <= KEPT_MAX, "receives are kept without limit");
    }
    assert_eq!(count, KEPT_MAX);
    expect_success(at_server.receive_completion_queue().unwrap(), Operation::Recv, 0);
    assert_eq!(server.receives.recv(LocalSlice::EMPTY, count), Ok(()));
}

/// Shows rpma_srq_new/unread-completions-are-limited.
pub(crate) fn receives_are_refused_while_completions_of_dropped_connections_are_kept(net: &Net) {
    let size = u32::try_from(KEPT_MAX).unwrap();
    let config = SharedReceiveQueueConfig { receive_queue_size: size, receive_completion_queue_size: size };
    let server = Server::open(net, Some(&config));
    for context in 0..KEPT_MAX {
        server.recv(context);
    }
    let (client, at_server) = server.connect();
    for _ in 0..KEPT_MAX {
        send(&client);
    }
    drop((client, at_server));
    assert_eq!(server.receives.recv(LocalSlice::EMPTY, 1), Err(Error::QueueFull));
    expect_success(server.queue(), Operation::Recv, 0);
    assert_eq!(server.receives.recv(LocalSlice::EMPTY, 1), Ok(()));
}

pub(crate) fn dropped_connection_leaves_its_completions_in_the_queue_and_the_descriptor_readable(net: &Net) {
    const COUNT: u64 = 5;
    // With the smaller queue, some receives find it full.
    for size in [2, 20] {
        let sizes = SharedReceiveQueueConfig { receive_queue_size: 20, receive_completion_queue_size: size };
        let server = Server::open(net, Some(&sizes));
        let (queue, (client, at_server)) = (server.queue(), server.connect());
        for context in 0..COUNT {
            server.recv(context);
            send(&client);
        }
        drop(at_server);
        let _other = (size == 2).then(|| server.connect());
        for context in 0..COUNT {
            assert!(is_readable(queue.fd().unwrap()), "{size}: {context}");
            assert_eq!(queue.next().map(|received| received.op_context), Ok(context), "{size}");
        }
        assert!(!is_readable(queue.fd().unwrap()), "{size}");
        expect_no_completion(queue);
    }
}
