//! What carries out the calls of a test to a party, and the process of a party.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use homespun::Bytes;

use super::answering::PartyServer;
use super::call::{AddressForm, EndpointCall, Opened, QueueName, RegionCall, RemoteAnswer, RemoteCall};
use super::forked_child;
use super::handle::Queue;
use super::net::Net;
use super::party::Party;
use super::posix::{become_user, fork_idle_child, run_in_forked_child};
use super::process::Channel;
use super::raw::RawBuffer;
use super::regions::Region;
use super::remote_party::open_party_of_provider;
use super::seccomp::{COPIES_ACROSS, fail_system_calls_of_process};
use super::transport::{TransportKind, Turns};

/// After this many rounds without a call, the process sleeps between two rounds.
const BUSY_ROUNDS: usize = 100;

/// The length of the sleep between rounds, which a call ends early.
const SLEEP: Duration = Duration::from_millis(1);

/// Serves a party until the test closes the channel.
fn serve(party: &mut dyn PartyServer, opened: Opened, channel: &mut Channel) {
    channel.send_message(&RemoteAnswer::Opened(opened)).expect("a test that listens");
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
    party: Party,
    drives_itself: bool,
    /// The memory of raw receives, by context.
    rooms: BTreeMap<u64, RawBuffer>,
    regions: Vec<Region>,
}

impl PartyServer for NativeServer {
    fn drives_itself(&self) -> bool {
        self.drives_itself
    }

    fn progress(&self) {
        self.party.cq.progress();
        self.party.receive_cq.iter().for_each(Queue::progress);
    }

    fn execute_call(&mut self, call: RemoteCall) -> RemoteAnswer {
        match call {
            RemoteCall::StartDriving => self.drives_itself = true,
            RemoteCall::Progress => self.progress(),
            RemoteCall::RefuseCopies(errno) => fail_system_calls_of_process(&COPIES_ACROSS, errno),
            RemoteCall::Fork { lingers } => fork_idle_child(lingers),
            RemoteCall::ForkCaller { peer: AddressForm(peer), region, message } => {
                // Besides this thread, only the thread that waits for the end of the test may exist.
                run_in_forked_child(|| {
                    forked_child::check_inherited_endpoint_is_unusable(&mut self.party, peer, region);
                    self.regions.clear();
                    forked_child::send_from_new_endpoint(&self.transport, peer, Bytes::from(message));
                });
            }
            RemoteCall::CloseEndpoint => self.party.endpoint.close(),
            RemoteCall::Endpoint(call @ (EndpointCall::TxOpFlags | EndpointCall::MinMultiRecv)) => {
                return self.party.endpoint.ask(call);
            }
            RemoteCall::Endpoint(call) => {
                let raw_context = call.raw_context();
                let posted = self.party.endpoint.post_here(call);
                let posted = posted.map(|room| self.rooms.extend(raw_context.zip(room)));
                return RemoteAnswer::from_result(posted.map(|()| RemoteAnswer::Done));
            }
            RemoteCall::Queue(name, call) => {
                return call.make(match name {
                    QueueName::First => self.party.local_cq(),
                    QueueName::Receive => self.party.local_receive_cq(),
                });
            }
            RemoteCall::Vector(call) => return call.make(&self.party.av),
            RemoteCall::Buffer(context, call) => {
                return RemoteAnswer::Bytes(call.make(&self.rooms[&context]));
            }
            RemoteCall::Register(memory) => {
                return RemoteAnswer::from_result(self.party.register(memory).map(|region| {
                    let (number, memory) = (self.regions.len(), region.memory());
                    self.regions.push(region);
                    RemoteAnswer::Registered(number, memory)
                }));
            }
            RemoteCall::Region(number, RegionCall::Close) => self.regions[number].close(),
            RemoteCall::Region(number, RegionCall::Count) => self.regions[number].start_counting(),
            RemoteCall::Region(number, call) => return self.regions[number].call(call),
            RemoteCall::Counted(event) => {
                return RemoteAnswer::Counted(self.party.read_counter(event));
            }
            call @ (RemoteCall::Open { .. }
            | RemoteCall::RunTest(_)
            | RemoteCall::At(..)
            | RemoteCall::Connection(_)) => panic!("no call to a party without connections: {call:?}"),
        }
        RemoteAnswer::Done
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

/// Runs a party's process, or that of a test whose parties all live there. The test that
/// [`party_process_entry`](crate::party_process_entry) defines calls
/// this function. In a process that no test has started, the function returns at once.
pub fn serve_party() {
    let Some(mut channel) = Channel::from_parent() else { return };
    let (transport, setup, is_side) = match channel.receive_message().expect("a test that asks") {
        Some(RemoteCall::Open { transport, setup, is_side }) => (transport, setup, is_side),
        Some(RemoteCall::RunTest(test)) => {
            let outcome = RemoteAnswer::Outcome(test.run());
            return channel.send_message(&outcome).expect("a test that listens");
        }
        _ => return,
    };
    if let TransportKind::Provider(provider) = &transport {
        return match open_party_of_provider(provider, &setup, is_side) {
            Ok((mut party, opened)) => serve(&mut *party, opened, &mut channel),
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
    let opened = Opened {
        name: AddressForm(party.endpoint.name().expect("an endpoint in service has a name")),
        depth_entries: party.cq.depth_entries(),
        format: party.cq.format(),
        granted: None,
    };
    let (rooms, regions) = (BTreeMap::new(), Vec::new());
    serve(&mut NativeServer { transport, party, drives_itself, rooms, regions }, opened, &mut channel);
}
