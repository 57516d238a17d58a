//! The result of matching where it is deterministic.

use std::collections::BTreeMap;

use homespun::limits::MULTI_RECV_ALIGN_BYTES;

use crate::history::{History, ReceiveOp};

/// Returns which receive takes which message, for messages of one sender and one kind. The receiver
/// neither cancels, claims nor discards.
///
/// Messages keep their order and so do receives, so the result does not depend on how arrivals and posts
/// interleave. This computes the interleaving in which all receives are posted first.
pub(crate) fn match_messages(
    history: &History,
    messages: &[usize],
    receives: &[usize],
) -> BTreeMap<usize, usize> {
    let mut taken_by = BTreeMap::new();
    let mut posted: Vec<Posted> = receives.iter().map(|&receive| Posted { receive, filled: None }).collect();
    for &message in messages {
        let send = &history.sends[message];
        let mut place = 0;
        while place < posted.len() {
            let receive = &history.receives[posted[place].receive];
            if !receive.accepts(send) {
                place += 1;
                continue;
            }
            let (takes, ends) = posted[place].offer(receive, send.len_bytes);
            if takes {
                taken_by.insert(message, posted[place].receive);
            }
            if ends {
                posted.remove(place);
            }
            if takes {
                break;
            }
        }
    }
    taken_by
}

struct Posted {
    receive: usize,
    /// The filled length of a buffer, once it has taken a message.
    filled: Option<usize>,
}

impl Posted {
    /// Returns whether it takes an accepted message, and whether that ends the receive.
    fn offer(&mut self, receive: &ReceiveOp, len_bytes: usize) -> (bool, bool) {
        let Some(buffer) = &receive.buffer else { return (true, true) };
        let filled = self.filled.unwrap_or(0);
        // Allocated buffers are aligned for any type.
        let aligned = filled.next_multiple_of(MULTI_RECV_ALIGN_BYTES);
        let begin = if aligned + len_bytes <= receive.len_bytes { aligned } else { filled };
        let end = begin + len_bytes;
        if end > receive.len_bytes {
            return (self.filled.is_none(), true);
        }
        self.filled = Some(end);
        (true, receive.len_bytes - end < buffer.min_free_bytes)
    }
}
