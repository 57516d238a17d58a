//! Receives that are cancelled because of the memory that they receive into.

use std::ops::Range;

use super::*;

const FROM_PEER: Criteria = Criteria { source: Some(PEER), ..Criteria::any() };

/// The start and the end of each piece of a receive's memory.
type Pieces<'a> = &'a [(usize, usize)];

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
    fn destination(&self, pieces: Pieces<'_>) -> Destination {
        let segments: Vec<_> = pieces.iter().map(|&(start, end)| self.segment(&(start..end))).collect();
        #[expect(unsafe_code, reason = "only memory of the raw tier has a place")]
        // SAFETY: the memory is initialised and never freed, and nothing but the destinations uses it.
        unsafe { Destination::raw(&segments) }.unwrap()
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
fn posted_receives_into_a_range_are_cancelled_and_all_others_stay() {
    const ANY: Criteria = Criteria::any();
    const UNTAGGED: bool = false;
    const TAGGED: bool = true;
    let range = 64..128;
    let in_memory: [(u64, bool, Criteria, Pieces); 12] = [
        // The first untagged and the first tagged message match these two.
        (1, UNTAGGED, ANY, &[(64, 72)]),
        (2, TAGGED, ANY, &[(72, 80)]),
        (3, UNTAGGED, ANY, &[(80, 88)]),
        (4, UNTAGGED, ANY, &[(56, 64)]),
        (5, TAGGED, ANY, &[(88, 96)]),
        (6, TAGGED, ANY, &[(128, 136)]),
        (7, UNTAGGED, FROM_PEER, &[(96, 104)]),
        (8, TAGGED, FROM_PEER, &[(104, 112)]),
        (9, UNTAGGED, FROM_PEER, &[(0, 8)]),
        (10, UNTAGGED, ANY, &[(8, 16), (127, 128)]),
        (11, TAGGED, ANY, &[(120, 127), (144, 152)]),
        (12, TAGGED, ANY, &[(16, 24), (152, 160)]),
    ];
    let memory = Memory::leak();
    let (mut receiver, mut asked) = receiver_with_link();
    receiver.link_added(OTHER, PEER, MemberId::ONLY);
    for (context, tagged, criteria, pieces) in in_memory {
        let destination = memory.destination(pieces);
        let request = ReceiveRequest { destination, tagged, criteria, ..receive_request(0, context) };
        receiver.post(request, &mut asked).unwrap();
    }
    for (context, tagged) in [(13, UNTAGGED), (14, TAGGED)] {
        receiver.post(ReceiveRequest { tagged, ..receive_request(8, context) }, &mut asked).unwrap();
    }
    let tagged_message = Message { tag: Some(5), ..Message::of_len(8) };
    for (link, message) in [(LINK, Message::of_len(8)), (OTHER, tagged_message)] {
        receiver.begin_message(link, &message, &mut asked).unwrap();
        receiver.put_payload(link, b"half", &mut asked);
    }

    receiver.cancel_into(&memory.segment(&range), &mut asked);
    let is_tagged = |ended: &Result<EndedOperation, FailedOperation>| {
        ended.as_ref().unwrap_err().completion.flags.contains(CompletionFlags::TAGGED)
    };
    assert_eq!(
        asked.ended.iter().map(is_tagged).collect::<Vec<_>>(),
        [UNTAGGED, UNTAGGED, UNTAGGED, TAGGED, TAGGED, TAGGED]
    );
    assert_eq!(
        take_contexts_and_cancels(&mut asked),
        [(3, true), (7, true), (10, true), (5, true), (8, true), (11, true)]
    );
    assert_eq!(asked.counted, [(CounterEvents::RECV, false); 6]);
    assert_eq!(receiver.outstanding_receives(), 8);
    receiver.cancel_into(&memory.segment(&range), &mut asked);
    assert!(asked.ended.is_empty(), "they are no longer posted");

    // The matched receives get the rest of their messages, and the others match in their old order.
    for link in [LINK, OTHER] {
        receiver.put_payload(link, b"half", &mut asked);
    }
    assert_eq!(take_contexts_and_cancels(&mut asked), [(1, false), (2, false)]);
    for message in [Message::of_len(8), tagged_message] {
        for _ in 0..3 {
            receiver.message_arrived(LINK, &message, b"in whole", &mut asked).unwrap();
        }
    }
    let others = [4, 9, 13, 6, 12, 14].map(|context| (context, false));
    assert_eq!(take_contexts_and_cancels(&mut asked), others);
    assert_eq!((receiver.outstanding_receives(), receiver.unexpected_len()), (0, 0));
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
        let destination = memory.destination(&[(64, 128)]);
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

        deliver_message(&mut receiver, LINK, b"later", AwaitedReply::Nothing, &mut asked).unwrap();
        let is_taken = !is_cancelled;
        assert_eq!(receiver.unexpected_len(), usize::from(!is_taken), "{case}");
        assert_eq!(take_contexts_and_cancels(&mut asked).len(), usize::from(is_taken), "{case}");
    }
}
