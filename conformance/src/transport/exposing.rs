//! Exposing and pulling payload.
//!
//! These tests apply only to links that pull. A transport that cannot pull says so in its caps. A transport
//! may refuse a pull at any time, and must then refuse all later pulls. It may also decline the pull of one
//! payload. A pull must never panic. A pull that succeeds must deliver the payload's bytes.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Deref;

use fastrand::Rng;
use homespun_engine::buffer::SendBuffer;
use homespun_engine::limits::{IOV_LIMIT, REMOTE_MAX_BYTES};
use homespun_engine::transport::{Close, LinkId, Provider, Pull, RemotePayload, Transport};

use crate::transport::test_endpoint::assert_link_works;
use crate::transport::{BUDGET_FRAMES, Backend, TestEndpoint, pseudo_random_payload};

/// By how many bytes the exposed payload is longer than `pull_min_bytes` of the link's caps.
const EXPOSED_BYTES: usize = 300_000;

/// If more links than this refuse their first pull, the backend counts as unable to pull.
const REFUSALS_MAX: usize = 5;

/// Finds out whether links of this backend pull payload.
pub(super) fn probe_pulls<P: Provider>(backend: Backend<'_, P>) -> bool {
    let is_done = |mut exposure: Exposure<_>| exposure.pull(0, exposure.bytes.len()).0 == Pull::Done;
    (0..=REFUSALS_MAX).any(|_| Exposure::try_new(backend, PayloadMemory::Vector).is_some_and(is_done))
}

/// The memory of exposed payload. A transport may pull from the two in different ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PayloadMemory {
    Vector,
    /// Memory that peers can map, if the backend has such memory.
    SendBuffer,
}

impl PayloadMemory {
    const ALL: [PayloadMemory; 2] = [PayloadMemory::Vector, PayloadMemory::SendBuffer];

    /// How many pieces the payload is exposed in. A transport may have a longer description for memory that
    /// peers can map, and then fewer pieces.
    fn pieces(self) -> usize {
        match self {
            PayloadMemory::Vector => IOV_LIMIT,
            PayloadMemory::SendBuffer => 2,
        }
    }
}

/// Payload in memory of one of these kinds.
enum Payload {
    Vector(Vec<u8>),
    SendBuffer(SendBuffer),
}

impl Payload {
    fn new<P: Provider>(backend: Backend<'_, P>, memory: PayloadMemory, bytes: Vec<u8>) -> Payload {
        match memory {
            PayloadMemory::Vector => Payload::Vector(bytes),
            PayloadMemory::SendBuffer => {
                let buffer = SendBuffer::allocate(backend.provider(), bytes.len());
                let mut payload = Payload::SendBuffer(buffer.expect("the system has memory"));
                payload.overwrite(&bytes);
                payload
            }
        }
    }

    fn overwrite(&mut self, bytes: &[u8]) {
        let place = match self {
            Payload::Vector(vector) => vector,
            Payload::SendBuffer(buffer) => buffer.get_mut().expect("nothing else uses the buffer"),
        };
        place.copy_from_slice(bytes);
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Payload::Vector(vector) => vector,
            Payload::SendBuffer(buffer) => buffer,
        }
    }
}

/// A link with payload that one side exposes to the other.
struct Exposure<T> {
    exposer: TestEndpoint<T>,
    puller: TestEndpoint<T>,
    /// The exposing side's number for the link.
    at_exposer: LinkId,
    /// The pulling side's number for the link.
    at_puller: LinkId,
    bytes: Payload,
    remote: RemotePayload,
    /// Whether the link has refused a pull. Then it refuses all further pulls.
    was_refused: bool,
}

impl<T: Transport> Exposure<T> {
    fn new<P: Provider<Transport = T>>(backend: Backend<'_, P>, memory: PayloadMemory) -> Exposure<T> {
        Exposure::try_new(backend, memory).expect("a backend whose links pull exposes payload")
    }

    /// Returns `None` if the backend's links do not pull.
    fn try_new<P: Provider<Transport = T>>(
        backend: Backend<'_, P>,
        memory: PayloadMemory,
    ) -> Option<Exposure<T>> {
        let ([mut exposer, puller], at_exposer, at_puller) = backend.open_linked_pair();
        let min_bytes = exposer.transport.caps(at_exposer).pull_min_bytes;
        let bytes = pseudo_random_payload(min_bytes.checked_add(EXPOSED_BYTES)?, 1);
        let bytes = Payload::new(backend, memory, bytes);
        let remote = exposer.transport.expose(at_exposer, &split_into_pieces(&bytes, memory.pieces()))?;
        assert!(remote.as_bytes().len() <= REMOTE_MAX_BYTES);
        Some(Exposure { exposer, puller, at_exposer, at_puller, bytes, remote, was_refused: false })
    }

    /// Pulls into three slices, and returns their content.
    #[track_caller]
    fn pull(&mut self, offset_bytes: u64, count_bytes: usize) -> (Pull, Vec<u8>) {
        let remote = self.remote.clone();
        self.pull_from(&remote, offset_bytes, count_bytes)
    }

    #[track_caller]
    fn pull_from(
        &mut self,
        remote: &RemotePayload,
        offset_bytes: u64,
        count_bytes: usize,
    ) -> (Pull, Vec<u8>) {
        let mut place = vec![0; count_bytes];
        let (first, rest) = place.split_at_mut(count_bytes / 5);
        let (second, third) = rest.split_at_mut(rest.len() / 2);
        let mut into = [first, second, third].map(IoSliceMut::new);
        let pulled = self.puller.transport.pull(self.at_puller, remote, offset_bytes, &mut into);
        assert!(!(self.was_refused && pulled == Pull::Done), "refused before, and done now");
        self.was_refused |= pulled == Pull::Refused;
        (pulled, place)
    }

    /// Asserts that the link still carries frames.
    #[track_caller]
    fn assert_link_works(self) {
        assert_link_works([self.exposer, self.puller], [self.at_exposer, self.at_puller]);
    }

    /// Pulls a part of this payload, which is exposed at `remote`: the transport reads it, or does not pull.
    #[track_caller]
    fn check_pull(
        &mut self,
        remote: &RemotePayload,
        payload: &[u8],
        offset_bytes: usize,
        count_bytes: usize,
    ) {
        let (pulled, place) = self.pull_from(remote, offset_bytes as u64, count_bytes);
        assert!(pulled == Pull::Done || is_not_pulled(pulled), "{pulled:?} of exposed payload");
        let is_exact = place == payload[offset_bytes..][..count_bytes];
        assert!(pulled != Pull::Done || is_exact, "other bytes at {offset_bytes}, of {count_bytes}");
    }

    /// Asserts that further pulls fail. Asserts that the link ends at the pulling side.
    fn assert_pulls_fail_and_link_ends(mut self) {
        for (offset_bytes, count_bytes) in [(0, self.bytes.len()), (0, 1), (1000, 5000)] {
            let (pulled, _) = self.pull(offset_bytes, count_bytes);
            assert!(pulled == Pull::Gone || is_not_pulled(pulled), "{pulled:?} of withdrawn payload");
        }
        self.puller.drive_until_down(self.at_puller);
    }
}

/// Whether the peer must send the payload instead.
fn is_not_pulled(pulled: Pull) -> bool {
    matches!(pulled, Pull::Refused | Pull::Declined)
}

/// Splits payload into pieces of different lengths.
fn split_into_pieces(bytes: &[u8], count: usize) -> Vec<IoSlice<'_>> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    for n in 1..count {
        let (piece, left) = rest.split_at(rest.len() / (n + 2));
        pieces.push(IoSlice::new(piece));
        rest = left;
    }
    pieces.push(IoSlice::new(rest));
    pieces
}

/// After [`Pull::Done`], `into` holds the exposed payload from the offset on, whether the payload was
/// exposed in one piece or in many. After one refused pull, all further pulls are refused.
pub fn pull_reads_exposed_payload_whole_and_in_parts<P: Provider>(backend: Backend<'_, P>) {
    for memory in PayloadMemory::ALL {
        let mut exposure = Exposure::new(backend, memory);
        let len_bytes = exposure.bytes.len();
        let mut parts =
            vec![(0, len_bytes), (0, 1), (len_bytes - 1, 1), (1, len_bytes - 1), (len_bytes / 2, 4096)];
        let mut end_bytes = 0;
        for piece in split_into_pieces(&exposure.bytes, memory.pieces()) {
            end_bytes += piece.len();
            let across_bytes = (len_bytes - end_bytes).min(1000) + 1000;
            parts.extend([(end_bytes - 10, 10), (end_bytes - 1000, across_bytes)]);
        }
        let (in_pieces, bytes) = (exposure.remote.clone(), exposure.bytes.to_vec());
        for (offset_bytes, count_bytes) in parts {
            exposure.check_pull(&in_pieces, &bytes, offset_bytes, count_bytes);
        }
        let whole = [IoSlice::new(&exposure.bytes)];
        let whole = exposure.exposer.transport.expose(exposure.at_exposer, &whole);
        exposure.check_pull(&whole.expect("it was exposed in pieces"), &bytes, 0, len_bytes);
        exposure.assert_link_works();
    }
}

/// The peer may pull exposed payload repeatedly and in any order: between frames, and while other payload is
/// exposed on the same link.
pub fn pull_again_reads_the_same_payload<P: Provider>(backend: Backend<'_, P>) {
    for memory in PayloadMemory::ALL {
        let mut exposure = Exposure::new(backend, memory);
        let other = Payload::new(backend, memory, pseudo_random_payload(exposure.bytes.len(), 3));
        let (link, whole) = (exposure.at_exposer, [IoSlice::new(&other)]);
        let other_remote = exposure.exposer.transport.expose(link, &whole).expect("the first was exposed");
        let both = [(exposure.remote.clone(), exposure.bytes.to_vec()), (other_remote, other.to_vec())];
        let parts = [(5000, 100_000), (0, 5001), (5000, 100_000), (0, other.len()), (0, 5001)];
        for (round, (offset_bytes, count_bytes)) in parts.into_iter().enumerate() {
            for (remote, bytes) in &both {
                exposure.check_pull(remote, bytes, offset_bytes, count_bytes);
            }
            let Exposure { exposer, puller, at_exposer, at_puller, .. } = &mut exposure;
            exposer.post(*at_exposer, pseudo_random_payload(50, 4));
            let deadline = backend.deadline_from_now();
            while puller.recorder.frame_count(*at_puller) <= round {
                exposer.transmit();
                puller.receive(BUDGET_FRAMES);
                deadline.yield_or_panic("a frame between pulls");
            }
        }
    }
}

/// After the peer's pulls, the application may change the memory and expose it again. Later pulls read the
/// new content.
pub fn pull_of_memory_that_is_exposed_again_reads_its_new_content<P: Provider>(backend: Backend<'_, P>) {
    for memory in PayloadMemory::ALL {
        let mut exposure = Exposure::new(backend, memory);
        for round in 0..3 {
            let (remote, bytes) = (exposure.remote.clone(), exposure.bytes.to_vec());
            exposure.check_pull(&remote, &bytes, 0, bytes.len());
            let changed = pseudo_random_payload(exposure.bytes.len(), 10 + round);
            exposure.bytes.overwrite(&changed);
            let pieces = split_into_pieces(&exposure.bytes, memory.pieces());
            let remote = exposure.exposer.transport.expose(exposure.at_exposer, &pieces);
            exposure.remote = remote.expect("it was exposed before");
        }
        exposure.assert_link_works();
    }
}

/// A pull beyond the end of the exposed payload fails, whatever lies there in memory. The link stays usable.
pub fn pull_beyond_exposed_memory_fails<P: Provider>(backend: Backend<'_, P>) {
    for memory in PayloadMemory::ALL {
        let mut exposure = Exposure::new(backend, memory);
        let len_bytes = exposure.bytes.len() as u64;
        for (offset_bytes, count_bytes) in [
            (len_bytes, 1),
            (len_bytes - 1, 2),
            (0, exposure.bytes.len() + 1),
            (len_bytes + 1, 1),
            (u64::MAX, 1),
            (u64::MAX - 10, 4096),
        ] {
            let (pulled, _) = exposure.pull(offset_bytes, count_bytes);
            let is_refused = pulled == Pull::Fault || is_not_pulled(pulled);
            assert!(is_refused, "{pulled:?} at {offset_bytes} of {len_bytes}");
        }
        exposure.assert_link_works();
    }
}

/// A pull from a meaningless description fails. A pull from a tampered description does no harm. The link
/// stays usable.
pub fn pull_from_an_invalid_description_fails<P: Provider>(backend: Backend<'_, P>) {
    for memory in PayloadMemory::ALL {
        let mut exposure = Exposure::new(backend, memory);
        let mut rng = Rng::with_seed(7);
        for len_bytes in 0..=REMOTE_MAX_BYTES {
            let mut bytes = vec![0; len_bytes];
            for _ in 0..20 {
                let nonsense = RemotePayload::new(&bytes).expect("short enough");
                for (offset_bytes, count_bytes) in [(0, 1), (0, 70_000), (u64::MAX, 1), (rng.u64(..), 4096)] {
                    let (pulled, _) = exposure.pull_from(&nonsense, offset_bytes, count_bytes);
                    assert!(pulled == Pull::Fault || is_not_pulled(pulled), "{pulled:?} of {bytes:?}");
                }
                rng.fill(&mut bytes);
            }
        }
        // Some of these descriptions may still describe memory of the peer.
        let good = exposure.remote.as_bytes().to_vec();
        for _ in 0..200 {
            let mut bytes = good.clone();
            if let Some(byte) = rng.choice(&mut bytes) {
                *byte ^= 1 << rng.u32(0..8);
            }
            bytes.truncate(rng.usize(0..=good.len() * 2).min(good.len()));
            let tampered = RemotePayload::new(&bytes).expect("short enough");
            let (pulled, _) = exposure.pull_from(&tampered, rng.u64(0..400_000), 5000);
            assert_ne!(pulled, Pull::Gone, "the peer is still connected");
        }
        exposure.assert_link_works();
    }
}

/// Once the exposing side has called [`close`](Transport::close), no pull succeeds, even if the pulling side
/// has not yet seen the end.
pub fn pull_after_close_fails<P: Provider>(backend: Backend<'_, P>) {
    for memory in PayloadMemory::ALL {
        for how in [Close::Drain, Close::Abort] {
            for pulls_before in [false, true] {
                let mut exposure = Exposure::new(backend, memory);
                if pulls_before {
                    exposure.pull(0, exposure.bytes.len());
                }
                exposure.exposer.close(exposure.at_exposer, how);
                exposure.assert_pulls_fail_and_link_ends();
            }
        }
    }
}

/// Once the exposing transport was dropped, no pull succeeds.
pub fn pull_after_transport_drop_fails<P: Provider>(backend: Backend<'_, P>) {
    for memory in PayloadMemory::ALL {
        for pulls_before in [false, true] {
            let mut exposure = Exposure::new(backend, memory);
            if pulls_before {
                exposure.pull(0, exposure.bytes.len());
            }
            // Another endpoint takes the address of the exposing one.
            let address = exposure.exposer.address();
            exposure.exposer = backend.open_endpoint(44);
            let successor = backend.open_endpoint_at(address, 55);
            exposure.assert_pulls_fail_and_link_ends();
            drop(successor);
        }
    }
}
