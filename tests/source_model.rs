//! Runs random programs of insertions, removals, messages, restarts and reads. Compares the source of each
//! message with the expected one.
//!
//! The library looks up the source of a message when it writes the completion entry. The source is the
//! sender's lowest fabric address at that moment. If the sender has none, an endpoint with `FI_SOURCE_ERR`
//! reports an error entry with the sender's address. `PROPTEST_CASES` sets the number of programs for each
//! test.

use std::collections::{BTreeMap, VecDeque};

use homespun::endpoint::SendMsg;
use homespun::flags::{Caps, CompletionFlags};
use homespun::{Address, Errno, FabricAddress, Tag};
use homespun_engine::loopback::Faults;
use proptest::prelude::*;
use proptest::test_runner::{Config, FileFailurePersistence};

use homespun_suite::payload::{marked_buffer, payload, received_bytes};
use homespun_suite::{Net, Party, Setup, TransportKind, Turns};

/// The number of endpoints that send to the receiver.
const SENDERS: usize = 3;

/// The length of the longest message, which is transferred in several steps.
const LEN_MAX_BYTES: usize = 40_000;

/// A step of a program. Senders are numbered from 0.
#[derive(Debug, Clone)]
enum Step {
    /// The receiver inserts a sender's address, perhaps again.
    Insert(usize),
    /// The receiver removes one of the addresses that it has inserted.
    Remove(prop::sample::Index),
    /// A sender sends a message, and its entry is written.
    Message { from: usize, tag: Option<u64>, data: Option<u64>, len_bytes: usize },
    /// A sender closes, and another opens at its address.
    Restart(usize),
    /// The receiver reads the oldest entry, if there is one.
    Read,
}

fn any_step() -> impl Strategy<Value = Step> {
    let sender = 0..SENDERS;
    let len_bytes = prop_oneof![0..100usize, 0..LEN_MAX_BYTES];
    let message = (sender.clone(), any::<Option<u64>>(), any::<Option<u64>>(), len_bytes);
    prop_oneof![
        3 => sender.clone().prop_map(Step::Insert),
        2 => any::<prop::sample::Index>().prop_map(Step::Remove),
        6 => message.prop_map(|(from, tag, data, len_bytes)| Step::Message { from, tag, data, len_bytes }),
        1 => sender.prop_map(Step::Restart),
        4 => Just(Step::Read),
    ]
}

/// An unread entry.
#[derive(Debug)]
struct Entry {
    context: u64,
    flags: CompletionFlags,
    len_bytes: usize,
    tag: u64,
    data: u64,
    sender: Address,
    /// The expected source.
    source: Option<FabricAddress>,
}

/// The content of the address vector: the sender of each index.
#[derive(Debug, Default)]
struct Names(BTreeMap<u64, usize>);

impl Names {
    fn insert(&mut self, sender: usize) -> FabricAddress {
        let vacant = (0..).find(|index| !self.0.contains_key(index)).expect("some number is free");
        self.0.insert(vacant, sender);
        FabricAddress(vacant)
    }

    fn lowest_entry_of(&self, sender: usize) -> Option<FabricAddress> {
        self.0.iter().find(|&(_, &named)| named == sender).map(|(&index, _)| FabricAddress(index))
    }
}

struct Run<'a> {
    net: &'a Net,
    reports_unknown_sources: bool,
    receiver: Party,
    senders: Vec<Party>,
    addresses: Vec<Address>,
    names: Names,
    entries: VecDeque<Entry>,
    messages: u64,
}

impl<'a> Run<'a> {
    fn new(net: &'a Net, reports_unknown_sources: bool) -> Run<'a> {
        let mut caps = net.info().caps;
        caps.set(Caps::SOURCE_ERR, reports_unknown_sources);
        let receiver = net.open_party_with(Setup { caps, ..Setup::default() });
        let senders: Vec<Party> = (0..SENDERS).map(|_| net.open_party()).collect();
        senders.iter().for_each(|sender| assert_eq!(sender.insert_address_of(&receiver), sender.peer()));
        let addresses = senders.iter().map(|sender| sender.endpoint.name().unwrap()).collect();
        Run {
            net,
            reports_unknown_sources,
            receiver,
            senders,
            addresses,
            names: Names::default(),
            entries: VecDeque::new(),
            messages: 0,
        }
    }

    fn run_step(&mut self, step: &Step) {
        match *step {
            Step::Insert(sender) => {
                let expected = self.names.insert(sender);
                assert_eq!(self.receiver.insert_address_of(&self.senders[sender]), expected);
            }
            Step::Remove(which) => {
                if !self.names.0.is_empty() {
                    let indices: Vec<u64> = self.names.0.keys().copied().collect();
                    let index = indices[which.index(indices.len())];
                    self.names.0.remove(&index);
                    self.receiver.av.remove(&[FabricAddress(index)]);
                }
            }
            Step::Message { from, tag, data, len_bytes } => self.deliver_message(from, tag, data, len_bytes),
            Step::Restart(sender) => {
                let setup = Setup { at: Some(self.addresses[sender]), ..Setup::default() };
                drop(self.senders.remove(sender));
                let again = self.net.open_party_with(setup);
                assert_eq!(again.insert_address_of(&self.receiver), again.peer());
                self.senders.insert(sender, again);
            }
            Step::Read => self.read_next_entry(),
        }
        for (sender, address) in self.addresses.iter().enumerate() {
            let found = self.receiver.av.reverse_lookup(address);
            assert_eq!(found, self.names.lowest_entry_of(sender), "only this program inserts");
        }
    }

    fn deliver_message(&mut self, from: usize, tag: Option<u64>, data: Option<u64>, len_bytes: usize) {
        self.messages += 1;
        let context = self.messages;
        let any = FabricAddress::UNSPECIFIED;
        match tag {
            Some(tag) => {
                self.receiver.endpoint.trecv(marked_buffer(len_bytes), any, Tag(tag), context).unwrap();
            }
            None => self.receiver.endpoint.recv(marked_buffer(len_bytes), any, context).unwrap(),
        }
        let sender = &self.senders[from];
        let buffers = vec![payload(context, len_bytes)];
        sender.send_and_wait_for_delivery(SendMsg {
            buffers,
            to: sender.peer(),
            tag: tag.map(Tag),
            data,
            context,
            ..SendMsg::default()
        });
        let kind = if tag.is_some() { CompletionFlags::TAGGED } else { CompletionFlags::MSG };
        let mut flags = CompletionFlags::RECV | kind;
        flags.set(CompletionFlags::REMOTE_CQ_DATA, data.is_some());
        self.entries.push_back(Entry {
            context,
            flags,
            len_bytes,
            tag: tag.unwrap_or(0),
            data: data.unwrap_or(0),
            sender: self.addresses[from],
            source: self.names.lowest_entry_of(from),
        });
    }

    fn read_next_entry(&mut self) {
        let Some(entry) = self.entries.pop_front() else { return self.receiver.assert_no_completion() };
        let completion = match (self.receiver.next_ended(), entry.source) {
            (Ok((completion, source)), Some(name)) => {
                assert_eq!(source, name, "{entry:?}");
                completion
            }
            (Ok((completion, source)), None) if !self.reports_unknown_sources => {
                assert_eq!(source, FabricAddress::UNSPECIFIED, "{entry:?}");
                completion
            }
            (Err(failed), None) if self.reports_unknown_sources => {
                assert_eq!(
                    (failed.errno(), failed.unknown_source()),
                    (Errno::EADDRNOTAVAIL, Some(entry.sender))
                );
                assert_eq!((failed.source, failed.overflow_bytes()), (FabricAddress::UNSPECIFIED, 0));
                failed.completion
            }
            (other, _) => panic!("{other:?} for {entry:?}"),
        };
        assert_eq!((completion.context, completion.flags), (entry.context, entry.flags));
        assert_eq!((completion.len_bytes, completion.tag.0), (entry.len_bytes, entry.tag));
        assert_eq!(completion.data, entry.data);
        assert!(received_bytes(&completion.buffer) == payload(entry.context, entry.len_bytes), "{entry:?}");
    }
}

fn run_steps(transport: &TransportKind, reports_unknown_sources: bool, steps: &[Step]) {
    let net = Net::new(transport, Turns::Alternate);
    let mut run = Run::new(&net, reports_unknown_sources);
    steps.iter().for_each(|step| run.run_step(step));
    while !run.entries.is_empty() {
        run.read_next_entry();
    }
    run.receiver.assert_no_completion();
}

fn proptest_config(default: u32) -> Config {
    let asked = Config::default();
    Config {
        cases: if std::env::var_os("PROPTEST_CASES").is_some() { asked.cases } else { default },
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        max_shrink_time: 60_000,
        ..asked
    }
}

proptest! {
    #![proptest_config(proptest_config(60))]

    #[test]
    fn sources_over_a_choppy_network_match_the_model(
        reports_unknown in any::<bool>(),
        seed in any::<u64>(),
        steps in prop::collection::vec(any_step(), 1..40),
    ) {
        run_steps(&TransportKind::Loopback { seed, faults: Faults::choppy() }, reports_unknown, &steps);
    }

    /// Shows fi_cq/no-insertion-by-provider, fi_cq/source-err-eavail, fi_cq/unknown-source-notavail,
    /// fi_cq/eaddrnotavail-data-arrived.
    #[test]
    fn sources_over_tcp_match_the_model(
        reports_unknown in any::<bool>(),
        steps in prop::collection::vec(any_step(), 1..40),
    ) {
        run_steps(&TransportKind::Tcp4, reports_unknown, &steps);
    }

    /// Shows fi_cq/no-insertion-by-provider, fi_cq/source-err-eavail, fi_cq/unknown-source-notavail,
    /// fi_cq/eaddrnotavail-data-arrived.
    #[test]
    fn sources_over_shared_memory_match_the_model(
        reports_unknown in any::<bool>(),
        steps in prop::collection::vec(any_step(), 1..40),
    ) {
        run_steps(&TransportKind::Shm4, reports_unknown, &steps);
    }
}
