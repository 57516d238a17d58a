//! The work under callgrind: one operation in a loop, between two endpoints of one thread.

use std::process;

use crate::collection::Phase;
use crate::native::NativeNode;
use crate::node::Node;
use crate::path::{Interface, Operation, Path};
use crate::plugin::PluginNode;
use crate::sockets::Sockets;

/// The number of operations that warm up caches and allocations.
const WARM_UP_OPERATIONS: u32 = 200;

/// The number of counted operations.
pub(crate) const COUNTED_OPERATIONS: u32 = 1000;

/// The tag of tagged messages.
const TAG: Option<u64> = Some(7);

/// The number of polls after which the endpoints count as stuck.
const PASSES_MAX: u32 = 100_000;

/// Performs a path's operations, and exits without closing the endpoints, which would linger.
pub(crate) fn perform(path: Path) -> ! {
    match path.interface {
        Interface::Native => Pair::<NativeNode>::open(path).perform(path.operation),
        Interface::Plugin => Pair::<PluginNode>::open(path).perform(path.operation),
    }
    process::exit(0)
}

/// Two endpoints with the addresses of each other. The left one initiates operations.
struct Pair<N> {
    left: N,
    right: N,
    /// The sockets of a domain that uses any: the kernel delivers asynchronously.
    sockets: Option<Sockets>,
}

impl<N: Node> Pair<N> {
    fn open(path: Path) -> Pair<N> {
        let is_shareable = path.operation == Operation::WriteShareable;
        let mut left = N::open(path.domain, is_shareable);
        let mut right = N::open(path.domain, is_shareable);
        left.set_peer(right.name());
        right.set_peer(left.name());
        let mut pair = Pair { left, right, sockets: None };
        pair.connect();
        pair.sockets = (path.domain == "tcp").then(Sockets::of_process);
        pair
    }

    fn perform(&mut self, operation: Operation) {
        for (phase, operations) in [(Phase::WarmUp, WARM_UP_OPERATIONS), (Phase::Counted, COUNTED_OPERATIONS)]
        {
            for _ in 0..operations {
                self.perform_once(operation, phase);
                self.settle();
            }
        }
    }

    fn perform_once(&mut self, operation: Operation, phase: Phase) {
        match operation {
            Operation::Send => self.send(None, phase),
            Operation::TaggedSend => self.send(TAG, phase),
            Operation::Receive => self.receive(None, phase),
            Operation::TaggedReceive => self.receive(TAG, phase),
            Operation::Inject => {
                self.right.post_receive(None);
                phase.count(|| self.left.inject());
                self.take_message();
                // This read also processes returned credit.
                assert!(!self.left.poll_cq(), "an injected message has no completion");
            }
            Operation::Write => self.access(N::write, phase),
            Operation::Read => self.access(N::read, phase),
            Operation::FetchAdd => self.access(N::fetch_add, phase),
            Operation::WriteShareable if phase == Phase::WarmUp => self.access(N::write, phase),
            Operation::WriteShareable => {
                let is_done = phase.count(|| {
                    self.left.write();
                    self.left.poll_cq()
                });
                assert!(is_done, "a write to shareable memory completes before the call returns");
            }
            Operation::ReadEmptyQueue => {
                let has_read = phase.count(|| self.left.poll_cq());
                assert!(!has_read, "nothing was posted");
            }
            Operation::ReadFullQueue => {
                self.right.post_receive(None);
                self.left.send(None);
                let has_read = phase.count(|| self.left.poll_cq());
                assert!(has_read, "a short message has left before the call returns");
                self.take_message();
            }
        }
    }

    fn send(&mut self, tag: Option<u64>, phase: Phase) {
        self.right.post_receive(tag);
        let is_done = phase.count(|| {
            self.left.send(tag);
            self.left.poll_cq()
        });
        if !is_done {
            drive(|| self.left.poll_cq());
        }
        self.take_message();
    }

    fn receive(&mut self, tag: Option<u64>, phase: Phase) {
        phase.count(|| self.right.post_receive(tag));
        self.left.send(tag);
        drive(|| self.left.poll_cq());
        self.wait();
        let has_message = phase.count(|| self.right.poll_cq());
        assert!(has_message, "the message has arrived");
    }

    /// Reads the completion of a receive for a message in flight.
    fn take_message(&mut self) {
        self.wait();
        drive(|| self.right.poll_cq());
    }

    /// Posts an access to the right endpoint's memory, and makes the progress of both.
    fn access(&mut self, post: impl FnOnce(&mut N), phase: Phase) {
        phase.count(|| post(&mut self.left));
        if phase == Phase::WarmUp && self.sockets.is_none() && self.left.poll_cq() {
            return;
        }
        self.wait();
        let has_read = phase.count(|| self.right.poll_cq());
        assert!(!has_read, "the target gets no completion");
        self.wait();
        let is_done = phase.count(|| self.left.poll_cq());
        assert!(is_done, "the answer has arrived");
    }

    /// Waits until the kernel has delivered the written bytes.
    fn wait(&self) {
        if let Some(sockets) = &self.sockets {
            sockets.wait_until_readable();
        }
    }

    /// Lets both process messages that belong to no operation, such as credit.
    fn settle(&mut self) {
        let Some(sockets) = &self.sockets else { return };
        while sockets.has_readable() {
            let has_read = self.left.poll_cq() || self.right.poll_cq();
            assert!(!has_read, "all completions were read");
        }
    }

    /// Transfers a message in each direction, which sets up the link.
    fn connect(&mut self) {
        for _ in 0..2 {
            self.right.post_receive(None);
            self.left.send(None);
            let (mut sent, mut received) = (false, false);
            drive(|| {
                sent |= self.left.poll_cq();
                received |= self.right.poll_cq();
                sent && received
            });
            std::mem::swap(&mut self.left, &mut self.right);
        }
    }
}

fn drive(mut is_done: impl FnMut() -> bool) {
    for _ in 0..PASSES_MAX {
        if is_done() {
            return;
        }
    }
    panic!("no progress");
}
