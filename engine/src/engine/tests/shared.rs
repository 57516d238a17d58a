//! Tests of engines that share a receiver.

use std::sync::atomic::AtomicBool;
use std::{hint, thread};

use super::*;

mod leaving;

const BUDGET_BYTES: usize = 1 << 20;

/// A node whose engine shares a receiver.
type Member = Node;

impl Member {
    /// Returns a member with a link to the peer at port 2.
    fn join(shared: &Arc<SharedReceiver>) -> Member {
        let mut member = Member::unlinked(shared);
        member.link_up(LINK, 2, 1);
        member
    }

    /// Returns a member that has no link yet.
    fn unlinked(shared: &Arc<SharedReceiver>) -> Member {
        let mut node = Node::new(untimed_config());
        node.engine.join_shared_receiver(shared, false);
        node
    }

    fn id(&self) -> MemberId {
        match &self.engine.receive_side {
            ReceiveSide::Shared(membership) => membership.id(),
            other => panic!("not a member: {other:?}"),
        }
    }

    fn leave(&mut self) {
        self.engine.leave_shared_receiver(&mut self.sink);
    }

    fn receive_offer(&mut self, op: u64, len_bytes: u64) {
        let message = Message::of_len(len_bytes);
        self.frame(LINK, &Header::Request { message, op, remote_bytes: REMOTE.len() as u8 }, REMOTE);
    }

    fn progress(&mut self) {
        self.deliver_held();
        self.transmit();
    }

    fn take_results(&mut self) -> Vec<(u64, Result<Vec<u8>, OperationError>)> {
        let contexts = self.ended_contexts();
        let results = self.take_ended().into_iter().map(|ended| match ended {
            Ok(_) => Ok(received_bytes(&ended).to_vec()),
            Err(failure) => Err(failure.error),
        });
        contexts.into_iter().zip(results).collect()
    }
}

fn two_members() -> (Arc<SharedReceiver>, Member, Member) {
    let shared = SharedReceiver::new(64, BUDGET_BYTES);
    let (first, second) = (Member::join(&shared), Member::join(&shared));
    (shared, first, second)
}

/// As [`two_members`], but both report to one queue.
fn two_members_with_one_queue() -> (Arc<SharedReceiver>, [Member; 2]) {
    let (shared, first, second) = two_members();
    let mut members = [first, second];
    members.iter_mut().for_each(|member| member.engine.set_receive_queue(Some(5)));
    (shared, members)
}

fn message_header(len_bytes: u64, awaits: AwaitedReply) -> Header {
    Header::Message(Message { awaits, ..Message::of_len(len_bytes) })
}

/// Posts receives of 8 bytes.
fn post_receives(shared: &SharedReceiver, contexts: impl IntoIterator<Item = u64>) {
    for context in contexts {
        shared.post_receive(None, receive_request(8, context)).unwrap();
    }
}

/// Lets members make passes while they have mail. Returns what `of_ended` makes of each receive that they
/// report.
fn deliver_mail<T>(
    shared: &SharedReceiver,
    members: &mut [Member],
    of_ended: impl Fn(EndedOperation) -> T,
) -> Vec<T> {
    let mut reported = Vec::new();
    while shared.has_mail_for_members() {
        for id in shared.take_members_with_mail() {
            let member = members.iter_mut().find(|member| member.id() == id).unwrap();
            member.progress();
            reported.extend(member.take_ended().into_iter().map(|ended| of_ended(ended.unwrap())));
        }
    }
    reported
}

#[test]
fn members_with_one_queue_report_in_order() {
    let (shared, mut members) = two_members_with_one_queue();
    for at in [1, 0, 0, 1, 0] {
        members[at].frame(LINK, &untagged_header(1), b"m");
    }
    // One thread holds back the mail of several calls.
    post_receives(&shared, 1..=5);
    assert_eq!(deliver_mail(&shared, &mut members, |ended| ended.context), [1, 2, 3, 4, 5]);
    assert_eq!(shared.unreported_counts(), (0, 0));
}

#[test]
fn report_of_the_caller_waits_for_an_earlier_one_to_its_queue() {
    let (shared, [mut first, mut second]) = two_members_with_one_queue();
    second.frame(LINK, &untagged_header(1), b"2");
    post_receives(&shared, 1..=2);
    first.frame(LINK, &untagged_header(1), b"1");
    assert!(first.sink.ended.is_empty(), "the second member has not reported yet");
    assert_eq!(deliver_mail(&shared, &mut [first, second], |ended| ended.context), [1, 2]);
}

#[test]
fn buffer_is_released_after_its_messages_at_other_members() {
    for queues in [[Some(5), Some(5)], [Some(5), Some(6)], [None, None]] {
        let (shared, first, second) = two_members();
        let mut members = [first, second];
        for (member, queue) in members.iter_mut().zip(queues) {
            member.engine.set_receive_queue(queue);
        }
        // The message of the member that is notified last lies first in the buffer.
        members[1].frame(LINK, &untagged_header(8), b"message1");
        members[0].frame(LINK, &untagged_header(8), b"message2");
        shared.post_multi_receive(None, receive_request(16, 1), 8, None).unwrap();
        let is_released = |ended: EndedOperation| ended.flags.contains(CompletionFlags::MULTI_RECV);
        assert_eq!(deliver_mail(&shared, &mut members, is_released), [false, true], "{queues:?}");
    }
}

#[test]
fn leaving_member_holds_no_report_of_another_up() {
    let (shared, mut members) = two_members_with_one_queue();
    members[1].sink.room = Some(0);
    for at in [1, 0] {
        members[at].frame(LINK, &untagged_header(1), b"m");
    }
    post_receives(&shared, 1..=2);
    assert_eq!(deliver_mail(&shared, &mut members, |ended| ended.context), [], "the queue is full");
    let [first, second] = members;
    drop(second);
    assert_eq!(deliver_mail(&shared, &mut [first], |ended| ended.context), [2]);
}

#[test]
fn deferred_work_that_a_leaving_member_was_to_record_is_recorded_by_another() {
    let (shared, mut first, mut second) = two_members();
    second.frame(LINK, &untagged_header(3), b"two");
    let work = ReceiveRequest { signalled: Signalled::Deferred, ..receive_request(8, 7) };
    shared.post_receive(None, work).unwrap();
    drop(second);
    assert_eq!(shared.unreported_counts(), (1, 1));
    first.progress();
    assert_eq!(first.take_results(), [(7, Ok(b"two".to_vec()))]);
    assert_eq!(first.sink.counted, [(CounterEvents::RECV, true)]);
    assert_eq!(shared.unreported_counts(), (0, 0));
}

#[test]
fn cancel_that_the_last_member_was_to_report_waits_for_the_next() {
    let shared = SharedReceiver::new(1, BUDGET_BYTES);
    let mut last = Member::join(&shared);
    shared.post_receive(None, receive_request(8, 1)).unwrap();
    assert!(shared.cancel(1));
    last.leave();
    let refused = shared.post_receive(None, receive_request(8, 2));
    assert!(refused.is_err(), "what was not reported is outstanding");
    let mut next = Member::join(&shared);
    next.progress();
    assert_eq!(next.take_results(), [(1, Err(OperationError::Cancelled))]);
    assert_eq!(next.sink.counted.len(), 1);
}

#[test]
fn members_receive_while_one_transport_reads_into_lent_memory() {
    let (shared, mut first, mut second) = two_members();
    post_receives(&shared, 1..=2);
    second.arrivals().frame_begun(LINK, &untagged_header(4));
    let mut arrivals = second.arrivals();
    let mut space = arrivals.payload_space(LINK);
    assert_eq!(space[0].len(), 4);
    // The second member's transport now reads into memory of a receive. Meanwhile the other member
    // can use the receiver.
    first.frame(LINK, &untagged_header(1), b"a");
    assert_eq!(first.take_results(), [(2, Ok(b"a".to_vec()))]);
    space[0].copy_from_slice(b"lent");
    drop(space);
    second.arrivals().bytes_placed(LINK, 4);
    assert_eq!(second.take_results(), [(1, Ok(b"lent".to_vec()))]);
}

#[test]
fn directed_receive_is_kept_for_a_peer_that_another_member_gets_a_link_to() {
    // Repeated often, so that the two threads meet at the critical moment in some of the rounds.
    for round in 0..10_000 {
        let shared = SharedReceiver::new(64, BUDGET_BYTES);
        let mut first = Member::join(&shared);
        let mut second = Member::unlinked(&shared);
        let only = Some(address(2));
        let is_begun = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                is_begun.store(true, Ordering::Release);
                first.link_down(LINK, RESET);
            });
            while !is_begun.load(Ordering::Acquire) {
                thread::yield_now();
            }
            (0..round % 500).for_each(|_| hint::spin_loop());
            second.link_up(LINK, 2, 1);
            shared.post_receive(only, receive_request(8, 1)).unwrap();
        });
        first.progress();
        second.progress();
        assert!(first.take_results().is_empty() && second.take_results().is_empty(), "{round}");
    }
}

#[test]
fn effects_of_a_post_while_mail_is_fetched_wait_for_the_next_pass() {
    let (shared, _, mut second) = two_members();
    for message in [b"one", b"two"] {
        second.frame(LINK, &message_header(3, AwaitedReply::Match), message);
    }
    shared.post_receive(None, receive_request(8, 1)).unwrap();
    // Another thread could post while the receiver reports. Here the sink of the member does so.
    let (poster, mut requests) = (shared.clone(), vec![receive_request(8, 2)]);
    second.sink.after_report = Some(Box::new(move || {
        requests.pop().into_iter().for_each(|request| poster.post_receive(None, request).unwrap());
    }));
    second.progress();
    second.progress();
    assert_eq!(second.ended_contexts(), [1, 2]);
    assert_eq!(second.sink.counted, [(CounterEvents::RECV, true); 2]);
    let matched = [1, 2].map(|number| Header::Matched { number });
    assert_eq!(second.transport.headers_since(0), matched);
}

#[test]
fn mailbox_entries_of_a_link_are_dropped_with_it() {
    let (shared, _, mut second) = two_members();
    second.frame(LINK, &message_header(3, AwaitedReply::Match), b"two");
    shared.post_receive(None, receive_request(8, 1)).unwrap();
    second.link_down(LINK, RESET);
    second.link_up(LINK, 3, 1);
    second.progress();
    assert_eq!(second.take_results(), [(1, Ok(b"two".to_vec()))]);
    assert!(second.transport.sent.is_empty(), "{:?}", second.transport.sent);
}
