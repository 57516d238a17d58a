//! The rules of one receiver: which of its operations may get which message.
//!
//! A state is the set of messages that have arrived. The history says which operation has got each message.
//! So a message is matched once it has arrived and that operation is posted. A state has no arrival that
//! nothing observed needs, since a later arrival explains whatever an earlier one does: it can only find
//! fewer receives posted, and peeks overlook it longer. So one state is enough, the least.

use crate::model::prelude::*;

/// A receiver never fetches a message shorter than this.
const SHORT_BYTES: usize = 1000;

const SEND_AFTER_SEND: &str = "fi_endpoint/message-order";

/// The clause of the order of receives, tagged ones or others.
fn earliest_match(is_tagged: bool) -> &'static str {
    if is_tagged { "fi_tagged/tags-are-checked-in-order" } else { "fi_msg/receives-match-in-posting-order" }
}

/// The messages that have arrived.
type Arrived = BTreeSet<usize>;

pub(crate) struct Matching<'a> {
    history: &'a History,
    at: Incarnation,
    disruption: Disruption,
    /// Whether it is the first endpoint of its place, and stayed open.
    is_original: bool,
    /// Whether all messages arrive, in order.
    is_reliable: bool,
}

impl Rules for Matching<'_> {
    type State = Arrived;

    fn start(&self) -> Arrived {
        Arrived::new()
    }

    fn step(&self, state: &Arrived, now: u64, event: Event) -> Result<Vec<Arrived>, Rejection> {
        let History { sends, receives, peeks, .. } = self.history;
        let mut arrived = state.clone();
        match event {
            Event::Posted(Operation::Receive(receive)) if receives[receive].at == self.at => {
                self.post_receive(&mut arrived, receive, now)?;
            }
            Event::Posted(Operation::Peek(peek)) if peeks[peek].at == self.at => {
                self.peek(&mut arrived, peek, now)?;
            }
            Event::Ended(Operation::Peek(peek)) if peeks[peek].at == self.at => {
                if let Some(PeekEnd::Found(message)) = peeks[peek].ended {
                    self.pass_fence(&mut arrived, message, now)?;
                }
            }
            Event::Took { receive, message } if receives[receive].at == self.at => {
                self.take(&mut arrived, receive, message, now)?;
            }
            Event::TooLate(receive) if receives[receive].at == self.at => {
                self.leave(&mut arrived, receive, None, now, &mut Vec::new())?;
            }
            Event::Ended(Operation::Send(send))
                if self.is_original && sends[send].post.to == self.at.place =>
            {
                self.acknowledge(&mut arrived, send, now)?;
            }
            Event::Ended(Operation::Access(access)) if self.is_original => {
                self.pass_fence_of_access(access, now)?;
            }
            Event::Finished if self.is_original => self.finish(&mut arrived, now)?,
            _ => {}
        }
        Ok(vec![arrived])
    }
}

impl Matching<'_> {
    pub(crate) fn new(history: &History, at: Incarnation, disruption: Disruption) -> Matching<'_> {
        let is_original = history.places[at.place].has_original_endpoint();
        let is_reliable = is_original && disruption != Disruption::Killing;
        Matching { history, at, disruption, is_original, is_reliable }
    }

    /// Lets a message arrive now, after all that must precede it. `path` has the messages that wait for it.
    fn arrive(
        &self,
        arrived: &mut Arrived,
        message: usize,
        now: u64,
        path: &mut Vec<usize>,
    ) -> Result<(), Rejection> {
        if arrived.contains(&message) {
            return Ok(());
        }
        if let Some(waiting) = path.last().filter(|_| path.contains(&message)) {
            let is_stream = self.precedes(*waiting, message) || self.precedes(message, *waiting);
            let is_tagged = self.history.sends[message].tag.is_some();
            let clause = if is_stream { SEND_AFTER_SEND } else { earliest_match(is_tagged) };
            return require(false, clause, || {
                format!("messages {path:?} should have been matched in another order")
            });
        }
        let History { sends, receives, .. } = self.history;
        let send = &sends[message];
        require(!send.post.cancelled, "fi_endpoint/cancel-reports-ecanceled", || {
            format!("message {message} was cancelled, and arrived: {send:?}")
        })?;
        path.push(message);
        // Messages of one sender arrive in order. So an earlier one finds its receive first.
        for earlier in (0..message).filter(|&earlier| self.is_reliable && self.precedes(earlier, message)) {
            self.arrive(arrived, earlier, now, path)?;
        }
        let until = self.history.taken_at(message).map_or(now, |taken_at| taken_at.min(now));
        for (number, receive) in receives.iter().enumerate() {
            let is_earlier = receive.at == self.at && receive.posted_at < until && receive.accepts(send);
            if is_earlier && send.taker != Some(Operation::Receive(number)) {
                self.leave(arrived, number, Some(message), now, path)?;
            }
        }
        path.pop();
        arrived.insert(message);
        Ok(())
    }

    /// Whether a message precedes another one of the same sender and kind.
    fn precedes(&self, earlier: usize, later: usize) -> bool {
        let [first, second] = [earlier, later].map(|message| &self.history.sends[message]);
        let stream = |send: &SendOp| (send.post.by, send.post.to, send.tag.is_some());
        let is_cancelled = first.post.cancelled || second.post.cancelled;
        earlier < later && stream(first) == stream(second) && !is_cancelled
    }

    /// Lets a receive have its message by now, so that it is no longer posted. `passed` is a message that it
    /// accepts and did not get.
    ///
    /// Shows fi_tagged/tags-are-checked-in-order, fi_endpoint/message-order.
    fn leave(
        &self,
        arrived: &mut Arrived,
        number: usize,
        passed: Option<usize>,
        now: u64,
        path: &mut Vec<usize>,
    ) -> Result<(), Rejection> {
        let receive = &self.history.receives[number];
        let earliest_match = earliest_match(receive.tagged.is_some());
        let is_cancelled = receive.cancel_asked_at.is_some_and(|asked_at| asked_at <= now);
        let waits = || match passed {
            Some(message) => {
                format!("receive {number} was posted first, and accepts message {message}: {receive:?}")
            }
            None => format!("receive {number} could not be cancelled, and waits: {receive:?}"),
        };
        match (receive.ended, &receive.buffer) {
            (Some(ReceiveEnd::Broken(_)), _) => Ok(()),
            (None, _) => require(!self.history.is_alive(self.at), earliest_match, waits),
            (Some(ReceiveEnd::Cancelled), _) => require(is_cancelled, earliest_match, waits),
            (Some(ReceiveEnd::Took(got)), _) => self.arrive(arrived, got, now, path),
            (Some(ReceiveEnd::Released), buffer) => {
                for &got in buffer.iter().flat_map(|buffer| &buffer.took) {
                    self.arrive(arrived, got, now, path)?;
                }
                let is_full =
                    buffer.as_ref().is_none_or(|buffer| self.may_be_full(receive, buffer, passed, now));
                require(is_full, earliest_match, waits)
            }
        }
    }

    /// Whether a buffer may have had too little room when it was released: less than its least, or too little
    /// for a message that had been sent by now. That is none that arrives after the message that the buffer
    /// has passed by.
    fn may_be_full(
        &self,
        receive: &ReceiveOp,
        buffer: &BufferOp,
        passed_by: Option<usize>,
        now: u64,
    ) -> bool {
        let sends = &self.history.sends;
        // Messages of several senders may lie in any order.
        let aligned = |message: &usize| sends[*message].len_bytes.next_multiple_of(MULTI_RECV_ALIGN_BYTES);
        let filled = self.filled_by_single_sender(receive, buffer, None);
        let filled = filled.unwrap_or_else(|| buffer.took.iter().map(aligned).sum());
        let free_bytes = receive.len_bytes.saturating_sub(filled);
        let mut passed = sends.iter().enumerate().filter(|(number, send)| {
            let is_later = passed_by.is_some_and(|first| self.is_reliable && self.precedes(first, *number));
            !buffer.took.contains(number) && send.post.posted_at < now && receive.accepts(send) && !is_later
        });
        let mut has_no_room = || passed.any(|(_, send)| !send.post.cancelled && send.len_bytes > free_bytes);
        // A message that was cut to the buffer ends it, whatever its least.
        let has_cut = filled > receive.len_bytes;
        let has_too_little = has_cut || free_bytes < buffer.min_free_bytes;
        buffer.has_lost || has_too_little || !buffer.took.is_empty() && has_no_room()
    }

    /// Returns how much of a buffer the messages before this one fill, if all are of one sender.
    fn filled_by_single_sender(
        &self,
        receive: &ReceiveOp,
        buffer: &BufferOp,
        before: Option<usize>,
    ) -> Option<usize> {
        let sends = &self.history.sends;
        let sender = |message: usize| sends[message].post.by;
        let is_stream = buffer.took.iter().all(|&message| sender(message) == sender(buffer.took[0]));
        let mut in_order = buffer.took.clone();
        in_order.sort_unstable();
        let earlier = in_order.into_iter().filter(|&message| before.is_none_or(|before| message < before));
        is_stream.then(|| {
            earlier.fold(0, |filled: usize, message| {
                let len_bytes = sends[message].len_bytes;
                let aligned = filled.next_multiple_of(MULTI_RECV_ALIGN_BYTES);
                len_bytes + if aligned + len_bytes <= receive.len_bytes { aligned } else { filled }
            })
        })
    }

    /// Posts a receive. It takes the first message that it accepts, of those that wait.
    fn post_receive(&self, arrived: &mut Arrived, number: usize, now: u64) -> Result<(), Rejection> {
        let receive = &self.history.receives[number];
        for message in arrived.clone() {
            // A message that no operation ever got may be gone.
            if self.history.taken_at(message).is_some_and(|taken_at| taken_at > now)
                && receive.accepts(&self.history.sends[message])
            {
                self.leave(arrived, number, Some(message), now, &mut vec![message])?;
                if let Some(ReceiveEnd::Took(got)) = receive.ended {
                    require(!(self.is_reliable && self.precedes(message, got)), SEND_AFTER_SEND, || {
                        format!("receive {number} should have got message {message} before {got}")
                    })?;
                }
            }
        }
        Ok(())
    }

    /// Takes a message.
    ///
    /// Shows fi_tagged/tag-matches-without-ignored-bits, fi_msg/source-directs-receive.
    fn take(&self, arrived: &mut Arrived, number: usize, message: usize, now: u64) -> Result<(), Rejection> {
        let (receive, send) = (&self.history.receives[number], &self.history.sends[message]);
        let is_directed_elsewhere = receive.from.is_some_and(|from| from != send.post.by.place);
        let clause = if is_directed_elsewhere {
            "fi_msg/source-directs-receive"
        } else {
            "fi_tagged/tag-matches-without-ignored-bits"
        };
        require(receive.accepts(send), clause, || format!("{receive:?} does not accept {send:?}"))?;
        self.arrive(arrived, message, now, &mut Vec::new())?;
        self.pass_fence(arrived, message, now)?;
        match &receive.buffer {
            Some(buffer) if self.is_reliable => self.check_buffer(number, receive, buffer, message),
            _ => Ok(()),
        }
    }

    /// Checks that a buffer had room for its messages, and that short messages of one sender complete in
    /// order. A message counts only if it certainly travels with its payload. For this the link's initial
    /// credit must cover the message, all earlier sends on the link, and all accesses of the sender.
    ///
    /// Shows fi_msg/multi-recv-released-below-minimum, fi_msg/multi-recv-packs-messages.
    fn check_buffer(
        &self,
        number: usize,
        receive: &ReceiveOp,
        buffer: &BufferOp,
        message: usize,
    ) -> Result<(), Rejection> {
        let History { sends, accesses, .. } = self.history;
        let link = |post: &Post| (post.by, post.to);
        let own = link(&sends[message].post);
        let filled = self.filled_by_single_sender(receive, buffer, Some(message)).unwrap_or(0);
        let free_bytes = receive.len_bytes.saturating_sub(filled);
        let has_room = sends[message].len_bytes <= free_bytes && free_bytes >= buffer.min_free_bytes;
        require(filled == 0 || has_room, "fi_msg/multi-recv-released-below-minimum", || {
            format!("buffer {number} had {free_bytes} bytes left before message {message}: {buffer:?}")
        })?;
        let is_eager = |message: usize| {
            let earlier = sends[..=message].iter().filter(|send| link(&send.post) == own);
            let accesses = accesses.iter().filter(|access| access.post.by == own.0);
            let costs = earlier
                .map(|send| send.len_bytes as u64 + MESSAGE_COST_BYTES)
                .chain(accesses.map(|_| MESSAGE_COST_BYTES));
            sends[message].len_bytes < SHORT_BYTES && costs.sum::<u64>() <= CREDIT_INITIAL_BYTES
        };
        let before = buffer.took.iter().copied().take_while(|&other| other != message);
        let mut before = before.filter(|&other| sends[other].post.by == own.0 && other > message);
        let overtaken_by = before.find(|&other| is_eager(other)).filter(|_| is_eager(message));
        require(overtaken_by.is_none(), "fi_msg/multi-recv-packs-messages", || {
            format!("message {overtaken_by:?} completed in buffer {number} before {message}")
        })
    }

    /// Peeks. The result is that of the time of the post.
    ///
    /// Shows fi_tagged/peek-reports-in-queue.
    fn peek(&self, arrived: &mut Arrived, number: usize, now: u64) -> Result<(), Rejection> {
        const CLAUSE: &str = "fi_tagged/peek-reports-in-queue";
        let History { sends, peeks, .. } = self.history;
        let peek = &peeks[number];
        let is_free = |message: usize| {
            sends[message].taker == Some(Operation::Peek(number))
                || self.history.taken_at(message).is_none_or(|taken_at| taken_at > now)
        };
        let overlooks = |arrived: &Arrived, message: usize| {
            arrived.contains(&message) && peek.accepts(&sends[message]) && is_free(message)
        };
        match peek.ended {
            Some(PeekEnd::Found(found)) => {
                let send = &sends[found];
                require(peek.accepts(send), "fi_tagged/tag-matches-without-ignored-bits", || {
                    format!("{peek:?} found {send:?}")
                })?;
                self.arrive(arrived, found, now, &mut Vec::new())?;
                require(is_free(found), CLAUSE, || {
                    format!("message {found} was taken before peek {number}")
                })?;
                let mut earlier = (0..found).filter(|&earlier| self.precedes(earlier, found));
                let passed = earlier.find(|&earlier| self.is_reliable && overlooks(arrived, earlier));
                require(passed.is_none(), SEND_AFTER_SEND, || {
                    format!("peek {number} should have found message {passed:?} before {found}")
                })
            }
            Some(PeekEnd::Nothing) if self.is_original => {
                let stays = |message: usize| self.is_reliable || sends[message].is_known_to_arrive();
                let mut left = arrived.iter().copied().filter(|&message| stays(message));
                let overlooked = left.find(|&message| overlooks(arrived, message));
                require(overlooked.is_none(), CLAUSE, || {
                    format!("peek {number} overlooks message {overlooked:?}, which had arrived")
                })
            }
            _ => Ok(()),
        }
    }

    /// Ends a send to this receiver. A success at the delivery level tells of the arrival, and one at the
    /// match level of the receive.
    ///
    /// Shows fi_cq/delivery-means-processed, fi_cq/match-means-matched.
    fn acknowledge(&self, arrived: &mut Arrived, message: usize, now: u64) -> Result<(), Rejection> {
        let send = &self.history.sends[message];
        if !send.post.has_succeeded() {
            return Ok(());
        }
        if send.is_known_to_arrive() {
            require(send.taker.is_some(), "fi_cq/delivery-means-processed", || {
                format!("message {message} is nowhere: {send:?}")
            })?;
            self.arrive(arrived, message, now, &mut Vec::new())?;
        }
        if send.post.level == Level::Match {
            let matched_at = self.history.match_posted_at(message);
            require(
                matched_at.is_some_and(|matched_at| matched_at < now),
                "fi_cq/match-means-matched",
                || format!("message {message} was matched at {matched_at:?}, and ended at {now}: {send:?}"),
            )?;
        }
        self.pass_fence(arrived, message, now)
    }

    /// Checks what a message that has passed its fence tells of earlier ones.
    ///
    /// Shows fi_cq/fence-delays.
    fn pass_fence(&self, arrived: &mut Arrived, message: usize, now: u64) -> Result<(), Rejection> {
        let fenced = &self.history.sends[message].post;
        if !fenced.fenced || !self.is_original {
            return Ok(());
        }
        for earlier in 0..message {
            let send = &self.history.sends[earlier].post;
            if (send.by, send.to) == (fenced.by, fenced.to) && send.delays_fences() {
                let level = send.level.max(fenced.level);
                if level > Level::Inject && self.is_reliable {
                    self.arrive(arrived, earlier, now, &mut Vec::new())?;
                }
                if level == Level::Match {
                    self.require_match_before_fence(earlier, now)?;
                }
            }
        }
        Ok(())
    }

    /// Checks what an access that has passed its fence tells of earlier messages.
    fn pass_fence_of_access(&self, number: usize, now: u64) -> Result<(), Rejection> {
        let access = &self.history.accesses[number].post;
        if !access.fenced || access.to != self.at.place || !access.has_succeeded() {
            return Ok(());
        }
        for (message, SendOp { post: send, .. }) in self.history.sends.iter().enumerate() {
            let is_before = send.by == access.by
                && send.to == self.at.place
                && send.posted_at < access.posted_at
                && send.delays_fences();
            if is_before && send.level.max(access.level) == Level::Match {
                self.require_match_before_fence(message, now)?;
            }
        }
        Ok(())
    }

    fn require_match_before_fence(&self, message: usize, now: u64) -> Result<(), Rejection> {
        let send = &self.history.sends[message].post;
        // If links break, a message may be lost without a report. Then only success at match level proves a
        // match.
        let is_known =
            self.disruption != Disruption::Killing || send.level == Level::Match && send.has_succeeded();
        let matched_at = self.history.match_posted_at(message);
        require(
            !is_known || matched_at.is_some_and(|matched_at| matched_at < now),
            "fi_cq/fence-delays",
            || {
                format!(
                    "message {message}, before the fence, was matched at {matched_at:?}, not before {now}"
                )
            },
        )
    }

    /// Lets all messages arrive. Only a cancelled message and a message of a killed sender may be lost.
    ///
    /// Shows fi_msg/every-send-meets-every-receive.
    fn finish(&self, arrived: &mut Arrived, now: u64) -> Result<(), Rejection> {
        for (message, send) in self.history.sends.iter().enumerate() {
            let may_be_lost =
                send.post.cancelled || self.history.was_killed(send.post.by) || self.history.breaks_links;
            if send.post.to == self.at.place && !may_be_lost {
                require(send.taker.is_some(), "fi_msg/every-send-meets-every-receive", || {
                    format!("message {message} is lost: {send:?}")
                })?;
                if self.is_reliable {
                    self.arrive(arrived, message, now, &mut Vec::new())?;
                }
            }
        }
        Ok(())
    }
}
