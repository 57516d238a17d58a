//! The regions of a party behind the C interface.

use homespun::flags::Caps;
use homespun::info::MrMode;
use homespun::{CounterEvents, RemoteMemory};
use homespun_host::Object;
use homespun_host::abi::domain::FidMr;

use super::{Counters, ProviderParty, Refused, RegisteredPiece, not_offered, open_counter, read_counter};
use crate::call::{RegionCall, RemoteAnswer};
use crate::raw::Piece;
use crate::region_spec::{MemoryKind, RegionSpec};

impl ProviderParty {
    pub(super) fn register(&mut self, spec: RegionSpec) -> Result<RemoteAnswer, Refused> {
        let RegionSpec { len_bytes, kind, access, key, is_counted } = spec;
        self.need(Caps::RMA)?;
        if !matches!(kind, MemoryKind::Owned | MemoryKind::Raw) {
            return Err(Refused::NotOffered("regions of files and of shareable memory".to_owned()));
        }
        let piece = Piece::allocate(len_bytes);
        // SAFETY: the memory is leaked, and no reference to it exists.
        let mr = unsafe { self.domain.register_memory(piece.address.cast(), len_bytes, access.bits(), key) }?;
        if self.mr_mode.contains(MrMode::ENDPOINT) {
            mr.bind(self.ep.as_ref().expect("an open endpoint"), 0)?;
            mr.enable()?;
        }
        let counters = if is_counted { self.open_region_counters(&mr)? } else { Vec::new() };
        // SAFETY: the region is open.
        let key = unsafe { (*mr.as_ptr()).key };
        let is_virtual = self.mr_mode.contains(MrMode::VIRT_ADDR);
        let address = if is_virtual { piece.address.addr() as u64 } else { 0 };
        self.regions.push(RegisteredPiece { mr: Some(mr), piece, counters });
        Ok(RemoteAnswer::Registered(self.regions.len() - 1, RemoteMemory { address, key }))
    }

    pub(super) fn execute_at_region(
        &mut self,
        number: usize,
        call: RegionCall,
    ) -> Result<RemoteAnswer, Refused> {
        let RegisteredPiece { mr, piece, counters } = &self.regions[number];
        match call {
            RegionCall::Part(offset_bytes, len_bytes) => {
                if mr.is_none() {
                    piece.check_guard();
                }
                return Ok(RemoteAnswer::Bytes(piece.part(offset_bytes, len_bytes)));
            }
            RegionCall::Put(offset_bytes, bytes) => piece.write(offset_bytes, &bytes),
            RegionCall::Close => {
                self.regions[number].mr = None;
                self.regions[number].counters.clear();
            }
            RegionCall::Count => {
                self.regions[number].counters =
                    self.open_region_counters(mr.as_ref().expect("the region is open"))?;
            }
            RegionCall::Counted(event) => return Ok(read_counter(counters, event)),
        }
        Ok(RemoteAnswer::Done)
    }

    fn open_region_counters(&self, mr: &Object<FidMr>) -> Result<Counters, Refused> {
        self.need(Caps::RMA_EVENT)?;
        let mut counters = Vec::new();
        for event in [CounterEvents::REMOTE_READ, CounterEvents::REMOTE_WRITE] {
            let counter = open_counter(&self.domain)?;
            let bound = mr.bind(&counter, event.bits());
            // `fi_mr(3)` has counters of writes alone.
            if event == CounterEvents::REMOTE_WRITE {
                bound.map_err(|errno| not_offered("counters of a region", errno))?;
            }
            counters.push((event, counter));
        }
        Ok(counters)
    }
}
