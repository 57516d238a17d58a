//! The end of a run: receives all messages, cancels the remaining receives, and checks that the budget is
//! free.

use super::is_drain_receive;
use super::run::Runner;
use crate::model::prelude::*;

/// When all operations have ended, the run goes on until this many rounds bring no event. A message that is
/// reported twice would show in these rounds.
const SILENT_ROUNDS: usize = 40;

impl Runner<'_> {
    /// Posts receives until every send has ended, every message that must arrive was received, and no frame
    /// is in flight.
    pub(super) fn receive_everything(&mut self) {
        if self.oldest_member().is_none() {
            // The oldest member reports entries that belong to no endpoint.
            self.add_member();
        }
        let mut deadline = Deadline::new();
        let mut silent_rounds = 0;
        while silent_rounds < SILENT_ROUNDS {
            if self.observed.history.sends.iter().any(|send| send.taker.is_none()) {
                self.post_drain_receives();
            }
            let may_be_over = self.observed.history.sends.iter().all(|send| {
                let has_arrived = send.taker.is_some() || !self.observed.is_certain_to_arrive(send);
                send.post.ended.is_some() && has_arrived
            });
            self.discard_connection_events();
            let may_lose = self.observed.is_violent || !self.observed.ended_links.is_empty();
            let is_quiet = !may_lose || self.net.network.as_ref().is_none_or(Network::is_quiet);
            if self.read_all() {
                deadline = Deadline::new();
                silent_rounds = 0;
            } else if may_be_over && is_quiet {
                silent_rounds += 1;
            } else {
                deadline.yield_or_panic_with(|| format!("all messages of {:#?}", self.observed));
            }
        }
    }

    /// Posts a receive for any tagged message and one for any untagged message, unless they are posted. If
    /// the context has no room, cancels the last open receive of the program.
    fn post_drain_receives(&mut self) {
        for tagged in [None, Some((0, u64::MAX))] {
            let receives = &self.observed.history.receives;
            let is_there = receives.iter().enumerate().any(|(number, receive)| {
                is_drain_receive(receive) && receive.tagged == tagged && !self.observed.has_ended(number)
            });
            let drain = ReceiveStep { at: 0, tagged, from: None, len_bytes: LEN_MAX_BYTES, in_pieces: false };
            if is_there || self.post_receive(drain) {
                continue;
            }
            for number in (0..self.observed.history.receives.len()).rev() {
                let receive = &self.observed.history.receives[number];
                let is_open = !self.observed.has_ended(number) && receive.cancel_asked_at.is_none();
                if is_open && !is_drain_receive(receive) && self.cancel_receive(number) {
                    break;
                }
            }
        }
    }

    /// Cancels all posted receives, and waits until they have ended. A receive that cannot be cancelled has a
    /// message. If a member left with unread entries, its completion may be among them.
    pub(super) fn cancel_remaining_receives(&mut self) {
        let deadline = Deadline::new();
        for receive in 0..self.observed.history.receives.len() {
            let posted = &self.observed.history.receives[receive];
            if self.observed.has_ended(receive) {
                continue;
            }
            let is_buffer = posted.buffer.is_some();
            if posted.cancel_asked_at.is_none() && !self.cancel_receive(receive) {
                let may_be_unheard = self.observed.left.iter().any(|(_, is_heard)| !is_heard);
                self.observed.receives[receive].is_unheard = may_be_unheard && !is_buffer;
            }
            while !self.observed.has_ended(receive) {
                self.read_all();
                deadline.yield_or_panic_with(|| format!("the end of receive {receive}"));
            }
        }
    }

    /// Checks the counter of each member. A member counts each receive that it reports: as a success if the
    /// receive got a whole message, otherwise as a failure. A member that left with unread entries may have
    /// counted more than the test has read.
    pub(super) fn check_counters(&self) {
        let mut failed = (0, 0);
        for (number, member) in self.members.iter().enumerate() {
            let receives = &self.observed.history.receives;
            let received = self.observed.taken_messages().filter(|(_, send, receive, _)| {
                send.post.to == number && receives[*receive].len_bytes >= send.len_bytes
            });
            let (expected, counted) = (received.count() as u64, member.received.read());
            let is_heard = !self.observed.left.contains(&(number, false));
            assert!(
                counted == expected || !is_heard && counted > expected,
                "member {number} has counted {counted} successes of {expected}"
            );
            failed = (failed.0 + member.failures, failed.1 + member.received.read_error());
            // A member that is leaving may count a failure that another member reports.
            let is_exact = self.observed.left.is_empty();
            assert!(
                !is_exact || member.failures == member.received.read_error(),
                "failures of member {number}"
            );
        }
        let is_heard = self.observed.left.iter().all(|(_, is_heard)| *is_heard);
        assert!(
            failed.0 == failed.1 || !is_heard && failed.0 < failed.1,
            "failures, heard and counted: {failed:?}"
        );
    }

    /// Closes all members, and checks that the budget is free again. A new member without a receive must
    /// fetch the longest message for which a free budget has room.
    pub(super) fn close_members_and_check_credit(&mut self, unexpected_bytes: usize) {
        let budget_bytes = unexpected_bytes.max(UNEXPECTED_BUDGET_MIN_BYTES);
        let len_bytes = longest_unmatched_bytes(self.net, budget_bytes);
        if unexpected_bytes == 0 || len_bytes == 0 {
            return;
        }
        self.close_members(0..self.members.len());
        self.add_member();
        let to = self.add_unconnected_peer().unwrap_or(FabricAddress::UNSPECIFIED);
        let (Some(member), Some(peer)) = (self.members.last(), self.peers.last()) else {
            return;
        };
        let buffers = vec![payload(0, len_bytes)];
        let flags = OpFlags::DELIVERY_COMPLETE;
        let message = SendMsg { buffers, to, flags, ..SendMsg::default() };
        peer.endpoint.sendmsg(message).expect("nothing is outstanding");
        let deadline = Deadline::new();
        loop {
            member.cq.progress();
            if let Some(ended) = peer.poll_completion() {
                break assert!(ended.is_ok(), "{ended:?}");
            }
            deadline
                .yield_or_panic_with(|| format!("credit for {len_bytes} bytes after {:#?}", self.observed));
        }
    }
}

/// Returns the length of the longest message that a member fetches before a receive matches it. The sender's
/// link is the only one. Over shared memory and the loopback, the message may take the budget except the
/// link's initial credit. Over other transports the share of the sender's host limits the message.
fn longest_unmatched_bytes(net: &Net, budget_bytes: usize) -> usize {
    let initial_bytes = CREDIT_INITIAL_BYTES as usize;
    let percent = |percent: u64| budget_bytes * percent as usize / 100;
    match net.info().domain.name.as_deref() {
        Some("shm" | "loopback") => budget_bytes - initial_bytes,
        _ => percent(HOST_FETCH_PERCENT).min(percent(HOST_SHARE_PERCENT).saturating_sub(initial_bytes)),
    }
}
