//! Checks that a flood of unexpected messages stays within the receiver's budget, and that none of them is
//! lost.
//!
//! The test measures the memory of the whole process, so its binary has no other test.

use std::thread;
use std::time::Duration;

use homespun::endpoint::SendMsg;
use homespun::{Again, Error, FabricAddress};
use serde::{Deserialize, Serialize};

use homespun_suite::payload::{payload, received_bytes};
use homespun_suite::process::{Channel, Process};
use homespun_suite::process_resources::MemoryUsage;
use homespun_suite::{AddressForm, Deadline, Net, Setup, TransportKind, Turns};

const ENTRY: &str = concat!(module_path!(), "::flood_process_entry");

/// The number of processes that send at once.
const SENDERS: usize = 8;

/// The receiver's budget for unexpected messages.
const BUDGET_BYTES: u64 = 16 << 20;

/// The number of receives that the receiver keeps posted, once it begins to receive.
const POSTED: usize = 16;

/// The flood has stopped when this many polls in a row show no change. The second constant is the time
/// between two polls.
const STILL_LOOKS: usize = 20;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The messages of each sender. Those of all senders would need several times the budget.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Flood {
    messages_per_sender: u64,
    len_min_bytes: usize,
    /// The lengths are below `len_min_bytes` plus this.
    len_span_bytes: usize,
    /// A lower bound of the memory that the receiver uses when the flood has stopped.
    memory_in_use_min_bytes: u64,
}

const FLOODS: [Flood; 4] = [
    // Small messages take less memory than credit, and more for their bookkeeping than for their bytes.
    Flood::new(8000, [0, 9], BUDGET_BYTES / 20),
    // All lengths of eager messages.
    Flood::new(2500, [0, 3000], BUDGET_BYTES / 8),
    // Mostly messages that the receiver fetches.
    Flood::new(30, [8_000, 328_000], BUDGET_BYTES / 3),
    // Over shared memory the receiver fetches each payload. Over TCP, once credit is short, the sender sends
    // the payload when the receiver asks for it.
    Flood::new(1200, [20_000, 20_001], BUDGET_BYTES / 3),
];

impl Flood {
    /// A flood whose messages have at least the first of these lengths, and less than the second.
    const fn new(
        messages_per_sender: u64,
        [len_min_bytes, below_bytes]: [usize; 2],
        memory_in_use_min_bytes: u64,
    ) -> Flood {
        let len_span_bytes = below_bytes - len_min_bytes;
        Flood { messages_per_sender, len_min_bytes, len_span_bytes, memory_in_use_min_bytes }
    }

    fn len_bytes_of_message(self, number: u64) -> usize {
        self.len_min_bytes + (number * 7919) as usize % self.len_span_bytes
    }

    fn len_max_bytes(self) -> usize {
        self.len_min_bytes + self.len_span_bytes
    }
}

/// The first message to a sender.
#[derive(Debug, Serialize, Deserialize)]
struct Orders {
    transport: TransportKind,
    receiver: AddressForm,
    flood: Flood,
}

#[test]
#[ignore = "runs in a process of its own"]
fn flood_process_entry() {
    let Some(mut channel) = Channel::from_parent() else { return };
    let Some(Orders { transport, receiver: AddressForm(receiver), flood }) =
        channel.receive_message().expect("the test lives")
    else {
        return;
    };
    let net = Net::new(&transport, Turns::Alternate);
    let party = net.open_party();
    let to = party.insert(receiver);
    let mut completed = 0;
    // The first message brings up the link. So the memory of the link does not count as memory of the flood.
    party.send_and_wait_for_delivery(SendMsg { to, data: Some(u64::MAX), ..SendMsg::default() });
    let name = AddressForm(party.endpoint.name().expect("an endpoint in service"));
    channel.send_message(&name).expect("the test lives");
    let Ok(Some(())) = channel.receive_message() else { return };
    for number in 0..flood.messages_per_sender {
        let buffers = vec![payload(number, flood.len_bytes_of_message(number))];
        let send = SendMsg { buffers, to, data: Some(number), context: number, ..SendMsg::default() };
        loop {
            match party.endpoint.sendmsg(send.clone()) {
                Ok(()) => break,
                Err(Error::Again(Again::QueueFull)) => {}
                Err(error) => panic!("message {number} was refused: {error}"),
            }
            while let Some(ended) = party.poll_completion() {
                ended.expect("nothing fails");
                completed += 1;
            }
            thread::sleep(Duration::from_micros(200));
        }
    }
    // Use no deadline: the receiver decides how long the sends take, and this process ends with the test
    // anyway.
    while !channel.wait_readable(Duration::from_millis(1)) {
        while let Some(ended) = party.poll_completion() {
            ended.expect("nothing fails");
            completed += 1;
        }
        if completed == flood.messages_per_sender {
            completed += 1;
            channel.send_message(&()).expect("the test lives");
        }
    }
}

fn check_flood_arrives_within_budget(transport: &TransportKind, flood: Flood) {
    let net = Net::new(transport, Turns::Alternate);
    let unexpected_bytes = BUDGET_BYTES as usize;
    let receiver = net.open_party_with(Setup { unexpected_bytes, ..Setup::default() });
    let name = AddressForm(receiver.endpoint.name().expect("an endpoint in service"));
    let mut senders: Vec<Process> = (0..SENDERS).map(|_| Process::spawn(ENTRY)).collect();
    for sender in &mut senders {
        sender.send_message(&Orders { transport: transport.clone(), receiver: AddressForm(name.0), flood });
    }
    for _ in &senders {
        assert_eq!(receiver.receive(0, 0).data, u64::MAX);
    }
    let insert = |sender: &mut Process| receiver.insert(sender.receive_message::<AddressForm>().0);
    let names: Vec<FabricAddress> = senders.iter_mut().map(insert).collect();
    receiver.assert_no_completion();

    let before = MemoryUsage::measure_now();
    let allowed_bytes = BUDGET_BYTES + BUDGET_BYTES / 20;
    let weigh = |besides_bytes: u64| {
        let now = MemoryUsage::measure_now();
        let most = before.heap_bytes.max(1) + allowed_bytes + besides_bytes;
        assert!(now.heap_bytes <= most, "{transport:?}, {flood:?}: {before:?}, and then {now:?}");
        let most = before.resident_bytes + allowed_bytes + besides_bytes;
        assert!(now.resident_bytes <= most, "{transport:?}, {flood:?}: {before:?}, and then {now:?}");
        now
    };
    senders.iter_mut().for_each(|sender| sender.send_message(&()));
    let (deadline, mut last_bytes, mut still_looks) = (Deadline::new(), 0, 0);
    loop {
        for _ in 0..100 {
            assert!(receiver.poll_completion().is_none(), "nothing is posted");
        }
        let now = weigh(0);
        let grown_bytes = now.resident_bytes.saturating_sub(before.resident_bytes);
        still_looks = if grown_bytes == last_bytes { still_looks + 1 } else { 0 };
        last_bytes = grown_bytes;
        if grown_bytes >= flood.memory_in_use_min_bytes && still_looks >= STILL_LOOKS {
            break;
        }
        deadline.yield_or_panic_with(|| format!("{flood:?} over {transport:?}: {grown_bytes} bytes"));
        thread::sleep(LOOK_EVERY);
    }

    // The receiver begins to receive.
    let posted_bytes = (POSTED * (flood.len_max_bytes() + 4096)) as u64;
    let total = flood.messages_per_sender * SENDERS as u64;
    let post = |context| receiver.post_receives([context], flood.len_max_bytes());
    (0..POSTED.min(total as usize) as u64).for_each(post);
    // The message that each receive got, by the context of the receive. Receives may complete in any order.
    let mut taken = vec![None; total as usize];
    for count in 0..total {
        let (completion, source) = receiver.next_completion_with_source();
        let sender = names.iter().position(|name| *name == source).expect("one of the senders");
        let (number, context) = (completion.data, completion.context as usize);
        let len_bytes = flood.len_bytes_of_message(number);
        assert_eq!(completion.len_bytes, len_bytes);
        let is_intact = received_bytes(&completion.buffer) == payload(number, len_bytes);
        assert!(is_intact, "message {number} of {sender}");
        assert_eq!(taken[context].replace((sender, number)), None, "each receive ends once");
        if count + (POSTED as u64) < total {
            post(count + POSTED as u64);
        }
        if count % (total / 20) == 0 {
            weigh(posted_bytes);
        }
    }
    let mut next = [0; SENDERS];
    for (sender, number) in taken.into_iter().flatten() {
        assert_eq!(number, next[sender], "each of a sender's messages once, in order");
        next[sender] += 1;
    }
    assert_eq!(next, [flood.messages_per_sender; SENDERS]);
    for sender in &mut senders {
        // Wait for the sender to see its sends complete. For this the receiver may have to make progress.
        let deadline = Deadline::new();
        while !sender.is_channel_readable() {
            assert!(receiver.poll_completion().is_none());
            deadline.yield_or_panic("the ends of a sender's sends");
        }
        let () = sender.receive_message();
    }
}

#[test]
fn flood_stays_within_the_budget_and_arrives() {
    for transport in [TransportKind::Tcp4, TransportKind::Shm4, TransportKind::MIXED4] {
        for flood in FLOODS {
            check_flood_arrives_within_budget(&transport, flood);
        }
    }
}
