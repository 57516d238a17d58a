//! Poll sets: `fi_poll(3)`.

use std::collections::HashMap;
use std::ptr;

use homespun::mutated;
use homespun::{Errno, Misuse, PollObject, PollSet};
use libc::{c_int, c_void};
use parking_lot::Mutex;

use crate::abi::domain::FidDomain;
use crate::abi::eq::{FiOpsPoll, FiPollAttr, FidPoll};
use crate::abi::fid::{FiOps, Fid};
use crate::abi::{FI_CLASS_CNTR, FI_CLASS_CQ, FI_CLASS_POLL};
use crate::counter::CounterState;
use crate::cq::CqState;
use crate::edge::{Failure, run_entry_point};
use crate::object::{self, Dependents, Lease, State};
use crate::states::DomainState;

/// The object behind a `struct fid_poll`.
pub(crate) struct PollSetState {
    set: PollSet,
    /// The leases that keep the members open, by the members' addresses.
    members: Mutex<HashMap<usize, Lease>>,
    _domain: Lease,
}

// SAFETY: `struct fid_poll` begins with a `struct fid`.
unsafe impl State for PollSetState {
    type Front = FidPoll;
    const CLASS: usize = FI_CLASS_POLL;
}

static FID_OPS: FiOps = FiOps { close, ..FiOps::UNSUPPORTED };

static OPS: FiOpsPoll = FiOpsPoll { size: size_of::<FiOpsPoll>(), poll, poll_add, poll_del };

/// `fi_poll_open`.
pub(crate) unsafe extern "C" fn open_poll_set(
    domain: *mut FidDomain,
    attr: *mut FiPollAttr,
    pollset: *mut *mut FidPoll,
) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open domain.
        let domain = unsafe { object::state::<DomainState>(domain.cast())? };
        if pollset.is_null() {
            return Err(Errno::EINVAL.into());
        }
        // SAFETY: it is null or valid.
        let flags = unsafe { attr.as_ref() }.map_or(0, |attr| attr.flags);
        if flags != 0 && !mutated!("fi_poll/poll-flags-are-zero") {
            return Err(Misuse::Flags(flags).into());
        }
        let state = PollSetState {
            set: domain.domain.open_poll_set(),
            members: Mutex::default(),
            _domain: domain.dependents.lease(),
        };
        let front = FidPoll { fid: object::new_fid::<PollSetState>(ptr::null_mut(), &FID_OPS), ops: &OPS };
        // SAFETY: not null, so writable.
        unsafe { pollset.write(object::open(front, state)) };
        Ok(0)
    })
}

unsafe extern "C" fn close(pollset: *mut Fid) -> c_int {
    run_entry_point(|| {
        let has_members = |state: &PollSetState| !state.members.lock().is_empty();
        // SAFETY: the caller closes an object of this class and uses it no more.
        unsafe { object::close::<PollSetState>(pollset.cast(), has_members)? };
        Ok(0)
    })
}

/// Returns the queue or counter behind `fid`, and the count of its dependents.
///
/// # Errors
///
/// EINVAL unless `fid` is a completion queue or a counter.
///
/// # Safety
///
/// `fid` is null or an open object that stays open.
unsafe fn find_poll_object<'a>(fid: *mut Fid) -> Result<(PollObject<'a>, &'a Dependents), Failure> {
    if fid.is_null() {
        return Err(Errno::EINVAL.into());
    }
    // SAFETY: the caller passes an open object, and its class determines the type of its state.
    unsafe {
        match (*fid).fclass {
            FI_CLASS_CQ => {
                let state = object::state::<CqState>(fid.cast())?;
                Ok(((&state.cq).into(), &state.dependents))
            }
            FI_CLASS_CNTR => {
                let state = object::state::<CounterState>(fid.cast())?;
                Ok(((&state.counter).into(), &state.dependents))
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }
}

/// `fi_poll_add`.
unsafe extern "C" fn poll_add(pollset: *mut FidPoll, fid: *mut Fid, flags: u64) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open poll set and another open object.
        let (state, (object, dependents)) =
            unsafe { (object::state::<PollSetState>(pollset.cast())?, find_poll_object(fid)?) };
        if flags != 0 {
            return Err(Misuse::Flags(flags).into());
        }
        // SAFETY: `find_poll_object` has checked that it is an open object.
        let context = unsafe { (*fid).context }.expose_provenance() as u64;
        let mut members = state.members.lock();
        state.set.add(object, context)?;
        members.insert(fid.addr(), dependents.lease());
        Ok(0)
    })
}

/// `fi_poll_del`.
unsafe extern "C" fn poll_del(pollset: *mut FidPoll, fid: *mut Fid, flags: u64) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open poll set and another open object.
        let (state, (object, _)) =
            unsafe { (object::state::<PollSetState>(pollset.cast())?, find_poll_object(fid)?) };
        if flags != 0 {
            return Err(Misuse::Flags(flags).into());
        }
        let mut members = state.members.lock();
        state.set.remove(object)?;
        members.remove(&fid.addr());
        Ok(0)
    })
}

/// `fi_poll`.
unsafe extern "C" fn poll(pollset: *mut FidPoll, contexts: *mut *mut c_void, count: c_int) -> c_int {
    run_entry_point(|| {
        // SAFETY: the caller passes an open poll set.
        let state = unsafe { object::state::<PollSetState>(pollset.cast())? };
        let room = usize::try_from(count).map_err(|_| Failure(Errno::EINVAL))?;
        if contexts.is_null() && room > 0 {
            return Err(Errno::EINVAL.into());
        }
        let mut next = contexts;
        let found = state.set.poll_each(room, |context| {
            // SAFETY: `contexts` has room for `count` contexts, and `poll_each` returns no more.
            unsafe {
                next.write(ptr::with_exposed_provenance_mut(context as usize));
                next = next.add(1);
            }
        });
        // `poll_each` returns at most `count`.
        Ok(c_int::try_from(found).unwrap_or(count))
    })
}
