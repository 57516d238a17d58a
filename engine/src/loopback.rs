//! A network inside the process, for tests. It is deterministic, and injects the faults that its
//! user sets.
//!
//! The links of the network carry hellos and frames as bytes, as TCP links do. The network has no
//! thread and reads no clock: its user tells it the time. All its randomness comes from a seed.
//! With the same seed, the same calls in the same order have the same results.
//!
//! ```text
//!  LoopbackTransport --send--> Pipe (written | under way | arrived) --receive--> LoopbackTransport
//!                               ^ flush       ^ the reader's calls
//! ```

mod connection;
mod faults;
mod pipe;
mod shareable;
mod state;
mod trace;
mod transport;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::address::{Address, AddressFormat};
use crate::errno::Errno;
use crate::limits::MESSAGE_MAX_BYTES;
use crate::loopback::shareable::SharedMemories;
use crate::loopback::state::State;
use crate::transport::{Provider, ProviderAttr, SharedMemory};

pub use crate::loopback::faults::{CAPACITY_MIN_BYTES, Faults};
pub use crate::loopback::trace::{TraceAction, TraceEvent};
pub use crate::loopback::transport::LoopbackTransport;

/// A network inside the process, and the [`Provider`] of endpoints on it. A clone is another handle
/// to the same network.
///
/// An endpoint opened at a wildcard address gets the loopback address of the same format. An
/// endpoint opened at port 0 gets the next free port. Any other address works too, as if every host
/// were on this network.
///
/// Without faults, flushed bytes arrive at the peer's next
/// [`receive`](crate::transport::Transport::receive). A connection is made in the connector's next
/// `receive`; the peer need not call anything.
///
/// ```
/// use homespun_engine::address::AddressFormat;
/// use homespun_engine::loopback::{Faults, Network};
/// use homespun_engine::transport::{LinkEvent, LinkId, Provider, FrameHandler, Space, Transport};
/// use homespun_engine::wire::{Header, Message};
///
/// #[derive(Default)]
/// struct Inbox {
///     unfinished: Vec<u8>,
///     messages: Vec<Vec<u8>>,
/// }
///
/// impl FrameHandler for Inbox {
///     fn frame(&mut self, _: LinkId, _: &Header, payload: &[u8]) {
///         self.messages.push(payload.to_vec());
///     }
///     fn frame_begun(&mut self, _: LinkId, _: &Header) {
///         self.unfinished.clear();
///     }
///     fn payload_space(&mut self, _: LinkId) -> Space<'_> {
///         Space::new()
///     }
///     fn bytes_placed(&mut self, _: LinkId, _: usize) {
///         unreachable!("there is no space");
///     }
///     fn payload_arrived(&mut self, _: LinkId, bytes: &[u8]) {
///         self.unfinished.extend(bytes);
///     }
///     fn link_event(&mut self, link: LinkId, event: LinkEvent) {
///         println!("{link:?}: {event:?}");
///     }
///
///     fn link_writable(&mut self, _: LinkId) {}
/// }
///
/// # fn main() -> Result<(), homespun_engine::errno::Errno> {
/// let network = Network::new(7, Faults::default());
/// let mut left = network.open(AddressFormat::SockaddrIn.wildcard(), 1)?;
/// let mut right = network.open(AddressFormat::SockaddrIn.wildcard(), 2)?;
/// let mut inbox = Inbox::default();
///
/// let link = left.connect(right.address());
/// left.receive(16, &mut Inbox::default());
/// let header = Header::Message(Message::of_len(5));
/// left.send_inline(link, &header, b"hello").expect("the link is new and has room");
/// left.flush();
///
/// right.receive(16, &mut inbox);
/// assert_eq!(inbox.messages, [b"hello"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Network {
    state: Arc<Mutex<State>>,
    /// The memories that peers can map; `None` if every endpoint is on a host of its own.
    memories: Option<Arc<SharedMemories>>,
    /// How many frames, pieces of frames and link events were reported.
    reported: Arc<AtomicU64>,
}

impl Network {
    /// Creates a network without endpoints. `seed` decides all random events.
    pub fn new(seed: u64, faults: Faults) -> Network {
        let state = Arc::new(Mutex::new(State::new(seed, faults)));
        Network { state, memories: Some(Arc::default()), reported: Arc::default() }
    }

    /// Puts every endpoint on a host of its own: endpoints share no memory, so all that one learns of
    /// another has crossed the network.
    #[must_use]
    pub fn between_hosts(mut self) -> Network {
        self.memories = None;
        self
    }

    /// Returns the time since the network was created, as its user has told it.
    pub fn elapsed(&self) -> Duration {
        self.lock().now
    }

    /// Tells the network the time. Time never goes back: an earlier time changes nothing.
    pub fn advance_to(&self, time: Duration) {
        let mut state = self.lock();
        state.now = state.now.max(time);
    }

    /// Begins to list the endpoints that can receive something, for [`take_due`](Self::take_due).
    pub fn track_due(&self) {
        self.lock().track_due();
    }

    /// Returns the addresses of the endpoints that can receive something: bytes, a connection, the end
    /// of a link, or room for bytes. An endpoint is listed once. The caller then calls its
    /// [`receive`](crate::transport::Transport::receive) until that reports nothing.
    pub fn take_due(&self) -> Vec<Address> {
        self.lock().take_due()
    }

    /// Returns the earliest time at which [`take_due`](Self::take_due) has an endpoint to return. Returns
    /// `None` if nothing is under way but what a [partition](Self::partition) holds.
    pub fn next_arrival(&self) -> Option<Duration> {
        self.lock().next_arrival()
    }

    /// Separates each group of addresses from all other addresses. Replaces an earlier partition.
    ///
    /// The network holds what is under way between separated endpoints: bytes, requests for
    /// connections, and ends of links. No link breaks. What endpoints send after this call joins what
    /// is held, as far as links have room.
    pub fn partition(&self, groups: &[&[Address]]) {
        self.lock().partition(groups);
    }

    /// Ends a [partition](Self::partition). What was held goes on, and arrives at once if its time has
    /// passed.
    pub fn heal(&self) {
        self.lock().partition(&[]);
    }

    /// Records what happens from now on, for [`take_trace`](Self::take_trace).
    pub fn record_trace(&self) {
        self.lock().trace.get_or_insert_default();
    }

    /// Returns what has happened since the last call, or since [`record_trace`](Self::record_trace).
    pub fn take_trace(&self) -> Vec<TraceEvent> {
        self.lock().trace.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Draws a number from the network's randomness, for a user whose own choices come from the same
    /// seed.
    pub fn draw_u64(&self) -> u64 {
        self.lock().dice.draw_u64()
    }

    /// Changes the faults. Bytes and connections that are already delayed stay delayed.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// Removes an endpoint as if its process had died. The endpoint's peers get the bytes in
    /// flight, or a part of them ([`Faults::lose_per_mille`]). Then their links go down with
    /// ECONNRESET. The removed endpoint's transport does nothing any more. Returns whether there
    /// was an endpoint at the address.
    pub fn kill(&self, address: Address) -> bool {
        let mut state = self.lock();
        let endpoint = state.endpoint_at(address);
        if let Some(endpoint) = endpoint {
            state.remove_endpoint(endpoint);
        }
        endpoint.is_some()
    }

    /// Breaks all links between two endpoints. Both endpoints first get the bytes in flight, or a
    /// part of them ([`Faults::lose_per_mille`]). Then their links go down with ECONNRESET. Returns
    /// how many links there were.
    pub fn break_links_between(&self, a: Address, b: Address) -> usize {
        let mut state = self.lock();
        match (state.endpoint_at(a), state.endpoint_at(b)) {
            (Some(a), Some(b)) => state.break_links(a, b),
            _ => 0,
        }
    }

    /// Whether nothing is in flight on the network. In flight are: sent bytes that the peer has not
    /// [received](crate::transport::Transport::receive), connections that are not yet accepted, and
    /// ends of links that are not yet reported. Bytes that the sender keeps after [`Sent::Full`] or
    /// [`Sent::Partial`] do not count.
    ///
    /// [`Sent::Full`]: crate::transport::Sent::Full
    /// [`Sent::Partial`]: crate::transport::Sent::Partial
    pub fn is_quiet(&self) -> bool {
        self.lock().is_quiet()
    }

    /// Returns how many frames, pieces of frames and link events all endpoints have
    /// [received](crate::transport::Transport::receive).
    pub fn received_count(&self) -> u64 {
        self.reported.load(Ordering::Relaxed)
    }

    /// Locks the network, even after a thread has panicked with the lock held. The other threads
    /// can then still report their state.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Provider for Network {
    type Transport = LoopbackTransport;

    fn attr(&self) -> ProviderAttr {
        ProviderAttr {
            domain: "loopback".to_owned(),
            formats: vec![AddressFormat::SockaddrIn, AddressFormat::SockaddrIn6],
            local: true,
            remote: self.memories.is_none(),
            max_message_bytes: MESSAGE_MAX_BYTES,
        }
    }

    fn allocate_shareable(&self, len_bytes: usize) -> Result<Option<Arc<dyn SharedMemory>>, Errno> {
        self.memories.as_ref().map(|memories| memories.allocate(len_bytes)).transpose()
    }

    fn open(&self, bind: Address, instance: u64) -> Result<LoopbackTransport, Errno> {
        let (key, address) = self.lock().open(bind, instance)?;
        Ok(LoopbackTransport::new(self.clone(), key, address))
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
