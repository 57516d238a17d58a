//! The end of a run: receives every message, waits for all operations, and cancels the remaining receives.

use crate::model::prelude::*;
use crate::model::run::{Runner, expect_accepted_or_full};

/// The bit that distinguishes the test's messages from the program's.
const RUNNERS_TAG: u64 = 1 << 63;

/// The context of the test's own sends. The program's operations have smaller contexts.
pub(crate) const RUNNERS_CONTEXT: u64 = 1 << 32;

/// After this many rounds without an event, the test expects no more events. The loopback network delays
/// no frame longer. Over other transports, every message has arrived before these rounds.
const SILENT_ROUNDS: usize = 160;

impl Runner<'_> {
    /// Waits until every send has ended and every message was received or lost.
    ///
    /// Each endpoint sends a last message to every place. When a last message has completed or failed, no
    /// earlier message to the same place is in flight. If the network breaks links, the test also waits
    /// until the network is quiet. Then the test does all of this once more, since the payload of a long
    /// message may follow later.
    pub(crate) fn finish_all_operations(&mut self) {
        for _ in 0..2 {
            self.send_last_messages();
            self.wait_for_silence();
        }
    }

    fn send_last_messages(&mut self) {
        for from in 0..self.parties.len() {
            for to in 0..self.parties.len() {
                let reaches =
                    !(self.history.may_wait_forever_for(to) || self.history.is_connected && from == to);
                if self.parties[from].is_none() || !reaches {
                    continue;
                }
                self.own_pending += 1;
                let last = SendMsg {
                    to: FabricAddress(to as u64),
                    tag: Some(Tag(RUNNERS_TAG)),
                    context: RUNNERS_CONTEXT,
                    // These messages complete after earlier injected messages have arrived.
                    flags: self.offer.last_message_flags(),
                    ..SendMsg::default()
                };
                let deadline = Deadline::new();
                while let Some(party) = &self.parties[from]
                    && !expect_accepted_or_full(party.endpoint.sendmsg(last.clone()))
                {
                    self.read_all();
                    self.post_drain_receives();
                    deadline.yield_or_panic_with(|| self.describe_unfinished(true));
                }
            }
        }
    }

    fn wait_for_silence(&mut self) {
        let mut deadline = Deadline::new();
        let mut silent_rounds = 0;
        while silent_rounds < SILENT_ROUNDS {
            let before = self.events;
            self.read_all();
            self.post_drain_receives();
            self.sides.iter().flatten().for_each(|side| while side.poll_event().is_some() {});
            let network_is_quiet = self.net.network.as_ref().is_none_or(Network::is_quiet);
            if self.events > before {
                deadline = Deadline::new();
                silent_rounds = 0;
            } else if network_is_quiet && self.own_pending == 0 && self.unfinished_operations().is_empty() {
                silent_rounds += 1;
            } else {
                silent_rounds = 0;
                deadline.yield_or_panic_with(|| self.describe_unfinished(network_is_quiet));
            }
        }
    }

    /// Posts receives for the messages that no receive of the program has matched, and for claimed messages.
    /// If there is no room, cancels a receive of the program.
    fn post_drain_receives(&mut self) {
        for place in 0..self.parties.len() {
            if self.parties[place].is_none() {
                continue;
            }
            for peek in self.peeks_with_unreceived_claims(place) {
                if !self.post_claim(peek, LEN_MAX_BYTES, false) {
                    self.cancel_last_open_receive(place);
                }
            }
            for tagged in [None, Some((0, !RUNNERS_TAG))] {
                let at = self.history.incarnation_at(place);
                let is_posted = self.drains.iter().any(|&drain| {
                    let drain = &self.history.receives[drain];
                    drain.at == at && drain.tagged == tagged && drain.ended.is_none()
                });
                if is_posted {
                    continue;
                }
                let (at, len_bytes) = (place, LEN_MAX_BYTES);
                if self.post_receive(ReceiveStep { at, tagged, from: None, len_bytes, in_pieces: false }) {
                    self.drains.insert(self.history.receives.len() - 1);
                } else {
                    self.cancel_last_open_receive(place);
                }
            }
        }
    }

    /// Cancels the program's last posted receive that is open, and records the cancel.
    fn cancel_last_open_receive(&mut self, place: usize) {
        let who = self.history.incarnation_at(place);
        let can_be_cancelled = |receive: &usize| {
            let context = Operation::Receive(*receive).context();
            let is_drain = self.drains.contains(receive);
            let receive = &self.history.receives[*receive];
            let is_open = receive.ended.is_none() && !receive.cancelled && !receive.too_late_to_cancel;
            receive.at == who && is_open && !is_drain && !self.asked_to_cancel.contains(&context)
        };
        let last = (0..self.history.receives.len()).rev().find(can_be_cancelled);
        if let (Some(receive), Some(party)) = (last, &self.parties[place]) {
            let operation = Operation::Receive(receive);
            let result = party.endpoint.cancel(operation.context());
            self.record_cancel(operation, &result);
        }
    }

    fn describe_unfinished(&self, network_is_quiet: bool) -> String {
        let network = if network_is_quiet { "quiet" } else { "busy" };
        let (unfinished, own) = (self.unfinished_operations(), self.own_pending);
        format!("the end of {unfinished:?} and of {own} sends of the runner's own; the network is {network}")
    }

    /// Describes the operations that have not ended.
    fn unfinished_operations(&self) -> Vec<String> {
        let History { sends, peeks, accesses, .. } = &self.history;
        let sends = sends.iter().filter(|send| self.is_unfinished(&send.post));
        let peeks = peeks.iter().filter(|peek| self.is_peek_unfinished(peek)).map(|peek| format!("{peek:?}"));
        let accesses =
            accesses.iter().filter(|it| self.is_unfinished(&it.post) || self.history.is_untold(it));
        let sends = sends.map(|send| format!("{send:?}"));
        sends.chain(peeks).chain(accesses.map(|access| format!("{access:?}"))).collect()
    }

    fn is_unfinished(&self, post: &Post) -> bool {
        let may_wait = post.injected || self.history.may_wait_forever_for(post.to);
        post.ended.is_none() && self.history.is_alive(post.by) && !may_wait
    }

    fn is_peek_unfinished(&self, peek: &PeekOp) -> bool {
        let is_claim_open =
            matches!(peek.claim, Some(ClaimOp { ended: None, .. })) || peek.has_unreceived_claim();
        let may_wait = matches!(peek.ended, Some(PeekEnd::Found(message))
            if self.history.may_wait_forever_for(self.history.sends[message].post.by.place));
        (peek.ended.is_none() || is_claim_open && !may_wait) && self.history.is_alive(peek.at)
    }

    /// Checks that no directed receive waits for a lost peer. The last message to the peer has failed, so
    /// the library has ended each such receive.
    pub(crate) fn check_no_receive_waits_for_a_lost_peer(&self) {
        if self.history.may_wait_for_killed {
            return;
        }
        for (number, receive) in self.history.receives.iter().enumerate() {
            let waits = receive.ended.is_none() && self.history.is_alive(receive.at);
            let is_gone = |from: usize| self.history.places[from].is_vacant;
            assert!(
                !(waits && receive.from.is_some_and(is_gone)),
                "receive {number} waits for a peer that is gone: {receive:?}"
            );
        }
    }

    /// Cancels all posted receives. No message is arriving any more, so each cancel must succeed, except of a
    /// receive that may wait for the rest of a message of a killed endpoint.
    pub(crate) fn cancel_remaining_receives(&mut self) {
        let deadline = Deadline::new();
        for receive in 0..self.history.receives.len() {
            let posted = &self.history.receives[receive];
            let may_hold = |send: &SendOp| {
                send.taker.is_none()
                    && self.history.may_wait_forever_for(send.post.by.place)
                    && posted.accepts(send)
            };
            let may_be_stuck = self.history.sends.iter().any(may_hold);
            if !self.history.is_alive(posted.at) || posted.ended.is_some() || may_be_stuck {
                continue;
            }
            assert!(!posted.too_late_to_cancel, "receive {receive} could not be cancelled, and never ended");
            let Some(party) = &self.parties[posted.at.place] else { continue };
            let cancelled = party.endpoint.cancel(Operation::Receive(receive).context());
            cancelled.unwrap_or_else(|error| panic!("receive {receive} is stuck: {error}"));
            while self.history.receives[receive].ended.is_none() {
                self.read_all();
                deadline.yield_or_panic("a cancelled receive");
            }
            let end = self.history.receives[receive].ended.take();
            assert_eq!(end, Some(ReceiveEnd::Cancelled));
        }
    }
}
