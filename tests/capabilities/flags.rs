//! The flags that operations may have by default: `fi_endpoint(3)`, "op_flags".

use homespun::flags::{CompletionFlags, OpFlags};
use homespun::info::Info;
use homespun::{BytesMut, Error, Misuse};

use crate::Check;
use crate::caps::assert_clean;
use crate::endpoint_pair::{ANY, EndpointPair, OpenAttr};
use homespun_suite::payload::{payload, received, room};

/// The check of each flag of transmit operations. The info has it as the default.
pub(crate) const TRANSMIT: &[(OpFlags, Check)] = &[
    (OpFlags::COMPLETION, reported_transmit_operations),
    (OpFlags::INJECT, injection),
    (OpFlags::MORE, more_flag),
    (OpFlags::INJECT_COMPLETE, inject_complete_sends),
    (OpFlags::TRANSMIT_COMPLETE, transmit_and_delivery_complete_sends),
    (OpFlags::DELIVERY_COMPLETE, transmit_and_delivery_complete_sends),
    (OpFlags::MATCH_COMPLETE, match_complete_sends),
    (OpFlags::COMMIT_COMPLETE, commit_complete_writes),
];

/// The check of each flag of receives. The info has it as the default.
pub(crate) const RECEIVE: &[(OpFlags, Check)] = &[
    (OpFlags::COMPLETION, reported_receives),
    (OpFlags::MORE, all_receives),
    (OpFlags::MULTI_RECV, multi_receive_default),
    // Host memory is visible to all threads at once.
    (OpFlags::INJECT_COMPLETE, all_receives),
    (OpFlags::TRANSMIT_COMPLETE, all_receives),
    (OpFlags::DELIVERY_COMPLETE, all_receives),
];

/// A pair with selective completion.
fn selective(info: &Info) -> EndpointPair {
    EndpointPair::of(info, &OpenAttr { is_selective: true, ..OpenAttr::default() })
}

fn reported_transmit_operations(info: &Info) {
    let stage = selective(info);
    let (alice, bob) = (&stage.alice, &stage.bob);
    alice.endpoint.send(payload(1, 8), alice.peer, 1).unwrap();
    assert_eq!(stage.completion(alice).context, 1);
    alice.endpoint.set_tx_op_flags(OpFlags::empty()).unwrap();
    alice.endpoint.send(payload(2, 8), alice.peer, 2).unwrap();
    stage.silence(alice);
    bob.endpoint.set_rx_op_flags(OpFlags::COMPLETION).unwrap();
    for identity in [1, 2] {
        bob.endpoint.recv(room(8), ANY, identity).unwrap();
        assert!(received(&stage.completion(bob).buffer) == payload(identity, 8));
    }
}

fn injection(info: &Info) {
    let stage = EndpointPair::open(info);
    let (alice, bob) = (&stage.alice, &stage.bob);
    let max_bytes = info.tx.inject_size_bytes;
    stage.message(alice, bob, 1, max_bytes);
    let refused = alice.endpoint.send(payload(2, max_bytes + 1), alice.peer, 2).unwrap_err();
    assert!(matches!(refused.error, Error::Misuse(Misuse::TooLong { .. })), "{}", refused.error);
}

fn more_flag(info: &Info) {
    EndpointPair::open(info).exchange();
}

fn inject_complete_sends(info: &Info) {
    let stage = EndpointPair::open(info);
    let (alice, bob) = (&stage.alice, &stage.bob);
    // A message before it, so that there is a link.
    stage.message(alice, bob, 1, 8);
    alice.endpoint.send(payload(2, 8), alice.peer, 2).unwrap();
    assert_eq!(alice.poll().expect("at once").expect("success").0.context, 2);
    bob.endpoint.recv(room(8), ANY, 2).unwrap();
    assert!(received(&stage.completion(bob).buffer) == payload(2, 8));
}

fn transmit_and_delivery_complete_sends(info: &Info) {
    let stage = EndpointPair::open(info);
    let (alice, bob) = (&stage.alice, &stage.bob);
    stage.message(alice, bob, 1, 8);
    alice.endpoint.send(payload(2, 8), alice.peer, 2).unwrap();
    for _ in 0..20 {
        assert!(alice.poll().is_none(), "bob has done nothing");
    }
    assert_eq!(stage.completion(alice).context, 2);
    bob.endpoint.recv(room(8), ANY, 2).unwrap();
    assert!(received(&stage.completion(bob).buffer) == payload(2, 8));
}

fn match_complete_sends(info: &Info) {
    let stage = EndpointPair::open(info);
    let (alice, bob) = (&stage.alice, &stage.bob);
    for (identity, len_bytes) in [(1, 8), (2, 300_000)] {
        alice.endpoint.send(payload(identity, len_bytes), alice.peer, identity).unwrap();
        stage.silence(alice);
        bob.endpoint.recv(room(len_bytes), ANY, identity).unwrap();
        assert_eq!(stage.completion(alice).context, identity);
        assert!(received(&stage.completion(bob).buffer) == payload(identity, len_bytes));
    }
}

fn commit_complete_writes(info: &Info) {
    let stage = EndpointPair::open(info);
    let (alice, (region, file)) = (&stage.alice, stage.persistent_region(20_000, 7));
    for (identity, len_bytes) in [(1, 8), (2, 20_000)] {
        let message = payload(identity, len_bytes);
        alice.endpoint.write(message.clone(), alice.peer, region.remote(), identity).unwrap();
        assert_eq!(stage.completion(alice).context, identity);
        assert_clean(&file);
        assert!(file.content()[..len_bytes] == message);
    }
    // The flag has no meaning for messages.
    stage.exchange();
}

fn reported_receives(info: &Info) {
    let stage = selective(info);
    let (alice, bob) = (&stage.alice, &stage.bob);
    for identity in 1..=2 {
        bob.endpoint.recv(room(8), ANY, identity).unwrap();
        bob.endpoint.set_rx_op_flags(OpFlags::empty()).unwrap();
        alice.endpoint.inject(&payload(identity, 8), alice.peer, None, None).unwrap();
    }
    assert_eq!(stage.completion(bob).context, 1);
    stage.silence(bob);
}

fn all_receives(info: &Info) {
    EndpointPair::open(info).exchange();
}

fn multi_receive_default(info: &Info) {
    let stage = EndpointPair::open(info);
    let (alice, bob) = (&stage.alice, &stage.bob);
    bob.endpoint.recv(BytesMut::zeroed(80), ANY, 9).unwrap();
    for identity in 1..=3 {
        alice.endpoint.inject(&payload(identity, 8), alice.peer, None, None).unwrap();
    }
    // The third leaves less than the default minimum.
    for identity in 1..=3 {
        let completion = stage.completion(bob);
        assert_eq!(
            (completion.context, completion.flags.contains(CompletionFlags::MULTI_RECV)),
            (9, identity == 3)
        );
        assert!(received(&completion.buffer) == payload(identity, 8));
    }
}
