//! An endpoint with what belongs to it, as most tests need it.

use std::ops::Deref;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use homespun::flags::{BindFlags, Caps, CompletionFlags, OpFlags};
use homespun::info::Info;
use homespun::{
    Address, AddressVector, AvAttr, Completion, CompletionError, CompletionQueue, CqAttr, CqFormat, Domain,
    Endpoint, Errno, FabricAddress, ReadError,
};

use super::net::Queues;

/// How long a test waits for something that must happen before it fails. Nothing is concluded from how soon it does.
const PATIENCE: Duration = Duration::from_secs(20);

/// How many rounds without an event count as silence, where silence is what is expected.
const SILENT_ROUNDS: usize = 50;

/// What a party's endpoint and queues are opened with.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setup {
    /// Empty for everything that there is.
    pub(crate) caps: Caps,
    /// The depth of the queue; 0 for the default.
    pub(crate) cq_depth_entries: usize,
    pub(crate) cq_format: Option<CqFormat>,
    /// Reports receives to a queue of their own.
    pub(crate) separate_queues: bool,
    /// Shares another party's queue instead of opening one.
    pub(crate) shares_cq: Option<CompletionQueue>,
    /// Binds the queue with selective completion.
    pub(crate) selective: bool,
    /// How many sends may be outstanding; 0 for the default.
    pub(crate) tx_depth_ops: usize,
    /// How many receives may be outstanding; 0 for the default.
    pub(crate) rx_depth_ops: usize,
    /// The default flags of sends.
    pub(crate) tx_op_flags: OpFlags,
    /// Where the endpoint is bound; `None` for a port that is free, where the transport usually is.
    pub(crate) at: Option<Address>,
    /// Leaves the party undriven until somebody reads its queue, or [`Net::wake`](super::Net::wake)s it.
    pub(crate) asleep: bool,
}

/// An endpoint in service, its queue and its address vector.
pub(crate) struct Party {
    pub(crate) endpoint: DrivenEndpoint,
    /// Reports sends, and receives too unless they have a queue of their own.
    pub(crate) cq: CompletionQueue,
    pub(crate) receive_cq: Option<CompletionQueue>,
    pub(crate) av: AddressVector,
    queues: Arc<Queues>,
}

/// An endpoint whose peers are driven while it closes: closing waits for them.
#[derive(Debug)]
pub(crate) struct DrivenEndpoint {
    /// `None` while it is being dropped.
    endpoint: Option<Endpoint>,
    queues: Arc<Queues>,
}

/// How an operation ended, and who sent what was received.
pub(crate) type Ended = Result<(Completion, FabricAddress), CompletionError>;

/// The moment when a test stops waiting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn new() -> Deadline {
        Deadline(Instant::now() + PATIENCE)
    }

    /// Lets other threads run, and fails the test if the time is over.
    #[track_caller]
    pub(crate) fn pause(self, what: &str) {
        self.pause_for(|| what.to_owned());
    }

    /// As [`pause`](Self::pause), with a description that costs something.
    #[track_caller]
    pub(crate) fn pause_for(self, what: impl FnOnce() -> String) {
        if Instant::now() >= self.0 {
            panic!("no progress while waiting for {}", what());
        }
        thread::yield_now();
    }
}

impl Party {
    pub(crate) fn open(domain: &Domain, info: &Info, setup: Setup, queues: Arc<Queues>) -> Party {
        let mut info = info.clone();
        if !setup.caps.is_empty() {
            info.caps = setup.caps;
        }
        if setup.tx_depth_ops > 0 {
            info.tx.size_ops = setup.tx_depth_ops;
        }
        if setup.rx_depth_ops > 0 {
            info.rx.size_ops = setup.rx_depth_ops;
        }
        info.tx.op_flags = setup.tx_op_flags;
        info.src_addr = setup.at.or(info.src_addr);
        let attr =
            CqAttr { size_entries: setup.cq_depth_entries, format: setup.cq_format, ..CqAttr::default() };
        let open_cq = || domain.open_cq(&attr).expect("a queue of this size");
        let cq = setup.shares_cq.unwrap_or_else(open_cq);
        let receive_cq = setup.separate_queues.then(open_cq);
        let av = domain.open_av(&AvAttr::default()).expect("an address vector");
        let endpoint = domain.endpoint(&info).expect("an endpoint");
        let selective = if setup.selective { BindFlags::SELECTIVE_COMPLETION } else { BindFlags::empty() };
        match &receive_cq {
            Some(receive_cq) => {
                endpoint.bind_cq(&cq, BindFlags::TRANSMIT | selective).expect("the first queue");
                endpoint.bind_cq(receive_cq, BindFlags::RECV | selective).expect("the first queue");
            }
            None => {
                let both = BindFlags::TRANSMIT | BindFlags::RECV | selective;
                endpoint.bind_cq(&cq, both).expect("the first queue");
            }
        }
        endpoint.bind_av(&av).expect("the first address vector");
        endpoint.enable().expect("an endpoint with all that it needs");
        let endpoint = DrivenEndpoint { endpoint: Some(endpoint), queues: queues.clone() };
        Party { endpoint, cq, receive_cq, av, queues }
    }

    /// Inserts another party's address.
    pub(crate) fn meet(&self, other: &Party) -> FabricAddress {
        let name = other.endpoint.name().expect("an endpoint in service has a name");
        self.av.insert(&[name]).remove(0).expect("an endpoint's name can be inserted")
    }

    /// What this party calls the other.
    pub(crate) fn address_of(&self, other: &Party) -> FabricAddress {
        let name = other.endpoint.name().expect("an endpoint in service has a name");
        self.av.reverse_lookup(&name).expect("the other was met")
    }

    /// The first that this party met: its peer, in tests of two.
    pub(crate) fn peer(&self) -> FabricAddress {
        FabricAddress(0)
    }

    /// Reads what is there, without driving anybody else.
    pub(crate) fn poll(&self) -> Option<Ended> {
        poll(&self.cq)
    }

    /// The next operation to end.
    #[track_caller]
    pub(crate) fn next(&self) -> Ended {
        self.next_of(&self.cq)
    }

    /// The next operation to end that reports to this queue.
    #[track_caller]
    pub(crate) fn next_of(&self, cq: &CompletionQueue) -> Ended {
        let deadline = Deadline::new();
        loop {
            if let Some(ended) = poll(cq) {
                return ended;
            }
            self.queues.progress();
            deadline.pause("a completion");
        }
    }

    /// The next operation to end, which must succeed.
    #[track_caller]
    pub(crate) fn completion(&self) -> Completion {
        self.completion_from().0
    }

    #[track_caller]
    pub(crate) fn completion_from(&self) -> (Completion, FabricAddress) {
        match self.next() {
            Ok(completed) => completed,
            Err(failed) => panic!("an operation failed: {failed:?}"),
        }
    }

    /// The next operation to end, which must fail.
    #[track_caller]
    pub(crate) fn failure(&self) -> CompletionError {
        match self.next() {
            Err(failed) => failed,
            Ok((completion, _)) => panic!("an operation did not fail: {completion:?}"),
        }
    }

    /// The next `count` operations to end, which must succeed, by the direction that they went.
    #[track_caller]
    pub(crate) fn completions(&self, count: usize) -> (Vec<Completion>, Vec<Completion>) {
        let all: Vec<Completion> = (0..count).map(|_| self.completion()).collect();
        all.into_iter().partition(|completion| completion.flags.contains(CompletionFlags::SEND))
    }

    /// Makes sure that nothing ends, as far as that can be seen by driving everybody.
    #[track_caller]
    pub(crate) fn silence(&self) {
        for _ in 0..SILENT_ROUNDS {
            self.queues.progress();
            if let Some(ended) = self.poll() {
                panic!("nothing was to end, but {ended:?} did");
            }
        }
    }

    /// Sends a message and waits until the peer holds all of it, so that it was there before anything that follows.
    #[track_caller]
    pub(crate) fn send_and_wait(&self, send: homespun::endpoint::Send) {
        let context = send.context;
        let flags = send.flags | OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION;
        self.endpoint.sendmsg(homespun::endpoint::Send { flags, ..send }).expect("a send is accepted");
        let completion = self.completion();
        assert_eq!(completion.context, context);
        assert!(completion.flags.contains(CompletionFlags::SEND));
    }
}

impl Deref for DrivenEndpoint {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        self.endpoint.as_ref().expect("it is used before it is dropped")
    }
}

impl Drop for DrivenEndpoint {
    fn drop(&mut self) {
        let endpoint = self.endpoint.take();
        thread::scope(|scope| {
            let closing = scope.spawn(|| drop(endpoint));
            while !closing.is_finished() {
                self.queues.progress();
                thread::yield_now();
            }
        });
    }
}

/// Reads what is there; an error is read as such, and must be there if it was announced.
fn poll(cq: &CompletionQueue) -> Option<Ended> {
    match cq.read_from() {
        Ok(completed) => Some(Ok(completed)),
        Err(ReadError::Empty) => None,
        Err(ReadError::ErrorAvailable) => {
            let error = cq.read_error().expect("an error was announced");
            assert_ne!(error.errno(), Errno::new(0), "an error without a number: {error:?}");
            Some(Err(error))
        }
    }
}
