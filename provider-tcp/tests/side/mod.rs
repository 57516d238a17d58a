//! A hand-driven endpoint, and what its transport has reported.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use homespun_engine::transport::{
    AddressProof, FrameHandler, LinkError, LinkEvent, LinkId, Provider, Space, Transport,
};
use homespun_engine::wire::Header;
use homespun_tcp::{TcpProvider, TcpTransport};

/// The links that came up and went down, and the link of each frame that has arrived.
#[derive(Default)]
pub(crate) struct Events {
    pub up: Vec<LinkId>,
    /// For each link that came up: why the transport believes the peer's address. `None` for a later
    /// confirmation.
    #[allow(dead_code, reason = "not every program reads it")]
    pub proofs: Vec<(LinkId, Option<AddressProof>)>,
    pub down: Vec<(LinkId, LinkError)>,
    pub frames: Vec<LinkId>,
}

impl FrameHandler for Events {
    fn frame(&mut self, link: LinkId, _: &Header, _: &[u8]) {
        self.frames.push(link);
    }
    fn frame_begun(&mut self, _: LinkId, _: &Header) {}
    fn payload_space(&mut self, _: LinkId) -> Space<'_> {
        Space::new()
    }
    fn bytes_placed(&mut self, _: LinkId, _: usize) {}
    fn payload_arrived(&mut self, _: LinkId, _: &[u8]) {}
    fn link_event(&mut self, link: LinkId, event: LinkEvent) {
        match event {
            LinkEvent::Up { proof, .. } => {
                self.up.push(link);
                self.proofs.push((link, Some(proof)));
            }
            LinkEvent::Confirmed => self.proofs.push((link, None)),
            LinkEvent::Down(error) => self.down.push((link, error)),
        }
    }
    fn link_writable(&mut self, _: LinkId) {}
}

pub(crate) struct Side {
    pub transport: TcpTransport,
    pub events: Events,
}

impl Side {
    pub(crate) fn open(provider: &TcpProvider) -> Side {
        let loopback: SocketAddr = "127.0.0.1:0".parse().unwrap();
        Side { transport: provider.open(loopback.into(), 1).unwrap(), events: Events::default() }
    }
}

/// Drives endpoints until a condition holds.
pub(crate) fn drive_until(
    what: &str,
    sides: &mut [&mut Side],
    mut done: impl FnMut(&mut [&mut Side]) -> bool,
) {
    let begin = Instant::now();
    while !done(sides) {
        for side in sides.iter_mut() {
            side.transport.receive(64, &mut side.events);
            side.transport.flush();
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
    }
}
