//! A frame handler that records everything.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSliceMut;
use std::mem;

use homespun_engine::address::Address;
use homespun_engine::transport::{FrameHandler, LinkError, LinkEvent, LinkId, Space};
use homespun_engine::wire::{Header, Message};

/// The largest space that the recorder offers for payload.
const SPACE_MAX_BYTES: usize = 256 * 1024;

/// An event that a transport has reported to a [`Recorder`]. A frame that came in pieces is one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The link has come up: the peer's address and instance.
    Up(Address, u64),
    /// A frame has arrived.
    Frame(Header, Vec<u8>),
    /// The link has ended.
    Down(LinkError),
}

/// Records all events, and panics if a transport breaks the rules of [`FrameHandler`]. Forbidden are: frames
/// of links that are not up, frames inside frames, too much payload for the header or the space, and links
/// that come up or go down twice. The address of a link that this side connected must not be reported as
/// only claimed, and an address that is already proven must not be confirmed.
///
/// The recorder takes payload in all ways that a handler may. It alternates among three: it offers space for
/// the rest of the payload (up to a limit), space for half of the rest, and no space. The space has up to
/// two slices.
#[derive(Debug, Default)]
pub struct Recorder {
    log: Vec<(LinkId, Event)>,
    /// The links that are up, and the unfinished frame of each.
    up: BTreeMap<LinkId, Option<(Header, Vec<u8>)>>,
    /// Links that are up, and whose peers merely claim their address.
    claimed: BTreeSet<LinkId>,
    /// The instances of peers whose link had ended when it came up.
    ended_instances: BTreeSet<u64>,
    /// Links that this side connects, and that are not up yet.
    connecting: BTreeSet<LinkId>,
    /// Links that were reported as writable, or that have come up, since the last
    /// [`take_writable`](Self::take_writable).
    writable: BTreeSet<LinkId>,
    place: Vec<u8>,
    place_bytes: usize,
    offers: usize,
    spaces: usize,
    placed: usize,
    chunks: usize,
}

impl Recorder {
    /// Returns all events, in order.
    pub fn log(&self) -> &[(LinkId, Event)] {
        &self.log
    }

    /// Returns whether a link was reported as writable, or has come up, since the last call.
    pub(crate) fn take_writable(&mut self, link: LinkId) -> bool {
        self.writable.remove(&link)
    }

    /// Returns all events of the links that had this number.
    pub fn events_of(&self, link: LinkId) -> Vec<&Event> {
        self.log.iter().filter(|(of, _)| *of == link).map(|(_, event)| event).collect()
    }

    /// Returns the payloads of a link's frames.
    pub fn payloads_of(&self, link: LinkId) -> Vec<&[u8]> {
        let events = self.events_of(link).into_iter();
        events
            .filter_map(|event| match event {
                Event::Frame(_, payload) => Some(payload.as_slice()),
                Event::Up(..) | Event::Down(_) => None,
            })
            .collect()
    }

    /// Returns the error with which a link ended. `None` if the link has not ended, or if a later link has
    /// reused its number.
    pub fn down_error(&self, link: LinkId) -> Option<&LinkError> {
        let (_, last) = self.log.iter().rfind(|(of, _)| *of == link)?;
        match last {
            Event::Down(why) => Some(why),
            Event::Up(..) | Event::Frame(..) => None,
        }
    }

    /// Returns the links that came up, in order, each with the peer's address and instance.
    pub fn up_events(&self) -> Vec<(LinkId, Address, u64)> {
        let up = |(link, event): &(LinkId, Event)| match event {
            Event::Up(peer, instance) => Some((*link, *peer, *instance)),
            Event::Frame(..) | Event::Down(_) => None,
        };
        self.log.iter().filter_map(up).collect()
    }

    /// Whether a link of this instance had ended when it came up.
    pub fn has_come_up_ended(&self, instance: u64) -> bool {
        self.ended_instances.contains(&instance)
    }

    /// Counts the frames that have arrived on a link.
    pub fn frame_count(&self, link: LinkId) -> usize {
        self.log.iter().filter(|(of, event)| *of == link && matches!(event, Event::Frame(..))).count()
    }

    /// Counts the links that are up now.
    pub fn live_link_count(&self) -> usize {
        self.up.len()
    }

    /// Whether a frame of the link has begun and is not complete.
    pub fn is_reading_frame(&self, link: LinkId) -> bool {
        self.up.get(&link).is_some_and(Option::is_some)
    }

    /// Returns two counts: pieces of payload that were placed in a space, and pieces that came by
    /// [`payload_arrived`](FrameHandler::payload_arrived).
    pub fn placed_and_chunk_counts(&self) -> (usize, usize) {
        (self.placed, self.chunks)
    }

    /// Notes that this side connects a link.
    ///
    /// # Panics
    ///
    /// If another link has this number and has not ended.
    pub fn note_connecting(&mut self, link: LinkId) {
        assert!(!self.up.contains_key(&link), "{link:?} is up, and was given to another link");
        assert!(self.connecting.insert(link), "{link:?} is connecting, and was given to another link");
    }

    /// Notes that this side has closed a link. From now on no report about the link is allowed.
    pub fn note_closed(&mut self, link: LinkId) {
        self.up.remove(&link);
        self.connecting.remove(&link);
        self.claimed.remove(&link);
    }

    fn unfinished_frame(&mut self, link: LinkId) -> &mut Option<(Header, Vec<u8>)> {
        self.up.get_mut(&link).unwrap_or_else(|| panic!("{link:?} is not up"))
    }

    fn remaining_payload_bytes(&mut self, link: LinkId) -> usize {
        let (header, payload) =
            self.unfinished_frame(link).as_ref().expect("payload of a frame that was not begun");
        usize::try_from(header.payload_len_bytes()).expect("a length that was sent") - payload.len()
    }

    fn append_payload(&mut self, link: LinkId, bytes: &[u8]) {
        assert!(!bytes.is_empty(), "a piece of nothing");
        assert!(bytes.len() <= self.remaining_payload_bytes(link), "more payload than the header said");
        if let Some((_, payload)) = self.unfinished_frame(link) {
            payload.extend(bytes);
        }
        if self.remaining_payload_bytes(link) == 0
            && let Some((header, payload)) = self.unfinished_frame(link).take()
        {
            self.log.push((link, Event::Frame(header, payload)));
        }
    }
}

impl FrameHandler for Recorder {
    /// Takes two of three messages.
    fn take_message(&mut self, link: LinkId, message: &Message, read: impl FnOnce(&mut [u8])) -> bool {
        self.offers += 1;
        if self.offers.is_multiple_of(3) {
            return false;
        }
        let mut payload = vec![0; usize::try_from(message.len_bytes).expect("a length that was sent")];
        read(&mut payload);
        self.frame(link, &Header::Message(*message), &payload);
        true
    }

    fn frame(&mut self, link: LinkId, header: &Header, payload: &[u8]) {
        assert_eq!(*self.unfinished_frame(link), None, "a frame inside a frame");
        assert_eq!(header.payload_len_bytes(), payload.len() as u64, "not as long as the header says");
        self.log.push((link, Event::Frame(*header, payload.to_vec())));
    }

    fn frame_begun(&mut self, link: LinkId, header: &Header) {
        assert!(header.payload_len_bytes() > 0, "an empty frame was begun");
        let before = self.unfinished_frame(link).replace((*header, Vec::new()));
        assert_eq!(before, None, "a frame inside a frame");
    }

    fn payload_space(&mut self, link: LinkId) -> Space<'_> {
        let left_bytes = self.remaining_payload_bytes(link);
        self.spaces += 1;
        let wished_bytes = [0, left_bytes, left_bytes.div_ceil(2)][self.spaces % 3];
        self.place_bytes = wished_bytes.min(SPACE_MAX_BYTES);
        if self.place.len() < self.place_bytes {
            self.place.resize(self.place_bytes, 0);
        }
        let (start, end) = self.place[..self.place_bytes].split_at_mut(self.place_bytes / 2);
        [start, end].into_iter().filter(|slice| !slice.is_empty()).map(IoSliceMut::new).collect()
    }

    fn bytes_placed(&mut self, link: LinkId, count_bytes: usize) {
        assert!(count_bytes <= self.place_bytes, "more was placed than there is space");
        self.placed += 1;
        self.place_bytes = 0;
        let place = mem::take(&mut self.place);
        self.append_payload(link, &place[..count_bytes]);
        self.place = place;
    }

    fn payload_arrived(&mut self, link: LinkId, bytes: &[u8]) {
        self.chunks += 1;
        self.append_payload(link, bytes);
    }

    fn link_writable(&mut self, link: LinkId) {
        self.writable.insert(link);
    }

    fn link_event(&mut self, link: LinkId, event: LinkEvent) {
        match event {
            LinkEvent::Up { peer, instance, proof, has_ended } => {
                self.writable.insert(link);
                assert!(self.up.insert(link, None).is_none(), "{link:?} came up twice");
                if proof.is_claim() {
                    assert!(!self.connecting.contains(&link), "{link:?} was connected to a mere claim");
                    self.claimed.insert(link);
                }
                if has_ended {
                    self.ended_instances.insert(instance);
                }
                self.connecting.remove(&link);
                self.log.push((link, Event::Up(peer, instance)));
            }
            LinkEvent::Confirmed => {
                assert!(self.claimed.remove(&link), "{link:?} is not merely claimed");
            }
            LinkEvent::Down(why) => {
                self.claimed.remove(&link);
                self.writable.remove(&link);
                let was_connecting = self.connecting.remove(&link);
                let was_up = self.up.remove(&link).is_some();
                assert!(was_up || was_connecting, "{link:?} went down and was neither up nor connecting");
                self.log.push((link, Event::Down(why)));
            }
        }
    }
}
