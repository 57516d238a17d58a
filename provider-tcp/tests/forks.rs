//! A forked child cannot use the transports of its parent, and does not disturb them. The test forks, so it
//! is the only test in its binary.

mod side;

use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use homespun_engine::transport::{Armed, Close, Denial, LinkError, LinkId, Provider, Sent, Transport};
use homespun_engine::wire::{Header, Message};
use homespun_tcp::TcpProvider;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid};

use side::{Side, drive_until};

const FORKED_CHILD: LinkError = LinkError::Denied(Denial::ForkedChild);

impl Side {
    fn send(&mut self, link: LinkId) {
        let header = Header::Message(Message { tag: Some(1), ..Message::of_len(3) });
        self.transport.send_inline(link, &header, b"abc").unwrap();
        self.transport.flush();
    }
}

/// Connects two endpoints. Returns the link at the client, and the link at the server.
fn connect(client: &mut Side, server: &mut Side) -> (LinkId, LinkId) {
    let known = server.events.up.len();
    let out = client.transport.connect(server.transport.address());
    drive_until("the link", &mut [&mut *client, &mut *server], |sides| {
        sides[0].events.up.contains(&out) && sides[1].events.up.len() > known
    });
    (out, *server.events.up.last().unwrap())
}

fn exchange_frames(client: &mut Side, server: &mut Side, (out, into): (LinkId, LinkId)) {
    let (at_client, at_server) = (client.events.frames.len(), server.events.frames.len());
    client.send(out);
    server.send(into);
    drive_until("the frames", &mut [client, server], |sides| {
        sides[0].events.frames.len() > at_client && sides[1].events.frames.len() > at_server
    });
}

/// Forks. The child does the work and ends. Returns the child.
fn fork_child(work: impl FnOnce()) -> Pid {
    // SAFETY: besides this thread there is only the thread that waits for the test, which holds no lock.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no child: {}", io::Error::last_os_error());
    if child == 0 {
        let has_failed = catch_unwind(AssertUnwindSafe(work)).is_err();
        // SAFETY: the call ends the child and does nothing else.
        unsafe { libc::_exit(i32::from(has_failed)) };
    }
    Pid::from_raw(child).unwrap()
}

fn expect_success(child: Pid) {
    let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(0), "the child has failed");
}

/// Calls everything on an inherited transport, and drops it.
fn use_inherited(mut side: Side, links: &[LinkId], to: SocketAddr) {
    let header = Header::Message(Message::of_len(0));
    for &link in links {
        assert!(side.transport.send_inline(link, &header, b"").is_err());
        assert_eq!(side.transport.send(link, &header, &[]), Sent::Full);
    }
    side.transport.flush();
    assert!(side.transport.wake_fd().is_none());
    assert_eq!(side.transport.arm(), Armed::Ready);
    let new = side.transport.connect(to.into());
    side.transport.close(links[0], Close::Drain);
    assert_eq!(side.transport.draining_count(), 0);
    side.events.down.clear();
    side.transport.receive(64, &mut side.events);
    side.transport.receive(64, &mut side.events);
    let mut down = side.events.down;
    down.sort_by_key(|(link, _)| *link);
    let mut expected: Vec<LinkId> = links[1..].iter().copied().chain([new]).collect();
    expected.sort();
    assert_eq!(down, expected.iter().map(|link| (*link, FORKED_CHILD)).collect::<Vec<_>>());
    side.transport.stop_accepting();
}

fn child_disturbs_no_link_of_its_parent() {
    let (mut client, mut server) = (Side::open(&TcpProvider::new()), Side::open(&TcpProvider::new()));
    let links = [connect(&mut client, &mut server), connect(&mut client, &mut server)];
    exchange_frames(&mut client, &mut server, links[0]);
    // What the parent has staged is the parent's to send.
    let header = Header::Message(Message { tag: Some(1), ..Message::of_len(3) });
    client.transport.send_inline(links[0].0, &header, b"abc").unwrap();
    let staged_before = server.events.frames.len();
    let address = server.transport.address().socket_addr();
    // The child takes its copies of both endpoints out of `sides`. The parent's copies stay in `sides`.
    let mut sides = Some((client, server));
    let child = fork_child(|| {
        let (client, server) = sides.take().unwrap();
        use_inherited(client, &[links[0].0, links[1].0], address);
        use_inherited(server, &[links[0].1, links[1].1], address);
    });
    expect_success(child);
    let (mut client, mut server) = sides.take().unwrap();

    client.transport.flush();
    drive_until("the staged frame", &mut [&mut client, &mut server], |sides| {
        sides[1].events.frames.len() > staged_before
    });
    assert_eq!(server.events.frames.len(), staged_before + 1, "a staged frame was sent twice");
    for link in links {
        exchange_frames(&mut client, &mut server, link);
    }
    let new = connect(&mut client, &mut server);
    exchange_frames(&mut client, &mut server, new);
    assert!(client.events.down.is_empty() && server.events.down.is_empty());

    // The parent's sockets still wake it.
    while server.transport.arm() == Armed::Ready {
        server.transport.receive(64, &mut server.events);
    }
    client.send(links[0].0);
    let fd = server.transport.wake_fd().unwrap();
    let minute = Timespec { tv_sec: 60, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&minute)).unwrap(), 1, "not woken");
}

fn end_of_a_transport_is_seen_while_a_forked_child_lives() {
    let (mut client, mut server) = (Side::open(&TcpProvider::new()), Side::open(&TcpProvider::new()));
    let (_, into) = connect(&mut client, &mut server);
    let child = fork_child(|| {
        set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
        loop {
            thread::park();
        }
    });
    let vacant = client.transport.address();
    drop(client);
    drive_until("the end of the link", &mut [&mut server], |sides| !sides[0].events.down.is_empty());
    assert_eq!(server.events.down, [(into, LinkError::Closed)]);
    // Nor does the child keep the port.
    TcpProvider::new().open(vacant, 2).expect("the port is free");
    kill_process(child, Signal::KILL).unwrap();
    waitpid(Some(child), WaitOptions::empty()).unwrap();
}

#[test]
fn forked_child_leaves_the_transports_of_its_parent_alone() {
    child_disturbs_no_link_of_its_parent();
    end_of_a_transport_is_seen_while_a_forked_child_lives();
}
