//! Deferred work over connections: `fi_trigger(3)`.

use super::prelude::*;
use super::triggered::{make_post_work, receive_operation, trigger_at};

fn open_triggering_sides(net: &Net) -> [Side; 2] {
    [(); 2].map(|()| Side::open_with_added_caps(net, Caps::TRIGGER))
}

fn open_counter(side: &Side) -> Counter {
    super::prelude::open_counter(&side.domain, WaitObject::None)
}

fn send_operation(context: u64) -> Operation {
    let (buffers, flags) = (vec![payload(context, 8)], OpFlags::COMPLETION);
    Operation::Send(SendMsg { buffers, to: NOWHERE, context, flags, ..SendMsg::default() })
}

fn write_operation(memory: RemoteMemory, context: u64) -> Operation {
    let flags = OpFlags::COMPLETION | OpFlags::DELIVERY_COMPLETE;
    let buffers = vec![payload(context, 8)];
    Operation::Write(WriteMsg { buffers, to: NOWHERE, memory, context, flags, ..WriteMsg::default() })
}

/// Queues an operation of an endpoint until a counter has reached a threshold.
fn queue_work(
    side: &Side,
    endpoint: &Endpoint,
    operation: Operation,
    (counter, threshold): (&Counter, u64),
    completion: &Counter,
) {
    let work = make_post_work(trigger_at(counter, threshold), endpoint, operation, completion);
    side.domain.queue_work(work).unwrap();
}

/// Drives the sides for 100 passes. By then, work that does not wait has started.
fn progress_for_a_while(sides: &[&Side]) {
    (0..100).for_each(|_| sides.iter().for_each(|side| side.progress()));
}

/// Drives all sides until a counter has this value and error value.
#[track_caller]
fn await_counts(sides: &[&Side], counter: &Counter, expected: (u64, u64)) {
    drive_until_counts(counter, expected, || sides.iter().for_each(|side| side.progress()));
}

/// Expects the completion of a receive that has matched this message.
#[track_caller]
fn expect_message(sides: &[&Side], context: u64, identity: u64) {
    let completion = next_completion_of_first_side(sides);
    assert_eq!(completion.context, context);
    assert_eq!(received_bytes(&completion.buffer), payload(identity, 8));
}

/// Waits for the failure of a work that was due while its endpoint was not connected.
#[track_caller]
fn expect_not_connected(sides: &[&Side], context: u64) {
    let failed = next_operation_end_of_first_side(sides).expect_err("its endpoint is not connected");
    assert_eq!((failed.completion.context, failed.errno()), (context, Errno::ENOTCONN));
    assert_eq!(failed.error, OperationError::Deferred(Box::new(Misuse::NotConnected)));
}

#[track_caller]
fn expect_no_completion(side: &Side) {
    assert!(matches!(side.cq.read(), Ok(None)), "there is nothing to report");
}

#[over(connected, automatic, native)]
fn deferred_work_of_connected_endpoints_waits_for_its_threshold(net: &Net) {
    let [client, server] = open_triggering_sides(net);
    let (one, other) = connect_pair(&client, &server);
    let region = server.domain.register(8, &MrAttr::granting(MrAccess::REMOTE_WRITE)).unwrap();
    let written = || {
        let mut content = [0; 8];
        region.read_at(0, &mut content).unwrap();
        content.to_vec()
    };
    let (client_trigger, client_done) = (open_counter(&client), open_counter(&client));
    let (server_trigger, server_done) = (open_counter(&server), open_counter(&server));
    queue_work(&client, &one, send_operation(1), (&client_trigger, 2), &client_done);
    queue_work(&client, &one, write_operation(region.remote(), 2), (&client_trigger, 2), &client_done);
    let receive = receive_operation(3, OpFlags::COMPLETION);
    queue_work(&server, &other, receive, (&server_trigger, 2), &server_done);
    client_trigger.add(1);
    server_trigger.add(1);
    progress_for_a_while(&[&client, &server]);
    assert_eq!((client_done.read(), server_done.read(), written()), (0, 0, vec![0; 8]));
    // The waiting receive does not match this message.
    one.send(payload(4, 8), NOWHERE, 4).unwrap();
    assert_eq!(next_completion_of_first_side(&[&client, &server]).context, 4);
    progress_for_a_while(&[&client, &server]);
    other.recv(marked_buffer(8), NOWHERE, 5).unwrap();
    expect_message(&[&server, &client], 5, 4);

    client_trigger.add(1);
    await_counts(&[&client, &server], &client_done, (2, 0));
    expect_each_of_first_side(&[&client, &server], [1, 2]);
    assert_eq!(written(), payload(2, 8));
    progress_for_a_while(&[&client, &server]);
    expect_no_completion(&server);
    server_trigger.add(1);
    expect_message(&[&server, &client], 3, 1);
    await_counts(&[&server, &client], &server_done, (1, 0));
}

#[over(connected, automatic, native)]
fn work_queued_before_the_connection_runs_if_due_after_it(net: &Net) {
    let [client, server] = open_triggering_sides(net);
    let listener = server.open_listener(LISTENER);
    let connecting = client.open_endpoint(CLIENT);
    connecting.enable().unwrap();
    let (trigger, done) = (open_counter(&client), open_counter(&client));
    queue_work(&client, &connecting, send_operation(1), (&trigger, 1), &done);
    queue_work(&client, &connecting, send_operation(2), (&trigger, 2), &done);
    trigger.add(1);
    expect_not_connected(&[&client], 1);
    await_counts(&[&client], &done, (0, 1));

    connecting.connect(listener.name().unwrap(), b"").unwrap();
    let accepting = server.accept(&next_request_of_first_side(&[&server, &client]), b"");
    expect_connected(&client, &server, b"");
    trigger.add(1);
    await_counts(&[&client, &server], &done, (1, 1));
    assert_eq!(next_completion_of_first_side(&[&client, &server]).context, 2);
    accepting.recv(marked_buffer(8), NOWHERE, 3).unwrap();
    expect_message(&[&server, &client], 3, 2);
}

#[over(connected, automatic, native)]
fn work_due_after_a_shutdown_fails_with_enotconn(net: &Net) {
    let [client, server] = open_triggering_sides(net);
    let (one, other) = connect_pair(&client, &server);
    let memory = RemoteMemory { address: 0, key: 0 };
    let ends = [(&client, &server, &one), (&server, &client, &other)];
    let counters = ends.map(|(side, ..)| (open_counter(side), open_counter(side)));
    for ((side, _, endpoint), (trigger, done)) in ends.into_iter().zip(&counters) {
        queue_work(side, endpoint, send_operation(1), (trigger, 1), done);
        queue_work(side, endpoint, write_operation(memory, 2), (trigger, 2), done);
        queue_work(side, endpoint, receive_operation(3, OpFlags::COMPLETION), (trigger, 3), done);
    }
    one.shutdown().unwrap();
    expect_shut_down(&client, &server);
    progress_for_a_while(&[&client, &server]);
    for ((side, peer, _), (trigger, done)) in ends.into_iter().zip(&counters) {
        assert_eq!((done.read(), done.read_error()), (0, 0), "the works still wait");
        expect_no_completion(side);
        for context in 1..=3 {
            trigger.add(1);
            expect_not_connected(&[side, peer], context);
            await_counts(&[side, peer], done, (0, context));
        }
    }
}
