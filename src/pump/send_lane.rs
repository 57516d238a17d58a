//! The send lane, between an endpoint and the engine: see `engine/src/engine/send_lane.rs`.

use std::mem;

use bytes::Bytes;
use homespun_engine::buffer::Buffer;
use homespun_engine::completion::EndedOperation;
use homespun_engine::engine::Engine;
use homespun_engine::flags::{CompletionFlags, CounterEvents};
use homespun_engine::operation::Signalled;
use homespun_engine::transport::Transport;

use super::BoundObjects;
use crate::send_msg::SendMsg;

impl BoundObjects {
    /// Sends a small message, if nothing holds it back. Returns whether it was sent. If so, it was also
    /// counted and reported. If not, nothing has changed. If the report waits in the engine, the engine is no
    /// longer quiet.
    #[inline(always)]
    pub(super) fn try_send_at_once(
        &mut self,
        send: &SendMsg<&[u8]>,
        signalled: Signalled,
        owned: Option<&mut Bytes>,
        engine: &mut Engine,
        transport: &mut impl Transport,
        is_quiet: &mut bool,
    ) -> bool {
        let tag = send.tag.map(|tag| tag.0);
        let cached = self.peer_cache.cached_peer(send.to, &self.bindings.av);
        let Some(to) = cached.or_else(|| engine.connected_peer()?.ok()) else { return false };
        let message = owned.as_ref().map_or(send.buffers, |owned| owned);
        if !engine.may_report_at_post_time()
            || !engine.try_send_at_once(to, tag, send.data, message, transport)
        {
            return false;
        }
        if !self.bindings.counters.is_empty() {
            self.bindings.counters.count_success(CounterEvents::SEND);
        }
        let flags = CompletionFlags::of_send(tag.is_some());
        let take_buffer = || owned.map_or(Buffer::None, |owned| Buffer::Sent(mem::take(owned)));
        match &self.bindings.transmit_cq {
            Some(cq) if signalled == Signalled::Yes => {
                if let Err(buffer) = cq.try_push_send(send.context, flags, take_buffer()) {
                    *is_quiet = false;
                    self.let_engine_report(EndedOperation::of_transmit(send.context, flags, buffer), engine);
                }
            }
            _ => drop(take_buffer()),
        }
        true
    }
}
