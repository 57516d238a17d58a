//! What must hold of every history. That each operation ends once, and that buffers and entries are right, was checked
//! when they were read.

use crate::history::{Arrived, ClaimEnd, History, Level, PeekEnd, ReceiveEnd, ReceiveOp, SendOp};
use crate::program::Then;
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
    nothing_completes_before_it_is_matched(history);
    nothing_passes_a_fence_too_soon(history, promise);
    peeks_see_what_is_there(history);
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

/// Those of endpoints that have always been there.
fn spaces(history: &History) -> Vec<Space> {
    let living = (0..history.places.len()).filter(|&place| is_as_ever(history, place));
    living
        .flat_map(|at| [true, false].map(|tagged| (at, tagged)))
        .map(|(at, tagged)| {
            let is_message = |send: &SendOp| send.to == at && send.tag.is_some() == tagged;
            let is_receive =
                |receive: &ReceiveOp| receive.at.place == at && receive.tagged.is_some() == tagged;
            let messages = (0..history.sends.len()).filter(|&message| is_message(&history.sends[message]));
            let receives =
                (0..history.receives.len()).filter(|&receive| is_receive(&history.receives[receive]));
            Space { messages: messages.collect(), receives: receives.collect() }
        })
        .collect()
}

/// Whether a place has the endpoint that it has had from the beginning.
fn is_as_ever(history: &History, place: usize) -> bool {
    history.places[place].is_as_ever()
}

/// What of the program took a message away from where it was waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taker {
    Receive(usize),
    /// That has claimed it or thrown it away.
    Peek(usize),
}

impl Taker {
    fn of(history: &History, message: usize) -> Option<Taker> {
        match history.sends[message].arrived? {
            Arrived::Received(receive) => Some(Taker::Receive(receive)),
            Arrived::Claimed(peek) | Arrived::Discarded(peek) => Some(Taker::Peek(peek)),
            Arrived::Waiting { .. } => None,
        }
    }

    fn accepts(self, history: &History, send: &SendOp) -> bool {
        match self {
            Taker::Receive(receive) => history.receives[receive].accepts(send),
            Taker::Peek(peek) => history.peeks[peek].accepts(send),
        }
    }

    fn posted_at(self, history: &History) -> u64 {
        match self {
            Taker::Receive(receive) => history.receives[receive].posted_at,
            Taker::Peek(peek) => history.peeks[peek].posted_at,
        }
    }

    /// Whether it takes many messages.
    fn is_buffer(self, history: &History) -> bool {
        matches!(self, Taker::Receive(receive) if history.receives[receive].buffer.is_some())
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
            Promise::BetweenTheLiving => !is_as_ever(history, send.to),
            Promise::WhatWasAcknowledged => true,
        };
        assert!(result.is_ok() || send.cancelled || may_fail, "send {identity} failed: {result:?}");
    }
    for (number, receive) in history.receives.iter().enumerate() {
        let has_lost = receive.buffer.as_ref().is_some_and(|buffer| buffer.has_lost);
        assert!(!has_lost || promise == Promise::WhatWasAcknowledged, "receive {number} lost: {receive:?}");
        if !matches!(receive.ended, Some(ReceiveEnd::Broken(_))) {
            continue;
        }
        // Somebody who closes in order leaves no message half sent.
        let has_lost_its_sender = receive.from.is_some_and(|from| !is_as_ever(history, from));
        let may_break = match promise {
            Promise::Everything => false,
            Promise::BetweenTheLiving => has_lost_its_sender,
            Promise::WhatWasAcknowledged => true,
        };
        assert!(may_break, "receive {number} failed: {receive:?}");
    }
    for (number, peek) in history.peeks.iter().enumerate() {
        assert!(peek.ended.is_some() || !history.lives(peek.at), "peek {number} never ended: {peek:?}");
        let (Some(PeekEnd::Found(message)), Some(claim)) = (peek.ended, &peek.claim) else { continue };
        let send = &history.sends[message];
        let was_there = send.is_acknowledged() && send.ended == Some(Ok(()));
        let may_break = promise == Promise::WhatWasAcknowledged && !was_there;
        let is_broken = matches!(claim.ended, Some(ClaimEnd::Broken(_)));
        assert!(!is_broken || may_break, "claim {number} of message {message} failed: {claim:?}");
    }
}

fn receives_take_what_they_accept(history: &History) {
    for (number, receive) in history.receives.iter().enumerate() {
        let single = match receive.ended {
            Some(ReceiveEnd::Took(message)) => Some(message),
            _ => None,
        };
        let many = receive.buffer.iter().flat_map(|buffer| &buffer.took).copied();
        for message in many.chain(single) {
            let send = &history.sends[message];
            assert!(receive.accepts(send), "receive {number}, {receive:?}, took {send:?}");
        }
    }
    for (number, peek) in history.peeks.iter().enumerate() {
        if let Some(PeekEnd::Found(message)) = peek.ended {
            let send = &history.sends[message];
            assert!(peek.accepts(send), "peek {number}, {peek:?}, found {send:?}");
        }
    }
}

fn cancellations(history: &History) {
    for (identity, send) in history.sends.iter().enumerate() {
        if history.lives(send.from) {
            assert_eq!(send.cancelled, send.ended == Some(CANCELLED), "send {identity}: {send:?}");
        }
        let has_arrived = send.arrived.is_some() || send.seen_at.is_some();
        assert!(!send.cancelled || !has_arrived, "send {identity} was taken back, and arrived");
    }
    for (number, receive) in history.receives.iter().enumerate() {
        if history.lives(receive.at) {
            let is_cancelled = receive.ended == Some(ReceiveEnd::Cancelled);
            assert_eq!(receive.cancelled, is_cancelled, "receive {number}: {receive:?}");
        }
    }
}

/// Before whatever took a message there was no receive that accepts it and was left with nothing.
fn earlier_receives_come_first(history: &History) {
    for (message, send) in history.sends.iter().enumerate() {
        let Some(taker) = Taker::of(history, message) else { continue };
        for (earlier, passed_over) in history.receives.iter().enumerate() {
            let is_earlier = passed_over.posted_at < taker.posted_at(history);
            let left_with_nothing = passed_over.ended.is_none() && history.lives(passed_over.at);
            assert!(
                !(is_earlier && left_with_nothing && passed_over.accepts(send)),
                "{taker:?} took message {message}, which receive {earlier} accepts and waits for"
            );
        }
    }
}

fn nothing_waits_beside_a_receive_for_it(history: &History) {
    for (identity, send) in history.sends.iter().enumerate() {
        if !matches!(send.arrived, Some(Arrived::Waiting { .. })) {
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
        if send.is_acknowledged() && send.ended == Some(Ok(())) && is_as_ever(history, send.to) {
            assert!(send.arrived.is_some(), "message {identity} was acknowledged, and is not there");
        }
    }
}

/// Where a match was promised, something had been posted that took the message, or threw it away.
fn nothing_completes_before_it_is_matched(history: &History) {
    for (identity, send) in history.sends.iter().enumerate() {
        if send.level == Level::Match && send.ended == Some(Ok(())) && is_as_ever(history, send.to) {
            let matched_at = history.matched_at(identity);
            assert!(
                matched_at.is_some_and(|matched_at| matched_at < send.ended_at),
                "message {identity} was said to be matched at {}, and was at {matched_at:?}",
                send.ended_at
            );
        }
    }
}

/// When a fenced message can be seen, or its end, those before it have reached their level and its own.
fn nothing_passes_a_fence_too_soon(history: &History, promise: Promise) {
    let sends = &history.sends;
    for (later, fenced) in sends.iter().enumerate() {
        let ended_at = (fenced.ended == Some(Ok(()))).then_some(fenced.ended_at);
        let Some(passed_at) = fenced.seen_at.into_iter().chain(ended_at).min() else { continue };
        if !fenced.fenced || !is_as_ever(history, fenced.to) {
            continue;
        }
        for (earlier, send) in sends[..later].iter().enumerate() {
            let is_before_it = send.from == fenced.from && send.to == fenced.to;
            let has_failed = matches!(send.ended, Some(Err(_)));
            // What is lost with a link is behind every fence; of that nothing is told if it had completed already.
            let is_known = promise != Promise::WhatWasAcknowledged
                || send.level == Level::Match && send.ended == Some(Ok(()));
            let has_to_match = Level::Match == send.level.max(fenced.level);
            if is_before_it && !has_failed && is_known && has_to_match {
                let matched_at = history.matched_at(earlier);
                assert!(
                    matched_at.is_some_and(|matched_at| matched_at < passed_at),
                    "message {later} was past its fence at {passed_at}, and message {earlier}, before it, was \
                     matched at {matched_at:?}"
                );
            }
        }
    }
}

fn peeks_see_what_is_there(history: &History) {
    for (number, peek) in history.peeks.iter().enumerate() {
        match peek.ended {
            // What was gone before it looked it does not find.
            Some(PeekEnd::Found(message)) => {
                let taker = Taker::of(history, message).filter(|&taker| taker != Taker::Peek(number));
                assert!(
                    taker.is_none_or(|taker| taker.posted_at(history) > peek.posted_at),
                    "peek {number} has found message {message}, which {taker:?} had taken"
                );
            }
            // What its endpoint had acknowledged when it looked it finds.
            Some(PeekEnd::Nothing) if is_as_ever(history, peek.at.place) => {
                for (message, send) in history.sends.iter().enumerate() {
                    let was_there = send.is_acknowledged() && send.ended == Some(Ok(()));
                    let is_wanted = peek.accepts(send) && was_there && send.ended_at < peek.posted_at;
                    let is_gone = Taker::of(history, message)
                        .is_some_and(|taker| taker.posted_at(history) < peek.posted_at);
                    assert!(!is_wanted || is_gone, "peek {number} has overlooked message {message}");
                }
            }
            _ => {}
        }
    }
}

/// What was accepted arrives, also if its sender has closed meanwhile.
fn messages_arrive(history: &History) {
    for (identity, send) in history.sends.iter().enumerate() {
        if is_as_ever(history, send.to) && !send.cancelled && !history.was_killed(send.from) {
            assert!(send.arrived.is_some(), "message {identity}, {send:?}, is lost");
        }
    }
}

/// Of two messages of one sender, the later one is neither received nor found by what could have had the earlier one;
/// and those that wait do so in order.
fn messages_do_not_overtake(history: &History) {
    for Space { messages, .. } in spaces(history) {
        for (place, &later) in messages.iter().enumerate() {
            for &earlier in &messages[..place] {
                let [first, second] = [earlier, later].map(|message| &history.sends[message]);
                if first.from != second.from || first.cancelled || second.cancelled {
                    continue;
                }
                if let (
                    Some(Arrived::Waiting { order: one, .. }),
                    Some(Arrived::Waiting { order: two, .. }),
                ) = (first.arrived, second.arrived)
                {
                    assert!(one < two, "message {later} overtook message {earlier}, and both wait");
                }
                let looked = |(number, peek): (usize, &crate::history::PeekOp)| {
                    let is_a_look = peek.then == Then::Leave && peek.ended == Some(PeekEnd::Found(later));
                    is_a_look.then_some(Taker::Peek(number))
                };
                let looks = history.peeks.iter().enumerate().filter_map(looked);
                for found_by in Taker::of(history, later).into_iter().chain(looks) {
                    if found_by.accepts(history, first) {
                        let before = Taker::of(history, earlier);
                        let is_one_buffer = |before| before == found_by && found_by.is_buffer(history);
                        assert!(
                            before.is_some_and(|before| {
                                is_one_buffer(before)
                                    || before.posted_at(history) < found_by.posted_at(history)
                            }),
                            "message {later} overtook message {earlier}: {found_by:?} found it"
                        );
                    }
                }
            }
        }
    }
}

fn one_senders_messages_are_matched_as_they_must_be(history: &History) {
    for Space { messages, receives } in spaces(history) {
        let mut senders: Vec<_> = messages.iter().map(|&message| history.sends[message].from).collect();
        senders.dedup();
        let is_cancelled = |receive: &usize| {
            let receive = &history.receives[*receive];
            receive.cancelled || matches!(receive.ended, Some(ReceiveEnd::Broken(_)))
        };
        let is_left_out = |message: &usize| {
            let send = &history.sends[*message];
            send.cancelled || matches!(Taker::of(history, *message), Some(Taker::Peek(_)))
        };
        if senders.len() > 1 || receives.iter().any(is_cancelled) || messages.iter().any(is_left_out) {
            continue;
        }
        let expected = reference::matches(history, &messages, &receives);
        for &message in &messages {
            let taker = Taker::of(history, message);
            let expected = expected.get(&message).map(|&receive| Taker::Receive(receive));
            assert_eq!(taker, expected, "what takes message {message}");
        }
    }
}
