//! The contract of a transport over shared memory.

use homespun_shm::ShmProvider;

homespun_conformance::transport_contract!(ShmProvider::new(), features: [pulls, maps, splits, wakes]);
