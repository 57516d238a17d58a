//! The part of a party that runs in the party's own process. It carries out the calls of the test.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use homespun::{Address, AddressVector, Bytes, CompletionQueue, CounterEvents, Domain, Error, FabricAddress};

use super::call::{AddressForm, Direction, QueueName, RefusedForm, RemoteAnswer, RemoteCall};
use super::counters::Counters;
use super::ended::{Ended, poll_completion};
use super::forked_child;
use super::form::EndedForm;
use super::handle::{Endpoint, Queue};
use super::net::Net;
use super::party::Party;
use super::posix::{become_user, fork_idle_child, run_in_forked_child};
use super::process::Channel;
use super::raw::{RawBuffer, RawMemory};
use super::regions::Registered;
use super::seccomp::{COPIES_ACROSS, fail_system_calls_of_process};
use super::transport::{TransportKind, Turns};

/// After this many rounds without a call, the process sleeps between two rounds.
const BUSY_ROUNDS: usize = 100;

/// The length of the sleep between rounds, which a call ends early.
const SLEEP: Duration = Duration::from_millis(1);

/// For this many rounds a party waits for a completion. Then it answers that there is none.
pub(super) const WAITING_ROUNDS: usize = 1000;

/// The party inside its process.
struct PartyServer {
    transport: TransportKind,
    /// `None` once it is closed; its completions can still be read.
    endpoint: Option<Endpoint>,
    cq: CompletionQueue,
    receive_cq: Option<CompletionQueue>,
    av: AddressVector,
    counters: Option<Counters>,
    drives_itself: bool,
    /// The memory of raw receives, by context.
    rooms: BTreeMap<u64, RawBuffer>,
    domain: Domain,
    /// The regions by number.
    regions: BTreeMap<usize, Registered>,
    next_region: usize,
    /// The memory of closed raw regions.
    closed: BTreeMap<usize, RawMemory>,
}

impl PartyServer {
    fn new(transport: TransportKind, party: Party, drives_itself: bool) -> PartyServer {
        let Party { endpoint, cq, receive_cq, av, counters, domain, .. } = party;
        let queue = |queue: Queue| queue.expect_local().clone();
        PartyServer {
            transport,
            endpoint: Some(endpoint),
            cq: queue(cq),
            receive_cq: receive_cq.map(queue),
            av: av.expect_local().clone(),
            counters,
            drives_itself,
            rooms: BTreeMap::new(),
            domain: domain.expect("the party lives here"),
            regions: BTreeMap::new(),
            next_region: 0,
            closed: BTreeMap::new(),
        }
    }

    fn serve(mut self, channel: &mut Channel) {
        loop {
            if self.drives_itself {
                drive_until_called(channel, || self.progress());
            }
            let Some(call) = channel.receive_message().expect("a test that asks") else { return };
            let answer = self.execute_call(call);
            channel.send_message(&answer).expect("a test that listens");
        }
    }

    fn progress(&self) {
        self.cq.progress();
        if let Some(receive_cq) = &self.receive_cq {
            receive_cq.progress();
        }
    }

    fn execute_call(&mut self, call: RemoteCall) -> RemoteAnswer {
        match call {
            RemoteCall::Open { .. } => panic!("the party is open"),
            RemoteCall::StartDriving => self.drives_itself = true,
            RemoteCall::Progress => self.progress(),
            RemoteCall::RefuseCopies { errno } => fail_system_calls_of_process(&COPIES_ACROSS, errno),
            RemoteCall::Fork { lingers } => fork_idle_child(lingers),
            RemoteCall::ForkCaller { peer: AddressForm(peer), region, message } => {
                // Besides this thread, only the thread that waits for the end of the test may exist.
                run_in_forked_child(|| {
                    let endpoint = self.endpoint.take().expect("the party has an endpoint");
                    forked_child::check_inherited_endpoint_is_unusable(
                        endpoint, &self.cq, &self.av, peer, region,
                    );
                    self.regions.clear();
                    forked_child::send_from_new_endpoint(&self.transport, peer, Bytes::from(message));
                });
            }
            RemoteCall::CloseEndpoint => self.endpoint = None,
            RemoteCall::Poll(name) => {
                return RemoteAnswer::Ended(poll_completion(self.queue(name)).map(EndedForm::from));
            }
            RemoteCall::Next(name) => {
                return RemoteAnswer::Ended(self.next_ended_within_rounds(name).map(EndedForm::from));
            }
            RemoteCall::ReadEach(name, max) => return self.read_each(name, max),
            RemoteCall::ReadError(name) => {
                return match self.queue(name).read_error() {
                    Ok(failed) => RemoteAnswer::Ended(failed.map(EndedForm::Failed)),
                    Err(error) => RemoteAnswer::ReadFailed(error),
                };
            }
            RemoteCall::Strerror(number) => return RemoteAnswer::Text(self.cq.strerror(number).to_owned()),
            RemoteCall::Insert(addresses) => {
                let addresses: Vec<Address> = addresses.into_iter().map(|AddressForm(it)| it).collect();
                let inserted = self.av.insert(&addresses).into_iter();
                let inserted = inserted.map(|result| result.map(|address| address.0).map_err(RefusedForm));
                return RemoteAnswer::Inserted(inserted.collect());
            }
            RemoteCall::Remove(addresses) => {
                let addresses: Vec<_> = addresses.into_iter().map(FabricAddress).collect();
                self.av.remove(&addresses);
                return answer_from_result(Ok(()));
            }
            RemoteCall::ReverseLookup(AddressForm(address)) => {
                return RemoteAnswer::Found(self.av.reverse_lookup(&address).map(|found| found.0));
            }
            RemoteCall::Taken { context, len_bytes } => {
                let room = self.rooms.remove(&context).expect("a raw receive of this context");
                return RemoteAnswer::Bytes(room.into_message(context, len_bytes));
            }
            RemoteCall::Within { context, place } => {
                return RemoteAnswer::Bytes(
                    self.rooms.get(&context).expect("a raw receive of this context").message_at(place),
                );
            }
            RemoteCall::Contents { context } => {
                return RemoteAnswer::Bytes(
                    self.rooms.get(&context).expect("a raw receive of this context").memory_after_close(),
                );
            }
            RemoteCall::MinMultiRecv => return RemoteAnswer::Size(self.endpoint().min_multi_recv_bytes()),
            RemoteCall::SetMinMultiRecv { bytes } => self.endpoint().set_min_multi_recv_bytes(bytes),
            RemoteCall::ReceiveRaw { lens_bytes, ignore, post } => {
                return match RawBuffer::post_receive(self.endpoint(), &lens_bytes, ignore, post) {
                    Ok(room) => {
                        self.rooms.insert(post.context, room);
                        RemoteAnswer::Done
                    }
                    Err(error) => RemoteAnswer::Refused(error),
                };
            }
            RemoteCall::Send(send) => {
                let endpoint = self.endpoint.as_ref().expect("nothing is asked of a closed endpoint");
                return answer_from_result(endpoint.post_send_call(send));
            }
            RemoteCall::Receive(receive) => return answer_from_result(receive.post(self.endpoint())),
            RemoteCall::Rma(call) => return answer_from_result(call.post(self.endpoint())),
            RemoteCall::Flush(call) => return answer_from_result(call.post(self.endpoint())),
            RemoteCall::Atomic(call) => {
                let context = call.context;
                return match call.post(self.endpoint()) {
                    Ok(room) => {
                        self.rooms.extend(room.map(|room| (context, room)));
                        RemoteAnswer::Done
                    }
                    Err(error) => RemoteAnswer::Refused(error),
                };
            }
            RemoteCall::Register(memory) => {
                return match Registered::new(&self.domain, memory) {
                    Ok(registered) => {
                        let number = self.next_region;
                        self.next_region += 1;
                        let (key, address) = registered.key_and_address();
                        self.regions.insert(number, registered);
                        RemoteAnswer::Registered { number, key, address }
                    }
                    Err(error) => RemoteAnswer::Refused(error),
                };
            }
            RemoteCall::RegionContent(number) => return RemoteAnswer::Bytes(self.region(number).content()),
            RemoteCall::RegionPart(number, offset_bytes, len_bytes) => {
                return RemoteAnswer::Bytes(self.region(number).read_at(offset_bytes, len_bytes));
            }
            RemoteCall::RegionPut(number, offset_bytes, bytes) => {
                self.region(number).write_at(offset_bytes, &bytes);
            }
            RemoteCall::RegionCount(number) => {
                self.regions.get_mut(&number).expect("a region of this number").start_counting();
            }
            RemoteCall::RegionCounted(number, event) => {
                let event = CounterEvents::from_bits_retain(event);
                let (value, errors) = self.region(number).read_counter(event);
                return RemoteAnswer::Counted(value, errors);
            }
            RemoteCall::Counted(event) => {
                let counters = self.counters.as_ref().expect("a party that counts");
                let (value, errors) = counters.read_counter(CounterEvents::from_bits_retain(event));
                return RemoteAnswer::Counted(value, errors);
            }
            RemoteCall::RegionClose(number) => {
                // The region may be closed already.
                let raw = self.regions.remove(&number).and_then(Registered::close);
                self.closed.extend(raw.map(|raw| (number, raw)));
            }
            RemoteCall::ClosedContent(number) => {
                return RemoteAnswer::Bytes(self.closed.get(&number).expect("a closed region").content());
            }
            RemoteCall::Cancel { context } => return answer_from_result(self.endpoint().cancel(context)),
            RemoteCall::OpFlags(Direction::Transmit) => {
                return RemoteAnswer::Flags(self.endpoint().tx_op_flags());
            }
            RemoteCall::OpFlags(Direction::Receive) => {
                return RemoteAnswer::Flags(self.endpoint().rx_op_flags());
            }
            RemoteCall::SetOpFlags(Direction::Transmit, flags) => {
                return answer_from_result(self.endpoint().set_tx_op_flags(flags));
            }
            RemoteCall::SetOpFlags(Direction::Receive, flags) => {
                return answer_from_result(self.endpoint().set_rx_op_flags(flags));
            }
        }
        RemoteAnswer::Done
    }

    /// Waits some rounds for the next operation to end.
    fn next_ended_within_rounds(&self, name: QueueName) -> Option<Ended> {
        for _ in 0..WAITING_ROUNDS {
            if let Some(ended) = poll_completion(self.queue(name)) {
                return Some(ended);
            }
            thread::yield_now();
        }
        None
    }

    fn read_each(&self, name: QueueName, max: usize) -> RemoteAnswer {
        let mut entries = Vec::new();
        match self.queue(name).read_each(max, |completion, source| entries.push(Ok((completion, source)))) {
            Ok(count) => {
                assert_eq!(count.unwrap_or(0), entries.len());
                RemoteAnswer::Read(count.map(|_| entries.into_iter().map(EndedForm::from).collect()))
            }
            Err(error) => RemoteAnswer::ReadFailed(error),
        }
    }

    fn region(&self, number: usize) -> &Registered {
        self.regions.get(&number).expect("a region of this number")
    }

    fn endpoint(&self) -> &homespun::Endpoint {
        self.endpoint.as_ref().expect("nothing is asked of a closed endpoint").expect_local()
    }

    fn queue(&self, name: QueueName) -> &CompletionQueue {
        match name {
            QueueName::First => &self.cq,
            QueueName::Receive => self.receive_cq.as_ref().expect("the party has two queues"),
        }
    }
}

/// Drives a party until the test has a call for it.
pub(super) fn drive_until_called(channel: &Channel, progress: impl Fn()) {
    let mut rounds = 0;
    while !channel.wait_readable(if rounds < BUSY_ROUNDS { Duration::ZERO } else { SLEEP }) {
        progress();
        thread::yield_now();
        rounds += 1;
    }
}

fn answer_from_result(result: Result<(), Error>) -> RemoteAnswer {
    match result {
        Ok(()) => RemoteAnswer::Done,
        Err(error) => RemoteAnswer::Refused(error),
    }
}

#[cfg(feature = "providers")]
use super::provider_party::serve as serve_party_of_provider;

#[cfg(not(feature = "providers"))]
fn serve_party_of_provider(
    provider: &super::provider::Provider,
    _setup: &super::setup::Setup,
    _channel: &mut Channel,
) {
    panic!("{provider:?}: this program is built without the feature `providers`");
}

/// Runs a party's process. The test that [`party_process_entry`](crate::party_process_entry) defines calls
/// this function. In a process that no test has started, the function returns at once.
pub fn serve_party() {
    let Some(mut channel) = Channel::from_parent() else { return };
    let Some(RemoteCall::Open { transport, setup }) = channel.receive_message().expect("a test that asks")
    else {
        return;
    };
    if let TransportKind::Provider(provider) = &transport {
        return serve_party_of_provider(provider, &setup, &mut channel);
    }
    if let Some(uid) = setup.user {
        become_user(uid);
    }
    let drives_itself = !setup.asleep;
    let net = Net::new(&transport, Turns::Alternate);
    let party = net.open_party_with(setup);
    let opened = RemoteAnswer::Opened {
        name: AddressForm(party.endpoint.name().expect("an endpoint in service has a name")),
        depth_entries: party.cq.depth_entries(),
        format: Some(party.cq.format()),
        granted: None,
    };
    channel.send_message(&opened).expect("a test that listens");
    PartyServer::new(transport, party, drives_itself).serve(&mut channel);
}
