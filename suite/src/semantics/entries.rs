//! Completion entries and the calls that read them: `fi_cq(3)`.

use super::prelude::*;

/// Shows fi_cq/format-selects-structure, fi_cq/format-context, fi_cq/format-msg, fi_cq/format-data,
/// fi_cq/format-tagged, fi_cq/read-has-opened-format, fi_cq/fields-mean-the-same.
#[over(all)]
fn completion_has_the_fields_of_its_format(net: &Net) {
    let sent = CompletionFlags::SEND | CompletionFlags::TAGGED;
    let received = CompletionFlags::RECV | CompletionFlags::TAGGED | CompletionFlags::REMOTE_CQ_DATA;
    let none = CompletionFlags::empty();
    for (format, sent, received, len_bytes, data, tag) in [
        (CqFormat::Context, none, none, 0, 0, 0),
        (CqFormat::Msg, sent, received, 50, 0, 0),
        (CqFormat::Data, sent, received, 50, 0xfeed, 0),
        (CqFormat::Tagged, sent, received, 50, 0xfeed, 0x1234),
    ] {
        let (alice, bob) = net.open_equal_pair(Setup { cq_format: Some(format), ..Setup::default() });
        assert_eq!(bob.cq.format(), format);
        bob.endpoint.trecv(marked_buffer(64), ANY, Tag(0x1234), 5).unwrap();
        alice.endpoint.tsenddata(payload(1, 50), 0xfeed, alice.peer(), Tag(0x1234), 6).unwrap();
        let (completion, source) = bob.next_completion_with_source();
        assert_eq!(source, bob.peer(), "the source is no part of the format");
        // Behind the C interface, a context alone does not tell the length.
        if bob.is_native() || format != CqFormat::Context {
            assert_eq!(received_bytes(&completion.buffer), payload(1, 50), "nor is the buffer");
        }
        let without_buffer = |completion| Completion { buffer: Buffer::None, ..completion };
        let (flags, tag) = (received, Tag(tag));
        let expected = Completion { context: 5, flags, len_bytes, data, tag, ..Completion::default() };
        assert_eq!(without_buffer(completion), expected);
        let mut entry = without_buffer(alice.next_completion());
        if !alice.is_homespun() {
            // `fi_cq(3)` gives these fields no meaning for a send.
            (entry.len_bytes, entry.data, entry.tag) = (0, 0, Tag(0));
        }
        assert_eq!(entry, Completion { context: 6, flags: sent, ..Completion::default() });
    }
}

/// Shows fi_cq/count-limits-entries, fi_cq/read-several.
#[over(all)]
fn one_read_returns_many_entries_in_order(net: &Net) {
    let (alice, bob) = net.open_pair();
    bob.post_receives(1..=10, 8);
    (1..=10).for_each(|context| alice.deliver(context, 8));
    // All ten messages have arrived, so each read finds as many entries as it asks for.
    let (mut contexts, mut counts) = (Vec::new(), Vec::new());
    while contexts.len() < 10 {
        counts.push(poll_until("ten receives", || {
            let take = |completion: Completion, source| {
                assert_eq!(source, bob.peer());
                contexts.push(completion.context);
            };
            bob.cq.read_each(4, take).expect("no error")
        }));
    }
    assert_eq!(counts, [4, 4, 2]);
    assert!(contexts.is_sorted(), "{contexts:?}");
    assert_eq!(bob.cq.read(), Ok(None));
    assert_eq!(bob.cq.read_error(), Ok(None));
}

/// Shows fi_endpoint/separate-queues.
#[over(all)]
fn separate_queues_report_sends_and_receives_separately(net: &Net) {
    let (alice, bob) = net.open_equal_pair(Setup { separate_queues: true, ..Setup::default() });
    let receive_cq = |party: &Party| party.receive_cq.clone().expect("it has two queues");
    for (sender, receiver) in [(&alice, &bob), (&bob, &alice)] {
        receiver.post_receives([1], 8);
        sender.endpoint.send(payload(1, 8), sender.peer(), 2).unwrap();
        let (completion, _) = receiver.next_ended_of(&receive_cq(receiver)).unwrap();
        assert_eq!((completion.context, completion.len_bytes), (1, 8));
        let (completion, source) = sender.next_ended_of(&sender.cq).unwrap();
        assert_eq!(completion.context, 2);
        if sender.is_homespun() {
            assert_eq!(source, ANY, "a send has no source");
        }
    }
    for party in [&alice, &bob] {
        assert_eq!(party.cq.read(), Ok(None));
        assert_eq!(receive_cq(party).read(), Ok(None));
    }
}

/// Shows fi_cq/read-zero-drives-progress.
#[over(all, own)]
fn read_of_zero_entries_drives_progress(net: &Net) {
    let (alice, bob) = net.open_pair();
    bob.post_receives([1], 8);
    alice.endpoint.send(payload(1, 8), alice.peer(), 2).unwrap();
    let drive = |cq: &Queue| cq.read_each(0, |_, _| panic!("none was asked for"));
    // A read of zero entries leaves the entry in the queue.
    poll_until("entries in both queues", || {
        ([drive(&bob.cq), drive(&alice.cq)] == [Ok(Some(0)); 2]).then_some(())
    });
    assert_eq!(bob.cq.read().unwrap().unwrap().context, 1);
    assert_eq!(alice.cq.read().unwrap().unwrap().context, 2);
}

/// Each read finds a completion of the application's own sends. Nevertheless the application must receive.
#[over(driven)]
fn read_of_a_nonempty_queue_drives_progress(net: &Net) {
    let (alice, bob) = net.open_pair_with(Setup::asleep(), Setup::default());
    bob.post_receives([1], 8);
    alice.send(1, payload(1, 8));
    alice.post_receives([100], 8);
    bob.endpoint.send(payload(2, 8), bob.peer(), 2).unwrap();
    poll_until("a message beside completions that are always there", || {
        bob.post_receives([3], 8);
        alice.endpoint.send(payload(3, 8), alice.peer(), 3).unwrap();
        while bob.poll_completion().is_some() {}
        alice.cq.read().unwrap().filter(|completion| completion.context == 100)
    });
    net.start_driving(&alice);
}

#[over(one_process)]
fn read_each_closure_may_call_queue_and_endpoints(net: &Net) {
    let (alice, bob) = net.open_pair();
    bob.post_receives(1..=6, 8);
    (1..=6).for_each(|context| alice.endpoint.send(payload(context, 8), alice.peer(), context).unwrap());
    let mut echoed = 0;
    poll_until("messages to echo", || {
        let echo = |completion: Completion, _| {
            if completion.flags.contains(CompletionFlags::RECV) {
                bob.cq.progress();
                bob.endpoint.send(payload(completion.context, 8), bob.peer(), 100).unwrap();
                echoed += 1;
            }
        };
        bob.cq.read_each(16, echo).expect("no error");
        alice.poll_completion();
        (echoed == 6).then_some(())
    });
}
