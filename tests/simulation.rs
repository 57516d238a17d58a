//! Simulated fabrics: time, latency, partitions, deaths, and runs that a seed repeats.

use std::time::Duration;

use homespun::counter::CounterWaitError;
use homespun::eq::EqReadError;
use homespun::info::{EndpointType, Progress};
use homespun::simulation::{Faults, Simulation, TraceAction};
use homespun::wait::WaitError;
use homespun::{
    Address, AvAttr, BindFlags, Bytes, BytesMut, CompletionQueue, CounterAttr, CqAttr, Entry, EqAttr, Errno,
    Error, EventQueue, Fabric, FabricAddress, Hints, Misuse, MrAttr, OpFlags, OpenEndpoint, ReadError,
    WaitObject,
};
use homespun_suite::process::{Channel, Process};

const LATENCY: Duration = Duration::from_millis(5);

const HOUR: Duration = Duration::from_secs(3600);

/// A time in which all that is under way arrives.
const LONG: Duration = Duration::from_secs(10);

fn open(fabric: &Fabric) -> OpenEndpoint {
    fabric.open_endpoint(&Hints::new().tx_op_flags(OpFlags::DELIVERY_COMPLETE)).expect("an endpoint")
}

fn address_of(endpoint: &OpenEndpoint) -> Address {
    endpoint.endpoint.name().expect("an open endpoint")
}

/// Returns the address by which one endpoint sends to another.
fn introduce(one: &OpenEndpoint, other: &OpenEndpoint) -> FabricAddress {
    one.av.insert_if_absent(address_of(other)).expect("an address of this network")
}

fn post_receive(endpoint: &OpenEndpoint) {
    endpoint.endpoint.recv(BytesMut::zeroed(64), FabricAddress::UNSPECIFIED, 1).expect("room");
}

fn post_send(from: &OpenEndpoint, to: &OpenEndpoint, text: &'static str) {
    from.endpoint.send(Bytes::from_static(text.as_bytes()), introduce(from, to), 2).expect("room");
}

/// Returns the received text that the queue has next, if it is there without waiting.
fn poll_text(cq: &CompletionQueue) -> Option<String> {
    let completion = cq.read().expect("no operation fails")?;
    let bytes = completion.buffer.into_received().expect("a receive");
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Opens a simulated fabric, and two endpoints with a link between them, and a latency of [`LATENCY`].
fn open_linked_pair() -> (Fabric, Simulation, OpenEndpoint, OpenEndpoint) {
    let (fabric, simulation) = Fabric::simulated(1);
    let (left, right) = (open(&fabric), open(&fabric));
    simulation.set_faults(with_latency());
    post_receive(&right);
    post_send(&left, &right, "link");
    assert_eq!(left.cq.sread(None).expect("no failure").map(|sent| sent.context), Some(2));
    assert_eq!(poll_text(&right.cq).as_deref(), Some("link"));
    assert!(simulation.run_until_idle(LONG));
    (fabric, simulation, left, right)
}

fn open_eq(fabric: &Fabric) -> EventQueue {
    fabric.open_eq(&EqAttr { wait: WaitObject::Unspec, ..EqAttr::default() }).expect("a queue")
}

fn with_latency() -> Faults {
    Faults { latency_min: LATENCY, ..Faults::default() }
}

#[test]
fn message_and_acknowledgement_take_the_latency() {
    let (_fabric, simulation, left, right) = open_linked_pair();
    let begin = simulation.elapsed();
    post_receive(&right);
    post_send(&left, &right, "hello");
    assert!(right.cq.sread(Some(LATENCY - Duration::from_micros(1))).expect("no failure").is_none());
    let received = right.cq.sread(None).expect("no failure").expect("a message");
    assert_eq!(received.buffer.into_received().as_deref(), Some(&b"hello"[..]));
    assert_eq!(simulation.elapsed(), begin + LATENCY);
    assert!(left.cq.sread(None).expect("no failure").is_some());
    assert_eq!(simulation.elapsed(), begin + 2 * LATENCY);
}

#[test]
fn blocking_calls_take_simulated_time() {
    let (fabric, simulation) = Fabric::simulated(1);
    let OpenEndpoint { cq, domain, .. } = open(&fabric);
    assert_eq!(cq.sread(Some(HOUR)), Ok(None));
    assert_eq!(simulation.elapsed(), HOUR);
    let counter = domain.open_counter(&CounterAttr::default()).expect("a counter");
    assert_eq!(counter.wait(1, Some(HOUR)), Err(CounterWaitError::TimedOut));
    assert_eq!(open_eq(&fabric).sread(Some(HOUR)), Ok(None));
    let set = fabric.open_wait_set(WaitObject::Unspec).expect("a set");
    assert_eq!(set.wait(Some(HOUR)), Err(WaitError::TimedOut));
    assert_eq!(simulation.elapsed(), 4 * HOUR);
    simulation.run_for(HOUR);
    assert_eq!(simulation.elapsed(), 5 * HOUR);
}

#[test]
fn wait_that_would_never_end_fails_with_deadlock() {
    let (fabric, _simulation) = Fabric::simulated(1);
    let OpenEndpoint { cq, domain, .. } = open(&fabric);
    assert_eq!(cq.sread(None), Err(ReadError::Deadlock));
    cq.signal();
    assert_eq!(cq.sread(None), Ok(None));
    let counter = domain.open_counter(&CounterAttr::default()).expect("a counter");
    assert_eq!(counter.wait(1, None), Err(CounterWaitError::Deadlock));
    assert_eq!(open_eq(&fabric).sread(None), Err(EqReadError::Deadlock));
    let set = fabric.open_wait_set(WaitObject::Unspec).expect("a set");
    assert_eq!(set.wait(None), Err(WaitError::Deadlock));
    assert_eq!(WaitError::Deadlock.errno(), Errno::EDEADLK);
}

#[test]
fn wait_set_wakes_for_a_message_under_way() {
    let (fabric, simulation) = Fabric::simulated(1);
    let (left, right) = (open(&fabric), open(&fabric));
    simulation.set_faults(with_latency());
    let set = fabric.open_wait_set(WaitObject::Unspec).expect("a set");
    let attr = CqAttr { wait: WaitObject::Set, wait_set: Some(set.clone()), ..CqAttr::default() };
    let info = fabric.info(&Hints::new()).expect("an info");
    let waited = right.domain.endpoint_builder(&info).cq_attr(attr).open().expect("an endpoint");
    post_receive(&waited);
    post_send(&left, &waited, "wake");
    assert_eq!(set.wait(None), Ok(()));
    assert_eq!(poll_text(&waited.cq).as_deref(), Some("wake"));
}

#[test]
fn wait_objects_outside_the_library_are_refused() {
    let (fabric, _simulation) = Fabric::simulated(1);
    let OpenEndpoint { domain, .. } = open(&fabric);
    for wait in [WaitObject::Fd, WaitObject::MutexCond] {
        let attr = CqAttr { wait, ..CqAttr::default() };
        let refused = domain.open_cq(&attr).expect_err("nothing wakes an application");
        assert!(matches!(refused, Error::Misuse(Misuse::NotSupported(_))), "{refused}");
        assert_eq!(fabric.open_wait_set(wait).expect_err("as for a queue").errno(), Errno::ENOSYS);
    }
}

#[test]
fn partition_holds_messages_until_it_heals() {
    let (fabric, simulation, left, right) = open_linked_pair();
    let other = open(&fabric);
    simulation.partition(&[&[address_of(&left), address_of(&other)]]);
    for endpoint in [&left, &right] {
        post_receive(endpoint);
    }
    // One side has a link, and the other endpoint of its group must still connect.
    post_send(&left, &right, "over the link");
    post_send(&other, &left, "inside");
    post_send(&right, &other, "a new link");
    assert!(simulation.run_until_idle(LONG));
    assert_eq!(poll_text(&left.cq).as_deref(), Some("inside"));
    assert_eq!((poll_text(&right.cq), poll_text(&left.cq)), (None, None));
    assert!(other.cq.read().expect("no failure").is_some(), "its send has ended");

    simulation.heal();
    post_receive(&other);
    assert!(simulation.run_until_idle(LONG));
    assert_eq!(poll_text(&right.cq).as_deref(), Some("over the link"));
    assert_eq!(poll_text(&other.cq).as_deref(), Some("a new link"));
}

#[test]
fn death_behind_a_partition_is_learned_after_it_heals() {
    let (_fabric, simulation, left, right) = open_linked_pair();
    simulation.partition(&[&[address_of(&right)]]);
    assert!(simulation.kill(address_of(&right)));
    assert!(!simulation.kill(address_of(&right)), "it is dead");
    post_send(&left, &right, "to a dead peer");
    assert_eq!(left.cq.sread_entry(Some(HOUR)), Ok(None));
    simulation.heal();
    let entry = left.cq.sread_entry(None).expect("a queue").expect("the send ends");
    let Entry::Failed(failed) = entry else { panic!("the send cannot succeed: {entry:?}") };
    assert_eq!(failed.errno(), Errno::ECONNRESET);
}

#[test]
fn new_endpoint_takes_the_address_of_a_killed_one() {
    let (fabric, simulation, left, right) = open_linked_pair();
    let address = address_of(&right);
    simulation.kill(address);
    let again = fabric.open_endpoint(&Hints::new().src_addr(address)).expect("a free address");
    assert!(simulation.run_until_idle(LONG));
    post_receive(&again);
    post_send(&left, &again, "welcome back");
    assert!(left.cq.sread(None).expect("no failure").is_some());
    assert_eq!(poll_text(&again.cq).as_deref(), Some("welcome back"));
}

#[test]
fn broken_link_fails_the_sends_under_way() {
    let (_fabric, simulation, left, right) = open_linked_pair();
    simulation.set_faults(Faults { lose_per_mille: 1000, ..with_latency() });
    post_receive(&right);
    post_send(&left, &right, "lost");
    assert_eq!(simulation.break_links(address_of(&left), address_of(&right)), 1);
    assert_eq!(left.cq.sread(None), Err(ReadError::ErrorAvailable));
}

#[test]
fn closing_endpoint_lingers_in_simulated_time() {
    let (_fabric, simulation, left, right) = open_linked_pair();
    simulation.partition(&[&[address_of(&right)]]);
    // More than the link holds, so a part of it is still at the sender.
    let long = Bytes::from(vec![7; 1 << 20]);
    left.endpoint.send(long, introduce(&left, &right), 2).expect("room");
    let begin = simulation.elapsed();
    drop(left);
    assert!(simulation.elapsed() >= begin + Duration::from_secs(2), "the default of CLOSE_LINGER_MS");
}

/// A message whose drop sends another one, and runs the simulation.
struct RunsWhenDropped {
    simulation: Simulation,
    from: OpenEndpoint,
    to: FabricAddress,
}

impl AsRef<[u8]> for RunsWhenDropped {
    fn as_ref(&self) -> &[u8] {
        b"first"
    }
}

impl Drop for RunsWhenDropped {
    fn drop(&mut self) {
        self.from.endpoint.send(Bytes::from_static(b"second"), self.to, 2).expect("room");
        assert!(self.simulation.run_until_idle(LONG));
    }
}

#[test]
fn simulation_runs_inside_a_pass_of_an_endpoint() {
    let (fabric, simulation) = Fabric::simulated(1);
    let (right, other) = (open(&fabric), open(&fabric));
    let hints = Hints::new().tx_op_flags(OpFlags::DELIVERY_COMPLETE);
    let info = fabric.info(&hints).expect("an info");
    let domain = fabric.domain(&info).expect("a domain");
    let left = domain.endpoint(&info).expect("an endpoint");
    let (cq, av) = (domain.open_cq(&CqAttr::default()), domain.open_av(&AvAttr::default()));
    let (cq, av) = (cq.expect("a queue"), av.expect("a vector"));
    // Without completions of successes, a pass drops the messages.
    let both = BindFlags::TRANSMIT | BindFlags::RECV;
    left.bind_cq(&cq, both | BindFlags::SELECTIVE_COMPLETION).expect("not bound yet");
    left.bind_av(&av).expect("not bound yet");
    left.enable().expect("all is bound");
    simulation.set_faults(with_latency());
    left.recv(BytesMut::zeroed(64), FabricAddress::UNSPECIFIED, 1).expect("room");
    post_receive(&right);
    let to = other.av.insert_one(left.name().expect("an open endpoint")).expect("an address");
    let first = RunsWhenDropped { simulation: simulation.clone(), from: other.clone(), to };
    let right_address = av.insert_one(address_of(&right)).expect("an address");
    left.send(Bytes::from_owner(first), right_address, 2).expect("room");
    assert!(simulation.run_until_idle(LONG));
    assert_eq!(poll_text(&right.cq).as_deref(), Some("first"));
    let sent = other.cq.read().expect("no failure").map(|sent| sent.context);
    assert_eq!(sent, Some(2), "the message that was sent in the pass has been acknowledged");
}

#[test]
fn automatic_progress_needs_no_thread() {
    let (fabric, simulation) = Fabric::simulated(1);
    let hints = Hints::new().progress(Progress::Auto).tx_op_flags(OpFlags::DELIVERY_COMPLETE);
    let [left, right] = [(); 2].map(|()| fabric.open_endpoint(&hints).expect("an endpoint"));
    simulation.set_faults(with_latency());
    post_receive(&right);
    post_send(&left, &right, "hello");
    assert_eq!(left.cq.sread(None).expect("no failure").map(|sent| sent.context), Some(2));
    let threads = std::fs::read_dir("/proc/self/task").expect("the kernel's list");
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    assert_eq!(names.filter(|name| name.trim() == "homespun").count(), 0);
}

#[test]
fn request_for_a_connection_times_out_in_simulated_time() {
    let (fabric, simulation) = Fabric::simulated(1);
    let info = fabric.info(&Hints::new().ep_type(EndpointType::Msg)).expect("an info");
    let (listening, asking) = (open_eq(&fabric), open_eq(&fabric));
    let passive = fabric.passive_endpoint(&info).expect("a passive endpoint");
    passive.bind_eq(&listening, 1).expect("not bound yet");
    passive.listen().expect("a queue is bound");
    let domain = fabric.domain(&info).expect("a domain");
    let cq = domain.open_cq(&CqAttr::default()).expect("a queue");
    let endpoint = domain.endpoint(&info).expect("an endpoint");
    endpoint.bind_cq(&cq, BindFlags::TRANSMIT | BindFlags::RECV).expect("not bound yet");
    endpoint.bind_eq(&asking, 2).expect("not bound yet");
    endpoint.set_connect_timeout(Some(HOUR));
    simulation.set_faults(with_latency());
    endpoint.connect(passive.name().expect("it listens"), b"").expect("a listener");
    assert_eq!(asking.sread(None), Err(EqReadError::ErrorAvailable));
    let error = asking.read_error().expect("the failure");
    assert_eq!(error.errno, Errno::ETIMEDOUT);
    let elapsed = simulation.elapsed();
    assert!((HOUR..HOUR + Duration::from_secs(1)).contains(&elapsed), "{elapsed:?}");
    assert!(listening.read().expect("no error").is_some(), "the request has arrived");
}

#[test]
fn run_whose_faults_let_nothing_through_ends_at_its_limit() {
    let (_fabric, simulation, left, right) = open_linked_pair();
    simulation.set_faults(Faults { full_per_mille: 1000, ..Faults::default() });
    post_send(&left, &right, "refused again and again");
    let begin = simulation.elapsed();
    assert!(!simulation.run_until_idle(LATENCY));
    assert!(simulation.elapsed() >= begin + LATENCY);
    simulation.set_faults(Faults::default());
    assert!(simulation.run_until_idle(LATENCY));
}

/// Runs a program with many kinds of events. Returns its trace and the keys of its regions, as text.
fn record_run(seed: u64) -> String {
    let (fabric, simulation) = Fabric::simulated(seed);
    simulation.record_trace();
    let (latency_min, latency_max) = (Duration::from_micros(100), Duration::from_millis(3));
    simulation.set_faults(Faults { latency_min, latency_max, ..Faults::nasty() });
    let nodes: Vec<OpenEndpoint> = (0..6).map(|_| open(&fabric)).collect();
    let mut text = String::new();
    for round in 0..20 {
        for (number, node) in nodes.iter().enumerate() {
            post_receive(node);
            let to = &nodes[(number + round + 1) % nodes.len()];
            let payload = Bytes::from(vec![7; 300 * (round + number)]);
            // A full queue is an event like any other.
            let _ = node.endpoint.send(payload, introduce(node, to), 2);
        }
        simulation.run_for(Duration::from_millis(2));
        for node in &nodes {
            while let Ok(Some(entry)) = node.cq.read_entry() {
                text += if matches!(entry, Entry::Failed(_)) { "failed " } else { "ended " };
            }
        }
    }
    simulation.kill(address_of(&nodes[0]));
    simulation.run_for(LONG);
    let region = nodes[1].domain.register(8, &MrAttr::default()).expect("a region");
    text += &format!("\nkey {:x}\n", region.key());
    drop(nodes);
    simulation.take_trace().iter().for_each(|event| text += &format!("{event}\n"));
    text
}

#[test]
#[ignore = "a process that the tests start"]
fn recording_process_entry() {
    let Some(mut channel) = Channel::from_parent() else { return };
    channel.send_message(&record_run(7)).expect("the test listens");
}

#[test]
fn seed_repeats_a_run_in_another_process() {
    const ENTRY: &str = concat!(module_path!(), "::recording_process_entry");
    let recorded: String = Process::spawn(ENTRY).receive_message();
    let own = record_run(7);
    assert!(own.lines().count() > 500, "the run is short:\n{own}");
    // The texts are long.
    let differing = own.lines().zip(recorded.lines()).position(|(one, other)| one != other);
    assert_eq!((differing, own.len()), (None, recorded.len()));
    assert_ne!(own, record_run(8));
}

#[test]
fn trace_tells_what_a_message_takes() {
    let (_fabric, simulation, left, right) = open_linked_pair();
    assert_eq!(simulation.take_trace(), [], "not recorded yet");
    simulation.record_trace();
    let begin = simulation.elapsed();
    post_receive(&right);
    post_send(&left, &right, "hello");
    assert!(simulation.run_until_idle(LONG));
    let trace = simulation.take_trace();
    let (from, to) = (address_of(&left), address_of(&right));
    let [sent, arrived, ..] = &trace[..] else { panic!("{trace:?}") };
    let TraceAction::Sent { count_bytes } = sent.what else { panic!("{sent}") };
    assert_eq!((sent.time, sent.from, sent.to), (begin, from, to));
    assert_eq!((arrived.time, arrived.from, arrived.to), (begin + LATENCY, from, to));
    assert_eq!(arrived.what, TraceAction::Arrived { count_bytes });
    assert!(sent.to_string().ends_with(&format!("{from} -> {to} sends {count_bytes} bytes")), "{sent}");
    assert_eq!(simulation.take_trace(), [], "taken");
}

/// A message spreads from the first of 10,000 endpoints: each passes it on to [`FAN_OUT`] others.
#[test]
fn message_spreads_to_ten_thousand_endpoints() {
    const ENDPOINTS: usize = 10_000;
    const FAN_OUT: usize = 100;
    let (fabric, simulation) = Fabric::simulated(1);
    let info = fabric.info(&Hints::new()).expect("an info");
    let domain = fabric.domain(&info).expect("a domain");
    let nodes: Vec<OpenEndpoint> = (0..ENDPOINTS)
        .map(|_| domain.endpoint_builder(&info).cq_size(4).open().expect("an endpoint"))
        .collect();
    nodes.iter().for_each(post_receive);
    simulation.set_faults(Faults { latency_max: 4 * LATENCY, ..with_latency() });
    let mut reached = vec![0];
    let mut has_received = vec![false; ENDPOINTS];
    while !reached.is_empty() {
        for number in reached.drain(..) {
            let from = &nodes[number];
            for to in (number * FAN_OUT + 1..ENDPOINTS).take(FAN_OUT) {
                let to = introduce(from, &nodes[to]);
                from.endpoint.inject(b"news", to, None, None).expect("room");
            }
        }
        assert!(simulation.run_until_idle(LONG), "latency is all that takes time");
        for (number, node) in nodes.iter().enumerate() {
            if let Some(text) = poll_text(&node.cq) {
                assert_eq!(text, "news");
                assert!(!std::mem::replace(&mut has_received[number], true), "{number} gets it again");
                reached.push(number);
            }
        }
    }
    assert_eq!(has_received.iter().filter(|received| **received).count(), ENDPOINTS - 1);
}
