//! RLIMIT_FSIZE: growing a file beyond it sends SIGXFSZ, which by default ends the process.

use homespun_engine::address::AddressFormat;
use homespun_engine::errno::Errno;
use homespun_engine::transport::Provider;
use homespun_shm::ShmProvider;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Less than a ring has.
const LIMIT_BYTES: u64 = 64 << 10;

/// A limit for this process. It ends with the value: the report of the tests may go to a longer file.
struct Limited(Rlimit);

impl Limited {
    fn new() -> Limited {
        let before = getrlimit(Resource::Fsize);
        let limit = Rlimit { current: Some(LIMIT_BYTES), maximum: before.maximum };
        setrlimit(Resource::Fsize, limit).expect("a process may limit itself");
        Limited(before)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        setrlimit(Resource::Fsize, self.0).expect("a process may lift its own limit");
    }
}

#[test]
fn memory_beyond_the_limit_of_file_sizes_fails_with_efbig() {
    let _restored = Limited::new();
    let provider = ShmProvider::default();
    let opened = provider.open(AddressFormat::SockaddrIn.wildcard(), 11).map(drop);
    assert_eq!(opened, Err(Errno::new(libc::EFBIG)));
    assert!(provider.allocate_shareable(2 * LIMIT_BYTES as usize).is_err());
}
