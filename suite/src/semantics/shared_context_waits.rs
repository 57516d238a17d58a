//! Threads wait for endpoints with a shared receive context, post to the context, and read the queues.

use super::prelude::*;
use super::shared_contexts::{LENS_BYTES, Sharers};

#[over(one_process, automatic)]
fn sleeping_reader_wakes_for_a_post(net: &Net) {
    for wait in BLOCKING_WAIT_OBJECTS {
        let mut sharers = Sharers::new(net, 1);
        sharers.add_member_with_cq(&CqAttr { wait, ..CqAttr::default() }, BOTH);
        let (peer, _) = sharers.open_peer();
        for (context, len_bytes) in (0..).zip(LENS_BYTES) {
            let message = payload(context, len_bytes);
            if len_bytes < 100_000 {
                sharers.deliver(&peer, 1, message, None);
            } else {
                peer.endpoint.send(message, FabricAddress(1), 1).unwrap();
                sharers.drive_repeatedly();
            }
            thread::scope(|scope| {
                let cq = &sharers.members[1].cq;
                let reader = scope.spawn(move || sleeping::sleep_until_operation_ends(cq));
                let_threads_fall_asleep();
                // Only this call drives the endpoint.
                sharers.context.recv(marked_buffer(len_bytes), ANY, context).unwrap();
                while !reader.is_finished() {
                    net.progress();
                    thread::yield_now();
                }
                let (completion, _) = reader.join().unwrap().unwrap();
                assert_eq!((completion.context, completion.len_bytes), (context, len_bytes));
                assert!(received_bytes(&completion.buffer) == payload(context, len_bytes));
            });
        }
    }
}

#[over(one_process, automatic)]
fn concurrent_posts_and_reads_of_one_queue_receive_all_messages(net: &Net) {
    // Each of two threads reads the queue of an endpoint.
    let sharers = Sharers::new(net, 2);
    let cqs: Vec<_> = sharers.members.iter().map(|member| member.cq.clone()).collect();
    post_and_read_concurrently(&sharers, &cqs);
    let mut sharers = Sharers::new(net, 0);
    let open = || sharers.domain.open_cq(&CqAttr::default()).unwrap();
    // Three threads drive the endpoints. All receives are reported to the last of these queues.
    let cqs = [open(), open(), open()];
    for cq in &cqs[..2] {
        sharers.add_member_with_queues(cq.clone(), BindFlags::TRANSMIT, Some(&cqs[2]));
    }
    post_and_read_concurrently(&sharers, &cqs);
}

/// Two threads post to the context, and one thread reads each queue. Two peers send to both endpoints.
fn post_and_read_concurrently(sharers: &Sharers<'_>, cqs: &[CompletionQueue]) {
    const MESSAGES: u64 = 300;
    let peers = [0, 1000_u64].map(|base| (sharers.open_peer().0, base));
    let (posted, arrived) = (AtomicU64::new(0), AtomicU64::new(0));
    let deadline = Deadline::new();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while posted.fetch_add(1, Ordering::SeqCst) < 2 * MESSAGES {
                    while sharers.context.recv(marked_buffer(5000), ANY, 1).is_err() {
                        deadline.yield_or_panic("a place for a receive");
                    }
                }
            });
        }
        for cq in cqs {
            scope.spawn(|| {
                while arrived.load(Ordering::SeqCst) < 2 * MESSAGES {
                    if let Some(ended) = poll_completion(cq) {
                        let completion = ended.unwrap().0;
                        let bytes = received_bytes(&completion.buffer);
                        let identity = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                        assert!(bytes == payload(identity, completion.len_bytes));
                        arrived.fetch_add(1, Ordering::SeqCst);
                    }
                    deadline.yield_or_panic("all messages");
                }
            });
        }
        for (party, base) in &peers {
            let (deadline, arrived) = (&deadline, &arrived);
            scope.spawn(move || {
                for number in 0..MESSAGES {
                    let len_bytes = [8, 100, 5000][number as usize % 3];
                    let message = payload(base + number, len_bytes);
                    while party.endpoint.send(message.clone(), FabricAddress(number % 2), 1).is_err() {
                        party.poll_completion();
                        deadline.yield_or_panic("a place for a send");
                    }
                }
                while arrived.load(Ordering::SeqCst) < 2 * MESSAGES {
                    party.poll_completion();
                    deadline.yield_or_panic("all messages to be received");
                }
            });
        }
    });
}

#[over(one_process, automatic)]
fn repeated_peeks_find_a_message_arriving_at_any_endpoint(net: &Net) {
    let (sharers, peer) = Sharers::with_peer(net, 2);
    peer.endpoint.tsend(payload(1, 8), FabricAddress(1), Tag(7), 1).unwrap();
    let found = poll_until("a message to be found", || {
        let (tagged, flags) = (Some(Tag(7).into()), OpFlags::PEEK);
        sharers.context.recvmsg(RecvMsg { tagged, context: 2, flags, ..RecvMsg::default() }).unwrap();
        // A peek that finds no message ends at the first endpoint, not at the one that will receive the
        // message.
        while poll_completion(&sharers.members[0].cq).is_some() {}
        net.progress();
        poll_completion(&sharers.members[1].cq)
    });
    assert_eq!(found.unwrap().0.context, 2);
}
