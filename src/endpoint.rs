//! Endpoints: `fi_endpoint(3)`.

mod atomic;
mod atomic_words;
mod connecting;
mod deferring;
mod flush;
mod receive;
mod rma;
mod send;
mod setup;
mod shared_receive;
mod submit;

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use homespun_engine::address::Address;
use homespun_engine::engine::Config;
use homespun_engine::error::{Error, Misuse, ObjectState};
use homespun_engine::flags::{Caps, Mode, MrAccess, OpFlags};
use homespun_engine::limits::MIN_MULTI_RECV_DEFAULT_BYTES;
use parking_lot::Mutex;

pub use self::atomic::{AtomicMsg, AtomicTarget, CompareAtomicMsg, FetchAtomicMsg};
pub(crate) use self::connecting::EndpointOrigin;
pub use self::flush::FlushMsg;
pub use self::rma::{ReadMsg, WriteMsg};
use self::setup::{Service, ServiceFlags, Setup};
use crate::domain;
use crate::domain_id::DomainId;
use crate::endpoint_pump::{EndpointPump, as_drive};
use crate::eq::Reporter;
use crate::info::Info;
use crate::mutated;
use crate::op_flags::{
    RECEIVE_DEFAULT_FLAGS, TRANSMIT_DEFAULT_FLAGS, check_default_flags, check_trigger_flag, without_commit,
};
pub use crate::receives::RecvMsg;
pub use crate::send_msg::SendMsg;
use crate::works::domain::WorkDomain;

/// Sends and receives messages: a reliable endpoint, unconnected (`FI_EP_RDM`) or connected (`FI_EP_MSG`).
///
/// Open an endpoint from an [`Info`], bind it to completion queues and an address vector, and enable it.
/// The application then posts operations, and the endpoint's queues report their completions. Operations
/// make progress when the application reads the queues ([`CompletionQueue`](crate::CompletionQueue)). With
/// automatic [`Progress`](crate::info::Progress), a thread of the domain makes progress, too.
///
/// A connected endpoint ([`EndpointType::Msg`](crate::info::EndpointType::Msg)) is bound to an event queue
/// instead of an address vector. The endpoint asks for a [connection](Self::connect) or
/// [accepts](Self::accept) one. From then on it has only one peer, so calls ignore addresses. Receives can
/// be posted once the endpoint is enabled. Without a connection, sends and accesses fail with
/// [`Misuse::NotConnected`]. [`PassiveEndpoint`](crate::PassiveEndpoint) has an example.
///
/// Any thread may clone and use a handle. Dropping the last handle closes the endpoint. Messages that the
/// endpoint has accepted for sending still go out, within
/// [`CLOSE_LINGER_MS`](crate::params::CLOSE_LINGER_MS). Posted receives end without a completion.
///
/// Calls that post an operation have the names of their C counterparts. A call fails with [`Again`] if a
/// queue is full, until the application reads completions. A call fails with [`Misuse`] for an unknown
/// address, a message that is too long, an end that no queue or counter would notice, or an endpoint that is
/// not enabled. A call that fails changes nothing, and returns owned buffers in a [`Rejected`].
///
/// A call ignores [flags](OpFlags) that have no meaning for it. But a call fails with [`Misuse::Flags`] for
/// these flags:
///
/// - `FI_TRIGGER` and `FI_XPU_TRIGGER`: the context would describe a trigger. [`trigger`](Self::trigger)
///   takes the counter as an argument instead.
/// - `FI_MULTICAST` at a send or an access: the destination would be a group.
/// - `FI_COMMIT_COMPLETE` at anything but a write or a persistent flush, with `FI_FENCE` or without: the
///   completion would claim that something is durable.
///
/// Over TCP, an endpoint uses one socket to listen, one connection for each peer that it talks to, and
/// about 130 KiB for two buffers that all its connections share. Over any transport, each outstanding
/// operation and each peer take about 150 bytes. See `fi_endpoint(3)`.
///
/// [`Again`]: crate::Again
/// [`Rejected`]: crate::Rejected
///
/// ```
/// use homespun::{
///     AvAttr, BindFlags, Buffer, Bytes, BytesMut, CqAttr, Fabric, FabricAddress, Hints,
/// };
///
/// let fabric = Fabric::new();
/// let info = &fabric.info(&Hints::new().node("127.0.0.1").source())?;
/// let domain = fabric.domain(info)?;
/// let (cq, av) = (domain.open_cq(&CqAttr::default())?, domain.open_av(&AvAttr::default())?);
/// let endpoint = domain.endpoint(info)?;
/// endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV)?;
/// endpoint.bind_av(&av)?;
/// endpoint.enable()?;
///
/// // A message to itself. The receive is posted first, with room for 16 bytes and the context 1.
/// let own = av.insert_one(endpoint.name()?)?;
/// endpoint.recv(BytesMut::zeroed(16), FabricAddress::UNSPECIFIED, 1)?;
/// endpoint.send(Bytes::from_static(b"hello"), own, 2)?;
/// let received = loop {
///     match cq.read().expect("no operation fails") {
///         Some(completion) if completion.context == 1 => break completion,
///         _ => {}
///     }
/// };
/// assert_eq!(received.buffer, Buffer::Received(BytesMut::from(&b"hello"[..])));
/// # Ok::<(), homespun::Error>(())
/// ```
#[derive(Clone)]
pub struct Endpoint {
    shared: Arc<EndpointShared>,
    default_flags: Arc<DefaultFlags>,
}

/// The flags of operations that are posted without flags of their own.
struct DefaultFlags {
    transmit: AtomicU64,
    /// `transmit` for operations other than writes: [`without_commit`]. Kept, so that a post need not derive
    /// it.
    uncommitted: AtomicU64,
    receive: AtomicU64,
}

struct EndpointShared {
    info: Info,
    origin: EndpointOrigin,
    domain: Arc<domain::DomainShared>,
    min_multi_recv_bytes: AtomicUsize,
    setup: Mutex<Setup>,
    /// Set once the endpoint is enabled, its address was asked for, or it has taken over a passive endpoint.
    pump: OnceLock<Arc<dyn EndpointPump>>,
    /// The part of the set-up that each operation reads.
    service: Service,
    /// Set once an endpoint for connections is enabled.
    reporter: OnceLock<Arc<Reporter>>,
    /// The other end of the connection, once the endpoint has asked for one or accepted one.
    peer: Mutex<Option<Address>>,
    /// Held while a call asks for a connection, or accepts one.
    connecting: Mutex<()>,
    /// How long a connect waits for its answer, at most.
    connect_timeout: Mutex<Option<Duration>>,
}

impl Endpoint {
    /// Opens an endpoint. An endpoint for a request needs a
    /// [reserved](crate::ConnectionRequest::try_reserve_for_endpoint) request.
    pub(crate) fn open(
        domain: Arc<domain::DomainShared>,
        info: Info,
        origin: EndpointOrigin,
    ) -> Result<Endpoint, Error> {
        let default_flags = Arc::new(DefaultFlags {
            transmit: AtomicU64::new(info.tx.op_flags.bits()),
            uncommitted: AtomicU64::new(without_commit(info.tx.op_flags).bits()),
            receive: AtomicU64::new(info.rx.op_flags.bits()),
        });
        let endpoint = Endpoint {
            default_flags,
            shared: Arc::new(EndpointShared {
                connect_timeout: Mutex::new(domain.connect_timeout()),
                domain,
                min_multi_recv_bytes: AtomicUsize::new(MIN_MULTI_RECV_DEFAULT_BYTES),
                info,
                origin,
                setup: Mutex::default(),
                pump: OnceLock::new(),
                service: Service::default(),
                reporter: OnceLock::new(),
                peer: Mutex::default(),
                connecting: Mutex::default(),
            }),
        };
        endpoint.shared.take_over_passive_if_any()?;
        Ok(endpoint)
    }

    /// Returns the attributes with which the endpoint was opened.
    #[inline]
    pub fn info(&self) -> &Info {
        &self.shared.info
    }

    /// Returns the address at which peers reach the endpoint: `fi_getname`. The application can give this
    /// address to peers even if the endpoint is bound to every interface. If the endpoint was opened to
    /// accept a request, this is the address of the passive endpoint.
    ///
    /// # Errors
    ///
    /// The first call binds the endpoint, and may fail with [`Error::Bind`]: EADDRINUSE, EADDRNOTAVAIL,
    /// EACCES, EMFILE or ENOMEM.
    pub fn name(&self) -> Result<Address, Error> {
        if let EndpointOrigin::Request(request) = &self.shared.origin {
            return Ok(request.listener_info().name);
        }
        if let Some(pump) = self.shared.pump.get() {
            let address = pump.address();
            return Ok(if mutated!("fi_cm/getname-after-enable") { address.with_port(0) } else { address });
        }
        let setup = self.shared.setup.lock();
        Ok(self.shared.pump_or_open(setup.name)?.address())
    }

    /// Returns another handle of the same endpoint, with default flags of its own: `fi_ep_alias`. The
    /// default flags begin as a copy of this handle's. The handles share everything else. Dropping the last
    /// handle closes the endpoint.
    pub fn alias(&self) -> Endpoint {
        if mutated!("fi_endpoint/alias") {
            return self.clone();
        }
        let copy = |flags: &AtomicU64| AtomicU64::new(flags.load(Ordering::Relaxed));
        let DefaultFlags { transmit, uncommitted, receive } = &*self.default_flags;
        let default_flags = Arc::new(DefaultFlags {
            transmit: copy(transmit),
            uncommitted: copy(uncommitted),
            receive: copy(receive),
        });
        Endpoint { shared: self.shared.clone(), default_flags }
    }

    /// Returns the flags of sends and accesses that are posted without flags of their own (`FI_GETOPSFLAG`).
    #[inline]
    pub fn tx_op_flags(&self) -> OpFlags {
        OpFlags::from_bits_retain(self.default_flags.transmit.load(Ordering::Relaxed))
    }

    /// Returns the flags of operations other than writes that are posted without flags of their own:
    /// [`tx_op_flags`](Self::tx_op_flags) with `DELIVERY_COMPLETE` in place of `COMMIT_COMPLETE`, which these
    /// operations refuse.
    #[inline]
    pub fn uncommitted_op_flags(&self) -> OpFlags {
        if mutated!("fi_endpoint/default-flags") {
            return OpFlags::empty();
        }
        OpFlags::from_bits_retain(self.default_flags.uncommitted.load(Ordering::Relaxed))
    }

    /// Returns the flags of receives that are posted without flags of their own (`FI_GETOPSFLAG`).
    #[inline]
    pub fn rx_op_flags(&self) -> OpFlags {
        OpFlags::from_bits_retain(self.default_flags.receive.load(Ordering::Relaxed))
    }

    /// Sets the flags of sends and accesses that are posted without flags of their own (`FI_SETOPSFLAG`).
    /// With [`OpFlags::TRIGGER`], only [`trigger`](Self::trigger) can post such operations: other calls
    /// fail.
    ///
    /// # Errors
    ///
    /// - [`Misuse::Flags`] for a flag that [`TxAttr::op_flags`](crate::info::TxAttr::op_flags) cannot have:
    ///   it has no meaning for sends and accesses, or concerns a single operation (a fence, remote data).
    ///   `TRIGGER` is allowed if the endpoint has that capability.
    /// - [`Misuse::NoCapability`] for `COMMIT_COMPLETE` without `RMA_PMEM`.
    pub fn set_tx_op_flags(&self, flags: OpFlags) -> Result<(), Error> {
        check_default_flags(flags - OpFlags::TRIGGER, TRANSMIT_DEFAULT_FLAGS)?;
        if flags.contains(OpFlags::COMMIT_COMPLETE) {
            self.shared.check_caps(Caps::RMA_PMEM)?;
        }
        check_trigger_flag(flags, self.shared.info.caps)?;
        let flags = if mutated!("fi_endpoint/set-op-flags") { flags | self.tx_op_flags() } else { flags };
        self.default_flags.transmit.store(flags.bits(), Ordering::Relaxed);
        self.default_flags.uncommitted.store(without_commit(flags).bits(), Ordering::Relaxed);
        Ok(())
    }

    /// Sets the flags of receives that are posted without flags of their own (`FI_SETOPSFLAG`). Tagged
    /// receives ignore [`OpFlags::MULTI_RECV`].
    ///
    /// # Errors
    ///
    /// - [`Misuse::Flags`] for a flag that [`RxAttr::op_flags`](crate::info::RxAttr::op_flags) cannot have:
    ///   it has no meaning for receives, or concerns a single receive (a peek). [`OpFlags::TRIGGER`] is
    ///   allowed if the endpoint has that capability: see [`set_tx_op_flags`](Self::set_tx_op_flags).
    pub fn set_rx_op_flags(&self, flags: OpFlags) -> Result<(), Error> {
        check_default_flags(flags - OpFlags::TRIGGER, RECEIVE_DEFAULT_FLAGS)?;
        check_trigger_flag(flags, self.shared.info.caps)?;
        self.default_flags.receive.store(flags.bits(), Ordering::Relaxed);
        Ok(())
    }

    /// Returns how many free bytes a multi-receive buffer needs to take another message. With fewer, the
    /// buffer is released. This is the option `FI_OPT_MIN_MULTI_RECV` of `fi_endpoint(3)`. Default:
    /// [`MIN_MULTI_RECV_DEFAULT_BYTES`].
    pub fn min_multi_recv_bytes(&self) -> usize {
        self.shared.min_multi_recv_bytes.load(Ordering::Relaxed)
    }

    /// Sets [`min_multi_recv_bytes`](Self::min_multi_recv_bytes) for buffers that are posted from now on.
    /// Any number is valid. With 0, a buffer is released only when a message does not fit. A buffer that is
    /// shorter than the number takes a single message.
    pub fn set_min_multi_recv_bytes(&self, min_multi_recv_bytes: usize) {
        self.shared.min_multi_recv_bytes.store(min_multi_recv_bytes, Ordering::Relaxed);
    }

    /// Cancels one outstanding operation with this context: `fi_cancel`. If several operations have the
    /// context, a receive is cancelled before a send or an access. The cancelled operation ends with an
    /// error completion, ECANCELED.
    ///
    /// # Errors
    ///
    /// [`Misuse::NotFound`] if no operation with this context is outstanding, or if the operation can no
    /// longer be cancelled and will complete. [`Misuse::State`] if the endpoint is not enabled.
    pub fn cancel(&self, context: u64) -> Result<(), Error> {
        let (pump, _) = self.shared.enabled_pump()?;
        match pump.cancel(context) {
            Err(Error::Misuse(Misuse::NotFound(_))) if self.shared.info.caps.contains(Caps::TRIGGER) => {
                self.shared.domain.work_queue().cancel_operation_of_endpoint(pump, context)
            }
            cancelled => cancelled,
        }
    }

    /// Locks the set-up of the endpoint until the result is dropped.
    #[cfg(test)]
    pub(crate) fn lock_setup(&self) -> impl Sized + '_ {
        self.shared.setup.lock()
    }

    pub(crate) fn domain(&self) -> DomainId {
        self.shared.domain.id()
    }
}

impl EndpointShared {
    /// Returns the endpoint's pump. The first call opens the pump, bound to `name`, else to the source
    /// address of the info, else to the wildcard. An endpoint for a request is bound to the passive
    /// endpoint's address, at another port.
    fn pump_or_open(&self, name: Option<Address>) -> Result<&Arc<dyn EndpointPump>, Error> {
        if let Some(pump) = self.pump.get() {
            return Ok(pump);
        }
        let info = &self.info;
        let bind = match &self.origin {
            // The passive endpoint may still use its port. [`Endpoint::name`] returns the passive
            // endpoint's address anyway.
            EndpointOrigin::Request(request) => request.listener_info().bind.with_port(0),
            _ => name.or(info.src_addr).unwrap_or_else(|| self.domain.format().wildcard()),
        };
        let pump = self.domain.open_pump(bind, self.engine_config())?;
        Ok(self.pump.get_or_init(|| pump))
    }

    /// If the endpoint was opened from a passive endpoint, takes over the passive endpoint's pump.
    fn take_over_passive_if_any(&self) -> Result<(), Error> {
        if let EndpointOrigin::TakenOver(listener) = &self.origin
            && !mutated!("fi_endpoint/take-over-passive-endpoint")
        {
            self.domain.adopt_passive_pump(&listener.pump, self.engine_config())?;
            self.pump.get_or_init(|| listener.pump.clone());
        }
        Ok(())
    }

    fn engine_config(&self) -> Config {
        let info = &self.info;
        Config {
            tx_depth_ops: info.tx.size_ops,
            rx_depth_ops: info.rx.size_ops,
            message_max_bytes: info.ep.max_msg_size_bytes as u64,
            unexpected_budget_bytes: info.rx.total_buffered_recv_bytes,
            eager_max_bytes: self.domain.eager_max_bytes(),
            remote_access: granted_remote_access(info.caps, Caps::RMA),
            remote_atomics: granted_remote_access(info.caps, Caps::ATOMIC),
            rma_events: info.caps.contains(Caps::RMA_EVENT),
            remote_data_takes_receives: info.mode.contains(Mode::RX_CQ_DATA),
            delays_unmatched_fetches: true,
            transmit_order: info.tx.msg_order,
            completes_in_order: !info.tx.comp_order.is_empty() && !mutated!("fi_endpoint/completion-order"),
            receive_order: info.rx.msg_order,
            role: self.info.endpoint_type().role(),
        }
    }

    #[inline]
    fn enabled_pump(&self) -> Result<(&dyn EndpointPump, ServiceFlags), Error> {
        let flags = self.service.flags();
        match self.pump.get() {
            Some(pump) if flags.contains(ServiceFlags::ENABLED) => Ok((&**pump, flags)),
            _ => Err(Misuse::State(ObjectState::EndpointNotEnabled).into()),
        }
    }

    #[inline]
    fn check_caps(&self, needed: Caps) -> Result<(), Error> {
        if self.info.caps.contains(needed) { Ok(()) } else { self.check_missing_caps(needed) }
    }

    /// Other providers do not check directions, and programs rely on that. So an operation in a direction
    /// that the endpoint lacks is posted if a queue or counter notices its end.
    #[cold]
    fn check_missing_caps(&self, needed: Caps) -> Result<(), Error> {
        const DIRECTIONS: Caps = Caps::SEND.union(Caps::RECV).union(Caps::READ).union(Caps::WRITE);
        let missing = needed - self.info.caps;
        let is_reported = || self.setup.lock().check_completions_reported(missing).is_ok();
        if DIRECTIONS.contains(missing) && is_reported() {
            Ok(())
        } else {
            Err(Misuse::NoCapability(missing).into())
        }
    }
}

impl Drop for EndpointShared {
    fn drop(&mut self) {
        let setup = self.setup.get_mut();
        if let Some(pump) = self.pump.get() {
            let driven = &as_drive(pump);
            setup.stop_driving_endpoint(driven);
            if let Some(context) = setup.receive_context() {
                context.members().leave(pump);
            }
            if self.is_driven_by_domain_counters() {
                self.domain.domain_counters().remove_endpoint(driven);
            }
            if let Some(reporter) = self.reporter.get() {
                reporter.eq().remove_endpoint(driven);
            }
            if let Some(progress_thread) = self.progress_thread() {
                progress_thread.remove_endpoint(driven);
            }
            self.domain.work_queue().drop_waiting_works_of_endpoint(&**pump);
            let linger = match mutated!("fi_endpoint/close-discards-operations") {
                true => Duration::ZERO,
                false => self.domain.close_linger(),
            };
            pump.close(linger);
            self.domain.work_queue().drop_all_works_of_endpoint(&**pump);
        }
        if let Some(reporter) = self.reporter.get() {
            reporter.drop_entries();
            drop(reporter.take_unsettled_accept());
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.shared.pump.get().map(|pump| pump.address()))
            .field("enabled", &self.shared.service.is_enabled())
            .finish_non_exhaustive()
    }
}

/// Returns the accesses that peers may make at an endpoint with these capabilities, by operations of one
/// kind (`RMA` or `ATOMIC`).
fn granted_remote_access(caps: Caps, kind: Caps) -> MrAccess {
    let mut access = MrAccess::empty();
    access.set(MrAccess::REMOTE_READ, caps.contains(kind | Caps::REMOTE_READ));
    access.set(MrAccess::REMOTE_WRITE, caps.contains(kind | Caps::REMOTE_WRITE));
    access
}

#[cfg(test)]
mod tests;
