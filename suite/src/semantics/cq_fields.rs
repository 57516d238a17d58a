//! Tests the statements of `fi_cq(3)` in the sections "Completion fields", "Completion flags" and
//! "fi_close". The files `entries.rs`, `overrun.rs` and `waiting.rs` test reads, overruns and waits.

use super::prelude::*;

const TAG: u64 = 0x8000_0000_0000_0001;
const DATA: u64 = 0x0123_4567_89ab_cdef;

const SENT: CompletionFlags = CompletionFlags::SEND.union(CompletionFlags::MSG);
const TSENT: CompletionFlags = CompletionFlags::SEND.union(CompletionFlags::TAGGED);
const RECEIVED: CompletionFlags = CompletionFlags::RECV.union(CompletionFlags::MSG);
const TRECEIVED: CompletionFlags = CompletionFlags::RECV.union(CompletionFlags::TAGGED);
const WITH_DATA: CompletionFlags = CompletionFlags::REMOTE_CQ_DATA;

/// Returns an entry without its buffer.
fn make_entry(context: u64, flags: CompletionFlags, len_bytes: usize, data: u64, tag: u64) -> Completion {
    Completion { context, flags, len_bytes, data, tag: Tag(tag), ..Completion::default() }
}

/// Clears the fields of a receive that `fi_cq(3)` does not define.
fn strip_undefined(entry: &Completion) -> Completion {
    let Completion { context, flags, len_bytes, data, tag, .. } = *entry;
    let tag = if flags.contains(CompletionFlags::TAGGED) { tag.0 } else { 0 };
    make_entry(context, flags, len_bytes, if flags.contains(WITH_DATA) { data } else { 0 }, tag)
}

/// An error entry has all known fields of the operation, with and without selective completion.
/// Shows fi_cq/err-is-general-reason, fi_cq/unknown-fields-are-zero, fi_cq/error-context-may-be-null,
/// fi_cq/context-is-always-there, fi_cq/context-null-without-operation, fi_cq/err-field,
/// fi_cq-1.4/context-of-all-completions, fi_endpoint/context-of-unassociated-error.
#[over(all)]
fn error_entries_describe_the_failed_operation(net: &Net) {
    for selective in [false, true] {
        let (alice, bob) =
            net.open_equal_pair(Setup { selective, cq_format: Some(CqFormat::Context), ..Setup::default() });
        let check = |failed: CompletionError, error, expected: Completion| {
            assert_eq!(failed.error, error);
            let told = Completion { buffer: Buffer::None, ..failed.completion };
            let is_cut = matches!(failed.error, OperationError::Truncated { .. });
            if bob.is_homespun() {
                assert_eq!(told, expected);
            } else if is_cut {
                assert_eq!(strip_undefined(&told), expected);
            } else {
                // Without a message, an entry has no other field.
                assert_eq!(told.context, expected.context);
            }
        };
        for (context, tag, flags) in [(1, None, RECEIVED), (2, Some(Tag(TAG)), TRECEIVED)] {
            bob.post_receive(context, 8, tag, OpFlags::empty());
            bob.endpoint.cancel(context).unwrap();
            check(bob.next_failure(), OperationError::Cancelled, make_entry(context, flags, 0, 0, 0));
        }
        bob.endpoint.trecv(marked_buffer(8), ANY, TagMatch::ANY, 3).unwrap();
        alice.endpoint.tsenddata(payload(3, 20), DATA, alice.peer(), Tag(TAG), 3).unwrap();
        let cut = OperationError::Truncated { overflow_bytes: 12 };
        check(bob.next_failure(), cut, make_entry(3, TRECEIVED | WITH_DATA, 8, DATA, TAG));
        if !selective {
            assert_eq!(alice.next_completion().context, 3);
        }

        // The man pages do not say what becomes of an absent peer, and a peek may miss a message.
        if !alice.is_homespun() {
            continue;
        }
        bob.post_receive(4, 0, Some(Tag(1)), OpFlags::PEEK);
        check(bob.next_failure(), OperationError::NoMessage, make_entry(4, TRECEIVED, 0, 0, 0));

        let (_vacancy, absent) = net.insert_vacant_address(&alice);
        alice.endpoint.tsend(payload(5, 8), absent, Tag(TAG), 5).unwrap();
        let refused = alice.next_failure();
        assert_eq!(refused.errno(), Errno::ECONNREFUSED);
        assert_eq!(refused.completion.buffer, Buffer::Sent(payload(5, 8)));
        let told = Completion { buffer: Buffer::None, ..refused.completion };
        assert_eq!(told, make_entry(5, TSENT, 0, 0, 0));
        // An operation without a context reports context 0.
        alice.endpoint.inject(&payload(6, 8), absent, None, None).unwrap();
        assert_eq!(alice.next_failure().completion, make_entry(0, SENT, 0, 0, 0));
    }
}

/// Each error needs its own read call.
/// Shows fi_cq/read-does-not-block, fi_cq/error-hides-later-entries, fi_cq/eavail-means-readerr,
/// fi_cq/readerr-does-not-block, fi_cq/readerr-return, fi_cq-1.4/read-counts.
#[over(all)]
fn errors_are_read_one_by_one(net: &Net) {
    let (alice, bob) = net.open_pair();
    assert_eq!(bob.cq.read_error(), Ok(None), "there is none to begin with");
    bob.post_receives(1..=4, 8);
    (1..4).for_each(|context| bob.endpoint.cancel(context).unwrap());
    alice.deliver(4, 8);
    for context in 1..4 {
        if bob.is_homespun() {
            assert_eq!(bob.cq.read_each(0, |_, _| panic!("nothing is asked for")), Ok(Some(0)));
        }
        assert_eq!(bob.cq.read(), Err(ReadError::ErrorAvailable));
        assert_eq!(bob.cq.read_error().unwrap().unwrap().completion.context, context);
    }
    assert_eq!(bob.cq.read_error(), Ok(None));
    assert_eq!(bob.next_completion().context, 4);
    assert_eq!(bob.cq.read(), Ok(None));
}

/// Shows fi_cq/strerror-text, fi_cq/strerror-return.
#[over(all)]
fn strerror_describes_every_provider_error(net: &Net) {
    let party = net.open_party();
    for number in (-2..600).chain([i32::MIN, i32::MAX]) {
        assert!(!party.cq.strerror(number).is_empty(), "{number}");
    }
    party.endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
    party.endpoint.cancel(1).unwrap();
    let text = party.cq.strerror(party.next_failure().prov_errno());
    assert!(!text.is_empty());
    assert!(text.contains("cancelled") || !party.is_homespun());
}

/// Shows fi_cq/size-is-a-minimum, fi_cq/size-zero-is-default, fi_cq/format-unspec, fi_cq/read-does-not-block,
/// fi_cq/bound-before-read.
#[over(one_process)]
fn queue_without_endpoints_is_empty_and_holds_the_requested_entry_count(net: &Net) {
    let domain = net.open_other_domain();
    for (asked, held) in [(0, CQ_DEPTH_DEFAULT_ENTRIES), (1, 1), (100, 100), (100_000, 100_000)] {
        let cq = domain.open_cq(&CqAttr { size_entries: asked, ..CqAttr::default() }).unwrap();
        assert_eq!(cq.depth_entries(), held);
        assert_eq!(cq.format(), CqFormat::Tagged, "the default");
        assert_eq!(cq.read(), Ok(None));
        assert_eq!(cq.read_error(), Ok(None));
        cq.progress();
        cq.close().unwrap();
    }
    expect_error(domain.open_cq(&CqAttr { size_entries: usize::MAX, ..CqAttr::default() }), Errno::EINVAL);
}

/// Shows fi_cq/close-loses-unread, fi_endpoint/close-may-discard-completions, fi_cq/close-ebusy-for-endpoint,
/// fi_av/close-av-ebusy, fi_av/removal-is-optional.
#[over(one_process)]
fn unread_entries_outlive_the_endpoint_until_the_queue_closes(net: &Net) {
    for is_read in [true, false] {
        let (alice, bob) = net.open_pair();
        let cq = expect_busy(bob.cq.expect_local().clone().close());
        let av = expect_busy(bob.av.expect_local().clone().close());
        // The refused calls had no effect.
        bob.post_receives([1, 2], 8);
        bob.endpoint.cancel(2).unwrap();
        alice.deliver(1, 8);
        drop(bob.endpoint);
        if is_read {
            assert_eq!(cq.read_error().unwrap().unwrap().completion.context, 2);
            assert_eq!(received_bytes(&cq.read().unwrap().unwrap().buffer), payload(1, 8));
            assert_eq!(cq.read(), Ok(None));
        }
        cq.close().unwrap();
        av.close().unwrap();
    }
}

/// Closing a queue frees the buffers of its unread entries.
/// Shows fi_cq/close-releases-resources.
#[over(one_process)]
fn closing_a_queue_frees_unread_buffers(net: &Net) {
    let domain = net.open_other_domain();
    let (endpoint, cq, av) = open_disabled_endpoint(&domain, net.info());
    endpoint.enable().unwrap();
    let own = av.insert_one(endpoint.name().unwrap()).unwrap();
    let message = Bytes::from(vec![7; 8]);
    endpoint.recv(marked_buffer(8), ANY, 1).unwrap();
    endpoint.send(message.clone(), own, 2).unwrap();
    poll_until("a completion", || cq.read_each(0, |_, _| panic!("nothing is asked for")).unwrap());
    drop(endpoint);
    assert!(!message.is_unique(), "the unread entry of the send holds its buffer");
    cq.close().unwrap();
    assert!(message.is_unique());
}
