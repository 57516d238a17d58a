//! What matching comes to where nothing is left to chance.

use std::collections::BTreeMap;

use homespun::limits::MULTI_RECV_ALIGN_BYTES;

use crate::history::{History, ReceiveOp};

/// Which receive takes which message, among messages of one sender and one kind, for one receiver that cancels nothing,
/// and neither claims nor discards.
///
/// Messages keep their order and receives keep theirs, so both sides agree on who comes first, and the outcome is the
/// same however arrivals and posts are interleaved. This is the interleaving in which all receives are posted first.
pub(crate) fn matches(history: &History, messages: &[usize], receives: &[usize]) -> BTreeMap<usize, usize> {
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
    /// How far a buffer is filled, once it has taken something.
    filled: Option<usize>,
}

impl Posted {
    /// Whether a message is taken that is accepted, and whether the receive ends with that.
    fn offer(&mut self, receive: &ReceiveOp, len_bytes: usize) -> (bool, bool) {
        let Some(buffer) = &receive.buffer else { return (true, true) };
        let filled = self.filled.unwrap_or(0);
        // Memory that was allocated begins where everything is aligned.
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
