//! What tests do again and again with a party.

use homespun::endpoint::RecvMsg;
use homespun::flags::OpFlags;
use homespun::{Bytes, Completion, CompletionError, Errno, FabricAddress, SendMsg, Tag, TagMatch};

use super::Party;
use crate::payload::{marked_buffer, payload, received_bytes};
use crate::rma_call::RmaCall;

impl Party {
    /// Returns a message to the peer, whose context is also the identity of its payload.
    pub fn message(&self, context: u64, len_bytes: usize, flags: OpFlags) -> SendMsg {
        let buffers = vec![payload(context, len_bytes)];
        SendMsg { buffers, to: self.peer(), context, flags, ..SendMsg::default() }
    }

    /// Sends a [message](Self::message).
    #[track_caller]
    pub fn post_send(&self, context: u64, len_bytes: usize, flags: OpFlags) {
        self.endpoint.sendmsg(self.message(context, len_bytes, flags)).expect("room for a send");
    }

    /// Waits for the completion of a receive, with this context and this message.
    #[track_caller]
    pub fn expect_message(&self, context: u64, message: &[u8]) -> Completion {
        let completion = self.next_completion();
        assert_eq!(completion.context, context);
        assert!(received_bytes(&completion.buffer) == message, "receive {context} has another message");
        completion
    }

    /// Waits until operations with these contexts have succeeded, in any order.
    #[track_caller]
    pub fn expect_each(&self, contexts: impl IntoIterator<Item = u64>) {
        let mut expected: Vec<u64> = contexts.into_iter().collect();
        let mut found: Vec<u64> = expected.iter().map(|_| self.next_completion().context).collect();
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected);
    }

    /// Waits until operations with these contexts have failed, in any order, and checks each failure. No
    /// other operation may end.
    #[track_caller]
    pub fn expect_failures(&self, contexts: &[u64], check: impl Fn(&CompletionError)) {
        let next_context = |_: &u64| {
            let failed = self.next_failure();
            check(&failed);
            failed.completion.context
        };
        let mut failed: Vec<u64> = contexts.iter().map(next_context).collect();
        failed.sort_unstable();
        let mut contexts = contexts.to_vec();
        contexts.sort_unstable();
        assert_eq!(failed, contexts);
        self.assert_no_completion();
    }

    /// Sends a message that no receive takes yet. homespun waits until it has arrived. Another provider may
    /// deliver such a message only when a receive takes it.
    #[track_caller]
    pub fn send_unexpected(&self, send: SendMsg) {
        if self.is_homespun() {
            self.send_and_wait_for_delivery(send);
        } else {
            self.endpoint.sendmsg(send).expect("room for a send");
        }
    }

    /// Sends a message to the peer, and waits for the completion.
    #[track_caller]
    pub fn send(&self, context: u64, message: Bytes) {
        self.endpoint.send(message, self.peer(), context).expect("room for a send");
        assert_eq!(self.next_completion().context, context);
    }

    /// Posts receives from any source, with these contexts and buffers of this length.
    #[track_caller]
    pub fn post_receives(&self, contexts: impl IntoIterator<Item = u64>, len_bytes: usize) {
        for context in contexts {
            let (buffer, any) = (marked_buffer(len_bytes), FabricAddress::UNSPECIFIED);
            self.endpoint.recv(buffer, any, context).expect("room for a receive");
        }
    }

    /// Posts a receive from any source by `fi_recvmsg(3)`, or with a tag by `fi_trecvmsg(3)`.
    #[track_caller]
    pub fn post_receive(&self, context: u64, len_bytes: usize, tag: Option<Tag>, flags: OpFlags) {
        let (buffers, tagged) = (vec![marked_buffer(len_bytes)], tag.map(TagMatch::from));
        let receive = RecvMsg { buffers, tagged, context, flags, ..RecvMsg::default() };
        self.endpoint.recvmsg(receive).expect("room for a receive");
    }

    /// Posts a receive from any source, and waits for the next completion, which must be the receive's.
    #[track_caller]
    pub fn receive(&self, context: u64, len_bytes: usize) -> Completion {
        self.post_receives([context], len_bytes);
        let completion = self.next_completion();
        assert_eq!(completion.context, context);
        completion
    }

    /// As [`receive`](Self::receive), and checks the message.
    #[track_caller]
    pub fn receive_message(&self, context: u64, len_bytes: usize, message: &[u8]) -> Completion {
        self.post_receives([context], len_bytes);
        self.expect_message(context, message)
    }

    /// Waits until operations with these contexts have succeeded, in this order.
    #[track_caller]
    pub fn expect_in_order(&self, contexts: impl IntoIterator<Item = u64>) {
        for context in contexts {
            assert_eq!(self.next_completion().context, context);
        }
    }

    /// Waits until so many operations have succeeded.
    #[track_caller]
    pub fn await_completions(&self, count: usize) {
        for _ in 0..count {
            self.next_completion();
        }
    }

    /// Waits for the failure of the operation with this context.
    #[track_caller]
    pub fn expect_failure(&self, context: u64, errno: Errno) -> CompletionError {
        let failed = self.next_failure();
        assert_eq!((failed.completion.context, failed.errno()), (context, errno));
        failed
    }

    /// As [`post_send`](Self::post_send), and the context is the tag, too.
    #[track_caller]
    pub fn post_tagged(&self, context: u64, len_bytes: usize, flags: OpFlags) {
        let message = self.message(context, len_bytes, flags);
        let tagged = SendMsg { tag: Some(Tag(context)), ..message };
        self.endpoint.sendmsg(tagged).expect("room for a send");
    }

    /// Receives the message with this tag, which is the identity of its payload, too.
    #[track_caller]
    pub fn receive_tagged(&self, tag: u64, len_bytes: usize) {
        let (buffer, any) = (marked_buffer(len_bytes), FabricAddress::UNSPECIFIED);
        self.endpoint.trecv(buffer, any, Tag(tag), tag).expect("room for a receive");
        assert_eq!(self.expect_message(tag, &payload(tag, len_bytes)).tag, tag);
    }

    /// Sends a [message](Self::message), and waits until it has arrived.
    #[track_caller]
    pub fn deliver(&self, context: u64, len_bytes: usize) {
        self.send_and_wait_for_delivery(self.message(context, len_bytes, OpFlags::empty()));
    }

    /// As [`deliver`](Self::deliver), with a tag.
    #[track_caller]
    pub fn deliver_tagged(&self, tag: u64, context: u64, len_bytes: usize) {
        let message = self.message(context, len_bytes, OpFlags::empty());
        self.send_and_wait_for_delivery(SendMsg { tag: Some(Tag(tag)), ..message });
    }

    /// Posts an access to a region, and waits for its completion.
    #[track_caller]
    pub fn access(&self, call: RmaCall) -> Completion {
        let context = call.context;
        self.endpoint.rma(call).expect("room for an access");
        let completion = self.next_completion();
        assert_eq!(completion.context, context);
        completion
    }
}
