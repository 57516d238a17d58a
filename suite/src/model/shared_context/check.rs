//! The checks of every history of a shared receive context. The test makes other checks when it reads a
//! completion: no message and no receive ends twice, and the right member reports each message.

use super::history::{History, Message};
use crate::model::history::Level;

pub(super) fn check_history(history: &History, is_connected: bool) {
    assert_only_disruptions_lose_messages(history);
    assert_each_failed_receive_lost_a_message(history);
    assert_receives_take_only_accepted_messages(history);
    assert_earlier_receives_match_first(history);
    assert_messages_of_a_link_do_not_overtake(history, is_connected);
    assert_match_level_sends_complete_after_their_match(history);
    if is_connected {
        assert_connections_complete_in_order(history);
    }
}

/// Returns each received message, the receive that matched it, and the time at which the completion was
/// read.
fn taken_messages(history: &History) -> impl Iterator<Item = (usize, &Message, usize, u64)> {
    let messages = history.messages.iter().enumerate();
    messages.filter_map(|(number, message)| {
        message.taken.map(|(receive, seen_at)| (number, message, receive, seen_at))
    })
}

/// Checks that every message is received, unless its link has ended or its member has left. If the send has
/// succeeded at a higher level than inject, the message may be lost only with its member.
fn assert_only_disruptions_lose_messages(history: &History) {
    for (number, message) in history.messages.iter().enumerate() {
        let has_arrived = message.level != Level::Inject && message.ended_at.is_some() && !message.has_failed;
        let is_due = history.is_certain_to_arrive(message) || has_arrived && !history.has_left(message.to);
        assert!(message.taken.is_some() || !is_due, "message {number} is lost: {message:?}");
        let may_fail = history.has_left(message.to) || history.can_lose_messages(message.from, message.to);
        assert!(may_fail || !message.has_failed, "message {number} has failed: {message:?}");
    }
}

/// Checks that no more receives failed than messages were lost. A receive that fails with a member or a link
/// had matched a message. Only a directed receive may fail without one.
fn assert_each_failed_receive_lost_a_message(history: &History) {
    let lost = || history.messages.iter().filter(|message| message.taken.is_none());
    let lost_with_members = lost().filter(|message| history.has_left(message.to)).count();
    let failed_with_members: usize = history.receives.iter().map(|receive| receive.lost_with_member).sum();
    let unheard = history.receives.iter().filter(|receive| receive.is_unheard).count();
    assert!(
        failed_with_members + unheard <= lost_with_members,
        "receives fail without messages: {history:#?}"
    );
    let lost_with_links =
        lost().filter(|message| history.can_lose_messages(message.from, message.to)).count();
    let any_source = history.receives.iter().filter(|receive| receive.from.is_none());
    let failed_with_links: usize = any_source.map(|receive| receive.lost_with_link).sum();
    assert!(failed_with_links <= lost_with_links, "receives fail without messages: {history:#?}");
}

fn assert_receives_take_only_accepted_messages(history: &History) {
    for (_, message, receive, _) in taken_messages(history) {
        let receive = &history.receives[receive];
        assert!(receive.accepts(message), "{receive:?} took {message:?}");
    }
}

/// Checks that the earliest posted receive that accepts a message matches it.
fn assert_earlier_receives_match_first(history: &History) {
    for (number, message, receive, seen_at) in taken_messages(history) {
        for (earlier, passed_over) in history.receives[..receive].iter().enumerate() {
            assert!(
                !passed_over.accepts(message)
                    || passed_over.certainly_posted_until(&history.messages) <= seen_at,
                "receive {receive} took message {number}, and receive {earlier} was posted before it: \
                 {passed_over:?}"
            );
        }
    }
}

/// Checks that messages of one peer to one member do not overtake. If a receive that accepts both messages
/// matched the later one, an earlier receive must have matched the earlier message.
///
/// After a link has ended, messages on the next link may overtake messages that are still being read from
/// the old one. A connection has no next link.
fn assert_messages_of_a_link_do_not_overtake(history: &History, is_connected: bool) {
    for (later, second, other, seen_at) in taken_messages(history) {
        if !is_connected && !history.no_link_had_ended(second.from, second.to, seen_at) {
            continue;
        }
        for (earlier, first, one, _) in taken_messages(history).take_while(|(earlier, ..)| *earlier < later) {
            if (first.from, first.to) != (second.from, second.to) {
                continue;
            }
            let receive = &history.receives[other];
            let is_one_buffer = one == other && receive.min_free_bytes.is_some();
            assert!(
                !receive.accepts(first) || one < other || is_one_buffer,
                "message {later} overtook message {earlier}: receive {other} took it"
            );
        }
    }
}

/// Checks that a send at match level completes only after the receive that matches it was posted.
fn assert_match_level_sends_complete_after_their_match(history: &History) {
    for (number, message, receive, _) in taken_messages(history) {
        let posted_at = history.receives[receive].posted_at;
        let ended_at = message.ended_at.expect("every send has ended");
        assert!(
            message.level != Level::Match || message.has_failed || posted_at < ended_at,
            "message {number} was said to be matched at {ended_at}, and its receive was posted at {posted_at}"
        );
    }
}

/// Checks that untagged messages of a connection are received in the order of sending.
fn assert_connections_complete_in_order(history: &History) {
    let untagged = || taken_messages(history).filter(|(_, message, ..)| message.tag.is_none());
    for (later, second, _, then) in untagged() {
        for (earlier, first, _, before) in untagged().take_while(|(earlier, ..)| *earlier < later) {
            assert!(first.to != second.to || before < then, "message {later} completed before {earlier}");
        }
    }
}
