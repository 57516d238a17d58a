//! Tests when the progress thread drives an endpoint and when it ignores the endpoint. The tests play the
//! thread.

mod contended_polls;
mod departures;
mod recording;

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use homespun_engine::buffer::Source;
use homespun_engine::operation::{Level, PeekAction, Signalled, TransmitOp, TransmitOptions};
use homespun_shm::ShmProvider;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::av::AddressVector;
use crate::cq::{CompletionQueue, CqAttr};
use crate::domain_id::DomainId;
use crate::doorbell::Doorbell;
use crate::endpoint_pump::as_drive;
use crate::fabric::Fabric;
use crate::info::ResourceManagement;
use crate::open_pump::OpenPump;
use crate::post::ReceiveKind;
use crate::tag::{Tag, TagMatch};
use crate::{AddressFormat, AvAttr, Hints};

/// Longer than any message takes. No test depends on how soon it arrives.
const PATIENCE: Duration = Duration::from_secs(60);

/// An endpoint over shared memory, its queue, and the doorbell of a progress thread that does not run.
struct EndpointWithoutThread {
    pump: Arc<dyn EndpointPump>,
    cq: CompletionQueue,
    av: AddressVector,
    doorbell: Arc<Doorbell>,
    works: Arc<WorkQueue>,
}

/// An address of this host with any port.
pub(super) fn loopback() -> Address {
    let info = Fabric::new().info(&Hints::new().node("127.0.0.1").source()).expect("an address");
    info.src_addr.expect("a source was asked for")
}

/// Bindings of an endpoint without queues.
pub(super) fn make_bindings(domain: DomainId, doorbell: Option<&Arc<Doorbell>>) -> Bindings {
    let av = AddressVector::open(&AvAttr::default(), AddressFormat::SockaddrIn, domain);
    Bindings {
        av: av.expect("a vector"),
        transmit_cq: None,
        receive_cq: None,
        counters: BoundCounters::default(),
        domain_counters: None,
        reporter: None,
        wants_source: false,
        reports_unknown_sources: false,
        shares_receiver: false,
        ends_on_failure: false,
        progress_doorbell: doorbell.cloned(),
        works: Arc::default(),
    }
}

impl EndpointWithoutThread {
    fn new() -> EndpointWithoutThread {
        EndpointWithoutThread::open(&ShmProvider::new())
    }

    fn open(provider: &impl OpenPump) -> EndpointWithoutThread {
        let domain = DomainId::allocate();
        let (attr, mgmt) = (CqAttr::default(), ResourceManagement::Enabled);
        let cq = CompletionQueue::open(&attr, domain, mgmt, Locking::Taken, &Clock::System).expect("a queue");
        let doorbell = Arc::new(Doorbell::new().expect("a descriptor"));
        let (config, regions) = (Config::default(), Arc::default());
        let pump = provider.open_pump(loopback(), None, config, regions, Locking::Taken, &Clock::System);
        let pump = pump.expect("an endpoint");
        let bindings = Bindings {
            transmit_cq: Some(cq.shared().clone()),
            receive_cq: Some(cq.shared().clone()),
            wants_source: true,
            ..make_bindings(domain, Some(&doorbell))
        };
        let (av, works) = (bindings.av.clone(), bindings.works.clone());
        pump.enable(bindings).expect("it is enabled for the first time");
        cq.shared().add_endpoint(&as_drive(&pump));
        EndpointWithoutThread { pump, cq, av, doorbell, works }
    }

    /// Posts a send that completes when its message has arrived.
    fn send(&self, to: &EndpointWithoutThread, message: Bytes) {
        let to = self.av.insert(&[to.pump.address()]).remove(0).expect("an address");
        let op = TransmitOp::Send { source: Source::owned(message), tag: None, data: None };
        let mut send = Post::new(to, op, 2);
        let (level, signalled) = (Level::Delivery, Signalled::Yes);
        send.request.options = TransmitOptions { level, signalled, inject: false, fence: false };
        self.pump.post(&mut send).expect("room for a send");
    }

    /// Makes up to three rounds of the progress thread. Returns whether the thread would then sleep.
    fn make_rounds_and_check_sleep(&self) -> bool {
        self.doorbell.arm();
        // The first pass after an event may find that there could be more to do.
        (0..3).any(|_| self.pump.progress_for_progress_thread() == WatchResult::Resting(AT_REST))
    }

    /// Returns whether the doorbell or the transport's descriptor would wake the thread within a
    /// millisecond.
    fn wait_for_wake_reason(&self) -> bool {
        let mut is_readable = false;
        self.pump.with_wake_fd(&mut |fd| {
            let mut fds = [PollFd::new(&fd, PollFlags::IN), PollFd::new(&*self.doorbell, PollFlags::IN)];
            let moment = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            is_readable = poll(&mut fds, Some(&moment)).expect("descriptors that can be polled") > 0;
        });
        is_readable
    }

    fn is_woken(&self) -> bool {
        !self.doorbell.is_armed()
    }

    fn poll(&self, times: u32) {
        for _ in 0..times {
            self.cq.progress();
        }
    }
}

#[test]
fn continued_polling_makes_progress_thread_stand_down_until_it_stops() {
    let endpoint = EndpointWithoutThread::new();
    assert!(endpoint.make_rounds_and_check_sleep());
    endpoint.poll(CHANCE_POLLS_MAX);
    assert!(!endpoint.is_woken());
    endpoint.poll(1);
    assert!(endpoint.is_woken(), "the thread would stay where each poll has to arm the transport");
    endpoint.doorbell.arm();
    assert_eq!(endpoint.pump.progress_for_progress_thread(), WatchResult::Polled);
    endpoint.poll(1000);
    assert!(!endpoint.is_woken(), "polls do not wake the thread from now on");
    assert_eq!(endpoint.pump.progress_for_progress_thread(), WatchResult::Polled);
    assert!(endpoint.make_rounds_and_check_sleep(), "the application has not polled since");
}

/// Returns a receive that accepts any message, with the context 1.
fn make_receive(kind: ReceiveKind, tagged: Option<TagMatch>, destination: Destination) -> ReceivePost {
    ReceivePost { from: None, tagged, kind, destination, context: 1, signalled: Signalled::Yes, work: None }
}

#[test]
fn peeks_that_read_no_queue_count_as_polls() {
    let endpoint = EndpointWithoutThread::new();
    assert!(endpoint.make_rounds_and_check_sleep());
    let peek = || {
        let kind = ReceiveKind::Peek(PeekAction::Keep);
        let mut post = make_receive(kind, Some(Tag(1).into()), Destination::default());
        endpoint.pump.post_receive(&mut post).expect("room for its answer");
    };
    (0..CHANCE_POLLS_MAX).for_each(|_| peek());
    assert!(!endpoint.is_woken());
    peek();
    assert!(endpoint.is_woken(), "the thread would stay where each peek has to arm the transport");
    endpoint.doorbell.arm();
    assert_eq!(endpoint.pump.progress_for_progress_thread(), WatchResult::Polled);
    assert!(endpoint.make_rounds_and_check_sleep(), "there was no peek since");
}

#[test]
fn blocking_reader_wakes_the_progress_thread_at_once() {
    let endpoint = EndpointWithoutThread::new();
    endpoint.poll(1000);
    endpoint.doorbell.arm();
    assert_eq!(endpoint.pump.progress_for_progress_thread(), WatchResult::Polled);
    endpoint.poll(1000);
    assert_eq!(endpoint.pump.arm(), AT_REST);
    assert!(endpoint.is_woken());
    assert!(endpoint.make_rounds_and_check_sleep());
    // The next call finds the thread asleep on the endpoint.
    assert_eq!(endpoint.pump.arm(), AT_REST);
    assert!(!endpoint.is_woken());
}

#[test]
fn post_keeps_the_transport_armed_or_wakes_the_progress_thread() {
    let (endpoint, peer) = (EndpointWithoutThread::new(), EndpointWithoutThread::new());
    assert!(endpoint.make_rounds_and_check_sleep() && peer.make_rounds_and_check_sleep());
    let room = Destination::owned(BytesMut::zeroed(8));
    peer.pump.post_receive(&mut make_receive(ReceiveKind::Single, None, room)).expect("room for a receive");
    endpoint.send(&peer, Bytes::from_static(b"hello"));
    // From now on the test only does what the progress thread would do: a pass over an endpoint that wakes
    // it.
    let deadline = Instant::now() + PATIENCE;
    while !(endpoint.cq.shared().has_unread() && peer.cq.shared().has_unread()) {
        assert!(Instant::now() < deadline, "both threads sleep, and the message has not arrived");
        for one in [&endpoint, &peer] {
            if one.wait_for_wake_reason() {
                one.make_rounds_and_check_sleep();
            }
        }
    }
    assert_eq!(peer.cq.read().expect("a success").expect("it is there").len_bytes, 5);
}

#[test]
fn arming_the_transport_leaves_due_works_to_the_caller() {
    let endpoint = EndpointWithoutThread::new();
    endpoint.pump.attach_work_queue(&endpoint.works);
    // A thread that arms the endpoints of a queue holds a lock of the queue's sleepers, so arming must not
    // run due works.
    endpoint.works.mark_counter_due(0);
    endpoint.pump.arm();
    assert!(endpoint.works.is_due());
    endpoint.pump.fire_due_works();
    assert!(!endpoint.works.is_due());
}

#[test]
fn every_kind_of_pass_carries_out_due_works() {
    let endpoint = EndpointWithoutThread::new();
    endpoint.pump.attach_work_queue(&endpoint.works);
    let passes: [fn(&EndpointWithoutThread); 3] = [
        |endpoint| endpoint.poll(1),
        |endpoint| endpoint.pump.progress_without_reader(),
        |endpoint| _ = endpoint.pump.progress_for_progress_thread(),
    ];
    for pass in passes {
        endpoint.works.mark_counter_due(0);
        pass(&endpoint);
        assert!(!endpoint.works.is_due());
    }
}

#[test]
fn wake_sleepers_wakes_the_progress_thread() {
    let endpoint = EndpointWithoutThread::new();
    assert!(endpoint.make_rounds_and_check_sleep());
    endpoint.pump.wake_sleepers();
    assert!(endpoint.is_woken());
}
