//! The transport of one endpoint on a [`Network`].

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::address::Address;
use crate::errno::Errno;
use crate::limits::INJECT_MAX_BYTES;
use crate::loopback::Network;
use crate::loopback::connection::{EndKey, EndpointKey};
use crate::loopback::state::{Ready, State};
use crate::loopback::trace::TraceAction;
use crate::transport::{
    AddressProof, Close, FrameHandler, Full, LinkCaps, LinkError, LinkEvent, LinkId, Pull, RemotePayload,
    Sent, SharedMemory, Transport,
};
use crate::wire::frame::{self, HEADER_MAX_BYTES};
use crate::wire::hello::{HELLO_BYTES, Hello};
use crate::wire::stream::Decoder;
use crate::wire::{Header, WireError};

/// The most bytes that are read from one link before the transport goes on to another link.
const READ_MAX_BYTES: usize = 64 * 1024;

/// An endpoint's transport on a [`Network`], made by [`Provider::open`](crate::transport::Provider::open).
///
/// Frames are always held back until [`flush`](Transport::flush). The network copies exposed payload. It
/// keeps the copy of a message's payload until the peer no longer needs the payload, and any other copy
/// until the link has ended. A connection is made inside the connector's next
/// [`receive`](Transport::receive). In the budget and the result of `receive`, each piece of a long frame
/// counts as a frame.
///
/// Dropping the transport ends its links abruptly and frees its address.
///
/// # Panics
///
/// In debug builds, if the caller breaks the contract of [`Transport`]: if it names a link that it does not
/// have, or gives a payload whose length differs from the length in the header. A peer cannot cause a panic.
pub struct LoopbackTransport {
    network: Network,
    key: EndpointKey,
    address: Address,
    links: Vec<Option<Link>>,
    free: Vec<LinkId>,
    /// A copy of the bytes that were read last. The network is not locked while the frame handler runs.
    scratch: Vec<u8>,
}

struct Link {
    end: EndKey,
    /// The address to which this side connected; `None` if this side accepted the link.
    connected_to: Option<Address>,
    stream: Stream,
}

/// The state of reading a link.
enum Stream {
    Hello { start: [u8; HELLO_BYTES], len_bytes: usize },
    Frames(Decoder),
}

/// A report. The transport chooses the report with the lock held, and makes the report without the lock.
enum PendingReport {
    /// The scratch buffer holds bytes of this link. If `place`, payload goes straight into the frame
    /// handler's space.
    Bytes {
        link: LinkId,
        place: bool,
    },
    Down {
        link: LinkId,
        why: LinkError,
    },
}

impl LoopbackTransport {
    pub(super) fn new(network: Network, key: EndpointKey, address: Address) -> Self {
        LoopbackTransport { network, key, address, links: Vec::new(), free: Vec::new(), scratch: Vec::new() }
    }

    fn find_link(&self, link: LinkId) -> Option<&Link> {
        self.links.get(link.0 as usize)?.as_ref()
    }

    /// Returns the end of a link that the caller names.
    pub(super) fn end_key_of_link(&self, link: LinkId) -> Option<EndKey> {
        let end = self.find_link(link).map(|link| link.end);
        debug_assert!(end.is_some(), "{link:?} is none of this transport's links");
        end
    }

    /// Returns the number for the next link: the number that was freed last, if there is one. Quick reuse
    /// reveals callers that still use the number of an ended link.
    fn next_link_id(&self) -> LinkId {
        self.free.last().copied().unwrap_or(LinkId(self.links.len() as u32))
    }

    fn insert_link(&mut self, end: EndKey, connected_to: Option<Address>) {
        let stream = Stream::Hello { start: [0; HELLO_BYTES], len_bytes: 0 };
        let link = Some(Link { end, connected_to, stream });
        match self.free.pop() {
            Some(id) => self.links[id.0 as usize] = link,
            None => self.links.push(link),
        }
    }

    fn remove_link(&mut self, id: LinkId) -> Option<Link> {
        let link = self.links.get_mut(id.0 as usize)?.take()?;
        self.free.push(id);
        Some(link)
    }

    fn accept_all_pending(&mut self) {
        loop {
            let accepted = self.network.lock().accept(self.key, self.next_link_id());
            let Some(end) = accepted else { return };
            self.insert_link(end, None);
        }
    }

    /// Finds the next report. If the report is of bytes, moves them to the scratch buffer.
    fn take_next_report(&mut self, budget_frames: u32) -> Option<PendingReport> {
        let network = self.network.clone();
        let mut state = network.lock();
        loop {
            let ready = state.take_next_ready(self.key)?;
            let Ready { end, link, available_bytes } = ready;
            let Some(known) = self.links.get(link.0 as usize).and_then(Option::as_ref) else {
                state.detach_owner_after_down(end);
                continue;
            };
            if available_bytes > 0 {
                let count_bytes = known.stream.bytes_to_read(&mut state, &ready, budget_frames);
                self.scratch.clear();
                state.inbound(end).read(count_bytes, &mut self.scratch);
                state.list_if_room_wanted(end.other_end());
                state.schedule_if_ready(end);
                let place = state.dice.flip_coin();
                return Some(PendingReport::Bytes { link, place });
            }
            let now = state.now;
            let why = state.inbound(end).end_reason(now).cloned()?;
            state.trace_from(end.other_end(), TraceAction::Ended(why.clone()));
            state.detach_owner_after_down(end);
            return Some(PendingReport::Down { link, why });
        }
    }

    /// Reports the bytes in the scratch buffer. Returns the number of reports.
    fn report_scratch_bytes(&mut self, id: LinkId, place: bool, receiver: &mut impl FrameHandler) -> u32 {
        let Some(link) = self.links.get_mut(id.0 as usize).and_then(Option::as_mut) else { return 0 };
        let outcome = match &mut link.stream {
            Stream::Hello { start, len_bytes } => {
                let end = *len_bytes + self.scratch.len();
                start[*len_bytes..end].copy_from_slice(&self.scratch);
                *len_bytes = end;
                if end < HELLO_BYTES {
                    return 0;
                }
                Hello::parse(start).map(|hello| {
                    let peer = link.connected_to.unwrap_or(hello.address);
                    link.stream = Stream::Frames(Decoder::new());
                    let has_ended = {
                        let mut state = self.network.lock();
                        if link.connected_to.is_none() {
                            state.answer_hello(self.key, link.end);
                        }
                        state.has_ended(link.end)
                    };
                    let (instance, proof) = (hello.instance, AddressProof::Credentials);
                    receiver.link_event(id, LinkEvent::Up { peer, instance, proof, has_ended });
                    1
                })
            }
            Stream::Frames(decoder) => report_frames(decoder, id, &self.scratch, place, receiver),
        };
        match outcome {
            Ok(reported) => reported,
            Err(reason) => {
                self.network.lock().close(link.end, Close::Abort);
                1 + self.report_down(id, reason.into(), receiver)
            }
        }
    }

    /// Reports the end of a link, unless the frame handler does not know the link. Returns the number of
    /// reports.
    fn report_down(&mut self, id: LinkId, why: LinkError, receiver: &mut impl FrameHandler) -> u32 {
        let Some(link) = self.remove_link(id) else { return 0 };
        let why = match (&link.stream, why) {
            (Stream::Hello { .. }, _) if link.connected_to.is_none() => return 0,
            // The peer closed the link after it had written only a part of a frame.
            (Stream::Frames(decoder), LinkError::Closed) if decoder.is_reading_frame() => {
                LinkError::System(Errno::ECONNRESET)
            }
            (_, why) => why,
        };
        receiver.link_event(id, LinkEvent::Down(why));
        1
    }
}

impl Transport for LoopbackTransport {
    fn address(&self) -> Address {
        self.address
    }

    fn caps(&self, link: LinkId) -> LinkCaps {
        self.find_link(link)
            .and_then(|link| self.network.lock().caps(link.end))
            .unwrap_or(LinkCaps { inline_max_bytes: INJECT_MAX_BYTES, pull_min_bytes: usize::MAX })
    }

    fn prefers_pull(&self, _: LinkId, _: &[IoSlice<'_>]) -> bool {
        self.network.lock().draw_prefers_pull()
    }

    fn connect(&mut self, to: Address) -> LinkId {
        let link = self.next_link_id();
        let end = self.network.lock().connect(self.key, to, link);
        self.insert_link(end, Some(to));
        link
    }

    fn send_inline(&mut self, link: LinkId, header: &Header, payload: &[u8]) -> Result<(), Full> {
        debug_assert_eq!(header.payload_len_bytes(), payload.len() as u64, "a payload of another length");
        debug_assert!(
            payload.len() <= self.caps(link).inline_max_bytes,
            "a payload too long to be sent inline"
        );
        let Some(end) = self.end_key_of_link(link) else { return Err(Full) };
        let mut buffer = [0; HEADER_MAX_BYTES];
        let header_bytes = frame::emit(header, &mut buffer);
        let mut state = self.network.lock();
        match state.send(end, &buffer[..header_bytes], &[IoSlice::new(payload)], false) {
            Sent::Whole => {
                state.track_exposed_payload(end, header, payload);
                Ok(())
            }
            Sent::Full | Sent::Partial(_) => Err(Full),
        }
    }

    fn send(&mut self, link: LinkId, header: &Header, payload: &[IoSlice<'_>]) -> Sent {
        let payload_bytes: usize = payload.iter().map(|slice| slice.len()).sum();
        debug_assert_eq!(header.payload_len_bytes(), payload_bytes as u64, "a payload of another length");
        let Some(end) = self.end_key_of_link(link) else { return Sent::Full };
        let mut buffer = [0; HEADER_MAX_BYTES];
        let header_bytes = frame::emit(header, &mut buffer);
        self.network.lock().send(end, &buffer[..header_bytes], payload, true)
    }

    fn resume(&mut self, link: LinkId, rest: &[IoSlice<'_>]) -> Sent {
        let Some(end) = self.end_key_of_link(link) else { return Sent::Full };
        self.network.lock().resume(end, rest)
    }

    fn expose(&mut self, link: LinkId, payload: &[IoSlice<'_>]) -> Option<RemotePayload> {
        self.network.lock().expose(self.end_key_of_link(link)?, payload)
    }

    fn pull(
        &mut self,
        link: LinkId,
        from: &RemotePayload,
        offset_bytes: u64,
        into: &mut [IoSliceMut<'_>],
    ) -> Pull {
        let Some(end) = self.end_key_of_link(link) else { return Pull::Gone };
        self.network.lock().pull(end, from, offset_bytes, into)
    }

    fn map_peer_memory(
        &mut self,
        link: LinkId,
        from: &RemotePayload,
        len_bytes: u64,
    ) -> Option<Arc<dyn SharedMemory>> {
        self.end_key_of_link(link)?;
        self.network.memories.as_ref()?.map(from, len_bytes)
    }

    fn flush(&mut self) {
        self.network.lock().flush(self.key);
    }

    fn receive(&mut self, budget_frames: u32, receiver: &mut impl FrameHandler) -> u32 {
        self.network.lock().begin_receive_call(self.key);
        self.accept_all_pending();
        let writable = self.network.lock().take_writable_links(self.key);
        let mut reported = writable.len() as u32;
        writable.into_iter().for_each(|link| receiver.link_writable(link));
        while reported < budget_frames {
            let Some(news) = self.take_next_report(budget_frames - reported) else { break };
            reported += match news {
                PendingReport::Bytes { link, place } => self.report_scratch_bytes(link, place, receiver),
                PendingReport::Down { link, why } => self.report_down(link, why, receiver),
            };
        }
        if reported > 0 {
            self.network.reported.fetch_add(reported.into(), Ordering::Relaxed);
        }
        reported
    }

    fn reports_writable_links(&self) -> bool {
        true
    }

    fn close(&mut self, link: LinkId, how: Close) {
        let removed = self.remove_link(link);
        debug_assert!(removed.is_some(), "{link:?} is none of this transport's links");
        if let Some(link) = removed {
            self.network.lock().close(link.end, how);
        }
    }

    fn stop_accepting(&mut self) {
        self.network.lock().stop_accepting(self.key);
    }

    fn draining_count(&self) -> usize {
        self.network.lock().draining_count(self.key)
    }
}

impl Drop for LoopbackTransport {
    fn drop(&mut self) {
        self.network.lock().remove_endpoint(self.key);
    }
}

impl std::fmt::Debug for LoopbackTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let links = self.links.len() - self.free.len();
        f.debug_struct("LoopbackTransport").field("address", &self.address).field("links", &links).finish()
    }
}

impl Stream {
    /// Returns how many bytes to read from a link now: at most one frame. If the network cuts the read, the
    /// number is random instead.
    fn bytes_to_read(&self, state: &mut State, ready: &Ready, budget_frames: u32) -> usize {
        let available_bytes = ready.available_bytes.min(READ_MAX_BYTES);
        let (payload_left, mid_header) = match self {
            Stream::Hello { len_bytes, .. } => {
                let hello_bytes = available_bytes.min(HELLO_BYTES - len_bytes);
                let State { dice, faults, .. } = state;
                return dice.draw_cut_bytes(faults, hello_bytes).unwrap_or(hello_bytes);
            }
            Stream::Frames(decoder) => {
                let payload_left = usize::try_from(decoder.payload_left()).unwrap_or(usize::MAX);
                (payload_left, decoder.is_reading_frame() && payload_left == 0)
            }
        };
        // A cut read may be longer than one frame: up to the rest of this payload, plus `budget_frames`
        // headers of the largest size. So a cut read can also end between later frames, or inside one.
        let budget_bytes = HEADER_MAX_BYTES.saturating_mul(budget_frames as usize);
        let cut_max_bytes = available_bytes.min(payload_left.saturating_add(budget_bytes));
        if let Some(cut_bytes) = state.dice.draw_cut_bytes(&state.faults, cut_max_bytes) {
            return cut_bytes;
        }
        if payload_left > 0 {
            return available_bytes.min(payload_left);
        }
        if mid_header {
            return available_bytes.min(HEADER_MAX_BYTES);
        }
        let mut start = [0; HEADER_MAX_BYTES];
        let mut start_bytes = 0;
        for (to, from) in start.iter_mut().zip(state.inbound(ready.end).peek_arrived()) {
            *to = from;
            start_bytes += 1;
        }
        match frame::parse(&start[..start_bytes]) {
            Ok(Some((header, header_bytes))) => usize::try_from(header.payload_len_bytes())
                .map_or(available_bytes, |len_bytes| {
                    available_bytes.min(header_bytes.saturating_add(len_bytes))
                }),
            // The decoder finds the same incomplete or invalid header, and handles it.
            Ok(None) | Err(_) => available_bytes,
        }
    }
}

/// Reports bytes that follow the hello. If `place`, puts payload into the handler's space as far as it fits,
/// and passes the rest to the decoder. Returns the number of reported frames and pieces of frames.
fn report_frames(
    decoder: &mut Decoder,
    link: LinkId,
    mut bytes: &[u8],
    place: bool,
    receiver: &mut impl FrameHandler,
) -> Result<u32, WireError> {
    let mut reported = 0;
    if place && decoder.payload_left() > 0 {
        let payload_bytes =
            usize::try_from(decoder.payload_left()).map_or(bytes.len(), |left| left.min(bytes.len()));
        let placed_bytes = copy_into_slices(&mut receiver.payload_space(link), &bytes[..payload_bytes]);
        if placed_bytes > 0 {
            decoder.report_placed_bytes(link, placed_bytes, receiver);
            bytes = &bytes[placed_bytes..];
            reported += 1;
        }
    }
    if !bytes.is_empty() {
        reported += decoder.feed(link, bytes, receiver)?.max(1);
    }
    Ok(reported)
}

/// Copies as many bytes as fit into the slices. Returns how many.
fn copy_into_slices(space: &mut [IoSliceMut<'_>], bytes: &[u8]) -> usize {
    let mut rest = bytes;
    for slice in space {
        let (now, later) = rest.split_at(rest.len().min(slice.len()));
        slice[..now.len()].copy_from_slice(now);
        rest = later;
    }
    bytes.len() - rest.len()
}
