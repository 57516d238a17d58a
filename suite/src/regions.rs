//! The memory regions of a party, and the party's accesses to regions of peers. The party is in this process
//! or in another.

use std::mem;
use std::sync::Arc;
use std::thread;

use homespun::atomic::{AtomicKind, AtomicOp, Datatype};
use homespun::endpoint::AtomicTarget;
use homespun::flags::{MrAccess, OpFlags};
use homespun::{Bytes, CounterEvents, Domain, Error, FabricAddress, MemoryRegion, MrAttr, RemoteMemory};

use super::atomic_call::{AtomicBy, AtomicCall};
use super::call::{RegionCall, RemoteAnswer, RemoteCall};
use super::counters::{Counted, Counters};
use super::deadline::Deadline;
use super::files;
use super::party::Party;
use super::payload::marked_buffer;
use super::raw::{RawMemory, RawRegion, map_and_register};
use super::region_spec::{MemoryKind, RegionFile, RegionSpec};
use super::remote_party::RemoteParty;
use super::rma_call::{RmaBy, RmaCall};

/// A region of a party.
#[derive(Debug)]
pub struct Region {
    memory: RemoteMemory,
    len_bytes: usize,
    place: RegionPlace,
}

#[derive(Debug)]
enum RegionPlace {
    Here(Registered),
    /// In another process, with this number.
    There(Arc<RemoteParty>, usize),
}

/// A region of this process.
#[derive(Debug)]
pub(super) struct Registered {
    region: LocalRegion,
    counters: Option<Counters>,
    domain: Domain,
}

#[derive(Debug)]
enum LocalRegion {
    Raw(RawRegion),
    Other(MemoryRegion),
    /// The memory of a raw region remains.
    Closed(Option<RawMemory>),
}

impl Registered {
    pub(super) fn new(domain: &Domain, memory: RegionSpec) -> Result<Registered, Error> {
        let RegionSpec { len_bytes, kind, access, key, is_counted } = memory;
        let shareable = kind == MemoryKind::Shareable;
        let attr = MrAttr { access, requested_key: Some(key), shareable, ..MrAttr::default() };
        let region = match kind {
            MemoryKind::Raw => LocalRegion::Raw(RawRegion::allocate(domain, len_bytes, &attr)?),
            MemoryKind::File(RegionFile { is_raw, number }) => {
                let file = files::open_region_file(number, len_bytes);
                LocalRegion::Other(if is_raw {
                    map_and_register(domain, &file, len_bytes, &attr)?
                } else {
                    domain.register_file(&file, 0, len_bytes, &attr)?
                })
            }
            MemoryKind::Owned | MemoryKind::Shareable => {
                LocalRegion::Other(domain.register(len_bytes, &attr)?)
            }
        };
        if let LocalRegion::Other(region) = &region {
            region.write_at(0, &marked_buffer(len_bytes))?;
        }
        let mut registered = Registered { region, counters: None, domain: domain.clone() };
        if is_counted {
            registered.start_counting();
        }
        Ok(registered)
    }

    fn open_region(&self) -> &MemoryRegion {
        match &self.region {
            LocalRegion::Raw(region) => region,
            LocalRegion::Other(region) => region,
            LocalRegion::Closed(_) => panic!("the region is closed"),
        }
    }

    pub(super) fn start_counting(&mut self) {
        self.counters = Some(Counters::bind_region(&self.domain, self.open_region()));
    }

    /// Closes the region, unless it is closed.
    pub(super) fn close(&mut self) {
        let memory = match mem::replace(&mut self.region, LocalRegion::Closed(None)) {
            LocalRegion::Raw(region) => Some(region.close()),
            LocalRegion::Other(_) => None,
            LocalRegion::Closed(memory) => memory,
        };
        self.region = LocalRegion::Closed(memory);
    }

    /// Makes a call that changes nothing but bytes.
    pub(super) fn make(&self, call: RegionCall) -> RemoteAnswer {
        match call {
            RegionCall::Part(offset_bytes, len_bytes) => {
                if let LocalRegion::Closed(Some(memory)) = &self.region {
                    return RemoteAnswer::Bytes(memory.content()[offset_bytes..][..len_bytes].to_vec());
                }
                let mut bytes = vec![0; len_bytes];
                self.open_region().read_at(offset_bytes, &mut bytes).expect("it is long enough");
                RemoteAnswer::Bytes(bytes)
            }
            RegionCall::Put(offset_bytes, bytes) => {
                self.open_region().write_at(offset_bytes, &bytes).expect("it is long enough");
                RemoteAnswer::Done
            }
            RegionCall::Counted(event) => {
                let counters = self.counters.as_ref().expect("a region that is counted");
                RemoteAnswer::Counted(counters.read_counter(event))
            }
            call @ (RegionCall::Close | RegionCall::Count) => panic!("it changes the region: {call:?}"),
        }
    }
}

impl Region {
    pub(super) fn new_local(registered: Registered) -> Region {
        let (memory, len_bytes) = (registered.open_region().remote(), registered.open_region().len_bytes());
        Region { memory, len_bytes, place: RegionPlace::Here(registered) }
    }

    /// The region with this number of another process or behind the C interface.
    pub(super) fn new_remote(
        remote: Arc<RemoteParty>,
        number: usize,
        memory: RemoteMemory,
        len_bytes: usize,
    ) -> Region {
        Region { memory, len_bytes, place: RegionPlace::There(remote, number) }
    }

    /// Registers the memory of a raw region of this process again.
    pub(super) fn register_again(
        &self,
        domain: &Domain,
        access: MrAccess,
        key: u64,
    ) -> Result<Region, Error> {
        let RegionPlace::Here(Registered { region: LocalRegion::Raw(raw), .. }) = &self.place else {
            panic!("not raw memory of this process: {self:?}")
        };
        let attr = MrAttr { access, requested_key: Some(key), ..MrAttr::default() };
        let region = LocalRegion::Raw(raw.register_again(domain, &attr)?);
        Ok(Region::new_local(Registered { region, counters: None, domain: domain.clone() }))
    }

    /// The address and the key by which peers name the region.
    pub(super) fn memory(&self) -> RemoteMemory {
        self.memory
    }

    #[track_caller]
    pub(super) fn call(&self, call: RegionCall) -> RemoteAnswer {
        match &self.place {
            RegionPlace::Here(registered) => registered.make(call),
            RegionPlace::There(remote, number) => remote.call(RemoteCall::Region(*number, call)),
        }
    }

    /// Returns the key by which peers name the region.
    pub fn key(&self) -> u64 {
        self.memory.key
    }

    /// Returns the address by which peers name this offset.
    pub fn address_at(&self, offset_bytes: usize) -> u64 {
        self.memory.address + offset_bytes as u64
    }

    /// Returns the whole content.
    pub fn content(&self) -> Vec<u8> {
        self.read_at(0, self.len_bytes)
    }

    /// Returns the content from an offset on.
    pub fn read_at(&self, offset_bytes: usize, len_bytes: usize) -> Vec<u8> {
        self.call(RegionCall::Part(offset_bytes, len_bytes)).bytes()
    }

    /// Copies bytes into the region, to an offset.
    pub fn write_at(&self, offset_bytes: usize, bytes: &[u8]) {
        let put = RegionCall::Put(offset_bytes, bytes.to_vec());
        self.call(put).result().expect("a copy into the region is not refused");
    }

    /// Writes zeros to all of the region.
    pub fn clear(&self) {
        self.write_at(0, &vec![0; self.len_bytes]);
    }

    /// Starts to count accesses to the region.
    pub fn start_counting(&mut self) {
        match &mut self.place {
            RegionPlace::Here(registered) => registered.start_counting(),
            RegionPlace::There(..) => {
                self.call(RegionCall::Count).result().expect("counting is not refused");
            }
        }
    }

    /// Returns the values of the counter of this event.
    pub fn read_counter(&self, event: CounterEvents) -> Counted {
        self.call(RegionCall::Counted(event)).counted()
    }

    /// Checks the content after operations on the region have completed. With another provider, waits for
    /// the content: at their default level, writes and atomic operations may become visible later.
    #[track_caller]
    pub fn expect_content(&self, initiator: &Party, expected: &[u8], what: &str) {
        let deadline = Deadline::new();
        while !initiator.is_homespun() && self.content() != expected {
            initiator.progress_all();
            deadline.yield_or_panic_with(|| format!("the effect of {what}"));
        }
        assert!(self.content() == expected, "{what}");
    }

    /// Closes the region.
    pub(super) fn close(&mut self) {
        match &mut self.place {
            RegionPlace::Here(registered) => registered.close(),
            RegionPlace::There(..) => {
                self.call(RegionCall::Close).result().expect("closing is not refused");
            }
        }
    }

    /// Closes a raw region. Returns its content at that moment, and a handle to read the content later.
    pub fn close_raw(mut self) -> (Vec<u8>, Closed) {
        self.close();
        (self.content(), Closed(self))
    }
}

impl RmaCall {
    /// Returns a write or a read at the beginning of a region.
    pub fn new(by: RmaBy, bytes: Bytes, peer: FabricAddress, region: &Region, context: u64) -> RmaCall {
        RmaCall {
            by,
            buffers: vec![bytes],
            peer,
            address: region.address_at(0),
            key: region.key(),
            data: None,
            context,
            flags: OpFlags::empty(),
        }
    }

    /// Returns the same access at another address.
    #[must_use]
    pub fn at_address(self, address: u64) -> RmaCall {
        RmaCall { address, ..self }
    }
}

impl AtomicCall {
    /// Returns an operation at the beginning of a region, made by the simplest call. The operand is also the
    /// compare value.
    pub fn new(
        kind: AtomicKind,
        (op, datatype): (AtomicOp, Datatype),
        operand: Bytes,
        peer: FabricAddress,
        region: &Region,
        context: u64,
    ) -> AtomicCall {
        let results_bytes = if kind.fetches() { vec![operand.len()] } else { Vec::new() };
        let compares = if kind == AtomicKind::Compare { vec![operand.clone()] } else { Vec::new() };
        AtomicCall {
            by: AtomicBy::Single,
            kind,
            operands: vec![operand],
            compares,
            results_bytes,
            target: AtomicTarget { peer, memory: region.memory, datatype, op },
            context,
            flags: OpFlags::empty(),
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let RegionPlace::There(remote, number) = &self.place
            && !thread::panicking()
        {
            remote.call_if_alive(RemoteCall::Region(*number, RegionCall::Close));
        }
    }
}

/// The memory of a closed raw region.
#[derive(Debug)]
pub struct Closed(Region);

impl Closed {
    /// Returns the present content of the memory. Panics if memory beyond the region was written.
    pub fn content(&self) -> Vec<u8> {
        self.0.content()
    }
}
