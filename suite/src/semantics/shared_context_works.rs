//! Deferred work of endpoints that share a receive context: `fi_trigger(3)`.

use super::prelude::*;
use super::shared_contexts::Sharers;
use super::triggered::trigger_at;

/// Opens a context for triggered receives, with this many endpoints, and counters.
fn open_triggering_context<const N: usize>(net: &Net, members: usize) -> (Sharers<'_>, [Counter; N]) {
    let caps = net.info().rx.caps | Caps::TRIGGER;
    let mut sharers = Sharers::open_empty(net, &RxAttr { caps, ..RxAttr::default() });
    for caps in [&mut sharers.info.caps, &mut sharers.info.tx.caps, &mut sharers.info.rx.caps] {
        *caps |= Caps::TRIGGER;
    }
    (0..members).for_each(|_| sharers.add_member());
    let counters = [(); N].map(|()| open_counter(&sharers.domain, WaitObject::None));
    (sharers, counters)
}

fn make_receive(context: u64, len_bytes: usize, flags: OpFlags) -> RecvMsg {
    RecvMsg { buffers: vec![marked_buffer(len_bytes)], context, flags, ..RecvMsg::default() }
}

/// Returns deferred work that posts a receive to a context.
fn make_receive_work(
    trigger: Trigger,
    receive_context: &SharedReceiveContext,
    receive: RecvMsg,
    completion: &Counter,
) -> DeferredWork {
    let action = DeferredAction::Receive { receive_context: receive_context.clone(), receive };
    DeferredWork { context: 100, trigger, action, completion: Some(completion.clone()) }
}

/// Waits until a counter has this value and this error value. Drives all parties meanwhile.
#[track_caller]
fn await_counts(sharers: &Sharers<'_>, counter: &Counter, expected: (u64, u64)) {
    drive_until_counts(counter, expected, || {
        sharers.members.iter().for_each(|member| member.cq.progress());
        sharers.net.progress();
    });
}

#[track_caller]
fn assert_no_completion(sharers: &Sharers<'_>) {
    sharers.drive_repeatedly();
    for member in &sharers.members {
        assert_eq!(poll_completion(&member.cq), None);
    }
}

#[over(one_process, automatic)]
fn waiting_receives_of_a_context_are_cancelled(net: &Net) {
    let (sharers, [counter, done]) = open_triggering_context(net, 2);
    let receive = |context| make_receive(context, 8, OpFlags::empty());
    sharers.context.trigger(&trigger_at(&counter, 1), receive(1)).unwrap();
    sharers.context.cancel(1).unwrap();
    let failed = sharers.next_ended(0).expect_err("it was cancelled");
    assert_eq!((failed.completion.context, &failed.error), (1, &OperationError::Cancelled));
    assert_eq!(failed.completion.buffer, Buffer::ReceivedVector(vec![marked_buffer(8)]));
    assert_eq!(sharers.context.cancel(1).unwrap_err().errno(), Errno::ENOENT);
    // Deferred work that waits is cancelled without a report.
    let work = make_receive_work(trigger_at(&counter, 1), &sharers.context, receive(2), &done);
    sharers.domain.queue_work(work.clone()).unwrap();
    assert_eq!(sharers.context.cancel(2).unwrap_err().errno(), Errno::ENOENT, "it was not posted");
    sharers.domain.cancel_work(100).unwrap();
    assert!(!done.is_in_use());
    // When the deferred work is due, it becomes a receive of the context. If the receive fails, the work
    // fails.
    sharers.domain.queue_work(work).unwrap();
    counter.add(1);
    assert_eq!(sharers.domain.cancel_work(100).unwrap_err().errno(), Errno::ENOENT);
    sharers.context.cancel(2).unwrap();
    assert_eq!(sharers.next_ended(0).expect_err("it was cancelled").completion.context, 2);
    await_counts(&sharers, &done, (0, 1));
    assert_no_completion(&sharers);
}

#[over(one_process, automatic)]
fn receives_of_a_context_are_posted_at_their_thresholds_and_counted_once(net: &Net) {
    let (sharers, [counter, done]) = open_triggering_context(net, 2);
    sharers.members[1].endpoint.bind_counter(&done, CounterEvents::RECV).unwrap();
    let (peer, _) = sharers.open_peer();
    sharers.context.trigger(&trigger_at(&counter, 1), make_receive(1, 8, OpFlags::empty())).unwrap();
    let reported = make_receive(2, 8, OpFlags::COMPLETION);
    let work = make_receive_work(trigger_at(&counter, 2), &sharers.context, reported, &done);
    sharers.domain.queue_work(work).unwrap();
    for identity in 1..=2 {
        sharers.deliver(&peer, 1, payload(identity, 8), None);
        assert_no_completion(&sharers);
        counter.add(1);
        let completion = sharers.next_receive_completion(1);
        assert_eq!(completion.context, identity);
        assert_eq!(received_bytes(&completion.buffer), payload(identity, 8));
        await_counts(&sharers, &done, (identity, 0));
    }
    assert_no_completion(&sharers);
    assert_eq!((done.read(), counter.is_in_use()), (2, false));
}

#[over(one_process, automatic)]
fn dropping_the_last_handle_of_a_context_discards_its_work(net: &Net) {
    let (sharers, [counter, done]) = open_triggering_context(net, 0);
    let context = sharers.domain.shared_receive_context(sharers.context.attr()).unwrap();
    let receive = |number| make_receive(number, 8, OpFlags::empty());
    for threshold in [0, 1] {
        let work = make_receive_work(trigger_at(&counter, threshold), &context, receive(threshold), &done);
        sharers.domain.queue_work(work).unwrap();
    }
    context.trigger(&trigger_at(&counter, 1), receive(2)).unwrap();
    assert!(counter.is_in_use() && done.is_in_use());
    context.close().unwrap();
    assert!(!counter.is_in_use() && !done.is_in_use());
    counter.add(1);
    assert_eq!((done.read(), done.read_error()), (0, 0));
}

#[over(one_process, automatic)]
fn invalid_waiting_receive_of_a_context_is_refused(net: &Net) {
    let (sharers, [counter, done]) = open_triggering_context(net, 1);
    let plain = Sharers::new(net, 0);
    let back = || Buffer::ReceivedVector(vec![marked_buffer(8)]);
    let (trigger, receive) = (trigger_at(&counter, 1), || make_receive(1, 8, OpFlags::empty()));
    let own = sharers.domain.shared_receive_context(&RxAttr::default()).unwrap();
    for (context, errno) in [(&plain.context, Errno::EDOMAIN), (&own, Errno::EOPNOTSUPP)] {
        let work = make_receive_work(trigger.clone(), context, receive(), &done);
        expect_rejected(sharers.domain.queue_work(work), errno, back());
    }
    expect_rejected(own.trigger(&trigger, receive()), Errno::EOPNOTSUPP, back());
    // Endpoints with a shared context take no receives of their own.
    let endpoint = sharers.members[0].endpoint.clone();
    expect_rejected(endpoint.trigger(&trigger, Operation::Receive(receive())), Errno::ENOSYS, back());
    let action = DeferredAction::Post { endpoint, operation: Operation::Receive(receive()) };
    let work = DeferredWork { context: 1, trigger, action, completion: None };
    expect_rejected(sharers.domain.queue_work(work), Errno::ENOSYS, back());
    assert!(!counter.is_in_use() && !done.is_in_use());
}

#[over(one_process, automatic)]
fn waiting_claim_of_a_context_receives_the_claimed_message(net: &Net) {
    for is_deferred in [false, true] {
        let (sharers, [counter, done, first, second]) = open_triggering_context(net, 2);
        let received = [first, second];
        for (member, received) in sharers.members.iter().zip(&received) {
            member.endpoint.bind_counter(received, CounterEvents::RECV).unwrap();
        }
        let await_done = |expected| {
            if is_deferred {
                await_counts(&sharers, &done, expected);
            }
        };
        let (peer, _) = sharers.open_peer();
        let look = |flags| {
            let tagged = Some(Tag(7).into());
            RecvMsg { tagged, ..make_receive(5, 0, OpFlags::COMPLETION | flags) }
        };
        let claim = RecvMsg { buffers: vec![marked_buffer(300)], ..look(OpFlags::CLAIM) };
        let receives = [look(OpFlags::PEEK | OpFlags::CLAIM), claim, look(OpFlags::PEEK)];
        for (threshold, receive) in (1..).zip(receives) {
            let trigger = trigger_at(&counter, threshold);
            if is_deferred {
                let work = make_receive_work(trigger, &sharers.context, receive, &done);
                sharers.domain.queue_work(work).unwrap();
            } else {
                sharers.context.trigger(&trigger, receive).unwrap();
            }
        }
        sharers.deliver(&peer, 1, payload(1, 300), Some(7));
        for step in 1..=2 {
            assert_no_completion(&sharers);
            counter.add(1);
            let completion = sharers.next_receive_completion(1);
            assert_eq!((completion.context, completion.tag, completion.len_bytes), (5, Tag(7), 300));
            await_done((step, 0));
            if step == 2 {
                assert_eq!(received_bytes(&completion.buffer), payload(1, 300));
            }
        }
        counter.add(1);
        let failed = sharers.next_ended(0).expect_err("no message is left");
        assert_eq!((failed.completion.context, failed.error), (5, OperationError::NoMessage));
        await_done((2, 1));
        assert_no_completion(&sharers);
        assert_eq!(received.map(|counter| (counter.read(), counter.read_error())), [(0, 0), (1, 0)]);
    }
}
