//! The send lane: a small message that nothing holds back.
//!
//! Of such a message the engine keeps only counts, and it is sent within one call. The lane assumes:
//!
//! - the message awaits no reply and has no fence, so it ends when the link has taken it;
//! - no operation on the peer is queued, and the link is neither in the middle of a frame nor holds messages
//!   back behind an access, so it overtakes nothing;
//! - the link has credit for it, and it would travel eagerly.
//!
//! Whatever else a post may meet is for [`Engine::post`].

use super::Engine;
use crate::peer_id::PeerId;
use crate::transport::Transport;
use crate::wire::{AwaitedReply, Message};

impl Engine {
    /// Sends a small message that awaits no reply, if nothing holds it back. Returns whether it was sent. If
    /// so, the transport has handed it over, and the caller counts it. If not, nothing has changed, and the
    /// caller posts it. A caller that reports the message asks
    /// [`may_report_at_post_time`](Self::may_report_at_post_time) first.
    #[inline(always)]
    pub fn try_send_at_once(
        &mut self,
        to: PeerId,
        tag: Option<u64>,
        data: Option<u64>,
        message: &[u8],
        transport: &mut impl Transport,
    ) -> bool {
        let Some(id) = self.peers.peer(to).transmit_link() else { return false };
        let Some(link) = self.links.get_mut(id) else { return false };
        let awaits = AwaitedReply::Nothing;
        let header = Message { len_bytes: message.len() as u64, tag, data, awaits };
        let cost_bytes = header.eager_cost_bytes();
        if !self.initiator.has_none_queued(to)
            || self.initiator.outstanding_ops() >= self.config.tx_depth_ops
            || !link.tx.may_begin_message_given_credit()
            || cost_bytes > link.tx.credit_bytes()
            || message.len() > self.config.eager_max_bytes
            || header.len_bytes > self.config.message_max_bytes
        {
            return false;
        }
        let is_sent = transport.send_at_once(id, &header, message);
        if is_sent {
            link.tx.record_message_begun(cost_bytes);
        }
        is_sent
    }
}
