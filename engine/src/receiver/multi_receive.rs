//! Buffers that take many messages: `FI_MULTI_RECV`, `fi_msg(3)`.
//!
//! A posted buffer keeps its place among the posted receives while it takes messages. For each
//! message, the receiver cuts a *part* off the front of the buffer's free memory. A part is a
//! receive of its own. So several messages of a buffer may arrive at the same time, and they share
//! no byte.
//!
//! ```text
//!  takes messages --(little room left, a message does not fit, cancelled, its only sender is gone)-->
//!      takes no more --(the last part has ended)--> released, reported
//! ```
//!
//! One posted buffer could cause any number of completions. So a buffer takes no message while
//! completions of receives wait for room in their queue. A message for the buffer is *kept aside*
//! among the unexpected messages. From then on the receiver matches no untagged message until the
//! queue has room. Then the receiver matches these messages in the order of arrival. So no message,
//! receive or peek overtakes another.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::mem;

use slotmap::SecondaryMap;

use super::effects::UnrecordedEnd;
use super::{MemberId, Receiver, ReceiverEffects};
use crate::buffer::{Buffer, Destination, ReceivedLast};
use crate::completion::{EndedOperation, FailedOperation};
use crate::error::{Again, Misuse, OperationError};
use crate::flags::{CompletionFlags, OpFlags};
use crate::limits::MULTI_RECV_ALIGN_BYTES;
use crate::matching::Criteria;
use crate::mutated;
use crate::operation::{Receive, ReceiveId, ReceiveRequest, ReceiveRole, Signalled, UnexpectedId};
use crate::peer_id::PeerId;
use crate::reassembly::clamp_to_usize;
use crate::rejected::Rejected;
use crate::wire::Message;

/// How many messages kept aside are looked at in the first step; see `match_kept_untagged`.
const KEPT_STEP_MIN_MESSAGES: usize = 16;

/// Messages kept aside, by the member at which they arrived. While a member is listed, its later
/// messages are kept aside too.
pub(super) type KeptAside = BTreeMap<MemberId, MemberMessages>;

/// The messages of one member that are kept aside, in order.
#[derive(Debug, Default)]
pub(super) struct MemberMessages {
    /// Messages, the oldest first. Some of them may no longer exist.
    pub(super) ids: VecDeque<UnexpectedId>,
    /// How many of `ids` no longer exist, at least.
    pub(super) gone: usize,
}

/// The multi-receive buffers that are not released yet.
#[derive(Debug, Default)]
pub(super) struct MultiReceives {
    /// The buffers, each under the id of its posted receive. Boxed, since the map has a slot for
    /// each receive.
    buffers: SecondaryMap<ReceiveId, Box<MultiBuffer>>,
    /// The buffer of each part.
    parts: SecondaryMap<ReceiveId, ReceiveId>,
    /// How many buffers are posted.
    posted: usize,
    /// Whether untagged messages are kept aside, since completions of receives are held.
    pub(super) keeps_untagged: bool,
    /// Untagged messages that are kept aside for single members; see
    /// [`kept_aside`](super::kept_aside).
    pub(super) kept_aside: KeptAside,
    /// Receives that can match only messages kept aside: their only source is gone, or the
    /// connection has ended. They fail once these messages were matched.
    orphans: SecondaryMap<ReceiveId, (Option<PeerId>, OperationError)>,
}

#[derive(Debug)]
struct MultiBuffer {
    /// The least free room with which the buffer takes another message.
    min_free_bytes: usize,
    /// The context of the completions of its messages.
    context: u64,
    /// Whether each message that succeeds is reported.
    signalled: Signalled,
    /// Whether the buffer has taken a message.
    has_taken_message: bool,
    /// How many parts have not ended.
    arriving: usize,
    /// Why the buffer takes no more messages; `None` while it takes messages.
    end: Option<End>,
}

#[derive(Debug)]
enum End {
    /// There was too little room for another message.
    Consumed,
    /// The buffer was cancelled, or its only sender is gone.
    Failed { source: Option<PeerId>, error: OperationError },
}

impl MultiReceives {
    /// Whether an untagged message may be for a buffer, or must wait behind such a message.
    pub(super) fn may_claim_untagged(&self) -> bool {
        self.keeps_untagged || self.posted > 0 || !self.kept_aside.is_empty()
    }

    /// Returns the sources of buffers that will be reported as failed.
    pub(super) fn failing_sources(&self) -> impl Iterator<Item = PeerId> {
        self.buffers.values().filter_map(|buffer| match buffer.end.as_ref()? {
            End::Failed { source, .. } => *source,
            End::Consumed => None,
        })
    }
}

impl Receiver {
    /// Posts a buffer that takes many messages, until less than `min_free_bytes` of it are free or
    /// a message does not fit. If the call is deferred work, `work` is its number.
    ///
    /// # Errors
    ///
    /// See [`Engine::post_multi_receive`](crate::Engine::post_multi_receive).
    pub(crate) fn post_multi_receive(
        &mut self,
        request: ReceiveRequest,
        min_free_bytes: usize,
        work: Option<u64>,
        effects: &mut impl ReceiverEffects,
    ) -> Result<(), Rejected<Destination>> {
        let ReceiveRequest { destination, tagged, criteria, context, signalled } = request;
        if tagged {
            let error = Misuse::Flags(OpFlags::MULTI_RECV.bits()).into();
            return Err(Rejected { error, returned: destination });
        }
        if self.outstanding_receives() >= self.depth_ops {
            return Err(Rejected { error: Again::QueueFull.into(), returned: destination });
        }
        let destination = destination.into_multi_receive_buffer()?;
        let criteria = Criteria { source: criteria.source, ..Criteria::any() };
        let receive = Receive {
            destination,
            tagged,
            context: work.unwrap_or(context),
            signalled: if work.is_some() { Signalled::Deferred } else { Signalled::No },
            role: ReceiveRole::Buffer,
        };
        let id = self.post_without_matching(criteria, receive);
        let buffer = MultiBuffer {
            min_free_bytes,
            context,
            signalled,
            has_taken_message: false,
            arriving: 0,
            end: None,
        };
        self.multi_receives.buffers.insert(id, Box::new(buffer));
        self.set_posted_count(self.multi_receives.posted + 1);
        self.fill_buffer_with_unexpected(id, &criteria, effects);
        self.fail_if_connection_ended(id, effects);
        Ok(())
    }

    fn set_keeps_untagged_aside(&mut self, keeps_untagged: bool) {
        self.multi_receives.keeps_untagged = keeps_untagged;
        self.update_special_cases();
    }

    fn set_posted_count(&mut self, posted: usize) {
        self.multi_receives.posted = posted;
        self.update_special_cases();
    }

    /// Whether messages of this kind are kept aside, that is, are not matched for now.
    #[inline(always)]
    pub(super) fn is_kind_kept_aside(&self, tagged: bool) -> bool {
        self.multi_receives.keeps_untagged && !tagged
    }

    /// Whether untagged messages are kept aside, so that posted receives may still match them.
    pub(super) fn has_unmatched_untagged(&self) -> bool {
        self.is_kind_kept_aside(false) || self.has_kept_aside()
    }

    /// Posts a receive without matching it with the messages that have already arrived.
    #[cold]
    pub(super) fn post_without_matching(&mut self, criteria: Criteria, receive: Receive) -> ReceiveId {
        let matching = if receive.tagged { &mut self.tagged } else { &mut self.untagged };
        let id = self.receives.insert(receive);
        matching.add_posted(criteria, id);
        id
    }

    /// As [`take_match`](Self::take_match), for an untagged message that may be for a buffer. Also
    /// returns `None` if the message must be kept aside.
    #[cold]
    pub(super) fn take_untagged_match_or_part(
        &mut self,
        source: PeerId,
        message: &Message,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) -> Option<ReceiveId> {
        while !self.multi_receives.keeps_untagged && !self.has_kept_aside_for(member) {
            if self.has_watched_failure() {
                return None;
            }
            let id = self.untagged.peek_posted(source, 0)?;
            if self.receives.get(id).is_none_or(|receive| receive.role != ReceiveRole::Buffer) {
                return self.untagged.take_posted(source, 0);
            }
            if self.keep_untagged_aside_if_full() {
                break;
            }
            if effects.has_waiting_reports(member) || self.has_max_turns(member) {
                self.begin_keeping_untagged_aside(member);
                break;
            }
            if let Some(part) = self.cut_part_or_end_buffer(id, message, member, effects) {
                return Some(part);
            }
        }
        None
    }

    /// Matches the untagged messages that were kept aside, if the completion queue has room again.
    #[cold]
    pub(super) fn match_kept_untagged(&mut self, effects: &mut impl ReceiverEffects) {
        if !self.multi_receives.keeps_untagged || !self.held.is_empty() {
            return;
        }
        self.set_keeps_untagged_aside(false);
        // No receive is posted during the loop. So if a message finds no receive, later messages of
        // its source find none either. If a message finds a receive, the message is the earliest of
        // its source.
        let mut unwanted = HashSet::new();
        let (mut passed_over, mut step) = (0, KEPT_STEP_MIN_MESSAGES);
        loop {
            let next: Vec<UnexpectedId> = self.untagged.unexpected().skip(passed_over).take(step).collect();
            if next.is_empty() {
                break;
            }
            for id in next {
                if self.drop_if_abandoned(id, effects) {
                    continue;
                }
                let known = self.unexpected.get(id).map(|unexpected| (unexpected.source, unexpected.message));
                let Some((source, message)) = known.filter(|(source, _)| !unwanted.contains(source)) else {
                    passed_over += 1;
                    continue;
                };
                match self.take_untagged_match_or_part(source, &message, MemberId::ONLY, effects) {
                    Some(receive) => {
                        let earliest = Criteria { source: Some(source), ..Criteria::any() };
                        let taken = self.untagged.take_unexpected(&earliest);
                        debug_assert_eq!(taken, Some(id), "an earlier one of this source was passed over");
                        self.receive_unexpected_into(receive, id, effects);
                    }
                    None if self.multi_receives.keeps_untagged => return,
                    // Keeps this message and all later ones aside, in order.
                    None if self.has_kept_aside_for(MemberId::ONLY) => {
                        return self.keep_all_untagged_aside(MemberId::ONLY);
                    }
                    None => {
                        unwanted.insert(source);
                        passed_over += 1;
                    }
                }
            }
            // Doubled, so that each message passed over is skipped only a few times.
            step *= 2;
        }
        self.fail_orphaned_receives(effects);
    }

    /// Fails the receives in `orphans`. Does nothing while messages are kept aside: they may still
    /// match such a receive.
    pub(super) fn fail_orphaned_receives(&mut self, effects: &mut impl ReceiverEffects) {
        if self.has_unmatched_untagged() {
            return;
        }
        let mut orphans = mem::take(&mut self.multi_receives.orphans);
        let posted: Vec<ReceiveId> = self.untagged.posted().filter(|id| orphans.contains_key(*id)).collect();
        for id in posted {
            self.untagged.remove_posted(id);
            if let Some((peer, error)) = orphans.remove(id) {
                self.fail_removed_receive(id, peer, &error, effects);
            }
        }
    }

    /// Marks the untagged receives whose only source is this peer, since the peer is lost. They
    /// fail once the messages kept aside were matched.
    pub(super) fn fail_directed_untagged_after_kept_messages(
        &mut self,
        peer: PeerId,
        error: &OperationError,
    ) {
        for id in self.untagged.directed_posted(peer) {
            self.multi_receives.orphans.insert(id, (Some(peer), error.clone()));
        }
    }

    /// Marks all untagged receives: they fail once the messages kept aside were matched.
    pub(super) fn fail_all_untagged_after_kept_messages(
        &mut self,
        peer: Option<PeerId>,
        error: &OperationError,
    ) {
        for id in self.untagged.posted() {
            self.multi_receives.orphans.insert(id, (peer, error.clone()));
        }
    }

    /// Fails a receive that was just posted, if the connection has ended. If messages are kept aside, an
    /// untagged receive may take one of them first.
    pub(super) fn fail_if_connection_ended(&mut self, id: ReceiveId, effects: &mut impl ReceiverEffects) {
        let Some(error) = self.end_error.as_deref().cloned() else { return };
        if self.tagged.remove_posted(id) {
            self.fail_removed_receive(id, None, &error, effects);
        } else if self.has_unmatched_untagged() {
            self.multi_receives.orphans.insert(id, (None, error));
        } else if self.untagged.remove_posted(id) {
            self.fail_removed_receive(id, None, &error, effects);
        }
    }

    /// Fails a buffer that is cancelled or whose only source is gone. The caller has removed the buffer from
    /// matching.
    pub(super) fn fail_buffer(
        &mut self,
        id: ReceiveId,
        peer: Option<PeerId>,
        error: &OperationError,
        effects: &mut impl ReceiverEffects,
    ) {
        self.end_buffer(id, End::Failed { source: peer, error: error.clone() }, None, effects);
    }

    /// Ends a part whose message is whole, in place and counted. `complete` makes the completion of the
    /// message.
    pub(super) fn part_received(
        &mut self,
        id: ReceiveId,
        member: MemberId,
        complete: impl FnOnce(&mut Receive) -> EndedOperation,
        effects: &mut impl ReceiverEffects,
    ) {
        let Some(mut part) = self.receives.remove(id) else { return };
        let Some(buffer_id) = self.multi_receives.parts.get(id).copied() else { return };
        let Some(buffer) = self.multi_receives.buffers.get(buffer_id) else { return };
        let is_release = buffer.arriving == 1
            && matches!(buffer.end, Some(End::Consumed))
            && !self.is_deferred_buffer(buffer_id);
        let is_hidden = !is_release && mutated!("fi_msg/multi-recv-completes-per-message");
        if (buffer.signalled == Signalled::Yes || effects.wants_unsignalled_reports(member)) && !is_hidden {
            let mut completion = complete(&mut part);
            if mutated!("fi_cq/buf-field") {
                completion.buffer = Buffer::None;
            }
            if is_release {
                if !mutated!("fi_cq/flag-multi-recv") {
                    completion.flags |= CompletionFlags::MULTI_RECV;
                }
                if mutated!("fi_cq/multi-recv-with-message") {
                    completion.len_bytes = 0;
                }
                completion.buffer =
                    attach_unused(completion.buffer, self.forget_buffer_and_take_unused(buffer_id));
            }
            self.report_success(completion, Some(member), effects);
        }
        self.end_part(id, member, effects);
    }

    /// Ends a part whose failure was reported. Its receive no longer exists.
    #[cold]
    pub(super) fn part_failed(
        &mut self,
        id: ReceiveId,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) {
        self.end_part(id, member, effects);
    }

    /// Ends a part of a buffer. If the buffer takes no more messages and no part of it is still
    /// arriving, releases the buffer.
    fn end_part(&mut self, id: ReceiveId, member: MemberId, effects: &mut impl ReceiverEffects) {
        let Some(buffer_id) = self.multi_receives.parts.remove(id) else { return };
        let Some(buffer) = self.multi_receives.buffers.get_mut(buffer_id) else { return };
        buffer.arriving -= 1;
        if buffer.arriving == 0 && buffer.end.is_some() {
            self.release_buffer(buffer_id, Some(member), effects);
        }
    }

    /// Begins to keep untagged messages aside if completions wait for room. Returns whether
    /// completions wait. If so, no buffer takes a message for now.
    fn keep_untagged_aside_if_full(&mut self) -> bool {
        let is_full = !self.held.is_empty();
        if is_full {
            self.set_keeps_untagged_aside(true);
        }
        is_full
    }

    /// Gives a buffer that was just posted the unexpected messages that it matches.
    fn fill_buffer_with_unexpected(
        &mut self,
        id: ReceiveId,
        criteria: &Criteria,
        effects: &mut impl ReceiverEffects,
    ) {
        while !self.multi_receives.keeps_untagged
            && self.multi_receives.buffers.get(id).is_some_and(|buffer| buffer.end.is_none())
            && let Some(found) = self.untagged.peek_unexpected(criteria)
        {
            if self.drop_if_abandoned(found, effects) {
                continue;
            }
            let Some(unexpected) = self.unexpected.get(found) else { return };
            let (message, member) = (unexpected.message, unexpected.origin.member);
            if self.keep_untagged_aside_if_full() {
                return;
            }
            if effects.has_waiting_reports(member) || self.has_max_turns(member) {
                self.keep_all_untagged_aside(member);
                continue;
            }
            if let Some(part) = self.cut_part_or_end_buffer(id, &message, member, effects) {
                let taken = self.untagged.take_unexpected(criteria);
                debug_assert_eq!(taken, Some(found), "the same criteria find the same message");
                self.receive_unexpected_into(part, found, effects);
            }
        }
    }

    /// Cuts the part for a message off a buffer, and returns the part. Ends the buffer if it has
    /// too little room left for another message. If this message does not fit, ends the buffer and
    /// returns `None`.
    fn cut_part_or_end_buffer(
        &mut self,
        id: ReceiveId,
        message: &Message,
        member: MemberId,
        effects: &mut impl ReceiverEffects,
    ) -> Option<ReceiveId> {
        let receive = self.receives.get_mut(id)?;
        let buffer = self.multi_receives.buffers.get_mut(id)?;
        let Some((padding_bytes, len_bytes)) =
            padding_and_length_in_rest(&receive.destination, message.len_bytes, buffer.has_taken_message)
        else {
            self.end_consumed_buffer(id, member, effects);
            return None;
        };
        let destination = receive.destination.skip_and_split_to(padding_bytes, len_bytes);
        let (free_bytes, context) = (receive.destination.len_bytes(), buffer.context);
        buffer.has_taken_message = true;
        buffer.arriving += 1;
        let is_cut_short = message.len_bytes > len_bytes as u64;
        let min_free_bytes = match mutated!("fi_msg/multi-recv-released-below-minimum") {
            true => 1,
            false => buffer.min_free_bytes,
        };
        let is_consumed =
            is_cut_short || free_bytes < min_free_bytes || mutated!("fi_msg/multi-recv-packs-messages");
        let part = Receive {
            destination,
            tagged: false,
            context,
            signalled: Signalled::No,
            role: ReceiveRole::Part,
        };
        let part = self.receives.insert(part);
        self.multi_receives.parts.insert(part, id);
        if is_consumed {
            self.end_consumed_buffer(id, member, effects);
        }
        Some(part)
    }

    /// Ends a buffer that has too little room for another message.
    fn end_consumed_buffer(&mut self, id: ReceiveId, member: MemberId, effects: &mut impl ReceiverEffects) {
        self.untagged.remove_posted(id);
        self.end_buffer(id, End::Consumed, Some(member), effects);
    }

    /// Ends a buffer that is no longer posted. If none of its parts is arriving, releases the
    /// buffer now. Otherwise the last part releases it.
    fn end_buffer(
        &mut self,
        id: ReceiveId,
        end: End,
        by: Option<MemberId>,
        effects: &mut impl ReceiverEffects,
    ) {
        self.set_posted_count(self.multi_receives.posted - 1);
        let Some(buffer) = self.multi_receives.buffers.get_mut(id) else { return };
        buffer.end = Some(end);
        if buffer.arriving == 0 {
            self.release_buffer(id, by, effects);
        }
    }

    /// Reports the release of a buffer in a completion without a message.
    fn release_buffer(&mut self, id: ReceiveId, to: Option<MemberId>, effects: &mut impl ReceiverEffects) {
        let is_deferred = self.is_deferred_buffer(id);
        let is_hidden = mutated!("fi_msg/multi-recv-release-is-reported")
            && self.multi_receives.buffers.get(id).is_some_and(|buffer| buffer.signalled == Signalled::No);
        let receive = self.receives.get(id).filter(|_| !mutated!("fi_cq-1.4/context-of-all-completions"));
        let context = receive.map_or(0, |receive| receive.context);
        let flags = if mutated!("fi_cq/multi-recv-without-message") {
            CompletionFlags::MULTI_RECV | CompletionFlags::RECV | CompletionFlags::MSG
        } else {
            CompletionFlags::MULTI_RECV
        };
        let end = self.multi_receives.buffers.get_mut(id).and_then(|buffer| buffer.end.take());
        let completion = EndedOperation {
            context,
            flags,
            len_bytes: 0,
            data: 0,
            tag: 0,
            source: None,
            buffer: self.forget_buffer_and_take_unused(id),
        };
        match end {
            Some(End::Failed { source, error }) => {
                let flags = CompletionFlags::RECV | CompletionFlags::MSG | CompletionFlags::MULTI_RECV;
                let completion = EndedOperation { flags, source, ..completion };
                self.count_and_report_failure(
                    FailedOperation { completion, error, target: None },
                    if is_deferred { Signalled::Deferred } else { Signalled::Yes },
                    to,
                    effects,
                );
            }
            Some(End::Consumed) | None if is_deferred => {
                let end = UnrecordedEnd { outcome: Ok(completion), counts_as_receive: false };
                self.end_deferred_work(end, to, effects);
            }
            Some(End::Consumed) | None if is_hidden => {}
            Some(End::Consumed) | None => self.report_success(completion, to, effects),
        }
    }

    /// Whether a buffer is deferred work. If so, a completion without a message reports its
    /// release.
    fn is_deferred_buffer(&self, id: ReceiveId) -> bool {
        self.receives.get(id).is_some_and(|receive| receive.signalled == Signalled::Deferred)
    }

    /// Forgets a buffer. Returns the memory that no message has used.
    fn forget_buffer_and_take_unused(&mut self, id: ReceiveId) -> Buffer {
        self.multi_receives.buffers.remove(id);
        self.receives.remove(id).map_or(Buffer::None, |receive| receive.destination.into_unused())
    }
}

/// Returns where a message goes in the rest of a buffer: how many bytes to skip, and how many bytes
/// the message gets. The message begins at an aligned address if it fits there, otherwise at the
/// front. If the first message of a buffer does not fit, it gets all of the buffer. If a later
/// message does not fit, returns `None`.
fn padding_and_length_in_rest(
    rest: &Destination,
    len_bytes: u64,
    has_taken_message: bool,
) -> Option<(usize, usize)> {
    let padding_bytes = rest.padding_bytes(MULTI_RECV_ALIGN_BYTES);
    let (free_bytes, len_bytes) = (rest.len_bytes(), clamp_to_usize(len_bytes));
    if padding_bytes.saturating_add(len_bytes) <= free_bytes {
        Some((padding_bytes, len_bytes))
    } else if len_bytes <= free_bytes {
        Some((0, len_bytes))
    } else {
        (!has_taken_message).then_some((0, free_bytes))
    }
}

/// Adds the unused rest of a buffer to the buffer of the last message, if the application gets its
/// memory back.
fn attach_unused(message: Buffer, unused: Buffer) -> Buffer {
    match (message, unused) {
        (Buffer::Received(message), Buffer::Unused(unused)) => {
            Buffer::ReceivedLast(Box::new(ReceivedLast { message, unused }))
        }
        (message, _) => message,
    }
}
