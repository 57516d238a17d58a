//! The memory regions of a party, and accesses to those of peers, for a party in this process or in another.

use std::sync::Arc;
use std::thread;

use homespun::endpoint::{ReadMsg, WriteMsg};
use homespun::flags::{MrAccess, OpFlags};
use homespun::{
    Bytes, CounterEvents, Domain, Endpoint, Error, FabricAddress, MemoryRegion, MrAttr, RemoteMemory,
};
use serde::{Deserialize, Serialize};

use super::call::{RemoteAnswer, RemoteCall};
use super::counters::{self, Counted, Counters};
use super::files;
use super::form;
use super::payload::marked_buffer;
use super::raw::{RawMemory, register_mapped, write_raw};
use super::worker::Worker;

/// The region to register.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct RegionSpec {
    /// Its length.
    pub len_bytes: usize,
    /// The owner of the memory.
    pub kind: Kind,
    /// What peers may do.
    #[serde(with = "form::bits")]
    pub access: MrAccess,
    /// The requested key.
    pub key: u64,
    /// Whether accesses of peers are counted.
    pub is_counted: bool,
}

/// The owner of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// The region.
    Owned,
    /// The party, in two segments.
    Raw,
    /// The region; peers may map it if possible.
    Shareable,
    /// A file, which is persistent.
    File(FileKind),
}

/// The file, and the owner of its mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileKind {
    /// Mapped by the party, not by the region.
    pub is_raw: bool,
    /// The number of its [name](super::files::NamedFile), if it has one.
    pub number: Option<u64>,
}

impl Kind {
    /// All kinds; the file is mapped by the region, and has no name.
    pub const ALL: [Kind; 4] =
        [Kind::Owned, Kind::Raw, Kind::Shareable, Kind::File(FileKind { is_raw: false, number: None })];
}

/// A region of a party.
#[derive(Debug)]
pub enum Region {
    /// In this process; `None` once it is closed.
    Here(Option<Registered>),
    /// In another process.
    There {
        /// The process.
        worker: Arc<Worker>,
        /// The number of the region in its process.
        number: usize,
        /// The key of the region.
        key: u64,
        /// The first address, as peers use it.
        address: u64,
    },
}

/// A region of this process, and its memory if that is raw.
#[derive(Debug)]
pub struct Registered {
    region: MemoryRegion,
    raw: Option<RawMemory>,
    counters: Option<Counters>,
    domain: Domain,
}

impl Registered {
    pub(super) fn new(domain: &Domain, memory: RegionSpec) -> Result<Registered, Error> {
        let RegionSpec { len_bytes, kind, access, key, is_counted } = memory;
        let shareable = kind == Kind::Shareable;
        let attr = MrAttr { access, requested_key: key, shareable, ..MrAttr::default() };
        let (region, raw) = match kind {
            Kind::Raw => {
                let (region, raw) = RawMemory::allocate_and_register(domain, len_bytes, &attr)?;
                (region, Some(raw))
            }
            Kind::File(FileKind { is_raw, number }) => {
                let file = files::open_region_file(number, len_bytes);
                let region = if is_raw {
                    register_mapped(domain, &file, len_bytes, &attr)?
                } else {
                    domain.register_file(&file, 0, len_bytes, &attr)?
                };
                (region, None)
            }
            Kind::Owned | Kind::Shareable => (domain.register(len_bytes, &attr)?, None),
        };
        if raw.is_none() {
            region.write_at(0, &marked_buffer(len_bytes))?;
        }
        let mut registered = Registered { region, raw, counters: None, domain: domain.clone() };
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
        let attr = MrAttr { access, requested_key: key, ..MrAttr::default() };
        let (region, raw) = self.raw.as_ref().expect("raw memory").register_again(domain, &attr)?;
        Ok(Registered { region, raw: Some(raw), counters: None, domain: domain.clone() })
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

    /// Closes the region. Returns its raw memory, which is never freed.
    pub(super) fn close(self) -> Option<RawMemory> {
        let Registered { region, raw, .. } = self;
        drop(region);
        raw
    }
}

impl Region {
    /// The key, as peers use it.
    pub fn key(&self) -> u64 {
        match self {
            Region::Here(registered) => expect_open(registered).key_and_address().0,
            Region::There { key, .. } => *key,
        }
    }

    /// The address of an offset, as peers use it.
    pub fn address_at(&self, offset_bytes: usize) -> u64 {
        let address = match self {
            Region::Here(registered) => expect_open(registered).key_and_address().1,
            Region::There { address, .. } => *address,
        };
        address + offset_bytes as u64
    }

    /// The whole content.
    pub fn content(&self) -> Vec<u8> {
        match self {
            Region::Here(registered) => expect_open(registered).content(),
            Region::There { worker, number, .. } => match worker.ask(&RemoteCall::RegionContent(*number)) {
                RemoteAnswer::Bytes(bytes) => bytes,
                other => panic!("{other:?}"),
            },
        }
    }

    /// Starts counting accesses to it.
    pub fn start_counting(&mut self) {
        match self {
            Region::Here(registered) => registered.as_mut().expect("it is open").start_counting(),
            Region::There { worker, number, .. } => {
                worker
                    .call_and_expect_done(&RemoteCall::RegionCount(*number))
                    .expect("counting is not refused");
            }
        }
    }

    /// The counted accesses of this kind.
    pub fn read_counter(&self, event: CounterEvents) -> Counted {
        match self {
            Region::Here(registered) => expect_open(registered).read_counter(event),
            Region::There { worker, number, .. } => {
                counters::expect_counted(worker.ask(&RemoteCall::RegionCounted(*number, event.bits())))
            }
        }
    }

    /// The content from an offset on.
    pub fn read_at(&self, offset_bytes: usize, len_bytes: usize) -> Vec<u8> {
        match self {
            Region::Here(registered) => expect_open(registered).read_at(offset_bytes, len_bytes),
            Region::There { worker, number, .. } => {
                match worker.ask(&RemoteCall::RegionPart(*number, offset_bytes, len_bytes)) {
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
            Region::There { worker, number, .. } => {
                let put = RemoteCall::RegionPut(*number, offset_bytes, bytes.to_vec());
                worker.call_and_expect_done(&put).expect("a copy into the region is not refused");
            }
        }
    }

    /// Closes a raw region. Returns the content of its memory at that moment, and a handle to read it later.
    pub fn close_raw(mut self) -> (Vec<u8>, Closed) {
        let closed = match &mut self {
            Region::Here(registered) => {
                let registered = registered.take().expect("it is open");
                Closed::Here(registered.close().expect("a raw region"))
            }
            Region::There { worker, number, .. } => {
                worker
                    .call_and_expect_done(&RemoteCall::RegionClose(*number))
                    .expect("closing is not refused");
                Closed::There { worker: worker.clone(), number: *number }
            }
        };
        (closed.content(), closed)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if let Region::There { worker, number, .. } = self
            && !thread::panicking()
        {
            worker.call_if_alive(&RemoteCall::RegionClose(*number));
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
        worker: Arc<Worker>,
        /// The number of the region in its process.
        number: usize,
    },
}

impl Closed {
    /// The memory's present content. Fails if memory beyond it was written.
    pub fn content(&self) -> Vec<u8> {
        match self {
            Closed::Here(raw) => raw.content(),
            Closed::There { worker, number } => match worker.ask(&RemoteCall::ClosedContent(*number)) {
                RemoteAnswer::Bytes(bytes) => bytes,
                other => panic!("{other:?}"),
            },
        }
    }
}

/// The call that accesses a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RmaBy {
    /// `fi_write`, `fi_writedata`.
    Write,
    /// `fi_writev`.
    Writev,
    /// `fi_writemsg`.
    Writemsg,
    /// `fi_writemsg` from raw memory.
    WriteRaw,
    /// `fi_inject_write`, `fi_inject_writedata`.
    InjectWrite,
    /// `fi_read`.
    Read,
    /// `fi_readv`.
    Readv,
    /// `fi_readmsg`.
    Readmsg,
}

/// An access to a region.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RmaCall {
    /// The call that posts it.
    pub by: RmaBy,
    /// The source of a write; of a read only the lengths count.
    pub buffers: Vec<Bytes>,
    /// The owner of the region.
    #[serde(with = "form::fabric_address")]
    pub peer: FabricAddress,
    /// The first address in the region.
    pub address: u64,
    /// The key of the region.
    pub key: u64,
    /// The remote completion data of a write.
    pub data: Option<u64>,
    /// The context of the completion.
    pub context: u64,
    /// The flags of the call, if it takes any.
    #[serde(with = "form::bits")]
    pub flags: OpFlags,
}

impl RmaCall {
    /// A write or read at the beginning of a region.
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

    pub(super) fn post(self, endpoint: &Endpoint) -> Result<(), Error> {
        let RmaCall { by, buffers, peer, address, key, data, context, flags } = self;
        let mut rooms = buffers.iter().map(|buffer| marked_buffer(buffer.len()));
        match (by, data) {
            (RmaBy::Write, None) => {
                endpoint.write(buffers.concat().into(), peer, RemoteMemory { address, key }, context)?;
            }
            (RmaBy::Write, Some(data)) => {
                endpoint.writedata(
                    buffers.concat().into(),
                    data,
                    peer,
                    RemoteMemory { address, key },
                    context,
                )?;
            }
            (RmaBy::Writev, _) => endpoint.writev(buffers, peer, RemoteMemory { address, key }, context)?,
            (RmaBy::Writemsg, _) => {
                endpoint.writemsg(WriteMsg {
                    buffers,
                    to: peer,
                    memory: RemoteMemory { address, key },
                    data,
                    context,
                    flags,
                })?;
            }
            (RmaBy::WriteRaw, _) => {
                write_raw(endpoint, &buffers, peer, (address, key), data, context, flags)?;
            }
            (RmaBy::InjectWrite, _) => {
                endpoint.inject_write(&buffers.concat(), peer, RemoteMemory { address, key }, data)?;
            }
            (RmaBy::Read, _) => {
                let buffer = rooms.next().expect("a single read has a single buffer");
                endpoint.read(buffer, peer, RemoteMemory { address, key }, context)?;
            }
            (RmaBy::Readv, _) => {
                endpoint.readv(rooms.collect(), peer, RemoteMemory { address, key }, context)?;
            }
            (RmaBy::Readmsg, _) => {
                let buffers = rooms.collect();
                endpoint.readmsg(ReadMsg {
                    buffers,
                    from: peer,
                    memory: RemoteMemory { address, key },
                    context,
                    flags,
                })?;
            }
        }
        Ok(())
    }
}
