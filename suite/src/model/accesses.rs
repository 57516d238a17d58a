//! Accesses to regions: posts and completions. Each endpoint has one region, and all endpoints access it.
//! The module [`memory`](crate::model::memory) checks the bytes.

use homespun::flags::{CompletionFlags, MrAccess, OpFlags};
use homespun::{Buffer, Completion, CompletionError, FabricAddress, OperationError};

use crate::model::atomics::check_returned_buffers;
use crate::model::elements::{REGION_BYTES, ROWS, ROWS_END, element_values, operand_value};
use crate::model::history::{Access, AccessOp, Event, History, Incarnation, Level, Operation};
use crate::model::program::AccessCall;
use crate::model::run::{Runner, expect_accepted_or_full, expect_lost_sender_errno};
use crate::payload::{payload, received_bytes, split_unevenly};
use crate::{Ended, FlushCall, Party, Region, RegionSpec, RmaBy, RmaCall};

/// Returns the bytes that an access writes, which no message contains.
pub(crate) fn bytes_to_write(access: usize, place: usize, len_bytes: usize) -> homespun::Bytes {
    if place < REGION_BYTES {
        payload(1 << 40 | access as u64, len_bytes)
    } else {
        element_values(operand_value, access, place, len_bytes)
    }
}

impl Runner<'_> {
    /// Registers the region of a party at a place.
    pub(crate) fn open_region(&self, party: &Party, place: usize) -> Region {
        let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        let (kind, key) = (self.program.memory, place as u64);
        let memory = RegionSpec { len_bytes: ROWS_END, kind, access, key, is_counted: false };
        let region = party.register(memory).expect("no other region has the key");
        region.write_at(REGION_BYTES, &[0; ROWS_END - REGION_BYTES]);
        region
    }

    /// Returns the completion level of an access, the flags, and whether the access has a fence.
    pub(crate) fn level_flags_and_fence(&self, call: AccessCall, fenced: bool) -> (Level, OpFlags, bool) {
        let is_matched = matches!(call, AccessCall::ReadMatched | AccessCall::WriteMatched);
        let fenced = fenced && self.program.with_fences;
        let level = if is_matched && self.program.with_matches { Level::Match } else { Level::Delivery };
        let mut flags = level.flags();
        flags.set(OpFlags::FENCE, fenced);
        (level, flags, fenced)
    }

    /// Posts an access to this part of the region. An injected access is cut to the inject size.
    pub(crate) fn post_access(
        &mut self,
        from: usize,
        to: usize,
        (place, len_bytes): (usize, usize),
        call: AccessCall,
        fenced: bool,
    ) {
        let (Some(party), Some(region)) = (&self.parties[from], &self.regions[to]) else { return };
        let is_injected = call == AccessCall::InjectWrite;
        let most_bytes = if is_injected { party.endpoint.info().tx.inject_size_bytes } else { usize::MAX };
        let len_bytes = len_bytes.min(most_bytes);
        let identity = self.history.accesses.len();
        let (access, by) = match call {
            AccessCall::Write => (Access::Write, RmaBy::Writemsg),
            AccessCall::InjectWrite => (Access::Write, RmaBy::InjectWrite),
            AccessCall::Read | AccessCall::ReadMatched => (Access::Read, RmaBy::Readmsg),
            AccessCall::WriteData | AccessCall::WriteMatched => (Access::Write, RmaBy::Writemsg),
            AccessCall::Flush => return self.post_flush(from, to, (place, len_bytes), fenced),
        };
        let (level, flags, fenced) = self.level_flags_and_fence(call, fenced && !is_injected);
        let has_data = call == AccessCall::WriteData;
        let call = RmaCall {
            by,
            buffers: split_unevenly(&bytes_to_write(identity, place, len_bytes), 1 + identity % 3),
            peer: FabricAddress(to as u64),
            address: region.address_at(place),
            key: region.key(),
            data: has_data.then_some(identity as u64),
            context: Operation::Access(identity).context(),
            flags,
        };
        if !expect_accepted_or_full(party.endpoint.rma(call)) {
            return;
        }
        self.injected[from] += usize::from(is_injected);
        let posted = self.record_accepted_access((from, to), access, (place, len_bytes));
        (posted.level, posted.fenced) = (level, fenced);
        (posted.injected, posted.has_data) = (is_injected, has_data);
    }

    /// Posts a flush of this part of the region.
    fn post_flush(&mut self, from: usize, to: usize, (place, len_bytes): (usize, usize), fenced: bool) {
        let (Some(party), Some(region)) = (&self.parties[from], &self.regions[to]) else { return };
        let (level, flags, fenced) = self.level_flags_and_fence(AccessCall::Flush, fenced);
        let identity = self.history.accesses.len();
        let call = FlushCall {
            is_persistent: false,
            peer: FabricAddress(to as u64),
            address: region.address_at(place),
            key: region.key(),
            len_bytes: len_bytes as u64,
            context: Operation::Access(identity).context(),
            flags: Some(flags),
        };
        if expect_accepted_or_full(party.endpoint.flush(call)) {
            let posted = self.record_accepted_access((from, to), Access::Flush, (place, len_bytes));
            (posted.level, posted.fenced) = (level, fenced);
        }
    }

    /// Records an accepted access.
    pub(crate) fn record_accepted_access(
        &mut self,
        (from, to): (usize, usize),
        access: Access,
        part: (usize, usize),
    ) -> &mut AccessOp {
        let ends = [from, to].map(|place| self.history.incarnation_at(place));
        self.history.post_access(ends, access, part)
    }

    /// Reads or writes this part of a region directly, as its owner.
    pub(crate) fn access_as_owner(&mut self, at: usize, (place, len_bytes): (usize, usize), access: Access) {
        let Some(region) = &self.regions[at] else { return };
        let identity = self.history.accesses.len();
        let found = match access {
            Access::Read => Some(region.read_at(place, len_bytes)),
            _ => {
                region.write_at(place, &bytes_to_write(identity, place, len_bytes));
                None
            }
        };
        let at = self.history.incarnation_at(at);
        let posted = self.history.post_access([at, at], access, (place, len_bytes));
        (posted.ended, posted.ended_at, posted.found) = (Some(Ok(())), posted.posted_at, found);
    }

    pub(crate) fn record_access_end(&mut self, who: Incarnation, identity: usize, ended: Ended) {
        let now = self.history.record(Event::Ended(Operation::Access(identity)));
        let access = self.history.accesses.get_mut(identity).expect("an access that was posted");
        assert_eq!(access.by, who, "the access of another endpoint");
        let (completion, result) = match ended {
            Ok((completion, source)) => {
                assert!(source == FabricAddress::UNSPECIFIED || !self.offer.is_homespun);
                (completion, Ok(()))
            }
            Err(CompletionError { completion, error, .. }) => (completion, Err(expect_access_errno(&error))),
        };
        let flags = match access.access {
            Access::Read => CompletionFlags::RMA | CompletionFlags::READ,
            Access::Write => CompletionFlags::RMA | CompletionFlags::WRITE,
            Access::Update(_) => CompletionFlags::ATOMIC | CompletionFlags::WRITE,
            Access::Fetch(_) => CompletionFlags::ATOMIC | CompletionFlags::READ,
            Access::Flush => CompletionFlags::OF_FLUSH,
        };
        self.offer.check_flags(&completion, flags);
        let len_bytes = match access.access {
            Access::Read | Access::Write | Access::Flush if result.is_ok() => access.len_bytes,
            _ => 0,
        };
        self.offer.check_transmit_fields(&completion, len_bytes);
        match access.access {
            Access::Flush => assert_eq!(completion.buffer, Buffer::None),
            Access::Read => access.found = result.is_ok().then(|| received_bytes(&completion.buffer)),
            Access::Write => {
                let sent = completion.buffer.into_sent_vector().expect("a vector was handed over");
                let expected = bytes_to_write(identity, access.place, access.len_bytes);
                assert!(sent.concat() == expected, "another buffer comes back");
            }
            Access::Update(_) | Access::Fetch(_) => {
                access.found = check_returned_buffers(identity, access, result.is_ok(), completion.buffer);
            }
        }
        access.ended_at = now;
        let before = access.ended.replace(result);
        assert_eq!(before, None, "access {identity} ended again, with {result:?}");
    }

    /// Records the completion of remote data at the target.
    pub(crate) fn record_remote_data(
        &mut self,
        who: Incarnation,
        completion: &Completion,
        source: FabricAddress,
    ) {
        let identity = usize::try_from(completion.data).expect("a small number");
        let now = self.history.record(Event::DataRead(identity));
        let expected_source = self.history.source_of(self.history.accesses[identity].by.place);
        let access = self.history.accesses.get_mut(identity).expect("a write that was posted");
        let flags = CompletionFlags::RMA | CompletionFlags::REMOTE_WRITE | CompletionFlags::REMOTE_CQ_DATA;
        self.offer.check_flags(completion, flags);
        assert_eq!(completion.len_bytes, access.len_bytes);
        assert!(access.has_data && access.at.place == who.place, "{completion:?} is of {access:?}");
        // `fi_cq(3)` promises a source for messages alone.
        assert!(source == expected_source || !self.offer.is_homespun, "{source:?}");
        let before = access.data_read_at.replace(now);
        assert_eq!(before, None, "the target was told again of access {identity}");
    }

    /// Reads every open region as a whole, once every operation has ended.
    pub(crate) fn read_all_regions(&mut self) {
        self.mark_injected_done();
        for place in 0..self.parties.len() {
            if self.parties[place].is_some() {
                let rows_at = ROWS[0].offset_bytes;
                self.access_as_owner(place, (0, REGION_BYTES), Access::Read);
                self.access_as_owner(place, (rows_at, ROWS_END - rows_at), Access::Read);
            }
        }
    }

    /// Marks the injected accesses of each endpoint as ended, unless an injected operation of the endpoint
    /// has failed. The last messages of the run have fences, so all accesses before them have taken effect.
    fn mark_injected_done(&mut self) {
        let now = self.history.record(Event::InjectedDone);
        let History { sends, accesses, .. } = &self.history;
        let is_done = |access: &AccessOp| {
            let sends = sends.iter().filter(|send| send.injected && send.from == access.by);
            let writes = accesses.iter().filter(|other| other.injected && other.by == access.by);
            let has_failed = self.injected[access.by.place] < sends.count() + writes.count();
            access.injected
                && !has_failed
                && self.history.is_alive(access.by)
                && self.history.is_alive(access.at)
        };
        let done: Vec<bool> = accesses.iter().map(is_done).collect();
        for (access, _) in self.history.accesses.iter_mut().zip(done).filter(|(_, is_done)| *is_done) {
            access.ended = Some(Ok(()));
            access.ended_at = now;
        }
    }

    pub(crate) fn is_access_unfinished(&self, access: &AccessOp) -> bool {
        let may_wait = access.injected || self.history.may_wait_forever_for(access.at.place);
        let has_no_end = !may_wait && access.ended.is_none() && self.history.is_alive(access.by);
        // Whether a living target has not read the remote data of a successful write.
        let is_untold = access.has_data && access.ended == Some(Ok(())) && access.data_read_at.is_none();
        has_no_end || is_untold && self.history.is_alive(access.at)
    }
}

/// Returns the part of the bytes that plain accesses use.
pub(crate) fn plain_part((place, len_bytes): (usize, usize)) -> (usize, usize) {
    let len_bytes = len_bytes.min(REGION_BYTES);
    (place % (REGION_BYTES - len_bytes + 1), len_bytes)
}

/// Returns the errno of a failed access. Panics unless the access was cancelled or refused, or lost its
/// peer. A target refuses an access to a region that has closed.
fn expect_access_errno(error: &OperationError) -> homespun::Errno {
    match error {
        OperationError::Cancelled | OperationError::Refused(_) => error.errno(),
        error => expect_lost_sender_errno(error),
    }
}
