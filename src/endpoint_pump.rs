//! A pump as its endpoint sees it: the calls of the application, and the objects that the pump reports to.

use std::sync::Arc;
use std::time::Duration;

use homespun_engine::address::Address;
use homespun_engine::connection::{RequestId, Requester};
use homespun_engine::engine::Config;
use homespun_engine::error::Error;
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
use crate::shared_receive_context::ReceiveContext;
use crate::works::queue::WorkQueue;

/// A pump as its endpoint sees it.
pub(crate) trait EndpointPump: Drive + Poster + Connect {
    fn address(&self) -> Address;
    fn enable(&self, wiring: Bindings) -> Result<(), Error>;
    /// Reports to these queues and counters from now on.
    fn rebind_queues_and_counters(
        &self,
        transmit_cq: Option<Arc<CqShared>>,
        receive_cq: Option<Arc<CqShared>>,
        counters: BoundCounters,
    );
    /// Sends a small message, if that is possible at once. Whether it was sent; if not, it is to be posted.
    fn try_inject(
        &self,
        to: FabricAddress,
        tag: Option<u64>,
        data: Option<u64>,
        message: &[u8],
    ) -> Result<bool, Error>;
    /// Writes a few bytes to a region, if that is possible at once. Whether they were written; if not, it is
    /// to be posted.
    fn try_inject_write(&self, to: FabricAddress, bytes: &[u8], memory: RemoteMemory) -> Result<bool, Error>;
    /// Receives through a shared context, from the moment that it is enabled.
    fn share_receiver(&self, context: &Arc<ReceiveContext>, is_selective: bool) -> Result<MemberId, Error>;
    /// Undoes [`share_receiver`](Self::share_receiver), for an endpoint that is not enabled.
    fn leave_receiver(&self);
    /// Carries out the effects that other endpoints of its receive context have left to it. The caller then
    /// [fires](Drive::fire_due_works) the works that are due by that.
    fn process_mail(&self);
    /// Carries out the works of its domain that it makes due, from now on.
    fn attach_work_queue(&self, works: &Arc<WorkQueue>);
    /// Ends the endpoint. Waits up to `linger` until its messages were sent.
    fn close(&self, linger: Duration);
}

/// A pump as calls see it that make and end connections.
pub(crate) trait Connect {
    /// Asks the passive endpoint at `to` for a connection.
    fn connect(&self, to: Address, number: u64, data: &[u8]) -> Result<(), Error>;
    /// Accepts a request that a passive endpoint has received.
    fn accept(&self, requester: Requester, data: &[u8]) -> Result<(), Error>;
    /// Ends the connection. Cancelled operations were reported when it returns.
    fn shut_down(&self) -> Result<(), Error>;
    /// Listens, with up to so many requests waiting.
    fn listen(&self, backlog_requests: usize) -> Result<(), Error>;
    /// Stops listening: peers can make no more requests.
    fn stop_listening(&self);
    fn reject(&self, request: RequestId, data: &[u8]) -> Result<(), Error>;
    /// An endpoint is about to accept a request, so that it waits no longer.
    fn begin_accepting(&self, request: RequestId);
    /// A request was accepted, or its acceptor has failed: ends the requester's wait.
    fn settle_request(&self, request: RequestId);
    /// Makes of a passive endpoint that is not in use an endpoint of another kind, with the same address.
    fn become_active(&self, config: Config, regions: Arc<Regions>) -> Result<(), Error>;
}

/// The connection that an endpoint gets when it is enabled.
pub(crate) struct Bindings {
    pub(crate) av: AddressVector,
    pub(crate) transmit_cq: Option<Arc<CqShared>>,
    pub(crate) receive_cq: Option<Arc<CqShared>>,
    pub(crate) counters: BoundCounters,
    /// The domain's counters that drive the endpoint, if they do.
    pub(crate) domain_counters: Option<Arc<DomainCounters>>,
    /// Takes the events of its connections.
    pub(crate) reporter: Option<Arc<Reporter>>,
    /// Whether completions name their source.
    pub(crate) wants_source: bool,
    /// Whether a source that has no name makes an error of its completion.
    pub(crate) reports_unknown_sources: bool,
    /// Whether its receives are those of a context that other endpoints share.
    pub(crate) shares_receiver: bool,
    /// Wakes the progress thread, if the endpoint has one.
    pub(crate) progress_doorbell: Option<Arc<Doorbell>>,
    /// Records the ends of deferred work.
    pub(crate) works: Arc<WorkQueue>,
}

/// Returns a pump as the objects that drive it see it.
pub(crate) fn as_drive(pump: &Arc<dyn EndpointPump>) -> Arc<dyn Drive> {
    pump.clone()
}
