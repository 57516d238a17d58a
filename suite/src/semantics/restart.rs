//! Peers that close and open again at the same address. Each opened endpoint is a new peer.

use super::failures::assert_link_ended;
use super::prelude::*;

/// Lengths of the messages that a closing endpoint has sent.
const LENS_BYTES: [usize; 6] = [10, 9000, 0, 100_000, 300_000, 8];

/// Closes a party, and opens another one at its address. Inserts the peer into the new party's vector.
fn reopen(net: &Net, party: Party, peer: &Party) -> Party {
    let setup = Setup { at: Some(party.endpoint.name().unwrap()), ..Setup::default() };
    drop(party);
    let again = net.open_party_with(setup);
    again.insert_address_of(peer);
    again
}

/// Shows fi_endpoint/close-discards-operations.
#[over(all, own)]
fn messages_of_a_closed_predecessor_still_arrive(net: &Net) {
    let (alice, mut bob) = net.open_pair();
    let lives = 3;
    for life in 1..=lives {
        if life > 1 {
            bob = reopen(net, bob, &alice);
        }
        // The remote data of each message tells in which life the sender sent it.
        for (number, len_bytes) in (100 * life..).zip(LENS_BYTES) {
            bob.endpoint.senddata(payload(number, len_bytes), number, bob.peer(), number).unwrap();
        }
    }
    // The messages of each incarnation arrive in order.
    let mut numbers: Vec<Vec<u64>> = vec![Vec::new(); lives as usize];
    for context in 0..lives * LENS_BYTES.len() as u64 {
        alice.endpoint.recv(marked_buffer(300_000), ANY, context).unwrap();
        let (completion, source) = alice.next_completion_with_source();
        assert_eq!((completion.context, source), (context, alice.peer()));
        let (life, number) = (completion.data / 100, completion.data % 100);
        let expected = payload(completion.data, LENS_BYTES[number as usize]);
        assert!(received_bytes(&completion.buffer) == expected, "message {number} of life {life}");
        numbers[life as usize - 1].push(number);
    }
    assert_eq!(numbers, vec![(0..LENS_BYTES.len() as u64).collect::<Vec<_>>(); lives as usize]);
    bob.expect_each((100 * lives..).take(LENS_BYTES.len()));
}

#[over(all)]
fn operations_on_a_closed_predecessor_fail_once_and_miss_its_successor(net: &Net) {
    let (alice, bob) = net.open_pair();
    alice.exchange_long_messages(&bob);
    // Bob posts no receive for these messages. So the sends fail when he closes, or before.
    let levels = [OpFlags::MATCH_COMPLETE, OpFlags::FENCE, OpFlags::DELIVERY_COMPLETE];
    (0..).zip(levels).for_each(|(context, flags)| alice.post_send(context, 64, flags));
    alice.endpoint.recv(marked_buffer(8), alice.peer(), 10).unwrap();
    alice.endpoint.recv(marked_buffer(64), ANY, 11).unwrap();
    alice.assert_no_completion();
    let bob = reopen(net, bob, &alice);
    alice.expect_failures(&[0, 1, 2, 10], assert_link_ended);
    // The reopened bob gets none of these messages. The receive with the context 11 accepts any source. So
    // this receive is still posted, and matches the message that the reopened bob sends.
    let (mut delivered, deadline) = (20, Deadline::new());
    loop {
        let send = alice.message(delivered, 64, OpFlags::DELIVERY_COMPLETE);
        alice.endpoint.sendmsg(SendMsg { tag: Some(Tag(7)), ..send }).unwrap();
        match alice.next_ended() {
            Ok((completion, _)) => break assert_eq!(completion.context, delivered),
            Err(failed) => assert_link_ended(&failed),
        }
        delivered += 1;
        deadline.yield_or_panic("a message to the reopened peer");
    }
    bob.endpoint.trecv(marked_buffer(64), ANY, Tag(7), 1).unwrap();
    assert_eq!(received_bytes(&bob.next_completion().buffer), payload(delivered, 64));
    bob.endpoint.recv(marked_buffer(64), ANY, 2).unwrap();
    bob.endpoint.trecv(marked_buffer(64), ANY, Tag(7), 3).unwrap();
    bob.assert_no_completion();
    bob.endpoint.send(payload(4, 64), bob.peer(), 4).unwrap();
    let (completion, source) = alice.next_completion_with_source();
    assert_eq!((completion.context, source), (11, alice.peer()));
    assert_eq!(bob.next_completion().context, 4);
    alice.assert_no_completion();
}
