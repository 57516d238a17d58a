//! Multi-receive buffers.

use homespun::OperationError;
use homespun::flags::CompletionFlags;

use crate::Ended;
use crate::model::history::{BufferOp, Event, Incarnation, Operation, ReceiveEnd};
use crate::model::run::{Runner, expect_accepted_or_full, expect_lost_sender_errno, source_address};
use crate::payload::marked_buffer;

impl Runner<'_> {
    pub(crate) fn post_multi_receive_buffer(
        &mut self,
        at: usize,
        from: Option<usize>,
        len_bytes: usize,
        min_free_bytes: usize,
    ) {
        let Some(party) = &self.parties[at] else { return };
        let len_bytes = self.raise_to_min_len(len_bytes);
        let context = Operation::Receive(self.history.receives.len()).context();
        party.endpoint.set_min_multi_recv_bytes(min_free_bytes);
        if !expect_accepted_or_full(party.endpoint.recv_multi(
            marked_buffer(len_bytes),
            source_address(from),
            context,
        )) {
            return;
        }
        let at = self.history.incarnation_at(at);
        let posted = self.history.post_receive(at, None, len_bytes);
        posted.from = from;
        posted.buffer = Some(BufferOp { min_free_bytes, took: Vec::new(), has_lost: false });
    }

    /// Records a message in a buffer, the release of the buffer, or both.
    pub(crate) fn record_buffer_entry(&mut self, who: Incarnation, receive: usize, ended: &Ended) {
        let (flags, error) = match ended {
            Ok((completion, _)) => (completion.flags, None),
            Err(failed) => (failed.completion.flags, Some(&failed.error)),
        };
        let is_release = flags.contains(CompletionFlags::MULTI_RECV);
        let room_bytes = self.history.receives[receive].len_bytes;
        let mut took = None;
        let mut has_lost = false;
        let end = match error {
            None if flags == CompletionFlags::MULTI_RECV => Some(ReceiveEnd::Released),
            None | Some(OperationError::Truncated { .. }) => {
                assert!(!(is_release && error.is_some()), "a release that is no message's: {ended:?}");
                let message = self
                    .told()
                    .check_received_message(who.place, room_bytes, ended)
                    .expect("a message, or as much as there is room for");
                self.history.record_taken(receive, message);
                took = Some(message);
                is_release.then_some(ReceiveEnd::Released)
            }
            Some(OperationError::Cancelled) => {
                assert!(is_release || !self.offer.is_homespun, "it takes no more: {ended:?}");
                Some(ReceiveEnd::Cancelled)
            }
            Some(error) => {
                let errno = expect_lost_sender_errno(error);
                has_lost = !is_release;
                is_release.then_some(ReceiveEnd::Broken(errno))
            }
        };
        if end.is_some() && took.is_none() {
            self.history.record(Event::Ended(Operation::Receive(receive)));
        }
        let posted = &mut self.history.receives[receive];
        posted.ended = end;
        if let Some(buffer) = &mut posted.buffer {
            buffer.took.extend(took);
            buffer.has_lost |= has_lost;
        }
    }
}
