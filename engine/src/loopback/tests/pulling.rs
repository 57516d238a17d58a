//! Tests of payload that is exposed and pulled.

use std::io::{IoSlice, IoSliceMut};

use crate::address::AddressFormat;
use crate::loopback::{Faults, LoopbackTransport, Network};
use crate::transport::{
    Close, FrameHandler, LinkEvent, LinkId, Provider, Pull, RemotePayload, Space, Transport,
};
use crate::wire::{Header, Message};

/// Records the links that came up.
#[derive(Default)]
struct LinkUpRecorder(Vec<LinkId>);

impl FrameHandler for LinkUpRecorder {
    fn frame(&mut self, _: LinkId, _: &Header, _: &[u8]) {}
    fn frame_begun(&mut self, _: LinkId, _: &Header) {}
    fn payload_space(&mut self, _: LinkId) -> Space<'_> {
        Space::new()
    }
    fn bytes_placed(&mut self, _: LinkId, _: usize) {}
    fn payload_arrived(&mut self, _: LinkId, _: &[u8]) {}
    fn link_event(&mut self, link: LinkId, event: LinkEvent) {
        if let LinkEvent::Up { .. } = event {
            self.0.push(link);
        }
    }
    fn link_writable(&mut self, _: LinkId) {}
}

/// The two ends of a link. One end exposes payload, the other pulls it.
struct Linked {
    network: Network,
    exposer: LoopbackTransport,
    puller: LoopbackTransport,
    /// The number that each end has for the link.
    to_puller: LinkId,
    to_exposer: LinkId,
}

impl Linked {
    fn new(faults: Faults) -> Linked {
        let network = Network::new(1, faults);
        let wildcard = AddressFormat::SockaddrIn.wildcard();
        let [mut exposer, mut puller] = [1, 2].map(|instance| network.open(wildcard, instance).unwrap());
        let to_puller = exposer.connect(puller.address());
        exposer.receive(9, &mut LinkUpRecorder::default());
        let mut ups = LinkUpRecorder::default();
        puller.receive(9, &mut ups);
        Linked { network, exposer, puller, to_puller, to_exposer: ups.0[0] }
    }

    fn expose_in_two_slices(&mut self, payload: &[u8]) -> RemotePayload {
        let (start, end) = payload.split_at(payload.len() / 3);
        let slices = [IoSlice::new(start), IoSlice::new(end)];
        self.exposer.expose(self.to_puller, &slices).expect("this network lets peers in")
    }

    fn pull_into_two_slices(
        &mut self,
        from: &RemotePayload,
        offset_bytes: u64,
        count_bytes: usize,
    ) -> (Pull, Vec<u8>) {
        let mut into = vec![0; count_bytes];
        let (start, end) = into.split_at_mut(count_bytes / 2);
        let mut slices = [IoSliceMut::new(start), IoSliceMut::new(end)];
        let pulled = self.puller.pull(self.to_exposer, from, offset_bytes, &mut slices);
        (pulled, into)
    }
}

fn faults_allowing_pulls() -> Faults {
    Faults { pull_min_bytes: Some(100), ..Faults::default() }
}

#[test]
fn pull_setting_of_network_applies_to_new_links_only() {
    let mut linked = Linked::new(Faults::default());
    assert_eq!(linked.exposer.caps(linked.to_puller).pull_min_bytes, usize::MAX);
    linked.network.set_faults(faults_allowing_pulls());
    assert_eq!(linked.exposer.caps(linked.to_puller).pull_min_bytes, usize::MAX, "never grows");
    assert_eq!(linked.exposer.expose(linked.to_puller, &[IoSlice::new(b"abc")]), None);
    let linked = Linked::new(faults_allowing_pulls());
    assert_eq!(linked.exposer.caps(linked.to_puller).pull_min_bytes, 100);
}

#[test]
fn pull_refusal_is_permanent_and_fault_is_not() {
    let mut linked = Linked::new(faults_allowing_pulls());
    let remote = linked.expose_in_two_slices(b"abc");
    linked.network.set_faults(Faults { fault_pull_per_mille: 1000, ..faults_allowing_pulls() });
    assert_eq!(linked.pull_into_two_slices(&remote, 0, 3).0, Pull::Fault);
    linked.network.set_faults(faults_allowing_pulls());
    assert_eq!(linked.pull_into_two_slices(&remote, 0, 3).0, Pull::Done);
    linked.network.set_faults(Faults { refuse_pull_per_mille: 1000, ..faults_allowing_pulls() });
    assert_eq!(linked.pull_into_two_slices(&remote, 0, 3).0, Pull::Refused);
    linked.network.set_faults(faults_allowing_pulls());
    assert_eq!(linked.pull_into_two_slices(&remote, 0, 3).0, Pull::Refused);
}

#[test]
fn pull_after_link_end_reports_gone() {
    let ends: [fn(&mut Linked); 4] = [
        |linked| linked.exposer.close(linked.to_puller, Close::Drain),
        |linked| linked.exposer.close(linked.to_puller, Close::Abort),
        |linked| assert!(linked.network.kill(linked.exposer.address())),
        |linked| {
            let addresses = (linked.exposer.address(), linked.puller.address());
            assert_eq!(linked.network.break_links_between(addresses.0, addresses.1), 1);
        },
    ];
    for end in ends {
        let mut linked = Linked::new(faults_allowing_pulls());
        let remote = linked.expose_in_two_slices(b"abc");
        end(&mut linked);
        assert_eq!(linked.pull_into_two_slices(&remote, 0, 3), (Pull::Gone, vec![0; 3]));
    }
}

#[test]
fn done_or_clear_from_peer_ends_exposure() {
    for answer in [Header::Done { op: 9, fault: false }, Header::Clear { op: 9, cannot_pull: true }] {
        let mut linked = Linked::new(faults_allowing_pulls());
        let remotes = [linked.expose_in_two_slices(b"abc"), linked.expose_in_two_slices(b"def")];
        let message = Message::of_len(3);
        for (op, remote) in (9..).zip(&remotes) {
            let bytes = remote.as_bytes();
            let header = Header::Request { message, op, remote_bytes: bytes.len() as u8 };
            assert_eq!(linked.exposer.send_inline(linked.to_puller, &header, bytes), Ok(()));
        }
        assert_eq!(linked.pull_into_two_slices(&remotes[0], 0, 3).0, Pull::Done);
        assert_eq!(linked.puller.send_inline(linked.to_exposer, &answer, &[]), Ok(()));
        assert_eq!(linked.pull_into_two_slices(&remotes[0], 0, 3).0, Pull::Fault);
        assert_eq!(
            linked.pull_into_two_slices(&remotes[1], 0, 3).0,
            Pull::Done,
            "the other one is not touched"
        );
    }
}
