//! What the entries of receives tell.

use crate::model::prelude::*;

/// The least length of a message that has no remote data: the message itself contains its identity.
pub(crate) const IDENTITY_BYTES: usize = 8;

/// Records an entry of a receive at a place: a message, the end of the receive, or both. A buffer ends when
/// it is released.
pub(crate) fn record_receive_entry(
    history: &mut History,
    offer: &Offer,
    with_data: bool,
    at: usize,
    receive: usize,
    ended: &Ended,
) -> ReceiveEnd {
    let flags = match ended {
        Ok((completion, _)) => completion.flags,
        Err(failed) => failed.completion.flags,
    };
    let posted = &history.receives[receive];
    let is_buffer = posted.buffer.is_some();
    let is_release = is_buffer && flags.contains(CompletionFlags::MULTI_RECV);
    let told = Told { history, offer, with_data };
    let end = if is_buffer && ended.is_ok() && flags == CompletionFlags::MULTI_RECV {
        ReceiveEnd::Released
    } else {
        match told.check_received_message(at, posted.len_bytes, ended) {
            Ok(message) => ReceiveEnd::Took(message),
            Err(OperationError::Cancelled) => ReceiveEnd::Cancelled,
            Err(error) => ReceiveEnd::Broken(expect_lost_sender_errno(&error)),
        }
    };
    // Another provider need not flag the end of a cancelled buffer.
    let is_unflagged_end = end == ReceiveEnd::Cancelled && !offer.is_homespun;
    let is_last = !is_buffer || is_release || is_unflagged_end;
    if let ReceiveEnd::Took(message) = end {
        assert!(!is_release || ended.is_ok(), "a failed entry releases the buffer: {ended:?}");
        history.record_taken(receive, message);
    } else if is_last {
        history.record(Event::Ended(Operation::Receive(receive)));
    }
    let posted = &mut history.receives[receive];
    if let Some(buffer) = &mut posted.buffer {
        buffer.has_lost |= matches!(end, ReceiveEnd::Broken(_)) && !is_last;
        if let ReceiveEnd::Took(message) = end {
            buffer.took.push(message);
        }
    }
    if is_last {
        let is_released = is_buffer && matches!(end, ReceiveEnd::Took(_));
        posted.ended = Some(if is_released { ReceiveEnd::Released } else { end });
    }
    end
}

/// What the completions of messages tell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told<'a> {
    pub(crate) history: &'a History,
    pub(crate) offer: &'a Offer,
    /// Whether messages carry their identity as remote data.
    pub(crate) with_data: bool,
}

impl Told<'_> {
    /// Checks the end of a receive. Returns the identity of the received message, or the error.
    pub(crate) fn check_received_message(
        self,
        at: usize,
        room_bytes: usize,
        ended: &Ended,
    ) -> Result<usize, OperationError> {
        let (completion, source, overflow_bytes) = match ended {
            Ok((completion, source)) => (completion, *source, 0),
            Err(failed) => match failed.error {
                OperationError::Truncated { overflow_bytes } => {
                    assert!(overflow_bytes > 0 || !self.offer.is_homespun);
                    (&failed.completion, failed.source, overflow_bytes)
                }
                ref error => return Err(error.clone()),
            },
        };
        let bytes = received_bytes(&completion.buffer);
        let identity = if self.with_data {
            completion.data
        } else {
            u64::from_le_bytes(bytes[..IDENTITY_BYTES].try_into().expect("that many bytes"))
        };
        let identity = usize::try_from(identity).expect("a small number");
        let len_bytes = self.check_completion_fields(at, identity, completion, source);
        // The semantic tests say which fields another provider fills in where it cuts a message off.
        if self.offer.is_homespun || len_bytes <= room_bytes {
            assert_eq!(completion.len_bytes, len_bytes.min(room_bytes));
            assert_eq!(overflow_bytes, (len_bytes - completion.len_bytes) as u64);
        }
        assert!(bytes.len() == completion.len_bytes || !self.offer.is_homespun, "{completion:?}");
        assert!(bytes == payload(identity as u64, bytes.len()), "message {identity} has other bytes");
        Ok(identity)
    }

    /// Checks the fields of a received message's completion. Returns the length that was sent.
    pub(crate) fn check_completion_fields(
        self,
        at: usize,
        identity: usize,
        completion: &Completion,
        source: FabricAddress,
    ) -> usize {
        let with_data = self.with_data;
        let send =
            self.history.sends.get(identity).unwrap_or_else(|| panic!("{completion:?} was never sent"));
        let mut flags = CompletionFlags::RECV;
        flags |= if send.tag.is_some() { CompletionFlags::TAGGED } else { CompletionFlags::MSG };
        flags.set(CompletionFlags::REMOTE_CQ_DATA, with_data);
        self.offer.check_flags(completion, flags);
        if self.offer.is_homespun || send.tag.is_some() {
            assert_eq!(completion.tag, send.tag.unwrap_or(0));
        }
        if self.offer.is_homespun || with_data {
            assert_eq!(completion.data, if with_data { identity as u64 } else { 0 });
        }
        assert_eq!(send.post.to, at, "message {identity} was for another endpoint");
        if self.offer.caps.contains(Caps::SOURCE) {
            assert_eq!(source, self.history.source_of(send.post.by.place));
        }
        send.len_bytes
    }
}

/// Returns the errno of a receive that lost its sender. Panics for any other error.
pub(crate) fn expect_lost_sender_errno(error: &OperationError) -> Errno {
    match error {
        OperationError::Fault | OperationError::Link(_) => error.errno(),
        other => panic!("a receive failed: {other}"),
    }
}
