//! What carries out the calls of a test to a party, and the process of a party.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use homespun::{Address, AddressVector, Bytes, CompletionQueue, CounterEvents, Domain, Error, FabricAddress};

use super::answering::{PartyServer, WAITING_ROUNDS};
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
use super::remote_party::open_party_of_provider;
use super::seccomp::{COPIES_ACROSS, fail_system_calls_of_process};
use super::transport::{TransportKind, Turns};

/// After this many rounds without a call, the process sleeps between two rounds.
const BUSY_ROUNDS: usize = 100;

/// The length of the sleep between rounds, which a call ends early.
const SLEEP: Duration = Duration::from_millis(1);

/// Serves a party until the test closes the channel.
fn serve(party: &mut dyn PartyServer, opened: &RemoteAnswer, channel: &mut Channel) {
    channel.send_message(opened).expect("a test that listens");
    loop {
        if party.drives_itself() {
            drive_until_called(channel, || party.progress());
        }
        let Some(call) = channel.receive_message().expect("a test that asks") else { return };
        let answer = party.execute_call(call);
        channel.send_message(&answer).expect("a test that listens");
    }
}

/// A party of homespun's own library inside its process.
#[derive(Debug)]
struct NativeServer {
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

impl NativeServer {
    fn new(transport: TransportKind, party: Party, drives_itself: bool) -> NativeServer {
        let Party { endpoint, cq, receive_cq, av, counters, domain, .. } = party;
        let queue = |queue: Queue| queue.expect_local().clone();
        NativeServer {
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
}

impl PartyServer for NativeServer {
    fn drives_itself(&self) -> bool {
        self.drives_itself
    }

    fn progress(&self) {
        self.cq.progress();
        if let Some(receive_cq) = &self.receive_cq {
            receive_cq.progress();
        }
    }

    fn execute_call(&mut self, call: RemoteCall) -> RemoteAnswer {
        match call {
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
            RemoteCall::OpFlags(Direction::Transmit) => {
                return RemoteAnswer::Flags(self.endpoint().tx_op_flags());
            }
            RemoteCall::OpFlags(Direction::Receive) => {
                return RemoteAnswer::Flags(self.endpoint().rx_op_flags());
            }
            call => return answer_from_result(call.make(self.endpoint())),
        }
        RemoteAnswer::Done
    }
}

impl NativeServer {
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
fn drive_until_called(channel: &Channel, progress: impl Fn()) {
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

/// Runs a party's process, or that of a test whose parties all live there. The test that
/// [`party_process_entry`](crate::party_process_entry) defines calls
/// this function. In a process that no test has started, the function returns at once.
pub fn serve_party() {
    let Some(mut channel) = Channel::from_parent() else { return };
    let (transport, setup) = match channel.receive_message().expect("a test that asks") {
        Some(RemoteCall::Open { transport, setup }) => (transport, setup),
        Some(RemoteCall::RunTest(test)) => {
            let outcome = RemoteAnswer::Outcome(test.run());
            return channel.send_message(&outcome).expect("a test that listens");
        }
        _ => return,
    };
    if let TransportKind::Provider(provider) = &transport {
        return match open_party_of_provider(provider, &setup) {
            Ok((mut party, opened)) => serve(&mut *party, &opened, &mut channel),
            Err(what) => {
                channel.send_message(&RemoteAnswer::NotOffered(what)).expect("a test that listens");
            }
        };
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
    serve(&mut NativeServer::new(transport, party, drives_itself), &opened, &mut channel);
}
