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
use crate::receiver::KeptCredit;
use crate::transport::LinkId;

/// The completions that the sink had no room for, in order.
#[derive(Debug, Default)]
pub(super) struct RemoteEvents {
    held: VecDeque<Held>,
}

#[derive(Debug)]
struct Held {
    completion: Completion,
    /// What it has cost its peer. `None` if the link has ended.
    credit: Option<KeptCredit>,
}

impl RemoteEvents {
    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

impl Engine {
    /// A peer has written something, and says so.
    pub(super) fn remotely_written(&mut self, id: LinkId, data: u64, len_bytes: usize, sink: &mut impl Sink) {
        let Some(source) = self.links.get(id).map(|link| link.peer) else { return };
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
        match refused {
            Some(completion) => {
                let credit = self.receiver.keep_credit(id, MESSAGE_COST_BYTES);
                self.remote_events.held.push_back(Held { completion, credit });
            }
            None => self.return_credit(id, MESSAGE_COST_BYTES, sink),
        }
    }

    /// Delivers those that wait, as far as the sink has room now.
    #[cold]
    pub(super) fn deliver_remote_events(&mut self, sink: &mut impl Sink) {
        while let Some(Held { completion, credit }) = self.remote_events.held.pop_front() {
            if let Err(completion) = sink.complete(completion, &self.peers) {
                self.remote_events.held.push_front(Held { completion, credit });
                return;
            }
            if let Some(credit) = credit {
                let (receiver, mut effects) = self.receiving(sink);
                receiver.free_kept_credit(credit, &mut effects);
            }
        }
    }
}
