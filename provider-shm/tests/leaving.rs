//! Processes that exit right after they have sent frames.

use std::net::SocketAddr;
use std::process::Command;
use std::{env, process};

use homespun_conformance::transport::{Event, SIZES, TestEndpoint, drive_until, pseudo_random_payload};
use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::transport::{Close, LinkError, Transport};
use homespun_shm::ShmProvider;

/// Environment variable of the child process: the address to which it sends before it exits.
const SEND_TO: &str = "HOMESPUN_TEST_SEND_TO";

/// Environment variable of the child process: whether it closes the link before it exits.
const HOW: &str = "HOMESPUN_TEST_HOW";

/// Payloads that all fit into one ring at once.
fn payloads_fitting_one_ring() -> impl Iterator<Item = Vec<u8>> {
    SIZES.into_iter().filter(|&size| size < 32 * 1024).map(|size| pseudo_random_payload(size, 1))
}

fn send_and_exit(to: Address) -> ! {
    let mut endpoint = TestEndpoint::open(&ShmProvider::new(), 11);
    let link = endpoint.connect(to);
    for payload in payloads_fitting_one_ring() {
        endpoint.post(link, payload);
    }
    endpoint.transmit();
    assert!(endpoint.has_sent_all(), "there is room for all of it");
    if env::var(HOW).is_ok_and(|how| how == "closed") {
        endpoint.close(link, Close::Drain);
        endpoint.transport.flush();
    }
    // Exit without running destructors.
    process::exit(0);
}

/// The greeting carries the connector's ring. So the connector's frames arrive even if the connector exits
/// before the peer accepts the connection.
#[test]
fn frames_of_an_exited_process_arrive_before_its_link_ends() {
    if let Ok(to) = env::var(SEND_TO) {
        let to: SocketAddr = to.parse().expect("an address");
        send_and_exit(to.into());
    }
    for (how, end) in [("closed", LinkError::Closed), ("left", LinkError::System(Errno::ECONNRESET))] {
        let mut endpoints = [TestEndpoint::open(&ShmProvider::new(), 22)];
        let mut child = Command::new(env::current_exe().expect("it has a path"))
            .args(["--exact", "frames_of_an_exited_process_arrive_before_its_link_ends", "--quiet"])
            .env(SEND_TO, endpoints[0].address().socket_addr().to_string())
            .env(HOW, how)
            .spawn()
            .expect("a process");
        assert!(child.wait().expect("it ends").success());
        drive_until(&mut endpoints, "everything, and the end", |[endpoint]| {
            endpoint.recorder.log().iter().any(|(_, event)| matches!(event, Event::Down(_)))
        });
        let [endpoint] = endpoints;
        let (link, ..) = endpoint.recorder.up_events()[0];
        assert!(endpoint.recorder.payloads_of(link).into_iter().eq(payloads_fitting_one_ring()));
        assert_eq!(endpoint.recorder.down_error(link), Some(&end), "{how}");
    }
}
