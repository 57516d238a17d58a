//! A frame handler that panics if a ring breaks the contract of [`FrameHandler`].

use std::io::IoSliceMut;
use std::mem;

use homespun_engine::limits::{
    ATOMIC_MAX_BYTES, COUNTED_WRITE_MAX_BYTES, MESSAGE_MAX_BYTES, REMOTE_MAX_BYTES,
};
use homespun_engine::transport::{FrameHandler, LinkEvent, LinkId, Space};
use homespun_engine::wire::{Header, MappableRegion, Message, Rma, WireError};

use crate::ring::{Consumer, Staging};

/// The link that all frames are expected on.
pub(crate) const LINK: LinkId = LinkId(3);

/// How much payload of one frame the recorder keeps. A faulty peer may claim any length.
const KEEP_MAX_BYTES: usize = 1 << 20;

/// The largest space that the recorder offers at once.
const SPACE_MAX_BYTES: usize = 1 << 16;

/// Records the frames that a ring reports.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// The complete frames, each with at most [`KEEP_MAX_BYTES`] of its payload.
    pub(crate) frames: Vec<(Header, Vec<u8>)>,
    unfinished: Option<Unfinished>,
    offers: usize,
    spaces: usize,
    place: Vec<u8>,
}

#[derive(Debug)]
struct Unfinished {
    header: Header,
    payload: Vec<u8>,
    left_bytes: u64,
}

impl Consumer {
    /// Offers messages until one is refused, then reads as [`receive_staged`](Self::receive_staged), with a
    /// staging buffer of its own.
    pub(crate) fn receive(
        &mut self,
        link: LinkId,
        budget_frames: u32,
        receiver: &mut impl FrameHandler,
    ) -> Result<u32, WireError> {
        let mut taken = 0;
        while taken < budget_frames && self.offer_message(link, receiver) {
            taken += 1;
        }
        match self.receive_staged(&mut Staging::new(), link, budget_frames - taken, receiver) {
            Err(_) if taken > 0 => Ok(taken),
            read => read.map(|read| taken + read),
        }
    }
}

impl Recorder {
    /// Whether a frame has begun and is not complete.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn is_mid_frame(&self) -> bool {
        self.unfinished.is_some()
    }

    /// The payload of the unfinished frame that has arrived so far. Empty between frames.
    #[cfg(loom)]
    pub(crate) fn unfinished_payload(&self) -> &[u8] {
        self.unfinished.as_ref().map_or(&[], |unfinished| &unfinished.payload)
    }

    fn unfinished_left_bytes(&self) -> u64 {
        self.unfinished.as_ref().expect("no frame was begun").left_bytes
    }

    fn append_payload(&mut self, bytes: &[u8]) {
        assert!(!bytes.is_empty(), "a piece of nothing");
        let unfinished = self.unfinished.as_mut().expect("no frame was begun");
        assert!(bytes.len() as u64 <= unfinished.left_bytes, "more payload than the header said");
        unfinished.left_bytes -= bytes.len() as u64;
        let room_bytes = KEEP_MAX_BYTES.saturating_sub(unfinished.payload.len());
        unfinished.payload.extend(&bytes[..bytes.len().min(room_bytes)]);
        if unfinished.left_bytes == 0
            && let Some(Unfinished { header, payload, .. }) = self.unfinished.take()
        {
            self.frames.push((header, payload));
        }
    }
}

impl FrameHandler for Recorder {
    /// Takes every second message.
    fn take_message(&mut self, link: LinkId, message: &Message, read: impl FnOnce(&mut [u8])) -> bool {
        self.offers += 1;
        if self.offers.is_multiple_of(2) {
            return false;
        }
        let mut payload = vec![0; message.len_bytes as usize];
        read(&mut payload);
        self.frame(link, &Header::Message(*message), &payload);
        true
    }

    fn frame(&mut self, link: LinkId, header: &Header, payload: &[u8]) {
        assert_eq!(link, LINK);
        assert!(self.unfinished.is_none(), "a frame inside a frame");
        assert_eq!(header.payload_len_bytes(), payload.len() as u64);
        assert_header_within_limits(header);
        self.frames.push((*header, payload.to_vec()));
    }

    fn frame_begun(&mut self, link: LinkId, header: &Header) {
        assert_eq!(link, LINK);
        assert!(self.unfinished.is_none(), "a frame inside a frame");
        assert_header_within_limits(header);
        let left_bytes = header.payload_len_bytes();
        assert!(left_bytes > 0, "an empty frame was begun");
        self.unfinished = Some(Unfinished { header: *header, payload: Vec::new(), left_bytes });
    }

    /// Returns in turn: no space, space for the rest of the payload (up to a limit), space for half of it.
    /// The space has up to two slices.
    fn payload_space(&mut self, link: LinkId) -> Space<'_> {
        assert_eq!(link, LINK);
        let left_bytes =
            usize::try_from(self.unfinished_left_bytes()).unwrap_or(usize::MAX).min(SPACE_MAX_BYTES);
        self.spaces += 1;
        let place_bytes = [0, left_bytes, left_bytes.div_ceil(2)][self.spaces % 3];
        self.place = vec![0; place_bytes];
        let (start, end) = self.place.split_at_mut(place_bytes / 2);
        [start, end].into_iter().filter(|slice| !slice.is_empty()).map(IoSliceMut::new).collect()
    }

    fn bytes_placed(&mut self, link: LinkId, count_bytes: usize) {
        assert_eq!(link, LINK);
        assert!(count_bytes <= self.place.len(), "more was placed than there is space");
        let place = mem::take(&mut self.place);
        self.append_payload(&place[..count_bytes]);
    }

    fn payload_arrived(&mut self, link: LinkId, bytes: &[u8]) {
        assert_eq!(link, LINK);
        self.append_payload(bytes);
    }

    fn link_event(&mut self, _: LinkId, event: LinkEvent) {
        panic!("a ring reported {event:?}");
    }

    fn link_writable(&mut self, link: LinkId) {
        panic!("a ring reported {link:?} as writable");
    }
}

/// Panics if a header has values that the engine must not get.
fn assert_header_within_limits(header: &Header) {
    match header {
        Header::Message(message) => assert!(message.len_bytes <= MESSAGE_MAX_BYTES),
        Header::Request { message, remote_bytes, .. } => {
            assert!(message.len_bytes <= MESSAGE_MAX_BYTES);
            assert!(usize::from(*remote_bytes) <= REMOTE_MAX_BYTES);
        }
        Header::MappableRegion(MappableRegion { len_bytes, remote_bytes, .. }) => {
            assert!(*len_bytes <= MESSAGE_MAX_BYTES && usize::from(*remote_bytes) <= REMOTE_MAX_BYTES);
        }
        Header::Data { len_bytes, .. }
        | Header::ReadData { len_bytes, .. }
        | Header::Rma(Rma { len_bytes, .. }) => assert!(*len_bytes <= MESSAGE_MAX_BYTES),
        Header::CountedWrite(write) => assert!(write.len_bytes <= COUNTED_WRITE_MAX_BYTES as u64),
        Header::Atomic(atomic) => assert!(atomic.form.len_bytes() <= ATOMIC_MAX_BYTES),
        Header::Connection(handshake) => {
            assert!(usize::from(handshake.data_bytes) <= handshake.step.data_max_bytes());
        }
        _ => assert_eq!(header.payload_len_bytes(), 0, "no limits are known of {header:?}"),
    }
}
