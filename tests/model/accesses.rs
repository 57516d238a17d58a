//! Access to regions: how it is posted, and what is told of it. Each endpoint has one region, which all others access, and it
//! too. What they must find there is the business of [`memory`](crate::memory).

use homespun::flags::{CompletionFlags, MrAccess, OpFlags};
use homespun::{Completion, CompletionError, FabricAddress, OperationError};

use crate::history::{Access, AccessOp, History, Level, Operation, Who};
use crate::program::AccessCall;
use crate::run::{Runner, broken, is_accepted};
use crate::suite::payload::{payload, pieces, received};
use crate::suite::{Ended, Memory, Party, Region, RmaBy, RmaCall};

/// The length of every region: enough for accesses that travel in every way.
pub(crate) const REGION_BYTES: usize = 70_000;

/// What is written by an access, which no message has as its text.
pub(crate) fn written(access: usize, len_bytes: usize) -> homespun::Bytes {
    payload(1 << 40 | access as u64, len_bytes)
}

impl Runner<'_> {
    /// Registers the region of a party at a place.
    pub(crate) fn open_region(&self, party: &Party, place: usize) -> Region {
        let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
        let memory = Memory { len_bytes: REGION_BYTES, kind: self.program.memory, access, key: place as u64 };
        party.register(memory).expect("no other region has the key")
    }

    /// Posts a write to the region at a place, or a read.
    pub(crate) fn access(
        &mut self,
        from: usize,
        to: usize,
        (place, len_bytes): (usize, usize),
        call: AccessCall,
        fenced: bool,
    ) {
        let (Some(party), Some(region)) = (&self.parties[from], &self.regions[to]) else { return };
        let is_injected = call == AccessCall::InjectWrite;
        let most_bytes = if is_injected { party.endpoint.info().tx.inject_size_bytes } else { REGION_BYTES };
        let len_bytes = len_bytes.min(most_bytes);
        let place = place % (REGION_BYTES - len_bytes + 1);
        let identity = self.history.accesses.len();
        let (access, by) = match call {
            AccessCall::Write => (Access::Write, RmaBy::Writemsg),
            AccessCall::InjectWrite => (Access::Write, RmaBy::InjectWrite),
            AccessCall::Read | AccessCall::ReadMatched => (Access::Read, RmaBy::Readmsg),
            AccessCall::WriteData | AccessCall::WriteMatched => (Access::Write, RmaBy::Writemsg),
        };
        let is_matched = matches!(call, AccessCall::ReadMatched | AccessCall::WriteMatched);
        let level = if is_matched && self.program.with_matches { Level::Match } else { Level::Delivery };
        let fenced = fenced && self.program.with_fences && !is_injected;
        let mut flags =
            if level == Level::Match { OpFlags::MATCH_COMPLETE } else { OpFlags::DELIVERY_COMPLETE };
        flags.set(OpFlags::FENCE, fenced);
        let has_data = call == AccessCall::WriteData;
        let call = RmaCall {
            by,
            buffers: pieces(&written(identity, len_bytes), 1 + identity % 3),
            peer: FabricAddress(to as u64),
            address: region.at(place),
            key: region.key(),
            data: has_data.then_some(identity as u64),
            context: Operation::Access(identity).context(),
            flags,
        };
        if !is_accepted(party.endpoint.rma(call)) {
            return;
        }
        self.injected[from] += usize::from(is_injected);
        let (by, posted_at) = (self.history.who(from), self.tick());
        self.history.accesses.push(AccessOp {
            by,
            at: self.history.who(to),
            access,
            place,
            len_bytes,
            level,
            fenced,
            injected: is_injected,
            has_data,
            posted_at,
            cancelled: false,
            ended: None,
            ended_at: 0,
            told_at: None,
            found: None,
        });
    }

    /// An endpoint looks at its own region, or changes it.
    pub(crate) fn touch(&mut self, at: usize, (place, len_bytes): (usize, usize), access: Access) {
        let Some(region) = &self.regions[at] else { return };
        let len_bytes = len_bytes.min(REGION_BYTES);
        let place = place % (REGION_BYTES - len_bytes + 1);
        let identity = self.history.accesses.len();
        let found = match access {
            Access::Read => Some(region.part(place, len_bytes)),
            Access::Write => {
                region.put(place, &written(identity, len_bytes));
                None
            }
        };
        let (at, now) = (self.history.who(at), self.tick());
        self.history.accesses.push(AccessOp {
            by: at,
            at,
            access,
            place,
            len_bytes,
            level: Level::Delivery,
            fenced: false,
            injected: false,
            has_data: false,
            posted_at: now,
            cancelled: false,
            ended: Some(Ok(())),
            ended_at: now,
            told_at: None,
            found,
        });
        // It was over before anything that follows.
        self.tick();
    }

    pub(crate) fn access_ended(&mut self, who: Who, identity: usize, ended: Ended) {
        let now = self.tick();
        let access = self.history.accesses.get_mut(identity).expect("an access that was posted");
        assert_eq!(access.by, who, "the access of another endpoint");
        let (completion, result) = match ended {
            Ok((completion, source)) => {
                assert_eq!(source, FabricAddress::UNSPECIFIED);
                (completion, Ok(()))
            }
            Err(CompletionError { completion, error, .. }) => (completion, Err(refused(&error))),
        };
        let direction = match access.access {
            Access::Read => CompletionFlags::READ,
            Access::Write => CompletionFlags::WRITE,
        };
        assert_eq!(completion.flags, CompletionFlags::RMA | direction);
        assert_eq!((completion.len_bytes, completion.data, completion.tag), (0, 0, 0));
        if access.access == Access::Read {
            access.found = result.is_ok().then(|| received(&completion.buffer));
        } else {
            let sent = completion.buffer.into_sent_vector().expect("a vector was handed over");
            assert!(sent.concat() == written(identity, access.len_bytes), "another buffer comes back");
        }
        access.ended_at = now;
        let before = access.ended.replace(result);
        assert_eq!(before, None, "access {identity} ended again, with {result:?}");
    }

    /// An endpoint is told that its region was written to.
    pub(crate) fn told(&mut self, who: Who, completion: &Completion, source: FabricAddress) {
        let now = self.tick();
        let identity = usize::try_from(completion.data).expect("a small number");
        let access = self.history.accesses.get_mut(identity).expect("a write that was posted");
        let flags = CompletionFlags::RMA | CompletionFlags::REMOTE_WRITE | CompletionFlags::REMOTE_CQ_DATA;
        assert_eq!((completion.flags, completion.len_bytes), (flags, access.len_bytes));
        assert!(access.has_data && access.at.place == who.place, "{completion:?} is of {access:?}");
        assert_eq!(source, FabricAddress(access.by.place as u64));
        let before = access.told_at.replace(now);
        assert_eq!(before, None, "the target was told again of access {identity}");
    }

    /// Looks at all of every region that is left, when everything that was posted has ended.
    pub(crate) fn look_at_everything(&mut self) {
        self.settle_injected();
        for place in 0..self.parties.len() {
            if self.parties[place].is_some() {
                self.touch(place, (0, REGION_BYTES), Access::Read);
            }
        }
    }

    /// What was injected is behind the fences of the last messages; it is done, if nothing of its kind has failed.
    fn settle_injected(&mut self) {
        let now = self.tick();
        let History { sends, accesses, .. } = &self.history;
        let is_done = |access: &AccessOp| {
            let sends = sends.iter().filter(|send| send.injected && send.from == access.by);
            let writes = accesses.iter().filter(|other| other.injected && other.by == access.by);
            let has_failed = self.injected[access.by.place] < sends.count() + writes.count();
            access.injected && !has_failed && self.history.lives(access.by) && self.history.lives(access.at)
        };
        let done: Vec<bool> = accesses.iter().map(is_done).collect();
        for (access, _) in self.history.accesses.iter_mut().zip(done).filter(|(_, is_done)| *is_done) {
            access.ended = Some(Ok(()));
            access.ended_at = now;
        }
    }

    pub(crate) fn is_missing_access(&self, access: &AccessOp) -> bool {
        let has_no_end = !access.injected && access.ended.is_none() && self.history.lives(access.by);
        // Whoever is told of what somebody has written lives, and so may have been told before it was read.
        let is_untold = access.has_data && access.ended == Some(Ok(())) && access.told_at.is_none();
        has_no_end || is_untold && self.history.lives(access.at)
    }
}

/// The error of an access, which may be refused because the region has ended with its endpoint.
fn refused(error: &OperationError) -> homespun::Errno {
    match error {
        OperationError::Cancelled | OperationError::Refused(_) => error.errno(),
        error => broken(error),
    }
}
