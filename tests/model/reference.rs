//! The result of matching, in programs that have only one.

use std::collections::BTreeMap;

use homespun::limits::MULTI_RECV_ALIGN_BYTES;

use crate::history::{History, ReceiveOp};

/// Returns the receive that matches each message, for messages of one sender and one kind. The receiver must
/// neither cancel, claim nor discard.
///
/// Messages keep their order, and so do receives. So the result does not depend on how arrivals and posts
/// interleave, and this function posts all receives first.
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
    /// How many bytes of a multi-receive buffer are filled, once it has got a message.
    filled: Option<usize>,
}

impl Posted {
    /// Offers the receive a message that it accepts, and fills its buffer if the message fits. Returns
    /// whether the receive takes the message, and whether the receive ends now.
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
