//! Tests of engines that share a receiver.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{hint, thread};

use super::*;

mod leaving;

const BUDGET_BYTES: usize = 1 << 20;

/// An engine that shares a receiver. It has a link to the peer at port 2.
struct Member {
    id: MemberId,
    node: Node,
}

impl Deref for Member {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl DerefMut for Member {
    fn deref_mut(&mut self) -> &mut Node {
        &mut self.node
    }
}

impl Member {
    fn join(shared: &Arc<SharedReceiver>) -> Member {
        let mut member = Member::unlinked(shared);
        member.link_up(LINK, 2, 1);
        member
    }

    /// Returns a member that has no link yet.
    fn unlinked(shared: &Arc<SharedReceiver>) -> Member {
        let mut node = Node::new(untimed_config());
        let id = node.engine.join_shared_receiver(shared, false);
        Member { id, node }
    }

    fn leave(&mut self) {
        self.node.engine.leave_shared_receiver(&mut self.node.sink);
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
        let ended = self.take_ended();
        let told = ended.iter().map(|ended| match ended {
            Ok(completion) => (completion.context, Ok(received_bytes(&Ok(completion.clone())).to_vec())),
            Err(failure) => (failure.completion.context, Err(failure.error.clone())),
        });
        told.collect()
    }
}

fn two_members() -> (Arc<SharedReceiver>, Member, Member) {
    let shared = SharedReceiver::new(64, BUDGET_BYTES);
    let (first, second) = (Member::join(&shared), Member::join(&shared));
    (shared, first, second)
}

fn message_header(len_bytes: u64, awaits: AwaitedReply) -> Header {
    Header::Message(Message { awaits, ..Message::of_len(len_bytes) })
}

fn deliver_mail(shared: &SharedReceiver, members: &mut [Member]) -> Vec<(u64, CompletionFlags)> {
    let mut reported = Vec::new();
    while shared.has_mail_for_members() {
        for id in shared.take_members_with_mail() {
            let member = members.iter_mut().find(|member| member.id == id).unwrap();
            member.progress();
            let ended = member.take_ended().into_iter().map(Result::unwrap);
            reported.extend(ended.map(|ended| (ended.context, ended.flags)));
        }
    }
    reported
}

#[test]
fn members_with_one_queue_report_in_order() {
    let (shared, first, second) = two_members();
    let mut members = [first, second];
    for member in &mut members {
        member.engine.set_receive_queue(Some(5));
    }
    for at in [1, 0, 0, 1, 0] {
        members[at].frame(LINK, &untagged_header(1), b"m");
    }
    // One thread holds back the mail of several calls.
    for context in 1..=5 {
        shared.post_receive(None, receive_request(8, context)).unwrap();
    }
    let contexts: Vec<u64> =
        deliver_mail(&shared, &mut members).into_iter().map(|(context, _)| context).collect();
    assert_eq!(contexts, [1, 2, 3, 4, 5]);
    assert_eq!(shared.unreported_counts(), (0, 0));
}

#[test]
fn report_of_the_caller_waits_for_an_earlier_one_to_its_queue() {
    let (shared, mut first, mut second) = two_members();
    for member in [&mut first, &mut second] {
        member.engine.set_receive_queue(Some(5));
    }
    second.frame(LINK, &untagged_header(1), b"2");
    for context in [1, 2] {
        shared.post_receive(None, receive_request(8, context)).unwrap();
    }
    first.frame(LINK, &untagged_header(1), b"1");
    assert!(first.sink.ended.is_empty(), "the second member has not reported yet");
    let reported = deliver_mail(&shared, &mut [first, second]);
    assert_eq!(reported.into_iter().map(|(context, _)| context).collect::<Vec<_>>(), [1, 2]);
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
        let flags: Vec<bool> = deliver_mail(&shared, &mut members)
            .into_iter()
            .map(|(_, flags)| flags.contains(CompletionFlags::MULTI_RECV))
            .collect();
        assert_eq!(flags, [false, true], "{queues:?}");
    }
}

#[test]
fn leaving_member_holds_no_report_of_another_up() {
    let (shared, first, mut second) = two_members();
    second.sink.room = 0;
    let mut members = [first, second];
    for member in &mut members {
        member.engine.set_receive_queue(Some(5));
    }
    for at in [1, 0] {
        members[at].frame(LINK, &untagged_header(1), b"m");
    }
    for context in [1, 2] {
        shared.post_receive(None, receive_request(8, context)).unwrap();
    }
    assert!(deliver_mail(&shared, &mut members).is_empty(), "the queue is full");
    let [first, second] = members;
    drop(second);
    let reported = deliver_mail(&shared, &mut [first]);
    assert_eq!(reported.into_iter().map(|(context, _)| context).collect::<Vec<_>>(), [2]);
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
    assert!(
        shared.post_receive(None, receive_request(8, 2)).is_err(),
        "what was not reported is outstanding"
    );
    let mut next = Member::join(&shared);
    next.progress();
    assert_eq!(next.take_results(), [(1, Err(OperationError::Cancelled))]);
    assert_eq!(next.sink.counted.len(), 1);
}

#[test]
fn members_receive_while_one_transport_reads_into_lent_memory() {
    let (shared, mut first, mut second) = two_members();
    for context in [1, 2] {
        shared.post_receive(None, receive_request(8, context)).unwrap();
    }
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

/// A sink that posts a receive while the receiver reports another receive. Another thread could do
/// the same.
struct Posting<'a> {
    shared: &'a SharedReceiver,
    next: Option<ReceiveRequest>,
    told: Recorder,
}

impl Sink for Posting<'_> {
    fn complete(&mut self, completion: EndedOperation, peers: &Peers) -> Result<(), EndedOperation> {
        self.told.complete(completion, peers)?;
        self.next.take().into_iter().for_each(|next| self.shared.post_receive(None, next).unwrap());
        Ok(())
    }

    fn fail(&mut self, failure: FailedOperation, peers: &Peers) -> Result<(), FailedOperation> {
        self.told.fail(failure, peers)
    }

    fn has_counters(&self) -> bool {
        true
    }

    fn count(&mut self, events: CounterEvents) {
        self.told.count(events);
    }
}

#[test]
fn effects_of_a_post_while_mail_is_fetched_wait_for_the_next_pass() {
    let (shared, _, mut second) = two_members();
    for message in [b"one", b"two"] {
        second.frame(LINK, &message_header(3, AwaitedReply::Match), message);
    }
    shared.post_receive(None, receive_request(8, 1)).unwrap();
    let mut sink = Posting { shared: &shared, next: Some(receive_request(8, 2)), told: Recorder::default() };
    let Node { engine, transport, .. } = &mut *second;
    for _ in 0..2 {
        engine.deliver_held(&mut sink);
        engine.transmit(transport, &mut sink);
    }
    assert_eq!(sink.told.ended_contexts(), [1, 2]);
    assert_eq!(sink.told.counted, [(CounterEvents::RECV, true); 2]);
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
