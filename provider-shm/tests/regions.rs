//! Payload in shareable memory, which the receiver maps, as a faulty or unlucky peer describes it.

use std::io::{IoSlice, IoSliceMut};

use homespun_conformance::transport::{Backend, TestEndpoint};
use homespun_engine::buffer::SendBuffer;
use homespun_engine::transport::{LinkId, Pull, RemotePayload, Transport};
use homespun_shm::limits::MAP_FAILURES_MAX;
use homespun_shm::{ShmProvider, ShmTransport};

const LEN_BYTES: usize = 64 << 10;

/// The places of the fields in the description of one slice of a region.
const NONCE: usize = 3;
const OFFSET: usize = 19;
const LENGTH: usize = 25;
const DESCRIPTION_BYTES: usize = 31;

struct Linked {
    exposer: TestEndpoint<ShmTransport>,
    puller: TestEndpoint<ShmTransport>,
    at_exposer: LinkId,
    at_puller: LinkId,
    buffer: SendBuffer,
}

impl Linked {
    fn new() -> Linked {
        let provider = ShmProvider::new();
        let ([exposer, puller], at_exposer, at_puller) = Backend::new(&provider).open_linked_pair();
        let mut buffer = SendBuffer::allocate(&provider, LEN_BYTES).unwrap();
        buffer.get_mut().unwrap().iter_mut().zip(0_u32..).for_each(|(byte, n)| *byte = (n % 251) as u8);
        Linked { exposer, puller, at_exposer, at_puller, buffer }
    }

    fn prefers_pull(&self, payload: &[IoSlice<'_>]) -> bool {
        self.exposer.transport.prefers_pull(self.at_exposer, payload)
    }

    fn describe_buffer(&mut self) -> Vec<u8> {
        let whole = [IoSlice::new(&self.buffer)];
        self.exposer.transport.expose(self.at_exposer, &whole).unwrap().as_bytes().to_vec()
    }

    fn pull(&mut self, description: &[u8], into: &mut [u8]) -> Pull {
        let remote = RemotePayload::new(description).unwrap();
        self.puller.transport.pull(self.at_puller, &remote, 0, &mut [IoSliceMut::new(into)])
    }

    #[track_caller]
    fn assert_whole_buffer_is_pulled(&mut self) {
        let description = self.describe_buffer();
        let mut into = vec![0; LEN_BYTES];
        assert_eq!(self.pull(&description, &mut into), Pull::Done);
        assert!(into == *self.buffer);
    }
}

#[test]
fn payload_in_one_region_is_always_pulled() {
    let linked = Linked::new();
    let (bytes, elsewhere) = (&linked.buffer, vec![0; LEN_BYTES]);
    assert!(linked.prefers_pull(&[IoSlice::new(bytes)]));
    assert!(linked.prefers_pull(&[IoSlice::new(&bytes[100..]), IoSlice::new(&bytes[..100])]));
    assert!(!linked.prefers_pull(&[IoSlice::new(&elsewhere)]), "nothing was measured yet");
    assert!(!linked.prefers_pull(&[IoSlice::new(bytes), IoSlice::new(&elsewhere)]));
}

#[test]
fn region_that_cannot_be_mapped_is_read_by_the_kernel() {
    let mut linked = Linked::new();
    let mut description = linked.describe_buffer();
    description[NONCE] ^= 1;
    for attempt in 0..=MAP_FAILURES_MAX {
        let buffer = linked.buffer.to_vec();
        assert_eq!(linked.prefers_pull(&[IoSlice::new(&linked.buffer)]), attempt < MAP_FAILURES_MAX);
        let mut into = vec![0; LEN_BYTES];
        match linked.pull(&description, &mut into) {
            Pull::Done => assert!(into == buffer),
            // This host forbids copies between processes. The sender sends the payload instead.
            Pull::Declined => {}
            pulled => panic!("{pulled:?}"),
        }
    }
    let description = linked.describe_buffer();
    assert_ne!(description.len(), DESCRIPTION_BYTES, "the peer maps nothing");
}

#[test]
fn range_beyond_the_region_is_not_read() {
    let mut linked = Linked::new();
    linked.assert_whole_buffer_is_pulled();
    let description = linked.describe_buffer();
    for (offset, len_bytes) in [
        (0, LEN_BYTES as u64 + 1),
        (1, LEN_BYTES as u64),
        (LEN_BYTES as u64, 16),
        (1 << 30, 16),
        ((1 << 48) - 1, 16),
        (0, (1 << 48) - 1),
    ] {
        let mut tampered = description.clone();
        tampered[OFFSET..LENGTH].copy_from_slice(&u64::to_le_bytes(offset)[..6]);
        tampered[LENGTH..].copy_from_slice(&u64::to_le_bytes(len_bytes)[..6]);
        let mut into = vec![0; usize::try_from(len_bytes).unwrap().min(LEN_BYTES + 1)];
        assert_eq!(linked.pull(&tampered, &mut into), Pull::Fault, "{len_bytes} bytes at {offset}");
    }
    linked.assert_whole_buffer_is_pulled();
}
