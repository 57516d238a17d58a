//! Flushes of regions of parties, in this process or in others.

use homespun::endpoint::FlushMsg;
use homespun::flags::OpFlags;
use homespun::{Endpoint, Error, FabricAddress, FlushKind, RemoteMemory};
use serde::{Deserialize, Serialize};

use super::form;

/// A flush of a range of a region.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct FlushCall {
    /// Whether the range is to be durable, too.
    pub is_persistent: bool,
    /// The peer that owns the region.
    #[serde(with = "form::fabric_address")]
    pub peer: FabricAddress,
    /// The first address in the region.
    pub address: u64,
    /// The key of the region.
    pub key: u64,
    /// The length of the range.
    pub len_bytes: u64,
    /// The context of the completion.
    pub context: u64,
    /// The flags of the flush, or `None` for the call that takes none.
    pub flags: Option<OpFlags>,
}

impl FlushCall {
    pub(super) fn post(self, endpoint: &Endpoint) -> Result<(), Error> {
        let FlushCall { is_persistent, peer, address, key, len_bytes, context, flags } = self;
        let kind = if is_persistent { FlushKind::Persistent } else { FlushKind::Visibility };
        let memory = RemoteMemory { address, key };
        match flags {
            None => endpoint.flush(len_bytes, peer, memory, kind, context),
            Some(flags) => endpoint.flushmsg(FlushMsg { kind, to: peer, memory, len_bytes, context, flags }),
        }
    }
}
