//! The interface of a pump to its endpoint: the calls of the application, and the objects that the endpoint
//! gives to the pump.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use homespun_engine::address::Address;
use homespun_engine::buffer::Destination;
use homespun_engine::connection::{RequestId, Requester};
use homespun_engine::engine::Config;
use homespun_engine::error::Error;
use homespun_engine::operation::Signalled;
use homespun_engine::region::Regions;
use homespun_engine::remote_memory::RemoteMemory;
use homespun_engine::shared_receiver::MemberId;

use crate::av::{AddressVector, FabricAddress};
use crate::counter::{BoundCounters, DomainCounters};
use crate::cq::CqShared;
use crate::doorbell::Doorbell;
use crate::drive::Drive;
use crate::eq::Reporter;
use crate::poster::Poster;
use crate::send_msg::SendMsg;
use crate::shared_receive_context::ReceiveContext;
use crate::tag::TagMatch;
use crate::works::queue::WorkQueue;

/// A pump, as its endpoint sees it.
pub(crate) trait EndpointPump: Drive + Poster + Connect {
    fn address(&self) -> Address;
    fn enable(&self, bindings: Bindings) -> Result<(), Error>;
    /// Reports to these queues and counters from now on.
    fn rebind_queues_and_counters(
        &self,
        transmit_cq: Option<Arc<CqShared>>,
        receive_cq: Option<Arc<CqShared>>,
        counters: BoundCounters,
    );
    /// Sends a small message by the send lane, if nothing holds it back. Returns whether the message was
    /// sent. If not, nothing has changed, and the caller posts the message. The lane ignores the flags: the
    /// caller has found that they allow it. If `owned` is given, it is the message, and the completion hands
    /// it back.
    fn try_send_at_once(
        &self,
        send: &SendMsg<&[u8]>,
        signalled: Signalled,
        owned: Option<&mut Bytes>,
    ) -> bool;
    /// Posts a receive of one message by the receive lane, if it has to wait for its message and nothing else
    /// is to be done. Returns whether it was posted. If so, the memory was taken. If not, nothing has
    /// changed, and the caller posts the receive.
    fn try_post_waiting_receive(
        &self,
        from: FabricAddress,
        tagged: Option<&TagMatch>,
        context: u64,
        signalled: Signalled,
        destination: &mut Destination,
    ) -> bool;
    /// Writes or sends a few bytes to a region if that is possible at once. Returns whether it was. If not,
    /// the caller posts a write.
    fn try_inject_write(
        &self,
        to: FabricAddress,
        bytes: &[u8],
        memory: RemoteMemory,
        data: Option<u64>,
    ) -> Result<bool, Error>;
    /// Makes the endpoint receive through a shared context, once the endpoint is enabled.
    fn join_shared_receiver(
        &self,
        context: &Arc<ReceiveContext>,
        is_selective: bool,
    ) -> Result<MemberId, Error>;
    /// Undoes [`join_shared_receiver`](Self::join_shared_receiver), for an endpoint that is not enabled.
    fn leave_shared_receiver(&self);
    /// Carries out what other endpoints of the shared receive context have left for this endpoint to do.
    /// The caller then [runs](Drive::fire_due_works) the due works.
    fn process_mail(&self);
    /// Makes the pump run the due works of this queue, after each call or poll that may have changed a
    /// counter.
    fn attach_work_queue(&self, works: &Arc<WorkQueue>);
    /// Closes the endpoint. Waits until the endpoint's messages are sent, but at most for `linger`.
    fn close(&self, linger: Duration);
}

/// The calls of a pump that begin and end connections.
pub(crate) trait Connect {
    /// Asks the passive endpoint at `to` for a connection. If there is no answer within `timeout`, the
    /// attempt fails.
    fn connect(&self, to: Address, number: u64, data: &[u8], timeout: Option<Duration>) -> Result<(), Error>;
    /// Accepts a request that a passive endpoint has received. From then on, the endpoint accepts no links of
    /// peers: the only link that it needs is its own to the requester.
    fn accept(&self, requester: Requester, data: &[u8]) -> Result<(), Error>;
    /// As [`accept`](Self::accept), for a request whose requester is known to be gone.
    fn accept_withdrawn(&self) -> Result<(), Error>;
    /// Ends the connection, and cancels outstanding operations. Reports their ends before it returns.
    fn shut_down(&self) -> Result<(), Error>;
    /// Listens, with up to this many requests waiting.
    fn listen(&self, backlog_requests: usize) -> Result<(), Error>;
    /// Stops listening: peers can make no more requests.
    fn stop_listening(&self);
    fn reject(&self, request: RequestId, data: &[u8]) -> Result<(), Error>;
    /// Records that an endpoint is about to accept this request. The request no longer counts as waiting.
    /// Returns false if the requester is known to be gone.
    fn mark_request_being_accepted(&self, request: RequestId) -> bool;
    /// Ends the requester's wait: its request was accepted, or the accepting endpoint has failed.
    fn end_accepted_request(&self, request: RequestId);
    /// Turns a passive endpoint that does not listen into an active endpoint with the same address.
    fn become_active(&self, config: Config, regions: Arc<Regions>) -> Result<(), Error>;
}

/// The objects that a pump uses from the moment its endpoint is enabled.
pub(crate) struct Bindings {
    pub(crate) av: AddressVector,
    pub(crate) transmit_cq: Option<Arc<CqShared>>,
    pub(crate) receive_cq: Option<Arc<CqShared>>,
    pub(crate) counters: BoundCounters,
    /// The domain's counters, if they drive the endpoint.
    pub(crate) domain_counters: Option<Arc<DomainCounters>>,
    /// Reports the events of the endpoint's connections to the event queue.
    pub(crate) reporter: Option<Arc<Reporter>>,
    /// Whether completions name their source.
    pub(crate) wants_source: bool,
    /// Whether a receive is reported as an error if the address vector does not have its sender.
    pub(crate) reports_unknown_sources: bool,
    /// Whether the endpoint receives through a context that it shares with other endpoints.
    pub(crate) shares_receiver: bool,
    /// Whether the connection ends with the first operation that fails.
    pub(crate) ends_on_failure: bool,
    /// Wakes the progress thread, if the endpoint has one.
    pub(crate) progress_doorbell: Option<Arc<Doorbell>>,
    /// Records the ends of deferred work.
    pub(crate) works: Arc<WorkQueue>,
}

/// Returns a pump as a [`Drive`], for the objects that drive it.
pub(crate) fn as_drive(pump: &Arc<dyn EndpointPump>) -> Arc<dyn Drive> {
    pump.clone()
}
