//! The result of matching, in programs that have only one.

use std::collections::BTreeMap;

use homespun::limits::MULTI_RECV_ALIGN_BYTES;

use crate::model::history::{History, ReceiveOp};

/// Returns the receive that matches each message. All messages have one sender and one kind. No receive is
/// cancelled, and no peek claims or discards a message.
///
/// Messages keep their order, and receives keep theirs. So the result is the same as if all receives were
/// posted first.
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
            let (takes, ends) = posted[place].offer_message(receive, send.len_bytes);
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
    /// The end of the last message in a multi-receive buffer, or `None` before the first message.
    filled: Option<usize>,
}

impl Posted {
    /// Offers the receive a message that it accepts. Returns whether the receive takes the message, and
    /// whether the receive ends.
    fn offer_message(&mut self, receive: &ReceiveOp, len_bytes: usize) -> (bool, bool) {
        let Some(buffer) = &receive.buffer else { return (true, true) };
        let filled = self.filled.unwrap_or(0);
        // Buffers are allocated with an alignment for any type.
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
