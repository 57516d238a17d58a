//! The operations that all interfaces implement.

use crate::path::Path;

/// The length of messages, writes, reads and atomic operands.
pub(crate) const LEN_BYTES: usize = 8;

/// An endpoint without locks and with manual progress. It has a completion queue, one peer, and memory for
/// accesses of the peer. A call that fails ends the process.
pub(crate) trait Node: Sized {
    /// The address of a node, and the location of its memory.
    type Name: Copy;

    /// Opens two nodes of this host for the operations of a path.
    fn open_pair(path: Path) -> [Self; 2];

    fn own_address(&self) -> Self::Name;

    /// Makes another node the peer of this node.
    fn set_peer(&mut self, peer: Self::Name);

    fn post_receive(&mut self, tag: Option<u64>);

    /// Sends a message. Returns false if the node does not accept the call now.
    fn try_send(&mut self, tag: Option<u64>) -> bool;

    fn send(&mut self, tag: Option<u64>) {
        assert!(self.try_send(tag), "the node accepts no message");
    }

    fn inject(&mut self);

    fn write(&mut self);

    fn read(&mut self);

    fn fetch_add(&mut self);

    /// Reads one completion. Returns whether there was one.
    fn poll_cq(&mut self) -> bool;
}
