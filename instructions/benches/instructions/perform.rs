//! The work under callgrind. Repeats one operation between two endpoints of one thread.

use std::process;

use crate::c_node::CNode;
use crate::collection::Phase;
use crate::native::NativeNode;
use crate::node::Node;
use crate::path::{Interface, Operation, Path};
use crate::sockets::Sockets;

/// The number of operations that warm up caches and allocations.
const WARM_UP_OPERATIONS: u32 = 200;

/// The number of counted operations.
pub(crate) const COUNTED_OPERATIONS: u32 = 1000;

/// The tag of tagged messages.
const TAG: Option<u64> = Some(7);

/// After this many polls without the expected completion, the program panics.
const PASSES_MAX: u32 = 100_000;

/// Performs the operations of a path, and exits the process. Does not close the endpoints, since closing may
/// take long.
pub(crate) fn perform(path: Path) -> ! {
    match path.interface {
        Interface::Native => Pair::<NativeNode>::open(path).perform(path.operation),
        Interface::Plugin | Interface::Libfabric => Pair::<CNode>::open(path).perform(path.operation),
    }
    process::exit(0)
}

/// Two endpoints that have each other's addresses. The left endpoint begins the operations.
struct Pair<N> {
    left: N,
    right: N,
    /// The sockets of the endpoints, or `None` over shared memory. The kernel delivers their data a little
    /// later.
    sockets: Option<Sockets>,
}

impl<N: Node> Pair<N> {
    fn open(path: Path) -> Pair<N> {
        let [mut left, mut right] = N::open_pair(path);
        left.set_peer(right.own_address());
        right.set_peer(left.own_address());
        let mut pair = Pair { left, right, sockets: None };
        pair.connect();
        if path.domain == "tcp" {
            pair.sockets = Some(pair.sockets_of_link());
        }
        pair
    }

    fn perform(&mut self, operation: Operation) {
        for (phase, operations) in [(Phase::WarmUp, WARM_UP_OPERATIONS), (Phase::Counted, COUNTED_OPERATIONS)]
        {
            for _ in 0..operations {
                self.perform_once(operation, phase);
                self.drain_stray_messages();
            }
        }
    }

    fn perform_once(&mut self, operation: Operation, phase: Phase) {
        match operation {
            Operation::Send => self.perform_send(None, phase),
            Operation::TaggedSend => self.perform_send(TAG, phase),
            Operation::Receive => self.perform_receive(None, phase),
            Operation::TaggedReceive => self.perform_receive(TAG, phase),
            Operation::Inject => {
                self.right.post_receive(None);
                phase.run_counted(|| self.left.inject());
                self.await_receive_completion();
                // This read also processes the credit that the receiver has returned.
                assert!(!self.left.poll_cq(), "an injected message has no completion");
            }
            Operation::Write => self.perform_access(N::write, phase),
            Operation::Read => self.perform_access(N::read, phase),
            Operation::FetchAdd => self.perform_access(N::fetch_add, phase),
            Operation::WriteShareable if phase == Phase::WarmUp => self.perform_access(N::write, phase),
            Operation::WriteShareable => {
                let is_done = phase.run_counted(|| {
                    self.left.write();
                    self.left.poll_cq()
                });
                assert!(is_done, "a write to shareable memory completes before the call returns");
            }
            Operation::ReadEmptyQueue => {
                let has_read = phase.run_counted(|| self.left.poll_cq());
                assert!(!has_read, "nothing was posted");
            }
            Operation::ReadFullQueue => {
                self.right.post_receive(None);
                self.left.send(None);
                let has_read = phase.run_counted(|| self.left.poll_cq());
                assert!(has_read, "a short message has left before the call returns");
                self.await_receive_completion();
            }
        }
    }

    fn perform_send(&mut self, tag: Option<u64>, phase: Phase) {
        self.right.post_receive(tag);
        let is_done = phase.run_counted(|| {
            self.left.send(tag);
            self.left.poll_cq()
        });
        if !is_done {
            poll_until(|| self.left.poll_cq());
        }
        self.await_receive_completion();
    }

    fn perform_receive(&mut self, tag: Option<u64>, phase: Phase) {
        phase.run_counted(|| self.right.post_receive(tag));
        self.left.send(tag);
        poll_until(|| self.left.poll_cq());
        self.wait_until_delivered();
        let has_message = phase.run_counted(|| self.right.poll_cq());
        assert!(has_message, "the message has arrived");
    }

    /// Waits until a message has arrived, and reads the completion of its receive.
    fn await_receive_completion(&mut self) {
        self.wait_until_delivered();
        poll_until(|| self.right.poll_cq());
    }

    /// Posts an access to the right endpoint's memory, and reads both queues until the access has completed.
    fn perform_access(&mut self, post: impl FnOnce(&mut N), phase: Phase) {
        phase.run_counted(|| post(&mut self.left));
        if phase == Phase::WarmUp && self.sockets.is_none() && self.left.poll_cq() {
            return;
        }
        self.wait_until_delivered();
        let has_read = phase.run_counted(|| self.right.poll_cq());
        assert!(!has_read, "the target gets no completion");
        self.wait_until_delivered();
        let is_done = phase.run_counted(|| self.left.poll_cq());
        assert!(is_done, "the answer has arrived");
    }

    /// If the domain uses sockets, waits until the kernel has delivered the sent bytes.
    fn wait_until_delivered(&self) {
        if let Some(sockets) = &self.sockets {
            sockets.wait_until_readable();
        }
    }

    /// Lets both endpoints process frames that belong to no operation, for example credit.
    fn drain_stray_messages(&mut self) {
        let Some(sockets) = &self.sockets else { return };
        while sockets.has_readable() {
            let has_read = self.left.poll_cq() || self.right.poll_cq();
            assert!(!has_read, "all completions were read");
        }
    }

    /// Waits until the check of the link's address claim (docs/decisions/tcp-claims.md) has ended, and its
    /// connection is closed. Returns the remaining sockets.
    fn sockets_of_link(&mut self) -> Sockets {
        // Each endpoint has its listener and its end of the link; both keep one socket together, to refuse
        // connections when there are no other descriptors.
        const LASTING_SOCKETS: usize = 5;
        let mut sockets = Sockets::of_process();
        poll_until(|| {
            let has_read = self.left.poll_cq() || self.right.poll_cq();
            assert!(!has_read, "all completions were read");
            sockets = Sockets::of_process();
            sockets.len() == LASTING_SOCKETS
        });
        sockets
    }

    /// Transfers a message in each direction, which sets up the link.
    fn connect(&mut self) {
        for _ in 0..2 {
            self.right.post_receive(None);
            poll_until(|| {
                let is_sent = self.left.try_send(None);
                // Libfabric's endpoints take no message before both have heard of each other.
                let has_read = !is_sent && (self.left.poll_cq() || self.right.poll_cq());
                assert!(!has_read, "nothing was sent");
                is_sent
            });
            let (mut sent, mut received) = (false, false);
            poll_until(|| {
                sent |= self.left.poll_cq();
                received |= self.right.poll_cq();
                sent && received
            });
            std::mem::swap(&mut self.left, &mut self.right);
        }
    }
}

fn poll_until(mut is_done: impl FnMut() -> bool) {
    for _ in 0..PASSES_MAX {
        if is_done() {
            return;
        }
    }
    panic!("no progress");
}
