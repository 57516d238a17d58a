//! The checks of every history of a shared receive context. The test makes other checks when it reads a
//! completion: no message and no receive ends twice, and the right member reports each message.

use super::{Observed, link_of};
use crate::model::history::Level;

pub(super) fn check_history(observed: &Observed, is_connected: bool) {
    assert_only_disruptions_lose_messages(observed);
    assert_each_failed_receive_lost_a_message(observed);
    assert_receives_match(observed);
    assert_messages_of_a_link_do_not_overtake(observed, is_connected);
}

/// Checks that every message is received, unless its link has ended or its member has left. If the send has
/// succeeded at a higher level than inject, the message may be lost only with its member.
fn assert_only_disruptions_lose_messages(observed: &Observed) {
    for (number, send) in observed.history.sends.iter().enumerate() {
        let has_left = observed.has_left(send.post.to);
        let is_due = observed.is_certain_to_arrive(send) || send.is_known_to_arrive() && !has_left;
        assert!(send.taker.is_some() || !is_due, "message {number} is lost: {send:?}");
        let may_fail = has_left || observed.can_lose(send);
        assert!(may_fail || !send.post.has_failed(), "message {number} has failed: {send:?}");
    }
}

/// Checks that no more receives failed than messages were lost. A receive that fails with a member or a link
/// had matched a message. Only a directed receive may fail without one.
fn assert_each_failed_receive_lost_a_message(observed: &Observed) {
    let lost = || observed.history.sends.iter().filter(|send| send.taker.is_none());
    let with_members = lost().filter(|send| observed.has_left(send.post.to)).count();
    let with_links = lost().filter(|send| observed.can_lose(send)).count();
    let failed = observed.receives.iter().map(|lost| lost.with_member + usize::from(lost.is_unheard));
    assert!(failed.sum::<usize>() <= with_members, "receives fail without messages: {observed:#?}");
    let receives = observed.receives.iter().zip(&observed.history.receives);
    let failed = receives.filter(|(_, op)| op.from.is_none()).map(|(lost, _)| lost.with_link);
    assert!(failed.sum::<usize>() <= with_links, "receives fail without messages: {observed:#?}");
}

/// Checks that receives take only messages that they accept, that the earliest posted receive that accepts a
/// message matches it, and that a send at match level completes only after that receive was posted.
fn assert_receives_match(observed: &Observed) {
    let receives = &observed.history.receives;
    for (number, send, receive, seen_at) in observed.taken_messages() {
        let accepts = |receive: usize| send.matches(receives[receive].tagged, receives[receive].from);
        assert!(accepts(receive), "{:?} took {send:?}", receives[receive]);
        for earlier in (0..receive).filter(|&earlier| accepts(earlier)) {
            assert!(
                observed.certainly_posted_until(earlier) <= seen_at,
                "receive {receive} took message {number}, and receive {earlier} was posted before it: {:?}",
                receives[earlier]
            );
        }
        let posted_at = receives[receive].posted_at;
        let is_matched = send.post.level == Level::Match && send.post.has_succeeded();
        assert!(!is_matched || posted_at < send.post.ended_at, "message {number} was not matched: {send:?}");
    }
}

/// Checks that messages of one peer to one member do not overtake. If a receive that accepts both messages
/// matched the later one, an earlier receive must have matched the earlier message. Untagged messages of a
/// connection are received in the order of sending.
///
/// After a link has ended, messages on the next link may overtake messages that are still being read from
/// the old one. A connection has no next link.
fn assert_messages_of_a_link_do_not_overtake(observed: &Observed, is_connected: bool) {
    for (later, second, other, seen_at) in observed.taken_messages() {
        let link = link_of(second);
        let had_ended = observed.ended_links.get(&link).is_some_and(|ended_at| *ended_at <= seen_at);
        let is_one_link = is_connected || !observed.is_violent && !had_ended;
        for (earlier, first, one, before) in
            observed.taken_messages().take_while(|(number, ..)| *number < later)
        {
            if link_of(first) != link {
                continue;
            }
            let receive = &observed.history.receives[other];
            let is_earlier = one < other || one == other && receive.buffer.is_some();
            assert!(
                !is_one_link || !first.matches(receive.tagged, receive.from) || is_earlier,
                "message {later} overtook message {earlier}: receive {other} took it"
            );
            let is_stream = is_connected && first.tag.is_none() && second.tag.is_none();
            assert!(!is_stream || before < seen_at, "message {later} completed before {earlier}");
        }
    }
}
