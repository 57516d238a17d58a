//! Accesses to regions of parties, in this process or in others.

use homespun::endpoint::{ReadMsg, WriteMsg};
use homespun::flags::OpFlags;
use homespun::{Bytes, Endpoint, Error, FabricAddress, RemoteMemory};
use serde::{Deserialize, Serialize};

use super::form;
use super::payload::marked_buffer;
use super::raw::leak_segments;

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
    /// The bytes of a write. A read uses only the lengths of these buffers.
    pub buffers: Vec<Bytes>,
    /// The peer that owns the region.
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
    pub flags: OpFlags,
}

impl RmaCall {
    pub(super) fn post(self, endpoint: &Endpoint) -> Result<(), Error> {
        use RmaBy::{InjectWrite, Read, Readmsg, Readv, Write, WriteRaw, Writemsg, Writev};
        let RmaCall { by, buffers, peer, address, key, data, context, flags } = self;
        let memory = RemoteMemory { address, key };
        let one = || Bytes::from(buffers.concat());
        let mut rooms = buffers.iter().map(|buffer| marked_buffer(buffer.len()));
        match (by, data) {
            (Write, None) => endpoint.write(one(), peer, memory, context)?,
            (Write, Some(data)) => endpoint.writedata(one(), data, peer, memory, context)?,
            (Writev, _) => endpoint.writev(buffers, peer, memory, context)?,
            (Writemsg, _) => {
                endpoint.writemsg(WriteMsg { buffers, to: peer, memory, data, context, flags })?;
            }
            (WriteRaw, _) => {
                let buffers = &leak_segments(&buffers)[..];
                // SAFETY: the memory is never freed, and nothing else refers to it. So the memory stays
                // readable and unchanged.
                unsafe {
                    endpoint.post_write(&WriteMsg { buffers, to: peer, memory, data, context, flags })?;
                }
            }
            (InjectWrite, _) => endpoint.inject_write(&one(), peer, memory, data)?,
            (Read, _) => {
                let buffer = rooms.next().expect("a single read has a single buffer");
                endpoint.read(buffer, peer, memory, context)?;
            }
            (Readv, _) => endpoint.readv(rooms.collect(), peer, memory, context)?,
            (Readmsg, _) => {
                let buffers = rooms.collect();
                endpoint.readmsg(ReadMsg { buffers, from: peer, memory, context, flags })?;
            }
        }
        Ok(())
    }
}
