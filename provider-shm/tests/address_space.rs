//! RLIMIT_AS: mapped memory of peers must leave address space for the process itself.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use homespun_conformance::transport::Backend;
use homespun_engine::transport::{RemotePayload, SharedMemory, Transport};
use homespun_shm::ShmProvider;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const LIMIT_BYTES: u64 = 16 << 30;

const REGION_BYTES: u64 = 1 << 30;

/// The first page of a region's file.
const START_BYTES: u64 = 4096;

/// Creates the file of a region whose nonce is 0. Nothing of it takes memory.
fn create_sparse_region() -> OwnedFd {
    let file = memfd_create("region", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, START_BYTES + REGION_BYTES).unwrap();
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).unwrap();
    file
}

#[test]
fn regions_of_peers_take_at_most_half_of_the_address_space() {
    let provider = ShmProvider::new();
    let ([_owner, mut other], _, at_other) = Backend::new(&provider).open_linked_pair();
    let Rlimit { maximum, .. } = getrlimit(Resource::As);
    setrlimit(Resource::As, Rlimit { current: Some(LIMIT_BYTES), maximum }).unwrap();

    let file = create_sparse_region();
    let description = [&file.as_raw_fd().to_le_bytes()[..], &0_u64.to_le_bytes()].concat();
    let description = RemotePayload::new(&description).unwrap();
    let mut map = || other.transport.map_peer_memory(at_other, &description, REGION_BYTES);
    let mut mapped: Vec<Arc<dyn SharedMemory>> = std::iter::from_fn(&mut map).take(100).collect();
    assert_eq!(mapped.len() as u64, LIMIT_BYTES / 2 / REGION_BYTES - 1, "each has a first page, too");
    assert!(Vec::<u8>::new().try_reserve_exact(LIMIT_BYTES as usize / 4).is_ok());

    mapped.pop();
    assert!(map().is_some(), "unmapped memory does not count");
}
