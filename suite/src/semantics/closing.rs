//! Closing an endpoint: its accepted messages are still sent, and no call hangs or crashes.

use super::prelude::*;

/// Shows fi_endpoint/close-discards-operations.
#[over(all, own)]
fn unmatched_messages_arrive_after_the_sender_closes(net: &Net) {
    // Short messages need no more progress by the sender. Long messages may need progress by the sender until
    // they are received.
    let (short, long) = (&[10, 0, 900][..], &[10, 8193, 100_000, 1 << 20, 300_000, 0][..]);
    for (lens_bytes, is_injected) in [(short, true), (short, false), (long, false)] {
        let (alice, bob) = net.open_pair();
        let messages = || (0..).zip(lens_bytes.iter().copied());
        // The link need not be up yet.
        for (n, len_bytes) in messages() {
            if is_injected {
                alice.endpoint.inject(&payload(n, len_bytes), alice.peer(), None, None).unwrap();
            } else {
                alice.post_send(n, len_bytes, OpFlags::MATCH_COMPLETE);
            }
        }
        thread::scope(|scope| {
            let closing = scope.spawn(move || drop(alice));
            if lens_bytes == short {
                closing.join().unwrap();
            }
            for (n, len_bytes) in messages() {
                bob.receive_message(n, 1 << 20, &payload(n, len_bytes));
            }
        });
    }
}

#[over(all, native)]
fn dropped_disabled_endpoint_frees_its_address(net: &Net) {
    let domain = net.open_other_domain();
    let (endpoint, cq, av) = open_disabled_endpoint(&domain, net.info());
    let name = endpoint.name().unwrap();
    drop(endpoint);
    av.close().unwrap();
    cq.close().unwrap();
    let next = net.open_party_with(Setup { at: Some(name), ..Setup::default() });
    assert_eq!(next.endpoint.name().unwrap(), name, "its address is free again");
}
