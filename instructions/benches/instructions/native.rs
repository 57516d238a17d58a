//! The native interface: Rust, with owned buffers.

use homespun::atomic::{AtomicOp, Datatype};
use homespun::endpoint::AtomicTarget;
use homespun::flags::MrAccess;
use homespun::info::{EndpointType, Progress, Threading};
use homespun::{
    Address, AddressVector, AvAttr, BindFlags, Buffer, Bytes, BytesMut, CompletionQueue, CqAttr, Endpoint,
    Fabric, FabricAddress, Hints, MemoryRegion, MrAttr, RemoteMemory, Tag,
};

use crate::node::{LEN_BYTES, Node};
use crate::path::{Operation, Path};

const MESSAGE: &[u8; LEN_BYTES] = b"homespun";

/// The number 1 as little-endian bytes.
const ONE: &[u8; LEN_BYTES] = &1_u64.to_le_bytes();

pub(crate) struct NativeNode {
    endpoint: Endpoint,
    cq: CompletionQueue,
    av: AddressVector,
    region: MemoryRegion,
    peer: FabricAddress,
    /// The address and the key of the peer's memory.
    target: (u64, u64),
    /// The buffer for receives and reads. While a receive or read has the memory, this buffer is empty.
    room: BytesMut,
}

impl NativeNode {
    #[expect(unsafe_code, reason = "a domain without locks is a promise")]
    fn open(path: Path) -> NativeNode {
        let fabric = Fabric::new();
        let hints = Hints::new().node("127.0.0.1").source().domain(path.domain).ep_type(EndpointType::Rdm);
        let hints = hints.threading(Threading::Domain).progress(Progress::Manual);
        let info = fabric.info(&hints).expect("a domain of this name");
        // SAFETY: the process has only this thread.
        let domain = unsafe { fabric.domain_unsynchronised(&info) }.expect("a domain");
        let cq = domain.open_cq(&CqAttr::default()).expect("a completion queue");
        let av = domain.open_av(&AvAttr::default()).expect("an address vector");
        let endpoint = domain.endpoint(&info).expect("an endpoint");
        endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV).expect("its first queue");
        endpoint.bind_av(&av).expect("its first address vector");
        endpoint.enable().expect("it has all that it needs");
        let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        let shareable = path.operation == Operation::WriteShareable;
        let attr = MrAttr { access, requested_key: Some(1), shareable, ..MrAttr::default() };
        let region = domain.register(LEN_BYTES, &attr).expect("a memory region");
        assert_eq!(region.is_shareable(), shareable);
        let room = BytesMut::zeroed(LEN_BYTES);
        NativeNode { endpoint, cq, av, region, peer: FabricAddress::UNSPECIFIED, target: (0, 0), room }
    }
}

impl Node for NativeNode {
    type Name = (Address, u64, u64);

    fn open_pair(path: Path) -> [NativeNode; 2] {
        [NativeNode::open(path), NativeNode::open(path)]
    }

    fn own_address(&self) -> Self::Name {
        let address = self.endpoint.name().expect("an endpoint that is enabled has a name");
        (address, self.region.address(), self.region.key())
    }

    fn set_peer(&mut self, (address, region, key): Self::Name) {
        self.peer = self.av.insert_one(address).expect("an address");
        self.target = (region, key);
    }

    fn post_receive(&mut self, tag: Option<u64>) {
        let (room, from) = (std::mem::take(&mut self.room), FabricAddress::UNSPECIFIED);
        match tag {
            Some(tag) => self.endpoint.trecv(room, from, Tag(tag), 1),
            None => self.endpoint.recv(room, from, 1),
        }
        .expect("room for a receive");
    }

    fn try_send(&mut self, tag: Option<u64>) -> bool {
        let message = Bytes::from_static(MESSAGE);
        match tag {
            Some(tag) => self.endpoint.tsend(message, self.peer, Tag(tag), 2),
            None => self.endpoint.send(message, self.peer, 2),
        }
        .expect("room for a send");
        true
    }

    fn inject(&mut self) {
        self.endpoint.inject(MESSAGE, self.peer, None, None).expect("room for a send");
    }

    fn write(&mut self) {
        let (address, key) = self.target;
        let bytes = Bytes::from_static(MESSAGE);
        self.endpoint.write(bytes, self.peer, RemoteMemory { address, key }, 3).expect("room for a write");
    }

    fn read(&mut self) {
        let (address, key) = self.target;
        let room = std::mem::take(&mut self.room);
        self.endpoint.read(room, self.peer, RemoteMemory { address, key }, 4).expect("room for a read");
    }

    fn fetch_add(&mut self) {
        let (address, key) = self.target;
        let (datatype, op) = (Datatype::Uint64, AtomicOp::Sum);
        let target = AtomicTarget { peer: self.peer, memory: RemoteMemory { address, key }, datatype, op };
        let room = std::mem::take(&mut self.room);
        let posted = self.endpoint.fetch_atomic(Bytes::from_static(ONE), room, target, 5);
        posted.expect("room for an atomic operation");
    }

    fn poll_cq(&mut self) -> bool {
        match self.cq.read() {
            Ok(Some(completion)) => {
                match completion.buffer {
                    Buffer::Sent(_) => {}
                    buffer => self.room = buffer.into_received().expect("the room that was posted"),
                }
                true
            }
            Ok(None) => false,
            Err(error) => panic!("{error}: {:?}", self.cq.read_error()),
        }
    }
}
