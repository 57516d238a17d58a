//! The short ways of small messages: sent at once, and found by a glance.

use homespun_engine::transport::{Glance, LinkId, Provider, Transport};
use homespun_engine::wire::{Header, Message};

use crate::transport::{BUDGET_FRAMES, Backend, SIZES, TestEndpoint, message_header, pseudo_random_payload};

/// How many messages a test sends.
const MESSAGES: usize = 600;

/// Each poll in so many must be one that receives. A transport that has its own number must have a
/// smaller one.
const GLANCES_MAX: usize = 100_000;

/// The message whose header is [`message_header`].
fn message_of_len(len_bytes: usize) -> Message {
    match message_header(len_bytes) {
        Header::Message(message) => message,
        other => panic!("not a message: {other:?}"),
    }
}

/// Sends a message, at once if that is possible. Otherwise queues it behind the others. Returns whether it
/// was sent at once.
fn send_at_once_or_post<T: Transport>(
    endpoint: &mut TestEndpoint<T>,
    link: LinkId,
    payload: Vec<u8>,
) -> bool {
    let may_overtake = endpoint.is_outbox_empty(link);
    let message = message_of_len(payload.len());
    let is_sent = may_overtake && endpoint.transport.send_at_once(link, &message, &payload);
    if !is_sent {
        endpoint.post(link, payload);
    }
    is_sent
}

/// Polls once: by a glance, and by what it asks for.
fn poll<T: Transport>(endpoint: &mut TestEndpoint<T>) -> Glance {
    let glance = endpoint.transport.glance();
    match glance {
        Glance::Nothing => {}
        Glance::Frame(link) if endpoint.receive_at_once(link, 2) > 0 => {}
        Glance::Frame(_) | Glance::Pass => _ = endpoint.receive(BUDGET_FRAMES),
    }
    glance
}

/// Messages that are sent at once and others arrive in the order of their calls, by glances and by passes.
pub fn messages_sent_at_once_keep_their_order<P: Provider>(backend: Backend<'_, P>) {
    let ([mut a, mut b], link, peer) = backend.open_linked_pair();
    let payloads: Vec<_> =
        (0..MESSAGES).map(|n| pseudo_random_payload(SIZES[n % SIZES.len()].min(5000), n as u64)).collect();
    let mut sent_at_once = 0;
    for (n, payload) in payloads.iter().enumerate() {
        sent_at_once += usize::from(send_at_once_or_post(&mut a, link, payload.clone()));
        if n % 3 == 0 {
            a.make_progress();
        }
        poll(&mut b);
    }
    assert!(sent_at_once > 0, "no message was sent at once");
    let deadline = b.deadline_from_now();
    while b.recorder.frame_count(peer) < MESSAGES {
        a.make_progress();
        poll(&mut b);
        deadline.yield_or_panic("all messages");
    }
    assert_eq!(b.recorder.payloads_of(peer), payloads);
}

/// A message that is sent at once is handed over: it arrives although its sender makes no further call.
pub fn message_sent_at_once_arrives_without_further_calls<P: Provider>(backend: Backend<'_, P>) {
    let ([mut a, mut b], link, peer) = backend.open_linked_pair();
    let mut sent = 0;
    for _ in 0..10 {
        let payload = pseudo_random_payload(8, 1);
        sent += usize::from(a.transport.send_at_once(link, &message_of_len(8), &payload));
        let deadline = b.deadline_from_now();
        while b.recorder.frame_count(peer) < sent {
            // Asleep or not, the receiver learns of the message.
            let _ = b.transport.arm();
            b.receive(BUDGET_FRAMES);
            deadline.yield_or_panic("a message that was sent at once");
        }
    }
    assert!(sent > 0, "no message was sent at once");
}

/// Glances that find nothing do not go on for ever: now and then the transport asks for a pass.
pub fn idle_transport_asks_for_a_pass_now_and_then<P: Provider>(backend: Backend<'_, P>) {
    let ([mut a, mut b], link, peer) = backend.open_linked_pair();
    a.post(link, pseudo_random_payload(8, 1));
    let deadline = b.deadline_from_now();
    while b.recorder.frame_count(peer) < 1 {
        a.make_progress();
        poll(&mut b);
        deadline.yield_or_panic("a message");
    }
    for _ in 0..3 {
        let is_due = (0..GLANCES_MAX).any(|_| poll(&mut b) == Glance::Pass);
        assert!(is_due, "{GLANCES_MAX} glances have found nothing, and none has asked for a pass");
    }
}
