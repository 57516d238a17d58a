//! Completion levels: how soon a send may complete, `fi_cq(3)`.

use homespun::FabricAddress;
use homespun::endpoint::Send;
use homespun::flags::OpFlags;

use crate::suite::payload::{payload, received, room};
use crate::suite::{Net, Party, Setup};

/// A sender, and a receiver that makes no progress yet.
fn with_sleeper(net: &Net, tx_op_flags: OpFlags) -> (Party, Party) {
    net.pair_of(Setup { tx_op_flags, ..Setup::default() }, Setup { asleep: true, ..Setup::default() })
}

fn send(party: &Party, context: u64, flags: OpFlags) {
    let buffers = vec![payload(context, 100)];
    party.endpoint.sendmsg(Send { buffers, to: party.peer(), context, flags, ..Send::default() }).unwrap();
}

pub(crate) fn a_small_message_is_injected_without_its_receiver(net: &Net) {
    let (alice, _bob) = with_sleeper(net, OpFlags::empty());
    for (context, flags) in [(1, OpFlags::empty()), (2, OpFlags::INJECT_COMPLETE), (3, OpFlags::INJECT)] {
        send(&alice, context, flags);
        assert_eq!(alice.completion().context, context);
    }
}

pub(crate) fn the_stronger_levels_wait_for_the_receiver(net: &Net) {
    for flags in [OpFlags::TRANSMIT_COMPLETE, OpFlags::DELIVERY_COMPLETE] {
        let (alice, bob) = with_sleeper(net, OpFlags::empty());
        send(&alice, 1, flags);
        alice.silence();
        // Others do not wait behind it.
        send(&alice, 2, OpFlags::INJECT_COMPLETE);
        assert_eq!(alice.completion().context, 2);
        alice.silence();
        net.wake(&bob);
        assert_eq!(alice.completion().context, 1);
        alice.silence();
    }
}

pub(crate) fn the_default_level_comes_from_the_endpoint(net: &Net) {
    let (alice, bob) = with_sleeper(net, OpFlags::DELIVERY_COMPLETE);
    assert_eq!(alice.endpoint.tx_op_flags(), OpFlags::DELIVERY_COMPLETE);
    alice.endpoint.send(payload(1, 8), alice.peer(), 1).unwrap();
    // Flags without a level leave the default level as it is.
    send(&alice, 2, OpFlags::COMPLETION);
    alice.silence();
    send(&alice, 3, OpFlags::INJECT_COMPLETE);
    assert_eq!(alice.completion().context, 3);
    alice.endpoint.set_tx_op_flags(OpFlags::empty()).unwrap();
    alice.endpoint.send(payload(4, 8), alice.peer(), 4).unwrap();
    assert_eq!(alice.completion().context, 4);
    alice.silence();
    net.wake(&bob);
    assert_eq!([alice.completion().context, alice.completion().context], [1, 2]);
}

pub(crate) fn every_level_completes_in_the_end(net: &Net) {
    let (alice, bob) = net.pair();
    let levels = [
        OpFlags::empty(),
        OpFlags::INJECT_COMPLETE,
        OpFlags::TRANSMIT_COMPLETE,
        OpFlags::DELIVERY_COMPLETE,
        OpFlags::INJECT_COMPLETE | OpFlags::DELIVERY_COMPLETE,
    ];
    let lens_bytes = [0, 100, 9000, 300_000];
    let mut context = 0;
    for flags in levels {
        for len_bytes in lens_bytes {
            context += 1;
            let buffers = vec![payload(context, len_bytes)];
            let to = alice.peer();
            alice.endpoint.sendmsg(Send { buffers, to, context, flags, ..Send::default() }).unwrap();
        }
    }
    let count = context as usize;
    let (sends, _) = alice.completions(count);
    let mut contexts: Vec<u64> = sends.iter().map(|send| send.context).collect();
    contexts.sort_unstable();
    assert_eq!(contexts, (1..=context).collect::<Vec<_>>());
    for n in 1..=context {
        bob.endpoint.recv(room(300_000), FabricAddress::UNSPECIFIED, n).unwrap();
        let len_bytes = lens_bytes[(n as usize - 1) % lens_bytes.len()];
        assert!(received(&bob.completion().buffer) == payload(n, len_bytes));
    }
    alice.silence();
}
