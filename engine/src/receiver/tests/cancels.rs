//! Receives that are cancelled because of the memory that they receive into.

use std::ops::Range;

use super::*;

/// Memory that is never freed.
struct Memory {
    start: *mut u8,
}

impl Memory {
    const LEN_BYTES: usize = 256;

    fn leak() -> Memory {
        Memory { start: vec![0; Memory::LEN_BYTES].leak().as_mut_ptr() }
    }

    fn segment(&self, range: &Range<usize>) -> SegmentMut {
        assert!(range.end <= Memory::LEN_BYTES);
        SegmentMut { address: self.start.wrapping_add(range.start), len_bytes: range.len() }
    }

    /// Returns a destination in this memory. No two destinations of a test have a byte in common.
    fn destination(&self, range: Range<usize>) -> Destination {
        #[expect(unsafe_code, reason = "only memory of the raw tier has a place")]
        // SAFETY: the memory is initialised and never freed, and nothing but the destinations uses it.
        unsafe { Destination::raw(&[self.segment(&range)]) }.unwrap()
    }
}

/// Removes the recorded ends. Returns their contexts, each with whether the receive was cancelled.
#[track_caller]
fn take_contexts_and_cancels(asked: &mut EffectsRecorder) -> Vec<(u64, bool)> {
    let ended = asked.take_ended().into_iter();
    ended
        .map(|(context, end)| {
            end.as_ref().err().into_iter().for_each(|error| assert_eq!(*error, OperationError::Cancelled));
            (context, end.is_err())
        })
        .collect()
}

#[test]
fn buffer_is_cancelled_if_its_rest_is_in_the_range() {
    // The buffer is 64..128, and the part of a message of 8 bytes is 64..72.
    let cases = [
        (None, 0..64, false),
        (None, 128..256, false),
        (None, 60..65, true),
        (None, 127..128, true),
        (Some(8), 60..72, false),
        (Some(8), 71..73, true),
        (Some(8), 72..256, true),
        (Some(8), 0..256, true),
    ];
    for (arriving_bytes, range, is_cancelled) in cases {
        let case = format!("{arriving_bytes:?}, {range:?}");
        let memory = Memory::leak();
        let (mut receiver, mut asked) = receiver_with_link();
        let destination = memory.destination(64..128);
        let request = ReceiveRequest { destination, ..receive_request(0, 9) };
        receiver.post_multi_receive(request, 8, None, &mut asked).unwrap();
        if let Some(len_bytes) = arriving_bytes {
            receiver.begin_message(LINK, &Message::of_len(len_bytes), &mut asked).unwrap();
            receiver.put_payload(LINK, b"half", &mut asked);
        }

        receiver.cancel_into(&memory.segment(&range), &mut asked);
        let mut ends = vec![];
        if arriving_bytes.is_some() {
            assert!(asked.ended.is_empty(), "the part has not ended: {case}");
            receiver.put_payload(LINK, b"half", &mut asked);
            ends.push((9, false));
        }
        if is_cancelled {
            let released = asked.ended.last().unwrap().as_ref().expect_err(&case);
            assert!(released.completion.flags.contains(CompletionFlags::MULTI_RECV), "{case}");
            ends.push((9, true));
        }
        assert_eq!(take_contexts_and_cancels(&mut asked), ends, "{case}");
        assert_eq!(receiver.outstanding_receives(), usize::from(!is_cancelled), "{case}");

        deliver_message(&mut receiver, LINK, b"later", &mut asked);
        let is_taken = !is_cancelled;
        assert_eq!(receiver.unexpected_len(), usize::from(!is_taken), "{case}");
        assert_eq!(take_contexts_and_cancels(&mut asked).len(), usize::from(is_taken), "{case}");
    }
}

#[test]
fn messages_into_a_range_leave_its_memory_alone_once_it_is_withdrawn() {
    let memory = Memory::leak();
    let (mut receiver, mut asked) = receiver_with_link();
    receiver.link_added(OTHER, PEER, MemberId::ONLY);
    receiver.set_pull_step_max_bytes(4);
    let message = make_message(8, AwaitedReply::Nothing);
    for (context, range) in [(1, 0..8), (2, 64..72), (3, 8..16)] {
        let destination = memory.destination(range);
        receiver.post(ReceiveRequest { destination, ..receive_request(0, context) }, &mut asked).unwrap();
    }
    // The first two messages are sent, the third is pulled.
    for link in [LINK, OTHER] {
        receiver.begin_message(link, &message, &mut asked).unwrap();
        receiver.put_payload(link, b"half", &mut asked);
    }
    receiver.message_offered(LINK, &message, 7, REMOTE, &mut asked).unwrap();
    receiver.pull_payloads(|_| true, make_pull_from(b"pullpull"), &mut asked);

    receiver.abandon_messages_into(&memory.segment(&(4..12)), MemberId::ONLY, &mut asked);
    let arrived: Vec<_> =
        asked.ended.iter().map(|ended| ended.as_ref().unwrap_err().completion.len_bytes).collect();
    assert_eq!(arrived, [4, 4]);
    let mut cancelled = take_contexts_and_cancels(&mut asked);
    cancelled.sort_unstable();
    assert_eq!(cancelled, [(1, true), (3, true)]);

    for link in [LINK, OTHER] {
        assert_eq!(receiver.payload_space(link).is_empty(), link == LINK);
        receiver.put_payload(link, b"rest", &mut asked);
    }
    receiver.pull_payloads(|_| true, make_pull_from(b"pullpull"), &mut asked);
    assert_eq!(asked.queued, [(LINK, Header::Done { op: 7, fault: false })]);
    assert_eq!(take_contexts_and_cancels(&mut asked), [(2, false)]);
    #[expect(unsafe_code, reason = "only memory of the raw tier has a place")]
    // SAFETY: the memory is initialised and never freed, and nothing changes it meanwhile.
    let bytes = unsafe { std::slice::from_raw_parts(memory.start, Memory::LEN_BYTES) };
    assert_eq!((&bytes[..16], &bytes[64..72]), (&b"half\0\0\0\0pull\0\0\0\0"[..], &b"halfrest"[..]));

    // The link goes on.
    receiver.post(receive_request(8, 4), &mut asked).unwrap();
    deliver_message(&mut receiver, LINK, b"next", &mut asked);
    assert_eq!(take_contexts_and_cancels(&mut asked), [(4, false)]);
    assert_eq!((receiver.outstanding_receives(), receiver.fetches_len()), (0, 0));
}
