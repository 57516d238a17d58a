//! The endpoint that survives its killed peers.

use std::collections::{BTreeMap, BTreeSet};

use homespun::endpoint::{RecvMsg, SendMsg};
use homespun::flags::{CompletionFlags, OpFlags};
use homespun::{BytesMut, Completion, CompletionError, Errno, FabricAddress, OperationError, Tag};

use crate::victim::{
    CauseOfDeath, ENTRY, FirstSender, POSTED, VictimPlan, VictimSetup, expect_accepted_or_full,
    make_any_message, make_any_receive,
};
use homespun_suite::payload::{payload, received_bytes};
use homespun_suite::process::Process;
use homespun_suite::process_resources::{MemoryUsage, ProcessResources};
use homespun_suite::{AddressForm, Deadline, Ended, Net, Party, TransportKind, Turns};

/// The largest number of outstanding sends.
const SENDS_MAX: usize = 12;

/// If the plan says that the survivor kills the victim, it does so in a random round. The round's number is
/// below this one.
const ROUNDS_MAX: u64 = 80;

/// After this many rounds without an event, none is expected any more. Idle shared memory polls the kernel,
/// which tells of a death, after fewer polls (`GAP_MAX_POLLS`).
const SILENT_ROUNDS: usize = 800;

/// How much the memory of the process may grow over all deaths. The C library may keep so much freed memory.
const GROWTH_MAX_BYTES: u64 = 64 << 20;

/// The most heap that may remain for a dead peer. It holds the peer's address and the state of the peer's
/// link.
const KEPT_MAX_BYTES: u64 = 1024;

/// The heap that may be kept in addition, for tables that double.
const KEPT_BESIDE_MAX_BYTES: u64 = 1 << 20;

/// The first context of a receive; smaller ones belong to sends.
const RECEIVES: u64 = 1 << 32;

/// The counts of the survivor.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) deaths: u64,
    pub(crate) sends_completed: u64,
    pub(crate) sends_failed: u64,
    pub(crate) receives_completed: u64,
    /// Receives that completed after their sender's death.
    pub(crate) receives_completed_late: u64,
    pub(crate) receives_truncated: u64,
    pub(crate) receives_broken: u64,
    pub(crate) receives_cancelled: u64,
    /// The largest memory of the process that was measured while no operation was outstanding.
    pub(crate) memory_max: MemoryUsage,
}

pub(crate) struct Survivor {
    pub(crate) tally: Tally,
    net: Net,
    party: Party,
    transport: TransportKind,
    random: fastrand::Rng,
    /// Sends that have not ended, all of them to the current victim.
    sends: BTreeSet<u64>,
    /// The number of sends to the current victim.
    messages: u64,
    /// Receives that have not ended, and whether they are tagged.
    receives: BTreeMap<u64, bool>,
    next_receive: u64,
    /// Whether a message of the current victim has arrived.
    has_received: bool,
    /// Whether the current victim is dead.
    is_victim_dead: bool,
    /// The resources of the process while no victim lives.
    alone: ProcessResources,
    /// The number of deaths at the first measurement, and the memory in use then.
    memory: Option<(u64, MemoryUsage)>,
}

impl Survivor {
    pub(crate) fn new(transport: &TransportKind) -> Survivor {
        let net = Net::new(transport, Turns::Alternate);
        let party = net.open_party();
        Survivor {
            tally: Tally::default(),
            net,
            party,
            transport: transport.clone(),
            random: fastrand::Rng::with_seed(0x5eed),
            sends: BTreeSet::new(),
            messages: 0,
            receives: BTreeMap::new(),
            next_receive: RECEIVES,
            has_received: false,
            is_victim_dead: false,
            alone: ProcessResources::measure_now(),
            memory: None,
        }
    }

    /// Runs a victim until it dies. Checks that every operation with the victim ends, and that the resources
    /// in use return to what they were.
    pub(crate) fn outlive_victim(&mut self, life: &VictimPlan) {
        self.messages = 0;
        self.has_received = false;
        self.is_victim_dead = false;
        let mut victim = Process::spawn(ENTRY);
        // With near and far peers, the victims are near and far in turn.
        let transport = self.transport.for_process(life.number as usize);
        let survivor = AddressForm(self.party.endpoint.name().expect("an endpoint in service has a name"));
        victim.send_message(&VictimSetup { transport, survivor, life: *life });
        if let Some(AddressForm(name)) = victim.receive_if_alive() {
            let peer = self.party.insert(name);
            // One receive accepts only the victim's messages.
            let directed = self.next_receive_context();
            let buffers = vec![BytesMut::zeroed(1000)];
            let receive = RecvMsg { buffers, from: peer, context: directed, ..RecvMsg::default() };
            self.party.endpoint.recvmsg(receive).expect("there is room for it");
            self.receives.insert(directed, false);

            self.exchange_until_death(&mut victim, life, peer);
            self.await_sends_and_cancel_receives(life, peer, directed);
        } else {
            victim.wait_for_exit();
        }
        drop(victim);
        self.tally.deaths += 1;
        let deadline = Deadline::new();
        while ProcessResources::measure_now() != self.alone {
            self.drive_and_read();
            deadline.yield_or_panic_with(|| {
                let now = ProcessResources::measure_now();
                format!("nothing to be left of {life:?}: {now:?} is not {:?}", self.alone)
            });
        }
        if self.receives.is_empty() && self.tally.receives_completed > 0 {
            self.check_memory_growth(life);
        }
    }

    /// Checks that the memory of the process stays within the limits. The caller has no receive posted.
    fn check_memory_growth(&mut self, life: &VictimPlan) {
        let now = MemoryUsage::measure_now();
        let (deaths, before) = *self.memory.get_or_insert((self.tally.deaths, now));
        self.tally.memory_max = self.tally.memory_max.max(now);
        let kept_bytes = (self.tally.deaths - deaths) * KEPT_MAX_BYTES + KEPT_BESIDE_MAX_BYTES;
        assert!(
            now.resident_bytes <= before.resident_bytes + GROWTH_MAX_BYTES
                && now.heap_bytes <= before.heap_bytes + kept_bytes,
            "the memory has grown from {before:?} to {now:?} after {life:?}"
        );
    }

    /// Checks that messages still arrive, in both directions, with a living peer.
    pub(crate) fn check_exchange_with_a_living_peer(&mut self) {
        let friend = self.net.open_party();
        let (to_friend, to_self) =
            (self.party.insert_address_of(&friend), friend.insert_address_of(&self.party));
        // Receives from any source may still be posted: the death of a peer does not end such a receive.
        (0..4 * POSTED).for_each(|_| self.post_any_receive_if_room());
        let mut number = 0;
        for is_tagged in self.receives.values() {
            let send =
                SendMsg { tag: is_tagged.then_some(Tag(7)), ..make_message_between_living(number, to_self) };
            friend.endpoint.sendmsg(send).expect("there is room for it");
            number += 1;
        }
        let deadline = Deadline::new();
        while !self.receives.is_empty() {
            self.drive_and_read();
            friend.cq.progress();
            deadline.yield_or_panic("messages for the receives that are left");
        }
        friend.next_completions_of_sends_and_others(number as usize);
        friend.endpoint.recvmsg(make_any_receive(&mut self.random, false, 1)).expect("there is room for it");
        self.sends.insert(0);
        self.party.endpoint.sendmsg(make_message_between_living(0, to_friend)).expect("there is room for it");
        assert!(received_bytes(&friend.next_completion().buffer) == payload(0, 100_000));
        while !self.sends.is_empty() {
            self.drive_and_read();
            friend.cq.progress();
            deadline.yield_or_panic("the end of a send to a friend");
        }
    }

    /// Exchanges messages with a victim until it is dead.
    fn exchange_until_death(&mut self, victim: &mut Process, life: &VictimPlan, peer: FabricAddress) {
        let mut deadline = Deadline::new();
        let rounds = self.random.u64(..ROUNDS_MAX);
        for round in 0.. {
            if life.end == CauseOfDeath::FromOutside && round == rounds {
                victim.kill();
                return;
            }
            if life.end != CauseOfDeath::FromOutside && victim.is_channel_readable() {
                victim.wait_for_exit();
                return;
            }
            if self.random.bool() {
                self.post_any_receive_if_room();
            }
            if self.random.bool() && (life.first != FirstSender::Victim || self.has_received) {
                self.send_any_message_if_room(life, peer);
            }
            if self.drive_and_read() {
                deadline = Deadline::new();
            }
            deadline.yield_or_panic("a victim to die");
        }
    }

    /// Waits for every operation with a dead peer to end.
    fn await_sends_and_cancel_receives(&mut self, life: &VictimPlan, peer: FabricAddress, directed: u64) {
        self.is_victim_dead = true;
        // These sends end, too, whether or not the link has noticed the death.
        self.send_any_message_if_room(life, peer);
        self.send_any_message_if_room(life, peer);
        let mut deadline = Deadline::new();
        let mut silent_rounds = 0;
        while silent_rounds < SILENT_ROUNDS {
            let has_read = self.drive_and_read();
            if has_read {
                deadline = Deadline::new();
            }
            silent_rounds = if has_read || !self.sends.is_empty() { 0 } else { silent_rounds + 1 };
            deadline.yield_or_panic_with(|| format!("the end of sends {:?} in {life:?}", self.sends));
        }
        self.receive_every_unexpected_message();
        // Cancel the directed receive. After every second victim, cancel all other receives, too. Otherwise
        // they stay posted for the next victim.
        let mut cancelled = vec![directed];
        if life.number % 2 == 1 {
            cancelled.extend(self.receives.keys());
        }
        for context in cancelled {
            if self.receives.contains_key(&context) {
                let result = self.party.endpoint.cancel(context);
                result.unwrap_or_else(|error| panic!("receive {context} is stuck after {life:?}: {error}"));
                while self.receives.contains_key(&context) {
                    self.drive_and_read();
                    deadline.yield_or_panic("a cancelled receive");
                }
            }
        }
        self.party.av.remove(&[peer]);
    }

    fn send_any_message_if_room(&mut self, life: &VictimPlan, peer: FabricAddress) {
        if self.sends.len() < SENDS_MAX {
            let send = make_any_message(&mut self.random, life.number, self.messages, peer);
            if expect_accepted_or_full(self.party.endpoint.sendmsg(send)) {
                self.sends.insert(self.messages);
                self.messages += 1;
            }
        }
    }

    /// Receives every unexpected message. A message left over would match a receive that should stay posted.
    fn receive_every_unexpected_message(&mut self) {
        let deadline = Deadline::new();
        let mut silent_rounds = 0;
        while silent_rounds < SILENT_ROUNDS {
            self.post_receive_of_kind_if_room(false);
            self.post_receive_of_kind_if_room(true);
            silent_rounds = if self.drive_and_read() { 0 } else { silent_rounds + 1 };
            deadline.yield_or_panic("the last message of the killed peer");
        }
    }

    fn post_any_receive_if_room(&mut self) {
        let is_tagged = self.random.bool();
        self.post_receive_of_kind_if_room(is_tagged);
    }

    fn post_receive_of_kind_if_room(&mut self, is_tagged: bool) {
        if self.receives.values().filter(|&&tagged| tagged == is_tagged).count() < POSTED + 1 {
            let context = self.next_receive_context();
            let receive = make_any_receive(&mut self.random, is_tagged, context);
            if expect_accepted_or_full(self.party.endpoint.recvmsg(receive)) {
                self.receives.insert(context, is_tagged);
            }
        }
    }

    fn next_receive_context(&mut self) -> u64 {
        self.next_receive += 1;
        self.next_receive
    }

    /// Makes progress, and reads all completions. Returns whether there was one.
    fn drive_and_read(&mut self) -> bool {
        let mut has_read = false;
        while let Some(ended) = self.party.poll_completion() {
            has_read = true;
            self.record_end(&ended);
        }
        has_read
    }

    fn record_end(&mut self, ended: &Ended) {
        let (completion, error) = match ended {
            Ok((completion, _)) => (completion, None),
            Err(CompletionError { completion, error, .. }) => (completion, Some(error)),
        };
        let context = completion.context;
        if context < RECEIVES {
            assert!(completion.flags.contains(CompletionFlags::SEND));
            assert!(self.sends.remove(&context), "a send has ended twice: {ended:?}");
            assert!(error.is_none_or(is_caused_by_death), "{ended:?}");
            match error {
                None => self.tally.sends_completed += 1,
                Some(_) => self.tally.sends_failed += 1,
            }
            return;
        }
        assert!(completion.flags.contains(CompletionFlags::RECV));
        assert!(self.receives.remove(&context).is_some(), "a receive has ended twice: {ended:?}");
        match error {
            None => {
                self.has_received = true;
                self.tally.receives_completed += 1;
                self.tally.receives_completed_late += u64::from(self.is_victim_dead);
                check_message(completion);
            }
            Some(OperationError::Truncated { .. }) => {
                self.tally.receives_truncated += 1;
                check_message(completion);
            }
            Some(OperationError::Cancelled) => self.tally.receives_cancelled += 1,
            Some(error) => {
                self.tally.receives_broken += 1;
                assert!(is_caused_by_death(error), "{ended:?}");
            }
        }
    }
}

/// Checks the received bytes. The remote data of a message determines its bytes.
fn check_message(completion: &Completion) {
    let bytes = received_bytes(&completion.buffer);
    assert_eq!(bytes.len(), completion.len_bytes);
    let data = completion.data;
    assert!(bytes == payload(data, bytes.len()), "a message of other bytes: {data:#x}");
}

fn is_caused_by_death(error: &OperationError) -> bool {
    const OF_DEATH: [Errno; 4] = [Errno::ECONNRESET, Errno::EPIPE, Errno::ESHUTDOWN, Errno::ECONNREFUSED];
    matches!(error, OperationError::Link(_)) && OF_DEATH.contains(&error.errno())
}

/// Returns a message from or to a living peer.
fn make_message_between_living(number: u64, to: FabricAddress) -> SendMsg {
    let (buffers, flags) = (vec![payload(number, 100_000)], OpFlags::DELIVERY_COMPLETE);
    SendMsg { buffers, to, data: Some(number), context: number, flags, ..SendMsg::default() }
}
