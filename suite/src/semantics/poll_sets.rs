//! Poll sets, which drive several queues and counters: `fi_poll(3)`.

use super::prelude::*;

/// The contexts of the members.
const FIRST: u64 = 10;
const SECOND: u64 = 20;
const WRITES: u64 = 30;

/// Shows fi_poll/poll-drives-and-reports, fi_poll/poll-returns-nonempty-queues,
/// fi_poll/poll-returns-changed-counters.
#[over(one_process)]
fn poll_set_reports_and_drives_every_member(net: &Net) {
    const ROUNDS: u64 = 20;
    let alice = net.open_party();
    let [bob, second] = [(); 2].map(|()| net.open_party_with(Setup::asleep()));
    let domain = bob.local_domain();
    let counter = open_counter(domain, WaitObject::None);
    let region = register_region(domain, 1, MrFlags::empty());
    region.bind_counter(&counter, CounterEvents::REMOTE_WRITE).unwrap();
    let set = domain.open_poll_set();
    set.add(bob.local_cq(), FIRST).unwrap();
    set.add(&counter, WRITES).unwrap();
    set.add(second.local_cq(), SECOND).unwrap();
    let (to_bob, to_second) = (alice.meet(&bob), alice.meet(&second));
    let mut seen = [0; 3];
    for context in 0..ROUNDS {
        bob.endpoint.recv(marked_buffer(8), ANY, context).unwrap();
        second.endpoint.recv(marked_buffer(8), ANY, context).unwrap();
        let endpoint = alice.endpoint.expect_local();
        endpoint.write(payload(context, 8), to_bob, region.remote(), context).unwrap();
        endpoint.send(payload(context, 8), to_bob, context).unwrap();
        endpoint.send(payload(context, 8), to_second, context).unwrap();
        let deadline = Deadline::new();
        // With room for one context at a time, the set returns each member in turn.
        while seen != [context + 1; 3] {
            let mut contexts = [0; 1];
            let found = set.poll(&mut contexts);
            match &contexts[..found] {
                [] => {}
                [FIRST] => seen[0] += u64::from(bob.local_cq().read().is_ok_and(|read| read.is_some())),
                [SECOND] => seen[1] += u64::from(second.local_cq().read().is_ok_and(|read| read.is_some())),
                [WRITES] => seen[2] = counter.read(),
                other => panic!("{other:?} is no context of a member"),
            }
            alice.poll_completion();
            deadline.yield_or_panic("everything to be told of");
        }
    }
    assert_eq!(set.poll(&mut [0; 3]), 0, "there is nothing more");
    bob.endpoint.recv(marked_buffer(8), ANY, 0).unwrap();
    bob.endpoint.cancel(0).unwrap();
    counter.add(1);
    assert_eq!(set.poll(&mut []), 0, "there is no room");
    let mut contexts = [0; 3];
    assert_eq!(set.poll(&mut contexts), 2);
    contexts.sort_unstable();
    assert_eq!(contexts, [0, FIRST, WRITES]);
    // A change is told once, an entry until it is read.
    assert_eq!((set.poll(&mut contexts), contexts[0]), (1, FIRST));
    bob.local_cq().read_error().unwrap().expect("a receive that was cancelled");
    start_driving_both(net, [&bob, &second]);
}

/// Shows fi_poll/close-poll-set-ebusy.
#[over(one_process)]
fn close_of_a_poll_set_member_fails_with_ebusy(net: &Net) {
    let (domain, other_domain) = (net.open_other_domain(), net.open_other_domain());
    let (cq, counter) =
        (domain.open_cq(&Default::default()).unwrap(), open_counter(&domain, WaitObject::None));
    let set = domain.open_poll_set();
    set.add(&cq, 1).unwrap();
    set.add(&counter, 2).unwrap();
    expect_error(set.add(&cq, 3), Errno::EINVAL);
    expect_error(set.add(&other_domain.open_cq(&Default::default()).unwrap(), 3), Errno::EDOMAIN);
    expect_error(set.add(&open_counter(&other_domain, WaitObject::None), 3), Errno::EDOMAIN);
    let (cq, counter, set) =
        (expect_busy(cq.close()), expect_busy(counter.close()), expect_busy(set.close()));
    set.remove(&cq).unwrap();
    expect_error(set.remove(&cq), Errno::ENOENT);
    cq.close().unwrap();
    set.remove(&counter).unwrap();
    counter.add(1);
    set.add(&counter, 4).unwrap();
    let mut contexts = [0; 2];
    assert_eq!((set.poll(&mut contexts), contexts[0]), (1, 4), "what was counted before has not been told");
    assert_eq!(set.poll(&mut contexts), 0);
    counter.set(0);
    counter.add(1);
    assert_eq!((set.poll(&mut contexts), contexts[0]), (1, 4), "it is what it was, but has changed");
    drop(set);
    counter.close().unwrap();
}
