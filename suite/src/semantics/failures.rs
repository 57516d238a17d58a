//! Peers that do not exist or have closed.

use super::prelude::*;

/// The errors of links to an endpoint that was closed.
pub(crate) const GONE: [Errno; 4] = [Errno::ECONNREFUSED, Errno::ECONNRESET, Errno::ESHUTDOWN, Errno::EPIPE];

/// Checks that an operation has failed because its peer was closed.
#[track_caller]
pub(crate) fn assert_link_ended(failed: &CompletionError) {
    assert!(GONE.contains(&failed.errno()), "{failed:?}");
}

/// Shows fi_cq/failures-are-apart, fi_cq/readerr-describes-failure.
#[over(all, own)]
fn send_without_a_listener_fails_with_econnrefused(net: &Net) {
    let alice = net.open_party();
    let (vacancy, absent) = net.insert_vacant_address(&alice);
    for _ in 0..2 {
        let (endpoint, to) = (&alice.endpoint, absent);
        endpoint.send(payload(1, 10), to, 1).unwrap();
        endpoint.tsend(payload(2, 10_000), to, Tag(7), 2).unwrap();
        endpoint.senddata(payload(3, 100_000), 9, to, 3).unwrap();
        for (context, flags) in [(4, OpFlags::DELIVERY_COMPLETE), (5, OpFlags::INJECT)] {
            endpoint.sendmsg(SendMsg { to, ..alice.message(context, 10, flags) }).unwrap();
        }
        let failed = [(); 5].map(|()| alice.next_failure());
        alice.assert_no_completion();
        for (context, failed) in (1..).zip(&failed) {
            assert_eq!((failed.completion.context, failed.errno()), (context, Errno::ECONNREFUSED));
            let kind = if context == 2 { CompletionFlags::TAGGED } else { CompletionFlags::MSG };
            assert_eq!(failed.completion.flags, CompletionFlags::SEND | kind);
            assert_eq!(failed.overflow_bytes(), 0);
            if !alice.is_native() {
                continue;
            }
            assert_eq!(failed.peer.as_deref(), Some(&vacancy.address));
            let link = format!("the link to {} ended: Connection refused", vacancy.address);
            let text = format!("the send with context {context} failed: {link}");
            assert!(failed.to_string().starts_with(&text), "{failed}");
            assert!(format!("{failed:?}").contains(&link), "{failed:?}");
        }
        assert_eq!(failed[0].completion.buffer, Buffer::Sent(payload(1, 10)), "the buffer comes back");
        // The buffer of the last one could have been done without.
        assert_eq!(failed[4].completion.buffer, Buffer::SentVector(vec![payload(5, 10)]));
        assert!(!alice.cq.strerror(failed[0].prov_errno()).is_empty());
    }
}

/// Shows fi_cq/errors-are-always-reported, fi_cq/error-context-may-be-null.
#[over(all, own)]
fn injections_to_an_absent_peer_report_econnrefused(net: &Net) {
    let alice = net.open_party_with(Setup { cq_depth_entries: 2, ..Setup::default() });
    let (_vacancy, absent) = net.insert_vacant_address(&alice);
    (0..7).for_each(|n| alice.endpoint.inject(&payload(n, 30), absent, Some(Tag(n)), None).unwrap());
    alice.expect_failures(&[0; 7], |failed| {
        assert_eq!(failed.errno(), Errno::ECONNREFUSED);
        assert_eq!(failed.completion.flags, CompletionFlags::SEND | CompletionFlags::TAGGED);
        assert_eq!(failed.completion.buffer, Buffer::None);
    });
}

/// Shows fi_endpoint/critical-error-disables.
#[over(driven, own)]
fn operations_on_a_closed_peer_fail(net: &Net) {
    let (alice, bob) = net.open_pair();
    // A message brings up a link, so that alice notices the close.
    alice.send(1, payload(1, 8));
    bob.receive(1, 8);
    let undisturbed = net.open_party();
    alice.insert_address_of(&undisturbed);
    alice.endpoint.recv(marked_buffer(8), ANY, 100).unwrap();
    alice.endpoint.recv(marked_buffer(8), alice.peer(), 101).unwrap();

    // These messages exceed the link; bob reads none of them, and closes.
    let sleeping = net.open_party_with(Setup::asleep());
    let to = alice.insert_address_of(&sleeping);
    for context in 2..6 {
        let send = alice.message(context, 16 << 20, OpFlags::DELIVERY_COMPLETE);
        alice.endpoint.sendmsg(SendMsg { to, ..send }).unwrap();
    }
    alice.assert_no_completion();
    let addresses = [sleeping.endpoint.name().unwrap(), bob.endpoint.name().unwrap()];
    drop((sleeping, bob));
    // The receive directed to bob ends as well.
    alice.expect_failures(&[2, 3, 4, 5, 101], |failed| {
        assert_link_ended(failed);
        if alice.is_native() {
            let address = &addresses[usize::from(failed.completion.context == 101)];
            assert_eq!(failed.peer.as_deref(), Some(address), "{failed}");
        }
    });

    // Later sends fail too, and receives from any source stay posted.
    for context in 10..15 {
        alice.post_send(context, 8, OpFlags::DELIVERY_COMPLETE);
        assert_eq!(alice.next_failure().completion.context, context);
    }
    undisturbed.insert_address_of(&alice);
    undisturbed.post_send(1, 8, OpFlags::empty());
    assert_eq!(alice.next_completion().context, 100);
}
