//! The TCP backend of homespun: endpoints that reach each other over non-blocking stream sockets, IPv4 and
//! IPv6.
//!
//! [`TcpProvider`] opens a [`TcpTransport`] for each endpoint. A transport listens at the endpoint's address
//! and connects on demand. Each connection is a link. The connector sends a hello, and then its frames
//! without delay. Once the acceptor has received the hello, it sends its own hello, a record about the link,
//! and then its frames. Frames have the layout of [`homespun_engine::wire`].
//!
//! The connector's hello claims an address. To check the claim, the acceptor connects to the address, and
//! asks the endpoint there whether it has made the link ([`homespun_engine::wire::address_claim`]). If the
//! acceptor already has a live link to the address, the acceptor holds the new link: it neither reads nor
//! reports the new link until the claim is proven, or until the older link has ended.
//!
//! A link copies small frames to a staging buffer and writes them together. In a burst of posts, it lets the
//! kernel hold frames back until the next pass, so that they share packets. It writes larger payload
//! straight from the caller's slices. It reads payload straight into the receiver's space, except for the
//! part that comes in one read with the header. An idle pass costs one system call. A small message costs
//! one write at its sender, and at most an `epoll_wait(2)` and a read at its receiver.
//!
//! The transport checks everything that a peer sends, but does not authenticate peers: any process that can
//! connect can be a peer. [`limits`] limits the descriptors and the memory that a peer can take.
//!
//! # Example
//!
//! A message from one endpoint to another, both driven by hand:
//!
//! ```
//! use homespun_engine::address::{Address, AddressFormat};
//! use homespun_engine::errno::Errno;
//! use homespun_engine::transport::{LinkEvent, LinkId, Provider, FrameHandler, Space, Transport};
//! use homespun_engine::wire::{Header, Message};
//! use homespun_tcp::TcpProvider;
//!
//! /// Collects messages. It offers no space for payload, so all of it comes in chunks.
//! #[derive(Default)]
//! struct Inbox {
//!     messages: Vec<Vec<u8>>,
//! }
//!
//! impl FrameHandler for Inbox {
//!     fn frame(&mut self, _: LinkId, _: &Header, payload: &[u8]) {
//!         self.messages.push(payload.to_vec());
//!     }
//!     fn frame_begun(&mut self, _: LinkId, _: &Header) {
//!         self.messages.push(Vec::new());
//!     }
//!     fn payload_space(&mut self, _: LinkId) -> Space<'_> {
//!         Space::new()
//!     }
//!     fn bytes_placed(&mut self, _: LinkId, _: usize) {}
//!     fn payload_arrived(&mut self, _: LinkId, bytes: &[u8]) {
//!         self.messages.last_mut().unwrap().extend_from_slice(bytes);
//!     }
//!     fn link_event(&mut self, link: LinkId, event: LinkEvent) {
//!         println!("{link:?}: {event:?}");
//!     }
//!     fn link_writable(&mut self, _: LinkId) {}
//! }
//!
//! # fn main() -> Result<(), Errno> {
//! let loopback = Address::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
//! let provider = TcpProvider::new();
//! let mut server = provider.open(loopback, 1)?;
//! let mut client = provider.open(loopback, 2)?;
//!
//! let link = client.connect(server.address());
//! let message = Message::of_len(5);
//! let (mut inbox, mut replies) = (Inbox::default(), Inbox::default());
//! while client.send_inline(link, &Header::Message(message), b"hello").is_err() {
//!     // The link takes no frame until the connection is made.
//!     client.receive(64, &mut replies);
//! }
//! while inbox.messages.is_empty() {
//!     client.receive(64, &mut replies);
//!     client.flush();
//!     server.receive(64, &mut inbox);
//!     server.flush();
//! }
//! assert_eq!(inbox.messages, [b"hello"]);
//! # Ok(())
//! # }
//! ```

#![deny(unsafe_code)]

pub mod limits;

mod accepted_links;
mod address_claims;
mod burst;
mod busy_link;
mod check;
mod clock;
mod default_route;
mod descriptors;
mod foreign;
mod greeter;
mod half_open;
mod hello;
mod inbound;
mod interface_selector;
mod link;
mod links;
mod listener;
mod local;
mod local_address_cache;
mod outbound;
mod provider;
mod shortage;
mod socket;
mod staging;
#[expect(unsafe_code, reason = "makes system calls without a safe interface")]
mod sys;
mod transport;

pub use interface_selector::{InterfaceSelector, InterfaceSelectorError};
pub use local::{LocalAddress, LocalInterfaces};
pub use provider::{BoundTcp, TcpProvider};
pub use transport::TcpTransport;

#[cfg(test)]
mod testing;
