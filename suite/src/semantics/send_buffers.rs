//! Messages from send buffers, which near peers map: [`homespun::Domain::allocate_send_buffer`].

use super::prelude::*;

/// Message lengths on both sides of the limits between protocols. The longest is copied in several steps.
const LENS_BYTES: [usize; 8] =
    [0, 100, (16 << 10) - 1, 16 << 10, 70_001, 300_000, (1 << 20) + 1, (5 << 20) + 3];

fn allocate(party: &Party, bytes: &[u8]) -> SendBuffer {
    let mut buffer = party.local_domain().allocate_send_buffer(bytes.len()).unwrap();
    buffer.get_mut().unwrap().copy_from_slice(bytes);
    buffer
}

/// Sends a message, and checks that it arrives.
#[track_caller]
fn send_and_check(from: &Party, to: &Party, pieces: Vec<Bytes>, context: u64) {
    let expected = pieces.concat();
    to.post_receives([1], expected.len());
    from.endpoint.sendv(pieces, from.peer(), context).unwrap();
    to.expect_message(1, &expected);
    assert_eq!(from.next_completion().context, context);
}

#[over(one_process)]
fn messages_of_all_lengths_arrive_from_a_buffer(net: &Net) {
    let (alice, bob) = net.open_pair();
    let longest = LENS_BYTES[LENS_BYTES.len() - 1];
    let buffers = [&alice, &bob].map(|party| allocate(party, &payload(7, longest)));
    for (n, len_bytes) in (2..).zip(LENS_BYTES) {
        send_and_check(&alice, &bob, vec![buffers[0].bytes().slice(longest - len_bytes..)], n);
        send_and_check(&bob, &alice, vec![buffers[1].bytes().slice(..len_bytes)], n);
    }
}

#[over(one_process)]
fn pieces_of_buffers_and_other_memory_arrive(net: &Net) {
    let (alice, bob) = net.open_pair();
    let [first, second] = [1, 2].map(|n| allocate(&alice, &payload(n, 100_000)).bytes());
    let elsewhere = payload(3, 50_000);
    let cases: [&[Bytes]; 7] = [
        &[first.slice(60_000..), first.slice(..50_000)],
        &[first.slice(1..30_000), first.slice(..1), first.slice(99_999..)],
        &[first.slice(..10_000), first.slice(..10_000), first.slice(5..), first.slice(77..20_000)],
        &[first.clone(), elsewhere.clone()],
        &[elsewhere.clone(), first.clone()],
        &[first.clone(), second.clone()],
        &[Bytes::new(), second.slice(3..), Bytes::new()],
    ];
    (2..).zip(cases).for_each(|(n, pieces)| send_and_check(&alice, &bob, pieces.to_vec(), n));
}

#[over(one_process)]
fn buffer_is_overwritten_between_messages(net: &Net) {
    let (alice, bob) = net.open_pair();
    let mut buffer = allocate(&alice, &payload(0, 200_000));
    for n in 1..20 {
        buffer.get_mut().expect("no message uses the buffer").copy_from_slice(&payload(n, 200_000));
        send_and_check(&alice, &bob, vec![buffer.bytes()], n);
    }
}

/// More buffers than a peer keeps mapped.
#[over(one_process)]
fn messages_from_many_buffers_arrive(net: &Net) {
    let (alice, bob) = net.open_pair();
    let buffers: Vec<_> = (0..40).map(|n| allocate(&alice, &payload(n, 20_000))).collect();
    for (n, buffer) in (2..).zip(buffers.iter().chain(&buffers)) {
        send_and_check(&alice, &bob, vec![buffer.bytes()], n);
    }
}
