//! Checks the flags that `fi_endpoint(3)` calls "op_flags": the default flags of operations.

use homespun::flags::{CompletionFlags, OpFlags};
use homespun::info::Info;
use homespun::{BytesMut, Error, Misuse};

use crate::Check;
use crate::caps::assert_written_back_or_skip;
use crate::endpoint_pair::{ANY, EndpointPair, OpenAttr};
use homespun_suite::payload::{marked_buffer, payload, received_bytes};

/// A check for each flag of transmit operations. The info that a check gets has the flag as a default.
pub(crate) const TRANSMIT: &[(OpFlags, Check)] = &[
    (OpFlags::COMPLETION, check_completion_flag_of_transmits),
    (OpFlags::INJECT, check_injection),
    (OpFlags::MORE, check_more_flag),
    (OpFlags::INJECT_COMPLETE, check_inject_complete_sends),
    (OpFlags::TRANSMIT_COMPLETE, check_transmit_complete_sends),
    (OpFlags::DELIVERY_COMPLETE, check_transmit_complete_sends),
    (OpFlags::MATCH_COMPLETE, check_match_complete_sends),
    (OpFlags::COMMIT_COMPLETE, check_commit_complete_writes),
];

/// A check for each flag of receives. The info that a check gets has the flag as a default.
pub(crate) const RECEIVE: &[(OpFlags, Check)] = &[
    (OpFlags::COMPLETION, check_completion_flag_of_receives),
    (OpFlags::MORE, check_messages_arrive),
    (OpFlags::MULTI_RECV, check_multi_receive_default),
    // All threads see host memory at once.
    (OpFlags::INJECT_COMPLETE, check_messages_arrive),
    (OpFlags::TRANSMIT_COMPLETE, check_messages_arrive),
    (OpFlags::DELIVERY_COMPLETE, check_messages_arrive),
];

/// Opens a pair with selective completion.
fn open_selective_pair(info: &Info) -> EndpointPair {
    EndpointPair::open_with_attr(info, &OpenAttr { is_selective: true, ..OpenAttr::default() })
}

fn check_completion_flag_of_transmits(info: &Info) {
    let pair = open_selective_pair(info);
    let (alice, bob) = (&pair.alice, &pair.bob);
    alice.endpoint.send(payload(1, 8), alice.peer, 1).unwrap();
    assert_eq!(pair.next_completion(alice).context, 1);
    alice.endpoint.set_tx_op_flags(OpFlags::empty()).unwrap();
    alice.endpoint.send(payload(2, 8), alice.peer, 2).unwrap();
    pair.assert_no_completion(alice);
    bob.endpoint.set_rx_op_flags(OpFlags::COMPLETION).unwrap();
    for identity in [1, 2] {
        bob.endpoint.recv(marked_buffer(8), ANY, identity).unwrap();
        assert!(received_bytes(&pair.next_completion(bob).buffer) == payload(identity, 8));
    }
}

fn check_injection(info: &Info) {
    let pair = EndpointPair::open(info);
    let (alice, bob) = (&pair.alice, &pair.bob);
    let max_bytes = info.tx.inject_size_bytes;
    pair.send_and_receive(alice, bob, 1, max_bytes);
    let refused = alice.endpoint.send(payload(2, max_bytes + 1), alice.peer, 2).unwrap_err();
    assert!(matches!(refused.error, Error::Misuse(Misuse::TooLong { .. })), "{}", refused.error);
}

fn check_more_flag(info: &Info) {
    EndpointPair::open(info).exchange_messages();
}

fn check_inject_complete_sends(info: &Info) {
    let pair = EndpointPair::open(info);
    let (alice, bob) = (&pair.alice, &pair.bob);
    // The first message brings up the link.
    pair.send_and_receive(alice, bob, 1, 8);
    alice.endpoint.send(payload(2, 8), alice.peer, 2).unwrap();
    assert_eq!(alice.poll_completion().expect("at once").expect("success").0.context, 2);
    bob.endpoint.recv(marked_buffer(8), ANY, 2).unwrap();
    assert!(received_bytes(&pair.next_completion(bob).buffer) == payload(2, 8));
}

fn check_transmit_complete_sends(info: &Info) {
    let pair = EndpointPair::open(info);
    let (alice, bob) = (&pair.alice, &pair.bob);
    pair.send_and_receive(alice, bob, 1, 8);
    alice.endpoint.send(payload(2, 8), alice.peer, 2).unwrap();
    for _ in 0..20 {
        assert!(alice.poll_completion().is_none(), "bob has done nothing");
    }
    assert_eq!(pair.next_completion(alice).context, 2);
    bob.endpoint.recv(marked_buffer(8), ANY, 2).unwrap();
    assert!(received_bytes(&pair.next_completion(bob).buffer) == payload(2, 8));
}

fn check_match_complete_sends(info: &Info) {
    let pair = EndpointPair::open(info);
    let (alice, bob) = (&pair.alice, &pair.bob);
    for (identity, len_bytes) in [(1, 8), (2, 300_000)] {
        alice.endpoint.send(payload(identity, len_bytes), alice.peer, identity).unwrap();
        pair.assert_no_completion(alice);
        bob.endpoint.recv(marked_buffer(len_bytes), ANY, identity).unwrap();
        assert_eq!(pair.next_completion(alice).context, identity);
        assert!(received_bytes(&pair.next_completion(bob).buffer) == payload(identity, len_bytes));
    }
}

fn check_commit_complete_writes(info: &Info) {
    let pair = EndpointPair::open(info);
    let (alice, (region, file)) = (&pair.alice, pair.register_persistent_region(20_000, 7));
    for (identity, len_bytes) in [(1, 8), (2, 20_000)] {
        let message = payload(identity, len_bytes);
        alice.endpoint.write(message.clone(), alice.peer, region.remote(), identity).unwrap();
        assert_eq!(pair.next_completion(alice).context, identity);
        assert_written_back_or_skip(&file);
        assert!(file.read_content()[..len_bytes] == message);
    }
    // The flag has no meaning for messages.
    pair.exchange_messages();
}

fn check_completion_flag_of_receives(info: &Info) {
    let pair = open_selective_pair(info);
    let (alice, bob) = (&pair.alice, &pair.bob);
    for identity in 1..=2 {
        bob.endpoint.recv(marked_buffer(8), ANY, identity).unwrap();
        bob.endpoint.set_rx_op_flags(OpFlags::empty()).unwrap();
        alice.endpoint.inject(&payload(identity, 8), alice.peer, None, None).unwrap();
    }
    assert_eq!(pair.next_completion(bob).context, 1);
    pair.assert_no_completion(bob);
}

fn check_messages_arrive(info: &Info) {
    EndpointPair::open(info).exchange_messages();
}

fn check_multi_receive_default(info: &Info) {
    let pair = EndpointPair::open(info);
    let (alice, bob) = (&pair.alice, &pair.bob);
    bob.endpoint.recv(BytesMut::zeroed(80), ANY, 9).unwrap();
    for identity in 1..=3 {
        alice.endpoint.inject(&payload(identity, 8), alice.peer, None, None).unwrap();
    }
    // The third message leaves less free space than the default minimum.
    for identity in 1..=3 {
        let completion = pair.next_completion(bob);
        assert_eq!(
            (completion.context, completion.flags.contains(CompletionFlags::MULTI_RECV)),
            (9, identity == 3)
        );
        assert!(received_bytes(&completion.buffer) == payload(identity, 8));
    }
}
