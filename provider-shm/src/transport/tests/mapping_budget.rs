//! How much memory of peers a transport maps.

use std::io::{IoSlice, IoSliceMut};

use homespun_conformance::transport::{Backend, TestEndpoint};
use homespun_engine::buffer::SendBuffer;
use homespun_engine::transport::{LinkId, Pull, Transport};

use crate::exposed::Exposed;
use crate::link::Slot;
use crate::{ShmProvider, ShmTransport};

const LEN_BYTES: usize = 64 << 10;

/// Enough for one region, with its first page, but not for two.
const BUDGET_BYTES: u64 = 3 * LEN_BYTES as u64 / 2;

/// A link whose one side pulls payload of the other.
struct Linked {
    exposer: TestEndpoint<ShmTransport>,
    puller: TestEndpoint<ShmTransport>,
    at_exposer: LinkId,
    at_puller: LinkId,
}

impl Linked {
    fn new() -> Linked {
        let provider = ShmProvider::new();
        let ([exposer, mut puller], at_exposer, at_puller) = Backend::new(&provider).open_linked_pair();
        puller.transport.mapped_max_bytes = BUDGET_BYTES;
        Linked { exposer, puller, at_exposer, at_puller }
    }

    /// Pulls a whole buffer. Returns whether its region is mapped then.
    fn pull_and_see_if_mapped(&mut self, buffer: &SendBuffer) -> bool {
        let payload = [IoSlice::new(buffer)];
        let remote = self.exposer.transport.expose(self.at_exposer, &payload).unwrap();
        let mut into = vec![0; buffer.len()];
        let pulled =
            self.puller.transport.pull(self.at_puller, &remote, 0, &mut [IoSliceMut::new(&mut into)]);
        match pulled {
            Pull::Done => assert!(into == **buffer),
            // This host forbids copies between processes, and the region is not mapped.
            Pull::Declined => {}
            pulled => panic!("{pulled:?}"),
        }
        let name = Exposed::parse(&remote).unwrap().region.unwrap();
        let Some(Slot::Made(link)) = self.puller.transport.links.get(self.at_puller) else {
            panic!("no link")
        };
        let mapped = &link.incoming.as_ref().unwrap().peer_regions;
        assert!(mapped.mapped_bytes() <= BUDGET_BYTES);
        mapped.contains(&name)
    }
}

fn make_buffer(byte: u8) -> SendBuffer {
    let mut buffer = SendBuffer::allocate(&ShmProvider::new(), LEN_BYTES).unwrap();
    buffer.get_mut().unwrap().fill(byte);
    buffer
}

#[test]
fn region_that_has_ended_gives_its_budget_back() {
    let mut linked = Linked::new();
    let [first, second] = [1, 2].map(make_buffer);
    assert!(linked.pull_and_see_if_mapped(&first));
    assert!(!linked.pull_and_see_if_mapped(&second), "there is no room for two");
    drop(first);
    assert!(linked.pull_and_see_if_mapped(&second));
}
