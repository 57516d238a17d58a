//! Two endpoints in one process say hello to each other over TCP.
//!
//! ```text
//! cargo run --example hello
//! ```

#![expect(clippy::print_stdout, reason = "an example shows what it received")]

use homespun::{
    AddressVector, AvAttr, BindFlags, Buffer, Bytes, BytesMut, Caps, Completion, CompletionQueue, CqAttr,
    Endpoint, Error, Fabric, FabricAddress, Hints, Info, ReadError,
};

/// An endpoint with the queue and the addresses that it needs.
struct Party {
    endpoint: Endpoint,
    cq: CompletionQueue,
    av: AddressVector,
}

impl Party {
    fn open(fabric: &Fabric, info: &Info) -> Result<Party, Error> {
        let domain = fabric.domain(info)?;
        let cq = domain.open_cq(&CqAttr::default())?;
        let av = domain.open_av(&AvAttr::default())?;
        let endpoint = domain.endpoint(info)?;
        endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
        endpoint.bind_av(&av)?;
        endpoint.enable()?;
        Ok(Party { endpoint, cq, av })
    }

    /// Makes progress; returns a completion if there is one.
    fn poll(&self) -> Option<Completion> {
        match self.cq.read() {
            Ok(completion) => Some(completion),
            Err(ReadError::Empty) => None,
            Err(error) => panic!("{error}: {:?}", self.cq.read_error()),
        }
    }
}

fn main() -> Result<(), Error> {
    let fabric = Fabric::new();
    let info = &fabric.info(&Hints::new().caps(Caps::TAGGED).domain("tcp"))?;
    let alice = Party::open(&fabric, info)?;
    let bob = Party::open(&fabric, info)?;

    let to_bob = alice.av.insert(&[bob.endpoint.name()?]).remove(0)?;
    bob.endpoint.trecv(BytesMut::zeroed(64), FabricAddress::UNSPECIFIED, 7, 0, 1)?;
    alice.endpoint.tsend(Bytes::from_static(b"hello, fabric"), to_bob, 7, 2)?;

    // Progress is manual: both queues are read until the message has arrived.
    let received = loop {
        alice.poll();
        if let Some(completion) = bob.poll() {
            break completion;
        }
    };
    if let Buffer::Received(message) = received.buffer {
        println!("tag {}: {}", received.tag, String::from_utf8_lossy(&message));
    }
    Ok(())
}
