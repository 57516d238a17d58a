//! Atomic operations on the memory of peers: `fi_atomic(3)`.
//!
//! An operation completes when its target has answered, whatever its level: until then it may still be refused, for its key,
//! its range, or the rights of the region. It ends with an error then, and nothing else happens.

use bytes::{Bytes, BytesMut};
use homespun_engine::atomic::{AtomicKind, AtomicOp, Datatype};
use homespun_engine::buffer::{Buffer, Destination, Fetched, Segment, SegmentMut, Source};
use homespun_engine::error::{Error, Misuse};
use homespun_engine::flags::{Caps, OpFlags};
use homespun_engine::operation::{AtomicLocal, Level};
use homespun_engine::rejected::Rejected;

use super::Endpoint;
use super::flags::{SEND_FLAGS, SEND_LEVELS, atomic_flags, level_of};
use crate::av::FabricAddress;
use crate::pump::AtomicPost;

/// The flags that an atomic operation has. `fi_atomic(3)` has no remote data for a completion at the target.
const ATOMIC_FLAGS: OpFlags = SEND_FLAGS.difference(OpFlags::REMOTE_CQ_DATA);

/// Where an atomic operation goes, and what it does there with each element.
///
/// Elements are as C has them in memory, one after the other; operands are given in the same form, and results come in it.
/// How many there may be is what [`atomicvalid`](Endpoint::atomicvalid) and its like say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicTarget {
    /// The endpoint through which the region is reached, from the endpoint's address vector.
    pub peer: FabricAddress,
    /// Where in the region.
    pub address: u64,
    /// The region's key.
    pub key: u64,
    /// What the elements are.
    pub datatype: Datatype,
    /// What is done with each of them.
    pub op: AtomicOp,
}

/// An atomic operation with every choice: what `fi_atomicmsg` takes.
#[derive(Debug, Clone)]
pub struct AtomicMsg {
    /// The operands, in up to [`iov_limit`](crate::info::TxAttr::iov_limit) pieces, which need not end where elements do.
    pub operands: Vec<Bytes>,
    /// Where it goes, and what it does there.
    pub target: AtomicTarget,
    /// Given back in the completion.
    pub context: u64,
    /// Flags, as [`SendMsg::flags`](super::SendMsg::flags). Remote data has no meaning for atomic operations.
    /// `COMMIT_COMPLETE` is refused: a later write with it and a fence makes durable what they have changed. As a
    /// default flag of the endpoint it concerns writes alone.
    pub flags: OpFlags,
}

/// An atomic operation that fetches, with every choice: what `fi_fetch_atomicmsg` takes.
#[derive(Debug, Clone)]
pub struct FetchAtomicMsg {
    /// As [`AtomicMsg::operands`]. [`AtomicOp::Read`] does not look at them.
    pub operands: Vec<Bytes>,
    /// Where it goes what the elements were before, in up to [`iov_limit`](crate::info::TxAttr::iov_limit) pieces.
    pub results: Vec<BytesMut>,
    /// Where it goes, and what it does there.
    pub target: AtomicTarget,
    /// Given back in the completion.
    pub context: u64,
    /// As [`AtomicMsg::flags`]. Injection concerns what is read of the buffers; the results come later all the same.
    pub flags: OpFlags,
}

/// An atomic operation that compares, with every choice: what `fi_compare_atomicmsg` takes.
#[derive(Debug, Clone)]
pub struct CompareAtomicMsg {
    /// As [`AtomicMsg::operands`].
    pub operands: Vec<Bytes>,
    /// What the elements are compared with, in as many pieces.
    pub compares: Vec<Bytes>,
    /// As [`FetchAtomicMsg::results`].
    pub results: Vec<BytesMut>,
    /// Where it goes, and what it does there.
    pub target: AtomicTarget,
    /// Given back in the completion.
    pub context: u64,
    /// As [`FetchAtomicMsg::flags`].
    pub flags: OpFlags,
}

/// An atomic operation with the caller's memory: `fi_atomicmsg` and all that it includes.
#[derive(Debug, Clone, Copy)]
pub struct AtomicMsgRaw<'a> {
    /// The operands.
    pub operands: &'a [Segment],
    /// Where it goes, and what it does there.
    pub target: AtomicTarget,
    /// Given back in the completion.
    pub context: u64,
    /// `None` for the endpoint's default flags, as `fi_atomic` has them; otherwise exactly these.
    pub flags: Option<OpFlags>,
}

/// An atomic operation that fetches into the caller's memory: `fi_fetch_atomicmsg` and all that it includes.
#[derive(Debug, Clone, Copy)]
pub struct FetchAtomicMsgRaw<'a> {
    /// The operands, or nothing for [`AtomicOp::Read`].
    pub operands: &'a [Segment],
    /// Where it goes what the elements were before.
    pub results: &'a [SegmentMut],
    /// Where it goes, and what it does there.
    pub target: AtomicTarget,
    /// Given back in the completion.
    pub context: u64,
    /// As [`AtomicMsgRaw::flags`].
    pub flags: Option<OpFlags>,
}

/// An atomic operation that compares, with the caller's memory: `fi_compare_atomicmsg` and all that it includes.
#[derive(Debug, Clone, Copy)]
pub struct CompareAtomicMsgRaw<'a> {
    /// The operands.
    pub operands: &'a [Segment],
    /// What the elements are compared with.
    pub compares: &'a [Segment],
    /// Where it goes what the elements were before.
    pub results: &'a [SegmentMut],
    /// Where it goes, and what it does there.
    pub target: AtomicTarget,
    /// Given back in the completion.
    pub context: u64,
    /// As [`AtomicMsgRaw::flags`].
    pub flags: Option<OpFlags>,
}

/// Atomic operations. The calls have the names of their C counterparts in `fi_atomic(3)`. All of them fail as
/// [`post_send`](Self::post_send) does, and hand back then what was handed over; also with
/// [`Misuse::NoAtomic`] for what the elements or the call do not have, [`Misuse::TooLong`] for too many
/// elements, and [`Misuse::Invalid`] for a part of one, or buffers of different lengths.
///
/// An operation on no elements changes nothing and may name any key and any address. It completes and takes
/// its place in the order as others do; the counter of a region counts it if it names a range that the peer
/// may access.
///
/// What an operation was posted with, and what it has fetched, comes back in its completion:
/// [`Buffer::Sent`] of what fetches nothing, else [`Buffer::Fetched`]. What
/// fetches and is refused comes back as [`Fetched`], too.
///
/// ```
/// use homespun::atomic::{AtomicOp, Datatype};
/// use homespun::endpoint::AtomicTarget;
/// use homespun::flags::{BindFlags, InfoFlags, MrAccess};
/// use homespun::{AvAttr, Bytes, BytesMut, CqAttr, Fabric, MrAttr};
///
/// # let fabric = Fabric::new();
/// # let info = &fabric.getinfo(Some("127.0.0.1"), None, InfoFlags::SOURCE, None)?[0];
/// # let domain = fabric.domain(info)?;
/// # let (cq, av) = (domain.open_cq(&CqAttr::default())?, domain.open_av(&AvAttr::default())?);
/// # let endpoint = domain.endpoint(info)?;
/// # endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
/// # endpoint.bind_av(&av)?;
/// # endpoint.enable()?;
/// # let own = av.insert(&[endpoint.name()?]).remove(0)?;
/// // A counter that any number of peers may count up; here the endpoint does so itself.
/// let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
/// let region = domain.register(8, &MrAttr { access, ..MrAttr::default() })?;
/// region.write_at(0, &40_u64.to_le_bytes())?;
///
/// let target = AtomicTarget {
///     peer: own,
///     address: region.address(),
///     key: region.key(),
///     datatype: Datatype::Uint64,
///     op: AtomicOp::Sum,
/// };
/// let two = Bytes::copy_from_slice(&2_u64.to_le_bytes());
/// endpoint.fetch_atomic(two, BytesMut::zeroed(8), target, 1)?;
/// let completion = loop {
///     if let Ok(completion) = cq.read() {
///         break completion;
///     }
/// };
/// assert_eq!(completion.buffer.into_received().as_deref(), Some(&40_u64.to_le_bytes()[..]));
/// let mut counter = [0; 8];
/// region.read_at(0, &mut counter)?;
/// assert_eq!(u64::from_le_bytes(counter), 42);
/// # Ok::<(), homespun::Error>(())
/// ```
impl Endpoint {
    /// Updates elements of a region of a peer: `fi_atomic`.
    pub fn atomic(&self, operand: Bytes, target: AtomicTarget, context: u64) -> Result<(), Rejected<Bytes>> {
        let local = AtomicLocal::Base { operand: Source::owned(operand) };
        self.submit_atomic(local, target, context, None).map_err(unsent)
    }

    /// Updates elements of a region of a peer with operands in several buffers: `fi_atomicv`.
    pub fn atomicv(
        &self,
        operands: Vec<Bytes>,
        target: AtomicTarget,
        context: u64,
    ) -> Result<(), Rejected<Vec<Bytes>>> {
        let local = AtomicLocal::Base { operand: Source::owned_vector(operands)? };
        self.submit_atomic(local, target, context, None).map_err(unsent_vector)
    }

    /// Updates elements of a region of a peer with every choice: `fi_atomicmsg`.
    pub fn atomicmsg(&self, atomic: AtomicMsg) -> Result<(), Rejected<AtomicMsg>> {
        let AtomicMsg { operands, target, context, flags } = atomic;
        let back = |operands| AtomicMsg { operands, target, context, flags };
        let operand = Source::owned_vector(operands).map_err(|rejected| rejected.map(back))?;
        self.submit_atomic(AtomicLocal::Base { operand }, target, context, Some(flags))
            .map_err(|rejected| unsent_vector(rejected).map(back))
    }

    /// Updates elements of a region of a peer with operands that may be reused at once, and reports nothing if it succeeds:
    /// `fi_inject_atomic`.
    ///
    /// # Errors
    ///
    /// Also [`Misuse::TooLong`] beyond the endpoint's inject size.
    pub fn inject_atomic(&self, operand: &[u8], target: AtomicTarget) -> Result<(), Error> {
        let (pump, _) = self.shared.driven()?;
        self.check_atomic(AtomicKind::Base, target.op, operand.len(), true)?;
        let segment = Segment { address: operand.as_ptr(), len_bytes: operand.len() };
        // SAFETY: `operand` is borrowed for the length of this call, and the engine copies what is injected before
        // `post_atomic` returns.
        let operand = unsafe { Source::raw(&[segment])? };
        Ok(pump.post_atomic(AtomicPost {
            target,
            local: AtomicLocal::Base { operand },
            context: 0,
            level: Level::Inject,
            signalled: false,
            inject: true,
            fence: false,
            more: false,
        })?)
    }

    /// Updates elements of a region of a peer and fetches what they were before: `fi_fetch_atomic`. [`AtomicOp::Read`] only
    /// fetches them, and does not look at the operand.
    pub fn fetch_atomic(
        &self,
        operand: Bytes,
        result: BytesMut,
        target: AtomicTarget,
        context: u64,
    ) -> Result<(), Rejected<Box<Fetched>>> {
        let (operand, result) = (Source::owned(operand), Destination::owned(result));
        self.submit_atomic(AtomicLocal::Fetch { operand, result }, target, context, None).map_err(unfetched)
    }

    /// The same with operands and results in several buffers: `fi_fetch_atomicv`.
    pub fn fetch_atomicv(
        &self,
        operands: Vec<Bytes>,
        results: Vec<BytesMut>,
        target: AtomicTarget,
        context: u64,
    ) -> Result<(), Rejected<Box<Fetched>>> {
        self.submit_atomic(fetching(operands, results)?, target, context, None).map_err(unfetched)
    }

    /// The same with every choice: `fi_fetch_atomicmsg`.
    pub fn fetch_atomicmsg(&self, atomic: FetchAtomicMsg) -> Result<(), Rejected<Box<FetchAtomicMsg>>> {
        let FetchAtomicMsg { operands, results, target, context, flags } = atomic;
        let posted = fetching(operands, results)
            .and_then(|local| self.submit_atomic(local, target, context, Some(flags)).map_err(unfetched));
        posted.map_err(|rejected| {
            rejected.map(|fetched| {
                let (operands, results) = (several(fetched.operand), rooms(fetched.result));
                Box::new(FetchAtomicMsg { operands, results, target, context, flags })
            })
        })
    }

    /// Compares elements of a region of a peer with something, updates them accordingly, and fetches what they were before:
    /// `fi_compare_atomic`.
    pub fn compare_atomic(
        &self,
        operand: Bytes,
        compare: Bytes,
        result: BytesMut,
        target: AtomicTarget,
        context: u64,
    ) -> Result<(), Rejected<Box<Fetched>>> {
        let (operand, compare) = (Source::owned(operand), Source::owned(compare));
        let local = AtomicLocal::Compare { operand, compare, result: Destination::owned(result) };
        self.submit_atomic(local, target, context, None).map_err(unfetched)
    }

    /// The same with everything in several buffers: `fi_compare_atomicv`.
    pub fn compare_atomicv(
        &self,
        operands: Vec<Bytes>,
        compares: Vec<Bytes>,
        results: Vec<BytesMut>,
        target: AtomicTarget,
        context: u64,
    ) -> Result<(), Rejected<Box<Fetched>>> {
        let local = comparing(operands, compares, results)?;
        self.submit_atomic(local, target, context, None).map_err(unfetched)
    }

    /// The same with every choice: `fi_compare_atomicmsg`.
    pub fn compare_atomicmsg(&self, atomic: CompareAtomicMsg) -> Result<(), Rejected<Box<CompareAtomicMsg>>> {
        let CompareAtomicMsg { operands, compares, results, target, context, flags } = atomic;
        let posted = comparing(operands, compares, results)
            .and_then(|local| self.submit_atomic(local, target, context, Some(flags)).map_err(unfetched));
        posted.map_err(|rejected| {
            rejected.map(|fetched| {
                let Fetched { result, operand, compare } = *fetched;
                let (operands, compares, results) = (several(operand), several(compare), rooms(result));
                Box::new(CompareAtomicMsg { operands, compares, results, target, context, flags })
            })
        })
    }

    /// How many elements a call of [`atomic`](Self::atomic) and its like covers at most: `fi_atomicvalid`.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoAtomic`] if such a call is not offered, [`Misuse::NoCapability`] if the endpoint has no atomic operations.
    pub fn atomicvalid(&self, datatype: Datatype, op: AtomicOp) -> Result<usize, Error> {
        self.count_max(AtomicKind::Base, datatype, op)
    }

    /// The same of [`fetch_atomic`](Self::fetch_atomic) and its like: `fi_fetch_atomicvalid`.
    ///
    /// # Errors
    ///
    /// As [`atomicvalid`](Self::atomicvalid).
    pub fn fetch_atomicvalid(&self, datatype: Datatype, op: AtomicOp) -> Result<usize, Error> {
        self.count_max(AtomicKind::Fetch, datatype, op)
    }

    /// The same of [`compare_atomic`](Self::compare_atomic) and its like: `fi_compare_atomicvalid`.
    ///
    /// # Errors
    ///
    /// As [`atomicvalid`](Self::atomicvalid).
    pub fn compare_atomicvalid(&self, datatype: Datatype, op: AtomicOp) -> Result<usize, Error> {
        self.count_max(AtomicKind::Compare, datatype, op)
    }

    /// Posts an atomic operation with the caller's memory.
    ///
    /// # Errors
    ///
    /// As [`atomic`](Self::atomic).
    ///
    /// # Safety
    ///
    /// As [`post_send`](Self::post_send).
    pub unsafe fn post_atomic(&self, atomic: &AtomicMsgRaw<'_>) -> Result<(), Error> {
        let AtomicMsgRaw { operands, target, context, flags } = *atomic;
        // SAFETY: the caller promises what `Source::raw` asks for: the engine ends the operation before its completion
        // can be read, copies what is injected before it returns, and is dropped when the endpoint is closed.
        let operand = unsafe { Source::raw(operands)? };
        Ok(self.submit_atomic(AtomicLocal::Base { operand }, target, context, flags)?)
    }

    /// Posts an atomic operation that fetches into the caller's memory.
    ///
    /// # Errors
    ///
    /// As [`fetch_atomic`](Self::fetch_atomic).
    ///
    /// # Safety
    ///
    /// The operands as the segments of [`post_send`](Self::post_send); the results as those of
    /// [`post_read`](Self::post_read), also where the operation is injected.
    pub unsafe fn post_fetch_atomic(&self, atomic: &FetchAtomicMsgRaw<'_>) -> Result<(), Error> {
        let FetchAtomicMsgRaw { operands, results, target, context, flags } = *atomic;
        // SAFETY: the caller promises what is asked for, as above; the engine keeps to it.
        let (operand, result) = unsafe { (Source::raw(operands)?, Destination::raw(results)?) };
        Ok(self.submit_atomic(AtomicLocal::Fetch { operand, result }, target, context, flags)?)
    }

    /// Posts an atomic operation that compares, with the caller's memory.
    ///
    /// # Errors
    ///
    /// As [`compare_atomic`](Self::compare_atomic).
    ///
    /// # Safety
    ///
    /// As [`post_fetch_atomic`](Self::post_fetch_atomic); what is compared with is as the operands.
    pub unsafe fn post_compare_atomic(&self, atomic: &CompareAtomicMsgRaw<'_>) -> Result<(), Error> {
        let CompareAtomicMsgRaw { operands, compares, results, target, context, flags } = *atomic;
        // SAFETY: the caller promises what is asked for, as above; the engine keeps to it.
        let (operand, compare, result) =
            unsafe { (Source::raw(operands)?, Source::raw(compares)?, Destination::raw(results)?) };
        Ok(self.submit_atomic(AtomicLocal::Compare { operand, compare, result }, target, context, flags)?)
    }

    fn submit_atomic(
        &self,
        local: AtomicLocal,
        target: AtomicTarget,
        context: u64,
        flags: Option<OpFlags>,
    ) -> Result<(), Rejected<Box<AtomicLocal>>> {
        let default = self.tx_op_flags() & ATOMIC_FLAGS;
        let admitted = atomic_flags(flags.unwrap_or(default), ATOMIC_FLAGS).and_then(|flags| {
            let inject = flags.contains(OpFlags::INJECT);
            self.check_atomic(local.kind(), target.op, local.source_max_bytes(), inject)?;
            Ok((flags, self.shared.driven()?))
        });
        let (flags, (pump, service)) = match admitted {
            Ok(driven) => driven,
            Err(error) => return Err(Rejected { error, buffer: Box::new(local) }),
        };
        let levels = if flags.intersects(SEND_LEVELS) { flags } else { default };
        pump.post_atomic(AtomicPost {
            target,
            local,
            context,
            level: level_of(levels),
            signalled: service.signals_transmit(flags),
            inject: flags.contains(OpFlags::INJECT),
            fence: flags.contains(OpFlags::FENCE),
            more: flags.contains(OpFlags::MORE),
        })
    }

    fn check_atomic(
        &self,
        kind: AtomicKind,
        op: AtomicOp,
        source_max_bytes: usize,
        inject: bool,
    ) -> Result<(), Error> {
        let mut needed = Caps::ATOMIC;
        needed.set(Caps::READ, kind.fetches());
        needed.set(Caps::WRITE, op.writes());
        self.shared.check_caps(needed)?;
        let max_bytes = self.shared.info.tx.inject_size_bytes;
        if inject && op.has_operand() && source_max_bytes > max_bytes {
            let (len_bytes, max_bytes) = (source_max_bytes as u64, max_bytes as u64);
            return Err(Misuse::TooLong { len_bytes, max_bytes }.into());
        }
        Ok(())
    }

    fn count_max(&self, kind: AtomicKind, datatype: Datatype, op: AtomicOp) -> Result<usize, Error> {
        self.shared.check_caps(Caps::ATOMIC)?;
        Ok(kind.count_max(op, datatype).ok_or(Misuse::NoAtomic { kind, op, datatype })?)
    }
}

/// The memory of an operation that fetches, or all of it back.
fn fetching(operands: Vec<Bytes>, results: Vec<BytesMut>) -> Result<AtomicLocal, Rejected<Box<Fetched>>> {
    let back = |operand: Buffer, result: Buffer| Box::new(Fetched { result, operand, ..Fetched::default() });
    let operand = match Source::owned_vector(operands) {
        Ok(operand) => operand,
        Err(rejected) => {
            let result = Buffer::ReceivedVector(results);
            return Err(rejected.map(|operands| back(Buffer::SentVector(operands), result)));
        }
    };
    match Destination::owned_vector(results) {
        Ok(result) => Ok(AtomicLocal::Fetch { operand, result }),
        Err(rejected) => {
            Err(rejected.map(|results| back(operand.into_buffer(), Buffer::ReceivedVector(results))))
        }
    }
}

/// The memory of an operation that compares, or all of it back.
fn comparing(
    operands: Vec<Bytes>,
    compares: Vec<Bytes>,
    results: Vec<BytesMut>,
) -> Result<AtomicLocal, Rejected<Box<Fetched>>> {
    let compare = match Source::owned_vector(compares) {
        Ok(compare) => compare,
        Err(rejected) => {
            let (result, operand) = (Buffer::ReceivedVector(results), Buffer::SentVector(operands));
            return Err(rejected.map(|compares| {
                Box::new(Fetched { result, operand, compare: Buffer::SentVector(compares) })
            }));
        }
    };
    match fetching(operands, results) {
        Ok(AtomicLocal::Fetch { operand, result }) => Ok(AtomicLocal::Compare { operand, compare, result }),
        Ok(other) => Ok(other),
        Err(rejected) => Err(rejected.map(|mut fetched| {
            fetched.compare = compare.into_buffer();
            fetched
        })),
    }
}

/// Hands the one piece back that an operation was refused with.
#[cold]
fn unsent(rejected: Rejected<Box<AtomicLocal>>) -> Rejected<Bytes> {
    rejected.map(|local| local.into_buffer().into_sent().unwrap_or_default())
}

/// Hands the pieces back that an operation was refused with.
#[cold]
fn unsent_vector(rejected: Rejected<Box<AtomicLocal>>) -> Rejected<Vec<Bytes>> {
    rejected.map(|local| several(local.into_buffer()))
}

/// Hands everything back that an operation was refused with.
#[cold]
fn unfetched(rejected: Rejected<Box<AtomicLocal>>) -> Rejected<Box<Fetched>> {
    rejected.map(|local| match local.into_buffer() {
        Buffer::Fetched(fetched) => fetched,
        operand => Box::new(Fetched { operand, ..Fetched::default() }),
    })
}

fn several(buffer: Buffer) -> Vec<Bytes> {
    buffer.into_sent_vector().unwrap_or_default()
}

fn rooms(buffer: Buffer) -> Vec<BytesMut> {
    buffer.into_received_vector().unwrap_or_default()
}
