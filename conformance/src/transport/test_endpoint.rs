//! An endpoint under test, and functions that drive endpoints.

use std::array;
use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::time::Duration;

use homespun_engine::address::Address;
use homespun_engine::transport::{Close, LinkCaps, LinkId, Provider, Sent, Transport};
use homespun_engine::wire::Header;

use crate::transport::deadline::PATIENCE;
use crate::transport::{Deadline, Event, Recorder, message_header, pseudo_random_payload};

/// The budget, in frames, of each call of [`receive`](Transport::receive) that [`drive_until`] makes.
pub const BUDGET_FRAMES: u32 = 32;

/// An endpoint under test: a transport, a recorder of the transport's reports, and a send queue for each
/// link.
///
/// The endpoint calls the transport as an engine would. It resumes a partly taken frame before it sends
/// another frame on that link, and retries refused frames. If the transport [reports writable
/// links](Transport::reports_writable_links), it retries only after such a report. If a payload is short
/// enough and has an even length, the endpoint sends the frame inline.
#[derive(Debug)]
pub struct TestEndpoint<T> {
    /// The transport, for direct calls.
    pub transport: T,
    /// The events that the transport has reported.
    pub recorder: Recorder,
    address: Address,
    outbox: BTreeMap<LinkId, Outbox>,
    refusals: usize,
    patience: Duration,
}

#[derive(Debug, Default)]
struct Outbox {
    frames: VecDeque<(Header, Vec<u8>)>,
    /// How much of the first frame's payload the link has taken; `None` if the link has not taken the
    /// header.
    taken_bytes: Option<usize>,
    /// The caps of the link at the last send.
    caps: Option<LinkCaps>,
    /// Whether the link has refused a frame, or a part of one, and was not reported as writable since.
    is_refused: bool,
}

impl<T: Transport> TestEndpoint<T> {
    /// Opens an endpoint at the wildcard of the provider's preferred format.
    ///
    /// # Panics
    ///
    /// If the provider does not open the endpoint.
    pub fn open(provider: &impl Provider<Transport = T>, instance: u64) -> Self {
        TestEndpoint::open_at(provider, provider.attr().preferred_format().wildcard(), instance)
    }

    /// Opens an endpoint.
    ///
    /// # Panics
    ///
    /// If the provider does not open it.
    #[track_caller]
    pub fn open_at(provider: &impl Provider<Transport = T>, bind: Address, instance: u64) -> Self {
        let transport = match provider.open(bind, instance) {
            Ok(transport) => transport,
            Err(errno) => panic!("no endpoint at {bind}: {errno}"),
        };
        let address = transport.address();
        let recorder = Recorder::default();
        let (outbox, refusals) = (BTreeMap::new(), 0);
        TestEndpoint { transport, recorder, address, outbox, refusals, patience: PATIENCE }
    }

    /// Sets how long tests wait for an event of this endpoint; the default is a minute.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Returns the deadline of a wait that starts now.
    pub fn deadline_from_now(&self) -> Deadline {
        Deadline::after(self.patience)
    }

    /// Returns the transport's address.
    ///
    /// # Panics
    ///
    /// If the address has changed.
    pub fn address(&self) -> Address {
        assert_eq!(self.transport.address(), self.address, "the address has changed");
        self.address
    }

    /// Connects to a peer.
    ///
    /// # Panics
    ///
    /// If the transport gives the link a number that another link has.
    pub fn connect(&mut self, to: Address) -> LinkId {
        let link = self.transport.connect(to);
        self.recorder.note_connecting(link);
        self.outbox.insert(link, Outbox::default());
        link
    }

    /// Queues a message to be sent on a link.
    pub fn post(&mut self, link: LinkId, payload: Vec<u8>) {
        self.post_frame(link, message_header(payload.len()), payload);
    }

    /// Queues a frame to be sent on a link.
    pub fn post_frame(&mut self, link: LinkId, header: Header, payload: Vec<u8>) {
        self.outbox.entry(link).or_default().frames.push_back((header, payload));
    }

    /// Closes a link and drops its queued frames. Afterwards the recorder panics if the transport reports
    /// anything about the link.
    pub fn close(&mut self, link: LinkId, how: Close) {
        self.transport.close(link, how);
        self.recorder.note_closed(link);
        self.outbox.remove(&link);
    }

    /// Whether the transport has taken all queued frames.
    pub fn has_sent_all(&self) -> bool {
        self.outbox.values().all(|outbox| outbox.frames.is_empty())
    }

    /// Returns how many frames are queued on a link, including a partly taken frame.
    pub fn queued_frame_count(&self, link: LinkId) -> usize {
        self.outbox.get(&link).map_or(0, |outbox| outbox.frames.len())
    }

    /// Whether the link has taken a frame in part.
    pub fn has_half_sent_frame(&self, link: LinkId) -> bool {
        self.outbox.get(&link).is_some_and(|outbox| outbox.taken_bytes.is_some())
    }

    /// Counts the passes in which a link did not take all queued frames.
    pub fn refusal_count(&self) -> usize {
        self.refusals
    }

    /// Sends queued frames until the links are full, and flushes.
    ///
    /// # Panics
    ///
    /// If the caps of a link have grown, or if the transport answers [`Sent::Partial`] after the whole
    /// payload.
    pub fn transmit(&mut self) {
        for (&link, outbox) in &mut self.outbox {
            outbox.is_refused &= !self.recorder.take_writable(link);
            let may_try = !outbox.is_refused || !self.transport.reports_writable_links();
            while may_try && outbox.transmit_front_frame(link, &mut self.transport) {}
            self.refusals += usize::from(!outbox.frames.is_empty());
        }
        self.transport.flush();
    }

    /// Whether no frame waits to be sent on a link.
    pub fn is_outbox_empty(&self, link: LinkId) -> bool {
        self.outbox.get(&link).is_none_or(|outbox| outbox.frames.is_empty())
    }

    /// Takes messages of a link that a glance has found: [`Transport::receive_at_once`].
    pub fn receive_at_once(&mut self, link: LinkId, budget_frames: u32) -> u32 {
        self.transport.receive_at_once(link, budget_frames, &mut self.recorder)
    }

    /// Receives once. Returns the number of events that the transport says it has reported.
    ///
    /// # Panics
    ///
    /// If the transport has reported more events than it says.
    pub fn receive(&mut self, budget_frames: u32) -> u32 {
        let seen = self.recorder.log().len();
        let reported = self.transport.receive(budget_frames, &mut self.recorder);
        let news = &self.recorder.log()[seen..];
        assert!(news.len() <= reported as usize, "{} events, and {reported} counted", news.len());
        for (link, event) in news {
            match event {
                // A link that this side has connected may have queued frames; keep them.
                Event::Up(..) => drop(self.outbox.entry(*link).or_default()),
                Event::Down(_) => drop(self.outbox.remove(link)),
                Event::Frame(..) => {}
            }
        }
        reported
    }

    /// Transmits, and receives once.
    pub(super) fn make_progress(&mut self) {
        self.transmit();
        self.receive(BUDGET_FRAMES);
    }

    /// Drives this endpoint alone, as [`drive_until`] drives several.
    #[track_caller]
    pub(super) fn drive_until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        drive_until(array::from_mut(self), what, |[endpoint]| done(endpoint));
    }

    /// Drives this endpoint until it has reported the end of a link.
    #[track_caller]
    pub(super) fn drive_until_down(&mut self, link: LinkId) {
        self.drive_until("the end of the link", |endpoint| endpoint.recorder.down_error(link).is_some());
    }

    /// Drives this endpoint until it has no link to drain.
    #[track_caller]
    pub(super) fn drive_until_drained(&mut self) {
        self.drive_until("the link to drain", |endpoint| endpoint.transport.draining_count() == 0);
    }
}

/// Asserts that a link between two endpoints, with these numbers at them, carries frames.
#[track_caller]
pub(super) fn assert_link_works<T: Transport>(
    mut endpoints: [TestEndpoint<T>; 2],
    [at_a, at_b]: [LinkId; 2],
) {
    endpoints[0].post(at_a, pseudo_random_payload(900, 2));
    endpoints[1].post(at_b, pseudo_random_payload(901, 2));
    drive_until(&mut endpoints, "a frame each way", |[a, b]| {
        a.recorder.frame_count(at_a) == 1 && b.recorder.frame_count(at_b) == 1
    });
}

impl Outbox {
    /// Sends the first frame, or the rest of it. Returns whether the transport has now taken the whole
    /// frame.
    fn transmit_front_frame(&mut self, link: LinkId, transport: &mut impl Transport) -> bool {
        let caps = transport.caps(link);
        if let Some(before) = self.caps.replace(caps) {
            let may_differ = caps.inline_max_bytes <= before.inline_max_bytes
                && caps.pull_min_bytes >= before.pull_min_bytes;
            assert!(
                may_differ,
                "{link:?} takes more inline or pulls shorter payload than before: {before:?}, {caps:?}"
            );
        }
        let Some((header, payload)) = self.frames.front() else { return false };
        let may_go_inline = payload.len() <= caps.inline_max_bytes;
        let (sent, before_bytes) = match self.taken_bytes {
            None if may_go_inline && payload.len().is_multiple_of(2) => {
                let sent = transport.send_inline(link, header, payload);
                (sent.map_or(Sent::Full, |()| Sent::Whole), 0)
            }
            None => (transport.send(link, header, &split_in_two_slices(payload)), 0),
            Some(taken_bytes) => {
                (transport.resume(link, &split_in_two_slices(&payload[taken_bytes..])), taken_bytes)
            }
        };
        match sent {
            Sent::Full => {
                self.is_refused = true;
                return false;
            }
            Sent::Partial(count_bytes) => {
                self.is_refused = true;
                assert!(before_bytes + count_bytes < payload.len(), "a part is not the whole");
                self.taken_bytes = Some(before_bytes + count_bytes);
                return false;
            }
            Sent::Whole => {}
        }
        self.frames.pop_front();
        self.taken_bytes = None;
        true
    }
}

/// Splits a payload into two slices, one of which may be empty.
fn split_in_two_slices(payload: &[u8]) -> [IoSlice<'_>; 2] {
    let (start, end) = payload.split_at(payload.len() / 3);
    [IoSlice::new(start), IoSlice::new(end)]
}

/// Drives all endpoints in turn until `done` returns true.
///
/// # Panics
///
/// If this takes longer than the first endpoint's patience. The panic message contains `what`.
#[track_caller]
pub fn drive_until<T: Transport, const N: usize>(
    endpoints: &mut [TestEndpoint<T>; N],
    what: &str,
    mut done: impl FnMut(&[TestEndpoint<T>; N]) -> bool,
) {
    drive_all_until(endpoints, what, |endpoints| done(endpoints.try_into().expect("as many")));
}

/// Drives a slice of endpoints as [`drive_until`] drives an array.
///
/// # Panics
///
/// If this takes longer than the first endpoint's patience. The panic message contains `what`.
#[track_caller]
pub fn drive_all_until<T: Transport>(
    endpoints: &mut [TestEndpoint<T>],
    what: &str,
    mut done: impl FnMut(&[TestEndpoint<T>]) -> bool,
) {
    let deadline = endpoints.first().map_or_else(Deadline::new, TestEndpoint::deadline_from_now);
    while {
        progress_all(endpoints);
        !done(endpoints)
    } {
        deadline.yield_or_panic(what);
    }
}

pub(super) fn progress_all<T: Transport>(endpoints: &mut [TestEndpoint<T>]) {
    endpoints.iter_mut().for_each(TestEndpoint::make_progress);
}
