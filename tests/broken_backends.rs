//! Runs the tests of the transport contract over transports that break it. Each transport is correct but for
//! one flaw, and the test of that flaw must fail.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use homespun_conformance::transport::{Backend, closing, room, waking};
use homespun_engine::address::Address;
use homespun_engine::errno::Errno;
use homespun_engine::transport::{
    Armed, Close, FrameHandler, Full, LinkCaps, LinkEvent, LinkId, Provider, ProviderAttr, Pull,
    RemotePayload, Sent, SharedMemory, Space, Transport,
};
use homespun_engine::wire::Header;
use homespun_shm::ShmProvider;
use homespun_tcp::TcpProvider;

/// How long a test waits for an event that the flaw prevents. A longer time only makes the tests slower.
const PATIENCE: Duration = Duration::from_millis(500);

/// The number of passes that [`Flaw::DrainsUnseen`] needs.
const DRAIN_PASSES: usize = 10;

/// The flaw of a transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// The transport falls asleep even if it has an event to report, or if a full link has room again.
    Sleepy,
    /// As [`Flaw::Sleepy`], but only between a connect and the next `receive`.
    SleepyAfterConnect,
    /// The transport never asks for another pass after some time.
    NeverLooksAgain,
    /// The transport reports at once that no link drains.
    DrainsNothing,
    /// The transport counts a drained link as draining until the endpoint ends.
    DrainsForEver,
    /// The transport needs further passes for a drain, and does not ask for them.
    DrainsUnseen,
    /// The transport claims to report writable links, and reports none.
    ReportsNoRoom,
}

/// Opens transports with a flaw.
#[derive(Debug)]
struct Flawed<P>(P, Flaw);

/// A transport with a flaw.
struct FlawedTransport<T> {
    transport: T,
    flaw: Flaw,
    has_connected: bool,
    drained_links: usize,
    passes_since_drain: usize,
}

impl<P: Provider> Provider for Flawed<P> {
    type Transport = FlawedTransport<P::Transport>;

    fn attr(&self) -> ProviderAttr {
        self.0.attr()
    }

    fn allocate_shareable(&self, len_bytes: usize) -> Result<Option<Arc<dyn SharedMemory>>, Errno> {
        self.0.allocate_shareable(len_bytes)
    }

    fn open(&self, bind: Address, instance: u64) -> Result<Self::Transport, Errno> {
        let transport = self.0.open(bind, instance)?;
        let (flaw, has_connected, drained_links, passes_since_drain) = (self.1, false, 0, 0);
        Ok(FlawedTransport { transport, flaw, has_connected, drained_links, passes_since_drain })
    }
}

impl<T: Transport> Transport for FlawedTransport<T> {
    fn address(&self) -> Address {
        self.transport.address()
    }

    fn caps(&self, link: LinkId) -> LinkCaps {
        self.transport.caps(link)
    }

    fn connect(&mut self, to: Address) -> LinkId {
        self.has_connected = true;
        self.transport.connect(to)
    }

    fn send_inline(&mut self, link: LinkId, header: &Header, payload: &[u8]) -> Result<(), Full> {
        self.transport.send_inline(link, header, payload)
    }

    fn send(&mut self, link: LinkId, header: &Header, payload: &[IoSlice<'_>]) -> Sent {
        self.transport.send(link, header, payload)
    }

    fn resume(&mut self, link: LinkId, rest: &[IoSlice<'_>]) -> Sent {
        self.transport.resume(link, rest)
    }

    fn hand_over(&mut self) {
        self.transport.hand_over();
    }

    fn prefers_pull(&self, link: LinkId, payload: &[IoSlice<'_>]) -> bool {
        self.transport.prefers_pull(link, payload)
    }

    fn expose(&mut self, link: LinkId, payload: &[IoSlice<'_>]) -> Option<RemotePayload> {
        self.transport.expose(link, payload)
    }

    fn pull(
        &mut self,
        link: LinkId,
        from: &RemotePayload,
        offset_bytes: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Pull {
        self.transport.pull(link, from, offset_bytes, into)
    }

    fn map_peer_memory(
        &mut self,
        link: LinkId,
        from: &RemotePayload,
        len_bytes: u64,
    ) -> Option<Arc<dyn SharedMemory>> {
        self.transport.map_peer_memory(link, from, len_bytes)
    }

    fn flush(&mut self) {
        self.transport.flush();
    }

    fn receive(&mut self, budget_frames: u32, receiver: &mut impl FrameHandler) -> u32 {
        self.has_connected = false;
        self.passes_since_drain += 1;
        match self.flaw {
            Flaw::ReportsNoRoom => self.transport.receive(budget_frames, &mut WithoutRoom(receiver)),
            _ => self.transport.receive(budget_frames, receiver),
        }
    }

    fn reports_writable_links(&self) -> bool {
        self.transport.reports_writable_links()
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        self.transport.wake_fd()
    }

    fn arm(&mut self) -> Armed {
        const ASLEEP: Armed = Armed::Asleep { look_again_after: None };
        match (self.transport.arm(), self.flaw) {
            (Armed::Ready, Flaw::Sleepy) => ASLEEP,
            (Armed::Ready, Flaw::SleepyAfterConnect) if self.has_connected => ASLEEP,
            (Armed::Asleep { .. }, Flaw::NeverLooksAgain) => ASLEEP,
            (armed, _) => armed,
        }
    }

    fn close(&mut self, link: LinkId, how: Close) {
        self.drained_links += usize::from(how == Close::Drain);
        self.passes_since_drain = 0;
        self.transport.close(link, how);
    }

    fn stop_accepting(&mut self) {
        self.transport.stop_accepting();
    }

    fn draining_count(&self) -> usize {
        match self.flaw {
            Flaw::DrainsNothing => 0,
            Flaw::DrainsForEver => self.drained_links,
            Flaw::DrainsUnseen if self.passes_since_drain < DRAIN_PASSES => self.drained_links,
            _ => self.transport.draining_count(),
        }
    }
}

/// Forwards everything but the reports of writable links.
struct WithoutRoom<'a, R>(&'a mut R);

impl<R: FrameHandler> FrameHandler for WithoutRoom<'_, R> {
    fn frame(&mut self, link: LinkId, header: &Header, payload: &[u8]) {
        self.0.frame(link, header, payload);
    }

    fn frame_begun(&mut self, link: LinkId, header: &Header) {
        self.0.frame_begun(link, header);
    }

    fn payload_space(&mut self, link: LinkId) -> Space<'_> {
        self.0.payload_space(link)
    }

    fn bytes_placed(&mut self, link: LinkId, count_bytes: usize) {
        self.0.bytes_placed(link, count_bytes);
    }

    fn payload_arrived(&mut self, link: LinkId, bytes: &[u8]) {
        self.0.payload_arrived(link, bytes);
    }

    fn link_writable(&mut self, _: LinkId) {}

    fn link_event(&mut self, link: LinkId, event: LinkEvent) {
        self.0.link_event(link, event);
    }
}

fn make_tcp_with_small_buffers() -> TcpProvider {
    TcpProvider::new().with_send_buffer_bytes(4 * 1024).with_receive_buffer_bytes(4 * 1024)
}

fn make_shm_with_short_backlog() -> ShmProvider {
    ShmProvider::new().with_backlog_connections(1)
}

/// Defines two tests for each function of the contract. The first test passes: it runs the function over the
/// transport without the flaw. The second test runs the function over the flawed transport, and expects a
/// panic with the given message.
macro_rules! caught {
    ($($theme:ident::$test:ident over $provider:ident catches $flaw:ident: $message:literal;)+) => {
        $(
            mod $test {
                mod $provider {
                    use super::super::*;

                    #[test]
                    fn flawless_transport_passes() {
                        $theme::$test(Backend::new(&Flawed($provider(), Flaw::None)));
                    }

                    #[test]
                    #[should_panic(expected = $message)]
                    fn flawed_transport_fails() {
                        let provider = Flawed($provider(), Flaw::$flaw);
                        $theme::$test(Backend::new(&provider).with_patience(PATIENCE));
                    }
                }
            }
        )+
    };
}

caught! {
    waking::refused_connect_wakes_the_connector over make_tcp_with_small_buffers catches SleepyAfterConnect:
        "waited in vain for the refusal to wake the connector";
    waking::arm_with_unreported_frames_stays_awake over make_shm_with_short_backlog catches Sleepy:
        "waited in vain for frames that arrived before";
    waking::arm_after_an_unreported_event_stays_awake over make_tcp_with_small_buffers catches Sleepy:
        "waited in vain for an earlier connect";
    waking::arm_after_room_was_freed_stays_awake over make_shm_with_short_backlog catches Sleepy:
        "waited in vain for room that was freed before";
    room::full_link_delivers_everything_once_the_peer_reads
        over make_shm_with_short_backlog catches ReportsNoRoom: "waited in vain for all frames";
    waking::connector_at_a_full_backlog_sets_a_retry_time_and_connects
        over make_shm_with_short_backlog catches NeverLooksAgain:
        "the connector sets no time to retry for a place in the backlog";
    waking::drain_completes_while_the_endpoint_sleeps over make_shm_with_short_backlog catches DrainsUnseen:
        "waited in vain for the link to drain";
    closing::drain_completes_without_calls_of_the_peer over make_tcp_with_small_buffers catches DrainsForEver:
        "waited in vain for the link to drain";
    closing::transport_dropped_after_a_drain_loses_no_frames
        over make_tcp_with_small_buffers catches DrainsNothing:
        "assertion `left == right` failed";
}

/// Over shared memory, the call of `connect` itself finds the refusal.
#[test]
#[should_panic(expected = "waited in vain for the refusal to wake the connector")]
fn shm_transport_that_forgets_a_refused_connect_fails() {
    let provider = Flawed(make_shm_with_short_backlog(), Flaw::SleepyAfterConnect);
    waking::refused_connect_wakes_the_connector(Backend::new(&provider).with_patience(PATIENCE));
}
