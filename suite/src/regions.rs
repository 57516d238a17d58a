//! The memory regions of a party, and the party's accesses to regions of peers. The party is in this process
//! or in another.

use std::ops::Deref;
use std::sync::Arc;
use std::thread;

use homespun::atomic::{AtomicKind, AtomicOp, Datatype};
use homespun::endpoint::AtomicTarget;
use homespun::flags::{MrAccess, OpFlags};
use homespun::{Bytes, CounterEvents, Domain, Error, FabricAddress, MemoryRegion, MrAttr, RemoteMemory};

use super::atomic_call::{AtomicBy, AtomicCall};
use super::call::{RemoteAnswer, RemoteCall};
use super::counters::{self, Counted, Counters};
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
pub enum Region {
    /// In this process; `None` once it is closed.
    Here(Option<Registered>),
    /// In another process.
    There {
        /// The process.
        remote: Arc<RemoteParty>,
        /// The number of the region in its process.
        number: usize,
        /// The key of the region.
        key: u64,
        /// The first address, as peers use it.
        address: u64,
    },
}

/// A region of this process.
#[derive(Debug)]
pub struct Registered {
    region: LocalRegion,
    counters: Option<Counters>,
    domain: Domain,
}

#[derive(Debug)]
enum LocalRegion {
    Raw(RawRegion),
    Other(MemoryRegion),
}

impl Deref for LocalRegion {
    type Target = MemoryRegion;

    fn deref(&self) -> &MemoryRegion {
        match self {
            LocalRegion::Raw(region) => region,
            LocalRegion::Other(region) => region,
        }
    }
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

    pub(super) fn start_counting(&mut self) {
        self.counters = Some(Counters::bind_region(&self.domain, &self.region));
    }

    pub(super) fn read_counter(&self, event: CounterEvents) -> Counted {
        self.counters.as_ref().expect("a region that is counted").read_counter(event)
    }

    /// Registers the same raw memory in another domain, or with another key.
    pub(super) fn register_again(
        &self,
        domain: &Domain,
        access: MrAccess,
        key: u64,
    ) -> Result<Registered, Error> {
        let attr = MrAttr { access, requested_key: Some(key), ..MrAttr::default() };
        let LocalRegion::Raw(raw) = &self.region else { panic!("not raw memory: {self:?}") };
        let region = LocalRegion::Raw(raw.register_again(domain, &attr)?);
        Ok(Registered { region, counters: None, domain: domain.clone() })
    }

    pub(super) fn key_and_address(&self) -> (u64, u64) {
        (self.region.key(), self.region.address())
    }

    pub(super) fn content(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.region.len_bytes()];
        self.region.read_at(0, &mut bytes).expect("all of it");
        bytes
    }

    pub(super) fn read_at(&self, offset_bytes: usize, len_bytes: usize) -> Vec<u8> {
        let mut bytes = vec![0; len_bytes];
        self.region.read_at(offset_bytes, &mut bytes).expect("it is long enough");
        bytes
    }

    pub(super) fn write_at(&self, offset_bytes: usize, bytes: &[u8]) {
        self.region.write_at(offset_bytes, bytes).expect("it is long enough");
    }

    /// Closes the region. Returns its memory if that is raw memory.
    pub(super) fn close(self) -> Option<RawMemory> {
        match self.region {
            LocalRegion::Raw(region) => Some(region.close()),
            LocalRegion::Other(_) => None,
        }
    }
}

impl Region {
    /// Returns the key by which peers name the region.
    pub fn key(&self) -> u64 {
        match self {
            Region::Here(registered) => expect_open(registered).key_and_address().0,
            Region::There { key, .. } => *key,
        }
    }

    /// Returns the address by which peers name this offset.
    pub fn address_at(&self, offset_bytes: usize) -> u64 {
        let address = match self {
            Region::Here(registered) => expect_open(registered).key_and_address().1,
            Region::There { address, .. } => *address,
        };
        address + offset_bytes as u64
    }

    /// Returns the whole content.
    pub fn content(&self) -> Vec<u8> {
        match self {
            Region::Here(registered) => expect_open(registered).content(),
            Region::There { remote, number, .. } => match remote.call(&RemoteCall::RegionContent(*number)) {
                RemoteAnswer::Bytes(bytes) => bytes,
                other => panic!("{other:?}"),
            },
        }
    }

    /// Starts to count accesses to the region.
    pub fn start_counting(&mut self) {
        match self {
            Region::Here(registered) => registered.as_mut().expect("it is open").start_counting(),
            Region::There { remote, number, .. } => {
                remote.call_for_result(&RemoteCall::RegionCount(*number)).expect("counting is not refused");
            }
        }
    }

    /// Returns the values of the counter of this event.
    pub fn read_counter(&self, event: CounterEvents) -> Counted {
        match self {
            Region::Here(registered) => expect_open(registered).read_counter(event),
            Region::There { remote, number, .. } => counters::expect_counted_answer(
                remote.call(&RemoteCall::RegionCounted(*number, event.bits())),
            ),
        }
    }

    /// Returns the content from an offset on.
    pub fn read_at(&self, offset_bytes: usize, len_bytes: usize) -> Vec<u8> {
        match self {
            Region::Here(registered) => expect_open(registered).read_at(offset_bytes, len_bytes),
            Region::There { remote, number, .. } => {
                match remote.call(&RemoteCall::RegionPart(*number, offset_bytes, len_bytes)) {
                    RemoteAnswer::Bytes(bytes) => bytes,
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Copies bytes into the region, to an offset.
    pub fn write_at(&self, offset_bytes: usize, bytes: &[u8]) {
        match self {
            Region::Here(registered) => expect_open(registered).write_at(offset_bytes, bytes),
            Region::There { remote, number, .. } => {
                let put = RemoteCall::RegionPut(*number, offset_bytes, bytes.to_vec());
                remote.call_for_result(&put).expect("a copy into the region is not refused");
            }
        }
    }

    /// Writes zeros to all of the region.
    pub fn clear(&self) {
        self.write_at(0, &vec![0; self.content().len()]);
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

    /// Closes a raw region. Returns its content at that moment, and a handle to read the content later.
    pub fn close_raw(mut self) -> (Vec<u8>, Closed) {
        let closed = match &mut self {
            Region::Here(registered) => {
                let registered = registered.take().expect("it is open");
                Closed::Here(registered.close().expect("a raw region"))
            }
            Region::There { remote, number, .. } => {
                remote.call_for_result(&RemoteCall::RegionClose(*number)).expect("closing is not refused");
                Closed::There { remote: remote.clone(), number: *number }
            }
        };
        (closed.content(), closed)
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
            target: AtomicTarget {
                peer,
                memory: RemoteMemory { address: region.address_at(0), key: region.key() },
                datatype,
                op,
            },
            context,
            flags: OpFlags::empty(),
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Region::There { remote, number, .. } = self
            && !thread::panicking()
        {
            remote.call_if_alive(&RemoteCall::RegionClose(*number));
        }
    }
}

fn expect_open(registered: &Option<Registered>) -> &Registered {
    registered.as_ref().expect("it is open")
}

/// The memory of a closed region.
#[derive(Debug)]
pub enum Closed {
    /// In this process.
    Here(RawMemory),
    /// In another process.
    There {
        /// The process.
        remote: Arc<RemoteParty>,
        /// The number of the region in its process.
        number: usize,
    },
}

impl Closed {
    /// Returns the present content of the memory. Panics if memory beyond the region was written.
    pub fn content(&self) -> Vec<u8> {
        match self {
            Closed::Here(raw) => raw.content(),
            Closed::There { remote, number } => match remote.call(&RemoteCall::ClosedContent(*number)) {
                RemoteAnswer::Bytes(bytes) => bytes,
                other => panic!("{other:?}"),
            },
        }
    }
}
