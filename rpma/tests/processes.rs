//! Peers whose processes are killed: during writes and flushes, while a thread waits, and before they answer
//! a request.

use std::time::Duration;

use homespun_rpma::{
    Completion, Connection, ConnectionConfig, ConnectionEvent, ConnectionRequest, DomainName, Endpoint,
    Error, FlushType, LocalSlice, MemoryRegion, Peer, PeerAttr, RemoteMemoryRegion, Report, Status, Usage,
};
use homespun_suite::process::{Channel, Process};
use homespun_suite::sleeping::{join_in_time, spawn_sleeper};
use serde::{Deserialize, Serialize};

const DOMAINS: [DomainName; 3] = [DomainName::Tcp, DomainName::Shm, DomainName::Auto];

/// The length of the other process's region.
const REGION_BYTES: usize = 1 << 20;

/// The context of operations that report only failures.
const UNREPORTED: u64 = u64::MAX;

/// What the other process does once it is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Task {
    /// Serves accesses to its region.
    Serve,
    /// Does not answer the request.
    Hesitate,
}

/// Returns memory that stays, registered.
fn register(peer: &Peer, size_bytes: usize, usage: Usage) -> MemoryRegion {
    let memory: &'static mut [u8] = Box::leak(vec![0; size_bytes].into());
    // SAFETY: the memory stays, and only operations use it.
    unsafe { MemoryRegion::register(peer, memory.as_mut_ptr(), size_bytes, usage) }.expect("a valid region")
}

fn open_peer(domain: DomainName) -> Peer {
    Peer::open(&PeerAttr { domain, ..PeerAttr::default() }).expect("the domain is offered")
}

/// The entry of the other process.
#[test]
#[ignore = "other tests start it in a process of its own"]
fn other_process_entry() {
    let Some(mut channel) = Channel::from_parent() else { return };
    let told: Option<(usize, Task)> = channel.receive_message().expect("the test speaks");
    let (domain, task) = told.expect("the test begins");
    let peer = open_peer(DOMAINS[domain]);
    let endpoint = Endpoint::listen(&peer, "127.0.0.1", 0).expect("an address of this host");
    channel.send_message(&endpoint.address().port()).expect("the test listens");
    let request = endpoint.next_connection_request(None).expect("a request");
    if task == Task::Hesitate {
        channel.send_message(&()).expect("the test listens");
        let _: Option<()> = channel.receive_message().expect("the test kills this process");
    }
    let usage = Usage::WRITE_DST | Usage::FLUSH_TYPE_VISIBILITY;
    let region = register(&peer, REGION_BYTES, usage);
    let connection = request.connect(&region.descriptor()).expect("a request that waits");
    assert_eq!(connection.next_event(), Ok(ConnectionEvent::Established));
    let _: Option<()> = channel.receive_message().expect("the test kills this process");
}

/// A connection to another process.
struct Remote {
    process: Process,
    peer: Peer,
    connection: Connection,
}

impl Remote {
    /// Starts another process, and asks it for a connection.
    fn start(domain: usize, task: Task, config: &ConnectionConfig) -> Remote {
        let mut process = Process::spawn(concat!(module_path!(), "::other_process_entry"));
        process.send_message(&(domain, task));
        let port: u16 = process.receive_message();
        let peer = open_peer(DOMAINS[domain]);
        let request = ConnectionRequest::new(&peer, "127.0.0.1", port, Some(config)).expect("an address");
        let connection = request.connect(b"").expect("a valid request");
        Remote { process, peer, connection }
    }

    fn connect(domain: usize, task: Task) -> Remote {
        let config = ConnectionConfig {
            timeout: Duration::from_secs(60),
            completion_queue_size: 100,
            send_queue_size: 20,
            ..ConnectionConfig::default()
        };
        let remote = Remote::start(domain, task, &config);
        assert_eq!(remote.connection.next_event(), Ok(ConnectionEvent::Established));
        remote
    }

    /// The region of the other process.
    fn region(&self) -> RemoteMemoryRegion {
        RemoteMemoryRegion::from_descriptor(self.connection.private_data()).expect("a descriptor")
    }

    fn next_completion(&self) -> Completion {
        self.connection.completion_queue().wait().expect("an operation has not ended");
        self.connection.completion_queue().next().expect("the wait has ended")
    }

    /// Checks that the connection has ended, and that all calls still work.
    fn expect_end(&self) {
        assert_eq!(self.connection.next_event(), Ok(ConnectionEvent::Closed));
        assert_eq!(self.connection.disconnect(), Ok(()));
        let refused = self.connection.send(LocalSlice::EMPTY, Report::Always, 1);
        assert_eq!(refused, Err(Error::NotConnected));
        assert_eq!(self.connection.completion_queue().next(), Err(Error::NoCompletion));
    }

    /// Posts operations, whose contexts count up from 0, and kills the process when some have succeeded. Then
    /// each operation that was posted must end once, in order, with the successes first. Others, which report
    /// only failures, have the context [`UNREPORTED`].
    fn kill_during(&mut self, post: impl Fn(&Connection, u64) -> Result<(), Error>) {
        let (mut posted, mut ended, mut is_killed, mut has_failed) = (0, 0, false, false);
        while !is_killed || ended < posted {
            while !is_killed && posted < ended + 10 {
                post(&self.connection, posted).expect("room for an operation");
                posted += 1;
            }
            if !is_killed && ended >= 20 {
                self.process.kill();
                is_killed = true;
            }
            let completion = self.next_completion();
            if completion.op_context == UNREPORTED {
                assert_ne!(completion.status, Status::Success);
                has_failed = true;
                continue;
            }
            assert_eq!(completion.op_context, ended);
            ended += 1;
            match completion.status {
                Status::Success => assert!(!has_failed, "{completion:?} after a failure"),
                Status::RetryExceeded | Status::Flushed => has_failed = true,
                status => panic!("{status:?}"),
            }
        }
        self.expect_end();
    }
}

/// Shows rpma_cq_get_completion/access-error-completes.
#[test]
fn peer_killed_during_writes_ends_each_write_once() {
    for domain in 0..DOMAINS.len() {
        for len_bytes in [8, 300_000] {
            let mut remote = Remote::connect(domain, Task::Serve);
            let (here, there) = (register(&remote.peer, 300_000, Usage::WRITE_SRC), remote.region());
            remote.kill_during(|connection, context| {
                connection.write(there.at(64), here.slice(0, len_bytes)?, Report::Always, context)
            });
        }
    }
}

/// Shows rpma_cq_get_completion/flush-error-completes.
#[test]
fn peer_killed_during_flushes_ends_each_flush_once() {
    for domain in 0..DOMAINS.len() {
        let mut remote = Remote::connect(domain, Task::Serve);
        let (here, there) = (register(&remote.peer, 100_000, Usage::WRITE_SRC), remote.region());
        remote.kill_during(|connection, context| {
            connection.write(there.at(0), here.as_slice(), Report::OnError, UNREPORTED)?;
            connection.flush(&there, 0, 100_000, FlushType::Visibility, Report::Always, context)
        });
    }
}

/// Shows rpma_cq_wait/end-of-connection-ends-wait.
#[test]
fn peer_killed_while_a_thread_waits_for_a_message_wakes_it() {
    for domain in 0..DOMAINS.len() {
        let mut remote = Remote::connect(domain, Task::Serve);
        for context in 0..3 {
            remote.connection.recv(LocalSlice::EMPTY, context).unwrap();
        }
        let queue = remote.connection.completion_queue().clone();
        let sleeper = spawn_sleeper(move || queue.wait());
        remote.process.kill();
        assert_eq!(join_in_time(sleeper), Ok(()));
        for context in 0..3 {
            let completion = remote.next_completion();
            assert_eq!((completion.op_context, completion.status), (context, Status::Flushed));
        }
        remote.expect_end();
    }
}

#[test]
fn peer_killed_before_it_answers_rejects_the_request() {
    for domain in 0..DOMAINS.len() {
        let config = ConnectionConfig { timeout: Duration::from_secs(60), ..ConnectionConfig::default() };
        let mut remote = Remote::start(domain, Task::Hesitate, &config);
        let () = remote.process.receive_message();
        remote.process.kill();
        assert_eq!(remote.connection.next_event(), Ok(ConnectionEvent::Rejected), "{domain}");
    }
}
