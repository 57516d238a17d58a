//! Completions of what peers have written, if that brings data: `FI_REMOTE_CQ_DATA`, `fi_rma(3)`.
//!
//! Nothing was posted for them, so their number is bounded by credit: each has cost its peer as much as a message, which is
//! given back when the sink has taken it.

use std::collections::VecDeque;

use super::Engine;
use crate::buffer::Buffer;
use crate::completion::{Completion, Sink};
use crate::flags::CompletionFlags;
use crate::limits::MESSAGE_COST_BYTES;
use crate::transport::LinkId;

/// The completions that the sink had no room for, in order.
#[derive(Debug, Default)]
pub(super) struct RemoteEvents {
    held: VecDeque<Held>,
}

#[derive(Debug)]
struct Held {
    completion: Completion,
    link: LinkId,
    /// Tells the link from others that have its number later.
    begun_at: u64,
}

impl RemoteEvents {
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

impl Engine {
    /// A peer has written something, and says so.
    pub(super) fn remotely_written(&mut self, id: LinkId, data: u64, len_bytes: usize, sink: &mut impl Sink) {
        let Some(link) = self.links.of(id) else { return };
        let (source, begun_at) = (link.peer, link.begun_at);
        let flags = CompletionFlags::RMA | CompletionFlags::REMOTE_WRITE | CompletionFlags::REMOTE_CQ_DATA;
        let completion = Completion {
            context: 0,
            flags,
            len_bytes,
            data,
            tag: 0,
            source: Some(source),
            buffer: Buffer::None,
        };
        let refused = if self.remote_events.is_empty() {
            sink.complete(completion, &self.peers).err()
        } else {
            Some(completion)
        };
        let Some(completion) = refused else { return self.pass(id, MESSAGE_COST_BYTES) };
        if let Some(link) = self.links.of(id) {
            link.grant.keep(MESSAGE_COST_BYTES);
        }
        self.remote_events.held.push_back(Held { completion, link: id, begun_at });
    }

    /// Delivers those that wait, as far as the sink has room now.
    #[cold]
    pub(super) fn deliver_remote_events(&mut self, sink: &mut impl Sink) {
        while let Some(Held { completion, link, begun_at }) = self.remote_events.held.pop_front() {
            if let Err(completion) = sink.complete(completion, &self.peers) {
                self.remote_events.held.push_front(Held { completion, link, begun_at });
                return;
            }
            match self.links.of(link).filter(|link| link.begun_at == begun_at) {
                Some(present) => {
                    present.grant.free(MESSAGE_COST_BYTES, &mut self.budget);
                    self.renew_credit(link);
                }
                None => self.budget.free(MESSAGE_COST_BYTES),
            }
        }
    }
}
