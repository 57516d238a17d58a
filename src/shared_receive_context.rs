//! Receive contexts that endpoints share: `fi_srx_context` of `fi_endpoint(3)`.

mod deferring;
mod members;
#[expect(unsafe_code, reason = "the raw tier takes addresses")]
mod receive;

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use homespun_engine::address::Address;
use homespun_engine::buffer::Destination;
use homespun_engine::error::{Error, InUse, Misuse};
use homespun_engine::flags::{Caps, OpFlags};
use homespun_engine::limits::MIN_MULTI_RECV_DEFAULT_BYTES;
use homespun_engine::matching::Criteria;
use homespun_engine::operation::{PeekRequest, ReceiveRequest};
use homespun_engine::rejected::Rejected;
use homespun_engine::shared_receiver::SharedReceiver;

use self::members::Members;
use crate::domain_id::DomainId;
use crate::info::RxAttr;
use crate::op_flags::{RECEIVE_DEFAULT_FLAGS, check_default_flags, check_trigger_flag};
use crate::post::{ReceiveKind, ReceivePost, mark_as_deferred_work};
use crate::poster::Poster;
use crate::tag::TagMatch;
use crate::works::domain::WorkDomain;

/// Receives for several endpoints: a shared receive context, `fi_endpoint(3)`.
///
/// [`Domain::shared_receive_context`](crate::Domain::shared_receive_context) opens a context. The
/// application [binds](crate::Endpoint::bind_shared_receive_context) endpoints to it before it enables them.
/// The [`rx_ctx_cnt`](crate::info::EpAttr::rx_ctx_cnt) of these endpoints must be
/// [`SHARED_CONTEXT`](crate::info::SHARED_CONTEXT). A message that reaches one of the endpoints takes the
/// earliest matching receive of the context. Receives are posted to the context, even before an endpoint is
/// bound. The endpoints themselves refuse receives.
///
/// - The endpoint that a message reaches reports the receive, in its receive queue and its counters.
/// - Some reports belong to no endpoint: cancelled receives, peeks that find no message, and claims of lost
///   messages. The endpoint that was enabled first reports them. They wait while no endpoint is enabled. If
///   an endpoint is closed, another endpoint takes over such reports that found no room in the closed
///   endpoint's queue.
/// - Messages of one peer to one endpoint keep their order. Messages to different endpoints have none.
/// - Unconnected endpoints that share a context also share an address vector. The source of a directed
///   receive is an address of this vector. Directed receives need [`Caps::DIRECTED_RECV`] in the attributes.
///   A directed receive fails when the last link of its source to any of the endpoints ends. It also fails
///   when an endpoint cannot connect to the source and no other endpoint has a link to it.
/// - If the queue of an endpoint is full, only the completions of that endpoint wait.
/// - When an endpoint is closed, its messages that no receive has taken are lost. If one of its messages was
///   filling a receive, the receive fails at another endpoint, with
///   [`OperationError::Cancelled`](crate::OperationError::Cancelled).
/// - When a connection ends, only the receives that its messages were filling fail.
///
/// The context has one depth, [`RxAttr::size_ops`], and one budget for unexpected messages,
/// [`RxAttr::total_buffered_recv_bytes`]. The infos of its endpoints do not change them. Each link of an
/// endpoint may take another [`CREDIT_INITIAL_BYTES`](crate::limits::CREDIT_INITIAL_BYTES).
///
/// A handle may be cloned and used from any thread. When the last handle and the last bound endpoint are
/// dropped, posted receives end without a completion.
///
/// ```
/// use homespun::info::SHARED_CONTEXT;
/// use homespun::{
///     AvAttr, BindFlags, Bytes, BytesMut, CqAttr, Fabric, FabricAddress, Hints,
/// };
///
/// let fabric = Fabric::new();
/// let info = &mut fabric.info(&Hints::new().node("127.0.0.1").source())?;
/// info.ep.rx_ctx_cnt = SHARED_CONTEXT;
/// let domain = fabric.domain(info)?;
/// let (cq, av) = (domain.open_cq(&CqAttr::default())?, domain.open_av(&AvAttr::default())?);
///
/// // Two receives, before there is any endpoint.
/// let context = domain.shared_receive_context(&info.rx)?;
/// for number in [1, 2] {
///     context.recv(BytesMut::zeroed(16), FabricAddress::UNSPECIFIED, number)?;
/// }
///
/// // Two endpoints that take them.
/// let mut endpoints = Vec::new();
/// for _ in 0..2 {
///     let endpoint = domain.endpoint(info)?;
///     endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
///     endpoint.bind_av(&av)?;
///     endpoint.bind_shared_receive_context(&context)?;
///     endpoint.enable()?;
///     endpoints.push(endpoint);
/// }
/// let second = av.insert_one(endpoints[1].name()?)?;
/// endpoints[0].send(Bytes::from_static(b"hello"), second, 3)?;
/// let received = loop {
///     match cq.read().expect("no operation fails") {
///         Some(completion) if completion.context == 1 => break completion,
///         _ => {}
///     }
/// };
/// assert_eq!(received.len_bytes, 5);
/// # Ok::<(), homespun::Error>(())
/// ```
#[derive(Clone)]
pub struct SharedReceiveContext {
    shared: Arc<ReceiveContext>,
    open: Arc<OpenContext>,
}

/// The part of a context that ends when the last handle and the last bound endpoint are dropped.
struct OpenContext {
    shared: Arc<ReceiveContext>,
    /// The context's domain. The context keeps it open.
    domain: Arc<dyn WorkDomain>,
}

impl Drop for OpenContext {
    fn drop(&mut self) {
        let works = self.domain.work_queue();
        works.drop_waiting_works_of_endpoint(&*self.shared);
        works.drop_all_works_of_endpoint(&*self.shared);
    }
}

/// The part of a context that endpoints share.
pub(crate) struct ReceiveContext {
    domain: DomainId,
    attr: RxAttr,
    rx_op_flags: AtomicU64,
    min_multi_recv_bytes: AtomicUsize,
    receiver: Arc<SharedReceiver>,
    /// The number of bound endpoints, enabled or not.
    bound: AtomicUsize,
    members: Members,
}

impl SharedReceiveContext {
    /// Opens a context of a domain. The context keeps the domain open.
    pub(crate) fn open(id: DomainId, domain: Arc<dyn WorkDomain>, attr: RxAttr) -> SharedReceiveContext {
        let shared = Arc::new(ReceiveContext {
            rx_op_flags: AtomicU64::new(attr.op_flags.bits()),
            min_multi_recv_bytes: AtomicUsize::new(MIN_MULTI_RECV_DEFAULT_BYTES),
            receiver: SharedReceiver::new(attr.size_ops, attr.total_buffered_recv_bytes),
            bound: AtomicUsize::new(0),
            members: Members::default(),
            attr,
            domain: id,
        });
        let open = Arc::new(OpenContext { shared: shared.clone(), domain });
        SharedReceiveContext { shared, open }
    }

    /// Returns a reference that does not keep the context open.
    pub(crate) fn downgrade(&self) -> Weak<ReceiveContext> {
        Arc::downgrade(&self.shared)
    }

    /// Returns the attributes of the context, with unspecified ones filled in.
    pub fn attr(&self) -> &RxAttr {
        &self.shared.attr
    }

    /// Returns the flags of receives that are posted without flags of their own (`FI_GETOPSFLAG`).
    pub fn rx_op_flags(&self) -> OpFlags {
        OpFlags::from_bits_retain(self.shared.rx_op_flags.load(Ordering::Relaxed))
    }

    /// Changes the flags of receives that are posted without flags of their own (`FI_SETOPSFLAG`).
    ///
    /// # Errors
    ///
    /// As [`Endpoint::set_rx_op_flags`](crate::Endpoint::set_rx_op_flags), with the capabilities of the
    /// context.
    pub fn set_rx_op_flags(&self, flags: OpFlags) -> Result<(), Error> {
        check_default_flags(flags - OpFlags::TRIGGER, RECEIVE_DEFAULT_FLAGS)?;
        check_trigger_flag(flags, self.shared.attr.caps)?;
        self.shared.rx_op_flags.store(flags.bits(), Ordering::Relaxed);
        Ok(())
    }

    /// As [`Endpoint::min_multi_recv_bytes`](crate::Endpoint::min_multi_recv_bytes), for buffers of the
    /// context.
    pub fn min_multi_recv_bytes(&self) -> usize {
        self.shared.min_multi_recv_bytes.load(Ordering::Relaxed)
    }

    /// As [`Endpoint::set_min_multi_recv_bytes`](crate::Endpoint::set_min_multi_recv_bytes), for buffers of
    /// the context.
    pub fn set_min_multi_recv_bytes(&self, min_multi_recv_bytes: usize) {
        self.shared.min_multi_recv_bytes.store(min_multi_recv_bytes, Ordering::Relaxed);
    }

    /// Cancels the oldest posted receive with this `context` that no message has matched: `fi_cancel`. If
    /// there is none, cancels the oldest such receive that waits for a counter. Of the enabled endpoints,
    /// the one that was enabled first reports the receive, with the error ECANCELED.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotFound`] if there is no such receive.
    pub fn cancel(&self, context: u64) -> Result<(), Error> {
        match self.shared.cancel(context) {
            Err(Error::Misuse(Misuse::NotFound(_))) if self.shared.attr.caps.contains(Caps::TRIGGER) => {
                self.open.domain.work_queue().cancel_operation_of_endpoint(&*self.shared, context)
            }
            cancelled => cancelled,
        }
    }

    /// Closes the context: `fi_close`. When the last clone of the handle is dropped, posted receives end
    /// without a completion.
    ///
    /// # Errors
    ///
    /// [`Misuse::Busy`], with the handle, while an endpoint is bound to it.
    pub fn close(self) -> Result<(), Rejected<Self>> {
        if self.shared.bound.load(Ordering::Acquire) > 0 {
            return Err(Rejected { error: Misuse::Busy(InUse::ReceiveContext).into(), returned: self });
        }
        Ok(())
    }

    pub(crate) fn shared(&self) -> &Arc<ReceiveContext> {
        &self.shared
    }
}

impl ReceiveContext {
    pub(crate) fn domain(&self) -> DomainId {
        self.domain
    }

    pub(crate) fn receiver(&self) -> &Arc<SharedReceiver> {
        &self.receiver
    }

    /// Counts an endpoint that is bound.
    pub(crate) fn add_binding(&self) {
        self.bound.fetch_add(1, Ordering::AcqRel);
    }

    /// Undoes one [`add_binding`](Self::add_binding).
    pub(crate) fn remove_binding(&self) {
        self.bound.fetch_sub(1, Ordering::AcqRel);
    }

    #[inline]
    fn check_caps(&self, needed: Caps) -> Result<(), Error> {
        let missing = needed - self.attr.caps;
        if missing.is_empty() { Ok(()) } else { Err(Misuse::NoCapability(missing).into()) }
    }

    /// Returns the only source that a receive accepts; `None` for any source. A receive of a claimed message
    /// ignores the source, since its context names the message.
    fn only_source_address(&self, post: &ReceivePost) -> Result<Option<Address>, Error> {
        match post.from {
            Some(from) if post.kind != ReceiveKind::Claimed => self.members.lookup_source(from),
            _ => Ok(None),
        }
    }

    /// Posts a receive to the shared receiver, by calling `receive`.
    fn post_receive_with(
        &self,
        post: &mut ReceivePost,
        receive: impl FnOnce(
            &SharedReceiver,
            Option<Address>,
            ReceiveRequest,
        ) -> Result<(), Rejected<Destination>>,
    ) -> Result<(), Error> {
        let from = self.only_source_address(post)?;
        let request = post.take_receive_request(criteria_without_source(post));
        receive(&self.receiver, from, request).map_err(|rejected| post.put_back_rejected_memory(rejected))
    }

    /// Posts a receive, peek, claim or discard. The caller must call [`deliver_mail`](Self::deliver_mail)
    /// next.
    fn post_without_mail_delivery(&self, post: &mut ReceivePost) -> Result<(), Error> {
        if post.is_plain_single_receive() {
            return self.post_receive_with(post, SharedReceiver::post_receive);
        }
        let ReceivePost { context, work, .. } = *post;
        let tagged = post.tagged.is_some();
        match post.kind {
            ReceiveKind::Single => self.post_receive_with(post, |receiver, from, request| {
                receiver.post_receive(from, mark_as_deferred_work(request, work))
            }),
            ReceiveKind::Multi { min_free_bytes } => self
                .post_receive_with(post, |receiver, from, request| {
                    receiver.post_multi_receive(from, request, min_free_bytes, work)
                }),
            ReceiveKind::Claimed => self.post_receive_with(post, |receiver, _, request| {
                receiver.receive_claimed(mark_as_deferred_work(request, work), context)
            }),
            ReceiveKind::Peek(then) => {
                let from = self.only_source_address(post)?;
                let criteria = criteria_without_source(post);
                self.receiver.peek(from, PeekRequest { tagged, criteria, context, work, then })
            }
            ReceiveKind::Discard => self.receiver.discard_claimed(tagged, context, work),
        }
    }

    /// Makes endpoints carry out the effects that other endpoints have left to them. The caller must not
    /// hold the lock of an endpoint, and must run the due works next.
    pub(crate) fn deliver_mail(&self) {
        while self.receiver.has_mail_for_members() {
            self.members.process_mail(&self.receiver.take_members_with_mail());
        }
    }

    /// As [`deliver_mail`](Self::deliver_mail). If there was mail, also runs the due works.
    pub(crate) fn deliver_mail_and_fire(&self) {
        if self.receiver.has_mail_for_members() {
            self.deliver_mail();
            self.members.fire_due_works();
        }
    }

    pub(crate) fn members(&self) -> &Members {
        &self.members
    }
}

/// Returns the criteria for messages that a receive accepts, without their source.
fn criteria_without_source(post: &ReceivePost) -> Criteria {
    let TagMatch { tag, ignore } = post.tagged.unwrap_or(TagMatch::ANY);
    Criteria { source: None, tag, ignore }
}

impl fmt::Debug for SharedReceiveContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReceiveContext")
            .field("attr", &self.shared.attr)
            .field("bound", &self.shared.bound.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}
