//! What must hold of every history of a shared receive context. That each message is received once, by one
//! receive, and reported where it came to, was checked when the completions were read.

use super::history::{History, Message};
use crate::history::Level;

pub(super) fn check(history: &History) {
    receives_take_what_they_accept(history);
    earlier_receives_come_first(history);
    messages_of_a_link_do_not_overtake(history);
    nothing_completes_before_it_is_matched(history);
}

fn taker(message: &Message) -> usize {
    message.taken.expect("every message was taken").0
}

fn receives_take_what_they_accept(history: &History) {
    for message in &history.messages {
        let receive = &history.receives[taker(message)];
        assert!(receive.accepts(message), "{receive:?} took {message:?}");
    }
}

/// When a message was taken, no receive was posted that accepts it and had been posted before the one that
/// took it.
fn earlier_receives_come_first(history: &History) {
    for (number, message) in history.messages.iter().enumerate() {
        let (receive, seen_at) = message.taken.expect("every message was taken");
        for (earlier, passed_over) in history.receives[..receive].iter().enumerate() {
            assert!(
                !passed_over.accepts(message) || passed_over.posted_until(&history.messages) <= seen_at,
                "receive {receive} took message {number}, and receive {earlier} was posted before it: \
                 {passed_over:?}"
            );
        }
    }
}

/// Of two messages of one peer to one member, the later one is not taken by a receive that could have had the
/// earlier one.
fn messages_of_a_link_do_not_overtake(history: &History) {
    for (later, second) in history.messages.iter().enumerate() {
        for (earlier, first) in history.messages[..later].iter().enumerate() {
            if (first.from, first.to) != (second.from, second.to) {
                continue;
            }
            let (one, other) = (taker(first), taker(second));
            let receive = &history.receives[other];
            let is_one_buffer = one == other && receive.min_free_bytes.is_some();
            assert!(
                !receive.accepts(first) || one < other || is_one_buffer,
                "message {later} overtook message {earlier}: receive {other} took it"
            );
        }
    }
}

/// A message of which a match was promised does not complete before the receive is posted that takes it.
fn nothing_completes_before_it_is_matched(history: &History) {
    for (number, message) in history.messages.iter().enumerate() {
        let posted_at = history.receives[taker(message)].posted_at;
        let ended_at = message.ended_at.expect("every send has ended");
        assert!(
            message.level != Level::Match || posted_at < ended_at,
            "message {number} was said to be matched at {ended_at}, and its receive was posted at {posted_at}"
        );
    }
}
