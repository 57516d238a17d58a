//! An endpoint with its queue and address vector, as most tests need it.

mod counting;
mod steps;

use std::sync::Arc;

use homespun::flags::{BindFlags, CompletionFlags, MrAccess, OpFlags};
use homespun::info::Info;
use homespun::{
    Address, AvAttr, Completion, CompletionError, CompletionQueue, CqAttr, Domain, Errno, Error,
    FabricAddress, SendMsg,
};

use super::call::{AddressForm, QueueName, RemoteAnswer, RemoteCall};
use super::connecting::Side;
use super::counters::Counters;
use super::deadline::{Deadline, poll_until};
use super::driven_queues::DrivenQueues;
use super::ended::Ended;
use super::handle::{Endpoint, Queue, Vector};
use super::payload::{marked_buffer, payload, received_bytes};
use super::provider::Provider;
use super::region_spec::{MemoryKind, RegionSpec};
use super::regions::{Region, Registered};
use super::remote_party::RemoteParty;
use super::setup::{BOTH, Setup};
use super::transport::TransportKind;

/// The number of rounds without an event that count as silence.
const SILENT_ROUNDS: usize = 200;

/// An enabled endpoint, its queue and its address vector.
#[derive(Debug)]
pub struct Party {
    /// The endpoint, enabled.
    pub endpoint: Endpoint,
    /// The queue of sends; of receives, too, if `receive_cq` is `None`.
    pub cq: Queue,
    /// The queue of receives, if they have their own.
    pub receive_cq: Option<Queue>,
    /// The address vector.
    pub av: Vector,
    pub(super) counters: Option<Counters>,
    /// The domain of a party in this process.
    pub(super) domain: Option<Domain>,
    queues: Arc<DrivenQueues>,
    /// The provider that serves the party behind the C interface.
    provider: Option<Provider>,
}

impl Party {
    pub(super) fn open(domain: &Domain, info: &Info, setup: Setup, queues: Arc<DrivenQueues>) -> Party {
        let info = setup.info_from_offered(info);
        let attr = CqAttr {
            size_entries: setup.cq_depth_entries,
            format: setup.cq_format,
            wait: setup.wait,
            wait_set: setup.wait_set.clone(),
        };
        let open_cq = || domain.open_cq(&attr).expect("a queue of this size");
        let cq = setup.shares_cq.unwrap_or_else(open_cq);
        let receive_cq = setup.separate_queues.then(open_cq);
        let av = domain.open_av(&AvAttr::default()).expect("an address vector");
        let endpoint = domain.endpoint(&info).expect("an endpoint");
        let buffers_of = setup.sends_from_buffers.then(|| domain.clone());
        let selective = if setup.selective { BindFlags::SELECTIVE_COMPLETION } else { BindFlags::empty() };
        let at_first = if receive_cq.is_some() { BindFlags::TRANSMIT } else { BOTH };
        endpoint.bind_cq(&cq, at_first | selective).expect("the first queue");
        if let Some(receive_cq) = &receive_cq {
            endpoint.bind_cq(receive_cq, BindFlags::RECV | selective).expect("the first queue");
        }
        endpoint.bind_av(&av).expect("the first address vector");
        let counters =
            setup.counts.then(|| Counters::bind_all_events(domain, &endpoint, setup.wait, setup.wait_set));
        // An endpoint of another test may hold the address for a moment, if it asked for any free port.
        let deadline = Deadline::new();
        while let Err(error) = endpoint.enable() {
            let is_taken = setup.at.is_some() && error.errno() == Errno::EADDRINUSE;
            assert!(is_taken, "an endpoint with all required objects is refused: {error}");
            deadline.yield_or_panic("an address to be free");
        }
        Party {
            endpoint: Endpoint::new_local(endpoint, buffers_of).closing_with(&queues),
            cq: Queue::Here(cq),
            receive_cq: receive_cq.map(Queue::Here),
            av: Vector::Here(av),
            counters,
            domain: Some(domain.clone()),
            queues,
            provider: None,
        }
    }

    /// Makes a party of a connected endpoint of this process.
    pub(super) fn of_connection(side: &Side, endpoint: Endpoint, queues: Arc<DrivenQueues>) -> Party {
        Party {
            endpoint: endpoint.closing_with(&queues),
            cq: side.cq.clone(),
            receive_cq: None,
            av: Vector::Here(side.domain.open_av(&AvAttr::default()).expect("an address vector")),
            counters: None,
            domain: Some(Domain::clone(&side.domain)),
            queues,
            provider: None,
        }
    }

    /// Opens a party that answers calls: behind the C interface if it `is_here`, or else in a process of its
    /// own, which drives the party, unless [`Setup::asleep`] is set.
    pub(super) fn open_answering(
        transport: &TransportKind,
        domain: &Domain,
        info: &Info,
        setup: Setup,
        queues: Arc<DrivenQueues>,
        is_here: bool,
    ) -> Party {
        assert!(setup.shares_cq.is_none(), "processes do not share queues");
        let (has_two_queues, counts) = (setup.separate_queues, setup.counts);
        let asked = setup.info_from_offered(info);
        let (remote, opened) = RemoteParty::open(transport, setup, false, is_here);
        let granted = match opened.granted {
            Some(granted) => granted.limit(asked),
            // homespun grants an endpoint the same attributes in every process.
            None => domain.endpoint(&asked).expect("an endpoint").info().clone(),
        };
        let queue = |name| Queue::new_remote(&remote, name, &opened);
        let name = Some(opened.name.0);
        let provider = match transport {
            TransportKind::Provider(provider) => Some(provider.clone()),
            _ => None,
        };
        Party {
            endpoint: Endpoint::new_remote(remote.clone(), name, granted).closing_with(&queues),
            cq: queue(QueueName::First),
            receive_cq: has_two_queues.then(|| queue(QueueName::Receive)),
            av: Vector::There(remote.clone()),
            counters: counts.then(|| Counters::There(remote.clone())),
            domain: None,
            queues,
            provider,
        }
    }

    /// Whether homespun's own library serves the party: its errors say more than the C interface tells.
    pub fn is_native(&self) -> bool {
        self.provider.is_none()
    }

    /// Whether the party is of homespun, perhaps behind the C interface. Then it keeps promises beyond the
    /// man pages.
    pub fn is_homespun(&self) -> bool {
        self.provider.as_ref().is_none_or(Provider::is_homespun)
    }

    /// The process id of the party's process.
    pub fn process_id(&self) -> u32 {
        if self.cq.is_here() { std::process::id() } else { self.remote().lock_process().id() }
    }

    /// Kills the party's process, which must not be the test's own.
    pub fn kill(&self) {
        self.remote().lock_process().kill();
    }

    /// Makes the system refuse, with this error, copies between the party's process and others. The party
    /// must not be in the test's own process.
    pub fn fail_process_copies_with(&self, errno: i32) {
        self.remote().call(RemoteCall::RefuseCopies(errno)).result().expect("a process may confine itself");
    }

    /// Forks the party's process, which must not be the test's own. The child does nothing. A child that
    /// lingers ends when the test closes its channel to the party's process. Otherwise the child ends at
    /// once.
    pub fn fork_idle_child(&self, lingers: bool) {
        self.remote().call(RemoteCall::Fork { lingers }).result().expect("a process may fork");
    }

    /// Forks the party's process, which must not be the test's own. At the inherited endpoint, the child
    /// posts sends, receives and a write to the peer's region. It checks that the sends and the write fail,
    /// and that the receives stay posted until it cancels them. Then it closes the inherited regions, and
    /// sends `message` from a new endpoint. Returns when the child has ended.
    #[track_caller]
    pub fn fork_child_that_fails_on_inherited_endpoint_and_sends_from_its_own(
        &self,
        peer: &Party,
        region: &Region,
        message: &[u8],
    ) {
        let peer = AddressForm(peer.endpoint.name().expect("an endpoint in service has a name"));
        let call = RemoteCall::ForkCaller { peer, region: region.memory(), message: message.to_vec() };
        self.remote().call(call).result().expect("a process may fork");
    }

    /// Stops the party's process, which must not be the test's own. The party answers no call until the test
    /// [resumes](Self::resume) the process.
    pub fn stop(&self) {
        self.remote().lock_process().stop();
    }

    /// Resumes the party's process.
    pub fn resume(&self) {
        self.remote().lock_process().resume();
    }

    #[track_caller]
    fn remote(&self) -> &Arc<RemoteParty> {
        match &self.cq {
            Queue::Here(_) => panic!("the party lives in this process"),
            Queue::There { remote, .. } => remote,
        }
    }

    /// Registers memory that peers may access.
    pub fn register(&self, spec: RegionSpec) -> Result<Region, Error> {
        if let Some(domain) = &self.domain {
            return Registered::new(domain, spec).map(Region::new_local);
        }
        let remote = self.remote();
        match remote.call(RemoteCall::Register(spec)).granted()? {
            RemoteAnswer::Registered(number, memory) => {
                Ok(Region::new_remote(remote.clone(), number, memory, spec.len_bytes))
            }
            other => panic!("{other:?}"),
        }
    }

    /// Registers memory that peers may read and write.
    #[track_caller]
    pub fn open_region(&self, len_bytes: usize, kind: MemoryKind, key: u64) -> Region {
        self.register(RegionSpec::new(len_bytes, kind, key)).expect("a region")
    }

    /// Registers the memory of a raw region of this process again, with these access rights and this key.
    pub fn register_again(&self, region: &Region, access: MrAccess, key: u64) -> Result<Region, Error> {
        region.register_again(self.local_domain(), access, key)
    }

    /// Inserts an address.
    pub fn insert(&self, address: Address) -> FabricAddress {
        self.av.insert(&[address]).remove(0).expect("the address can be inserted")
    }

    /// Inserts the address of each party into the vector of the other. Returns that of the other.
    pub fn meet(&self, other: &Party) -> FabricAddress {
        other.insert_address_of(self);
        self.insert_address_of(other)
    }

    /// Inserts another party's address.
    pub fn insert_address_of(&self, other: &Party) -> FabricAddress {
        self.insert(other.endpoint.name().expect("an endpoint in service has a name"))
    }

    /// Returns the fabric address of another party.
    pub fn fabric_address_of(&self, other: &Party) -> FabricAddress {
        let name = other.endpoint.name().expect("an endpoint in service has a name");
        self.av.reverse_lookup(&name).expect("the other was met")
    }

    /// Returns the fabric address that was inserted first. In a test with two parties, this is the peer's
    /// address.
    pub fn peer(&self) -> FabricAddress {
        FabricAddress(0)
    }

    /// The queue of receives alone, for a party in this process.
    #[track_caller]
    pub fn local_receive_cq(&self) -> &CompletionQueue {
        self.receive_cq.as_ref().expect("a queue of its own for receives").expect_local()
    }

    /// The queue, for a party in this process.
    #[track_caller]
    pub fn local_cq(&self) -> &CompletionQueue {
        self.cq.expect_local()
    }

    /// The domain, for a party in this process.
    #[track_caller]
    pub fn local_domain(&self) -> &Domain {
        self.domain.as_ref().expect("the party lives in another process")
    }

    /// Reads a completion or an error entry from `cq`, if there is one. Does not drive other parties.
    pub fn poll_completion(&self) -> Option<Ended> {
        self.cq.poll_completion()
    }

    /// Exchanges a message each way. The two parties have each other's address. The messages are too long to
    /// be sent inline.
    #[track_caller]
    pub fn exchange_long_messages(&self, other: &Party) {
        const LEN_BYTES: usize = 100_000;
        for (from, to) in [(self, other), (other, self)] {
            let any = FabricAddress::UNSPECIFIED;
            to.endpoint.recv(marked_buffer(LEN_BYTES), any, 1).expect("room for a receive");
            from.endpoint
                .send(payload(1, LEN_BYTES), from.fabric_address_of(to), 2)
                .expect("room for a send");
            assert!(received_bytes(&to.next_completion().buffer) == payload(1, LEN_BYTES));
            assert_eq!(from.next_completion().context, 2);
        }
    }

    /// Waits for the next operation to end.
    #[track_caller]
    pub fn next_ended(&self) -> Ended {
        self.next_ended_of(&self.cq)
    }

    /// Waits until the next operation that reports to this queue ends.
    #[track_caller]
    pub fn next_ended_of(&self, queue: &Queue) -> Ended {
        poll_until("a completion", || {
            let ended = queue.poll_patiently();
            if ended.is_none() && queue.is_here() {
                self.queues.progress();
            }
            ended
        })
    }

    /// Waits for the next operation to end, which must succeed.
    #[track_caller]
    pub fn next_completion(&self) -> Completion {
        self.next_completion_with_source().0
    }

    /// As [`next_completion`](Self::next_completion), but also returns the source of a received message.
    #[track_caller]
    pub fn next_completion_with_source(&self) -> (Completion, FabricAddress) {
        match self.next_ended() {
            Ok(completed) => completed,
            Err(failed) => panic!("an operation failed: {failed:?}"),
        }
    }

    /// Waits for the next operation to end, which must fail.
    #[track_caller]
    pub fn next_failure(&self) -> CompletionError {
        match self.next_ended() {
            Err(failed) => failed,
            Ok((completion, _)) => panic!("an operation did not fail: {completion:?}"),
        }
    }

    /// Waits until `count` operations have succeeded. Returns the completions of the sends, and the
    /// completions of the other operations. Panics if an operation fails.
    #[track_caller]
    pub fn next_completions_of_sends_and_others(&self, count: usize) -> (Vec<Completion>, Vec<Completion>) {
        let all: Vec<Completion> = (0..count).map(|_| self.next_completion()).collect();
        all.into_iter().partition(|completion| completion.flags.contains(CompletionFlags::SEND))
    }

    /// Drives all parties once, without reading a completion.
    pub fn progress_all(&self) {
        self.queues.progress();
    }

    /// Drives all parties for some rounds. Panics if an operation that reports to `cq` ends meanwhile.
    #[track_caller]
    pub fn assert_no_completion(&self) {
        for _ in 0..SILENT_ROUNDS {
            self.queues.progress();
            if let Some(ended) = self.poll_completion() {
                panic!("no operation was to end, but this one did: {ended:?}");
            }
        }
    }

    /// Sends a message, and waits until the peer has received all of it.
    #[track_caller]
    pub fn send_and_wait_for_delivery(&self, send: SendMsg) {
        let context = send.context;
        let flags = send.flags | OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION;
        self.endpoint.sendmsg(SendMsg { flags, ..send }).expect("a send is accepted");
        let completion = self.next_completion();
        assert_eq!(completion.context, context);
        assert!(completion.flags.contains(CompletionFlags::SEND));
    }
}
