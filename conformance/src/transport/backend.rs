//! A backend under test.

use std::time::Duration;

use homespun_engine::address::Address;
use homespun_engine::transport::{LinkId, Provider};

use crate::transport::deadline::PATIENCE;
use crate::transport::{Deadline, TestEndpoint, drive_until};

/// A backend under test: its provider, and how long tests wait for an event.
#[derive(Debug)]
pub struct Backend<'a, P> {
    provider: &'a P,
    patience: Duration,
}

impl<P> Clone for Backend<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Backend<'_, P> {}

/// Two endpoints with a link between them, and the link's number at each: at the connector, then at the
/// acceptor.
pub type Linked<T> = ([TestEndpoint<T>; 2], LinkId, LinkId);

impl<'a, P: Provider> Backend<'a, P> {
    /// Creates a backend whose tests wait for an event up to a minute.
    pub fn new(provider: &'a P) -> Self {
        Backend { provider, patience: PATIENCE }
    }

    /// Sets how long a test waits for an event before it fails.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Backend { patience, ..self }
    }

    /// Returns the provider.
    pub fn provider(self) -> &'a P {
        self.provider
    }

    /// Returns the deadline of a wait that starts now.
    pub fn deadline_from_now(self) -> Deadline {
        Deadline::after(self.patience)
    }

    /// Returns `wished_bytes`, or the length of the provider's largest message if that is shorter.
    pub(crate) fn clamp_frame_bytes(self, wished_bytes: usize) -> usize {
        usize::try_from(self.provider.attr().max_message_bytes)
            .map_or(wished_bytes, |max| max.min(wished_bytes))
    }

    /// Opens an endpoint at the wildcard of the provider's preferred format.
    ///
    /// # Panics
    ///
    /// If the provider does not open the endpoint.
    #[track_caller]
    pub fn open_endpoint(self, instance: u64) -> TestEndpoint<P::Transport> {
        TestEndpoint::open(self.provider, instance).with_patience(self.patience)
    }

    /// Opens an endpoint.
    ///
    /// # Panics
    ///
    /// If the provider does not open it.
    #[track_caller]
    pub fn open_endpoint_at(self, bind: Address, instance: u64) -> TestEndpoint<P::Transport> {
        TestEndpoint::open_at(self.provider, bind, instance).with_patience(self.patience)
    }

    /// Opens two endpoints, with the instances 11 and 22, and a link that is up on both sides.
    ///
    /// # Panics
    ///
    /// If the link does not come up in time.
    #[track_caller]
    pub fn open_linked_pair(self) -> Linked<P::Transport> {
        let mut endpoints = [self.open_endpoint(11), self.open_endpoint(22)];
        let link = endpoints[0].connect(endpoints[1].address());
        drive_until(&mut endpoints, "a link that is up on both sides", |[a, b]| {
            a.recorder.live_link_count() == 1 && b.recorder.live_link_count() == 1
        });
        let peer = endpoints[1].recorder.up_events()[0].0;
        (endpoints, link, peer)
    }
}
