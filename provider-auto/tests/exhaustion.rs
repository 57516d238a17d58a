//! A process that lacks descriptors gets an error: the lack is no reason to choose TCP. The test changes a
//! limit of the process, so it is the only test in its binary.

use std::fs;
use std::net::SocketAddr;

use homespun_auto::AutoProvider;
use homespun_conformance::transport::{Backend, drive_until};
use homespun_engine::errno::Errno;
use homespun_engine::transport::LinkError;
use homespun_shm::ShmProvider;
use homespun_tcp::TcpProvider;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn connect_without_descriptors_fails_with_emfile() {
    let provider = AutoProvider::new(ShmProvider::new(), TcpProvider::new());
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let [a, b] = [11, 22].map(|instance| Backend::new(&provider).open_endpoint_at(loopback.into(), instance));
    let mut endpoints = [a, b];
    let address = endpoints[1].address();
    let before = getrlimit(Resource::Nofile);
    // A connection over TCP would need one descriptor, and one over shared memory needs more than two.
    for room in 0..=2 {
        // Listing the descriptors needs one more, which is free again afterwards.
        let open = fs::read_dir("/proc/self/fd").unwrap().count() as u64 - 1;
        setrlimit(Resource::Nofile, Rlimit { current: Some(open + room), maximum: before.maximum }).unwrap();
        let link = endpoints[0].connect(address);
        setrlimit(Resource::Nofile, before).unwrap();
        drive_until(&mut endpoints, "the failure", |[a, _]| a.recorder.down_error(link).is_some());
        let error = endpoints[0].recorder.down_error(link);
        assert_eq!(error, Some(&LinkError::System(Errno::EMFILE)), "room for {room}");
    }
    let link = endpoints[0].connect(address);
    drive_until(&mut endpoints, "a link", |[a, _]| a.recorder.up_events().iter().any(|up| up.0 == link));
}
