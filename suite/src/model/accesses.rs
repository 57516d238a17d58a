//! Accesses to regions: posts and completions. Each endpoint has one region, and all endpoints access it.
//! The module [`memory`](crate::model::memory) checks the bytes.

use crate::model::atomics::check_returned_buffers;
use crate::model::prelude::*;
use crate::model::receives::expect_lost_sender_errno;
use crate::model::run::{Runner, expect_accepted_or_full, most_bytes};

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

    /// Posts an access.
    pub(crate) fn post_access(&mut self, step: AccessStep) {
        let AccessStep { from, to, part: (place, len_bytes), call, fenced } = step;
        let (Some(party), Some(region)) = (&self.parties[from], &self.regions[to]) else { return };
        let injected = call == AccessCall::InjectWrite;
        let len_bytes = len_bytes.min(most_bytes(party, injected));
        let post = self.make_post((from, to), call.level(self.program.with_matches), fenced, injected);
        let identity = self.history.accesses.len();
        let (peer, address, key) = (FabricAddress(to as u64), region.address_at(place), region.key());
        let (context, flags) = (Operation::Access(identity).context(), post.flags());
        let has_data = call == AccessCall::WriteData;
        let (access, by) = match call {
            AccessCall::Flush => (Access::Flush, None),
            AccessCall::Read | AccessCall::ReadMatched => (Access::Read, Some(RmaBy::Readmsg)),
            AccessCall::InjectWrite => (Access::Write, Some(RmaBy::InjectWrite)),
            _ => (Access::Write, Some(RmaBy::Writemsg)),
        };
        let accepted = if let Some(by) = by {
            let buffers = split_unevenly(&bytes_to_write(identity, place, len_bytes), 1 + identity % 3);
            let data = has_data.then_some(identity as u64);
            party.endpoint.rma(RmaCall { by, buffers, peer, address, key, data, context, flags })
        } else {
            let (is_persistent, len_bytes, flags) = (false, len_bytes as u64, Some(flags));
            party.endpoint.flush(FlushCall { is_persistent, peer, address, key, len_bytes, context, flags })
        };
        if expect_accepted_or_full(accepted) {
            self.injected[from] += usize::from(injected);
            self.history.post_access(post, access, (place, len_bytes)).has_data = has_data;
        }
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
        let post = self.make_post((at, at), Level::Delivery, false, false);
        let posted = self.history.post_access(post, access, (place, len_bytes));
        posted.post.end(Ok(()), posted.post.posted_at);
        posted.found = found;
    }

    pub(crate) fn record_access_end(&mut self, who: Incarnation, identity: usize, ended: Ended) {
        let now = self.history.record(Event::Ended(Operation::Access(identity)));
        let access = self.history.accesses.get_mut(identity).expect("an access that was posted");
        assert_eq!(access.post.by, who, "the access of another endpoint");
        let (completion, result) = self.offer.split_transmit_end(ended);
        let result = result.map_err(|error| expect_access_errno(&error));
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
        access.post.end(result, now);
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
        let expected_source = self.history.source_of(self.history.accesses[identity].post.by.place);
        let access = self.history.accesses.get_mut(identity).expect("a write that was posted");
        let flags = CompletionFlags::RMA | CompletionFlags::REMOTE_WRITE | CompletionFlags::REMOTE_CQ_DATA;
        self.offer.check_flags(completion, flags);
        assert_eq!(completion.len_bytes, access.len_bytes);
        assert!(access.has_data && access.post.to == who.place, "{completion:?} is of {access:?}");
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
        let is_done = |post: &Post| {
            let injected = self.history.posts().filter(|other| other.injected && other.by == post.by);
            let is_open =
                self.history.is_alive(post.by) && self.history.places[post.to].has_original_endpoint();
            post.injected && is_open && self.injected[post.by.place] == injected.count()
        };
        let done: Vec<bool> = self.history.accesses.iter().map(|access| is_done(&access.post)).collect();
        for (access, _) in self.history.accesses.iter_mut().zip(done).filter(|(_, is_done)| *is_done) {
            access.post.end(Ok(()), now);
        }
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
