//! Policies that forbid abstract names or memory files. The endpoint then reaches peers over TCP, and logs
//! one warning.
//!
//! Each test starts a thread, and applies a policy to this thread only.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;

use homespun_auto::{AutoProvider, AutoTransport};
use homespun_conformance::transport::{TestEndpoint, drive_until, pseudo_random_payload};
use homespun_engine::transport::{LinkId, Transport};
use homespun_shm::ShmProvider;
use homespun_suite::prerequisites::Prerequisite;
use homespun_suite::seccomp::{fail_system_calls_of_thread, fail_system_calls_with_long_addresses};
use homespun_tcp::TcpProvider;
use landlock::{CompatLevel, Compatible, Ruleset, RulesetAttr, Scope};
use tracing_subscriber::fmt::MakeWriter;

type Endpoint = TestEndpoint<AutoTransport>;

fn open_endpoint(instance: u64) -> Endpoint {
    let auto = AutoProvider::new(ShmProvider::new(), TcpProvider::new());
    let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
    TestEndpoint::open_at(&auto, loopback.into(), instance)
}

/// Whether a link shares memory: payload is pulled only over such a link.
fn is_near(endpoint: &Endpoint, link: LinkId) -> bool {
    endpoint.transport.caps(link).pull_min_bytes != usize::MAX
}

/// Connects the first endpoint to the second, and sends a message. Returns whether the link is over shared
/// memory.
fn send_over_new_link(endpoints: &mut [Endpoint; 2]) -> bool {
    let to = endpoints[1].address();
    let known = endpoints[1].recorder.up_events().len();
    let link = endpoints[0].connect(to);
    endpoints[0].post(link, pseudo_random_payload(100, 1));
    drive_until(endpoints, "the message", |[_, b]| {
        let ups = b.recorder.up_events();
        ups.len() > known && ups[known..].iter().any(|&(at_b, ..)| b.recorder.frame_count(at_b) == 1)
    });
    is_near(&endpoints[0], link)
}

/// The log of one thread.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Log;

    fn make_writer(&'a self) -> Log {
        self.clone()
    }
}

impl Log {
    /// Records the warnings of an action.
    fn record<R>(&self, action: impl FnOnce() -> R) -> R {
        let subscriber =
            tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(self.clone());
        tracing::subscriber::with_default(subscriber.finish(), action)
    }

    fn lines(&self) -> Vec<String> {
        let bytes = self.0.lock().unwrap();
        String::from_utf8(bytes.clone()).expect("a log is text").lines().map(str::to_owned).collect()
    }
}

/// Opens an endpoint by `open_confined` in a thread of its own, which that function confines. Connects the
/// endpoint twice to one outside, and with `connects_back` also the other way round. Asserts that all links
/// use TCP, and that the log has one warning, with this text.
#[track_caller]
fn check_links_are_far_with_one_warning(
    text: &str,
    connects_back: bool,
    open_confined: impl FnOnce() -> Endpoint + Send,
) {
    let outside = open_endpoint(22);
    let log = Log::default();
    let is_any_near = thread::scope(|scope| {
        let confined = scope.spawn(|| {
            log.record(|| {
                let mut endpoints = [open_confined(), outside];
                let is_near = [(); 2].map(|()| send_over_new_link(&mut endpoints)).contains(&true);
                endpoints.reverse();
                is_near || connects_back && send_over_new_link(&mut endpoints)
            })
        });
        confined.join().expect("the links are made")
    });
    assert!(!is_any_near);
    let lines = log.lines();
    assert!(lines.len() == 1 && lines[0].contains(text), "{lines:#?}");
}

#[test]
fn endpoint_has_far_peers_alone_where_names_or_memory_files_are_forbidden() {
    const REFUSALS: [i32; 3] = [libc::EACCES, libc::EPERM, libc::ENOSYS];
    for errno in REFUSALS {
        check_links_are_far_with_one_warning("memory files", true, || {
            fail_system_calls_of_thread(&[libc::SYS_memfd_create], errno);
            open_endpoint(11)
        });
    }
    for errno in &REFUSALS[..2] {
        for (call, connects_back) in [(libc::SYS_bind, true), (libc::SYS_connect, false)] {
            check_links_are_far_with_one_warning("security policy", connects_back, || {
                fail_system_calls_with_long_addresses(&[call], *errno);
                open_endpoint(11)
            });
        }
    }
}

#[test]
fn peers_are_far_once_memory_files_are_forbidden() {
    check_links_are_far_with_one_warning("memory files", true, || {
        let endpoint = open_endpoint(11);
        fail_system_calls_of_thread(&[libc::SYS_memfd_create], libc::EPERM);
        endpoint
    });
}

/// Forbids this thread to connect to abstract names that other threads have bound. Returns false if the
/// kernel cannot forbid it.
fn scope_abstract_names_of_thread() -> bool {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .scope(Scope::AbstractUnixSocket)
        .and_then(Ruleset::create);
    ruleset.and_then(landlock::RulesetCreated::restrict_self).is_ok()
}

#[test]
fn peer_outside_a_sandbox_is_far_and_shares_memory_over_its_own_link() {
    let outside = open_endpoint(22);
    let log = Log::default();
    let made = thread::scope(|scope| {
        let confined = scope.spawn(|| {
            scope_abstract_names_of_thread().then(|| {
                log.record(|| {
                    let mut endpoints = [open_endpoint(11), outside];
                    let is_near = send_over_new_link(&mut endpoints);
                    (endpoints, is_near)
                })
            })
        });
        confined.join().expect("the link is made")
    });
    let Some((mut endpoints, is_near)) =
        Prerequisite::SCOPED_ABSTRACT_NAMES.report_skipped_if_none(made, "a scope of abstract sockets")
    else {
        return;
    };
    assert!(!is_near);
    let lines = log.lines();
    assert!(lines.len() == 1 && lines[0].contains("security policy"), "{lines:#?}");
    // The endpoint outside may connect to a name inside.
    endpoints.reverse();
    assert!(send_over_new_link(&mut endpoints));
}
