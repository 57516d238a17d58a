//! What must hold of every history. That each operation ends once, and that buffers and entries are right, was checked
//! when they were read.

use crate::history::{Arrived, Fate, History, ReceiveEnd, ReceiveOp, SendOp};
use crate::reference;
use crate::run::CANCELLED;

/// What the network, and the endpoints' lives, allow to be promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promise {
    /// All messages arrive, in order.
    Everything,
    /// All messages arrive, in order, whose receiver was not closed.
    BetweenTheLiving,
    /// A message arrives whose sender was told so.
    WhatWasAcknowledged,
}

pub(crate) fn check(history: &History, promise: Promise) {
    ends(history, promise);
    receives_take_what_they_accept(history);
    cancellations(history);
    earlier_receives_come_first(history);
    nothing_waits_beside_a_receive_for_it(history);
    acknowledged_messages_arrive(history);
    if promise != Promise::WhatWasAcknowledged {
        messages_arrive(history);
        messages_do_not_overtake(history);
        one_senders_messages_are_matched_as_they_must_be(history);
    }
}

/// Messages and receives of one kind for one endpoint, in the order of their posting.
struct Space {
    messages: Vec<usize>,
    receives: Vec<usize>,
}

fn spaces(history: &History) -> Vec<Space> {
    let living = (0..history.fates.len()).filter(|&party| history.lives(party));
    living
        .flat_map(|at| [true, false].map(|tagged| (at, tagged)))
        .map(|(at, tagged)| {
            let is_message = |send: &SendOp| send.to == at && send.tag.is_some() == tagged;
            let is_receive = |receive: &ReceiveOp| receive.at == at && receive.tagged.is_some() == tagged;
            let messages = (0..history.sends.len()).filter(|&message| is_message(&history.sends[message]));
            let receives =
                (0..history.receives.len()).filter(|&receive| is_receive(&history.receives[receive]));
            Space { messages: messages.collect(), receives: receives.collect() }
        })
        .collect()
}

/// The receive of the program that took a message.
fn taker(history: &History, message: usize) -> Option<usize> {
    match history.sends[message].arrived {
        Some(Arrived::Received(receive)) => Some(receive),
        _ => None,
    }
}

fn ends(history: &History, promise: Promise) {
    for (identity, send) in history.sends.iter().enumerate() {
        if !history.lives(send.from) || send.injected {
            continue;
        }
        let result = send.ended.unwrap_or_else(|| panic!("send {identity} never ended"));
        let may_fail = match promise {
            Promise::Everything => false,
            Promise::BetweenTheLiving => !history.lives(send.to),
            Promise::WhatWasAcknowledged => true,
        };
        assert!(result.is_ok() || send.cancelled || may_fail, "send {identity} failed: {result:?}");
    }
    for (number, receive) in history.receives.iter().enumerate() {
        if promise == Promise::Everything && matches!(receive.ended, Some(ReceiveEnd::Broken(_))) {
            panic!("receive {number} failed: {receive:?}");
        }
    }
}

fn receives_take_what_they_accept(history: &History) {
    for (number, receive) in history.receives.iter().enumerate() {
        if let Some(ReceiveEnd::Took(message)) = receive.ended {
            let send = &history.sends[message];
            assert!(receive.accepts(send), "receive {number}, {receive:?}, took {send:?}");
        }
    }
}

fn cancellations(history: &History) {
    for (identity, send) in history.sends.iter().enumerate() {
        if history.lives(send.from) {
            assert_eq!(send.cancelled, send.ended == Some(CANCELLED), "send {identity}: {send:?}");
        }
        assert!(!send.cancelled || send.arrived.is_none(), "send {identity} was taken back, and arrived");
    }
    for (number, receive) in history.receives.iter().enumerate() {
        if history.lives(receive.at) {
            let is_cancelled = receive.ended == Some(ReceiveEnd::Cancelled);
            assert_eq!(receive.cancelled, is_cancelled, "receive {number}: {receive:?}");
        }
    }
}

/// A receive that took a message had none before it that accepts the message and was left with nothing.
fn earlier_receives_come_first(history: &History) {
    for (number, receive) in history.receives.iter().enumerate() {
        let Some(ReceiveEnd::Took(message)) = receive.ended else { continue };
        for (earlier, passed_over) in history.receives[..number].iter().enumerate() {
            let left_with_nothing = passed_over.ended.is_none() && history.lives(passed_over.at);
            assert!(
                !(left_with_nothing && passed_over.accepts(&history.sends[message])),
                "receive {number} took message {message}, which receive {earlier} accepts and waits for"
            );
        }
    }
}

fn nothing_waits_beside_a_receive_for_it(history: &History) {
    for (identity, send) in history.sends.iter().enumerate() {
        if !matches!(send.arrived, Some(Arrived::Waiting(_))) {
            continue;
        }
        for (number, receive) in history.receives.iter().enumerate() {
            let is_posted = receive.ended.is_none() && history.lives(receive.at);
            assert!(
                !(is_posted && receive.accepts(send)),
                "message {identity} waits, and so does receive {number}, which accepts it"
            );
        }
    }
}

fn acknowledged_messages_arrive(history: &History) {
    for (identity, send) in history.sends.iter().enumerate() {
        if send.acknowledged && send.ended == Some(Ok(())) && history.lives(send.to) {
            assert!(send.arrived.is_some(), "message {identity} was acknowledged, and is not there");
        }
    }
}

/// What was accepted arrives, also if its sender has closed meanwhile.
fn messages_arrive(history: &History) {
    for (identity, send) in history.sends.iter().enumerate() {
        if history.lives(send.to) && !send.cancelled && history.fates[send.from] != Fate::Killed {
            assert!(send.arrived.is_some(), "message {identity}, {send:?}, is lost");
        }
    }
}

/// Of two messages of one sender, the later one is not received by a receive that could have had the earlier one; and
/// those that wait do so in order.
fn messages_do_not_overtake(history: &History) {
    for Space { messages, .. } in spaces(history) {
        for (place, &later) in messages.iter().enumerate() {
            for &earlier in &messages[..place] {
                let [first, second] = [earlier, later].map(|message| &history.sends[message]);
                if first.from != second.from || first.cancelled || second.cancelled {
                    continue;
                }
                if let (Some(Arrived::Waiting(one)), Some(Arrived::Waiting(two))) =
                    (first.arrived, second.arrived)
                {
                    assert!(one < two, "message {later} overtook message {earlier}, and both wait");
                }
                let Some(receive) = taker(history, later) else { continue };
                if history.receives[receive].accepts(first) {
                    assert!(
                        taker(history, earlier).is_some_and(|before| before < receive),
                        "message {later} overtook message {earlier}: receive {receive} took it"
                    );
                }
            }
        }
    }
}

fn one_senders_messages_are_matched_as_they_must_be(history: &History) {
    for Space { messages, receives } in spaces(history) {
        let mut senders: Vec<usize> = messages.iter().map(|&message| history.sends[message].from).collect();
        senders.dedup();
        let is_cancelled = |receive: &usize| {
            let receive = &history.receives[*receive];
            receive.cancelled || matches!(receive.ended, Some(ReceiveEnd::Broken(_)))
        };
        let cancels = receives.iter().any(is_cancelled)
            || messages.iter().any(|&message| history.sends[message].cancelled);
        if senders.len() > 1 || cancels {
            continue;
        }
        let expected = reference::matches(history, &messages, &receives);
        for &message in &messages {
            let taker = taker(history, message);
            assert_eq!(taker, expected.get(&message).copied(), "the receive that takes message {message}");
        }
    }
}
