//! The notice of a write that takes a receive; see [`notices`](super::notices).

use crate::completion::EndedOperation;
use crate::flags::CompletionFlags;
use crate::mutated;
use crate::operation::Receive;
use crate::peer_id::PeerId;
use crate::wire::Message;

/// The notice of a peer's write with remote data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WriteNotice {
    /// The remote data.
    pub(crate) data: u64,
    /// The length of the write.
    pub(crate) len_bytes: usize,
}

impl WriteNotice {
    /// The flags of the completion of a write with remote data, at its target.
    pub(crate) const FLAGS: CompletionFlags =
        CompletionFlags::RMA.union(CompletionFlags::REMOTE_WRITE).union(CompletionFlags::REMOTE_CQ_DATA);

    /// Returns the message as which the notice is matched.
    pub(super) fn as_message(&self) -> Message {
        Message { data: Some(self.data), ..Message::of_len(0) }
    }

    /// Makes the completion of a receive or a peek, which has got the notice as a message, describe
    /// the write.
    pub(super) fn describe_write_in(&self, completion: &mut EndedOperation) {
        completion.flags = WriteNotice::FLAGS;
        completion.len_bytes = self.len_bytes;
        if mutated!("fi_cq/context-of-receive-for-remote-data") {
            completion.context = 0;
        }
    }

    /// Returns the completion of a receive that has taken the notice. The receive's memory comes
    /// back without received bytes.
    pub(super) fn take_completion(&self, receive: &mut Receive, source: PeerId) -> EndedOperation {
        let mut completion = receive.take_completion(source, &self.as_message(), 0);
        self.describe_write_in(&mut completion);
        completion
    }
}
