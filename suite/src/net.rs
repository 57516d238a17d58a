//! A network: a transport under test, and all parties on it.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use homespun::flags::InfoFlags;
use homespun::info::{EndpointType, Info, Progress};
use homespun::params::Params;
use homespun::{Address, Domain, Fabric, FabricAddress, SimulatedClock};
use homespun_engine::loopback::Network;
use socket2::{Socket, Type};

use super::call::{Opened, QueueName};
use super::connecting::Side;
use super::deadline::take_driver_progress;
use super::driven_queues::{DrivenQueues, Driver};
use super::handle::{Endpoint, Queue};
use super::neighbours::Neighbours;
use super::party::Party;
use super::provider::NotOffered;
use super::region_spec::MemoryKind;
use super::remote_party::RemoteParty;
use super::setup::Setup;
use super::transport::{TransportKind, Turns};

/// The longest time that a closing endpoint waits until its messages are sent. A peer may read slowly on a
/// busy machine, so the time is long. No test depends on how soon messages are sent. The loopback network
/// simulates time.
const LINGER: Duration = Duration::from_secs(5);

/// How many times faster time passes on the loopback network while nothing is received. So a closing
/// endpoint waits only a fiftieth of [`LINGER`] for a peer that no thread drives.
const IDLE_PACE: u32 = 50;

/// Returns the clock of a loopback network. While nothing is received, its time passes faster: a closing
/// endpoint shall not wait long for a peer that no thread drives, and one without a network not at all. But
/// it waits for a driver that does not get to run, on a busy machine.
fn accelerated_clock(network: &Network, closes_dead: Arc<AtomicBool>) -> SimulatedClock {
    let (network, seen) = (network.clone(), AtomicU64::new(0));
    SimulatedClock::with_sleep_pace(move |waited| {
        if closes_dead.load(Ordering::Relaxed) {
            return LINGER;
        }
        let reported = network.received_count();
        let is_idle = seen.swap(reported, Ordering::Relaxed) == reported;
        if is_idle && take_driver_progress() { waited * IDLE_PACE } else { waited }
    })
}

/// A transport, and the queues of all parties on it.
#[derive(Debug)]
pub struct Net {
    // Dropped first, so that a driver that has panicked fails the test.
    drivers: Mutex<Vec<Driver>>,
    transport: TransportKind,
    /// The driver of the endpoints.
    pub turns: Turns,
    /// The fabric with the transport.
    pub fabric: Fabric,
    /// The domain of all parties.
    domain: Domain,
    /// The network inside the process, if that is the transport.
    pub network: Option<Network>,
    /// The fabric's info for this transport, with all capabilities.
    info: Info,
    /// What another provider grants, once a test has asked.
    granted: OnceLock<Info>,
    queues: Arc<DrivenQueues>,
    /// How many processes were started for parties.
    processes: AtomicUsize,
    /// Whether endpoints close that the network no longer has.
    closes_dead: Arc<AtomicBool>,
    /// Whether all parties send long messages from send buffers.
    sends_from_buffers: bool,
}

/// An address without a listener.
#[derive(Debug)]
pub struct VacantAddress {
    /// The address.
    pub address: Address,
    /// Binds the port without listening, so that no other process gets it.
    _held: Option<Socket>,
}

impl Net {
    /// Whether the first two endpoints map memory of each other.
    pub fn maps_peer_memory(&self) -> bool {
        self.transport.maps_peer_memory()
    }

    /// Creates a network without parties.
    pub fn new(transport: &TransportKind, turns: Turns) -> Net {
        let (domain, node) = transport.domain_and_address();
        let mut fabric = Fabric::with_params(Params { close_linger: LINGER, ..Params::from_env() });
        let mut network = None;
        let closes_dead = Arc::new(AtomicBool::new(false));
        if let TransportKind::Loopback { seed, faults } = transport {
            let inside = Network::new(*seed, faults.clone());
            network = Some(inside.clone());
            fabric =
                fabric.with_clock(&accelerated_clock(&inside, closes_dead.clone())).with_provider(inside);
        }
        if let TransportKind::Backend(backend) = transport {
            fabric = (backend.install)(fabric);
        }
        if let TransportKind::Mixed4 { first } = transport {
            fabric = fabric.with_provider(Neighbours::new(*first));
        }
        let mut hints = Info::default();
        hints.domain.name = Some(domain.into());
        hints.domain.data_progress = (turns == Turns::Automatic).then_some(Progress::Auto);
        let flags = InfoFlags::SOURCE | InfoFlags::NUMERIC_HOST;
        let infos = fabric
            .getinfo(Some(&node.to_string()), None, flags, Some(&hints))
            .expect("the transport is there");
        let info = infos.into_iter().next().expect("an answer is never empty");
        let domain = fabric.domain(&info).expect("the domain was offered");
        Net {
            transport: transport.clone(),
            turns,
            fabric,
            domain,
            network,
            info,
            granted: OnceLock::new(),
            queues: Arc::default(),
            drivers: Mutex::default(),
            processes: AtomicUsize::new(0),
            closes_dead,
            sends_from_buffers: false,
        }
    }

    /// Makes all parties send long messages from send buffers ([`Setup::sends_from_buffers`]).
    #[must_use]
    pub fn sending_from_buffers(mut self) -> Net {
        self.sends_from_buffers = true;
        self
    }

    /// The fabric's info for this transport, with all capabilities.
    pub fn info(&self) -> &Info {
        let TransportKind::Provider(_) = self.transport else { return &self.info };
        self.granted.get_or_init(|| self.open_answering(false).2)
    }

    /// Opens a party or a side with the default setup that answers calls. Returns its info, too.
    fn open_answering(&self, is_side: bool) -> (Arc<RemoteParty>, Opened, Info) {
        let is_here = self.turns != Turns::Processes;
        let (remote, opened) = RemoteParty::open(&self.transport, Setup::default(), is_side, is_here);
        let info = opened.granted.expect("a provider grants something").limit(self.info.clone());
        (remote, opened, info)
    }

    /// The kinds of memory that parties register: all for homespun, for another provider what `fi_mr_reg(3)`
    /// takes.
    pub fn memory_kinds(&self) -> impl Iterator<Item = MemoryKind> {
        let is_native = !matches!(self.transport, TransportKind::Provider(_));
        let is_asked =
            move |kind: &MemoryKind| is_native || matches!(kind, MemoryKind::Owned | MemoryKind::Raw);
        MemoryKind::ALL.into_iter().filter(is_asked)
    }

    /// Drives all parties once, without reading anything.
    pub fn progress(&self) {
        self.queues.progress();
    }

    /// Opens another domain than that of the parties.
    pub fn open_other_domain(&self) -> Domain {
        self.fabric.domain(&self.info).expect("the domain was offered")
    }

    /// Returns a network over the same transport, with a process for each party. Returns `None` if the
    /// transport does not reach other processes.
    pub fn with_processes(&self) -> Option<Net> {
        self.transport.reaches_other_processes().then(|| Net::new(&self.transport, Turns::Processes))
    }

    /// Whether an application can sleep until an endpoint has an event. If not, the application must poll.
    pub fn can_sleep(&self) -> bool {
        self.transport.reaches_other_processes()
    }

    /// Whether a party with this setup can be opened: another provider need not offer it.
    pub fn offers(&self, setup: Setup) -> bool {
        match panic::catch_unwind(AssertUnwindSafe(|| drop(self.open_party_with(setup)))) {
            Ok(()) => true,
            Err(panic) if panic.is::<NotOffered>() => false,
            Err(panic) => panic::resume_unwind(panic),
        }
    }

    /// Opens a party with the default setup.
    pub fn open_party(&self) -> Party {
        self.open_party_with(Setup::default())
    }

    /// Opens two parties. Each has only the other's address.
    pub fn open_pair(&self) -> (Party, Party) {
        self.open_pair_with(Setup::default(), Setup::default())
    }

    /// Opens two parties with these setups. Each has only the other's address.
    pub fn open_pair_with(&self, left: Setup, right: Setup) -> (Party, Party) {
        let (left, right) = (self.open_party_with(left), self.open_party_with(right));
        left.meet(&right);
        (left, right)
    }

    /// Opens two parties with the same setup. Each has only the other's address.
    pub fn open_equal_pair(&self, setup: Setup) -> (Party, Party) {
        self.open_pair_with(setup.clone(), setup)
    }

    /// Opens a party with this setup.
    pub fn open_party_with(&self, setup: Setup) -> Party {
        let sends_from_buffers = setup.sends_from_buffers || self.sends_from_buffers;
        let setup = Setup { sends_from_buffers, ..setup };
        let asleep = setup.asleep;
        let domain = match setup.resource_mgmt {
            None => self.domain.clone(),
            managed => {
                let mut info = self.info.clone();
                info.domain.resource_mgmt = managed;
                self.fabric.domain(&info).expect("the domain was offered")
            }
        };
        let queues = self.queues.clone();
        let has_process = self.turns == Turns::Processes;
        let party = if has_process || matches!(self.transport, TransportKind::Provider(_)) {
            let number = self.processes.fetch_add(1, Ordering::Relaxed);
            let transport = self.transport.for_process(number);
            Party::open_answering(&transport, &domain, &self.info, setup, queues, !has_process)
        } else {
            Party::open(&domain, &self.info, setup, queues)
        };
        if !asleep {
            self.start_driving(&party);
        }
        party
    }

    /// Makes a party of a connected endpoint, and drives it together with the others.
    pub(crate) fn party_of_connection(&self, side: &Side, endpoint: Endpoint) -> Party {
        let party = Party::of_connection(side, endpoint, self.queues.clone());
        self.start_driving(&party);
        party
    }

    /// Opens a side of connections, if sides answer calls over this network. Returns its info and its
    /// completion queue, too.
    pub(super) fn open_answering_side(&self) -> Option<(Arc<RemoteParty>, Info, Queue)> {
        let TransportKind::Provider(_) = self.transport else { return None };
        let (remote, opened, mut info) = self.open_answering(true);
        (info.ep.ep_type, info.src_addr) = (Some(EndpointType::Msg), Some(opened.name.0));
        let cq = Queue::new_remote(&remote, QueueName::First, &opened);
        Some((remote, info, cq))
    }

    /// Closes endpoints that were [killed](Network::kill), without waiting until their messages are sent. The
    /// endpoints of other parties have nothing left to do.
    pub(crate) fn close_dead(&self, endpoints: Vec<Endpoint>) {
        self.closes_dead.store(true, Ordering::Relaxed);
        drop(endpoints);
        self.closes_dead.store(false, Ordering::Relaxed);
    }

    /// Returns whether an endpoint can be opened at an address that a former endpoint had. An endpoint of
    /// another test may have this address now, if that endpoint asked for any free port.
    pub fn probe_address_is_free(&self, address: Address) -> bool {
        if !self.transport.reaches_other_processes() {
            return true;
        }
        let mut info = self.info.clone();
        info.src_addr = Some(address);
        self.domain.endpoint(&info).expect("an endpoint").name().is_ok()
    }

    /// Starts driving a party together with the others.
    pub fn start_driving(&self, party: &Party) {
        self.start_driving_queue(&party.cq);
        if let Some(receive_cq) = &party.receive_cq {
            self.start_driving_queue(receive_cq);
        }
    }

    /// Returns an address at which no endpoint listens while the result exists.
    pub fn reserve_vacant_address(&self) -> VacantAddress {
        if matches!(self.transport, TransportKind::Loopback { .. } | TransportKind::Backend(_)) {
            // An endpoint that asks for no port gets a port of the dynamic range. Port 9 is below that
            // range.
            let address = self.info.src_addr.expect("the transport has an address").with_port(9);
            return VacantAddress { address, _held: None };
        }
        let any_port = self.info.src_addr.expect("the transport has an address").socket_addr();
        let held = Socket::new(socket2::Domain::for_address(any_port), Type::STREAM, None).expect("a socket");
        held.bind(&any_port.into()).expect("a free port");
        let bound = held.local_addr().expect("it is bound").as_socket().expect("an IP address");
        let mut address = Address::from(bound);
        if let TransportKind::Shm4 | TransportKind::Shm6 = self.transport {
            // The socket does not reserve a port of shared memory. But endpoints get no port below the
            // dynamic range, and two vacant addresses rarely get the same number.
            address = address.with_port(1024 + address.port() % 32_768);
        }
        VacantAddress { address, _held: Some(held) }
    }

    /// [Reserves](Self::reserve_vacant_address) an address, and inserts it into a party's vector.
    pub fn insert_vacant_address(&self, party: &Party) -> (VacantAddress, FabricAddress) {
        let vacancy = self.reserve_vacant_address();
        let absent = party.insert(vacancy.address);
        (vacancy, absent)
    }

    fn start_driving_queue(&self, queue: &Queue) {
        if self.turns == Turns::Automatic {
            return;
        }
        let driven = self.queues.add(queue);
        if self.turns == Turns::Threads {
            let driver = Driver::spawn(move || driven.progress());
            self.drivers.lock().expect("no driver is added by a failing test").push(driver);
        }
    }
}
