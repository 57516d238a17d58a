//! Operations that wait for counters: triggered operations, and deferred work. `fi_trigger(3)`.
//!
//! [`Domain::queue_work`] has an example.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use homespun_engine::buffer::{Buffer, Destination, Segment, SegmentMut, Source};
use homespun_engine::error::{Argument, Error, Misuse};
use homespun_engine::flags::OpFlags;
use homespun_engine::rejected::Rejected;

use crate::counter::Counter;
use crate::domain::Domain;
use crate::domain_id::DomainId;
use crate::endpoint::{
    AtomicMsg, CompareAtomicMsg, Endpoint, FetchAtomicMsg, ReadMsg, RecvMsg, SendMsg, WriteMsg,
};
use crate::mutated;
use crate::poster::Poster;
use crate::receives::ReceivePoster;
use crate::shared_receive_context::SharedReceiveContext;
use crate::works::domain::WorkDomain;
use crate::works::work::{CounterChange, CounterUse, DeferredPost, Work, WorkAction, WorkKind};

/// The condition of an operation that waits for a counter: the counter's successes and failures together
/// have reached a threshold. If this is already so, the operation is carried out at once. Setting the
/// counter back afterwards changes nothing.
///
/// One call carries out about a thousand works. If more are due, the call wakes sleeping threads, and the
/// next call that makes progress continues.
///
/// Operations that wait for one counter are carried out in the order of their thresholds, and at equal
/// thresholds in the order of their posting. This holds even if the counter passes several thresholds at
/// once.
///
/// A counter reaches the threshold when operations end, when peers make accesses, or when the application
/// changes it. With manual progress, operations and accesses count while the application drives an endpoint
/// to which the counter is bound. If operations wait for a counter, or the counter counts
/// [their ends](DeferredWork::completion), the counter drives all endpoints of its domain with
/// [`Caps::TRIGGER`](crate::Caps::TRIGGER) or [`Caps::RMA_EVENT`](crate::Caps::RMA_EVENT).
#[derive(Debug, Clone)]
pub struct Trigger {
    /// The counter.
    pub counter: Counter,
    /// The sum that the counter must reach. `u64::MAX` has the effect of `u64::MAX - 1`.
    pub threshold: u64,
}

/// An operation that can wait for a [`Trigger`]. The operation does not use its memory while it waits. Only
/// a triggered operation with [`OpFlags::INJECT`](crate::OpFlags::INJECT) copies its memory when it is
/// posted.
///
/// The operation reads from memory of type `S`, and writes to memory of type `D`. These are `Vec<Bytes>` and
/// `Vec<BytesMut>`, or `&[Segment]` and `&[SegmentMut]` for the caller's memory.
#[derive(Debug, Clone)]
pub enum Operation<S = Vec<Bytes>, D = Vec<BytesMut>> {
    /// Sends a message, tagged or not.
    Send(SendMsg<S>),
    /// Receives a message. When the threshold is reached, the receive is posted behind all receives that
    /// have been posted by then.
    Receive(RecvMsg<D>),
    /// Reads from a region of a peer.
    Read(ReadMsg<D>),
    /// Writes to a region of a peer.
    Write(WriteMsg<S>),
    /// Changes elements of a region of a peer.
    Atomic(AtomicMsg<S>),
    /// Changes elements of a region of a peer, and fetches their old values.
    FetchAtomic(FetchAtomicMsg<S, D>),
    /// Compares elements of a region of a peer, changes them, and fetches their old values.
    CompareAtomic(CompareAtomicMsg<S, D>),
}

/// The action of deferred work.
#[derive(Debug, Clone)]
pub enum DeferredAction<S = Vec<Bytes>, D = Vec<BytesMut>> {
    /// Carries out an operation.
    Post {
        /// The endpoint. It must be enabled and have [`Caps::TRIGGER`](crate::Caps::TRIGGER). Waiting work
        /// does not keep the endpoint open. Closing the endpoint drops the work.
        endpoint: Endpoint,
        /// The operation. Without [`OpFlags::COMPLETION`](crate::OpFlags::COMPLETION) in its flags, the
        /// endpoint neither counts nor reports its success, and owned memory is dropped instead of handed
        /// back. The endpoint's completion queue always reports a failure.
        ///
        /// A multi-receive buffer ends with its release, which then is a completion without a message. Its
        /// messages are counted and reported like those of any multi-receive buffer. The endpoint does not
        /// count a peek.
        operation: Operation<S, D>,
    },
    /// Receives a message through a shared receive context.
    Receive {
        /// The context. Its attributes must have [`Caps::TRIGGER`](crate::Caps::TRIGGER). Waiting work does
        /// not keep the context open.
        receive_context: SharedReceiveContext,
        /// The receive. The endpoint that the message reaches counts and reports the receive, as an endpoint
        /// counts and reports an [operation](Self::Post).
        receive: RecvMsg<D>,
    },
    /// Adds to a counter.
    Add {
        /// The counter.
        counter: Counter,
        /// The number to add.
        value: u64,
    },
    /// Sets a counter.
    Set {
        /// The counter.
        counter: Counter,
        /// The new value.
        value: u64,
    },
}

/// Work that waits until a counter has reached a threshold: `struct fi_deferred_work` of `fi_trigger(3)`.
#[derive(Debug, Clone)]
pub struct DeferredWork<S = Vec<Bytes>, D = Vec<BytesMut>> {
    /// The number by which the application [cancels](Domain::cancel_work) the work.
    pub context: u64,
    /// The condition.
    pub trigger: Trigger,
    /// The action.
    pub action: DeferredAction<S, D>,
    /// A counter that counts the end of the operation. Its value counts a success. Its error value counts a
    /// failure or a refusal. It may be any counter of the domain. For changes of counters it must be `None`.
    pub completion: Option<Counter>,
}

/// The deferred work queue of a domain: `fi_control` with `FI_QUEUE_WORK`, `FI_CANCEL_WORK` and
/// `FI_FLUSH_WORK`.
///
/// ```
/// use homespun::flags::CounterEvents;
/// use homespun::trigger::{DeferredAction, DeferredWork, Operation, Trigger};
/// use homespun::{
///     AvAttr, BindFlags, Bytes, BytesMut, Caps, CounterAttr, CqAttr, Fabric, FabricAddress, Hints, SendMsg,
/// };
///
/// # let fabric = Fabric::new();
/// let hints = Hints::new().node("127.0.0.1").source().caps(Caps::MSG | Caps::TRIGGER);
/// let info = &fabric.info(&hints)?;
/// # let domain = fabric.domain(info)?;
/// # let (cq, av) = (domain.open_cq(&CqAttr::default())?, domain.open_av(&AvAttr::default())?);
/// let endpoint = domain.endpoint(info)?;
/// let received = domain.open_counter(&CounterAttr::default())?;
/// endpoint.bind_counter(&received, CounterEvents::RECV)?;
/// # endpoint.bind_av(&av)?;
/// # endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
/// # endpoint.enable()?;
/// # let own = av.insert_one(endpoint.name()?)?;
///
/// // An answer that is sent as soon as two messages have arrived, without the application.
/// let answered = domain.open_counter(&CounterAttr::default())?;
/// let answer = SendMsg { buffers: vec![Bytes::from_static(b"both")], to: own, ..SendMsg::default() };
/// domain.queue_work(DeferredWork {
///     context: 1,
///     trigger: Trigger { counter: received.clone(), threshold: 2 },
///     action: DeferredAction::Post { endpoint: endpoint.clone(), operation: Operation::Send(answer) },
///     completion: Some(answered.clone()),
/// })?;
/// for context in 0..3 {
///     endpoint.recv(BytesMut::zeroed(16), FabricAddress::UNSPECIFIED, context)?;
/// }
/// endpoint.send(Bytes::from_static(b"one"), own, 10)?;
/// endpoint.send(Bytes::from_static(b"two"), own, 11)?;
/// answered.wait(1, None).expect("nothing fails");
/// received.wait(3, None).expect("the answer arrives like any message");
/// # Ok::<(), homespun::Error>(())
/// ```
impl Domain {
    /// Queues work, and carries it out at once if its threshold is reached: `FI_QUEUE_WORK`. Default flags
    /// that the endpoint gets later do not affect the operation.
    ///
    /// If the endpoint refuses the operation when the threshold is reached, the operation fails with
    /// [`OperationError::Deferred`](crate::OperationError::Deferred). If the endpoint only lacks room, the
    /// work waits, and later work of the same counter waits behind it.
    ///
    /// # Errors
    ///
    /// With the memory of the operation: the errors of the call that posts it, except errors that are found
    /// only when it is due. Also [`Misuse::NoCapability`] without [`Caps::TRIGGER`](crate::Caps::TRIGGER),
    /// [`Misuse::OtherDomain`] for objects of another domain, and [`Misuse::Invalid`] for a change of a
    /// counter with a `completion`. The system's error if an endpoint cannot wake threads that wait for a
    /// counter: ENOMEM, ENOSPC.
    pub fn queue_work(&self, work: DeferredWork) -> Result<(), Rejected<Buffer>> {
        self.lend_buffers_and_queue_work(work, lend_source, lend_destination)
    }

    /// Queues deferred work whose operation uses memory of the caller: `FI_QUEUE_WORK`. See
    /// [`queue_work`](Self::queue_work).
    ///
    /// # Errors
    ///
    /// As [`queue_work`](Self::queue_work).
    ///
    /// # Safety
    ///
    /// The memory of an operation must satisfy the conditions of the call that posts it, such as
    /// [`Endpoint::post_send`]. The caller must keep these conditions until the end of the operation has
    /// been counted or reported, the work has been cancelled or flushed, or the endpoint has been closed.
    /// The memory of a receive of a shared context must satisfy the conditions of
    /// [`SharedReceiveContext::post_receive`](crate::SharedReceiveContext::post_receive).
    pub unsafe fn queue_raw_work(&self, work: DeferredWork<&[Segment], &[SegmentMut]>) -> Result<(), Error> {
        // SAFETY: the caller promises what `Source::raw` and `Destination::raw_allowing_null` require.
        // The queue posts the operation or drops it, and the endpoint treats it as any other operation.
        let queued = unsafe {
            self.lend_buffers_and_queue_work(
                work,
                |segments| Source::raw(segments).map_err(reject_without_buffer),
                |segments| Destination::raw_allowing_null(segments).map_err(reject_without_buffer),
            )
        };
        queued.map_err(|rejected| rejected.error)
    }

    /// Cancels the oldest waiting work with this context: `FI_CANCEL_WORK`. Nothing is reported. After a
    /// success the application may use the memory of the work again.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotFound`] if no such work waits. It may already have been carried out.
    pub fn cancel_work(&self, context: u64) -> Result<(), Error> {
        self.shared.work_queue().cancel_deferred_work(context)
    }

    /// Cancels all waiting work, or only the work that waits for `counter`: `FI_FLUSH_WORK`. Nothing is
    /// reported. Afterwards the application may use the memory of the work again. Triggered operations of
    /// endpoints remain.
    pub fn flush_work(&self, counter: Option<&Counter>) {
        self.shared.work_queue().cancel_all_deferred_work(counter.map(Counter::shared));
    }

    fn lend_buffers_and_queue_work<S, D>(
        &self,
        work: DeferredWork<S, D>,
        lend_source: impl Fn(S) -> Result<Source, Rejected<Buffer>>,
        lend_destination: impl Fn(D) -> Result<Destination, Rejected<Buffer>>,
    ) -> Result<(), Rejected<Buffer>> {
        let DeferredWork { context, trigger, action, completion } = work;
        let add = |action, is_reported| {
            self.add_deferred_work(context, &trigger, action, completion.as_ref(), is_reported)
        };
        let change = |counter: &Counter, change| {
            self.make_counter_action(counter, change, completion.as_ref()).map_err(reject_without_buffer)
        };
        match action {
            DeferredAction::Add { counter, value } => {
                add(change(&counter, CounterChange::Add(value))?, false)
            }
            DeferredAction::Set { counter, value } => {
                add(change(&counter, CounterChange::Set(value))?, false)
            }
            // This handle of the endpoint is dropped after the work was added. If it is the last one, the
            // work is dropped with the endpoint.
            DeferredAction::Post { endpoint, operation } => {
                let flags = operation.flags();
                let mut post = operation.into_deferred_post(&endpoint, lend_source, lend_destination)?;
                let poster = check_same_domain(endpoint.domain(), self.shared.id())
                    .and_then(|()| endpoint.prepare_deferred_post(&mut post, flags));
                add(make_post_action(poster, post)?, flags.contains(OpFlags::COMPLETION))
            }
            DeferredAction::Receive { receive_context, receive } => {
                let flags = receive.flags;
                let mut post = receive_context.make_waiting_receive(receive, lend_destination)?;
                let poster = check_same_domain(receive_context.shared().domain(), self.shared.id())
                    .and_then(|()| receive_context.prepare_waiting_receive(&mut post, flags));
                let action = make_post_action(poster, DeferredPost::Receive(post))?;
                add(action, flags.contains(OpFlags::COMPLETION))
            }
        }
    }

    /// Adds deferred work to the queue.
    fn add_deferred_work(
        &self,
        context: u64,
        Trigger { counter, threshold }: &Trigger,
        action: WorkAction,
        completion: Option<&Counter>,
        is_reported: bool,
    ) -> Result<(), Rejected<Buffer>> {
        if mutated!("fi_trigger/queue-work") {
            return Err(Rejected { error: Misuse::OtherDomain.into(), returned: action.into_buffer() });
        }
        let mut counters = [Some(counter), completion].into_iter().flatten();
        if let Err(error) = counters.try_for_each(|counter| self.enlist_work_counter(counter)) {
            return Err(Rejected { error, returned: action.into_buffer() });
        }
        let completion = completion.map(|counter| CounterUse::new(counter.shared()));
        let kind = WorkKind::Deferred { context, completion, is_reported };
        let (trigger, threshold) = (CounterUse::new(counter.shared()), *threshold);
        self.shared.work_queue().add_and_fire(Work { trigger, threshold, action, kind });
        Ok(())
    }

    fn make_counter_action(
        &self,
        counter: &Counter,
        change: CounterChange,
        completion: Option<&Counter>,
    ) -> Result<WorkAction, Error> {
        if completion.is_some() {
            return Err(Misuse::Invalid(Argument::CountedChange).into());
        }
        self.enlist_work_counter(counter)?;
        Ok(WorkAction::Change { counter: CounterUse::new(counter.shared()), change })
    }

    /// Makes a counter on which work depends drive the endpoints that may have work.
    fn enlist_work_counter(&self, counter: &Counter) -> Result<(), Error> {
        check_same_domain(counter.shared().domain(), self.shared.id())?;
        self.shared.enlist_work_counter(counter)
    }
}

/// Triggered operations: `FI_TRIGGER`. They complete like other operations of the endpoint.
/// [`cancel`](Self::cancel) cancels them.
impl Endpoint {
    /// Posts an operation when a counter has reached a threshold. The endpoint must have
    /// [`Caps::TRIGGER`](crate::Caps::TRIGGER). If the endpoint then refuses the operation, the operation
    /// completes with an error. If the endpoint only lacks room, the operation waits.
    ///
    /// # Errors
    ///
    /// As [`Domain::queue_work`].
    pub fn trigger(&self, trigger: &Trigger, operation: Operation) -> Result<(), Rejected<Buffer>> {
        self.queue_operation_at_threshold(trigger, operation, lend_source, lend_destination)
    }

    /// Posts a triggered operation with the caller's memory. See [`trigger`](Self::trigger).
    ///
    /// # Errors
    ///
    /// As [`trigger`](Self::trigger).
    ///
    /// # Safety
    ///
    /// As the call that posts the operation without a trigger, such as [`post_send`](Self::post_send).
    pub unsafe fn post_triggered(
        &self,
        trigger: &Trigger,
        operation: Operation<&[Segment], &[SegmentMut]>,
    ) -> Result<(), Error> {
        // SAFETY: the caller promises what `Source::raw` and `Destination::raw_allowing_null` require, as
        // for any operation.
        let posted = unsafe {
            self.queue_operation_at_threshold(
                trigger,
                operation,
                |segments| Source::raw(segments).map_err(reject_without_buffer),
                |segments| Destination::raw_allowing_null(segments).map_err(reject_without_buffer),
            )
        };
        posted.map_err(|rejected| rejected.error)
    }

    fn queue_operation_at_threshold<S, D>(
        &self,
        trigger: &Trigger,
        operation: Operation<S, D>,
        lend_source: impl Fn(S) -> Result<Source, Rejected<Buffer>>,
        lend_destination: impl Fn(D) -> Result<Destination, Rejected<Buffer>>,
    ) -> Result<(), Rejected<Buffer>> {
        let flags = operation.flags();
        let mut post = operation.into_deferred_post(self, lend_source, lend_destination)?;
        let poster = check_same_domain(trigger.counter.shared().domain(), self.domain())
            .and_then(|()| self.prepare_triggered_post(&mut post, flags));
        add_triggered_operation(trigger, poster, post, self.work_domain())
    }
}

/// Triggered receives: `FI_TRIGGER`. They complete like other receives of the context.
/// [`cancel`](Self::cancel) cancels them.
impl SharedReceiveContext {
    /// Posts a receive when a counter has reached a threshold. The attributes of the context must have
    /// [`Caps::TRIGGER`](crate::Caps::TRIGGER). If the context then refuses the receive, the receive
    /// completes with an error. If the context only lacks room, the receive waits.
    ///
    /// # Errors
    ///
    /// With the memory: the errors of [`recvmsg`](Self::recvmsg), except errors that are found only when the
    /// receive is due. Also [`Misuse::NoCapability`] without [`Caps::TRIGGER`](crate::Caps::TRIGGER), and
    /// [`Misuse::OtherDomain`] for a counter of another domain.
    pub fn trigger(&self, trigger: &Trigger, receive: RecvMsg) -> Result<(), Rejected<Buffer>> {
        self.queue_receive_at_threshold(trigger, receive, lend_destination)
    }

    /// Posts a triggered receive into the caller's memory. See [`trigger`](Self::trigger).
    ///
    /// # Errors
    ///
    /// As [`trigger`](Self::trigger).
    ///
    /// # Safety
    ///
    /// As [`post_receive`](Self::post_receive).
    pub unsafe fn post_triggered(
        &self,
        trigger: &Trigger,
        receive: RecvMsg<&[SegmentMut]>,
    ) -> Result<(), Error> {
        let lend = |segments: &[SegmentMut]| {
            // SAFETY: the caller promises what `Destination::raw_allowing_null` requires, as for any
            // receive.
            unsafe { Destination::raw_allowing_null(segments) }.map_err(reject_without_buffer)
        };
        self.queue_receive_at_threshold(trigger, receive, lend).map_err(|rejected| rejected.error)
    }

    fn queue_receive_at_threshold<D>(
        &self,
        trigger: &Trigger,
        receive: RecvMsg<D>,
        lend_destination: impl FnOnce(D) -> Result<Destination, Rejected<Buffer>>,
    ) -> Result<(), Rejected<Buffer>> {
        let flags = receive.flags;
        let mut post = self.make_waiting_receive(receive, lend_destination)?;
        let poster = check_same_domain(trigger.counter.shared().domain(), self.shared().domain())
            .and_then(|()| self.prepare_waiting_receive(&mut post, flags));
        add_triggered_operation(trigger, poster, DeferredPost::Receive(post), self.work_domain())
    }
}

/// Adds a triggered operation to the work queue of its domain.
fn add_triggered_operation(
    Trigger { counter, threshold }: &Trigger,
    poster: Result<Arc<dyn Poster>, Error>,
    post: DeferredPost,
    domain: &dyn WorkDomain,
) -> Result<(), Rejected<Buffer>> {
    let enlisted = poster.and_then(|poster| domain.enlist_work_counter(counter).map(|()| poster));
    let action = make_post_action(enlisted, post)?;
    let (trigger, threshold) = (CounterUse::new(counter.shared()), *threshold);
    domain.work_queue().add_and_fire(Work { trigger, threshold, action, kind: WorkKind::Triggered });
    Ok(())
}

/// Returns the action that posts an operation by `poster`. If `poster` is an error, returns it with the
/// memory of the operation.
fn make_post_action(
    poster: Result<Arc<dyn Poster>, Error>,
    post: DeferredPost,
) -> Result<WorkAction, Rejected<Buffer>> {
    match poster {
        Ok(poster) => Ok(WorkAction::Post { poster, post }),
        Err(error) => Err(Rejected { error, returned: post.into_buffer() }),
    }
}

fn check_same_domain(one: DomainId, other: DomainId) -> Result<(), Error> {
    if one == other { Ok(()) } else { Err(Misuse::OtherDomain.into()) }
}

/// Returns a refusal without memory to hand back.
fn reject_without_buffer(error: impl Into<Error>) -> Rejected<Buffer> {
    Rejected { error: error.into(), returned: Buffer::None }
}

fn lend_source(buffers: Vec<Bytes>) -> Result<Source, Rejected<Buffer>> {
    Source::owned_vector(buffers).map_err(|rejected| rejected.map(Buffer::SentVector))
}

fn lend_destination(buffers: Vec<BytesMut>) -> Result<Destination, Rejected<Buffer>> {
    Destination::owned_vector(buffers).map_err(|rejected| rejected.map(Buffer::ReceivedVector))
}
