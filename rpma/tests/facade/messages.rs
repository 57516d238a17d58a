//! Messages, with and without immediate data.

use crate::prelude::*;

/// Lengths of messages that use every protocol of the native interface.
const LENS_BYTES: [usize; 7] = [1, 8, 100, 5000, 100_000, 300_000, (1 << 20) + 1];

/// Shows rpma_cq_get_completion/returns-next-completion, rpma_cq_get_completion/always-completes-on-success,
/// rpma_cq_get_completion/context-of-message, rpma_cq_get_completion/byte-len-of-message,
/// rpma_cq_get_completion/flags-of-verbs, rpma_cq_get_completion/op-send, rpma_cq_get_completion/op-recv,
/// rpma_cq_get_completion/main-queue-has-all-alone.
pub(crate) fn message_fills_its_receive(net: &Net) {
    let Pair { client, server, client_peer, server_peer } = Pair::connect(net);
    for (context, len_bytes) in (1..).zip(LENS_BYTES) {
        let content = payload(context, len_bytes);
        let sent = Memory::with(&client_peer, &content, Usage::SEND);
        let received = Memory::zeroed(&server_peer, len_bytes + 4, Usage::RECV);
        server.recv(received.slice(2, len_bytes + 2), 100 + context).unwrap();
        client.send(sent.all(), Report::Always, context).unwrap();
        let receive = expect_success(server.completion_queue(), Operation::Recv, 100 + context);
        assert_eq!((receive.byte_len as usize, receive.flags), (len_bytes, CompletionFlags::empty()));
        let send = expect_success(client.completion_queue(), Operation::Send, context);
        assert_eq!((send.byte_len as usize, send.flags), (len_bytes, CompletionFlags::empty()));
        assert!(received.read(2, len_bytes) == content);
        assert_eq!((received.read(0, 2), received.read(len_bytes + 2, 2)), (vec![0; 2], vec![0; 2]));
    }
}

/// Shows rpma_cq_get_completion/context-of-message, rpma_cq_get_completion/flags-of-verbs,
/// rpma_cq_get_completion/imm-in-host-order.
pub(crate) fn immediate_data_arrives_in_host_order(net: &Net) {
    let Pair { client, server, client_peer, server_peer } = Pair::connect(net);
    let sent = Memory::with(&client_peer, b"with a number", Usage::SEND);
    let received = Memory::zeroed(&server_peer, 20, Usage::RECV);
    for (context, imm) in (1..).zip([0, 1, 0x1234_5678, u32::MAX]) {
        server.recv(received.all(), context).unwrap();
        client.send_with_imm(sent.all(), Report::Always, imm, context).unwrap();
        let receive = expect_success(server.completion_queue(), Operation::Recv, context);
        assert_eq!((receive.flags, receive.imm), (CompletionFlags::WITH_IMM, imm));
        assert_eq!((receive.immediate(), receive.byte_len), (Some(imm), 13));
        let send = expect_success(client.completion_queue(), Operation::Send, context);
        assert_eq!((send.flags, send.byte_len), (CompletionFlags::empty(), 13));
    }
    assert_eq!(received.read(0, 13), b"with a number");
}

pub(crate) fn message_that_has_arrived_can_be_received_after_the_end(net: &Net) {
    let Pair { client, server, client_peer, server_peer } = Pair::connect(net);
    let sent = Memory::with(&client_peer, b"farewell", Usage::SEND);
    client.send(sent.all(), Report::Always, 1).unwrap();
    expect_success(client.completion_queue(), Operation::Send, 1);
    client.disconnect().unwrap();
    expect_event(&server, ConnectionEvent::Closed);
    let received = Memory::zeroed(&server_peer, 8, Usage::RECV);
    server.recv(received.all(), 2).unwrap();
    expect_success(server.completion_queue(), Operation::Recv, 2);
    assert_eq!(received.read(0, 8), b"farewell");
    assert_eq!(server.recv(received.all(), 3), Err(Error::NotConnected));
}

/// Shows rpma_cq_get_completion/context-of-early-receive.
pub(crate) fn receives_posted_before_the_connection_take_the_first_messages(net: &Net) {
    let (client_peer, server_peer) = (net.open_peer(), net.open_peer());
    let endpoint = listen(&server_peer);
    let of_client = Memory::zeroed(&client_peer, 8, Usage::SEND | Usage::RECV);
    let of_server = Memory::zeroed(&server_peer, 8, Usage::SEND | Usage::RECV);
    let outgoing = request(&client_peer, &endpoint, None);
    outgoing.recv(of_client.slice(0, 4), 1).unwrap();
    let client = outgoing.connect(b"").unwrap();
    let incoming = next_request(&endpoint, None);
    incoming.recv(of_server.slice(0, 4), 2).unwrap();
    let server = incoming.connect(b"").unwrap();
    expect_event(&server, ConnectionEvent::Established);
    expect_event(&client, ConnectionEvent::Established);
    of_server.write(4, b"down");
    server.send(of_server.slice(4, 4), Report::OnError, 3).unwrap();
    expect_success(client.completion_queue(), Operation::Recv, 1);
    of_client.write(4, b"up!!");
    client.send(of_client.slice(4, 4), Report::OnError, 4).unwrap();
    expect_success(server.completion_queue(), Operation::Recv, 2);
    assert_eq!((of_client.read(0, 4), of_server.read(0, 4)), (b"down".to_vec(), b"up!!".to_vec()));
}

pub(crate) fn deregistration_ends_the_receives_that_wait(net: &Net) {
    let Pair { client, server, client_peer, server_peer } = Pair::connect(net);
    let sent = Memory::with(&client_peer, b"message!", Usage::SEND);
    let (freed, kept) =
        (Memory::zeroed(&server_peer, 24, Usage::RECV), Memory::zeroed(&server_peer, 8, Usage::RECV));
    server.recv(freed.slice(0, 8), 1).unwrap();
    server.recv(kept.all(), 2).unwrap();
    server.recv(freed.slice(8, 16), 3).unwrap();
    drop(freed);
    expect_failure(server.completion_queue(), Status::Flushed, 1);
    expect_failure(server.completion_queue(), Status::Flushed, 3);
    // The connection goes on.
    client.send(sent.all(), Report::Always, 4).unwrap();
    expect_success(server.completion_queue(), Operation::Recv, 2);
    assert_eq!(kept.read(0, 8), b"message!");
    expect_no_completion(server.completion_queue());
}

pub(crate) fn receives_outlive_another_region_of_their_memory(net: &Net) {
    let Pair { client, server, client_peer, server_peer } = Pair::connect(net);
    let sent = Memory::with(&client_peer, b"message!", Usage::SEND);
    let received = Memory::zeroed(&server_peer, 8, Usage::RECV);
    let again = received.register_again(&server_peer, Usage::RECV);
    server.recv(received.all(), 1).unwrap();
    drop(again);
    client.send(sent.all(), Report::Always, 2).unwrap();
    expect_success(server.completion_queue(), Operation::Recv, 1);
    assert_eq!(received.read(0, 8), b"message!");
}

/// Shows rpma_cq_get_completion/send-error-completes, rpma_cq_get_completion/on-error-hides-success.
pub(crate) fn send_without_a_report_completes_only_on_error(net: &Net) {
    let Pair { client, server, client_peer, server_peer } = Pair::connect(net);
    let sent = Memory::with(&client_peer, b"12345678", Usage::SEND);
    let received = Memory::zeroed(&server_peer, 8, Usage::RECV);
    for context in 0..3 {
        server.recv(received.all(), context).unwrap();
        client.send(sent.all(), Report::OnError, context).unwrap();
        expect_success(server.completion_queue(), Operation::Recv, context);
    }
    client.send(LocalSlice::EMPTY, Report::Always, 7).unwrap();
    expect_success(client.completion_queue(), Operation::Send, 7);
    expect_no_completion(client.completion_queue());
    // The peer refuses the last one: its receive is too short.
    server.recv(LocalSlice::EMPTY, 8).unwrap();
    server.recv(LocalSlice::EMPTY, 9).unwrap();
    expect_success(server.completion_queue(), Operation::Recv, 8);
    let long = Memory::with(&client_peer, &payload(1, 1 << 20), Usage::SEND);
    client.send(long.all(), Report::OnError, 10).unwrap();
    expect_failure(server.completion_queue(), Status::LocalLength, 9);
    let failed = next_completion(client.completion_queue());
    assert_eq!(failed.op_context, 10);
    assert_ne!(failed.status, Status::Success);
}

pub(crate) fn too_many_posts_are_refused(net: &Net) {
    let config = ConnectionConfig {
        send_queue_size: 2,
        receive_queue_size: 3,
        completion_queue_size: 2,
        ..ConnectionConfig::default()
    };
    let Pair { client, server, client_peer, server_peer } = Pair::connect_with(net, &config, &config);
    let memory = Memory::zeroed(&server_peer, 8, Usage::RECV);
    for context in 0..3 {
        server.recv(memory.slice(0, 0), context).unwrap();
    }
    assert_eq!(server.recv(memory.all(), 3), Err(Error::QueueFull));
    // Completions that were not read fill the queues.
    let sent = Memory::zeroed(&client_peer, 8, Usage::SEND);
    let mut posted = 0;
    let refused = loop {
        match client.send(sent.slice(0, 0), Report::Always, posted) {
            Ok(()) => posted += 1,
            Err(refused) => break refused,
        }
        assert!(posted <= 4, "two outstanding sends, and two unread completions");
    };
    assert_eq!(refused, Error::QueueFull);
    for context in 0..posted {
        expect_success(client.completion_queue(), Operation::Send, context);
    }
    client.send(sent.slice(0, 0), Report::Always, posted).unwrap();
    expect_success(client.completion_queue(), Operation::Send, posted);
}
