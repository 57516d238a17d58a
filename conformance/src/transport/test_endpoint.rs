//! One endpoint with everything that a test needs of it, and how endpoints are driven.

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;

use homespun_engine::address::Address;
use homespun_engine::transport::{Close, LinkCaps, LinkId, Provider, Sent, Transport};
use homespun_engine::wire::Header;

use crate::transport::{Deadline, Event, Recorder, message};

/// The budget that [`drive`] gives to each call of [`receive`](Transport::receive), in frames.
pub const BUDGET_FRAMES: u32 = 32;

/// One endpoint: a transport, what it was told, and what it still has to send.
///
/// It calls the transport as an engine would: it goes on with a frame that was taken in part before it sends anything else
/// on that link, and repeats what was not taken. Every other frame that may go inline does.
#[derive(Debug)]
pub struct TestEndpoint<T> {
    /// The transport, for calls that the endpoint does not make itself.
    pub transport: T,
    /// What was reported.
    pub recorder: Recorder,
    address: Address,
    outbox: BTreeMap<LinkId, Outbox>,
    refusals: usize,
}

#[derive(Debug, Default)]
struct Outbox {
    frames: VecDeque<(Header, Vec<u8>)>,
    /// How much of the first frame's payload was taken, if its header was.
    taken_bytes: Option<usize>,
    /// What the link could do when it was last asked.
    caps: Option<LinkCaps>,
}

impl<T: Transport> TestEndpoint<T> {
    /// Opens an endpoint at the wildcard of the provider's preferred format.
    ///
    /// # Panics
    ///
    /// If the provider does not open it.
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
        TestEndpoint { transport, recorder, address, outbox: BTreeMap::new(), refusals: 0 }
    }

    /// The transport's address.
    ///
    /// # Panics
    ///
    /// If it is not what it was at first.
    pub fn address(&self) -> Address {
        assert_eq!(self.transport.address(), self.address, "the address has changed");
        self.address
    }

    /// Connects to a peer.
    ///
    /// # Panics
    ///
    /// If the transport gives the link a number that is not free.
    pub fn connect(&mut self, to: Address) -> LinkId {
        let link = self.transport.connect(to);
        self.recorder.connecting(link);
        self.outbox.insert(link, Outbox::default());
        link
    }

    /// Leaves a message to be sent on a link.
    pub fn post(&mut self, link: LinkId, payload: Vec<u8>) {
        self.post_frame(link, message(payload.len()), payload);
    }

    /// Leaves a frame to be sent on a link.
    pub fn post_frame(&mut self, link: LinkId, header: Header, payload: Vec<u8>) {
        self.outbox.entry(link).or_default().frames.push_back((header, payload));
    }

    /// Closes a link and forgets what was still to be sent on it. From here on it is an error if anything is reported of it.
    pub fn close(&mut self, link: LinkId, how: Close) {
        self.transport.close(link, how);
        self.recorder.closed(link);
        self.outbox.remove(&link);
    }

    /// Whether everything that was posted has been taken.
    pub fn is_posted(&self) -> bool {
        self.outbox.values().all(|outbox| outbox.frames.is_empty())
    }

    /// How many frames wait on a link, the one that was taken in part included.
    pub fn waiting_frames(&self, link: LinkId) -> usize {
        self.outbox.get(&link).map_or(0, |outbox| outbox.frames.len())
    }

    /// Whether the link has taken a frame in part.
    pub fn is_mid_frame(&self, link: LinkId) -> bool {
        self.outbox.get(&link).is_some_and(|outbox| outbox.taken_bytes.is_some())
    }

    /// How often a link did not take all that there was.
    pub fn refusals(&self) -> usize {
        self.refusals
    }

    /// Sends as much as the transport takes, and flushes.
    ///
    /// # Panics
    ///
    /// If what a link can do has grown, or if a part that was taken is not less than the whole.
    pub fn transmit(&mut self) {
        for (&link, outbox) in &mut self.outbox {
            while outbox.transmit(link, &mut self.transport) {}
            self.refusals += usize::from(!outbox.frames.is_empty());
        }
        self.transport.flush();
    }

    /// Receives once. Returns what the transport says it has reported.
    ///
    /// # Panics
    ///
    /// If more was reported than the transport says.
    pub fn receive(&mut self, budget_frames: u32) -> u32 {
        let seen = self.recorder.log().len();
        let reported = self.transport.receive(budget_frames, &mut self.recorder);
        let news = &self.recorder.log()[seen..];
        assert!(
            news.len() <= reported as usize,
            "{} events happened and {reported} were admitted",
            news.len()
        );
        for (link, event) in news {
            match event {
                // An earlier link of that number has left nothing, but one that connects may have something to send.
                Event::Up(..) => drop(self.outbox.entry(*link).or_default()),
                Event::Down(_) => drop(self.outbox.remove(link)),
                Event::Frame(..) => {}
            }
        }
        reported
    }
}

impl Outbox {
    /// Gives the first frame, or what is left of it, to the transport; whether that was all of it.
    fn transmit(&mut self, link: LinkId, transport: &mut impl Transport) -> bool {
        let caps = transport.caps(link);
        if let Some(before) = self.caps.replace(caps) {
            assert!(
                caps.inline_max_bytes <= before.inline_max_bytes,
                "{link:?} takes more inline than before"
            );
            assert!(
                caps.pull_min_bytes >= before.pull_min_bytes,
                "{link:?} pulls what it did not pull before"
            );
        }
        let Some((header, payload)) = self.frames.front() else { return false };
        let may_go_inline = payload.len() <= caps.inline_max_bytes;
        let (sent, before_bytes) = match self.taken_bytes {
            None if may_go_inline && payload.len().is_multiple_of(2) => {
                let sent = transport.send_inline(link, header, payload);
                (sent.map_or(Sent::Full, |()| Sent::Whole), 0)
            }
            None => (transport.send(link, header, &slices(payload)), 0),
            Some(taken_bytes) => (transport.resume(link, &slices(&payload[taken_bytes..])), taken_bytes),
        };
        match sent {
            Sent::Full => return false,
            Sent::Partial(count_bytes) => {
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

/// A payload as two slices, one of them perhaps empty.
fn slices(payload: &[u8]) -> [IoSlice<'_>; 2] {
    let (start, end) = payload.split_at(payload.len() / 3);
    [IoSlice::new(start), IoSlice::new(end)]
}

/// Lets everybody send and receive in turn until something is the case.
///
/// # Panics
///
/// If that takes longer than a minute, saying what was waited for.
#[track_caller]
pub fn drive<T: Transport, const N: usize>(
    endpoints: &mut [TestEndpoint<T>; N],
    what: &str,
    mut done: impl FnMut(&[TestEndpoint<T>; N]) -> bool,
) {
    let deadline = Deadline::new();
    while {
        pass(endpoints);
        !done(endpoints)
    } {
        deadline.pause(what);
    }
}

/// As [`drive`], for endpoints whose number is not a constant.
///
/// # Panics
///
/// If that takes longer than a minute, saying what was waited for.
#[track_caller]
pub fn drive_all<T: Transport>(
    endpoints: &mut [TestEndpoint<T>],
    what: &str,
    mut done: impl FnMut(&[TestEndpoint<T>]) -> bool,
) {
    let deadline = Deadline::new();
    while {
        pass(endpoints);
        !done(endpoints)
    } {
        deadline.pause(what);
    }
}

fn pass<T: Transport>(endpoints: &mut [TestEndpoint<T>]) {
    for endpoint in endpoints {
        endpoint.transmit();
        endpoint.receive(BUDGET_FRAMES);
    }
}

/// Two endpoints, of instances 11 and 22, with a link that is up on both sides: the connector's number for it and the
/// acceptor's.
///
/// # Panics
///
/// If it does not come up within a minute.
#[track_caller]
pub fn linked<P: Provider>(provider: &P) -> ([TestEndpoint<P::Transport>; 2], LinkId, LinkId) {
    let mut endpoints = [TestEndpoint::open(provider, 11), TestEndpoint::open(provider, 22)];
    let link = endpoints[0].connect(endpoints[1].address());
    drive(&mut endpoints, "a link that is up on both sides", |[a, b]| {
        a.recorder.up_count() == 1 && b.recorder.up_count() == 1
    });
    let peer = endpoints[1].recorder.ups()[0].0;
    (endpoints, link, peer)
}
