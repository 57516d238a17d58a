//! Completion queues and the channels on which threads wait for them.

use std::os::fd::AsRawFd;
use std::sync::{Barrier, Mutex};

use crate::prelude::*;

fn separate_queues() -> ConnectionConfig {
    ConnectionConfig { receive_completion_queue_size: 10, ..ConnectionConfig::default() }
}

fn shared_channel() -> ConnectionConfig {
    ConnectionConfig { shared_completion_channel: true, ..separate_queues() }
}

fn send(from: &Connection, op_context: u64) {
    from.send(LocalSlice::EMPTY, Report::Always, op_context).expect("room for a send");
}

fn recv(at: &Connection, op_context: u64) {
    at.recv(LocalSlice::EMPTY, op_context).expect("room for a receive");
}

/// Shows rpma_cq_get_completion/main-queue-without-recv,
/// rpma_cq_get_completion/main-queue-without-recv-with-imm,
/// rpma_cq_get_completion/receive-queue-collects-receives, rpma_cq_get_wc/receives-in-receive-queue.
pub(crate) fn main_queue_has_no_receives_beside_a_receive_queue(net: &Net) {
    for config in [separate_queues(), shared_channel()] {
        let Pair { client, server, .. } = Pair::connect_with(net, &config, &config);
        let receives = server.receive_completion_queue().expect("the configuration asks for it");
        for round in 0..3 {
            recv(&server, 10 + round);
            recv(&client, 20 + round);
            send(&client, round);
            client.write_with_imm(RemotePlace::NONE, LocalSlice::EMPTY, Report::Always, 3, 30).unwrap();
            recv(&server, 40);
            expect_success(receives, Operation::Recv, 10 + round);
            expect_success(receives, Operation::RecvRdmaWithImm, 40);
            expect_no_completion(receives);
            expect_no_completion(server.completion_queue());
            send(&server, 50 + round);
            let back = client.receive_completion_queue().expect("the configuration asks for it");
            expect_success(back, Operation::Recv, 20 + round);
            expect_success(server.completion_queue(), Operation::Send, 50 + round);
            expect_success(client.completion_queue(), Operation::Send, round);
            expect_success(client.completion_queue(), Operation::Write, 30);
            expect_no_completion(client.completion_queue());
        }
    }
}

/// Shows rpma_cq_get_completion/call-returns-completion, rpma_cq_get_completion/failure-returns-code,
/// rpma_cq_get_completion/no-completion, rpma_cq_get_wc/no-completion.
pub(crate) fn next_fails_if_there_is_no_completion(net: &Net) {
    let Pair { client, server, .. } = Pair::connect(net);
    assert_eq!(client.completion_queue().next(), Err(Error::NoCompletion));
    recv(&server, 1);
    send(&client, 2);
    expect_success(client.completion_queue(), Operation::Send, 2);
    assert_eq!(client.completion_queue().next(), Err(Error::NoCompletion));
    assert_eq!(client.completion_queue().next_each(4, |_| ()), Err(Error::NoCompletion));
}

/// Shows rpma_cq_get_completion/returns-next-completion, rpma_cq_get_completion/success-returns-first,
/// rpma_cq_get_wc/returns-oldest-first.
pub(crate) fn next_each_takes_several_completions_in_order(net: &Net) {
    let Pair { client, server, .. } = Pair::connect_with(net, &deep_config(), &deep_config());
    for context in 0..20 {
        recv(&server, context);
    }
    for context in 0..20 {
        send(&client, 100 + context);
    }
    for (side, first) in [(&server, 0), (&client, 100)] {
        let mut taken = Vec::new();
        while taken.len() < 20 {
            side.completion_queue().wait().unwrap();
            let at_most = (20 - taken.len()).min(7);
            let mut now = Vec::new();
            let count =
                side.completion_queue().next_each(at_most, |completion| now.push(completion)).unwrap();
            assert_eq!(count, now.len());
            assert!((1..=at_most).contains(&count));
            taken.extend(now);
        }
        let contexts: Vec<u64> = taken.iter().map(|completion| completion.op_context).collect();
        assert_eq!(contexts, (first..first + 20).collect::<Vec<u64>>());
    }
}

/// Shows rpma_cq_wait/wait-leaves-completion, rpma_cq_wait/wait-found-completion.
pub(crate) fn wait_returns_when_a_completion_comes(net: &Net) {
    /// Enough for a completion to come before a wait, amid it and after it.
    const ROUNDS: u64 = 100;
    let Pair { client, server, .. } = Pair::connect(net);
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                recv(&server, round);
                barrier.wait();
                // A wait that has returned has found something, which it leaves in the queue.
                server.completion_queue().wait().unwrap();
                server.completion_queue().wait().unwrap();
                let received = server.completion_queue().next().expect("the wait has ended");
                assert_eq!((received.op, received.op_context), (Operation::Recv, round));
            }
        });
        for round in 0..ROUNDS {
            barrier.wait();
            send(&client, round);
            client.completion_queue().wait().unwrap();
            let sent = client.completion_queue().next().expect("the wait has ended");
            assert_eq!((sent.op, sent.op_context), (Operation::Send, round));
        }
    });
}

/// Shows rpma_cq_get_fd/descriptor-is-readable.
pub(crate) fn descriptor_is_readable_while_there_is_a_completion(net: &Net) {
    let Pair { client, server, .. } = Pair::connect(net);
    let queue = server.completion_queue();
    let descriptor = queue.fd().unwrap();
    for round in 0..20 {
        assert!(!is_readable(descriptor), "round {round}");
        recv(&server, 1);
        recv(&server, 2);
        assert!(!is_readable(descriptor), "round {round}");
        send(&client, 3);
        wait_readable(descriptor);
        queue.wait().unwrap();
        send(&client, 4);
        expect_success(client.completion_queue(), Operation::Send, 3);
        expect_success(client.completion_queue(), Operation::Send, 4);
        assert!(is_readable(descriptor), "round {round}");
        assert_eq!(queue.next().map(|completion| completion.op_context), Ok(1));
        wait_readable(descriptor);
        assert_eq!(queue.next().map(|completion| completion.op_context), Ok(2));
        assert!(!is_readable(descriptor), "round {round}");
        expect_no_completion(queue);
    }
}

/// Shows rpma_cq_get_fd/nonblocking-descriptor.
pub(crate) fn nonblocking_wait_fails_without_a_completion(net: &Net) {
    let Pair { client, server, .. } = Pair::connect(net);
    let queue = server.completion_queue();
    set_nonblocking(queue.fd().unwrap());
    assert_eq!(queue.wait(), Err(Error::NoCompletion));
    recv(&server, 1);
    assert_eq!(queue.wait(), Err(Error::NoCompletion));
    assert!(!is_readable(queue.fd().unwrap()));
    send(&client, 2);
    wait_readable(queue.fd().unwrap());
    assert_eq!(queue.wait(), Ok(()));
    expect_success(queue, Operation::Recv, 1);
    assert_eq!(queue.wait(), Err(Error::NoCompletion));
}

/// Shows rpma_cq_wait/end-of-connection-ends-wait.
pub(crate) fn dropped_connection_ends_a_wait(net: &Net) {
    let Pair { client, server, .. } = Pair::connect(net);
    let queue = client.completion_queue().clone();
    recv(&server, 1);
    send(&client, 2);
    wait_readable(queue.fd().unwrap());
    let server_queue = server.completion_queue().clone();
    let sleeper = spawn_sleeper(move || {
        let mut contexts = Vec::new();
        while server_queue.wait() != Err(Error::NoCompletion) {
            contexts.push(server_queue.next().unwrap().op_context);
        }
        contexts
    });
    drop(server);
    assert_eq!(join_in_time(sleeper), [1]);
    // What has completed before can still be read.
    drop(client);
    expect_success(&queue, Operation::Send, 2);
    assert_eq!(queue.wait(), Err(Error::NoCompletion));
}

pub(crate) fn threads_that_share_a_queue_take_each_completion_once(net: &Net) {
    const COUNT: u64 = 300;
    let Pair { client, server, .. } = Pair::connect_with(net, &deep_config(), &deep_config());
    let taken = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..4 {
            let (queue, taken) = (server.completion_queue().clone(), &taken);
            scope.spawn(move || {
                if number == 0 {
                    // One of them watches the descriptor, once: another may empty the queue at any time.
                    assert!(
                        is_readable_within(queue.fd().expect("a descriptor"), PATIENCE),
                        "nothing has come"
                    );
                }
                while queue.wait().is_ok() {
                    // Another thread may have been faster.
                    taken.lock().unwrap().extend(queue.next().map(|completion| completion.op_context));
                }
            });
        }
        for context in 0..COUNT {
            recv(&server, context);
            send(&client, context);
            expect_success(client.completion_queue(), Operation::Send, context);
            while taken.lock().unwrap().len() as u64 + 50 < context {
                thread::yield_now();
            }
        }
        drop(server);
    });
    let mut taken = taken.into_inner().unwrap();
    taken.sort_unstable();
    assert_eq!(taken, (0..COUNT).collect::<Vec<u64>>());
}

/// Shows rpma_conn_wait/oldest-completion-first, rpma_conn_wait/wait-names-queue.
pub(crate) fn shared_channel_names_the_queue_with_the_oldest_completion(net: &Net) {
    let config = shared_channel();
    let Pair { client, server, .. } = Pair::connect_with(net, &config, &config);
    let receives = server.receive_completion_queue().unwrap();
    // The first wait may find one completion of the server or both.
    for round in 0..20 {
        recv(&server, 1);
        recv(&client, 2);
        send(&client, 3);
        wait_readable(server.completion_fd().unwrap());
        send(&server, 4);
        expect_success(client.receive_completion_queue().unwrap(), Operation::Recv, 2);
        // Now the server has a receive, and the send after it.
        for _ in 0..2 {
            assert_eq!(server.wait(), Ok(ReadyQueue::Receive(receives)), "round {round}");
        }
        // The queues can be read in any order.
        expect_success(server.completion_queue(), Operation::Send, 4);
        expect_success(receives, Operation::Recv, 1);
        assert_eq!(client.wait(), Ok(ReadyQueue::Main(client.completion_queue())), "round {round}");
        expect_success(client.completion_queue(), Operation::Send, 3);
    }
}

pub(crate) fn shared_channel_wakes_for_both_queues(net: &Net) {
    let config = shared_channel();
    let Pair { client, server, .. } = Pair::connect_with(net, &config, &config);
    let fds = [
        server.completion_fd().unwrap().as_raw_fd(),
        server.completion_queue().fd().unwrap().as_raw_fd(),
        server.receive_completion_queue().unwrap().fd().unwrap().as_raw_fd(),
    ];
    assert!(fds.iter().all(|fd| *fd == fds[0]), "{fds:?}");
    let descriptor = server.completion_fd().unwrap();
    for round in 0..10 {
        assert!(!is_readable(descriptor), "round {round}");
        recv(&server, 1);
        send(&client, 2);
        wait_readable(descriptor);
        // A look at the other queue changes nothing.
        expect_no_completion(server.completion_queue());
        assert!(is_readable(descriptor), "round {round}");
        expect_success(server.receive_completion_queue().unwrap(), Operation::Recv, 1);
        assert!(!is_readable(descriptor), "round {round}");
        recv(&client, 3);
        send(&server, 4);
        wait_readable(descriptor);
        expect_success(server.completion_queue(), Operation::Send, 4);
        assert!(!is_readable(descriptor), "round {round}");
        expect_success(client.completion_queue(), Operation::Send, 2);
        expect_success(client.receive_completion_queue().unwrap(), Operation::Recv, 3);
    }
    set_nonblocking(descriptor);
    assert_eq!(server.wait(), Err(Error::NoCompletion));
}

/// Shows rpma_cq_wait/shared-channel, rpma_conn_wait/not-shared-channel.
pub(crate) fn waits_fit_the_sharing_of_the_channel(net: &Net) {
    let Pair { client, server, .. } = Pair::connect_with(net, &shared_channel(), &separate_queues());
    assert_eq!(client.completion_queue().wait(), Err(Error::SharedChannel));
    assert_eq!(client.receive_completion_queue().unwrap().wait(), Err(Error::SharedChannel));
    assert_eq!(server.wait(), Err(Error::NotSharedChannel));
    assert_eq!(server.completion_fd().unwrap_err(), Error::NotSharedChannel);
    let main = server.completion_queue();
    let receives = server.receive_completion_queue().unwrap();
    assert_ne!(main.fd().unwrap().as_raw_fd(), receives.fd().unwrap().as_raw_fd());
    assert_ne!(main, receives);
}

/// The peer posts no receive, so all messages wait at it.
pub(crate) fn sends_are_posted_while_another_thread_reads_a_shared_channel(net: &Net) {
    const SENDS: u64 = 2_000;
    let Pair { client, server: _server, .. } =
        Pair::connect_with(net, &shared_channel(), &ConnectionConfig::default());
    thread::scope(|scope| {
        scope.spawn(|| {
            for context in 0..SENDS {
                while client.send(LocalSlice::EMPTY, Report::Always, context) == Err(Error::QueueFull) {
                    thread::yield_now();
                }
            }
        });
        for context in 0..SENDS {
            expect_success(client.completion_queue(), Operation::Send, context);
        }
    });
}

/// Shows rpma_cq_get_completion/main-queue-without-failed-receives.
pub(crate) fn receive_queue_has_the_failed_receives(net: &Net) {
    for config in [shared_channel(), separate_queues()] {
        let Pair { client: _client, server, .. } = Pair::connect_with(net, &config, &config);
        recv(&server, 1);
        recv(&server, 2);
        // A region that no peer has.
        let region = RemoteMemoryRegion::from_descriptor(&[1; 21]).unwrap();
        server.atomic_write(region.at(7), [0; 8], Report::OnError, 3).unwrap();
        expect_failure(server.completion_queue(), Status::RemoteAccess, 3);
        expect_no_completion(server.completion_queue());
        let receives = server.receive_completion_queue().unwrap();
        expect_failure(receives, Status::Flushed, 1);
        expect_failure(receives, Status::Flushed, 2);
        expect_no_completion(receives);
    }
}

pub(crate) fn dropped_connection_leaves_completions_that_found_a_full_queue(net: &Net) {
    const COUNT: u64 = 5;
    let small = ConnectionConfig { completion_queue_size: 2, ..ConnectionConfig::default() };
    let separate = ConnectionConfig { receive_completion_queue_size: 2, ..small.clone() };
    let shared = ConnectionConfig { shared_completion_channel: true, ..separate.clone() };
    for config in [&small, &separate, &shared] {
        let Pair { client, server, .. } = Pair::connect_with(net, config, config);
        for context in 0..COUNT {
            recv(&server, context);
            send(&client, 10 + context);
        }
        let sends = client.completion_queue().clone();
        let receives = server.receive_completion_queue().unwrap_or(server.completion_queue()).clone();
        // Carries out the sends first, so that the receives have completed, too.
        drop(client);
        drop(server);
        for context in 0..COUNT {
            assert_eq!(sends.next().map(|sent| sent.op_context), Ok(10 + context));
            assert_eq!(receives.next().map(|received| received.op_context), Ok(context));
        }
        expect_no_completion(&sends);
        expect_no_completion(&receives);
    }
}

pub(crate) fn shared_channel_refuses_receives_while_too_many_are_unread(net: &Net) {
    const SIZE: u32 = 2;
    let config = ConnectionConfig {
        completion_queue_size: SIZE,
        receive_completion_queue_size: SIZE,
        receive_queue_size: SIZE,
        ..shared_channel()
    };
    let Pair { client, server, .. } = Pair::connect_with(net, &ConnectionConfig::default(), &config);
    let mut count = 0;
    while server.recv(LocalSlice::EMPTY, count) != Err(Error::QueueFull) {
        send(&client, 9);
        expect_success(client.completion_queue(), Operation::Send, 9);
        expect_no_completion(server.completion_queue());
        count += 1;
        assert!(count < 100, "receives complete without limit");
    }
    assert!(count >= u64::from(2 * SIZE), "{count}");
    // The other direction is not limited, nor are the reads of its queue.
    recv(&client, 7);
    send(&server, 8);
    expect_success(server.completion_queue(), Operation::Send, 8);
    for context in 0..count {
        expect_success(server.receive_completion_queue().unwrap(), Operation::Recv, context);
    }
    recv(&server, count);
}
