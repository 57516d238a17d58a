//! Send after send: messages of one sender are matched in the order of their sending.

use homespun::endpoint::SendMsg;
use homespun::{Again, Error, FabricAddress};

use crate::suite::payload::{payload, received, room};
use crate::suite::{Deadline, Net, Party};

const ANY: FabricAddress = FabricAddress::UNSPECIFIED;

/// Lengths around everything that treats small and large messages differently.
const MIXED_LENS_BYTES: [usize; 12] = [0, 70_000, 1, 8193, 8192, 100, 200_000, 4097, 4096, 9, 65_537, 12_000];

/// Posts something, waiting for room by reading the party's completions, which are counted.
#[track_caller]
fn post(party: &Party, ended: &mut usize, mut post: impl FnMut() -> Result<(), Error>) {
    let deadline = Deadline::new();
    loop {
        match post() {
            Ok(()) => return,
            Err(Error::Again(Again::QueueFull)) => {}
            Err(error) => panic!("{error}"),
        }
        if let Some(ending) = party.poll() {
            ending.expect("no operation fails");
            *ended += 1;
        }
        deadline.pause("room for another operation");
    }
}

pub(crate) fn messages_of_mixed_sizes_arrive_in_order(net: &Net) {
    let (alice, bob) = net.pair();
    let count = 3 * MIXED_LENS_BYTES.len();
    let len_bytes = |n: usize| MIXED_LENS_BYTES[n % MIXED_LENS_BYTES.len()];
    let mut ended = 0;
    for n in 0..count {
        if n % 2 == 0 {
            bob.endpoint.recv(room(200_000), ANY, n as u64).unwrap();
        }
        let message = payload(n as u64, len_bytes(n));
        post(&alice, &mut ended, || alice.endpoint.send(message.clone(), alice.peer(), n as u64));
    }
    // Half of the receives were there early.
    for n in (1..count).step_by(2) {
        bob.endpoint.recv(room(200_000), ANY, n as u64).unwrap();
    }
    let posted = (0..count).step_by(2).chain((1..count).step_by(2));
    let mut messages: Vec<Option<Vec<u8>>> = vec![None; count];
    for _ in 0..count {
        let completion = bob.completion();
        messages[completion.context as usize] = Some(received(&completion.buffer));
    }
    for (n, context) in posted.enumerate() {
        let message = messages[context].take().expect("every receive has ended");
        assert!(message == payload(n as u64, len_bytes(n)), "message {n} overtook or was overtaken");
    }
    for _ in ended..count {
        alice.completion();
    }
}

pub(crate) fn tagged_messages_of_one_tag_are_received_in_order(net: &Net) {
    let (alice, bob) = net.pair();
    let count = 24;
    for n in 0..count {
        let message = payload(n, MIXED_LENS_BYTES[n as usize % MIXED_LENS_BYTES.len()]);
        alice.endpoint.tsend(message, alice.peer(), n % 3, n).unwrap();
    }
    for tag in [2, 0, 1] {
        for n in (tag..count).step_by(3) {
            bob.endpoint.trecv(room(200_000), ANY, tag, 0, n).unwrap();
        }
    }
    for _ in 0..count {
        let completion = bob.completion();
        let n = completion.context;
        assert_eq!(completion.tag, n % 3);
        let len_bytes = MIXED_LENS_BYTES[n as usize % MIXED_LENS_BYTES.len()];
        assert!(received(&completion.buffer) == payload(n, len_bytes), "message {n} was overtaken");
        alice.completion();
    }
}

pub(crate) fn the_earliest_posted_receive_takes_a_message(net: &Net) {
    let (alice, bob) = net.pair();
    // More than are looked through one by one.
    let others = 40;
    for context in 0..others {
        bob.endpoint.trecv(room(8), ANY, 100 + context, 0, context).unwrap();
    }
    bob.endpoint.trecv(room(8), ANY, 7, 0, 1000).unwrap();
    bob.endpoint.trecv(room(8), ANY, 0, u64::MAX, 1001).unwrap();
    bob.endpoint.trecv(room(8), ANY, 7, 0, 1002).unwrap();
    let expectations = [(7, 1000), (7, 1001), (7, 1002), (139, 39), (100, 0), (120, 20)];
    for (tag, context) in expectations {
        alice.endpoint.tsend(payload(tag, 8), alice.peer(), tag, 1).unwrap();
        let completion = bob.completion();
        assert_eq!((completion.tag, completion.context), (tag, context));
        alice.completion();
    }
    // The same the other way: the earliest message that is accepted, out of many.
    for tag in 0..others {
        alice.send_and_wait(SendMsg {
            buffers: vec![payload(tag, 8)],
            to: alice.peer(),
            tag: Some(1000 + tag),
            ..SendMsg::default()
        });
    }
    bob.endpoint.trecv(room(8), ANY, 1039, 0, 1).unwrap();
    bob.endpoint.trecv(room(8), ANY, 1001, 0x3e, 2).unwrap();
    bob.endpoint.trecv(room(8), ANY, 1000, 0xff, 3).unwrap();
    let taken: Vec<(u64, u64)> =
        (0..3).map(|_| bob.completion()).map(|entry| (entry.context, entry.tag)).collect();
    // 1001 is 0b1111101001: without the bits of 0x3e it is any odd tag from 961 to 1023.
    assert_eq!(taken, [(1, 1039), (2, 1001), (3, 1000)]);
}

pub(crate) fn tagged_and_untagged_messages_do_not_meet(net: &Net) {
    let (alice, bob) = net.pair();
    bob.endpoint.trecv(room(8), ANY, 0, u64::MAX, 1).unwrap();
    alice.send_and_wait(SendMsg { buffers: vec![payload(5, 8)], to: alice.peer(), ..SendMsg::default() });
    bob.silence();
    bob.endpoint.recv(room(8), ANY, 2).unwrap();
    assert_eq!(bob.completion().context, 2);
    bob.endpoint.recv(room(8), ANY, 3).unwrap();
    alice.send_and_wait(SendMsg {
        buffers: vec![payload(6, 8)],
        to: alice.peer(),
        tag: Some(0),
        ..SendMsg::default()
    });
    assert_eq!(bob.completion().context, 1);
    bob.silence();
}

pub(crate) fn tags_are_matched_bit_by_bit(net: &Net) {
    let (alice, bob) = net.pair();
    let receives = [(0xff00, 0x00ff, 1), (1 << 63, 0, 2), (0, !(1 << 40), 3)];
    for (tag, ignore, context) in receives {
        bob.endpoint.trecv(room(8), ANY, tag, ignore, context).unwrap();
    }
    for (tag, context) in [(u64::MAX - (1 << 40), 3), (0xff37, 1), (1 << 63, 2)] {
        alice.endpoint.tsend(payload(tag, 8), alice.peer(), tag, 9).unwrap();
        let completion = bob.completion();
        assert_eq!((completion.context, completion.tag), (context, tag));
        alice.completion();
    }
    // A bit that differs and is not ignored keeps them apart.
    bob.endpoint.trecv(room(8), ANY, 0b1000, 0b0111, 4).unwrap();
    alice.send_and_wait(SendMsg {
        buffers: vec![payload(1, 8)],
        to: alice.peer(),
        tag: Some(0b11000),
        ..SendMsg::default()
    });
    bob.silence();
    alice.send_and_wait(SendMsg {
        buffers: vec![payload(2, 8)],
        to: alice.peer(),
        tag: Some(0b1101),
        ..SendMsg::default()
    });
    assert_eq!(bob.completion().tag, 0b1101);
}

pub(crate) fn both_directions_keep_their_order(net: &Net) {
    let (alice, bob) = net.pair();
    let count = 30;
    for n in 0..count {
        for party in [&alice, &bob] {
            party.endpoint.recv(room(200_000), ANY, n).unwrap();
            let message = payload(n, MIXED_LENS_BYTES[n as usize % MIXED_LENS_BYTES.len()]);
            party.endpoint.send(message, party.peer(), 1000 + n).unwrap();
        }
    }
    for party in [&alice, &bob] {
        let (sends, mut receives) = party.completions(2 * count as usize);
        assert_eq!((sends.len(), receives.len()), (count as usize, count as usize));
        // They are matched in order, and may end in another.
        receives.sort_by_key(|completion| completion.context);
        for (n, completion) in (0..count).zip(receives) {
            assert_eq!(completion.context, n, "each receive ends once");
            let len_bytes = MIXED_LENS_BYTES[n as usize % MIXED_LENS_BYTES.len()];
            assert!(received(&completion.buffer) == payload(n, len_bytes));
        }
    }
}
