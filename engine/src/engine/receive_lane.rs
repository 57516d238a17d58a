//! The receive lane: a receive that waits for its message, and a small message that a receive waits for.
//!
//! Posting assumes that the receiver is the engine's own, takes receives, and has no message that waits for a
//! receive of this kind. Whatever else a receive may meet is for [`Engine::post_receive`].

use super::Engine;
use super::effects::LinksAndSink;
use super::receive_side::ReceiveSide;
use crate::buffer::Destination;
use crate::completion::Sink;
use crate::matching::Criteria;
use crate::mutants::is_any_planted;
use crate::operation::Signalled;
use crate::receiver::EndedAtOnce;
use crate::transport::LinkId;
#[cfg(doc)]
use crate::transport::Transport;
use crate::wire::Message;

impl Engine {
    /// Posts a receive, if it has to wait for its message and nothing else is to be done. Returns whether it
    /// was posted. If so, the destination was taken. If not, nothing has changed, and the caller takes
    /// [`post_receive`](Self::post_receive).
    #[inline(always)]
    pub fn try_post_waiting_receive(
        &mut self,
        is_tagged: bool,
        criteria: Criteria,
        context: u64,
        signalled: Signalled,
        destination: &mut Destination,
    ) -> bool {
        if criteria.source.is_some_and(|source| self.peers.peer(source).is_lost()) {
            return false;
        }
        let ReceiveSide::Own(receiver) = &mut self.receive_side else { return false };
        receiver.try_post_waiting(is_tagged, criteria, context, signalled, destination)
    }

    /// Whether a pass has nothing to do but to receive. Then a [`Transport::glance`] may take the place of
    /// the pass, and [`Transport::receive_at_once`] takes what it finds. The engine stays quiet, unless a
    /// report then [is held](super::Arrivals::has_held_report).
    pub fn is_quiet(&self) -> bool {
        let ReceiveSide::Own(receiver) = &self.receive_side else { return false };
        let has_held =
            self.initiator.has_held_reports() | receiver.has_held_reports() | self.target.has_held_reports();
        let has_frames = self.links.have_pending_replies() | (self.initiator.active_len() > 0);
        !(has_held | has_frames | self.has_timeouts | self.has_rare_work() | is_any_planted())
    }

    /// Ends the receive that waits for a message, if that is the earliest one posted and nothing else is to
    /// be done.
    #[inline(always)]
    pub(super) fn end_receive_at_once(
        &mut self,
        id: LinkId,
        message: &Message,
        read: impl FnOnce(&mut [u8]),
        sink: &mut impl Sink,
    ) -> EndedAtOnce {
        let Engine { receive_side: ReceiveSide::Own(receiver), links, peers, .. } = self else {
            return EndedAtOnce::No;
        };
        if is_any_planted() {
            return EndedAtOnce::No;
        }
        receiver.end_receive_at_once(id, message, read, &mut LinksAndSink { links, peers, sink })
    }
}
