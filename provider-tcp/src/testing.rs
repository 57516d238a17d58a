//! Hand-driven endpoints, and a frame handler that records everything, for the tests of this crate.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use homespun_engine::address::Address;
use homespun_engine::transport::{
    FrameHandler, LinkError, LinkEvent, LinkId, Provider, Sent, Space, Transport,
};
use homespun_engine::wire::{Header, Message};

use crate::{TcpProvider, TcpTransport};

static NEXT_INSTANCE: AtomicU64 = AtomicU64::new(1 << 40);

/// How long a test waits for an event before it fails: far longer than any event takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// How much space the recorder offers for the payload of unfinished frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Space for the whole payload.
    Direct,
    /// Space for this many bytes at the beginning. The rest comes in chunks.
    UpTo(usize),
    /// No space, so the whole payload comes in chunks.
    Nowhere,
}

/// Everything that the transport has reported about one link.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub(crate) frames: Vec<(Header, Vec<u8>)>,
    pub(crate) up: Option<(Address, u64)>,
    pub(crate) down: Option<LinkError>,
    pub(crate) placed_bytes: usize,
    pub(crate) chunked_bytes: usize,
    unfinished: Option<Unfinished>,
}

#[derive(Debug)]
struct Unfinished {
    header: Header,
    buffer: Vec<u8>,
    filled_bytes: usize,
    placeable_bytes: usize,
}

impl Inbox {
    pub(crate) fn is_mid_frame(&self) -> bool {
        self.unfinished.is_some()
    }

    fn note_filled(&mut self, count_bytes: usize) {
        let unfinished = self.unfinished.as_mut().expect("payload of no frame");
        unfinished.filled_bytes += count_bytes;
        assert!(unfinished.filled_bytes <= unfinished.buffer.len(), "more payload than the header said");
        if unfinished.filled_bytes == unfinished.buffer.len() {
            let Unfinished { header, buffer, .. } = self.unfinished.take().expect("just seen");
            self.frames.push((header, buffer));
        }
    }
}

/// Records everything, and panics if the transport breaks the contract of [`FrameHandler`].
#[derive(Debug)]
pub(crate) struct Recorder {
    pub(crate) placement: Placement,
    /// The inboxes of current links, by number.
    pub(crate) inboxes: BTreeMap<LinkId, Inbox>,
    /// The inboxes of ended links whose number another link has reused.
    pub(crate) past: Vec<Inbox>,
}

impl Recorder {
    fn live_inbox(&mut self, link: LinkId) -> &mut Inbox {
        let inbox = self.inboxes.get_mut(&link).expect("a link that never came up");
        assert!(inbox.up.is_some(), "a frame before the hello");
        assert!(inbox.down.is_none(), "a frame after the end");
        inbox
    }
}

impl FrameHandler for Recorder {
    fn frame(&mut self, link: LinkId, header: &Header, payload: &[u8]) {
        let inbox = self.live_inbox(link);
        assert!(!inbox.is_mid_frame(), "a frame within a frame");
        assert_eq!(payload.len() as u64, header.payload_len_bytes());
        inbox.frames.push((*header, payload.to_vec()));
    }

    fn frame_begun(&mut self, link: LinkId, header: &Header) {
        let placement = self.placement;
        let inbox = self.live_inbox(link);
        assert!(!inbox.is_mid_frame(), "a frame within a frame");
        let len_bytes = usize::try_from(header.payload_len_bytes()).unwrap();
        let placeable_bytes = match placement {
            Placement::Direct => len_bytes,
            Placement::UpTo(bytes) => bytes.min(len_bytes),
            Placement::Nowhere => 0,
        };
        let buffer = vec![0; len_bytes];
        inbox.unfinished = Some(Unfinished { header: *header, buffer, filled_bytes: 0, placeable_bytes });
    }

    fn payload_space(&mut self, link: LinkId) -> Space<'_> {
        let unfinished = self.live_inbox(link).unfinished.as_mut().expect("space for no frame");
        let from = unfinished.filled_bytes.min(unfinished.placeable_bytes);
        let open = &mut unfinished.buffer[from..unfinished.placeable_bytes];
        // Offer two slices, so that the transport must fill both.
        let (first, second) = open.split_at_mut(open.len() / 3);
        let pieces = [first, second].into_iter().filter(|piece| !piece.is_empty());
        pieces.map(IoSliceMut::new).collect()
    }

    fn bytes_placed(&mut self, link: LinkId, count_bytes: usize) {
        let inbox = self.live_inbox(link);
        inbox.placed_bytes += count_bytes;
        inbox.note_filled(count_bytes);
    }

    fn payload_arrived(&mut self, link: LinkId, bytes: &[u8]) {
        let inbox = self.live_inbox(link);
        let unfinished = inbox.unfinished.as_mut().expect("payload of no frame");
        let at = unfinished.filled_bytes;
        unfinished.buffer[at..at + bytes.len()].copy_from_slice(bytes);
        inbox.chunked_bytes += bytes.len();
        inbox.note_filled(bytes.len());
    }

    fn link_event(&mut self, link: LinkId, event: LinkEvent) {
        if self.inboxes.get(&link).is_some_and(|inbox| inbox.down.is_some()) {
            self.past.extend(self.inboxes.remove(&link));
        }
        let inbox = self.inboxes.entry(link).or_default();
        assert!(inbox.down.is_none(), "an event after the end");
        match event {
            LinkEvent::Up { peer, instance, .. } => {
                assert!(inbox.up.is_none(), "up twice");
                inbox.up = Some((peer, instance));
            }
            LinkEvent::Confirmed => {}
            LinkEvent::Down(error) => inbox.down = Some(error),
        }
    }

    fn link_writable(&mut self, _: LinkId) {}
}

/// An endpoint and its recorder.
#[derive(Debug)]
pub(crate) struct Side {
    pub(crate) transport: TcpTransport,
    pub(crate) recorder: Recorder,
    pub(crate) instance: u64,
}

impl Side {
    pub(crate) fn open(provider: &TcpProvider, bind: &str) -> Side {
        let bind: SocketAddr = bind.parse().unwrap();
        let instance = NEXT_INSTANCE.fetch_add(1, Ordering::Relaxed);
        let transport = provider.open(bind.into(), instance).expect("an endpoint");
        let recorder = Recorder { placement: Placement::Direct, inboxes: BTreeMap::new(), past: Vec::new() };
        Side { transport, recorder, instance }
    }

    pub(crate) fn progress(&mut self) -> u32 {
        let count = self.transport.receive(64, &mut self.recorder);
        self.transport.flush();
        count
    }

    pub(crate) fn inbox(&self, link: LinkId) -> Option<&Inbox> {
        self.recorder.inboxes.get(&link)
    }

    pub(crate) fn is_up(&self, link: LinkId) -> bool {
        self.inbox(link).is_some_and(|inbox| inbox.up.is_some() && inbox.down.is_none())
    }

    pub(crate) fn down_error(&self, link: LinkId) -> Option<&LinkError> {
        self.inbox(link)?.down.as_ref()
    }

    pub(crate) fn received_frames(&self, link: LinkId) -> &[(Header, Vec<u8>)] {
        self.inbox(link).map_or(&[], |inbox| &inbox.frames)
    }

    /// The only link that has come up, if there is one.
    pub(crate) fn only_link(&self) -> Option<LinkId> {
        let mut links = self.recorder.inboxes.keys().copied();
        let only = links.next();
        assert!(links.next().is_none(), "more links than one: {:?}", self.recorder.inboxes.keys());
        only
    }
}

/// Two endpoints with one link.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) client: Side,
    pub(crate) server: Side,
    /// The link at the client, which connected.
    pub(crate) out: LinkId,
    /// The link at the server.
    pub(crate) into: LinkId,
}

impl Pair {
    /// Opens two endpoints and connects them.
    pub(crate) fn open_connected(provider: &TcpProvider, bind: &str) -> Pair {
        let mut client = Side::open(provider, bind);
        let mut server = Side::open(provider, bind);
        let out = client.transport.connect(server.transport.address());
        drive_until("the link to come up", &mut [&mut client, &mut server], |sides| {
            sides[0].is_up(out) && sides[1].only_link().is_some()
        });
        let into = server.only_link().expect("just seen");
        Pair { client, server, out, into }
    }

    pub(crate) fn drive_until(&mut self, what: &str, mut done: impl FnMut(&mut Side, &mut Side) -> bool) {
        drive_until(what, &mut [&mut self.client, &mut self.server], |sides| {
            let [client, server] = sides else { unreachable!("two sides") };
            done(client, server)
        });
    }
}

/// Drives endpoints until `done` returns true.
pub(crate) fn drive_until(
    what: &str,
    sides: &mut [&mut Side],
    mut done: impl FnMut(&mut [&mut Side]) -> bool,
) {
    let begin = Instant::now();
    while !done(sides) {
        let mut count = 0;
        for side in sides.iter_mut() {
            count += side.progress();
        }
        if count == 0 {
            thread::yield_now();
        }
        assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}");
    }
}

pub(crate) fn make_message(len_bytes: usize, tag: u64) -> Header {
    Header::Message(Message { tag: Some(tag), ..Message::of_len(len_bytes as u64) })
}

/// Payload without repeated sequences, different for each seed.
pub(crate) fn make_payload(len_bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len_bytes)
        .map(|_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 56) as u8
        })
        .collect()
}

/// A frame that is being sent, in the state that an engine keeps.
#[derive(Debug)]
pub(crate) struct Sending {
    header: Header,
    payload: Vec<u8>,
    is_begun: bool,
    taken_bytes: usize,
    /// How often the transport took part of the payload.
    pub(crate) partial_count: usize,
}

impl Sending {
    pub(crate) fn new(header: Header, payload: Vec<u8>) -> Sending {
        Sending { header, payload, is_begun: false, taken_bytes: 0, partial_count: 0 }
    }

    /// Sends or resumes the frame. Returns whether the transport has taken all of it.
    pub(crate) fn advance(&mut self, transport: &mut TcpTransport, link: LinkId) -> bool {
        let rest = &self.payload[self.taken_bytes..];
        let (first, second) = rest.split_at(rest.len() / 2);
        let slices = [IoSlice::new(first), IoSlice::new(second)];
        let sent = if self.is_begun {
            transport.resume(link, &slices)
        } else {
            transport.send(link, &self.header, &slices)
        };
        match sent {
            Sent::Full => false,
            Sent::Partial(count_bytes) => {
                assert!(count_bytes < rest.len(), "all of it is not a part");
                self.is_begun = true;
                self.taken_bytes += count_bytes;
                self.partial_count += 1;
                false
            }
            Sent::Whole => true,
        }
    }
}
