//! What every transport owes its caller, as tests that know only [`Provider`] and [`Transport`].

use std::collections::{BTreeMap, VecDeque};
use std::io::{IoSlice, IoSliceMut};

use fastrand::Rng;

use crate::address::{Address, AddressFormat};
use crate::errno::Errno;
use crate::transport::{Close, LinkError, LinkEvent, LinkId, Provider, Receiver, Sent, Space, Transport};
use crate::wire::{Header, Message};

/// A test that needs more rounds than this hangs.
const ROUNDS_MAX: usize = 100_000;

const BUDGET_FRAMES: u32 = 32;

/// Payload sizes around every boundary that headers, inline frames and small pipes have.
pub(super) const SIZES: [usize; 20] =
    [0, 1, 2, 11, 12, 13, 27, 28, 29, 100, 255, 256, 257, 1000, 4095, 4096, 4097, 20_000, 70_000, 200_000];

/// One thing that a [`Recorder`] was told, frames put together again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    Up(Address, u64),
    Frame(Header, Vec<u8>),
    Down(LinkError),
}

/// Records everything it is told, and fails where a transport breaks the rules of [`Receiver`].
#[derive(Default)]
pub(super) struct Recorder {
    pub(super) log: Vec<(LinkId, Event)>,
    /// The links that are up, and the unfinished frame of each.
    up: BTreeMap<LinkId, Option<(Header, Vec<u8>)>>,
    /// Links of this side that are not up.
    connecting: Vec<LinkId>,
    place: Vec<u8>,
    place_bytes: usize,
    spaces: usize,
    pub(super) placed: usize,
    pub(super) chunks: usize,
}

impl Recorder {
    pub(super) fn of(&self, link: LinkId) -> Vec<&Event> {
        self.log.iter().filter(|(of, _)| *of == link).map(|(_, event)| event).collect()
    }

    pub(super) fn payloads(&self, link: LinkId) -> Vec<&[u8]> {
        let events = self.of(link).into_iter();
        events
            .filter_map(|event| match event {
                Event::Frame(_, payload) => Some(payload.as_slice()),
                Event::Up(..) | Event::Down(_) => None,
            })
            .collect()
    }

    pub(super) fn down(&self, link: LinkId) -> Option<&LinkError> {
        match self.of(link).last()? {
            Event::Down(why) => Some(why),
            Event::Up(..) | Event::Frame(..) => None,
        }
    }

    /// The links that came up, in that order, under which address.
    pub(super) fn ups(&self) -> Vec<(LinkId, Address, u64)> {
        let up = |(link, event): &(LinkId, Event)| match event {
            Event::Up(peer, instance) => Some((*link, *peer, *instance)),
            Event::Frame(..) | Event::Down(_) => None,
        };
        self.log.iter().filter_map(up).collect()
    }

    fn unfinished(&mut self, link: LinkId) -> &mut Option<(Header, Vec<u8>)> {
        self.up.get_mut(&link).unwrap_or_else(|| panic!("{link:?} is not up"))
    }

    fn left_bytes(&mut self, link: LinkId) -> usize {
        let (header, payload) = self.unfinished(link).as_ref().expect("no frame was begun");
        usize::try_from(header.payload_len_bytes()).unwrap() - payload.len()
    }

    fn append(&mut self, link: LinkId, bytes: &[u8]) {
        assert!(!bytes.is_empty(), "a piece of nothing");
        assert!(bytes.len() <= self.left_bytes(link), "more payload than the header said");
        let unfinished = self.unfinished(link);
        if let Some((_, payload)) = unfinished {
            payload.extend(bytes);
        }
        if self.left_bytes(link) == 0
            && let Some((header, payload)) = self.unfinished(link).take()
        {
            self.log.push((link, Event::Frame(header, payload)));
        }
    }
}

impl Receiver for Recorder {
    fn frame(&mut self, link: LinkId, header: &Header, payload: &[u8]) {
        assert_eq!(*self.unfinished(link), None, "a frame inside a frame");
        assert_eq!(header.payload_len_bytes(), payload.len() as u64);
        self.log.push((link, Event::Frame(*header, payload.to_vec())));
    }

    fn begin(&mut self, link: LinkId, header: &Header) {
        assert!(header.payload_len_bytes() > 0, "an empty frame was begun");
        assert_eq!(self.unfinished(link).replace((*header, Vec::new())), None, "a frame inside a frame");
    }

    /// No space, all that is left in two slices, half of it, in turn.
    fn space(&mut self, link: LinkId) -> Space<'_> {
        let left_bytes = self.left_bytes(link);
        self.spaces += 1;
        self.place_bytes = [0, left_bytes, left_bytes.div_ceil(2)][self.spaces % 3];
        self.place = vec![0; self.place_bytes];
        let (start, end) = self.place.split_at_mut(self.place_bytes / 2);
        [start, end].into_iter().filter(|slice| !slice.is_empty()).map(IoSliceMut::new).collect()
    }

    fn placed(&mut self, link: LinkId, count_bytes: usize) {
        assert!(count_bytes <= self.place_bytes, "more was placed than there is space");
        self.placed += 1;
        self.place_bytes = 0;
        let bytes = std::mem::take(&mut self.place);
        self.append(link, &bytes[..count_bytes]);
    }

    fn chunk(&mut self, link: LinkId, bytes: &[u8]) {
        self.chunks += 1;
        self.append(link, bytes);
    }

    fn link(&mut self, link: LinkId, event: LinkEvent) {
        match event {
            LinkEvent::Up { peer, instance } => {
                assert!(self.up.insert(link, None).is_none(), "{link:?} came up twice");
                self.connecting.retain(|&connecting| connecting != link);
                self.log.push((link, Event::Up(peer, instance)));
            }
            LinkEvent::Down(why) => {
                let was_connecting = self.connecting.contains(&link);
                self.connecting.retain(|&connecting| connecting != link);
                assert!(self.up.remove(&link).is_some() || was_connecting, "{link:?} was down already");
                self.log.push((link, Event::Down(why)));
            }
        }
    }
}

/// One endpoint: a transport, what it was told, and what it still has to send.
pub(super) struct Party<T> {
    pub(super) transport: T,
    pub(super) recorder: Recorder,
    outbox: BTreeMap<LinkId, Outbox>,
    pub(super) fulls: usize,
}

#[derive(Default)]
struct Outbox {
    frames: VecDeque<(Header, Vec<u8>)>,
    /// How much of the first frame's payload was taken, if its header was.
    taken_bytes: Option<usize>,
}

impl<T: Transport> Party<T> {
    pub(super) fn open(provider: &impl Provider<Transport = T>, instance: u64) -> Self {
        let transport = provider.open(AddressFormat::SockaddrIn.wildcard(), instance).expect("opens");
        Party { transport, recorder: Recorder::default(), outbox: BTreeMap::new(), fulls: 0 }
    }

    pub(super) fn connect(&mut self, to: Address) -> LinkId {
        let link = self.transport.connect(to);
        assert!(!self.outbox.contains_key(&link), "{link:?} is in use");
        self.recorder.connecting.push(link);
        self.outbox.insert(link, Outbox::default());
        link
    }

    pub(super) fn post(&mut self, link: LinkId, payload: Vec<u8>) {
        let header = header(payload.len(), link);
        self.outbox.entry(link).or_default().frames.push_back((header, payload));
    }

    pub(super) fn close(&mut self, link: LinkId, how: Close) {
        self.transport.close(link, how);
        self.recorder.up.remove(&link);
        self.recorder.connecting.retain(|&connecting| connecting != link);
        self.outbox.remove(&link);
    }

    /// Whether everything that was posted has been taken.
    pub(super) fn is_posted(&self) -> bool {
        self.outbox.values().all(|outbox| outbox.frames.is_empty())
    }

    pub(super) fn transmit(&mut self) {
        for (&link, outbox) in &mut self.outbox {
            while outbox.transmit(link, &mut self.transport) {}
            self.fulls += usize::from(!outbox.frames.is_empty());
        }
        self.transport.flush();
    }

    pub(super) fn receive(&mut self, budget_frames: u32) -> u32 {
        let seen = self.recorder.log.len();
        let reported = self.transport.receive(budget_frames, &mut self.recorder);
        let events = self.recorder.log.len() - seen;
        assert!(events <= reported as usize, "{events} events happened and {reported} were admitted");
        for (link, event) in &self.recorder.log[seen..] {
            if let Event::Down(_) = event {
                self.outbox.remove(link);
            }
        }
        reported
    }
}

impl Outbox {
    /// Gives the first frame, or what is left of it, to the transport; whether that was all of it.
    fn transmit(&mut self, link: LinkId, transport: &mut impl Transport) -> bool {
        let Some((header, payload)) = self.frames.front() else { return false };
        let (sent, before_bytes) = match self.taken_bytes {
            // Every other size goes inline where it can.
            None if payload.len() <= transport.caps(link).inline_max_bytes
                && payload.len().is_multiple_of(2) =>
            {
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

fn header(payload_bytes: usize, link: LinkId) -> Header {
    let len_bytes = payload_bytes as u64;
    let tag = len_bytes.is_multiple_of(3).then_some(len_bytes ^ u64::from(link.0));
    Header::Message(Message { len_bytes, tag, data: (len_bytes % 5 == 1).then_some(9), wants_ack: false })
}

/// Bytes of which no two neighbourhoods look alike.
pub(super) fn payload(len_bytes: usize, salt: u64) -> Vec<u8> {
    let mut bytes = vec![0; len_bytes];
    Rng::with_seed(salt ^ len_bytes as u64).fill(&mut bytes);
    bytes
}

/// Lets everybody send and receive in turn until `done`.
pub(super) fn drive<T: Transport, const N: usize>(
    parties: &mut [Party<T>; N],
    what: &str,
    mut done: impl FnMut(&[Party<T>; N]) -> bool,
) {
    for _ in 0..ROUNDS_MAX {
        for party in &mut *parties {
            party.transmit();
            party.receive(BUDGET_FRAMES);
        }
        if done(parties) {
            return;
        }
    }
    panic!("not after {ROUNDS_MAX} rounds: {what}");
}

/// Two endpoints with a link that is up on both sides: the connector's name for it and the acceptor's.
pub(super) fn linked<P: Provider>(provider: &P) -> ([Party<P::Transport>; 2], LinkId, LinkId) {
    let mut parties = [Party::open(provider, 11), Party::open(provider, 22)];
    let link = parties[0].connect(parties[1].transport.address());
    drive(&mut parties, "both sides are up", |[a, b]| {
        !a.recorder.ups().is_empty() && !b.recorder.ups().is_empty()
    });
    let peer = parties[1].recorder.ups()[0].0;
    (parties, link, peer)
}

pub(super) fn frames_arrive_whole_and_in_order<P: Provider>(provider: &P) {
    let (mut parties, there, back) = linked(provider);
    let (to, fro): (Vec<_>, Vec<_>) =
        (SIZES.map(|size| payload(size, 1)).into(), SIZES.map(|size| payload(size, 2)).into());
    for (a, b) in to.iter().zip(fro.iter().rev()) {
        parties[0].post(there, a.clone());
        parties[1].post(back, b.clone());
    }
    drive(&mut parties, "all frames arrived", |[a, b]| {
        a.recorder.payloads(there).len() == SIZES.len() && b.recorder.payloads(back).len() == SIZES.len()
    });
    let [a, b] = parties;
    assert_eq!(b.recorder.payloads(back), to);
    assert_eq!(a.recorder.payloads(there), fro.into_iter().rev().collect::<Vec<_>>());
    for event in b.recorder.of(back) {
        if let Event::Frame(seen, payload) = event {
            assert_eq!(*seen, header(payload.len(), there));
        }
    }
}

pub(super) fn frames_sent_before_the_link_is_up_arrive<P: Provider>(provider: &P) {
    let mut parties = [Party::open(provider, 11), Party::open(provider, 22)];
    let link = parties[0].connect(parties[1].transport.address());
    parties[0].post(link, payload(5000, 1));
    drive(&mut parties, "the frame arrived", |[_, b]| b.recorder.log.len() == 2);
    let [a, b] = parties;
    let up = Event::Up(a.transport.address(), 11);
    assert_eq!(b.recorder.log[0].1, up, "who it is comes first");
    assert_eq!(b.recorder.log[1].1, Event::Frame(header(5000, link), payload(5000, 1)));
}

pub(super) fn connects_that_cross_make_two_links<P: Provider>(provider: &P) {
    let mut parties = [Party::open(provider, 11), Party::open(provider, 22)];
    let addresses = [parties[0].transport.address(), parties[1].transport.address()];
    let links = [parties[0].connect(addresses[1]), parties[1].connect(addresses[0])];
    for (party, link) in parties.iter_mut().zip(links) {
        party.post(link, payload(3000, u64::from(link.0)));
    }
    drive(&mut parties, "both links are up on both sides", |parties| {
        parties.iter().all(|party| party.recorder.ups().len() == 2 && party.recorder.log.len() == 3)
    });
    for (party, (peer, instance)) in parties.iter().zip([(addresses[1], 22), (addresses[0], 11)]) {
        assert!(party.recorder.ups().iter().all(|&(_, p, i)| (p, i) == (peer, instance)));
    }
}

pub(super) fn an_endpoint_reaches_itself<P: Provider>(provider: &P) {
    let mut parties = [Party::open(provider, 11)];
    let address = parties[0].transport.address();
    let link = parties[0].connect(address);
    parties[0].post(link, payload(9000, 1));
    drive(&mut parties, "the frame arrived", |[a]| a.recorder.log.len() == 3);
    let [mut a] = parties;
    let ups = a.recorder.ups();
    assert_eq!(ups.len(), 2);
    assert!(ups.iter().all(|&(_, peer, instance)| (peer, instance) == (address, 11)));
    let other = ups.into_iter().map(|(id, ..)| id).find(|&id| id != link).expect("two names");
    assert_eq!(a.recorder.payloads(other), [payload(9000, 1)]);
    a.close(link, Close::Drain);
    let mut parties = [a];
    drive(&mut parties, "the other side is down", |[a]| a.recorder.down(other) == Some(&LinkError::Closed));
}

pub(super) fn a_drained_link_delivers_everything_and_then_is_closed<P: Provider>(provider: &P) {
    let (mut parties, link, peer) = linked(provider);
    // The peer has much to say too, and nobody listens to it any more.
    for size in SIZES {
        parties[0].post(link, payload(size, 1));
        parties[1].post(peer, payload(size, 2));
    }
    drive(&mut parties, "everything was taken", |[a, _]| a.is_posted());
    parties[0].close(link, Close::Drain);
    let heard = parties[0].recorder.log.len();
    drive(&mut parties, "drained, and the peer knows", |[a, b]| {
        a.transport.draining() == 0 && b.recorder.down(peer).is_some()
    });
    let [a, b] = parties;
    assert_eq!(b.recorder.payloads(peer), SIZES.map(|size| payload(size, 1)));
    assert_eq!(b.recorder.down(peer), Some(&LinkError::Closed));
    assert_eq!(a.recorder.log.len(), heard, "nothing is reported about a closed link");
}

pub(super) fn both_sides_may_drain_at_once<P: Provider>(provider: &P) {
    let (mut parties, link, peer) = linked(provider);
    parties[0].close(link, Close::Drain);
    parties[1].close(peer, Close::Drain);
    drive(&mut parties, "nothing drains", |parties| {
        parties.iter().all(|party| party.transport.draining() == 0)
    });
    assert!(
        parties.iter().all(|party| party.recorder.log.len() == 1),
        "nothing is reported about a closed link"
    );
}

pub(super) fn an_aborted_link_is_reset<P: Provider>(provider: &P) {
    let (mut parties, link, peer) = linked(provider);
    for size in SIZES {
        parties[0].post(link, payload(size, 1));
    }
    parties[0].transmit();
    parties[0].close(link, Close::Abort);
    assert_eq!(parties[0].transport.draining(), 0);
    drive(&mut parties, "the peer knows", |[_, b]| b.recorder.down(peer).is_some());
    let [_, b] = parties;
    assert_eq!(b.recorder.down(peer), Some(&LinkError::System(Errno::ECONNRESET)));
    let arrived = b.recorder.payloads(peer);
    assert_eq!(arrived, SIZES.map(|size| payload(size, 1))[..arrived.len()], "a prefix at most");
}

pub(super) fn a_dropped_transport_resets_its_links<P: Provider>(provider: &P) {
    let ([mut a, b], link, _) = linked(provider);
    let unanswered = a.connect(b.transport.address());
    drop(b);
    let mut parties = [a];
    drive(&mut parties, "both links are down", |[a]| {
        a.recorder.down(link).is_some() && a.recorder.down(unanswered).is_some()
    });
    assert_eq!(parties[0].recorder.down(link), Some(&LinkError::System(Errno::ECONNRESET)));
}

pub(super) fn nobody_there_is_refused<P: Provider>(provider: &P) {
    let mut parties = [Party::open(provider, 11)];
    let nobody = Party::open(provider, 22).transport.address();
    let link = parties[0].connect(nobody);
    parties[0].post(link, payload(10, 1));
    drive(&mut parties, "the link is down", |[a]| a.recorder.down(link).is_some());
    let refused = (link, Event::Down(LinkError::System(Errno::ECONNREFUSED)));
    assert_eq!(parties[0].recorder.log, [refused], "down once, and never up");
}

pub(super) fn an_endpoint_that_stopped_accepting_keeps_its_links<P: Provider>(provider: &P) {
    let (mut parties, link, peer) = linked(provider);
    parties[1].transport.stop_accepting();
    let late = parties[0].connect(parties[1].transport.address());
    parties[0].post(link, payload(5001, 1));
    drive(&mut parties, "refused, and the old link works", |[a, b]| {
        a.recorder.down(late).is_some() && !b.recorder.payloads(peer).is_empty()
    });
    assert_eq!(parties[0].recorder.of(late).len(), 1);
    assert_eq!(parties[0].recorder.down(link), None);
}

pub(super) fn an_address_has_one_endpoint_at_a_time<P: Provider>(provider: &P) {
    let a = Party::open(provider, 11);
    let address = a.transport.address();
    assert!(address.is_specific() && address.port() != 0);
    assert_eq!(provider.open(address, 22).err(), Some(Errno::EADDRINUSE));
    drop(a);
    let successor = provider.open(address, 22).expect("the address is free again");
    assert_eq!(successor.address(), address);
}

/// Instantiates every test of the contract for providers made by a closure, each of which gets a fresh one.
pub(super) fn holds<P: Provider>(mut fresh: impl FnMut() -> P) {
    frames_arrive_whole_and_in_order(&fresh());
    frames_sent_before_the_link_is_up_arrive(&fresh());
    connects_that_cross_make_two_links(&fresh());
    an_endpoint_reaches_itself(&fresh());
    a_drained_link_delivers_everything_and_then_is_closed(&fresh());
    both_sides_may_drain_at_once(&fresh());
    an_aborted_link_is_reset(&fresh());
    a_dropped_transport_resets_its_links(&fresh());
    nobody_there_is_refused(&fresh());
    an_endpoint_that_stopped_accepting_keeps_its_links(&fresh());
    an_address_has_one_endpoint_at_a_time(&fresh());
}
