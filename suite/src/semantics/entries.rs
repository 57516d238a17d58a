//! Completion entries and the calls that read them: `fi_cq(3)`.

use super::prelude::*;

/// Shows fi_cq/format-selects-structure, fi_cq/format-context, fi_cq/format-msg, fi_cq/format-data,
/// fi_cq/format-tagged, fi_cq/read-has-opened-format, fi_cq/fields-mean-the-same.
#[over(all)]
fn completion_has_the_fields_of_its_format(net: &Net) {
    for format in [CqFormat::Context, CqFormat::Msg, CqFormat::Data, CqFormat::Tagged] {
        let (alice, bob) = net.open_equal_pair(Setup { cq_format: Some(format), ..Setup::default() });
        assert_eq!(bob.cq.format(), format);
        bob.endpoint.trecv(marked_buffer(64), ANY, Tag(0x1234), 5).unwrap();
        alice.endpoint.tsenddata(payload(1, 50), 0xfeed, alice.peer(), Tag(0x1234), 6).unwrap();

        let flags = CompletionFlags::RECV | CompletionFlags::TAGGED | CompletionFlags::REMOTE_CQ_DATA;
        let mut expected = Completion {
            context: 5,
            flags,
            len_bytes: 50,
            data: 0xfeed,
            tag: Tag(0x1234),
            ..Completion::default()
        };
        let mut sent = Completion {
            context: 6,
            flags: CompletionFlags::SEND | CompletionFlags::TAGGED,
            ..Completion::default()
        };
        if format != CqFormat::Tagged {
            expected.tag = Tag(0);
        }
        if format == CqFormat::Msg || format == CqFormat::Context {
            expected.data = 0;
        }
        if format == CqFormat::Context {
            (expected.flags, expected.len_bytes) = (CompletionFlags::empty(), 0);
            sent.flags = CompletionFlags::empty();
        }
        let (completion, source) = bob.next_completion_with_source();
        assert_eq!(source, bob.peer(), "the source is no part of the format");
        // Behind the C interface, a context alone does not tell the length.
        if bob.is_native() || format != CqFormat::Context {
            assert_eq!(received_bytes(&completion.buffer), payload(1, 50), "nor is the buffer");
        }
        let without_buffer = |completion| Completion { buffer: Default::default(), ..completion };
        assert_eq!(without_buffer(completion), expected);
        let mut entry = without_buffer(alice.next_completion());
        if !alice.is_homespun() {
            // `fi_cq(3)` gives these fields no meaning for a send.
            (entry.len_bytes, entry.data, entry.tag) = (0, 0, Tag(0));
        }
        assert_eq!(entry, sent);
    }
}

/// Shows fi_cq/count-limits-entries, fi_cq/read-several.
#[over(all)]
fn one_read_returns_many_entries_in_order(net: &Net) {
    let (alice, bob) = net.open_pair();
    for context in 1..=10 {
        bob.endpoint.recv(marked_buffer(8), ANY, context).unwrap();
        alice.deliver(context, 8);
    }
    // All ten messages have arrived, so each read finds as many entries as it asks for.
    let (mut contexts, mut counts) = (Vec::new(), Vec::new());
    let deadline = Deadline::new();
    while contexts.len() < 10 {
        match bob.cq.read_each(4, |completion, source| {
            assert_eq!(source, bob.peer());
            contexts.push(completion.context);
        }) {
            Ok(Some(count)) => counts.push(count),
            Ok(None) => deadline.yield_or_panic("ten receives"),
            Err(error) => panic!("{error}: {:?}", bob.cq.read_error()),
        }
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
    let receive_cq = |party: &crate::Party| party.receive_cq.clone().expect("it has two queues");
    for (sender, receiver) in [(&alice, &bob), (&bob, &alice)] {
        receiver.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
        sender.endpoint.send(Bytes::from_static(b"12345678"), sender.peer(), 2).unwrap();
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
    bob.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
    alice.endpoint.send(payload(1, 8), alice.peer(), 2).unwrap();
    let deadline = Deadline::new();
    let drive = |cq: &Queue| cq.read_each(0, |_, _| panic!("none was asked for"));
    // A read of zero entries leaves the entry in the queue.
    while [drive(&bob.cq), drive(&alice.cq)] != [Ok(Some(0)); 2] {
        deadline.yield_or_panic("entries in both queues");
    }
    assert_eq!(bob.cq.read().unwrap().unwrap().context, 1);
    assert_eq!(alice.cq.read().unwrap().unwrap().context, 2);
}

/// Each read finds a completion of the application's own sends. Nevertheless the application must receive.
#[over(driven)]
fn read_of_a_nonempty_queue_drives_progress(net: &Net) {
    let (alice, bob) = net.open_pair_with(Setup::asleep(), Setup::default());
    let any = ANY;
    bob.endpoint.recv(marked_buffer(8), any, 1).unwrap();
    alice.endpoint.send(payload(1, 8), alice.peer(), 1).unwrap();
    alice.next_completion();
    alice.endpoint.recv(marked_buffer(8), any, 100).unwrap();
    bob.endpoint.send(payload(2, 8), bob.peer(), 2).unwrap();
    let deadline = Deadline::new();
    loop {
        bob.endpoint.recv(marked_buffer(8), any, 3).unwrap();
        alice.endpoint.send(payload(3, 8), alice.peer(), 3).unwrap();
        if alice.cq.read().unwrap().is_some_and(|completion| completion.context == 100) {
            break;
        }
        while bob.poll_completion().is_some() {}
        deadline.yield_or_panic("a message beside completions that are always there");
    }
    net.start_driving(&alice);
}

#[over(one_process)]
fn read_each_closure_may_call_queue_and_endpoints(net: &Net) {
    let (alice, bob) = net.open_pair();
    for context in 1..=6 {
        bob.endpoint.recv(marked_buffer(8), ANY, context).unwrap();
        alice.endpoint.send(payload(context, 8), alice.peer(), context).unwrap();
    }
    let (deadline, mut echoed) = (Deadline::new(), 0);
    while echoed < 6 {
        let echo = |completion: Completion, _| {
            if completion.flags.contains(CompletionFlags::RECV) {
                bob.cq.progress();
                bob.endpoint.send(payload(completion.context, 8), bob.peer(), 100).unwrap();
                echoed += 1;
            }
        };
        match bob.cq.read_each(16, echo) {
            Ok(_) => {}
            Err(error) => panic!("{error}: {:?}", bob.cq.read_error()),
        }
        alice.poll_completion();
        deadline.yield_or_panic("messages to echo");
    }
}
