//! RLIMIT_FSIZE: growing a file beyond it sends SIGXFSZ, which by default ends the process.

use homespun_conformance::transport::{TestEndpoint, drive_until};
use homespun_engine::errno::Errno;
use homespun_engine::transport::{LinkError, Provider};
use homespun_shm::{ShmProvider, ShmTransport};
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
    let limit = Limited::new();
    let provider = ShmProvider::default();
    let error_of_link = |endpoints: &mut [TestEndpoint<ShmTransport>; 2], to| {
        let link = endpoints[0].connect(to);
        drive_until(endpoints, "the end of the link", |[from, _]| from.recorder.down_error(link).is_some());
        endpoints[0].recorder.down_error(link).cloned()
    };
    let mut endpoints = [TestEndpoint::open(&provider, 11), TestEndpoint::open(&provider, 22)];
    let to = endpoints[1].address();
    let error = error_of_link(&mut endpoints, to);
    assert_eq!(error, Some(LinkError::System(Errno::new(libc::EFBIG))));
    assert!(provider.allocate_shareable(2 * LIMIT_BYTES as usize).is_err());

    drop(limit);
    endpoints[0] = TestEndpoint::open(&provider, 33);
    let error = error_of_link(&mut endpoints, to);
    assert!(matches!(error, Some(LinkError::NoEndpoint { .. })), "an endpoint that takes no link: {error:?}");
}
