//! Overruns of completion queues with `FI_RM_DISABLED`: `fi_domain(3)`, and the last paragraph of NOTES in
//! `fi_cq(3)`.

use super::bounds::post_delivery_complete_send;
use super::prelude::*;

fn make_unprotected_setup(cq_depth_entries: usize) -> Setup {
    let resource_mgmt = Some(ResourceManagement::Disabled);
    Setup { cq_depth_entries, resource_mgmt, ..Setup::default() }
}

/// Asserts that every read of the queue returns the overrun.
#[track_caller]
fn assert_overrun(queue: &Queue) {
    for _ in 0..3 {
        for max in [0, 1, 8] {
            let read = queue.read_each(max, |completion, _| panic!("{completion:?}"));
            assert_eq!(read, Err(ReadError::Overrun));
        }
        assert_eq!(queue.read_error(), Err(ReadError::Overrun));
    }
}

/// Shows fi_cq/size-is-a-minimum, fi_cq/overrun-returns-entries, fi_cq/overrun-then-eoverrun,
/// fi_cq/overrun-is-final.
#[over(all, own)]
fn overrun_queue_returns_its_entries_then_the_error_for_good(net: &Net) {
    // Every second message is truncated. With one depth the first lost entry is an error, with the others a
    // success.
    for depth in [1, 2, 4] {
        let (alice, bob) = net.open_pair_with(Setup::default(), make_unprotected_setup(depth as usize));
        for context in 0..depth + 3 {
            bob.post_receives([context], if context % 2 == 1 { 10 } else { 24 });
            alice.deliver(context, 24);
        }
        assert_eq!(bob.cq.read_error(), Ok(None), "a success is on top");
        for context in 0..depth {
            if context % 2 == 0 {
                let (completion, source) = bob.cq.read_from().unwrap().unwrap();
                assert_eq!((completion.context, source), (context, bob.peer()));
                assert_eq!(received_bytes(&completion.buffer), payload(context, 24));
            } else {
                assert_eq!(bob.cq.read(), Err(ReadError::ErrorAvailable));
                let failed = bob.cq.read_error().unwrap().unwrap();
                assert_eq!((failed.completion.context, failed.overflow_bytes()), (context, 14));
            }
        }
        assert_overrun(&bob.cq);

        // Operations continue without entries, although the queue has room now.
        bob.post_receives([10], 24);
        alice.deliver(10, 24);
        bob.post_send(11, 24, OpFlags::empty());
        alice.receive_message(11, 24, &payload(11, 24));
        assert_overrun(&bob.cq);
    }
}

#[over(driven, own)]
fn reads_of_an_overrun_queue_drive_progress(net: &Net) {
    let asleep = Setup { asleep: true, ..make_unprotected_setup(1) };
    let (alice, bob) = net.open_pair_with(Setup::default(), asleep);
    bob.post_receives(0..6, 24);
    for context in 0..3 {
        post_delivery_complete_send(&alice, context).unwrap();
        poll_until("messages that overrun the queue", || {
            bob.cq.progress();
            alice.poll_completion().map(|ended| ended.expect("no send fails"))
        });
    }
    assert_eq!(bob.cq.read().unwrap().unwrap().context, 0);
    for context in 3..6 {
        post_delivery_complete_send(&alice, context).unwrap();
        poll_until("a peer that does nothing but read its overrun queue", || {
            assert_eq!(bob.cq.read(), Err(ReadError::Overrun));
            alice.poll_completion().map(|ended| ended.expect("no send fails"))
        });
    }
    net.start_driving(&bob);
}

/// Shows fi_cq/overrun-is-final.
#[over(all, own)]
fn separate_queues_are_overrun_separately(net: &Net) {
    let separate = Setup { separate_queues: true, ..make_unprotected_setup(1) };
    let (alice, bob) = net.open_pair_with(Setup::default(), separate);
    bob.post_receives(0..2, 24);
    (0..2).for_each(|context| alice.deliver(context, 24));
    let receive_cq = bob.receive_cq.clone().expect("it has two queues");
    assert_eq!(receive_cq.read().unwrap().unwrap().context, 0);
    assert_overrun(&receive_cq);
    for context in 2..4 {
        alice.post_receives([context], 24);
        bob.deliver(context, 24);
        assert_eq!(alice.next_completion().context, context);
    }
    assert_eq!(bob.cq.read(), Ok(None));
    assert_overrun(&receive_cq);
}

#[over(one_process)]
fn overrun_frees_the_buffers_of_lost_entries(net: &Net) {
    let (alice, bob) = net.open_pair_with(make_unprotected_setup(1), Setup::default());
    let messages = [0, 1, 2].map(|n| payload(n, 40_000));
    bob.post_receives(0..3, 40_000);
    for (context, message) in (0..).zip(&messages) {
        alice.endpoint.send(message.clone(), alice.peer(), context).unwrap();
    }
    bob.await_completions(messages.len());
    let given_back = || messages.iter().filter(|message| message.is_unique()).count();
    poll_until("buffers of sends whose completions are lost", || {
        alice.cq.progress();
        bob.cq.progress();
        (given_back() >= 2).then_some(())
    });
    assert_eq!(given_back(), 2, "the queue holds one");
    alice.cq.read().unwrap().unwrap();
    assert_eq!(given_back(), 3);
    assert_overrun(&alice.cq);
}

#[over(one_process)]
fn endpoints_take_resource_management_from_the_domain(net: &Net) {
    use ResourceManagement::{Disabled, Enabled};
    for (asked, granted) in [(None, Enabled), (Some(Enabled), Enabled), (Some(Disabled), Disabled)] {
        let mut info = net.info().clone();
        info.domain.resource_mgmt = asked;
        let offered = net.fabric.getinfo(None, None, InfoFlags::empty(), Some(&info)).unwrap();
        assert!(offered.iter().all(|info| info.domain.resource_mgmt == Some(granted)));
        let domain = net.fabric.domain(&info).unwrap();
        for of_endpoint in [None, Some(Enabled), Some(Disabled)] {
            info.domain.resource_mgmt = of_endpoint;
            let endpoint = domain.endpoint(&info).unwrap();
            assert_eq!(endpoint.info().domain.resource_mgmt, Some(granted));
        }
    }
}
