//! Bindings of counters to endpoints and regions: `fi_endpoint(3)`, `fi_mr(3)`.

use super::prelude::*;

/// Shows fi_endpoint/enable-needs-bindings.
#[over(one_process)]
fn endpoint_needs_a_counter_or_queue_for_each_operation(net: &Net) {
    let domain = net.open_other_domain();
    let messages = Info { caps: Caps::MSG | Caps::SEND | Caps::RECV, ..net.info().clone() };
    let bound = |info: &Info, events: CounterEvents| {
        let (endpoint, av) = open_endpoint_with_queues(&domain, info, &[]);
        let counter = open_counter(&domain, WaitObject::Unspec);
        endpoint.bind_counter(&counter, events).unwrap();
        (endpoint, av, counter)
    };
    // Each kind of operation needs a counter or a queue.
    for (info, events) in [
        (&messages, CounterEvents::empty()),
        (&messages, SEND),
        (&messages, RECV),
        (&messages, RECV | READ | WRITE),
        (net.info(), SEND | RECV | READ),
        (net.info(), SEND | RECV | REMOTE_READ | REMOTE_WRITE),
    ] {
        let (endpoint, _av, _counter) = bound(info, events);
        assert_eq!(expect_errno(endpoint.enable()), Errno::ENOCQ, "{events:?}");
        // A queue for both directions serves all operations without a counter.
        let cq = domain.open_cq(&CqAttr::default()).unwrap();
        endpoint.bind_cq(&cq, BOTH).unwrap();
        endpoint.enable().unwrap();
    }
    let (endpoint, av, counter) = bound(&messages, SEND | RECV);
    endpoint.enable().unwrap();
    let own = av.insert_one(endpoint.name().unwrap()).unwrap();
    // An application without a queue still counts failures.
    endpoint.recv(marked_buffer(4), ANY, 1).unwrap();
    endpoint.send(payload(1, 8), own, 2).unwrap();
    drive_until_counts(&counter, (1, 1), || {});
    let region = domain.register(8, &MrAttr::granting(EVERYTHING)).unwrap();
    let refused = endpoint.write(payload(2, 8), own, region.remote(), 3).unwrap_err();
    assert_eq!(refused.errno(), Errno::EOPNOTSUPP, "nothing would notice its end");
}

/// Shows fi_endpoint/counter-bindings, fi_cntr/close-counter-ebusy.
#[over(one_process)]
fn one_counter_counts_for_several_endpoints_and_regions(net: &Net) {
    let domain = net.open_other_domain();
    let counter = open_counter(&domain, WaitObject::Unspec);
    let endpoints = [(); 3].map(|()| {
        let (endpoint, cq, av) = open_disabled_endpoint(&domain, net.info());
        endpoint.bind_counter(&counter, SEND | WRITE).unwrap();
        endpoint.bind_counter(&counter, RECV).unwrap();
        endpoint.enable().unwrap();
        (endpoint, cq, av)
    });
    let regions = [1, 2].map(|key| register_region(&domain, key, MrFlags::empty()));
    regions[0].bind_counter(&counter, REMOTE_WRITE).unwrap();
    regions[1].bind_counter(&counter, REMOTE_WRITE | REMOTE_READ).unwrap();
    let mut events = 0;
    for (endpoint, ..) in &endpoints {
        for (from, _, av) in &endpoints {
            let to = av.insert_one(endpoint.name().unwrap()).unwrap();
            endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
            from.send(payload(1, 8), to, 2).unwrap();
            for region in &regions {
                from.write(payload(1, 8), to, region.remote(), 3).unwrap();
                from.read(marked_buffer(8), to, region.remote(), 4).unwrap();
            }
            // The counter counts a send and a receive. It counts each of two writes twice: at the initiator,
            // and at the region. It counts a read once, at the second region.
            events += 2 + 2 * 2 + 1;
        }
    }
    assert_eq!(counter.wait(events, Some(PATIENCE)), Ok(()));
    let counter = expect_busy(counter.close());
    drop(endpoints);
    assert_eq!((counter.read(), counter.read_error()), (events, 0));
    let counter = expect_busy(counter.close());
    drop(regions);
    counter.close().unwrap();
}

/// Shows fi_mr/event-region-flag, fi_mr/region-counts-remote-writes, fi_cq/open-belongs-to-domain.
#[over(one_process)]
fn invalid_bindings_are_refused(net: &Net) {
    let (domain, other_domain) = (net.open_other_domain(), net.open_other_domain());
    let (counter, foreign) =
        (open_counter(&domain, WaitObject::None), open_counter(&other_domain, WaitObject::None));
    let unknown = CounterEvents::from_bits_retain(1 << 40 | SEND.bits());
    let endpoint = domain.endpoint(net.info()).unwrap();
    let (elsewhere, foreign_cq, foreign_av) = open_disabled_endpoint(&other_domain, net.info());
    expect_error(endpoint.bind_cq(&foreign_cq, BindFlags::TRANSMIT), Errno::EDOMAIN);
    expect_error(endpoint.bind_av(&foreign_av), Errno::EDOMAIN);
    expect_error(endpoint.bind_counter(&foreign, SEND), Errno::EDOMAIN);
    expect_error(endpoint.bind_counter(&counter, unknown), Errno::EBADFLAGS);
    endpoint.bind_counter(&counter, SEND | READ | REMOTE_WRITE).unwrap();
    let second = open_counter(&domain, WaitObject::None);
    for events in [SEND, READ | WRITE, REMOTE_WRITE | REMOTE_READ] {
        expect_error(endpoint.bind_counter(&second, events), Errno::EBUSY);
    }
    endpoint.bind_counter(&second, RECV | WRITE | REMOTE_READ).unwrap();
    endpoint.bind_av(&domain.open_av(&AvAttr::default()).unwrap()).unwrap();
    endpoint.enable().unwrap();
    expect_error(endpoint.bind_counter(&second, SEND), Errno::EBUSY);

    // An endpoint that is no target has no events of remote accesses.
    let no_target = domain.endpoint(&Info { caps: Caps::MSG, ..net.info().clone() }).unwrap();
    for events in [REMOTE_READ, SEND | REMOTE_WRITE] {
        expect_error(no_target.bind_counter(&counter, events), Errno::EOPNOTSUPP);
    }
    no_target.bind_counter(&counter, SEND | RECV | READ | WRITE).unwrap();

    let region = register_region(&domain, 1, MrFlags::empty());
    expect_error(region.bind_counter(&foreign, REMOTE_WRITE), Errno::EDOMAIN);
    for events in [CounterEvents::empty(), SEND, REMOTE_WRITE | WRITE, unknown] {
        expect_error(region.bind_counter(&counter, events), Errno::EBADFLAGS);
    }
    region.bind_counter(&counter, REMOTE_WRITE).unwrap();
    expect_error(region.bind_counter(&second, REMOTE_WRITE | REMOTE_READ), Errno::EBUSY);
    region.bind_counter(&second, REMOTE_READ).unwrap();
    region.bind_endpoint(&endpoint).unwrap();
    expect_error(region.bind_endpoint(&elsewhere), Errno::EDOMAIN);
    drop(elsewhere);
    foreign_cq.close().expect("the refused binding left no trace");
    foreign_av.close().expect("the refused binding left no trace");
}

/// Shows fi_mr/event-region-starts-disabled, fi_mr/endpoint-region.
#[over(one_process)]
fn region_is_accessible_only_after_it_is_enabled(net: &Net) {
    let (alice, bob) = net.open_pair();
    let domain = bob.local_domain();
    let region = register_region(domain, KEY, MrFlags::RMA_EVENT);
    let write = || alice.endpoint.write(payload(1, 8), alice.peer(), region.remote(), 1).unwrap();
    write();
    assert_eq!(alice.next_failure().errno(), Errno::EKEYREJECTED, "it is not enabled");
    let counter = open_counter(domain, WaitObject::None);
    region.bind_counter(&counter, REMOTE_WRITE).unwrap();
    region.bind_endpoint(bob.endpoint.expect_local()).unwrap();
    region.enable();
    region.enable();
    write();
    assert_eq!(alice.next_completion().context, 1);
    assert_eq!((counter.read(), counter.read_error()), (1, 0));
    // An enabled region accepts no more bindings.
    expect_error(region.bind_counter(&counter, REMOTE_READ), Errno::EOPBADSTATE);
    expect_error(region.bind_endpoint(bob.endpoint.expect_local()), Errno::EOPBADSTATE);
}
