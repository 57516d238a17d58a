//! Hand-written histories: for each rule one that it accepts, and one that violates it.

use crate::clauses;
use crate::model::accesses::bytes_to_write;
use crate::model::prelude::*;
use crate::model::rules::accept_history;

const ANY_TAG: Option<(u64, u64)> = Some((0, u64::MAX));
const SENDER: Incarnation = Incarnation { place: 0, life: 0 };
const RECEIVER: Incarnation = Incarnation { place: 1, life: 0 };

/// A history of three endpoints. Endpoint 0 sends to endpoint 1, and accesses its region. Each operation has
/// its number among those of its kind.
struct Script {
    history: History,
    disruption: Disruption,
}

impl Script {
    fn edit(&mut self, change: impl FnOnce(&mut History)) -> &mut Script {
        change(&mut self.history);
        self
    }

    /// Acts only in the accepted history.
    fn if_good(&mut self, bad: usize, act: fn(&mut Script) -> &mut Script) -> &mut Script {
        if bad == 0 { act(self) } else { self }
    }

    /// Acts only in the rejected history.
    fn if_bad(&mut self, bad: usize, act: fn(&mut Script) -> &mut Script) -> &mut Script {
        self.if_good(1 - bad, act)
    }

    fn killing(&mut self) -> &mut Script {
        self.disruption = Disruption::Killing;
        self
    }

    fn post_send(&mut self, tag: Option<u64>, level: Level, fenced: bool) -> &mut Script {
        let post = Post { by: SENDER, to: 1, level, fenced, ..Post::default() };
        self.edit(|history| history.post_send(post, tag, 40))
    }

    /// Posts a message whose end is not reported yet.
    fn post(&mut self, tag: u64, level: Level) -> &mut Script {
        self.post_send(Some(tag), level, false)
    }

    fn ended(&mut self, send: usize, result: Result<(), Errno>) -> &mut Script {
        let now = self.history.record(Event::Ended(Operation::Send(send)));
        self.edit(|history| history.sends[send].post.end(result, now))
    }

    fn done(&mut self, send: usize) -> &mut Script {
        self.ended(send, Ok(()))
    }

    /// Sends a message whose success is reported at once.
    fn send(&mut self, tag: u64) -> &mut Script {
        let number = self.history.sends.len();
        self.post(tag, Level::Inject).done(number)
    }

    /// Sends an untagged message whose success is reported at once.
    fn send_untagged(&mut self) -> &mut Script {
        let number = self.history.sends.len();
        self.post_send(None, Level::Inject, false).done(number)
    }

    fn receive_from(&mut self, tagged: Option<(u64, u64)>, from: Option<usize>) -> &mut Script {
        self.edit(|history| _ = history.post_receive(RECEIVER, tagged, from, 100))
    }

    fn receive(&mut self) -> &mut Script {
        self.receive_from(ANY_TAG, None)
    }

    fn receive_tag(&mut self, tag: u64) -> &mut Script {
        self.receive_from(Some((tag, 0)), None)
    }

    fn buffer(&mut self, min_free_bytes: usize) -> &mut Script {
        let buffer = BufferOp { min_free_bytes, took: Vec::new(), has_lost: false };
        self.edit(|history| history.post_receive(RECEIVER, None, None, 100).buffer = Some(buffer))
    }

    fn take(&mut self, receive: usize, message: usize) -> &mut Script {
        self.history.record_taken(receive, message);
        let op = &mut self.history.receives[receive];
        match &mut op.buffer {
            Some(buffer) => buffer.took.push(message),
            None => op.ended = Some(ReceiveEnd::Took(message)),
        }
        self
    }

    fn peek(&mut self, then: PeekAction, end: PeekEnd) -> &mut Script {
        let number = self.history.peeks.len();
        self.history.post_peek(RECEIVER, (0, u64::MAX), None, then).ended = Some(end);
        self.edit(|history| _ = history.record(Event::Ended(Operation::Peek(number))))
    }

    /// Claims message 0 by the first peek.
    fn claim(&mut self, result: Result<(), Errno>) -> &mut Script {
        self.peek(PeekAction::Claim, PeekEnd::Found(0));
        self.history.record_taker(0, Operation::Peek(0));
        let posted_at = self.history.record(Event::ClaimPosted(0));
        let claim = ClaimOp { len_bytes: 100, discards: false, posted_at, ended: Some(result) };
        self.edit(|history| history.peeks[0].claim = Some(claim))
    }

    /// Accesses 8 bytes.
    fn access(&mut self, access: Access, place: usize, found: Option<Vec<u8>>) -> &mut Script {
        let number = self.history.accesses.len();
        let post = Post { by: SENDER, to: 1, level: Level::Delivery, ..Post::default() };
        self.history.post_access(post, access, (place, 8)).found = found;
        let now = self.history.record(Event::Ended(Operation::Access(number)));
        self.edit(|history| history.accesses[number].post.end(Ok(()), now))
    }

    fn check(mut self) -> Result<(), Violation> {
        self.history.record(Event::Finished);
        accept_history(&self.history, self.disruption, Order::empty(), true)
    }
}

/// A clause, and a history: one that is accepted if the second argument is 0, and one that violates the
/// clause if it is 1.
type Row = (&'static str, fn(&mut Script, usize) -> &mut Script);

const ROWS_OF_RULES: &[Row] = &[
    ("fi_tagged/tags-are-checked-in-order", |s, bad| s.receive().receive().send(1).take(bad, 0)),
    ("fi_endpoint/message-order", |s, bad| {
        s.send(1).send(1).receive().receive().take(0, bad).take(1, 1 - bad)
    }),
    ("fi_tagged/tag-matches-without-ignored-bits", |s, bad| {
        s.receive_from(Some((2, [3, 1][bad])), None).send(1).take(0, 0)
    }),
    ("fi_msg/source-directs-receive", |s, bad| s.receive_from(ANY_TAG, Some([0, 2][bad])).send(1).take(0, 0)),
    ("fi_msg/multi-recv-released-below-minimum", |s, bad| {
        s.buffer(60 + bad).send_untagged().take(0, 0).send_untagged().take(0, 1)
    }),
    ("fi_msg/multi-recv-packs-messages", |s, bad| {
        s.buffer(0).send_untagged().send_untagged().take(0, bad).take(0, 1 - bad)
    }),
    ("fi_tagged/peek-reports-in-queue", |s, bad| {
        let found = [PeekEnd::Found(0), PeekEnd::Nothing][bad];
        s.post(1, Level::Delivery).done(0).peek(PeekAction::Leave, found).receive().take(0, 0)
    }),
    ("fi_tagged/claim-reserves-message", |s, bad| s.send(1).claim([Ok(()), Err(Errno::EIO)][bad])),
    ("fi_cq/delivery-means-processed", |s, bad| {
        s.killing().receive().post(1, Level::Delivery).if_good(bad, |s| s.take(0, 0)).done(0)
    }),
    ("fi_cq/match-means-matched", |s, bad| {
        let s = s.post(1, Level::Match).if_bad(bad, |s| s.done(0));
        s.receive().if_good(bad, |s| s.done(0)).take(0, 0)
    }),
    ("fi_cq/fence-delays", |s, bad| {
        let s = s.post(1, Level::Match).post_send(Some(2), Level::Inject, true);
        let [first, second] = [[1, 2], [2, 1]][bad];
        s.receive_tag(first).take(0, bad).receive_tag(second).take(1, 1 - bad).done(0).done(1)
    }),
    ("fi_cq/fence-delays", |s, bad| {
        let s = s.post(1, Level::Match).post_send(Some(2), Level::Inject, true).receive_tag(2).take(0, 1);
        // The sender is closed before it reads the end of the cancelled message.
        s.edit(|history| {
            history.sends[0].post.cancelled = bad == 0;
            history.record_endpoint_end(SENDER.place, End::Closed);
        })
    }),
    ("fi_endpoint/cancel-reports-ecanceled", |s, bad| {
        let s = s.receive().post(1, Level::Inject).edit(|history| history.sends[0].post.cancelled = true);
        s.ended(0, Err(Errno::ECANCELED)).if_bad(bad, |s| s.take(0, 0))
    }),
    ("fi_endpoint/cancel-ends-one", |s, bad| {
        s.receive().send(1).edit(|history| history.receives[0].cancelled = bad == 1).take(0, 0)
    }),
    ("fi_msg/every-send-meets-every-receive", |s, bad| s.send(1).if_good(bad, |s| s.receive().take(0, 0))),
    ("fi_cq/reports-ends-of-transfers", |s, bad| {
        s.receive().post(1, Level::Inject).if_good(bad, |s| s.done(0)).take(0, 0)
    }),
    ("fi_cq/order-tells-of-earlier", |s, bad| {
        let s = s.post(1, Level::Inject).post(2, Level::Inject).done(bad).done(1 - bad);
        s.receive().take(0, 0).receive().take(1, 1)
    }),
    ("fi_cq/flag-remote-data", |s, bad| {
        let s = s.access(Access::Write, 0, None).edit(|history| history.accesses[0].has_data = true);
        s.if_good(bad, |s| {
            let now = s.history.record(Event::DataRead(0));
            s.edit(|history| history.accesses[0].data_read_at = Some(now))
        })
    }),
    ("fi_endpoint/data-order", |s, bad| {
        let found = if bad == 1 { marked_buffer(8).to_vec() } else { bytes_to_write(0, 0, 8).to_vec() };
        s.access(Access::Write, 0, None).access(Access::Read, 0, Some(found))
    }),
    ("fi_rma/reads-return-memory", |s, bad| {
        s.access(Access::Read, 0, Some(if bad == 1 { vec![0; 8] } else { marked_buffer(8).to_vec() }))
    }),
    ("fi_atomic/atomic-per-element", |s, bad| {
        let (sum, place) = (Access::Fetch(AtomicOp::Sum), ROWS[0].offset_bytes);
        let after = operand_value(0, place) as usize + bad;
        s.access(sum, place, Some(vec![0; 8])).access(sum, place, Some(after.to_le_bytes().to_vec()))
    }),
    ("fi_endpoint/completion-order", |s, bad| {
        let s = s.edit(|history| (history.is_connected, history.posted_first) = (true, 2));
        s.receive_tag(1).receive_tag(2).send(1).send(2).take(bad, bad).take(1 - bad, 1 - bad)
    }),
];

#[test]
fn each_rule_accepts_one_history_and_names_its_clause_for_another() {
    for (clause, write) in ROWS_OF_RULES {
        let check = |bad| {
            let history = History::of_places(3);
            let mut script = Script { history, disruption: Disruption::None };
            write(&mut script, bad);
            script.check()
        };
        check(0).unwrap_or_else(|violation| panic!("for {clause}: {violation}"));
        let violation = check(1).expect_err(clause);
        assert_eq!(violation.clause, *clause, "{violation}");
        assert!(clauses::find(clause).is_some(), "there is no clause {clause}");
        assert!(!violation.event.is_empty() && !violation.expected.is_empty());
        assert!(*clause != "fi_endpoint/data-order" || violation.event.contains("Access(1)"), "{violation}");
    }
}
