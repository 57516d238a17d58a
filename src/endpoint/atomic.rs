//! Atomic operations on the memory of peers, with owned memory and with the caller's: `fi_atomic(3)`.
//!
//! At every completion level, an atomic operation completes when its target has answered. The target may
//! refuse the operation for its key, for its range, or for the rights of the region. A refused operation
//! ends with an error and changes nothing.

use std::mem::ManuallyDrop;

use bytes::{Bytes, BytesMut};
use homespun_engine::atomic::{AtomicKind, AtomicOp, Datatype};
use homespun_engine::buffer::{Buffer, Destination, Fetched, Segment, SegmentMut, Source};
use homespun_engine::error::{Error, Misuse};
use homespun_engine::flags::OpFlags;
use homespun_engine::operation::{AtomicLocal, Level, Signalled, TransmitOp};
use homespun_engine::rejected::Rejected;
use homespun_engine::remote_memory::RemoteMemory;

use super::Endpoint;
use crate::av::FabricAddress;
use crate::mutated;
use crate::owned::Owned;
use crate::post::Post;

/// The target of an atomic operation, and the operation on each element there.
///
/// Elements, operands and results are arrays as in C. [`atomicvalid`](Endpoint::atomicvalid),
/// `fetch_atomicvalid` and `compare_atomicvalid` return the largest number of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtomicTarget {
    /// The peer's endpoint through which the operation reaches the region: an address of this endpoint's
    /// vector.
    pub peer: FabricAddress,
    /// The first element, in the peer's memory.
    pub memory: RemoteMemory,
    /// The type of the elements.
    pub datatype: Datatype,
    /// The operation on each element.
    pub op: AtomicOp,
}

/// An atomic operation with all options: the arguments of `fi_atomicmsg`.
/// `S` is the type of the memory: `Vec<Bytes>` for [`atomicmsg`](Endpoint::atomicmsg), `&[Segment]` for
/// [`post_atomic`](Endpoint::post_atomic).
#[derive(Debug, Clone, Copy)]
pub struct AtomicMsg<S = Vec<Bytes>> {
    /// The operands, in up to [`iov_limit`](crate::info::TxAttr::iov_limit) pieces. A piece may end
    /// within an element.
    pub operands: S,
    /// The target and the operation.
    pub target: AtomicTarget,
    /// The context of the completion.
    pub context: u64,
    /// Flags, as [`SendMsg::flags`](super::SendMsg::flags), in place of the default flags
    /// ([`Endpoint::uncommitted_op_flags`]). Remote data has no meaning for atomic operations. To make
    /// changed elements durable, post a write with `COMMIT_COMPLETE` and `FENCE`.
    pub flags: OpFlags,
}

/// A fetching atomic operation with all options: the arguments of `fi_fetch_atomicmsg`.
///
/// `S` is the type of the memory that is read, `D` of the memory that is written. They are `Vec<Bytes>` and
/// `Vec<BytesMut>` for [`fetch_atomicmsg`](Endpoint::fetch_atomicmsg), `&[Segment]` and `&[SegmentMut]` for
/// [`post_fetch_atomic`](Endpoint::post_fetch_atomic).
#[derive(Debug, Clone, Copy)]
pub struct FetchAtomicMsg<S = Vec<Bytes>, D = Vec<BytesMut>> {
    /// As [`AtomicMsg::operands`]. [`AtomicOp::Read`] ignores them.
    pub operands: S,
    /// The memory for the previous elements, in up to [`iov_limit`](crate::info::TxAttr::iov_limit) pieces.
    pub results: D,
    /// The target and the operation.
    pub target: AtomicTarget,
    /// The context of the completion.
    pub context: u64,
    /// As [`AtomicMsg::flags`]. After an injection, the application may reuse the operands at once, but not
    /// the memory for the results, which arrive later.
    pub flags: OpFlags,
}

/// A comparing atomic operation with all options: the arguments of `fi_compare_atomicmsg`.
///
/// `S` is the type of the memory that is read, `D` of the memory that is written. They are `Vec<Bytes>` and
/// `Vec<BytesMut>` for [`compare_atomicmsg`](Endpoint::compare_atomicmsg), `&[Segment]` and `&[SegmentMut]`
/// for [`post_compare_atomic`](Endpoint::post_compare_atomic).
#[derive(Debug, Clone, Copy)]
pub struct CompareAtomicMsg<S = Vec<Bytes>, D = Vec<BytesMut>> {
    /// As [`AtomicMsg::operands`].
    pub operands: S,
    /// The elements to compare with, in up to [`iov_limit`](crate::info::TxAttr::iov_limit) pieces. The
    /// comparands and the operands have the same length.
    pub compares: S,
    /// As [`FetchAtomicMsg::results`].
    pub results: D,
    /// The target and the operation.
    pub target: AtomicTarget,
    /// The context of the completion.
    pub context: u64,
    /// As [`FetchAtomicMsg::flags`].
    pub flags: OpFlags,
}

/// Atomic operations. The calls have the names of their C counterparts in `fi_atomic(3)`. The calls return
/// owned memory with an error. They have the errors of [`post_send`](Self::post_send), and also:
///
/// - [`Misuse::NoAtomic`] if the call does not support the operation on elements of this type.
/// - [`Misuse::TooLong`] for too many elements.
/// - [`Misuse::Memory`] for a part of an element, or for buffers of different lengths.
///
/// An operation on no elements changes nothing, and may name any key and any address. Such an operation is
/// ordered like any other. If the operation names a range of a region that this endpoint may access, the
/// region's counter counts the operation.
///
/// The completion returns the operation's memory: as [`Buffer::Sent`] if the operation fetches nothing,
/// else as [`Buffer::Fetched`]. A fetching call that fails returns its memory as a [`Fetched`].
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
/// // A number that any number of peers may increment; here the endpoint itself does so.
/// let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
/// let region = domain.register(8, &MrAttr { access, ..MrAttr::default() })?;
/// region.write_at(0, &40_u64.to_ne_bytes())?;
///
/// let target = AtomicTarget {
///     peer: own,
///     memory: region.remote(),
///     datatype: Datatype::Uint64,
///     op: AtomicOp::Sum,
/// };
/// let two = Bytes::copy_from_slice(&2_u64.to_ne_bytes());
/// endpoint.fetch_atomic(two, BytesMut::zeroed(8), target, 1)?;
/// let completion = loop {
///     if let Some(completion) = cq.read().expect("no failure") {
///         break completion;
///     }
/// };
/// assert_eq!(completion.buffer.into_received().as_deref(), Some(&40_u64.to_ne_bytes()[..]));
/// let mut counter = [0; 8];
/// region.read_at(0, &mut counter)?;
/// assert_eq!(u64::from_ne_bytes(counter), 42);
/// # Ok::<(), homespun::Error>(())
/// ```
impl Endpoint {
    /// Updates elements of a region of a peer: `fi_atomic`.
    pub fn atomic(&self, operand: Bytes, target: AtomicTarget, context: u64) -> Result<(), Rejected<Bytes>> {
        self.post_owned_atomic(operand, target, context, self.uncommitted_op_flags())
    }

    /// Updates elements of a region of a peer with operands in several buffers: `fi_atomicv`.
    pub fn atomicv(
        &self,
        operands: Vec<Bytes>,
        target: AtomicTarget,
        context: u64,
    ) -> Result<(), Rejected<Vec<Bytes>>> {
        self.post_owned_atomic(operands, target, context, self.uncommitted_op_flags())
    }

    /// Updates elements of a region of a peer with all options: `fi_atomicmsg`.
    pub fn atomicmsg(&self, atomic: AtomicMsg) -> Result<(), Rejected<AtomicMsg>> {
        let AtomicMsg { operands, target, context, flags } = atomic;
        self.post_owned_atomic(operands, target, context, flags)
            .map_err(|rejected| rejected.map(|operands| AtomicMsg { operands, target, context, flags }))
    }

    /// Updates elements of a region of a peer, and reports no success: `fi_inject_atomic`. The application
    /// may reuse the operands at once.
    ///
    /// # Errors
    ///
    /// The errors of [`atomic`](Self::atomic). Also [`Misuse::TooLong`] for more bytes than the endpoint's
    /// inject size.
    pub fn inject_atomic(&self, operand: &[u8], target: AtomicTarget) -> Result<(), Error> {
        let segment = Segment { address: operand.as_ptr(), len_bytes: operand.len() };
        // SAFETY: `operand` is borrowed until this call returns, and the engine copies an injected
        // operand before `post` returns.
        let operand = unsafe { Source::raw(&[segment])? };
        let op = target.into_transmit_op(AtomicLocal::Base { operand });
        let pump =
            self.pump_if_inject_allowed(op.required_caps(Level::Inject), op.longest_injected_bytes())?;
        let mut post = Post::new(target.peer, op, 0);
        if mutated!("fi_atomic/inject-atomic-frees-and-hides") {
            post.request.options.signalled = Signalled::Yes;
        }
        pump.post(&mut post)
    }

    /// Updates elements of a region of a peer, and fetches their previous values: `fi_fetch_atomic`.
    /// [`AtomicOp::Read`] changes nothing and ignores the operand.
    pub fn fetch_atomic(
        &self,
        operand: Bytes,
        result: BytesMut,
        target: AtomicTarget,
        context: u64,
    ) -> Result<(), Rejected<Box<Fetched>>> {
        self.post_owned_fetching_atomic(operand, None, result, target, context, self.uncommitted_op_flags())
    }

    /// As [`fetch_atomic`](Self::fetch_atomic), with operands and results in several buffers:
    /// `fi_fetch_atomicv`.
    pub fn fetch_atomicv(
        &self,
        operands: Vec<Bytes>,
        results: Vec<BytesMut>,
        target: AtomicTarget,
        context: u64,
    ) -> Result<(), Rejected<Box<Fetched>>> {
        self.post_owned_fetching_atomic(operands, None, results, target, context, self.uncommitted_op_flags())
    }

    /// As [`fetch_atomic`](Self::fetch_atomic), with all options: `fi_fetch_atomicmsg`.
    pub fn fetch_atomicmsg(&self, atomic: FetchAtomicMsg) -> Result<(), Rejected<Box<FetchAtomicMsg>>> {
        let FetchAtomicMsg { operands, results, target, context, flags } = atomic;
        self.post_owned_fetching_atomic(operands, None, results, target, context, flags).map_err(|rejected| {
            rejected.map(|fetched| {
                let (operands, results) =
                    (Owned::from_buffer(fetched.operand), Owned::from_buffer(fetched.result));
                Box::new(FetchAtomicMsg { operands, results, target, context, flags })
            })
        })
    }

    /// Compares elements of a region of a peer with `compare`, updates the elements for which the
    /// comparison holds, and fetches the previous values of all: `fi_compare_atomic`.
    pub fn compare_atomic(
        &self,
        operand: Bytes,
        compare: Bytes,
        result: BytesMut,
        target: AtomicTarget,
        context: u64,
    ) -> Result<(), Rejected<Box<Fetched>>> {
        self.post_owned_fetching_atomic(
            operand,
            Some(compare),
            result,
            target,
            context,
            self.uncommitted_op_flags(),
        )
    }

    /// As [`compare_atomic`](Self::compare_atomic), with operands, comparands and results in several
    /// buffers: `fi_compare_atomicv`.
    pub fn compare_atomicv(
        &self,
        operands: Vec<Bytes>,
        compares: Vec<Bytes>,
        results: Vec<BytesMut>,
        target: AtomicTarget,
        context: u64,
    ) -> Result<(), Rejected<Box<Fetched>>> {
        self.post_owned_fetching_atomic(
            operands,
            Some(compares),
            results,
            target,
            context,
            self.uncommitted_op_flags(),
        )
    }

    /// As [`compare_atomic`](Self::compare_atomic), with all options: `fi_compare_atomicmsg`.
    pub fn compare_atomicmsg(&self, atomic: CompareAtomicMsg) -> Result<(), Rejected<Box<CompareAtomicMsg>>> {
        let CompareAtomicMsg { operands, compares, results, target, context, flags } = atomic;
        self.post_owned_fetching_atomic(operands, Some(compares), results, target, context, flags).map_err(
            |rejected| {
                rejected.map(|fetched| {
                    let Fetched { result, operand, compare } = *fetched;
                    let (operands, compares) = (Owned::from_buffer(operand), Owned::from_buffer(compare));
                    let results = Owned::from_buffer(result);
                    Box::new(CompareAtomicMsg { operands, compares, results, target, context, flags })
                })
            },
        )
    }

    /// Returns the largest number of elements for [`atomic`](Self::atomic) and the other calls that fetch
    /// nothing: `fi_atomicvalid`.
    ///
    /// # Errors
    ///
    /// [`Misuse::NoAtomic`] if these calls do not support the operation on elements of this type.
    pub fn atomicvalid(&self, datatype: Datatype, op: AtomicOp) -> Result<usize, Error> {
        self.atomic_count_max(AtomicKind::Base, datatype, op)
    }

    /// As [`atomicvalid`](Self::atomicvalid), for [`fetch_atomic`](Self::fetch_atomic) and the other fetching
    /// calls: `fi_fetch_atomicvalid`.
    ///
    /// # Errors
    ///
    /// As [`atomicvalid`](Self::atomicvalid).
    pub fn fetch_atomicvalid(&self, datatype: Datatype, op: AtomicOp) -> Result<usize, Error> {
        self.atomic_count_max(AtomicKind::Fetch, datatype, op)
    }

    /// As [`atomicvalid`](Self::atomicvalid), for [`compare_atomic`](Self::compare_atomic) and the other
    /// comparing calls: `fi_compare_atomicvalid`.
    ///
    /// # Errors
    ///
    /// As [`atomicvalid`](Self::atomicvalid).
    pub fn compare_atomicvalid(&self, datatype: Datatype, op: AtomicOp) -> Result<usize, Error> {
        self.atomic_count_max(AtomicKind::Compare, datatype, op)
    }

    /// Posts an atomic operation with the caller's memory: `fi_atomicmsg`. `fi_atomic` and `fi_atomicv` are
    /// special cases.
    ///
    /// # Errors
    ///
    /// As [`atomic`](Self::atomic).
    ///
    /// # Safety
    ///
    /// As [`post_send`](Self::post_send).
    pub unsafe fn post_atomic(&self, atomic: &AtomicMsg<&[Segment]>) -> Result<(), Error> {
        let AtomicMsg { operands, target, context, flags } = *atomic;
        // SAFETY: `Source::raw` needs the memory until the operation has ended. The caller keeps the memory
        // until the completion is read or the endpoint is closed. By then the operation has ended. The
        // engine copies injected operands before this call returns.
        let operand = unsafe { Source::raw(operands)? };
        self.post_with_flags(
            &mut Post::new(target.peer, target.into_transmit_op(AtomicLocal::Base { operand }), context),
            flags,
        )
    }

    /// Posts an atomic operation that fetches into the caller's memory: `fi_fetch_atomicmsg`.
    /// `fi_fetch_atomic` and `fi_fetch_atomicv` are special cases.
    ///
    /// # Errors
    ///
    /// As [`fetch_atomic`](Self::fetch_atomic).
    ///
    /// # Safety
    ///
    /// The operands must meet the conditions of [`post_send`](Self::post_send) for its segments. The
    /// results must meet the conditions of [`post_read`](Self::post_read) for its segments, even if the
    /// operation is injected.
    pub unsafe fn post_fetch_atomic(
        &self,
        atomic: &FetchAtomicMsg<&[Segment], &[SegmentMut]>,
    ) -> Result<(), Error> {
        let FetchAtomicMsg { operands, results, target, context, flags } = *atomic;
        // SAFETY: the caller promises what `Source::raw` and `Destination::raw` require. The engine ends
        // the operation before the application can read its completion. The engine copies injected operands
        // before this call returns. Closing the endpoint drops the engine.
        let (operand, result) = unsafe { (Source::raw(operands)?, Destination::raw(results)?) };
        let op = target.into_transmit_op(AtomicLocal::Fetch { operand, result });
        self.post_with_flags(&mut Post::new(target.peer, op, context), flags)
    }

    /// Posts a comparing atomic operation with the caller's memory: `fi_compare_atomicmsg`.
    /// `fi_compare_atomic` and `fi_compare_atomicv` are special cases.
    ///
    /// # Errors
    ///
    /// As [`compare_atomic`](Self::compare_atomic).
    ///
    /// # Safety
    ///
    /// As [`post_fetch_atomic`](Self::post_fetch_atomic). The comparands must meet the conditions for
    /// operands.
    pub unsafe fn post_compare_atomic(
        &self,
        atomic: &CompareAtomicMsg<&[Segment], &[SegmentMut]>,
    ) -> Result<(), Error> {
        let CompareAtomicMsg { operands, compares, results, target, context, flags } = *atomic;
        // SAFETY: as in `post_fetch_atomic`. The caller promises for the comparands the same as for the
        // operands.
        let (operand, compare, result) =
            unsafe { (Source::raw(operands)?, Source::raw(compares)?, Destination::raw(results)?) };
        let op = target.into_transmit_op(AtomicLocal::Compare { operand, compare, result });
        self.post_with_flags(&mut Post::new(target.peer, op, context), flags)
    }

    /// Posts an operation that fetches nothing, with owned operands. If the operation is refused, returns
    /// the operands.
    #[inline(always)]
    fn post_owned_atomic<S: Owned<Lent = Source>>(
        &self,
        operands: S,
        target: AtomicTarget,
        context: u64,
        flags: OpFlags,
    ) -> Result<(), Rejected<S>> {
        let op = target.into_transmit_op(AtomicLocal::Base { operand: operands.lend()? });
        self.submit_owned(&mut ManuallyDrop::new(Post::new(target.peer, op, context)), flags)
    }

    /// Posts an operation that fetches, with owned memory. If the operation is refused, returns all of the
    /// memory.
    #[inline(always)]
    fn post_owned_fetching_atomic<S: Owned<Lent = Source>, D: Owned<Lent = Destination>>(
        &self,
        operands: S,
        compares: Option<S>,
        results: D,
        target: AtomicTarget,
        context: u64,
        flags: OpFlags,
    ) -> Result<(), Rejected<Box<Fetched>>> {
        let op = target.into_transmit_op(lend_fetch_memory(operands, compares, results)?);
        let mut post = Post::new(target.peer, op, context);
        self.post_with_flags(&mut post, flags).map_err(|error| {
            let fetched = match post.request.op.take_buffer() {
                Buffer::Fetched(fetched) => fetched,
                operand => Box::new(Fetched { operand, ..Fetched::default() }),
            };
            Rejected { error, returned: fetched }
        })
    }

    fn atomic_count_max(&self, kind: AtomicKind, datatype: Datatype, op: AtomicOp) -> Result<usize, Error> {
        let count = kind.count_max(op, datatype).ok_or(Misuse::NoAtomic { kind, op, datatype })?;
        Ok(if mutated!("fi_atomic/valid-calls-tell-support") { 0 } else { count })
    }
}

impl AtomicTarget {
    /// Returns the transmit operation on this target. `local` is the initiator's memory.
    #[inline(always)]
    pub(super) fn into_transmit_op(self, local: AtomicLocal) -> TransmitOp {
        let AtomicTarget { memory, datatype, op, .. } = self;
        TransmitOp::Atomic { local, memory, op, datatype }
    }
}

/// Lends the owned memory of an operation that fetches. If any of the memory is refused, returns all of it.
fn lend_fetch_memory<S: Owned<Lent = Source>, D: Owned<Lent = Destination>>(
    operands: S,
    compares: Option<S>,
    results: D,
) -> Result<AtomicLocal, Rejected<Box<Fetched>>> {
    let compared = compares.map(Owned::lend).transpose();
    match (operands.lend(), compared, results.lend()) {
        (Ok(operand), Ok(None), Ok(result)) => Ok(AtomicLocal::Fetch { operand, result }),
        (Ok(operand), Ok(Some(compare)), Ok(result)) => Ok(AtomicLocal::Compare { operand, compare, result }),
        (operand, compare, result) => Err(return_all_memory(operand, compare, result)),
    }
}

/// Returns all of the memory, after some of it was refused.
#[cold]
fn return_all_memory<S: Owned, D: Owned>(
    operand: Result<Source, Rejected<S>>,
    compare: Result<Option<Source>, Rejected<S>>,
    result: Result<Destination, Rejected<D>>,
) -> Rejected<Box<Fetched>> {
    let mut error = None;
    let operand = return_memory(operand, Source::into_buffer, &mut error);
    let compare =
        return_memory(compare, |source| source.map_or(Buffer::None, Source::into_buffer), &mut error);
    let result = return_memory(result, Destination::into_buffer, &mut error);
    let error = error.expect("some of the memory cannot be lent");
    Rejected { error, returned: Box::new(Fetched { result, operand, compare }) }
}

/// Turns memory that was lent or refused into a [`Buffer`] to return. If the memory was refused, stores the
/// reason in `error`.
fn return_memory<L, B: Owned>(
    lent: Result<L, Rejected<B>>,
    into_buffer: impl FnOnce(L) -> Buffer,
    error: &mut Option<Error>,
) -> Buffer {
    match lent {
        Ok(lent) => into_buffer(lent),
        Err(rejected) => {
            *error = Some(rejected.error);
            rejected.returned.into_buffer()
        }
    }
}
