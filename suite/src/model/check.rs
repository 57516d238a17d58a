//! The checks of every history. The test makes other checks when it reads an entry: no operation ends twice,
//! and buffers and fields are right.

use std::collections::BTreeMap;

use homespun::limits::{CREDIT_INITIAL_BYTES, MESSAGE_COST_BYTES};

use crate::model::history::{Arrived, ClaimEnd, History, Level, PeekEnd, ReceiveEnd, ReceiveOp, SendOp};
use crate::model::program::PeekAction;
use crate::model::reference;
use crate::model::run::CANCELLED;

/// A receiver never fetches a message shorter than this.
const SHORT_BYTES: usize = 1000;

/// The promises that hold for a program, with its network and disruptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promise {
    /// All messages arrive, in order.
    Everything,
    /// All messages to receivers that were not closed arrive, in order.
    ToOpenReceivers,
    /// All acknowledged messages arrive.
    AcknowledgedOnly,
}

pub(crate) fn check_history(history: &History, promise: Promise) {
    check_operations_end_as_promised(history, promise);
    assert_receives_take_only_accepted_messages(history);
    check_cancellations(history);
    assert_earlier_receives_match_first(history);
    assert_no_receive_ignores_waiting_message(history);
    assert_acknowledged_messages_arrive(history);
    assert_match_level_sends_complete_after_their_match(history);
    assert_fenced_messages_wait_for_earlier_ones(history, promise);
    assert_peeks_find_waiting_messages(history, promise);
    if promise != Promise::AcknowledgedOnly {
        assert_messages_arrive(history);
        assert_messages_do_not_overtake(history);
        assert_single_sender_matches_equal_reference(history);
        assert_short_buffer_messages_complete_in_order(history);
    }
}

/// The messages to one endpoint and the receives that it posted, all tagged or all untagged, in posting
/// order.
struct MessagesAndReceives {
    messages: Vec<usize>,
    receives: Vec<usize>,
}

/// Returns two lists for each endpoint that stayed open: of tagged and of untagged operations.
fn messages_and_receives_by_endpoint_and_kind(history: &History) -> Vec<MessagesAndReceives> {
    let living = (0..history.places.len()).filter(|&place| has_original_endpoint(history, place));
    living
        .flat_map(|at| [true, false].map(|tagged| (at, tagged)))
        .map(|(at, tagged)| {
            let is_message = |send: &SendOp| send.to == at && send.tag.is_some() == tagged;
            let is_receive =
                |receive: &ReceiveOp| receive.at.place == at && receive.tagged.is_some() == tagged;
            let messages = (0..history.sends.len()).filter(|&message| is_message(&history.sends[message]));
            let receives =
                (0..history.receives.len()).filter(|&receive| is_receive(&history.receives[receive]));
            MessagesAndReceives { messages: messages.collect(), receives: receives.collect() }
        })
        .collect()
}

/// Whether the first endpoint of a place is still open.
fn has_original_endpoint(history: &History, place: usize) -> bool {
    history.places[place].has_original_endpoint()
}

/// The operation of the program that matched a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taker {
    Receive(usize),
    /// A peek that claimed or discarded the message.
    Peek(usize),
}

impl Taker {
    fn of_message(history: &History, message: usize) -> Option<Taker> {
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

    /// Whether the operation is a multi-receive buffer.
    fn is_multi_receive(self, history: &History) -> bool {
        matches!(self, Taker::Receive(receive) if history.receives[receive].buffer.is_some())
    }
}

fn check_operations_end_as_promised(history: &History, promise: Promise) {
    for (identity, send) in history.sends.iter().enumerate() {
        if !history.is_alive(send.from) || send.injected {
            continue;
        }
        let result = send.ended.unwrap_or_else(|| panic!("send {identity} never ended"));
        let may_fail = match promise {
            Promise::Everything => false,
            Promise::ToOpenReceivers => !has_original_endpoint(history, send.to),
            Promise::AcknowledgedOnly => true,
        };
        assert!(result.is_ok() || send.cancelled || may_fail, "send {identity} failed: {result:?}");
    }
    for (number, receive) in history.receives.iter().enumerate() {
        let has_lost = receive.buffer.as_ref().is_some_and(|buffer| buffer.has_lost);
        assert!(!has_lost || promise == Promise::AcknowledgedOnly, "receive {number} lost: {receive:?}");
        if !matches!(receive.ended, Some(ReceiveEnd::Broken(_))) {
            continue;
        }
        // An endpoint that is closed in order leaves no message half sent.
        let has_lost_its_sender = receive.from.is_some_and(|from| !has_original_endpoint(history, from));
        let may_break = match promise {
            Promise::Everything => false,
            Promise::ToOpenReceivers => has_lost_its_sender,
            Promise::AcknowledgedOnly => true,
        };
        assert!(may_break, "receive {number} failed: {receive:?}");
    }
    for (number, peek) in history.peeks.iter().enumerate() {
        assert!(peek.ended.is_some() || !history.is_alive(peek.at), "peek {number} never ended: {peek:?}");
        let (Some(PeekEnd::Found(message)), Some(claim)) = (peek.ended, &peek.claim) else { continue };
        let send = &history.sends[message];
        let was_there = send.success_implies_arrival() && send.ended == Some(Ok(()));
        let may_break = promise == Promise::AcknowledgedOnly && !was_there;
        let is_broken = matches!(claim.ended, Some(ClaimEnd::Broken(_)));
        assert!(!is_broken || may_break, "claim {number} of message {message} failed: {claim:?}");
    }
}

fn assert_receives_take_only_accepted_messages(history: &History) {
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

fn check_cancellations(history: &History) {
    for (identity, send) in history.sends.iter().enumerate() {
        if history.is_alive(send.from) {
            assert_eq!(send.cancelled, send.ended == Some(CANCELLED), "send {identity}: {send:?}");
        }
        let has_arrived = send.arrived.is_some() || send.seen_at.is_some();
        assert!(!send.cancelled || !has_arrived, "send {identity} was taken back, and arrived");
    }
    for (number, receive) in history.receives.iter().enumerate() {
        if history.is_alive(receive.at) {
            let is_cancelled = receive.ended == Some(ReceiveEnd::Cancelled);
            assert_eq!(receive.cancelled, is_cancelled, "receive {number}: {receive:?}");
        }
    }
}

/// Checks that a message matched the earliest receive. No earlier receive that accepts the message may
/// remain posted until the end.
fn assert_earlier_receives_match_first(history: &History) {
    for (message, send) in history.sends.iter().enumerate() {
        let Some(taker) = Taker::of_message(history, message) else { continue };
        for (earlier, passed_over) in history.receives.iter().enumerate() {
            let is_earlier = passed_over.posted_at < taker.posted_at(history);
            let left_with_nothing = passed_over.ended.is_none() && history.is_alive(passed_over.at);
            assert!(
                !(is_earlier && left_with_nothing && passed_over.accepts(send)),
                "{taker:?} took message {message}, which receive {earlier} accepts and waits for"
            );
        }
    }
}

fn assert_no_receive_ignores_waiting_message(history: &History) {
    for (identity, send) in history.sends.iter().enumerate() {
        if !matches!(send.arrived, Some(Arrived::Waiting { .. })) {
            continue;
        }
        for (number, receive) in history.receives.iter().enumerate() {
            let is_posted = receive.ended.is_none() && history.is_alive(receive.at);
            assert!(
                !(is_posted && receive.accepts(send)),
                "message {identity} waits, and so does receive {number}, which accepts it"
            );
        }
    }
}

fn assert_acknowledged_messages_arrive(history: &History) {
    for (identity, send) in history.sends.iter().enumerate() {
        if send.success_implies_arrival()
            && send.ended == Some(Ok(()))
            && has_original_endpoint(history, send.to)
        {
            assert!(send.arrived.is_some(), "message {identity} was acknowledged, and is not there");
        }
    }
}

/// Checks that a send at match level completes only after a receive or a peek that matches it was posted.
fn assert_match_level_sends_complete_after_their_match(history: &History) {
    for (identity, send) in history.sends.iter().enumerate() {
        if send.level == Level::Match && send.ended == Some(Ok(())) && has_original_endpoint(history, send.to)
        {
            let matched_at = history.match_posted_at(identity);
            assert!(
                matched_at.is_some_and(|matched_at| matched_at < send.ended_at),
                "message {identity} was said to be matched at {}, and was at {matched_at:?}",
                send.ended_at
            );
        }
    }
}

/// Checks that a fenced message arrives or completes only after earlier messages were matched. A fence waits
/// for the match of an earlier message if either of the two has the match level.
fn assert_fenced_messages_wait_for_earlier_ones(history: &History, promise: Promise) {
    let sends = &history.sends;
    for later in 0..sends.len() {
        let Some(passed_at) = fence_passed_at(history, later) else { continue };
        for (earlier, send) in sends[..later].iter().enumerate() {
            // If links break, a message may be lost without a report. Then only success at match level
            // proves a match.
            let is_known = promise != Promise::AcknowledgedOnly
                || send.level == Level::Match && send.ended == Some(Ok(()));
            if is_known && fence_level(history, earlier, later) == Some(Level::Match) {
                let matched_at = history.match_posted_at(earlier);
                assert!(
                    matched_at.is_some_and(|matched_at| matched_at < passed_at),
                    "message {later} was past its fence at {passed_at}, and message {earlier}, before it, \
                     was matched at {matched_at:?}"
                );
            }
        }
    }
}

/// Returns when a message was certainly past its fence: the receiver has seen it, or it has completed.
/// Returns `None` for a message without a fence, or if the receiver was closed.
fn fence_passed_at(history: &History, message: usize) -> Option<u64> {
    let fenced = &history.sends[message];
    if !fenced.fenced || !has_original_endpoint(history, fenced.to) {
        return None;
    }
    let ended_at = (fenced.ended == Some(Ok(()))).then_some(fenced.ended_at);
    fenced.seen_at.into_iter().chain(ended_at).min()
}

/// Returns the level that the fence of a message waits for at an earlier one, if it waits for that one.
fn fence_level(history: &History, earlier: usize, fenced: usize) -> Option<Level> {
    let [send, fenced] = [earlier, fenced].map(|message| &history.sends[message]);
    let has_failed = matches!(send.ended, Some(Err(_)));
    let is_before_it = send.from == fenced.from && send.to == fenced.to;
    (is_before_it && !has_failed).then_some(send.level.max(fenced.level))
}

/// Returns a time at which a message had certainly arrived: it was acknowledged, or a later message was past
/// a fence that waits for its arrival.
fn known_arrival(history: &History, promise: Promise, message: usize) -> Option<u64> {
    let send = &history.sends[message];
    let is_acknowledged = send.success_implies_arrival() && send.ended == Some(Ok(()));
    let acknowledged_at = is_acknowledged.then_some(send.ended_at);
    if promise == Promise::AcknowledgedOnly {
        // Links break, so a message may be lost without a report, and a fence proves nothing.
        return acknowledged_at;
    }
    let passed_at = (message + 1..history.sends.len())
        .filter(|&later| fence_level(history, message, later) > Some(Level::Inject))
        .filter_map(|later| fence_passed_at(history, later));
    acknowledged_at.into_iter().chain(passed_at).min()
}

fn assert_peeks_find_waiting_messages(history: &History, promise: Promise) {
    for (number, peek) in history.peeks.iter().enumerate() {
        match peek.ended {
            // The peek must not find a message that another operation matched before.
            Some(PeekEnd::Found(message)) => {
                let taker = Taker::of_message(history, message).filter(|&taker| taker != Taker::Peek(number));
                assert!(
                    taker.is_none_or(|taker| taker.posted_at(history) > peek.posted_at),
                    "peek {number} has found message {message}, which {taker:?} had taken"
                );
            }
            // The peek must find a message that had certainly arrived.
            Some(PeekEnd::Nothing) if has_original_endpoint(history, peek.at.place) => {
                for (message, send) in history.sends.iter().enumerate() {
                    let arrived_at = || known_arrival(history, promise, message);
                    let is_wanted = peek.accepts(send)
                        && arrived_at().is_some_and(|arrived_at| arrived_at < peek.posted_at);
                    let is_gone = Taker::of_message(history, message)
                        .is_some_and(|taker| taker.posted_at(history) < peek.posted_at);
                    assert!(!is_wanted || is_gone, "peek {number} has overlooked message {message}");
                }
            }
            _ => {}
        }
    }
}

/// Checks that each message to an endpoint that stayed open arrives. Only a cancelled message and a message
/// of a killed sender may be lost.
fn assert_messages_arrive(history: &History) {
    for (identity, send) in history.sends.iter().enumerate() {
        if has_original_endpoint(history, send.to) && !send.cancelled && !history.was_killed(send.from) {
            assert!(send.arrived.is_some(), "message {identity}, {send:?}, is lost");
        }
    }
}

/// Checks that a later message of a sender does not overtake an earlier one. If an operation that accepts
/// both finds the later message, an operation that was posted before it must have matched the earlier one.
/// Unexpected messages of one sender must wait in order.
fn assert_messages_do_not_overtake(history: &History) {
    for MessagesAndReceives { messages, .. } in messages_and_receives_by_endpoint_and_kind(history) {
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
                let looked = |(number, peek): (usize, &crate::model::history::PeekOp)| {
                    let is_a_look =
                        peek.then == PeekAction::Leave && peek.ended == Some(PeekEnd::Found(later));
                    is_a_look.then_some(Taker::Peek(number))
                };
                let looks = history.peeks.iter().enumerate().filter_map(looked);
                for found_by in Taker::of_message(history, later).into_iter().chain(looks) {
                    if found_by.accepts(history, first) {
                        let before = Taker::of_message(history, earlier);
                        let is_one_buffer = |before| before == found_by && found_by.is_multi_receive(history);
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

/// Checks that short messages of one sender complete in a multi-receive buffer in the order of sending. A
/// message counts only if it certainly travels with its payload. For this the link's initial credit must
/// cover the message, all earlier sends of the sender on the link, and all accesses of the sender.
fn assert_short_buffer_messages_complete_in_order(history: &History) {
    let is_eager = |message: usize| {
        let SendOp { from, to, .. } = history.sends[message];
        let sends = history.sends[..=message].iter().filter(|send| (send.from, send.to) == (from, to));
        let accesses = history.accesses.iter().filter(|access| access.by == from);
        let costs = sends
            .map(|send| send.len_bytes as u64 + MESSAGE_COST_BYTES)
            .chain(accesses.map(|_| MESSAGE_COST_BYTES));
        history.sends[message].len_bytes < SHORT_BYTES && costs.sum::<u64>() <= CREDIT_INITIAL_BYTES
    };
    for (number, receive) in history.receives.iter().enumerate() {
        let took = receive.buffer.iter().flat_map(|buffer| &buffer.took).copied();
        let mut last = BTreeMap::new();
        for message in took.filter(|message| is_eager(*message)) {
            let before = last.insert(history.sends[message].from, message);
            assert!(
                before < Some(message),
                "in buffer {number}, message {message} completed after {before:?} of the same sender"
            );
        }
    }
}

fn assert_single_sender_matches_equal_reference(history: &History) {
    for MessagesAndReceives { messages, receives } in messages_and_receives_by_endpoint_and_kind(history) {
        let mut senders: Vec<_> = messages.iter().map(|&message| history.sends[message].from).collect();
        senders.dedup();
        let is_cancelled = |receive: &usize| {
            let receive = &history.receives[*receive];
            receive.cancelled || matches!(receive.ended, Some(ReceiveEnd::Broken(_)))
        };
        let is_left_out = |message: &usize| {
            let send = &history.sends[*message];
            send.cancelled || matches!(Taker::of_message(history, *message), Some(Taker::Peek(_)))
        };
        if senders.len() > 1 || receives.iter().any(is_cancelled) || messages.iter().any(is_left_out) {
            continue;
        }
        let expected = reference::match_messages(history, &messages, &receives);
        for &message in &messages {
            let taker = Taker::of_message(history, message);
            let expected = expected.get(&message).map(|&receive| Taker::Receive(receive));
            assert_eq!(taker, expected, "what takes message {message}");
        }
    }
}

#[test]
fn peek_must_find_a_message_that_a_later_one_was_fenced_behind() {
    use crate::model::history::{AddressHistory, Incarnation, PeekOp};

    let at = |place| Incarnation { place, life: 0 };
    let send = |tag, level, fenced, seen_at| SendOp {
        from: at(0),
        to: 1,
        tag: Some(tag),
        len_bytes: 8,
        level,
        fenced,
        injected: false,
        posted_at: tag,
        cancelled: false,
        ended: None,
        ended_at: 0,
        arrived: None,
        seen_at,
    };
    let found = |level, posted_at| {
        let sends = vec![send(1, Level::Inject, false, None), send(2, level, true, Some(5))];
        let peek = PeekOp {
            at: at(1),
            tagged: (1, 0),
            from: None,
            then: PeekAction::Leave,
            posted_at,
            ended: Some(PeekEnd::Nothing),
            claim: None,
        };
        let places = vec![AddressHistory::default(), AddressHistory::default()];
        let history = History { sends, peeks: vec![peek], places, ..History::default() };
        let check = || assert_peeks_find_waiting_messages(&history, Promise::Everything);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).is_ok()
    };
    assert!(!found(Level::Delivery, 6), "the first message had arrived");
    assert!(found(Level::Delivery, 4), "the later message had not been seen");
    assert!(found(Level::Inject, 6), "the fence waits for no arrival");
}
