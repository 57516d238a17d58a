//! Hand-written histories: for each rule one that it accepts, and one that violates it.

use homespun::Errno;
use homespun::atomic::AtomicOp;
use homespun::flags::Order;

use crate::clauses;
use crate::model::acceptor::Violation;
use crate::model::accesses::bytes_to_write;
use crate::model::elements::{ROWS, operand_value};
use crate::model::history::{
    Access, Arrived, BufferOp, ClaimEnd, ClaimOp, Event, History, Incarnation, Level, Operation, PeekEnd,
    ReceiveEnd,
};
use crate::model::program::{Disruption, PeekAction};
use crate::model::rules::accept_history;
use crate::payload::marked_buffer;

const ANY_TAG: Option<(u64, u64)> = Some((0, u64::MAX));

/// A history of three endpoints. Endpoint 0 sends to endpoint 1, and accesses its region.
struct Script {
    history: History,
    disruption: Disruption,
}

fn endpoint(place: usize) -> Incarnation {
    Incarnation { place, life: 0 }
}

impl Script {
    fn send_at(&mut self, tag: u64, level: Level, fenced: bool) -> usize {
        let number = self.history.sends.len();
        self.history.post_send((endpoint(0), 1), Some(tag), 40, level).fenced = fenced;
        number
    }

    /// Sends a message whose success is reported at once.
    fn send(&mut self, tag: u64) -> usize {
        let number = self.send_at(tag, Level::Inject, false);
        self.end_send(number, Ok(()));
        number
    }

    fn end_send(&mut self, number: usize, result: Result<(), Errno>) {
        let now = self.history.record(Event::Ended(Operation::Send(number)));
        (self.history.sends[number].ended, self.history.sends[number].ended_at) = (Some(result), now);
    }

    fn receive_from(&mut self, tagged: Option<(u64, u64)>, from: Option<usize>) -> usize {
        let number = self.history.receives.len();
        self.history.post_receive(endpoint(1), tagged, 100).from = from;
        number
    }

    fn receive(&mut self) -> usize {
        self.receive_from(ANY_TAG, None)
    }

    fn buffer(&mut self, min_free_bytes: usize) -> usize {
        let number = self.receive_from(None, None);
        self.history.receives[number].buffer =
            Some(BufferOp { min_free_bytes, took: Vec::new(), has_lost: false });
        number
    }

    fn take(&mut self, receive: usize, message: usize) {
        self.history.record_taken(receive, message);
        let op = &mut self.history.receives[receive];
        match &mut op.buffer {
            Some(buffer) => buffer.took.push(message),
            None => op.ended = Some(ReceiveEnd::Took(message)),
        }
    }

    fn peek(&mut self, then: PeekAction, end: PeekEnd) -> usize {
        let number = self.history.peeks.len();
        self.history.post_peek(endpoint(1), (0, u64::MAX), None, then).ended = Some(end);
        self.history.record(Event::Ended(Operation::Peek(number)));
        number
    }

    fn access(&mut self, access: Access, place: usize, len_bytes: usize, found: Option<Vec<u8>>) -> usize {
        let number = self.history.accesses.len();
        let ends = [endpoint(0), endpoint(1)];
        self.history.post_access(ends, access, (place, len_bytes)).found = found;
        let ended_at = self.history.record(Event::Ended(Operation::Access(number)));
        let op = &mut self.history.accesses[number];
        (op.ended, op.ended_at) = (Some(Ok(())), ended_at);
        number
    }

    fn check(mut self) -> Result<(), Violation> {
        self.history.record(Event::Finished);
        accept_history(&self.history, self.disruption, Order::empty(), true)
    }
}

/// A clause, and a history that violates it if the second argument is true.
type Row = (&'static str, fn(&mut Script, bool));

const ROWS_OF_RULES: &[Row] = &[
    ("fi_tagged/tags-are-checked-in-order", |script, is_bad| {
        let receives = [script.receive(), script.receive()];
        let message = script.send(1);
        script.take(receives[usize::from(is_bad)], message);
    }),
    ("fi_endpoint/message-order", |script, is_bad| {
        let messages = [script.send(1), script.send(1)];
        let receives = [script.receive(), script.receive()];
        script.take(receives[0], messages[usize::from(is_bad)]);
        script.take(receives[1], messages[usize::from(!is_bad)]);
    }),
    ("fi_tagged/tag-matches-without-ignored-bits", |script, is_bad| {
        let receive = script.receive_from(Some((2, if is_bad { 1 } else { 3 })), None);
        let message = script.send(1);
        script.take(receive, message);
    }),
    ("fi_msg/source-directs-receive", |script, is_bad| {
        let receive = script.receive_from(ANY_TAG, Some(if is_bad { 2 } else { 0 }));
        let message = script.send(1);
        script.take(receive, message);
    }),
    ("fi_msg/multi-recv-released-below-minimum", |script, is_bad| {
        let buffer = script.buffer(if is_bad { 61 } else { 60 });
        for _ in 0..2 {
            let message = script.send(0);
            script.history.sends[message].tag = None;
            script.take(buffer, message);
        }
    }),
    ("fi_msg/multi-recv-packs-messages", |script, is_bad| {
        let buffer = script.buffer(0);
        let messages = [script.send(0), script.send(0)];
        script.history.sends.iter_mut().for_each(|send| send.tag = None);
        script.take(buffer, messages[usize::from(is_bad)]);
        script.take(buffer, messages[usize::from(!is_bad)]);
    }),
    ("fi_tagged/peek-reports-in-queue", |script, is_bad| {
        let message = script.send_at(1, Level::Delivery, false);
        script.end_send(message, Ok(()));
        script.peek(PeekAction::Leave, if is_bad { PeekEnd::Nothing } else { PeekEnd::Found(message) });
        let receive = script.receive();
        script.take(receive, message);
    }),
    ("fi_tagged/claim-reserves-message", |script, is_bad| {
        let message = script.send(1);
        let peek = script.peek(PeekAction::Claim, PeekEnd::Found(message));
        script.history.record_arrival(message, Arrived::Claimed(peek));
        let posted_at = script.history.record(Event::ClaimPosted(peek));
        let ended = Some(if is_bad { ClaimEnd::Broken(Errno::EIO) } else { ClaimEnd::Done });
        script.history.peeks[peek].claim =
            Some(ClaimOp { len_bytes: 100, discards: false, posted_at, ended });
    }),
    ("fi_cq/delivery-means-processed", |script, is_bad| {
        script.disruption = Disruption::Killing;
        let receive = script.receive();
        let message = script.send_at(1, Level::Delivery, false);
        if !is_bad {
            script.take(receive, message);
        }
        script.end_send(message, Ok(()));
    }),
    ("fi_cq/match-means-matched", |script, is_bad| {
        let message = script.send_at(1, Level::Match, false);
        if is_bad {
            script.end_send(message, Ok(()));
        }
        let receive = script.receive();
        if !is_bad {
            script.end_send(message, Ok(()));
        }
        script.take(receive, message);
    }),
    ("fi_cq/fence-delays", |script, is_bad| {
        let messages = [script.send_at(1, Level::Match, false), script.send_at(2, Level::Inject, true)];
        let tags = if is_bad { [2, 1] } else { [1, 2] };
        for tag in tags {
            let receive = script.receive_from(Some((tag, 0)), None);
            script.take(receive, messages[tag as usize - 1]);
        }
        for message in messages {
            script.end_send(message, Ok(()));
        }
    }),
    ("fi_endpoint/cancel-reports-ecanceled", |script, is_bad| {
        let receive = script.receive();
        let message = script.send_at(1, Level::Inject, false);
        script.history.sends[message].cancelled = true;
        script.end_send(message, Err(Errno::ECANCELED));
        if is_bad {
            script.take(receive, message);
        }
    }),
    ("fi_endpoint/cancel-ends-one", |script, is_bad| {
        let receive = script.receive();
        let message = script.send(1);
        script.history.receives[receive].cancelled = is_bad;
        script.take(receive, message);
    }),
    ("fi_msg/every-send-meets-every-receive", |script, is_bad| {
        let message = script.send(1);
        if !is_bad {
            let receive = script.receive();
            script.take(receive, message);
        }
    }),
    ("fi_cq/reports-ends-of-transfers", |script, is_bad| {
        let receive = script.receive();
        let message = script.send_at(1, Level::Inject, false);
        if !is_bad {
            script.end_send(message, Ok(()));
        }
        script.take(receive, message);
    }),
    ("fi_cq/order-tells-of-earlier", |script, is_bad| {
        let messages = [1, 2].map(|tag| script.send_at(tag, Level::Inject, false));
        script.end_send(messages[usize::from(is_bad)], Ok(()));
        script.end_send(messages[usize::from(!is_bad)], Ok(()));
        for message in messages {
            let receive = script.receive();
            script.take(receive, message);
        }
    }),
    ("fi_cq/flag-remote-data", |script, is_bad| {
        let write = script.access(Access::Write, 0, 8, None);
        script.history.accesses[write].has_data = true;
        if !is_bad {
            script.history.accesses[write].data_read_at = Some(script.history.record(Event::DataRead(write)));
        }
    }),
    ("fi_endpoint/data-order", |script, is_bad| {
        let write = script.access(Access::Write, 0, 8, None);
        let written = bytes_to_write(write, 0, 8).to_vec();
        script.access(Access::Read, 0, 8, Some(if is_bad { marked_buffer(8).to_vec() } else { written }));
    }),
    ("fi_rma/reads-return-memory", |script, is_bad| {
        let found = if is_bad { vec![0; 8] } else { marked_buffer(8).to_vec() };
        script.access(Access::Read, 0, 8, Some(found));
    }),
    ("fi_atomic/atomic-per-element", |script, is_bad| {
        let place = ROWS[0].offset_bytes;
        let sum = Access::Fetch(AtomicOp::Sum);
        let first = script.access(sum, place, 8, Some(vec![0; 8]));
        let after = operand_value(first, place) as u64 + u64::from(is_bad);
        script.access(sum, place, 8, Some(after.to_le_bytes().to_vec()));
    }),
    ("fi_endpoint/completion-order", |script, is_bad| {
        (script.history.is_connected, script.history.posted_first) = (true, 2);
        let receives = [script.receive_from(Some((1, 0)), None), script.receive_from(Some((2, 0)), None)];
        let messages = [script.send(1), script.send(2)];
        for number in if is_bad { [1, 0] } else { [0, 1] } {
            script.take(receives[number], messages[number]);
        }
    }),
];

#[test]
fn each_rule_accepts_one_history_and_names_its_clause_for_another() {
    for (clause, write) in ROWS_OF_RULES {
        let check = |is_bad| {
            let history = History::of_places(3);
            let mut script = Script { history, disruption: Disruption::None };
            write(&mut script, is_bad);
            script.check()
        };
        check(false).unwrap_or_else(|violation| panic!("for {clause}: {violation}"));
        let violation = check(true).expect_err(clause);
        assert_eq!(violation.clause, *clause, "{violation}");
        assert!(clauses::find(clause).is_some(), "there is no clause {clause}");
        assert!(!violation.event.is_empty() && !violation.expected.is_empty());
        assert!(*clause != "fi_endpoint/data-order" || violation.event.contains("Access(1)"), "{violation}");
    }
}
