//! Shareable memory: allocating it, and mapping a peer's.
//!
//! These tests apply only to backends whose links map memory of their peers. A transport maps the memory
//! that a peer describes, or refuses. The transport must not panic, and must not map other memory.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fastrand::Rng;
use homespun_engine::limits::REMOTE_MAX_BYTES;
use homespun_engine::transport::{LinkId, Provider, RemotePayload, SharedMemory, Transport};

use crate::transport::test_endpoint::assert_link_works;
use crate::transport::{Backend, TestEndpoint};

const LEN_BYTES: usize = 10_001;

/// Finds out whether links of this backend map memory of their peers.
pub(super) fn probe_maps<P: Provider>(backend: Backend<'_, P>) -> bool {
    SharedRegion::try_new(backend).is_some_and(|mut region| region.map(LEN_BYTES as u64).is_some())
}

/// A link, and memory of one side that the other side maps.
struct SharedRegion<T> {
    owner: TestEndpoint<T>,
    other: TestEndpoint<T>,
    /// The owner's number for the link.
    at_owner: LinkId,
    /// The other side's number for the link.
    at_other: LinkId,
    memory: Arc<dyn SharedMemory>,
    remote: RemotePayload,
}

impl<T: Transport> SharedRegion<T> {
    fn new<P: Provider<Transport = T>>(backend: Backend<'_, P>) -> SharedRegion<T> {
        SharedRegion::try_new(backend).expect("a backend whose links map has shareable memory")
    }

    /// Returns `None` if the provider has no shareable memory.
    fn try_new<P: Provider<Transport = T>>(backend: Backend<'_, P>) -> Option<SharedRegion<T>> {
        let memory = backend.provider().allocate_shareable(LEN_BYTES).expect("there is memory")?;
        let ([owner, other], at_owner, at_other) = backend.open_linked_pair();
        let remote = memory.describe().expect("its owner may describe it");
        assert!(remote.as_bytes().len() <= REMOTE_MAX_BYTES);
        Some(SharedRegion { owner, other, at_owner, at_other, memory, remote })
    }

    fn map(&mut self, len_bytes: u64) -> Option<Arc<dyn SharedMemory>> {
        self.other.transport.map_peer_memory(self.at_other, &self.remote, len_bytes)
    }

    /// Asserts that the link still carries frames.
    #[track_caller]
    fn assert_link_works(self) {
        assert_link_works([self.owner, self.other], [self.at_owner, self.at_other]);
    }
}

/// Mapped memory is long enough, is zero at first, and is shared: each side sees what the other side writes.
/// If the owner retires the memory, the mapping side sees that. The mapping then stays valid.
pub fn mapped_memory_is_shared_with_its_owner<P: Provider>(backend: Backend<'_, P>) {
    let mut region = SharedRegion::new(backend);
    let mapped = region.map(LEN_BYTES as u64).expect("the peer may map it");
    assert!(mapped.words().len() >= LEN_BYTES.div_ceil(8));
    assert_eq!(mapped.words().len(), region.memory.words().len());
    assert!(mapped.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
    for (number, (here, there)) in (1..).zip(mapped.words().iter().zip(region.memory.words())) {
        let (from, to) = if number % 2 == 0 { (here, there) } else { (there, here) };
        from.store(number, Ordering::Relaxed);
        assert_eq!(to.load(Ordering::Relaxed), number);
    }
    assert!(!mapped.is_retired());
    region.memory.retire();
    assert!(mapped.is_retired());
    let other = backend.provider().allocate_shareable(LEN_BYTES).expect("there is memory");
    region.memory = other.expect("the provider allocated shareable memory before");
    assert_eq!(mapped.words()[1].load(Ordering::Relaxed), 2, "the mapping lost its content");
    region.assert_link_works();
}

/// A wrong length or a meaningless description maps nothing.
pub fn map_with_a_wrong_description_fails<P: Provider>(backend: Backend<'_, P>) {
    let mut region = SharedRegion::new(backend);
    for len_bytes in [0, 1, 8, LEN_BYTES as u64 - 8, LEN_BYTES as u64 + 8, 1 << 40, u64::MAX] {
        assert!(region.map(len_bytes).is_none(), "{len_bytes} bytes of {LEN_BYTES}");
    }
    let mut rng = Rng::with_seed(11);
    let right = region.remote.as_bytes().to_vec();
    for len_bytes in 0..=REMOTE_MAX_BYTES {
        let mut bytes = vec![0; len_bytes];
        for _ in 0..10 {
            rng.fill(&mut bytes);
            if bytes != right {
                region.remote = RemotePayload::new(&bytes).expect("short enough");
                assert!(region.map(LEN_BYTES as u64).is_none(), "{bytes:?}");
            }
        }
    }
    region.assert_link_works();
}

/// Freed memory cannot be mapped, even with a description from before.
pub fn map_of_freed_memory_fails<P: Provider>(backend: Backend<'_, P>) {
    let SharedRegion { owner, mut other, at_owner: _, at_other, memory, remote } = SharedRegion::new(backend);
    memory.retire();
    drop(memory);
    assert!(other.transport.map_peer_memory(at_other, &remote, LEN_BYTES as u64).is_none());
    drop(owner);
}
