//! The endpoint with deferred work, the counters, and the peer of the endpoint's operations.

use homespun::flags::{BindFlags, Caps, MrAccess, Order};
use homespun::info::{RxAttr, SHARED_CONTEXT, TxAttr};
use homespun::trigger::{DeferredAction, Operation, Trigger};
use homespun::{
    AvAttr, CompletionQueue, Counter, CounterAttr, CqAttr, Domain, Endpoint, Error, FabricAddress, RecvMsg,
    SharedReceiveContext,
};

use super::program::{CounterName, Program};
use super::reference::{COUNTING, Counted, KNOWN};
use crate::model::run::close_while_driving;
use crate::{MemoryKind, Net, Party, Region, RegionSpec, Setup};

/// The offset of the number to which all additions add.
pub(super) const SUM_AT: usize = 0;
/// The offset of the number that is read and never changed.
pub(super) const CONSTANT_AT: usize = 8;
pub(super) const CONSTANT: u64 = 0x1234_5678_9abc_def0;
/// The offset of the first work's own number.
const OWN_AT: usize = 16;

/// The fabric address of either endpoint in the other's address vector.
pub(super) const PEER: FabricAddress = FabricAddress(0);

/// Returns the offset of a work's own number in the region of the peer.
pub(super) fn own_number_offset(work: usize) -> usize {
    OWN_AT + work * size_of::<u64>()
}

pub(super) struct WorkFixture<'a> {
    net: &'a Net,
    pub(super) domain: Domain,
    /// `None` once it is closed.
    endpoint: Option<Endpoint>,
    /// The shared context of the endpoint's receives, if the endpoint has one.
    receive_context: Option<SharedReceiveContext>,
    pub(super) cq: CompletionQueue,
    known: [Counter; KNOWN],
    counting: [Counter; COUNTING],
    pub(super) region: Region,
    pub(super) peer: Party,
}

impl<'a> WorkFixture<'a> {
    pub(super) fn open(net: &'a Net, program: &Program) -> WorkFixture<'a> {
        let domain = net.open_other_domain();
        let mut info = net.info().clone();
        info.caps |= Caps::TRIGGER;
        if program.depth_ops > 0 {
            info.tx.size_ops = program.depth_ops;
        }
        // Have messages and atomic operations take effect in posting order.
        info.tx.msg_order |= Order::STRICT;
        info.rx.msg_order |= Order::STRICT;
        let receive_context = program.shares_receives.then(|| {
            info.ep.rx_ctx_cnt = SHARED_CONTEXT;
            let attr = RxAttr { caps: info.rx.caps | Caps::TRIGGER, ..RxAttr::default() };
            domain.shared_receive_context(&attr).expect("a receive context")
        });
        let transmit_context = program.shares_transmits.then(|| {
            info.ep.tx_ctx_cnt = SHARED_CONTEXT;
            let attr = TxAttr { caps: info.tx.caps | Caps::TRIGGER, ..info.tx.clone() };
            domain.shared_transmit_context(&attr).expect("a transmit context")
        });
        let (cq, av) = (domain.open_cq(&CqAttr::default()), domain.open_av(&AvAttr::default()));
        let (cq, av) = (cq.expect("a queue"), av.expect("an address vector"));
        let endpoint = domain.endpoint(&info).expect("an endpoint");
        endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV).expect("the first queue");
        endpoint.bind_av(&av).expect("the first address vector");
        if let Some(context) = &receive_context {
            endpoint.bind_shared_receive_context(context).expect("the first receive context");
        }
        if let Some(context) = &transmit_context {
            endpoint.bind_shared_transmit_context(context).expect("the first transmit context");
        }
        endpoint.enable().expect("nothing is missing");
        let peer = net.open_party_with(Setup { order: Order::STRICT, ..Setup::default() });
        av.insert_one(peer.endpoint.name().expect("a name")).expect("the peer's name");
        peer.av.insert(&[endpoint.name().expect("a name")]).remove(0).expect("the endpoint's name");
        let region = open_region(&peer, program.steps.len());
        let counter = || domain.open_counter(&CounterAttr::default()).expect("a counter");
        let (known, counting) = ([(); KNOWN].map(|()| counter()), [(); COUNTING].map(|()| counter()));
        let endpoint = Some(endpoint);
        WorkFixture { net, endpoint, receive_context, cq, known, counting, region, peer, domain }
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        self.endpoint.as_ref().expect("it is open")
    }

    /// Posts a receive to the endpoint, or to the context of its receives.
    pub(super) fn post_receive(&self, receive: RecvMsg) {
        let posted = match &self.receive_context {
            Some(context) => context.recvmsg(receive),
            None => self.endpoint().recvmsg(receive),
        };
        posted.expect("room for a receive");
    }

    /// Posts a triggered operation.
    pub(super) fn post_triggered(&self, trigger: &Trigger, operation: Operation) {
        let posted = match (&self.receive_context, operation) {
            (Some(context), Operation::Receive(receive)) => context.trigger(trigger, receive),
            (_, operation) => self.endpoint().trigger(trigger, operation),
        };
        posted.expect("room for a triggered operation");
    }

    /// Returns the action of deferred work that posts an operation.
    pub(super) fn make_post_action(&self, operation: Operation) -> DeferredAction {
        match (&self.receive_context, operation) {
            (Some(context), Operation::Receive(receive)) => {
                DeferredAction::Receive { receive_context: context.clone(), receive }
            }
            (_, operation) => DeferredAction::Post { endpoint: self.endpoint().clone(), operation },
        }
    }

    /// Cancels an operation with this context.
    pub(super) fn cancel(&self, is_receive: bool, context: u64) -> Result<(), Error> {
        match &self.receive_context {
            Some(receive_context) if is_receive => receive_context.cancel(context),
            _ => self.endpoint().cancel(context),
        }
    }

    pub(super) fn counter(&self, name: CounterName) -> &Counter {
        match name {
            CounterName::Known(number) => &self.known[number],
            CounterName::Counting(number) => &self.counting[number],
        }
    }

    pub(super) fn values_of_known_counters(&self) -> [Counted; KNOWN] {
        self.known.each_ref().map(|counter| (counter.read(), counter.read_error()))
    }

    pub(super) fn values_of_counting_counters(&self) -> [Counted; COUNTING] {
        self.counting.each_ref().map(|counter| (counter.read(), counter.read_error()))
    }

    /// Drives both sides without reading entries.
    pub(super) fn progress(&self) {
        self.cq.progress();
        self.net.progress();
    }
}

fn open_region(peer: &Party, works: usize) -> Region {
    let access = MrAccess::REMOTE_READ | MrAccess::REMOTE_WRITE;
    let len_bytes = own_number_offset(works);
    let memory = RegionSpec { len_bytes, kind: MemoryKind::Owned, access, key: 1, is_counted: false };
    let region = peer.register(memory).expect("no other region has the key");
    region.write_at(0, &vec![0; len_bytes]);
    region.write_at(CONSTANT_AT, &CONSTANT.to_le_bytes());
    region
}

impl WorkFixture<'_> {
    /// Closes the endpoint and the shared receive context. Drives the peer meanwhile, since closing waits
    /// for the peer.
    pub(super) fn close_endpoint(&mut self) {
        close_while_driving(self.net, (self.endpoint.take(), self.receive_context.take()));
    }
}

impl Drop for WorkFixture<'_> {
    fn drop(&mut self) {
        self.close_endpoint();
    }
}
