//! Bindings of counters to endpoints and regions: `fi_endpoint(3)`, `fi_mr(3)`.

use super::prelude::*;

/// Shows fi_endpoint/enable-needs-bindings.
#[over(one_process)]
fn endpoint_needs_a_counter_or_queue_for_each_operation(net: &Net) {
    let (domain, av_attr) = (net.open_other_domain(), AvAttr::default());
    let mut messages = net.info().clone();
    messages.caps = Caps::MSG | Caps::SEND | Caps::RECV;
    let bound = |info: &homespun::Info, events: CounterEvents| {
        let endpoint = domain.endpoint(info).unwrap();
        let av = domain.open_av(&av_attr).unwrap();
        endpoint.bind_av(&av).unwrap();
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
    let Rejected { error, returned: counter } = counter.close().unwrap_err();
    assert_eq!(error.errno(), Errno::EBUSY);
    drop(endpoints);
    assert_eq!((counter.read(), counter.read_error()), (events, 0));
    let counter = counter.close().unwrap_err().returned;
    drop(regions);
    counter.close().unwrap();
}

/// Shows fi_mr/event-region-flag, fi_mr/region-counts-remote-writes.
#[over(one_process)]
fn invalid_counter_bindings_are_refused(net: &Net) {
    let (domain, other_domain) = (net.open_other_domain(), net.open_other_domain());
    let (counter, foreign) =
        (open_counter(&domain, WaitObject::None), open_counter(&other_domain, WaitObject::None));
    let unknown = CounterEvents::from_bits_retain(1 << 40 | SEND.bits());
    let endpoint = domain.endpoint(net.info()).unwrap();
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
    let mut messages = net.info().clone();
    messages.caps = Caps::MSG;
    let no_target = domain.endpoint(&messages).unwrap();
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
    let elsewhere = other_domain.endpoint(net.info()).unwrap();
    expect_error(region.bind_endpoint(&elsewhere), Errno::EDOMAIN);
    for (wait, refused) in [(WaitObject::Set, Errno::EINVAL), (WaitObject::PollFd, Errno::ENOSYS)] {
        let attr = CounterAttr { wait, ..CounterAttr::default() };
        assert_eq!(expect_errno(domain.open_counter(&attr)), refused);
    }
}

/// Shows fi_mr/event-region-starts-disabled, fi_mr/endpoint-region.
#[over(one_process)]
fn region_is_accessible_only_after_it_is_enabled(net: &Net) {
    let (alice, bob) = net.open_pair();
    let domain = bob.local_domain();
    let region = register_region(domain, KEY, MrFlags::RMA_EVENT);
    let write = || {
        let endpoint = alice.endpoint.expect_local();
        endpoint.write(payload(1, 8), alice.peer(), region.remote(), 1).unwrap();
    };
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
