//! Binding to an endpoint that is already enabled: `fi_ep_bind` of `fi_endpoint(3)`.

use super::counter_waits::{all_wait_objects, wait_for_counter_beside};
use super::prelude::*;

const EVENTS: [CounterEvents; 6] = [SEND, RECV, READ, WRITE, REMOTE_READ, REMOTE_WRITE];

/// Waits for the end of an operation, which must succeed. Returns its context.
#[track_caller]
fn next_context(cq: &CompletionQueue) -> u64 {
    poll_until("an operation", || poll_completion(cq)).expect("no failure").0.context
}

/// Binds counters to the enabled endpoint one by one. Between two bindings the endpoint exchanges messages.
/// Shows fi_endpoint/bind-before-enable.
#[over(one_process, automatic)]
fn counter_bound_after_enabling_counts_later_operations(net: &Net) {
    let domain = net.open_other_domain();
    let (endpoint, cq, av) = open_disabled_endpoint(&domain, net.info());
    let own = av.insert_one(endpoint.name().unwrap()).unwrap();
    let region = register_region(&domain, KEY, MrFlags::empty());
    endpoint.enable().unwrap();
    let exchange = |context| {
        endpoint.enable().expect("enabling again changes nothing");
        endpoint.recv(marked_buffer(8), ANY, context).unwrap();
        endpoint.send(payload(context, 8), own, context).unwrap();
        endpoint.write(payload(context, 8), own, region.remote(), context).unwrap();
        endpoint.read(marked_buffer(8), own, region.remote(), context).unwrap();
        (0..4).for_each(|_| assert_eq!(next_context(&cq), context));
    };
    exchange(0);
    let mut bound = Vec::new();
    for (round, event) in (1..).zip(EVENTS) {
        let counter = open_counter(&domain, WaitObject::Unspec);
        endpoint.bind_counter(&counter, event).unwrap();
        expect_error(endpoint.bind_counter(&open_counter(&domain, WaitObject::None), event), Errno::EBUSY);
        bound.push(counter);
        exchange(round);
    }
    let rounds = EVENTS.len() as u64;
    for (before, counter) in (0..).zip(&bound) {
        assert_eq!(counter.wait(rounds - before, Some(PATIENCE)), Ok(()));
        assert_eq!((counter.read(), counter.read_error()), (rounds - before, 0));
    }
    drop(endpoint);
    bound.into_iter().for_each(|counter| counter.close().expect("nothing is bound to it any more"));
}

/// The application waits only for a counter that is bound to an enabled endpoint.
#[over(one_process, automatic)]
fn counter_bound_after_enabling_wakes_its_waiters(net: &Net) {
    for wait in all_wait_objects() {
        let (alice, bob) = net.open_equal_pair(Setup { wait: WaitObject::Unspec, ..Setup::asleep() });
        let counter = open_counter(bob.local_domain(), wait);
        bob.endpoint.expect_local().bind_counter(&counter, RECV).unwrap();
        wait_for_counter_beside(&counter, 3, || {
            for (context, len_bytes) in (1..).zip([8, 3000, 1 << 20]) {
                let_threads_fall_asleep();
                bob.endpoint.recv(marked_buffer(len_bytes), ANY, context).unwrap();
                alice.endpoint.send(payload(context, len_bytes), alice.peer(), context).unwrap();
                sleep_until_operation_ends(alice.local_cq()).expect("no failure");
            }
        });
        start_driving_both(net, [&alice, &bob]);
    }
}

/// A peer has mapped a region. When the owner binds a counter of accesses, the peer must access the region
/// by frames again.
#[over(one_process, automatic)]
fn access_counter_bound_after_mapping_counts_accesses(net: &Net) {
    const ACCESSES: u64 = 10;
    let (alice, bob) = net.open_pair();
    let attr = MrAttr { access: EVERYTHING, requested_key: Some(KEY), shareable: true, ..MrAttr::default() };
    let region = bob.local_domain().register(64, &attr).unwrap();
    let write = |context| {
        alice.endpoint.write(payload(context, 8), alice.peer(), region.remote(), context).unwrap();
        assert_eq!(alice.next_completion().context, context);
    };
    (0..ACCESSES).for_each(write);
    let counter = open_counter(bob.local_domain(), WaitObject::Unspec);
    bob.endpoint.expect_local().bind_counter(&counter, REMOTE_WRITE).unwrap();
    assert!(!region.is_shareable(), "peers that have mapped it could access it uncounted");
    (0..ACCESSES).for_each(write);
    assert_eq!(counter.wait(ACCESSES, Some(PATIENCE)), Ok(()));
    assert_eq!((counter.read(), counter.read_error()), (ACCESSES, 0));
}

/// An endpoint is enabled with counters only. Later it gets a queue for sends, and then one for receives.
/// Shows fi_endpoint/bind-before-enable.
#[over(one_process, automatic)]
fn queue_bound_after_enabling_reports_later_operations(net: &Net) {
    let domain = net.open_other_domain();
    let messages = Info { caps: Caps::MSG | Caps::SEND | Caps::RECV, ..net.info().clone() };
    let (endpoint, av) = open_endpoint_with_queues(&domain, &messages, &[]);
    let own = av.insert_one(endpoint.name().unwrap()).unwrap();
    expect_error(endpoint.enable(), Errno::ENOCQ);
    let counter = open_counter(&domain, WaitObject::Unspec);
    endpoint.bind_counter(&counter, SEND | RECV).unwrap();
    endpoint.enable().unwrap();
    let exchange = |context, flags| {
        endpoint.recv(marked_buffer(8), ANY, context).unwrap();
        let buffers = vec![payload(context, 8)];
        endpoint.sendmsg(SendMsg { buffers, to: own, context, flags, ..SendMsg::default() }).unwrap();
        assert_eq!(counter.wait(2 * context, Some(PATIENCE)), Ok(()));
    };
    exchange(1, OpFlags::COMPLETION);

    let [transmitted, received] = [(); 2].map(|()| domain.open_cq(&CqAttr::default()).unwrap());
    endpoint.bind_cq(&transmitted, BindFlags::TRANSMIT | BindFlags::SELECTIVE_COMPLETION).unwrap();
    expect_error(endpoint.bind_cq(&transmitted, BindFlags::TRANSMIT), Errno::EBUSY);
    exchange(2, OpFlags::empty());
    exchange(3, OpFlags::COMPLETION);
    assert_eq!(next_context(&transmitted), 3);
    assert_eq!(transmitted.read(), Ok(None), "nothing else was to be reported");

    endpoint.bind_cq(&received, BindFlags::RECV).unwrap();
    exchange(4, OpFlags::COMPLETION);
    for cq in [&transmitted, &received] {
        assert_eq!(next_context(cq), 4);
        assert_eq!(cq.read(), Ok(None), "nothing else was to be reported");
    }
    expect_error(endpoint.bind_cq(&received, BindFlags::RECV), Errno::EBUSY);
}
