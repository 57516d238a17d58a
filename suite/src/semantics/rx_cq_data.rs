//! Writes with remote data that take receives: `FI_RX_CQ_DATA` of `fi_getinfo(3)`.

use super::prelude::*;
use super::rma::check_write_calls_with_remote_data;

pub(crate) const NOTIFIED: CompletionFlags =
    CompletionFlags::RMA.union(CompletionFlags::REMOTE_WRITE).union(CompletionFlags::REMOTE_CQ_DATA);
pub(crate) const RECEIVED: CompletionFlags = CompletionFlags::RECV.union(CompletionFlags::MSG);

/// The length of the receives here.
pub(crate) const ROOM_BYTES: usize = 16;

fn make_setup() -> Setup {
    Setup { rx_cq_data: true, ..Setup::default() }
}

/// Opens a writer, a target whose receives take remote data, and a region of the target.
fn open_writer_and_target(net: &Net) -> (Party, Party, Region) {
    let (alice, bob) = net.open_pair_with(Setup::default(), make_setup());
    let region = bob.open_region(100, MemoryKind::Owned, KEY);
    (alice, bob, region)
}

/// Returns a write whose remote data is its context.
fn make_write(party: &Party, region: &Region, context: u64, len_bytes: usize) -> RmaCall {
    RmaCall { data: Some(context), ..make_access(RmaBy::Write, party, region, context, 0, len_bytes) }
}

/// Writes with remote data, and waits until the write has completed.
#[track_caller]
fn write_and_wait(party: &Party, region: &Region, context: u64, len_bytes: usize) {
    party.access(make_write(party, region, context, len_bytes));
}

/// Returns the context, the flags, the length and the remote data of a completion.
pub(crate) fn fields(completion: &Completion) -> (u64, CompletionFlags, usize, u64) {
    (completion.context, completion.flags, completion.len_bytes, completion.data)
}

/// Shows fi_cq/context-of-receive-for-remote-data, fi_cq/len-field, fi_rma/remote-data-notifies-target.
#[over(all)]
fn every_write_call_with_remote_data_takes_a_receive(net: &Net) {
    let target = Setup { separate_queues: true, ..make_setup() };
    let (alice, bob) = net.open_pair_with(Setup::default(), target);
    check_write_calls_with_remote_data(net, (&alice, &bob), true);
    bob.assert_no_completion();
}

/// Shows fi_cq/context-of-receive-for-remote-data, rpma_cq_get_completion/op-recv-with-imm.
#[over(all)]
fn remote_data_waits_for_receives_in_order(net: &Net) {
    const COUNT: u64 = 500;
    let target = Setup { unexpected_bytes: UNEXPECTED_BUDGET_MIN_BYTES, ..make_setup() };
    let (alice, bob) = net.open_pair_with(Setup::default(), target);
    let region = bob.open_region(8, MemoryKind::Owned, KEY);
    (0..COUNT).for_each(|data| alice.endpoint.rma(make_write(&alice, &region, data, 8)).unwrap());
    bob.assert_no_completion();
    for number in 0..COUNT {
        let completion = bob.receive_message(number, ROOM_BYTES, b"");
        assert_eq!((completion.flags, completion.data), (NOTIFIED, number));
    }
    alice.await_completions(COUNT as usize);
    assert!(region.content() == payload(COUNT - 1, 8));
}

#[over(all)]
fn remote_data_takes_only_untagged_receives_of_its_source(net: &Net) {
    let (alice, bob, region) = open_writer_and_target(net);
    bob.endpoint.trecv(marked_buffer(ROOM_BYTES), ANY, Tag(7), 1).unwrap();
    bob.endpoint.recv(marked_buffer(ROOM_BYTES), ANY, 2).unwrap();
    bob.endpoint.cancel(2).unwrap();
    assert_eq!(bob.next_failure().completion.context, 2);
    let carol = net.open_party();
    let of_carol = bob.meet(&carol);
    bob.endpoint.recv(marked_buffer(ROOM_BYTES), of_carol, 4).unwrap();
    write_and_wait(&alice, &region, 70, 8);
    bob.assert_no_completion();
    bob.endpoint.recv(marked_buffer(ROOM_BYTES), bob.peer(), 3).unwrap();
    assert_eq!(fields(&bob.next_completion()), (3, NOTIFIED, 8, 70));
    write_and_wait(&carol, &region, 71, 8);
    assert_eq!(fields(&bob.next_completion()), (4, NOTIFIED, 8, 71));
    alice.post_tagged(7, 8, OpFlags::empty());
    bob.expect_message(1, &payload(7, 8));
}

/// Shows fi_cq/context-of-receive-for-remote-data.
#[over(all)]
fn messages_and_remote_data_take_receives_in_posting_order(net: &Net) {
    const LENS_BYTES: [usize; 5] = [8, 0, 3000, 20_000, 300_000];
    const COUNT: u64 = 20;
    let order = Order::SAS | Order::SAW | Order::WAS | Order::WAW;
    for is_posted_first in [true, false] {
        let (alice, bob) = net.open_equal_pair(Setup { order, ..make_setup() });
        let region = bob.open_region(LENS_BYTES[4], MemoryKind::Raw, KEY);
        if is_posted_first {
            bob.post_receives(0..COUNT, 300_000);
        }
        let len_bytes = |number: u64| LENS_BYTES[number as usize / 2 % LENS_BYTES.len()];
        for number in 0..COUNT {
            if number % 2 == 0 {
                let send = alice.message(number, len_bytes(number), OpFlags::empty());
                alice.endpoint.sendmsg(SendMsg { data: Some(number), ..send }).unwrap();
            } else {
                alice.endpoint.rma(make_write(&alice, &region, number, len_bytes(number))).unwrap();
            }
        }
        if !is_posted_first {
            bob.assert_no_completion();
            bob.post_receives(0..COUNT, 300_000);
        }
        // Receives match in order, but may complete in another order.
        let ended: BTreeMap<u64, Completion> =
            (0..COUNT).map(|_| bob.next_completion()).map(|ended| (ended.context, ended)).collect();
        assert_eq!(ended.len() as u64, COUNT, "each receive ends once");
        for (number, completion) in ended {
            let flags = if number % 2 == 0 { RECEIVED | CompletionFlags::REMOTE_CQ_DATA } else { NOTIFIED };
            assert_eq!(fields(&completion), (number, flags, len_bytes(number), number));
        }
        alice.await_completions(COUNT as usize);
    }
}

#[over(all)]
fn remote_data_uses_no_byte_of_a_multi_receive_buffer(net: &Net) {
    let (alice, bob, region) = open_writer_and_target(net);
    bob.endpoint.set_min_multi_recv_bytes(8);
    bob.endpoint.recv_multi(marked_buffer(ROOM_BYTES), ANY, 9).unwrap();
    for data in 70..75 {
        write_and_wait(&alice, &region, data, 100);
        assert_eq!(fields(&bob.next_completion()), (9, NOTIFIED, 100, data));
    }
    alice.post_send(1, ROOM_BYTES, OpFlags::empty());
    let last = bob.expect_message(9, &payload(1, ROOM_BYTES));
    assert_eq!(last.flags, RECEIVED | CompletionFlags::MULTI_RECV);
}

#[over(all)]
fn receives_of_remote_data_are_counted_and_reported_selectively(net: &Net) {
    let target = Setup { counts: true, selective: true, ..make_setup() };
    let (alice, bob) = net.open_pair_with(Setup::default(), target);
    let region = bob.open_region(8, MemoryKind::Owned, KEY);
    bob.endpoint.recv(marked_buffer(ROOM_BYTES), ANY, 1).unwrap();
    bob.post_receive(2, ROOM_BYTES, None, OpFlags::COMPLETION);
    [70, 71].into_iter().for_each(|data| write_and_wait(&alice, &region, data, 8));
    assert_eq!(fields(&bob.next_completion()), (2, NOTIFIED, 8, 71), "the first ended silently");
    bob.assert_no_completion();
    let both = [CounterEvents::RECV, CounterEvents::REMOTE_WRITE].map(|event| (event, (2, 0)));
    bob.wait_for_exact_counts(&both);
}

#[over(all)]
fn kept_remote_data_outlives_its_writer(net: &Net) {
    let (alice, bob, region) = open_writer_and_target(net);
    write_and_wait(&alice, &region, 70, 8);
    drop(alice);
    bob.assert_no_completion();
    bob.endpoint.recv(marked_buffer(ROOM_BYTES), ANY, 1).unwrap();
    assert_eq!(fields(&bob.next_completion()), (1, NOTIFIED, 8, 70));
}

#[over(all)]
fn refused_write_with_remote_data_takes_no_receive(net: &Net) {
    let (alice, bob, region) = open_writer_and_target(net);
    bob.endpoint.recv(marked_buffer(ROOM_BYTES), ANY, 1).unwrap();
    alice.endpoint.rma(RmaCall { key: KEY + 1, ..make_write(&alice, &region, 70, 8) }).unwrap();
    assert_eq!(alice.next_failure().completion.context, 70);
    bob.assert_no_completion();
    write_and_wait(&alice, &region, 71, 8);
    assert_eq!(fields(&bob.next_completion()), (1, NOTIFIED, 8, 71));
}
